"""What leaves of a special table: how its files are read again, what the report shows, what a record is called.

The largest cells of a release of codes, drawn as bars.

The curves of a release of points, drawn column by column with their 95% bands.

The blocks of a released graph, drawn as one map: how much goes from each class of vertices to each.

What a record of each kind of table is called, and what protecting one leaves open.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.mechanisms.artefact import Filed
from dualquery.mechanisms.distance_curves import FILE as CURVES_FILE
from dualquery.mechanisms.distance_curves import DistanceCurves
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.mechanisms.graphs import (
    BLOCKS,
    EDGES,
    PAIRS,
    RECTANGLES,
    VERTICES,
    RectangleGraph,
    WeightedGraph,
)
from dualquery.mechanisms.noisy_cells import FILE as CELLS_FILE
from dualquery.mechanisms.noisy_cells import CellFractions
from dualquery.releases import plots
from dualquery.releases.plots import (
    ACCENT,
    FONT,
    LINE,
    MOST_CELLS_A_SIDE,
    MOST_COLUMNS,
    SOFT,
    WIDTH,
    Figure,
    histogram,
)
from dualquery.table.domain import Domain

SHOWN = 15


def cell_pictures(artefact: Filed) -> list[Figure]:
    """The records that most of the table is, as far as they were asked about."""
    assert isinstance(artefact, CellFractions)
    most = np.argsort(-artefact.fraction, kind="stable")[:SHOWN]
    if not len(most):
        return []
    labels = [" · ".join(artefact.catalogue.texts[place].tolist()) for place in most.tolist()]
    name = ", ".join(column.name for column in artefact.domain.columns)
    caption = f"the {len(most)} largest of {len(artefact.fraction):,} that were asked about"
    return [Figure(name, histogram(labels, artefact.fraction[most], name=name), caption)]


HEIGHT, LEFT, BOTTOM = 180.0, 52.0, 24.0


def curve_pictures(artefact: Filed) -> list[Figure]:
    """One picture a column, of the first columns."""
    assert isinstance(artefact, DistanceCurves)
    measured = np.flatnonzero(~np.isnan(artefact.distance[:, 0]))
    return [_picture(artefact, j) for j in measured[:MOST_COLUMNS].tolist()]


def _picture(artefact: DistanceCurves, j: int) -> Figure:
    column = artefact.domain.coordinates[j]
    curve = column.width * artefact.distance[j]
    band = NormalDist().inv_cdf((1 + LEVEL) / 2) * column.width * artefact.deviation[j]
    at = column.low + np.linspace(0, column.width, len(curve))
    lowest = int(np.argmin(curve))
    caption = f"least at about {at[lowest]:.4g}, where it is {curve[lowest]:.4g}"
    return Figure(column.name, _svg(column.name, at, curve, band), caption)


def _svg(name: str, at: NDArray[np.float64], curve: NDArray[np.float64], band: NDArray[np.float64]) -> str:
    from html import escape

    most = float((curve + band).max()) * 1.05 or 1.0
    x = LEFT + (WIDTH - LEFT - 8) * (at - at[0]) / (at[-1] - at[0])

    def heights(values: NDArray[np.float64]) -> NDArray[np.float64]:
        return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 8) * np.clip(values, 0, most) / most

    upper, lower = heights(curve + band), heights(curve - band)
    outline = [*zip(x, upper, strict=True), *zip(x[::-1], lower[::-1], strict=True)]
    marks = [
        f'<line x1="{LEFT:g}" y1="{HEIGHT - BOTTOM:g}" x2="{WIDTH - 8:g}" y2="{HEIGHT - BOTTOM:g}" stroke="{LINE}"/>',
        f'<polygon points="{_path(outline)}" fill="{ACCENT}" fill-opacity=".2"/>',
        f'<polyline points="{_path(list(zip(x, heights(curve), strict=True)))}" fill="none" stroke="{ACCENT}" '
        'stroke-width="2"/>',
        *(
            _label(place, HEIGHT - 8, f"{value:.4g}", "middle")
            for place, value in [
                (LEFT + 10, at[0]),
                ((LEFT + WIDTH) / 2, (at[0] + at[-1]) / 2),
                (WIDTH - 24, at[-1]),
            ]
        ),
        *(
            _label(LEFT - 6, float(heights(np.array([value]))[0]) + 4, f"{value:.3g}", "end")
            for value in (0.0, most / 2, most)
        ),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:g} {HEIGHT:g}" font-size="{FONT:g}" role="img">'
        f"<title>Mean distance to each place of {escape(name)}</title>{''.join(marks)}</svg>"
    )


def _path(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _label(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{SOFT}">{text}</text>'


def graph_pictures(artefact: Filed) -> list[Figure]:
    """One map, of the heaviest classes."""
    assert isinstance(artefact, WeightedGraph)
    fitted = artefact.fitted
    many = len(fitted.blocks)
    mass = fitted.blocks * np.outer(
        np.bincount(fitted.classes, weights=fitted.leaves, minlength=many),
        np.bincount(fitted.classes, weights=fitted.enters, minlength=many),
    )
    shown = np.sort(np.argsort(-(mass.sum(axis=0) + mass.sum(axis=1)), kind="stable")[:MOST_CELLS_A_SIDE])
    number = np.bincount(fitted.classes, minlength=many)
    labels = []
    for k in shown.tolist():
        first = artefact.domain.vertices[int(np.flatnonzero(fitted.classes == k)[0])]
        labels.append(first if number[k] == 1 else f"{plots.shortened(first)} +{number[k] - 1}")
    shares = mass[np.ix_(shown, shown)] / max(mass.sum(), 1e-12)
    svg = plots.heat_map(labels, labels, shares, names=("source", "target"))
    caption = (
        "a class is named after its first vertex and how many others there are; percentages of all edges"
    )
    return [Figure("from (down) to (across)", svg, caption)]


if TYPE_CHECKING:
    from dualquery.releases.release import Release


@dataclass(frozen=True)
class Leaving:
    """One kind of artefact: its files, the first of which names it, and its part of the report."""

    files: tuple[str, ...]
    read: Callable[[Domain, dict[str, pa.Table]], Filed]
    use: str  # what the files are, for the report; code between backquotes
    title: str  # over the pictures
    pictures: Callable[[Filed], list[Figure]]


_EDGES = (
    f"`{EDGES}` lists edges with their weights, as a graph that nobody is behind: all pairs of a small graph, of a "
    "large one as many as stand for all. `release.to_networkx()` gives the same. "
)
_FREE = "Answers come from the other files, to the last digit; asking for any cut costs no privacy."

LEAVING: dict[str, Leaving] = {
    VERTICES: Leaving(
        (EDGES, VERTICES, BLOCKS, PAIRS),
        WeightedGraph.of_files,
        _EDGES + _FREE,
        "Between classes of vertices",
        graph_pictures,
    ),
    RECTANGLES: Leaving(
        (EDGES, RECTANGLES), RectangleGraph.of_files, _EDGES + _FREE, "The graph", lambda _: []
    ),
    CURVES_FILE: Leaving(
        (CURVES_FILE,),
        DistanceCurves.of_files,
        f"`{CURVES_FILE}` holds, for every column, the mean distance of all points to each place in it. The mean "
        "distance to a point is the sum over its columns; asking for it costs no privacy, as often as you like.",
        "The mean distance, column by column",
        curve_pictures,
    ),
    CELLS_FILE: Leaving(
        (CELLS_FILE,),
        CellFractions.of_files,
        f"`{CELLS_FILE}` holds every record that was asked about, the fraction of the table that is such a record, "
        "and how far off that may be. A list is the sum of its records; asking for it costs no privacy, as often as "
        "you like.",
        "The records that were asked about, by how many there are",
        cell_pictures,
    ),
}


def leaving_of(files: Mapping[str, object]) -> Leaving | None:
    """The kind of artefact that these files hold, None where it is records or answers."""
    return next((leaving for name, leaving in LEAVING.items() if name in files), None)


def described(release: Release) -> tuple[str, str, list[Figure]] | None:
    """What the report says of the artefact of a special table: a paragraph, a title and pictures."""
    artefact = release.artefact
    if not isinstance(artefact, Filed):
        return None
    leaving = leaving_of(artefact.files())
    assert leaving is not None, "every artefact with files is listed here"
    return coded(leaving.use), leaving.title, leaving.pictures(artefact)


def coded(text: str) -> str:
    """A paragraph of HTML with code between backquotes."""
    parts = [
        f"<code>{escape(part)}</code>" if i % 2 else escape(part) for i, part in enumerate(text.split("`"))
    ]
    return f"<p>{''.join(parts)}</p>"


@dataclass(frozen=True)
class Called:
    """The words of one kind of table."""

    record: str
    records: str
    table: str
    protects: str  # where one record is protected, and not a person
    fractions: str = "fractions of the table"  # what answers and errors are


CALLED: dict[str, Called] = {
    "records": Called(
        "record",
        "records",
        "a table",
        "It protects one record. A person with several records in the table, or a household, is protected less.",
    ),
    "graph": Called(
        "edge",
        "edges",
        "a graph",
        "It protects one edge: that it is there, where it goes, and what it weighs. A vertex, or a person with "
        "several edges, is protected less.",
    ),
    "points": Called(
        "point",
        "points",
        "a table",
        "It protects one point. A person with several points in the table is protected less.",
        "fractions of the diameter",
    ),
    "codes": Called(
        "record",
        "records",
        "a table",
        "It protects one record. A person with several records in the table is protected less.",
    ),
}


def called(kind: str) -> Called:
    """The words for a kind; a certificate of a kind that is not known here speaks of records."""
    return CALLED.get(kind, CALLED["records"])
