"""The records of a table that does not fit into memory, some at a time.

A row is encoded by itself, so the records of a table are those of its batches. Where the schema names a unit, what
is kept of a person (`persons`) depends on that person's rows alone: rows go into bins by a hash of the id, a
person's rows all into the same bin, and each bin is encoded as if it were a table. The bins are files without a name
in the folder for temporary files: nobody else can open them, and nothing of them is left when the process ends,
however it ends.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.table.batches import Told, batches, transaction_batches
from dualquery.table.encoding import WantedColumns, check_persons, encoded
from dualquery.table.persons import owners_of
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.table.source import Source

BINS = 64  # of persons: each is encoded at once


def record_blocks(
    source: Source,
    schema: Schema,
    *,
    rows: int,
    records_per_person: int | None = None,
    tell: Told = lambda _: None,
) -> Iterator[Records]:
    """What `encode` would give, in blocks of about so many records. Nothing may be counted before the last one."""
    check_persons(schema, records_per_person)
    owned = schema.unit is not None and (schema.long or records_per_person is not None)
    wanted = WantedColumns.of(source, schema, owned=owned)
    if wanted.transactions:
        read = transaction_batches(source, wanted.names[0], rows=rows, tell=tell)
    else:
        read = batches(
            source, wanted.names, rows=rows, lists=wanted.lists, encoding=schema.encoding, tell=tell
        )
    if owned:
        assert schema.unit is not None
        read = _person_by_person(read, schema.unit)
    for batch in read:
        yield encoded(batch, schema, records_per_person=records_per_person)


def _person_by_person(read: Iterator[pa.Table], unit: str) -> Iterator[pa.Table]:
    """The same rows in other tables, those of a person all in one."""
    bins = [_Bin() for _ in range(BINS)]
    try:
        for batch in read:
            place = bin_of(batch.column(unit), unit, BINS)
            for number in np.unique(place).tolist():
                bins[number].append(batch.take(pa.array(np.flatnonzero(place == number))))
        for each in bins:
            yield from each.table()
    finally:
        for each in bins:
            each.close()


def bin_of(ids: pa.ChunkedArray, unit: str, bins: int) -> NDArray[np.int64]:
    """A bin for each row, by a hash of its person: the same in any batch, on any machine. Blank ids go first."""
    owners = owners_of(ids, unit)
    digests = [
        int.from_bytes(
            hashlib.blake2b(text.encode(), digest_size=8, person=b"bin of a person").digest(), "big"
        )
        % bins
        for text in owners.ids.to_pylist()
    ]
    known = np.array([*digests, 0], np.int64)
    return known[np.minimum(owners.of, len(digests))]


class _Bin:
    """Tables of one schema, one behind the other in a file without a name."""

    def __init__(self) -> None:
        self._file: Any = None
        self._writer: Any = None

    def append(self, table: pa.Table) -> None:
        # Dictionaries differ from batch to batch, and a stream of Arrow has one of each.
        table = pa.table(
            [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns],
            names=table.column_names,
        )
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open)
            self._writer = pa.ipc.new_stream(self._file, table.schema)
        self._writer.write_table(table)

    def table(self) -> Iterator[pa.Table]:
        if self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            yield pa.ipc.open_stream(self._file).read_all()
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
