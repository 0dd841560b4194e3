"""The public data sets, through the schema files of the experiments."""

from __future__ import annotations

import csv
import gzip
import os
from pathlib import Path

import numpy as np
import pytest

from dualquery.table.domain import Numeric
from dualquery.table.encoding import decode, encode
from dualquery.table.records import SparseItems
from dualquery.table.schema import Schema, read_schema
from experiments.data import complete_rows

pytestmark = pytest.mark.data
SCHEMAS = Path(__file__).parents[2] / "experiments" / "schemas"


@pytest.fixture(scope="module")
def folder() -> Path:
    place = os.environ.get("DUALQUERY_DATA")
    if place is None:
        if os.environ.get("CI"):
            pytest.fail("DUALQUERY_DATA must name the folder of the public data sets")
        pytest.skip("DUALQUERY_DATA is not set")
    return Path(place)


def schema_of(name: str) -> Schema:
    return read_schema(SCHEMAS / f"{name}.toml")


def test_adult(folder: Path) -> None:
    schema = schema_of("adult")
    assert (schema.domain.width, int(schema.domain.sizes.sum())) == (15, 181)
    records = encode(complete_rows(folder / "adult.csv.gz"), schema)
    assert records.rows == 30_162
    assert all(codes.dtype == np.uint8 for codes in records.columns)
    assert encode(complete_rows(folder / "adult_test.csv.gz"), schema).rows == 15_060
    again = encode(decode(records), schema)
    assert all(np.array_equal(a, b) for a, b in zip(again.columns, records.columns, strict=True))
    with gzip.open(folder / "adult.csv.gz", "rt") as text:
        rows = [row for row in csv.reader(text) if "?" not in row]
    for position, column in enumerate(schema.domain.columns):
        assert rows[0][position] == column.name
        cells = [row[position] for row in rows[1:]]
        if isinstance(column, Numeric):
            width = (column.edges[-1] - column.edges[0]) / column.bins
            slow = [min(column.bins - 1, int(cell) // width) for cell in cells]
        else:
            slow = [column.labels.index(cell) for cell in cells]
        assert records.columns[position].tolist() == slow


def test_kddcup99(folder: Path) -> None:
    schema = schema_of("kddcup99")
    assert schema.domain.width == 41
    records = encode(folder / "kddcup99_10percent.csv.gz", schema)
    assert records.rows == 494_021
    assert sum(codes.nbytes for codes in records.columns) == 41 * 494_021
    sizes = dict(zip(schema.domain.names(), schema.domain.sizes.tolist(), strict=True))
    assert {name: sizes[name] for name in ("protocol_type", "service", "flag", "land", "su_attempted")} == {
        "protocol_type": 3, "service": 66, "flag": 11, "land": 2, "su_attempted": 3
    }  # fmt: skip


def test_nltcs(folder: Path) -> None:
    records = encode(folder / "nltcs.csv.gz", schema_of("nltcs"))
    assert (records.rows, records.domain.width, set(records.domain.sizes)) == (21_574, 16, {2})
    assert len(np.unique(records.to_rows(), axis=0)) == 3_152


def test_kosarak(folder: Path) -> None:
    records = encode(folder / "kosarak_first100k.txt.gz", schema_of("kosarak"))
    assert (records.rows, records.domain.width) == (100_000, 23_496)
    (items,) = records.columns
    assert isinstance(items, SparseItems)
    assert len(items.ids) == 801_947 - 4  # four lines repeat an item
    assert len(np.unique(items.ids)) == 23_496
    assert np.diff(items.start).max() == 1_136
    (again,) = encode(decode(records), records.domain).columns
    assert np.array_equal(again.ids, items.ids)
    assert np.array_equal(again.start, items.start)
