"""What is counted and is no query: texts as they are written, numbers inside their bins, edges between vertices.

*Texts*: how many fall into each class of a public sorting, how many differ. Where no schema says yet what a column
holds, its records are the texts of its cells (`table.written`): a column whose values are those that occur, so that
this domain is as private as the table and stays with the curator. What is public is the question: a function that
sorts any text at all, looking at nothing else.

*Places* (`table.places`), the statistic behind means. Of each column and each of its bins, Σ (place − HALF) over the
records of the bin: in units of 2·HALF a bin's width, Σ ((x − low)/width − ½). A record lies in one bin of a column,
and adds at most HALF to one number, up or down.

*Edges*. A coarsening puts every vertex into one class. The table of two coarsenings, one for each end, has a cell
for each pair of classes, and an edge adds its weight to one of them. Degrees are the table of (every vertex by
itself, all together), pairs that of (by itself, by itself).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dualquery.bisection import halved
from dualquery.errors import DataError
from dualquery.pool import together
from dualquery.queries.countable import ONE_CELL, Bound, Countable, Derived
from dualquery.table.domain import Domain
from dualquery.table.graph import Graph
from dualquery.table.numbers import Numeric
from dualquery.table.places import HALF, has_places
from dualquery.table.records import Records
from dualquery.types import Integers, Reals

MOST_ROWS = 1 << 18  # whose places are floats at a time, in every thread


def _place(records: Records, name: str) -> int:
    return [column.name for column in records.domain.columns].index(name)


@dataclass(frozen=True)
class TextCounts:
    """How many cells of a column say each of the texts that occur."""

    name: str

    def counts(self, records: Records, /) -> Integers:
        place = _place(records, self.name)
        number = len(records.domain.columns[place].labels)
        return np.bincount(np.asarray(records.columns[place]), minlength=number)

    def bound(self) -> Bound:
        return ONE_CELL


@dataclass(frozen=True, eq=False)
class SortedCells:
    """How many cells of a column fall into each of `classes`; `sort` gives their numbers, −1 for none of them."""

    name: str
    classes: int
    sort: Callable[[Sequence[str]], Integers]

    def counts(self, records: Records, /) -> Integers:
        place = _place(records, self.name)
        found = self.sort(records.domain.columns[place].labels)
        held = TextCounts(self.name).counts(records)
        known = found >= 0
        counts = np.zeros(self.classes, np.int64)
        np.add.at(counts, found[known], held[known])
        return counts

    def bound(self) -> Bound:
        return ONE_CELL


@dataclass(frozen=True)
class DistinctTexts(Derived):
    """How many texts occur in a column.

    One record more is one text more or none; another record instead is one more, one less, or as many.
    """

    name: str

    def counted(self) -> Countable:
        return TextCounts(self.name)

    def of(self, counts: Integers, rows: int) -> Integers:
        return np.array([np.count_nonzero(counts)], np.int64)

    def bound(self) -> Bound:
        return Bound((1, 1), (1, 1), 1)


@dataclass(frozen=True)
class BinSums:
    """The sums of all bins of some columns, one column behind the other; places of columns in the domain."""

    domain: Domain
    columns: tuple[int, ...]

    @staticmethod
    def of(domain: Domain) -> BinSums:
        """Of every column whose numbers can lie elsewhere in their bins."""
        return BinSums(domain, tuple(i for i, column in enumerate(domain.columns) if has_places(column)))

    @property
    def bins(self) -> list[int]:
        """How many bins each column has."""
        return [self.domain.columns[i].bins for i in self.columns]  # type: ignore[union-attr]

    @property
    def attributes(self) -> list[int]:
        """The attribute that each column is."""
        return [int(self.domain.starts[i]) for i in self.columns]

    def split(self, numbers: np.ndarray) -> list[np.ndarray]:
        """The numbers of each column."""
        return np.split(numbers, np.cumsum(self.bins)[:-1])

    def counts(self, records: Records) -> Integers:
        if records.rows and not records.places:
            raise DataError(
                "these records do not say where in its bin a number lies; encode them from a table, or release "
                "without means inside bins (--means 0)"
            )

        def of_column(column: tuple[int, int]) -> Integers:
            i, bins = column
            sums, step = np.zeros(bins), max(bins, MOST_ROWS)
            for first in range(0, records.rows, step):
                some, places = slice(first, first + step), records.places[i]
                assert places is not None, "of the columns that have them"
                # Whole numbers below 2^53 in all: floats add them up exactly.
                within = places[some].astype(np.float64) - HALF
                sums += np.bincount(np.asarray(records.columns[i])[some], within, bins)[:bins]
            return sums.astype(np.int64)

        columns = list(zip(self.columns, self.bins, strict=True))
        return np.concatenate([np.zeros(0, np.int64), *together(of_column, columns)])

    def bound(self) -> Bound:
        """alone: HALF a column; apart: from one end of a bin to the other, or HALF in each of two bins.

        In squared L2 4·HALF² against 2·HALF², in L1 2·HALF both ways. `each` number moves by 2·HALF at most.
        """
        number = len(self.columns)
        return Bound((number * HALF, number * HALF**2), (2 * number * HALF, 4 * number * HALF**2), 2 * HALF)


def numeric(domain: Domain, column: int) -> Numeric:
    """A column of numbers in bins, by its place in the domain."""
    found = domain.columns[column]
    assert isinstance(found, Numeric)
    return found


@dataclass(frozen=True, eq=False)
class CoarseTable:
    """The classes of the vertices that edges leave, and of those that they enter."""

    source: Integers
    target: Integers
    shape: tuple[int, int]

    @property
    def size(self) -> int:
        return self.shape[0] * self.shape[1]

    def cells(self, source: Integers, target: Integers) -> Integers:
        return self.source[source] * self.shape[1] + self.target[target]


@dataclass(frozen=True, eq=False)
class LikelyPairs:
    """A cell for each of some pairs of vertices, and one for all others: of u with the first many[u] by `rank`."""

    many: Integers
    rank: Integers

    @property
    def starts(self) -> Integers:
        return np.concatenate([[0], np.cumsum(self.many)])

    @property
    def size(self) -> int:
        return int(self.many.sum()) + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def cells(self, source: Integers, target: Integers) -> Integers:
        place = self.rank[target]
        return np.where(place < self.many[source], self.starts[source] + place, self.size - 1)

    def pairs(self) -> tuple[Integers, Integers]:
        source = np.repeat(np.arange(len(self.many)), self.many)
        place = np.arange(len(source)) - self.starts[source]
        return source, np.argsort(self.rank)[place]


def likely_pairs(leaving: Reals, entering: Reals, most: int) -> LikelyPairs:
    """About so many pairs with the largest leaving_u · entering_v: where edges are to be expected."""
    order = np.argsort(-entering, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    if len(leaving) ** 2 <= most:
        return LikelyPairs(np.full(len(leaving), len(leaving)), rank)
    falling, highest = -entering[order], float(leaving.max() * entering.max()) + 1.0
    leaving = np.maximum(leaving, 1e-9)

    def above(bound: float) -> Integers:
        return np.searchsorted(falling, -bound / leaving, side="left").astype(np.int64)

    _, bound = halved(0.0, highest, 60, lambda bound: bool(above(bound).sum() <= most))
    return LikelyPairs(above(bound), rank)


def degrees(number: int) -> tuple[CoarseTable, CoarseTable]:
    alone, together = np.arange(number), np.zeros(number, np.int64)
    return CoarseTable(alone, together, (number, 1)), CoarseTable(together, alone, (1, number))


@dataclass(frozen=True, eq=False)
class Blocks:
    """A cell for each pair of classes, and one for all loops: a loop is in no cut between a set and the rest."""

    classes: Integers
    number: int

    @property
    def size(self) -> int:
        return self.number**2 + 1

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.size,)

    def cells(self, source: Integers, target: Integers) -> Integers:
        block = self.classes[source] * self.number + self.classes[target]
        return np.where(source == target, self.size - 1, block)


@dataclass(frozen=True, eq=False)
class CoarseEdges:
    """The cells of several such tables, one table behind the other, each times a whole number of its own."""

    domain: Graph
    tables: tuple[CoarseTable | LikelyPairs | Blocks, ...]
    multipliers: tuple[int, ...]

    def counts(self, records: Records) -> Integers:
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

    def bound(self) -> Bound:
        """An edge adds a weight of at most h to one cell of each table: m_t·h.

        Two edges differ in two cells of each table at most, 2·m_t·h in L1 and 2·(m_t·h)² in L2². (Of a table with a
        single cell the latter exceeds the truth.)
        """
        moved = [times * self.domain.heaviest for times in self.multipliers]
        l1, l2_squared = sum(moved), sum(each**2 for each in moved)
        return Bound((l1, l2_squared), (2 * l1, 2 * l2_squared))

    def split(self, numbers: Integers) -> list[Reals]:
        ends = np.cumsum([0, *(table.size for table in self.tables)])
        return [
            numbers[a:b].reshape(table.shape) / times
            for a, b, table, times in zip(ends[:-1], ends[1:], self.tables, self.multipliers, strict=True)
        ]
