"""A table larger than memory: rows a second and peak memory, beside DuckDB reading and summing the same columns.

    python -m benchmarks.streaming FOLDER            20 million rows x 40 attributes: 100,000 queries and marginals:2
    python -m benchmarks.streaming FOLDER large      100 million rows, marginals:2
    python -m benchmarks.streaming FOLDER spark      two executors against one, and against this machine

FOLDER keeps the parts, which are made the first time (2 GB for 100 million rows; codes take another byte a cell while
a table is counted). Each run is a process of its own. Ratios are of processor seconds, which other programs on the
machine change little, and of wall seconds.
"""

from __future__ import annotations

import os
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks import large_table
from benchmarks.harness import Figure, in_fresh_process, show
from dualquery.counting import SpilledCounter
from dualquery.counting.opening import open_counter
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.table.encoding import encode

PARTS, LARGE, SPARK_PARTS = 20, 100, 12
QUERIES = "random-literals:3:100000"
TABLES = "marginals:2"
MEMORY = 1_000_000_000
Seconds = tuple[float, float]  # by the clock, and of processors


def timed(function: Callable[[], object]) -> Seconds:
    """How long it took, and how many seconds all processors worked at it."""
    before, started = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    function()
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def workload(*specs: str) -> Workload:
    return from_spec(large_table.schema().domain, list(specs))


@contextmanager
def pattern(folder: Path, parts: int) -> Iterator[str]:
    """A pattern that matches the first so many parts."""
    with tempfile.TemporaryDirectory() as some:
        for path in large_table.parts(folder, parts):
            os.symlink(path.resolve(), Path(some) / path.name)
        yield f"{some}/*.parquet"


def streamed(folder: Path, parts: int, specs: tuple[str, ...]) -> dict[str, Seconds]:
    """Reading and encoding, then counting, each group of queries by itself."""
    schema, asked = large_table.schema(), workload(*specs)
    asked.counts(encode(large_table.part(0, 1 << 16), schema))  # compiles
    found: dict[str, Seconds] = {}
    with pattern(folder, parts) as source:
        opened = []
        found["reading"] = timed(lambda: opened.append(open_counter(source, schema, memory=MEMORY)))
        _tell("reading", found)
        (counter,) = opened
        assert isinstance(counter, SpilledCounter)
        assert counter.true_rows == parts * large_table.PART
        for spec, group in zip(specs, asked.groups, strict=True):
            found[spec] = timed(lambda group=group: counter.true_counts(group))  # type: ignore[misc]
            _tell(spec, found)
    return found


def _tell(what: str, found: dict[str, Seconds]) -> None:
    wall, cpu = found[what]
    print(f"{what}: {wall:.1f} s, {cpu:.1f} processor seconds", file=sys.stderr, flush=True)


def kernels(folder: Path, specs: tuple[str, ...]) -> dict[str, Seconds]:
    """The compiled loops alone: counting a million records that are encoded and in memory."""
    records = encode(large_table.parts(folder, 1)[0], large_table.schema())
    asked = workload(*specs)
    asked.counts(records)
    groups = zip(specs, asked.groups, strict=True)
    return {spec: timed(lambda group=group: group.counts(records)) for spec, group in groups}  # type: ignore[misc]


def duckdb_sums(folder: Path, parts: int) -> Seconds:
    """The same columns, read and summed; of texts the lengths."""
    import duckdb

    sums = [
        f"sum(strlen({column.name}))" if column.name.startswith("named") else f"sum({column.name})"
        for column in large_table.schema().domain.columns
    ]
    with pattern(folder, parts) as source:
        query = f"SELECT {', '.join(sums)} FROM read_parquet('{source}')"
        connection = duckdb.connect()
        return timed(lambda: connection.execute(query).fetchall())


def streaming(folder: Path, parts: int, specs: tuple[str, ...]) -> None:
    rows = parts * large_table.PART
    large_table.parts(folder, parts)
    summed, _ = in_fresh_process(duckdb_sums, folder, parts)
    (found, peak) = in_fresh_process(streamed, folder, parts, specs)
    summed_again, _ = in_fresh_process(duckdb_sums, folder, parts)
    alone, _ = in_fresh_process(kernels, folder, specs)
    base = tuple(min(pair) for pair in zip(summed, summed_again, strict=True))
    total = tuple(map(sum, zip(*found.values(), strict=True)))
    counting = sum(alone[spec][1] for spec in specs) * parts
    show(
        f"{rows / 1e6:.0f} million rows x 40 attributes, {' and '.join(specs)}",
        [
            Figure("peak memory", peak, 2, " GB"),
            Figure("rows a second", rows / total[0]),
            Figure("rows a processor second", rows / total[1]),
            *(Figure(f"{what}: rows a processor second", rows / cpu) for what, (_, cpu) in found.items()),
            Figure("DuckDB, reading and summing: rows a second", rows / base[0]),
            Figure("DuckDB, reading and summing: rows a processor second", rows / base[1]),
            *(
                Figure(
                    f"the loops of {spec} alone: rows a processor second", large_table.PART / alone[spec][1]
                )
                for spec in specs
            ),
            Figure("seconds over DuckDB's, by the clock", total[0] / base[0]),
            Figure("processor seconds over DuckDB's", total[1] / base[1]),
            Figure("processor seconds without the loops', over DuckDB's", (total[1] - counting) / base[1], 3),
        ],
    )


def spark(folder: Path) -> None:
    """Two executors of one core against one: the clock over several passes, when their processes are warm."""
    from dualquery.counting.spark import SparkCounter, open_session

    schema, rows = large_table.schema(), SPARK_PARTS * large_table.PART
    group = workload(TABLES).groups[0]
    found: dict[int, float] = {}
    with pattern(folder, SPARK_PARTS) as source:
        expected = open_counter(source, schema, memory=MEMORY).true_counts(group)
        for executors in (1, 2):
            session = open_session(f"local-cluster[{executors},1,2048]")
            counter = SparkCounter(session.read.parquet(source), schema)
            assert np.array_equal(counter.true_counts(group), expected)
            found[executors] = min(
                timed(lambda counter=counter: counter.true_counts(group))[0] for _ in range(3)
            )  # type: ignore[misc]
            counter.close()
            session.stop()
    show(
        f"Spark, {rows / 1e6:.0f} million encoded rows x 40 attributes, {TABLES}",
        [
            Figure("one executor: rows a second", rows / found[1]),
            Figure("two executors: rows a second", rows / found[2]),
            Figure("two over one", found[1] / found[2], 1.5, "×", True),
            Figure("load of the machine, of cores", os.getloadavg()[0] / (os.cpu_count() or 1)),
        ],
    )


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "benchmarks/results/large")
    what = sys.argv[2] if len(sys.argv) > 2 else "streaming"
    if what == "large":
        streaming(folder, LARGE, (TABLES,))
    elif what == "spark":
        spark(folder)
    else:
        streaming(folder, PARTS, (QUERIES, TABLES))


if __name__ == "__main__":
    main()
