"""Sparse queries: look-ups and lists in a universe of 2^64 records and more."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import lru_cache, partial
from itertools import pairwise

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.queries.lists import Catalogue, Lists
from dualquery.queries.workload import Workload
from dualquery.table.graph import cells_of, codes_table
from dualquery.table.records import Records
from experiments.drawing import legend_below, mean_and_max_dots
from experiments.harness import Experiment, Point, Rows, Setting, Value, main, mean_by, where
from experiments.runs import answers_of, run_of
from experiments.special_cases import (
    EPSILON,
    independent,
    options_of,
    special_budget,
    sweep,
    swept_words,
    unit_noise,
)

TABLE = codes_table({"code": (0, 2**53)})
RECORDS = 100_000
LOOKUPS, LISTS = "50,000 look-ups", "20,000 lists of 100"
STREAM = "10⁶ lists of 100, one by one"
INCIDENCE, SIZE, BY_HAND = "noise by incidence", "noise by group size", "by hand"
LEARNER = "touched-weights"
ROUNDS = {
    LOOKUPS: (6, 12, 25, 50, 100, 200),
    LISTS: (200, 400, 800, 1600, 3200, 6400, 12800),
}  # of the sweeps
WORDS = {
    "noisy-cells": "noisy cells (chosen)",
    LEARNER: "touched weights (Blum, Roth)",
    INCIDENCE: "independent noise by incidence, σ√r",
    SIZE: "independent noise by group size, σ√K/2",
    BY_HAND: "a noisy table of all codes, as it came",
}
STREAM_LISTS = 1_000_000


def codes(case: str) -> NDArray[np.int64]:
    """The code of each record, by Zipf's law: the i-th code has a share in proportion to 1/i."""
    number = 200_000 if case == LOOKUPS else 20_000
    edges = np.cumsum(1 / np.arange(1, number + 1))
    return np.searchsorted(edges, edges[-1] * np.random.default_rng(0).random(RECORDS), side="right")


@lru_cache(maxsize=1)
def asked(case: str) -> tuple[Records, Workload, NDArray[np.float64]]:
    records = Records(TABLE, RECORDS, (codes(case).astype(np.uint64),))
    rng = np.random.default_rng(1)
    if case == LOOKUPS:
        chosen = rng.choice(200_000, 50_000, replace=False)
        start = np.arange(50_001)
    else:
        chosen = np.concatenate([rng.choice(20_000, 100, replace=False) for _ in range(20_000)])
        start = np.arange(0, 100 * 20_000 + 1, 100)
    cells = cells_of([chosen.astype(np.uint64)], len(chosen))
    for first, last in pairwise(start.tolist()):
        cells[first:last].sort()
    distinct = np.unique(chosen)
    named = cells_of([distinct.astype(np.uint64)], len(distinct))
    order = np.argsort(named)
    catalogue = Catalogue(named[order], distinct[order].astype(str)[:, None])
    said = tuple(f"list {i}" for i in range(len(start) - 1))
    group = Lists(TABLE, start.astype(np.int64), cells, said, catalogue)
    workload = Workload(records.domain, (group,), case)
    return records, workload, workload.fractions(records)


def by_hand(case: str, workload: Workload, seed: int) -> NDArray[np.float64]:
    """A Gaussian on every code that is asked about, and sums of them."""
    (group,) = workload.groups
    assert isinstance(group, Lists)
    held, times = np.unique(cells_of([codes(case).astype(np.uint64)], RECORDS), return_counts=True)
    named = group.catalogue.cells
    place = np.minimum(np.searchsorted(held, named), len(held) - 1)
    count = np.where(held[place] == named, times[place], 0)
    noisy = count + np.random.default_rng(seed).normal(0, unit_noise(special_budget()), len(named))
    sums = np.concatenate([[0.0], np.cumsum(noisy[np.searchsorted(named, group.cells)])])
    return np.clip((sums[group.start[1:]] - sums[group.start[:-1]]) / RECORDS, 0, 1)


def measure(case: str, method: str, seed: int) -> dict[str, Value]:
    if case == STREAM:
        alone = subprocess.run(
            [sys.executable, "-m", "experiments.sparse_stream"], capture_output=True, check=True
        )
        return {"queries": STREAM_LISTS, **json.loads(alone.stdout)}
    records, workload, truth = asked(case)
    seconds: Value = ""
    rounds: Value = ""
    if method in (INCIDENCE, SIZE):
        by = method == INCIDENCE
        answers = independent(workload, truth, RECORDS, special_budget(), seed, incidence=by)
    elif method == BY_HAND:
        answers = by_hand(case, workload, seed)
    else:
        name, options = options_of(method)
        run = run_of(MECHANISMS[name], records, workload, special_budget(), seed, **options)
        answers, seconds = answers_of(run.outcome, workload), run.seconds
        rounds = run.parameters.get("rounds", "")
    error = RECORDS * np.abs(answers - truth)
    return {
        "queries": workload.size,
        "rounds": rounds,
        "mean": float(error.mean()),
        "max": float(error.max()),
        "seconds": seconds,
    }


def points(setting: Setting) -> list[Point]:
    cases = setting.choose(toy=(LISTS,), quick=(LOOKUPS, LISTS), full=(LOOKUPS, LISTS))
    methods = setting.choose(toy=("noisy-cells", INCIDENCE), quick=(*WORDS,), full=(*WORDS,))
    found = [
        Point({"case": case, "method": method, "run": seed}, partial(measure, case, method, seed), cost=1)
        for case in cases
        for method in (*methods, *setting.choose(toy=(), quick=(), full=sweep(LEARNER, ROUNDS[case])))
        for seed in setting.seeds(full=5 if method == LEARNER else 3)
    ]
    timed = Point({"case": STREAM, "method": LEARNER, "run": 0}, partial(measure, STREAM, "", 0), cost=10)
    return setting.choose(toy=found, quick=[*found, timed], full=[*found, timed])


def draw(rows: Rows) -> Figure:
    cases = [case for case in (LOOKUPS, LISTS) if where(rows, case=case)]
    picture = Figure(figsize=(8.5, 2.2 * len(cases) + 0.3), layout="constrained")
    for panel, case in zip(np.ravel(picture.subplots(len(cases), 1)), cases, strict=True):
        mean_and_max_dots(panel, where(rows, case=case), WORDS, ("mean", "max"))
        panel.set(title=f"{case}, n = {RECORDS:,}", xlabel="error, in records")
    legend_below(picture, panel, 2)
    return picture


def find(rows: Rows) -> str:
    told = [f"ε = {EPSILON:g}, δ = 10⁻⁶, add-remove, n = {RECORDS:,} invented records.", ""]
    for case in (LOOKUPS, LISTS):
        mine = where(rows, case=case)
        mean, largest = (mean_by(mine, ("method",), c) for c in ("mean", "max"))
        said = [f"{WORDS[m]} {mean[m,]:.2f} / {largest[m,]:.0f}" for m in WORDS if (m,) in mean]
        if said:
            told.append(
                f"- {case}, mean / max error in records: {'; '.join(said)}. Touched weights, mean error with "
                f"{swept_words(mine, LEARNER, 'mean', '.2f')}."
            )
    for row in where(rows, case=STREAM):
        told.append(
            f"- {STREAM}, over 2⁶⁴ cells: {row['seconds']:.1f} s of CPU, {row['gigabytes']:.2f} GB, "
            f"{row['touched']:,.0f} cells touched (every thousandth list is learned)."
        )
    told += [
        "",
        "Cells partition all records, so that a whole histogram costs what one look-up costs; shrinking knows that "
        "most cells are empty. Weights over touched cells must find the look-ups that matter among many that are "
        "empty; of lists that overlap any one teaches something about others.",
    ]
    return "\n".join(told)


EXPERIMENT = Experiment(
    name="sparse",
    title="Sparse queries: look-ups and lists over 2^64",
    paper="Blum and Roth 2013: multiplicative weights over the cells that queries accept, in time S a query. They "
    "measure nothing.",
    points=points,
    draw=draw,
    find=find,
    by=("case", "method"),
    shown=("queries", "rounds", "mean", "max", "seconds", "gigabytes", "touched"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
