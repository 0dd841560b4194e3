"""What is counted of units and the rows that hang on them: views, tallies, and questions about units.

A *view* is one row of a child table together with its unit, or two different rows of one unit in order (where rows
have an order of their own, `Linked.order`: a row and the next one). A unit with E of them gives each the weight ⌊L ·
min(1, c/E)/c⌋, so that all of them together weigh at most L. What a unit adds to a sum over the view is then Σ w
φ(x) with w ≥ 0 and Σ w ≤ L: a point of L times the hull of 0 and of what single records add. A norm is largest at a
corner of a hull, so that a unit that is added or removed moves the sum by at most L · `alone` of one flat record,
and one that becomes another by at most L · max(`alone`, `apart`), however many rows hang on it. Where c is large,
each row counts alike, and where it is small, units do; `c` is public.

*Tallies* are of another kind: how many units have exactly k rows of a value, or of a pair of values. A unit with m
rows has rows in at most t = min(m, V) of V cells. It counts ⌊L · √(min(1, c/t)/c)⌋ for each, c at most V: its length
is at most L.

*Questions* are about how many of the rows that hang on a unit satisfy something.

    any(f)                 n_f ≥ 1                  all(f)     n_¬f = 0
    count(person where f) >= k                      n_f ≥ k

where n_f is the number of rows of one child table that satisfy f, a query about one row and its unit. So every such
condition is one on a further attribute of the unit, n_f, with the values 0 to `at_most`; a question is a product of
conditions on these and on the attributes that the unit has anyway, or the complement of one, like any other query.

A unit adds 0 or 1 to each question: it moves one of them by at most 1, whatever hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isqrt, prod
from typing import cast

import numpy as np
from numpy.typing import NDArray

from dualquery.queries import language
from dualquery.queries.derived import Interactions
from dualquery.queries.group import Digest, Group, NotProducts
from dualquery.queries.language.formula import Literal, Query
from dualquery.queries.language.reader import to_groups
from dualquery.queries.statistics import NOTHING, Bound, Derived
from dualquery.queries.tables import Tables
from dualquery.table.columns import Categorical
from dualquery.table.database import Database, Linked
from dualquery.table.domain import Domain
from dualquery.table.records import Codes, ColumnCodes, Records, smallest_type
from dualquery.table.units import Members, Units
from dualquery.types import Flags, Integers, Ints, Set

WHOLE = 1_000  # L
MOST_PAIRED = 16  # rows of a unit that are looked at in pairs: the first ones, whose order is a unit's own
MOST_TALLIED, MOST_OF_PAIRS = 12, 2  # rows of a value, and of a pair of values; more are counted as so many
_AT_ONCE = 1 << 19  # weighted records


@dataclass(frozen=True)
class View:
    """One row of a child table (`slots` 1) or two in order (2), each with its unit; c of them count in full."""

    database: Database
    child: str
    slots: int
    c: int

    @cached_property
    def domain(self) -> Domain:
        """Of the flat records: the columns of the unit, and those of the child table once or twice."""
        made = self.database.view_domain if self.slots == 1 else self.database.pair_domain
        return made(self.child)

    @cached_property
    def number(self) -> Integers:
        """E of a unit with 0, 1, 2, … rows."""
        rows = np.arange(self.database.child(self.child).at_most + 1)
        paired = np.minimum(rows, MOST_PAIRED)
        if self.chained:
            return np.maximum(rows - 1, 0)
        return rows if self.slots == 1 else paired * (paired - 1)

    @property
    def chained(self) -> bool:
        """Whether a record is a row and the next one."""
        return self.slots == 2 and self.database.child(self.child).order is not None

    @cached_property
    def weights(self) -> Integers:
        """What each flat record of a unit with 0, 1, 2, … rows weighs."""
        most = np.maximum(self.number, 1)
        return WHOLE * np.minimum(most, self.c) // (most * self.c)

    def bound_of(self, flat: Bound) -> Bound:
        """How far a unit moves what one flat record moves so far."""
        whole = int((self.number * self.weights).max())
        apart = max(flat.alone[0], flat.apart[0]), max(flat.alone[1], flat.apart[1])
        return Bound(flat.alone, apart, flat.each).times(whole)

    @property
    def words(self) -> str:
        return self.child if self.slots == 1 else f"pairs of {self.child}"

    def mass(self, units: Records) -> float:
        """What all flat records of a unit weigh on average."""
        weighed = (self.number * self.weights)[self.members(units).sizes]
        return float(weighed.mean()) / WHOLE if len(weighed) else 0.0

    def members(self, units: Records) -> Members:
        return cast("Units", units).members[self.database.place(self.child)]

    def blocks(self, units: Records) -> Iterator[tuple[Records, Integers]]:
        """The flat records of some units with their weights, some units at a time."""
        members = self.members(units)
        sizes = members.sizes
        number = self.number[sizes]
        ends = np.cumsum(number)
        first = 0
        while first < units.rows:
            done = ends[first - 1] if first else 0
            last = max(first + 1, int(np.searchsorted(ends, done + _AT_ONCE, side="right")))
            some = np.arange(first, last)
            owner = np.repeat(some, number[some])
            place = np.arange(len(owner)) + done - (ends - number)[owner]
            yield self._records(units, members, owner, place), self.weights[sizes[owner]]
            first = last

    def _records(self, units: Records, members: Members, owner: Integers, place: Integers) -> Records:
        if self.slots == 1:
            rows = [members.start[owner] + place]
        elif self.chained:
            rows = [members.start[owner] + place, members.start[owner] + place + 1]
        else:
            others = np.minimum(members.sizes, MOST_PAIRED)[owner] - 1
            one, two = np.divmod(place, np.maximum(others, 1))
            rows = [members.start[owner] + one, members.start[owner] + two + (two >= one)]
        of_unit = [cast("NDArray[np.unsignedinteger]", codes)[owner] for codes in units.columns]
        of_rows = [
            cast("NDArray[np.unsignedinteger]", codes)[each]
            for each in rows
            for codes in members.records.columns
        ]
        return Records(self.domain, len(owner), (*of_unit, *of_rows))


@dataclass(frozen=True)
class ViewTables:
    """Every cell of tables over some attributes of a view, each flat record counting as much as it weighs."""

    view: View
    sets: tuple[Set, ...]

    @cached_property
    def tables(self) -> Tables:
        return Tables(self.view.domain, self.sets)

    @property
    def starts(self) -> Integers:
        return self.tables.starts

    def counts(self, units: Records) -> Integers:
        total = np.zeros(self.tables.size, np.int64)
        for records, weights in self.view.blocks(units):
            total += self.tables.counts(records, weights)
        return total

    def bound(self) -> Bound:
        return self.view.bound_of(self.tables.bound())


@dataclass(frozen=True)
class ViewInteractions(Derived):
    """Interactions of a view."""

    view: View
    interactions: Interactions

    def counted(self) -> ViewTables:
        return ViewTables(self.view, self.interactions.sets)

    def of(self, counts: Integers, rows: int) -> Integers:
        return self.interactions.of(counts, rows)

    def bound(self) -> Bound:
        return self.view.bound_of(self.interactions.bound())


@dataclass(frozen=True)
class Tallies:
    """For some sets of attributes of a child table, each times a whole number of its own: weighted units with exactly
    k ≥ 1 rows of a cell, k fastest. Units with more than `most` such rows are counted with those that have so many.
    """

    database: Database
    child: str
    sets: tuple[Set, ...]
    multipliers: tuple[int, ...]
    c: int

    @cached_property
    def table(self) -> Linked:
        return self.database.child(self.child)

    def shape(self, members: Set) -> tuple[int, ...]:
        """The values of the attributes, and the largest k."""
        most = MOST_TALLIED if len(members) == 1 else MOST_OF_PAIRS
        return (*(int(self.table.domain.sizes[a]) for a in members), min(self.table.at_most, most))

    def weights(self, members: Set) -> Integers:
        """What a unit with 0, 1, 2, … rows counts in each of its cells."""
        values = prod(self.shape(members)[:-1])
        c = min(self.c, values)
        cells = (min(max(m, 1), values) for m in range(self.table.at_most + 1))
        return np.array([isqrt(WHOLE**2 * min(t, c) // (t * c)) for t in cells], np.int64)

    def counts(self, units: Records) -> Integers:
        parts = []
        for attributes, multiplier in zip(self.sets, self.multipliers, strict=True):
            cells = np.zeros(prod(self.shape(attributes)), np.int64)
            _, cell, weights = self.held(units, attributes)
            np.add.at(cells, cell, weights)
            parts.append(multiplier * cells)
        return np.concatenate(parts)

    def held(self, units: Records, attributes: Set) -> tuple[Integers, Integers, Integers]:
        """What units add to the tallies of a set: the unit, the cell, how much."""
        members = cast("Units", units).members[self.database.place(self.child)]
        *sizes, most = self.shape(attributes)
        code, values = members.owner, prod(sizes)
        for a, size in zip(attributes, sizes, strict=True):
            code = code * size + cast("NDArray[np.unsignedinteger]", members.records.columns[a])
        held, many = np.unique(code, return_counts=True)
        unit, cell = np.divmod(held, values)
        return unit, cell * most + np.minimum(many, most) - 1, self.weights(attributes)[members.sizes[unit]]

    def bound(self) -> Bound:
        """Of a set t · w and t · w² of the unit where these are largest; two units may share no cell."""
        return sum(map(self._bound_of, self.sets, self.multipliers), NOTHING)

    def _bound_of(self, members: Set, multiplier: int) -> Bound:
        rows = np.arange(1, self.table.at_most + 1)
        cells, weight = np.minimum(rows, prod(self.shape(members)[:-1])), self.weights(members)[1:]
        l1, l2_squared = int((cells * weight).max()), int((cells * weight**2).max())
        return Bound((l1, l2_squared), (2 * l1, 2 * l2_squared)).times(multiplier)

    def split(self, numbers: Integers) -> list[Integers]:
        """The numbers of each set, one axis an attribute, and k."""
        shapes = list(map(self.shape, self.sets))
        ends = np.cumsum(list(map(prod, shapes)))[:-1]
        return [part.reshape(shape) for part, shape in zip(np.split(numbers, ends), shapes, strict=True)]


@dataclass(frozen=True)
class Counted(Categorical):
    """The attribute n_f of a unit: how many of its rows in a child table satisfy a query about one of them."""

    database: Database | None = None
    child: str = ""
    query: Query = Query(())  # over `Database.view_domain`; without literals every row satisfies it

    @staticmethod
    def of(database: Database, child: str, query: Query) -> Counted:
        where = f" where {query.text(database.view_domain(child))}" if query.literals else ""
        values = tuple(map(str, range(database.child(child).at_most + 1)))
        name = f"count({child}{where})"
        return Counted(name, values, numeric=True, database=database, child=child, query=query)

    def words(self, accepted: int) -> str:
        assert self.database is not None
        domain, everything = self.database.view_domain(self.child), language.everything(self)
        if self.query.literals and accepted == everything ^ 1:
            return f"any({self.query.text(domain)})"
        if self.query.literals and accepted == 1:
            return f"all({negated(self.query).text(domain)})"
        return language.text_of_codes(self, self.name, accepted)

    def codes(self, units: Units) -> Codes:
        """n_f of each unit, in a time that the question and the number of rows decide."""
        assert self.database is not None
        members = units.members[self.database.place(self.child)]
        owner, own = members.owner, len(units.columns)

        def column(attribute: int) -> ColumnCodes:
            if attribute >= own:
                return members.records.columns[attribute - own]
            codes = units.columns[attribute]
            assert isinstance(codes, np.ndarray)
            return codes[owner]

        satisfied = held(self.query, column, self.database.view_domain(self.child).sizes, len(owner))
        before = np.concatenate([[0], np.cumsum(satisfied)])
        number = before[members.start[1:]] - before[members.start[:-1]]
        return number.astype(smallest_type(len(self.values)))


def negated(query: Query) -> Query:
    """The query that holds where this one does not."""
    if len(query.literals) == 1:
        (literal,) = query.literals
        return Query((literal._replace(negated=not literal.negated),))
    return Query(query.literals, not query.complement)


def held(query: Query, column: Callable[[int], ColumnCodes], sizes: Ints, rows: int) -> Flags:
    """Which of some records satisfy a query, of whose attributes the codes are given."""
    out = np.ones(rows, np.bool_)
    for attribute, values, flipped in query.literals:
        accepted = np.zeros(int(sizes[attribute]), np.bool_)
        accepted[list(values)] = True
        codes = column(attribute)
        assert isinstance(codes, np.ndarray), "a database has no blocks of items"
        out &= accepted[codes] != flipped
    return out != query.complement


@dataclass(frozen=True, eq=False)
class OverUnits(NotProducts):
    """Queries about units, over their attributes and, behind them, those of `counted`."""

    domain: Database
    queries: tuple[Query, ...]
    counted: tuple[Counted, ...]

    noun = "questions with any, all or count"

    @property
    def size(self) -> int:
        return len(self.queries)

    @cached_property
    def wide(self) -> Domain:
        """The attributes of the units, and the numbers that are asked about."""
        return Domain((*self.domain.columns, *self.counted))

    @cached_property
    def _asked(self) -> tuple[Group, ...]:
        return to_groups(self.wide, self.queries)

    def counts(self, records: Records) -> Integers:
        wide = self._widened(records)
        return np.concatenate([np.zeros(0, np.int64), *(group.counts(wide) for group in self._asked)])

    def _widened(self, records: Records) -> Records:
        assert isinstance(records, Units), "questions about units are counted over units"
        numbers = [each.codes(records) for each in self.counted]
        return Records(self.wide, records.rows, (*records.columns, *numbers))

    def given(self, records: Records) -> Integers:
        wide = self._widened(records)
        return held(self.queries[0], lambda j: wide.columns[j], self.wide.sizes, wide.rows).astype(np.int64)

    def bound(self) -> Bound:
        """A unit is one record over its attributes and the numbers of its rows: what that one moves, it moves."""
        return sum((group.bound() for group in self._asked[1:]), self._asked[0].bound())

    def most_satisfied(self) -> int:
        return sum(group.most_satisfied() for group in self._asked)

    def most_differing(self) -> int:
        return sum(group.most_differing() for group in self._asked)

    @property
    def orders(self) -> Integers:
        """How many attributes each question is about, those of the rows among them."""
        own = self.domain.width

        def order(query: Query) -> int:
            parts = [
                1 if literal.attribute < own else len(self.counted[literal.attribute - own].query.literals)
                for literal in query.literals
            ]
            return max(1, sum(parts))

        return np.array([order(query) for query in self.queries], np.int64)

    @property
    def numbers(self) -> list[list[tuple[Counted, Literal]]]:
        """Of each question the numbers of rows that it asks about, and what it asks of them."""
        own = self.domain.width
        return [
            [(self.counted[each.attribute - own], each) for each in query.literals if each.attribute >= own]
            for query in self.queries
        ]

    def take(self, indices: Integers) -> OverUnits:
        return OverUnits(self.domain, tuple(self.queries[i] for i in indices.tolist()), self.counted)

    def texts(self, indices: Integers) -> list[str]:
        return [self.queries[i].text(self.wide) for i in indices.tolist()]

    def describe(self, digest: Digest) -> None:
        texts = self.texts(np.arange(self.size, dtype=np.int64))
        digest.add_text("questions about units", "\n".join(texts))


def over_units(database: Database, asked: Sequence[tuple[Query, tuple[Counted, ...]]]) -> OverUnits:
    """Queries that were read one by one, each over the numbers that it asks about, as a group over all of these."""
    counted = {each.name: each for _, numbers in asked for each in numbers}
    names = sorted(counted)
    queries = []
    for query, numbers in asked:
        place = {database.width + i: names.index(each.name) for i, each in enumerate(numbers)}
        literals = [
            literal._replace(attribute=database.width + place[literal.attribute])
            if literal.attribute in place
            else literal
            for literal in query.literals
        ]
        queries.append(Query(tuple(sorted(literals)), query.complement))
    return OverUnits(database, tuple(queries), tuple(counted[name] for name in names))
