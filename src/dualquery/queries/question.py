"""A question as an analyst writes it: a query, or a whole table, `region by sex`.

    question   = formula | name "by" name { "by" name } | "by" name

A table over one attribute is `by region`, because a bare name is no condition. A column that is called `by` needs
quotes where it stands in a table.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from threading import Lock

from dualquery.errors import QueryError
from dualquery.queries.group import Group
from dualquery.queries.language.canonical import Query
from dualquery.queries.language.formula import Fault, Token, pointing_at, tokens_of
from dualquery.queries.language.reader import Reader, to_groups
from dualquery.queries.language.vocabulary import attribute_text
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain

MOST_CELLS = 20_000  # of a table that is asked for
LONGEST = 20_000  # characters of a question
_REMEMBERED = 4096


@dataclass(frozen=True)
class Question:
    """What is asked: the query, or where there is none the table over `members`. Equal where the text is."""

    domain: Domain
    query: Query | None
    members: tuple[int, ...]
    text: str  # canonical

    @property
    def is_table(self) -> bool:
        return self.query is None

    @cached_property
    def group(self) -> Group:
        """The queries whose counts answer it: one, or one a cell."""
        if self.query is None:
            return Tables(self.domain, (self.members,))
        (group,) = to_groups(self.domain, [self.query])
        return group

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The number of values along each attribute of a table."""
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
        if self.query is not None:
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


BY = "by"


class TableReader(Reader):
    """Reads queries, and tables too."""

    def read_members(self, text: str) -> tuple[int, ...] | None:
        """The attributes of the table that a text asks for, increasing; None where it does not ask for a table."""
        if BY not in text.lower():
            return None
        try:
            tokens = tokens_of(text)
            if not _asks_for_a_table(tokens):
                return None
            self._tokens, self._next = tokens, int(_is_by(tokens[0]))
            return self._members()
        except Fault as fault:
            raise QueryError(pointing_at(text, fault.column, str(fault), "")) from None

    def _members(self) -> tuple[int, ...]:
        found: list[int] = []
        while True:
            column = self._token.column
            attribute = self._name()
            if attribute in found:
                raise Fault(column, f"'{self._domain.name(attribute)}' stands twice in this table")
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
