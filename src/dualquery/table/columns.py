"""The kinds of columns a table may have: categories, numbers (and dates, `table.dates`), blocks of items.

*Missing is one thing.* A cell is missing where the source has null, nothing or blanks, or one of the texts listed in
`empty`. With `missing` (a label) such a cell has a code of its own, `missing_code`; it has no rank, and it comes back
as null. Without, it is an error.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import cast, overload

from dualquery.errors import SchemaError

MAXIMAL_BINS = 1_000_000
MOST_UNITS = 10**15  # numbers of more digits are not all told apart by floats


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
class Categorical:
    """A column with a public list of values; code v stands for values[v].

    `unknown` is the listed value that stands for anything unlisted, `missing` the listed value
    that says that there is none. Where they are None such a cell is an error.
    """

    name: str
    values: tuple[str, ...]
    unknown: str | None = None
    missing: str | None = None
    ordered: bool = False
    empty: tuple[str, ...] = ()

    @property
    def labels(self) -> tuple[str, ...]:
        return self.values

    @property
    def missing_code(self) -> int | None:
        """The code of a missing value: a listed empty text is one, unless another was declared."""
        label = "" if self.missing is None else self.missing
        return self.values.index(label) if label in self.values else None


class Spread(Enum):
    """How numbers lie inside their bin where nothing but the bin is known."""

    UNIFORM = "uniform"
    LOG = "log"  # the logarithm is uniform


@dataclass(frozen=True)
class Numeric:
    """A number cut at public edges: code b stands for [edges[b], edges[b + 1]), the last bin closed.

    With `clamp`, a number beyond the edges goes to the nearest end; without it, it is an error.
    With `missing` (a label), an absent number has a code of its own, after the bins.
    `integer` says that the numbers are whole, `decimals` how many decimals they have, and so have those that are
    read back; `exact` says that they come back as exact decimals. `decimal_comma` and `currency` say how texts are
    written (`table.notation`). `spread` overrides how numbers lie inside the bins (`table.spread`).
    """

    name: str
    edges: tuple[float, ...]
    clamp: bool = False
    missing: str | None = None
    integer: bool = False
    decimals: int | None = None
    exact: bool = False
    decimal_comma: bool = False
    currency: str | None = None
    spread: Spread | None = None
    empty: tuple[str, ...] = ()

    @property
    def bins(self) -> int:
        return len(self.edges) - 1

    @property
    def missing_code(self) -> int | None:
        return None if self.missing is None else self.bins

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
    missing_code = None


Column = Categorical | Numeric | Items
Attribute = Categorical | Numeric


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
    """`bins` bins of equal width from `low` to `high` (`equal_edges`)."""
    return Numeric(name, equal_edges(name, low, high, bins), clamp=clamp, missing=missing, integer=integer)


def equal_edges(name: str, low: float, high: float, bins: int) -> tuple[float, ...]:
    """Edge b is low + (high − low)·b/bins.

    The edges are worked out in fractions from the decimals that `low` and `high` are written with
    and rounded once, so that a cell which reads 0.3 lies on the edge 3/10 and not just below it.
    """
    if not (math.isfinite(low) and math.isfinite(high) and high > low and 1 <= bins <= MAXIMAL_BINS):
        raise SchemaError(f"attribute '{name}' needs high > low and between 1 and {MAXIMAL_BINS:,} bins")
    start, width = decimal(low), (decimal(high) - decimal(low)) / bins
    return (float(low), *(float(start + width * b) for b in range(1, bins)), float(high))


def decimal(x: float) -> Fraction:
    """The shortest decimal that reads as x, exactly."""
    return Fraction(repr(float(x)))


def _short(x: float) -> str:
    """The plain text of a number where that loses nothing."""
    plain = f"{x:.15g}"
    return plain if float(plain) == x else repr(x)


def check(column: Column) -> None:
    """Refuse what no table could be encoded with."""
    if isinstance(column, Items):
        _check_items(column)
        return
    if isinstance(column, Numeric):
        _check_numeric(column)
    else:
        _check_categorical(column)
    if column.empty and column.missing is None:
        raise SchemaError(
            f"attribute '{column.name}' lists texts that stand for empty cells, and no label for them; "
            'set missing = "missing"'
        )


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
    _check_decimals(column)


def _check_decimals(column: Numeric) -> None:
    name, decimals = column.name, column.decimals
    if column.exact and decimals is None and not column.integer:
        raise SchemaError(
            f"attribute '{name}' is exact, so it must say how many decimals it has: decimals = 2"
        )
    if decimals is None:
        return
    if column.integer or not 0 <= decimals <= 15:
        raise SchemaError(f"attribute '{name}': decimals must lie between 0 and 15, and integers have none")
    if max(abs(decimal(column.edges[0])), abs(decimal(column.edges[-1]))) * 10**decimals > MOST_UNITS:
        raise SchemaError(f"attribute '{name}' has more than 15 digits with its decimals; declare fewer")
    if any(first > last for first, last in unit_bounds(column)):
        raise SchemaError(f"attribute '{name}': no number of {decimals} decimals lies in one of its bins")


def unit_bounds(column: Numeric) -> list[tuple[int, int]]:
    """The first and the last number that can lie in each bin, counted in units of the last decimal."""
    if column.decimals is None:  # edges of integers need no scaling
        starts = [math.ceil(edge) for edge in column.edges[:-1]]
        last = math.floor(column.edges[-1])
    else:
        scale = 10**column.decimals
        starts = [math.ceil(decimal(edge) * scale) for edge in column.edges[:-1]]
        last = math.floor(decimal(column.edges[-1]) * scale)
    return list(zip(starts, [*(start - 1 for start in starts[1:]), last], strict=True))


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
