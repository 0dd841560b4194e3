"""Noisy numbers drawn towards what is expected of them, by a prior that they tell themselves (empirical Bayes).

z = m + θ + noise, with a public mean m and θ from a mixture of normals around ± a geometric grid and a point at
zero, fitted to all z − m by expectation maximisation; the posterior mean of θ is kept. Most pairs of vertices have
no edge and are drawn to their mean; the few heavy ones stand far outside the noise, and stay.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
BINS = 1500
STEPS = 60
WIDTH = 0.3  # of a component, as a part of where it lies


def excess(noisy: Array, mean: Array, deviation: float) -> Array:
    """The posterior mean of θ for each number."""
    seen = (noisy - mean).ravel() / deviation
    place = np.arcsinh(seen)
    edges = np.linspace(place.min() - 1e-9, place.max() + 1e-9, BINS + 1)
    which = np.clip(np.searchsorted(edges, place, side="right") - 1, 0, BINS - 1)
    centre = np.sinh((edges[:-1] + edges[1:]) / 2)
    held = np.bincount(which, minlength=BINS)
    kept = held > 0
    grid = 0.25 * 1.3 ** np.arange(int(np.log(4 * max(1.0, np.abs(seen).max())) / np.log(1.3)) + 2)
    support = np.concatenate([-grid[::-1], [0.0], grid])
    width = WIDTH**2 * support**2  # the variance of a component, the larger the farther out
    log_chance = -0.5 * (centre[kept, None] - support) ** 2 / (1 + width) - 0.5 * np.log1p(width)
    chance = np.exp(log_chance - log_chance.max(axis=1, keepdims=True))
    within = (support + width * centre[kept, None]) / (1 + width)  # the posterior mean, given the component
    prior = np.where(support == 0, 0.9, 0.1 / (len(support) - 1))
    for _ in range(STEPS):
        joint = chance * prior
        joint /= joint.sum(axis=1, keepdims=True)
        prior = held[kept] @ joint / held.sum() + 1e-12
    joint = chance * prior
    posterior = (joint * within).sum(axis=1) / joint.sum(axis=1)
    found = seen + np.interp(seen, centre[kept], posterior - centre[kept])
    return deviation * found.reshape(np.shape(noisy))
