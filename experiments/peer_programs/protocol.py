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

    @property
    def order(self) -> int:
        """How many attributes the widest table has."""
        return max(map(len, self.tables))


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
