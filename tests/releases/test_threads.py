"""However many threads work, a seed gives the same bytes: rows, numbers inside bins, replicas, bars."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dualquery
from dualquery import Budget, example
from dualquery.table.domain import Categorical, Domain
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema

FILES = ("synthetic.parquet", "replicas.parquet", "measurements.parquet")


def survey() -> Records:
    return encode(example.survey(9_000), parse_schema(example.SCHEMA, origin="the example"))


def switches() -> Records:
    rng = np.random.default_rng(0)
    domain = Domain(tuple(Categorical(f"s{j}", ("off", "on")) for j in range(8)))
    rows = rng.random((9_000, 8)) < rng.random((9_000, 1))
    return Records.from_rows(domain, rows.astype(np.uint8))


@pytest.mark.parametrize("table", [survey, switches])
def test_a_seed_gives_the_same_bytes_on_any_number_of_threads(table, tmp_path: Path) -> None:
    records, found = table(), set()
    name = records.domain.columns[0].name
    for threads in (1, 2, 7):
        made = dualquery.release(
            records,
            workload="marginals:3",
            budget=Budget(2, 1e-6),
            seed=3,
            threads=threads,
            synthetic_rows=12_000,
        )
        folder = tmp_path / f"{threads}"
        made.save(folder)
        bars = made.table(name)["bar"].tolist()
        found.add((*((folder / file).read_bytes() for file in FILES), *bars))
    assert len(found) == 1
