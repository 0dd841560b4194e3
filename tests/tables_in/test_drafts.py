"""A draft worth editing: bins, codes, missing markers, ids and free text, and what was read off the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dualquery
from dualquery import Categorical, Numeric
from dualquery.errors import DataError, SchemaError
from dualquery.table.dates import Dates
from dualquery.table.schema import parse_schema, read_schema

ROWS = 1200


@pytest.fixture(scope="module")
def export() -> pd.DataFrame:
    rng = np.random.default_rng(9)
    return pd.DataFrame(
        {
            "person_id": np.arange(10_000, 10_000 + ROWS),
            "zip": rng.choice(["01001", "02139", "90210"], ROWS),
            "parcel": [f"{x:05d}" for x in rng.integers(0, 99_999, ROWS)],
            "race": rng.choice(["1", "2", "3", "9"], ROWS),
            "children": rng.choice([0, 1, 2, 3], ROWS),
            "answer": rng.choice(["1", "2", "N"], ROWS),
            "agrees": rng.choice(["Y", "N"], ROWS),
            "score": rng.choice(["-9", *(str(i) for i in range(40))], ROWS),
            "income": np.where(rng.random(ROWS) < 0.3, 0, np.exp(rng.normal(10, 1.4, ROWS)))
            .round()
            .astype(int),
            "height": [f"{x:.1f}" for x in rng.normal(170, 10, ROWS)],
            "price": [f"{x:,.2f} €".replace(",", " ").replace(".", ",") for x in rng.uniform(1, 5000, ROWS)],
            "admitted": pd.Timestamp("2021-02-03") + pd.to_timedelta(rng.integers(0, 900, ROWS), "D"),
            "seen": rng.choice(["2020-01-05", "2020-02-11", "NA"], ROWS),
            "remark": [f"The patient of row {i} said that it hurts on the left side" for i in range(ROWS)],
            "name": [f"Person {i}" for i in range(ROWS)],
            "nothing": [None] * ROWS,
        }
    )


@pytest.fixture(scope="module")
def draft(export: pd.DataFrame) -> dualquery.Draft:
    return dualquery.schema_draft(export)


def columns(draft: dualquery.Draft) -> dict[str, object]:
    return {column.name: column for column in draft.schema.domain.columns}


def test_codes_are_categories_without_order(draft: dualquery.Draft) -> None:
    found = columns(draft)
    assert found["zip"] == Categorical("zip", ("01001", "02139", "90210"))
    assert found["race"] == Categorical("race", ("1", "2", "3", "9"))
    assert found["children"] == Categorical("children", ("0", "1", "2", "3"), ordered=True)


def test_markers_are_proposed_as_missing(draft: dualquery.Draft) -> None:
    found = columns(draft)
    assert found["answer"].empty == ("N",)
    assert found["agrees"] == Categorical("agrees", ("N", "Y"))
    score = found["score"]
    assert isinstance(score, Numeric)
    assert (score.empty, score.missing, score.edges[0]) == (("-9",), "missing", 0)
    assert found["seen"].empty == ("NA",)


def test_skewed_numbers_are_binned_by_magnitude(draft: dualquery.Draft, export: pd.DataFrame) -> None:
    income = columns(draft)["income"]
    assert isinstance(income, Numeric)
    assert income.edges[:2] == (0, 1)  # nothing at all has a bin of its own
    held = np.histogram(export.income, income.edges)[0] / ROWS
    assert held.max() < 0.5
    assert income.integer
    assert income.bins <= 25
    height = columns(draft)["height"]
    assert isinstance(height, Numeric)
    assert height.decimals == 1
    assert len({round(b - a, 6) for a, b in zip(height.edges, height.edges[1:], strict=False)}) == 1


def test_money_and_dates_are_known(draft: dualquery.Draft) -> None:
    price, admitted = columns(draft)["price"], columns(draft)["admitted"]
    assert isinstance(price, Numeric)
    assert (price.currency, price.decimal_comma, price.exact, price.decimals) == ("€", True, True, 2)
    assert isinstance(admitted, Dates)
    assert (admitted.by, admitted.labels[0], admitted.labels[-1]) == ("month", "2021-02", "2023-07")


def test_what_is_left_out_is_named_with_its_reason(draft: dualquery.Draft) -> None:
    reasons = {each.name: each.reason for each in draft.left_out}
    assert list(reasons) == ["person_id", "parcel", "remark", "name", "nothing"]
    for name, word in (
        ("person_id", "id"),
        ("parcel", "5 figures"),
        ("remark", "free text"),
        ("name", "name"),
    ):
        assert word in reasons[name]
    assert '#   "remark": it is free text' in str(draft)


def test_every_line_from_the_data_is_marked(draft: dualquery.Draft) -> None:
    text = str(draft)
    body = text[text.index("[[attribute]]") :].splitlines()
    for line in body:
        key = line.partition(" =")[0]
        read_off = ("values", "edges", "low", "high", "bins", "from", "to", "missing", "empty")
        if line.startswith("    ") or key in read_off:
            assert line.endswith("# from the data"), line
        if key in ("name", "[[attribute]]", "clamp", ""):
            assert "# from the data" not in line
    assert parse_schema(text, origin="draft") == draft.schema
    assert draft.schema.draft


def test_a_draft_fits_its_table(draft: dualquery.Draft, export: pd.DataFrame) -> None:
    assert dualquery.encode(export, draft.schema).rows == ROWS


def test_quantiles_on_request(export: pd.DataFrame) -> None:
    column = columns(dualquery.schema_draft(export[["income"]], quantiles=5))["income"]
    assert isinstance(column, Numeric)
    held = np.histogram(export.income[export.income > 0], column.edges)[0]
    assert held.max() < 0.45 * held.sum()
    with pytest.raises(SchemaError, match="between 2 and 1000"):
        dualquery.schema_draft(export, quantiles=1)


def test_a_public_reference_makes_no_draft(export: pd.DataFrame, tmp_path: Path) -> None:
    export[:600].to_csv(tmp_path / "census.csv", index=False)
    made = dualquery.schema_draft(public_reference=tmp_path / "census.csv")
    assert not made.schema.draft
    assert "from the data" not in str(made)
    made.save(tmp_path / "schema.toml")
    assert read_schema(tmp_path / "schema.toml") == made.schema
    with pytest.raises(SchemaError, match="exists already"):
        made.save(tmp_path / "schema.toml")
    with pytest.raises(DataError, match="give the table"):
        dualquery.schema_draft()
