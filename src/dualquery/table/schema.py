"""The schema file: the public description of a table, written by hand in TOML.

    draft = true                        # only in a draft: read off the private table, not yet public
    [table]
    drop_rows_containing = "?"          # optional
    unit = "patient_id"                 # optional: the column that says whose record a row is; not released
    long = true                         # optional: a row is one item of a unit, and each unit is one record

    [[attribute]]                       # categorical: code v stands for values[v]
    name = "sex"
    values = ["Female", "Male"]
    ordered = false                     # optional: the order of the values means something
    unknown = "Male"                    # optional: the listed value that stands for unlisted ones
    missing = "Male"                    # optional: the listed value that stands for empty cells

    [[attribute]]                       # numeric, bins of equal width; or edges = [0, 18, 65, 120]
    name = "age"
    low = 0
    high = 100
    bins = 20
    clamp = true                        # optional: numbers beyond the ends go to the nearest end
    missing = "missing"                 # optional: empty cells get a code of their own, with this label
    integer = true                      # optional: whole numbers

    [[attribute]]                       # a block of binary attributes item[1] ... item[17770]
    name = "item"
    count = 17770
    first = 1                           # optional

`drop_rows_containing` is a public rule about which records exist: a row with that cell in any attribute
of the schema is left out. The number of those left depends on private cells, so it cannot be public.
`unit` and `long` say whose record a row is (`table.persons`).
`draft` marks a schema until a person who has made it public deletes the line.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from dualquery.errors import SchemaError
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric, equal_width
from dualquery.table.persons import check_unit
from dualquery.table.special import SECTIONS, check_special, read_special, special_text
from dualquery.table.toml_text import figure, listed, quoted

T = TypeVar("T")
DRAFT_LINE = "draft = true"
DRAFT_ADVICE = (
    "Delete the line above once every value below is public knowledge; until then no release is private."
)

Reader = Callable[[str, str, Mapping[str, Any]], Column]


@dataclass(frozen=True)
class Schema:
    """A domain, the public rules that say which rows of the source are whose records, and whether it is a draft."""

    domain: Domain
    drop_rows_containing: str | None = None
    draft: bool = False
    unit: str | None = None
    long: bool = False

    def __post_init__(self) -> None:
        check_unit(self.domain, self.unit, long=self.long, drops_rows=self.drops_rows)
        check_special(self.domain, drops_rows=self.drops_rows)

    @property
    def drops_rows(self) -> bool:
        """Whether some rows are no records, so that their number depends on what the rows hold."""
        return self.drop_rows_containing is not None

    @staticmethod
    def of(schema: Schema | Domain) -> Schema:
        return schema if isinstance(schema, Schema) else Schema(schema)


def read_schema(path: str | os.PathLike[str]) -> Schema:
    """The schema that a TOML file describes."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise SchemaError(f"there is no schema file '{path}'") from None
    except UnicodeDecodeError:
        raise SchemaError(f"schema file '{path}' is not UTF-8 text") from None
    except OSError as error:
        raise SchemaError(f"schema file '{path}' cannot be read: {error.strerror}") from None
    return parse_schema(text, origin=f"schema file '{path}'", folder=Path(path).parent)


def parse_schema(text: str, *, origin: str, folder: Path | None = None) -> Schema:
    """The schema that a TOML text describes. `origin` is for messages; files that it names lie in `folder`."""
    try:
        return _schema(tomllib.loads(text), folder)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise SchemaError(f"{origin} is not well-formed TOML: {error}") from None
    except SchemaError as error:
        raise SchemaError(f"{origin}: {error}") from None


def schema_text(schema: Schema | Domain, *, heading: str | None = None) -> str:
    """The TOML text of a schema, under a comment; `parse_schema` gives the same schema back."""
    schema = Schema.of(schema)
    parts = []
    if heading is not None:
        # Comments may not hold control characters, which names of files and columns may.
        lines = ["".join(c if c.isprintable() else "?" for c in line) for line in heading.splitlines()]
        parts.append("\n".join(f"# {line}".rstrip() for line in lines))
    if schema.draft:
        parts.append("draft = true  # delete this line once every value below is public knowledge")
    rules = {"drop_rows_containing": schema.drop_rows_containing, "unit": schema.unit}
    table = {key: quoted(rule) for key, rule in rules.items() if rule is not None}
    if schema.long:
        table["long"] = "true"
    if table:
        parts.append(_section("[table]", table))
    if schema.domain.kind in SECTIONS:
        parts += special_text(schema.domain, lambda column: _section("[[attribute]]", _entries(column)))
    else:
        parts += [_section("[[attribute]]", _entries(column)) for column in schema.domain.columns]
    return "\n\n".join(parts) + "\n"


# Reading. Everything in the file must be understood: a misspelt key is an error, never ignored.


def _schema(document: Mapping[str, Any], folder: Path | None) -> Schema:
    if "unit" in document:
        raise SchemaError("'unit' belongs into the section [table]: write that line above it")
    _only(document, "the schema", {"draft", "table", "attribute", *SECTIONS})
    draft = _optional(document, "the schema", "draft", _truth) or False
    table, attributes = document.get("table", {}), document.get("attribute", [])
    if not isinstance(table, dict):
        raise SchemaError("'table' must be a section, [table]")
    if not isinstance(attributes, list) or not all(isinstance(entry, dict) for entry in attributes):
        raise SchemaError("attributes must be sections, each under [[attribute]]")
    _only(table, "[table]", {"drop_rows_containing", "unit", "long"})
    marker = _optional(table, "[table]", "drop_rows_containing", _text)
    if marker is not None and not marker.strip():
        raise SchemaError("[table]: 'drop_rows_containing' must not be blank")
    columns = tuple(_column(entry, number) for number, entry in enumerate(attributes, start=1))
    unit = _optional(table, "[table]", "unit", _text)
    long = _optional(table, "[table]", "long", _truth) or False
    domain = read_special(document, columns, folder) or Domain(columns)
    return Schema(domain, marker, draft, unit, long)


def _column(entry: Mapping[str, Any], number: int) -> Column:
    name = _required(entry, f"attribute number {number}", "name", _text)
    where = f"attribute '{name}'"
    kinds: dict[str, Reader] = {
        "values": _categorical,
        "edges": _numeric_by_edges,
        "low": _numeric_by_width,
        "high": _numeric_by_width,
        "bins": _numeric_by_width,
        "count": _items,
    }
    given: dict[Reader, str] = {}
    for key, kind in kinds.items():
        if key in entry:
            given.setdefault(kind, key)
    if not given:
        raise SchemaError(f"{where} needs 'values', or 'low', 'high' and 'bins', or 'edges', or 'count'")
    if len(given) > 1:
        first, second = list(given.values())[:2]
        raise SchemaError(f"{where} gives both '{first}' and '{second}'; keep one")
    (read,) = given
    return read(name, where, entry)


def _categorical(name: str, where: str, entry: Mapping[str, Any]) -> Categorical:
    _only(entry, where, {"name", "values", "unknown", "missing", "ordered"})
    return Categorical(
        name,
        _required(entry, where, "values", _texts),
        unknown=_optional(entry, where, "unknown", _text),
        missing=_optional(entry, where, "missing", _text),
        ordered=_optional(entry, where, "ordered", _truth) or False,
    )


def _numeric_by_edges(name: str, where: str, entry: Mapping[str, Any]) -> Numeric:
    _only(entry, where, {"name", "edges", "clamp", "missing", "integer"})
    return Numeric(name, _required(entry, where, "edges", _numbers), **_numeric_options(where, entry))


def _numeric_by_width(name: str, where: str, entry: Mapping[str, Any]) -> Numeric:
    _only(entry, where, {"name", "low", "high", "bins", "clamp", "missing", "integer"})
    low, high = (_required(entry, where, key, _number) for key in ("low", "high"))
    bins = _required(entry, where, "bins", _whole)
    return equal_width(name, low, high, bins, **_numeric_options(where, entry))


def _numeric_options(where: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "clamp": _optional(entry, where, "clamp", _truth) or False,
        "missing": _optional(entry, where, "missing", _text),
        "integer": _optional(entry, where, "integer", _truth) or False,
    }


def _items(name: str, where: str, entry: Mapping[str, Any]) -> Items:
    _only(entry, where, {"name", "count", "first"})
    first = _optional(entry, where, "first", _whole)
    return Items(name, _required(entry, where, "count", _whole), 1 if first is None else first)


def _only(entry: Mapping[str, Any], where: str, keys: set[str]) -> None:
    for key in entry:
        if key not in keys:
            known = ", ".join(sorted(keys))
            raise SchemaError(f"{where} has a key '{key}' that means nothing here; it may have {known}")


def _required(entry: Mapping[str, Any], where: str, key: str, kind: Callable[[object], T]) -> T:
    if key not in entry:
        raise SchemaError(f"{where} has no '{key}'")
    try:
        return kind(entry[key])
    except ValueError as wanted:
        raise SchemaError(f"{where}: '{key}' must be {wanted}") from None


def _optional(entry: Mapping[str, Any], where: str, key: str, kind: Callable[[object], T]) -> T | None:
    return _required(entry, where, key, kind) if key in entry else None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("a text in quotes")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
        raise ValueError("a list of texts in quotes")
    return tuple(value)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def _whole(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a whole number")
    return value


def _number(value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or abs(value) > sys.float_info.max:
        raise ValueError("a finite number")
    return float(value)


def _numbers(value: object) -> tuple[float, ...]:
    if isinstance(value, list):
        return tuple(_number(number) for number in value)
    raise ValueError("a list of numbers")


# Writing.


def _section(header: str, entries: Mapping[str, str]) -> str:
    return "\n".join([header, *(f"{key} = {value}" for key, value in entries.items())])


def _entries(column: Column) -> dict[str, str]:
    """The keys of a column with their TOML values; what has its usual value is not written."""
    entries = {"name": quoted(column.name)}
    if isinstance(column, Items):
        return {**entries, "count": str(column.count), "first": str(column.first)}
    if isinstance(column, Categorical):
        entries["values"] = listed([quoted(value) for value in column.values])
        flags = {"ordered": column.ordered}
        texts = {"unknown": column.unknown, "missing": column.missing}
    else:
        entries |= _bins(column)
        flags = {"clamp": column.clamp, "integer": column.integer}
        texts = {"missing": column.missing}
    entries |= {key: quoted(text) for key, text in texts.items() if text is not None}
    return entries | {key: "true" for key, flag in flags.items() if flag}


def _bins(column: Numeric) -> dict[str, str]:
    low, high = column.edges[0], column.edges[-1]
    if column.edges == equal_width(column.name, low, high, column.bins).edges:
        return {"low": figure(low), "high": figure(high), "bins": str(column.bins)}
    return {"edges": listed([figure(edge) for edge in column.edges])}
