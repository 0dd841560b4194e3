"""Items and pairs of items of transaction data, where a record holds few of very many items.

A record counts with its first `limit` items in a public order, and the others are ignored: a public,
deterministic truncation of each record by itself, so that neighbouring tables stay neighbours. (The order may
depend on earlier noisy counts; those are public.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.table.records import BitItems, Records, SparseItems, unpack_bits
from dualquery.types import Done, Integers, no_progress

_SLAB = 1 << 14  # records unpacked at once


@dataclass(frozen=True, eq=False)
class Held:
    """The first `items` of a block in the order of `rank`, of which a record counts with the first `limit` it holds.

    `rank` gives the place of each item of the block.
    """

    column: int
    rank: NDArray[np.int64]
    items: int
    limit: int

    def kept(self, records: Records) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The ranks of what each record counts with, as a sparse block."""
        return _kept_items(records, self.column, self.rank, self.items, self.limit)


class HeldItems(Held):
    """How many records hold each item."""

    def counts(self, records: Records, progress: Done = no_progress) -> Integers:
        _, ids = self.kept(records)
        return np.bincount(ids, minlength=self.items).astype(np.int64)


class HeldPairs(Held):
    """How many records hold both of two items: the upper triangle, row by row."""

    def counts(self, records: Records, progress: Done = no_progress) -> Integers:
        start, ids = self.kept(records)
        counts = np.zeros((self.items, self.items), np.int64)
        _count_pairs(start, ids, counts)
        return counts[np.triu_indices(self.items, 1)]


def _kept_items(
    records: Records, column: int, rank: NDArray[np.int64], items: int, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranks of each record's first `limit` items among the first `items`, as a sparse block."""
    codes = records.columns[column]
    if isinstance(codes, SparseItems):
        return _first_items(codes.start, codes.ids, rank, items, limit)
    assert isinstance(codes, BitItems), "the caller names a block of items"
    starts, kept = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, records.rows, _SLAB):
        rows = min(_SLAB, records.rows - first)
        held = unpack_bits(codes.words[:, first // 64 : -(-(first + rows) // 64)], rows).T
        owner, ids = np.nonzero(held)
        start = np.searchsorted(owner, np.arange(rows + 1))
        part_start, part = _first_items(start, ids.astype(np.int32), rank, items, limit)
        starts.append(part_start[1:] + starts[-1][-1])
        kept.append(part)
    return np.concatenate(starts), np.concatenate(kept)


@njit(cache=True)
def _first_items(start, ids, rank, items, limit):  # type: ignore[no-untyped-def]
    rows = start.shape[0] - 1
    new_start = np.zeros(rows + 1, np.int64)
    for r in range(rows):
        number = 0
        for i in range(start[r], start[r + 1]):
            if rank[ids[i]] < items:
                number += 1
        new_start[r + 1] = new_start[r] + min(number, limit)
    kept = np.empty(new_start[rows], np.int64)
    longest = 0
    for r in range(rows):
        longest = max(longest, start[r + 1] - start[r])
    mine = np.empty(longest, np.int64)
    for r in range(rows):
        number = 0
        for i in range(start[r], start[r + 1]):
            place = rank[ids[i]]
            if place < items:
                mine[number] = place
                number += 1
        ordered = np.sort(mine[:number])
        for k in range(new_start[r + 1] - new_start[r]):
            kept[new_start[r] + k] = ordered[k]
    return new_start, kept


@njit(cache=True)
def _count_pairs(start, ids, counts):  # type: ignore[no-untyped-def]
    for r in range(start.shape[0] - 1):
        for a in range(start[r], start[r + 1]):
            for b in range(a + 1, start[r + 1]):
                counts[ids[a], ids[b]] += 1
