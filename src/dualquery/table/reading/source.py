"""What a source of tables is, and what its readers share: how a private file is opened, and what is said about it.

An error is an output too. A message names the file, columns of the schema and how many bytes were
read; never a cell, and never a name that only the file has, because the first line of a file without
a header is a record.

Tables that Arrow reads: Parquet files and folders of them, Arrow files, and frames in memory.

Files in Arrow's file format are read at once and handed out in slices: save a table that does not fit into memory as
Parquet, CSV or lines of JSON.
"""

from __future__ import annotations

import codecs
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeGuard
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet

from dualquery.errors import DataError, SchemaError
from dualquery.table.cells import is_mixed, is_sequence, is_text, of_objects

# In these a letter changes the meaning of those behind it.
STATEFUL = ("utf-7", "iso2022", "hz", "punycode", "idna", "raw-unicode", "unicode-escape")
COMPRESSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
GROWTH = 3  # bytes of memory a byte of text, while a table is read at once


@dataclass(frozen=True)
class WantedColumns:
    """What is read of a table: these columns in this order, all of them where no names are given.

    `lists` are the columns that hold lists of items, for the formats that do not say it themselves; `lines` says that
    a line of the file is a record, the ids of its items; `encoding` is that of a text file which is not UTF-8.
    """

    names: Sequence[str] | None = None
    lists: Collection[str] = ()
    lines: bool = False
    encoding: str | None = None
    rows: int | None = None  # of a batch, at most about; None where the whole table is wanted
    tell: Callable[[int, int], None] = lambda done, size: None  # how many bytes of its files have been read


# Of a column its type, its values where the type lists them, and whether a cell may be empty.
ColumnType = tuple[str, Sequence[str], bool]
# The columns of a foreign key, a table, and the columns there that they name.
ForeignKey = tuple[tuple[str, ...], str, tuple[str, ...]]


@dataclass(frozen=True)
class Declared:
    """A table as a database declares it: public structure, of which nothing depends on a cell."""

    name: str
    columns: dict[str, ColumnType]
    links: tuple[ForeignKey, ...]
    key: tuple[str, ...]  # its primary key


@dataclass(frozen=True)
class Source:
    """One kind of tables: which are of it, and their rows.

    `batches` gives tables of the columns asked for, at least one, and raises before its end where the table is
    damaged, cut short or ragged: nobody may count anything before the last batch has come. Each record is read by
    itself, whatever the others hold. `memory` is how many bytes a table takes about while it is read at once, None
    where it is in memory already.
    """

    registered_in: ClassVar[str] = "sources"

    handles: Callable[[Any], bool]
    batches: Callable[[Any, WantedColumns], Iterator[pa.Table]]
    memory: Callable[[Any], int | None] = lambda _: None
    name: str = ""  # by which a package adds it (`register`)


def file_source(
    suffixes: Collection[str],
    batches: Callable[[Path, WantedColumns], Iterator[pa.Table]],
    *,
    growth: int = GROWTH,
    folders: bool = False,
    name: str = "",
) -> Source:
    """Files whose name ends so; with `folders` also folders of them."""

    def handles(given: object) -> bool:
        if not is_path(given):
            return False
        path = Path(given)
        return kind_of(path) in suffixes or (folders and path.is_dir())

    def read(given: Any, wanted: WantedColumns) -> Iterator[pa.Table]:
        path = Path(given)
        with reading(path):
            yield from batches(path, wanted)
        wanted.tell(size_on_disk(path), size_on_disk(path))

    return Source(handles, read, lambda given: growth * size_on_disk(Path(given)), name)


def is_path(given: object) -> TypeGuard[str | os.PathLike[str]]:
    return isinstance(given, str | os.PathLike)


def size_on_disk(path: Path) -> int:
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    return sum(each.stat().st_size for each in files if each.exists())


def in_parts(
    parts: Sequence[Path],
    read: Callable[[Path, Sequence[str] | None], Iterator[pa.Table]],
    wanted: WantedColumns,
) -> Iterator[pa.Table]:
    """The parts of one table one behind the other: the same columns in all of them, of one kind.

    A part of another kind is likely another table. The counts of a table do not depend on the order of its parts.
    """
    names, kinds = wanted.names, None
    done, size = 0, sum(map(size_on_disk, parts))
    for part in parts:
        for batch in read(part, names):
            names = names or batch.column_names
            kinds = same_kinds(batch, kinds, quoted_path(part))
            yield batch
        done += size_on_disk(part)
        wanted.tell(done, size)


def same_kinds(batch: pa.Table, before: list[pa.DataType] | None, where: str) -> list[pa.DataType]:
    """The kinds of the columns so far: of each the first that is known, which every later batch must have.

    So no cell of one batch decides how the cells of another are read; a column without any cell may be of any kind.
    """
    kinds = [kind.value_type if pa.types.is_dictionary(kind) else kind for kind in batch.schema.types]
    known = []
    for name, kind, wanted in zip(batch.column_names, kinds, before or kinds, strict=True):
        if kind != wanted and not (pa.types.is_null(kind) or pa.types.is_null(wanted)):
            here, before_it = ("cells of any type" if is_mixed(k) else str(k) for k in (kind, wanted))
            raise DataError(
                f"{where}: column '{name}' holds {here} there and {before_it} in the parts before it; write all "
                "parts with the same type"
            )
        known.append(kind if pa.types.is_null(wanted) else wanted)
    return known


def slices(table: pa.Table, rows: int | None) -> Iterator[pa.Table]:
    step = rows or max(1, table.num_rows)
    for first in range(0, max(1, table.num_rows), step):
        yield table.slice(first, step)


def arrow_batches(stream: Any) -> Iterator[pa.Table]:
    """What hands its rows over one batch after another; at least one table, be it without rows."""
    reader, none = pa.RecordBatchReader.from_stream(stream), True
    for batch in reader:
        none = False
        yield pa.Table.from_batches([batch])
    if none:
        yield reader.schema.empty_table()


def kind_of(path: Path) -> str:
    """The suffix that says what a file is, without that of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSION:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


def open_file(path: Path, encoding: str | None = None) -> Any:
    """The bytes of a file as a stream, unpacked; those of a text in another encoding as UTF-8."""
    stream = pa.input_stream(str(path), compression=COMPRESSION.get(path.suffix.lower()))
    return stream if encoding is None else pa.transcoding_input_stream(stream, encoding, "utf-8")


def known_encoding(name: str) -> str:
    """The encoding of this name, if no record can be read into another one (docs/schema.md)."""
    try:
        found = codecs.lookup(name)
    except LookupError:
        raise SchemaError(f"no encoding '{name}' is known; try latin-1, cp1252, utf-16 or gbk") from None
    if not found._is_text_encoding or found.name.startswith(STATEFUL):
        raise SchemaError(f"a text in '{name}' cannot be read line by line; save it as UTF-8")
    return found.name


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turns what can go wrong with a file into one sentence that quotes nothing of it."""
    try:
        yield
    except UnicodeDecodeError:
        raise DataError(f"'{path}' is not text in the encoding that was named for it") from None
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'") from None
    except PermissionError:
        raise DataError(f"'{path}' may not be read by this user") from None
    except (OSError, EOFError, pa.ArrowException, ValueError, KeyError, OverflowError, RecursionError):
        # The readers raise all of these on a damaged file; a DataError is none of them.
        message = f"'{path}' cannot be read: it is cut short, damaged, or not what its name says"
        if path.is_dir():
            message = (
                f"folder '{path}' holds a file that is no Parquet, or is damaged; give other kinds of files by a "
                f"pattern in quotes: '{path / '*.csv'}'"
            )
        raise DataError(message) from None


def choose(names: Sequence[str] | None, found: Sequence[str], where: str) -> list[int]:
    """The position of each name: blanks around a name do not matter unless they must."""
    if names is None:
        return list(range(len(found)))
    exact, trimmed = Counter(found), Counter(name.strip() for name in found)
    place = {name.strip(): position for position, name in enumerate(found)}
    place |= {name: position for position, name in enumerate(found)}
    for name in names:
        times = exact[name] or trimmed[name]
        if times == 0:
            # What it has instead is not said: in a file without a header those are the cells of a record.
            raise DataError(
                f"{where} has no column '{name}'; its columns must be named as in the schema, "
                "those of a text file in its first line"
            )
        if times > 1:
            raise DataError(f"{where} has more than one column '{name}'")
    return [place[name] for name in names]


def quoted_path(path: str | os.PathLike[str]) -> str:
    return f"'{os.fspath(path)}'"


def after(count: int) -> str:
    """How far the reading came, in the words of a message."""
    return f"after {count:,} bytes"


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
