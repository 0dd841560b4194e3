"""Compiled row-wise best responses to the residual of *all* pairs at once.

Where every pair of attributes has a target, the residuals of all pairs are one symmetric matrix over the values of
all attributes, with empty blocks where an attribute meets itself. The gains of every value of every attribute are
then sums of its rows, one an attribute: long vectors side by side, some thirty times as fast as a table at a time.
"""

from __future__ import annotations

import numpy as np

from dualquery.compiled import njit, prange
from dualquery.game.residual_kernels import (
    _BITS,
    _DRAWS_PER_WORD,
    _MASK,
    _STEP,
    GUMBEL,
    _shuffle,
    _word,
)


@njit(cache=True, parallel=True)
def withdraw_pairs(rows, first_value, single, pair, weight_single):  # type: ignore[no-untyped-def]
    """Subtract the values of every chain's rows, and all pairs of them, from its residual."""
    width = rows.shape[2]
    for chain in prange(rows.shape[0]):
        held = np.empty(width, np.int64)
        for r in range(rows.shape[1]):
            for j in range(width):
                held[j] = first_value[j] + rows[chain, r, j]
            for a in range(width):
                single[chain, held[a]] -= weight_single
                for b in range(width):
                    if a != b:
                        pair[chain, held[a], held[b]] -= np.float32(1)


@njit(cache=True, parallel=True)
def answer_all_pairs(rows, first_value, single, pair, weight_single, lean, temperature, counters):  # type: ignore[no-untyped-def]
    """As `residual_kernels.answer_rows`, for all pairs with weight one and one-way tables with their own.

    gain[a], over the values a of all attributes, is single[a] + Σ over the values b of the row of pair[b, a]; what
    a value earns is known for all attributes at once, and each move brings it up to date.
    """
    chains, count, width = rows.shape
    values = pair.shape[1]
    itself = weight_single + np.float32(width - 1)
    for chain in prange(chains):
        one = single[chain]
        two = pair[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(width)
        gain = np.empty(values, np.float32)
        held = np.empty(width, np.int64)
        counter = _shuffle(row_order, counter)
        for r in row_order:
            counter = _shuffle(order, counter)
            gain[:] = one
            for j in range(width):
                held[j] = first_value[j] + rows[chain, r, j]
                near = two[held[j]]
                for a in range(values):
                    gain[a] += near[a]
            for j in order:
                old = held[j]
                best = old
                highest = np.float32(-np.inf)
                left = 0
                word = np.uint64(0)
                for a in range(first_value[j], first_value[j + 1]):
                    if left == 0:
                        counter += _STEP
                        word = _word(counter)
                        left = _DRAWS_PER_WORD
                    value = gain[a] + temperature * (lean[a] + GUMBEL[word & _MASK])
                    word >>= np.uint64(_BITS)
                    left -= 1
                    if a == old:
                        value += itself
                    if value > highest:
                        highest = value
                        best = a
                if best == old:
                    continue
                near = two[old]
                for a in range(values):
                    gain[a] -= near[a]
                for i in range(width):
                    if i != j:
                        b = held[i]
                        two[old, b] += np.float32(1)
                        two[b, old] += np.float32(1)
                        two[best, b] -= np.float32(1)
                        two[b, best] -= np.float32(1)
                near = two[best]
                for a in range(values):
                    gain[a] += near[a]
                one[old] += weight_single
                one[best] -= weight_single
                gain[old] += itself
                gain[best] -= itself
                held[j] = best
            for j in range(width):
                rows[chain, r, j] = held[j] - first_value[j]
        counters[chain] = counter
