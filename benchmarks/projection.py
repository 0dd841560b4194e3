"""Projection: accuracy, time and memory beside what was asked, and how the error falls with the budget.

python -m benchmarks.projection                       # the table of accuracy, time and memory
python -m benchmarks.projection adult kosarak         # some of its rows
Sections: adult nltcs dense kddcup99 kosarak held-out | epsilon shapes
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import matplotlib
import numpy as np
from matplotlib import pyplot
from rich.console import Console
from rich.table import Table

from benchmarks.harness import RESULTS, Figure, data_folder, in_fresh_process, records_of, schema_path, show
from dualquery.counting import MemoryCounter
from dualquery.mechanisms.error_bars import Draw, made_replicas
from dualquery.mechanisms.mechanism import AnyMechanism, Plan, Task, shown
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.random_families import random_literals, weighted_conjunctions
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.encoding import encode
from dualquery.table.records import Records, SparseItems
from dualquery.table.schema import read_schema
from dualquery.types import silent
from experiments.data import complete_rows
from experiments.runs import records_of as synthetic_of

QUERIES = 500_000
TRIPLES = 2_000  # tables whose L1 is averaged, where there are more
SEEDS = (0, 1, 2)
MORE_SEEDS = tuple(range(8))  # of small budgets, whose largest cell differs by a third between seeds


@dataclass(frozen=True)
class Result:
    """Errors as fractions of the table; None where they do not apply."""

    l1: float | None
    worst: float | None
    cell: float | None
    query_max: float
    query_mean: float
    said_rms: float  # by the replicas
    true_rms: float
    seconds: float  # wall, of the run less counting
    processor: float  # seconds of all cores, likewise
    plan: Plan[Any]


@dataclass(frozen=True)
class Wanted:
    """A row of the table of requirements: L1, worst table, max cell, query max, query mean, seconds, GB."""

    data: str
    delta: float
    limits: tuple[float | None, float | None, float | None, float, float, float | None, float]
    epsilon: float = 1.0
    seeds: tuple[int, ...] = SEEDS

    @property
    def words(self) -> str:
        return f"{self.data}, ε = {self.epsilon:g}, δ = {self.delta:g}, mean of {len(self.seeds)} seeds"


WANTED = {
    "adult": (
        Wanted("adult", 1e-3, (0.155, 0.41, 0.022, 0.026, 0.0017, None, 1.0), 0.1, MORE_SEEDS),
        Wanted("adult", 1e-3, (0.050, 0.185, 0.0048, 0.0050, 0.00031, 5.0, 1.0), 1, MORE_SEEDS),
        Wanted("adult", 1e-3, (0.024, 0.13, 0.0013, 0.0013, 0.00008, None, 1.0), 10),
        Wanted("adult", 1e-3, (0.0108, 0.065, 0.0009, 0.0008, 0.00003, None, 1.0), 100),
        Wanted("adult", 1e-9, (0.09, 0.32, 0.010, 0.012, 0.0008, 5.0, 1.0)),
    ),
    "nltcs": (Wanted("nltcs", 1e-6, (0.0069, 0.02, 0.0045, 0.0045, 0.00088, None, 1.0)),),
    "dense": (Wanted("dense", 1e-3, (None, None, None, 0.0033, 0.0005, 40.0, 2.0)),),
    "kddcup99": (Wanted("kddcup99", 1e-3, (0.01, None, None, 0.005, 0.0001, 30.0, 1.0)),),
    "kosarak": (Wanted("kosarak by popularity", 1e-6, (None, None, None, 0.020, 0.0010, 90.0, 1.5)),),
    "held-out": (
        Wanted("adult_test", 1e-3, (None, None, None, 1.0, 1.0, None, 1.0)),
        Wanted("kosarak uniform", 1e-6, (None, None, None, 1.0, 1.0, None, 1.5)),
    ),
}


SHOWN = {
    "l1": "L1",
    "worst": "worst table",
    "cell": "max cell",
    "query_max": "query max",
    "query_mean": "query mean",
    "seconds": "seconds after counting",
    "processor": "processor seconds of all cores",
    "said_rms": "rms error, predicted",
    "true_rms": "rms error, true",
}


def load(data: str) -> tuple[Records, Workload]:
    """A data set and its random 3-way queries: 500,000, and 100,000 of the dense one."""
    name = data.split()[0]
    if name == "dense":
        records = dense()
        return records, random_literals(records.domain, 3, 100_000, seed=1)
    if name == "adult_test":
        whole = complete_rows(data_folder() / "adult_test.csv.gz")
        records = encode(whole, read_schema(schema_path("adult")))
    else:
        records = records_of(name)
    if data == "kosarak by popularity":
        block = records.columns[0]
        assert isinstance(block, SparseItems)
        popularity = np.bincount(block.ids, minlength=records.domain.width)
        return records, weighted_conjunctions(records.domain, 3, QUERIES, 1, popularity)
    return records, random_literals(records.domain, 3, QUERIES, seed=1)


def run(
    records: Records, workload: Workload, budget: Budget, seed: int, mechanism: AnyMechanism = PROJECTION
) -> Result:
    """One release and its errors."""
    counting = [0.0, 0.0]
    last = [0.0, 0.0]

    def progress(done: int, total: int) -> None:
        now = [time.perf_counter(), time.process_time()]
        for i in range(2):
            counting[i] += now[i] - last[i]
        last[:] = now

    plan = mechanism.plan_for(Task(workload, records.rows, budget), {})
    curator = Curator(MemoryCounter(records, progress=progress), Ledger(budget), SeededEntropy(seed))
    started = [time.perf_counter(), time.process_time()]
    last[:] = started
    outcome = mechanism.run(plan, curator, np.random.default_rng(seed), silent)
    replicas = made_replicas(mechanism, plan, outcome, Draw(records.rows, seed), silent)
    taken = [time.perf_counter() - started[0], time.process_time() - started[1]]
    released = synthetic_of(outcome)
    said = [np.mean(each.seen(group).errors ** 2) for each in replicas for group in workload.groups]
    error = workload.fractions(released) - workload.fractions(records)
    l1, worst, cell = _table_errors(records, released)
    return Result(
        l1,
        worst,
        cell,
        float(np.abs(error).max()),
        float(np.abs(error).mean()),
        float(np.sqrt(np.mean(said))),
        float(np.sqrt(np.mean(error**2))),
        taken[0] - counting[0],
        taken[1] - counting[1],
        plan,
    )


def _table_errors(records: Records, released: Records) -> tuple[float | None, float | None, float | None]:
    domain = records.domain
    if domain.width > 100:
        return None, None, None
    triples = list(combinations(range(domain.width), min(3, domain.width)))
    if len(triples) > TRIPLES:
        chosen = np.random.default_rng(0).choice(len(triples), TRIPLES, replace=False)
        triples = [triples[i] for i in sorted(chosen.tolist())]
    tables = Tables(domain, tuple(triples))
    error = np.abs(tables.counts(released) / released.rows - tables.counts(records) / records.rows)
    l1 = np.add.reduceat(error, tables.starts[:-1])
    return float(l1.mean()), float(l1.max()), float(error.max())


def budget_of(epsilon: float, delta: float, neighbours: Neighbours = Neighbours.ADD_REMOVE) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=Accounting.GAUSSIAN)


def measure_row(wanted: Wanted) -> list[Result]:
    records, workload = load(wanted.data)
    warm = random_literals(records.domain, 3, 1000, seed=2)
    run(_first(records, 2000), warm, budget_of(1, wanted.delta), 0)  # compiles, or reads the cache
    budget = budget_of(wanted.epsilon, wanted.delta)
    return [run(records, workload, budget, seed) for seed in wanted.seeds]


def _first(records: Records, rows: int) -> Records:
    columns = []
    for codes in records.columns:
        if isinstance(codes, SparseItems):
            columns.append(SparseItems(codes.start[: rows + 1], codes.ids[: codes.start[rows]]))
        else:
            columns.append(codes[:rows])
    return Records(records.domain, rows, tuple(columns))


def requirements(sections: list[str]) -> None:
    for section in sections:
        for wanted in WANTED[section]:
            results, peak = in_fresh_process(measure_row, wanted)
            limits = wanted.limits if section != "held-out" else (None,) * len(wanted.limits)
            figures = []
            for (name, words), limit in zip(SHOWN.items(), limits[:-1] + (None,) * 3, strict=True):
                values = [getattr(result, name) for result in results]
                if values[0] is not None:
                    figures.append(Figure.mean(words, values, limit))
            figures.append(Figure("GB of the process, evaluation included", peak, limits[-1]))
            show(wanted.words, figures)


def error_against_epsilon() -> None:
    """A table and a picture: the error must fall with the budget, without a floor above 2·10⁻⁴."""
    records, workload = load("adult")
    table = Table(title="Adult, δ = 10⁻³: error against ε", title_justify="left")
    for heading in ("ε", "L1", "query max", "query mean", "sets measured"):
        table.add_column(heading, justify="right")
    epsilons = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
    results = [run(records, workload, budget_of(epsilon, 1e-3), 0) for epsilon in epsilons]
    for epsilon, result in zip(epsilons, results, strict=True):
        parameters = shown(result.plan.parameters)
        sets = str(parameters.get("sets", f"{parameters.get('chosen')} pairs"))
        table.add_row(
            f"{epsilon:g}", f"{result.l1:.4f}", f"{result.query_max:.4f}", f"{result.query_mean:.6f}", sets
        )
    Console(width=110).print(table)
    matplotlib.use("Agg")
    picture, panel = pyplot.subplots(figsize=(5, 3.5))
    panel.loglog(epsilons, [result.l1 for result in results], "o-", label="3-way tables, mean L1")
    panel.loglog(epsilons, [result.query_max for result in results], "o-", label="queries, max error")
    panel.loglog(epsilons, [result.query_mean for result in results], "o-", label="queries, mean error")
    panel.axhline(2e-4, color="grey", linewidth=0.8, linestyle=":")
    panel.set(xlabel="ε (δ = 10⁻³, add-remove)", ylabel="error", title="projection on Adult")
    panel.legend(fontsize=8)
    picture.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    picture.savefig(RESULTS / "projection_epsilon.svg")


def dense() -> Records:
    """50 binary attributes of 100,000 records: a mixture of eight products with chances between 0 and 1."""
    rng = np.random.default_rng(0)
    hidden = rng.choice(8, 100_000, p=rng.dirichlet(np.full(8, 3.0)))
    chances = rng.random((8, 50))
    domain = Domain(tuple(Categorical(f"a{j}", ("0", "1")) for j in range(50)))
    return Records.from_rows(domain, (rng.random((100_000, 50)) < chances[hidden]).astype(np.uint8))


def invented(sizes: tuple[int, ...], rows: int, seed: int) -> Records:
    """Attributes that follow a hidden class of four."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 4, rows)
    domain = Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))
    columns = []
    for k in sizes:
        edges = np.cumsum(rng.dirichlet(np.full(k, 0.5), 4), axis=1)
        place = rng.random(rows)
        code = np.empty(rows, np.int64)
        for c in range(4):
            code[hidden == c] = np.searchsorted(edges[c], place[hidden == c])
        columns.append(np.minimum(code, k - 1))
    return Records.from_rows(domain, np.column_stack(columns))


def shapes() -> None:
    ten = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12)
    cases = [
        ("n = 1,000", invented(ten, 1_000, 0), 3),
        ("n = 100,000", invented(ten, 100_000, 0), 3),
        ("n = 5,000,000", invented(ten, 5_000_000, 0), 3),
        ("2-way", invented(ten, 30_000, 0), 2),
        ("4-way", invented(ten, 30_000, 0), 4),
        ("an attribute of 5,000 values", invented((5_000, 5, 2, 20), 30_000, 0), 2),
        ("a constant attribute", invented((1, 5, 2, 20), 30_000, 0), 2),
        ("two attributes", invented((7, 9), 30_000, 0), 2),
    ]
    table = Table(title="ε = 1, δ = 10⁻⁶: shapes", title_justify="left")
    for heading in ("shape", "query max", "query mean", "rms", "rms said", "seconds", "seconds said"):
        table.add_column(heading, justify="right")
    for name, records, order in cases:
        few = len(records.domain.columns) < 5
        domain = records.domain
        workload = marginals(domain, order) if few else random_literals(domain, order, 100_000, seed=1)
        result = run(records, workload, budget_of(1, 1e-6), 0)
        errors = (result.query_max, result.query_mean, result.true_rms, result.said_rms)
        times = (f"{result.seconds:.1f}", f"{result.plan.seconds:.1f}")
        table.add_row(name, *(f"{error:.2g}" for error in errors), *times)
    Console(width=110).print(table)


def main() -> None:
    asked = sys.argv[1:] or list(WANTED)
    others = {"epsilon": error_against_epsilon, "shapes": shapes}
    unknown = [name for name in asked if name not in WANTED and name not in others]
    if unknown:
        sys.exit(f"no section '{unknown[0]}'; there are {', '.join([*WANTED, *others])}")
    requirements([name for name in asked if name in WANTED])
    for name, section in others.items():
        if name in asked:
            section()


if __name__ == "__main__":
    main()
