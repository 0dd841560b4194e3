"""The blocks of a released graph, drawn as one map: how much goes from each class of vertices to each."""

from __future__ import annotations

import numpy as np

from dualquery.mechanisms.filed import Filed
from dualquery.mechanisms.graphs.artefact import WeightedGraph
from dualquery.releases import plots
from dualquery.releases.pictures import MOST_CELLS_A_SIDE, Picture


def graph_pictures(artefact: Filed) -> list[Picture]:
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
    return [Picture("from (down) to (across)", caption, svg)]
