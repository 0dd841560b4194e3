"""The public shape of a table: which attributes there are, and which values each may take.

A *column* is what the user's file has; an *attribute* is what the mathematics has. A categorical
or numeric column is one attribute. A block of items is one column of the file and very many
binary attributes, numbered without being named one by one, so that half a million of them cost
no more than a few integers here.

*Rules* say what a record can be (docs/schema.md has each form): `age < 15 => income = 0`, `never sex = male &
pregnant = yes`, `density from puma`, `total = wages + benefits`.

Both sides of `=>`, and what stands behind `never`, are queries in the language of queries (`queries.rules` reads
them). With `values = { "0101" = "low" }` a dependency says what the value is; without, that there is one.

Rules are about the synthetic table. The private table is not compared with them: whether its records keep a rule is
private, and a rule that some of them break is only as wrong as they are many.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import SchemaError
from dualquery.table.columns import Attribute, Categorical, Items
from dualquery.table.dates import Dates
from dualquery.table.numbers import MAXIMAL_BINS, Numeric, Spread, equal_width
from dualquery.table.toml_text import only, quoted, required, text

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
Column = Categorical | Numeric | Items

_QUOTED = r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\""
_NAME = rf"(?:{_QUOTED}|[^\s'\"=+<>&|!]+)"
_ARROW = re.compile(rf"({_QUOTED})|=>|⇒")
_FROM = re.compile(rf"({_NAME})\s+from\s+({_NAME}(?:\s*,\s*{_NAME})*)")
_SUM = re.compile(rf"({_NAME})\s*=\s*({_NAME}(?:\s*\+\s*{_NAME})+)")


@dataclass(frozen=True)
class Implication:
    """Where `when` holds, so does `then`; where `then` is None, `when` never holds. Both are queries."""

    says: str
    when: str
    then: str | None


@dataclass(frozen=True)
class Dependency:
    """`attribute` is a function of the attributes `on`; `values` says which, for one attribute, where it is known."""

    says: str
    attribute: str
    on: tuple[str, ...]
    values: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Sum:
    """`total` is the sum of the parts."""

    says: str
    total: str
    parts: tuple[str, ...]


Rule = Implication | Dependency | Sum


def rule_in(entry: Mapping[str, Any], place: int) -> Rule:
    where = f"rule number {place}"
    only(entry, where, {"says", "values"})
    says = " ".join(required(entry, where, "says", text).split())
    rule = read_rule(says, where)
    if "values" in entry:
        listed = entry["values"]
        if not isinstance(rule, Dependency) or len(rule.on) != 1:
            raise SchemaError(
                f"{where}: 'values' belong to a dependency on one attribute, such as density from puma"
            )
        if not isinstance(listed, dict) or not all(isinstance(each, str) for each in listed.values()):
            raise SchemaError(f'{where}: \'values\' must be texts by texts, {{ "0101" = "low" }}')
        return Dependency(rule.says, rule.attribute, rule.on, tuple(sorted(listed.items())))
    return rule


def read_rule(says: str, where: str) -> Rule:
    arrow = next((found for found in _ARROW.finditer(says) if found[1] is None), None)
    if arrow is not None:
        when, then = says[: arrow.start()].strip(), says[arrow.end() :].strip()
        if not when or not then:
            raise SchemaError(f"{where} needs a condition on either side of =>")
        return Implication(says, when, then)
    if says.lower().startswith("never "):
        return Implication(says, says[6:].strip(), None)
    if found := _FROM.fullmatch(says):
        return Dependency(
            says, _name(found[1]), tuple(map(_name, re.findall(_NAME, found[2].replace(",", " "))))
        )
    if found := _SUM.fullmatch(says):
        return Sum(says, _name(found[1]), tuple(map(_name, re.findall(_NAME, found[2]))))
    raise SchemaError(
        f"{where} cannot be read: write 'condition => condition', 'never condition', 'attribute from "
        "attribute' or 'total = part + part'"
    )


def _name(written: str) -> str:
    return written[1:-1].replace(written[0] * 2, written[0]) if written[0] in "'\"" else written


def rule_entries(rule: Rule) -> dict[str, str]:
    entries = {"says": quoted(rule.says)}
    if isinstance(rule, Dependency) and rule.values:
        pairs = ", ".join(f"{quoted(given)} = {quoted(value)}" for given, value in rule.values)
        entries["values"] = f"{{ {pairs} }}"
    return entries


def check_rule(rule: Rule, columns: Mapping[str, Column]) -> None:
    """Refuse names that the schema does not have; queries are read where there is a language for them."""
    if isinstance(rule, Implication):
        return
    names = (rule.attribute, *rule.on) if isinstance(rule, Dependency) else (rule.total, *rule.parts)
    for name in names:
        column = columns.get(name)
        if column is None:
            raise SchemaError(f"rule '{rule.says}' names '{name}', which is no attribute of the schema")
        if isinstance(column, Items):
            raise SchemaError(
                f"rule '{rule.says}' is about the block of items '{name}'; rules are about columns"
            )
        if isinstance(rule, Sum) and (not isinstance(column, Numeric) or isinstance(column, Dates)):
            raise SchemaError(f"rule '{rule.says}' adds '{name}', which is not numeric")
    if len(set(names)) < len(names):
        raise SchemaError(f"rule '{rule.says}' names an attribute twice")
    if isinstance(rule, Dependency) and rule.values:
        for name, said in zip((rule.on[0], names[0]), map(set, zip(*rule.values, strict=True)), strict=True):
            if unknown := sorted(said - set(columns[name].labels)):
                raise SchemaError(f"rule '{rule.says}': '{name}' has no value '{unknown[0]}'")
    if isinstance(rule, Sum):
        # Numbers that add up are counted in one unit, so that they add up exactly.
        numbers = (column for name in names if isinstance(column := columns[name], Numeric))
        if len({(column.integer, column.decimals) for column in numbers}) > 1:
            raise SchemaError(
                f"rule '{rule.says}' adds numbers of different decimals; declare the same for all of them"
            )


@dataclass(frozen=True)
class Domain:
    """All columns of a table, the flat numbering of their attributes, and the rules that records keep."""

    columns: tuple[Column, ...]
    rules: tuple[Rule, ...] = ()

    kind: ClassVar[str] = "records"  # of other kinds (`kinds`) the name of their section in the schema

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
            column.check()
        for rule in self.rules:
            check_rule(rule, {column.name: column for column in self.columns})

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> Domain:
        """What the section of this kind and the [[attribute]] sections beside it describe; files lie in `folder`."""
        raise NotImplementedError(f"a kind of table reads its section [{cls.kind}]")

    def sections(self, write: Callable[[Column], str]) -> list[str]:
        """The sections of a schema, complete; `write` gives the [[attribute]] section of a column."""
        return [write(column) for column in self.columns]

    @property
    def inner(self) -> tuple[tuple[str, Domain], ...]:
        """The tables whose rows hang on a record, by name (`table.database`)."""
        return ()

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """Columns that may be the unit although they are released: whose records they say is public."""
        return ()

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
        counts = [column.count if isinstance(column, Items) else 1 for column in self.columns]
        return np.repeat(np.array([len(column.labels) for column in self.columns], np.int32), counts)

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


def is_transactions(domain: Domain) -> bool:
    """Whether a table is one block of items and nothing else."""
    return len(domain.columns) == 1 and isinstance(domain.columns[0], Items)
