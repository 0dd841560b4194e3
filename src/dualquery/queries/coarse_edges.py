"""Tables of edges over public coarsenings of the vertices: degrees, blocks, pairs.

A coarsening puts every vertex into one class. The table of two coarsenings, one for each end, has a cell for each
pair of classes, and an edge adds its weight to one of them. Degrees are the table of (every vertex by itself, all
together), pairs that of (by itself, by itself).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.table.graph import Graph
from dualquery.table.records import Records
from dualquery.types import Done, Integers, no_progress

Classes = NDArray[np.int64]  # of each vertex


@dataclass(frozen=True, eq=False)
class CoarseTable:
    """The classes of the vertices that edges leave, and of those that they enter."""

    source: Classes
    target: Classes
    shape: tuple[int, int]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def cells(self, source: Classes, target: Classes) -> Classes:
        """The cell of each edge."""
        return self.source[source] * self.shape[1] + self.target[target]


@dataclass(frozen=True, eq=False)
class LikelyPairs:
    """A cell for each of some pairs of vertices, and one for all others: of u with the first many[u] by `rank`."""

    many: Classes
    rank: Classes

    @property
    def starts(self) -> Classes:
        return np.concatenate([[0], np.cumsum(self.many)])

    @property
    def size(self) -> int:
        return int(self.many.sum()) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def cells(self, source: Classes, target: Classes) -> Classes:
        """The cell of each edge."""
        place = self.rank[target]
        return np.where(place < self.many[source], self.starts[source] + place, self.size - 1)

    def pairs(self) -> tuple[Classes, Classes]:
        """Both vertices of each cell but the last."""
        source = np.repeat(np.arange(len(self.many)), self.many)
        place = np.arange(len(source)) - self.starts[source]
        return source, np.argsort(self.rank)[place]


def likely_pairs(leaving: NDArray[np.float64], entering: NDArray[np.float64], most: int) -> LikelyPairs:
    """About so many pairs with the largest leaving_u · entering_v: where edges are to be expected."""
    order = np.argsort(-entering, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    if len(leaving) ** 2 <= most:
        return LikelyPairs(np.full(len(leaving), len(leaving)), rank)
    falling, low, high = -entering[order], 0.0, float(leaving.max() * entering.max()) + 1.0
    leaving = np.maximum(leaving, 1e-9)
    for _ in range(60):
        bound = (low + high) / 2
        few = np.searchsorted(falling, -bound / leaving, side="left").sum() <= most
        low, high = (low, bound) if few else (bound, high)
    return LikelyPairs(np.searchsorted(falling, -high / leaving, side="left").astype(np.int64), rank)


def degrees(number: int) -> tuple[CoarseTable, CoarseTable]:
    """What leaves each vertex, and what enters it."""
    alone, together = np.arange(number), np.zeros(number, np.int64)
    return CoarseTable(alone, together, (number, 1)), CoarseTable(together, alone, (1, number))


@dataclass(frozen=True, eq=False)
class Blocks:
    """A cell for each pair of classes, and one for all loops: a loop is in no cut between a set and the rest."""

    classes: Classes
    number: int

    @property
    def size(self) -> int:
        return self.number**2 + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def cells(self, source: Classes, target: Classes) -> Classes:
        """The cell of each edge."""
        block = self.classes[source] * self.number + self.classes[target]
        return np.where(source == target, self.size - 1, block)


@dataclass(frozen=True, eq=False)
class CoarseEdges:
    """The cells of several such tables, one table behind the other, each times a whole number of its own."""

    domain: Graph
    tables: tuple[CoarseTable | LikelyPairs | Blocks, ...]
    multipliers: tuple[int, ...]

    def counts(self, records: Records, progress: Done = no_progress) -> Integers:
        source, target, weights = self.domain.ends(records)
        parts = []
        for table, times in zip(self.tables, self.multipliers, strict=True):
            cell = table.cells(source, target)
            if weights is None:
                held = np.bincount(cell, minlength=table.size)
            else:
                held = np.zeros(table.size, np.int64)
                np.add.at(held, cell, weights)
            parts.append(times * held.astype(np.int64))
        return np.concatenate(parts)

    def split(self, numbers: Integers) -> list[NDArray[np.float64]]:
        """Some numbers as tables, in edges."""
        ends = np.cumsum([0, *(table.size for table in self.tables)])
        return [
            numbers[a:b].reshape(table.shape) / times
            for a, b, table, times in zip(ends[:-1], ends[1:], self.tables, self.multipliers, strict=True)
        ]
