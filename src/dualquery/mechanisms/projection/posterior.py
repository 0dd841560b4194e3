"""Posterior means under a law that the noisy numbers themselves teach (empirical Bayes).

Everything here is post-processing of released numbers.
"""

from __future__ import annotations

import numpy as np

from dualquery.game.moves import Cells
from dualquery.game.residual import Set
from dualquery.mechanisms.projection.shrinkage import onto_simplex
from dualquery.mechanisms.projection.tables import MeasuredTables

STEPS = 10  # of expectation and maximisation; more would follow the noise
LARGE = 6.0  # deviations: larger cells stay as they were measured
SMALL_CELLS = np.concatenate([[0.0], np.linspace(0.1, 10.0, 100)])  # what small cells may be, in deviations


def posterior_means(noisy: Cells, values: Cells) -> Cells:
    """Of numbers with noise of deviation one; the truth is one of some values, by a law fitted to all of them."""
    exponent = -0.5 * (noisy[:, None] - values) ** 2
    likelihood = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    law = np.full(len(values), 1.0 / len(values))
    for _ in range(STEPS):
        law = law * (likelihood.T @ (1.0 / (likelihood @ law))) / len(noisy)
    posterior = likelihood * law
    means: Cells = (posterior @ values) / posterior.sum(axis=1)
    return means


def denoised(measured: MeasuredTables) -> MeasuredTables:
    """The same measurement with better one-way tables: small cells of all of them are shrunk together.

    Where most values of most attributes are rare, noise would spread records over all of them; the cells
    themselves say so.
    """
    sets: list[Set] = [members for members in measured.interactions if len(members) == 1]
    tables = [measured.table(members) for members in sets]
    sizes = [table.size for table in tables]
    deviation = np.repeat([max(1e-12, measured.deviation(members)) for members in sets], sizes)
    cells = np.concatenate(tables)
    small = cells < LARGE * deviation
    if small.any():
        shrunken = posterior_means(cells[small] / deviation[small], SMALL_CELLS)
        cells[small] = shrunken * deviation[small]
    interactions = dict(measured.interactions)
    parts = np.split(cells, np.cumsum(sizes)[:-1])
    for members, part in zip(sets, parts, strict=True):
        interactions[members] = measured.total * (onto_simplex(part, 1.0) - 1 / part.size)
    return MeasuredTables(measured.domain, interactions, measured.variance, measured.total)
