"""Every statistic and every score against brute force, under every relation.

One test for all: over small tables and all their neighbours, as `Neighbours.next_to` lists them, the numbers move
exactly as far as `sensitivity` or `range` says. Where a price exceeds the truth, the case names the relation and
the norm, and then it must exceed it: a bound that turns out to be tight, or one that is too low, fails.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache, partial
from importlib import import_module
from itertools import combinations_with_replacement, permutations, product
from pkgutil import iter_modules
from types import ModuleType

import numpy as np
import pytest

from dualquery import queries as queries_package
from dualquery.counting import MemoryCounter
from dualquery.errors import BudgetError
from dualquery.loops import limited
from dualquery.privacy import scores as scores_module
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.privacy.scores import (
    FINE,
    AbsoluteErrors,
    Score,
    SignedErrors,
    SignedTableErrors,
    TableErrors,
    selection_event,
    signed_range,
)
from dualquery.privacy.selection import SLACK, Candidates, Rate, Scored, draw
from dualquery.queries import derived as derived_module
from dualquery.queries.binary import (
    SHIFT,
    Axes,
    Balances,
    Binary,
    Centred,
    CentreSums,
    Classes,
    ClassSums,
    Clip,
    CrossSums,
    Held,
    HeldItems,
    HeldPairs,
    Lengths,
    SecondMoments,
    held_lengths,
)
from dualquery.queries.derived import FINE as FINE_MISFIT
from dualquery.queries.derived import (
    Balance,
    Errors,
    GroupBalances,
    InRecords,
    Interactions,
    Misfits,
    Multiplied,
    QueryCount,
    ScoreProducts,
    SignedTables,
    SummedMisfits,
    TableCells,
    integer_interaction,
    interaction_distance,
    number_of_records,
)
from dualquery.queries.distances import Distances, DistanceSums, Knots
from dualquery.queries.families import from_texts, parities
from dualquery.queries.group import Group
from dualquery.queries.language.units import groups_of
from dualquery.queries.lists import NamedCells
from dualquery.queries.question import CellMeans
from dualquery.queries.statistics import (
    BinSums,
    Blocks,
    CoarseEdges,
    Countable,
    DistinctTexts,
    LikelyPairs,
    SortedCells,
    TextCounts,
    Together,
    degrees,
)
from dualquery.queries.tables import Tables, centred
from dualquery.queries.views import WHOLE, Tallies, View, ViewInteractions, ViewTables
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.database import Database, Linked, database_of
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.graph import codes_table, graph_of
from dualquery.table.points import euclidean_axes
from dualquery.table.records import HALF, MOST, Records, SparseItems, has_places
from dualquery.table.units import units_of
from tests.privacy.definitions import next_to
from tests.privacy.watched import Diary, WatchedCounter, WatchedEntropy, WatchedLedger, in_order

REPLACE, ADD_REMOVE = Neighbours.REPLACE.value, Neighbours.ADD_REMOVE.value
L1, L2 = "L1", "squared L2"
RANGE = "range"
Table = tuple[tuple[int, ...], ...]


ENDS = (0, HALF + 5, MOST)  # places inside a bin


def domain_of(*sizes: int) -> Domain:
    """One attribute a size."""
    values = tuple(f"v{v}" for v in range(max(sizes)))
    return Domain(tuple(Categorical(f"a{j}", values[:size]) for j, size in enumerate(sizes)))


MIXED = domain_of(2, 3, 1)  # binary, three values, and one that says nothing
BINARY = domain_of(2, 2, 2)
LONG = domain_of(2, 3, 5)  # with SHORT = 3 two short ones, one of them just so, and a long one
POSITIONS = domain_of(5, 5)  # of two columns, with a knot at every second position
BASKETS = Domain((Categorical("shop", ("east", "west")), Items("item", 4)))
WIDE_BASKETS = Domain((Items("item", 6),))
MEASURED = Domain(
    (
        Categorical("sex", ("f", "m")),
        Numeric("height", (0.0, 1.5, 3.0)),
        Numeric("visits", (0.0, 1.0, 5.0), integer=True, missing="none"),
    )
)


@dataclass(frozen=True)
class Graded:
    """Queries with values between 0 and a unit: query q gives a record the level of its first attribute."""

    domain: Domain
    levels: tuple[tuple[int, ...], ...]
    unit: int
    satisfied: int
    differing: int

    @property
    def size(self) -> int:
        return len(self.levels)

    bound = Group.bound

    def counts(self, records):
        return np.array(self.levels, np.int64)[:, records.to_rows()[:, 0]].sum(axis=1)

    def most_satisfied(self) -> int:
        return self.satisfied

    def most_differing(self) -> int:
        return self.differing


def houses(at_most: int, *sizes: int, root: int = 2, order: str | None = None) -> Database:
    """Households of a region, each with at most so many persons, of attributes of these sizes."""
    region, *own = domain_of(root, *sizes).columns
    own = [replace(column, name=f"b{j}") for j, column in enumerate(own)]
    person = Linked("person", tuple(own), parent="house", link="h", at_most=at_most, at_least=0, order=order)
    return database_of([Linked("house", (region,), key="h"), person], "house")


def over_units(database: Database, *texts: str) -> Group:
    (group,) = groups_of(database, texts, texts)
    return group


FAMILIES = houses(3, 3)  # 40 units: two regions, at most three persons of three kinds
COUPLES = houses(3, 2, 2)
VISITS = houses(4, 2, 2, order="b0")


def rows_of(database: Database, *sets: tuple[int, ...], c: int, slots: int = 1) -> ViewTables:
    return ViewTables(View(database, "person", slots, c), sets)


def view_interactions(
    database: Database, *sets: tuple[int, ...], c: int, slots: int = 1, multipliers: tuple[int, ...] = ()
) -> ViewInteractions:
    view = View(database, "person", slots, c)
    return ViewInteractions(view, interactions(view.domain, *sets, multipliers=multipliers))


GRADED = Graded(domain_of(3), ((3, 0, 0), (0, 3, 1)), unit=3, satisfied=1, differing=2)
GRADES = Workload(GRADED.domain, (GRADED,), "grades")


class FewDistances(Distances):
    """In so small a unit that every test can pay for them."""

    unit = 8


class FewMeans(CellMeans):
    """In as small a unit."""

    unit = 5


def distances(*points: tuple[int, ...]) -> Distances:
    """To points of the small grid, both columns alike."""
    share = np.full((1, 2), FewDistances.unit // 2)
    return FewDistances(POSITIONS, np.array(points), share, np.zeros(len(points), np.int64), grid=4)


ROTATED = euclidean_axes(np.array([1.0, 2.0]), grid=4)


def turned(*points: tuple[int, ...]) -> Distances:
    """The same along four directions of the plane, which count alike."""
    share = np.zeros((1, len(ROTATED.names)), np.int64)
    share[0, [0, 10, 32, 50]] = FewDistances.unit // 4
    return replace(distances(*points), shares=share, axes=ROTATED)


TEXTS = from_texts(MIXED, ["a0 = v1", "a1 = v0", "!(a0 = v0 & a1 = v1)"])
CONTRARY = from_texts(MIXED, ["a0 = v0", "a0 = v1"])
KINDS = from_texts(MIXED, ["a0 = v0", "a0 = v1", "a1 = v0", "a1 in {v0, v2}", "a1 = v1"])
APART = from_texts(
    MIXED, ["a0 = v0 & a1 = v0", "a0 = v1"]
)  # of other attributes, though they exclude each other
CONSTANT = Workload(MIXED, (Tables(MIXED, ((),)),), "everybody")
CELLS = Tables(MIXED, ((0,), (1,), (0, 1), (2,), ()))
RANK = np.array([2, 0, 3, 1])
CODES = codes_table({"a": (0, 1), "b": (5, 7)})
# Four of the six records, and lists in which one of them lies twice, or three times.
LISTS = from_texts(
    CODES, ["a = 0 & b = 5", "a = 1 & b = 7", "a = 0 & b = 6", "a = 0 & b = 5", "a = 1 & b = 5"]
)
LOOKED_UP = np.unique(LISTS.groups[0].cells)


# ── The cases ───────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Case:
    """A statistic or a score, and where its price exceeds the truth: relation and norm, and why."""

    name: str
    domain: Domain
    subject: Countable | Score
    exceeds: dict[tuple[str, str], str] = field(default_factory=dict)
    short: int = 16
    sparse: bool = False

    def __str__(self) -> str:
        return self.name


def both(relation: str, why: str) -> dict[tuple[str, str], str]:
    return {(relation, L1): why, (relation, L2): why}


def interactions(domain: Domain, *sets: tuple[int, ...], multipliers: tuple[int, ...] = ()) -> Interactions:
    return Interactions(domain, sets, multipliers or (1,) * len(sets))


def signed_tables(domain: Domain, *sets: tuple[int, ...], multipliers: tuple[int, ...] = ()) -> SignedTables:
    return SignedTables(domain, sets, multipliers or (1,) * len(sets))


def misfits(*sets: tuple[int, ...], expected: tuple[int, ...], slack: int = 0) -> Misfits:
    return Misfits(Tables(MIXED, sets), np.array(expected), np.full(len(sets), slack))


def plain_misfits(sets: tuple[tuple[int, ...], ...], *expected: int, domain: Domain = MIXED) -> Misfits:
    return Misfits(Tables(domain, sets), np.array(expected, np.int64), np.zeros(len(sets), np.int64))


def summed(*parts: Errors, expected: tuple[int, ...] = (2, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0)) -> SummedMisfits:
    """Of the tables over a0, over a1 and over both, with whole records expected."""
    tables = Tables(MIXED, ((0,), (1,), (0, 1)))
    return SummedMisfits(tables, FINE_MISFIT * np.array(expected, np.int64), parts)


def products(domain: Domain, *scores: list[float]) -> ScoreProducts:
    """Of the first attributes."""
    fine = (np.rint(ScoreProducts.HIGHEST * np.array(each)).astype(np.int64) for each in scores)
    return ScoreProducts(domain, dict(enumerate(fine)))


ONE_TABLE = Tables(MIXED, ((0,),))
LEVELS = np.array([0, 512, 1024, 0, 512, 1024])  # of a1, whole at most
SIDES_OF_LEVELS = np.array([0, 0, 0, 1, 1, 1])  # of a0
FEW_LEFT = (0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0)


def summed_of_views(*parts: Errors, expected: dict[int, int]) -> SummedMisfits:
    """Of units by region (cells 0 and 1), of rows by their kind (2 to 4) and with the region (5 to 10), c = 2, and of
    pairs of rows (11 to 19): with so many records expected in some cells."""
    rows, pairs = rows_of(FAMILIES, (2,), (0, 2), c=2), rows_of(FAMILIES, (2, 3), c=2, slots=2)
    cells = FINE_MISFIT * np.array([expected.get(cell, 0) for cell in range(20)], np.int64)
    cells[2:] *= WHOLE
    return SummedMisfits(Together((Tables(FAMILIES, ((0,),)), rows, pairs)), cells, parts)


OF_ROWS = Errors(1, 2, whole=WHOLE, mass=0.7)
MISFIT = (
    "a record that leaves one cell for another leaves the sum as it is; one price serves all expectations"
)
TWICE = "in L1 twice the length of one record is charged"
AT_ONCE = "two records are not farthest apart in all sets at once"
BOUND = "a kind of query that bounds the number of queries is charged the bound"

# Of wide binary tables: a block of items and a column of two values, of which three attributes are looked at.
WIDE = Domain((Items("item", 3), Categorical("sex", ("f", "m"))))
LOOKED_AT = Binary(WIDE, np.array([0, 2, 3]))
HALF = np.array([[8, 8, 8]])  # a centre of ½, ½, ½: every y is ±8, and |y|² = 192
ASKEW = np.array([[3, 8, 13]])
AXES = Axes(LOOKED_AT, HALF[0], np.array([[1, 0], [1, 1], [0, 1]]) << SHIFT)  # u = (y₀ + y₁, y₁ + y₂)
SIDES = Classes(AXES, np.array([[-9, -9], [9, 9], [0, 5]]))
IN_CLASSES = Centred(LOOKED_AT, np.array([[3, 8, 13], [8, 8, 8], [0, 4, 16]]), SIDES)
DIAGONAL = "the diagonal is not counted, and its part is charged"
CLIPPED = "weights are whole: a clipped vector falls short of the clip"
TURNED = "where a vector turns around, so do its places, and their product does not"
COUNT = "no two records of a class lie farthest apart in weight and in place at once"


def everywhere(why: str) -> dict[tuple[str, str], str]:
    return both(REPLACE, why) | both(ADD_REMOVE, why)


WIDE_STATISTICS = [
    Case("one-way balances", WIDE, Balances(LOOKED_AT)),
    Case("lengths", WIDE, Lengths(Centred(LOOKED_AT, ASKEW), np.array([150, 250]))),
    Case("lengths in classes", WIDE, Lengths(IN_CLASSES, np.array([100, 200, 300]))),
    Case("items held", WIDE, held_lengths(LOOKED_AT, np.array([0, 1, 2]))),
    Case(
        "moments",
        WIDE,
        SecondMoments(Centred(LOOKED_AT, HALF), Clip(2, 192)),
        {(ADD_REMOVE, L2): DIAGONAL} | both(REPLACE, DIAGONAL),
    ),
    Case(
        "clipped moments",
        WIDE,
        SecondMoments(Centred(LOOKED_AT, ASKEW), Clip(5, 100)),
        everywhere(DIAGONAL),
    ),
    Case("totals", WIDE, ClassSums(Centred(LOOKED_AT, HALF), Clip(3, 192), 0, together=True)),
    Case(
        "class sums",
        WIDE,
        ClassSums(Centred(LOOKED_AT, HALF), Clip(2, 192), 5),
        both(REPLACE, COUNT),
    ),
    Case(
        "clipped class sums",
        WIDE,
        ClassSums(IN_CLASSES, Clip(7, 120), 3),
        everywhere(CLIPPED),
    ),
    Case(
        "totals around classes",
        WIDE,
        ClassSums(IN_CLASSES, Clip(4, 500), 0, together=True),
        everywhere(CLIPPED),
    ),
    Case("centre sums", WIDE, CentreSums(SIDES, Clip(2, 512), 3, 50), both(REPLACE, COUNT)),
    Case(
        "clipped centre sums",
        WIDE,
        CentreSums(SIDES, Clip(9, 300), 3, 70),
        everywhere(CLIPPED),
    ),
    Case(
        "cross sums",
        WIDE,
        CrossSums(Centred(LOOKED_AT, HALF), Clip(1, 192), AXES, Clip(2, 512)),
        both(REPLACE, TURNED),
    ),
    Case(
        "clipped cross sums",
        WIDE,
        CrossSums(Centred(LOOKED_AT, ASKEW), Clip(3, 99), AXES, Clip(4, 200)),
        everywhere(CLIPPED),
    ),
]

FEW_ROWS = "with few rows no two units of many values are without a common cell"
UNIT_STATISTICS = [
    Case("tables of units", FAMILIES, Tables(FAMILIES, ((0,), (1,), (0, 1)))),
    Case("tables of rows", FAMILIES, rows_of(FAMILIES, (2,), (0, 2), c=2)),
    Case("tables of rows, units alike", FAMILIES, rows_of(FAMILIES, (2,), (1, 2), c=1)),
    Case("tables of rows, rows alike", FAMILIES, rows_of(FAMILIES, (2,), c=3)),
    Case("the number of rows", FAMILIES, rows_of(FAMILIES, (), c=2)),
    Case("tables of pairs of rows", FAMILIES, rows_of(FAMILIES, (2, 3), c=2, slots=2)),
    Case("tables of pairs and units", COUPLES, rows_of(COUPLES, (2, 5), (0, 4), c=6, slots=2)),
    Case("interactions of rows", FAMILIES, view_interactions(FAMILIES, (2,), c=2), {(REPLACE, L1): TWICE}),
    Case("interactions of rows and units", FAMILIES, view_interactions(FAMILIES, (0, 2), c=3, multipliers=(2,))),
    Case("interactions of pairs of rows", COUPLES, view_interactions(COUPLES, (2, 5), c=2, slots=2)),
    Case("tables of a row and the next", VISITS, rows_of(VISITS, (2, 5), (3, 4), c=2, slots=2)),
    Case(
        "summed misfits of units, rows and pairs",
        FAMILIES,
        summed_of_views(Errors(0, 1), OF_ROWS, Errors(3, 1, whole=WHOLE), expected={0: 2, 2: 2, 5: 2, 11: 2}),
    ),
    Case(
        "the largest misfit of rows",
        FAMILIES,
        summed_of_views(replace(OF_ROWS, largest=True), expected={2: 2, 5: 2}),
    ),
    Case(
        "misfit of a mean of rows",
        FAMILIES,
        summed_of_views(Errors(2, 1, weights=LEVELS, groups=SIDES_OF_LEVELS, whole=WHOLE), expected={7: 2}),
    ),
    Case("tallies", FAMILIES, Tallies(FAMILIES, "person", ((0,),), (3,), 3), both(REPLACE, FEW_ROWS)),
    Case("tallies of two attributes", COUPLES, Tallies(COUPLES, "person", ((0,), (1,)), (1, 2), 3)),
    Case("any", FAMILIES, over_units(FAMILIES, "any(b0 = v1)")),
    Case("all beside its contrary", FAMILIES, over_units(FAMILIES, "all(b0 = v0)", "any(b0 != v0)")),
    Case("counts of rows", FAMILIES, over_units(FAMILIES, *(f"count(person where b0 = v1) = {k}" for k in range(4)))),
    Case("any and all and units", COUPLES, over_units(COUPLES, "any(b0 = v1 & b1 = v0) & a0 = v1")),
    Case(
        "any of two values",
        FAMILIES,
        over_units(FAMILIES, "any(b0 = v0)", "any(b0 = v1)", "count(person where b0 = v0) >= 3"),
        both(ADD_REMOVE, BOUND),
    ),
    Case("tallies, units alike", COUPLES, Tallies(COUPLES, "person", ((1,),), (1,), 1)),
    Case("tallies of pairs", COUPLES, Tallies(COUPLES, "person", ((0, 1),), (1,), 3), both(REPLACE, FEW_ROWS)),
]  # fmt: skip

TRIANGLE = graph_of(("a", "b", "c"))
WEIGHED = graph_of(("a", "b", "c"), weight="w", heaviest=2)
MUTUAL = graph_of(("a", "b", "c"), directed=False)
SIDES_OF_IT = Blocks(np.array([0, 1, 1]), 2)
SOME_PAIRS = LikelyPairs(np.array([3, 0, 1]), np.array([1, 0, 2]))
FACTOR = np.array([[3, 0, -2], [1, -4, 1]])
FARTHEST = "no record is farthest from all points at once; a kind of query is charged its bound"
SPECIAL_STATISTICS = [
    Case("knots", POSITIONS, Knots((0, 1), (FACTOR, 2 * FACTOR), 2)),
    Case("knots of a column", POSITIONS, Knots((1,), (FACTOR[:1],), 2)),
    Case("knots and the number", POSITIONS, Knots((0,), (FACTOR,), 2, total=7)),
    Case("degrees", TRIANGLE, CoarseEdges(TRIANGLE, degrees(3), (2, 5))),
    Case(
        "blocks and pairs",
        TRIANGLE,
        CoarseEdges(TRIANGLE, (SIDES_OF_IT, SOME_PAIRS), (3, 1)),
    ),
    Case("weighted blocks", WEIGHED, CoarseEdges(WEIGHED, (SIDES_OF_IT,), (2,))),
    Case(
        "pairs of a graph without directions",
        MUTUAL,
        CoarseEdges(MUTUAL, (SOME_PAIRS,), (1,)),
    ),
    Case(
        "loops and all other edges",
        TRIANGLE,
        CoarseEdges(TRIANGLE, (Blocks(np.zeros(3, np.int64), 1),), (1,)),
    ),
    Case(
        "cuts",
        TRIANGLE,
        from_texts(TRIANGLE, ["edges leaving {a}", "edges within {a, b}"]).groups[0],
    ),
    Case("a weighted cut", WEIGHED, from_texts(WEIGHED, ["edges from {a} to {b, c}"]).groups[0]),
    Case(
        "balance of a cut without directions",
        MUTUAL,
        Balance(from_texts(MUTUAL, ["edges from {a, b} to {b, c}"]), 0),
    ),
    Case("a cut without directions", MUTUAL, from_texts(MUTUAL, ["edges leaving {a}"]).groups[0]),
    Case(
        "knots along directions", POSITIONS, Knots((0, 24, 40), (FACTOR, FACTOR, 2 * FACTOR), 2, axes=ROTATED)
    ),
    Case("distances along directions", POSITIONS, turned((0, 0), (4, 1), (2, 2)), everywhere(FARTHEST)),
    Case("sums along directions", POSITIONS, DistanceSums(turned((4, 0))), everywhere(FARTHEST)),
    Case("distances", POSITIONS, distances((0, 0), (4, 1), (2, 2)), everywhere(FARTHEST)),
    Case("a distance in records", POSITIONS, InRecords(distances((1, 3)))),
    Case("a distance to a corner in records", POSITIONS, InRecords(distances((0, 0)))),
    Case(
        "a weighted cut in records",
        WEIGHED,
        InRecords(from_texts(WEIGHED, ["edges from {a} to {b, c}"]).groups[0]),
    ),
    Case("a mean", MIXED, FewMeans(MIXED, (0, 1), np.array([0, 2, 5, 1, 3, 0]), "a mean")),
    Case(
        "a mean in records", MIXED, InRecords(FewMeans(MIXED, (0, 1), np.array([0, 2, 5, 1, 3, 0]), "a mean"))
    ),
    Case("distance to a corner", POSITIONS, distances((4, 0))),
    Case("sum of distances to a corner", POSITIONS, DistanceSums(distances((4, 0)))),
    Case("sums of distances", POSITIONS, DistanceSums(distances((0, 0), (4, 1))), everywhere(FARTHEST)),
    Case("balance of a distance", POSITIONS, Balance(Workload(POSITIONS, (distances((4, 4)),), "one"), 0)),
]

WRITTEN = Domain((Categorical("a", ("", "1", "x")), Categorical("b", ("1.5", "7", "9", "y"))))


def written_numbers(texts):
    """A sorting of `WRITTEN`: small numbers, large ones, nothing else."""
    return np.array([-1 if not text or text.isalpha() else int(float(text) > 5) for text in texts])


def written_kinds(texts):
    return np.array([0 if not text else 1 + text.isalpha() for text in texts])


CELLS_AS_WRITTEN = [
    Case("texts that occur", WRITTEN, TextCounts("b")),
    Case("sorted cells", WRITTEN, SortedCells("b", 2, written_numbers)),
    Case(
        "sorted cells of two columns",
        WRITTEN,
        Together((SortedCells("a", 3, written_kinds), SortedCells("b", 2, written_numbers))),
    ),
    Case("sorted cells, multiplied", WRITTEN, Multiplied(SortedCells("a", 3, written_kinds), 4)),
    Case("distinct texts", WRITTEN, DistinctTexts("b")),
    Case("distinct texts of two columns", WRITTEN, Together((DistinctTexts("a"), DistinctTexts("b")))),
]

STATISTICS = [
    Case("tables", MIXED, CELLS),
    Case("a table twice", MIXED, Tables(MIXED, ((1,), (1,)))),
    Case("the number of records", MIXED, number_of_records(MIXED)),
    Case("conjunctions", MIXED, TEXTS.groups[0]),
    Case("a workload", MIXED, Workload(MIXED, (CONTRARY.groups[0], CELLS), "both")),
    Case("tables beside queries", MIXED, Together((CONTRARY.groups[0], CELLS))),
    Case("queries of which one holds", MIXED, CONTRARY.groups[0]),
    Case("queries of two kinds", MIXED, KINDS.groups[0]),
    Case("queries that exclude each other", MIXED, APART.groups[0], both(ADD_REMOVE, BOUND)),
    Case("balances", MIXED, GroupBalances(TEXTS.groups[0])),
    Case("balances of which one holds", MIXED, GroupBalances(CONTRARY.groups[0])),
    Case("balances of grades", GRADED.domain, GroupBalances(GRADED)),
    *SPECIAL_STATISTICS,
    Case("tables, multiplied", MIXED, Multiplied(CELLS, 5)),
    Case("sums inside bins", MEASURED, BinSums.of(MEASURED)),
    Case("sums inside the bins of one column", MEASURED, BinSums(MEASURED, (1,))),
    Case("parities of one", BINARY, parities(BINARY, 1).groups[0]),
    Case("parities of two", BINARY, parities(BINARY, 2).groups[0], both(REPLACE, BOUND)),
    Case("cells", CODES, NamedCells(LOOKED_UP)),
    Case(
        "a cell",
        CODES,
        NamedCells(LOOKED_UP[:1]),
        both(REPLACE, "two records do not lie in one cell; one price serves all lists of cells"),
    ),
    Case("lists", CODES, LISTS.groups[0]),
    Case("parity balances of one", BINARY, GroupBalances(parities(BINARY, 1).groups[0])),
    Case("parity balances of two", BINARY, GroupBalances(parities(BINARY, 2).groups[0].take(np.arange(3, 6)))),
    Case("parity balances of three", BINARY, GroupBalances(parities(BINARY, 3).groups[0].take(np.arange(6, 7)))),
    Case(
        "parity balances of several orders",
        BINARY,
        GroupBalances(parities(BINARY, 3).groups[0]),
        both(REPLACE, BOUND),
    ),
    Case("graded queries", GRADED.domain, GRADED),
    Case("balance", MIXED, Balance(TEXTS, 2)),
    Case("balance of a cell", MIXED, Balance(Workload(MIXED, (CELLS,), "cells"), 7)),
    Case("balance of a grade", GRADED.domain, Balance(GRADES, 0)),
    Case("count of a query", MIXED, QueryCount(TEXTS, 2)),
    Case("count of a grade", GRADED.domain, QueryCount(GRADES, 0)),
    Case(
        "balance of everybody",
        MIXED,
        Balance(CONSTANT, 0),
        both(REPLACE, "of a query that holds for all records nothing moves; one price serves all queries"),
    ),
    Case("cells of a table", MIXED, TableCells(CELLS, 2)),
    Case(
        "the cell of a table",
        MIXED,
        TableCells(CELLS, 3),
        both(REPLACE, "a table of a single cell does not move; one price serves all tables"),
    ),
    Case("interaction of two values", MIXED, interactions(MIXED, (0,))),
    Case("interaction of three values", MIXED, interactions(MIXED, (1,)), {(REPLACE, L1): TWICE}),
    Case("interaction of two attributes", MIXED, interactions(MIXED, (0, 1))),
    Case("interaction with one value", MIXED, interactions(MIXED, (1, 2))),
    Case("interaction of nothing", MIXED, interactions(MIXED, ()), {(REPLACE, L1): TWICE}),
    Case("interaction of three binary", BINARY, interactions(BINARY, (0, 1, 2))),
    Case("interactions side by side", BINARY, interactions(BINARY, (0,), (1,), multipliers=(2, 5))),
    Case(
        "interactions that overlap",
        BINARY,
        interactions(BINARY, (0,), (1,), (0, 1), multipliers=(1, 2, 3)),
        both(REPLACE, AT_ONCE),
    ),
    Case("long attribute", LONG, interactions(LONG, (2,)), short=3),
    Case("just short attribute", LONG, interactions(LONG, (1,)), {(REPLACE, L1): TWICE}, short=3),
    Case("short and long", LONG, interactions(LONG, (0, 2)), short=3),
    Case("just short and long", LONG, interactions(LONG, (1, 2)), short=3),
    Case(
        "short, just short and long",
        LONG,
        interactions(LONG, (0, 1, 2), (2,), (), multipliers=(2, 7, 3)),
        {(REPLACE, L1): TWICE, (REPLACE, L2): AT_ONCE},
        short=3,
    ),
    Case("two short ones beside a long", LONG, interactions(LONG, (0, 1)), short=3),
    Case("signed table of two values", MIXED, signed_tables(MIXED, (0,))),
    Case("signed table of three values", MIXED, signed_tables(MIXED, (1,), multipliers=(5,))),
    Case("signed table of both", MIXED, signed_tables(MIXED, (0, 1))),
    Case("signed table of one value", MIXED, signed_tables(MIXED, (2,))),
    Case("signed table of two values and one", MIXED, signed_tables(MIXED, (0, 2))),
    Case("signed table of nothing", MIXED, signed_tables(MIXED, (), multipliers=(3,))),
    Case("signed table of three binary", BINARY, signed_tables(BINARY, (0, 1, 2))),
    Case("signed tables side by side", LONG, signed_tables(LONG, (0,), (1, 2), (), multipliers=(2, 5, 3))),
    Case(
        "signed tables that overlap",
        BINARY,
        signed_tables(BINARY, (0,), (1,), (0, 1), multipliers=(1, 2, 3)),
        both(REPLACE, AT_ONCE),
    ),
    Case("misfits of a table", MIXED, misfits((0,), expected=(2, 0))),
    Case(
        "misfits of several tables",
        MIXED,
        misfits((0,), (1,), (0, 1), expected=(2, 0, 2, 0, 0, 2, 0, 0, 0, 0, 0)),
    ),
    Case("misfits beyond a slack", MIXED, misfits((0,), expected=(3, -1), slack=1)),
    Case(
        "misfits of a table of one cell",
        MIXED,
        misfits((2,), expected=(1,)),
        both(REPLACE, "a table of a single cell does not move; one price serves all tables"),
    ),
    Case("misfits", MIXED, plain_misfits(((0,), (1,)), 2, 0, 0, 2, 2)),
    Case("misfits of pairs", BINARY, plain_misfits(((0, 1), (0, 2)), 1, 0, 2, 0, 0, 2, 1, 0, domain=BINARY)),
    Case("misfits of what is always too low", MIXED, plain_misfits(((0,), (0, 1)), *[0] * 8), both(REPLACE, MISFIT)),
    Case("summed misfits", MIXED, summed(Errors(0, 1), Errors(1, 2))),
    Case("summed misfits of three tables", MIXED, summed(Errors(0, 3))),
    Case("summed misfits of parts of a record", MIXED, SummedMisfits(ONE_TABLE, np.array([70, -3]), (Errors(0, 1),))),
    Case("the largest misfit", MIXED, summed(Errors(0, 2), Errors(0, 3, largest=True))),
    Case("misfit of a mean", MIXED, summed(Errors(2, 1, weights=LEVELS, groups=SIDES_OF_LEVELS), expected=FEW_LEFT)),
    Case(
        "summed misfits of what is always too low",
        MIXED,
        summed(Errors(0, 3), expected=(0,) * 11),
        both(REPLACE, MISFIT),
    ),
    Case("products of two scores", MIXED, products(MIXED, [-1, 1], [1, 0, -1])),
    Case("products of three scores", BINARY, products(BINARY, [-1, 1], [1, -1], [-1, 1])),
    Case(
        "products of scores that are not at the ends",
        MIXED,
        products(MIXED, [-0.5, 0.5], [0.25, 0, -1]),
        everywhere("public scores that reach no end are charged as if they did"),
    ),
    Case("items", BASKETS, HeldItems(1, RANK, 4, 2)),
    Case("items, fewer than two records can hold", BASKETS, HeldItems(1, RANK, 3, 2)),
    Case("items, one each", BASKETS, HeldItems(1, RANK, 4, 1), sparse=True),
    Case("items, fewer than the limit", BASKETS, HeldItems(1, RANK, 2, 3), sparse=True),
    Case("pairs", BASKETS, HeldPairs(1, RANK, 4, 2)),
    Case("pairs of one item", BASKETS, HeldPairs(1, RANK, 4, 1)),
    Case("pairs, kept sparse", WIDE_BASKETS, HeldPairs(0, np.arange(6), 6, 3), sparse=True),
    Case(
        "pairs of few items",
        BASKETS,
        HeldPairs(1, RANK, 4, 3),
        both(REPLACE, "two records must share items where there are fewer than twice the limit"),
    ),
    Case(
        "pairs of fewer items than the limit",
        BASKETS,
        HeldPairs(1, RANK, 3, 7),
        both(REPLACE, "two records must share items where there are fewer than twice the limit"),
    ),
    *WIDE_STATISTICS,
    *CELLS_AS_WRITTEN,
    *UNIT_STATISTICS,
]  # fmt: skip


def signed(
    workload: Workload, *, rows: int = 2, repeats: int = 3, scale: int = 7, among=None
) -> SignedErrors:
    size = workload.size if among is None else len(among)
    return SignedErrors(workload, rows, repeats, scale, np.arange(size, dtype=np.int64) - 1, among)


def whole_tables(tables: Tables, answers: Sequence[float], among=None) -> TableErrors:
    penalties = np.linspace(0.3, 1.7, len(tables.sets))
    return TableErrors(tables, 3, penalties, np.array(answers, float), among)


def whole_signed(tables: Tables, answers: Sequence[float], among=None) -> SignedTableErrors:
    return SignedTableErrors(
        tables, 3, np.linspace(0.3, 1.7, len(tables.sets)), np.array(answers, float), among
    )


TWO_TABLES = Tables(MIXED, ((0,), (1,)))
# Where a record leaves one cell for another, one table gets worse and the other better.
CROSSED = [2, 0, 0, 2, 2]

SCORES = [
    Case("signed errors", MIXED, signed(TEXTS)),
    Case("signed errors among some", MIXED, signed(TEXTS, among=np.array([2, 0]))),
    Case("signed errors of one query", MIXED, signed(TEXTS, repeats=1, scale=0, among=np.array([1]))),
    Case("signed errors of cells", MIXED, signed(Workload(MIXED, (CELLS,), "cells"), rows=5)),
    Case("signed errors of grades", GRADED.domain, signed(GRADES)),
    Case("signed errors before the first reply", MIXED, signed(TEXTS, repeats=0)),
    Case(
        "signed errors of answers",
        MIXED,
        SignedErrors.of_answers(TEXTS, 3, np.array([0.4, 0.1, 0.9]), np.array([0, 2])),
    ),
    Case(
        "signed errors of everybody",
        MIXED,
        signed(CONSTANT),
        {(REPLACE, RANGE): "nothing moves; one price serves all queries"},
    ),
    Case("absolute errors", MIXED, AbsoluteErrors(TEXTS, 2, 3, 1, np.array([0, 9, 0]))),
    Case(
        "absolute errors of grades",
        GRADED.domain,
        AbsoluteErrors(GRADES, 2, 1, 1, np.array([0, 0])),
        {(ADD_REMOVE, RANGE): "no record satisfies both queries"},
    ),
    Case(
        "absolute errors of one query",
        MIXED,
        AbsoluteErrors(TEXTS, 2, 1, 1, np.array([1]), np.array([0])),
        {
            (relation, RANGE): "where there is one candidate nothing is chosen"
            for relation in (REPLACE, ADD_REMOVE)
        },
    ),
    Case("whole tables", MIXED, whole_tables(TWO_TABLES, CROSSED)),
    Case("whole tables among some", MIXED, whole_tables(TWO_TABLES, CROSSED, np.array([1, 0]))),
    Case("whole signed tables", MIXED, whole_signed(TWO_TABLES, CROSSED)),
    Case("whole signed tables among some", MIXED, whole_signed(TWO_TABLES, CROSSED, np.array([1, 0]))),
    Case(
        "one whole table",
        MIXED,
        whole_tables(TWO_TABLES, CROSSED, np.array([1])),
        {
            (relation, RANGE): "where there is one candidate nothing is chosen"
            for relation in (REPLACE, ADD_REMOVE)
        },
    ),
    Case(
        "whole tables answered too low",
        MIXED,
        whole_tables(TWO_TABLES, [0] * 5),
        {(relation, RANGE): "all scores move the same way" for relation in (REPLACE, ADD_REMOVE)},
    ),
]


# ── Brute force ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tables of three records are counted faster by one thread than by two."""
    with limited(1):
        yield


@pytest.fixture
def short(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The limit between short and long attributes that a case wants."""
    monkeypatch.setattr(derived_module, "SHORT", request.getfixturevalue("case").short)
    interaction_distance.cache_clear()
    yield
    interaction_distance.cache_clear()


def records_of(case: Case, table: Table) -> Records:
    if isinstance(case.domain, Database):
        roots = np.array([root for root, _ in table], np.int64).reshape(
            len(table), case.domain.root.domain.width
        )
        rows = [row for _, hanging in table for row in hanging]
        width = case.domain.children[0].domain.width
        sizes = np.array([len(hanging) for _, hanging in table], np.int64)
        return units_of(case.domain, roots, [(sizes, np.array(rows, np.int64).reshape(len(rows), width))])
    inside = [i for i, column in enumerate(case.domain.columns) if has_places(column)]
    rows = np.array(table, np.int64).reshape(len(table), case.domain.width + len(inside))
    records = Records.from_rows(case.domain, rows[:, : case.domain.width])
    if inside:  # their places stand behind the codes
        found = {i: rows[:, case.domain.width + n].astype(np.uint16) for n, i in enumerate(inside)}
        return replace(records, places=tuple(found.get(i) for i in range(len(case.domain.columns))))
    if not case.sparse:
        return records
    (position,) = (p for p, column in enumerate(case.domain.columns) if isinstance(column, Items))
    held = rows[:, case.domain.starts[position] : case.domain.starts[position + 1]]
    start = np.concatenate([[0], np.cumsum(held.sum(axis=1))]).astype(np.int64)
    items = SparseItems(start, np.nonzero(held)[1].astype(np.int32))
    columns = (*records.columns[:position], items, *records.columns[position + 1 :])
    return Records(case.domain, len(rows), columns)


def universe_of(domain: Domain) -> list[tuple[int, ...]]:
    if isinstance(domain, Database):  # every unit: what is known of it, and its rows
        (child,) = domain.children
        roots = universe_of(domain.root.domain)
        number = range(child.at_least, child.at_most + 1)
        rows = universe_of(child.domain)
        hanging = [each for m in number for each in combinations_with_replacement(rows, m)]
        return [*product(roots, hanging)]
    codes = list(product(*(range(int(size)) for size in domain.sizes)))
    inside = sum(map(has_places, domain.columns))
    return [(*x, *places) for x in codes for places in product(ENDS, repeat=inside)]


def tables_over(universe: Sequence[tuple[int, ...]], most: int) -> list[Table]:
    """All tables of up to one record, and of up to three, or some of these where there are many."""
    rng = np.random.default_rng(0)
    found: list[Table] = [(), *((record,) for record in universe)]
    for size in (2, 3):
        tables = list(combinations_with_replacement(universe, size)) if len(universe) <= 32 else []
        few = rng.permutation(len(tables))[: most // size]
        found += [tables[i] for i in sorted(few)]
    return found


def scores_weighed(scored: Scored) -> list[int]:
    """What the exponential mechanism weighs, candidate by candidate: each query, and then its negation."""
    found = []
    for count, offset in zip(scored.counts.tolist(), scored.offsets.tolist(), strict=True):
        c = scored.repeats * count - scored.scale * offset
        found += [c, scored.surplus - c] if scored.candidates is Candidates.SIGNED else [abs(c)]
    return found


@lru_cache(maxsize=1)
def said_before(case: int) -> dict[Table, list[int]]:
    """By table, of one case: relations are tried one after the other, on mostly the same tables."""
    return {}


def numbers_of(case: Case, table: Table) -> list[int]:
    """What a curator would measure, or weigh: of the multiset of records, the order is another test's matter."""
    table = tuple(sorted(table))
    known = said_before(id(case))
    if table not in known:
        known[table] = counted(case, table)
    return known[table]


def counted(case: Case, table: Table) -> list[int]:
    counter = MemoryCounter(records_of(case, table))
    if hasattr(case.subject, "bound"):
        return counter.true_counts(case.subject).tolist()
    return scores_weighed(case.subject.of(counter))


def largest_moves(case: Case, relation: Neighbours, most: int) -> dict[str, int]:
    """How far the numbers of a case move, over the tables and all of their neighbours."""
    universe = universe_of(case.domain)
    found = {L1: 0, L2: 0, RANGE: 0}
    for table in tables_over(universe, most):
        here = numbers_of(case, table)
        for other in next_to(relation, table, universe):
            moved = [x - y for x, y in zip(here, numbers_of(case, other), strict=True)]
            found[L1] = max(found[L1], sum(map(abs, moved)))
            found[L2] = max(found[L2], sum(x * x for x in moved))
            found[RANGE] = max(found[RANGE], max(moved) - min(moved))
    return found


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("case", [*STATISTICS, *SCORES], ids=str)
def test_the_price_is_how_far_neighbours_move(case: Case, relation: Neighbours) -> None:
    compare_price_and_moves(case, relation, most=30)


@pytest.mark.long
@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("case", [*STATISTICS, *SCORES], ids=str)
def test_the_price_is_how_far_neighbours_move_over_more_tables(case: Case, relation: Neighbours) -> None:
    compare_price_and_moves(case, relation, most=180)


def compare_price_and_moves(case: Case, relation: Neighbours, most: int) -> None:
    true = largest_moves(case, relation, most)
    if hasattr(case.subject, "bound"):
        charged = relation.sensitivity(case.subject.bound())
        stated = {L1: charged.l1, L2: charged.l2_squared}
    else:
        stated = {RANGE: case.subject.range(relation)}
    for norm, price in stated.items():
        if (relation.value, norm) in case.exceeds:
            assert price > true[norm], f"{norm} is tight after all"
        else:
            assert price == true[norm], norm


def classes_with(module: ModuleType, *members: str) -> set[type]:
    return {
        kind
        for _, kind in inspect.getmembers(module, inspect.isclass)
        if kind.__module__ == module.__name__
        and not getattr(kind, "_is_protocol", False)
        and not inspect.isabstract(kind)
        and kind not in (Held,)  # of which there are kinds
        and all(hasattr(kind, member) for member in members)
    }


QUERIES = [
    import_module(f"dualquery.queries.{found.name}") for found in iter_modules(queries_package.__path__)
]


@pytest.mark.parametrize(
    ("modules", "members", "cases"),
    [(QUERIES, ("counts", "bound"), STATISTICS), ([scores_module], ("of", "range"), SCORES)],
    ids=["countables", "scores"],
)
def test_no_countable_and_no_score_is_left_out(
    modules: list[ModuleType], members: tuple[str, ...], cases: list[Case]
) -> None:
    known = set().union(*(classes_with(module, *members) for module in modules))
    listed = {kind for case in cases for kind in type(case.subject).__mro__}
    assert known - listed == set()


def test_the_exceptions_name_relations_and_norms_that_there_are() -> None:
    names = {relation.value for relation in RELATIONS}
    for cases, norms in ((STATISTICS, {L1, L2}), (SCORES, {RANGE})):
        for case in cases:
            assert all(
                relation in names and norm in norms and why for (relation, norm), why in case.exceeds.items()
            )


def test_neighbours_by_hand() -> None:
    def found(relation: Neighbours) -> set[str]:
        return {"".join(sorted(table)) for table in next_to(relation, ("x", "y"), "xyz")}

    assert found(Neighbours.REPLACE) == {"xy", "yy", "yz", "xx", "xz"}
    assert found(Neighbours.ADD_REMOVE) == {"x", "y", "xxy", "xyy", "xyz"}
    assert [*next_to(Neighbours.REPLACE, (), "xyz")] == []
    for relation in RELATIONS:  # and being one is mutual
        for table in next_to(relation, ("x", "y"), "xyz"):
            assert any(sorted(back) == ["x", "y"] for back in next_to(relation, table, "xyz"))


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("case", [*STATISTICS, *SCORES], ids=str)
def test_the_order_of_the_records_does_not_matter(case: Case) -> None:
    universe = universe_of(case.domain)
    table = (universe[0], universe[-1], universe[len(universe) // 2])
    seen = [counted(case, rows) for rows in permutations(table)]
    assert all(numbers == seen[0] for numbers in seen)


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize(
    "case", [case for case in STATISTICS if isinstance(case.subject, Interactions)], ids=str
)
def test_interactions_divided_by_their_scale_are_centred_tables(case: Case) -> None:
    """Integers and scale agree: `in_records` of the truth is the table less its means."""
    rows = tuple(universe_of(case.domain)[i] for i in (0, 0, 1, 3, 3, 3, -1))
    in_records = case.subject.in_records(case.subject.counts(records_of(case, rows)))
    for members, centred_table in in_records.items():
        table = Tables(case.domain, (members,))
        true = table.counts(records_of(case, rows)).reshape(table.shape_of(0))
        assert centred_table == pytest.approx(centred(true.astype(float)), abs=1e-12)


def test_a_short_interaction_is_centred_before_noise_and_a_long_one_is_not(monkeypatch) -> None:
    monkeypatch.setattr(derived_module, "SHORT", 3)
    counts = np.arange(15).reshape(3, 5) ** 2
    inner = integer_interaction(counts)
    assert not inner.sum(axis=0).any()
    assert inner.sum(axis=1).any()
    assert (inner == 3 * counts - counts.sum(axis=0)).all()


def test_the_kernel_weighs_what_the_reference_says() -> None:
    """At one bit a point, and with scores far apart, the largest score is drawn."""
    rng, entropy = np.random.default_rng(2), SeededEntropy(3)
    seen = set()
    for _ in range(120):
        size = int(rng.integers(1, 5))
        scored = Scored(
            rng.integers(0, 9, size),
            300,
            100,
            rng.integers(-9, 9, size),
            int(rng.integers(-2000, 2000)),
            Candidates.SIGNED if rng.random() < 0.6 else Candidates.ABSOLUTE,
        )
        weights = scores_weighed(scored)
        best = max(weights)
        if sorted(weights)[-2:-1] == [best]:
            continue
        sides = 2 if scored.candidates is Candidates.SIGNED else 1
        query, negated = divmod(weights.index(best), sides)
        drawn = draw(scored, rate=Rate(1 << 40, 40), draws=2, entropy=entropy)
        assert drawn.queries.tolist() == [query] * 2
        assert drawn.negated.tolist() == [bool(negated)] * 2
        seen.add((scored.candidates, bool(negated)))
    assert len(seen) == 3


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("case", SCORES, ids=str)
def test_clamping_widens_no_range(case: Case, relation: Neighbours) -> None:
    universe = universe_of(case.domain)
    for bound in (2, 1000):
        for table in tables_over(universe, most=12):
            for other in next_to(relation, table, universe):
                moved = [
                    min(max(x, -bound), bound) - min(max(y, -bound), bound)
                    for x, y in zip(numbers_of(case, table), numbers_of(case, other), strict=True)
                ]
                assert max(moved) - min(moved) <= case.subject.range(relation)


# ── What the curator charges, and when ──────────────────────────────────────────────────────────────────────────


def curator_of(
    case: Case, relation: Neighbours, epsilon: float = 1e9, accounting: Accounting = Accounting.ZCDP
) -> tuple[Curator, Diary]:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=relation, accounting=accounting)
    diary: Diary = []
    records = records_of(case, tuple(universe_of(case.domain)[:3]))
    return Curator(WatchedCounter(records, diary), WatchedLedger(budget, diary), WatchedEntropy(diary)), diary


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("case", STATISTICS, ids=str)
def test_a_measurement_is_charged_its_sensitivity_before_anything_is_read(
    case: Case, relation: Neighbours
) -> None:
    moved = relation.sensitivity(case.subject.bound())
    curator, diary = curator_of(case, relation)
    variance = Fraction(9, 2) * max(1, moved.l2_squared // 10**6)  # what the budget of the test pays for
    noisy = curator.measure(case.subject, noise=Gaussian(variance))
    assert noisy.dtype == np.int64
    assert curator.ledger.events == (GaussianMeasurement(Fraction(moved.l2_squared), variance),)
    scale = Fraction(7, 3) * (1 + moved.l1 // 1_000)
    curator.measure(case.subject, noise=Laplace(scale))
    assert curator.ledger.events[1:] == (LaplaceMeasurement(Fraction(moved.l1), scale),)
    once = ["pay", "read", "draw"] if len(noisy) else ["pay", "read"]
    assert in_order(diary) == once * 2


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("case", SCORES, ids=str)
def test_a_selection_is_charged_its_range_before_anything_is_read(case: Case, relation: Neighbours) -> None:
    width, rate = case.subject.range(relation), Rate.below(0.01, 10**6)
    curator, diary = curator_of(case, relation)
    selected = curator.select(case.subject, rate=rate, draws=4)
    assert len(selected.queries) == len(selected.negated) == 4
    if width:
        assert curator.ledger.events == (Selection(width * rate.nats + SLACK, 4),)
        assert in_order(diary) == ["pay", "read", "draw"]
    else:
        assert selection_event(case.subject, relation, rate=rate, draws=4) is None
        assert curator.ledger.events == ()


def test_scores_beyond_their_bound_are_refused() -> None:
    with pytest.raises(ValueError, match="scores lie between"):
        products(MIXED, [-1, 1], [1, 0, -1.001])


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("case", [*STATISTICS, *SCORES], ids=str)
def test_what_is_refused_reads_nothing(case: Case, relation: Neighbours) -> None:
    curator, diary = curator_of(case, relation, epsilon=1e-3)
    if hasattr(case.subject, "bound"):
        moves = bool(relation.sensitivity(case.subject.bound()).l2_squared)
        verb = partial(curator.measure, case.subject, noise=Gaussian(Fraction(1)))
    else:
        moves = bool(case.subject.range(relation))
        verb = partial(curator.select, case.subject, rate=Rate.below(1, 10**6))
    if not moves:
        verb()  # what cannot move costs nothing, and nobody refuses it
        assert curator.ledger.spent().rho_units == 0
        return
    with pytest.raises(BudgetError, match="does not pay"):
        verb()
    assert diary == []
    assert curator.ledger.events == ()


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
def test_noise_is_fresh_and_around_the_truth(relation: Neighbours) -> None:
    case = STATISTICS[0]
    curator, _ = curator_of(case, relation)
    truth = case.subject.counts(records_of(case, tuple(universe_of(case.domain)[:3])))
    first, second = (curator.measure(case.subject, noise=Gaussian(Fraction(400))) for _ in range(2))
    assert not np.array_equal(first, second)
    assert np.abs(first - truth).max() < 20 * 8


def test_the_range_of_signed_errors_by_hand() -> None:
    assert signed_range(Neighbours.REPLACE, 5) == 10
    assert signed_range(Neighbours.ADD_REMOVE, 5) == 5
    tables = whole_tables(TWO_TABLES, CROSSED)
    assert [tables.range(relation) for relation in RELATIONS] == [4 * FINE, 2 * FINE]


def test_a_cell_that_is_named_twice_would_move_twice() -> None:
    for named in ([3, 3], [4, 3]):
        with pytest.raises(ValueError, match="once each"):
            NamedCells(np.array(named, np.uint64))
