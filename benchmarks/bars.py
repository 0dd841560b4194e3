"""Bars and errors where replicas alone are not enough: small tables, wide ones, pairs that were never measured.

    python -m benchmarks.bars [foreign | independence | unmeasured | wide | dense]... [--seeds 0 1 2]

Add-remove, δ = 10⁻⁶ (dense: 10⁻³), the number of records measured, releases as anybody makes them, check included.
No constant was chosen on the tables of `foreign`, but on three of them that of the gate (docs/how_it_works.md).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray

import benchmarks.wide as wide_tables
from benchmarks.harness import Figure, data_folder, records_of, show
from benchmarks.small_tables import subset
from dualquery.fitting.measured import onto_simplex
from dualquery.mechanisms.shares import unit_variance
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.queries.families import from_texts
from dualquery.queries.group import Group
from dualquery.queries.random_families import random_literals, weighted_conjunctions
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.releases.make import release
from dualquery.releases.release import Release
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import encode
from dualquery.table.records import Records, SparseItems
from experiments.coverage import natural_questions
from experiments.data import only_columns

FOREIGN = ("ability", "chile", "diamonds", "fair", "flchain", "nwtco", "slid", "vocab")
EPSILONS = (0.1, 1.0, 10.0)
QUESTIONS = 400
WIDE = ("mixture of 64", "six factors", "chain", "kosarak by popularity")
WIDE_ROWS, WIDE_COLUMNS, HELD_OUT = 20_000, 500, 6_000
TWELVE = tuple(range(12))  # columns of Adult
LEAST = 0.92  # of a coverage
Held = dict[int, NDArray[np.bool_]]  # by the number of attributes, whether each bar holds the truth


def budget_of(epsilon: float, delta: float = 1e-6) -> Budget:
    return Budget(
        epsilon=epsilon, delta=delta, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN
    )


def foreign_table(name: str) -> Records:
    path = str(data_folder() / "foreign" / f"{name}.csv.gz")
    return encode(path, schema_draft(path).schema)


def held_by(made: Release, group: Group, records: Records) -> NDArray[np.bool_]:
    """Whether the bar of each question of a group holds the truth."""
    answers = made.answers_of(group)
    truth = group.counts(records) / (group.unit * records.rows)
    off = np.abs(truth - [answer.value for answer in answers])
    return off <= np.array([answer.error for answer in answers], np.float64)


def of_natural(records: Records, epsilon: float, seed: int) -> Held:
    """Of natural questions about one to four attributes, asked of a default release."""
    made = release(records, budget=budget_of(epsilon), workload="marginals:3", seed=seed)
    asked = natural_questions(records.domain, QUESTIONS, np.random.default_rng([seed, 7]))
    orders = np.array([len(query.literals) for query in asked])
    out = {}
    for order in np.unique(orders).tolist():
        texts = [q.text(records.domain) for q, k in zip(asked, orders, strict=True) if k == order]
        groups = from_texts(records.domain, texts).groups
        out[order] = np.concatenate([held_by(made, group, records) for group in groups])
    return out


def shown_held(title: str, runs: Sequence[Held]) -> None:
    orders = sorted({order for run in runs for order in run})
    figures = [
        Figure.mean(
            f"held, {k} attributes", [float(run[k].mean()) for run in runs if k in run], LEAST, at_least=True
        )
        for k in orders
    ]
    show(title, figures)


def foreign(seeds: Sequence[int]) -> None:
    for name in FOREIGN:
        records = foreign_table(name)
        for epsilon in EPSILONS:
            found = [of_natural(records, epsilon, seed) for seed in seeds]
            shown_held(f"{name}, ε = {epsilon:g}", found)


def pair_error(records: Records, distributions: NDArray[np.float64] | Records, tables: Tables) -> float:
    """The mean L1 error of the tables."""
    told = distributions
    if isinstance(told, Records):
        told = tables.counts(told) / told.rows
    off = np.abs(told - tables.counts(records) / records.rows)
    return float(np.add.reduceat(off, tables.starts[:-1]).mean())


def product_of_ones(records: Records, tables: Tables, budget: Budget, seed: int) -> NDArray[np.float64]:
    """The pairs as products of one-way tables that had the whole budget, of a number of records that is known."""
    varied = np.flatnonzero(records.domain.sizes > 1).tolist()
    rng, noise = np.random.default_rng([seed, 7]), np.sqrt(len(varied) * unit_variance(budget))
    ones = {}
    for j in varied:
        counts = Tables(records.domain, ((j,),)).counts(records)
        ones[j] = onto_simplex((counts + rng.normal(0.0, noise, len(counts))) / records.rows, 1.0)
    return np.concatenate([np.outer(ones[i], ones[j]).ravel() for i, j in tables.sets])


def independence(seeds: Sequence[int]) -> None:
    """L1 of all pairs at ε = .1, over that of products of one-way tables with the whole budget."""
    budget = budget_of(0.1)
    for order in (2, 3):
        ratios = []
        for name in FOREIGN:
            records = foreign_table(name)
            varied = np.flatnonzero(records.domain.sizes > 1).tolist()
            tables = Tables(records.domain, tuple(combinations(varied, 2)))
            alone = [pair_error(records, product_of_ones(records, tables, budget, s), tables) for s in seeds]
            ours = []
            for seed in seeds:
                made = release(records, budget=budget, workload=f"marginals:{order}", seed=seed)
                assert made.records is not None
                ours.append(pair_error(records, made.records, tables))
            ratios.append(fmean(ours) / fmean(alone))
            figures = [
                Figure.mean("independent, L1", alone),
                Figure.mean("L1", ours),
                Figure("ratio", ratios[-1], 1.10),
            ]
            show(f"{name}, ε = 0.1, marginals:{order}", figures)
        show(f"all eight, ε = 0.1, marginals:{order}", [Figure.mean("ratio", ratios, 0.95)])


def unmeasured(seeds: Sequence[int]) -> None:
    """Adult, twelve columns, 5,000 rows: pairs outside of the workload, or left by the gate."""
    whole = only_columns(records_of("adult"), TWELVE)
    for epsilon in (0.3, 1.0, 3.0):
        star = f"marginals:2:{whole.domain.columns[5].name}"
        for spec, words in ((star, "the pairs of one column"), ("marginals:2", "all pairs")):
            left, measured = [], []
            for seed in seeds:
                records = subset(whole, 5_000, seed)
                made = release(records, budget=budget_of(epsilon), workload=spec, seed=seed)
                known = {each.what for each in made.measured if isinstance(each.what, tuple)}
                texts: dict[bool, list[str]] = {True: [], False: []}
                for query in natural_questions(
                    records.domain, 4 * QUESTIONS, np.random.default_rng([seed, 8])
                ):
                    if len(query.literals) == 2:
                        pair = tuple(literal.attribute for literal in query.literals)
                        texts[pair in known].append(query.text(records.domain))
                for seen, out in ((False, left), (True, measured)):
                    for group in from_texts(records.domain, texts[seen]).groups if texts[seen] else ():
                        out.append(float(held_by(made, group, records).mean()))
            figures = [
                Figure.mean(f"held, {what}", found, LEAST, at_least=True)
                for what, found in (("unmeasured pairs", left), ("measured pairs", measured))
                if found
            ]
            show(f"Adult, 12 columns, 5,000 rows, {words}, ε = {epsilon:g}", figures)


def wide_table(name: str, seed: int) -> Records:
    if name.startswith("kosarak"):
        return records_of("kosarak")
    wide_tables.ROWS = WIDE_ROWS
    if name == "chain":
        return wide_tables.from_columns(wide_tables.chain(WIDE_COLUMNS, seed), WIDE_COLUMNS)
    if name == "six factors":
        return wide_tables.from_columns(wide_tables.factors(WIDE_COLUMNS, 6, seed), WIDE_COLUMNS)
    return wide_tables.mixture(WIDE_COLUMNS, int(name.split()[-1]), seed, Path())


def asked_of(name: str, records: Records, k: int, count: int, seed: int) -> Workload:
    block = records.columns[0]
    if name.startswith("kosarak") and isinstance(block, SparseItems):
        popularity = np.bincount(block.ids, minlength=records.domain.width)
        return weighted_conjunctions(records.domain, k, count, seed, popularity)
    return random_literals(records.domain, k, count, seed=seed)


def wide_runs(name: str, seeds: Sequence[int]) -> Iterator[Held]:
    for seed in seeds:
        records = wide_table(name, seed)
        workload = asked_of(name, records, 3, 100_000, 1)
        made = release(records, budget=budget_of(1.0), workload=workload, seed=seed)
        groups = {k: asked_of(name, records, k, HELD_OUT, 10 + k).groups[0] for k in (1, 2, 3)}
        yield {k: held_by(made, group, records) for k, group in groups.items()}


def wide(seeds: Sequence[int]) -> None:
    for name in WIDE:
        shown_held(f"{name}, ε = 1", list(wide_runs(name, seeds)))


def dense(seeds: Sequence[int]) -> None:
    """The mixture of eight whose classes were lost now and then."""
    errors, seconds = [], []
    for seed in seeds:
        records = wide_table("mixture of 8", seed)
        workload = asked_of("mixture of 8", records, 3, 100_000, 1)
        started = time.process_time()
        made = release(records, budget=budget_of(1.0, 1e-3), workload=workload, seed=seed)
        seconds.append(time.process_time() - started)
        assert made.records is not None
        errors.append(float(np.abs(workload.fractions(made.records) - workload.fractions(records)).mean()))
    figures = [
        Figure.mean("mean error", errors),
        Figure("largest mean error of a run", max(errors), 0.0022),
        Figure("processor seconds of a run, at most", max(seconds), 40.0),
    ]
    show(f"mixture of 8, {WIDE_COLUMNS} binary attributes, {WIDE_ROWS:,} rows, ε = 1, δ = 0.001", figures)


SECTIONS = {
    "foreign": foreign,
    "independence": independence,
    "unmeasured": unmeasured,
    "wide": wide,
    "dense": dense,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bars", description="Bars and errors.")
    parser.add_argument(
        "sections", nargs="*", choices=[[], *SECTIONS], metavar="SECTION", help=", ".join(SECTIONS)
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    arguments = parser.parse_args()
    for section in arguments.sections or SECTIONS:
        SECTIONS[section](arguments.seeds)


if __name__ == "__main__":
    main()
