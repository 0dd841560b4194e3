"""Compiled best responses of rows of binary attributes to the residual of sets of up to three of them.

A table over binary attributes says as much as the signed counts of its subsets: with s_j = 1 − 2·value and
χ_B(x) = Π_{j ∈ B} s_j, the gain of a row is Σ_B g_B χ_B(x), one number g_B a set instead of 2^|S| a table and
view. What attribute j earns is then a quadratic form in the other signs,

    h_j = g_j + Σ_k g_jk s_k + Σ_{k<l} g_jkl s_k s_l,

which runs along contiguous memory: fifty attributes and all their 19,600 triples cost a row some ten
microseconds.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from dualquery.fitting.row_kernels import (
    _BITS,
    _DRAWS_PER_WORD,
    _MASK,
    _STEP,
    LOGISTIC,
    _shuffle,
    _word,
)


@njit(cache=True, parallel=True)
def signed_sums(signs, has_triples):  # type: ignore[no-untyped-def]
    """Σ over a chain's rows of χ_B, for sets of one, two and three attributes; the larger ones symmetric."""
    chains, count, width = signs.shape
    one = np.zeros((chains, width), np.float32)
    two = np.zeros((chains, width, width), np.float32)
    deep = width if has_triples else 0
    three = np.zeros((chains, deep, deep, deep), np.float32)
    for chain in prange(chains):
        for r in range(count):
            row = signs[chain, r]
            for j in range(width):
                one[chain, j] += row[j]
                for k in range(width):
                    both = row[j] * row[k]
                    two[chain, j, k] += both
                    if has_triples and j < k:
                        here = three[chain, j, k]
                        for m in range(k + 1, width):
                            here[m] += both * row[m]
        if has_triples:
            for j in range(width):
                for k in range(j + 1, width):
                    for m in range(k + 1, width):
                        value = three[chain, j, k, m]
                        three[chain, j, m, k] = value
                        three[chain, k, j, m] = value
                        three[chain, k, m, j] = value
                        three[chain, m, j, k] = value
                        three[chain, m, k, j] = value
    return one, two, three


@njit(cache=True)
def _flip(row, j, one, two, three, weight_one, weight_two, weight_three):  # type: ignore[no-untyped-def]
    """Turn the sign of attribute j: χ_B falls by 2 s_j χ_{B∖j} for every B that contains j.

    In the form of attribute k the residual of {j, k, m} is three[k, j, m] + three[k, m, j]: one of the two is
    brought up to date, the one that lies in a row.
    """
    width = row.shape[0]
    sign = row[j]
    one[j] += np.float32(2) * sign * weight_one[j]
    for k in range(width):
        change = np.float32(2) * sign * weight_two[j, k]
        two[j, k] += change * row[k]
        two[k, j] += change * row[k]
    if three.shape[0] > 0:
        for k in range(width):
            half = sign * row[k]
            mine, weights = three[j, k], weight_three[j, k]
            for m in range(width):
                mine[m] += half * weights[m] * row[m]
            theirs, weights = three[k, j], weight_three[k, j]
            for m in range(width):
                theirs[m] += np.float32(2) * half * weights[m] * row[m]
    row[j] = -sign


@njit(cache=True, parallel=True)
def answer_binary_rows(  # type: ignore[no-untyped-def]
    signs, one, two, three, weight_one, weight_two, weight_three, moves, lean, temperature, counters
):
    """As `answer_rows`: once over the rows of every chain, in random order, each best-responding.

    signs (chain, row, attribute; ±1) and the residuals of every chain are changed in place, and so are the
    generators. three[c, j, k, m] + three[c, j, m, k] is the residual of {j, k, m}; weights are zero where a
    set is not asked for and where attributes repeat. lean[j] is the log-odds of value 0 without any pull,
    moves[j] whether j moves at all.
    """
    chains, count, width = signs.shape
    for chain in prange(chains):
        own_one, own_two, own_three = one[chain], two[chain], three[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(width)
        form = np.empty(width, np.float32)
        itself = np.zeros(width, np.float32)
        for j in range(width):
            itself[j] = weight_one[j] + weight_two[j].sum()
            if own_three.shape[0] > 0:
                itself[j] += np.float32(0.5) * weight_three[j].sum()
        counter = _shuffle(row_order, counter)
        for r in row_order:
            row = signs[chain, r]
            counter = _shuffle(order, counter)
            left = 0
            word = np.uint64(0)
            for j in order:
                if not moves[j]:
                    continue
                for m in range(width):
                    form[m] = own_two[j, m]
                if own_three.shape[0] > 0:
                    for k in range(width):
                        sign = row[k]
                        here = own_three[j, k]
                        for m in range(width):
                            form[m] += sign * here[m]
                gain = own_one[j] + row[j] * itself[j]
                for m in range(width):
                    gain += form[m] * row[m]
                gain *= np.float32(2)
                if temperature > 0:
                    if left == 0:
                        counter += _STEP
                        word = _word(counter)
                        left = _DRAWS_PER_WORD
                    gain += temperature * (lean[j] + LOGISTIC[word & _MASK])
                    word >>= np.uint64(_BITS)
                    left -= 1
                if (gain < 0) == (row[j] > 0) and gain != 0:
                    _flip(
                        row,
                        j,
                        own_one,
                        own_two,
                        own_three,
                        weight_one,
                        weight_two,
                        weight_three,
                    )
        counters[chain] = counter
