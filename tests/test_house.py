"""One class name, one class; and no page or docstring names a file that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools.house import double_names, modules

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py")]


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
    for named in re.findall(r"(?<![\w/])\w+(?:/\w+)+\.py\b", page.read_text(encoding="utf-8")):
        assert any((ROOT / base / named).exists() for base in ("", "src", "src/dualquery")), named
