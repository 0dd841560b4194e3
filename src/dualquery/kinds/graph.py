"""Graphs: each record is an edge between public vertices, and questions are cuts."""

from __future__ import annotations

import numpy as np

from dualquery import example, plots
from dualquery.beliefs.weighted_rows import ONE, WeightedRows
from dualquery.kinds.kind import Kind, Stored, not_of_this_table
from dualquery.mechanisms.artefact import Artefact
from dualquery.mechanisms.graphs import (
    BLOCKS,
    EDGES,
    PAIRS,
    RECTANGLES,
    VERTICES,
    RectangleGraph,
    WeightedGraph,
)
from dualquery.queries.cuts import CUTS
from dualquery.table.graph import Graph
from dualquery.table.records import Records

MOST_MEMBERS = 1 << 24  # of all cuts that a first release is made for
USE = (
    f"`{EDGES}` lists edges with their weights, as a graph that nobody is behind: all pairs of a small graph, of a "
    "large one as many as stand for all. `release.to_networkx()` gives the same. Answers come from the other files, "
    "to the last digit; asking for any cut costs no privacy."
)


def figures(artefact: WeightedGraph) -> list[plots.Figure]:
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


def believes(domain: Graph, artefact: Artefact | None) -> WeightedRows:
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
            (EDGES, VERTICES, BLOCKS, PAIRS),
            WeightedGraph.of_files,
            USE,
            "Between classes of vertices",
            figures,
        ),
        Stored((EDGES, RECTANGLES), RectangleGraph.of_files, USE),
    ),
    record="edge",
    records="edges",
    table="a graph",
    protects="It protects one edge: that it is there, where it goes, and what it weighs. A vertex, or a person with "
    "several edges, is protected less.",
    example=example.payments,
    believes=believes,
    first=lambda domain: f"cuts:random:{max(2, min(1000, MOST_MEMBERS // len(domain.vertices)))}",
)
