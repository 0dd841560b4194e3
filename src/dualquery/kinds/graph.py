"""Graphs: each record is an edge between public vertices, and questions are cuts."""

from __future__ import annotations

import numpy as np

from dualquery import example, plots
from dualquery.kinds.kind import Kind, Stored
from dualquery.mechanisms.graphs import (
    BLOCKS,
    EDGES,
    PAIRS,
    RECTANGLES,
    VERTICES,
    RectangleGraph,
    WeightedGraph,
)
from dualquery.queries.language.cuts import CUTS
from dualquery.table.graph import Graph

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
)
