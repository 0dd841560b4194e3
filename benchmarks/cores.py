"""What more cores bring: seconds of whole releases, from the file to the folder, over the number of threads.

python -m benchmarks.cores                              # 1, 2, 4, … threads, up to the cores there are
python -m benchmarks.cores --threads 1 2 --runs 5       # these, the least of five runs
python -m benchmarks.cores --data nltcs --out folder    # one data set; the figures go to folder/cores.csv

All triples, ε = 1, bars included, a seed. Each number of threads has a process of its own, in which a first release
loads the compiled loops and is not counted. Beside the seconds stand those of all processors together, the memory at
its most, and the serial share s of Amdahl's law, T(n) = T(1)·(s + (1 − s)/n), also of each stage (cores_stages.csv).
That all releases of a data set are the same, byte for byte, is checked.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

from experiments.data import FILES, SCHEMAS, Data

HERE = Path(__file__).parent
SETS = ("nltcs", "adult", "kddcup99")
WANTED = {2: {"nltcs": 1.7, "adult": 1.7, "kddcup99": 1.7}, 16: {"nltcs": 4.0, "adult": 4.0, "kddcup99": 6.0}}
MOST_MEMORY = 1.5  # times that of one thread
REST = "choose, shrink, start rows, report to the certificate"
REPLICAS = "replicas"
STAGES = {  # functions, by the stage that their time counts to
    "read and encode": ("releases.make:counting",),
    "plan": ("releases.make:settle", "releases.make:plan_checked"),
    "count and add noise": ("privacy.curator:Curator.measure",),
    "fit rows": ("fitting.fit:passes",),
    "order numbers inside bins": ("mechanisms.outcomes:placed",),
    REPLICAS: ("releases.make:made_replicas",),
    "curves of error bars": ("releases.make:scales_of", "releases.certificate:learned_curves"),
    "save": ("releases.folder:save",),
}


class Watch:
    """Seconds by stage, of the thread that makes a release; what replicas do counts as theirs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._stages, self._since = [REST], time.perf_counter()

    def _turn(self) -> None:
        now = time.perf_counter()
        self.seconds[self._stages[-1]] += now - self._since
        self._since = now

    def restart(self) -> None:
        self.seconds, self._since = defaultdict(float), time.perf_counter()

    def watched(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*given: Any, **named: Any) -> Any:
            if current_thread() is not main_thread() or REPLICAS in self._stages:
                return function(*given, **named)
            self._turn()
            self._stages.append(stage)
            try:
                return function(*given, **named)
            finally:
                self._turn()
                self._stages.pop()

        return inside

    def over(self, stages: dict[str, tuple[str, ...]]) -> None:
        """Watch these functions from now on."""
        for stage, places in stages.items():
            for place in places:
                module, _, name = place.partition(":")
                *owner, last = name.split(".")
                holder: Any = importlib.import_module(f"dualquery.{module}")
                for each in owner:
                    holder = getattr(holder, each)
                setattr(holder, last, self.watched(stage, getattr(holder, last)))


def measured(name: str, runs: int) -> dict[str, Any]:
    """In a process of its own: the least seconds of some releases, and what came out."""
    import dualquery

    source, schema, watch = table(name), str(SCHEMAS / f"{name}.toml"), Watch()
    watch.over(STAGES)
    clocks, digest = [], ""
    for number in range(runs + 1):
        watch.restart()
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "released"
            started = time.perf_counter(), time.process_time()
            made = dualquery.release(
                source, schema=schema, workload="marginals:3", budget=dualquery.Budget(1, 1e-6), seed=1
            )
            between = time.perf_counter()
            made.save(folder)
            ended = time.perf_counter()
            if number:
                processor = time.process_time() - started[1]
                stages = {stage: watch.seconds[stage] for stage in (*STAGES, REST)}
                stages[REST] = ended - started[0] - sum(stages[stage] for stage in STAGES)
                clocks.append((ended - started[0], between - started[0], processor, stages))
            digest = hashlib.sha256((folder / "synthetic.parquet").read_bytes()).hexdigest()
            digest += hashlib.sha256((folder / "replicas.parquet").read_bytes()).hexdigest()
    seconds, made_in, processor, stages = min(clocks, key=lambda clock: clock[0])
    return {
        "seconds": seconds,
        "made": made_in,
        "processor": processor,
        "stages": stages,
        "most": max(clock[0] for clock in clocks),
        "mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "digest": digest,
    }


def table(name: str) -> Any:
    """The file of a data set; of Adult the complete rows, as everywhere."""
    from experiments.data import complete_rows

    path = Data.default_folder() / FILES[name]
    return complete_rows(path) if name == "adult" else str(path)


def in_own_process(name: str, threads: int, runs: int) -> dict[str, Any]:
    environment = {**os.environ, "NUMBA_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    command = [sys.executable, "-m", "benchmarks.cores", "--inside", name, "--runs", str(runs)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{name} with {threads} threads failed:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def serial_share(one: float, many: float, threads: int) -> float:
    """s of T(n) = T(1)·(s + (1 − s)/n)."""
    if threads == 1 or not one:
        return 1.0
    return (many / one - 1 / threads) / (1 - 1 / threads)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    cores = len(os.sched_getaffinity(0))
    usual = [number for number in (1, 2, 4, 8, 16, 32) if number <= cores]
    parser.add_argument("--threads", type=int, nargs="+", default=usual)
    parser.add_argument("--data", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    parser.add_argument("--inside", choices=SETS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(measured(given.inside, given.runs)))
        return
    rows, by_stage = [], []
    print(f"{cores} cores; seconds are the least of {given.runs} runs, from the file to the folder")
    for name in given.data:
        first: dict[str, Any] = {}
        for threads in given.threads:
            found = in_own_process(name, threads, given.runs)
            first = first or found
            times = first["seconds"] / found["seconds"]
            share = serial_share(first["seconds"], found["seconds"], threads)
            wanted = WANTED.get(threads, {}).get(name)
            row = {
                "data": name, "threads": threads, "seconds": round(found["seconds"], 3),
                "slowest": round(found["most"], 3), "made": round(found["made"], 3),
                "processor": round(found["processor"], 3), "times": round(times, 2), "wanted": wanted or "",
                "serial_share": round(share, 3), "mb": round(found["mb"]),
                "memory_times": round(found["mb"] / first["mb"], 2),
                "same_bytes": found["digest"] == first["digest"],
                "runs": given.runs,
            }  # fmt: skip
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            for stage, seconds in found["stages"].items():
                alone = first["stages"][stage]
                part = serial_share(alone, seconds, threads)
                by_stage.append({
                    "data": name, "threads": threads, "stage": stage, "seconds": round(seconds, 3),
                    "share": round(seconds / found["seconds"], 3), "serial_share": round(part, 2),
                })  # fmt: skip
                print("    " + "  ".join(f"{key} {by_stage[-1][key]}" for key in by_stage[-1]), flush=True)
    given.out.mkdir(parents=True, exist_ok=True)
    for file, made in (("cores.csv", rows), ("cores_stages.csv", by_stage)):
        with (given.out / file).open("w", newline="", encoding="utf-8") as text:
            writer = csv.DictWriter(text, list(made[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows(made)


if __name__ == "__main__":
    main()
