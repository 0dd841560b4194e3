"""Seconds that a person waits for a command, in this version and in another one: help, a question, a release.

python -m benchmarks.startup                   # this version alone
python -m benchmarks.startup --before DIR      # beside another checkout of the project, in turns
python -m benchmarks.startup --before DIR --runs 9

NLTCS, all 3-way tables, ε = 1, everything else by default; the question is asked of that release. Every run is a
process of its own, and the least of all runs is kept: by the clock, which is what counts on a machine with nothing
else to do, and in seconds of the processor, which can be compared on a busy one. Compiled loops are in the cache.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import Figure, schema_path, show, table_path
from benchmarks.versions import HERE, compared

QUESTION = "eating = 1 & dressing = 0 & bathing = 1"
MOST = {"help": 0.15, "a question": 0.6, "a release": 3.0}  # seconds by the clock


@dataclass(frozen=True)
class Version:
    """A checkout, a folder for its compiled loops and releases, and the least seconds of each command so far."""

    checkout: Path
    place: Path
    clock: dict[str, float] = field(default_factory=dict)
    processor: dict[str, float] = field(default_factory=dict)

    def run(self, number: int) -> None:
        """Every command once; the first run compiles and is not counted."""
        released = self.place / str(number)
        schema, table = schema_path("nltcs"), table_path("nltcs")
        release = ["release", table, "--schema", schema, "-q", "marginals:3", "-e", "1", "--out", released]
        self._timed("a release", [*release, "--quiet"], counted=number > 0)
        self._timed("a question", ["answer", released, QUESTION], counted=number > 0)
        self._timed("help", ["--help"], counted=number > 0)

    def _timed(self, what: str, arguments: list[str | Path], *, counted: bool) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.checkout / "src"),
            "NUMBA_CACHE_DIR": str(self.place / "loops"),
        }
        started, used = time.perf_counter(), _processor()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "dualquery", *map(str, arguments)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        clock, processor = time.perf_counter() - started, _processor() - used
        if done.returncode:
            sys.exit(f"{self.checkout}: {done.stderr.strip()}")
        if counted:
            self.clock[what] = min(clock, self.clock.get(what, clock))
            self.processor[what] = min(processor, self.processor.get(what, processor))


def _processor() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, metavar="DIR", help="another checkout of the project")
    parser.add_argument("--runs", type=int, default=3, metavar="N", help="runs a version (default 3)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        versions = [Version(HERE, Path(folder) / "this")]
        if given.before is not None:
            versions.append(Version(given.before.resolve(), Path(folder) / "before"))
        for number in range(given.runs + 1):  # in turns, so that a busy machine disturbs both
            for version in versions:
                version.place.mkdir(exist_ok=True)
                version.run(number)
    this, before = versions[0], versions[1] if len(versions) > 1 else None
    figures = []
    for what, most in MOST.items():
        figures.append(Figure(f"{what}, by the clock", this.clock[what], most, " s"))
        theirs = None if before is None else before.processor[what]
        figures += compared(f"{what}, processor", this.processor[what], theirs, " s")
    show(f"NLTCS, all 3-way tables: the least of {given.runs}", figures)


if __name__ == "__main__":
    main()
