"""What leaves of a special table: how its files are read again, what the report shows, what a record is called."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

import pyarrow as pa

from dualquery.mechanisms.distances.artefact import FILE as CURVES_FILE
from dualquery.mechanisms.distances.artefact import DistanceCurves
from dualquery.mechanisms.filed import Filed
from dualquery.mechanisms.graphs.artefact import BLOCKS, EDGES, PAIRS, VERTICES, WeightedGraph
from dualquery.mechanisms.graphs.rectangles import RECTANGLES, RectangleGraph
from dualquery.mechanisms.lists.artefact import FILE as CELLS_FILE
from dualquery.mechanisms.lists.artefact import CellFractions
from dualquery.releases.cell_pictures import cell_pictures
from dualquery.releases.curve_pictures import curve_pictures
from dualquery.releases.graph_pictures import graph_pictures
from dualquery.releases.pictures import Picture
from dualquery.table.domain import Domain

if TYPE_CHECKING:
    from dualquery.releases.release import Release


@dataclass(frozen=True)
class Leaving:
    """One kind of artefact: its files, the first of which names it, and its part of the report."""

    files: tuple[str, ...]
    read: Callable[[Domain, dict[str, pa.Table]], Filed]
    use: str  # what the files are, for the report; code between backquotes
    title: str  # over the pictures
    pictures: Callable[[Filed], list[Picture]]


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


def described(release: Release) -> tuple[str, str, list[Picture]] | None:
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
