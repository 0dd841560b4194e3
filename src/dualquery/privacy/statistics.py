"""Statistics: whole numbers of a table, together with how far neighbours can move them.

A statistic adds up a contribution φ(x) of each record x. Each says here, and nowhere else, how long φ(x) can
be (`alone`) and how far apart φ(x) and φ(y) can lie (`apart`), in L1 and in squared L2; the relation makes a
sensitivity of it (`neighbours`). Plan and curator ask the same object, so a plan cannot price something else
than what is run. Every class is held against brute force over all neighbours by
tests/privacy/test_statistics.py; a class that is not listed there fails it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from math import prod
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Counter
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.queries.binary import HeldItems, HeldPairs
from dualquery.queries.group import Group
from dualquery.queries.tables import Tables, centred
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.types import Integers

SHORT = 16  # values; along longer attributes an interaction is not centred before noise is added


class Statistic(Protocol):
    """Whole numbers of a table."""

    def of(self, counter: Counter) -> Integers:
        """The numbers themselves: the truth."""

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        """How far neighbours can move them."""


@dataclass(frozen=True)
class GroupCounts:
    """The counts of a group of queries.

    A record adds q(x) ≤ unit to each of at most r queries that it satisfies (`most_satisfied`), and two
    records differ by at most the unit in at most s (`most_differing`): L1 r·unit and s·unit, L2² r·unit² and
    s·unit². Of tables r is their number and s twice that. A kind of query that bounds r or s from above is
    charged the bound.
    """

    group: Group

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.group)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        unit, alone, apart = self.group.unit, self.group.most_satisfied(), self.group.most_differing()
        return neighbours.sensitivity(
            alone=Sensitivity(alone * unit, alone * unit**2),
            apart=Sensitivity(apart * unit, apart * unit**2),
        )

    def each(self, neighbours: Neighbours) -> int:
        """How far any one of the counts can move: one record gives a query from 0 to its unit."""
        return neighbours.largest(alone=self.group.unit, apart=self.group.unit)


def number_of_records(domain: Domain) -> GroupCounts:
    """The length of the table: the one cell of the table over no attributes."""
    return GroupCounts(Tables(domain, ((),)))


@dataclass(frozen=True)
class Multiplied:
    """The numbers of a statistic, each times a whole number m, so that noise can be finer than one.

    They move m times as far: L1 m, L2² m² times that of the statistic.
    """

    statistic: Statistic
    times: int

    def of(self, counter: Counter) -> Integers:
        return self.times * self.statistic.of(counter)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        once = self.statistic.sensitivity(neighbours)
        return Sensitivity(self.times * once.l1, self.times**2 * once.l2_squared)


@dataclass(frozen=True)
class Balance:
    """count(q) − count(¬q) of one query of a workload: 2·count − unit·rows.

    Every record adds a number between −unit and +unit. Half of the balance tells the count in a table of
    known length, and where a record is added or removed with half the noise that the count itself would need.
    """

    workload: Workload
    query: int

    def of(self, counter: Counter) -> Integers:
        counts = counter.true_counts(self.workload, kept=True)
        return 2 * counts[[self.query]] - self.workload.unit * counter.true_rows

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        unit = self.workload.unit
        return neighbours.sensitivity(
            alone=Sensitivity(unit, unit**2), apart=Sensitivity(2 * unit, (2 * unit) ** 2)
        )


@dataclass(frozen=True)
class GroupBalances:
    """count(q) − count(¬q) of every query of a group: 2·count − unit·rows.

    Every record adds a number between −unit and +unit to each of the group's queries, whether it satisfies it or not:
    L1 size·unit alone, and twice the unit for each query on which two records differ. Half of them tell counts with
    half the noise; where few of the queries hold at once, counts themselves move less (`GroupCounts`).
    """

    group: Group

    def of(self, counter: Counter) -> Integers:
        return 2 * counter.true_counts(self.group) - self.group.unit * counter.true_rows

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        unit, size, apart = self.group.unit, self.group.size, self.group.most_differing()
        return neighbours.sensitivity(
            alone=Sensitivity(size * unit, size * unit**2),
            apart=Sensitivity(2 * apart * unit, apart * (2 * unit) ** 2),
        )


@dataclass(frozen=True)
class TableCells:
    """The cells of one of several tables. A record lies in one of them, and two records in two.

    (Of a table with a single cell the latter exceeds the truth; one price serves all tables.)
    """

    tables: Tables
    table: int

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.tables, kept=True)[self.tables.cells_of(self.table)]

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.sensitivity(alone=Sensitivity(1, 1), apart=Sensitivity(2, 2))


@dataclass(frozen=True)
class Interactions:
    """What the tables of smaller sets do not say, of several sets, each times an integer of its own.

    The interaction of a set S is its table of counts, centred along each attribute (the residual of Xiao et
    al., *ResidualPlanner*, 2023). Centring along the *short* attributes alone, those of at most `SHORT`
    values, and multiplying by the product of their sizes gives integers,

        I_S = ⊗_{j short} (k_j·Id − 𝟙𝟙ᵀ) ⊗_{j long} Id · counts_S,

    to which noise can be added exactly; dividing again, and centring along the long attributes, is
    post-processing. (Along a long attribute centring would hardly lower the sensitivity.)

    One record at cell x adds ⊗ (k_j·e_{x_j} − 𝟙) ⊗ e_{x_j}: squared length Π_short k_j (k_j − 1), L1 length
    Π_short 2(k_j − 1). The inner product of two that differ exactly in the attributes D has a factor k_j² −
    k_j for each short and 1 for each long attribute outside D, −k_j for each short and 0 for each long one in
    D. Several sets side by side are charged the sum of theirs, which one record attains when it is added; two
    records need not be farthest apart in all sets at once, and in L1 twice the length of one is charged:
    upper bounds, both.

    With noise of one variance V the multipliers share the budget: set S then has noise of variance V /
    (multiplier · Π_short k_j)² a cell, in records, before centring.
    """

    domain: Domain
    sets: tuple[tuple[int, ...], ...]
    multipliers: tuple[int, ...]

    def of(self, counter: Counter) -> Integers:
        tables = Tables(self.domain, self.sets)
        counts = counter.true_counts(tables)
        for t, multiplier in enumerate(self.multipliers):
            cells = counts[tables.cells_of(t)]
            cells[:] = multiplier * integer_interaction(cells.reshape(tables.shape_of(t))).ravel()
        return counts

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        l1, alone, apart = 0, 0, 0
        for members, multiplier in zip(self.sets, self.multipliers, strict=True):
            sizes = self.sizes_of(members)
            l1 += multiplier * prod(2 * (k - 1) for k in sizes if k <= SHORT)
            alone += multiplier**2 * interaction_length(sizes)
            apart += multiplier**2 * interaction_distance(sizes)
        return neighbours.sensitivity(alone=Sensitivity(l1, alone), apart=Sensitivity(2 * l1, apart))

    def sizes_of(self, members: tuple[int, ...]) -> tuple[int, ...]:
        """The number of values of each attribute of a set."""
        return tuple(int(self.domain.sizes[j]) for j in members)

    def scale(self, place: int) -> int:
        """By how much the integers of a set are larger than its interaction in records."""
        return self.multipliers[place] * interaction_scale(self.sizes_of(self.sets[place]))

    def in_records(self, noisy: Integers) -> dict[tuple[int, ...], NDArray[np.float64]]:
        """The noisy interactions in records, centred along every attribute: post-processing."""
        tables = Tables(self.domain, self.sets)
        return {
            members: centred(noisy[tables.cells_of(t)].reshape(tables.shape_of(t)) / self.scale(t))
            for t, members in enumerate(self.sets)
        }


def interaction_scale(sizes: Sequence[int]) -> int:
    """By how much the integer interaction of a set is larger than the interaction in records: Π_short k_j."""
    return prod(k for k in sizes if k <= SHORT)


def interaction_length(sizes: Sequence[int]) -> int:
    """The squared L2 length of what one record adds to the integer interaction of a set."""
    return prod(k * (k - 1) for k in sizes if k <= SHORT)


@lru_cache(maxsize=4096)
def interaction_distance(sizes: tuple[int, ...]) -> int:
    """The largest squared L2 distance between what two records add."""

    def factor(k: int, differs: bool) -> int:
        if k > SHORT:
            return 0 if differs else 1
        return -k if differs else k * (k - 1)

    movable = [i for i, k in enumerate(sizes) if k > 1]
    inner = [
        prod(factor(k, i in differing) for i, k in enumerate(sizes))
        for order in range(1, len(movable) + 1)
        for differing in map(set, combinations(movable, order))
    ]
    return max((2 * interaction_length(sizes) - 2 * value for value in inner), default=0)


def integer_interaction(table: Integers) -> Integers:
    """I_S of a table of counts."""
    for axis, size in enumerate(table.shape):
        if size <= SHORT:
            table = size * table - table.sum(axis=axis, keepdims=True)
    return table


@dataclass(frozen=True)
class ItemCounts:
    """How many records hold each item, at most L items a record: L alone, 2L apart, or all there are."""

    held: HeldItems

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.held)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        alone = min(self.held.limit, self.held.items)
        apart = min(2 * alone, self.held.items)
        return neighbours.sensitivity(alone=Sensitivity(alone, alone), apart=Sensitivity(apart, apart))


@dataclass(frozen=True)
class PairCounts:
    """How many records hold both of two items, at most L items a record: L(L − 1)/2 pairs alone, L(L − 1)
    apart.

    The latter exceeds the truth where there are fewer than 2L items, so that two records must share some.
    """

    held: HeldPairs

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.held)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        most = min(self.held.limit, self.held.items)
        alone = most * (most - 1) // 2
        return neighbours.sensitivity(
            alone=Sensitivity(alone, alone), apart=Sensitivity(2 * alone, 2 * alone)
        )
