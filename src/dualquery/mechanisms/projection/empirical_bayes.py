"""Cells around a mean that is known, measured with noise: what they are likely to be (empirical Bayes).

A cell is mean + θ. Most θ are nothing, some are a few percent of the mean or several times it, some cells are
empty, and a few are far from what anybody expected. How many there are of each kind is learned from the noisy
cells themselves, among cells whose mean is alike in units of the noise. Everything here is post-processing of
released numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.game.moves import Cells

RATIOS = np.array([0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0])  # deviations of θ in units of the mean
FAR = np.array([4.0, 12.0])  # deviations of θ in units of the noise
BINS = 40  # of cells of alike mean, each with a law of its own
LEAST_CELLS = 50  # of a bin
MOST_CELLS = 6_000  # that the law of a bin is learned from
STEPS = 60  # of expectation and maximisation
LEAST_MEAN = 1e-12
LEAST = float(np.finfo(np.float64).tiny)  # of the chance of a component
_SLAB = 1 << 15  # cells whose posterior is worked out at once


def relative_posterior(mean: Cells, residual: Cells, deviation: Cells, rng: np.random.Generator) -> Cells:
    """E[mean + θ | residual], not below 0, where residual = θ + noise of this deviation, all in one row of
    cells.

    θ ~ π_0 δ_0 + Σ_k π_k N(0, (r_k mean)²) + Σ_l π_l N(0, (f_l deviation)²) + π_z δ_{−mean}, with r in
    `RATIOS` and f in `FAR`; π by expectation and maximisation, bin by bin of mean/deviation, starting from
    π_0 = ½.
    """
    centre = np.maximum(mean, LEAST_MEAN)
    out: Cells = np.empty_like(centre)
    order = np.argsort(centre / deviation, kind="stable")
    for part in np.array_split(order, min(BINS, max(1, len(order) // LEAST_CELLS))):
        sample = part if len(part) <= MOST_CELLS else rng.choice(part, MOST_CELLS, replace=False)
        law = _law(_likelihood(centre[sample], residual[sample], deviation[sample]))
        for first in range(0, len(part), _SLAB):
            cells = part[first : first + _SLAB]
            moved = _posterior_mean(centre[cells], residual[cells], deviation[cells], law)
            out[cells] = np.maximum(centre[cells] + moved, 0.0)
    return out


def _prior_variances(mean: Cells, deviation: Cells) -> Cells:
    """Of every component but the last, which is a point, cell by cell."""
    parts = (np.zeros((len(mean), 1)), mean[:, None] * RATIOS, deviation[:, None] * FAR)
    variances: Cells = np.concatenate(parts, axis=1) ** 2
    return variances


def _likelihood(mean: Cells, residual: Cells, deviation: Cells) -> Cells:
    """Of each cell's residual under each component; the largest of a cell is 1."""
    noise = deviation[:, None] ** 2
    total = _prior_variances(mean, deviation) + noise
    spread = -0.5 * residual[:, None] ** 2 / total - 0.5 * np.log(total / noise)
    empty = -0.5 * ((residual + mean) / deviation) ** 2
    exponent = np.concatenate([spread, empty[:, None]], axis=1)
    exponent -= exponent.max(axis=1, keepdims=True)
    likelihood: Cells = np.exp(exponent)
    return likelihood


def _law(likelihood: Cells) -> NDArray[np.float64]:
    """How common each component is, after a fixed number of steps; none is ruled out."""
    law: NDArray[np.float64] = np.full(likelihood.shape[1], 0.5 / (likelihood.shape[1] - 1))
    law[0] = 0.5
    improve_law(np.ascontiguousarray(likelihood.T), law, STEPS)
    return law


@njit(cache=True, fastmath=True)
def improve_law(likelihood, law, steps):  # type: ignore[no-untyped-def]
    """Steps of expectation and maximisation, a row a component: π_k ← π_k · mean_c L_kc / Σ_l π_l L_lc."""
    components, cells = likelihood.shape
    inverse = np.empty(cells)
    for _ in range(steps):
        inverse[:] = 0.0
        for k in range(components):
            for c in range(cells):
                inverse[c] += law[k] * likelihood[k, c]
        for c in range(cells):
            inverse[c] = 1.0 / inverse[c]
        for k in range(components):
            total = 0.0
            for c in range(cells):
                total += likelihood[k, c] * inverse[c]
            law[k] = max(law[k] * total / cells, LEAST)


def _posterior_mean(mean: Cells, residual: Cells, deviation: Cells, law: NDArray[np.float64]) -> Cells:
    """E[θ | residual] cell by cell."""
    prior = _prior_variances(mean, deviation)
    means = np.concatenate(
        [residual[:, None] * prior / (prior + deviation[:, None] ** 2), -mean[:, None]], axis=1
    )
    weight = _likelihood(mean, residual, deviation) * law
    moved: Cells = (weight * means).sum(axis=1) / weight.sum(axis=1)
    return moved
