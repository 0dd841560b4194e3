"""Compiled loops over kept bit columns: which records a question holds for, how many, and what they weigh.

Every loop runs over all words, whatever they hold, and none runs in parallel: the time of a count does not depend on
what is counted, and several threads may count at once.
"""

from __future__ import annotations

import numpy as np

from dualquery.compiled import njit, popcount
from dualquery.queries.kernels import ALL_ONES


@njit(cache=True, nogil=True)
def product_mask(columns, negated, complement, rows, mask):  # type: ignore[no-untyped-def]
    """mask = the AND of columns, each flipped where negated, all flipped where complement; its ones are counted."""
    number, words = columns.shape
    total = np.uint64(0)
    flip_all = np.uint64(0) - np.uint64(complement)
    for w in range(words):
        joint = ALL_ONES
        for k in range(number):
            joint &= columns[k, w] ^ (np.uint64(0) - np.uint64(negated[k]))
        joint ^= flip_all
        beyond = 64 * (w + 1) - rows
        if beyond > 0:
            joint &= ALL_ONES >> np.uint64(beyond)
        mask[w] = joint
        total += popcount(joint)
    return np.int64(total)


@njit(cache=True, nogil=True)
def accepted_bits(codes, accepted, bits):  # type: ignore[no-untyped-def]
    """Bit r says whether the code of record r is accepted (1, of all codes 0 or 1)."""
    rows = codes.shape[0]
    for w in range(bits.shape[0]):
        word = np.uint64(0)
        first = 64 * w
        for b in range(min(64, rows - first)):
            word |= accepted[codes[first + b]] << np.uint64(b)
        bits[w] = word


@njit(cache=True, nogil=True)
def parity_mask(columns, rows, mask):  # type: ignore[no-untyped-def]
    """mask = the records with an even number of ones among the columns; they are counted."""
    number, words = columns.shape
    total = np.uint64(0)
    for w in range(words):
        odd = np.uint64(0)
        for k in range(number):
            odd ^= columns[k, w]
        even = ~odd
        beyond = 64 * (w + 1) - rows
        if beyond > 0:
            even &= ALL_ONES >> np.uint64(beyond)
        mask[w] = even
        total += popcount(even)
    return np.int64(total)


@njit(cache=True, nogil=True)
def mass_of(mask, weights):  # type: ignore[no-untyped-def]
    """The sum of the whole weights of the rows in a mask."""
    total = np.int64(0)
    rows = weights.shape[0]
    for w in range(rows >> 6):
        word = mask[w]
        for b in range(64):
            bit = np.int64((word >> np.uint64(b)) & np.uint64(1))
            total += weights[64 * w + b] & -bit
    for r in range(rows & ~63, rows):
        bit = np.int64((mask[r >> 6] >> np.uint64(r & 63)) & np.uint64(1))
        total += weights[r] & -bit
    return total


@njit(cache=True, nogil=True)
def add_weights(cells, weights, sums):  # type: ignore[no-untyped-def]
    """sums[cell of row r] += weight of row r."""
    for r in range(cells.shape[0]):
        sums[cells[r]] += weights[r]


@njit(cache=True, nogil=True)
def add_ones(cells, sums):  # type: ignore[no-untyped-def]
    """sums[cell of row r] += 1."""
    for r in range(cells.shape[0]):
        sums[cells[r]] += 1
