"""What users run, by this version and by another one: processor seconds, memory, and whether the bytes are the same.

python -m benchmarks.versions                             # this version alone
python -m benchmarks.versions --before DIR                # beside another checkout of the project, in turns
python -m benchmarks.versions --before DIR --runs 5 --only adult kdd99

Every run is a process of its own with the sources of one version on its path, and does its work twice: the first time
numba reads the compiled loops from its cache, the second time they are there. Seconds are those of the processor, all
threads together, and of the least run: they can be compared on a busy machine. The cache of each version is a fresh
folder, filled by a run that does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.csv

from benchmarks.harness import Figure, schema_path, show, table_path
from experiments.data import complete_rows

HERE = Path(__file__).resolve().parents[1]

# Run with the sources of either version, so it keeps to what both can do: each case gives a piece of work.
PROGRAM = """
import hashlib, json, resource, sys, time
import numpy as np
import dualquery
from dualquery import Accounting, Budget, Categorical, Domain, Neighbours, Records, read_schema

home, case, table, schema = sys.argv[1:]
assert dualquery.__file__.startswith(home), f"{dualquery.__file__} is not in {home}"
budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)

def released(records, workload, **options):
    made = dualquery.release(records, workload=workload, budget=budget, seed=7, **options)
    return made.records.to_rows().tobytes()

def wide():
    rng = np.random.default_rng(1)
    bias = rng.random(512_000)
    rows = np.stack([rng.random(512_000) < bias for _ in range(1_000)]).astype(np.uint8)
    domain = Domain(tuple(Categorical(f"a{j}", ("0", "1")) for j in range(512_000)))
    return Records.from_rows(domain, rows)

if case == "dualquery":
    records = wide()
    work = lambda: released(records, "random:3:20000", mechanism="dualquery", rounds=40, samples=5_000, rows=100_000)
elif case == "question":
    records = dualquery.encode(table, read_schema(schema))
    limits = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE)
    online = dualquery.online(records, budget=limits, seed=7)
    names, rng = [column.name for column in records.domain.columns], np.random.default_rng(1)
    drawn = lambda: " & ".join(f"{name} = {rng.integers(2)}" for name in rng.choice(names, 4, replace=False))
    work = lambda: "".join(str(online.ask(drawn())) for _ in range(400)).encode()
else:
    records = dualquery.encode(table, read_schema(schema))
    work = lambda: released(records, "marginals:3")

seconds = []
for _ in range(2):
    started = time.process_time()
    made = work()
    seconds.append(time.process_time() - started)
    if len(seconds) == 1:
        digest, peak = hashlib.sha256(made).hexdigest(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
print(json.dumps({"first": seconds[0], "again": seconds[1], "peak_gb": peak, "rows": digest}))
"""

# name: what it is, and the data set
CASES = {
    "adult": ("Adult, all triples, a release", "adult"),
    "nltcs": ("NLTCS, all triples, a release", "nltcs"),
    "kdd99": ("KDD99, all triples, a release", "kddcup99"),
    "dualquery": ("DualQuery, 512,000 attributes, 40 rounds", "nltcs"),
    "question": ("400 questions online, NLTCS", "nltcs"),
}


@dataclass(frozen=True)
class Ran:
    """One process: seconds of its first and its second turn, the memory of the first, a digest of what was made."""

    first: float
    again: float
    peak_gb: float
    rows: str


@dataclass(frozen=True)
class Version:
    """A checkout, the folder of its compiled loops, a table without missing cells, and what was seen of each case."""

    checkout: Path
    cache: Path
    adult: Path
    seen: dict[str, list[Ran]] = field(default_factory=dict)

    def run(self, case: str, *, counted: bool = True) -> None:
        source, (_, data) = str(self.checkout / "src"), CASES[case]
        table = self.adult if data == "adult" else table_path(data)
        found = subprocess.run(
            [
                sys.executable,
                "-P",
                "-c",
                PROGRAM,
                source,
                case,
                str(table),
                str(schema_path(data)),
            ],
            env={**os.environ, "PYTHONPATH": source, "NUMBA_CACHE_DIR": str(self.cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            sys.exit(f"{self.checkout}: {found.stderr.strip()}")
        if counted:
            self.seen.setdefault(case, []).append(Ran(**json.loads(found.stdout)))

    def least(self, case: str, what: str) -> float:
        return float(min(getattr(run, what) for run in self.seen[case]))


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
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES), help="some of the cases")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        adult = Path(folder) / "adult.csv"
        pyarrow.csv.write_csv(complete_rows(table_path("adult")), adult)
        versions = [Version(HERE, Path(folder) / "this", adult)]
        if given.before is not None:
            versions.append(Version(given.before.resolve(), Path(folder) / "before", adult))
        for case in given.only:
            for turn in range(given.runs + 1):  # in turns, so that a busy machine disturbs both
                for version in versions:
                    version.run(case, counted=turn > 0)
            figures = []
            for name, what, unit in (
                ("first in a process", "first", " s"),
                ("second in a process", "again", " s"),
                ("peak memory", "peak_gb", " GB"),
            ):
                values = [version.least(case, what) for version in versions]
                figures += compared(name, values[0], values[1] if len(values) > 1 else None, unit)
            show(f"{CASES[case][0]}: the least of {given.runs}, processor", figures)
            if given.before is not None:
                same = len({ran.rows for version in versions for ran in version.seen[case]}) == 1
                print(f"What was made is {'the same' if same else 'NOT the same'}.", flush=True)


if __name__ == "__main__":
    main()
