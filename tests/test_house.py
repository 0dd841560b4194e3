"""One class name, one class; and no page or docstring names a file or a module that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.house import double_names, modules

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py")]
SOURCES = [*ROOT.glob("src/**/*.py"), *ROOT.glob("experiments/**/*.py")]
ROOMS = {place.parent.name: place.parent for place in ROOT.glob("src/dualquery/*/__init__.py")}


def test_a_class_name_stands_for_one_thing() -> None:
    assert double_names(modules()) == {}


def test_a_name_that_stands_twice_is_found(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / f"{name}.py").write_text("class Rule:\n    pass\n")
    assert double_names({name: tmp_path / f"{name}.py" for name in ("one", "other")}) == {
        "Rule": ["one", "other"]
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_are_there(page: Path) -> None:
    text = re.sub(r"https?://\S+", "", page.read_text(encoding="utf-8"))  # files of others
    for named in re.findall(r"(?<![\w/])\w+(?:/\w+)+\.py\b", text):
        assert any((ROOT / base / named).exists() for base in ("", "src", "src/dualquery")), named


def is_there(named: str) -> bool:
    """Whether a dotted name that begins with a room leads to a module, or to a name at the top of one."""
    room, *rest = named.split(".")
    place = ROOMS[room]
    while rest and (place / rest[0] / "__init__.py").exists():
        place /= rest.pop(0)
    file = place / "__init__.py"
    if rest and (place / f"{rest[0]}.py").exists():
        file = place / f"{rest.pop(0)}.py"
    text = file.read_text(encoding="utf-8")
    return not rest or re.search(rf"^(?:class |def )?{rest[0]}\b", text, re.MULTILINE) is not None


def test_modules_that_are_named_are_there() -> None:
    dotted = re.compile(rf"`((?:{'|'.join(ROOMS)})(?:\.\w+)+)`")
    named = {
        (name, path.name) for path in SOURCES for name in dotted.findall(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [(name, where) for name, where in sorted(named) if not is_there(name)] == []


@pytest.mark.parametrize(
    ("named", "there"),
    [
        ("queries.binary", True),
        ("queries.language.formula", True),
        ("queries.group.Group", True),
        ("queries.incidence", False),
        ("queries.group.Absent", False),
    ],
)
def test_a_name_that_is_not_there_is_found(named: str, there: bool) -> None:
    assert is_there(named) is there
