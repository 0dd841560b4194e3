"""A learner alone: a million lists of 100 cells over 2^64, answered one by one, every thousandth learned.

Prints the CPU seconds, the peak memory in GB of this process, and the cells touched. It imports nothing but
the learner, so that the memory is the learner's (and the compiler's).
"""

from __future__ import annotations

import json
import resource
import time
from pathlib import Path

import numpy as np

from dualquery.beliefs.universes import TouchedWeights

LISTS, LENGTH, EVERY = 1_000_000, 100, 1_000


def stream(seed: int) -> dict[str, float]:
    """Half of the cells are new, half are named again and again."""
    weights = TouchedWeights(2.0**64)
    rng = np.random.default_rng(seed)
    start = np.arange(0, EVERY * LENGTH + 1, LENGTH)
    pool = rng.integers(0, 2**64, 1 << 20, dtype=np.uint64)
    weights.answers(start[:2], pool[:LENGTH])  # compiles
    began = time.process_time()
    for _ in range(LISTS // EVERY):
        cells = rng.integers(0, 2**64, EVERY * LENGTH, dtype=np.uint64)
        cells[::2] = pool[rng.integers(0, len(pool), len(cells) // 2)]
        weights.answers(start, cells)
        weights.hear(np.unique(cells[:LENGTH]), 0.01, 1e-6)
    seconds = time.process_time() - began
    return {"seconds": seconds, "gigabytes": peak_gigabytes(), "touched": weights.touched}


def peak_gigabytes() -> float:
    """Of this process since it began: what getrusage says may be that of the process which started it."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(each for each in status.read_text().splitlines() if each.startswith("VmHWM"))
        return int(line.split()[1]) / 1e6
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


if __name__ == "__main__":
    print(json.dumps(stream(0)))
