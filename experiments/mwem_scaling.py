"""MWEM, the scaling paragraph of section 4: run time for 27, 77 and 1,000 attributes, kept in parts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.beliefs.factored import Factored
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.mwem import automatic_rounds
from dualquery.queries.families import from_spec, parities
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records
from experiments.biased import biased_records
from experiments.drawing import GREY, MWEM, Look, dots, name_lines
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    listed,
    main,
    mean_by,
    times,
    where,
)
from experiments.mwem_runs import averaged, learned, paid, uniform
from experiments.runs import errors_of

ADULT, WIDENED, INDEPENDENT = "Adult", "Adult, widened", "independent"
PAPER_SECONDS = {27: 80, 1000: 19}  # section 4, which gives no number for 77
MEASURED = ("rounds", "seconds", "processor_seconds", "mean_error", "uniform_mean_error", "other_parts")


@dataclass(frozen=True)
class Case:
    """A table and what is asked of it, with T by the rule for so many binary attributes."""

    name: str
    attributes: int
    rounds_as_for: int
    make: Callable[[], Records]
    queries: str


def cases(setting: Setting) -> list[Case]:
    large = (27, 50, 1000, 50_000)
    width, more, many, pairs = setting.choose(toy=(8, 4, 30, 100), quick=large, full=large)
    data = setting.data
    return [
        Case(ADULT, width, width, lambda: data.binary_adult(width), "parities:3"),
        Case(WIDENED, width + more, width, lambda: data.binary_adult(width, more), "parities:3"),
        Case(
            INDEPENDENT,
            many,
            many,
            lambda: biased_records(many, 10_000, seed=3),
            f"parities:1 + random:2:{pairs}",
        ),
    ]


@lru_cache(maxsize=1)
def warm() -> None:
    """Compile what a run needs, so that no run is charged for it: a small one whose parts become one."""
    small = biased_records(16, 100, seed=1)
    learned(small, parities(small.domain, 3), epsilon=1.0, seed=0, rounds=60)


@lru_cache(maxsize=1)
def asked(case: Case) -> tuple[Records, Workload, NDArray[np.float64], float]:
    """Records, queries, their true answers and the mean error of the uniform guess."""
    records = case.make()
    workload = from_spec(records.domain, case.queries)
    learned(records, workload, epsilon=1.0, seed=0, rounds=2)  # warms up what only large workloads use
    truth = workload.fractions(records)
    guess = errors_of(uniform(records.domain).answers(workload), truth)
    return records, workload, truth, guess.mean


def rounds_of(case: Case, rows: int, epsilon: float) -> int:
    domain = Domain((Items("x", case.rounds_as_for),))
    return automatic_rounds(Task(parities(domain, 1), rows, paid(epsilon)))


def parts_learned(distribution: Factored) -> int:
    """How many parts of a distribution are no longer uniform."""
    alive = distribution.owner == np.arange(distribution.domain.width)  # the others were merged
    return int(np.count_nonzero(alive & (distribution.changes > 0)))


def measure(case: Case, epsilon: float, seed: int) -> dict[str, Value]:
    warm()
    records, workload, truth, guess = asked(case)
    rounds = rounds_of(case, records.rows, epsilon)
    started, busy = time.perf_counter(), time.process_time()
    distribution = learned(records, workload, epsilon, seed, rounds=rounds)
    seconds, processor_seconds = time.perf_counter() - started, time.process_time() - busy
    errors = errors_of(distribution.answers(workload), truth)
    return {
        "queries": workload.size,
        "rounds": rounds,
        "seconds": seconds,
        "processor_seconds": processor_seconds,  # less on a busy machine, more on several cores
        "mean_error": errors.mean,
        "max_error": errors.max,
        "uniform_mean_error": guess,
        "other_parts": parts_learned(distribution) - 1,
    }


def points(setting: Setting) -> list[Point]:
    epsilons = setting.choose(toy=(0.01, 1.0), quick=(1.0,), full=(1.0,))
    return [
        Point(
            {"data": case.name, "attributes": case.attributes, "epsilon": epsilon, "run": seed},
            partial(measure, case, epsilon, seed),
        )
        for case in cases(setting)
        for epsilon in epsilons
        for seed in setting.seeds(full=5)
    ]


def draw(rows: Rows) -> Figure:
    cases = [where(rows, data=name) for name in distinct(rows, "data")]
    names = [f"{case[0]['data']}, {case[0]['attributes']:,} attributes" for case in cases]
    there = [PAPER_SECONDS.get(case[0]["attributes"], np.nan) for case in cases]
    picture = Figure(figsize=(9.5, 2.6), layout="constrained")
    clock, accuracy = picture.subplots(1, 2, sharey=True)
    lines = range(len(cases))
    clock.plot(there, lines, "D", color=GREY, mfc="none", ms=8, label="the paper, 2012")
    dots(clock, lines, cases, "seconds", MWEM, "here")
    clock.set(xlabel="seconds of a run", xscale="log")
    dots(accuracy, lines, cases, "uniform_mean_error", Look(GREY, "s"), "uniform guess")
    dots(accuracy, lines, cases, "mean_error", MWEM, "MWEM")
    accuracy.set(xlabel="mean error of a query (fraction)", xlim=(0, None))
    for panel in (clock, accuracy):
        name_lines(panel, names)
        panel.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, frameon=False)
    return picture


def find(rows: Rows) -> str:
    opening = (
        f"{averaged(rows)} at ε = {listed(distinct(rows, 'epsilon'))}; reading the data and compiling are left out, "
        "counting the queries is not."
    )
    each = (_found(where(rows, data=name), name) for name in distinct(rows, "data"))
    return " ".join([opening, *each, *_widening(rows)])


def _found(rows: Rows, name: str) -> str:
    means = {column: mean_by(rows, ("data",), column)[name,] for column in MEASURED}
    attributes = rows[0]["attributes"]
    paper = f" (the paper: {PAPER_SECONDS[attributes]} s)" if attributes in PAPER_SECONDS else ""
    sentences = [
        f"{attributes:,} attributes ({name}, {rows[0]['queries']:,} queries, {means['rounds']:.0f} rounds): "
        f"{means['seconds']:.1f} s{paper}, mean error {means['mean_error']:.4f}, "
        f"{times(means['mean_error'] / means['uniform_mean_error'])} than the uniform guess."
    ]
    if means["processor_seconds"] < 0.8 * means["seconds"]:
        sentences.append(
            f"The machine had other work to do: the run itself had {means['processor_seconds']:.1f} s of a processor."
        )
    if means["rounds"] < attributes:
        sentences.append(
            "These are fewer rounds than attributes, some of which therefore keep the uniform guess."
        )
    return " ".join(sentences)


def _widening(rows: Rows) -> list[str]:
    """What independent attributes beside the others cost, and why it may be less than nothing."""
    means = {column: mean_by(rows, ("data",), column) for column in MEASURED}
    ratio = means["processor_seconds"][WIDENED,] / means["processor_seconds"][ADULT,]
    if np.isnan(ratio):
        return []
    sentences = [f"With independent attributes beside it Adult takes {ratio:.2f} times the processor's time."]
    if ratio < 1:
        sentences.append(
            f"Of as many rounds at least {means['other_parts'][WIDENED,]:.0f} then go to parts beside the largest "
            f"({means['other_parts'][ADULT,]:.0f} without them), and a round goes over the measurements of its own "
            "part alone."
        )
    return sentences


EXPERIMENT = Experiment(
    name="mwem_scaling",
    title="MWEM, section 4: run time for 27, 77 and 1,000 attributes",
    paper="A binarised Adult with 27 attributes takes 80 seconds; 50 more, independent attributes have a negligible "
    "impact; a synthetic table of 1,000 independent attributes takes 19 seconds.",
    points=points,
    draw=draw,
    find=find,
    by=("data", "attributes", "epsilon"),
    shown=("queries", *MEASURED, "max_error"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
