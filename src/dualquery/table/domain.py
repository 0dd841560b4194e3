"""The public shape of a table: which attributes there are, and which values each may take.

A *column* is what the user's file has; an *attribute* is what the mathematics has. A categorical
or numeric column is one attribute. A block of items is one column of the file and very many
binary attributes, numbered without being named one by one, so that half a million of them cost
no more than a few integers here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import SchemaError
from dualquery.table.columns import (
    MAXIMAL_BINS,
    Attribute,
    Categorical,
    Column,
    Items,
    Numeric,
    Spread,
    check,
    equal_width,
)
from dualquery.table.rules import Rule, check_rule

__all__ = [
    "MAXIMAL_BINS",
    "Attribute",
    "Categorical",
    "Column",
    "Domain",
    "Items",
    "Numeric",
    "Spread",
    "equal_width",
]


@dataclass(frozen=True)
class Domain:
    """All columns of a table, the flat numbering of their attributes, and the rules that records keep."""

    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()

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
            check(column)
        for rule in self.rules:
            check_rule(rule, {column.name: column for column in self.columns})

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
