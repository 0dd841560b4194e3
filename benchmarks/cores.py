"""What more cores bring: seconds of whole releases, from the file to the folder, over the number of threads.

python -m benchmarks.cores                              # 1, 2, 4, … threads, up to the cores there are
python -m benchmarks.cores --threads 1 2 --runs 5       # these, the least of five runs
python -m benchmarks.cores --data nltcs --out folder    # one data set; the figures go to folder/cores.csv

All triples, ε = 1, bars included, a seed. Each number of threads has a process of its own, in which a first release
loads the compiled loops and is not counted. Beside the seconds stand those of all processors together, the memory at
its most, and the serial share s of Amdahl's law, T(n) = T(1)·(s + (1 − s)/n). That all releases of a data set are the
same, byte for byte, is checked.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from experiments.data import FILES, SCHEMAS, Data

HERE = Path(__file__).parent
SETS = ("nltcs", "adult", "kddcup99")
WANTED = {2: {"nltcs": 1.7, "adult": 1.7, "kddcup99": 1.7}, 16: {"nltcs": 4.0, "adult": 4.0, "kddcup99": 6.0}}
MOST_MEMORY = 1.5  # times that of one thread


def measured(name: str, runs: int) -> dict[str, Any]:
    """In a process of its own: the least seconds of some releases, and what came out."""
    import dualquery

    source, schema = table(name), str(SCHEMAS / f"{name}.toml")
    clocks, digest = [], ""
    for number in range(runs + 1):
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
                clocks.append((ended - started[0], between - started[0], time.process_time() - started[1]))
            digest = hashlib.sha256((folder / "synthetic.parquet").read_bytes()).hexdigest()
            digest += hashlib.sha256((folder / "replicas.parquet").read_bytes()).hexdigest()
    seconds, made_in, processor = min(clocks)
    return {
        "seconds": seconds,
        "made": made_in,
        "processor": processor,
        "most": max(clocks)[0],
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
    rows = []
    print(f"{cores} cores; seconds are the least of {given.runs} runs, from the file to the folder")
    for name in given.data:
        first: dict[str, Any] = {}
        for threads in given.threads:
            found = in_own_process(name, threads, given.runs)
            first = first or found
            times = first["seconds"] / found["seconds"]
            share = serial_share(first["seconds"], found["seconds"], threads) if threads > 1 else 1.0
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
    given.out.mkdir(parents=True, exist_ok=True)
    with (given.out / "cores.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    main()
