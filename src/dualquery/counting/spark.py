"""The counter of a table that lies on a cluster: counting goes to where the records are.

Executors encode their rows and count them with the same compiled loops as one machine does (`mapInArrow`); what
travels out is what to count and the schema, what travels back are whole numbers, summed by a tree. The encoded
records are kept where they are, in the memory and on the disks of the executors, for the next question. A task that
is lost or run twice changes nothing: its numbers come back as the result of the task, once, and are the same.

Where the schema names a unit, the rows of a person are first brought together, by a hash of the id (`blocks`).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa

from dualquery.counting.counter import Countable, Integers
from dualquery.counting.in_parts import InParts
from dualquery.counting.kept import KeptCounts
from dualquery.errors import DataError, DualQueryError
from dualquery.queries.group import Progress, no_progress
from dualquery.table.domain import Domain
from dualquery.table.encoding import bin_of, by_person, encode, wanted_columns
from dualquery.table.reading.source import choose
from dualquery.table.records import Records
from dualquery.table.schema import Schema

BLOCK = "block binary, rows long, failed string"  # some encoded records, how many, or what is wrong with them
COUNTS = "counts binary"
BIN = "bin of a person"
BINS = 1 << 20
AT_ONCE = 1 << 26  # bytes of partial numbers that the driver adds up by itself
Batches = Iterator[pa.RecordBatch]


def is_spark_frame(source: object) -> bool:
    """Whether a table is a Spark DataFrame, be it of a session here or of a Spark Connect server."""
    return type(source).__module__.startswith("pyspark.sql") and hasattr(source, "mapInArrow")


class SparkCounter:
    """Counts the rows of a Spark DataFrame in its executors."""

    def __init__(
        self,
        frame: Any,
        schema: Schema,
        *,
        records_per_person: int | None = None,
        progress: Progress = no_progress,
    ) -> None:
        self._domain = schema.domain
        self._records_per_person = records_per_person
        self._counts = KeptCounts(progress)
        owned = by_person(schema, records_per_person)
        names = list(wanted_columns(frame, schema, records_per_person).names or ())
        with spark_words():
            frame = _named(frame, names)
            if schema.unit is not None and owned:
                frame = _person_by_person(frame, schema.unit)
            encoding = _encoding(schema, names, records_per_person, at_once=owned)
            self._blocks = frame.mapInArrow(encoding, BLOCK).persist()
            told = self._blocks.select("rows", "failed").toArrow()
        for sentence in told.column("failed").drop_null().to_pylist()[:1]:
            raise DataError(sentence)
        self._rows = sum(told.column("rows").to_pylist())
        self._tasks = max(1, told.num_rows)

    @property
    def domain(self) -> Domain:
        return self._domain

    @property
    def records_per_person(self) -> int | None:
        return self._records_per_person

    @property
    def true_rows(self) -> int:
        return self._rows

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        return self._counts.of(countable, self._counted, kept=kept)

    def _counted(self, countable: Countable) -> Integers:
        asked = InParts(countable)
        counts = asked.counts(_no_records(self._domain)).copy()
        counting = _counting(self._domain, self._records_per_person, asked)
        with spark_words():
            partial = self._blocks.select("block").mapInArrow(counting, COUNTS)
            if (
                self._tasks * counts.nbytes > AT_ONCE
            ):  # a tree of two levels; for few numbers it only costs time
                partial = partial.repartition(round(self._tasks**0.5)).mapInArrow(_summed, COUNTS)
            found = partial.toArrow()
        for part in found.column("counts").to_pylist():
            counts += np.frombuffer(part, np.int64)
        return asked.whole(counts)

    def close(self) -> None:
        """Let the executors forget the records."""
        self._blocks.unpersist()


def _named(frame: Any, names: list[str]) -> Any:
    """The columns of the schema, in its order and under its names."""
    from pyspark.sql.functions import col

    found = frame.columns
    chosen = [found[i] for i in choose(names, found, "the table")]
    return frame.select(*[col(f"`{here}`").alias(name) for here, name in zip(chosen, names, strict=True)])


def _person_by_person(frame: Any, unit: str) -> Any:
    """The same rows, those of a person in the same partition."""
    from pyspark.sql.types import LongType, StructField, StructType

    def binned(batches: Batches) -> Batches:
        for batch in batches:
            ids = pa.chunked_array([batch.column(batch.schema.get_field_index(unit))])
            yield batch.append_column(BIN, pa.array(bin_of(ids, unit, BINS)))

    kinds = StructType([*frame.schema.fields, StructField(BIN, LongType())])
    return frame.mapInArrow(binned, kinds).repartition(f"`{BIN}`")


def _encoding(
    schema: Schema, names: list[str], records_per_person: int | None, *, at_once: bool
) -> Callable[[Batches], Batches]:
    """Runs in an executor: rows to encoded records, a partition at once where persons must stay together."""

    def encoded(table: pa.Table) -> pa.RecordBatch:
        try:
            records = encode(table.select(names), schema, records_per_person=records_per_person)
        except DualQueryError as problem:
            # As a value: an exception would come back inside a page of Java.
            return _block(b"", 0, str(problem))
        return _block(pickle.dumps((records.rows, records.columns), protocol=5), records.rows, None)

    def run(batches: Batches) -> Batches:
        if at_once:
            together = list(batches)
            if together:
                yield encoded(pa.Table.from_batches(together))
            return
        for batch in batches:
            yield encoded(pa.Table.from_batches([batch]))

    return run


def _block(block: bytes, rows: int, failed: str | None) -> pa.RecordBatch:
    kinds = [pa.binary(), pa.int64(), pa.string()]
    arrays = [pa.array([value], kind) for value, kind in zip((block, rows, failed), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["block", "rows", "failed"])


def _counting(
    domain: Domain, records_per_person: int | None, countable: Countable
) -> Callable[[Batches], Batches]:
    """Runs in an executor: the numbers of all records of a partition."""

    def run(batches: Batches) -> Batches:
        _keep_to_the_task()
        total: Integers | None = None
        for batch in batches:
            for block in batch.column(0):
                rows, columns = pickle.loads(block.as_buffer())
                counts = countable.counts(Records(domain, rows, columns, records_per_person))
                total = counts if total is None else total + counts
        if total is not None:
            yield _numbers(total)

    return run


def _keep_to_the_task() -> None:
    """A task has so many cores, and the compiled loops would take all that the machine has."""
    from numba import config, set_num_threads
    from pyspark import TaskContext

    context = TaskContext.get()
    set_num_threads(min(config.NUMBA_NUM_THREADS, context.cpus() if context else 1))


def _summed(batches: Batches) -> Batches:
    """Runs in an executor: partial numbers to their sum."""
    total: Integers | None = None
    for batch in batches:
        for part in batch.column(0).to_pylist():
            counts = np.frombuffer(part, np.int64)
            total = counts.copy() if total is None else total + counts
    if total is not None:
        yield _numbers(total)


def _numbers(counts: Integers) -> pa.RecordBatch:
    data = np.ascontiguousarray(counts, np.int64).tobytes()
    return pa.RecordBatch.from_arrays([pa.array([data], pa.binary())], ["counts"])


def _no_records(domain: Domain) -> Records:
    return Records.from_rows(domain, np.zeros((0, domain.width), np.int64))


@contextmanager
def spark_words() -> Iterator[None]:
    """Turns what a cluster can do wrong into one sentence that quotes nothing of the table."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError, ConnectionError, EOFError) as problem:
        condition, path = _told(problem)
        where = f" at '{path}'" if path else ""
        raise DualQueryError(
            f"Spark stopped with {condition}{where}; its own log says more, and nothing was released"
        ) from None


def _told(problem: Exception) -> tuple[str, str | None]:
    """The name of what went wrong and, where a file did, the file. Messages may quote cells: none is passed on."""
    cause: Any = problem
    if hasattr(problem, "java_exception"):  # as Java has it
        cause = problem.java_exception
    for _ in range(10):  # the one that names a file is the cause of others
        try:
            condition, given = cause.getCondition(), dict(cause.getMessageParameters() or {})
            if given.get("path"):
                return str(condition), str(given["path"])
        except Exception:  # not one of those that have a name
            pass
        following = getattr(cause, "getCause", None)
        if following is None or (following := following()) is None:
            break
        cause = following
    name = getattr(problem, "getCondition", lambda: None)()
    return str(name or type(problem).__name__), None
