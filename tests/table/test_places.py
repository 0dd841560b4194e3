"""Where in its bin a number lies: records know it, and what is written out of them says the same again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import dualquery
from dualquery.counting import SpilledCounter
from dualquery.errors import DataError, SchemaError
from dualquery.queries.families import from_texts
from dualquery.queries.statistics import BinSums
from dualquery.table.encoding import decode, encode, record_blocks
from dualquery.table.records import HALF, MOST, has_places
from dualquery.table.schema import parse_schema, schema_text

SCHEMA = parse_schema(
    """
[[attribute]]
name = "height"
edges = [0, 1.5, 3, 100]
clamp = true
missing = "unknown"
[[attribute]]
name = "visits"
edges = [0, 1, 5, 100000]
integer = true
[[attribute]]
name = "paid"
edges = [0, 10, 20.5]
decimals = 2
clamp = true
[[attribute]]
name = "level"
values = ["1", "2.5", "4", "none"]
numeric = true
missing = "none"
""",
    origin="the test",
)


def frame(rows: int = 500) -> pd.DataFrame:
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {
            "height": np.where(rng.random(rows) < 0.1, np.nan, rng.gamma(2, 1.5, rows)),
            "visits": np.minimum(rng.geometric(0.05, rows) - 1, 99_999),
            "paid": rng.uniform(-1, 25, rows).round(2),
            "level": rng.choice([1.0, 2.5, 4.0, np.nan], rows),
        }
    )


def test_what_was_encoded_comes_back_and_is_encoded_alike() -> None:
    given = frame()
    records = encode(given, SCHEMA)
    assert [places is not None for places in records.places] == [True, True, True, False]
    table = decode(records)
    back = table.to_pandas()
    assert np.abs(back.visits - given.visits).max() <= 1  # more units in the last bin than places
    np.testing.assert_allclose(back.paid, given.paid.clip(0, 20.5))
    np.testing.assert_allclose(
        back.height, given.height.clip(0, 100), atol=0.006
    )  # with the figures of a bin's width
    assert back.height.isna().equals(given.height.isna())
    again = encode(table, SCHEMA)
    twice = encode(decode(again), SCHEMA)  # places of numbers with so many figures stay what they are
    for one, other in zip(records.columns, again.columns, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(again.places[:3], twice.places[:3], strict=True):
        np.testing.assert_array_equal(one, other)
    assert decode(again).equals(table)


def test_texts_and_mixed_cells_have_the_places_of_their_numbers() -> None:
    given = frame()
    texts = given.assign(
        height=[None if np.isnan(x) else repr(x) for x in given.height],
        paid=[f"{x:.2f}" if i % 2 else x for i, x in enumerate(given.paid)],
    )
    for one, other in zip(encode(given, SCHEMA).places[:3], encode(texts, SCHEMA).places[:3], strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("error")
def test_numbers_far_beyond_the_edges_lie_at_the_ends_without_a_word() -> None:
    given = frame(4).assign(height=[-1e308, 1e308, np.inf, -np.inf], paid=[1e308, -1e308, np.inf, -np.inf])
    places = encode(given, SCHEMA).places
    assert places[0].tolist() == [0, MOST, MOST, 0]
    assert places[2].tolist() == [MOST, 0, MOST, 0]


def test_a_table_on_disk_has_the_same_sums(tmp_path) -> None:
    frame(3000).to_csv(tmp_path / "t.csv", index=False)
    whole = encode(tmp_path / "t.csv", SCHEMA)
    counter = SpilledCounter(SCHEMA.domain, record_blocks(tmp_path / "t.csv", SCHEMA, rows=700), rows=512)
    sums = BinSums.of(SCHEMA.domain)
    np.testing.assert_array_equal(counter.true_counts(sums), sums.counts(whole))
    assert sums.counts(whole).any()
    counter.close()


def test_what_is_kept_of_a_person_does_not_depend_on_the_order_of_rows() -> None:
    schema = parse_schema('[table]\nunit = "id"\n' + schema_text(SCHEMA), origin="the test")
    given = frame(200).assign(id=np.repeat(np.arange(20), 10), height=1.0, level=1.0)
    given["visits"] = given["visits"] % 4 + 1  # equal codes, other places
    sums = BinSums.of(SCHEMA.domain)
    kept = [
        encode(each, schema, records_per_person=3) for each in (given, given.sample(frac=1, random_state=1))
    ]
    assert kept[0].rows == 60
    np.testing.assert_array_equal(sums.counts(kept[0]), sums.counts(kept[1]))


def test_places_that_would_move_farther_than_is_charged_are_refused() -> None:
    records = encode(frame(), SCHEMA)
    first = records.places[0]
    for wrong in (
        (np.full(records.rows, MOST + 1, np.uint16), *records.places[1:]),
        (first[:-1], *records.places[1:]),
        (first.astype(np.int32), *records.places[1:]),
        (None, *records.places[1:]),
        (*records.places[:3], first),
        records.places[:2],
    ):
        with pytest.raises(DataError, match="places"):
            replace(records, places=wrong)
    with pytest.raises(DataError, match="--means 0"):
        BinSums.of(SCHEMA.domain).counts(replace(records, places=()))


def test_bins_of_one_number_have_no_places() -> None:
    single = parse_schema('[[attribute]]\nname = "x"\nedges = [0, 1, 2, 2.5]\ninteger = true', origin="t")
    assert not has_places(single.domain.columns[0])
    assert encode(pd.DataFrame({"x": [0, 1, 2]}), single).places == ()
    assert HALF * 2 == MOST


# Listed numbers


def test_listed_numbers_come_back_as_numbers_and_have_an_order() -> None:
    given = frame()
    table = decode(encode(given, SCHEMA)).to_pandas()
    pd.testing.assert_series_equal(table.level, given.level)
    asked = from_texts(SCHEMA.domain, ["level >= 2", "level = 2.50", "level < 4", "level is missing"])
    counts = asked.groups[0].counts(encode(given, SCHEMA)).tolist()
    held = given.level
    assert counts == [(held >= 2).sum(), (held == 2.5).sum(), (held < 4).sum(), held.isna().sum()]
    assert parse_schema(schema_text(SCHEMA), origin="again") == SCHEMA
    whole = parse_schema('[[attribute]]\nname = "x"\nvalues = ["0", "5", "10"]\nnumeric = true', origin="t")
    assert decode(encode(pd.DataFrame({"x": ["5", "10.0", "0"]}), whole)).to_pydict() == {"x": [5, 10, 0]}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ('["1", "x"]', "'x' is no number"),
        ('["2", "1"]', "must increase"),
        ('["1", "nan"]', "'nan' is no number"),
        ('[""]', "must increase"),
    ],
)
def test_listed_numbers_are_numbers(values: str, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        parse_schema(f'[[attribute]]\nname = "x"\nvalues = {values}\nnumeric = true', origin="t")


def test_a_draft_knows_epsilon() -> None:
    rng = np.random.default_rng(1)
    given = pd.DataFrame({"x": rng.normal(0, 1, 20_000)})
    bins = [dualquery.schema_draft(given, for_epsilon=e).schema.domain.columns[0].bins for e in (0.01, 1, 50)]
    assert bins == sorted(bins)
    assert 6 <= bins[0] <= 9
    assert bins[2] >= 30
    with pytest.raises(SchemaError, match="a hint for the number of bins"):
        dualquery.schema_draft(given, for_epsilon=0)


def test_a_heaped_number_stands_alone_with_an_edge_on_either_side() -> None:
    rng = np.random.default_rng(1)
    hours = np.where(rng.random(5000) < 0.45, 40, rng.integers(1, 99, 5000))
    column = dualquery.schema_draft(pd.DataFrame({"hours": hours})).schema.domain.columns[0]
    assert {40, 41} <= set(column.edges)
    shares = np.histogram(hours, column.edges)[0] / 5000
    assert sorted(shares)[-2] <= 0.25
    price = np.where(rng.random(5000) < 0.3, 9.99, rng.gamma(2, 10, 5000).round(2))
    column = dualquery.schema_draft(pd.DataFrame({"price": price})).schema.domain.columns[0]
    assert {9.99, 10.0} <= set(column.edges)
