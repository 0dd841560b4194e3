"""Databases on the command line: a folder of tables, what is asked of it, and what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from dualquery import example
from dualquery.cli import run
from tests.releases.test_database import known, tables

__all__ = ["known", "tables"]  # fixtures: a stand-in for the mechanism, and some invented households

Release = Callable[..., int]


@pytest.fixture(name="folder")
def folder_of(tables: dict[str, pd.DataFrame], tmp_path: Path) -> Path:
    """The folder of a database in which three rows have no place."""
    folder = tmp_path / "db"
    folder.mkdir()
    person = tables["person"].astype(object)
    person.loc[person.index[5], "sex"] = "?"
    person.loc[person.index[9], "hh"] = ""
    person.loc[person.index[11], "hh"] = 10**6
    person.to_csv(folder / "person.csv", index=False)
    tables["household"].to_csv(folder / "household.csv", index=False)
    (tmp_path / "schema.toml").write_text(example.DATABASE_SCHEMA, encoding="utf-8")
    return folder


def arguments(folder: Path, *more: str, schema: str = "schema.toml") -> list[str]:
    given = {"--queries": "marginals:2", "--epsilon": "1", "--delta": "1e-6", "--neighbours": "add-remove"}
    flags = [each for pair in given.items() for each in pair]
    out = str(folder.parent / "released")
    return ["release", str(folder), "--schema", str(folder.parent / schema), *flags, "--out", out, *more]


def test_a_folder_is_released_asked_and_compared(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments(folder, "--csv")) == 0
    told = capsys.readouterr()
    assert "not private, for you alone: left out were rows of 'person' with a value" in told.err.lower()
    assert "left out" not in told.out
    released = folder.parent / "released"
    assert {"household.parquet", "person.parquet", "household.csv", "person.csv"} <= {
        each.name for each in released.iterdir()
    }
    everything = b"".join(
        each.read_bytes() for each in released.iterdir() if each.suffix in (".json", ".html")
    )
    assert b"left out were" not in everything
    assert run(["answer", str(released), "any(person.age >= 65) & region = West"]) == 0
    assert run(["answer", str(released), "--of", "person", "age >= 65 & household.region = West"]) == 0
    assert run(["answer", str(released), "--of", "person", "--by", "person.sex"]) == 0
    assert run(["verify", str(released)]) == 0
    capsys.readouterr()
    assert run(["evaluate", str(released), str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["hanging"]) == 6
    assert run(["evaluate", str(released), str(folder)]) == 0
    assert "two rows of 'person' of one unit" in capsys.readouterr().out
    assert run(["evaluate", str(released), str(folder), "--of", "person", "--queries", "marginals:1"]) == 0


def swapped(given: list[str], right: str, wrong: str) -> list[str]:
    return [wrong if each == right else each for each in given]


WRONG = {
    "no folder": (lambda a: [a[0], "nowhere", *a[2:]], "no folder or file 'nowhere'"),
    "one table": (lambda a: [a[0], f"{a[1]}/person.csv", *a[2:]], "is one table, and the schema describes 2"),
    "replace": (lambda a: swapped(a, "add-remove", "replace"), "release with --neighbours add-remove"),
    "a named table": (lambda a: [*a, "--table", "person"], "leave --table out"),
    "another mechanism": (lambda a: [*a, "--mechanism", "projection"], "this is a table of database"),
    "queries of a child": (lambda a: swapped(a, "marginals:2", "tables:age"), "unknown attribute 'age'"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_is_one_sentence(fault: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change, said = WRONG[fault]
    assert run(change(arguments(folder))) == 2
    told = capsys.readouterr()
    assert said.lower() in told.err.lower()
    assert told.err.strip().count("\n") == 0
    assert told.out == ""
    assert not (folder.parent / "released").exists()


SCHEMAS = {
    "circle": ('parent = "household"', 'parent = "person"', "in a circle"),
    "unknown parent": ('parent = "household"', 'parent = "home"', "no [[table]] is named 'home'"),
    "no at_most": ("at_most = 6\n", "", "needs 'at_most'"),
    "no way to the protected table": ('parent = "household"\nlink = "hh"', "", "has 'at_most' and no parent"),
    "two parents": ('parent = "household"', 'parent = ["household", "street"]', "names several parents"),
}


@pytest.mark.parametrize("fault", SCHEMAS)
def test_a_fault_of_the_schema_is_one_sentence(
    fault: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong, said = SCHEMAS[fault]
    assert right in example.DATABASE_SCHEMA
    text = example.DATABASE_SCHEMA.replace(right, wrong)
    (folder.parent / "wrong.toml").write_text(text, encoding="utf-8")
    assert run(arguments(folder, schema="wrong.toml")) == 2
    told = capsys.readouterr()
    assert said in told.err
    assert told.err.strip().count("\n") == 0


def test_the_rows_of_a_table_that_is_not_there(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*arguments(folder), "--quiet"]) == 0
    released = str(folder.parent / "released")
    for asked, said in (
        (["answer", released, "--of", "car", "age >= 65"], "no table 'car'"),
        (["answer", released, "person.age >= 65"], "any(person.age …)"),
        (["evaluate", released, str(folder), "--of", "person"], "--queries"),
    ):
        capsys.readouterr()
        assert run(asked) == 2
        assert said in capsys.readouterr().err


def test_a_demo_is_of_one_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", "--series", "--kind", "graph", "--out", str(tmp_path / "demo")]) == 2
    assert "leave out --kind or --series" in capsys.readouterr().err
