"""Attributes that follow a place along a few axes, where records do not fall into classes.

P(x_j = 1 | t) = 1/(1 + exp(−a_j − b_j·t)), with t spread as the records are along the axes, less the attributes' own
chance; a_j and b_j are matched to the noisy one-way fraction of j and to its noisy covariances with the axes. Some
public draws of t then are the classes of a mixture. Everything here is post-processing of released numbers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.projection.structure import Centres, Spectrum

Numbers = NDArray[np.float64]

NEWTON_STEPS = 8
LONGEST_STEP = 1.0
RIDGE = 1e-4
FARTHEST = 15.0  # a log-odds beyond this is as good as certain
AT_ONCE = 1 << 22  # numbers of a batch of attributes


def latent_places(spectrum: Spectrum, centres: Centres, number: int, rng: np.random.Generator) -> Numbers:
    """Places t along the scaled axes: around the centres, with the covariance √λ that the spectrum says, exactly."""
    share = np.maximum(centres.counts, 1.0) / np.maximum(centres.counts, 1.0).sum()
    wanted = np.sqrt(spectrum.strengths)
    around = centres.places - share @ centres.places
    between = share @ around**2
    around = around * np.sqrt(np.minimum(1.0, wanted / np.maximum(between, 1e-12)))
    rest = np.sqrt(np.maximum(wanted - between, 0.0))
    # a little of the spread is always left to chance, so that the covariance can be mended
    t = around[rng.choice(len(share), number, p=share)]
    t = t + rng.standard_normal(t.shape) * np.maximum(rest, 0.05 * np.sqrt(wanted))
    t -= t.mean(axis=0)
    values, vectors = np.linalg.eigh(t.T @ t / number)
    whitened: Numbers = t @ ((vectors / np.sqrt(values)) @ vectors.T) * np.sqrt(wanted)
    return whitened


def shrunk_by_axis(covariances: Numbers, deviation: float) -> Numbers:
    """Covariances with the axes, each axis shrunk by how much of what is seen along it is noise."""
    seen = (covariances**2).mean(axis=0)
    shrunk: Numbers = covariances * np.maximum(0.0, 1 - deviation**2 / np.maximum(seen, 1e-300))
    return shrunk


def matched(fractions: Numbers, covariances: Numbers, places: Numbers) -> NDArray[np.float32]:
    """The chance of each attribute at each place: logistic, with these means and covariances over the places.

    Newton's method on the convex Σ_t log(1 + exp(a + b·t)) − a·mean − b·covariance, in steps of bounded length.
    """
    number, axes = places.shape
    with_one = np.column_stack([np.ones(number), places])
    likely = np.clip(fractions, 1e-3, 1 - 1e-3)
    target = np.column_stack([likely, covariances])
    cov = places.T @ places / number
    slope = np.linalg.solve(cov, covariances.T).T / (likely * (1 - likely))[:, None]
    theta = np.column_stack([np.log(likely / (1 - likely)), slope])
    out = np.empty((len(fractions), number), np.float32)
    batch = max(1, AT_ONCE // (number + (axes + 1) ** 2))
    products = (with_one[:, :, None] * with_one[:, None, :]).reshape(number, -1) / number
    for first in range(0, len(fractions), batch):
        part = slice(first, first + batch)
        out[part] = _matched(theta[part], target[part], with_one, products)
    return out


def _matched(theta: Numbers, target: Numbers, with_one: Numbers, products: Numbers) -> Numbers:
    size = with_one.shape[1]
    for _ in range(NEWTON_STEPS):
        chance = _chance(theta, with_one)
        gap = chance @ with_one / len(with_one) - target
        curvature = ((chance * (1 - chance)) @ products).reshape(-1, size, size) + RIDGE * np.eye(size)
        step = np.linalg.solve(curvature, gap[:, :, None])[:, :, 0]
        length = np.abs(step).max(axis=1, keepdims=True)
        theta = theta - step * np.minimum(1.0, LONGEST_STEP / np.maximum(length, 1e-12))
    return _chance(theta, with_one)


def _chance(theta: Numbers, with_one: Numbers) -> Numbers:
    chance: Numbers = 1 / (1 + np.exp(-np.clip(theta @ with_one.T, -FARTHEST, FARTHEST)))
    return chance
