"""Edges for the numbers of a draft: bins of about equal share, and what many records share in a bin of its own.

Everything here looks at the numbers, so that an edge is as private as they are (`table.draft` says so, line by line).

*How many*: k = (n μ)^⅓, at least 6 and at most 32, of n records and a budget of Gaussian DP μ. More bins show more of
how numbers lie, and their noise hides more of it; the minimum is flat (docs/how_it_works.md, "Numbers inside bins").

*Where*: a number that a k-th of the records share is *heaped* and stands alone, with an edge on either side. Between
heaped numbers edges stand at quantiles, each at the roundest number near by. A last bin that reaches much farther
than nearly all numbers is cut once more, so that its few records are not spread over all of it.
"""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.bisection import halved
from dualquery.types import Reals

LEAST_BINS, MOST_BINS = 6, 32
USUAL_EPSILON, USUAL_DELTA = 1.0, 1e-6  # of the release to come, where nobody says
SLACK = 0.2  # of a bin's share, that an edge may be off its quantile to be a round number
TAIL = 0.005  # of the records, beyond which a long tail has a bin of its own
LONG = 1.5  # times the range of nine in ten numbers: an outer bin that is wider has a long tail


def number_of_bins(rows: int, epsilon: float | None = None) -> int:
    """clip(round((n μ)^⅓), 6, 32)."""
    mu = gaussian_mu(USUAL_EPSILON if epsilon is None else epsilon, USUAL_DELTA)
    return min(MOST_BINS, max(LEAST_BINS, round((rows * mu) ** (1 / 3))))


def gaussian_mu(epsilon: float, delta: float) -> float:
    """The μ with Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) = δ (Dong, Roth, Su 2022), by bisection."""

    def exceeds(mu: float) -> bool:
        tail = 0.5 * math.erfc((epsilon / mu + mu / 2) / math.sqrt(2))
        second = math.exp(epsilon + math.log(tail)) if tail > 0 else 0.0
        return 0.5 * math.erfc((epsilon / mu - mu / 2) / math.sqrt(2)) - second > delta

    low, high = 1e-9, 1.0
    while not exceeds(high) and high < 1e6:
        high *= 2
    return halved(low, high, 60, exceeds)[0]


def shared_edges(
    values: Reals, weights: NDArray[np.int64], bins: int, unit: Fraction | None
) -> tuple[float, ...]:
    """Edges for distinct numbers and how often each occurs; `unit` is what numbers are multiples of."""
    order = np.argsort(values)
    values, weights = values[order], weights[order]
    target = weights.sum() / bins
    cuts: list[float] = []  # an edge before which a bin ends and the next begins
    start = 0
    for place in np.append(np.flatnonzero(weights >= target), len(values)).tolist():
        if place > start:
            cuts += _at_quantiles(values[start:place], weights[start:place], target, unit)
        if place == len(values):
            break
        if place:
            cuts.append(float(values[place]))
        if place + 1 < len(values):
            cuts.append(_after(values, place, unit))
        start = place + 1
    cuts = sorted({*cuts, *_tails(values, weights, cuts, unit)})
    return _between_ends(values, weights >= target, cuts, unit)


def _at_quantiles(
    values: Reals, weights: NDArray[np.int64], target: float, unit: Fraction | None
) -> list[float]:
    """Round edges that cut these numbers into parts of about the share wanted."""
    shares = np.cumsum(weights) / weights.sum()
    parts = max(1, round(weights.sum() / target))
    found = []
    for wanted in np.arange(1, parts) / parts:
        ends = (wanted - SLACK / parts, wanted + SLACK / parts)
        found.append(_near_share(values, shares, float(wanted), ends, unit))
    return [edge for edge in found if values[0] < edge <= values[-1]]


def _near_share(
    values: Reals, shares: Reals, wanted: float, ends: tuple[float, float], unit: Fraction | None
) -> float:
    """The roundest number below which lies a share between these ends, or else the share nearest to `wanted`."""
    last = len(values) - 1
    below = min(int(np.argmin(np.abs(shares - wanted))), max(0, last - 1))
    inside = np.flatnonzero((shares >= ends[0]) & (shares <= ends[1]))
    first, final = (int(inside[0]), int(inside[-1])) if len(inside) else (below, below)
    middle = float(values[min(below + 1, last)])
    return roundest(float(values[first]), float(values[min(final + 1, last)]), middle, unit)


def _after(values: Reals, place: int, unit: Fraction | None) -> float:
    """An edge behind a number and before the next."""
    value, following = float(values[place]), float(values[place + 1])
    return float(_exact(value) + unit) if unit else roundest(value, following, value, None)


def _tails(
    values: Reals, weights: NDArray[np.int64], cuts: list[float], unit: Fraction | None
) -> list[float]:
    """A further edge at either end where the outer bin reaches much farther than nearly all numbers."""
    shares = np.cumsum(weights) / weights.sum()
    most = values[np.searchsorted(shares, 0.95)] - values[np.searchsorted(shares, 0.05)]
    if not cuts or most <= 0:
        return []
    found = []
    if values[-1] - max(cuts) > LONG * most:
        found.append(_near_share(values, shares, 1 - TAIL, (1 - 1.5 * TAIL, 1 - 0.5 * TAIL), unit))
    if min(cuts) - values[0] > LONG * most:
        found.append(_near_share(values, shares, TAIL, (0.5 * TAIL, 1.5 * TAIL), unit))
    return found


def _between_ends(
    values: Reals, heaped: NDArray[np.bool_], cuts: list[float], unit: Fraction | None
) -> tuple[float, ...]:
    """The edges with round ends: not far beyond the numbers, and none beyond a heaped one."""
    least, most = float(values[0]), float(values[-1])
    step = float(unit) if unit else max(most - least, abs(most) * 1e-6, 1e-9)
    first, last = (cuts[0], cuts[-1]) if cuts else (most, least)
    low = least
    if not heaped[0]:
        low = roundest(least - max(first - least, step) / 4, least, least, unit, closed=True)
    if heaped[-1]:  # the last bin is closed: half a unit keeps its neighbour out
        high = float(_exact(most) + unit / 2) if unit else most + step / 1000
    else:
        high = roundest(most, most + max(most - last, step) / 4, most, unit, closed=True)
    if low == high:
        high = float(_exact(low) + unit) if unit else low + step
    return (low, *(edge for edge in cuts if low < edge < high), high)


def roundest(
    above: float, most: float, wanted: float, unit: Fraction | None, *, closed: bool = False
) -> float:
    """Of the numbers x with above < x ≤ most (or above ≤ x) the roundest, and of equally round ones the nearest to
    `wanted`: a multiple of 5, 2 or 1 times the largest power of ten. With a unit, one of its multiples."""
    low, high, middle = _exact(above), _exact(most), min(max(_exact(wanted), _exact(above)), _exact(most))
    if low == high:
        return most
    power = math.floor(math.log10(max(abs(above), abs(most)))) + 1
    for exponent in range(power, power - 18, -1):
        for digit in (5, 2, 1):
            step = digit * Fraction(Decimal(1).scaleb(exponent))
            if unit is not None and step < unit:
                return float(math.floor(high / unit) * unit)
            near = round(middle / step)
            for times in sorted((near - 1, near, near + 1), key=lambda t: abs(t * step - middle)):
                if (low <= times * step if closed else low < times * step) and times * step <= high:
                    return float(times * step)
    return most


def _exact(x: float) -> Fraction:
    """The decimal that a float prints as."""
    return Fraction(repr(float(x)))
