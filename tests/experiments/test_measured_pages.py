"""Pages agree with the files that their numbers come from, and no number that was measured is typed by hand."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from experiments.__main__ import NAMES, experiment_of
from experiments.data import Data
from experiments.harness import Kept, Setting, Size, indexed, page_of
from experiments.page_parts.files import RESULTS, ROOT
from experiments.pages import MARKED, PARTS, pages, written

MEASURED = [name for name in NAMES if (RESULTS / f"{name}.csv").exists()]
TEXTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), RESULTS / "benchmarks.md"]
WRITTEN = {"tutorial.md"}  # a whole page that a command writes, of which other tests speak
SAYS = re.compile(r"<!-- (?:not measured: (?P<why>.+)|checked by: (?P<test>\S+)) -->")
CODE = re.compile(r"^```.*?^```$|`[^`\n]+`", re.DOTALL | re.MULTILINE)
# Told to the program, not by it.
GIVEN = re.compile(r"[εδαβηρ] [=<≤>] ?\d*\.?\d+|\b(?:Python|version|doi) [\d.]+")
DECIMAL = re.compile(r"(?<![\w.])\d*\.\d{2,}(?![\w.]*\.\d)")
SETTING = Setting(Data(Path("nowhere")), Size.FULL)


def by_name(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", pages(), ids=by_name)
def test_what_stands_between_markers_is_what_the_files_say(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert {found[2] for found in MARKED.finditer(text)} <= set(PARTS)
    assert written(text) == text, "write the page anew: python -m experiments.pages"


def test_every_part_stands_somewhere() -> None:
    texts = " ".join(path.read_text(encoding="utf-8") for path in pages())
    assert {found[2] for found in MARKED.finditer(texts)} == set(PARTS)


def typed_numbers(text: str) -> list[tuple[str, str]]:
    """Numbers with two decimals or more that stand outside of parts and of code, each with what is said about it.

    A word about numbers stands in a line before a paragraph or a table, and holds until the next empty line after it.
    """
    text = CODE.sub("", MARKED.sub("", text))
    found: list[tuple[str, str]] = []
    said = before = ""
    for line in text.splitlines():
        if SAYS.fullmatch(line):
            said = line
        elif not line.strip():
            said = said if SAYS.fullmatch(before) else ""
        found += [(number, said) for number in DECIMAL.findall(GIVEN.sub("", line))]
        before = line
    return found


def test_typed_numbers_are_found() -> None:
    page = """The error is 0.123, at ε = 0.05.

<!-- not measured: a constant -->

A share of 0.25.

`0.77` and <!-- from the files: x -->
0.99
<!-- end -->
| 0.55 |
"""
    assert typed_numbers(page) == [("0.123", ""), ("0.25", "<!-- not measured: a constant -->"), ("0.55", "")]


@pytest.mark.parametrize("path", [each for each in TEXTS if each.name not in WRITTEN], ids=by_name)
def test_no_measured_number_is_typed_by_hand(path: Path) -> None:
    """A number that was measured stands between markers; another says why it is none, or which test holds it.

    That test has the number itself, or reads the page.
    """
    for number, said in typed_numbers(path.read_text(encoding="utf-8")):
        says = SAYS.fullmatch(said)
        assert says, f"{number}: from which file? (`<!-- from the files: … -->`, experiments/pages.py)"
        if says["test"]:
            held = (ROOT / says["test"]).read_text(encoding="utf-8")
            assert number.lstrip("0") in held or path.name in held, f"{number} is not in {says['test']}"


@pytest.mark.parametrize("name", MEASURED)
def test_the_page_of_an_experiment_is_what_its_rows_say(name: str) -> None:
    experiment = experiment_of(name)
    points = experiment.points(SETTING)
    rows = Kept(RESULTS / f"{name}.csv", Size.FULL).rows(points)
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert page == page_of(experiment, rows, len(points)), f"python -m experiments.{name} --full --draw"
    gathered = (RESULTS / "index.md").read_text(encoding="utf-8")
    line = indexed(experiment, rows, len(points)) + "\n"
    assert line in gathered, "python -m experiments --full --draw --out docs/experiments"


@pytest.mark.parametrize("name", MEASURED)
def test_no_row_is_left_over_from_another_way_to_measure(name: str) -> None:
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        kept = len(list(csv.DictReader(file)))
    points = experiment_of(name).points(SETTING)
    assert len(Kept(RESULTS / f"{name}.csv", Size.FULL).rows(points)) == kept


@pytest.mark.parametrize("name", MEASURED)
def test_pictures_are_there(name: str) -> None:
    assert (RESULTS / f"{name}.svg").exists()
    assert (RESULTS / f"{name}.png").exists()
