"""What is counted: whole numbers of a table, and how far one record can move them.

A countable adds up a contribution φ(x) of each record x. Each says in `bound`, and nowhere else, how long φ(x) can be
and how far apart φ(x) and φ(y) can lie; a relation makes a sensitivity of it (`privacy.neighbours`). Plan and curator
ask the same object, so a plan cannot price something else than what is run. Every class with a bound is held against
brute force over all neighbours by tests/privacy/test_statistics.py; a class that is not listed there fails it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from dualquery.table.records import Records
from dualquery.types import Integers


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
