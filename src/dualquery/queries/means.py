"""Means of a public number over a few attributes: what a statistical query asks for, E f(x) with f from 0 to 1.

    mean of [0, 0.25, 1*3] by region       one number for each value of region, in the schema's order; 1*3 is 1, 1, 1
    mean of [0*4, 0.5*4] by sex by region  for each cell of a table, the last attribute running fastest

A record adds the number of its cell, in millionths: 0 to `UNIT`. `numbers_of` makes them of a Python function.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.countable import Derived
from dualquery.queries.group import Digest, NotProducts, padded
from dualquery.queries.language.vocabulary import unknown_name
from dualquery.queries.tables import Tables
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.records import Records
from dualquery.types import Integers

UNIT = 1_000_000
_NUMBER = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*(?:\*\s*(\d{1,9})\s*)?")
LIKE = "numbers from 0 to 1 with commas between them, each with its repetitions, like [0, 0.25, 1*3]"


@dataclass(frozen=True, eq=False)
class CellMeans(NotProducts, Derived):
    """One query: the number of the cell that a record lies in, of the table over `members`."""

    domain: Domain
    members: tuple[int, ...]
    numbers: NDArray[np.int64]  # one a cell, 0 to UNIT
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

    def scope(self) -> NDArray[np.int32]:
        return padded([self.members])

    def take(self, indices: NDArray[np.int64]) -> CellMeans:
        return self

    def describe(self, digest: Digest) -> None:
        digest.add_integers("mean by", np.array(self.members, np.int64))
        digest.add_integers("of millionths", self.numbers)

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
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
    place = 0
    while True:
        match = _NUMBER.match(text, place)
        if match is None or float(match[1]) > 1:
            raise QueryError(f"write the values of a mean between brackets: {LIKE}")
        found += [round(float(match[1]) * UNIT)] * min(int(match[2] or 1), UNIT)
        place = match.end()
        if len(found) > UNIT:
            raise QueryError(f"a mean has at most {UNIT:,} numbers")
        if place == len(text):
            return np.array(found, np.int64)
        if text[place] != ",":
            raise QueryError(f"write the values of a mean between brackets: {LIKE}")
        place += 1


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
