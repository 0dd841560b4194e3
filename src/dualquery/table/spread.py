"""Numbers inside their bins: a released code says only which bin, so its numbers are spread over it.

The j-th of the n records of a bin, in an order of its own for each column, lies at the quantile (j + 1/2)/n of the
bin's law. So the mean of many records is that of the law, and two columns are not tied together by how they were
spread. The order is drawn from a seed that depends on the column's name alone: a release that is read back spreads
its numbers as before, and encoding gives the same codes.

The law is public: it looks at the edges and at the released records, never at the table. In a bin on one side of
zero the density is ∝ |x|^s. By default the bin *follows its neighbours*: s is the mean of the exponents with which
one power law would give it and a neighbour the shares that they have in the release; at the outer end it goes on
growing steeper, if it did. Where shares are level, s = 0 and the law is uniform; in the wide last bin of incomes it
falls as steeply as the incomes before it. `spread` in the schema fixes s = 0 (uniform) or s = −1 (log: the
logarithm is uniform). Bins across zero are uniform.
"""

from __future__ import annotations

import hashlib

import numpy as np
from numpy.typing import NDArray

from dualquery.table.columns import Numeric, Spread, unit_bounds
from dualquery.types import Integers, Reals

STEEPEST = 5.0  # exponents beyond are taken for noise
STEPS = 50  # of bisection
WIDEST = 1e12  # a bin whose ends are further apart (as a ratio) is uniform
FINER = 3  # more figures than the width of a bin has, where nobody says how many decimals


def in_units(column: Numeric) -> bool:
    """Whether numbers are whole ones: of 1, or of the last decimal."""
    return column.integer or column.decimals is not None


def bounds_of(column: Numeric) -> tuple[Reals, Reals]:
    """The least and the largest number of each bin, in units where there are some."""
    if in_units(column):
        units = np.array(unit_bounds(column), np.float64)
        return units[:, 0], units[:, 1]
    edges = np.array(column.edges)
    return edges[:-1], np.append(np.nextafter(edges[1:-1], -np.inf), edges[-1])


def spread(column: Numeric, codes: Integers) -> Reals:
    """A number for each code, inside its bin; in units where there are some."""
    return _spread_units(column, codes) if in_units(column) else _spread_numbers(column, codes)


def _spread_units(column: Numeric, codes: Integers) -> Reals:
    first, last = bounds_of(column)
    # A unit stands for the numbers from it to the next one.
    placed = np.floor(_placed(column, codes, first, last + 1.0))
    inside: Reals = np.clip(placed, first[codes], last[codes])
    return inside


def _spread_numbers(column: Numeric, codes: Integers) -> Reals:
    low, high = np.array(column.edges[:-1]), np.array(column.edges[1:])
    below = np.nextafter(high, -np.inf)
    placed = np.clip(_placed(column, codes, low, high), low[codes], below[codes])
    width = high / 2 - low / 2
    figures = FINER - np.floor(np.log10(np.maximum(width, 1e-300) * 2))
    for number in np.unique(figures[np.abs(figures) < 16]):
        here = np.flatnonzero(figures[codes] == number)
        rounded = np.round(placed[here], int(number))
        inside = (rounded >= low[codes[here]]) & (rounded < high[codes[here]])
        placed[here] = np.where(inside, rounded, placed[here])
    return placed


def _placed(column: Numeric, codes: Integers, low: Reals, high: Reals) -> Reals:
    quantiles = _quantiles(column.name, codes, column.bins)
    a, b = low[codes], high[codes]
    placed = a * (1 - quantiles) + b * quantiles
    bent = _one_side(low, high) & (high != low)
    here = np.flatnonzero(bent[codes])
    if len(here):
        # Bins of negative numbers are those of positive ones seen from the other side.
        power = exponents(column, np.bincount(codes, minlength=column.bins))[codes[here]] + 1.0
        start, ratio = a[here], b[here] / a[here]
        flat = np.abs(power) < 1e-6
        power[flat] = 1.0
        bent_law = (1.0 + quantiles[here] * (ratio**power - 1.0)) ** (1.0 / power)
        placed[here] = start * np.where(flat, ratio ** quantiles[here], bent_law)
    return placed


def _one_side(low: Reals, high: Reals) -> NDArray[np.bool_]:
    """Which bins lie on one side of zero, and are not so wide that no power law is told apart."""
    nearer, farther = np.minimum(abs(low), abs(high)), np.maximum(abs(low), abs(high))
    sides: NDArray[np.bool_] = ((low > 0) | (high < 0)) & (farther / WIDEST < nearer)
    return sides


def exponents(column: Numeric, counts: Integers) -> Reals:
    """The exponent s of each bin's density |x|^s."""
    if column.spread is not None:
        return np.full(column.bins, -1.0 if column.spread is Spread.LOG else 0.0)
    edges = np.array(column.edges)
    total, number = np.zeros(column.bins), np.zeros(column.bins)
    pairs = [(edges, counts, np.arange(column.bins))]
    pairs.append((-edges[::-1], counts[::-1], np.arange(column.bins)[::-1]))  # negative numbers, mirrored
    for ends, held, place in pairs:
        first = np.flatnonzero((ends[:-2] >= 0) & (ends[2:] / WIDEST < ends[1:-1]))
        found = _joint_exponent(ends[first], ends[first + 1], ends[first + 2], held[first], held[first + 1])
        for shift in (0, 1):
            np.add.at(total, place[first + shift], found)
            np.add.at(number, place[first + shift], 1.0)
        if len(first) > 1 and ends[-1] > 0 and found[-2] < 0:
            # Where the law grows steeper towards the outer end, it does so beyond the last edge that has neighbours.
            total[place[-1]] += np.minimum(0.0, found[-1] - found[-2]) / 2
    mean: Reals = total / np.maximum(number, 1.0)
    return mean


def _joint_exponent(a: Reals, b: Reals, c: Reals, left: Integers, right: Integers) -> Reals:
    """The s for which ∫_b^c x^s dx / ∫_a^b x^s dx = right / left, by bisection; it grows with s."""
    wanted = np.log((right + 0.5) / (left + 0.5))
    end, start = c / b, a / b
    start = np.where(start * WIDEST > 1.0, start, 0.0)  # so near to zero that powers of it overflow
    low = np.where(start > 0, -STEEPEST, -0.9)  # from zero on only s > −1 has a finite integral
    high = np.full(len(a), STEEPEST)
    for _ in range(STEPS):
        middle = (low + high) / 2
        power = middle + 1.0
        power = np.where(np.abs(power) < 1e-6, 1e-6, power)
        share = np.log((end**power - 1.0) / power) - np.log((1.0 - start**power) / power)
        low, high = np.where(share < wanted, middle, low), np.where(share < wanted, high, middle)
    solved: Reals = (low + high) / 2
    return solved


def _quantiles(name: str, codes: Integers, bins: int) -> Reals:
    """(j + 1/2)/n for the j-th of the n records of a bin, in a random order that everybody can draw again."""
    seed = int.from_bytes(hashlib.sha256(name.encode("utf-8", errors="replace")).digest()[:8], "little")
    shuffled = np.random.default_rng(seed).random(len(codes))
    order = np.lexsort((shuffled, codes))
    counts = np.bincount(codes, minlength=bins)
    starts = np.cumsum(counts) - counts
    place = np.empty(len(codes), np.float64)
    place[order] = np.arange(len(codes)) - starts[codes[order]]
    quantiles: Reals = (place + 0.5) / counts[codes]
    return quantiles
