"""From a table, wherever it is, to a counter of its records: in memory where it fits, on disk where it does not.

What is counted is the same, number for number. Which way was taken is not told to anybody: where the number of
records is private, so is whether there were too many for the memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from dualquery.counting.counter import Counter
from dualquery.counting.memory import MemoryCounter
from dualquery.counting.spark import SparkCounter, is_spark_frame
from dualquery.counting.spilled import SpilledCounter
from dualquery.queries.group import Progress, no_progress
from dualquery.table.encoding import encode, record_blocks
from dualquery.table.reading import AnyTable, source_of
from dualquery.table.records import Records
from dualquery.table.schema import Schema

MEMORY = 2_000_000_000  # bytes, where nobody says how many
LEAST_ROWS, MOST_ROWS = 1 << 12, 1 << 19  # of a block
BYTES_A_CELL = 24  # of a block: as it is read, encoded, and counted

Stage = Callable[[str, int, int], None]


def open_counter(
    source: AnyTable,
    schema: Schema,
    *,
    records_per_person: int | None = None,
    memory: int | None = None,
    tell: Stage = lambda stage, done, total: None,
    progress: Progress = no_progress,
) -> Counter:
    """Read and encode a table, at once or in blocks, as it takes more or less than `memory`."""
    if is_spark_frame(source):
        return SparkCounter(source, schema, records_per_person=records_per_person, progress=progress)
    limit = MEMORY if memory is None else memory
    needed = source_of(source).memory(source)
    tell("reading the table", 0, 1)
    if needed is None or needed <= limit:
        records = encode(source, schema, records_per_person=records_per_person)
        tell("reading the table", 1, 1)
        return MemoryCounter(records, progress=progress)
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


def engine_of(counter: Counter) -> str:
    """Who counts, in the words of a certificate. Memory and disk are one: which of them it was is private."""
    return "Spark" if isinstance(counter, SparkCounter) else "one machine"


def block_rows(schema: Schema, memory: int) -> int:
    """How many records are held at once: with their like in all stages they take a quarter of the memory."""
    cells = len(schema.domain.columns) + 4
    return max(LEAST_ROWS, min(MOST_ROWS, memory // (4 * BYTES_A_CELL * cells)))
