"""Counting many tables at once: through fewer, larger tables that contain them.

A table is the sum of any larger table over the attributes that it lacks. Walking over the records costs the same for
a large table as for a small one as long as its cells stay in the processor's cache, so a few sets of attributes are
counted that cover all the sets asked for: 153 tables of up to 4,096 cells hold all 780 pairs of 40 attributes of six
values. Sums of whole numbers, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log, prod

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit, prange
from dualquery.queries.predicates import NONE

Set = tuple[int, ...]

MOST_CELLS = 1 << 13  # of a covering table: its counts stay in the cache
_AT_ONCE = 2048  # records whose cells are worked out before they are counted


@dataclass(frozen=True)
class Cover:
    """Larger sets, and for each the places (among the sets asked for) of those that are read off it."""

    sets: tuple[Set, ...]
    read_off: tuple[tuple[int, ...], ...]


def cover_of(sets: Sequence[Set], sizes: Sequence[int]) -> Cover:
    """Greedily: from the largest set that is left, take the attribute that covers most others for its size."""
    place = {members: number for number, members in enumerate(sets)}
    if len(place) < len(sets):  # the same set twice: each is read off where the other is
        return Cover(tuple(sets), tuple((number,) for number in range(len(sets))))
    left = set(place)
    orders = sorted({len(members) for members in sets})
    attributes = sorted({j for members in sets for j in members})
    chosen: list[Set] = []
    read_off: list[tuple[int, ...]] = []
    for members in sorted(sets, key=lambda s: (-prod(sizes[j] for j in s), s)):
        if members not in left:
            continue
        grown, found = _grown(members, left, orders, attributes, sizes)
        left -= found
        chosen.append(grown)
        read_off.append(tuple(sorted(place[each] for each in found)))
    return Cover(tuple(chosen), tuple(read_off))


def _grown(
    members: Set, left: set[Set], orders: list[int], attributes: list[int], sizes: Sequence[int]
) -> tuple[Set, set[Set]]:
    """A set grown while its table stays small, and the sets that it now contains."""
    cells = prod(sizes[j] for j in members)
    found = {
        each
        for order in orders
        if order <= len(members)
        for each in combinations(members, order)
        if each in left
    }
    while True:
        best: tuple[float, int, list[Set]] = (0.0, -1, [])
        for j in attributes:
            if j in members or cells * sizes[j] > MOST_CELLS:
                continue
            more = [
                each
                for order in orders
                for others in combinations(members, order - 1)
                if (each := tuple(sorted((*others, j)))) in left
            ]
            worth = len(more) / log(sizes[j] + 1)
            if worth > best[0]:
                best = (worth, j, more)
        if not best[2]:
            return members, found
        members, cells = tuple(sorted((*members, best[1]))), cells * sizes[best[1]]
        found.update(best[2])


def count_covered(
    codes: NDArray[np.unsignedinteger],
    weights: NDArray[np.int64],
    sizes: NDArray[np.integer],
    cover: Cover,
    sets: Sequence[Set],
    starts: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> None:
    """counts[starts[t] + cell] += the weight of the records in that cell of sets[t]."""
    width = max(len(members) for members in cover.sets)
    rows = np.array([(*members, *[NONE] * (width - len(members))) for members in cover.sets], np.int64)
    cells = [prod(int(sizes[j]) for j in members) for members in cover.sets]
    begins = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
    together = np.zeros(int(begins[-1]), np.int64)
    _count(codes, weights, np.asarray(sizes, np.int64), rows, begins, together)
    for members, first, last, places in zip(cover.sets, begins, begins[1:], cover.read_off, strict=False):
        table = together[first:last].reshape([int(sizes[j]) for j in members])
        for place in places:
            beside = tuple(axis for axis, j in enumerate(members) if j not in sets[place])
            counts[starts[place] : starts[place + 1]] += table.sum(axis=beside).ravel()


@njit(cache=True, parallel=True)
def _count(codes, weights, sizes, members, start, counts):  # type: ignore[no-untyped-def]
    """As `kernels.count_tables`, the cells of some records at once so that the loop becomes vector instructions."""
    tables, width = members.shape
    rows = weights.shape[0]
    for t in prange(tables):
        cells = counts[start[t] : start[t + 1]]
        place = np.empty(_AT_ONCE, np.int32)
        for first in range(0, rows, _AT_ONCE):
            some = min(_AT_ONCE, rows - first)
            for r in range(some):
                place[r] = 0
            for k in range(width):
                j = members[t, k]
                if j >= 0:
                    column = codes[j, first : first + some]
                    size = np.int32(sizes[j])
                    for r in range(some):
                        place[r] = place[r] * size + np.int32(column[r])
            weight = weights[first : first + some]
            for r in range(some):
                cells[place[r]] += weight[r]
