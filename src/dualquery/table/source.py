"""Where a private table comes from: files and frames, read into Arrow columns.

Only the columns that are asked for are read. Text files are read as text, so that the schema alone
decides what a cell means: no type is guessed from the data. An empty cell is null.

    .csv .tsv .txt .data        text with a header line; comma, semicolon, tab or bar between the cells
    .txt .dat                   transactions, where the schema is one block of items: a line of ids a record
    .parquet .pq, a directory   Parquet
    .arrow .feather .ipc        Arrow, as a file or a stream
    .json .jsonl .ndjson        JSON, read as text through DuckDB
    anything else               what DuckDB makes of it, without downloading extensions
    a frame                     pandas, Polars, Arrow, DuckDB: whatever has `__arrow_c_stream__`

Text files may be compressed (.gz, .zst, .bz2). A file that is damaged or cut short is an error,
never a shorter table. Messages are our own: those of the readers quote cells.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.csv

from dualquery.errors import DataError

DELIMITERS = (",", ";", "\t", "|")
TEXT = {".csv", ".tsv", ".txt", ".dat", ".data"}
TRANSACTIONS = {".txt", ".dat"}
PARQUET = {".parquet", ".pq"}
ARROW = {".arrow", ".arrows", ".feather", ".ipc"}
JSON = {".json", ".jsonl", ".ndjson"}
COMPRESSION = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
END_OF_ARROW_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
HEADER_BYTES = 1 << 16  # read at first; more where a header line is longer


class ArrowStream(Protocol):
    """Anything that hands its columns over in Arrow's C interface."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


Source = str | os.PathLike[str] | ArrowStream


def read_table(source: Source, names: Sequence[str] | None = None) -> pa.Table:
    """The named columns of a source, in that order; all of them where no names are given."""
    if not isinstance(source, str | os.PathLike):
        return _from_frame(source, names)
    path = Path(source)
    kind = _kind(path)
    with _reading(path):
        if path.is_dir() or kind in PARQUET:
            table = _from_parquet(path, names)
        elif kind in TEXT:
            table = _from_text(path, names)
        elif kind in ARROW:
            table = _from_arrow(path, names)
        else:
            table = _from_duckdb(path, names)
    return table


def read_transactions(path: str | os.PathLike[str], name: str) -> pa.Table:
    """A file with a line of item ids a record, as one column of lists."""
    path = Path(path)
    with _reading(path), _open(path) as stream:
        text = stream.read()
    return pa.table({name: transactions(text, where=describe(path))})


def is_transaction_file(source: Source) -> TypeGuard[str | os.PathLike[str]]:
    """Whether the name of a source allows it to be a transaction file."""
    return isinstance(source, str | os.PathLike) and _kind(Path(source)) in TRANSACTIONS


def transactions(text: bytes, *, where: str) -> pa.LargeListArray:
    """Lines of whole numbers separated by blanks, as lists of numbers."""
    if text.translate(None, b"0123456789 \t\r\n"):
        raise DataError(f"{where} holds something other than item ids, whole numbers separated by blanks")
    if text and not text.endswith(b"\n"):
        text += b"\n"
    letters = np.frombuffer(text, np.uint8)
    digit = letters >= ord("0")
    begins = digit.copy()
    begins[1:] &= ~digit[:-1]
    tokens = np.cumsum(begins)
    ends = tokens[letters == ord("\n")]
    count = int(ends[-1]) if len(ends) else 0
    # Numbers too long for an integer become the largest one, which no block of items contains.
    ids = np.fromstring(text.decode("ascii"), np.int64, sep=" ") if count else np.empty(0, np.int64)
    return pa.LargeListArray.from_arrays(np.concatenate([[0], ends]), ids)


def describe(source: Source) -> str:
    """The source in the words of a message."""
    return f"'{os.fspath(source)}'" if isinstance(source, str | os.PathLike) else "the table"


def _kind(path: Path) -> str:
    """The suffix that says what a file is, without that of its compression."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSION:
        suffixes.pop()
    return suffixes[-1] if suffixes else ""


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turns what can go wrong with a file into one sentence that quotes nothing of it."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"there is no file '{path}'") from None
    except PermissionError:
        raise DataError(f"'{path}' may not be read by this user") from None
    except (OSError, EOFError, pa.ArrowException):
        message = f"'{path}' cannot be read: it is cut short, damaged, or not what its name says"
        raise DataError(message) from None


def _open(path: Path) -> Any:
    compression = COMPRESSION.get(path.suffix.lower())
    return pa.input_stream(str(path), compression=compression)


def _choose(names: Sequence[str] | None, found: Sequence[str], source: Source) -> list[str]:
    """The names as the source spells them: blanks around a name do not matter unless they must."""
    if names is None:
        return list(found)
    exact, trimmed = Counter(found), Counter(name.strip() for name in found)
    spelling = {name.strip(): name for name in found}
    chosen = []
    for name in names:
        times = exact[name] or trimmed[name]
        if times == 0:
            listed = ", ".join(f"'{other}'" for other in found[:20]) + (", ..." if len(found) > 20 else "")
            raise DataError(f"{describe(source)} has no column '{name}'; it has {listed or 'none'}")
        if times > 1:
            raise DataError(f"{describe(source)} has more than one column '{name}'")
        chosen.append(name if exact[name] else spelling[name])
    return chosen


def _named(table: pa.Table, names: Sequence[str] | None) -> pa.Table:
    return table if names is None else table.rename_columns(list(names))


def _from_frame(source: ArrowStream, names: Sequence[str] | None) -> pa.Table:
    if not hasattr(source, "__arrow_c_stream__"):
        kind = type(source).__name__
        raise DataError(f"a {kind} is not a table; give a file name or a pandas, Polars or Arrow table")
    frame: Any = source
    if isinstance(frame, pa.Table) or not (hasattr(frame, "columns") and hasattr(frame, "__getitem__")):
        table = pa.table(frame)
        return _named(table.select(_choose(names, table.column_names, source)), names)
    # pandas and Polars: convert the columns that are wanted and no others.
    label_of = {str(label): label for label in frame.columns}
    chosen = _choose(names, [str(label) for label in frame.columns], source)
    frame = frame[[label_of[name] for name in chosen]]
    try:
        return _named(pa.table(frame), names)
    except (pa.ArrowException, TypeError, ValueError):
        culprit = next((name for name in chosen if not _converts(frame[[label_of[name]]])), chosen[0])
        message = f"column '{culprit}' mixes cells of several types; make them all texts or all numbers"
        raise DataError(message) from None


def _converts(frame: Any) -> bool:
    try:
        return pa.table(frame) is not None
    except (pa.ArrowException, TypeError, ValueError):
        return False


def _from_text(path: Path, names: Sequence[str] | None) -> pa.Table:
    with _open(path) as stream:
        start = more = stream.read(HEADER_BYTES)
        while more and b"\n" not in more:
            start += (more := stream.read(len(start)))
    header, delimiter = _header(start.decode("utf-8-sig", errors="replace"), names, path)
    chosen = _choose(names, header, path)
    # Dictionaries keep repeated cells once: small, and every distinct cell is looked at only once.
    text = pa.dictionary(pa.int32(), pa.string())
    try:
        with _open(path) as stream:
            table = pyarrow.csv.read_csv(
                stream,
                read_options=pyarrow.csv.ReadOptions(block_size=max(1 << 22, 64 * len(",".join(header)))),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=delimiter,
                    newlines_in_values=True,
                    # In a file of one column an empty line is a record with an empty cell.
                    ignore_empty_lines=len(header) > 1,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=dict.fromkeys(chosen, text),
                    include_columns=chosen,
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
    except pa.ArrowInvalid as error:
        if "UTF8" in str(error):
            raise DataError(f"'{path}' is not UTF-8 text") from None
        raise DataError(f"'{path}' has a line with more or fewer cells than its header") from None
    return _named(table, names)


def _header(start: str, names: Sequence[str] | None, path: Path) -> tuple[list[str], str]:
    """The cells of the first line, and the delimiter that finds most of the columns asked for there."""
    best: tuple[int, list[str], str] | None = None
    for delimiter in DELIMITERS:
        try:
            rows = csv.reader(io.StringIO(start, newline=""), delimiter=delimiter)
            header = next((row for row in rows if row), [])
        except csv.Error:
            continue
        stripped = {name.strip() for name in header} | set(header)
        score = len(header) if names is None else sum(name in stripped for name in names)
        if best is None or score > best[0]:
            best = (score, header, delimiter)
    if best is None or not best[1]:
        raise DataError(f"'{path}' is empty: it has no header line")
    score, header, delimiter = best
    if names and score == 0:
        # What stands there may be a record, so it is not quoted.
        raise DataError(f"'{path}' does not begin with a header line that names the columns of the schema")
    return header, delimiter


def _from_parquet(path: Path, names: Sequence[str] | None) -> pa.Table:
    import pyarrow.dataset

    dataset = pyarrow.dataset.dataset(path, format="parquet", partitioning="hive")
    chosen = _choose(names, dataset.schema.names, path)
    return _named(dataset.to_table(columns=chosen), names)


def _from_arrow(path: Path, names: Sequence[str] | None) -> pa.Table:
    with _open(path) as stream:
        data = pa.py_buffer(stream.read())
    if data.slice(0, 6).to_pybytes() == b"ARROW1":
        reader = pa.ipc.open_file(data)
    elif data.size >= 8 and data.slice(data.size - 8).to_pybytes() == END_OF_ARROW_STREAM:
        reader = pa.ipc.open_stream(data)
    else:
        raise OSError("cut short")
    table = reader.read_all()
    table.validate(full=True)  # a damaged buffer must not reach compiled code
    return _named(table.select(_choose(names, table.column_names, path)), names)


def _from_duckdb(path: Path, names: Sequence[str] | None) -> pa.Table:
    import duckdb

    os.stat(path)
    place = _literal(str(path))
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    try:
        is_json = _kind(path) in JSON
        table = f"read_json({place}, sample_size = -1)" if is_json else place
        described = connection.sql(f"DESCRIBE SELECT * FROM {table}").fetchall()
        kinds = {row[0]: row[1] for row in described}
        chosen = _choose(names, list(kinds), path)
        if is_json:
            # Cells as they are written; the types that DuckDB saw serve only to tell lists from the rest.
            columns = ", ".join(
                f"{_literal(name)}: '{'VARCHAR[]' if kinds[name].endswith('[]') else 'VARCHAR'}'"
                for name in chosen
            )
            table = f"read_json({place}, columns = {{{columns}}})"
        wanted = ", ".join('"' + column.replace('"', '""') + '"' for column in chosen)
        found = pa.table(connection.sql(f"SELECT {wanted} FROM {table}"))
    except duckdb.Error:
        message = f"'{path}' cannot be read: it is damaged, or of a kind that is not known here"
        raise DataError(message) from None
    finally:
        connection.close()
    return _named(found, names)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
