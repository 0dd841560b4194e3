"""Questions about units of a database: how many of the rows that hang on a unit satisfy something.

    any(f)                 n_f ≥ 1                  all(f)     n_¬f = 0
    count(person where f) >= k                      n_f ≥ k

where n_f is the number of rows of one child table that satisfy f, a query about one row and its unit. So every such
condition is one on a further attribute of the unit, n_f, with the values 0 to `at_most`; a question is a product of
conditions on these and on the attributes that the unit has anyway, or the complement of one, like any other query.

A unit adds 0 or 1 to each question: it moves one of them by at most 1, whatever hangs on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.countable import Bound
from dualquery.queries.group import Digest, Group, NotProducts
from dualquery.queries.language import vocabulary
from dualquery.queries.language.canonical import Query
from dualquery.queries.language.reader import to_groups
from dualquery.table.columns import Categorical
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.table.records import Codes, ColumnCodes, Records, smallest_type
from dualquery.table.units import Units
from dualquery.types import Integers


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
        domain, everything = self.database.view_domain(self.child), vocabulary.everything(self)
        if self.query.literals and accepted == everything ^ 1:
            return f"any({self.query.text(domain)})"
        if self.query.literals and accepted == 1:
            return f"all({negated(self.query).text(domain)})"
        return vocabulary.text_of_codes(self, self.name, accepted)

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


def held(
    query: Query, column: Callable[[int], ColumnCodes], sizes: NDArray[np.int32], rows: int
) -> NDArray[np.bool_]:
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

    def take(self, indices: NDArray[np.int64]) -> OverUnits:
        return OverUnits(self.domain, tuple(self.queries[i] for i in indices.tolist()), self.counted)

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
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
