"""Transaction files: a line of item ids a record.

A record ends at its newline and nowhere else, so no line can reach into another. An empty line is
a record without items.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.files import after, kind_of, open_file, quoted_path, reading
from dualquery.table.parts import is_pattern, matching

SUFFIXES = {".txt", ".dat"}


def is_transaction_name(path: str | os.PathLike[str]) -> bool:
    """Whether the name of a file allows it to be a transaction file."""
    return kind_of(Path(path)) in SUFFIXES


def read_transactions(path: str | os.PathLike[str], name: str) -> pa.Table:
    """A file with a line of item ids a record, as one column of lists."""
    tables = []
    for part in matching(path) if isinstance(path, str) and is_pattern(path) else [Path(path)]:
        with reading(part), open_file(part) as stream:
            text = stream.read()
        tables.append(pa.table({name: transactions(text, where=quoted_path(part))}))
    return pa.concat_tables(tables)


def transactions(text: bytes, *, where: str) -> pa.LargeListArray:
    """Lines of whole numbers separated by blanks, as lists of numbers."""
    if text.translate(None, b"0123456789 \t\r\n"):
        raise DataError(f"{where} holds something other than item ids, whole numbers separated by blanks")
    if b"\r" in text and text.count(b"\r") != text.count(b"\r\n"):
        # Taken for a blank it would join records, taken for a line end it would part them.
        at = next(i for i, letter in enumerate(text) if letter == 13 and text[i + 1 : i + 2] != b"\n")
        raise DataError(f"{where} has a carriage return that ends no line, {after(at)}")
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
