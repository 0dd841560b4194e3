"""What measured tables are likely to be: pairs around independence, larger sets around what fitted rows say.

Also the tree of pairs that rows lean to where the measurements do not object. Among all distributions that know of
some pairs only, a tree of pairs has a closed form, Π_j p_j · Π_{(i,j) in the tree} P_ij/(p_i p_j), which is nearest
to the table where the tree's mutual information is largest (Chow and Liu 1968).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dualquery.fitting.measured import MeasuredTables
from dualquery.fitting.rows import RAREST
from dualquery.fitting.separable import SeparablePrior, effective, sets_of_at_most
from dualquery.fitting.shrink import FEW_STEPS, relative_posterior
from dualquery.game.moves import Cells, Set
from dualquery.queries.tables import Tables, centred
from dualquery.table.records import Records

SOFTENING = 0.02  # of the noise: cells that nobody has seen may still be called for
MOST_LOGARITHM = 8.0
MOST_VALUES = 128  # of an attribute whose covariance is learned: a matrix of so many rows


def separable_prior(
    measured: MeasuredTables, ones: Mapping[int, Cells], steps: int = FEW_STEPS
) -> SeparablePrior:
    """Learned from the measured pairs of attributes that are not too long."""
    pairs = sets_of_at_most(measured.of_order(2), measured.domain.sizes, MOST_VALUES)
    return SeparablePrior(
        {members: measured.interactions[members] / measured.total for members in pairs},
        {members: measured.variance[members] / measured.total**2 for members in pairs},
        ones,
        steps,
    )


def likely_pairs(
    measured: MeasuredTables, ones: Mapping[int, Cells], rng: np.random.Generator
) -> dict[Set, Cells]:
    """The posterior of every measured pair's table: the separable prior says what its cells tell about each
    other, then every cell is shrunk towards independence on its own (`relative_posterior`).
    """
    pairs = measured.of_order(2)
    if not pairs:
        return {}
    posteriors = separable_prior(measured, ones).posteriors()
    means = [np.outer(ones[i], ones[j]) for i, j in pairs]
    residuals, deviations = [], []
    for members, mean in zip(pairs, means, strict=True):
        if members in posteriors:
            residual, variance = effective(posteriors[members])
            residuals.append(residual)
            deviations.append(np.sqrt(variance))
        else:
            residuals.append(measured.interactions[members] / measured.total - centred(mean))
            deviations.append(np.full(mean.shape, cell_deviation(measured, members)))
    return _shrunk(pairs, means, residuals, deviations, rng)


def likely_larger(measured: MeasuredTables, rows: Records, rng: np.random.Generator) -> dict[Set, Cells]:
    """The posterior of every measured set of three and more, around its table in rows that were fitted to the
    pairs.
    """
    sets = measured.larger()
    tables = Tables(measured.domain, tuple(sets))
    fractions = tables.counts(rows) / rows.rows
    means = [fractions[tables.cells_of(t)].reshape(tables.shape_of(t)) for t in range(len(sets))]
    residuals = [
        measured.interactions[members] / measured.total - centred(mean)
        for members, mean in zip(sets, means, strict=True)
    ]
    deviations = [
        np.full(mean.shape, cell_deviation(measured, s)) for s, mean in zip(sets, means, strict=True)
    ]
    return _shrunk(sets, means, residuals, deviations, rng)


def cell_deviation(measured: MeasuredTables, members: Set) -> float:
    """The deviation of the noise in a cell of the interaction, as a fraction: centring takes some of it away."""
    kept = math.prod((int(k) - 1) / int(k) for k in measured.domain.sizes[list(members)])
    return math.sqrt(kept * measured.variance[members]) / measured.total


def _shrunk(
    sets: Sequence[Set],
    means: Sequence[Cells],
    residuals: Sequence[Cells],
    deviations: Sequence[Cells],
    rng: np.random.Generator,
) -> dict[Set, Cells]:
    """All cells of all tables at once, and each table again."""
    mean, residual, deviation = (
        np.concatenate([each.ravel() for each in tables]) for tables in (means, residuals, deviations)
    )
    cells = relative_posterior(mean, residual, deviation, rng)
    parts = np.split(cells, np.cumsum([each.size for each in means])[:-1])
    return {members: part.reshape(each.shape) for members, part, each in zip(sets, parts, means, strict=True)}


# The tree of pairs that rows lean to where the measurements do not object


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
