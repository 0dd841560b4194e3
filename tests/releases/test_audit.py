"""Releases that are charged to a book: before any count is read, whole, for good, and as the certificate says."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualquery import (
    Accounting,
    Budget,
    BudgetError,
    DualQueryError,
    LedgerError,
    Neighbours,
    Release,
    Schema,
)
from dualquery.cli import run
from dualquery.counting import MemoryCounter
from dualquery.errors import ReleaseError
from dualquery.ledger.books import Books, create
from dualquery.mechanisms.mechanism import Mechanism
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.accounting import ROUNDING, mu_squared_units
from dualquery.privacy.conversion import UNITS, rho_units_of
from dualquery.releases.report import report_html
from dualquery.releases.verify import audit
from tests import house

Make = Callable[..., Release]
WHOLE = rho_units_of(epsilon=0.5, delta=1e-6)


half = partial(house.budget, epsilon=0.5)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "people.ledger"
    create(path, name="people", epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE)
    return path


def test_a_release_is_charged_and_its_certificate_says_so(make: Make, ledger: Path, tmp_path: Path) -> None:
    for number in (1, 2):
        release = make(budget=half(), ledger=ledger, dataset="people")
        release.save(tmp_path / f"release{number}")
        entry, book = release.certificate["book"], Books(ledger).read().book
        assert book.spent == number * WHOLE
        assert (entry["name"], entry["sequence"], entry["head"]) == (
            "people",
            number,
            Books(ledger).read().head,
        )
        assert entry["spent_rho"] == f"0.{number * WHOLE:012d}"
        assert entry["cap_rho"] == f"0.{book.cap:012d}"
        assert entry["head"] in report_html(release, release.certificate)
        assert float(release.certificate["spent"]["rho"]) <= float(entry["charged_rho"])
    found = audit(ledger, [tmp_path / "release1", tmp_path / "release2" / "certificate.json"])
    assert found.certificates == 2
    assert "book" not in make().certificate
    with pytest.MonkeyPatch.context() as of_persons:
        of_persons.setattr(Schema, "protects", "person")
        with pytest.raises(LedgerError, match="something else than the charge"):
            audit(ledger, [tmp_path / "release1"])


@pytest.mark.parametrize("relation", [Neighbours.REPLACE, Neighbours.ADD_REMOVE])
def test_a_book_of_gaussian_noise_holds_its_releases_to_a_filter(
    make: Make, relation: Neighbours, tmp_path: Path
) -> None:
    """Σ Δ²/(σ² − r²) of all uses of the table is at most what was charged, and fills it."""
    place = tmp_path / "people.ledger"
    create(place, name="people", epsilon=1, delta=1e-6, neighbours=relation, gaussian=True)
    release = make(budget=Budget(0.5, 1e-6, relation), ledger=place, mechanism="projection")
    release.save(tmp_path / "release")
    charged = Fraction(release.certificate["book"]["charged_mu_squared"])
    uses = release.certificate["events"]
    spent = sum(
        use["times"] * Fraction(use["sensitivity_squared"]) / (Fraction(use["variance"]) - ROUNDING)
        for use in uses
    )
    assert charged * Fraction(98, 100) < spent <= charged
    assert charged == Fraction(mu_squared_units(epsilon=0.5, delta=1e-6), UNITS)
    assert audit(place, [tmp_path / "release"]).certificates == 1
    assert "μ²" in report_html(release, release.certificate)
    with pytest.raises(BudgetError, match="Gaussian noise alone"):
        make(budget=Budget(0.1, 1e-6, relation), ledger=place, mechanism="mwem")


def test_the_book_is_charged_before_a_count_is_read(
    make: Make, ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    true_counts = MemoryCounter.true_counts

    def watched(self: MemoryCounter, *arguments: Any, **named: Any) -> Any:
        seen.append(Books(ledger).read().book.spent)
        return true_counts(self, *arguments, **named)

    monkeypatch.setattr(MemoryCounter, "true_counts", watched)
    make(budget=half(), ledger=ledger)
    assert seen
    assert set(seen) == {WHOLE}


def test_a_measured_number_of_records_is_within_the_same_charge(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = tmp_path / "ledger"
    create(ledger, name="people", epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
    spent_at_first: list[int] = []
    true_counts = MemoryCounter.true_counts

    def watched(self: MemoryCounter, *arguments: Any, **named: Any) -> Any:
        spent_at_first.append(Books(ledger).read().book.spent)
        return true_counts(self, *arguments, **named)

    monkeypatch.setattr(MemoryCounter, "true_counts", watched)
    release = make(budget=half(neighbours=Neighbours.ADD_REMOVE), ledger=ledger)
    assert set(spent_at_first) == {WHOLE}
    assert len(Books(ledger).read().charges) == 1
    assert float(release.certificate["spent"]["rho"]) * 10**12 <= WHOLE
    with pytest.raises(BudgetError, match="neighbours"):
        make(budget=half(), ledger=ledger)


def test_a_refusal_comes_before_the_table_is_read(make: Make, ledger: Path, schema: Schema) -> None:
    make(budget=half(), ledger=ledger)
    with pytest.raises(BudgetError, match="too little is left"):
        make(
            table="no-such-table.csv",
            schema=schema,
            budget=Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP),
            ledger=ledger,
        )
    with pytest.raises(BudgetError, match="use zcdp"):
        make(budget=half(accounting=Accounting.THEOREM_4_3), ledger=ledger)
    with pytest.raises(LedgerError, match="no book of 'cars'"):
        make(budget=half(), ledger=ledger, dataset="cars")


@pytest.mark.parametrize("raised", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_a_release_that_fails_stays_charged(
    make: Make, ledger: Path, monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    def fails(*_: Any) -> Any:
        raise raised

    real = MECHANISMS["independent"]
    broken: Any = Mechanism(name="broken", words="x", wishes=real.wishes, plan=real.plan, run=fails)
    monkeypatch.setitem(MECHANISMS, "broken", broken)
    with pytest.raises(raised):
        make(budget=half(), ledger=ledger, mechanism="broken")
    assert Books(ledger).read().book.spent == WHOLE


def test_a_release_that_cannot_be_planned_costs_nothing(make: Make, ledger: Path) -> None:
    with pytest.raises(DualQueryError):
        make(budget=half(), ledger=ledger, rounds=5)  # an option that this mechanism does not have
    with pytest.raises(DualQueryError):
        make(budget=half(), ledger=ledger, mechanism="no such mechanism")
    assert Books(ledger).read().book.spent == 0


def test_pure_releases_in_both_kinds_of_book(make: Make, ledger: Path, tmp_path: Path) -> None:
    pure = tmp_path / "pure.ledger"
    create(pure, name="people", epsilon=1, delta=0, neighbours=Neighbours.REPLACE)
    one = make(budget=half(accounting=Accounting.PURE), ledger=pure)
    assert one.certificate["book"]["spent_epsilon"] == "0.500000000000"
    one.save(tmp_path / "one")
    audit(pure, [tmp_path / "one"])
    assert "ε = 0.5" in report_html(one, one.certificate)
    with pytest.raises(BudgetError, match="too little is left"):  # ε²/2 = 0.125 of ρ, above the cap
        make(budget=half(accounting=Accounting.PURE), ledger=ledger)


def test_of_two_releases_at_once_one_is_refused(make: Make, ledger: Path) -> None:
    big = Budget(epsilon=0.8, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)

    def attempt(_: int) -> bool:
        try:
            make(budget=big, ledger=ledger)
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(attempt, range(8))) == 1
    assert len(Books(ledger).read().charges) == 1


@pytest.fixture
def charged(make: Make, ledger: Path, tmp_path: Path) -> list[Path]:
    """Two releases of a quarter each; the ledger as it was between them stands beside it."""
    budget = Budget(epsilon=0.3, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        shutil.copy(ledger, ledger.with_suffix(".old"))
        make(budget=budget, ledger=ledger).save(folder)
    return folders


def test_a_ledger_that_was_rolled_back_is_found_out_by_a_certificate(
    make: Make, ledger: Path, charged: list[Path], tmp_path: Path
) -> None:
    audit(ledger, charged)
    shutil.copy(ledger.with_suffix(".old"), ledger)
    audit(ledger, charged[:1])  # the older release does not know better
    with pytest.raises(LedgerError, match="rolled back"):
        audit(ledger, charged)
    make(budget=half(), ledger=ledger).save(tmp_path / "three")  # takes the place of the second
    with pytest.raises(LedgerError, match="rolled back"):
        audit(ledger, charged)
    audit(ledger, [charged[0], tmp_path / "three"])


def test_another_ledger_of_the_same_name_is_found_out(charged: list[Path], tmp_path: Path) -> None:
    other = tmp_path / "other.ledger"
    create(other, name="people", epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE)
    with pytest.raises(LedgerError, match="another book of 'people'"):
        audit(other, charged)
    create(tmp_path / "houses.ledger", name="houses", epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE)
    with pytest.raises(LedgerError, match="which is not here"):
        audit(tmp_path / "houses.ledger", charged)


def test_a_release_without_a_charge_is_found_out(make: Make, ledger: Path, tmp_path: Path) -> None:
    make().save(tmp_path / "free")
    with pytest.raises(LedgerError, match="charged to no ledger"):
        audit(ledger, [tmp_path / "free"])
    with pytest.raises(DualQueryError, match="no certificate"):
        audit(ledger, [tmp_path / "nothing"])


def test_two_releases_on_one_charge_are_found_out(
    make: Make, ledger: Path, charged: list[Path], tmp_path: Path
) -> None:
    shutil.copytree(charged[0], tmp_path / "copy")
    audit(ledger, [*charged, tmp_path / "copy"])  # the same release twice is one release
    path = tmp_path / "copy" / "certificate.json"
    path.write_text(path.read_text().replace('"notes": [', '"notes": [\n "another",'))
    with pytest.raises(LedgerError, match="different releases on one charge"):
        audit(ledger, [*charged, tmp_path / "copy"])


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("budget", "epsilon", 0.9),
        ("budget", "delta", 1e-3),
        ("budget", "accounting", "gaussian"),
        ("budget", "accounting", "none"),
        ("budget", "neighbours", "add-remove"),
        ("budget", "epsilon", None),
        ("book", "sequence", 2),
        ("book", "sequence", "1"),
        ("book", "head", "0" * 64),
        ("book", "release", "0" * 32),
        ("book", "charged_rho", "0.000000000001"),
        ("book", "spent_rho", "0.000000000001"),
        ("book", "cap_rho", "1.000000000000"),
        ("book", "name", ["people"]),
        ("book", "origin", None),
    ],
)
def test_an_edited_certificate_is_found_out(
    ledger: Path, charged: list[Path], section: str, key: str, value: object
) -> None:
    path = charged[0] / "certificate.json"
    data = json.loads(path.read_text())
    data[section][key] = value
    path.write_text(json.dumps(data))
    with pytest.raises((LedgerError, ReleaseError)):
        audit(ledger, charged)


def test_mutated_certificates_are_refused_in_a_sentence_or_say_the_same(
    ledger: Path, charged: list[Path]
) -> None:
    path, chance = charged[0] / "certificate.json", random.Random(1)
    text = path.read_bytes()
    told = json.loads(text)
    refused = 0
    for _ in range(300):
        content = bytearray(text[: text.index(b'"events"') + 200])  # the part that says what was charged
        for _ in range(chance.choice([1, 1, 2, 5])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        whole = bytes(content) + text[len(content) :]
        path.write_bytes(whole if chance.random() < 0.9 else whole[: chance.randrange(len(whole))])
        try:
            audit(ledger, charged)
        except DualQueryError as error:
            refused += "\n" not in str(error)
        else:
            found = json.loads(path.read_text())
            for key in (
                "name",
                "origin",
                "release",
                "sequence",
                "head",
                "charged_rho",
                "spent_rho",
                "cap_rho",
            ):
                assert found["book"][key] == told["book"][key]
            for key in ("epsilon", "delta", "accounting", "neighbours"):
                assert found["budget"][key] == told["budget"][key]
    assert refused > 100


def test_the_commands(
    charged: list[Path], ledger: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def ran(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = run([str(argument) for argument in arguments])
        return code, *capsys.readouterr()

    code, out, _ = ran("ledger", "show", ledger)
    assert code == 0
    assert "enough for one release of ε = 0.8" in out
    assert Books(ledger).read().head in out
    code, out, _ = ran("ledger", "show", ledger, "--dataset", "people", "--json")
    (book,) = json.loads(out)
    assert [each["sequence"] for each in book["charges"]] == [1, 2]
    assert (book["dataset"], book["epsilon"], book["neighbours"]) == ("people", 1.0, "replace")
    assert np.isclose(float(book["spent"]), 2 * rho_units_of(epsilon=0.3, delta=1e-6) / 10**12)
    code, out, _ = ran("ledger", "audit", ledger, *charged)
    assert code == 0
    assert "(2)" in out
    code, out, _ = ran("ledger", "audit", ledger, "--json")
    assert json.loads(out)["certificates"] == 0
    code, out, _ = ran("ledger", "audit", ledger)
    assert "an old copy" in out
    new = tmp_path / "new.ledger"
    create_houses = ("ledger", "create", new, "--dataset", "houses", "--epsilon", "2", "--delta", "1e-9")
    code, out, _ = ran(*create_houses, "--neighbours", "add-remove")
    assert code == 0
    assert "add-remove" in out
    shutil.copy(ledger.with_suffix(".old"), ledger)
    for arguments in (
        create_houses,
        ("ledger", "create", tmp_path / "x", "--dataset", "x", "--epsilon", "-1", "--delta", "1e-9"),
        ("ledger", "create", tmp_path / "x", "--dataset", "x", "--epsilon", "1", "--delta", "2"),
        ("ledger", "show", tmp_path / "missing"),
        ("ledger", "show", charged[0] / "certificate.json"),
        ("ledger", "show", ledger, "--dataset", "cars"),
        ("ledger", "audit", ledger, *charged),
        ("ledger", "audit", ledger, tmp_path / "missing"),
    ):
        code, out, err = ran(*arguments)
        assert code == 2, arguments
        assert err.startswith("Error: ")
        assert err.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_the_command_release_charges_and_refuses(
    ledger: Path, survey: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow.csv

    from dualquery import example

    pyarrow.csv.write_csv(survey, tmp_path / "survey.csv")
    (tmp_path / "schema.toml").write_text(example.SCHEMA, encoding="utf-8")

    def released(out: str) -> int:
        return run(
            ["release", str(tmp_path / "survey.csv"), "--schema", str(tmp_path / "schema.toml"), "--queries",
             "marginals:1", "--epsilon", "0.8", "--delta", "1e-6", "--mechanism", "independent", "--out",
             str(tmp_path / out), "--ledger", str(ledger), "--dataset", "people", "--json"]
        )  # fmt: skip

    assert released("one") == 0
    assert json.loads(capsys.readouterr().out)["book"]["sequence"] == 1
    assert released("two") == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "too little is left in the book of 'people'" in err.replace("Too", "too")
    assert "epsilon = 0.5" in err
    assert not (tmp_path / "two").exists()
    assert run(["ledger", "audit", str(ledger), str(tmp_path / "one")]) == 0
