"""Compiled loops that add up whole numbers over bit columns: along records, and along attributes.

`bits[j, r // 64]` holds in bit r % 64 whether record r has attribute j. Everything is a whole number, so that the
order of adding, and how many threads share it, changes nothing.
"""

from __future__ import annotations

import numpy as np

from dualquery.compiled import lowest_bit, njit, popcount, prange

LINE = 8  # words that lie in one line of the cache


@njit(cache=True, parallel=True)
def count_ones(bits, counts):  # type: ignore[no-untyped-def]
    """counts[j] += the number of records that have attribute j."""
    for j in prange(bits.shape[0]):
        total = np.uint64(0)
        for w in range(bits.shape[1]):
            total += popcount(bits[j, w])
        counts[j] += np.int64(total)


@njit(cache=True, parallel=True)
def add_along_attributes(bits, group, values, sums):  # type: ignore[no-untyped-def]
    """sums[r] += Σ_j values[j, group[r]] over the attributes j that record r has."""
    attributes, words = bits.shape
    for block in prange((words + LINE - 1) // LINE):
        for j in range(attributes):
            for w in range(block * LINE, min(block * LINE + LINE, words)):
                word = bits[j, w]
                while word:
                    r = 64 * w + np.int64(lowest_bit(word))
                    sums[r] += values[j, group[r]]
                    word &= word - np.uint64(1)


@njit(cache=True, parallel=True)
def add_along_records(bits, group, weights, sums):  # type: ignore[no-untyped-def]
    """sums[j, group[r]] += weights[r] for every record r that has attribute j."""
    attributes, words = bits.shape
    for j in prange(attributes):
        for w in range(words):
            word = bits[j, w]
            while word:
                r = 64 * w + np.int64(lowest_bit(word))
                sums[j, group[r]] += weights[r]
                word &= word - np.uint64(1)
