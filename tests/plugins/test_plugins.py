"""A package adds a mechanism, a kind of table and a source through entry points; nothing in src knows of it."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pyarrow.csv
import pytest

import dualquery
from dualquery import DualQueryError, Mechanism, example
from dualquery.cli import run
from dualquery.mechanisms.wishes import MECHANISMS, NoWishes
from dualquery.registry import KINDS, Registry

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PACKAGE = HERE / "clock"

FROM_PYTHON = """
import sys
import pyarrow as pa
import dualquery
from dualquery import Budget, Release

folder, budget = sys.argv[1], Budget(2, 1e-6)
made = dualquery.release(
    f"{folder}/people.fwf", schema=f"{folder}/people.toml", workload="marginals:1", budget=budget,
    mechanism="one-way", most_records=300,
)
assert len(made) == 300, len(made)
assert dualquery.plan(made.domain, records=500, workload="marginals:1", budget=budget, mechanism="one-way")
hours = pa.table({"at": [1, 2, 3, 23] * 500})
made = dualquery.release(hours, schema=f"{folder}/clock.toml", workload=["from 22 to 4", "arcs:6"], budget=budget)
made.save(f"{folder}/saved")
read = Release.load(f"{folder}/saved")
assert read.answer("from 22 to 4") == made.answer("from 22 to 4")
assert abs(read.answer("from 22 to 4").value - 1.0) < 0.1, read.answer("from 22 to 4")
assert read.certificate["mechanism"] == "day-histogram"
assert abs(dualquery.evaluate(read, hours, "arcs:6").mean_error) < 0.05
print(read)
"""


def called(site: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Python with some packages installed."""
    paths = os.pathsep.join([str(ROOT / "src"), str(site)])
    environment = {**os.environ, "PYTHONPATH": paths, "PYTHONWARNINGS": "default"}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def program(site: Path, *arguments: object) -> str:
    done = called(site, "-m", "dualquery", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built as a wheel and unpacked as an installer does."""
    folder = tmp_path_factory.mktemp("site")
    build = "import sys, hatchling.build; hatchling.build.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=HERE, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tables")
    lines = [f"{sex:<8}{age}" for sex, age in [("female", 30), ("male", 52)] * 250]
    (folder / "people.fwf").write_text("\n".join(["sex     age", *lines]), encoding="utf-8")
    (folder / "people.toml").write_text(
        '[[attribute]]\nname = "sex"\nvalues = ["female", "male"]\n'
        '[[attribute]]\nname = "age"\nedges = [0, 40, 100]\ninteger = true\n',
        encoding="utf-8",
    )
    (folder / "clock.toml").write_text('[clock]\ncolumn = "at"\n', encoding="utf-8")
    return folder


def test_releases_from_python(site: Path, place: Path) -> None:
    done = called(site, "-c", FROM_PYTHON, place)
    assert done.returncode == 0, done.stderr
    assert "24 hours" in done.stdout


def test_releases_from_the_command_line(site: Path, place: Path, tmp_path: Path) -> None:
    shown = program(site, "release", "--help")
    assert "--most-records N" in shown
    assert "[one-way]" in shown
    people = [
        "release",
        place / "people.fwf",
        "--schema",
        place / "people.toml",
        "-q",
        "marginals:1",
        "-e",
        1,
    ]
    program(site, *people, "--mechanism", "one-way", "--most-records", 200, "--out", tmp_path / "people")
    assert "one-way" in program(site, "verify", tmp_path / "people")
    printed = program(site, "demo", "--kind", "clock", "--out", tmp_path / "demo")
    assert "from 22 to 4" in printed
    report = (tmp_path / "demo" / "release" / "report.html").read_text(encoding="utf-8")
    assert "<code>hours.parquet</code> holds the fraction" in report
    assert program(site, "answer", tmp_path / "demo" / "release", "from 9 to 17").startswith("0.")
    refused = called(
        site, "-m", "dualquery", *people, "--mechanism", "day-histogram", "--out", tmp_path / "no"
    )
    assert refused.returncode == 2
    assert "plays tables of clock" in refused.stderr


def test_without_the_package_its_names_are_not_known(place: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (
            ["plan", "--records", 9, "--mechanism", "one-way", "--schema", place / "people.toml"],
            "no mechanism 'one-way'",
        ),
        (["plan", "--records", 9, "--schema", place / "clock.toml"], "a key 'clock' that means nothing here"),
    ):
        done = called(tmp_path, "-m", "dualquery", *arguments, "-q", "marginals:1", "-e", 1)
        assert done.returncode == 2
        assert words in done.stderr


def install(site: Path, package: str, source: str, points: Mapping[str, str]) -> None:
    """A package of one module, as an installer would leave it."""
    (site / f"{package}.py").write_text(source, encoding="utf-8")
    info = site / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8"
    )
    text = "\n".join(f"[dualquery.{group}]\n{line}" for group, line in points.items())
    (info / "entry_points.txt").write_text(text, encoding="utf-8")


def test_a_broken_package_is_one_sentence_and_stops_no_other(site: Path, tmp_path: Path) -> None:
    import shutil

    both = tmp_path / "both"
    shutil.copytree(site, both)
    install(both, "crashing", "import no_such_package", {"mechanisms": "bad = crashing:BAD"})
    install(both, "leaving", "raise SystemExit", {"mechanisms": "gone = leaving:GONE"})
    install(both, "mistaken", "THING = 3", {"mechanisms": "three = mistaken:THING"})
    taken = (
        "from dataclasses import replace\nfrom dualquery.mechanisms.mwem import MWEM\n"
        "MINE = replace(MWEM, words='mine')"
    )
    install(both, "taking", taken, {"mechanisms": "mwem = taking:MINE"})
    done = called(both, "-m", "dualquery", "release", "--help")
    assert done.returncode == 0
    assert "--most-records N" in done.stdout
    said = done.stderr.strip().splitlines()
    assert len(said) == 4, said
    for package, why in (
        ("crashing", "No module named 'no_such_package'"),
        ("leaving", "SystemExit"),
        ("mistaken", "mistaken:THING is no mechanism"),
        ("taking", "'mwem' is a built-in mechanism and stays one"),
    ):
        (line,) = [line for line in said if f"'{package}'" in line]
        assert line.startswith("Warning: The package"), line
        assert why in line


def test_a_session_may_register(monkeypatch: pytest.MonkeyPatch) -> None:
    real = MECHANISMS["uniform"]
    mine = Mechanism("mine", "as uniform", real.wishes, real.plan, real.run)
    monkeypatch.setattr(MECHANISMS, "_values", dict(MECHANISMS._values))
    assert dualquery.register(mine) is mine
    assert dualquery.register(mine) is mine, "a cell of a notebook runs again"
    assert MECHANISMS["mine"] is mine
    assert "mine" in MECHANISMS.added
    for thing, words in (
        (Mechanism("mwem", "mine", NoWishes, real.plan, real.run), "is a built-in mechanism and stays one"),
        (Mechanism("No Name", "mine", NoWishes, real.plan, real.run), "small letters, digits and hyphens"),
        ("a text", "a Kind, a Mechanism, a Source or a Solver can be registered"),
    ):
        with pytest.raises(DualQueryError, match=words):
            dualquery.register(thing)


def test_the_command_line_knows_flags_that_a_session_adds_between_two_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    real = MECHANISMS["mwem"]
    monkeypatch.setattr(MECHANISMS, "_values", dict(MECHANISMS._values))
    for words in ("", "mine"):
        if words:
            dualquery.register(Mechanism(words, "as mwem", real.wishes, real.plan, real.run))
        assert run(["plan", "--help"]) == 0
        assert bool(words) == ("mine]" in capsys.readouterr().out)


def test_every_built_in_name_is_found_where_it_is_said_to_be() -> None:
    for registry in list(Registry.every.values()):
        for name in registry.homes:
            assert registry[name].name == name


def test_every_kind_has_an_example_that_it_can_be_asked(tmp_path: Path) -> None:
    for name in KINDS.homes:
        folder = tmp_path / name
        folder.mkdir()
        made: example.Example = KINDS[name].example(folder)
        for file, contents in made.files.items():
            if isinstance(contents, str):
                (folder / file).write_text(contents, encoding="utf-8")
            else:
                pyarrow.csv.write_csv(contents.slice(0, 50), folder / file)
        domain = dualquery.read_schema(folder / "schema.toml").domain
        assert domain.kind == name
        grammar = KINDS[name].grammar
        if name != "graph":  # of whose vertices the first fifty are left
            assert grammar.groups(domain, list(made.questions), ["here"] * len(made.questions))
        (text,) = grammar.groups(domain, [grammar.example(domain)], ["here"])[0].texts(np.zeros(1, np.int64))
        assert text == grammar.example(domain)


def test_nothing_in_the_source_knows_of_the_package() -> None:
    names = re.compile(r"\b(clock\.|one-way\b.*Mechanism|day-histogram|fixed-width\"|\.fwf)")
    for path in (ROOT / "src").rglob("*.py"):
        assert not names.search(path.read_text(encoding="utf-8")), path


def own_files(module: str) -> set[str]:
    """The module and those of its own package that it imports."""
    found, left = set(), [module]
    while left:
        name = left.pop()
        found.add(name)
        for node in ast.walk(ast.parse((PACKAGE / f"{name}.py").read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("clock."):
                left += {str(node.module).removeprefix("clock.")} - found
    return found


def test_what_adding_costs() -> None:
    assert own_files("fixed_width") == {"fixed_width"}, "a source is one file"
    assert own_files("one_way") == {"one_way"}, "a mechanism is one file"
    assert own_files("day") == {"arcs", "day"}, "a group of queries and its kind are two files"


def test_the_page_links_these_files() -> None:
    page = (ROOT / "docs" / "contributing.md").read_text(encoding="utf-8")
    for name in ("one_way.py", "fixed_width.py", "arcs.py", "day.py"):
        assert f"(../tests/plugins/clock/{name})" in page
        assert (PACKAGE / name).is_file()
