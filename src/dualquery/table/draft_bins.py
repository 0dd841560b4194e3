"""Bins for a draft: at round numbers, of equal width, by order of magnitude, or at quantiles."""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dualquery.table.columns import equal_edges

BINS = 20
DECADES = 25  # of a ladder by order of magnitude, on each side of 0: what is smaller still is next to 0
UNEVEN = 0.5  # of the rows in one of BINS bins of equal width: these numbers are skewed

Floats = NDArray[np.float64]


def drafted_edges(
    name: str, values: Floats, weights: NDArray[np.int64], quantiles: int | None, *, integer: bool
) -> tuple[float, ...]:
    """At quantiles where so many are wanted; by order of magnitude where numbers are skewed; else equal."""
    order = np.argsort(values)
    values, shares = values[order], np.cumsum(weights[order]) / weights.sum()
    low, high, bins = round_bins(float(values[0]), float(values[-1]), whole=integer)
    even = equal_edges(name, low, high, bins)
    if quantiles is not None:
        return _at_quantiles(values, shares, quantiles, even, integer=integer)
    held = np.histogram(values, even, weights=weights[order])[0]
    if held.max() <= UNEVEN * weights.sum():
        return even
    return _by_magnitude(values, shares, even, integer=integer)


def _at_quantiles(
    values: Floats, shares: Floats, number: int, even: tuple[float, ...], *, integer: bool
) -> tuple[float, ...]:
    """Edges at the quantiles, rounded to two figures."""
    inner = values[np.searchsorted(shares, np.arange(1, number) / number)]
    rounded = {_two_figures(x, integer=integer) for x in inner.tolist()}
    return tuple(sorted({even[0], *(x for x in rounded if even[0] < x < even[-1]), even[-1]}))


def _two_figures(x: float, *, integer: bool) -> float:
    rounded = float(f"{x:.1e}")
    return float(round(rounded)) if integer else rounded


def _by_magnitude(
    values: Floats, shares: Floats, even: tuple[float, ...], *, integer: bool
) -> tuple[float, ...]:
    """0, and ± 1, 2 or 5 times powers of ten (or powers alone, where they span many) up to the largest number."""
    ladder: set[float] = set()
    for sign in (1.0, -1.0):
        side = np.sort(sign * values[sign * values > 0])
        if not len(side):
            continue
        least = float(side[len(side) // 50])  # the smallest few share a bin with what is below them
        first = math.floor(math.log10(max(least, 1.0 if integer else 0.0) or side[-1]))
        last = math.ceil(math.log10(side[-1]))
        first = max(first, last - DECADES)
        steps = (1, 2, 5) if last - first <= 6 else (1,)
        rungs = [float(Decimal(step).scaleb(power)) for power in range(first, last + 1) for step in steps]
        ladder |= {sign * rung for rung in rungs}
    zero = bool((values == 0).any())
    if zero or (values[0] < 0 < values[-1]):
        ladder |= {0.0, 1.0} if integer and zero else {0.0}
    if values[0] >= 0:
        ladder |= {0.0}
        ladder = {x for x in ladder if x >= 0}
    top = min((x for x in ladder if x >= values[-1]), default=even[-1])
    bottom = 0.0 if values[0] >= 0 else max((x for x in ladder if x <= values[0]), default=even[0])
    edges = sorted(x for x in ladder if bottom <= x <= top)
    if integer:
        edges = [a for a, b in pairwise([*edges, math.inf]) if math.ceil(a) < b]
    return tuple(edges) if len(edges) > 1 else even


def round_bins(smallest: float, largest: float, *, whole: bool) -> tuple[float, float, int]:
    """At most about BINS bins of width 1, 2 or 5 times a power of ten, from one multiple of it to another."""
    if smallest > 0 and smallest < largest / 2:
        smallest = 0.0
    # Numbers too close for bins of their own share one of the smallest width that floats can tell apart.
    finest = max(math.ulp(smallest), math.ulp(largest)) * 4
    least = max(largest / BINS - smallest / BINS, 1.0 if whole else finest)
    power = math.floor(math.log10(least))
    width = next(w for m in (1, 2, 5, 10) if (w := m * Decimal(10) ** power) >= Decimal(least))
    first, last = math.floor(Decimal(smallest) / width), math.ceil(Decimal(largest) / width)
    return float(first * width), float(last * width), last - first
