"""How wrong public rows are, in a few whole numbers: misfits of many tables, summed up, or the largest of them.

The error of a table is Σ_cells |count − expected|, in records: a record lies in one cell, so that adding it moves the
error by 1 at most, and exchanging it for another by 2. That of a mean is Σ_groups |Σ_values w · (count − expected)|
with weights 0 ≤ w ≤ 1, less the group's own mean: 1 and 2 again. A sum of m errors moves m times as far, and so m
tables cost their mean no more than one would; the largest of m moves as far as one. (`Misfits` is the same, with one
number a table.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery.queries.countable import Bound, Derived
from dualquery.queries.tables import Tables
from dualquery.types import Integers

FINE = 32  # errors are counted in so many parts of a record, because what is expected is no whole number
WEIGHT = 1 << 10  # the weight of one, of a mean
REACH = FINE << 11  # how far one record moves a number, at most


@dataclass(frozen=True, eq=False)
class Errors:
    """Of some tables, side by side, the sum of the errors or the largest one, as often as it may be counted.

    `weights` make the error of a mean of it: of every cell, from 0 to `WEIGHT` less the mean of its group; `groups`
    says of every cell which group it lies in.
    """

    first: int
    number: int  # of tables
    largest: bool = False
    weights: Integers | None = None
    groups: Integers | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.number <= REACH // FINE:
            raise ValueError("a number is about one table at least, and not about too many")
        if self.weights is not None and np.abs(self.weights).max(initial=0) > WEIGHT:
            raise ValueError("weights lie within one record")

    @property
    def times(self) -> int:
        """By which the number is multiplied, so that it moves as far as others."""
        return REACH // (FINE * (1 if self.largest else self.number))

    @property
    def reach(self) -> int:
        """How far adding one record moves the number; also the number of an error of one record."""
        return self.times * FINE * (1 if self.largest else self.number)

    def of(self, off: Integers, tables: Tables) -> int:
        """The number, from count − expected of every cell of all tables, in parts of a record."""
        begin, end = int(tables.starts[self.first]), int(tables.starts[self.first + self.number])
        mine = off[begin:end]
        if self.weights is not None:
            assert self.groups is not None, "a mean has groups"
            sums = np.zeros(int(self.groups.max()) + 1, np.int64)
            np.add.at(sums, self.groups, self.weights * mine)
            return int(self.times * (np.abs(sums).sum() // WEIGHT))
        errors = np.add.reduceat(np.abs(mine), tables.starts[self.first : self.first + self.number] - begin)
        return int(self.times * (errors.max() if self.largest else errors.sum()))


@dataclass(frozen=True, eq=False)
class SummedMisfits(Derived):
    """Several such numbers, of tables that are counted once.

    A record moves each by its reach alone, and two records by twice that; the numbers stand side by side, so that
    reaches add up, and in L2 their squares.
    """

    tables: Tables
    expected: Integers  # of every cell, in parts of a record
    parts: tuple[Errors, ...]

    def counted(self) -> Tables:
        return self.tables

    def of(self, counts: Integers, rows: int) -> Integers:
        off = FINE * counts - self.expected
        return np.array([part.of(off, self.tables) for part in self.parts], np.int64)

    def bound(self) -> Bound:
        return summed_misfit_bound([part.reach for part in self.parts])


def summed_misfit_bound(reaches: list[int]) -> Bound:
    """Of numbers that adding one record moves so far, and exchanging it twice as far."""
    once, squared = sum(reaches), sum(reach**2 for reach in reaches)
    return Bound((once, squared), (2 * once, 4 * squared))
