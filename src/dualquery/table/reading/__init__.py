"""Where a private table comes from: one list of sources, and what is read of them as Arrow columns.

Only the columns that are asked for are read. Text files are read as text, so that the schema alone
decides what a cell means: no type is guessed from the data. An empty cell is null.

Text, Parquet, Arrow, JSON, SQLite, DuckDB and Excel files are known by their suffix, a pattern stands for
all files that match, a `PostgresTable` for a table of a database, and a frame is whatever has `__arrow_c_stream__`
(docs/schema.md, "How files are read").

Text, JSON and Arrow files may be compressed (.gz, .zst, .bz2); text may be in an encoding that the schema
declares. A file that is damaged or cut short is an error, never a shorter table. Messages are our own: those of the
readers quote cells.

*Reading maps neighbouring tables to neighbouring records*: each record is read by itself, whatever the
others hold (docs/schema.md has the proof). A kind of file for which that is not known is refused.

*Adding a source.* A kind of tables is one value, a `Source`, for files made by `file_source`; `register` or an entry
point makes it known. The first source that handles a table reads it, those of packages last, so nothing that is read
today changes.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from dualquery.errors import DataError
from dualquery.registry import Registry
from dualquery.table.reading.delimited import TEXT, TRANSACTIONS
from dualquery.table.reading.mixed import BOOK, JSON, SQLITE, declared_in
from dualquery.table.reading.postgresql import DATABASE, PostgresTable, declared_at, is_database
from dualquery.table.reading.source import (
    ARROW,
    FRAME,
    PARQUET,
    Declared,
    Source,
    WantedColumns,
    in_parts,
    is_path,
    kind_of,
    quoted_path,
    reading,
    same_kinds,
)

FIRST_ROWS = 50_000
_WILD = set("*?[")


class ArrowStream(Protocol):
    """Anything that hands its columns over in Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


AnyTable = str | os.PathLike[str] | ArrowStream | PostgresTable


def read_table(given: AnyTable, wanted: WantedColumns | None = None) -> pa.Table:
    """A whole table, with all its columns where nothing else is wanted: its batches, one behind the other."""
    read = list(batches(given, wanted or WantedColumns()))
    held = [batch for batch in read if batch.num_rows] or read[:1]
    # Of one kind all of them: all that is promoted are columns without a cell, and dictionaries of texts.
    return held[0] if len(held) == 1 else pa.concat_tables(held, promote_options="permissive")


def batches(given: AnyTable, wanted: WantedColumns) -> Iterator[pa.Table]:
    """A table in tables of at most about so many rows. Nothing may be counted before the last one."""
    kinds = None
    for batch in source_of(given).batches(given, wanted):
        kinds = same_kinds(batch, kinds, describe(given))
        yield batch


def source_of(given: AnyTable) -> Source:
    """Who reads a table; an error that says what to give instead where nobody does."""
    for source in BUILT_IN:
        if source.handles(given):
            return source
    for source in SOURCES.values():  # for which packages are asked
        if source.handles(given):
            return source
    if not is_path(given):
        kind = type(given).__name__
        raise DataError(f"a {kind} is not a table; give a file name or a pandas, Polars or Arrow table")
    with reading(Path(given)):
        os.stat(given)
    raise DataError(
        f"'{given}' is an unsupported file type; save it as CSV, Parquet, Arrow, JSON, Excel, SQLite or DuckDB"
    )


def one_table(source: AnyTable | Mapping[str, AnyTable]) -> AnyTable:
    """The table that was given where the schema describes one."""
    if isinstance(source, Mapping):
        raise DataError(
            "a dict of tables is a database, and the schema describes one table; describe all of them under "
            "[database] and [[table]], or give one"
        )
    return source


def declared(given: str) -> list[Declared] | None:
    """The tables of a whole database with their keys; None of what is one table."""
    if is_database(given):
        return declared_at(given)
    path = Path(given)
    found = declared_in(path) if path.suffix.lower() in SQLITE and path.exists() else []
    return found if len(found) > 1 and any(each.links for each in found) else None


def describe(given: AnyTable) -> str:
    if isinstance(given, PostgresTable):
        return given.where
    return quoted_path(given) if is_path(given) else "the table"


def first_rows(given: AnyTable, encoding: str | None = None) -> pa.Table:
    """The first rows of a text or Parquet file, or of the first of several, with all columns, also those that no
    schema names; none of whatever else a table may be. Internal, in no release.
    """
    try:
        if PATTERN.handles(given):
            given = _matching(str(given))[0]
        if not (TEXT.handles(given) or PARQUET.handles(given)):
            return pa.table({})
        read = batches(given, WantedColumns(encoding=encoding, rows=FIRST_ROWS))
        header = next(read)
        held = header if header.num_rows else next((batch for batch in read if batch.num_rows), header)
        return held.slice(0, FIRST_ROWS)
    except DataError:  # whoever reads the table has said what is wrong with it
        return pa.table({})


def is_transaction_file(given: object) -> bool:
    """Whether the name of a table allows it to be a transaction file."""
    return is_path(given) and kind_of(Path(given)) in TRANSACTIONS


def _is_pattern(given: object) -> bool:
    return isinstance(given, str) and bool(_WILD & set(given)) and not os.path.exists(given)


def _matching(pattern: str) -> list[Path]:
    """The files that match a pattern, sorted by name; there must be one.

    A link that leads nowhere is one of them: whoever reads it says so, and no part is left out in silence.
    """
    found = sorted(path for name in glob.iglob(pattern, recursive=True) if not (path := Path(name)).is_dir())
    if not found:
        raise DataError(
            f"no file matches '{pattern}'; put the pattern in quotes, and check the folder and the names"
        )
    return found


def _of_parts(pattern: str, wanted: WantedColumns) -> Iterator[pa.Table]:
    alone = replace(wanted, tell=lambda done, size: None)
    return in_parts(
        _matching(pattern), lambda part, names: batches(part, replace(alone, names=names)), wanted
    )


PATTERN = Source(
    _is_pattern, _of_parts, lambda given: sum(source_of(part).memory(part) or 0 for part in _matching(given))
)
BUILT_IN = (DATABASE, PATTERN, BOOK, PARQUET, TEXT, ARROW, JSON, FRAME)
SOURCES: Registry[Source] = Registry("sources", "source")
