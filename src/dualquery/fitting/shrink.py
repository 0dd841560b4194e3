"""What noisy numbers are likely to be: one empirical Bayes for tables, items, edges, lists and residuals.

A number θ is seen as z = θ + noise of deviation σ. A *prior* says what θ may be, Σ_k π_k N(c_k, v_k): components of a
centre and a variance (0: a point), the same for all numbers or each number's own. How common each component is, π, is
learned from the numbers themselves, as the law that makes them together likeliest (expectation and maximisation;
Robbins 1956, Kiefer and Wolfowitz 1956). What is told is the posterior, of which component k has the mean
c_k + (z − c_k) v_k/(v_k + σ²).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.measured import LEAST
from dualquery.loops import njit
from dualquery.types import Cells

Prior = Callable[[Any], tuple[Cells, Cells]]  # centres and variances of some numbers, (numbers ×) components

STEPS = 60  # of expectation and maximisation
FEW_STEPS = 10  # where more would follow the noise
TINY = float(np.finfo(np.float64).tiny)  # the least chance of a component: none is ruled out
CLEAR = 6.0  # deviations of the noise: numbers beyond need no shrinkage
SLAB = 1 << 15  # numbers whose posterior is worked out at once


def points(values: Cells) -> Prior:
    """θ is one of these values."""
    return lambda some: (values, np.zeros(len(values)))


def spreads(deviations: Cells) -> Prior:
    """θ is 0, give or take one of these deviations."""
    return lambda some: (np.zeros(len(deviations)), deviations**2)


def learned(
    seen: Cells,
    noise: Cells,
    prior: Prior,
    some: Any = slice(None),
    *,
    steps: int = STEPS,
    first: float | None = None,
    weight: Cells | None = None,
) -> Cells:
    """The law π, from some of the numbers, each counting as many times as its weight says.

    At first the component that comes first has this chance, and the others share the rest; without it all are alike.
    """
    likely = np.ascontiguousarray(_likelihood(seen[some], noise[some], *prior(some)).T)
    components, numbers = likely.shape
    law: Cells = np.full(components, 1.0 / components)
    if first is not None:
        law[:] = (1.0 - first) / (components - 1)
        law[0] = first
    improve_law(likely, law, np.ones(numbers) if weight is None else weight, steps)
    return law


@njit(cache=True, fastmath=True)
def improve_law(likelihood, law, weight, steps):  # type: ignore[no-untyped-def]
    """Steps of expectation and maximisation, one row per component: π_k ← π_k · mean_c L_kc / Σ_l π_l L_lc."""
    components, cells = likelihood.shape
    everything = weight.sum()
    inverse = np.empty(cells)
    for _ in range(steps):
        inverse[:] = 0.0
        for k in range(components):
            for c in range(cells):
                inverse[c] += law[k] * likelihood[k, c]
        for c in range(cells):
            inverse[c] = weight[c] / inverse[c]
        for k in range(components):
            total = 0.0
            for c in range(cells):
                total += likelihood[k, c] * inverse[c]
            law[k] = max(law[k] * total / everything, TINY)


def posterior(
    seen: Cells,
    noise: Cells,
    prior: Prior,
    law: Cells,
    some: NDArray[np.int64] | None = None,
    *,
    squares: bool = False,
) -> Cells:
    """E[θ | z] of each number, or of some; E[θ² | z] where squares are asked for."""
    which = np.arange(len(seen)) if some is None else some
    out = np.empty(len(which))
    for begin in range(0, len(which), SLAB):
        part = which[begin : begin + SLAB]
        z, squared_noise = seen[part][:, None], noise[part][:, None] ** 2
        centre, variance = prior(part)
        means = centre + (z - centre) * variance / (variance + squared_noise)
        if squares:
            means = means**2 + variance * squared_noise / (variance + squared_noise)
        weight = _likelihood(seen[part], noise[part], centre, variance) * law
        out[begin : begin + SLAB] = (weight * means).sum(axis=1) / weight.sum(axis=1)
    return out


def _likelihood(seen: Cells, noise: Cells, centre: Cells, variance: Cells) -> Cells:
    """Of each number under each component; the largest of a number is 1."""
    squared_noise = noise[:, None] ** 2
    total = variance + squared_noise
    exponent = -0.5 * (seen[:, None] - centre) ** 2 / total - 0.5 * np.log(total / squared_noise)
    likelihood: Cells = np.exp(exponent - exponent.max(axis=1, keepdims=True))
    return likelihood


def shrunk(seen: Cells, noise: float, prior: Prior, *, most: int | None = None, **options: Any) -> Cells:
    """E[θ | z] of numbers with noise of one deviation, under one law.

    It is learned from evenly spread numbers where there are more than `most`.
    """
    same, step = np.full(len(seen), noise), 1 if most is None else max(1, -(-len(seen) // most))
    law = learned(seen, same, prior, slice(None, None, step), **options)
    return posterior(seen, same, prior, law)


def in_bins(
    seen: Cells,
    noise: Cells,
    prior: Prior,
    order: NDArray[np.int64],
    rng: np.random.Generator,
    *,
    bins: int,
    most: int,
    **options: Any,
) -> Cells:
    """The posterior means of the numbers in `order`, cut into bins of alike numbers that have a law each.

    A law is learned from a random part of its bin where that holds more than `most`.
    """
    out: Cells = seen.copy()
    for part in np.array_split(order, bins):
        sample = part if len(part) <= most else rng.choice(part, most, replace=False)
        law = learned(seen, noise, prior, sample, **options)
        out[part] = posterior(seen, noise, prior, law, part)
    return out


# Cells around a mean that is known

RATIOS = np.array([0.03, 0.06, 0.12, 0.25, 0.5, 1.0, 2.0, 4.0])  # deviations of θ in units of the mean
FAR = np.array([4.0, 12.0])  # deviations of θ in units of the noise. Halved: adult +3.0%
BINS = 40  # of cells of alike mean
LEAST_CELLS = 50  # of a bin
MOST_CELLS = 6_000  # that the law of a bin is learned from


def around(mean: Cells, deviation: Cells, ratios: Cells = RATIOS) -> Prior:
    """Of cells mean + θ: θ ~ π_0 δ_0 + Σ_k π_k N(0, (r_k mean)²) + Σ_l π_l N(0, (f_l deviation)²) + π_z δ_{−mean}.

    With r in `RATIOS` and f in `FAR`: most θ are nothing, some a few percent of the mean or several times it, a few
    far from what anybody expected, and some cells are empty.
    """

    def prior(some: Any) -> tuple[Cells, Cells]:
        here, noise = mean[some][:, None], deviation[some][:, None]
        none = np.zeros_like(here)
        centres = np.concatenate([np.zeros((len(here), 1 + len(ratios) + len(FAR))), -here], axis=1)
        return centres, np.concatenate([none, here * ratios, noise * FAR, none], axis=1) ** 2

    return prior


def relative_posterior(
    mean: Cells, residual: Cells, deviation: Cells, rng: np.random.Generator, ratios: Cells = RATIOS
) -> Cells:
    """E[mean + θ | residual], not below 0, where residual = θ + noise of this deviation, all in one row of cells."""
    centre = np.maximum(mean, LEAST)
    order = np.argsort(centre / deviation, kind="stable")
    bins = min(BINS, max(1, len(order) // LEAST_CELLS))
    prior = around(centre, deviation, ratios)
    moved = in_bins(residual, deviation, prior, order, rng, bins=bins, most=MOST_CELLS, first=0.5)
    return np.maximum(centre + moved, 0.0)


# Small cells that are a multiple of what is expected

MULTIPLES = np.concatenate([[0.0], np.geomspace(0.003, 300.0, 150)])


def multiples(noisy: Cells, mean: Cells, deviation: float, rng: np.random.Generator) -> Cells:
    """The posterior mean of every small cell, where the truth is mean × u with u one of `MULTIPLES`.

    One law of u for all cells of alike mean: a table whose small cells are mostly empty teaches u = 0, and one near
    independence teaches u = 1.
    """
    positive = np.maximum(mean, 1e-7 * max(1.0, float(mean.max(initial=0.0))))
    small = np.flatnonzero(positive < CLEAR * deviation)
    if len(small) == 0:
        return noisy.copy()
    order = small[np.argsort(positive[small], kind="stable")]
    return in_bins(
        noisy,
        np.full(len(noisy), deviation),
        lambda some: (positive[some][:, None] * MULTIPLES, np.zeros(len(MULTIPLES))),
        order,
        rng,
        bins=min(10, len(order)),
        most=2_000,
        steps=40,
    )
