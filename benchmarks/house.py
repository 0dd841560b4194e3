"""A release as users make it, by this version and by another one: time, memory, and what the first run compiles.

python -m benchmarks.house                     # this version alone
python -m benchmarks.house --before DIR        # beside another checkout of the project, in turns
python -m benchmarks.house --before DIR --runs 5

Adult, 500,000 random 3-way queries, ε = 1, δ = 10⁻³, by ρ, neighbours replace a record, everything else by default.
Every run is a process of its own with the sources of one version on its path. What is timed is `dualquery.release`
of records that are encoded already, twice in a process: the first time numba reads the compiled loops from its
cache, the second time they are there. The cache of each version is a fresh folder, filled by a run that is told
apart.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import pyarrow.csv

from benchmarks.harness import Figure, schema_path, show, table_path
from experiments.data import complete_rows

HERE = Path(__file__).resolve().parents[1]
QUERIES = "random-literals:3:500000"

# Run with the sources of either version, so it keeps to what both can do.
PROGRAM = """
import hashlib, json, resource, sys, time
import dualquery
from dualquery import Accounting, Budget, Neighbours, read_schema

home, table, schema, queries = sys.argv[1:]
assert dualquery.__file__.startswith(home), f"{dualquery.__file__} is not in {home}"
records = dualquery.encode(table, read_schema(schema))
budget = Budget(epsilon=1, delta=1e-3, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)

def seconds():
    started = time.perf_counter()
    made = dualquery.release(records, workload=queries, budget=budget, seed=7)
    return time.perf_counter() - started, made

first, made = seconds()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
again, _ = seconds()
rows = hashlib.sha256(made.records.to_rows().tobytes()).hexdigest()
print(json.dumps({"first": first, "again": again, "peak_gb": peak, "rows": rows}))
"""


@dataclass(frozen=True)
class Ran:
    """One process: seconds of its first and its second release, the memory of the first, a digest of the rows."""

    first: float
    again: float
    peak_gb: float
    rows: str


@dataclass(frozen=True)
class Version:
    """A checkout, and the folder of its compiled loops."""

    checkout: Path
    cache: Path
    table: Path

    def run(self) -> Ran:
        source = str(self.checkout / "src")
        arguments = [source, str(self.table), str(schema_path("adult")), QUERIES]
        found = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM, *arguments],
            env={**os.environ, "PYTHONPATH": source, "NUMBA_CACHE_DIR": str(self.cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            sys.exit(f"{self.checkout}: {found.stderr.strip()}")
        return Ran(**json.loads(found.stdout))


def middle(runs: list[Ran], what: str) -> float:
    return float(median(getattr(run, what) for run in runs))


def compared(name: str, ours: float, theirs: float | None, unit: str) -> list[Figure]:
    """A figure of this version, and of another beside it."""
    figures = [Figure(f"{name}, this version", ours, unit=unit)]
    if theirs is not None:
        figures.append(Figure(f"{name}, before", theirs, unit=unit))
        figures.append(Figure(f"{name}, this version over before", ours / theirs, unit="×"))
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout of the project")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="processes a version (default 3)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "adult.csv"
        pyarrow.csv.write_csv(complete_rows(table_path("adult")), table)
        versions = [Version(HERE, Path(folder) / "this", table)]
        if given.before is not None:
            versions.append(Version(given.before.resolve(), Path(folder) / "before", table))
        compiling = [version.run() for version in versions]
        runs: list[list[Ran]] = [[] for _ in versions]
        for _ in range(given.runs):  # in turns, so that a busy machine disturbs both
            for mine, version in zip(runs, versions, strict=True):
                mine.append(version.run())
    figures = []
    for name, what, unit in (
        ("first release of a process", "first", " s"),
        ("second release of a process", "again", " s"),
        ("peak memory", "peak_gb", " GB"),
    ):
        values = [middle(mine, what) for mine in runs]
        figures += compared(name, values[0], values[1] if len(values) > 1 else None, unit)
    first = [ran.first for ran in compiling]
    figures += compared("release that compiles", first[0], first[1] if len(first) > 1 else None, " s")
    show(f"Adult, {QUERIES}, ε = 1, δ = 10⁻³: medians of {given.runs}", figures)
    if given.before is not None:
        same = len({ran.rows for mine in (compiling, *runs) for ran in mine}) == 1
        print(f"The released rows are {'the same' if same else 'NOT the same'}.")
    for name, mine in zip(("this version", "before"), runs, strict=False):
        print(f"{name}:", ", ".join(f"{ran.first:.2f} and {ran.again:.2f} s" for ran in mine))


if __name__ == "__main__":
    main()
