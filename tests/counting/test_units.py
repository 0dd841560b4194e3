"""The units of a database are the same wherever its rows lie: in memory, on disk bin by bin, or on a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dualquery.counting import Counter, MemoryCounter, SpilledUnits
from dualquery.counting.opening import open_counter, told_of_dropped, true_digest
from dualquery.queries.derived import number_of_records
from dualquery.queries.families import from_texts
from dualquery.queries.views import Tallies, View, ViewTables
from dualquery.table.schema import parse_schema
from dualquery.table.units import Units
from tests.house import HOUSEHOLDS
from tests.table.test_linking import at_random, frames, shown

SCHEMA = parse_schema(HOUSEHOLDS, origin="the schema")
QUESTIONS = [
    "any(person.age >= 18)",
    "region = East & count(car where fuel = power) >= 1",
    "all(person.sex = f)",
]


def same_counts(one: Counter, other: Counter) -> None:
    database = SCHEMA.domain
    asked: list[Any] = [
        ViewTables(View(database, "person", 1, 2), ((0,), (2, 4), (5, 6))),
        ViewTables(View(database, "person", 2, 2), ((4, 7), (5, 9))),
        Tallies(database, "car", ((0,),), (1,), 2),
        *from_texts(database, QUESTIONS).groups,
        number_of_records(database),
    ]
    assert one.true_rows == other.true_rows > 10
    for each in asked:
        assert one.true_counts(each).any()
        np.testing.assert_array_equal(one.true_counts(each), other.true_counts(each))


@pytest.fixture(scope="module")
def tables() -> dict[str, pd.DataFrame]:
    return frames(*at_random(3, keys=200))


@pytest.fixture(scope="module")
def folder(tables: dict[str, pd.DataFrame], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("database")
    for name, table in tables.items():
        table.to_csv(made / f"{name}.csv", index=False)
    return made


def test_units_on_disk_are_those_in_memory(folder: Path) -> None:
    there, here = open_counter(folder, SCHEMA, memory=1), open_counter(folder, SCHEMA)
    assert isinstance(there, SpilledUnits)
    assert isinstance(here, MemoryCounter)
    same_counts(there, here)
    assert isinstance(here.records, Units)
    assert sorted(map(repr, shown(there.records))) == sorted(map(repr, shown(here.records)))
    assert there.dropped == here.records.dropped
    assert told_of_dropped(there)[0].count(": ") == 1 + len(there.dropped) > 6
    assert true_digest(there, "00") == true_digest(open_counter(folder, SCHEMA, memory=1), "00")
