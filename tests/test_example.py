"""The invented survey: the same people everywhere, related attributes, and a schema that fits."""

from __future__ import annotations

import hashlib

import numpy as np

import dualquery
from dualquery import example
from dualquery.releases.report import information
from dualquery.table.schema import parse_schema


def test_the_same_seed_invents_the_same_people() -> None:
    one, other = example.survey(3000), example.survey(3000)
    assert one.equals(other)
    assert not one.equals(example.survey(3000, seed=1))


def test_the_people_do_not_change_between_versions() -> None:
    """Whoever changes the rules changes this digest on purpose."""
    frame = example.survey(2000).to_pandas()
    digest = hashlib.sha256(frame.to_csv(index=False, lineterminator="\n").encode()).hexdigest()
    assert digest[:16] == DIGEST


def test_every_answer_has_a_place_in_the_schema() -> None:
    schema = parse_schema(example.SCHEMA, origin="the example")
    records = dualquery.encode(example.survey(), schema)
    assert records.rows == example.PEOPLE
    assert len(schema.domain.columns) == 12
    rows = records.to_rows()
    for j in range(12):
        assert len(np.unique(rows[:, j])) == schema.domain.sizes[j], "every value occurs"


def test_attributes_are_related() -> None:
    schema = parse_schema(example.SCHEMA, origin="the example")
    rows = dualquery.encode(example.survey(), schema).to_rows()
    names = [column.name for column in schema.domain.columns]

    def strength(a: str, b: str) -> float:
        i, j = names.index(a), names.index(b)
        sizes = schema.domain.sizes
        table = np.zeros((sizes[i], sizes[j]), np.int64)
        np.add.at(table, (rows[:, i], rows[:, j]), 1)
        return information(table)

    for pair in (
        ("age", "employment"),
        ("employment", "income"),
        ("marital_status", "household"),
        ("region", "commute"),
        ("age", "health"),
    ):
        assert strength(*pair) > 0.05, pair


DIGEST = "006f4ee81b3421ef"
