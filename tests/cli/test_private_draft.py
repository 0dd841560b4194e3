"""`dualquery schema draft --epsilon`: a file from the command line to a release, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest

from dualquery.cli import run
from dualquery.ledger.books import Books
from dualquery.table.schema import read_schema

ROWS = 3000


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    table = pa.table(
        {
            "person": np.arange(ROWS) // 3,
            "age": rng.integers(18, 80, ROWS),
            "word": rng.choice(["yes", "no"], ROWS),
        }
    )
    pyarrow.csv.write_csv(table, tmp_path / "people.csv")
    monkeypatch.chdir(tmp_path)
    create("book", "replace")
    return tmp_path


def create(name: str, *relation: str, epsilon: str = "50") -> None:
    assert run(["ledger", "create", name, "--dataset", "d", "--epsilon", epsilon, "--delta", "1e-6",
                "--neighbours", *relation, "--json"]) == 0  # fmt: skip


DRAFT = ["schema", "draft", "people.csv"]


def test_a_draft_is_charged_written_and_released_with(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*DRAFT, "--epsilon", "9", "--delta", "1e-6", "--ledger", "book", "--out", "s.toml"]) == 0
    said = capsys.readouterr()
    assert "public as it stands" in said.err
    assert "'s.certificate.json'" in said.err
    assert (place / "s.certificate.json").is_file()
    schema = read_schema("s.toml")
    assert {column.name for column in schema.domain.columns} >= {"age", "word"}
    (charge,) = Books("book").read().charges
    assert "private draft: epsilon 9.0" in charge.what
    assert run(["schema", "check", "s.toml", "people.csv"]) == 0
    assert run(["release", "people.csv", "--schema", "s.toml", "--queries", "marginals:1", "--epsilon", "1",
                "--delta", "1e-6", "--ledger", "book", "--out", "made", "--quiet"]) == 0  # fmt: skip
    assert len(Books("book").read().charges) == 2


def test_persons_and_a_part_that_is_stated(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create("persons", "person-add-remove", "--records-per-person", "3")
    (place / "part.toml").write_text(
        '[[attribute]]\nname = "word"\nvalues = ["yes", "no"]\n', encoding="utf-8"
    )
    person = [
        "--neighbours",
        "person-add-remove",
        "--records-per-person",
        "3",
        "--delta",
        "1e-6",
        "--unit",
        "person",
    ]
    given = [*DRAFT, "--epsilon", "20", *person, "--known", "part.toml", "--ledger", "persons", "--quiet"]
    assert run(given) == 0
    said = capsys.readouterr().out
    assert 'unit = "person"' in said
    assert 'values = ["yes", "no"]\n' in said
    assert "# measured, ε = 20" in said


def test_a_dry_run_says_what_would_not_be_seen_and_charges_nothing(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*DRAFT, "--epsilon", "0.3", "--dry-run"]) == 0
    assert "become 'other'" in capsys.readouterr().out
    assert run([*DRAFT, "--epsilon", "0.3", "--ledger", "book"]) == 2
    assert "is not seen" in capsys.readouterr().err
    assert Books("book").read().charges == ()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--epsilon", "0.3"], "name it (--ledger)"),
        (["--ledger", "book"], "--ledger is for a private draft"),
        (["--dry-run"], "--dry-run is for a private draft"),
        (["--force"], "--force is for a private draft"),
        (["--epsilon", "9", "--public-reference", "people.csv"], "no public one"),
        (["--epsilon", "9", "--ledger", "none"], "none"),
        (["--epsilon", "90", "--delta", "1e-6", "--ledger", "book"], "too little is left"),
        (
            ["--epsilon", "9", "--delta", "1e-6", "--neighbours", "add-remove", "--ledger", "book"],
            "add-remove",
        ),
        (["--epsilon", "9", "--neighbours", "add-remove", "--ledger", "book"], "delta has no default"),
        (["--epsilon", "9", "--known", "none.toml", "--ledger", "book"], "no schema file"),
        (["--epsilon", "9", "--unit", "whose", "--ledger", "book"], "no column 'whose'"),
        (["--epsilon", "-1", "--ledger", "book"], "positive number"),
        (["--epsilon", "9", "--for-epsilon", "0", "--ledger", "book"], "hint for the number of bins"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    place: Path, given: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*DRAFT, *given, "--out", "s.toml"]) == 2
    said = capsys.readouterr()
    assert words.lower() in said.err.lower()
    assert said.err.count("\n") <= 3
    assert not (place / "s.toml").exists()
    assert Books("book").read().charges == ()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        (bytes(range(256)) * 100, ""),
        (b"", "empty"),
        (b"age,word\n", "no rows below"),
        (b"age\n" + b"1\n" * 50, "is not seen"),
        (b"17,red\n" + b"18,blue\n" * 5000, "looks like a record"),
        (b"a,a\n" + b"1,2\n" * 5000, "nothing to measure"),
        (b"a,b\n1,2\n3\n", ""),
    ],
)
def test_broken_files_are_one_sentence_and_charge_nothing(
    place: Path, written: bytes, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "people.csv").write_bytes(written)
    assert run([*DRAFT, "--epsilon", "9", "--delta", "1e-6", "--ledger", "book"]) == 2
    said = capsys.readouterr()
    assert words in said.err
    assert said.err
    assert "Traceback" not in said.err
    assert Books("book").read().charges == ()


def test_neither_file_is_written_over(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "s.certificate.json").write_text("mine", encoding="utf-8")
    assert run([*DRAFT, "--epsilon", "9", "--ledger", "book", "--out", "s.toml"]) == 2
    assert "'s.certificate.json' exists already" in capsys.readouterr().err
    assert Books("book").read().charges == ()
