"""The tree of pairs that rows lean to where the measurements do not object.

Among all distributions that know of some pairs only, a tree of pairs has a closed form: Π_j p_j · Π_{(i,j) in
the tree} P_ij/(p_i p_j), which is nearest to the table where the tree's mutual information is largest (Chow
and Liu 1968).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dualquery.game.moves import Cells
from dualquery.game.residual import RAREST, Set

SOFTENING = 0.02  # of the noise: cells that nobody has seen may still be called for
MOST_LOGARITHM = 8.0


def mutual_information(table: Cells, rows: Cells, columns: Cells) -> float:
    """Σ P log(P/(p q)) of a table that is scaled to sum to one."""
    scaled = np.maximum(table, 0.0) / max(float(np.maximum(table, 0.0).sum()), np.finfo(np.float64).tiny)
    expected = np.maximum(np.outer(rows, columns), np.finfo(np.float64).tiny)
    present = scaled > 0
    return float((scaled[present] * np.log(scaled[present] / expected[present])).sum())


def spanning_tree(strength: Mapping[Set, float]) -> list[Set]:
    """The edges of a maximum spanning tree (or forest), strongest first (Kruskal 1956)."""
    root: dict[int, int] = {}

    def find(j: int) -> int:
        while root.setdefault(j, j) != j:
            j = root[j]
        return j

    edges: list[Set] = []
    for i, j in sorted(strength, key=lambda pair: (-strength[pair], pair)):
        if find(i) != find(j):
            root[find(i)] = find(j)
            edges.append((i, j))
    return edges


def tree_of(pairs: Mapping[Set, Cells], ones: Mapping[int, Cells]) -> list[Set]:
    """The pairs that say most, as a tree."""
    return spanning_tree(
        {(i, j): mutual_information(table, ones[i], ones[j]) for (i, j), table in pairs.items()}
    )


def tree_lean(table: Cells, rows: Cells, columns: Cells, noise: float) -> Cells:
    """log (P/(p q)) of an edge, softened where the noise is larger than the cell."""
    expected = np.outer(np.maximum(rows, RAREST), np.maximum(columns, RAREST))
    soft = SOFTENING * noise * expected / (expected + noise)
    logarithms: Cells = np.log((np.maximum(table, 0.0) + soft) / (expected + soft))
    return np.clip(logarithms, -MOST_LOGARITHM, MOST_LOGARITHM)
