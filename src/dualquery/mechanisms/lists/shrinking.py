"""Counts of cells from noisy ones: most cells that somebody names are empty, and few hold many records.

A count c is drawn from an unknown law over whole numbers ≥ 0 and seen with noise of deviation σ. The law is the one
that makes all noisy counts together likeliest, over a grid of whole numbers (expectation and maximisation;
Robbins 1956, Kiefer and Wolfowitz 1956); what is told is the posterior mean, and its deviation beside it.
Counts above 6σ are clear, and told as they came.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Reals = NDArray[np.float64]

CLEAR = 6.0  # deviations of the noise
STEPS = 200
MOST_LEARNED = 20_000  # cells that the law is learned from
_SLAB = 1 << 14


def told_counts(noisy: Reals, noise: float) -> tuple[Reals, Reals]:
    """Of each noisy count the posterior mean and deviation."""
    unclear = np.flatnonzero(noisy < CLEAR * noise)
    told, deviation = noisy.astype(float), np.full(len(noisy), noise)
    if not len(unclear):
        return told, deviation
    z = told[unclear]
    grid = _grid(2 * CLEAR * noise)
    law = np.full(len(grid), 1 / len(grid))
    learned = z[:: -(-len(z) // MOST_LEARNED)]
    likely = _likelihoods(learned, grid, noise)
    for _ in range(STEPS):
        joint = likely * law
        law = (joint / joint.sum(axis=1, keepdims=True)).mean(axis=0)
    for first in range(0, len(z), _SLAB):
        some = slice(first, first + _SLAB)
        joint = _likelihoods(z[some], grid, noise) * law
        joint /= joint.sum(axis=1, keepdims=True)
        mean = joint @ grid
        told[unclear[some]] = mean
        deviation[unclear[some]] = np.sqrt(np.maximum(joint @ grid**2 - mean**2, 0.0))
    return told, deviation


def _grid(most: float) -> Reals:
    """0, 1, 2, … as far as they are told apart, then ever farther steps."""
    fine = np.arange(min(32, int(most) + 2))
    far = np.rint(np.geomspace(32, max(most, 33), 40))
    return np.unique(np.append(fine, far[far >= len(fine)])).astype(float)


def _likelihoods(z: Reals, grid: Reals, noise: float) -> Reals:
    log = -0.5 * ((z[:, None] - grid) / noise) ** 2
    likely: Reals = np.exp(log - log.max(axis=1, keepdims=True))
    return likely
