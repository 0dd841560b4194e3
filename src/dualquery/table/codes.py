"""Tables of codes: columns whose values nobody lists, and records that are looked up as a whole.

docs/queries.md has the section [codes.columns]. The universe is every combination, 2^64 records and more: it is
never written out. A record lies in one *cell*, which has a number of 64 bits: the texts and numbers of the record,
mixed by a public function (`cells_of`). Two records may share a cell by accident (among a million looked-up records
with chance 10⁻⁷); cells still partition all records, so that no promise depends on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError, SchemaError
from dualquery.table.cells import distinct, texts_of
from dualquery.table.columns import Signed, unlisted
from dualquery.table.domain import Categorical, Column, Domain, Numeric
from dualquery.table.records import Records, smallest_type
from dualquery.table.toml_text import quoted
from dualquery.types import Words

LONGEST = 64  # characters of a text, at most
TEXT_BITS = 62
MOST_COLUMNS = 32
MOST_NUMBERS = 2**53  # the ends of a range: beyond it a float no longer tells whole numbers apart
_OPEN = ("any text",)  # stands for the values of a column that has no list


@dataclass(frozen=True)
class OpenText(Categorical):
    """Any text of at most so many characters; its code is 62 bits of its SHA-256."""

    longest: int = 16

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return unlisted(1 << TEXT_BITS)

    def codes_of(self, cells: pa.ChunkedArray, *, typed: bool) -> Signed:
        return open_codes(self, cells)

    def code(self, text: str) -> int | None:
        if not 0 < len(text) <= self.longest:
            return None
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - TEXT_BITS)

    @property
    def may_hold(self) -> str:
        return f"texts of 1 to {self.longest} characters"


@dataclass(frozen=True)
class WholeRange(Numeric):
    """Any whole number from edges[0] to edges[1]; its code is how far it lies above the first."""

    @property
    def low(self) -> int:
        return int(self.edges[0])

    @property
    def high(self) -> int:
        return int(self.edges[1])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return unlisted(self.high - self.low + 1)

    def codes_of(self, cells: pa.ChunkedArray, *, typed: bool) -> Signed:
        return open_codes(self, cells)

    def code(self, text: str) -> int | None:
        """The code of a number that is written in decimals; None where it is none, or out of range."""
        digits = text.strip().removesuffix(".0")
        if not digits.removeprefix("-").isdecimal() or len(digits) > 17:
            return None
        return int(digits) - self.low if self.low <= int(digits) <= self.high else None

    @property
    def may_hold(self) -> str:
        return f"whole numbers from {self.low} to {self.high}"


Open = OpenText | WholeRange


def open_codes(column: Open, cells: pa.ChunkedArray) -> NDArray[np.int64]:
    held = distinct(cells, column.name)
    codes = [None if text is None else column.code(text) for text in texts_of(held.values, column.name)]
    if None in codes or (held.index == len(codes)).any():
        raise DataError(
            f"column '{column.name}' holds cells other than {column.may_hold}; "
            "correct them, or widen it in the schema"
        )
    return np.array(codes, np.int64)[held.index]


@dataclass(frozen=True)
class CodeTable(Domain):
    kind = "codes"

    @property
    def open_columns(self) -> tuple[Open, ...]:
        return cast("tuple[Open, ...]", self.columns)

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """The number of values of each column, or the largest number that fits."""
        most = np.iinfo(np.int32).max
        return np.array([min(len(column.labels), most) for column in self.columns], np.int32)

    @property
    def log2_size(self) -> float:
        return float(sum(np.log2(float(len(column.labels))) for column in self.columns))

    def records(self, texts: NDArray[np.str_]) -> Records:
        """Public records from their texts, which can occur: a row each."""
        codes = [
            np.array([column.code(text) for text in texts[:, j].tolist()], smallest_type(len(column.labels)))
            for j, column in enumerate(self.open_columns)
        ]
        return Records(self, len(texts), tuple(codes))

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> CodeTable:
        if columns or set(section) != {"columns"} or not isinstance(section["columns"], dict):
            raise SchemaError(
                "a table of [codes] has one section, [codes.columns], with a line for each column, like "
                "icd = {text = 16}"
            )
        return codes_table({name: _column(name, given) for name, given in section["columns"].items()})

    def sections(self, write: Callable[[Column], str]) -> list[str]:
        lines = ["[codes.columns]"]
        for column in self.open_columns:
            said = (
                f"{{text = {column.longest}}}"
                if isinstance(column, OpenText)
                else f"{{from = {column.low}, to = {column.high}}}"
            )
            lines.append(f"{quoted(column.name)} = {said}")
        return ["\n".join(lines)]


def cells_of(columns: Sequence[NDArray[np.unsignedinteger]], rows: int) -> Words:
    """The cell of each record, from the codes of its columns: mixed one after the other (splitmix64)."""
    cells = np.full(rows, 0x9E3779B97F4A7C15, np.uint64)
    with np.errstate(over="ignore"):
        for codes in columns:
            z = (cells * np.uint64(0xD1342543DE82EF95)) ^ codes.astype(np.uint64)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            cells = z ^ (z >> np.uint64(31))
    return cells


def codes_table(columns: Mapping[str, int | tuple[int, int]]) -> CodeTable:
    """A table of codes from its columns: the longest text of each, or the ends of a range of whole numbers."""
    made: list[Column] = []
    for name, given in columns.items():
        if isinstance(given, int):
            if not 1 <= given <= LONGEST:
                raise SchemaError(f"[codes.columns]: '{name}' may have texts of 1 to {LONGEST} characters")
            made.append(OpenText(name, _OPEN, longest=given))
        else:
            low, high = given
            if not -MOST_NUMBERS <= low < high <= MOST_NUMBERS:
                raise SchemaError(f"[codes.columns]: '{name}' needs from < to, both within ±2^53")
            made.append(WholeRange(name, (float(low), float(high)), integer=True))
    if not 1 <= len(made) <= MOST_COLUMNS:
        raise SchemaError(f"[codes.columns] needs 1 to {MOST_COLUMNS} columns, like icd = {{text = 16}}")
    return CodeTable(tuple(made))


def _column(name: str, given: object) -> int | tuple[int, int]:
    whole = isinstance(given, dict) and all(type(each) is int for each in given.values())
    if whole and isinstance(given, dict):
        if set(given) == {"text"}:
            return cast("int", given["text"])
        if set(given) == {"from", "to"}:
            return given["from"], given["to"]
    raise SchemaError(
        f"[codes.columns]: '{name}' should read like {name} = {{text = 16}} or {name} = {{from = 1900, to = 2030}}"
    )
