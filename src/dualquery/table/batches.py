"""A private table in batches of rows, for tables that do not fit into memory.

What `source.read_table` reads at once is read here a batch after another, by the same readers and with the same
checks: a file that is damaged, cut short or ragged is an error before its last batch is given out, and whoever
reads must not count anything before the last batch has come. JSON of one array, and files in Arrow's file format, are
read at once and handed out in slices: save such a table as Parquet, CSV or lines of JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from dualquery.errors import DataError
from dualquery.table.cells import is_text
from dualquery.table.delimited import delimited_batches
from dualquery.table.files import choose, kind_of, open_file, quoted_path, reading
from dualquery.table.parts import is_pattern, matching, same_kinds
from dualquery.table.postgresql import PostgresTable
from dualquery.table.source import PARQUET, TEXT, Source, describe, picks_columns, read_table, selected
from dualquery.table.transactions import transactions

Told = Callable[[int], None]  # how many bytes of the files have been read


def batches(
    source: Source,
    names: Sequence[str],
    *,
    rows: int,
    lists: Collection[str] = (),
    encoding: str | None = None,
    tell: Told = lambda _: None,
) -> Iterator[pa.Table]:
    """The named columns of a source, in that order, in tables of at most about so many rows."""
    if isinstance(source, PostgresTable):
        for batch in source.batches(names, lists):
            yield from _slices(batch, rows)
        return
    if not isinstance(source, str | Path) and hasattr(source, "__arrow_c_stream__"):
        yield from _of_stream(source, names, rows)
        return
    done, kinds = 0, None
    for part in _parts(source):
        for batch in _of_file(part, names, lists, rows, encoding):
            kinds = same_kinds(batch, kinds, part)
            yield batch
        done += part.stat().st_size
        tell(done)


def transaction_batches(
    source: Source, name: str, *, rows: int, tell: Told = lambda _: None
) -> Iterator[pa.Table]:
    """A file with a line of item ids a record, some lines at a time."""
    done = 0
    for part in _parts(source):
        where, rest = quoted_path(part), b""
        with reading(part), open_file(part) as stream:
            while block := stream.read(32 * rows):
                text = rest + block
                end = text.rfind(b"\n") + 1
                rest = text[end:]
                if end:
                    yield pa.table({name: transactions(text[:end], where=where)})
            if rest:
                yield pa.table({name: transactions(rest, where=where)})
        done += part.stat().st_size
        tell(done)


def _parts(source: Any) -> list[Path]:
    if is_pattern(source):
        return matching(source)
    path = Path(source)
    if not path.is_dir():
        return [path]
    if any("=" in each.relative_to(path).as_posix() for each in path.rglob("*")):
        raise DataError(
            f"{quoted_path(path)} keeps columns in the names of its folders, which is not read in a stream; write "
            "the table as plain Parquet files, or allow more --memory"
        )
    return [
        each for each in sorted(path.rglob("*")) if not each.is_dir() and not each.name.startswith(("_", "."))
    ]


def _of_stream(source: Any, names: Sequence[str], rows: int) -> Iterator[pa.Table]:
    """A frame that hands its rows over one batch after another (a DuckDB relation), or one that is in memory."""
    if isinstance(source, pa.Table) or picks_columns(source):
        yield from _slices(read_table(source, names), rows)
        return
    for batch in pa.RecordBatchReader.from_stream(source):
        yield from _slices(selected(pa.table(batch), names, describe(source)), rows)


def _of_file(
    path: Path, names: Sequence[str], lists: Collection[str], rows: int, encoding: str | None
) -> Iterator[pa.Table]:
    kind = kind_of(path)
    with reading(path):
        if kind in PARQUET:
            yield from _of_parquet(path, names, rows)
        elif kind in TEXT:
            with open_file(path, encoding) as stream:
                yield from delimited_batches(stream, names, quoted_path(path))
        else:
            yield from _slices(read_table(path, names, lists=lists), rows)


def _of_parquet(path: Path, names: Sequence[str], rows: int) -> Iterator[pa.Table]:
    where, seen = quoted_path(path), 0
    with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
        found = file.schema_arrow.names
        chosen = [found[i] for i in choose(names, found, where)]
    texts = [name for name in chosen if is_text(file.schema_arrow.field(name).type)]
    # Texts that repeat are kept once in the file, and so they are read.
    with pa.parquet.ParquetFile(path, pre_buffer=False, read_dictionary=texts) as file:
        for batch in file.iter_batches(batch_size=rows, columns=chosen, use_threads=True):
            seen += batch.num_rows
            yield selected(pa.table(batch).select(chosen), None, where).rename_columns(list(names))
        if seen != file.metadata.num_rows:
            raise OSError("damaged")


def _slices(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for first in range(0, max(1, table.num_rows), rows):
        yield table.slice(first, rows)
