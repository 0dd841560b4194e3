"""Small tables and many columns: what is required, and what was measured.

    python -m benchmarks.small_tables [adult | nltcs | ones | wide | threes]...

Add-remove, ε = 1, δ = 10⁻⁶, exact Gaussian accounting, all 2-way tables unless it says otherwise, mean of three
seeds. Each seed has a public random subset of the table of its own. Errors: L1 over tables, the worst table, the
largest cell, then the largest and the mean error of 100,000 random conjunctions of three.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

import numpy as np

from benchmarks.harness import Figure, in_fresh_process, records_of, show
from dualquery.counting import MemoryCounter
from dualquery.example import SCHEMA, survey
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.random_families import random_literals
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema
from dualquery.types import silent
from experiments.runs import records_of as synthetic_of

SEEDS = (0, 1, 2)
QUERIES = 100_000
MOST_TABLES = 5_000  # whose errors are averaged, where there are more
BUDGET = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)
NAMES = ("L1", "worst table", "max cell", "query max", "query mean")


@dataclass(frozen=True)
class Result:
    """Errors as fractions of the table, in the order of `NAMES`, and the time of the run."""

    errors: tuple[float, ...]
    seconds: float
    measured: str


def table(name: str) -> Records:
    if name == "survey":
        return encode(survey(), parse_schema(SCHEMA, origin="the example survey"))
    return records_of(name)


def subset(whole: Records, rows: int, seed: int) -> Records:
    """A public random subset."""
    if rows >= whole.rows:
        return whole
    drawn = np.random.default_rng(1000 + seed).choice(whole.rows, rows, replace=False)
    return Records.from_rows(whole.domain, whole.to_rows()[drawn])


def mixed(columns: int, rows: int, seed: int) -> Records:
    """Columns of 2 to 20 values that follow a hidden class of four."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 4, rows)
    out, parts = [], []
    for j, values in enumerate(rng.choice([2, 2, 3, 4, 5, 8, 12, 20], columns).tolist()):
        parts.append(Categorical(f"a{j}", tuple(map(str, range(values)))))
        edges = np.cumsum(rng.dirichlet(np.full(values, 0.5), 4), axis=1)
        out.append(np.minimum((rng.random(rows)[:, None] > edges[hidden]).sum(axis=1), values - 1))
    return Records.from_rows(Domain(tuple(parts)), np.column_stack(out))


def run(records: Records, seed: int, order: int = 2, judged: int = 2) -> Result:
    """One release for all tables of an order, and its errors on those of another."""
    task = Task(marginals(records.domain, order), records.rows, BUDGET)
    started = time.perf_counter()
    plan = PROJECTION.plan_for(task, {})
    curator = Curator(MemoryCounter(records), Ledger(BUDGET), SeededEntropy(seed))
    released = synthetic_of(PROJECTION.run(plan, curator, np.random.default_rng(seed), silent))
    seconds = time.perf_counter() - started
    return Result(errors(records, released, judged), seconds, plan.parameters.measured)


def errors(records: Records, released: Records, order: int) -> tuple[float, ...]:
    domain = records.domain
    sets = list(combinations(range(domain.width), order))
    if len(sets) > MOST_TABLES:
        chosen = np.random.default_rng(0).choice(len(sets), MOST_TABLES, replace=False)
        sets = [sets[i] for i in sorted(chosen.tolist())]
    tables = Tables(domain, tuple(sets))
    wrong = np.abs(tables.counts(released) / released.rows - tables.counts(records) / records.rows)
    sums = np.add.reduceat(wrong, tables.starts[:-1])
    queries = random_literals(domain, 3, QUERIES, seed=1)
    off = np.abs(queries.fractions(released) - queries.fractions(records))
    return (float(sums.mean()), float(sums.max()), float(wrong.max()), float(off.max()), float(off.mean()))


def l1_of(results: list[Result]) -> list[float]:
    return [result.errors[0] for result in results]


def beside(results: list[Result], alone: list[Result], limit: float | None = None) -> list[Figure]:
    """L1 beside that of one-way tables alone, which it must not exceed by much."""
    before = l1_of(alone)
    return [
        Figure.mean("one-way L1", before),
        Figure.mean("L1", l1_of(results), limit or 1.05 * fmean(before)),
    ]


def seconds(results: list[Result]) -> Figure:
    return Figure.mean("seconds", [result.seconds for result in results], 60.0)


def adult() -> None:
    wanted = {
        1000: (0.245, 0.70, 0.09, 0.12, 0.006),
        3000: (0.130, 0.42, 0.040, 0.055, 0.0026),
        10_000: (0.066, 0.24, 0.018, 0.023, 0.0011),
    }
    whole = table("adult")
    for rows, limits in wanted.items():
        found = [run(subset(whole, rows, seed), seed).errors for seed in SEEDS]
        columns = zip(NAMES, zip(*found, strict=True), limits, strict=True)
        show(f"Adult, {rows:,} rows", [Figure.mean(*column) for column in columns])


def nltcs() -> None:
    """Few cells: all pairs are measured. Before: in one stage, of the same subsets, with the same accounting."""
    whole = table("nltcs")
    for rows, before in ((500, 0.1155), (2000, 0.0319)):
        results = [run(subset(whole, rows, seed), seed) for seed in SEEDS]
        show(f"NLTCS, {rows:,} rows", [Figure.mean("L1", l1_of(results), 1.05 * before)])


def ones() -> None:
    """Never much worse than one-way tables alone; more seeds, because the number of records is noisy there."""
    for name, words in (("adult", "Adult"), ("nltcs", "NLTCS"), ("survey", "survey"), ("kddcup99", "KDD99")):
        whole = table(name)
        for rows in (300, 600, 1000):
            pairs = [(subset(whole, rows, seed % 3), seed) for seed in range(9)]
            alone = [run(records, seed, order=1) for records, seed in pairs]
            found = [run(records, seed) for records, seed in pairs]
            show(f"{words}, {rows:,} rows, beside one-way tables", beside(found, alone))


def _wide(order: int) -> list[Result]:
    return [run(mixed(300, 3000, seed), seed, order) for seed in SEEDS]


def wide() -> None:
    alone, _ = in_fresh_process(_wide, 1)
    results, _ = in_fresh_process(_wide, 2)
    show("300 columns of 2 to 20 values, 3,000 rows", [*beside(results, alone), seconds(results)])


def threes() -> None:
    """A workload of triples goes the same way."""
    whole = table("adult")
    alone = [run(subset(whole, 1000, seed), seed, 1, judged=3) for seed in SEEDS]
    found = [run(subset(whole, 1000, seed), seed, 3, judged=3) for seed in SEEDS]
    show("Adult, 1,000 rows, all 3-way tables", beside(found, alone))


SECTIONS = {"adult": adult, "nltcs": nltcs, "ones": ones, "wide": wide, "threes": threes}


def main() -> None:
    asked = sys.argv[1:] or list(SECTIONS)
    unknown = [name for name in asked if name not in SECTIONS]
    if unknown:
        sys.exit(f"no section '{unknown[0]}'; there are {', '.join(SECTIONS)}")
    for name in asked:
        SECTIONS[name]()


if __name__ == "__main__":
    main()
