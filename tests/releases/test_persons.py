"""From a table of persons to a certificate that says so; what does not fit together is refused in one sentence."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pytest

import dualquery
from benchmarks.persons import compare
from dualquery import Accounting, Budget, Neighbours, PersonAddRemove, PersonReplace, Release, Schema
from dualquery.cli import run
from dualquery.errors import BudgetError, DataError, DualQueryError
from dualquery.privacy.budget import person_relations
from dualquery.privacy.noise import Gaussian
from dualquery.queries.derived import number_of_records
from dualquery.releases import sentences
from dualquery.releases.plan import price_of_rows
from dualquery.releases.report import report_html
from dualquery.table.schema import schema_text

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def owned(schema: Schema) -> Schema:
    return replace(schema, unit="person")


@pytest.fixture(scope="module")
def table(survey: Any) -> pa.Table:
    """500 answers of 100 persons."""
    return survey.append_column("person", pa.array([f"p{i % 100}" for i in range(500)]))


def budget(neighbours: Neighbours, epsilon: float = 1.0, **more: Any) -> Budget:
    return Budget(
        **{"epsilon": epsilon, "delta": 1e-6, "accounting": Accounting.ZCDP, "neighbours": neighbours, **more}
    )


def made(table: Any, schema: Schema, neighbours: Neighbours, **more: Any) -> Release:
    given = {"workload": "marginals:1", "mechanism": "gaussian", "budget": budget(neighbours), **more}
    return dualquery.release(table, schema=schema, **given)


@pytest.mark.parametrize("relation", person_relations(3), ids=str)
def test_the_certificate_is_about_one_person(table: pa.Table, owned: Schema, relation: Neighbours) -> None:
    certificate = made(table, owned, relation).certificate
    assert certificate["budget"]["neighbours"] == relation.value
    assert certificate["budget"]["records_per_person"] == 3
    assert "one person" in certificate["budget"]["neighbours_words"]
    assert certificate["records"]["from"].startswith("measured")
    assert certificate.schema == owned
    rows, answers = certificate["events"]
    assert Fraction(rows["sensitivity_squared"]) == 9
    assert Fraction(answers["sensitivity_squared"]) == 9 * 12 * (
        2 if relation.value == "person-replace" else 1
    )
    assert certificate["spent"]["epsilon"] <= 1


def test_the_sentences_are_about_one_person(table: pa.Table, owned: Schema) -> None:
    release = made(table, owned, PersonReplace(3))
    promise = " ".join(sentences.promise(release.certificate))
    assert "Take any one person, and suppose that they had had any other records instead." in promise
    assert "if that person's records had been different" in promise
    assert "This holds for every person" in promise
    ends = " ".join(sentences.not_promised(release.certificate))
    assert "It protects one person" in ends
    assert "at most 3 records counted" in ends
    assert "A record without an id counts as a person of its own." in ends
    assert "The number of persons" in " ".join(sentences.public(release.certificate))
    page = report_html(release, release.certificate)
    assert "<b>one person</b>" in page
    assert "Take any one record" not in page
    assert "one record" not in page
    gone = made(table, owned, PersonAddRemove(1)).certificate
    assert (
        "they were left out of the table with all their records, or added to it" in sentences.promise(gone)[0]
    )
    assert "The number of persons" not in " ".join(sentences.public(gone))


def test_a_release_of_records_still_speaks_of_records(survey: Any, schema: Schema) -> None:
    certificate = made(survey, schema, Neighbours.ADD_REMOVE).certificate
    assert certificate["budget"]["records_per_person"] is None
    said = " ".join([*sentences.promise(certificate), *sentences.not_promised(certificate)])
    assert "Take any one record, and suppose that it were left out" in said
    assert "if that person's record had been different" in said
    assert "It protects one record." in said
    assert sentences.relation(certificate) is Neighbours.ADD_REMOVE


def test_only_k_records_of_a_person_are_counted(table: pa.Table, owned: Schema) -> None:
    """100 persons with 5 records each; with a very large budget the count of what is left shows."""
    for most in (1, 3, 5, 50):
        rich = budget(PersonAddRemove(most), epsilon=1e8)
        release = made(table, owned, PersonAddRemove(most), budget=rich)
        assert release.certificate["records"]["rows"] == 100 * min(most, 5)


def test_encoded_records_know_how_many_a_person_has(table: pa.Table, owned: Schema, schema: Schema) -> None:
    three = dualquery.encode(table, owned, records_per_person=3)
    everything = dualquery.encode(table, owned)
    assert made(three, owned, PersonReplace(3)).certificate["budget"]["records_per_person"] == 3
    assert made(three, schema, PersonReplace(4)).certificate["budget"]["records_per_person"] == 4
    for records, most in ((three, 2), (everything, 1000)):
        with pytest.raises(DualQueryError, match=rf"encode\(table, schema, records_per_person={most}\)"):
            made(records, owned, PersonReplace(most))
    with pytest.raises(DualQueryError, match="use the neighbours person-replace"):
        made(three, schema, Neighbours.REPLACE)
    with pytest.raises(DualQueryError, match="--neighbours person-replace with --records-per-person"):
        made(everything, owned, Neighbours.REPLACE)


def test_schema_and_neighbours_must_agree(table: pa.Table, owned: Schema, schema: Schema) -> None:
    for relation in (Neighbours.REPLACE, Neighbours.ADD_REMOVE):
        with pytest.raises(DualQueryError, match=f"use --neighbours person-{relation.value} with"):
            made(table, owned, relation)
        with pytest.raises(DualQueryError, match=f"use --neighbours person-{relation.value} with"):
            dualquery.plan(owned, rows=500, workload="marginals:1", budget=budget(relation))
    for relation in person_relations(2):
        single = relation.value.removeprefix("person-")
        with pytest.raises(DualQueryError, match=rf"unit = .*, or use --neighbours {single}$"):
            made(table, schema, relation)
        with pytest.raises(DualQueryError, match=rf"unit = .*, or use --neighbours {single}$"):
            dualquery.plan(schema, rows=500, workload="marginals:1", budget=budget(relation))
        with pytest.raises(DataError, match="has no column 'person'"):
            made(table.drop_columns("person"), owned, relation)


def test_accountings_that_cannot_measure_need_a_declared_number(table: pa.Table, owned: Schema) -> None:
    theorem = budget(PersonReplace(2), accounting=Accounting.THEOREM_4_3)
    with pytest.raises(BudgetError, match="number of records must be declared"):
        made(table, owned, PersonReplace(2), budget=theorem)
    gaussian = budget(PersonReplace(2), accounting=Accounting.GAUSSIAN)
    measured = made(table, owned, PersonReplace(2), budget=gaussian)
    assert measured.certificate["records"]["from"].startswith("measured")
    declared = made(table, owned, PersonReplace(2), budget=gaussian, public_rows=200)
    assert declared.certificate["records"] == {"rows": 200, "from": "declared by the curator as public"}


def test_an_evaluation_looks_at_the_whole_table(table: pa.Table, owned: Schema) -> None:
    """What was dropped is part of the error."""
    release = made(table, owned, PersonAddRemove(1), budget=budget(PersonAddRemove(1), epsilon=1e8))
    found = dualquery.evaluate(release, table)
    assert found.rows == 500
    assert 0.005 < found.mean_error < 0.1


def test_the_noise_of_the_number_of_records_is_the_statistics_own(schema: Schema) -> None:
    for relation in (Neighbours.ADD_REMOVE, *person_relations(1), *person_relations(6)):
        moved = relation.sensitivity(number_of_records(schema.domain).bound())
        noise = price_of_rows(replace(budget(relation), adaptive=True)).noise
        single = price_of_rows(replace(budget(Neighbours.ADD_REMOVE), adaptive=True)).noise
        assert isinstance(noise, Gaussian)
        assert isinstance(single, Gaussian)
        assert noise.variance == moved.l2_squared * single.variance


# ── Accuracy ────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
def test_three_records_a_person_cost_what_a_third_of_epsilon_buys(relation: str) -> None:
    """20,000 persons with 3 records each, K = 3, ε = 1: the mean error is within 1.2 of records at ε / 3."""
    found = compare(relation, seeds=1, synthetic_rows=20_000)
    assert 0.8 < found.ratio < 1.2
    assert max(found.person) < 0.004


# ── The command line ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, table: pa.Table, owned: Schema, schema: Schema) -> Path:
    place = tmp_path_factory.mktemp("persons")
    pyarrow.csv.write_csv(table, place / "visits.csv")
    (place / "persons.toml").write_text(schema_text(owned), encoding="utf-8")
    (place / "records.toml").write_text(schema_text(schema), encoding="utf-8")
    baskets = "".join(f"b{i % 40},{1 + i * i % 23}\n" for i in range(200))
    (place / "long.csv").write_text(f"basket,item\n{baskets}", encoding="utf-8")
    (place / "long.toml").write_text(
        '[table]\nunit = "basket"\nlong = true\n\n[[attribute]]\nname = "item"\ncount = 23\n',
        encoding="utf-8",
    )
    return place


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], place: Path) -> Run:
    def ran(
        *arguments: str, schema: str = "persons", table: str = "visits", out: Path = place / "out"
    ) -> Any:
        capsys.readouterr()
        asked = ["release", place / f"{table}.csv", "--schema", place / f"{schema}.toml", "-q", "marginals:1"]
        code = run([*map(str, asked), "--epsilon", "1", "--out", str(out), *arguments])
        return code, *capsys.readouterr()

    return ran


PERSON = ("--neighbours", "person-replace", "--records-per-person", "3")


def test_a_release_from_the_command_line(command: Run, tmp_path: Path) -> None:
    code, out, err = command(
        *PERSON, "--delta", "1e-6", "--mechanism", "gaussian", "--json", out=tmp_path / "r"
    )
    assert code == 0, err
    assert json.loads(out)["budget"]["records_per_person"] == 3
    assert Release.load(tmp_path / "r").certificate.schema.unit == "person"
    code, out, _ = command(
        "--records-per-person", "2", "--neighbours", "person-add-remove", "--records", "200",
        "--mechanism", "gaussian", "--seed", "1", out=tmp_path / "s",
    )  # fmt: skip
    assert code == 0
    assert "neighbours person-add-remove (at most 2 records each)" in out
    assert Release.load(tmp_path / "s").certificate["budget"]["delta"] == 1e-6


def test_baskets_in_long_form_are_records(command: Run, tmp_path: Path) -> None:
    code, _, err = command("--mechanism", "gaussian", schema="long", table="long", out=tmp_path / "r")
    assert code == 0, err
    certificate = Release.load(tmp_path / "r").certificate
    assert certificate["records"]["rows"] == 40
    assert certificate["budget"]["neighbours"] == "replace"


@pytest.mark.parametrize(
    ("arguments", "described_by", "sentence"),
    [
        ((), "persons", "use --neighbours person-replace with --records-per-person K"),
        (("--neighbours", "add-remove", "--delta", "1e-6"), "persons", "use --neighbours person-add-remove"),
        ((*PERSON, "--delta", "1e-6"), "records", "or use --neighbours replace"),
        ((*PERSON, "--delta", "1e-6"), "long", "all rows of a unit are one record"),
        (PERSON, "persons", "delta has no default: give --delta, or declare the number with --records"),
        (PERSON[:2], "persons", "(--records-per-person)"),
        (PERSON[2:], "persons", "ask for 'person-replace'"),
        (("--neighbours", "add-remove", *PERSON[2:]), "persons", "ask for 'person-add-remove'"),
        ((*PERSON[:3], "0"), "persons", "whole number from 1 to 1,000,000, got 0"),
        ((*PERSON[:3], "-4"), "persons", "got -4"),
        ((*PERSON[:3], "9999999"), "persons", "got 9999999"),
        ((*PERSON[:3], "three"), "persons", "'--records-per-person'"),
        (
            ("--neighbours", "persons", *PERSON[2:]),
            "persons",
            "neighbours must be one of replace, add-remove, person-",
        ),
    ],
)
def test_what_a_user_can_get_wrong(
    command: Run, tmp_path: Path, arguments: tuple[str, ...], described_by: str, sentence: str
) -> None:
    code, out, err = command(*arguments, schema=described_by, out=tmp_path / "r")
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.startswith("Error: ")
    assert "Traceback" not in err
    assert not (tmp_path / "r").exists()
