"""What a release that measures its own error pays for it, whether what it says is true, and acceptance.

    python -m benchmarks.check cost OUT.csv [adult | nltcs]...
    python -m benchmarks.check accept OUT.csv

Add-remove, ε = 1, δ = 10⁻⁶, three-way tables asked. `cost`: the same seeds with the check and without it: L1 over all
pairs and over 300 triples, the measured error of pairs beside the true one, and how many of 1,000 questions of 1 to 3
attributes the bars hold. `accept`: fixed rows, wrong on 5,000 records of the example survey (ε = 3, or 12 of pure ε),
and 2,000 checks with fresh noise: how often rows pass whose error is just above the limit, and ones with half of it.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import records_of
from dualquery.counting import MemoryCounter
from dualquery.example import SCHEMA, survey
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.random_families import Stream, mixed_questions
from dualquery.queries.tables import Tables
from dualquery.randomness import SystemEntropy
from dualquery.releases.acceptance import PASS, Criterion, Wanted, told_within
from dualquery.releases.check import Reserved, measured_check, set_aside
from dualquery.releases.make import release
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema

SEEDS = (0, 1, 2)
BUDGET = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
TRIPLES, QUESTIONS = 300, 1_000
RUNS = 2_000


def errors(records: Records, made: Records, order: int) -> float:
    """Mean L1 over all tables of an order, or over some hundred of them."""
    varied = np.flatnonzero(records.domain.sizes > 1).tolist()
    sets = list(combinations(varied, order))
    if len(sets) > TRIPLES and order > 2:
        sets = [sets[i] for i in np.random.default_rng(0).choice(len(sets), TRIPLES, replace=False)]
    tables = Tables(records.domain, tuple(sets))
    off = np.abs(tables.counts(records) / records.rows - tables.counts(made) / made.rows)
    return float(off.sum() / len(sets))


def cost(name: str, share: float, seed: int) -> dict[str, Any]:
    """One release, judged."""
    records = records_of(name)
    made = release(records, workload="marginals:3", budget=BUDGET, seed=seed, check=share)
    assert made.records is not None
    domain = records.domain
    orders = np.repeat(np.arange(1, 4), QUESTIONS)
    asked = mixed_questions(domain, np.flatnonzero(domain.sizes > 1), orders, Stream(1_000 + seed))
    truth = asked.counts(records) / records.rows
    answers = made.answers_of(asked)
    held = np.array([abs(a.value - t) <= (a.error or 0) for a, t in zip(answers, truth, strict=True)])
    found = {each["attributes"]: each for each in made.certificate["check"]["orders"]}
    return {
        "data": name,
        "share": share,
        "run": seed,
        "pairs": errors(records, made.records, 2),
        "triples": errors(records, made.records, 3),
        "measured_pairs": found[2]["error"] if found else "",
        "measured_bar": found[2]["bar"] if found else "",
        "scale_2": found[2]["scale"] if found else "",
        "scale_3": found[3]["scale"] if found else "",
        **{f"held_{k}": float(held[orders == k].mean()) for k in (1, 2, 3)},
    }


def accept(neighbours: Neighbours, accounting: Accounting, times: Fraction) -> dict[str, Any]:
    """How often a release passes whose error is so many times the limit."""
    records = encode(survey(5_000), parse_schema(SCHEMA, origin="the example"))
    rows = encode(survey(3_000, seed=9), parse_schema(SCHEMA, origin="the example"))
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    budget = Budget(12 if accounting is Accounting.PURE else 3, delta, neighbours, accounting)
    task = Task(marginals(records.domain, 2), records.rows, budget)
    reserved = set_aside(task, 0.01, 3)
    assert isinstance(reserved, Reserved)
    least = 2 * told_within(reserved.portion.noise) * reserved.unit
    said = {
        "criterion": [
            {"tables": 2, "mean": 1.0},
            {"tables": 2, "worst": 1.0},
            {"table": ["sex", "income"], "error": 1.0},
            {"mean_of": "age", "by": ["sex"], "error": 1.0},
        ]
    }
    counter, passed = MemoryCounter(records), np.zeros(4)
    asked = Wanted.of(0.01, said, records.domain).asked(task, rows, 7)
    exact = asked.shares(asked.statistic(rows, records.rows).counts(records), records.rows)
    places = [place for place in asked.places if place is not None]
    limits = np.maximum(exact[places] / float(times), least if times < 1 else 1e-6)
    for entry, key, limit in zip(
        said["criterion"], ("mean", "worst", "error", "error"), limits.tolist(), strict=True
    ):
        entry[key] = limit
    wanted = Wanted.of(0.01, said, records.domain)
    # a mean has the unit of its attribute
    wanted = Wanted(0.01, tuple(rescaled(each) for each in wanted.criteria))
    for _ in range(RUNS):
        curator = Curator(counter, Ledger(budget), SystemEntropy())
        (within,) = curator.allow(reserved.event)
        check = measured_check(reserved, curator, within, rows, asked)
        told = wanted.accepted(check)
        assert told is not None
        passed += [each["verdict"] == PASS for each in told["criteria"]]
    names = ("mean of pairs", "worst pair", "sex x income", "mean of age by sex")
    return {
        "neighbours": neighbours.value,
        "accounting": accounting.value,
        "error_over_limit": float(times),
        "runs": RUNS,
        **dict(zip(names, (passed / RUNS).tolist(), strict=True)),
    }


def rescaled(each: Criterion) -> Criterion:
    """A limit in shares of what a mean can be, in the unit of the mean."""
    return replace(each, limit=each.limit * each.unit)


def main(arguments: list[str]) -> None:
    what, out, *names = arguments
    found: list[dict[str, Any]] = []
    if what == "cost":
        jobs = [
            (cost, (n, s, seed)) for n in names or ["adult", "nltcs"] for seed in SEEDS for s in (0.0, 0.01)
        ]
    else:
        laws = [
            (n, a)
            for n in (Neighbours.ADD_REMOVE, Neighbours.REPLACE)
            for a in (Accounting.ZCDP, Accounting.PURE)
        ]
        above, half = Fraction(1001, 1000), Fraction(1, 2)
        jobs = [(accept, (*law, times)) for law in laws for times in (above, half)]
    for job, given in jobs:
        found.append(job(*given))
        print(found[-1], flush=True)
        with Path(out).open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(found[0]))
            writer.writeheader()
            writer.writerows(found)


if __name__ == "__main__":
    main(sys.argv[1:])
