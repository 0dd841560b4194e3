"""Pages agree with the files that their numbers come from; a table with a number says where it comes from."""

from __future__ import annotations

import csv
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from experiments.__main__ import NAMES, experiment_of
from experiments.data import Data
from experiments.harness import Kept, Setting, Size, page_of
from experiments.pages import MARKED, PAGES, PARTS, RESULTS, ROOT, written

MEASURED = [name for name in NAMES if (RESULTS / f"{name}.csv").exists()]
DOCS = [path for path in sorted((ROOT / "docs").glob("*.md")) if path.name != "experiments.md"]
SAYS = re.compile(r"<!-- (measured by: (?P<command>.+)|not measured: .+) -->")
DECIMAL = re.compile(r"(?<![\w.])0?\.\d{2,}")
SETTING = Setting(Data(Path("nowhere")), Size.FULL)


@pytest.mark.parametrize("page", PAGES)
def test_what_stands_between_markers_is_what_the_files_say(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    parts = [found[2] for found in MARKED.finditer(text)]
    assert parts
    assert set(parts) <= set(PARTS)
    assert written(text) == text, "write the page anew: python -m experiments.pages"


def test_every_part_stands_somewhere() -> None:
    texts = " ".join((ROOT / page).read_text(encoding="utf-8") for page in PAGES)
    assert {found[2] for found in MARKED.finditer(texts)} == set(PARTS)


@pytest.mark.parametrize("page", PAGES)
def test_no_table_of_numbers_is_typed_by_hand(page: str) -> None:
    typed = MARKED.sub("", (ROOT / page).read_text(encoding="utf-8"))
    assert not [line for line in typed.splitlines() if line.startswith("|") and DECIMAL.search(line)]


@pytest.mark.parametrize("name", MEASURED)
def test_the_page_of_an_experiment_is_what_its_rows_say(name: str) -> None:
    experiment = experiment_of(name)
    points = experiment.points(SETTING)
    rows = Kept(RESULTS / f"{name}.csv", Size.FULL).rows(points)
    page = (RESULTS / f"{name}.md").read_text(encoding="utf-8")
    assert page == page_of(experiment, rows, len(points)), f"python -m experiments.{name} --full --draw"
    gathered = (ROOT / "docs" / "experiments.md").read_text(encoding="utf-8")
    assert experiment.find(rows) in gathered, "python -m experiments --full --draw --out docs/experiments"


@pytest.mark.parametrize("name", MEASURED)
def test_no_row_is_left_over_from_another_way_to_measure(name: str) -> None:
    with (RESULTS / f"{name}.csv").open(newline="") as file:
        kept = len(list(csv.DictReader(file)))
    points = experiment_of(name).points(SETTING)
    assert len(Kept(RESULTS / f"{name}.csv", Size.FULL).rows(points)) == kept


def tables(text: str) -> list[tuple[str, list[str]]]:
    """Every table of a page, with the last line before it that is not empty."""
    found: list[tuple[str, list[str]]] = []
    before, inside = "", False
    for line in text.splitlines():
        if line.startswith("|"):
            if not inside:
                found.append((before, []))
            found[-1][1].append(line)
        elif line.strip():
            before = line
        inside = line.startswith("|")
    return found


@pytest.mark.parametrize("path", DOCS, ids=lambda path: path.name)
def test_a_table_of_numbers_says_where_they_come_from(path: Path) -> None:
    text = MARKED.sub("", path.read_text(encoding="utf-8"))
    for before, lines in tables(text):
        if sum(len(DECIMAL.findall(line)) for line in lines) < 2:
            continue
        says = SAYS.fullmatch(before)
        assert says, f"say '<!-- measured by: COMMAND -->' before the table that begins {lines[0]}"
        command = says["command"] or ""
        module = re.search(r"python -m ((?:experiments|benchmarks)\.(\w+))", command)
        if module:
            assert find_spec(module[1]), command
            if module[1].startswith("experiments"):
                assert (RESULTS / f"{module[2]}.csv").exists(), command
        elif command.startswith("pytest "):
            assert (ROOT / command.removeprefix("pytest ")).exists()


@pytest.mark.parametrize("name", MEASURED)
def test_pictures_are_there(name: str) -> None:
    assert (RESULTS / f"{name}.svg").exists()
    assert (RESULTS / f"{name}.png").exists()
