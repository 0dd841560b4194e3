"""The second example: from CSV to report with no more than ten edited lines of draft."""

from __future__ import annotations

import difflib
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.csv
import pytest
from typer.testing import CliRunner

from dualquery import Release
from dualquery.cli.app import app
from experiments import clinic

TYPES = {"area": str, "ward": str, "pain": str}


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The table, its draft, the schema that a person makes of it, and a release."""
    made = tmp_path_factory.mktemp("clinic")
    table, draft, schema = made / "stays.csv", made / "draft.toml", made / "schema.toml"
    pyarrow.csv.write_csv(clinic.stays(), table)
    run("schema", "draft", table, "--out", draft, "--quiet")
    schema.write_text(clinic.edited(draft.read_text(encoding="utf-8")), encoding="utf-8")
    run(
        *("release", table, "--schema", schema, "--queries", "marginals:2", "--epsilon", 1),
        *("--synthetic-rows", 6000, "--csv", "--seed", 1, "--out", made / "release", "--quiet"),
    )
    return made


def test_from_csv_to_report_with_ten_edited_lines(folder: Path) -> None:
    before, after = (
        (folder / name).read_text(encoding="utf-8").splitlines() for name in ("draft.toml", "schema.toml")
    )
    changed = [line for line in difflib.ndiff(before, after) if line[0] in "-+"]
    kept = [line for line in changed if line[0] == "+" and line[2:].strip()]
    assert len(kept) + 1 <= 10, kept  # one line was deleted
    assert "nothing is missing" in run("schema", "check", folder / "schema.toml", folder / "stays.csv")
    page = (folder / "release" / "report.html").read_text(encoding="utf-8")
    assert "total = fees + drugs" in page


def test_the_synthetic_stays_are_as_stays_can_be(folder: Path) -> None:
    frame = pd.read_csv(folder / "release" / "synthetic.csv", dtype=TYPES, parse_dates=["admitted"])
    assert (frame.income[frame.age < 15] == 0).all()
    assert not ((frame.sex == "m") & (frame.pregnant == "yes")).any()
    assert (frame.total == frame.fees + frame.drugs).all()
    assert (frame.groupby("area").county.nunique() == 1).all()
    assert set(frame.area) <= set(clinic.AREAS)
    assert frame.admitted.dt.year.isin([2020, 2021, 2022, 2023, 2024]).all()


def test_numbers_are_near_the_truth_and_answers_agree_with_the_table(folder: Path) -> None:
    made = Release.load(folder / "release")
    frame, truth = made.to_pandas(), pd.read_csv(folder / "stays.csv", dtype=TYPES)
    for name, off in (("age", 0.05), ("income", 0.25), ("total", 0.25)):
        assert frame[name].mean() == pytest.approx(truth[name].mean(), rel=off), name
    days = pd.to_datetime(frame.admitted)
    edges = {column.name: np.array(getattr(column, "edges", [])) for column in made.domain.columns}
    old, rich = (
        int(edges[name][np.abs(edges[name] - x).argmin()]) for name, x in (("age", 65), ("income", 50_000))
    )
    compared = {
        "admitted >= 2023-07": days >= "2023-07-01",
        f"age >= {old} & sex = f": (frame.age >= old) & (frame.sex == "f"),
        "income is missing": frame.income.isna(),
        f"income >= {rich}": frame.income >= rich,
        "smokes is missing": frame.smokes.isna(),
        "pain >= 5": frame.pain >= 5,
    }
    for text, found in compared.items():
        assert made.answer(text).value == pytest.approx(found.mean()), text
