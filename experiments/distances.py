"""Mean distances to many points: one factored measurement, the coordinate-wise learner, noise on each, by hand."""

from __future__ import annotations

import time
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.privacy.budget import Accounting, Budget, Neighbours, Sensitivity
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian
from dualquery.queries.distances import distances_to
from dualquery.queries.workload import Workload
from dualquery.releases.make import release
from dualquery.table.points import EARTH, GRID, Metric, Points, points_of
from dualquery.table.records import Records
from experiments.drawing import SEQUENCE, curve, legend_below
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    main,
    mean_by,
    times,
    where,
)
from experiments.spread import compared, samples_by

CURVES, LEARNER, INDEPENDENT, HISTOGRAMS = (
    "distance-curves",
    "coordinate-wise",
    "gaussian",
    "histograms by hand",
)
METHODS = (CURVES, LEARNER, INDEPENDENT, HISTOGRAMS)
WORDS = {
    CURVES: "distance curves",
    LEARNER: "coordinate-wise learner",
    INDEPENDENT: "independent noise",
    HISTOGRAMS: "histograms by hand",
}
PLACES = 30_000  # points, where metrics are compared
BESIDE = {f"curves, {metric.value}": metric for metric in Metric}
BOX = {"lat": (47.2, 55.1), "lon": (5.8, 15.1)}  # degrees
BUDGET = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
BINS = 64
MEASURED = ("mean_error", "max_error", "seconds", "true_seconds", "direct_seconds")
SUBTRACTED = 20  # points whose distances are taken record by record, to see how long that takes


@lru_cache(maxsize=1)
def table(
    rows: int, columns: int, points: int
) -> tuple[Records, Workload, NDArray[np.float64], float, float]:
    """Clustered points between 0 and 1, points to ask about, the true distances, and the seconds that these took:
    by this house's sums over columns, and record by record."""
    rng = np.random.default_rng(columns)
    domain = points_of({f"x{j}": (0.0, 1.0) for j in range(columns)})
    centres = rng.beta(2, 2, size=(8, columns))
    held = np.clip(centres[rng.integers(8, size=rows)] + rng.normal(size=(rows, columns)) / 8, 0, 1)
    records = Records.from_rows(domain, np.rint(GRID * held).astype(np.int64))
    asked = Workload(
        domain, (distances_to(domain, rng.integers(GRID + 1, size=(points, columns))),), "points"
    )
    began = time.process_time()
    truth = asked.counts(records) / (asked.unit * rows)
    took = time.process_time() - began
    codes, group = records.to_rows().astype(np.float32), asked.groups[0]
    began, some = time.process_time(), group.positions[:SUBTRACTED]  # type: ignore[attr-defined]
    for point in some.astype(np.float32):
        np.abs(codes - point).sum(axis=1).mean()
    direct = (time.process_time() - began) * asked.size / len(some)
    return records, asked, truth, took, direct


@lru_cache(maxsize=3)
def by_metric(rows: int, points: int, metric: Metric) -> tuple[Records, Workload, NDArray[np.float64]]:
    """The same table of two columns, and distances as everybody works them out: record by record, in floats."""
    records, asked, *_ = table(rows, 2, points)
    domain = points_of(BOX, metric=metric)
    group = distances_to(domain, asked.groups[0].positions)  # type: ignore[attr-defined]
    bounds = np.array(list(BOX.values()))

    def placed(codes: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(bounds[:, 0] + (bounds[:, 1] - bounds[:, 0]) * codes / GRID)

    held = placed(records.to_rows().astype(np.int64))
    truth = [float(_apart(held, here, metric).mean()) for here in placed(group.positions)]
    records = Records.from_rows(domain, records.to_rows())
    return records, Workload(domain, (group,), "points"), np.array(truth) / domain.axes.diameter


def _apart(held: NDArray[np.float64], here: NDArray[np.float64], metric: Metric) -> NDArray[np.float64]:
    if metric is Metric.L1:
        return np.asarray(np.abs(held - here).sum(axis=1))
    if metric is Metric.EUCLIDEAN:
        return np.asarray(np.sqrt(((held - here) ** 2).sum(axis=1)))
    a, b = np.radians(held), np.radians(here)  # the haversine of the arc
    flat = np.cos(a[:, 0]) * np.cos(b[0]) * np.sin((a[:, 1] - b[1]) / 2) ** 2
    return np.asarray(2 * EARTH * np.arcsin(np.sqrt(np.sin((a[:, 0] - b[0]) / 2) ** 2 + flat)))


def measure_metric(rows: int, points: int, method: str, seed: int) -> Mapping[str, Value]:
    records, asked, truth = by_metric(rows, points, BESIDE[method])
    began = time.process_time()
    made = release(records, schema=records.domain, workload=asked, budget=BUDGET, mechanism=CURVES, seed=seed)
    errors = np.abs(made.artefact.fractions(asked.groups[0]) - truth)
    took = time.process_time() - began
    return {"mean_error": float(errors.mean()), "max_error": float(errors.max()), "seconds": took}


def measure(rows: int, columns: int, points: int, method: str, seed: int) -> Mapping[str, Value]:
    records, asked, truth, took, direct = table(rows, columns, points)
    began = time.process_time()
    if method == HISTOGRAMS:
        answers = by_hand(records, asked, seed)
    else:
        made = release(
            records, schema=records.domain, workload=asked, budget=BUDGET, mechanism=method, seed=seed
        )
        answers = made.artefact.fractions(asked.groups[0])
    seconds = time.process_time() - began
    errors = np.abs(answers - truth)
    return {
        "mean_error": float(errors.mean()),
        "max_error": float(errors.max()),
        "seconds": seconds,
        "true_seconds": took,
        "direct_seconds": direct,
    }


def by_hand(records: Records, asked: Workload, seed: int) -> NDArray[np.float64]:
    """A noisy histogram of every column, the number of records known, and distances to the middles of its bins."""
    domain = records.domain
    assert isinstance(domain, Points)
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)
    event = Gaussian(Fraction(1)).event(Sensitivity(domain.width, domain.width))
    noise = float(smallest_gaussian_scale(budget, [event])) ** 0.5
    rng, codes = np.random.default_rng(seed), records.to_rows().astype(np.int64)
    middles = (np.arange(BINS) + 0.5) / BINS
    group = asked.groups[0]
    out = np.zeros(asked.size)
    for j in range(domain.width):
        held = np.bincount(np.minimum(codes[:, j] * BINS // GRID, BINS - 1), minlength=BINS)
        shares = (held + rng.normal(0, noise, BINS)) / records.rows
        apart = np.abs(group.positions[:, j, None] / GRID - middles)  # type: ignore[attr-defined]
        out += apart @ shares / domain.width
    return out


def points(setting: Setting) -> list[Point]:
    rows, asked = setting.choose(toy=(500, 20), quick=(20_000, 1000), full=(20_000, 1000))
    widths = setting.choose(toy=(3, 5), quick=(10, 100), full=(2, 10, 50, 100, 500))
    metrics = [
        Point(
            {"columns": 2, "points": asked, "method": method, "run": seed},
            partial(measure_metric, setting.choose(toy=500, quick=PLACES, full=PLACES), asked, method, seed),
        )
        for method, metric in BESIDE.items()
        for seed in setting.seeds(quick=3, full=5 if metric is Metric.GREAT_CIRCLE else 24)
    ]
    return metrics + [
        Point(
            {"columns": d, "points": asked, "method": method, "run": seed},
            partial(measure, rows, d, asked, method, seed),
            cost=float(d),
        )
        for d in widths
        for method in METHODS
        if not (method == LEARNER and d > 100)
        for seed in setting.seeds(quick=1, full=24 if method == CURVES else 3)
    ]


def draw(rows: Rows) -> Figure:
    rows = [row for row in rows if row["method"] in METHODS]
    picture = Figure(figsize=(9.5, 3.6), layout="constrained")
    panels = picture.subplots(1, 2)
    for panel, value in zip(panels, ("mean_error", "max_error"), strict=True):
        for method, look in zip(distinct(rows, "method"), SEQUENCE, strict=False):
            curve(panel, where(rows, method=method), "columns", value, look, WORDS[method])
        panel.set(
            xscale="log",
            yscale="log",
            xlabel="columns",
            ylabel=f"{value.replace('_', ' ')} (of the diameter)",
        )
    legend_below(picture, panels[0], len(WORDS))
    return picture


def find(rows: Rows) -> str:
    means = {value: mean_by(rows, ("columns", "method"), value) for value in MEASURED}
    sentences = []
    for d in distinct([row for row in rows if row["method"] in METHODS], "columns"):
        mine, others = means["mean_error"][d, CURVES], means["mean_error"]
        sentences.append(
            f"- {d} columns: {mine:.2g} mean, {means['max_error'][d, CURVES]:.2g} max of the diameter; "
            f"{times(mine / others[d, INDEPENDENT])} than {WORDS[INDEPENDENT]}, "
            f"{times(mine / others[d, HISTOGRAMS])} than {WORDS[HISTOGRAMS]}"
            + (
                f", {times(mine / others[d, LEARNER])} than the {WORDS[LEARNER]}"
                if (d, LEARNER) in others
                else ""
            )
            + f"; {means['seconds'][d, CURVES]:.2f} s, the true answers {means['true_seconds'][d, CURVES]:.2f} s by "
            f"sums over columns, {means['direct_seconds'][d, CURVES]:.1f} s record by record."
        )
    return "\n".join(
        [
            f"20,000 clustered points, {rows[0]['points']} asked about, ε = 1, δ = 10⁻⁶, add-remove. In the table "
            f"independent noise is `{INDEPENDENT}`, as on the command line.\n",
            *sentences,
            *_metrics(rows),
        ]
    )


def _metrics(rows: Rows) -> list[str]:
    mean = samples_by(rows, ("method",), "mean_error")
    if any((name,) not in mean for name in BESIDE):
        return []
    told = [f"{metric.value} {1e6 * mean[name,].mean:.0f}" for name, metric in BESIDE.items()]
    one, other = (mean[name,] for name in list(BESIDE)[:2])
    return [
        f"- {PLACES:,} points of the plane, mean error in millionths of the diameter by metric, against distances "
        f"worked out record by record: {', '.join(told)}; Euclidean {compared(other, one)} L1."
    ]


EXPERIMENT = Experiment(
    name="distances",
    title="Distances: every point at the price of about one",
    paper="Huang and Roth (2014) answer distance queries in polynomial time by a learner that keeps "
    "one column at a time.",
    points=points,
    draw=draw,
    find=find,
    by=("columns", "method"),
    shown=MEASURED,
)

if __name__ == "__main__":
    main(EXPERIMENT)
