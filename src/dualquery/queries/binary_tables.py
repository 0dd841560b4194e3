"""Tables over binary attributes, counted from bit columns: a triple is one AND and one population count a
word.

The eight cells over {i, j, k} follow from the numbers of records that have value 1 in each subset of it
(inclusion and exclusion), so that all 19,600 triples of fifty attributes take no longer than a few passes
over the records.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit, popcount, prange

MOST_ORDER = 3
LEAST_TABLES = 16  # below it the general loop is as fast


def fits(sizes: NDArray[np.integer], members: NDArray[np.integer]) -> bool:
    """Whether these tables can be counted this way, and gain by it."""
    return len(members) >= LEAST_TABLES and members.shape[1] <= MOST_ORDER and bool(np.all(sizes == 2))


def bit_rows(codes: NDArray[np.unsignedinteger]) -> NDArray[np.uint64]:
    """Codes 0 and 1, a row an attribute, as 64 records a word."""
    attributes, rows = codes.shape
    padded = np.zeros((attributes, -(-rows // 64) * 64), np.uint8)
    padded[:, :rows] = codes
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


@njit(cache=True, parallel=True)
def count_binary_tables(bits, rows, members, starts, counts):  # type: ignore[no-untyped-def]
    """counts[starts[t] : starts[t + 1]] becomes the table over members[t], the last attribute varying
    fastest.
    """
    words = bits.shape[1]
    for t in prange(members.shape[0]):
        order = starts[t + 1] - starts[t]
        out = counts[starts[t] : starts[t + 1]]
        if order == 1:
            out[0] = rows
            continue
        a = bits[members[t, 0]]
        has_a = np.uint64(0)
        if order == 2:
            for w in range(words):
                has_a += popcount(a[w])
            out[1] = np.int64(has_a)
            out[0] = rows - out[1]
            continue
        b = bits[members[t, 1]]
        has_b = np.uint64(0)
        has_ab = np.uint64(0)
        if order == 4:
            for w in range(words):
                has_a += popcount(a[w])
                has_b += popcount(b[w])
                has_ab += popcount(a[w] & b[w])
            out[3] = np.int64(has_ab)
            out[2] = np.int64(has_a) - out[3]
            out[1] = np.int64(has_b) - out[3]
            out[0] = rows - out[1] - out[2] - out[3]
            continue
        c = bits[members[t, 2]]
        has_c = np.uint64(0)
        has_ac = np.uint64(0)
        has_bc = np.uint64(0)
        has_abc = np.uint64(0)
        for w in range(words):
            both = a[w] & b[w]
            has_a += popcount(a[w])
            has_b += popcount(b[w])
            has_c += popcount(c[w])
            has_ab += popcount(both)
            has_ac += popcount(a[w] & c[w])
            has_bc += popcount(b[w] & c[w])
            has_abc += popcount(both & c[w])
        out[7] = np.int64(has_abc)
        out[6] = np.int64(has_ab) - out[7]
        out[5] = np.int64(has_ac) - out[7]
        out[3] = np.int64(has_bc) - out[7]
        out[4] = np.int64(has_a) - out[5] - out[6] - out[7]
        out[2] = np.int64(has_b) - out[3] - out[6] - out[7]
        out[1] = np.int64(has_c) - out[3] - out[5] - out[7]
        out[0] = rows - out[1:].sum()
