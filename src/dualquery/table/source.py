"""Where a private table comes from: files and frames, read into Arrow columns.

Only the columns that are asked for are read. Text files are read as text, so that the schema alone
decides what a cell means: no type is guessed from the data. An empty cell is null.

    .csv .tsv .txt .data .dat   text with a header line; comma, semicolon, tab or bar between the cells
    .txt .dat                   transactions, where the schema is one block of items: a line of ids a record
    .parquet .pq, a directory   Parquet
    .arrow .feather .ipc        Arrow, as a file or a stream
    .json .jsonl .ndjson        JSON: a list of objects, or objects one after another
    .sqlite .db .duckdb .xlsx   a database or a workbook; `clinic.sqlite#patients` names its table (`books`)
    parts/*.parquet             a pattern: all files that match, one after another
    a `PostgresTable`           a table or view of a PostgreSQL database, read in a stream
    a frame                     pandas, Polars, Arrow, DuckDB: whatever has `__arrow_c_stream__`

Text, JSON and Arrow files may be compressed (.gz, .zst, .bz2); text may be in an encoding that the schema
declares. A file that is damaged or cut short is an error, never a shorter table. Messages are our own: those of the
readers quote cells.

*Reading maps neighbouring tables to neighbouring records*: each record is read by itself, whatever the
others hold (docs/schema.md has the proof). A kind of file for which that is not known is refused.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.books import book_of
from dualquery.table.cells import is_sequence, of_objects
from dualquery.table.delimited import read_delimited
from dualquery.table.files import choose, kind_of, open_file, quoted_path, reading
from dualquery.table.json_records import read_json
from dualquery.table.parts import is_pattern, matching, same_kinds
from dualquery.table.postgresql import PostgresTable, is_database
from dualquery.table.transactions import is_transaction_name

TEXT = {".csv", ".tsv", ".txt", ".dat", ".data"}
PARQUET = {".parquet", ".pq"}
ARROW = {".arrow", ".arrows", ".feather", ".ipc"}
JSON = {".json", ".jsonl", ".ndjson"}
END_OF_ARROW_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"


class ArrowStream(Protocol):
    """Anything that hands its columns over in Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Source = str | os.PathLike[str] | ArrowStream | PostgresTable


def read_table(
    source: Source,
    names: Sequence[str] | None = None,
    *,
    lists: Collection[str] = (),
    encoding: str | None = None,
) -> pa.Table:
    """The named columns of a source, in that order; all of them where no names are given.

    `lists` names the columns that hold lists of items, for the formats that do not say it themselves; `encoding` is
    that of a text file which is not UTF-8.
    """
    if isinstance(source, PostgresTable):
        return pa.concat_tables(source.batches(names, lists))
    if not isinstance(source, str | os.PathLike):
        return _from_frame(source, names, lists)
    if is_database(source):
        raise DataError("name the table of the database too: --table people, or PostgresTable(url, 'people')")
    if isinstance(source, str) and is_pattern(source):
        return _from_parts(matching(source), names, lists, encoding)
    if (book := book_of(source)) is not None:
        with reading(book.path):
            return book.read(names)
    path = Path(source)
    kind = kind_of(path)
    with reading(path):
        if path.is_dir() or kind in PARQUET:
            return _from_parquet(path, names)
        if kind in TEXT:
            return read_delimited(path, names, encoding)
        if kind in ARROW:
            return _from_arrow(path, names)
        os.stat(path)
        if kind in JSON:
            return read_json(path, names, lists)
    raise DataError(
        f"'{path}' is an unsupported file type; save it as CSV, Parquet, Arrow, JSON, Excel, SQLite or DuckDB"
    )


def _from_parts(
    parts: list[Path], names: Sequence[str] | None, lists: Collection[str], encoding: str | None
) -> pa.Table:
    tables: list[pa.Table] = []
    kinds = None
    for part in parts:
        wanted = names or (tables[0].column_names if tables else None)
        tables.append(read_table(part, wanted, lists=lists, encoding=encoding))
        kinds = same_kinds(tables[-1], kinds, part)
    return pa.concat_tables(tables, promote_options="permissive")


def is_transaction_file(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    """Whether the name of a source allows it to be a transaction file."""
    return isinstance(source, str | os.PathLike) and is_transaction_name(source)


def describe(source: Source) -> str:
    """The source in the words of a message."""
    if isinstance(source, PostgresTable):
        return source.where
    return quoted_path(source) if isinstance(source, str | os.PathLike) else "the table"


def selected(table: pa.Table, names: Sequence[str] | None, where: str) -> pa.Table:
    """The named columns, sound: damaged buffers and texts that are not UTF-8 must not reach compiled code."""
    if names is not None:
        table = table.select(choose(names, table.column_names, where)).rename_columns(list(names))
    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException:
            raise DataError(
                f"{where}: column '{name}' is damaged, or holds texts that are not UTF-8"
            ) from None
    return table


def picks_columns(frame: object) -> bool:
    """Whether a frame hands out some of its columns, as pandas and Polars do; a DuckDB relation only looks so."""
    indexed = hasattr(frame, "columns") and hasattr(frame, "__getitem__")
    return indexed and "duckdb" not in type(frame).__module__


def _from_frame(source: ArrowStream, names: Sequence[str] | None, lists: Collection[str]) -> pa.Table:
    if not hasattr(source, "__arrow_c_stream__"):
        kind = type(source).__name__
        raise DataError(f"a {kind} is not a table; give a file name or a pandas, Polars or Arrow table")
    frame: Any = source
    if isinstance(frame, pa.Table) or not picks_columns(frame):
        # A copy of an Arrow table is not only idle: of chunked dictionaries of string views it ends the process in
        # versions of Arrow before 25.
        try:
            whole = frame if isinstance(frame, pa.Table) else pa.table(frame)
        except (pa.ArrowInvalid, ValueError):  # a Series of pandas or Polars hands over a column
            kind = type(source).__name__
            raise DataError(
                f"a {kind} is one column and no table; give a table: {kind.lower()}.to_frame()"
            ) from None
        return selected(whole, names, describe(source))
    # pandas and Polars: convert the columns that are wanted and no others, and no index.
    labels = list(frame.columns)
    chosen = [labels[i] for i in choose(names, [str(label) for label in labels], describe(source))]
    wanted = [str(label) for label in chosen] if names is None else list(names)
    columns = []
    for label, name in zip(chosen, wanted, strict=True):
        objects = _objects(frame[label])
        if names is None and any(map(is_sequence, objects or ())):
            objects = None  # a draft asks whether they are lists of ids
        try:
            columns.append(
                pa.table(frame[[label]]).column(0)
                if objects is None
                else of_objects(objects, name, lists=name in lists)
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise DataError(
                f"column '{name}' is of a type that is not known here; make its cells texts"
            ) from None
    return selected(pa.table(columns, names=wanted), wanted, describe(source))


def _objects(series: Any) -> Sequence[Any] | None:
    """The cells of a column that holds objects, or categories that are objects and not all texts."""
    kind = getattr(series, "dtype", None)
    values = getattr(kind, "categories", None)
    if str(kind) == "category" and any(not isinstance(value, str) for value in _objects(values) or ()):
        return list(series)
    return list(series) if str(kind).lower() == "object" else None


def _from_parquet(path: Path, names: Sequence[str] | None) -> pa.Table:
    import pyarrow.dataset

    where = quoted_path(path)
    dataset = pyarrow.dataset.dataset(path, format="parquet", partitioning=_partitioning(path))
    if not dataset.files:
        raise DataError(f"folder {where} holds no Parquet file")
    found = dataset.schema.names
    chosen = [found[i] for i in choose(names, found, where)]
    rows = 0
    for fragment in dataset.get_fragments():
        has = set(fragment.physical_schema.names) | set(dataset.partitioning.schema.names)
        if missing := [name for name in chosen if name not in has]:
            # Arrow would fill the column of this file with nulls.
            raise DataError(f"a file in {where} has no column '{missing[0]}'")
        sizes = [group.num_rows for group in fragment.row_groups]
        if sum(sizes) != fragment.metadata.num_rows:
            raise OSError("damaged")
        rows += sum(sizes)
    table = selected(dataset.to_table(columns=chosen), chosen, where)
    if table.num_rows != rows:
        raise OSError("damaged")
    return table if names is None else table.rename_columns(list(names))


def _partitioning(path: Path) -> Any:
    """The columns that stand in the names of folders (year=2020), as texts: no type is guessed from all."""
    import pyarrow.dataset

    keys = (
        [
            part.partition("=")[0]
            for file in sorted(path.rglob("*"))
            for part in file.relative_to(path).parts[:-1]
            if "=" in part
        ]
        if path.is_dir()
        else []
    )
    fields = pa.schema([(key, pa.string()) for key in dict.fromkeys(keys)])
    return pyarrow.dataset.partitioning(fields, flavor="hive")


def _from_arrow(path: Path, names: Sequence[str] | None) -> pa.Table:
    with open_file(path) as stream:
        data = pa.py_buffer(stream.read())
    if data.slice(0, 6).to_pybytes() == b"ARROW1":
        reader = pa.ipc.open_file(data)
        if reader.num_record_batches != _batches(data.slice(8)):
            raise OSError("damaged")
    elif data.size >= 8 and data.slice(data.size - 8).to_pybytes() == END_OF_ARROW_STREAM:
        reader = pa.ipc.open_stream(data)
    else:
        raise OSError("cut short")
    return selected(reader.read_all(), names, quoted_path(path))


def _batches(data: pa.Buffer) -> int:
    """How many batches stand in a file of Arrow, which its index at the end must know of."""
    messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(data))
    return sum(message.type == "record batch" for message in messages)
