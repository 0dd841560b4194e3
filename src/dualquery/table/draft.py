"""A first schema read off a table, for a person to make public.

What this module finds (values, ranges, which cells are empty) it finds in the private table, so the
draft is itself private. It becomes a schema when everything in it is something one would have written
without looking: the text says so at its top, and `draft = true` says so to every program that reads it.
"""

from __future__ import annotations

import math
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dualquery.errors import DataError
from dualquery.table.cells import distinct, is_list, numbers_of, plain, texts_of
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric, equal_width
from dualquery.table.schema import Schema, schema_text
from dualquery.table.source import Source, describe, is_transaction_file, read_table
from dualquery.table.toml_text import quoted
from dualquery.table.transactions import read_transactions

FEW = 20  # numbers with at most so many distinct values are categories
MANY = 200  # texts with more distinct values are taken for names, ids or free text, and left out
BINS = 20

WARNING = """\
!!! DRAFT, READ OFF THE PRIVATE TABLE: THIS FILE IS NOT PRIVATE AND NOT YET A SCHEMA !!!

The values, ranges and missing places below were found in the data. No privacy guarantee holds for a
release made with them. Go through every line: keep what anyone would know without seeing the table
(a codebook, the form that was filled in, the law), replace the rest, give values that nobody happened
to have their place too. When all that is left is public knowledge, delete this warning and the line
draft = true below it."""


def draft_schema(source: Source) -> Schema:
    """A schema that fits the table, private like the table itself."""
    return _draft(source)[0]


def draft_text(source: Source) -> str:
    """The draft as a schema file, under its warning."""
    schema, left_out = _draft(source)
    heading = WARNING
    if left_out:
        names = "".join(f"\n  {quoted(name)}" for name in left_out)
        heading += (
            f"\n\nLeft out, with more than {MANY} different texts or of no type that is known here:{names}"
        )
    return schema_text(schema, heading=heading)


def _draft(source: Source) -> tuple[Schema, list[str]]:
    table = _read(source)
    if not table.num_rows:
        raise DataError(f"{describe(source)} has no rows")
    columns: list[Column] = []
    left_out = []
    for name, cells in zip(table.column_names, table.columns, strict=True):
        column = _column(name, plain(cells))
        if column is None:
            left_out.append(name)
        else:
            columns.append(column)
    if not columns:
        raise DataError(
            f"{describe(source)} has no column that a schema can be drafted for; write one by hand"
        )
    return Schema(Domain(tuple(columns)), draft=True), left_out


def _read(source: Source) -> pa.Table:
    if is_transaction_file(source):
        try:
            return read_transactions(source, "item")
        except DataError:  # text with a header line, or not to be read at all: the next reader will say
            pass
    return read_table(source)


def _column(name: str, cells: pa.ChunkedArray) -> Column | None:
    if is_list(cells.type):
        return _items(name, cells)
    try:
        held = distinct(cells, name)
        values = held.values.take(pa.array(np.unique(held.index[held.index < len(held.values)])))
        texts = {(text or "").strip() for text in texts_of(values, name)}
    except DataError:
        return None
    empty = "" in texts or bool((held.index == len(held.values)).any())
    texts.discard("")
    return _numeric(name, texts, empty) or _categorical(name, texts, empty)


def _numeric(name: str, texts: set[str], empty: bool) -> Numeric | None:
    """Bins at round numbers, where there are many numbers and at most one other text ("?")."""
    listed = sorted(texts)
    numbers, junk = numbers_of(pa.array(listed, pa.string()), name)
    finite = numbers[np.isfinite(numbers)]
    others = [text for text, odd in zip(listed, junk | np.isnan(numbers), strict=True) if odd]
    if len(finite) <= FEW or len(others) > 1:
        return None
    integer = bool((finite == np.floor(finite)).all() and np.abs(finite).max() < 2**52)
    low, high, bins = _round_bins(float(finite.min()), float(finite.max()), whole=integer)
    missing = others[0] if others else "missing" if empty else None
    return equal_width(name, low, high, bins, clamp=True, missing=missing, integer=integer)


def _round_bins(smallest: float, largest: float, *, whole: bool) -> tuple[float, float, int]:
    """At most about BINS bins of width 1, 2 or 5 times a power of ten, from one multiple of it to another."""
    if smallest > 0 and smallest < largest / 2:
        smallest = 0.0
    # Numbers too close for bins of their own share one of the smallest width that floats can tell apart.
    finest = max(math.ulp(smallest), math.ulp(largest)) * 4
    least = max(largest / BINS - smallest / BINS, 1.0 if whole else finest)
    power = math.floor(math.log10(least))
    width = next(w for m in (1, 2, 5, 10) if (w := m * Decimal(10) ** power) >= Decimal(least))
    first, last = math.floor(Decimal(smallest) / width), math.ceil(Decimal(largest) / width)
    return float(first * width), float(last * width), last - first


def _categorical(name: str, texts: set[str], empty: bool) -> Categorical | None:
    if len(texts) > MANY:
        return None
    numbers, junk = numbers_of(pa.array(sorted(texts), pa.string()), name)
    ordered = len(texts) > 2 and not junk.any() and not np.isnan(numbers).any()
    values = sorted(texts)
    if not junk.any():
        values = [values[i] for i in np.argsort(numbers, kind="stable")]
    missing = next((m for m in ("missing", "(missing)") if m not in texts), "((missing))") if empty else None
    return Categorical(
        name, (*values, missing) if missing else tuple(values), missing=missing, ordered=ordered
    )


def _items(name: str, cells: pa.ChunkedArray) -> Items | None:
    try:
        bounds = pc.min_max(pc.list_flatten(cells).cast(pa.int64())).as_py()
    except pa.ArrowException:
        return None
    smallest, largest = bounds["min"] or 0, bounds["max"] or 1
    if smallest < 0 or largest >= 2**31 - 1:
        return None
    first = min(smallest, 1)
    # Rounded up to two figures: the largest id is the private table's.
    unit = 10 ** max(len(str(largest)) - 2, 0)
    return Items(name, min(math.ceil(largest / unit) * unit, 2**31 - 1) - first + 1, first)
