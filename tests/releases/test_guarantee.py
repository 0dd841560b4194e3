"""The promise from the file to the folder: what the public may learn must not depend on one row of the file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import dualquery
from dualquery import Accounting, Budget, Categorical, Domain, Items, Neighbours, Records, Schema
from dualquery.cli import run
from dualquery.errors import DataError, DualQueryError, SchemaError
from dualquery.queries import bit_columns
from dualquery.releases.make import refuse_dropping
from dualquery.releases.report import report_html
from dualquery.table.draft import schema_draft
from dualquery.table.schema import parse_schema, read_schema, schema_text
from tests.house import budget

DOMAIN = Domain((Categorical("sex", ("f", "m")), Categorical("smokes", ("no", "yes", "often"))))
REPLACE, ADD_REMOVE = Neighbours.REPLACE, Neighbours.ADD_REMOVE


def people(folder: Path, *, rows: int = 100, last: str = "m,yes") -> Path:
    path = folder / "people.csv"
    path.write_text("sex,smokes\n" + "f,no\n" * (rows - 1) + last + "\n")
    return path


# Rows dropped for what they contain


def test_dropped_rows_do_not_tell_their_number(tmp_path: Path) -> None:
    """Two files of 100 rows that differ in one cell gave certificates with 100 and with 99 records."""
    schema = Schema(DOMAIN, drop_rows_containing="?")
    for last in ("m,yes", "m,?"):
        table = people(tmp_path, last=last)
        with pytest.raises(SchemaError, match="add-remove"):
            dualquery.release(
                table, schema=schema, workload="marginals:1", budget=budget(), synthetic_rows=10
            )
        made = dualquery.release(
            table,
            schema=schema,
            workload="marginals:1",
            budget=budget(neighbours=ADD_REMOVE),
            synthetic_rows=10,
        )
        assert made.certificate["records"]["from"].startswith("measured")


def test_records_that_were_read_with_such_a_schema_are_refused_too() -> None:
    records = Records.from_rows(DOMAIN, np.zeros((20, 2), np.int32))
    schema = Schema(DOMAIN, drop_rows_containing="?")
    with pytest.raises(SchemaError, match="drops rows"):
        dualquery.release(records, schema=schema, workload="marginals:1", budget=budget())
    refuse_dropping(schema, ADD_REMOVE)
    refuse_dropping(Schema(DOMAIN), REPLACE)


def test_the_command_refuses_before_it_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(schema_text(Schema(DOMAIN, drop_rows_containing="?")))
    missing = tmp_path / "nowhere.csv"  # reading it would fail in another sentence
    arguments = [
        "release",
        str(missing),
        "--schema",
        str(schema),
        "--queries",
        "marginals:1",
        "--epsilon",
        "1",
    ]
    assert run([*arguments, "--out", str(tmp_path / "out")]) == 2
    assert "drops rows by what they contain" in capsys.readouterr().err


def test_the_schema_of_adult_may_be_used_under_replace() -> None:
    schema = read_schema(Path(__file__).parents[2] / "experiments" / "schemas" / "adult.toml")
    refuse_dropping(schema, REPLACE)
    assert not schema.drops_rows


# Drafts


def drafted(tmp_path: Path) -> tuple[Path, Schema]:
    table = people(tmp_path)
    return table, parse_schema(str(schema_draft(table)), origin="a draft")


def test_a_draft_promises_nothing(tmp_path: Path) -> None:
    table, schema = drafted(tmp_path)
    made = dualquery.release(table, schema=schema, workload="marginals:1", budget=budget(), synthetic_rows=10)
    assert not made.certificate.private
    assert made.certificate["schema_is_draft"]
    assert any("draft" in warning for warning in made.certificate["warnings"])
    page = report_html(made, made.certificate)
    assert "<title>A release that is not private</title>" in page
    assert "Nothing is promised. The schema is a draft" in page
    made.save(tmp_path / "out")
    again = dualquery.Release.load(tmp_path / "out")
    assert not again.certificate.private


def test_a_draft_that_was_made_public_promises_again(tmp_path: Path) -> None:
    table, schema = drafted(tmp_path)
    public = parse_schema(schema_text(schema).replace("draft = true", ""), origin="a schema")
    made = dualquery.release(table, schema=public, workload="marginals:1", budget=budget(), synthetic_rows=10)
    assert made.certificate.private
    assert not made.certificate["warnings"]


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = people(tmp_path)
    schema = tmp_path / "schema.toml"
    schema.write_text(str(schema_draft(table)))
    arguments = ["release", str(table), "--schema", str(schema), "--queries", "marginals:1", "--epsilon", "1"]
    assert run([*arguments, "--out", str(tmp_path / "out"), "--rows", "10", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["private"] is False
    assert "Not private: the schema still says that it is a draft" in err


# The smallest tables, and the number of records in what is told


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("mechanism", ["projection", "dualquery", "mwem", "pmw", "gaussian"])
def test_one_row_and_no_row_are_released_alike(rows: int, mechanism: str) -> None:
    """Under add-remove one row released and no row was an error."""
    records = Records.from_rows(DOMAIN, np.zeros((rows, 2), np.int32))
    options = {"rounds": 1} if mechanism in ("mwem", "pmw") else {}
    if mechanism == "dualquery":
        options = {"rounds": 2, "samples": 2}
    made = dualquery.release(
        records,
        workload="marginals:2",
        budget=budget(10.0, neighbours=ADD_REMOVE),
        mechanism=mechanism,
        **options,
    )
    assert made.certificate["records"]["rows"] >= 1
    with pytest.raises(DataError, match="no rows") if rows == 0 else _nothing():
        dualquery.release(records, workload="marginals:1", budget=budget(), synthetic_rows=5)


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


@pytest.mark.parametrize("workload", ["marginals:2", "random:2:50"])
def test_progress_does_not_carry_the_number_of_records(
    workload: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        bit_columns, "SLAB_BYTES", 1
    )  # so that even these tables are counted in several slabs
    told: dict[int, list[tuple[str, int, int]]] = {}
    for rows in (30_001, 45_000):
        heard: list[tuple[str, int, int]] = []
        records = Records.from_rows(DOMAIN, np.zeros((rows, 2), np.int32))
        dualquery.release(
            records,
            workload=workload,
            budget=budget(neighbours=ADD_REMOVE),
            public_rows=30_000,
            mechanism="gaussian",  # which counts the queries themselves, slab by slab
            progress=lambda stage, done, total, heard=heard: heard.append((stage, done, total)),
        )
        told[rows] = heard
    assert told[30_001] == told[45_000]
    assert any(stage == "counting" for stage, _, _ in told[30_001])


# What was a traceback


@pytest.mark.parametrize("neighbours", [REPLACE, ADD_REMOVE], ids=str)
@pytest.mark.parametrize("mechanism", [None, "dualquery"])
def test_a_domain_of_constants(neighbours: Neighbours, mechanism: str | None) -> None:
    constant = Domain((Categorical("a", ("x",)), Categorical("b", ("y",))))
    records = Records.from_rows(constant, np.zeros((10, 2), np.int32))
    with pytest.raises(DualQueryError, match="constant"):
        dualquery.release(
            records, workload="marginals:2", budget=budget(neighbours=neighbours), mechanism=mechanism
        )


@pytest.mark.parametrize("mechanism", [None, "dualquery", "mwem", "pmw", "gaussian"])
@pytest.mark.parametrize("rows", [10, 10**15])
@pytest.mark.parametrize("epsilon", [1e-6, 1.0])
def test_tiny_budgets_and_huge_tables_are_planned_or_refused(
    mechanism: str | None, rows: int, epsilon: float
) -> None:
    domain = Domain((Categorical("a", ("x", "y", "z")), Categorical("b", ("0", "1")), Items("item", 4)))
    try:
        made = dualquery.plan(
            domain, rows=rows, workload="marginals:2", budget=budget(epsilon), mechanism=mechanism
        )
    except DualQueryError as refusal:
        assert str(refusal)  # noqa: PT017
    else:
        assert made.mean_error > 0


# Several records


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN, Accounting.PURE])
def test_several_records_are_told_from_the_events(accounting: Accounting, tmp_path: Path) -> None:
    """The report said "k records as with k times ε", which is false at the same δ."""
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    paid = Budget(epsilon=1, delta=delta, neighbours=REPLACE, accounting=accounting)
    mechanism = "laplace" if accounting is Accounting.PURE else "gaussian"
    made = dualquery.release(
        people(tmp_path), schema=DOMAIN, workload="marginals:1", budget=paid, mechanism=mechanism
    )
    several, spent = made.certificate["several"], made.certificate["spent"]["epsilon"]
    assert list(several) == ["2", "5", "10"]
    for k, epsilon in several.items():
        if accounting is Accounting.PURE:
            assert epsilon == pytest.approx(int(k) * spent, rel=1e-9)
        else:
            assert epsilon > int(k) * spent
    page = report_html(made, made.certificate)
    assert "k times ε" not in page
    assert "10 records with ε =" in page
    if accounting is Accounting.ZCDP:
        assert several["5"] == pytest.approx(5.84, abs=0.02)
