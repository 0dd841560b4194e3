"""A question as an analyst writes it: a query, a whole table, `region by sex`, or the mean of a public number.

    question   = formula | table | "mean of" "[" numbers "]" "by" name { "by" name }
    table      = name "by" name { "by" name } | "by" name

A table over one attribute is `by region`, because a bare name is no condition. A column that is called `by` needs
quotes where it stands in a table. Numbers are those of the cells, in the schema's order (`means.py`). Of graphs,
points and codes a question is one cut, distance, look-up or list, in the language of its kind.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from math import prod
from threading import Lock
from typing import cast

from dualquery.errors import QueryError
from dualquery.queries.countable import Countable
from dualquery.queries.derived import InRecords
from dualquery.queries.families import grammar_of
from dualquery.queries.group import Group, NotProducts
from dualquery.queries.language.formula import Fault, Query, Token, pointing_at, tokens_of
from dualquery.queries.language.reader import Reader, to_groups
from dualquery.queries.language.units import unit_question
from dualquery.queries.language.vocabulary import attribute_text
from dualquery.queries.means import CellMeans, cells_of_table, numbers_text, read_numbers
from dualquery.queries.tables import Tables
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.types import Integers

MOST_CELLS = 20_000  # of a table that is asked for
LONGEST = 20_000  # characters of a question
_REMEMBERED = 4096


@dataclass(frozen=True)
class Question:
    """What is asked: a query, a query of another kind (`other`), or else the table over `members`.

    Equal where the text is.
    """

    domain: Domain
    query: Query | None
    members: tuple[int, ...]
    text: str  # canonical
    other: NotProducts | None = field(default=None, compare=False)

    @property
    def is_table(self) -> bool:
        return self.query is None and self.other is None

    @cached_property
    def group(self) -> Group:
        """The queries whose counts answer it: one, or one a cell."""
        if self.other is not None:
            return self.other
        if self.query is None:
            return Tables(self.domain, (self.members,))
        (group,) = to_groups(self.domain, [self.query])
        return group

    @cached_property
    def counted(self) -> Countable:
        """The same in whole records, which tests and measurements are about."""
        return self.group if self.group.unit == 1 else InRecords(self.group)

    @property
    def off(self) -> float:
        """How far whole records may lie from what is asked."""
        return 0.0 if self.group.unit == 1 else 0.5

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return tuple(int(self.domain.sizes[j]) for j in self.members)

    @property
    def cells(self) -> int:
        return prod(self.shape)

    @cached_property
    def attributes(self) -> tuple[str, ...]:
        return tuple(self.domain.name(j) for j in self.members)

    @property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """The values of each cell, one an attribute; nothing for a single query. Not kept: there may be many."""
        if not self.is_table:
            return ()
        return tuple(product(*(self.domain.column_of(j)[1].labels for j in self.members)))


class QuestionReader:
    """Reads questions about one domain, from many threads, and remembers the last few thousand."""

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self._reader = TableReader(domain)
        self._known: OrderedDict[str, Question] = OrderedDict()
        self._lock = Lock()

    def read(self, text: str) -> Question:
        """The question that a text asks; QueryError with the column of the fault where it asks none."""
        if len(text) > LONGEST:
            raise QueryError(f"a question has at most {LONGEST:,} characters; ask for less at once")
        with self._lock:
            known = self._known.get(text)
            if known is None:
                known = self._known[text] = self._read(text)
                if len(self._known) > _REMEMBERED:
                    self._known.popitem(last=False)
            return known

    def _read(self, text: str) -> Question:
        if self.domain.kind != "records":
            return self._of_kind(text)
        if (match := _MEAN.match(text)) is not None:
            return self._mean(match["numbers"], match["by"])
        members = self._reader.read_members(text)
        if members is None:
            query = self._reader.read(text)
            return Question(self.domain, query, (), query.text(self.domain))
        question = Question(self.domain, None, members, table_text(self.domain, members))
        if question.cells > MOST_CELLS:
            raise QueryError(
                f"this table has {question.cells:,} cells, and at most {MOST_CELLS:,} are answered at once; "
                "leave out an attribute"
            )
        return question

    def _of_kind(self, text: str) -> Question:
        """In the language of its kind. As it is written: a set of vertices may be long when it is written out."""
        grammar = grammar_of(self.domain)
        text = text.strip()
        if grammar.reads_file(text):
            raise QueryError(
                "a question that is asked one at a time names its records itself: write look-ups with | between them"
            )
        group = (
            unit_question(self.domain, text)
            if isinstance(self.domain, Database)
            else grammar.groups(self.domain, [text], ["the question"])[0]
        )
        return Question(self.domain, None, (), text, cast("NotProducts", group))

    def _mean(self, numbers: str, by: str) -> Question:
        members = self._reader.read_members(by, in_order=True)
        assert members is not None, "it begins with `by`"
        found, cells = read_numbers(numbers), cells_of_table(self.domain, members)
        if len(found) != cells:
            raise QueryError(
                f"this mean is by {cells:,} cells and has {len(found):,} numbers; give one for each cell"
            )
        text = mean_text(self.domain, members, found)
        return Question(self.domain, None, (), text, CellMeans(self.domain, members, found, text))


def mean_text(domain: Domain, members: tuple[int, ...], numbers: Integers) -> str:
    if len(numbers) > MOST_CELLS:
        raise QueryError(f"a mean is by at most {MOST_CELLS:,} cells; leave out an attribute")
    names = "".join(f" {BY} {_quoted(attribute_text(domain, j))}" for j in members)
    text = f"mean of [{numbers_text(numbers.tolist())}]{names}"
    if len(text) > LONGEST:
        raise QueryError(
            f"this mean is {len(text):,} characters long when it is written out, and {LONGEST:,} is the most; name "
            "fewer columns, or round its numbers"
        )
    return text


_MEAN = re.compile(r"\s*mean\s+of\s*\[(?P<numbers>[^\]]*)\]\s*(?P<by>by\b.*)", re.IGNORECASE | re.DOTALL)
BY = "by"


class TableReader(Reader):
    def read_members(self, text: str, *, in_order: bool = False) -> tuple[int, ...] | None:
        """The attributes of the table that a text asks for, increasing; None where it does not ask for a table.

        Where numbers stand in front of it they must be named `in_order`.
        """
        if BY not in text.lower():
            return None
        try:
            tokens = tokens_of(text)
            if not _asks_for_a_table(tokens):
                return None
            self._tokens, self._next = tokens, int(_is_by(tokens[0]))
            return self._members(in_order)
        except Fault as fault:
            raise QueryError(pointing_at(text, fault.column, str(fault), "")) from None

    def _members(self, in_order: bool) -> tuple[int, ...]:
        found: list[int] = []
        while True:
            column = self._token.column
            attribute = self._name()
            if attribute in found:
                raise Fault(column, f"'{self._domain.name(attribute)}' stands twice in this table")
            if in_order and found and attribute < found[-1]:
                raise Fault(column, "the attributes of a mean stand in the order of the schema")
            found.append(attribute)
            if self._token.kind == "end":
                return tuple(sorted(found))
            if not self._takes_word(BY):
                self._expected("'by' or the end of the question")


def table_text(domain: Domain, members: tuple[int, ...]) -> str:
    """A table in the language; `read_members` reads it back as the same table."""
    names = [_quoted(attribute_text(domain, j)) for j in members]
    return f" {BY} ".join(names) if len(names) > 1 else f"{BY} {names[0]}"


def _quoted(name: str) -> str:
    return f"'{name}'" if name.lower() == BY else name


def _is_by(token: Token) -> bool:
    return token.kind == "word" and token.text.lower() == BY


def _asks_for_a_table(tokens: list[Token]) -> bool:
    """Whether a `by` stands where a condition could not have it: behind a name, or in front of one."""
    names = ("word", "quoted")
    if _is_by(tokens[0]):
        return tokens[1].kind in names and tokens[1].text.lower() not in ("in", "is")
    if tokens[0].kind not in names:
        return False
    after = tokens[4] if len(tokens) > 4 and tokens[1].kind == "[" and tokens[3].kind == "]" else tokens[1]
    return _is_by(after)
