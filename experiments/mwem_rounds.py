"""MWEM: the error against the number of rounds, and where the program's rule for it stands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.mwem import MWEM
from dualquery.mechanisms.rounds import QuestionKind
from dualquery.queries.families import marginals
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from experiments.data import Data, kept, only_columns
from experiments.drawing import SEQUENCE, curve
from experiments.dualquery_own import drafted
from experiments.harness import (
    AIM,
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    main,
    where,
)
from experiments.mwem_figure_5 import cube
from experiments.mwem_runs import Array, cuboid_errors, cuboids, joint, learned, paid, range_case
from experiments.spread import samples_by

FACTORS = (0.35, 0.6, 1.0, 1.7, 2.8)  # of the rule's T
RULE = 1.0
NEAR = 1.1
FIRST = 5  # columns
RHO = 1e-6  # δ, where ρ pays


@dataclass(frozen=True)
class Case:
    """A table, what is asked of it, and the budgets; `seen` where the rule was chosen with an eye on it."""

    name: str
    asked: Callable[[Data], tuple[Records, Workload]]
    budgets: tuple[tuple[float, float], ...]  # ε and δ
    seen: bool = True


def _ranges(name: str) -> Callable[[Data], tuple[Records, Workload]]:
    def asked(data: Data) -> tuple[Records, Workload]:
        case = range_case(data, name, 2000)
        return case.records, case.workload

    return asked


def _tables(order: int, table: Callable[[Data], Records]) -> Callable[[Data], tuple[Records, Workload]]:
    def asked(data: Data) -> tuple[Records, Workload]:
        records = table(data)
        return records, marginals(records.domain, order)

    return asked


def _random(name: str) -> Callable[[Data], tuple[Records, Workload]]:
    """Random queries about the first columns of a drafted table."""

    def asked(data: Data) -> tuple[Records, Workload]:
        records = only_columns(drafted(data, name), range(FIRST))
        return records, random_conjunctions(records.domain, 3, 2000, seed=1)

    return asked


CUBE = "Adult, all cuboids"
PURE = ((0.1, 0.0), (0.5, 0.0))
CASES = (
    Case("age × hours, ranges", _ranges("age × hours"), ((0.1, 0.0), (0.1, RHO))),
    Case("capital-loss, ranges", _ranges("capital-loss"), ((0.1, 0.0),)),
    Case("recency × frequency, ranges", _ranges("recency × frequency"), ((0.4, 0.0),)),
    Case("NLTCS, all 3-way", _tables(3, lambda data: kept(data, "nltcs")), ((0.1, 0.0), (1.0, 0.0))),
    Case("Rochdale, all 3-way", _tables(3, lambda data: data.contingency("rochdale.csv")), ((0.5, 0.0),)),
    Case(
        "Czech workers, all 3-way",
        _tables(3, lambda data: data.contingency("czech_autoworkers.csv")),
        ((1.0, 0.0),),
    ),
    Case(
        CUBE,
        lambda data: (cube(data, 8)[0], cuboids(cube(data, 8)[0].domain)),
        (*PURE, (0.7, 0.0)),
    ),
    Case("Adult, all 2-way", _tables(2, lambda data: kept(data, "adult")), ((0.3, 0.0),)),
    Case("blood tests, five columns, random 3-way", _random("flchain"), PURE, seen=False),
    Case("diamonds, five columns, random 3-way", _random("diamonds"), ((0.1, 0.0),), seen=False),
    Case("diamonds, all 2-way", _tables(2, lambda data: drafted(data, "diamonds")), PURE, seen=False),
    Case("blood tests, all 2-way", _tables(2, lambda data: drafted(data, "flchain")), PURE, seen=False),
)
BY_NAME = {case.name: case for case in CASES}


@lru_cache(maxsize=1)
def asked(data: Data, name: str) -> tuple[Records, Workload, NDArray[np.float64] | None]:
    """Records, workload, true answers; of cuboids, which have too many cells to list, none."""
    records, workload = BY_NAME[name].asked(data)
    return records, workload, None if name == CUBE else workload.fractions(records)


def rule_of(records: Records, workload: Workload, epsilon: float, delta: float) -> tuple[int, QuestionKind]:
    chosen = MWEM.plan_for(Task(workload, records.rows, paid(epsilon, delta)), {}).parameters
    return chosen.rounds, chosen.measured


def measure(
    data: Data, name: str, epsilon: float, delta: float, factor: float, seed: int
) -> dict[str, Value]:
    """The mean error of an answer, in records."""
    records, workload, truth = asked(data, name)
    rule, kind = rule_of(records, workload, epsilon, delta)
    rounds = max(1, round(factor * rule))
    distribution = learned(records, workload, epsilon, seed, delta, rounds=rounds)
    if truth is None:
        counts: Array = cube(data, 8)[1]
        error = float(cuboid_errors(records.rows * joint(distribution) - counts).mean())
    else:
        error = float(np.abs(distribution.answers(workload) - truth).mean()) * records.rows
    return {"measured": kind.value, "rounds": rounds, "mean_error": error}


def points(setting: Setting) -> list[Point]:
    names = setting.choose(
        toy=("Rochdale, all 3-way",),
        quick=tuple(each for each in BY_NAME if each != CUBE),
        full=tuple(BY_NAME),
    )
    factors = setting.choose(toy=(0.6, RULE), quick=(0.6, RULE, 1.7), full=FACTORS)
    return [
        Point(
            {
                "case": name,
                "chosen_on": "yes" if BY_NAME[name].seen else "no",
                "epsilon": epsilon,
                "delta": delta,
                "factor": factor,
                "run": seed,
            },
            partial(measure, setting.data, name, epsilon, delta, factor, seed),
            cost=factor**2,
        )
        for name in names
        for epsilon, delta in BY_NAME[name].budgets
        for factor in factors
        for seed in setting.seeds(full=3)
    ]


def _lines(rows: Rows) -> list[tuple[str, float, float]]:
    return list(dict.fromkeys((row["case"], row["epsilon"], row["delta"]) for row in rows))


def draw(rows: Rows) -> Figure:
    """The error over that of the rule, against T over that of the rule: each line passes through (1, 1)."""
    picture = Figure(figsize=(10, 4.2), layout="constrained")
    panels = picture.subplots(1, 2, sharey=True)
    for panel, told in zip(panels, ("queries", "tables"), strict=True):
        mine = [row for row in rows if (row["measured"] == "tables") == (told == "tables")]
        if mine:
            _draw(panel, mine)
        panel.set(title=f"rounds that measure {told}", xlabel="T, in parts of the rule's")
    panels[0].set_ylabel("mean error, in parts of the rule's")
    return picture


def _draw(panel: Axes, rows: Rows) -> None:
    for place, (name, epsilon, delta) in enumerate(_lines(rows)):
        mine = where(rows, case=name, epsilon=epsilon, delta=delta)
        rule = samples_by(where(mine, factor=RULE), (), "mean_error")[()].mean
        parts = [{**row, "part": row["mean_error"] / rule} for row in mine]
        label = f"{name}, ε = {epsilon:g}{', ρ' if delta else ''}"
        curve(panel, parts, "factor", "part", SEQUENCE[place % len(SEQUENCE)], label)
    panel.set(xscale="log", yscale="log")
    panel.set_xticks(FACTORS, [f"{factor:g}" for factor in FACTORS])
    panel.set_yticks((0.7, 1, 1.5, 2, 3), ("0.7", "1", "1.5", "2", "3"))
    panel.minorticks_off()
    panel.legend(fontsize=6.5, loc="upper center")


def apart(rows: Rows, line: tuple[str, float, float]) -> float:
    """How many times the error of the rule is that of the best T of its sweep."""
    name, epsilon, delta = line
    mine = where(rows, case=name, epsilon=epsilon, delta=delta)
    errors = samples_by(mine, ("factor",), "mean_error")
    return errors[RULE,].mean / min(each.mean for each in errors.values())


def judged(rows: Rows) -> list[str]:
    """The rule beside the best of all sweeps, on tables it was chosen on and on others."""
    told = []
    for seen, words in (("yes", "it was chosen on"), ("no", "it was not chosen on")):
        far = [apart(rows, line) for line in _lines(where(rows, chosen_on=seen))]
        if far:
            near = sum(each <= NEAR for each in far)
            told.append(
                f"On tables that {words} the rule is within 10% of the best of its sweep at {near} of {len(far)} "
                f"points; its error is {float(np.exp(np.mean(np.log(far)))):.2f} times that in the geometric mean, "
                f"{max(far):.2f} times at most."
            )
    return told


def find(rows: Rows) -> str:
    """Every sweep, and how far the rule is from the best of each."""
    opening = [
        "Mean error of an answer in records (of cuboids: the average over them), a record added or removed, pure "
        f"ε or ρ at δ = {RHO:g}. A sweep has five T; its best is the lowest of five means of few runs, so that an "
        "error 1.1 times as large may be chance.",
        "",
    ]
    told = []
    for name, epsilon, delta in _lines(rows):
        mine = where(rows, case=name, epsilon=epsilon, delta=delta)
        errors = {key[0]: each for key, each in samples_by(mine, ("factor",), "mean_error").items()}
        rounds = {row["factor"]: row["rounds"] for row in mine}
        best = min(errors, key=lambda factor: errors[factor].mean)
        clear = errors[best].clearly_below(errors[RULE])
        sweep = ", ".join(f"{rounds[factor]}: {error.mean:.3g}" for factor, error in errors.items())
        told.append(
            f"- {name}, ε = {epsilon:g}{', by ρ' if delta else ''}: T = {rounds[RULE]} by the rule, "
            f"{apart(rows, (name, epsilon, delta)):.2f} times the best of the sweep"
            f"{', which is clear' if clear else ''} (by T {sweep} records)."
        )
    return "\n".join([*opening, *told, "", *judged(rows)])


EXPERIMENT = Experiment(
    name="mwem_rounds",
    title="MWEM: how many rounds",
    paper="T by public numbers: rounds go on while the noise of a measurement is below the gap still expected, and "
    "the error is within 10% of that of the best T.",
    before=AIM,
    points=points,
    draw=draw,
    find=find,
    by=("case", "chosen_on", "epsilon", "delta", "factor"),
    shown=("measured", "rounds", "mean_error"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
