"""Projection under pure ε: what is required, and what was measured.

python -m benchmarks.pure                       # everything, some minutes
python -m benchmarks.pure nltcs2 adult3         # some tables
Tables: nltcs2 nltcs3 adult2 adult3 bits births5 births10

Add-remove, the number of records declared, answers counted on the released rows, mean of three seeds. Constants were
picked on seeds 0 to 2; --seeds 10 11 12 are fresh noise. The births of 2014 are of five columns each, in about five
and in about ten equal bins; which of their tables would be measured was looked at when constants were picked.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from pyarrow import csv

from benchmarks.harness import Figure, data_folder, records_of, show
from dualquery.counting import MemoryCounter
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.random_families import random_literals
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from dualquery.types import silent
from experiments.data import Data
from experiments.runs import records_of as synthetic_of

SEEDS = (0, 1, 2)
Bins = dict[str, tuple[float, float, int]]  # of a column: least, most, and how many
FEW: Bins = {
    "mager": (12, 52, 5),
    "dbwt": (0, 6500, 6),
    "combgest": (20, 48, 5),
    "previs": (0, 30, 5),
    "m_ht_in": (54, 78, 5),
}
MANY: Bins = {
    "mager": (12, 52, 10),
    "fagecomb": (12, 72, 10),
    "dbwt": (0, 6500, 10),
    "pwgt_r": (75, 375, 10),
    "combgest": (17, 47, 10),
}


def births(bins: Bins) -> Records:
    """Births of 2014; what is missing is a value of its own."""
    table = csv.read_csv(data_folder() / "births2014.csv.gz")
    codes, columns = [], []
    for name, (least, most, number) in bins.items():
        cells = table[name].to_numpy(zero_copy_only=False).astype(float)
        place = np.clip((np.nan_to_num(cells) - least) * number / (most - least), 0, number - 1)
        codes.append(np.where(np.isnan(cells), number, place.astype(int)))
        columns.append(Categorical(name, tuple(map(str, range(codes[-1].max() + 1)))))
    return Records.from_rows(Domain(tuple(columns)), np.stack(codes, axis=1))


EPSILONS = (0.1, 1.0, 10.0)
LARGEST = {1.0: 0.0012, 3.0: 0.0005, 10.0: 0.0002}  # cell of all triples of births


@dataclass(frozen=True)
class Case:
    """A table, what is asked of it, and by ε what was required of the figure called `judged`."""

    words: str
    records: Callable[[], Records]
    asked: Callable[[Domain], Workload]
    judged: str
    required: dict[float, float]
    largest: float | None = None


CASES = {
    "nltcs2": Case(
        "NLTCS, all 2-way",
        lambda: records_of("nltcs"),
        lambda domain: marginals(domain, 2),
        "mean",
        dict(zip(EPSILONS, (0.020, 0.0028, 0.0003), strict=True)),
    ),
    "nltcs3": Case(
        "NLTCS, all 3-way",
        lambda: records_of("nltcs"),
        lambda domain: marginals(domain, 3),
        "mean",
        dict(zip(EPSILONS, (0.017, 0.0028, 0.0007), strict=True)),
    ),
    "adult2": Case(
        "Adult, all 2-way",
        lambda: records_of("adult"),
        lambda domain: marginals(domain, 2),
        "l1",
        dict(zip(EPSILONS, (0.18, 0.064, 0.018), strict=True)),
    ),
    "adult3": Case(
        "Adult, 20,000 random 3-way",
        lambda: records_of("adult"),
        lambda domain: random_literals(domain, 3, 20_000, seed=1),
        "mean",
        dict(zip(EPSILONS, (0.0036, 0.0009, 0.00021), strict=True)),
    ),
    "bits": Case(
        "17 bits of Adult, 10,000 random 3-way",
        lambda: Data(data_folder()).binary_adult(17),
        lambda domain: random_literals(domain, 3, 10_000, seed=1),
        "mean",
        {1.0: 0.0021},
        largest=0.020,
    ),
    "births5": Case(
        "Births, five columns of about 5 bins, all 3-way",
        lambda: births(FEW),
        lambda domain: marginals(domain, 3),
        "largest",
        LARGEST,
    ),
    "births10": Case(
        "Births, five columns of about 10 bins, all 3-way",
        lambda: births(MANY),
        lambda domain: marginals(domain, 3),
        "largest",
        LARGEST,
    ),
}


@dataclass(frozen=True)
class Result:
    """Of one release. Errors are fractions of the table; l1 is summed over a table and 0 where none is asked for."""

    case: str
    epsilon: float
    seed: int
    mean: float
    largest: float
    l1: float
    said_mean: float  # by the plan
    seconds: float
    processor_seconds: float


def measure(name: str, records: Records, workload: Workload, epsilon: float, seed: int) -> Result:
    """One release, and its errors."""
    budget = Budget(epsilon=epsilon, delta=0.0, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.PURE)
    started = time.perf_counter(), time.process_time()
    plan = PROJECTION.plan_for(Task(workload, records.rows, budget), {})
    curator = Curator(MemoryCounter(records), Ledger(budget), SeededEntropy(seed))
    made = synthetic_of(PROJECTION.run(plan, curator, np.random.default_rng(seed), silent))
    seconds = time.perf_counter() - started[0], time.process_time() - started[1]
    error = np.abs(workload.fractions(made) - workload.fractions(records))
    tables = sum(len(getattr(group, "sets", ())) for group in workload.groups)
    return Result(
        case=name,
        epsilon=epsilon,
        seed=seed,
        mean=float(error.mean()),
        largest=float(error.max()),
        l1=float(error.sum()) / tables if tables else 0.0,
        said_mean=plan.mean_error,
        seconds=seconds[0],
        processor_seconds=seconds[1],
    )


def run(name: str, seeds: Sequence[int], epsilons: Sequence[float]) -> None:
    """All figures of a case."""
    case = CASES[name]
    records = case.records()
    workload = case.asked(records.domain)
    figures = []
    for epsilon in case.required:
        if epsilons and epsilon not in epsilons:
            continue
        results = [measure(name, records, workload, epsilon, seed) for seed in seeds]
        for words, column, required in (
            (case.judged, case.judged, case.required[epsilon]),
            *((("largest", "largest", case.largest),) if case.judged != "largest" else (("l1", "l1", None),)),
            ("mean, as planned", "said_mean", None),
            ("processor seconds", "processor_seconds", None),
        ):
            values = [getattr(result, column) for result in results]
            figures.append(Figure.mean(f"ε = {epsilon:g}: {words}", values, required))
    show(f"{case.words}, {records.rows:,} records, pure ε, seeds {', '.join(map(str, seeds))}", figures)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pure", description="Projection under pure ε.")
    parser.add_argument("tables", nargs="*", choices=[[], *CASES], metavar="TABLE", help=", ".join(CASES))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--epsilons", nargs="+", type=float, default=[], help="all by default")
    arguments = parser.parse_args()
    for name in arguments.tables or CASES:
        run(name, arguments.seeds, arguments.epsilons)


if __name__ == "__main__":
    main()
