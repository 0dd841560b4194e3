"""One bit a record for each predicate: what conjunctions and parities are counted from.

Counts add up over slabs of records, so the bit columns of a slab never need more than `SLAB_BYTES` whatever
the size of the table.

Compiled loops that add up whole numbers over bit columns: along records, and along attributes.

`bits[j, r // 64]` holds in bit r % 64 whether record r has attribute j. Everything is a whole number, so that the
order of adding, and how many threads share it, changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import lowest_bit, njit, popcount, prange
from dualquery.queries.kernels import join_bits, set_code_bits, set_item_bits
from dualquery.queries.predicates import NONE, Predicates
from dualquery.table.records import BitItems, Records, SparseItems, pack_bits

SLAB_BYTES = 512 << 20  # bit columns held at once
VALUE_BYTES = 16 << 20  # bit columns of the values of one attribute, of some of the slab's records
LEAST_ROWS = 64 * 128  # of a slab
FEW = 1 << 23  # cells of bit columns


def few(columns: int, rows: int) -> bool:
    """Whether numpy walks so many columns in less time than it takes to load compiled loops."""
    return columns * rows <= FEW


def slabs(predicates: Predicates, records: Records) -> Iterator[tuple[int, int]]:
    """The first record and the number of records of each slab."""
    step = max(LEAST_ROWS, SLAB_BYTES // len(predicates) * 8 // 4096 * 4096)
    for first in range(0, records.rows, step):
        yield first, min(step, records.rows - first)


def predicate_bits(predicates: Predicates, records: Records, first: int, rows: int) -> NDArray[np.uint64]:
    """A bit column for each predicate over `rows` records from `first` (a multiple of 64)."""
    domain = records.domain
    bits = np.zeros((len(predicates), -(-rows // 64)), np.uint64)
    starts = np.array(domain.starts)
    owner_column = np.searchsorted(starts, predicates.attribute, side="right") - 1
    for position in np.unique(owner_column):
        mine = np.flatnonzero(owner_column == position)
        codes = records.columns[position]
        if isinstance(codes, SparseItems | BitItems):
            _item_bits(predicates, mine, codes, int(starts[position]), first, rows, bits)
        else:
            size = int(domain.sizes[starts[position]])
            _code_bits(predicates, mine, codes[first : first + rows], size, bits)
    return bits


def _code_bits(
    predicates: Predicates,
    mine: NDArray[np.intp],
    codes: NDArray[np.unsignedinteger],
    size: int,
    bits: NDArray[np.uint64],
) -> None:
    """Bit columns of one attribute. Where predicates share values, each value gets a column, and they are joined."""
    if few(len(mine), len(codes)):
        for p in mine:
            accepts = np.zeros(size, np.bool_)
            accepts[predicates.accepted(int(p))] = True
            bits[p] = pack_bits(accepts[codes][None])[0]
        return
    accepted = np.concatenate([predicates.accepted(int(p)) for p in mine])
    owner = np.full(size, NONE, np.int64)
    if len(np.unique(accepted)) == len(accepted):
        owner[accepted] = np.repeat(mine, predicates.start[mine + 1] - predicates.start[mine])
        set_code_bits(codes, owner, bits)
        return
    used = np.unique(accepted)
    owner[used] = np.arange(len(used))
    words = max(1, VALUE_BYTES // (8 * len(used)))
    for first in range(0, bits.shape[1], words):
        of_values = np.zeros((len(used), min(words, bits.shape[1] - first)), np.uint64)
        set_code_bits(codes[64 * first : 64 * (first + words)], owner, of_values)
        join_bits(of_values, owner, predicates.start, predicates.values, mine, first, bits)


def _item_bits(
    predicates: Predicates,
    mine: NDArray[np.intp],
    codes: SparseItems | BitItems,
    attribute: int,
    first: int,
    rows: int,
    bits: NDArray[np.uint64],
) -> None:
    """Bit columns of items. A canonical predicate of an item is `= 1`; `= 0` occurs in cells of tables."""
    item = predicates.attribute[mine] - attribute
    if isinstance(codes, BitItems):
        bits[mine] = codes.words[item, first // 64 : first // 64 + bits.shape[1]]
    else:
        # Several predicates may ask for one item (`= 1` and `= 0`): fill one of them, copy to the rest.
        unique, where, inverse = np.unique(item, return_index=True, return_inverse=True)
        if few(len(unique), len(codes.ids)):
            begin, end = codes.start[first], codes.start[first + rows]
            for p, wanted in zip(mine[where], unique, strict=True):
                found = begin + np.flatnonzero(codes.ids[begin:end] == wanted)
                held = np.zeros((1, rows), np.bool_)
                held[0, np.searchsorted(codes.start, found, side="right") - 1 - first] = True
                bits[p] = pack_bits(held)[0]
        else:
            owner = np.full(int(codes.ids.max(initial=0)) + 1, NONE, np.int64)
            known = unique < len(owner)
            owner[unique[known]] = mine[where[known]]
            set_item_bits(codes.start, codes.ids, owner, first, rows, bits)
        bits[mine] = bits[mine[where][inverse]]
    zero = mine[predicates.values[predicates.start[mine]] == 0]
    if len(zero):
        bits[zero] = ~bits[zero]
        if rows % 64:
            bits[zero, -1] &= np.uint64((1 << (rows % 64)) - 1)


def bits_in_place(
    predicates: Predicates, records: Records
) -> tuple[NDArray[np.uint64], NDArray[np.int64]] | None:
    """The bit columns of a lone block of items, which need no copy: (words, row of each predicate)."""
    codes = records.columns[0]
    if len(records.columns) > 1 or not isinstance(codes, BitItems) or not np.all(predicates.values == 1):
        return None
    return codes.words, predicates.attribute.astype(np.int64)


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
