"""What the runner of the peers and a program inside a peer's environment say to each other.

    python run_PEER.py FOLDER

FOLDER holds `task.json` (the fields of `Task`, rows left out) and `rows.npy` (a code for each row and attribute).
The program leaves `answer.npy`, either synthetic rows (two dimensions, codes) or the fraction of every cell of all
tables (one dimension; tables in the order of the task, the last attribute of a table varying fastest), and
`seconds.txt`, how long fitting and generating took without imports and files. Anything else it says goes to
standard error; the last line of it is what the runner reports when the program fails.

These programs run in environments of their own: they import numpy, the peer and this file, nothing of ours.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np


@dataclass(frozen=True)
class Task:
    """One release that a peer is asked for. Neighbouring tables differ by a row more or less."""

    rows: np.ndarray
    names: list[str]
    sizes: list[int]  # values of each attribute; public
    tables: list[list[int]]  # the attributes of each table of the workload
    epsilon: float
    delta: float
    method: str
    seed: int
    cores: int
    rho: float | None = (
        None  # of exact Gaussian accounting; without it the peer's own turns ε and δ into noise
    )

    @property
    def order(self) -> int:
        """How many attributes the widest table has."""
        return max(map(len, self.tables))


def asked_epsilon(task: Task) -> float:
    """The ε to ask a peer for that makes ρ of ε and δ itself: the task's, or the one of which it makes the task's ρ.

    Such peers convert as in Proposition 12 of Canonne, Kamath and Steinke (2020),

        ε = min over α of  αρ + ln(1 − 1/α) − ln(αδ)/(α − 1),

    of which one minimum is sought over α − 1 = e^t.
    """
    if task.rho is None:
        return task.epsilon
    rho = task.rho

    def epsilon(t: float) -> float:
        alpha = 1 + math.exp(t)
        return alpha * rho + math.log1p(-1 / alpha) - math.log(alpha * task.delta) / (alpha - 1)

    low, high = -5.0, 15.0
    while high - low > 1e-9:
        third = (high - low) / 3
        if epsilon(low + third) < epsilon(high - third):
            high -= third
        else:
            low += third
    return epsilon(low)


Method = Callable[[Task], np.ndarray]


def read_task(folder: Path) -> Task:
    """The task that the runner wrote."""
    return Task(rows=np.load(folder / "rows.npy"), **json.loads((folder / "task.json").read_text()))


def serve(methods: Mapping[str, Method]) -> None:
    """Do the task of the folder that the command line names by the method that it names."""
    folder = Path(sys.argv[1])
    task = read_task(folder)
    started = time.perf_counter()
    answer = methods[task.method](task)
    seconds = time.perf_counter() - started
    np.save(folder / "answer.npy", answer)
    (folder / "seconds.txt").write_text(f"{seconds:.6f}\n")
