"""Counting 500,000 random 3-way conjunctions on KDD99, beside a C loop, DuckDB and Polars in the same run."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa

from benchmarks.harness import Figure, records_of, seconds_of, show
from dualquery.loops import limited
from dualquery.queries.bit_columns import predicate_bits
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.random_families import random_literals
from dualquery.table.records import Records

QUERIES = 500_000
SAMPLE = 300  # queries that the data frames are timed on
BLOCK_WORDS = 128

C_SOURCE = r"""
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
void count(const uint64_t *bits, long columns, long words, long rows,
           const int32_t *literals, long queries, long block, int64_t *counts) {
  uint64_t *local = aligned_alloc(64, (2 * columns + 1) * block * 8);
  for (long first = 0; first < words; first += block) {
    long size = words - first < block ? words - first : block;
    memset(local, 0, (2 * columns + 1) * block * 8);
    uint64_t *ones = local + 2 * columns * block;
    for (long w = 0; w < size; w++) {
      long beyond = 64 * (first + w + 1) - rows;
      ones[w] = beyond > 0 ? ~0ull >> beyond : ~0ull;
    }
    for (long p = 0; p < columns; p++)
      for (long w = 0; w < size; w++) {
        uint64_t word = bits[p * words + first + w];
        local[2 * p * block + w] = word;
        local[(2 * p + 1) * block + w] = ~word & ones[w];
      }
    for (long q = 0; q < queries; q++) {
      const uint64_t *a = local + literals[3 * q] * block;
      const uint64_t *b = local + literals[3 * q + 1] * block;
      const uint64_t *c = local + literals[3 * q + 2] * block;
      uint64_t total = 0;
      for (long w = 0; w < block; w++) total += __builtin_popcountll(a[w] & b[w] & c[w]);
      counts[q] += total;
    }
  }
  free(local);
}
"""


def c_seconds(group: Conjunctions, records: Records) -> tuple[float, np.ndarray]:
    """The blocked C loop on one core: the same AND and popcount over the same bit columns."""
    compiler = shutil.which("cc") or sys.exit("a C compiler is needed for the reference loop")
    bits = predicate_bits(group.predicates, records, 0, records.rows)
    order = np.lexsort(np.sort(group.literals, axis=1).T)
    literals = np.ascontiguousarray(group.literals[order])
    counts = np.zeros(group.size, np.int64)
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "count.c", Path(folder) / "count.so"
        source.write_text(C_SOURCE)
        subprocess.run(
            [compiler, "-O3", "-march=native", "-shared", "-fPIC", "-o", library, source], check=True
        )
        count = ctypes.CDLL(str(library)).count
        pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in (bits, literals, counts)]
        started = time.perf_counter()
        count(
            pointers[0],
            ctypes.c_long(len(bits)),
            ctypes.c_long(bits.shape[1]),
            ctypes.c_long(records.rows),
            pointers[1],
            ctypes.c_long(group.size),
            ctypes.c_long(BLOCK_WORDS),
            pointers[2],
        )
        seconds = time.perf_counter() - started
    back = np.empty_like(counts)
    back[order] = counts
    return seconds, back


def sample_terms(group: Conjunctions) -> list[list[tuple[int, int, bool]]]:
    """(attribute, value, negated) of each literal of the first SAMPLE queries."""
    terms = []
    for row in group.literals[:SAMPLE]:
        predicates = row >> 1
        values = [int(group.predicates.accepted(int(p))[0]) for p in predicates]
        terms.append(
            [
                (int(group.predicates.attribute[p]), v, bool(literal & 1))
                for p, v, literal in zip(predicates, values, row, strict=True)
            ]
        )
    return terms


def duckdb_seconds(terms: list[list[tuple[int, int, bool]]], table: pa.Table) -> tuple[float, list[int]]:
    """All queries of the sample as filtered counts of one scan."""
    connection = duckdb.connect()
    connection.register("source", table)
    connection.execute("CREATE TABLE t AS SELECT * FROM source")
    columns = [
        "count(*) FILTER (WHERE "
        + " AND ".join(f"c{j} {'<>' if negated else '='} {v}" for j, v, negated in literals)
        + ")"
        for literals in terms
    ]
    started = time.perf_counter()
    found = connection.execute(f"SELECT {', '.join(columns)} FROM t").fetchone()
    return time.perf_counter() - started, list(found or ())


def polars_seconds(terms: list[list[tuple[int, int, bool]]], table: pa.Table) -> tuple[float, list[int]]:
    """Boolean columns made once, then the queries of the sample in one lazy select."""
    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    used = sorted({(j, v) for literals in terms for j, v, _ in literals})
    flags = frame.select([(pl.col(f"c{j}") == v).alias(f"c{j}_{v}") for j, v in used])

    def literal(j: int, v: int, negated: bool) -> pl.Expr:
        column = pl.col(f"c{j}_{v}")
        return ~column if negated else column

    expressions = [
        pl.all_horizontal([literal(*term) for term in literals]).sum().alias(str(i))
        for i, literals in enumerate(terms)
    ]
    started = time.perf_counter()
    found = flags.lazy().select(expressions).collect()
    return time.perf_counter() - started, [int(x) for x in found.row(0)]


def main() -> None:
    records = records_of("kddcup99")
    group = random_literals(records.domain, 3, QUERIES).groups[0]
    assert isinstance(group, Conjunctions)
    with limited(1):
        one = seconds_of(lambda: group.counts(records), 1)
    with limited(2):
        two = seconds_of(lambda: group.counts(records), 1)
    ours = group.counts(records)
    c, c_counts = c_seconds(group, records)
    assert np.array_equal(ours, c_counts)
    table = pa.table({f"c{j}": codes for j, codes in enumerate(records.columns)})
    terms = sample_terms(group)
    duck, duck_counts = duckdb_seconds(terms, table)
    polar, polar_counts = polars_seconds(terms, table)
    assert duck_counts == polar_counts == ours[:SAMPLE].tolist()
    peer = max(SAMPLE / duck, SAMPLE / polar)
    show(
        "Counting 500,000 random 3-way conjunctions, KDD99, n = 494,021",
        [
            Figure("ours on one core, million queries a second", QUERIES / one / 1e6),
            Figure("ours on two cores, million queries a second", QUERIES / two / 1e6),
            Figure("C on one core, million queries a second", QUERIES / c / 1e6),
            Figure("time of ours over C, one core each", one / c, 2),
            Figure("DuckDB, million queries a second", SAMPLE / duck / 1e6),
            Figure("Polars, million queries a second", SAMPLE / polar / 1e6),
            Figure(
                "ours (two cores) over the best data frame (all cores)", QUERIES / two / peer, 50, "×", True
            ),
        ],
    )


if __name__ == "__main__":
    main()
