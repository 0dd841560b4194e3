"""The kinds of columns a table may have: categories here, numbers (`numbers`) and dates (`dates`), blocks of items.

A column knows how it stands in a schema file (`read`, `entries`; docs/schema.md), what no table could be encoded with
(`check`), how its cells become codes (`encode`) and codes become readable cells that encode to the same codes again
(`decode`).

*Missing is one thing.* A cell is missing where the source has null, NaN, nothing or blanks, one of the texts listed
in `empty`, or the label of missing cells itself. With `missing` (a label) such a cell has a code of its own,
`missing_code`; it has no rank, and it comes back as null. Without, it is an error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise
from typing import Any, cast, overload

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError, SchemaError
from dualquery.table.cells import (
    TYPED,
    by_kind,
    distinct,
    from_numpy,
    from_texts,
    has_padding,
    is_mixed,
    looked_up,
    near_numbers,
    number_in,
    signed_type,
    spellings,
    texts_of,
    without_padding,
)
from dualquery.table.toml_text import listed, only, optional, quoted, required, text, texts, truth, whole

Signed = NDArray[np.signedinteger]

MOST_WHOLE = 2**53  # past it a float no longer tells neighbouring integers apart
MISSING = "missing"  # the label where nobody says another
OF_NUMBERS = {
    "name", "clamp", "missing", "empty", "unknown", "integer", "decimals", "exact", "decimal_comma", "currency",
    "spread",
}  # fmt: skip
KEYS = {
    "values": {"name", "values", "unknown", "missing", "empty", "ordered", "numeric"},
    "edges": OF_NUMBERS | {"edges"},
    "bins": OF_NUMBERS | {"low", "high", "bins"},
    "by": {"name", "from", "to", "by", "format", "clamp", "missing", "empty", "unknown"},
    "count": {"name", "count", "first"},
}


class Unplaced(IntEnum):
    """Why a cell has no code."""

    EMPTY = -1
    OUTSIDE = -2
    NOT_A_NUMBER = -3


class Attribute(ABC):
    """A column with one code per record: what categories and numbers have in common.

    Encoding goes by the distinct cells of a column: each is looked up once, then all rows at once.
    """

    name: str
    missing: str | None
    empty: tuple[str, ...]

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """The printed value of each code."""

    @property
    @abstractmethod
    def missing_code(self) -> int | None:
        """The code of missing cells, where they have one."""

    def encode(self, cells: pa.ChunkedArray, *, typed: bool = False) -> Signed:
        """The code of each cell; with `typed` texts write numbers and dates that are in no notation of texts."""
        codes = self.placed(cells, typed=typed)
        if (worst := int(codes.min(initial=0))) < 0:
            if (other := self.other_code) is None:
                raise DataError(f"column '{self.name}' {self.advice(Unplaced(worst))}")
            codes = np.where(codes < 0, other, codes.astype(np.int64))
        return codes

    def placed(self, cells: pa.ChunkedArray, *, typed: bool = False) -> Signed:
        """The same, with the reason (`Unplaced`) where a cell has no code."""
        if is_mixed(cells.type):
            codes = np.zeros(len(cells), self.code_type)
            for kind, rows, part in by_kind(cells):
                codes[rows] = self.placed(part, typed=kind == TYPED)
            return codes
        near = near_numbers(cells)
        if near is None and (known := self.codes_of_typed(cells)) is not None:
            return known
        held = near or distinct(cells, self.name)
        written = texts_of(held.values, self.name)
        if self.empty:
            written = [None if each is not None and each.strip() in self.empty else each for each in written]
        empty = int(Unplaced.EMPTY) if self.missing_code is None else self.missing_code
        code_of = self.codes_of_distinct(held.values, written, empty, typed=typed)
        return looked_up(np.append(code_of, empty), held.index)

    @property
    def other_code(self) -> int | None:
        """The code of a cell that has no other; None where such a cell is an error."""
        return None

    @property
    def code_type(self) -> Any:
        """What holds every code, and the reasons why a cell has none."""
        return signed_type(len(self.labels))

    def codes_of_typed(self, cells: pa.ChunkedArray) -> Signed | None:
        """The same of cells whose type says what they are, so that none is looked up; None where it does not."""
        return None

    @abstractmethod
    def codes_of_distinct(
        self, values: pa.Array, written: list[str | None], empty: int, *, typed: bool
    ) -> Signed:
        """The code of each distinct cell, of which the texts are given, None where it is empty."""

    @abstractmethod
    def advice(self, reason: Unplaced) -> str:
        """What is wrong with a column of cells without a place, and what to write into the schema."""

    def check(self) -> None:
        """Refuse what no table could be encoded with."""
        if self.empty and self.missing is None:
            raise SchemaError(
                f"attribute '{self.name}' lists texts that stand for empty cells, and no label for them; "
                'set missing = "missing"'
            )

    def entries(self) -> dict[str, str]:
        """The keys of the column with their TOML values; what has its usual value is not written."""
        absent = {
            "missing": None if self.missing is None else quoted(self.missing),
            "empty": listed([quoted(each) for each in self.empty]) if self.empty else None,
        }
        said = {"name": quoted(self.name), **self.said(), **absent, **self.options()}
        return {key: "true" if value is True else value for key, value in said.items() if value}

    def words(self, accepted: int) -> str | None:
        """The condition that a bit set of codes is, where such a condition has words of its own."""
        return None

    @abstractmethod
    def said(self) -> dict[str, str]:
        """What says which codes there are."""

    @abstractmethod
    def options(self) -> dict[str, Any]:
        """What is said besides, TOML values or truths."""


class Unlisted(Sequence[str]):
    """The labels of a column that has too many to list: their number, and codes as texts."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        found = range(self._size)[place]
        return str(found) if isinstance(found, int) else [str(each) for each in found]

    def __iter__(self) -> Iterator[str]:
        return map(str, range(self._size))


def unlisted(size: int) -> tuple[str, ...]:
    """Labels as long as a tuple of so many, and not written out."""
    return cast("tuple[str, ...]", Unlisted(size))


@dataclass(frozen=True)
class Categorical(Attribute):
    """A column with a public list of values; code v stands for values[v].

    `unknown` is the listed value that stands for anything unlisted, `missing` the listed value
    that says that there is none. Where they are None such a cell is an error. `numeric` says that the values are
    numbers, increasing: they have an order, and come back as numbers.
    """

    name: str
    values: tuple[str, ...]
    unknown: str | None = None
    missing: str | None = None
    ordered: bool = False
    empty: tuple[str, ...] = ()
    numeric: bool = False

    def __post_init__(self) -> None:
        if self.numeric:  # numbers always have an order
            object.__setattr__(self, "ordered", True)

    @property
    def labels(self) -> tuple[str, ...]:
        return self.values

    @property
    def missing_code(self) -> int | None:
        """The code of a missing value: a listed empty text is one, unless another was declared."""
        label = "" if self.missing is None else self.missing
        return self.values.index(label) if label in self.values else None

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """What each value says, where values are numbers; NaN of the missing one."""
        absent = self.missing_code
        said = [np.nan if code == absent else float(value) for code, value in enumerate(self.values)]
        return np.array(said)

    @staticmethod
    def read(name: str, where: str, entry: Mapping[str, Any]) -> Categorical:
        only(entry, where, KEYS["values"])
        values = required(entry, where, "values", texts)
        absent = absent_in(entry, where)
        if (label := absent["missing"]) is not None and label not in values:
            values = (*values, label)
        return Categorical(
            name,
            values,
            unknown=optional(entry, where, "unknown", text),
            ordered=optional(entry, where, "ordered", truth) or False,
            numeric=optional(entry, where, "numeric", truth) or False,
            **absent,
        )

    def said(self) -> dict[str, str]:
        unknown = {} if self.unknown is None else {"unknown": quoted(self.unknown)}
        return {"values": listed([quoted(value) for value in self.values])} | unknown

    def options(self) -> dict[str, Any]:
        return {"numeric": True} if self.numeric else {"ordered": self.ordered}

    def check(self) -> None:
        if not self.values:
            raise SchemaError(f"attribute '{self.name}' has no values; list them, or remove it")
        if len(set(self.values)) < len(self.values):
            raise SchemaError(f"attribute '{self.name}' lists a value twice")
        for role, place in (("unknown", self.unknown), ("missing", self.missing)):
            if place is not None and place not in self.values:
                raise SchemaError(
                    f"attribute '{self.name}': the place for {role} values, '{place}', is not among its values"
                )
        if self.numeric:
            self._check_numbers()
        super().check()

    def _check_numbers(self) -> None:
        known = [value for code, value in enumerate(self.values) if code != self.missing_code]
        if strange := [each for each in known if (x := number_in(each)) is None or not np.isfinite(x)]:
            raise SchemaError(
                f"attribute '{self.name}' is numeric, and its value '{strange[0]}' is no number; remove that value, "
                "or the line numeric = true (missing cells have a label of their own: missing)"
            )
        numbers = [float(value) for value in known]
        if not numbers or any(b <= a for a, b in pairwise(numbers)):
            raise SchemaError(f"attribute '{self.name}' is numeric, so its values must increase")

    def codes_of_distinct(
        self, values: pa.Array, written: list[str | None], empty: int, *, typed: bool
    ) -> Signed:
        place = {value: number for number, value in enumerate(self.values)}
        if has_padding(values.type):
            place = {without_padding(value): number for value, number in reversed(place.items())} | place
        unknown = int(Unplaced.OUTSIDE) if self.unknown is None else place[self.unknown]
        by_number = {x: code for code, x in enumerate(self.numbers.tolist())} if self.numeric else {}

        def code(cell: str | None) -> int:
            if cell is None:
                return empty
            for spelling in spellings(cell):
                if spelling in place:
                    return place[spelling]
            if by_number and (number := number_in(cell)) in by_number:
                return by_number[number]
            return unknown if cell.strip() else empty

        return np.fromiter(map(code, written), np.int64, len(written))

    def advice(self, reason: Unplaced) -> str:
        if reason is Unplaced.EMPTY:
            return (
                'has empty cells; set missing = "..." in the schema to the listed value that stands for them'
            )
        return (
            "holds values that the schema does not list; add them to its values, "
            'or set unknown = "..." to the listed value that stands for them'
        )

    def decode(self, codes: NDArray[np.unsignedinteger]) -> pa.Array:
        """A missing value is null and no category; an order is told only where every category has a rank."""
        values, absent = list(self.values), self.missing_code
        missing = codes == -1 if absent is None else codes == absent
        if self.numeric:
            found = np.nan_to_num(self.numbers)[codes]
            known = [value for code, value in enumerate(values) if code != absent]
            whole = not any(set(value) - set("+-0123456789") for value in known)
            whole = whole and bool(np.abs(found).max(initial=0.0) <= MOST_WHOLE)
            return from_numpy(found.astype(np.int64) if whole else found, missing)
        places = codes.astype(np.int64)
        if absent is not None:
            del values[absent]
            places -= places > absent
            places[missing] = 0
        kind = next(t for t in (np.int8, np.int16, np.int32) if len(values) <= np.iinfo(t).max + 1)
        ranked = self.ordered and self.unknown in (None, self.missing)
        return pa.DictionaryArray.from_arrays(
            from_numpy(places.astype(kind), missing), from_texts(values), ordered=ranked
        )


def absent_in(entry: Mapping[str, Any], where: str) -> dict[str, Any]:
    """How missing cells are written and called."""
    empty = optional(entry, where, "empty", texts) or ()
    missing = optional(entry, where, "missing", text)
    return {"missing": MISSING if empty and missing is None else missing, "empty": empty}


@dataclass(frozen=True)
class Items:
    """A block of `count` binary attributes, `name[first]` to `name[first + count - 1]`."""

    name: str
    count: int
    first: int = 1

    labels = ("0", "1")
    missing_code = None

    @staticmethod
    def read(name: str, where: str, entry: Mapping[str, Any]) -> Items:
        only(entry, where, KEYS["count"])
        first = optional(entry, where, "first", whole)
        return Items(name, required(entry, where, "count", whole), 1 if first is None else first)

    def entries(self) -> dict[str, str]:
        return {"name": quoted(self.name), "count": str(self.count), "first": str(self.first)}

    def check(self) -> None:
        if self.count < 1:
            raise SchemaError(f"item block '{self.name}' needs at least one item")
        if self.first < 0 or self.first + self.count > 2**31:
            raise SchemaError(f"the item ids of block '{self.name}' must lie between 0 and 2,147,483,647")
