"""Numbers that are worked out from the counts of queries and tables, each with how far neighbours move it.

*Misfits*: how wrong public rows are, in one whole number a table (`Misfits`), or in a few: summed up over tables, or
the largest of them (`SummedMisfits`). The error of a table is Σ_cells |count − expected|, in records: a record lies
in one cell, so that adding it moves the error by 1 at most, and exchanging it for another by 2. That of a mean is
Σ_groups |Σ_values w · (count − expected)| with weights 0 ≤ w ≤ 1, less the group's own mean: 1 and 2 again. A sum of
m errors moves m times as far, and so m tables cost their mean no more than one would; the largest of m moves as far
as one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations, product
from math import prod
from typing import Any, ClassVar

import numpy as np

from dualquery.queries.group import Group
from dualquery.queries.statistics import NOTHING, ONE_CELL, Bound, Countable, Derived, Together
from dualquery.queries.tables import Tables, alike, centred, signed, signed_shape
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.types import Cells, Integers, Reals, Set

SHORT = 16  # values; along longer attributes an interaction is not centred before noise is added


def number_of_records(domain: Domain) -> Tables:
    """The length of the table: the one cell of the table over no attributes."""
    return Tables(domain, ((),))


@dataclass(frozen=True)
class Multiplied(Derived):
    """Numbers, each times a whole number, so that noise can be finer than one."""

    what: Countable
    multiplier: int
    kept: bool = False

    def counted(self) -> Countable:
        return self.what

    def of(self, counts: Integers, rows: int) -> Integers:
        return self.multiplier * counts

    def bound(self) -> Bound:
        return self.what.bound().times(self.multiplier)


@dataclass(frozen=True)
class InRecords(Derived):
    """The counts of queries whose unit is not 1, in whole records: ⌊count/unit + ½⌋.

    One record adds 0 to the unit to the count of a query, or exchanges as much: the quotient moves by 1 at most, up
    or down, and where the count does not move it stays.
    """

    group: Group

    def counted(self) -> Countable:
        return self.group

    def of(self, counts: Integers, rows: int) -> Integers:
        return (counts + self.group.unit // 2) // self.group.unit

    def bound(self) -> Bound:
        alone, apart = self.group.most_satisfied(), self.group.most_differing()
        return Bound((alone, alone), (apart, apart), each=1)


@dataclass(frozen=True)
class QueryCount(Derived):
    """The count of one query of a workload, as the papers measure it: a record adds 0 to a unit."""

    workload: Workload
    query: int

    kept = True

    def counted(self) -> Workload:
        return self.workload

    def of(self, counts: Integers, rows: int) -> Integers:
        return counts[[self.query]]

    def bound(self) -> Bound:
        unit = self.workload.unit
        return Bound((unit, unit**2), (unit, unit**2))


@dataclass(frozen=True)
class Balance(QueryCount):
    """count(q) − count(¬q) of one query of a workload: 2·count − unit·rows.

    Every record adds a number between −unit and +unit. Half of the balance tells the count in a table of
    known length, and where a record is added or removed with half the noise that the count itself would need.
    """

    def of(self, counts: Integers, rows: int) -> Integers:
        return 2 * counts[[self.query]] - self.workload.unit * rows

    def bound(self) -> Bound:
        unit = self.workload.unit
        return Bound((unit, unit**2), (2 * unit, (2 * unit) ** 2))


@dataclass(frozen=True)
class GroupBalances(Derived):
    """count(q) − count(¬q) of every query of a group: 2·count − unit·rows. Of parities Σ_x Π_{j ∈ S} (−1)^{x_j}.

    Every record adds a number between −unit and +unit to each of the group's queries, whether it satisfies it or not:
    L1 size·unit alone, and twice the unit for each query on which two records differ. Half of them tell counts with
    half the noise; where few of the queries hold at once, counts themselves move less.
    """

    group: Group

    def counted(self) -> Group:
        return self.group

    def of(self, counts: Integers, rows: int) -> Integers:
        return 2 * counts - self.group.unit * rows

    def bound(self) -> Bound:
        unit, size, apart = self.group.unit, self.group.size, self.group.most_differing()
        return Bound((size * unit, size * unit**2), (2 * apart * unit, apart * (2 * unit) ** 2))


@dataclass(frozen=True)
class TableCells(Derived):
    """The cells of one of several tables. A record lies in one of them, and two records in two.

    (Of a table with a single cell the latter exceeds the truth; one price serves all tables.)
    """

    tables: Tables
    table: int

    kept = True

    def counted(self) -> Tables:
        return self.tables

    def of(self, counts: Integers, rows: int) -> Integers:
        return counts[self.tables.cells_of(self.table)]

    def bound(self) -> Bound:
        return ONE_CELL


@dataclass(frozen=True, eq=False)
class Misfits(Derived):
    """How far each of several tables lies from public whole numbers: Σ_cells max(0, |count − expected| − slack).

    The hinge is 1-Lipschitz: of m tables that is m and 2m in L1, m and 4m in squared L2; K records of a person move a
    sum at most K times as far, step by step. (Of a table with a single cell the price exceeds the truth.)
    """

    tables: Tables
    expected: Integers  # of every cell
    slack: Integers  # of every table

    kept = True

    def counted(self) -> Tables:
        return self.tables

    def of(self, counts: Integers, rows: int) -> Integers:
        wrong = np.abs(counts - self.expected)
        wrong -= np.repeat(self.slack, np.diff(self.tables.starts))
        misfits: Integers = np.add.reduceat(np.maximum(wrong, 0), self.tables.starts[:-1])
        return misfits

    def bound(self) -> Bound:
        return misfit_bound([1] * len(self.tables.sets))


@dataclass(frozen=True, eq=False)
class ScoreProducts(Derived):
    """Σ s_i(x_i)·s_j(x_j) over the records, for every two of some attributes: public scores from −HIGHEST to HIGHEST.

    alone: HIGHEST² each. apart: how far φ(x) lies from φ(y) is convex in each score, so farthest with all scores at
    an end; where a of the m attributes then differ in sign, so do a(m − a) ≤ ⌊m²/4⌋ products, by 2·HIGHEST² each.
    """

    HIGHEST: ClassVar[int] = 1 << 10
    domain: Domain
    scores: Mapping[int, Integers]  # by attribute, in order; one a value

    kept = True

    def __post_init__(self) -> None:
        if any(np.abs(each).max(initial=0) > self.HIGHEST for each in self.scores.values()):
            raise ValueError(f"scores lie between -{self.HIGHEST} and {self.HIGHEST}")

    @property
    def sets(self) -> tuple[Set, ...]:
        return tuple(combinations(self.scores, 2))

    def counted(self) -> Tables:
        return Tables(self.domain, self.sets)

    def of(self, counts: Integers, rows: int) -> Integers:
        tables = zip(self.sets, self.counted().split(counts), strict=True)
        return np.array([self.scores[i] @ table @ self.scores[j] for (i, j), table in tables], np.int64)

    def bound(self) -> Bound:
        return products_bound(len(self.scores))


def products_bound(number: int) -> Bound:
    """Of the products of so many scores."""
    pairs, differ, one = number * (number - 1) // 2, number**2 // 4, ScoreProducts.HIGHEST**2
    return Bound((pairs * one, pairs * one**2), (2 * differ * one, 4 * differ * one**2), 2 * one)


@dataclass(frozen=True)
class MultipliedTables(Derived):
    """Numbers worked out from each of several tables, those of a table times a positive integer of its own."""

    domain: Domain
    sets: tuple[Set, ...]
    multipliers: tuple[int, ...]

    def counted(self) -> Tables:
        return Tables(self.domain, self.sets)

    def of(self, counts: Integers, rows: int) -> Integers:
        parts = alike(self.entries, self.counted().split(counts))
        scaled = [m * part.ravel() for part, m in zip(parts, self.multipliers, strict=True)]
        return np.concatenate(scaled) if scaled else counts

    def bound(self) -> Bound:
        sets = zip(self.sets, self.multipliers, strict=True)
        return sum((self.bound_of(self.sizes_of(each)).times(m) for each, m in sets), NOTHING)

    @abstractmethod
    def entries(self, tables: Integers) -> Integers:
        """The numbers of some tables of one shape, which lie along the first axis."""

    @abstractmethod
    def bound_of(self, sizes: tuple[int, ...]) -> Bound:
        """How far one record moves the numbers of a table over attributes of these sizes."""

    def sizes_of(self, members: Set) -> tuple[int, ...]:
        return tuple([self._sizes[j] for j in members])

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(size) for size in self.domain.sizes]


@dataclass(frozen=True)
class Interactions(MultipliedTables):
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

    def entries(self, tables: Integers) -> Integers:
        return integer_interaction(tables, 1)

    def bound_of(self, sizes: tuple[int, ...]) -> Bound:
        l1 = prod(2 * (k - 1) for k in sizes if k <= SHORT)
        return Bound((l1, interaction_length(sizes)), (2 * l1, interaction_distance(sizes)))

    def scale(self, place: int) -> int:
        """By how much the integers of a set are larger than its interaction in records."""
        return self.multipliers[place] * interaction_scale(self.sizes_of(self.sets[place]))

    def in_records(self, noisy: Integers) -> dict[Set, Cells]:
        """The noisy interactions in records, centred along every attribute: post-processing."""
        tables = [table / self.scale(t) for t, table in enumerate(self.counted().split(noisy))]
        return dict(zip(self.sets, alike(lambda those: centred(those, 1), tables), strict=True))


def interaction_scale(sizes: Sequence[int]) -> int:
    """By how much the integer interaction of a set is larger than the interaction in records: Π_short k_j."""
    return prod(k for k in sizes if k <= SHORT)


def interaction_length(sizes: Sequence[int]) -> int:
    """The squared L2 length of what one record adds to the integer interaction of a set."""
    return prod(k * (k - 1) for k in sizes if k <= SHORT)


@lru_cache(maxsize=4096)
def interaction_distance(sizes: tuple[int, ...]) -> int:
    """The largest squared L2 distance between what two records add: their inner product is one of each attribute's,
    where they agree or differ."""
    inner = [(1, 0) if k > SHORT else (k * (k - 1), -k) if k > 1 else (0,) for k in sizes]
    return 2 * (interaction_length(sizes) - min(map(prod, product(*inner))))


def integer_interaction(table: Integers, first: int = 0) -> Integers:
    """I_S of a table of counts; the axes before the first are those of several tables."""
    for axis, size in enumerate(table.shape[first:], first):
        if size <= SHORT:
            table = size * table - table.sum(axis=axis, keepdims=True)
    return table


@dataclass(frozen=True)
class SignedTables(MultipliedTables):
    """The signed tables of several sets, each times a positive integer of its own.

    They are what Laplace noise is best added to: one record adds ±1 to a single entry of a signed table, L1 length
    one, where the centred interaction of the same set has Π 2(k_j − 1)/k_j and says no more.

    One record adds ± its multiplier to one entry of each: L1 Σ m, L2² Σ m². Two records add to the same entry with
    opposite signs, or to two entries, or the same: L1 2m at most, where any attribute of the set has two values; L2²
    4m² where one of them is binary, 2m² where none is. Several sets side by side are charged the sum, which two
    records need not attain: if they differ in both of two binary attributes, the sign over both is the same.

    With noise of one scale b the multipliers share the budget: set S then has noise of scale b / m, in records.
    """

    def entries(self, tables: Integers) -> Integers:
        return signed(tables, 1)

    def bound_of(self, sizes: tuple[int, ...]) -> Bound:
        apart = (2, 4 if 2 in sizes else 2) if {*sizes} - {1} else (0, 0)
        return Bound((1, 1), apart)

    def in_records(self, noisy: Integers) -> dict[Set, Reals]:
        shapes = [signed_shape(self.sizes_of(members)) for members in self.sets]
        parts = np.split(noisy, np.cumsum([*map(prod, shapes)]))
        tables = zip(self.sets, parts, shapes, self.multipliers, strict=False)
        return {members: part.reshape(shape) / times for members, part, shape, times in tables}


FINE = 32  # errors are counted in so many parts of a record, because what is expected is no whole number
WEIGHT = 1 << 10  # the weight of one, of a mean
REACH = FINE << 11  # how far one record moves a number, at most


@dataclass(frozen=True, eq=False)
class Errors:
    """Of some tables, side by side, the sum of the errors or the largest one, as often as it may be counted.

    `weights` make the error of a mean of it: of every cell, from 0 to `WEIGHT` less the mean of its group; `groups`
    says of every cell which group it lies in. Of a view (`queries.views`) the flat records of a unit count `whole` at
    most, all together; divided by that, and rounded down once, the number moves as far as that of a record.
    """

    first: int
    number: int  # of tables
    largest: bool = False
    weights: Integers | None = None
    groups: Integers | None = None
    whole: int = 1
    mass: float = 1.0  # of the `whole`, what a unit counts on average: what errors are shares of

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

    def of(self, off: Integers, starts: Integers) -> int:
        """The number, from count − expected of every cell of all tables, in parts of a record."""
        begin, end = int(starts[self.first]), int(starts[self.first + self.number])
        mine = off[begin:end]
        if self.weights is not None:
            assert self.groups is not None, "a mean has groups"
            sums = np.zeros(int(self.groups.max()) + 1, np.int64)
            np.add.at(sums, self.groups, self.weights * mine)
            return int(self.times * (np.abs(sums).sum() // (WEIGHT * self.whole)))
        errors = np.add.reduceat(np.abs(mine), starts[self.first : self.first + self.number] - begin)
        return int(self.times * ((errors.max() if self.largest else errors.sum()) // self.whole))


@dataclass(frozen=True, eq=False)
class SummedMisfits(Derived):
    """Several such numbers, of tables that are counted once.

    A record moves each by its reach alone, and two records by twice that; the numbers stand side by side, so that
    reaches add up, and in L2 their squares.
    """

    tables: Tables | Together  # of units, and of views of them
    expected: Integers  # of every cell, in parts of a record
    parts: tuple[Errors, ...]

    def counted(self) -> Tables | Together:
        return self.tables

    def of(self, counts: Integers, rows: int) -> Integers:
        off, starts = FINE * counts - self.expected, starts_of(self.tables)
        return np.array([part.of(off, starts) for part in self.parts], np.int64)

    def bound(self) -> Bound:
        return misfit_bound([part.reach for part in self.parts])


def starts_of(tables: Tables | Together) -> Integers:
    """Where the cells of each table begin, and at the end their number."""
    parts: tuple[Any, ...] = tables.parts if isinstance(tables, Together) else (tables,)
    return np.cumsum(np.concatenate([[0], *(np.diff(each.starts) for each in parts)])).astype(np.int64)


def misfit_bound(reaches: list[int]) -> Bound:
    """Of numbers that adding one record moves so far, and exchanging it twice as far."""
    once, squared = sum(reaches), sum(reach**2 for reach in reaches)
    return Bound((once, squared), (2 * once, 4 * squared))
