"""The columns of a schema file: from the keys of an [[attribute]] to a column, and back (docs/schema.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dualquery.errors import SchemaError
from dualquery.table.columns import Categorical, Column, Items, Numeric, Spread, equal_edges
from dualquery.table.dates import Dates, dates
from dualquery.table.toml_text import (
    figure,
    listed,
    number,
    numbers,
    only,
    optional,
    period,
    quoted,
    required,
    text,
    texts,
    truth,
    whole,
)

Reader = Callable[[str, str, Mapping[str, Any]], Column]
MISSING = "missing"  # the label where nobody says another
OF_NUMBERS = {
    "name", "clamp", "missing", "empty", "integer", "decimals", "exact", "decimal_comma", "currency", "spread",
}  # fmt: skip
KEYS = {
    "values": {"name", "values", "unknown", "missing", "empty", "ordered"},
    "edges": OF_NUMBERS | {"edges"},
    "bins": OF_NUMBERS | {"low", "high", "bins"},
    "by": {"name", "from", "to", "by", "format", "clamp", "missing", "empty"},
    "count": {"name", "count", "first"},
}


def column_in(entry: Mapping[str, Any], place: int) -> Column:
    """The column that an entry of the file describes."""
    name = required(entry, f"attribute number {place}", "name", text)
    where = f"attribute '{name}'"
    kinds: dict[str, Reader] = {
        "values": _categorical,
        "edges": _numeric_by_edges,
        "low": _numeric_by_width,
        "high": _numeric_by_width,
        "bins": _numeric_by_width,
        "from": _dates,
        "to": _dates,
        "by": _dates,
        "count": _items,
    }
    given: dict[Reader, str] = {}
    for key, kind in kinds.items():
        if key in entry:
            given.setdefault(kind, key)
    if not given:
        raise SchemaError(
            f"{where} needs 'values', or 'low', 'high' and 'bins', or 'edges', or 'from', 'to' and 'by', or 'count'"
        )
    if len(given) > 1:
        first, second = list(given.values())[:2]
        raise SchemaError(f"{where} gives both '{first}' and '{second}'; keep one")
    (read,) = given
    return read(name, where, entry)


def _categorical(name: str, where: str, entry: Mapping[str, Any]) -> Categorical:
    only(entry, where, KEYS["values"])
    values = required(entry, where, "values", texts)
    absent = _absent(where, entry)
    if (label := absent["missing"]) is not None and label not in values:
        values = (*values, label)
    return Categorical(
        name,
        values,
        unknown=optional(entry, where, "unknown", text),
        ordered=optional(entry, where, "ordered", truth) or False,
        **absent,
    )


def _absent(where: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """How missing cells are written and called."""
    empty = optional(entry, where, "empty", texts) or ()
    missing = optional(entry, where, "missing", text)
    return {"missing": MISSING if empty and missing is None else missing, "empty": empty}


def _numeric_by_edges(name: str, where: str, entry: Mapping[str, Any]) -> Numeric:
    only(entry, where, KEYS["edges"])
    return Numeric(name, required(entry, where, "edges", numbers), **_numeric_options(where, entry))


def _numeric_by_width(name: str, where: str, entry: Mapping[str, Any]) -> Numeric:
    only(entry, where, KEYS["bins"])
    low, high = (required(entry, where, key, number) for key in ("low", "high"))
    bins = required(entry, where, "bins", whole)
    return Numeric(name, equal_edges(name, low, high, bins), **_numeric_options(where, entry))


def _numeric_options(where: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    integer = optional(entry, where, "integer", truth) or False
    decimals = optional(entry, where, "decimals", whole)
    currency = optional(entry, where, "currency", text)
    if currency is not None and not integer and decimals is None:
        decimals = 2
    exact = optional(entry, where, "exact", truth)
    return {
        "clamp": optional(entry, where, "clamp", truth) or False,
        "integer": integer,
        "decimals": decimals,
        "exact": currency is not None if exact is None else exact,
        "decimal_comma": optional(entry, where, "decimal_comma", truth) or False,
        "currency": currency,
        "spread": optional(entry, where, "spread", _spread),
        **_absent(where, entry),
    }


def _spread(value: object) -> Spread:
    try:
        return Spread(value)
    except ValueError:
        raise ValueError(" or ".join(f'"{each.value}"' for each in Spread)) from None


def _dates(name: str, where: str, entry: Mapping[str, Any]) -> Dates:
    only(entry, where, KEYS["by"])
    first, last = (required(entry, where, key, period) for key in ("from", "to"))
    by = required(entry, where, "by", text)
    clamp = optional(entry, where, "clamp", truth) or False
    format = optional(entry, where, "format", text)
    return dates(name, first, last, by, clamp=clamp, format=format, **_absent(where, entry))


def _items(name: str, where: str, entry: Mapping[str, Any]) -> Items:
    only(entry, where, KEYS["count"])
    first = optional(entry, where, "first", whole)
    return Items(name, required(entry, where, "count", whole), 1 if first is None else first)


def entries(column: Column) -> dict[str, str]:
    """The keys of a column with their TOML values; what has its usual value is not written."""
    named = {"name": quoted(column.name)}
    if isinstance(column, Items):
        return {**named, "count": str(column.count), "first": str(column.first)}
    if isinstance(column, Dates):
        ends = {"from": column.labels[0], "to": column.labels[column.bins - 1]}
        written = {**ends, "by": column.by, "format": column.format}
        said = {key: quoted(each) for key, each in written.items() if each is not None}
    elif isinstance(column, Numeric):
        said = _bins(column)
    else:
        said = {"values": listed([quoted(value) for value in column.values])}
    return named | said | _options(column)


def _options(column: Categorical | Numeric) -> dict[str, str]:
    """What is said besides the codes."""
    said: dict[str, str] = {}
    flags: dict[str, bool] = {}
    if isinstance(column, Categorical):
        if column.unknown is not None:
            said["unknown"] = quoted(column.unknown)
        flags = {"ordered": column.ordered}
    if column.missing is not None:
        said["missing"] = quoted(column.missing)
    if column.empty:
        said["empty"] = listed([quoted(each) for each in column.empty])
    if isinstance(column, Dates):
        flags = {"clamp": column.clamp}
    elif isinstance(column, Numeric):
        flags = {"clamp": column.clamp, "integer": column.integer, "decimal_comma": column.decimal_comma}
        if column.currency is not None:
            said["currency"] = quoted(column.currency)
        if column.decimals is not None:
            said["decimals"] = str(column.decimals)
        if column.exact != (column.currency is not None):
            said["exact"] = "true" if column.exact else "false"
        if column.spread is not None:
            said["spread"] = quoted(column.spread.value)
    return said | {key: "true" for key, flag in flags.items() if flag}


def _bins(column: Numeric) -> dict[str, str]:
    low, high = column.edges[0], column.edges[-1]
    if column.edges == equal_edges(column.name, low, high, column.bins):
        return {"low": figure(low), "high": figure(high), "bins": str(column.bins)}
    return {"edges": listed([figure(edge) for edge in column.edges])}
