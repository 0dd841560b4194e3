"""A service that is charged to the book of its dataset, beside the releases of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dualquery
from dualquery import Budget, BudgetError, Neighbours
from dualquery.ledger.books import Books, create
from dualquery.ledger.journal import Storage
from dualquery.service.run import begin
from dualquery.service.settings import Settings
from tests.service import small


def begun(folder: Path, book: Path, name: str, epsilon: float = 1.0) -> Settings:
    return begin(
        folder / "people.csv",
        schema=folder / "schema.toml",
        epsilon=epsilon,
        delta=1e-6,
        out=folder / f"{name}.toml",
        release=folder / "stale",
        book=str(book),
    )


def test_a_service_and_a_release_share_one_book(tmp_path: Path) -> None:
    folder, ledger = small.files(tmp_path / "people"), tmp_path / "all.ledger"
    create(ledger, name="people", epsilon=1.5, delta=1e-6, neighbours=Neighbours.REPLACE, questions=True)
    made = begun(folder, ledger, "service")
    (charge,) = Books(ledger).read("people").charges
    assert charge.what == "service: epsilon 1.0, delta 1e-06, renyi"
    promise = Storage(made.place).promise()
    assert promise.cap == charge.units  # all that it will ever tell
    assert json.loads(promise.promise)["book"]["head"] == charge.hash
    released = dualquery.release(
        folder / "people.csv",
        schema=folder / "schema.toml",
        workload="marginals:1",
        budget=Budget(0.3, 1e-6),
        mechanism="gaussian",
        ledger=str(ledger),
        dataset="people",
    )
    assert "charged_renyi" in released.certificate["book"]
    released.save(tmp_path / "released")
    assert "a Rényi divergence" in (tmp_path / "released" / "report.html").read_text(encoding="utf-8")
    from dualquery.releases.verify import audit

    assert audit(ledger, [tmp_path / "released"]).certificates == 1
    before = Books(ledger).read("people")
    with pytest.raises(BudgetError, match="too little is left"):
        begun(folder, ledger, "second")
    assert Books(ledger).read("people") == before
    assert not (folder / "second.toml").exists()
    assert not (folder / "second.ledger").exists()
