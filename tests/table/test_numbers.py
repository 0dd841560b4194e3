"""Numbers come back as numbers: spread inside their bins, in the type that was declared, read as they are written."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualquery
from dualquery import Budget, Domain, Neighbours, Numeric, Records, Release, dates, encode
from dualquery.errors import DataError, SchemaError
from dualquery.table.encoding import decode
from dualquery.table.schema import parse_schema, schema_text

BUDGET = Budget(epsilon=50, delta=1e-6, neighbours=Neighbours.REPLACE)


def column(keys: str) -> dualquery.Schema:
    return parse_schema(f'[[attribute]]\nname = "x"\n{keys}\n', origin="the test")


def released(numbers: object, schema: dualquery.Schema, **options: object) -> Release:
    frame = pd.DataFrame({"x": numbers})
    return dualquery.release(frame, schema=schema, workload="marginals:1", budget=BUDGET, seed=1, **options)


def test_the_mean_of_skewed_incomes_is_near_the_truth() -> None:
    """Bins by order of magnitude, the last one very wide: the middle of that bin would double the mean."""
    incomes = np.exp(np.random.default_rng(3).normal(10.4, 1.0, 20_000)).round()
    schema = column("edges = [0, 1000, 10000, 30000, 100000, 1500000]\nclamp = true\ninteger = true")
    found = released(incomes, schema).to_pandas().x
    middles = np.array([500, 5500, 20_000, 65_000, 800_000])[
        np.digitize(incomes, [1000, 10_000, 30_000, 1e5])
    ]
    off = abs(found.mean() - incomes.mean()) / incomes.mean()
    assert abs(middles.mean() - incomes.mean()) / incomes.mean() > 1
    assert off < 0.15
    assert found.dtype == np.int64
    assert found.nunique() > 10_000


def test_uniform_numbers_keep_their_mean_and_their_quantiles() -> None:
    ages = np.random.default_rng(4).integers(0, 100, 5000)
    found = released(ages, column("edges = [0, 18, 65, 100]\ninteger = true")).to_pandas().x
    assert found.mean() == pytest.approx(ages.mean(), abs=0.5)
    for level in (0.1, 0.5, 0.9):
        assert found.quantile(level) == pytest.approx(np.quantile(ages, level), abs=1.5)


def test_two_columns_are_not_tied_by_how_they_are_spread() -> None:
    codes = np.zeros(4000, np.uint8)
    domain = Domain((Numeric("a", (0.0, 1.0)), Numeric("b", (0.0, 1.0))))
    table = decode(Records(domain, 4000, (codes, codes)))
    assert abs(np.corrcoef(table["a"], table["b"])[0, 1]) < 0.05
    assert np.sort(table["a"].to_numpy()) == pytest.approx((np.arange(4000) + 0.5) / 4000, abs=1e-3)


def test_spread_is_the_same_after_a_release_is_saved(tmp_path: Path) -> None:
    made = released(np.arange(500), column("edges = [0, 100, 400, 500]"))
    made.save(tmp_path / "r")
    again = Release.load(tmp_path / "r")
    assert again.to_arrow().equals(made.to_arrow())
    assert pd.read_parquet(tmp_path / "r" / "rows.parquet").equals(again.to_pandas())


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ("integer = true", pa.int64()),
        ("decimals = 2", pa.float64()),
        ("decimals = 2\nexact = true", pa.decimal128(18, 2)),
        ('currency = "€"', pa.decimal128(18, 2)),
        ("integer = true\nexact = true", pa.decimal128(18, 0)),
        ("", pa.float64()),
    ],
)
def test_types_are_kept(keys: str, kind: pa.DataType) -> None:
    schema = column(f"low = -10\nhigh = 10\nbins = 4\n{keys}")
    assert parse_schema(schema_text(schema), origin="again") == schema
    cells = pa.table({"x": pa.array([Decimal(-7), Decimal("2.25"), Decimal(8)] * 50)})
    made = dualquery.release(cells, schema=schema, workload="marginals:1", budget=BUDGET, seed=1)
    table = made.to_arrow()
    assert table["x"].type == kind
    if "decimals" in keys or "currency" in keys:
        assert all(Decimal(str(x)) == round(Decimal(str(x)), 2) for x in table["x"].to_pylist())
    assert dualquery.encode(table, schema).to_rows().tolist() == made.records.to_rows().tolist()


@given(
    st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=6, unique=True),
    st.integers(0, 6),
    st.booleans(),
)
def test_decimals_lie_in_their_bins(marks: list[int], decimals: int, exact: bool) -> None:
    edges = tuple(float(Decimal(mark).scaleb(-decimals)) for mark in sorted(marks))
    domain = Domain((Numeric("x", edges, decimals=decimals, exact=exact),))
    codes = np.repeat(np.arange(len(edges) - 1, dtype=np.uint8), 5)
    table = decode(Records(domain, len(codes), (codes,)))
    assert dualquery.encode(table, domain).columns[0].tolist() == codes.tolist()


@pytest.mark.parametrize(
    ("keys", "cells", "codes"),
    [
        ("decimal_comma = true", ["1,5", "1.234,50", "1 234,5", "-3,25", "7", "1'234"], [1, 2, 2, 0, 1, 2]),
        ('currency = "€"\ndecimal_comma = true', ["1.234,50 €", "€ 1,5", "-3,25€"], [2, 1, 0]),
        ('currency = "$"', ["$1,234.50", "-$3.25", "$ 5", "1234"], [2, 0, 1, 2]),
    ],
)
def test_numbers_are_read_as_they_are_written(keys: str, cells: list[str], codes: list[int]) -> None:
    schema = column(f"edges = [-10, 0, 10, 10000]\n{keys}")
    assert dualquery.encode(pd.DataFrame({"x": cells}), schema).columns[0].tolist() == codes


@pytest.mark.parametrize("cell", ["1.5", "1.23,4", "1,2,3", "12.34.56", "EUR 3", "1.2345,0"])
def test_what_may_be_two_numbers_is_none(cell: str) -> None:
    schema = column("edges = [-10, 0, 10, 10000]\ndecimal_comma = true")
    with pytest.raises(DataError, match="not numbers"):
        dualquery.encode(pd.DataFrame({"x": ["1,5", cell]}), schema)


def test_the_law_of_a_bin_follows_its_neighbours_or_the_schema() -> None:
    from dualquery.table.numbers import exponents

    falling = Numeric("x", (0.0, 1.0, 10.0, 100.0))
    assert exponents(falling, np.array([500, 4500, 45000])) == pytest.approx([0, 0, 0], abs=1e-3)
    steep = exponents(
        falling, np.array([1000, 10**6, 10**5])
    )  # ten times fewer in ten times the width: s = −2
    assert steep[2] == pytest.approx(-2, abs=0.01)
    mirrored = Numeric("x", (-100.0, -10.0, -1.0, 0.0))
    assert exponents(mirrored, np.array([10**5, 10**6, 1000])) == pytest.approx(steep[::-1])
    assert exponents(Numeric("x", (-1.0, 1.0, 2.0)), np.array([5, 5])).tolist() == [0, 0]
    for law, mean in (("log", 99 / math.log(100)), ("uniform", 50.5)):
        spread = column(f'edges = [1, 100, 101]\nspread = "{law}"')
        found = released(np.full(1000, 5.0), spread, means=0).to_pandas().x
        assert found[found < 100].mean() == pytest.approx(mean, rel=0.01)
        assert parse_schema(schema_text(spread), origin="again") == spread


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("edges = [0, 1]\ndecimals = 20", "decimals must lie"),
        ("edges = [0, 1]\nexact = true", "how many decimals"),
        ("edges = [0, 0.5, 1]\ndecimals = 0", None),
        ("edges = [0.1, 0.5, 1]\ndecimals = 0", "no number of 0 decimals"),
        ("edges = [0, 1e14]\ndecimals = 4", "more than 15 digits"),
        ('edges = [0, 1]\nspread = "normal"', "'spread' must be"),
        ("edges = [0, 10]\ninteger = true\ndecimals = 1", "integers have none"),
    ],
)
def test_what_is_wrong_is_said(keys: str, words: str | None) -> None:
    if words is None:
        column(keys)
    else:
        with pytest.raises(SchemaError, match=words):
            column(keys)


def test_edges_next_to_zero_and_far_away_overflow_nothing() -> None:
    from dualquery.table.numbers import exponents

    for edges in ((1e-300, 1.0, 10.0, 100.0), (1e-9, 1e-8, 1e3, 1e300), (0.0, 5e-324, 1.0, 2.0)):
        with np.errstate(all="raise", under="ignore"):
            assert np.isfinite(exponents(Numeric("x", edges), np.array([10, 1000, 10]))).all()
            numbers = decode(
                Records.from_rows(Domain((Numeric("x", edges),)), np.repeat([[0], [1], [2]], 50, axis=0))
            )
        found = np.asarray(numbers["x"])
        assert (found >= edges[0]).all()
        assert (found <= edges[-1]).all()


@pytest.mark.parametrize(
    ("column", "cells", "codes"),
    [
        (Numeric("x", (0.0, 1.0, 2.0), unknown="0.5"), ["x", "", None, "5", "1.5"], [0, 0, 0, 0, 1]),
        (Numeric("x", (0.0, 1.0, 2.0), clamp=True, unknown="0.5"), ["x", "", "5", "inf"], [0, 0, 1, 1]),
        (Numeric("x", (0.0, 1.0, 2.0), missing="none", unknown="none"), ["x", "", "none", "1"], [2, 2, 2, 1]),
        (Numeric("x", (0.0, 1.0, 2.0), missing="none", unknown="1"), ["x", "", "none", "0"], [1, 2, 2, 0]),
        (Numeric("x", (0.0, 1.0, 2.0), decimal_comma=True, unknown="1.5"), ["0,5", "x", "1.5.5"], [0, 1, 1]),
        (
            dates("x", "2024-01", "2024-03", "month", clamp=True, unknown="2024-02"),
            ["x", "", "2023-01-01"],
            [1, 1, 0],
        ),
        (
            dates("x", "2024-01", "2024-03", "month", format="%d.%m.%Y", clamp=True, unknown="2024-02"),
            ["2024-01-01", "31.01.2024"],
            [1, 0],
        ),
    ],
)
def test_what_a_cell_without_a_place_counts_as(column: Numeric, cells: list[str], codes: list[int]) -> None:
    texts = pa.table({"x": pa.array(cells, pa.string())})
    domain = Domain((column,))
    assert encode(texts, domain).columns[0].tolist() == codes
    # and each cell by itself, in whatever company
    alone = [encode(texts.slice(i, 1), domain).columns[0].tolist()[0] for i in range(len(cells))]
    assert alone == codes
    assert parse_schema(schema_text(domain), origin="again").domain == domain


@pytest.mark.parametrize("unknown", ["x", "7", "", "none"])
def test_what_unknown_cells_are_read_as_has_a_place_itself(unknown: str) -> None:
    with pytest.raises(SchemaError, match="must have a place itself"):
        Domain((Numeric("x", (0.0, 1.0, 2.0), unknown=unknown),))


def test_an_unknown_number_lies_where_it_is_read() -> None:
    column = Numeric("x", (0.0, 1.0, 2.0), unknown="1.25")
    records = encode(pa.table({"x": ["x", "1.25", "0"]}), Domain((column,)))
    assert records.places[0][0] == records.places[0][1]
