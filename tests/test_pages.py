"""The pages: one index that has them all, links and messages that exist, and a tutorial that shows what it says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tools import notebook

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(
    [*(path.name for path in DOCS.glob("*.md") if path.name != "index.md"), "experiments/index.md"]
)
LINKING = ["index.md", *PAGES, "experiments/benchmarks.md"]
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def test_the_index_has_every_page_and_the_site_has_it_once() -> None:
    linked = LINK.findall((DOCS / "index.md").read_text(encoding="utf-8"))
    assert sorted({name for name in linked if name.endswith(".md")}) == PAGES
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    assert sorted(re.findall(r"[\w/-]+\.md", site)) == sorted([*PAGES, "index.md"])


@pytest.mark.parametrize("page", LINKING)
def test_links_lead_somewhere(page: str) -> None:
    for target in LINK.findall((DOCS / page).read_text(encoding="utf-8")):
        if "://" not in target and not target.startswith("data:"):
            assert ((DOCS / page).parent / target).exists(), target


def anchors(page: Path) -> set[str]:
    """What the headings of a page are called in links, as mkdocs and GitHub agree."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING)
def test_links_to_headings_lead_there(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    for target, heading in re.findall(r"\]\(([\w./]*)#([\w-]+)\)", text):
        if not target or target.endswith(".md"):
            leads = (DOCS / page).parent / target if target else DOCS / page
            assert heading in anchors(leads), f"{target}#{heading}"


def test_the_messages_of_the_index_are_those_of_the_program() -> None:
    """Whoever looks for a message finds it, and a message that was reworded is found to be missing here."""
    source = " ".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    source = re.sub(r"\"\s+f?\"", "", source)  # a sentence goes on in the next line
    told = (DOCS / "index.md").read_text(encoding="utf-8").partition("## The program says")[2]
    rows = re.findall(r"^\| (`[^|]+) \|", told, re.MULTILINE)
    messages = [words for row in rows for words in re.findall(r"`([^`]+)`", row)]
    assert len(messages) > 10
    assert [words for words in messages if words not in source] == []


def test_every_public_name_stands_in_the_reference() -> None:
    import dualquery

    written = set(
        re.findall(r"^::: ([\w.]+)$", (DOCS / "reference.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    for name, home in dualquery._HOMES.items():
        assert f"{home}.{name}" in written or home in written, name


def shown(outputs: list[dict[str, Any]]) -> list[str]:
    """What a cell prints and the plain text of what it shows."""
    return ["".join(each.get("text", each.get("data", {}).get("text/plain", []))) for each in outputs]


def test_the_tutorial_shows_what_it_says(tmp_path: Path) -> None:
    stored = json.loads((DOCS / "tutorial.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in stored["cells"] if cell["cell_type"] == "code"]
    for cell, outputs in zip(cells, notebook.run(stored, tmp_path), strict=True):
        assert shown(outputs) == shown(cell["outputs"])
    assert (DOCS / "tutorial.md").read_text(encoding="utf-8") == notebook.page(stored)
