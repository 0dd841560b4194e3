"""Public totals, as a release is given them: tables of a few attributes with a column of counts.

Totals that others have published are constants, and the promise of a release stays as it is. Totals of the very table
that is released say something of its records: then the promise is `ReplaceWithin` (`privacy.neighbours`).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dualquery.errors import BudgetError, DataError, DualQueryError
from dualquery.fitting.totals import Totals
from dualquery.ledger.book import Place
from dualquery.privacy.budget import Budget
from dualquery.privacy.neighbours import ReplaceWithin
from dualquery.releases.priors import Entry, codes_of, is_plain, refuse_same
from dualquery.table.reading import read_table
from dualquery.table.reading.source import WantedColumns
from dualquery.table.schema import Schema
from dualquery.types import Integers, Set

MOST_CELLS = 1_000_000  # of one table


def public_totals(given: Any, schema: Schema, table: Any) -> tuple[Totals | None, list[Entry]]:
    """One table or several, and how the certificate names them."""
    tables = [] if given is None else list(given) if isinstance(given, list | tuple) else [given]
    if not tables:
        return None, []
    if (
        schema.domain.kind != "records"
        or schema.domain.inner
        or not all(is_plain(column) for column in schema.domain.columns)
    ):
        raise DualQueryError(
            "totals are for one table of attributes: no database, graph, points or codes, and no blocks of items"
        )
    found = []
    for number, each in enumerate(tables, start=1):
        refuse_same(each, table, "table of totals")
        words = (
            f"'{os.fspath(each)}'" if isinstance(each, str | os.PathLike) else f"table {number} of the totals"
        )
        found.append(_read(each, schema, words))
    made, names = Totals.of(schema.domain, found), list(schema.domain.names())
    entries = [
        {
            "attributes": [names[j] for j in members],
            "records": int(counts.sum()),
            "digest": f"sha256:{hashlib.sha256(np.ascontiguousarray(counts, '<i8').tobytes()).hexdigest()}",
        }
        for members, counts in found
    ]
    return made, entries


def _read(given: Any, schema: Schema, words: str) -> tuple[Set, Integers]:
    """The attributes and the table; the one column that is no attribute holds the counts."""
    names = list(schema.domain.names())
    try:
        cells = read_table(given, WantedColumns(encoding=schema.encoding))
    except DataError as problem:
        raise DataError(f"{words}: {problem}") from None
    counts = [name for name in cells.column_names if name not in names]
    if len(counts) != 1 or len(cells.column_names) < 2:
        raise DataError(
            f"{words} should have columns of the schema and one more, with whole numbers; it has "
            f"{', '.join(cells.column_names[:10]) or 'none'}"
        )
    number = _whole(cells[counts[0]])
    if number is None:
        raise DataError(f"{words}: '{counts[0]}' should hold whole numbers from 0 up, and nothing else")
    codes, lacks = codes_of(cells.drop_columns(counts), schema, words)
    if len(codes) != len(number):
        raise DataError(f"{words} has rows that the schema drops; take them out")
    members = tuple(j for j, name in enumerate(names) if name not in lacks)
    shape = tuple(int(schema.domain.sizes[j]) for j in members)
    if np.prod([float(size) for size in shape]) > MOST_CELLS:
        raise DataError(
            f"{words} is about more than {MOST_CELLS:,} combinations; give totals of fewer columns"
        )
    out = np.zeros(shape, np.int64)
    np.add.at(out, tuple(codes[:, j] for j in members), number)
    return members, out


def _whole(column: pa.ChunkedArray) -> Integers | None:
    try:
        if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            column = pc.utf8_trim_whitespace(column)
        found = pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        return None
    if found.null_count:
        return None
    number: Integers = found.to_numpy().astype(np.int64)
    return None if (number < 0).any() else number


def refuse_rows_beside(options: Mapping[str, object], totals: Totals | None) -> None:
    """Rows that meet totals are as many as these count."""
    if totals is not None and options.get("synthetic_rows"):
        raise DualQueryError("rows that meet totals are as many as these count; leave out --synthetic-rows")


def relation_of(budget: Budget, totals: Totals | None, ledger: Place | None) -> Budget:
    """The budget, whose relation knows the attributes that totals of this very table are about."""
    if not isinstance(budget.neighbours, ReplaceWithin):
        return budget
    if totals is None:
        raise BudgetError(
            "--neighbours replace-within is for totals of this very table; name them with --totals"
        )
    if ledger is not None:
        raise BudgetError(
            "a ledger promises something of whole records, and --neighbours replace-within does not; leave one out"
        )
    return replace(budget, neighbours=ReplaceWithin(totals.names))


def refuse_another_number(budget: Budget, totals: Totals | None, rows: int | None) -> None:
    """Totals of this very table count its records, whose number is public."""
    if isinstance(budget.neighbours, ReplaceWithin) and totals is not None and totals.number != rows:
        raise DataError(
            f"the totals count {totals.number:,} records and the table has {rows:,}, so they are not totals of this "
            "very table; use --neighbours replace or add-remove"
        )


def doubts_of(budget: Budget, totals: Totals | None, rows: int) -> list[str]:
    """What a reader must know where totals count as many records as the table is known to have."""
    alike = totals is not None and budget.neighbours.size_is_public and totals.number == rows
    if not alike or isinstance(budget.neighbours, ReplaceWithin):
        return []
    return [
        f"the totals count {rows:,} records, as many as the table has: if they are totals of this very table, the "
        "promise does not hold for what they are about; then release with --neighbours replace-within"
    ]
