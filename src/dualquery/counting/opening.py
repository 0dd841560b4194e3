"""From a table, wherever it is, to a counter of its records: in memory where it fits, on disk where it does not.

What is counted is the same, number for number. Which way was taken is not told to anybody: where the number of
records is private, so is whether there were too many for the memory.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.counting import (
    CPU,
    Counter,
    Engine,
    MemoryCounter,
    SpilledCounter,
    SpilledUnits,
    StoredNumbers,
    WeighedCounter,
    is_spark_frame,
)
from dualquery.counting.cuda import Cuda
from dualquery.counting.spark import SparkCounter
from dualquery.errors import DualQueryError
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.kept_columns import MOST_BYTES, KeptColumns
from dualquery.queries.lists import Lists
from dualquery.queries.statistics import Countable
from dualquery.queries.tables import Tables
from dualquery.table.database import Database
from dualquery.table.encoding import encode, record_blocks
from dualquery.table.persons import RunningSpan, Span
from dualquery.table.reading import AnyTable, one_table, source_of
from dualquery.table.records import BitItems, Records, SparseItems, as_lists
from dualquery.table.schema import Schema
from dualquery.table.units import AnyDatabase, Units, tables_of
from dualquery.types import Done, Integers, Progress, no_progress

MEMORY = 2_000_000_000  # bytes, where nobody says how many
LEAST_ROWS, MOST_ROWS = 1 << 12, 1 << 19  # of a block
BYTES_A_CELL = 24  # of a block: as it is read, encoded, and counted


def open_counter(
    source: AnyTable | AnyDatabase,
    schema: Schema,
    *,
    records_per_person: int | None = None,
    memory: int | None = None,
    engine: Engine | None = None,
    tell: Progress = lambda stage, done, total: None,
    progress: Done = no_progress,
) -> Counter:
    """Read and encode a table, at once or in blocks, as it takes more or less than `memory`."""
    counter = _whole(source, schema, records_per_person, memory, engine, tell, progress)
    counter.within = schema.within
    return counter


def _whole(
    source: AnyTable | AnyDatabase,
    schema: Schema,
    records_per_person: int | None,
    memory: int | None,
    engine: Engine | None,
    tell: Progress,
    progress: Done,
) -> Counter:
    limit, within = MEMORY if memory is None else memory, schema.within
    if isinstance(within, RunningSpan):
        of_one = (records_per_person, memory, engine, tell, progress)
        days = within.weights().items()
        return WeighedCounter(
            [(_whole(source, schema.during(Span(within.calendar, c, c)), *of_one), x) for c, x in days]
        )
    if isinstance(schema.domain, Database):
        tables = tables_of(source, schema.domain).values()
        if any(map(is_spark_frame, tables)):
            return SparkCounter(source, schema, engine=engine or CPU, progress=progress)
        if sum(source_of(each).memory(each) or 0 for each in tables) > limit:
            blocks = record_blocks(
                source, schema, rows=block_rows(schema, limit), tell=partial(tell, "reading")
            )
            return SpilledUnits(schema.domain, blocks, engine=engine, progress=progress)
        return MemoryCounter(encode(source, schema), engine=engine, progress=progress)
    if is_spark_frame(source):
        return SparkCounter(
            source, schema, records_per_person=records_per_person, engine=engine or CPU, progress=progress
        )
    source = one_table(source)
    needed = source_of(source).memory(source)
    tell("reading the table", 0, 1)
    if needed is None or needed <= limit:
        records = encode(source, schema, records_per_person=records_per_person)
        tell("reading the table", 1, 1)
        return MemoryCounter(records, engine=engine, progress=progress)
    rows, pace = block_rows(schema, limit), _Pace()
    blocks = record_blocks(
        source,
        schema,
        rows=rows,
        records_per_person=records_per_person,
        tell=lambda done, size: tell(f"reading the table{pace.words()}", done, size),
    )
    return SpilledCounter(
        schema.domain,
        pace.passing(blocks),
        rows=rows,
        records_per_person=records_per_person,
        engine=engine,
        progress=progress,
    )


class _Pace:
    """Rows a second while a table is read, for the curator's screen: it has the size of the table beside it."""

    def __init__(self) -> None:
        self._rows, self._began = 0, time.monotonic()

    def passing(self, blocks: Iterable[Records]) -> Iterator[Records]:
        for block in blocks:
            self._rows += block.rows
            yield block

    def words(self) -> str:
        seconds = time.monotonic() - self._began
        return f": {self._rows / seconds:,.0f} rows a second" if self._rows and seconds > 0 else ""


def machines_of(counter: Counter) -> str:
    """Who counts, in the words of a certificate. Memory and disk are one: which of them it was is private."""
    if isinstance(counter, SparkCounter):
        return "Spark"
    return "one machine, with a GPU" if isinstance(counter.engine, Cuda) else "one machine"


def told_of_dropped(counter: Counter) -> list[str]:
    """How many rows of a database are in no unit, and why, in a sentence for the curator's screen."""
    dropped = getattr(counter, "dropped", None) or getattr(getattr(counter, "records", None), "dropped", None)
    if not dropped:
        return []
    said = "; ".join(f"{why}: {number:,}" for why, number in dropped.items())
    return [f"not private, for you alone: left out were {said}"]


def block_rows(schema: Schema, memory: int) -> int:
    """How many records are held at once: with their like in all stages they take a quarter of the memory."""
    cells = len(schema.domain.columns) + 4
    return max(LEAST_ROWS, min(MOST_ROWS, memory // (4 * BYTES_A_CELL * cells)))


FEW = 64  # queries; more of them are counted together, by the loops of their kind
MOST_ON_DISK = 64 * MOST_BYTES


class ColumnCounter(Counter):
    """Keeps the bit columns that questions have needed, in memory or on disk as the table itself is.

    A count takes a time that only the question decides.
    """

    def __init__(self, counter: Counter) -> None:
        super().__init__(counter.domain, counter.records_per_person)
        records = _records_of(counter)
        if isinstance(counter, SpilledCounter):
            columns = KeptColumns(records, most_bytes=MOST_ON_DISK, stored=on_disk)
        else:
            columns = KeptColumns(records)
        self._counter, self._columns = counter, columns

    @property
    def true_rows(self) -> int:
        return self._counter.true_rows

    @property
    def knows_places(self) -> bool:
        return self._counter.knows_places

    def _counted(self, what: Countable) -> Integers:
        if isinstance(what, Tables) and len(what.sets) == 1:
            return self._columns.cell_counts(what)
        if isinstance(what, Conjunctions | Parities) and what.size <= FEW:
            return self._columns.counts(what)
        if isinstance(what, Lists) and what.size == 1:  # without sorting, whose time the records decide
            return np.array([self._columns.given(what).sum()], np.int64)
        return self._counter.true_counts(what)


def true_digest(counter: Counter, key: str) -> str:
    """HMAC-SHA-256 of all records in their order, under a secret key: it says whether a table is still the same.

    Without the key it says nothing; it is as secret as the key all the same. Items are hashed as lists, however they
    are stored.
    """
    records = _records_of(counter)
    mac = hmac.new(bytes.fromhex(key), f"{records.rows} records".encode(), hashlib.sha256)
    hanging = records.members if isinstance(records, Units) else ()
    for each in (records, *(members.records for members in hanging)):
        for codes in each.columns:
            items = as_lists(codes, each.rows) if isinstance(codes, BitItems) else codes
            for array in (items.start, items.ids) if isinstance(items, SparseItems) else (items,):
                _hash(mac, array)
    for members in hanging:
        _hash(mac, members.start)
    return mac.hexdigest()


def _hash(mac: hmac.HMAC, array: NDArray[Any]) -> None:
    numbers = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    mac.update(f"\n{numbers.dtype.str} {len(numbers)}\n".encode())
    mac.update(numbers.data)


def _records_of(counter: Counter) -> Records:
    if isinstance(counter, SpilledCounter | MemoryCounter | SpilledUnits):
        return counter.records
    raise DualQueryError(
        "questions one at a time need the table on this machine; give its file instead of a cluster's frame"
    )


def on_disk(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a file without a name, mapped into memory: the system keeps of it what fits."""
    kept = StoredNumbers(numbers.dtype)
    kept.append(numbers)
    return kept.mapped()
