"""Tables that other people keep for teaching, and the usual ones: how a newcomer's table fares, beside peers.

    python -m experiments.foreign --data DIR --out DIR --full --source dpsynth=DIR --source mbi=DIR --python FILE

Ours, and two ways that anybody can take without a tool: independence (every column measured by itself with the
whole budget, and the product of what was found) and independent noise on every cell of every table. The peers, by
the programs and under the terms of `experiments.peers`, are given exact Gaussian ρ (`peer_runs.exact_rho`), which
ours has anyhow. All are judged on all tables of the workload, and on the same natural questions
(`experiments.coverage`).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.artefact import BareAnswers
from dualquery.privacy.budget import Budget, Neighbours
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.language.formula import Query
from dualquery.queries.workload import Workload
from dualquery.releases.make import release
from dualquery.releases.release import Release
from dualquery.table.records import Records
from experiments.coverage import natural_questions
from experiments.data import FOREIGN, Data
from experiments.foreign_page import COLUMNS, INDEPENDENCE, NOISE, OURS, draw, find
from experiments.harness import AIM, Experiment, Point, Setting, Size, Value, main, parser
from experiments.peer_flags import add_flags, terms_of_flags
from experiments.peer_methods import DELTA, DPSYNTH, NLTCS, Case, Method
from experiments.peer_methods import Release as Asked
from experiments.peer_programs.nearest import nearest_distribution
from experiments.peer_runs import (
    NOT_STARTED,
    BadAnswer,
    Terms,
    checked,
    errors_of,
    make,
    starting_problem,
    tables_of,
    truth_of,
    worth_another_try,
)
from experiments.processes import DONE

QUESTIONS = 500
RUNS, PEER_RUNS = 5, 1
FIRST_RUNS = 3  # of ours and of what needs no tool before the peers, the others after the cheapest of them
EPSILONS = (1.0, 0.1, 10.0)  # in the order in which they are measured
SMALL = tuple(Case(name, 2, epsilons=EPSILONS) for name in FOREIGN if name != "births2014")
TINY = SMALL[:3]  # joint distributions of fewer than 100,000 cells
COSTS = ("processor_seconds", "card_seconds", "card")
HUGE = (Case("births2014", 2), Case("kddcup99", 2))
LARGE = (replace(NLTCS, epsilons=EPSILONS), Case("adult", 2, epsilons=EPSILONS), *HUGE)


@dataclass(frozen=True)
class Asking:
    """Natural questions about a table, and what is true of them."""

    queries: tuple[Query, ...]
    texts: tuple[str, ...]
    truth: NDArray[np.float64]

    @staticmethod
    def about(records: Records, seed: int) -> Asking:
        queries = natural_questions(records.domain, QUESTIONS, np.random.default_rng([seed, QUESTIONS]))
        texts = tuple(query.text(records.domain) for query in queries)
        return Asking(tuple(queries), texts, from_texts(records.domain, texts).counts(records) / records.rows)

    def error(self, answers: NDArray[np.float64]) -> float:
        return float(np.abs(answers - self.truth).mean())


Answered = tuple[
    dict[str, Value], NDArray[Any]
]  # errors of questions, and the fraction of every cell or rows


def released(data: Data, case: Case, epsilon: float, seed: int, **how: str) -> Release:
    """A release by default; the number of rows is not declared, so 1% of the budget measures it."""
    records = case.records(data)
    workload = Workload(records.domain, (tables_of(records, case),), case.tables)
    if "spec" in how:
        workload = from_spec(records.domain, how["spec"])
    budget = Budget(epsilon=epsilon, delta=DELTA, neighbours=Neighbours.ADD_REMOVE)
    return release(records, workload=workload, budget=budget, mechanism=how.get("mechanism"), seed=seed)


def ours(data: Data, case: Case, epsilon: float, seed: int) -> Answered:
    made = released(data, case, epsilon, seed)
    asking = Asking.about(case.records(data), seed)
    answers = made.answer_all(asking.texts)
    bars = np.array([answer.error for answer in answers], np.float64)
    off = np.abs(asking.truth - [answer.value for answer in answers])
    assert made.records is not None, "tables of few attributes are released as rows"
    return {"questions": float(off.mean()), "coverage": float((off <= bars).mean())}, made.records.to_rows()


def independence(data: Data, case: Case, epsilon: float, seed: int) -> Answered:
    """The product of one-way tables, exactly: no rows are drawn of it."""
    records = case.records(data)
    columns = one_way(data, case, epsilon, seed)
    cells = [
        np.ravel(math.prod(np.ix_(*(columns[j] for j in table)), start=np.ones(1)))
        for table in tables_of(records, case).sets
    ]
    asking = Asking.about(records, seed)
    answers = np.array([of_independent_columns(query, columns) for query in asking.queries])
    return {"questions": asking.error(answers)}, np.concatenate(cells)


def one_way(data: Data, case: Case, epsilon: float, seed: int) -> list[NDArray[np.float64]]:
    artefact = released(data, case, epsilon, seed, spec="marginals:1", mechanism="gaussian").artefact
    assert isinstance(artefact, BareAnswers)
    ends = np.cumsum(case.records(data).domain.sizes)[:-1]
    return [nearest_distribution(column) for column in np.split(artefact.values, ends)]


def of_independent_columns(query: Query, columns: Sequence[NDArray[np.float64]]) -> float:
    """The probability of a conjunction, or of its complement, when attributes are independent."""
    held = 1.0
    for attribute, values, negated in query.literals:
        chance = float(columns[attribute][list(values)].sum())
        held *= 1 - chance if negated else chance
    return 1 - held if query.complement else held


def noise(data: Data, case: Case, epsilon: float, seed: int) -> Answered:
    """It answers the tables of the workload alone, so it has no answers to questions of more attributes."""
    artefact = released(data, case, epsilon, seed, mechanism="gaussian").artefact
    assert isinstance(artefact, BareAnswers)
    tables = np.split(artefact.values, tables_of(case.records(data), case).starts[1:-1])
    return {}, np.concatenate([nearest_distribution(table) for table in tables])


IN_HOUSE: dict[str, Callable[[Data, Case, float, int], Answered]] = {
    OURS: ours,
    INDEPENDENCE: independence,
    NOISE: noise,
}


def measure(
    data: Data, case: Case, epsilon: float, seed: int, method: str, skip: str | None = None
) -> dict[str, Value]:
    """A row of ours, of independence or of independent noise, or why there is none."""
    if skip is not None:
        return {"outcome": f"{NOT_STARTED} {skip}"}
    records = case.records(data)
    truth, started = truth_of(data, case), time.process_time()
    found, answer = IN_HOUSE[method](data, case, epsilon, seed)
    seconds = time.process_time() - started
    return {
        "outcome": DONE,
        **errors_of(answer, tables_of(records, case), truth),
        **found,
        "processor_seconds": seconds,
    }


def measure_peer(data: Data, asked: Asked, terms: Terms, limit: float) -> dict[str, Value]:
    """A row of a peer, or why there is none."""
    given: dict[str, Value] = {"limit": limit}
    problem = terms.skip or starting_problem(data, asked, terms)
    if problem is not None:
        return {"outcome": f"{NOT_STARTED} {problem}", **given}
    records = asked.case.records(data)
    made = make(data, asked, terms, limit)
    used: dict[str, Value] = {**{name: cost for name, cost in made.costs.items() if name in COSTS}, **given}
    if made.ran.outcome != DONE:
        return {"outcome": made.ran.outcome, **used}
    tables = tables_of(records, asked.case)
    try:
        rows = checked(made.answer, tables)
    except BadAnswer as bad:
        return {"outcome": f"failed: {bad}", **used}
    asking = Asking.about(records, asked.seed)
    synthetic = Records.from_rows(records.domain, rows.astype(np.int64))
    answers = from_texts(records.domain, asking.texts).counts(synthetic) / len(rows)
    errors = errors_of(rows, tables, truth_of(data, asked.case))
    return {"outcome": DONE, **errors, "questions": asking.error(answers), **used}


def points(terms: Terms, setting: Setting) -> list[Point]:
    """Ours and what needs no tool first, then peers: the small tables, ε = 1 and the cheap methods before others."""
    cases = setting.choose(toy=(Case("nltcs", 2),), quick=SMALL[:3], full=(*SMALL, *LARGE))
    limit = terms.limit_of(setting.size)
    out = [
        Point(
            {**_key(case, epsilon, method), "run": seed},
            partial(measure, setting.data, case, epsilon, seed, method, terms.skip),
            again=partial(worth_another_try, terms=terms, limit=limit),
            turn=110 + 200 * (seed > 0) if case in HUGE else place + 200 * (seed >= FIRST_RUNS),
        )
        for place, case in enumerate(cases)
        for epsilon in (case.epsilons if setting.size is Size.FULL else (1.0,))
        for method in IN_HOUSE
        for seed in setting.seeds(full=RUNS)
    ]
    if setting.size is not Size.FULL:
        return out
    return out + [
        Point(
            {**_key(case, epsilon, method.name), "run": seed},
            partial(measure_peer, setting.data, wanted, terms, limit),
            cost=10.0,
            turn=100 + 10 * turn + 5 * (epsilon < 1) + 100 * (epsilon > 1) + 300 * (case in LARGE),
            again=partial(worth_another_try, terms=terms, limit=limit),
        )
        for case in cases
        for epsilon in case.epsilons
        for turn, method in enumerate(peers_of(case))
        for seed in range(PEER_RUNS)
        for wanted in [Asked(case, DPSYNTH, method.name, epsilon, seed)]
    ]


def peers_of(case: Case) -> list[Method]:
    """In the order in which they are asked; smaller cliques change nothing where the joint table is no larger."""
    smaller, *others = DPSYNTH.methods
    return others if case in TINY else [smaller, *others[1:], others[0]]


def _key(case: Case, epsilon: float, method: str) -> dict[str, Value]:
    return {"data": case.data, "tables": case.tables, "epsilon": epsilon, "method": method}


def experiment(terms: Terms) -> Experiment:
    return Experiment(
        name="foreign",
        title="Foreign tables: ours beside peers, and beside no tool at all",
        paper="On tables that other people keep for teaching, and on the usual ones, no other tool and no simple way "
        "is better than ours, and bars of 95% hold the truth in about 95 of 100 cases.",
        before=AIM,
        points=partial(points, terms),
        draw=draw,
        find=find,
        by=("data", "tables", "epsilon", "method"),
        shown=(*COLUMNS, "coverage", "processor_seconds", "outcome"),
    )


EXPERIMENT = experiment(Terms())


def arguments_of(texts: Sequence[str] | None = None) -> argparse.Namespace:
    made = parser(__doc__ or "", name="foreign")
    add_flags(made)
    return made.parse_args(texts)


if __name__ == "__main__":
    given = arguments_of()
    main(experiment(terms_of_flags(given)), given)
