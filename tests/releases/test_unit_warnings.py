"""Ids without a unit: the curator is told on the terminal, and no release knows."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from dualquery.cli import run
from dualquery.table.persons import PERSONS, looks_like_id, repeats
from dualquery.table.reading import first_rows

pytestmark = pytest.mark.usefixtures("few_rows")

SCHEMA = """
[[attribute]]
name = "sex"
values = ["f", "m"]
[[attribute]]
name = "ward"
values = ["a", "b", "c"]
"""
ROWS = 300


def tables(folder: Path) -> dict[str, pd.DataFrame]:
    """One table with ids that come again, one with an id a row."""
    rest = {"sex": ["f", "m", "m"] * (ROWS // 3), "ward": ["a", "b", "c", "c"] * (ROWS // 4)}
    return {
        "repeated": pd.DataFrame({"patient_id": [i // 6 for i in range(ROWS)], **rest}),
        "alone": pd.DataFrame({"patient_id": range(ROWS), **rest}),
    }


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_the_terminal_alone_knows_that_ids_come_again(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    schema, said, printed = tmp_path / "schema.toml", {}, {}
    schema.write_text(SCHEMA)
    for name, frame in tables(tmp_path).items():
        table = tmp_path / name / f"people.{kind}"
        table.parent.mkdir()
        frame.to_csv(table, index=False) if kind == "csv" else frame.to_parquet(table)
        flags = ["--schema", str(schema), "--queries", "marginals:1", "--epsilon", "1", "--seed", "7"]
        out = ["--json", "--out", str(tmp_path / name / "made")]
        assert run(["release", str(table), *flags, *out]) == 0
        shown = capsys.readouterr()
        said[name], printed[name] = shown.err, json.loads(shown.out)
    assert "Column 'patient_id' looks like the id of a person" in said["repeated"]
    assert "patient_id" not in said["alone"]
    for each in printed.values():
        del each["folder"]
    assert printed["repeated"] == printed["alone"]  # what may be piped on is the same
    for file in ("certificate.json", "synthetic.parquet", "report.html"):
        made = [(tmp_path / name / "made" / file).read_bytes() for name in said]
        assert b"patient_id" not in made[0]
        if file == "synthetic.parquet":
            assert made[0] == made[1]
    assert run(["release", str(table), *flags, "--quiet", "--out", str(tmp_path / "quiet")]) == 0
    assert capsys.readouterr().err == ""


def test_an_attribute_that_is_an_id_is_told_by_the_schema_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA + '[[attribute]]\nname = "patient_id"\nlow = 0\nhigh = 50\nbins = 10\n')
    arguments = [
        "plan",
        "--schema",
        str(schema),
        "--queries",
        "marginals:1",
        "--epsilon",
        "1",
        "--records",
        "300",
    ]
    assert run(arguments) == 0
    assert "Attribute 'patient_id' looks like the id of a person" in capsys.readouterr().err
    schema.write_text('[table]\nunit = "patient_id"\n' + SCHEMA)
    people = ["--neighbours", "person-replace", "--records-per-person", "6", "--delta", "1e-6"]
    assert run([*arguments, *people]) == 0
    assert "looks like" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "like", "persons"),
    [
        ("id", True, True),
        ("patient_id", True, True),
        ("PatientID", True, True),
        ("userid", True, True),
        ("household", True, False),
        ("visitId", True, False),
        ("order_no", True, False),
        ("paid", False, False),
        ("covid", False, False),
        ("idle_time", False, False),
        ("identity", False, False),
        ("ideology", False, False),
        ("sex", False, False),
    ],
)
def test_names_of_ids(name: str, like: bool, persons: bool) -> None:
    assert looks_like_id(name) is like
    assert (PERSONS.fullmatch(name) is not None) is persons


def test_when_ids_are_those_of_persons_with_several_rows() -> None:
    assert repeats("patient_id", 20, 480)
    assert not repeats("patient_id", 480, 480)  # one row each
    assert repeats("visit_id", 100, 480)
    assert not repeats("region_id", 5, 480)
    assert not repeats("shop_id", 30, 30_000)  # a place
    assert not repeats("sex", 100, 480)


def test_first_rows_of_whatever_there_is(tmp_path: Path) -> None:
    frame = tables(tmp_path)["alone"]
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "b.parquet")
    frame[:0].to_csv(tmp_path / "none.csv", index=False)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    for source, rows in (
        (tmp_path / "a.csv", ROWS),
        (str(tmp_path / "*.csv"), ROWS),
        (tmp_path / "b.parquet", ROWS),
        (tmp_path / "none.csv", 0),
        (tmp_path / "damaged.parquet", 0),
        (tmp_path / "gone.csv", 0),
        (tmp_path / "book.sqlite", 0),
        ("postgresql://nobody@nowhere/x", 0),
        (frame, 0),
    ):
        assert first_rows(source).num_rows == rows, source
