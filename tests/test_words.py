"""One word, one idea: names of types, words of the glossary, and sentences that nobody should have to read twice."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(ROOT.glob("src/dualquery/**/*.py"))
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *SOURCES, *ROOT.glob("src/dualquery/service/page/*")]
# Each was on a page or in a message once, with what it says now.
READ_TWICE = {
    "thing to mend": "1 problem to fix",
    "things to mend": "2 problems to fix",
    "ones have a place": "missing values allowed",
    "is of a kind that is not known here": "unsupported file type",
    "a query is a text": "expected one query as text",
    "for the curator's eyes": "internal: do not publish",
    "19 times of 20": "in 19 of 20 cases",
    "as wrong as independence": "assume that the two columns are unrelated",
    "of which this theorem asks": "because the ledger adds up ρ",
    "whoever takes none": "name who is meant",
    "a row a mechanism": "one row per mechanism",
    "one a line": "one per line",
}


def type_names(sources: dict[str, str]) -> dict[str, set[str]]:
    """What each name of a type stands for, over all modules."""
    found: dict[str, set[str]] = defaultdict(set)
    for text in sources.values():
        for node in ast.parse(text).body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            name, value = targets[0], getattr(node, "value", None)
            if (
                isinstance(name, ast.Name)
                and re.fullmatch(r"(?=.*[a-z])[A-Z]\w*", name.id)
                and value is not None
            ):
                found[name.id].add(ast.unparse(value))
    return found


def test_a_type_has_one_name_and_a_name_one_type() -> None:
    sources = {str(path): path.read_text(encoding="utf-8") for path in SOURCES}
    assert {name: of for name, of in type_names(sources).items() if len(of) > 1} == {}


def test_a_type_name_that_stands_for_two_is_found() -> None:
    two = {"one": "Rows = NDArray[np.int64]\n", "other": "Rows = NDArray[np.uint32]\n", "third": "ROWS = 3\n"}
    assert {name for name, of in type_names(two).items() if len(of) > 1} == {"Rows"}


def glossary(page: str) -> list[str]:
    """The words of the glossary, in its order."""
    entries = re.findall(r"^- \*\*(.+?)\*\*", page.split("\n## Words\n")[1], re.MULTILINE)
    words = [
        re.sub(r" \([^)]*\)$", "", word.strip())
        for entry in entries
        for word in re.split(r", (?![^(]*\))", entry)
    ]
    return [word.strip("`") for word in words]


def test_a_word_of_the_glossary_is_explained_once() -> None:
    words = glossary((ROOT / "docs/contributing.md").read_text(encoding="utf-8"))
    assert len(words) > 80
    assert sorted({word for word in words if words.count(word) > 1}) == []


@pytest.mark.parametrize("sentence", READ_TWICE)
def test_what_was_read_twice_does_not_come_back(sentence: str) -> None:
    where = [
        path.name for path in PAGES if path.is_file() and sentence in path.read_text(encoding="utf-8").lower()
    ]
    assert where == [], f"say: {READ_TWICE[sentence]}"


def test_what_there_is_one_of_is_said_with_per() -> None:
    """`one row per cell`: "a row a cell" is read twice."""
    each = re.compile(
        r"\b(?:an?|one) (?:row|line|number|byte|weight|query|point) an? "
        r"(?:row|line|cell|column|set|value|knot|vertex|measurement|mechanism|group|unit|query)\b",
        re.IGNORECASE,
    )
    assert each.search("A row a cell: its record") is not None
    texts = [path for path in PAGES if path.is_file()]
    assert [path.name for path in texts if each.search(path.read_text(encoding="utf-8"))] == []
