"""A release that starts from public rows: what it says of them, what it refuses, and that a refit is free."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

import dualquery
from dualquery import Budget, DualQueryError, Release
from dualquery.privacy.budget import Accounting, Neighbours
from dualquery.releases.public import refuse_same
from dualquery.releases.seal import create_key
from dualquery.table.reading.postgresql import PostgresTable

pytestmark = pytest.mark.usefixtures("few_rows")

SCHEMA: Mapping[str, Any] = {
    "attribute": [
        {"name": "sex", "values": ["f", "m"]},
        {"name": "age", "edges": [0, 20, 40, 60, 80, 100]},
        {"name": "job", "values": ["none", "office", "field"]},
        {"name": "tenure", "values": ["owns", "rents"]},
    ]
}
BUDGET = Budget(1.0, 1e-6, Neighbours.ADD_REMOVE)


def people(number: int, seed: int) -> pa.Table:
    """A person's job and tenure follow the age."""
    rng = np.random.default_rng(seed)
    age = np.clip(rng.normal(45, 20, number), 0, 99.9)
    job = np.where(age < 20, "none", np.where(rng.random(number) < age / 120, "field", "office"))
    tenure = np.where(rng.random(number) < age / 100, "owns", "rents")
    return pa.table({"sex": rng.choice(["f", "m"], number), "age": age, "job": job, "tenure": tenure})


TABLE, SAMPLE = people(2_000, 1), people(3_000, 2)


def made(**options: Any) -> Release:
    given = {"prior": SAMPLE, "prior_origin": "census sample 2023", "seed": 4, **options}
    return dualquery.release(TABLE, schema=SCHEMA, workload="marginals:2", budget=BUDGET, **given)


@pytest.fixture(scope="module")
def release() -> Release:
    return made()


def test_the_certificate_names_the_prior_and_how_far_it_was_believed(
    release: Release, tmp_path: Path
) -> None:
    (entry,) = release.certificate["prior"]
    assert (entry["origin"], entry["records"], list(entry["lacks"])) == ("census sample 2023", 3_000, [])
    trust = release.certificate["trust"]
    assert trust["share"] == 1
    assert 100 < trust["records"] < 3_000
    assert f"counts as {trust['records']:,.0f} records" in release.certificate["notes"][-1]
    release.save(tmp_path / "released")
    read = Release.load(tmp_path / "released")
    asked = "age >= 40 & tenure = owns"
    assert read.answer(asked) == release.answer(
        asked
    )  # bars, too: replicas are drawn again from the same atoms


def test_the_report_says_that_nothing_protects_the_prior(release: Release, tmp_path: Path) -> None:
    release.save(tmp_path / "released", registry=True)
    for name in ("report.html", "registry.html", "registry.json"):
        said = (tmp_path / "released" / name).read_text("utf-8")
        assert "The prior: census sample 2023, 3,000 records" in said
        assert "nothing here protects them" in said


def test_what_is_spent_does_not_depend_on_the_prior(release: Release) -> None:
    alone = made(prior=None, prior_origin=None)
    assert alone.certificate["spent"] == release.certificate["spent"]
    assert "prior" not in alone.certificate


def test_columns_that_the_prior_lacks_are_named() -> None:
    found = made(prior=SAMPLE.drop_columns(["job"]))
    assert list(found.certificate["prior"][0]["lacks"]) == ["job"]
    said = "the prior 'census sample 2023' is used for sex, age, tenure; it has no job"
    assert found.certificate["notes"][-1] == said


def test_a_release_is_a_prior_by_itself(release: Release, tmp_path: Path) -> None:
    private = dualquery.release(SAMPLE, schema=SCHEMA, workload="marginals:2", budget=BUDGET)
    private.save(tmp_path / "last")
    for prior in (private, tmp_path / "last", [private, SAMPLE]):
        found = made(prior=prior).certificate["prior"]
        assert found[0]["records"] == pytest.approx(3_000, abs=300)
        assert found[0]["origin"].startswith("a release of ε = 1")
    with pytest.raises(DualQueryError, match="promises nothing by itself: a seed was used"):
        made(prior=release, prior_origin=None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"prior_origin": None}, "say where the prior's rows come from"),
        ({"prior_origin": " "}, "say where the prior's rows come from"),
        ({"prior": None}, "no prior"),
        ({"prior": TABLE}, "the private table itself"),
        ({"prior": pa.table({"height": [1.0]})}, "none of the columns"),
        ({"prior": pa.table({"sex": ["x"]})}, "census sample 2023"),
        ({"prior": SAMPLE.slice(0, 0)}, "no rows"),
        ({"prior": "nowhere.csv"}, "no prior 'nowhere.csv'"),
        ({"prior": "nowhere", "prior_origin": None}, "no prior 'nowhere'"),
        ({"mechanism": "mwem"}, "does not start from a prior"),
    ],
)
def test_refusals(options: dict[str, Any], words: str) -> None:
    with pytest.raises(DualQueryError, match=words):
        made(**options)


def test_pure_noise_cannot_test_a_prior() -> None:
    with pytest.raises(DualQueryError, match="Laplace"):
        dualquery.release(
            TABLE,
            schema=SCHEMA,
            workload="marginals:2",
            budget=Budget(1.0, 0.0, accounting=Accounting.PURE),
            prior=SAMPLE,
            prior_origin="sample",
        )


@pytest.mark.parametrize(
    ("table", "prior", "same"),
    [
        ("clinic.sqlite#patients", "clinic.sqlite#patients", True),
        ("clinic.sqlite#patients", "./clinic.sqlite#patients", True),
        ("clinic.sqlite", "clinic.sqlite#patients", True),  # the only table, perhaps
        ("clinic.sqlite#patients", "clinic.sqlite#others", False),
        ("parts/*.parquet", "parts/*.parquet", True),
        ("parts/*.parquet", "parts/1.parquet", True),
        ("parts", "parts/1.parquet", True),
        ("parts/1.parquet", "parts/2.parquet", False),
        ("gone.csv", "gone.csv", True),
        ("parts/1.parquet", "gone.csv", False),
        (PostgresTable("postgresql://host/x", "a"), PostgresTable("postgresql://host/x", "a"), True),
        (PostgresTable("postgresql://host/x", "a"), PostgresTable("postgresql://host/x", "b"), False),
    ],
)
def test_a_prior_that_is_named_like_the_table_or_a_part_of_it_is_refused(
    table: object, prior: object, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parts").mkdir()
    for name in ("clinic.sqlite", "parts/1.parquet", "parts/2.parquet"):
        (tmp_path / name).touch()
    with pytest.raises(DualQueryError, match="the private table itself") if same else nullcontext():
        refuse_same(prior, table)


def test_a_file_named_twice_is_refused(tmp_path: Path) -> None:
    pyarrow.csv.write_csv(TABLE, tmp_path / "people.csv")
    (tmp_path / "same.csv").symlink_to(tmp_path / "people.csv")
    with pytest.raises(DualQueryError, match="the private table itself"):
        dualquery.release(
            tmp_path / "people.csv",
            schema=SCHEMA,
            workload="marginals:2",
            budget=BUDGET,
            prior=tmp_path / "same.csv",
            prior_origin="sample",
        )


def test_a_refit_is_free() -> None:
    plain = dualquery.release(TABLE, schema=SCHEMA, workload="marginals:2", budget=BUDGET)
    again = dualquery.refit(plain, prior=SAMPLE, prior_origin="census sample 2023", seed=1)
    for field in ("spent", "budget", "events", "records", "workload", "measured"):
        assert again.certificate[field] == plain.certificate[field]
    assert again.certificate["prior"][0]["records"] == 3_000
    assert again.certificate.private == plain.certificate.private
    json.loads(again.certificate.to_json())
    answer = again.answer("age >= 40 & tenure = owns")
    assert answer.error is not None
    assert 0 < answer.error < 0.2


def test_a_refit_leaves_the_verdict_on_rows_that_are_gone() -> None:
    strict = {"criterion": [{"tables": 2, "mean": 1e-4}]}
    plain = dualquery.release(TABLE, schema=SCHEMA, workload="marginals:2", budget=BUDGET, accept=strict)
    assert any("good enough" in each for each in plain.certificate["warnings"])
    again = dualquery.refit(plain, prior=SAMPLE, prior_origin="census sample 2023")
    assert "accepted" not in again.certificate
    assert not any("good enough" in each for each in again.certificate["warnings"])


def test_a_folder_is_fitted_again_as_well(tmp_path: Path) -> None:
    dualquery.release(TABLE, schema=SCHEMA, workload="marginals:2", budget=BUDGET).save(tmp_path / "old")
    again = dualquery.refit(tmp_path / "old", prior=SAMPLE, prior_origin="census sample 2023")
    assert again.certificate["prior"][0]["records"] == 3_000
    with pytest.raises(DualQueryError, match="does not exist"):
        dualquery.refit(tmp_path / "gone", prior=SAMPLE, prior_origin="census sample 2023")


def test_what_was_not_measured_in_tables_cannot_be_fitted_again() -> None:
    noisy = dualquery.release(
        TABLE, schema=SCHEMA, workload="marginals:1", budget=BUDGET, mechanism="gaussian"
    )
    with pytest.raises(DualQueryError, match="no tables that rows could be fitted to"):
        dualquery.refit(noisy, prior=SAMPLE, prior_origin="sample")


def test_a_key_is_demanded(tmp_path: Path) -> None:
    """A prior that is not signed, signed by another, or no release at all is refused."""
    create_key(tmp_path / "office")
    create_key(tmp_path / "other")
    last = dualquery.release(SAMPLE, schema=SCHEMA, workload="marginals:1", budget=BUDGET, check=0)
    last.save(tmp_path / "unsigned")
    last.save(tmp_path / "signed", sign=tmp_path / "office")
    key = tmp_path / "office.pub"
    for prior, words in (
        (tmp_path / "unsigned", "not signed"),
        ([tmp_path / "signed", SAMPLE], "one of the priors is none"),
        (last, "one of the priors is none"),
        (None, "no prior"),
    ):
        with pytest.raises(DualQueryError, match=words):
            made(prior=prior, prior_origin=None, prior_key=key)
    with pytest.raises(DualQueryError, match="key"):
        made(prior=tmp_path / "signed", prior_origin=None, prior_key=tmp_path / "other.pub")
    found = made(prior=tmp_path / "signed", prior_origin=None, prior_key=key)
    assert found.certificate["prior"][0]["records"] == last.certificate["records"]["rows"]
