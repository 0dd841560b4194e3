"""Points: each record is a point between public bounds, and questions are mean distances."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np

from dualquery import example, plots
from dualquery.beliefs.weighted_rows import WeightedRows
from dualquery.kinds.kind import Kind, Stored, not_of_this_table
from dualquery.mechanisms.artefact import Artefact
from dualquery.mechanisms.distances import FILE, DistanceCurves, middle
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.queries.distances import DISTANCES
from dualquery.table.points import GRID, KNOTS, Metric, Points
from dualquery.table.records import Records

BELIEVED = 4096  # points of a hypothesis
GOLDEN = 0.6180339887498949


def figures(artefact: DistanceCurves) -> list[plots.Figure]:
    """The curves with their 95% bands, column by column; directions that are no columns are not drawn."""
    if artefact.domain.metric is not Metric.L1:
        return []
    measured = np.flatnonzero(~np.isnan(artefact.distance[:, 0]))
    return [_figure(artefact, j) for j in measured[: plots.MOST_COLUMNS].tolist()]


def _figure(artefact: DistanceCurves, j: int) -> plots.Figure:
    column = artefact.domain.coordinates[j]
    curve = column.width * artefact.distance[j]
    band = NormalDist().inv_cdf((1 + LEVEL) / 2) * column.width * artefact.deviation[j]
    at = column.low + np.linspace(0, column.width, len(curve))
    lowest = int(np.argmin(curve))
    title = f"Mean distance to each place of {column.name}"
    caption = f"least at about {at[lowest]:.4g}, where it is {curve[lowest]:.4g}"
    return plots.Figure(column.name, plots.banded_curve(at, curve, band, title), caption)


def believes(domain: Points, artefact: Artefact | None) -> WeightedRows:
    """Points at even steps of each column's distribution, which its curve says: D′(y) = 2F(y) − 1, F made to rise.

    Columns are shuffled against each other: their distances add up, whatever lies together. Of other metrics than L1
    the curves are of directions, and points begin as those of columns that were not measured.
    """
    if not isinstance(artefact, DistanceCurves):
        raise not_of_this_table()
    steps = (np.arange(BELIEVED) + 0.5) / BELIEVED
    codes = np.empty((BELIEVED, domain.width), np.int64)
    for j in range(domain.width):
        curve = artefact.distance[j] if domain.metric is Metric.L1 else middle()
        below = (1 + KNOTS * np.diff(np.where(np.isnan(curve), middle(), curve))) / 2  # F between two knots
        rising = (np.maximum.accumulate(below) + np.minimum.accumulate(below[::-1])[::-1]) / 2
        places = np.interp(
            steps, np.clip(rising, 0, 1), (np.arange(KNOTS) + 0.5) / KNOTS, left=0.0, right=1.0
        )
        turned = np.argsort((np.arange(BELIEVED) * GOLDEN ** (j + 1)) % 1.0, kind="stable")
        codes[:, j] = np.rint(places[turned] * GRID)
    return WeightedRows(Records.from_rows(domain, codes))


POINTS = Kind(
    domain=Points,
    grammar=DISTANCES,
    # The evidence is in docs/learners.md, made by `experiments/distances.py`.
    prefers=lambda task: (
        (
            "distance-curves",
            "Chosen because Gaussian noise can be paid for, where curves answer every point.",
        ),
        ("coordinate-wise", "Chosen because Gaussian noise cannot be paid for."),
    ),
    stored=(
        Stored(
            (FILE,),
            DistanceCurves.of_files,
            f"`{FILE}` holds, for every column, the mean distance of all points to each place in it. The mean "
            "distance to a point is the sum over its columns; asking for it costs no privacy, as often as you like.",
            "The mean distance, column by column",
            figures,
        ),
    ),
    record="point",
    records="points",
    protects="It protects one point. A person with several points in the table is protected less.",
    fractions="fractions of the diameter",
    example=example.customers,
    believes=believes,
    first=lambda domain: "points:random:1000",
)
