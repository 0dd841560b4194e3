"""What measured tables are likely to be: pairs around independence, larger sets around what fitted rows say.

Everything here is post-processing of released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from dualquery.game.moves import Cells
from dualquery.game.residual import Set
from dualquery.mechanisms.projection.empirical_bayes import relative_posterior
from dualquery.mechanisms.projection.separable import STEPS, SeparablePrior, effective, sets_of_at_most
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.queries.tables import Tables, centred
from dualquery.table.records import Records

MOST_VALUES = 128  # of an attribute whose covariance is learned: a matrix of so many rows


def separable_prior(
    measured: MeasuredTables, ones: Mapping[int, Cells], steps: int = STEPS
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
