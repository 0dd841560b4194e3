"""Ids that a draft finds: columns that number the rows, and those that may be the unit (`ids`)."""

from __future__ import annotations

import re
from collections import Counter

import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.cells import plain
from dualquery.table.draft_cells import MANY, SOME_ROWS, Cells, LeftOut
from dualquery.table.ids import EACH, PERSONS, looks_like_id, no_unit, repeats
from dualquery.table.schema import Schema
from dualquery.table.special import SECTIONS

_FRACTION = re.compile(r"-?[0-9]*[.,][0-9]+")


def drafted_id(held: Cells) -> LeftOut | None:
    """An id, where a column looks like one."""
    number, rows = len(held.texts), held.rows
    if any(_FRACTION.fullmatch(text) for text in held.texts):
        return None
    if repeats(held.name, number, rows) or (
        number > MANY and _of_codes(held) and 1.2 * number <= rows <= EACH * number
    ):
        each = f"about {rows / number:,.0f} rows each" if rows >= 1.5 * number else "some have several rows"
        reason = (
            f"it looks like an id, {each}: if it is a person's, it is the unit (docs/schema.md), no attribute"
        )
        return LeftOut(held.name, reason, unit=f"{each}: a person?")
    if number == rows >= SOME_ROWS and PERSONS.fullmatch(held.name.strip()):
        return LeftOut(held.name, "it numbers the rows: an id says nothing about people")
    return None


def _of_codes(held: Cells) -> bool:
    """Whether texts look like ids whatever their column is called: letters and figures without a blank."""
    return all(
        not text.isdecimal() and any(c.isdecimal() for c in text) and not any(c.isspace() for c in text)
        for text in held.texts
    )


def several_rows(table: pa.Table, schema: Schema) -> list[str]:
    """A warning for each column that the schema leaves out and in which an id of persons comes again.

    It looks at cells, so it is for the curator's eyes and goes into no release.
    """
    if schema.unit is not None or schema.domain.kind in SECTIONS:
        return []
    known = {column.name.strip() for column in schema.domain.columns}
    times = Counter(table.column_names)
    found = []
    for name, cells in zip(table.column_names, table.columns, strict=True):
        if looks_like_id(name) and name.strip() not in known and times[name] == 1:
            try:
                held = Cells.of(name, plain(cells))
            except DataError:
                continue
            if repeats(name, len(held.texts), held.rows):
                found.append(no_unit("column", name))
    return found
