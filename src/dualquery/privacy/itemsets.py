"""Measuring items and pairs of items of transaction data, where a record holds few of very many items.

A record counts with its first `limit` items in a public order, and the others are ignored: a public,
deterministic truncation of each record by itself, so that neighbouring tables stay neighbours. (The order may
depend on earlier noisy counts; those are public.)

Sensitivity. A truncated record holds at most L items, hence at most L(L − 1)/2 pairs. Adding or removing it
changes that many counts by 1; replacing it changes at most twice as many. The squared L2 sensitivity of all
items together is therefore L or 2L, that of all pairs together L(L − 1)/2 or L(L − 1), however many are counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numba import njit
from numpy.typing import NDArray

from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianNoise
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import discrete_gaussian
from dualquery.table.records import BitItems, Records, SparseItems, unpack_bits

_SLAB = 1 << 14  # records unpacked at once


@dataclass(frozen=True)
class ItemLimit:
    """At most `limit` items a record."""

    limit: int

    def items_event(self, variance: Fraction, neighbours: Neighbours) -> GaussianNoise:
        """One noisy count an item."""
        return GaussianNoise(Fraction(self.limit * neighbours.cells_moved), variance)

    def pairs_event(self, variance: Fraction, neighbours: Neighbours) -> GaussianNoise:
        """One noisy count a pair of items."""
        pairs = self.limit * (self.limit - 1) // 2
        return GaussianNoise(Fraction(pairs * neighbours.cells_moved), variance)


def measure_items(
    curator: Curator, column: int, rank: NDArray[np.int64], *, limit: ItemLimit, variance: Fraction
) -> NDArray[np.int64]:
    """The noisy number of records that hold each item, items in the order of `rank`."""
    curator._ledger.charge(limit.items_event(variance, curator.neighbours))
    _, ids = _kept_items(curator._records, column, rank, len(rank), limit.limit)
    counts = np.bincount(ids, minlength=len(rank)).astype(np.int64)
    return counts + discrete_gaussian(len(rank), variance=variance, entropy=curator._entropy)


def measure_pairs(
    curator: Curator,
    column: int,
    rank: NDArray[np.int64],
    *,
    items: int,
    limit: ItemLimit,
    variance: Fraction,
) -> NDArray[np.int64]:
    """The noisy number of records that hold both of two of the first `items` in the order of `rank`.

    A symmetric matrix with zeros on its diagonal. The limit applies to the items that are looked at.
    """
    curator._ledger.charge(limit.pairs_event(variance, curator.neighbours))
    start, ids = _kept_items(curator._records, column, rank, items, limit.limit)
    counts = np.zeros((items, items), np.int64)
    _count_pairs(start, ids, counts)
    above = np.triu_indices(items, 1)
    noisy = np.zeros((items, items), np.int64)
    noisy[above] = counts[above] + discrete_gaussian(
        len(above[0]), variance=variance, entropy=curator._entropy
    )
    return noisy + noisy.T


def _kept_items(
    records: Records, column: int, rank: NDArray[np.int64], items: int, limit: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The ranks of each record's first `limit` items among the first `items`, as a sparse block."""
    codes = records.columns[column]
    if isinstance(codes, SparseItems):
        return _first_items(codes.start, codes.ids, rank, items, limit)
    assert isinstance(codes, BitItems), "the caller names a block of items"
    starts, kept = [np.zeros(1, np.int64)], []
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
