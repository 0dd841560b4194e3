"""The counter of a table that lies on a cluster: counting goes to where the records are.

Executors encode their rows and count them with the same compiled loops as one machine does (`mapInArrow`); what
travels out is what to count and the schema, what travels back are whole numbers, summed by a tree. The encoded
records are kept where they are, in the memory and on the disks of the executors, for the next question. A task that
is lost or run twice changes nothing: its numbers come back as the result of the task, once, and are the same.

Where the schema names a unit, the rows of a person are first brought together, by a hash of the id.

Files are read as Parquet only: what a record is must not depend on the others (docs/schema.md), and Spark's reader
of CSV lets a quote that is not closed swallow the records after it. Every part is looked at before anything is
counted, because Spark would fill a column that a part does not have with nulls.
"""

from __future__ import annotations

import os
import pickle
import re
import shutil
import socket
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa

from dualquery.counting import CPU, Counter, Engine, counted_by, is_spark_frame
from dualquery.errors import DataError, DualQueryError
from dualquery.loops import cores, limited
from dualquery.queries.statistics import Countable
from dualquery.table.database import Database
from dualquery.table.domain import Domain
from dualquery.table.encoding import bin_of, by_person, encode, wanted_columns
from dualquery.table.reading import read_table
from dualquery.table.reading.source import PARQUET_FILES, WantedColumns, choose, kind_of, reading
from dualquery.table.records import Records
from dualquery.table.schema import Schema
from dualquery.table.units import Members, Units, tables_of, units_of, wanted_of
from dualquery.types import Done, Integers, no_progress

BLOCK = "block binary, rows long, failed string"  # some encoded records, how many, or what is wrong with them
COUNTS = "counts binary"
PARTS = "bin long, name string, part binary"  # the rows of a table whose keys are in one bin
PARTS_OF_KEYS = 1 << 10
BIN = "bin of a person"
BINS = 1 << 20
AT_ONCE = 1 << 26  # bytes of partial numbers that the driver adds up by itself
Batches = Iterator[pa.RecordBatch]


class SparkCounter(Counter):
    """Counts the rows of a Spark DataFrame in its executors."""

    def __init__(
        self,
        frame: Any,
        schema: Schema,
        *,
        records_per_person: int | None = None,
        engine: Engine = CPU,
        progress: Done = no_progress,
    ) -> None:
        super().__init__(schema.domain, records_per_person, engine=engine, progress=progress)
        with spark_words():
            if isinstance(schema.domain, Database):
                frame, encoding = _unit_by_unit(frame, schema, schema.domain)
            else:
                owned = by_person(schema, records_per_person)
                names = list(wanted_columns(frame, schema, records_per_person).names or ())
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
    def true_rows(self) -> int:
        return self._rows

    def _counted(self, what: Countable) -> Integers:
        counts = counted_by(self._engine, what, _none_of(self.domain)).copy()
        counting = _counting(self.domain, self.records_per_person, self._engine, what)
        with spark_words():
            partial = self._blocks.select("block").mapInArrow(counting, COUNTS)
            # A tree of two levels; for few numbers it only costs time.
            if self._tasks * counts.nbytes > AT_ONCE:
                partial = partial.repartition(round(self._tasks**0.5)).mapInArrow(_summed, COUNTS)
            found = partial.toArrow()
        for part in found.column("counts").to_pylist():
            counts += np.frombuffer(part, np.int64)
        return counts

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


def _unit_by_unit(
    source: Any, schema: Schema, database: Database
) -> tuple[Any, Callable[[Batches], Batches]]:
    """The rows of all tables of a database in parts by the bins of their keys, and how units are made of these."""
    tables, wanted = tables_of(source, database), wanted_of(database)
    public = {name: _here_as_arrow(each) for name, each in tables.items() if name not in wanted}
    parts: Any = None
    for name, (columns, key) in wanted.items():
        if not is_spark_frame(tables[name]):
            raise DataError(f"table '{name}' is no Spark frame; give all tables but public ones as such")
        part = _named(tables[name], columns).mapInArrow(_binned_parts(name, key), PARTS)
        parts = part if parts is None else parts.union(part)

    def run(batches: Batches) -> Batches:
        found: dict[str, list[pa.Table]] = {name: [] for name in wanted}
        for batch in batches:
            for name, part in zip(batch.column("name").to_pylist(), batch.column("part"), strict=True):
                found[name].append(pa.ipc.open_stream(part.as_buffer()).read_all())
        if any(found.values()):
            own = {
                name: pa.concat_tables(each)
                if each
                else pa.table({n: pa.array([], pa.string()) for n in wanted[name][0]})
                for name, each in found.items()
            }
            yield _made({**public, **own}, schema, None)

    return parts.repartition("bin"), run


def _binned_parts(name: str, key: str | None) -> Callable[[Batches], Batches]:
    """Runs in an executor: the rows of each bin of a table as one value."""
    assert key is not None, "checked with the schema"

    def run(batches: Batches) -> Batches:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            place = bin_of(table.column(key), key, PARTS_OF_KEYS)
            bins, parts = np.unique(place).tolist(), []
            for number in bins:
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, table.schema) as writer:
                    writer.write_table(table.filter(pa.array(place == number)))
                parts.append(sink.getvalue().to_pybytes())
            yield pa.RecordBatch.from_arrays(
                [pa.array(bins, pa.int64()), pa.array([name] * len(bins)), pa.array(parts, pa.binary())],
                ["bin", "name", "part"],
            )

    return run


def _here_as_arrow(table: Any) -> Any:
    """A public table, which executors are sent."""
    return table.toArrow() if is_spark_frame(table) else read_table(table, WantedColumns(None))


def _encoding(
    schema: Schema, names: list[str], records_per_person: int | None, *, at_once: bool
) -> Callable[[Batches], Batches]:
    """Runs in an executor: rows to encoded records, a partition at once where persons must stay together."""

    def encoded(table: pa.Table) -> pa.RecordBatch:
        return _made(table.select(names), schema, records_per_person)

    def run(batches: Batches) -> Batches:
        if at_once:
            together = list(batches)
            if together:
                yield encoded(pa.Table.from_batches(together))
            return
        for batch in batches:
            yield encoded(pa.Table.from_batches([batch]))

    return run


def _made(table: Any, schema: Schema, records_per_person: int | None) -> pa.RecordBatch:
    """Rows as an encoded block, or what is wrong with them."""
    try:
        records = encode(table, schema, records_per_person=records_per_person)
    except DualQueryError as problem:
        # As a value: an exception would come back inside a page of Java.
        return _block(b"", 0, str(problem))
    members = [(each.start, each.records.columns) for each in getattr(records, "members", ())]
    block = (records.rows, records.columns, records.places, members)
    return _block(pickle.dumps(block, protocol=5), records.rows, None)


def _read_again(domain: Domain, records_per_person: int | None, block: Any) -> Records:
    rows, columns, places, members = pickle.loads(block)
    if not isinstance(domain, Database):
        return Records(domain, rows, columns, records_per_person, places)
    hanging = (
        Members(start, Records(child.domain, int(start[-1]), codes))
        for child, (start, codes) in zip(domain.children, members, strict=True)
    )
    return Units(domain, rows, columns, members=tuple(hanging))


def _block(block: bytes, rows: int, failed: str | None) -> pa.RecordBatch:
    kinds = [pa.binary(), pa.int64(), pa.string()]
    arrays = [pa.array([value], kind) for value, kind in zip((block, rows, failed), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, ["block", "rows", "failed"])


def _counting(
    domain: Domain, records_per_person: int | None, engine: Engine, what: Countable
) -> Callable[[Batches], Batches]:
    """Runs in an executor: the numbers of all records of a partition."""

    def run(batches: Batches) -> Batches:
        total: Integers | None = None
        for batch in batches:
            for block in batch.column(0):
                records = _read_again(domain, records_per_person, block.as_buffer())
                with limited(_cores_of_task()):
                    counts = counted_by(engine, what, records)
                total = counts if total is None else total + counts
        if total is not None:
            yield _numbers(total)

    return run


def _cores_of_task() -> int:
    """A task has so many cores, and the compiled loops would take all that the machine has."""
    from pyspark import TaskContext

    context = TaskContext.get()
    return min(cores(), context.cpus() if context else 1)


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


def _none_of(domain: Domain) -> Records:
    if isinstance(domain, Database):
        nothing = [
            (np.zeros(0, np.int64), np.zeros((0, each.domain.width), np.int64)) for each in domain.children
        ]
        return units_of(domain, np.zeros((0, len(domain.root.columns)), np.int64), nothing)
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


REMOTE = "sc://"  # a Spark Connect server
CONNECT_PORT = 15002  # where no other is named
MASTERS = re.compile(r"local(\[.+\])?|local-cluster\[.+\]|yarn|(k8s|spark|sc)://.+")
JAVA = 17
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "200000",
    # Some million rows a task: executors share them evenly, and a lost one loses little.
    "spark.sql.files.maxPartitionBytes": "32m",
    # A column is read by its name as it is written, as everywhere else in this program.
    "spark.sql.caseSensitive": "true",
    # Few persons need few partitions, also where what they become is kept.
    "spark.sql.optimizer.canChangeCachedPlanOutputPartitioning": "true",
}


def spark_frame(source: str, names: Sequence[str], master: str) -> Any:
    """The Parquet files that a path, a pattern or a URL names, with the columns asked for in every one of them."""
    _refuse_other_kinds(source)
    session = open_session(master)
    with spark_words():
        frame = session.read.parquet(source)
        parts = sorted(frame.inputFiles())
    _check_parts(session, parts, names)
    return frame


def open_session(master: str) -> Any:
    """A session of the cluster that `master` names, be it one of Spark Connect."""
    if MASTERS.fullmatch(master) is None:
        raise DualQueryError(
            "--master must be local[N], local-cluster[N,CORES,MB], yarn, k8s://…, spark://… or sc://…, "
            f"got '{master}'"
        )
    # Of pandas, which is not used.
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")
    try:
        from pyspark.sql import SparkSession

        return (_remote if master.startswith(REMOTE) else _here)(SparkSession.builder, master)
    except DualQueryError:
        raise
    except ImportError:  # Spark Connect wants more packages than Spark
        raise DualQueryError(
            "--engine spark needs pyspark; install it with: pip install 'dualquery[spark]'"
        ) from None
    except Exception as problem:  # of Java, of its gateway, or of a server: they have no type in common
        raise DualQueryError(
            f"no Spark session could be opened with --master '{master}' ({type(problem).__name__}); see whether it "
            "can be reached, and Spark's own messages"
        ) from None


def _here(builder: Any, master: str) -> Any:
    """A session whose driver is this process."""
    check_java()
    builder = builder.master(master).appName("dualquery")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    if master.startswith("local"):  # the executors are on this machine: they run this Python and this program
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        builder = builder.config("spark.executorEnv.PYTHONPATH", os.pathsep.join(_paths()))
    return builder.getOrCreate()


def _remote(builder: Any, master: str) -> Any:
    """A session of a Spark Connect server; its client would knock for ten minutes where nobody answers."""
    address = urlsplit(master)
    try:
        socket.create_connection((address.hostname or "", address.port or CONNECT_PORT), timeout=20).close()
    except (OSError, ValueError):
        raise DualQueryError(
            f"no Spark Connect server answers at '{master}'; look at the host, the port and the server"
        ) from None
    session = builder.remote(master).getOrCreate()
    for key, value in SETTINGS.items():
        if key.startswith("spark.sql."):  # the others are the server's own
            session.conf.set(key, value)
    return session


def check_java() -> None:
    """Refuse where there is no Java, or one that is too old."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = f"install Java {JAVA} (Debian: openjdk-17-jre-headless), or set JAVA_HOME to where it is"
    if program is None:
        raise DualQueryError(f"Spark needs Java {JAVA}, and there is none here; {advice}")
    try:
        told = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60).stderr
    except (OSError, subprocess.SubprocessError):
        raise DualQueryError(f"Spark needs Java {JAVA}, and '{program}' does not start; {advice}") from None
    number = re.search(r'version "(\d+)', told)
    if number is None or int(number[1]) < JAVA:
        raise DualQueryError(f"Spark needs Java {JAVA}, and '{program}' is an older one; {advice}")


def _paths() -> list[str]:
    """Where Python finds this program, and whatever was put in its way before."""
    given = [each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
    return [str(Path(__file__).resolve().parents[2]), *map(os.path.abspath, given)]


def _refuse_other_kinds(source: str) -> None:
    kind = kind_of(Path(source.rstrip("/")))
    if kind and kind not in PARQUET_FILES and "*" not in kind:
        raise DataError(
            f"with --engine spark a table is Parquet, and '{source}' is not; write it as Parquet first"
        )


def _check_parts(session: Any, parts: Sequence[str], names: Sequence[str]) -> None:
    """Every part has every column, of the kind that it has in the first part."""
    if not parts:
        raise DataError("there is no Parquet file in the table")
    wanted: list[str] | None = None
    for part in parts:
        found = _columns(session, part)
        chosen = choose(names, list(found), f"'{part}'")
        kinds = [list(found.values())[i] for i in chosen]
        for name, kind, before in zip(names, kinds, wanted or kinds, strict=True):
            if kind != before:
                raise DataError(
                    f"'{part}': column '{name}' holds {kind} there and {before} in the parts before it; write all "
                    "parts with the same type"
                )
        wanted = wanted or kinds


def _columns(session: Any, part: str) -> dict[str, str]:
    """The columns of one file and their kinds: read here where the file is here, by Spark where it is not."""
    address = urlsplit(part)
    if address.scheme in ("", "file"):
        import pyarrow.parquet

        path = Path(unquote(address.path))
        with reading(path):
            schema = pyarrow.parquet.read_schema(path)
        return {field.name: str(field.type) for field in schema}
    with spark_words():
        return {
            field.name: field.dataType.simpleString() for field in session.read.parquet(part).schema.fields
        }
