"""The public shape of a table: which attributes there are, and which values each may take.

A *column* is what the user's file has; an *attribute* is what the mathematics has. A categorical
or numeric column is one attribute. A block of items is one column of the file and very many
binary attributes, numbered without being named one by one, so that half a million of them cost
no more than a few integers here.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import SchemaError

MAXIMAL_BINS = 1_000_000


@dataclass(frozen=True)
class Categorical:
    """A column with a public list of values; code v stands for values[v].

    `unknown` is the listed value that stands for anything unlisted, `missing` the listed value
    that stands for an absent one. Where they are None such a cell is an error.
    """

    name: str
    values: tuple[str, ...]
    unknown: str | None = None
    missing: str | None = None
    ordered: bool = False

    @property
    def labels(self) -> tuple[str, ...]:
        return self.values


@dataclass(frozen=True)
class Numeric:
    """A number cut at public edges: code b stands for [edges[b], edges[b + 1]), the last bin closed.

    With `clamp`, a number beyond the edges goes to the nearest end; without it, it is an error.
    With `missing` (a label), an absent number has a code of its own, after the bins.
    `integer` says that the numbers are whole, and so are those that are read back.
    """

    name: str
    edges: tuple[float, ...]
    clamp: bool = False
    missing: str | None = None
    integer: bool = False

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @cached_property
    def labels(self) -> tuple[str, ...]:
        marks = [_short(x) for x in self.edges]
        intervals = [f"[{a}, {b})" for a, b in pairwise(marks[:-1])]
        intervals.append(f"[{marks[-2]}, {marks[-1]}]")
        return (*intervals, self.missing) if self.missing is not None else tuple(intervals)


@dataclass(frozen=True)
class Items:
    """A block of `count` binary attributes, `name[first]` to `name[first + count - 1]`."""

    name: str
    count: int
    first: int = 1

    labels = ("0", "1")


Column = Categorical | Numeric | Items
Attribute = Categorical | Numeric


@dataclass(frozen=True)
class Domain:
    """All columns of a table, and the flat numbering of their attributes."""

    columns: tuple[Column, ...]

    kind: ClassVar[str] = "records"  # of a special table the name of its section in the schema (`special`)

    def __post_init__(self) -> None:
        if not self.columns:
            raise SchemaError("the schema names no attribute; list at least one")
        seen: set[str] = set()
        blocks = {column.name for column in self.columns if isinstance(column, Items)}
        for column in self.columns:
            name = column.name
            if not name:
                raise SchemaError("an attribute of the schema has an empty name")
            if any(ord(letter) < 32 or ord(letter) == 127 for letter in name):
                raise SchemaError(f"the name of attribute {name!r} holds a control character")
            if name in seen:
                raise SchemaError(f"attribute '{name}' stands twice in the schema")
            if name not in blocks and name.endswith("]") and name.rpartition("[")[0] in blocks:
                raise SchemaError(
                    f"attribute '{name}' has the name of an item of a block; rename one of them"
                )
            seen.add(name)
            _check(column)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The flat number of each column's first attribute, and at the end the number of all."""
        starts = [0]
        for column in self.columns:
            starts.append(starts[-1] + (column.count if isinstance(column, Items) else 1))
        return tuple(starts)

    @property
    def width(self) -> int:
        """The number of attributes (d)."""
        return self.starts[-1]

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """The number of values of each attribute."""
        parts = [
            np.full(column.count, 2, np.int32)
            if isinstance(column, Items)
            else np.array([len(column.labels)], np.int32)
            for column in self.columns
        ]
        return np.concatenate(parts)

    @property
    def is_constant(self) -> bool:
        """Whether there is only one possible record, and so nothing to ask."""
        return bool((self.sizes == 1).all())

    @property
    def log2_size(self) -> float:
        """log₂ of the number of possible records (|X|)."""
        return float(np.log2(self.sizes).sum())

    def column_of(self, attribute: int) -> tuple[int, Column]:
        """The column that holds an attribute, with its position."""
        position = bisect_right(self.starts, attribute) - 1
        return position, self.columns[position]

    def name(self, attribute: int) -> str:
        position, column = self.column_of(attribute)
        if isinstance(column, Items):
            return f"{column.name}[{column.first + attribute - self.starts[position]}]"
        return column.name

    def labels(self, attribute: int) -> tuple[str, ...]:
        """The printed value of each code of an attribute."""
        return self.column_of(attribute)[1].labels

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {column.name: i for i, column in enumerate(self.columns)}

    def find(self, name: str) -> int | None:
        """The number of the attribute of this name (`age`, `item[17]`), or None."""
        position = self._numbers.get(name)
        if position is not None and not isinstance(self.columns[position], Items):
            return self.starts[position]
        block, bracket, rest = name.rpartition("[")
        position = self._numbers.get(block)
        if position is None or not bracket or not rest.endswith("]"):
            return None
        column = self.columns[position]
        if not isinstance(column, Items) or not rest[:-1].isdecimal():
            return None
        offset = int(rest[:-1]) - column.first
        return self.starts[position] + offset if 0 <= offset < column.count else None

    def names(self) -> Iterator[str]:
        """Every attribute's name, made on the way."""
        return (self.name(j) for j in range(self.width))


def equal_width(
    name: str,
    low: float,
    high: float,
    bins: int,
    *,
    clamp: bool = False,
    missing: str | None = None,
    integer: bool = False,
) -> Numeric:
    """`bins` bins of equal width from `low` to `high`; edge b is low + (high − low)·b/bins.

    The edges are worked out in fractions from the decimals that `low` and `high` are written with
    and rounded once, so that a cell which reads 0.3 lies on the edge 3/10 and not just below it.
    """
    if not (math.isfinite(low) and math.isfinite(high) and high > low and 1 <= bins <= MAXIMAL_BINS):
        raise SchemaError(f"attribute '{name}' needs high > low and between 1 and {MAXIMAL_BINS:,} bins")
    start, width = _decimal(low), (_decimal(high) - _decimal(low)) / bins
    edges = (float(low), *(float(start + width * b) for b in range(1, bins)), float(high))
    return Numeric(name, edges, clamp=clamp, missing=missing, integer=integer)


def _decimal(x: float) -> Fraction:
    """The shortest decimal that reads as x, exactly."""
    return Fraction(repr(float(x)))


def _short(x: float) -> str:
    """The plain text of a number where that loses nothing."""
    plain = f"{x:.15g}"
    return plain if float(plain) == x else repr(x)


def _check(column: Column) -> None:
    if isinstance(column, Items):
        _check_items(column)
    elif isinstance(column, Numeric):
        _check_numeric(column)
    else:
        _check_categorical(column)


def _check_items(column: Items) -> None:
    if column.count < 1:
        raise SchemaError(f"item block '{column.name}' needs at least one item")
    if column.first < 0 or column.first + column.count > 2**31:
        raise SchemaError(f"the item ids of block '{column.name}' must lie between 0 and 2,147,483,647")


def _check_numeric(column: Numeric) -> None:
    name, edges = column.name, column.edges
    if len(edges) < 2 or not all(map(math.isfinite, edges)):
        raise SchemaError(f"attribute '{name}' needs at least two finite bin edges")
    if any(b <= a for a, b in pairwise(edges)):
        raise SchemaError(f"the bin edges of attribute '{name}' must increase")
    if column.missing is not None and (not column.missing or column.missing in column.labels[:-1]):
        raise SchemaError(f"attribute '{name}': the label for missing numbers must be a text of its own")
    if column.missing is not None and _reads_within(column.missing, edges[0], edges[-1]):
        raise SchemaError(f"attribute '{name}': the label for missing numbers is a number within its edges")
    if column.integer:
        # Past 2^53 a float no longer tells neighbouring integers apart.
        if max(abs(edges[0]), abs(edges[-1])) > 2**53:
            raise SchemaError(f"attribute '{name}' is integer, so its edges must lie within ±2^53")
        if any(math.ceil(a) >= b for a, b in pairwise(edges[:-1])) or math.ceil(edges[-2]) > edges[-1]:
            raise SchemaError(f"attribute '{name}' is integer, but no integer lies in one of its bins")


def _reads_within(label: str, low: float, high: float) -> bool:
    try:
        return low <= float(label) <= high
    except ValueError:
        return False


def _check_categorical(column: Categorical) -> None:
    name = column.name
    if not column.values:
        raise SchemaError(f"attribute '{name}' has no values; list them, or remove it")
    if len(set(column.values)) < len(column.values):
        raise SchemaError(f"attribute '{name}' lists a value twice")
    for role, place in (("unknown", column.unknown), ("missing", column.missing)):
        if place is not None and place not in column.values:
            raise SchemaError(
                f"attribute '{name}': the place for {role} values, '{place}', is not among its values"
            )
