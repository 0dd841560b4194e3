"""Tables that Arrow reads: Parquet files and folders of them, Arrow files, and frames in memory.

Files in Arrow's file format are read at once and handed out in slices: save a table that does not fit into memory as
Parquet, CSV or lines of JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from dualquery.errors import DataError
from dualquery.table.cells import is_sequence, is_text, of_objects
from dualquery.table.reading.source import (
    Source,
    WantedColumns,
    arrow_batches,
    choose,
    file_source,
    in_parts,
    open_file,
    quoted_path,
    slices,
)

PARQUET_FILES = {".parquet", ".pq"}
ROWS = 1 << 17  # of a batch, where the whole table is wanted
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # in the name of a folder
END_OF_ARROW_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
WHERE = "the table"  # a frame has no other name


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


def _parquet(path: Path, wanted: WantedColumns) -> Iterator[pa.Table]:
    if not path.is_dir():
        yield from _parquet_file(path, wanted.names, wanted.rows, {})
        return
    # Hidden and half-written: what begins with a dot or an underscore, and what lies in such a folder, is no part.
    files = [
        each
        for each in sorted(path.rglob("*"))
        if not each.is_dir() and not any(step.startswith(("_", ".")) for step in each.relative_to(path).parts)
    ]
    if not files:
        raise DataError(f"folder {quoted_path(path)} holds no Parquet file")
    said = {file: _said_by_folders(file.relative_to(path)) for file in files}
    keys = dict.fromkeys(key for cells in said.values() for key in cells)
    yield from in_parts(
        files,
        lambda file, names: _parquet_file(
            file, names, wanted.rows, {key: said[file].get(key) for key in keys}
        ),
        wanted,
    )


def _said_by_folders(path: Path) -> dict[str, str | None]:
    """The cells that stand in the names of folders (year=2020), as texts: no type is guessed from all."""
    steps = (step.partition("=") for step in path.parts[:-1] if "=" in step)
    return {key: None if value == NO_VALUE else unquote(value) for key, _, value in steps}


def _parquet_file(
    path: Path, names: Sequence[str] | None, rows: int | None, said: dict[str, str | None]
) -> Iterator[pa.Table]:
    """The columns of one file, and of each of its rows what its folders say."""
    where, seen = quoted_path(path), 0
    with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
        kinds = file.schema_arrow
    found = [*kinds.names, *said]
    chosen = [found[i] for i in choose(names, found, where)]
    inside = [name for name in chosen if name not in said]
    texts = [name for name in inside if is_text(kinds.field(name).type)]
    # Texts that repeat are kept once in the file, and so they are read.
    with pa.parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts) as file:
        read = file.iter_batches(batch_size=rows or ROWS, columns=inside, use_threads=True)
        for table in chain(
            (pa.Table.from_batches([batch]) for batch in read), [file.schema_arrow.empty_table()]
        ):
            seen += table.num_rows
            if not table.num_rows and seen:
                break
            for key, cell in said.items():
                table = table.append_column(key, pa.repeat(pa.scalar(cell, pa.string()), table.num_rows))
            yield selected(table.select(chosen), None, where).rename_columns(list(names or chosen))
        if seen != file.metadata.num_rows:
            raise OSError("damaged")


def _arrow(path: Path, wanted: WantedColumns) -> Iterator[pa.Table]:
    with open_file(path) as stream:
        data = pa.py_buffer(stream.read())
    if data.slice(0, 6).to_pybytes() == b"ARROW1":
        reader = pa.ipc.open_file(data)
        messages = pa.ipc.MessageReader.open_stream(pa.BufferReader(data.slice(8)))
        # The index at the end of the file must know of all batches that stand in it.
        if reader.num_record_batches != sum(message.type == "record batch" for message in messages):
            raise OSError("damaged")
    elif data.size >= 8 and data.slice(data.size - 8).to_pybytes() == END_OF_ARROW_STREAM:
        reader = pa.ipc.open_stream(data)
    else:
        raise OSError("cut short")
    yield from slices(selected(reader.read_all(), wanted.names, quoted_path(path)), wanted.rows)


def _frame(frame: Any, wanted: WantedColumns) -> Iterator[pa.Table]:
    if isinstance(frame, pa.Table):
        # A copy of an Arrow table is not only idle: of chunked dictionaries of string views it ends the process in
        # versions of Arrow before 25.
        yield from slices(selected(frame, wanted.names, WHERE), wanted.rows)
    # A DuckDB relation only looks as if it handed out some of its columns.
    elif (
        hasattr(frame, "columns") and hasattr(frame, "__getitem__") and "duckdb" not in type(frame).__module__
    ):
        yield from slices(_picked(frame, wanted), wanted.rows)
    else:
        try:
            for batch in arrow_batches(frame):
                yield from slices(selected(batch, wanted.names, WHERE), wanted.rows)
        except (pa.ArrowInvalid, ValueError):  # a Series of pandas or Polars hands over a column
            kind = type(frame).__name__
            raise DataError(
                f"a {kind} is one column and no table; give a table: {kind.lower()}.to_frame()"
            ) from None


def _picked(frame: Any, wanted: WantedColumns) -> pa.Table:
    """Of pandas and Polars: the columns that are wanted and no others, and no index."""
    labels = list(frame.columns)
    chosen = [labels[i] for i in choose(wanted.names, [str(label) for label in labels], WHERE)]
    names = [str(label) for label in chosen] if wanted.names is None else list(wanted.names)
    columns = []
    for label, name in zip(chosen, names, strict=True):
        objects = _objects(frame[label])
        if wanted.names is None and any(map(is_sequence, objects or ())):
            objects = None  # a draft asks whether they are lists of ids
        try:
            columns.append(
                pa.table(frame[[label]]).column(0)
                if objects is None
                else of_objects(objects, name, lists=name in wanted.lists)
            )
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise DataError(
                f"column '{name}' is of a type that is not known here; make its cells texts"
            ) from None
    return selected(pa.table(columns, names=names), names, WHERE)


def _objects(series: Any) -> Sequence[Any] | None:
    """The cells of a column that holds objects, or categories that are objects and not all texts."""
    kind = getattr(series, "dtype", None)
    values = getattr(kind, "categories", None)
    if str(kind) == "category" and any(not isinstance(value, str) for value in _objects(values) or ()):
        return list(series)
    return list(series) if str(kind).lower() == "object" else None


PARQUET = file_source(PARQUET_FILES, _parquet, growth=12, folders=True)
ARROW = file_source({".arrow", ".arrows", ".feather", ".ipc"}, _arrow)
FRAME = Source(lambda given: hasattr(given, "__arrow_c_stream__"), _frame)
