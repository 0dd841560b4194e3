"""The compiled part of selection: exact sums of weights, and the candidate in whose stretch of a sum a point lies.

Scores, bounds and weights are integers. The one place for doubles is `mantissa`, a fixed sequence of IEEE operations
whose rounding is part of the price.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit, prange

TABLE_BITS = 11
CHUNK = 2048  # candidates summed, and later searched, together

_LN2 = 0.6931471805599453


def powers_of_two() -> NDArray[np.float64]:
    """2^(i / 2048) for each i, from integer square roots alone, so that every machine has the same table."""
    precision = 256
    root = 2 << precision
    for _ in range(TABLE_BITS):
        root = math.isqrt(root << precision)
    powers, power = [], 1 << precision
    for _ in range(1 << TABLE_BITS):
        powers.append(math.ldexp(power >> (precision - 52), -52))
        power = (power * root) >> precision
    return np.array(powers)


@njit(cache=True, inline="always")
def mantissa(x, shift, powers):  # type: ignore[no-untyped-def]
    """⌊2^40 · 2^f⌋ for the fractional part f of x / 2^shift, up to a relative 2^-49 before the floor.

    Unsigned, because the compiler then need not ask whether an index is negative.
    """
    below = np.uint64(shift - TABLE_BITS)
    fraction = np.uint64(x) & ((np.uint64(1) << np.uint64(shift)) - np.uint64(1))
    rest = np.int64(fraction & ((np.uint64(1) << below) - np.uint64(1)))
    r = np.float64(rest) * (_LN2 / np.float64(np.int64(1) << shift))
    power = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0)))
    return np.uint64(np.int64(powers[fraction >> below] * power * 1099511627776.0))


@njit(cache=True, inline="always")
def _band(x, shift, low):  # type: ignore[no-untyped-def]
    return np.uint64((x >> shift) - low)


@njit(cache=True, inline="always")
def _within(score, largest):  # type: ignore[no-untyped-def]
    return min(max(score, -largest), largest)


@njit(cache=True, inline="always")
def _raised(score, rate, largest, lowest):  # type: ignore[no-untyped-def]
    """y · 2^shift of a score: its log-weight, raised to the lowest that counts."""
    return max(_within(score, largest) * rate, lowest)


@njit(cache=True, inline="always")
def _score(counts, offsets, repeats, scale, signed, q):  # type: ignore[no-untyped-def]
    score = repeats * counts[q] - scale * np.int64(offsets[q])
    if not signed and score < 0:
        score = -score
    return score


@njit(cache=True, parallel=True)
def extreme_scores(counts, offsets, repeats, scale, surplus, signed, largest):  # type: ignore[no-untyped-def]
    """The least and the greatest score of all candidates, within the bound."""
    low = np.int64(1) << 62
    high = -low
    for q in prange(counts.shape[0]):
        score = _score(counts, offsets, repeats, scale, signed, q)
        low = min(low, score)
        high = max(high, score)
    if signed:
        low, high = min(low, surplus - high), max(high, surplus - low)
    return _within(low, largest), _within(high, largest)


@njit(cache=True, parallel=True)
def sum_bands(  # type: ignore[no-untyped-def]
    counts, offsets, repeats, scale, surplus, signed, rate, shift, largest, lowest, powers, low, sums
):
    """sums[chunk, band] = the sum of the mantissas of the chunk's candidates with exponent low + band."""
    for chunk in prange(sums.shape[0]):
        mine = sums[chunk]
        for q in range(chunk * CHUNK, min(chunk * CHUNK + CHUNK, counts.shape[0])):
            score = _score(counts, offsets, repeats, scale, signed, q)
            x = _raised(score, rate, largest, lowest)
            mine[_band(x, shift, low)] += mantissa(x, shift, powers)
            if signed:
                x = _raised(surplus - score, rate, largest, lowest)
                mine[_band(x, shift, low)] += mantissa(x, shift, powers)


@njit(cache=True, parallel=True)
def find_candidates(  # type: ignore[no-untyped-def]
    counts,
    offsets,
    repeats,
    scale,
    surplus,
    signed,
    rate,
    shift,
    largest,
    lowest,
    powers,
    low,
    bands,
    first,
    band,
    residue,
):
    """The candidate (2·query + negated) of each draw; draws are sorted by chunk, band and residue.

    The draws of chunk k are first[k] : first[k + 1]. One walk over a chunk serves all of its draws.
    """
    found = np.empty(residue.shape[0], np.int64)
    for chunk in prange(first.shape[0] - 1):
        begin, end = first[chunk], first[chunk + 1]
        if begin == end:
            continue
        running = np.zeros(bands, np.uint64)
        pending = np.full(bands, -1, np.int64)  # the next draw of each band
        for i in range(end - 1, begin - 1, -1):
            pending[band[i]] = i
        for q in range(chunk * CHUNK, min(chunk * CHUNK + CHUNK, counts.shape[0])):
            score = _score(counts, offsets, repeats, scale, signed, q)
            for side in range(2 if signed else 1):
                x = _raised(surplus - score if side else score, rate, largest, lowest)
                b = _band(x, shift, low)
                i = pending[b]
                if i >= 0:
                    running[b] += mantissa(x, shift, powers)
                    while i >= 0 and residue[i] < running[b]:
                        found[i] = 2 * q + side
                        i = i + 1 if i + 1 < end and np.uint64(band[i + 1]) == b else -1
                    pending[b] = i
    return found
