"""What is missing in a schema, and what of a table has no place in it: for whoever writes the schema.

Where a table is given, what is said depends on its cells: it is for the curator's eyes.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dualquery.errors import DataError, SchemaError
from dualquery.queries.rules import check_rules, structural_zeros
from dualquery.table.cells import plain
from dualquery.table.columns import Categorical, Column, Items, Numeric
from dualquery.table.dates import Dates
from dualquery.table.domain import Domain
from dualquery.table.drafting import several_rows
from dualquery.table.encoding import encode, wanted_columns
from dualquery.table.reading import AnyTable, read_table
from dualquery.table.reading.source import choose
from dualquery.table.schema import Schema, read_schema
from dualquery.table.toml_text import quoted

LONG = 1000  # values of an attribute: its tables are large, and their cells nearly empty


@dataclass(frozen=True)
class SchemaCheck:
    """What was found: `problems` stand in the way of a release, `notes` do not."""

    attributes: tuple[str, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.problems

    @property
    def wrong(self) -> str:
        return "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"

    def lines(self) -> list[str]:
        out = [*self.attributes]
        out += [f"to fix: {each}" for each in self.problems]
        out += [f"note: {each}" for each in self.notes]
        return [*out, "nothing is missing" if self.sound else f"{self.wrong} to fix"]


def checked(schema: str | os.PathLike[str] | Schema, table: AnyTable | None = None) -> SchemaCheck:
    """What stands in a schema, what it lacks, and what of a table has no place in it."""
    read = schema if isinstance(schema, Schema) else read_schema(schema)
    domain = read.domain
    problems, notes = [], [*read.doubts, *_notes(domain)]
    if read.draft:
        problems.append("the line draft = true: delete it once everything in the schema is public knowledge")
    try:
        check_rules(domain)
    except SchemaError as error:
        problems.append(str(error).partition("\n")[0])
    if table is not None:
        found, more = _compared(read, table)
        problems += found
        notes += more
    return SchemaCheck(tuple(map(_described, domain.columns)), tuple(problems), tuple(notes))


def _described(column: Column) -> str:
    if isinstance(column, Items):
        return f"{column.name}: {column.count:,} items"
    size = len(column.labels)
    if isinstance(column, Dates):
        written = "" if column.format is None else f", written {column.example}"
        kind = f"dates by {column.by}, {column.labels[0]} to {column.labels[column.bins - 1]}{written}"
    elif isinstance(column, Numeric):
        kind = f"numbers in {column.bins:,} bins"
    else:
        kind = "ordered categories" if column.ordered else "categories"
    absent = "missing values allowed" if column.missing_code is not None else "no missing values"
    return f"{column.name}: {kind}, {size:,} codes; {absent}"


def _notes(domain: Domain) -> list[str]:
    notes = []
    for column in domain.columns:
        size = len(column.labels)
        if size == 1:
            notes.append(f"'{column.name}' has one value only; leave it out")
        elif size > LONG:
            notes.append(f"'{column.name}' has {size:,} values; fewer would be answered better")
        if isinstance(column, Numeric) and not column.clamp:
            notes.append(
                f"'{column.name}': what lies beyond its ends is an error; clamp = true sends it to them"
            )
        if isinstance(column, Categorical) and column.unknown is None and not column.ordered and size > 20:
            notes.append(
                f"'{column.name}': an unlisted value is an error; unknown = \"...\" gives it a place"
            )
    return notes


def _compared(schema: Schema, table: AnyTable) -> tuple[list[str], list[str]]:
    """Every column by itself, so that all that is wrong is said at once; then the rules."""
    problems, notes = [], []
    wanted = wanted_columns(table, schema)
    # All columns of the table, but otherwise read as for a release.
    read = read_table(table, wanted if wanted.lines else replace(wanted, names=None))
    names = [name.strip() for name in read.column_names]
    known = {column.name for column in schema.domain.columns} | {schema.unit}
    if extra := [name for name in read.column_names if name.strip() not in known]:
        notes.append(f"the table has columns that the schema leaves out: {', '.join(map(quoted, extra))}")
    notes += several_rows(read, schema)
    if schema.unit is not None and schema.unit.strip() not in names:
        problems.append(f"the table has no column '{schema.unit}', which the schema calls its unit")
    encoded: dict[str, np.ndarray] = {}
    for column in schema.domain.columns:
        if column.name not in names:
            problems.append(f"the table has no column '{column.name}'")
            continue
        try:
            (place,) = choose([column.name], read.column_names, "the table")
            one = pa.table({column.name: plain(read.column(place))})
            codes = encode(one, Domain((column,))).columns[0]
        except DataError as error:
            problems.append(str(error))
            continue
        if isinstance(codes, np.ndarray):
            encoded[column.name] = codes
    if not problems:
        notes += _broken(schema.domain, encoded, read.num_rows)
    return problems, notes


def _broken(domain: Domain, encoded: dict[str, np.ndarray], rows: int) -> list[str]:
    """How many rows break each rule; a public rule may be broken by few, and is then as wrong as they are many."""
    out = []
    for zeros in structural_zeros(domain):
        codes = tuple(encoded[domain.name(j)].astype(np.int64) for j in zeros.members)
        broken = int(zeros.impossible[codes].sum())
        if broken:
            out.append(f"{broken:,} of {rows:,} rows break the rule '{zeros.says}'")
    return out
