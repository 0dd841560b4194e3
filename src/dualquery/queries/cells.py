"""What cells look like as they are written: how many fall into each class of a public sorting, how many differ.

Where no schema says yet what a column holds, its records are the texts of its cells (`table.written`): a column whose
values are those that occur, so that this domain is as private as the table and stays with the curator. What is public
is the question: a function that sorts any text at all, looking at nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dualquery.queries.countable import ONE_CELL, Bound, Countable, Derived
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
