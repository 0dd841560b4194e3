"""From noisy counts to good guesses: reconstruction from interactions, and shrinkage of small cells.

Everything here is post-processing of released numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Cells
from dualquery.game.residual import Set

SMALL = 4.0  # cells whose mean lies below this many standard deviations of the noise are shrunk
BINS = 10  # of cells of alike mean, each with its own law of u
STEPS = 40  # of expectation and maximisation
MOST_CELLS_A_BIN = 2_000  # that the law of u is learned from
_RATIOS = np.concatenate([[0.0], np.geomspace(0.003, 300.0, 150)])  # the values that u may take
_SLAB = 1 << 15  # cells whose posterior is worked out at once


def reconstructed(members: Set, interactions: Mapping[Set, Cells], sizes: NDArray[np.integer]) -> Cells:
    """The table over a set from the interactions of all its subsets (that of the empty set is the total).

    table_S = Σ_{B ⊆ S} interaction_B / Π_{j ∈ S∖B} k_j, each spread evenly over the attributes it lacks.
    """
    total: Cells = np.zeros([int(sizes[j]) for j in members])
    for order in range(len(members) + 1):
        for subset in combinations(members, order):
            evenly = float(np.prod([float(sizes[j]) for j in members if j not in subset]))
            spread = tuple(slice(None) if j in subset else None for j in members)
            total = total + interactions[subset][spread] / evenly
    return total


def cell_variance(members: Set, variance: Mapping[Set, float], sizes: NDArray[np.integer]) -> float:
    """The variance of one cell of a reconstructed table, given that of each interaction's noise.

    Noise of variance v, centred along the attributes of B, leaves v · Π_{j ∈ B} (k_j − 1)/k_j in a cell.
    """
    total = 0.0
    for order in range(len(members) + 1):
        for subset in combinations(members, order):
            share = variance[subset]
            for j in members:
                k = float(sizes[j])
                share *= (k - 1) / k if j in subset else 1 / k**2
            total += share
    return total


def onto_simplex(values: Cells, total: float) -> Cells:
    """The nearest vector of non-negative numbers with this sum."""
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    nearest: Cells = np.maximum(values - excess[last], 0.0)
    return nearest


def shrunk(noisy: Cells, mean: Cells, deviation: Cells, rng: np.random.Generator) -> Cells:
    """The posterior mean of every small cell; large cells stay as they were measured.

    The truth is taken to be mean × u, with u drawn from an unknown law on `_RATIOS`, one law for all cells of
    alike mean. The law is fitted to the noisy cells by expectation and maximisation (empirical Bayes), so a
    table whose small cells are mostly empty teaches u = 0, and one near independence teaches u = 1.
    """
    out: Cells = noisy.copy()
    positive = np.maximum(mean, 1e-7 * max(1.0, float(mean.max(initial=0.0))))
    small = np.flatnonzero(positive < SMALL * deviation)
    if len(small) == 0:
        return out
    ordered = small[np.argsort(positive[small], kind="stable")]
    for part in np.array_split(ordered, min(BINS, len(ordered))):
        sample = part if len(part) <= MOST_CELLS_A_BIN else rng.choice(part, MOST_CELLS_A_BIN, replace=False)
        law = _law_of_ratios(_likelihood(noisy[sample], positive[sample], deviation[sample]))
        for first in range(0, len(part), _SLAB):
            cells = part[first : first + _SLAB]
            posterior = _likelihood(noisy[cells], positive[cells], deviation[cells]) * law
            out[cells] = positive[cells] * (posterior @ _RATIOS) / posterior.sum(axis=1)
    return out


def _likelihood(noisy: Cells, mean: Cells, deviation: Cells) -> Cells:
    """For each cell and each ratio u the likelihood of the noisy count, its largest set to 1."""
    distance = (noisy[:, None] - mean[:, None] * _RATIOS) / deviation[:, None]
    exponent = -0.5 * distance**2
    exponent -= exponent.max(axis=1, keepdims=True)
    likelihood: Cells = np.exp(exponent)
    return likelihood


def _law_of_ratios(likelihood: Cells) -> Cells:
    """The law on the ratios under which these cells are most likely, after a fixed number of steps."""
    law: Cells = np.full(len(_RATIOS), 1.0 / len(_RATIOS))
    for _ in range(STEPS):
        law = law * (likelihood.T @ (1.0 / (likelihood @ law))) / len(likelihood)
    return np.maximum(law, np.finfo(np.float64).tiny)  # a cell outside the sample may leave no other ratio
