"""What the page is told about a dataset: examples that can be asked, and the number of records where it is public."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dualquery.queries.question import QuestionReader
from dualquery.service.requests import examples, of_release, of_table
from dualquery.table.domain import Categorical, Domain
from dualquery.table.schema import read_schema
from tests.interactive.conftest import release_of

SCHEMAS = {
    "plain": """
[[attribute]]
name = "colour"
values = ["red", "blue"]
""",
    "awkward names": """
[[attribute]]
name = "marital status"
values = ["it's complicated", "in"]
[[attribute]]
name = "by"
values = ["and", "or"]
""",
    "numbers": """
[[attribute]]
name = "share"
edges = [0.0, 0.05, 0.1, 2.5]
[[attribute]]
name = "age"
edges = [0, 15, 18, 25, 120]
integer = true
""",
    "dates": """
[[attribute]]
name = "joined"
from = "2020-01-01"
to = "2021-12-31"
by = "month"
[[attribute]]
name = "sex"
values = ["f", "m"]
""",
    "missing": """
[[attribute]]
name = "work"
values = ["private", "public"]
missing = "?"
""",
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_examples_can_be_asked_whatever_the_schema(name: str, tmp_path: Path) -> None:
    (tmp_path / "schema.toml").write_text(SCHEMAS[name])
    domain = read_schema(tmp_path / "schema.toml").domain
    found = examples(domain)
    reader = QuestionReader(domain)
    assert reader.read(found["question"]).cells == 1
    assert reader.read(found["table"]).cells > 1
    assert found["question"].count(" & ") == min(2, len(domain.columns)) - 1


def test_of_very_many_cells_a_table_of_one_attribute_is_the_example() -> None:
    labels = tuple(f"v{i}" for i in range(300))
    domain = Domain((Categorical("a", labels), Categorical("b", labels)))
    assert examples(domain)["table"] == "by a"


def test_a_number_of_records_that_was_measured_is_called_so() -> None:
    release = release_of()
    assert of_release("r", release)["records"] == {"rows": 20_000, "measured": False}
    measured: Any = SimpleNamespace(
        certificate={"records": {"rows": 19_987, "from": "measured"}, "budget": {}},
        public_rows=None,
        domain=release.domain,
    )
    assert of_release("r", measured)["records"] == {"rows": 19_987, "measured": True}
    table: Any = SimpleNamespace(
        release=measured, domain=release.domain, rule=SimpleNamespace(rows=20_000), certificate=dict
    )
    assert of_table("t", table, declared=True)["records"] == {"rows": 20_000, "measured": False}
    assert of_table("t", table, declared=False)["records"]["measured"]
