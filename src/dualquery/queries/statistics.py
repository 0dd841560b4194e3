"""What is counted: whole numbers of a table, and how far one record can move them.

A countable adds up a contribution φ(x) of each record x. Each says in `bound`, and nowhere else, how long φ(x) can be
and how far apart φ(x) and φ(y) can lie; a relation makes a sensitivity of it (`privacy.budget`). Plan and curator
ask the same object, so a plan cannot price something else than what is run. Every class with a bound is held against
brute force over all neighbours by tests/privacy/test_statistics.py; a class that is not listed there fails it.

What is counted and is no query: texts as they are written, numbers inside their bins, edges between vertices.

*Texts*: how many fall into each class of a public sorting, how many differ. Where no schema says yet what a column
holds, its records are the texts of its cells (`releases.draft_columns`): a column whose values are those that
occur, so that this domain is as private as the table and stays with the curator. What is public is the question: a
function that sorts any text at all, looking at nothing else.

*Places* (`table.records`), the statistic behind means. Of each column and each of its bins, Σ (place − HALF) over the
records of the bin: in units of 2·HALF a bin's width, Σ ((x − low)/width − ½). A record lies in one bin of a column,
and adds at most HALF to one number, up or down.

*Edges*. A coarsening puts every vertex into one class. The table of two coarsenings, one for each end, has a cell
for each pair of classes, and an edge adds its weight to one of them. Degrees are the table of (every vertex by
itself, all together), pairs that of (by itself, by itself).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dualquery.errors import DataError
from dualquery.loops import together
from dualquery.table.domain import Domain
from dualquery.table.graph import Graph
from dualquery.table.numbers import Numeric
from dualquery.table.records import HALF, Records, has_places
from dualquery.types import Integers, Reals, halved


@dataclass(frozen=True)
class Bound:
    """How far one record moves some whole numbers: public, and for any table.

    Norms are pairs, L1 and squared L2. `each` is how far any one of the numbers moves where a record is added,
    removed or exchanged; None where nobody asks (then it is as far as all of them together).
    """

    alone: tuple[int, int]  # the longest φ(x)
    apart: tuple[int, int]  # the longest φ(x) − φ(y)
    each: int | None = None

    def __add__(self, other: Bound) -> Bound:
        """Of both side by side, of which two records need not be farthest apart in both at once."""
        each = None if self.each is None or other.each is None else max(self.each, other.each)
        return Bound(_sum(self.alone, other.alone), _sum(self.apart, other.apart), each)

    def times(self, m: int) -> Bound:
        """Of the numbers times m: m in L1, m² in squared L2."""
        each = None if self.each is None else m * self.each
        return Bound(
            (m * self.alone[0], m**2 * self.alone[1]), (m * self.apart[0], m**2 * self.apart[1]), each
        )


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]


NOTHING = Bound((0, 0), (0, 0), 0)
ONE_CELL = Bound((1, 1), (2, 2), 1)  # a record lies in one of some cells, and two records in two


class Countable(Protocol):
    """Whole numbers that add up over records: a group of queries, a workload, the items that records hold."""

    def counts(self, records: Records, /) -> Integers:
        """The numbers for some of the records."""

    def bound(self) -> Bound:
        """How far one record can move them."""


class Derived(ABC):
    """Whole numbers that are worked out from others that are counted, and from the number of records.

    What is rounded, or no sum over records at all, is worked out once, from the counts of the whole table.
    """

    kept: bool = False  # whether what is counted will be asked for again

    @abstractmethod
    def counted(self) -> Countable:
        """What is counted for it."""

    @abstractmethod
    def of(self, counts: Integers, rows: int) -> Integers:
        """The numbers themselves; `counts` may be kept, and stay as they are."""

    @abstractmethod
    def bound(self) -> Bound:
        """How far one record can move them."""

    def counts(self, records: Records, /) -> Integers:
        return self.of(self.counted().counts(records), records.rows)


@dataclass(frozen=True, eq=False)
class Together:
    parts: tuple[Countable, ...]

    def counts(self, records: Records, /) -> Integers:
        return np.concatenate([part.counts(records) for part in self.parts])

    def bound(self) -> Bound:
        return sum((part.bound() for part in self.parts), NOTHING)


def underlying(what: Countable) -> Countable:
    return underlying(what.counted()) if isinstance(what, Derived) else what


def worked_out(what: Countable, counts: Integers, rows: int) -> Integers:
    return what.of(worked_out(what.counted(), counts, rows), rows) if isinstance(what, Derived) else counts


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
