"""A table that grows by twelve months: the current one and all so far, with what was measured before as a prior."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from dualquery.ledger.books import create
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Budget, Neighbours
from dualquery.releases.make import release
from dualquery.releases.release import Release
from dualquery.releases.series import Series
from dualquery.table.encoding import decode
from dualquery.table.persons import Calendar
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from experiments.data import Data, kept
from experiments.drawing import BLUE, GREEN, GREY, VERMILION, Look, curve, legend_below
from experiments.harness import Experiment, Point, Rows, Setting, Value, main, where
from experiments.priors import tables_wrong
from experiments.spread import samples_by

MONTHS, ROWS = 12, 2_500
BUDGET = Budget(1.0, 1e-6, Neighbours.ADD_REMOVE)
DRIFTS = {"slow": 0.3, "fast": 1.0}
ALONE, SERIES, AGAIN, KNOWN = "each alone", "series", "whole again", "known number"
LOOKS = {
    ALONE: Look(GREY, "o", "--"),
    SERIES: Look(BLUE, "s"),
    AGAIN: Look(VERMILION, "D", ":"),
    KNOWN: Look(GREEN, "^", "-."),
}


@lru_cache(maxsize=4)
def months_of(data: Data, drift: str, months: int, rows: int, seed: int) -> tuple[Records, ...]:
    """Adult in so many parts: young people come sooner, by as much as the drift says.

    A record of age rank a ∈ [0, 1] comes at t ∈ [0, 1] with density 1 + d (2a − 1)(2t − 1), so that no month differs
    from the next more than others do.
    """
    whole, rng = kept(data, "adult"), np.random.default_rng(seed)
    place = [column.name for column in whole.domain.columns].index("age")
    ages = np.argsort(np.argsort(np.asarray(whole.columns[place]) + rng.random(whole.rows))) / whole.rows
    some = rng.permutation(whole.rows)[: months * rows]
    lean, chance = DRIFTS[drift] * (2 * ages[some] - 1), rng.random(len(some))
    lean = np.where(np.abs(lean) < 1e-9, 1e-9, lean)
    # where the integral of the density is what chance says
    came = (lean - 1 + np.sqrt((1 - lean) ** 2 + 4 * lean * chance)) / (2 * lean)
    order = some[np.argsort(came)]
    return tuple(whole.take(np.sort(each)) for each in np.array_split(order, months))


def frame_of(months: tuple[Records, ...]) -> pa.Table:
    """All records with the day on which each came."""
    parts = [
        decode(records).append_column("received", pa.array([f"2024-{month:02}-01"] * records.rows))
        for month, records in enumerate(months, start=1)
    ]
    return pa.concat_tables(parts)


def together(months: tuple[Records, ...]) -> Records:
    codes = [np.stack([np.asarray(c) for c in each.columns], axis=1).astype(np.int32) for each in months]
    return Records.from_rows(months[0].domain, np.concatenate(codes))


@contextmanager
def series_of(domain: Schema, known: int | None) -> Iterator[Series]:
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder) / "ledger"
        calendar = domain.calendar
        create(
            ledger,
            name="parts",
            epsilon=BUDGET.epsilon,
            delta=BUDGET.delta,
            neighbours=BUDGET.neighbours,
            gaussian=known is None,
            calendar=calendar,
        )
        yield Series(ledger, domain, Path(folder) / "series", periods=known)


@contextmanager
def without_bars() -> Iterator[None]:
    """Projection without replicas, which take most of the time and change no row."""
    usual = MECHANISMS["projection"]
    MECHANISMS["projection"] = replace(usual, replica=None)
    try:
        yield
    finally:
        MECHANISMS["projection"] = usual


def wrong(truth: Records, made: Release) -> float:
    assert made.records is not None, "projection releases records"
    return tables_wrong(truth, made.records, None, 2)["mean"]


def measure(data: Data, drift: str, way: str, months: int, rows: int, seed: int) -> dict[str, Value]:
    """The mean error of pairs: of the current month from the second on, and of all after a quarter of them, …"""
    parts = months_of(data, drift, months, rows, seed)
    table, schema = frame_of(parts), Schema(parts[0].domain, calendar=Calendar("received", "month"))
    looked = {max(1, months // 4), months // 2, months}
    with without_bars():
        return measured(parts, table, schema, way, months, looked)


def measured(
    parts: tuple[Records, ...], table: pa.Table, schema: Schema, way: str, months: int, looked: set[int]
) -> dict[str, Value]:
    if way == ALONE:
        made = [release(parts[k - 1], budget=BUDGET, workload="marginals:2", check=0) for k in sorted(looked)]
        current = [wrong(parts[k - 1], each) for k, each in zip(sorted(looked), made, strict=True)]
        return {"current": float(np.mean(current))}
    if way == AGAIN:
        whole = together(parts)
        each = Budget(share_of(months), BUDGET.delta, BUDGET.neighbours)
        return {f"all_{months}": wrong(whole, release(whole, budget=each, workload="marginals:2", check=0))}
    found: dict[str, Value] = {}
    current = []
    with series_of(schema, months if way == KNOWN else None) as series:
        for month in range(1, months + 1):
            made_one = series.append(table, BUDGET, period=f"2024-{month:02}", check=0)
            if month > 1:
                now = made_one if way == SERIES else series.between(f"2024-{month:02}", bars=False)
                current.append(wrong(parts[month - 1], now))
            if month in looked:
                found[f"all_{month}"] = wrong(together(parts[:month]), series.so_far(bars=False))
    return {"current": float(np.mean(current)), **found}


def share_of(number: int) -> float:
    """The ε of one of so many equal parts of ρ."""
    from fractions import Fraction

    from dualquery.privacy.conversion import epsilon_of, rho_of

    return epsilon_of(
        Fraction(rho_of(epsilon=BUDGET.epsilon, delta=BUDGET.delta)) / number, delta=BUDGET.delta
    )


def points(setting: Setting) -> list[Point]:
    months, rows = setting.choose(toy=(2, 300), quick=(4, ROWS), full=(MONTHS, ROWS))
    wanted = [(drift, way) for drift in ("slow", "fast") for way in (ALONE, SERIES, KNOWN, AGAIN)]
    if setting.choose(toy=True, quick=False, full=False):
        wanted = [("slow", ALONE), ("slow", SERIES)]
    return [
        Point(
            {"drift": drift, "way": way, "months": months, "records": rows, "epsilon": 1.0, "run": seed},
            partial(measure, setting.data, drift, way, months, rows, seed),
            cost=1.0 if way in (ALONE, AGAIN) else months / 2,
            turn=seed + (0.0 if drift == "slow" else 10.0),
        )
        for drift, way in wanted
        for seed in setting.seeds(full=3)
    ]


def draw(rows: Rows) -> Figure:
    picture = Figure(figsize=(9, 4), layout="constrained")
    panels = picture.subplots(1, 2)
    for panel, drift in zip(panels, ("slow", "fast"), strict=True):
        for way, look in LOOKS.items():
            mine = [
                {"month": int(name.removeprefix("all_")), "error": value, "run": row["run"]}
                for row in where(rows, drift=drift, way=way)
                for name, value in row.items()
                if name.startswith("all_") and isinstance(value, int | float)
            ]
            if mine:
                curve(panel, mine, "month", "error", look, way)
        panel.set(xlabel="months so far", ylabel="mean L1 error of pairs", title=f"{drift} drift")
    legend_below(picture, panels[0], 4)
    return picture


def find(rows: Rows) -> str:
    sentences = []
    for column, words in (("current", "the current month"), ("all_12", "all twelve")):
        for (drift, way), error in samples_by(rows, ("drift", "way"), column).items():
            sentences.append(f"{words}, {drift} drift, {way}: {error.mean:.3f}")
    return "The mean error of pairs: " + "; ".join(sentences) + "."


EXPERIMENT = Experiment(
    name="series",
    title="A table that grows",
    paper="Our own: Adult in twelve months of 2,500 records, ε = 1 a record, one after another by chance and by age "
    "(drift); our table of births does not say when they were. "
    "Each month is released alone; or as a series, each from what those before measured; or with a known "
    "number of months; or, as a comparison, the whole table is released again each month with a twelfth of ρ. Series "
    "are charged to a ledger for Gaussian noise alone; those with a known number of months to one that adds up ρ, "
    "which buys less accuracy for the same ε.",
    before="What was measured before makes the next release better, and sums of noisy tables cost nothing",
    points=points,
    draw=draw,
    find=find,
    by=("drift", "way"),
    shown=("current", "all_3", "all_6", "all_12"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
