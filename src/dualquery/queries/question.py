"""A question as an analyst writes it: a query, a whole table, `region by sex`, or the mean of a public number.

    question   = formula | table | "mean of" "[" numbers "]" "by" name { "by" name }
    table      = name "by" name { "by" name } | "by" name

A table over one attribute is `by region`, because a bare name is no condition. A column that is called `by` needs
quotes where it stands in a table. Of graphs, points and codes a question is one cut, distance, look-up or list, in
the language of its kind. A mean of a public number over a few attributes is a statistical query, E f(x) with f from
0 to 1:

    mean of [0, 0.25, 1*3] by region       one number for each value of region, in the schema's order; 1*3 is 1, 1, 1
    mean of [0*4, 0.5*4] by sex by region  for each cell of a table, the last attribute running fastest

A record adds the number of its cell, in millionths: 0 to `UNIT`. `numbers_of` makes them of a Python function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import groupby, product
from math import prod
from threading import Lock
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.derived import InRecords
from dualquery.queries.families import grammar_of
from dualquery.queries.group import Digest, Group, NotProducts, padded
from dualquery.queries.language import attribute_text, unknown_name
from dualquery.queries.language.formula import Fault, Query, Token, pointing_at, tokens_of
from dualquery.queries.language.reader import Reader, to_groups
from dualquery.queries.language.units import unit_question
from dualquery.queries.statistics import Countable, Derived
from dualquery.queries.tables import Tables
from dualquery.table.database import Database
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.records import Records
from dualquery.types import Integers, Ints

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
        self._known = lru_cache(_REMEMBERED)(self._read)
        self._lock = Lock()

    def read(self, text: str) -> Question:
        """The question that a text asks; QueryError with the column of the fault where it asks none."""
        if len(text) > LONGEST:
            raise QueryError(f"a question has at most {LONGEST:,} characters; ask for less at once")
        with self._lock:
            return self._known(text)

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
            self.begin(tokens, int(_is_by(tokens[0])))
            return self._members(in_order)
        except Fault as fault:
            raise QueryError(pointing_at(text, fault.column, str(fault), "")) from None

    def _members(self, in_order: bool) -> tuple[int, ...]:
        found: list[int] = []
        while True:
            column = self.token.column
            attribute = self._name()
            if attribute in found:
                raise Fault(column, f"'{self._domain.name(attribute)}' stands twice in this table")
            if in_order and found and attribute < found[-1]:
                raise Fault(column, "the attributes of a mean stand in the order of the schema")
            found.append(attribute)
            if self.token.kind == "end":
                return tuple(sorted(found))
            if not self.takes("word", BY):
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


UNIT = 1_000_000
_NUMBER = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(?:\*\s*(\d{1,9})\s*)?")
LIKE = "numbers from 0 to 1 with commas between them, each with its repetitions, like [0, 0.25, 1*3]"


@dataclass(frozen=True, eq=False)
class CellMeans(NotProducts, Derived):
    """One query: the number of the cell that a record lies in, of the table over `members`."""

    domain: Domain
    members: tuple[int, ...]
    numbers: Integers  # one a cell, 0 to UNIT
    said: str

    size = 1
    unit = UNIT
    noun = "means of a number"

    @cached_property
    def table(self) -> Tables:
        return Tables(self.domain, (self.members,))

    def counted(self) -> Tables:
        return self.table

    def of(self, counts: Integers, rows: int) -> Integers:
        return np.array([counts @ self.numbers], np.int64)

    def scope(self) -> Ints:
        return padded([self.members])

    def take(self, indices: Integers) -> CellMeans:
        return self

    def describe(self, digest: Digest) -> None:
        digest.add_integers("mean by", np.array(self.members, np.int64))
        digest.add_integers("of millionths", self.numbers)

    def texts(self, indices: Integers) -> list[str]:
        return [self.said for _ in indices]

    def changed(self, rows: Records, *, more: bool) -> Records:
        """Rows, moved into the cells with the largest number, or with the smallest."""
        best = self.numbers.max() if more else self.numbers.min()
        cells = np.resize(np.flatnonzero(self.numbers == best), rows.rows)
        codes = rows.to_rows()
        shape = [int(self.domain.sizes[j]) for j in self.members]
        for j, column in zip(self.members, np.unravel_index(cells, shape), strict=True):
            codes[:, j] = column
        return Records.from_rows(self.domain, codes)


def read_numbers(text: str) -> Integers:
    """Millionths, of what stands between the brackets."""
    found: list[int] = []
    for part in text.split(","):
        match = _NUMBER.fullmatch(part)
        if match is None or float(match[1]) > 1:
            raise QueryError(f"write the values of a mean between brackets: {LIKE}")
        found += [round(float(match[1]) * UNIT)] * min(int(match[2] or 1), UNIT)
        if len(found) > UNIT:
            raise QueryError(f"a mean has at most {UNIT:,} numbers")
    return np.array(found, np.int64)


def numbers_text(numbers: Sequence[int]) -> str:
    """The shortest text that `read_numbers` reads as these."""
    parts = []
    for number, run in groupby(numbers):
        times = len(list(run))
        parts.append(f"{number / UNIT:.6f}".rstrip("0").rstrip(".") + (f"*{times}" if times > 1 else ""))
    return ", ".join(parts)


def cells_of_table(domain: Domain, members: Sequence[int]) -> int:
    return prod(int(domain.sizes[j]) for j in members)


def numbers_of(
    domain: Domain, function: Callable[..., Any], columns: Sequence[str] | None, *, most: int
) -> tuple[tuple[int, ...], Integers]:
    """The attributes that a public function of some columns reads, increasing, and its number for each cell.

    It is called once, with an array for each column, and never sees a record. Beyond 0 and 1 it is clipped.
    """
    if domain.kind != "records":
        raise QueryError(f"a mean is asked of a table of records, and this is a table of {domain.kind}")
    asked = _attributes(domain, _arguments(function) if columns is None else columns)
    members = tuple(sorted(asked))
    cells = cells_of_table(domain, members)
    if cells > most:
        raise QueryError(
            f"these columns have {cells:,} combinations of values, and at most {most:,} are asked about; name fewer "
            "columns"
        )
    places = np.unravel_index(np.arange(cells), [int(domain.sizes[j]) for j in members])
    given = dict(zip(members, places, strict=True))
    try:
        found = np.asarray(function(*(values_of(domain, j)[given[j]] for j in asked)))
    except Exception as problem:
        raise QueryError(
            f"the function raised {type(problem).__name__} ({problem}); it is called with an array for each column"
        ) from None
    if found.dtype.kind not in "biuf":
        raise QueryError("the function must return numbers from 0 to 1")
    if found.shape != (cells,):
        raise QueryError(
            f"the function must return an array with one number for each of the {cells:,} values that it is given; "
            "write np.where(...) instead of if"
        )
    if not np.isfinite(found).all():
        raise QueryError(
            "the function returns a number that is not finite; a missing number is given to it as NaN"
        )
    return members, np.rint(np.clip(found, 0, 1) * UNIT).astype(np.int64)


def _arguments(function: Callable[..., Any]) -> list[str]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        raise QueryError("name the columns that the function reads: columns=[...]") from None
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [
        each.name for each in found if each.kind in positional and each.default is inspect.Parameter.empty
    ]


def _attributes(domain: Domain, names: Sequence[str]) -> list[int]:
    found: list[int] = []
    for name in [names] if isinstance(names, str) else names:
        attribute = domain.find(str(name))
        if attribute is None:
            raise QueryError(
                f"{unknown_name(domain, str(name))}; a function names columns, or columns=[...] does"
            )
        if attribute in found:
            raise QueryError(f"'{name}' is named twice")
        found.append(attribute)
    if not found:
        raise QueryError(
            "the function reads nothing: let its arguments be names of columns, or name them by columns=[...]"
        )
    return found


def values_of(domain: Domain, attribute: int) -> NDArray[Any]:
    """What a function is given for each code: the label, the middle of a bin (NaN: missing), 0 or 1 of an item."""
    column = domain.column_of(attribute)[1]
    if isinstance(column, Items):
        return np.arange(2)
    if isinstance(column, Categorical) and column.numeric:
        return column.numbers
    if not isinstance(column, Numeric) or isinstance(column, Dates):
        return np.array(column.labels)
    low, high = column.bounds()
    middle = (low + high) / 2 / 10 ** (column.decimals or 0)
    return np.append(middle, [np.nan] * (len(column.labels) - len(middle)))
