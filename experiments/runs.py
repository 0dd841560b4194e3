"""One run of a mechanism, as the experiments and benchmarks make it, and its errors.

Runs are seeded, so that a point can be repeated; a real release draws from the system's entropy.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.counting import MemoryCounter
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.dual_query.parameters import (
    Learning,
    dual_query_advanced,
    dual_query_pure,
    dual_query_rho,
    from_budget,
)
from dualquery.mechanisms.mechanism import AnyMechanism, Outcome, Plan, Task, shown
from dualquery.mechanisms.wishes import DualQueryWishes
from dualquery.privacy.budget import Accounting, Budget, Neighbours, Spent
from dualquery.privacy.conversion import epsilon_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.group import NONE
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Items
from dualquery.table.records import Records
from dualquery.types import silent
from experiments.data import Data, kept
from experiments.processes import peak_bytes

ADD_REMOVE = Neighbours.ADD_REMOVE  # of all comparisons with the papers: |D △ D'| ≤ 1 in both
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
    """What a run gave, what it was planned to do, what it paid and how long it took.

    Seconds are those of the processor, of all cores together: a busy machine does not change them.
    """

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


_PLANS: dict[tuple[Any, ...], tuple[Workload, Plan[Any]]] = {}
PLANS_KEPT = 64


def planned(mechanism: AnyMechanism, task: Task, options: Mapping[str, Any]) -> Plan[Any]:
    """A plan, made once for all seeds: it is public, and DualQuery rehearses it, which takes as long as a run."""
    key = (mechanism.name, id(task.workload), task.rows, task.budget, *sorted(options.items()))
    if key not in _PLANS:
        while len(_PLANS) >= PLANS_KEPT:
            del _PLANS[next(iter(_PLANS))]
        _PLANS[key] = task.workload, mechanism.plan_for(task, dict(options))  # the workload keeps its id
    return _PLANS[key][1]


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
    plan = planned(mechanism, Task(workload, records.rows, budget), options)
    entropy, counter = SeededEntropy(seed), MemoryCounter(records)
    curator = Curator(counter, Ledger(budget), entropy)
    started = time.process_time()
    if count_first:
        counter.true_counts(workload, kept=True)
    counted = time.process_time()
    outcome = mechanism.run(plan, curator, entropy.public_generator(), silent)
    ended = time.process_time()
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


def papers_rounds(records: Records, workload: Workload, epsilon: float, delta: float, **options: Any) -> int:
    """T of DualQuery as its paper has it: the most that Theorem 4.3 affords as it is printed.

    The paper's neighbours differ by one record, |D △ D'| ≤ 1, but its theorem charges 2η(T − 1)/n for a draw,
    the range of a record that is *replaced*. So T is that of a budget for replaced records; for one added or
    removed the same run costs less.
    """
    budget = budget_of(epsilon, delta, Accounting.THEOREM_4_3, Neighbours.REPLACE)
    return from_budget(Task(workload, records.rows, budget), DualQueryWishes(**options), reserved=()).rounds


def dual_query_epsilons(
    *,
    learning_rate: float,
    samples: int,
    rounds: int,
    rows: int,
    delta: float,
    neighbours: Neighbours = Neighbours.REPLACE,
) -> dict[Accounting, float]:
    """The ε of a run of DualQuery by Theorem 4.2, by Theorem 4.3 and by ρ; as printed where records are replaced."""
    run = (Learning(learning_rate, samples, rounds), rows, neighbours)
    return {
        Accounting.PURE: float(dual_query_pure(*run)),
        Accounting.THEOREM_4_3: dual_query_advanced(*run, delta=delta),
        Accounting.ZCDP: epsilon_of(dual_query_rho(*run), delta=delta),
    }


@dataclass(frozen=True)
class Errors:
    mean: float
    max: float


def errors_of(answers: NDArray[np.float64], truth: NDArray[np.float64]) -> Errors:
    """Mean and max absolute error over a workload."""
    error = np.abs(answers - truth)
    return Errors(float(error.mean()), float(error.max()))


def zeros_errors(workload: Workload, truth: NDArray[np.float64]) -> Errors:
    """Errors of the papers' zeros table, where every binary attribute is 0.

    There each value of an attribute is a bit of its own, so that a conjunction holds if all its literals were
    drawn negated. A literal on an attribute of two values does not tell whether it was drawn as the one value
    or as the other one negated, which are as likely: the mean error is the expectation over that, and the
    largest the largest that it may be. Items are bits already.
    """
    chances = []
    for group in workload.groups:
        assert isinstance(group, Conjunctions)
        domain, literals = group.domain, group.literals
        items = np.array([isinstance(domain.column_of(j)[1], Items) for j in range(domain.width)])
        attributes = group.predicates.attribute[np.maximum(literals, 0) >> 1]
        either = (domain.sizes[attributes] == 2) & ~items[attributes]
        chance = np.where(either, 0.5, literals & 1 == 1)
        chances.append(np.where(literals == NONE, 1.0, chance).prod(axis=1))
    holds = np.concatenate(chances)
    largest = np.maximum(np.where(holds > 0, 1 - truth, 0), np.where(holds < 1, truth, 0))
    return Errors(float((holds * (1 - truth) + (1 - holds) * truth).mean()), float(largest.max()))


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
    return result, peak_bytes("self") / 1e9


def of_an_older_rule(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is to be said where DualQuery's own parameters were those of a rule that ended at 500 rounds."""
    if max((row["rounds"] for row in rows), default=501) > 500:
        return []
    return [
        "**DualQuery's own parameters are still those of an older rule here**, with at most 500 rounds and the "
        "draws of one round."
    ]
