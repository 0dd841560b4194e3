"""What protecting a person with K records costs: beside single records at ε / K, and in seconds of reading.

python -m benchmarks.persons [seeds]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from benchmarks.harness import Figure, show
from dualquery import example
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.releases.evaluate import evaluate
from dualquery.releases.make import release
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import Schema, parse_schema

PEOPLE, WAVES = 20_000, 3
CHANGING = ("employment", "income", "commute", "health", "household")
SPEC = "marginals:2"
DELTA = 1e-9


def panel(people: int = PEOPLE, waves: int = WAVES) -> pa.Table:
    """The example survey asked several times: each person answers once a wave, and some answers change."""
    first = example.survey(people).append_column("person", pa.array(np.arange(people)))
    asked = [first]
    for wave in range(1, waves):
        again, now = example.survey(people, seed=example.SEED + wave), first
        for name in CHANGING:
            now = now.set_column(now.column_names.index(name), name, again[name])
        asked.append(now)
    return pa.concat_tables(asked)


def panel_schema() -> Schema:
    """The schema of the example, whose rows now belong to persons."""
    return replace(parse_schema(example.SCHEMA, origin="the example"), unit="person")


@dataclass(frozen=True)
class Errors:
    """Mean errors of a person at ε and of a record at ε / K, run by run."""

    person: list[float]
    record: list[float]

    @property
    def ratio(self) -> float:
        return float(np.mean(self.person) / np.mean(self.record))


def compare(
    relation: str,
    *,
    seeds: int,
    spec: str = SPEC,
    mechanism: str = "projection",
    epsilon: float = 1.0,
    **options: object,
) -> Errors:
    """The same 60,000 records, the same workload and δ; a person with K = 3 records, or one record at ε / 3."""
    table, schema = panel(), panel_schema()
    whole, limited = encode(table, schema), encode(table, schema, records_per_person=WAVES)

    def errors(records: Records, neighbours: Neighbours, spent: float) -> Iterator[float]:
        budget = Budget(epsilon=spent, delta=DELTA, neighbours=neighbours, accounting=Accounting.ZCDP)
        for seed in range(seeds):
            made = release(records, workload=spec, budget=budget, mechanism=mechanism, seed=seed, **options)
            yield evaluate(made, whole).mean_error

    person = Neighbours.named(f"person-{relation}", WAVES)
    return Errors(
        list(errors(limited, person, epsilon)),
        list(errors(whole, Neighbours.named(relation), epsilon / WAVES)),
    )


def reading_seconds(rows: int = 1_000_000) -> float:
    """Seconds that keeping 3 of about 5 records of each person adds to the reading of so many rows."""
    table = example.survey(rows).append_column(
        "person", pa.array(np.random.default_rng(0).integers(0, rows // 5, rows))
    )

    def seconds(read: Callable[[], object]) -> float:
        started = time.perf_counter()
        read()
        return time.perf_counter() - started

    schema = panel_schema()
    plain = min(seconds(lambda: encode(table, schema)) for _ in range(2))
    return min(seconds(lambda: encode(table, schema, records_per_person=3)) for _ in range(2)) - plain


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    figures = []
    for mechanism, spec in (
        ("projection", SPEC),
        ("dualquery", "random-literals:3:2000:1"),
    ):
        for relation in ("replace", "add-remove"):
            found = compare(relation, seeds=seeds, mechanism=mechanism, spec=spec)
            name = f"{mechanism}, {relation}"
            figures += [
                Figure.mean(f"{name}: persons at ε = 1", found.person),
                Figure.mean(f"{name}: records at ε = 1/3", found.record),
                Figure(f"{name}: ratio", found.ratio, required=1.2),
            ]
    figures.append(
        Figure("keeping 3 records of each person, 10⁶ rows", reading_seconds(), required=3, unit=" s")
    )
    show(f"{PEOPLE:,} persons with {WAVES} records each, K = {WAVES}, mean error", figures)


if __name__ == "__main__":
    main()
