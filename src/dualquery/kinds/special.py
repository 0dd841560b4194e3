"""The kinds of tables that are no tables of records: graphs, points, codes and databases."""

from __future__ import annotations

import numpy as np

from dualquery import example, plots
from dualquery.beliefs.weighted_rows import ONE, WeightedRows
from dualquery.kinds import Kind, Stored, not_of_this_table
from dualquery.mechanisms import distances, graphs, lists
from dualquery.mechanisms.artefact import Artefact, SyntheticUnits
from dualquery.mechanisms.distances import DistanceCurves, middle
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.graphs import RectangleGraph, WeightedGraph
from dualquery.mechanisms.lists import CellFractions
from dualquery.queries.cuts import CUTS
from dualquery.queries.distances import DISTANCES
from dualquery.queries.language.units import UNITS
from dualquery.queries.lists import LOOK_UPS
from dualquery.queries.workload import affordable_order
from dualquery.table.database import Database
from dualquery.table.graph import CodeTable, Graph
from dualquery.table.points import GRID, KNOTS, Metric, Points
from dualquery.table.records import Records

MOST_MEMBERS = 1 << 24  # of all cuts that a first release is made for
BELIEVED = 4096  # points of a hypothesis
GOLDEN = 0.6180339887498949
SHOWN = 15
EVERYBODY = 1 << 44  # the weight of all records of a hypothesis
MOST_BARS = 30

# Graphs: each record is an edge between public vertices, and questions are cuts.

USE = (
    f"`{graphs.EDGES}` lists edges with their weights, as a graph that nobody is behind: all pairs of a small graph, "
    "of a large one as many as stand for all. `release.to_networkx()` gives the same. Answers come from the other "
    "files, to the last digit; asking for any cut costs no privacy."
)


def _blocks(artefact: WeightedGraph) -> list[plots.Figure]:
    """The blocks as one map, of the heaviest classes: how much goes from each class of vertices to each."""
    fitted = artefact.fitted
    many = len(fitted.blocks)
    mass = fitted.blocks * np.outer(
        np.bincount(fitted.classes, weights=fitted.leaves, minlength=many),
        np.bincount(fitted.classes, weights=fitted.enters, minlength=many),
    )
    heaviest = np.argsort(-(mass.sum(axis=0) + mass.sum(axis=1)), kind="stable")
    shown = np.sort(heaviest[: plots.MOST_CELLS_A_SIDE])
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
    return [plots.Figure("from (down) to (across)", svg, caption)]


def _believed_edges(domain: Graph, artefact: Artefact | None) -> WeightedRows:
    """The edges of a release as rows of their weights; what they lack of all edges at their heaviest is on no row."""
    if not isinstance(artefact, WeightedGraph | RectangleGraph):
        raise not_of_this_table()
    edges = artefact.to_arrow()
    weight = edges["weight"].to_numpy()
    ends = [edges.column(j).combine_chunks().indices.to_numpy() for j in (0, 1)]
    heaviest = [np.full(len(weight), domain.heaviest)] * (len(domain.columns) - 2)
    rows = Records.from_rows(domain, np.stack([*ends, *heaviest], axis=1).astype(np.int64))
    whole, total = ONE * max(1, len(weight)), max(float(weight.sum()), domain.heaviest * artefact.edges)
    weights = np.maximum(np.rint(weight / total * whole), 1).astype(np.int64)
    return WeightedRows(rows, weights, rest=max(0, whole - int(weights.sum())))


GRAPH = Kind(
    domain=Graph,
    grammar=CUTS,
    # The evidence is in docs/learners.md, made by `experiments/cuts.py`.
    prefers=lambda task: (
        (
            "coarsenings",
            "Chosen because Gaussian noise can be paid for, where coarsenings answer every cut.",
        ),
        ("frieze-kannan", "Chosen because Gaussian noise cannot be paid for."),
    ),
    stored=(
        Stored(
            (graphs.EDGES, graphs.VERTICES, graphs.BLOCKS, graphs.PAIRS),
            WeightedGraph.of_files,
            USE,
            "Between classes of vertices",
            _blocks,
        ),
        Stored((graphs.EDGES, graphs.RECTANGLES), RectangleGraph.of_files, USE),
    ),
    record="edge",
    records="edges",
    table="a graph",
    protects="It protects one edge: that it is there, where it goes, and what it weighs. A vertex, or a person with "
    "several edges, is protected less.",
    example=example.payments,
    believes=_believed_edges,
    first=lambda domain: f"cuts:random:{max(2, min(1000, MOST_MEMBERS // len(domain.vertices)))}",
)


# Points: each record is a point between public bounds, and questions are mean distances.


def _curves(artefact: DistanceCurves) -> list[plots.Figure]:
    """The curves with their 95% bands, column by column; directions that are no columns are not drawn."""
    if artefact.domain.metric is not Metric.L1:
        return []
    measured = np.flatnonzero(~np.isnan(artefact.distance[:, 0]))
    return [_curve(artefact, j) for j in measured[: plots.MOST_COLUMNS].tolist()]


def _curve(artefact: DistanceCurves, j: int) -> plots.Figure:
    column = artefact.domain.coordinates[j]
    curve = column.width * artefact.distance[j]
    band = BAR * column.width * artefact.deviation[j]
    at = column.low + np.linspace(0, column.width, len(curve))
    lowest = int(np.argmin(curve))
    title = f"Mean distance to each place of {column.name}"
    caption = f"least at about {at[lowest]:.4g}, where it is {curve[lowest]:.4g}"
    return plots.Figure(column.name, plots.banded_curve(at, curve, band, title), caption)


def _believed_points(domain: Points, artefact: Artefact | None) -> WeightedRows:
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
            (distances.FILE,),
            DistanceCurves.of_files,
            f"`{distances.FILE}` holds, for every column, the mean distance of all points to each place in it. The "
            "mean distance to a point is the sum over its columns; asking for it costs no privacy, as often as you "
            "like.",
            "The mean distance, column by column",
            _curves,
        ),
    ),
    record="point",
    records="points",
    protects="It protects one point. A person with several points in the table is protected less.",
    fractions="fractions of the diameter",
    example=example.customers,
    believes=_believed_points,
    first=lambda domain: "points:random:1000",
)


# Codes: texts and numbers that nobody lists; questions are look-ups of whole records, and lists of them.


def _largest(artefact: CellFractions) -> list[plots.Figure]:
    """The records that most of the table is, as far as they were asked about."""
    most = np.argsort(-artefact.fraction, kind="stable")[:SHOWN]
    if not len(most):
        return []
    labels = [" · ".join(artefact.catalogue.texts[place].tolist()) for place in most.tolist()]
    name = ", ".join(column.name for column in artefact.domain.columns)
    caption = f"the {len(most)} largest of {len(artefact.fraction):,} that were asked about"
    return [plots.Figure(name, plots.histogram(labels, artefact.fraction[most], name=name), caption)]


def _believed_records(domain: CodeTable, artefact: Artefact | None) -> WeightedRows:
    """The records that were read, by their fractions; what nobody has asked about lies on no row, or all of it."""
    if artefact is None:
        return WeightedRows(domain.records(np.empty((0, domain.width), np.str_)), rest=EVERYBODY)
    if not isinstance(artefact, CellFractions):
        raise not_of_this_table()
    held = np.maximum(np.rint(EVERYBODY * np.maximum(artefact.fraction, 0.0)), 1).astype(np.int64)
    rest = max(EVERYBODY - int(held.sum()), 1)
    return WeightedRows(domain.records(artefact.catalogue.texts), held, rest=rest)


CODES = Kind(
    domain=CodeTable,
    grammar=LOOK_UPS,
    # The evidence is in docs/learners.md, made by `experiments/sparse.py`.
    prefers=lambda task: (
        ("noisy-cells", "Chosen because one noisy histogram answers every look-up and every list."),
        ("touched-weights", "Chosen because a histogram cannot be paid for."),
    ),
    stored=(
        Stored(
            (lists.FILE,),
            CellFractions.of_files,
            f"`{lists.FILE}` holds every record that was asked about, the fraction of the table that is such a "
            "record, and how far off that may be. A list is the sum of its records; asking for it costs no privacy, "
            "as often as you like.",
            "The records that were asked about, by how many there are",
            _largest,
        ),
    ),
    protects="It protects one record. A person with several records in the table is protected less.",
    example=example.patients,
    believes=_believed_records,
)


# Databases: records of a protected table, each with the rows of other tables that hang on it.


def _of_children(artefact: SyntheticUnits) -> list[plots.Figure]:
    """Of every attribute of a child table the share of units with at least one row of each value."""
    units, pictures = artefact.records, []
    for child, members in zip(units.database.children, units.members, strict=True):
        owner = members.owner
        for column, codes in zip(child.columns, members.records.columns, strict=True):
            size = len(column.labels)
            held = np.unique(owner * size + np.asarray(codes, np.int64)) % size
            shares = np.bincount(held, minlength=size) / max(1, units.rows)
            kept = np.sort(np.argsort(-shares, kind="stable")[:MOST_BARS])
            labels = [column.labels[i] for i in kept.tolist()]
            name = f"any({child.name}.{column.name} = …)"
            caption = "" if len(kept) == size else f"the {len(kept)} most frequent of {size:,} values"
            svg = plots.histogram(labels, shares[kept], name=name)
            pictures.append(plots.Figure(name, svg, caption))
    return pictures[: plots.MOST_COLUMNS]


def _believed_units(domain: Database, artefact: Artefact | None) -> WeightedRows:
    if not isinstance(artefact, SyntheticUnits):
        raise not_of_this_table()
    return WeightedRows(artefact.records)


DATABASE = Kind(
    domain=Database,
    grammar=UNITS,
    prefers=lambda task: (("linked", "Chosen because it gives tables back whose keys hold."),),
    stored=(
        Stored(
            (),
            SyntheticUnits.of_files,
            "Each table of the database is a file of its name, like the ones it was made from, with keys of its own "
            "that fit each other. Its rows are no records. Ask `release.tables`, or `dualquery answer` with any, all "
            "and count; it costs no privacy, as often as you like.",
            "How many units have at least one row of each value",
            _of_children,
            lambda domain: tuple(f"{each.name}.parquet" for each in domain.tables),
        ),
    ),
    record="unit",
    records="units",
    table="a database",
    protects="It protects one row of the protected table with all rows that hang on it.",
    fractions="fractions of the units",
    example=example.households,
    believes=_believed_units,
    first=lambda domain: f"marginals:{affordable_order(domain, min(2, domain.width))}",
)
