"""Missing is one thing: null in every kind of column, in and out, without a rank, and the same in every answer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dualquery
from dualquery import Budget, Neighbours, Release
from dualquery.table.schema import parse_schema, schema_text

SCHEMA = """
[[attribute]]
name = "grade"
values = ["low", "middle", "high"]
ordered = true
missing = "no answer"
empty = ["-9", "NA"]

[[attribute]]
name = "age"
edges = [0, 18, 65, 120]
integer = true
empty = ["-9"]

[[attribute]]
name = "seen"
from = "2020"
to = "2023"
by = "year"
empty = ["unknown"]

[[attribute]]
name = "sex"
values = ["f", "m", ""]
"""
BUDGET = Budget(epsilon=50, delta=1e-6, neighbours=Neighbours.REPLACE)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Release:
    rng = np.random.default_rng(0)
    rows = 400
    frame = pd.DataFrame(
        {
            "grade": rng.choice(["low", "middle", "high", "-9", "NA", ""], rows),
            "age": rng.choice(["3", "30", "80", "-9", ""], rows),
            "seen": rng.choice(["2020-05-01", "2023", "unknown", ""], rows),
            "sex": rng.choice(["f", "m", ""], rows),
        }
    )
    path = tmp_path_factory.mktemp("missing") / "people.csv"
    frame.to_csv(path, index=False)
    schema = parse_schema(SCHEMA, origin="the test")
    made = dualquery.release(path, schema=schema, workload="marginals:2", budget=BUDGET, seed=1)
    made.save(path.parent / "release", csv=True)
    return Release.load(path.parent / "release")


def test_the_schema_reads_back() -> None:
    schema = parse_schema(SCHEMA, origin="the test")
    assert parse_schema(schema_text(schema), origin="again") == schema
    assert schema.domain.columns[0].labels == ("low", "middle", "high", "no answer")


@pytest.mark.parametrize("name", ["grade", "age", "seen", "sex"])
def test_missing_is_null_wherever_it_comes_out(made: Release, name: str) -> None:
    share = made.answer(f"{name} is missing").value
    assert share > 0.15
    assert made.to_pandas()[name].isna().mean() == pytest.approx(share)
    assert made.to_polars()[name].is_null().mean() == pytest.approx(share)


def test_missing_has_no_rank(made: Release) -> None:
    """What pandas says of the synthetic table is what `answer` says."""
    frame = made.to_pandas()
    compared = {
        "grade >= middle": frame.grade >= "middle",
        "grade < high": frame.grade < "high",
        "age >= 18": frame.age >= 18,
        "!(age >= 18)": ~(frame.age >= 18),
        "seen >= 2021": pd.to_datetime(frame.seen) >= "2021-01-01",
        "grade = low & sex = f": (frame.grade == "low") & (frame.sex == "f"),
        "grade is missing & age is not missing": frame.grade.isna() & frame.age.notna(),
    }
    for text, found in compared.items():
        assert made.answer(text).value == pytest.approx(found.mean()), text


def test_every_way_to_write_a_missing_cell_is_the_same_cell(tmp_path: Path) -> None:
    schema = parse_schema(SCHEMA, origin="the test")
    written = pd.DataFrame(
        {
            "grade": ["-9", "NA", "", " ", "no answer"],
            "age": ["-9", "", " ", "missing", "-9.0"],
            "seen": ["unknown", "", " ", "missing", None],
            "sex": ["", " ", None, "", ""],
        }
    )
    typed = pd.DataFrame(
        {
            "grade": [None] * 5,
            "age": [-9.0, np.nan, None, -9, np.nan],
            "seen": pd.to_datetime([None] * 5),
            "sex": pd.Categorical([None] * 5, categories=["f", "m"]),
        }
    )
    written.to_csv(tmp_path / "t.csv", index=False)
    typed.to_parquet(tmp_path / "t.parquet")
    codes = [3, 3, 4, 2]
    for source in (written, typed, tmp_path / "t.csv", tmp_path / "t.parquet"):
        assert dualquery.encode(source, schema).to_rows().tolist() == [codes] * 5
