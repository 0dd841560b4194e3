"""One run of a mechanism, as the experiments and benchmarks make it, and its errors.

Runs are seeded, so that a point can be repeated; a real release draws from the system's entropy.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.memory import MemoryCounter
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.choose import AnyMechanism
from dualquery.mechanisms.dual_query.price import dual_query_advanced, dual_query_pure, dual_query_rho
from dualquery.mechanisms.mechanism import Outcome, Plan, Task, shown, silent
from dualquery.privacy.budget import Accounting, Budget, Spent
from dualquery.privacy.conversion import epsilon_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.predicates import NONE
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.records import Records
from experiments.data import Data, kept

ENOUGH = 1e6  # an ε that pays for parameters fixed beforehand; what they cost is written down


def budget_of(
    epsilon: float,
    delta: float,
    accounting: Accounting = Accounting.ZCDP,
    neighbours: Neighbours = Neighbours.REPLACE,
) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)


@dataclass(frozen=True)
class Run:
    """What a run gave, what it was planned to do, what it paid and how long it took."""

    outcome: Outcome
    plan: Plan[Any]
    spent: Spent
    counting_seconds: float  # 0 where the mechanism decides what is counted, and `seconds` holds all
    seconds: float

    @property
    def parameters(self) -> Mapping[str, int | float | str]:
        """The parameters of the plan, by name."""
        return shown(self.plan.parameters)

    @property
    def records(self) -> Records:
        """The synthetic records, of a mechanism that makes them."""
        return records_of(self.outcome)


def run_of(
    mechanism: AnyMechanism,
    records: Records,
    workload: Workload,
    budget: Budget,
    seed: int,
    *,
    count_first: bool = False,
    **options: Any,
) -> Run:
    """A run of a mechanism; under add-remove the number of records is declared.

    `count_first` tells the time of counting apart, for mechanisms that count the whole workload.
    """
    plan = mechanism.plan_for(Task(workload, records.rows, budget), options)
    entropy, counter = SeededEntropy(seed), MemoryCounter(records)
    curator = Curator(counter, Ledger(budget), entropy)
    started = time.perf_counter()
    if count_first:
        counter.true_counts(workload, kept=True)
    counted = time.perf_counter()
    outcome = mechanism.run(plan, curator, entropy.public_generator(), silent)
    ended = time.perf_counter()
    return Run(outcome, plan, curator.ledger.spent(), counted - started, ended - counted)


@dataclass(frozen=True)
class Asked:
    """A table, what is asked of it, and the true answers."""

    records: Records
    workload: Workload
    truth: NDArray[np.float64]


@lru_cache(maxsize=1)
def asked_at_random(data: Data, name: str, queries: int) -> Asked:
    """Random 3-way queries about a data set, as in the papers' experiments; kept for the points that follow."""
    records = kept(data, name)
    workload = random_conjunctions(records.domain, 3, queries, seed=1)
    return Asked(records, workload, workload.fractions(records))


def dual_query_epsilons(
    *, learning_rate: float, samples: int, rounds: int, rows: int, delta: float
) -> dict[Accounting, float]:
    """The ε of a run of DualQuery by Theorem 4.2, by Theorem 4.3 and by ρ, where neighbours replace a record."""
    run: dict[str, Any] = {
        "learning_rate": learning_rate,
        "samples": samples,
        "rounds": rounds,
        "rows": rows,
        "neighbours": Neighbours.REPLACE,
    }
    return {
        Accounting.PURE: float(dual_query_pure(**run)),
        Accounting.THEOREM_4_3: dual_query_advanced(**run, delta=delta),
        Accounting.ZCDP: epsilon_of(dual_query_rho(**run), delta=delta),
    }


def zeros_answers(workload: Workload) -> NDArray[np.float64]:
    """The papers' zeros table, where every binary attribute `attribute = value` is 0.

    A conjunction holds there if all its literals are negated.
    """
    answers = []
    for group in workload.groups:
        assert isinstance(group, Conjunctions)
        answers.append(((group.literals & 1 == 1) | (group.literals == NONE)).all(axis=1))
    return np.concatenate(answers).astype(np.float64)


@dataclass(frozen=True)
class Errors:
    mean: float
    max: float


def errors_of(answers: NDArray[np.float64], truth: NDArray[np.float64]) -> Errors:
    """Mean and max absolute error over a workload."""
    error = np.abs(answers - truth)
    return Errors(float(error.mean()), float(error.max()))


def records_of(outcome: Outcome) -> Records:
    """The synthetic records of an outcome that has some."""
    assert isinstance(outcome.artefact, SyntheticRecords), "this mechanism makes no records"
    return outcome.artefact.records


def answers_of(outcome: Outcome, workload: Workload) -> NDArray[np.float64]:
    """What a release answers: the distribution that it was drawn from, its own answers, or those of its records."""
    if outcome.belief is not None:
        return outcome.belief.answers(workload)
    if outcome.answers is not None:
        return outcome.answers
    return workload.fractions(records_of(outcome))


def in_fresh_process(function: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
    """A function's result and the peak memory in GB of the process made for it."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(_with_peak, (function, arguments))


def _with_peak(function: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, float]:
    result = function(*arguments)
    return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
