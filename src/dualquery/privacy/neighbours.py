"""Which two tables must be hard to tell apart, and how far that lets a sum over records move.

Every statistic here adds up a contribution φ(x) of each record x, so it can say two things about itself without
knowing what a neighbour is, for any norm:

    alone    the largest ‖φ(x)‖ of one record,
    apart    the largest ‖φ(x) − φ(y)‖ of two.

A relation is what turns them into a sensitivity. It states in `next_to`, exhaustively, what it does to a set of
records; one brute-force test holds every statistic and every score against it (tests/privacy/test_statistics.py).
A relation that does not say how far it moves a sum cannot be made: nothing falls into a cheaper branch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from dualquery.errors import BudgetError

Row = TypeVar("Row")


@dataclass(frozen=True)
class Sensitivity:
    """How far some whole numbers can move: the sum of the moves (L1), and the sum of their squares (L2²)."""

    l1: int
    l2_squared: int


@dataclass(frozen=True)
class Neighbours(ABC):
    """One relation between tables. A ledger keeps one."""

    REPLACE: ClassVar[Neighbours]
    ADD_REMOVE: ClassVar[Neighbours]
    value: ClassVar[str]  # its name on the command line and on the certificate
    change: ClassVar[str]  # "suppose that one record …"
    size_is_public: ClassVar[bool]  # whether neighbours have the same number of records

    def __str__(self) -> str:
        return self.value

    @abstractmethod
    def words(self) -> str:
        """The relation in words, for the certificate."""

    @abstractmethod
    def largest(self, *, alone: int, apart: int) -> int:
        """The largest norm of the move of a sum over records; also the range in which scores move."""

    @abstractmethod
    def largest_squared(self, *, alone: int, apart: int) -> int:
        """The same for the square of a norm, given the squares of `alone` and `apart`."""

    def sensitivity(self, *, alone: Sensitivity, apart: Sensitivity) -> Sensitivity:
        """Of a sum over records, given both norms of one contribution and of the difference of two."""
        return Sensitivity(
            self.largest(alone=alone.l1, apart=apart.l1),
            self.largest_squared(alone=alone.l2_squared, apart=apart.l2_squared),
        )

    @abstractmethod
    def next_to(self, table: tuple[Row, ...], universe: Sequence[Row]) -> Iterator[tuple[Row, ...]]:
        """Every neighbour of a table whose records come from a universe: the definition itself."""

    @staticmethod
    def named(name: str) -> Neighbours:
        """The relation of this name."""
        for relation in RELATIONS:
            if relation.value == name:
                return relation
        names = ", ".join(relation.value for relation in RELATIONS)
        raise BudgetError(f"neighbours are one of {names}, and '{name}' is none of them")


class _OneRecord(Neighbours):
    """Relations that move one record: its norm, or the square of one, is all that moves."""

    def largest_squared(self, *, alone: int, apart: int) -> int:
        return self.largest(alone=alone, apart=apart)


@dataclass(frozen=True)
class _Replace(_OneRecord):
    value = "replace"
    change = "were replaced by any other record"
    size_is_public = True

    def words(self) -> str:
        return "tables that differ in the values of one record; the number of records is public"

    def largest(self, *, alone: int, apart: int) -> int:
        return apart

    def next_to(self, table: tuple[Row, ...], universe: Sequence[Row]) -> Iterator[tuple[Row, ...]]:
        for place in range(len(table)):
            for other in universe:
                yield (*table[:place], other, *table[place + 1 :])


@dataclass(frozen=True)
class _AddRemove(_OneRecord):
    value = "add-remove"
    change = "were left out of the table, or added to it"
    size_is_public = False

    def words(self) -> str:
        return "tables of which one has one record more; the number of records is private"

    def largest(self, *, alone: int, apart: int) -> int:
        return alone

    def next_to(self, table: tuple[Row, ...], universe: Sequence[Row]) -> Iterator[tuple[Row, ...]]:
        for place in range(len(table)):
            yield (*table[:place], *table[place + 1 :])
        for other in universe:
            yield (*table, other)


RELATIONS: tuple[Neighbours, ...] = (_Replace(), _AddRemove())
Neighbours.REPLACE, Neighbours.ADD_REMOVE = RELATIONS
