"""The first rows of a file with all its columns, also those that no schema names: internal, in no release."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from dualquery.errors import DataError
from dualquery.table.delimited import delimited_batches
from dualquery.table.files import kind_of, open_file, quoted_path, reading
from dualquery.table.parts import is_pattern, matching
from dualquery.table.source import PARQUET, TEXT, Source

ROWS = 50_000


def first_rows(source: Source, encoding: str | None = None) -> pa.Table:
    """The first rows of a text or Parquet file, or of the first of several; none of whatever else a table may be."""
    try:
        path = _first_file(source)
        with reading(path):
            if kind_of(path) in TEXT:
                with open_file(path, encoding) as stream:
                    blocks = delimited_batches(stream, None, quoted_path(path))
                    header = next(blocks)
                    return next(blocks, header).slice(0, ROWS)
            if kind_of(path) in PARQUET:
                with pa.parquet.ParquetFile(path, pre_buffer=False) as file:
                    batches = file.iter_batches(batch_size=ROWS)
                    return pa.Table.from_batches(islice(batches, 1), file.schema_arrow)
    except DataError:  # whoever reads the table has said what is wrong with it
        pass
    return pa.table({})


def _first_file(source: Source) -> Path:
    if not isinstance(source, str | os.PathLike):
        return Path()
    path = matching(source)[0] if isinstance(source, str) and is_pattern(source) else Path(source)
    return next(iter(sorted(path.rglob("*.parquet"))), Path()) if path.is_dir() else path
