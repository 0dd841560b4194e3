"""What single columns hold: texts as they are written, and where numbers lie inside their bins.

*Texts*: how many fall into each class of a public sorting, how many differ. Where no schema says yet what a column
holds, its records are the texts of its cells (`table.written`): a column whose values are those that occur, so that
this domain is as private as the table and stays with the curator. What is public is the question: a function that
sorts any text at all, looking at nothing else.

*Places* (`table.places`), the statistic behind means. Of each column and each of its bins, Σ (place − HALF) over the
records of the bin: in units of 2·HALF a bin's width, Σ ((x − low)/width − ½). A record lies in one bin of a column,
and adds at most HALF to one number, up or down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dualquery.errors import DataError
from dualquery.queries.countable import ONE_CELL, Bound, Countable, Derived
from dualquery.table.domain import Domain
from dualquery.table.numbers import Numeric
from dualquery.table.places import HALF, has_places
from dualquery.table.records import Records
from dualquery.types import Integers


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
        found = [np.zeros(0, np.int64)]
        for i, bins in zip(self.columns, self.bins, strict=True):
            if not records.rows:
                found.append(np.zeros(bins, np.int64))
                continue
            places, codes = records.places[i], records.columns[i]
            assert places is not None, "of the columns that have them"
            # Whole numbers below 2^53 in all: floats add them up exactly.
            sums = np.bincount(np.asarray(codes), weights=places.astype(np.float64) - HALF, minlength=bins)
            found.append(sums[:bins].astype(np.int64))
        return np.concatenate(found)

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
