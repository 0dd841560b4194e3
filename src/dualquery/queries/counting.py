"""Exact counts of every query of a workload: the only place where the truth is made.

Counts are integers, and add up over slabs of records, so the bit columns of a slab never need more
than `SLAB_BYTES` whatever the size of the table.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numba import get_num_threads
from numpy.typing import NDArray

from dualquery.queries.kernels import (
    add_truth,
    column_sums,
    count_blocked,
    count_direct,
    count_parities,
    count_tables,
    list_members,
    set_code_bits,
    set_item_bits,
)
from dualquery.queries.query import NONE, Conjunctions, Group, Parities, Predicates, Tables
from dualquery.table.records import BitItems, Records, SparseItems, unpack_bits

SLAB_BYTES = 512 << 20  # bit columns held at once
BLOCK_BYTES = 1 << 20  # a block of all columns and negations: stays in the second-level cache
BLOCK_WORDS_MOST = 128
BLOCK_WORDS_LEAST = 8

Counts = NDArray[np.int64]
Progress = Callable[[int, int], None]


def no_progress(done: int, total: int) -> None:
    """Tells nobody."""


def true_counts(group: Group, records: Records, progress: Progress = no_progress) -> Counts:
    """The number of records that satisfy each query of a group."""
    if isinstance(group, Conjunctions):
        return _count_conjunctions(group, records, progress)
    if isinstance(group, Parities):
        return _count_parities(group, records, progress)
    return _count_tables(group, records, progress)


def add_answers(group: Group, record: NDArray[np.int32], answers: NDArray[np.int32]) -> None:
    """answers[q] += q(record) for every query of a group. The record is public, and so are the answers."""
    if isinstance(group, Conjunctions):
        truth = literal_truth(group.predicates, record)
        complement = np.zeros(0, np.uint8) if group.complement is None else group.complement.view(np.uint8)
        add_truth(truth, group.literals, complement, answers)
    elif isinstance(group, Parities):
        padded = np.append(record, 0)  # padding -1 meets this zero
        answers += (padded[group.attributes].sum(axis=1) & 1) == 0
    else:
        sizes = group.domain.sizes
        for members, start in zip(group.sets, group.starts[:-1], strict=True):
            cell = 0
            for j in members:
                cell = cell * int(sizes[j]) + int(record[j])
            answers[start + cell] += 1


def literal_truth(predicates: Predicates, record: NDArray[np.int32]) -> NDArray[np.uint8]:
    """For each literal 2p, 2p + 1 whether it holds of the record; at the end a one, for padding."""
    truth = np.ones(2 * len(predicates) + 1, np.uint8)
    lengths = np.diff(predicates.start)
    hit = predicates.values == np.repeat(record[predicates.attribute], lengths)
    holds = np.add.reduceat(hit, predicates.start[:-1]) > 0 if len(predicates) else hit
    truth[0:-1:2] = holds
    truth[1:-1:2] = ~holds
    return truth


def _count_conjunctions(group: Conjunctions, records: Records, progress: Progress) -> Counts:
    counts = np.zeros(group.size, np.int64)
    if group.size == 0:
        return counts
    literals, predicates = _used(group)
    # Neighbouring queries share columns, so that the processor finds them in its caches.
    order = _sorting(literals)
    literals = np.ascontiguousarray(literals[order])
    sorted_counts = np.zeros(group.size, np.int64)
    in_place = _bits_in_place(predicates, records)
    if in_place is not None:
        _count_slab(*in_place, records.rows, literals, sorted_counts)
    else:
        slab = _slab_rows(len(predicates))
        for first in range(0, records.rows, slab):
            rows = min(slab, records.rows - first)
            bits = predicate_bits(predicates, records, first, rows)
            _count_slab(bits, np.arange(len(predicates)), rows, literals, sorted_counts)
            progress(first + rows, records.rows)
    counts[order] = sorted_counts
    if group.complement is not None:
        counts[group.complement] = records.rows - counts[group.complement]
    return counts


def _count_slab(
    bits: NDArray[np.uint64],
    column: NDArray[np.int64],
    rows: int,
    literals: NDArray[np.int32],
    counts: Counts,
) -> None:
    block_words = min(BLOCK_WORDS_MOST, BLOCK_BYTES // (16 * len(column)) // 8 * 8)
    if block_words >= BLOCK_WORDS_LEAST:
        count_blocked(bits, rows, literals, block_words, get_num_threads(), counts)
        return
    sums = column_sums(bits, column)
    limit = bits.shape[1] // 2  # walking a list of more members is slower than reading the column
    lengths = np.where(sums <= limit, sums, 0)
    start = np.concatenate([[0], np.cumsum(lengths)])
    members = np.empty(int(start[-1]), np.int32)
    list_members(bits, column, sums, limit, start, members)
    count_direct(bits, column, rows, sums, limit, start, members, literals, counts)


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
            start, owners = _predicates_by_value(predicates, mine, size)
            several = bool(np.diff(start).max(initial=0) > 1)
            set_code_bits(codes[first : first + rows], several, start, owners, bits)
    return bits


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
        owner = np.full(int(codes.ids.max(initial=0)) + 1 if len(codes.ids) else 1, NONE, np.int64)
        known = unique < len(owner)
        owner[unique[known]] = mine[where[known]]
        set_item_bits(codes.start, codes.ids, owner, first, rows, bits)
        bits[mine] = bits[mine[where][inverse]]
    zero = mine[predicates.values[predicates.start[mine]] == 0]
    if len(zero):
        bits[zero] = ~bits[zero]
        if rows % 64:
            bits[zero, -1] &= np.uint64((1 << (rows % 64)) - 1)


def _bits_in_place(
    predicates: Predicates, records: Records
) -> tuple[NDArray[np.uint64], NDArray[np.int64]] | None:
    """The bit columns of a lone block of items, which need no copy: (words, row of each predicate)."""
    codes = records.columns[0]
    if len(records.columns) > 1 or not isinstance(codes, BitItems) or not np.all(predicates.values == 1):
        return None
    return codes.words, predicates.attribute.astype(np.int64)


def _predicates_by_value(
    predicates: Predicates, mine: NDArray[np.intp], size: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Which of these predicates (all of one attribute) accept each value: owners[start[v] : start[v + 1]]."""
    lengths = predicates.start[mine + 1] - predicates.start[mine]
    values = np.concatenate([predicates.accepted(int(p)) for p in mine])
    order = np.argsort(values, kind="stable")
    start = np.searchsorted(values[order], np.arange(size + 1))
    return start.astype(np.int64), np.repeat(mine, lengths)[order].astype(np.int64)


def _used(group: Conjunctions) -> tuple[NDArray[np.int32], Predicates]:
    """The literals over only those predicates that some query uses."""
    predicates = group.predicates
    wanted = np.zeros(len(predicates) + 1, np.bool_)  # the last entry takes the padding
    wanted[group.literals >> 1] = True
    used = np.flatnonzero(wanted[:-1])
    number = np.full(len(predicates), NONE, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    literals = np.where(
        group.literals >= 0, 2 * number[group.literals >> 1] + (group.literals & 1), np.int32(NONE)
    ).astype(np.int32)
    lengths = predicates.start[used + 1] - predicates.start[used]
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.repeat(predicates.start[used] - start[:-1], lengths) + np.arange(start[-1])
    return literals, Predicates(predicates.attribute[used], start, predicates.values[positions])


def _sorting(literals: NDArray[np.int32]) -> NDArray[np.intp]:
    """An order of the queries by their leading literals, through one packed 64-bit key."""
    leading = np.sort(literals, axis=1)[:, ::-1][:, :2].astype(np.int64)
    key = leading[:, 0] << 32
    if leading.shape[1] > 1:
        key |= leading[:, 1] & 0xFFFFFFFF
    return np.argsort(key)


def _slab_rows(columns: int) -> int:
    return max(64 * BLOCK_WORDS_MOST, SLAB_BYTES // columns * 8 // 4096 * 4096)


def _count_parities(group: Parities, records: Records, progress: Progress) -> Counts:
    counts = np.zeros(group.size, np.int64)
    if group.size == 0:
        return counts
    used = np.unique(group.attributes[group.attributes >= 0])
    predicates = Predicates(
        used.astype(np.int32), np.arange(len(used) + 1, dtype=np.int64), np.ones(len(used), np.int32)
    )
    attributes = np.where(group.attributes >= 0, np.searchsorted(used, group.attributes), NONE)
    slab = _slab_rows(len(used))
    for first in range(0, records.rows, slab):
        rows = min(slab, records.rows - first)
        count_parities(predicate_bits(predicates, records, first, rows), rows, attributes, counts)
        progress(first + rows, records.rows)
    return counts


def _count_tables(group: Tables, records: Records, progress: Progress) -> Counts:
    counts = np.zeros(group.size, np.int64)
    used = sorted({j for members in group.sets for j in members})
    if not used:
        counts[:] = records.rows
        return counts
    codes, weights = distinct_rows(attribute_codes(records, used))
    width = max(len(members) for members in group.sets)
    where = {j: i for i, j in enumerate(used)}
    members = np.array([[where[j] for j in s] + [NONE] * (width - len(s)) for s in group.sets], np.int32)
    step = max(1, len(members) // 20)
    for first in range(0, len(members), step):
        part = slice(first, first + step)
        starts = group.starts[first : first + len(members[part]) + 1]
        count_tables(codes, weights, group.domain.sizes[used], members[part], starts, counts)
        progress(min(first + step, len(members)), len(members))
    return counts


def attribute_codes(records: Records, attributes: list[int]) -> NDArray[np.uint16 | np.uint32]:
    """The codes of some attributes, one row an attribute."""
    domain = records.domain
    kind = np.uint16 if domain.sizes[attributes].max() <= 1 << 16 else np.uint32
    out = np.zeros((len(attributes), records.rows), kind)
    for i, j in enumerate(attributes):
        position, _ = domain.column_of(j)
        codes = records.columns[position]
        item = j - domain.starts[position]
        if isinstance(codes, BitItems):
            out[i] = unpack_bits(codes.words[item : item + 1], records.rows)[0]
        elif isinstance(codes, SparseItems):
            owners = np.searchsorted(codes.start, np.flatnonzero(codes.ids == item), side="right") - 1
            out[i, owners] = 1
        else:
            out[i] = codes
    return out


def distinct_rows(codes: NDArray[np.unsignedinteger]) -> tuple[NDArray[np.unsignedinteger], Counts]:
    """The distinct records (columns of `codes`) with how often each occurs.

    Binned tables repeat themselves, and a table is counted once a distinct record. Records are told
    apart by a 64-bit hash; should two different ones ever share it, nothing is merged.
    """
    rows = codes.shape[1]
    key = np.zeros(rows, np.uint64)
    for column in codes:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    _, index, inverse, weights = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    if len(index) > rows // 2 or any(np.any(column[index][inverse] != column) for column in codes):
        return codes, np.ones(rows, np.int64)
    return np.ascontiguousarray(codes[:, index]), weights.astype(np.int64)
