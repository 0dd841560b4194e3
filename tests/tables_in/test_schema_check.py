"""`dualquery schema check`, `schema draft`, the JSON Schema for editors, and docs/schema.md as it is written."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import jsonschema_rs
import pytest
from typer.testing import CliRunner

from dualquery.cli.app import app
from dualquery.table.column_text import KEYS
from dualquery.table.schema import parse_schema, schema_text
from dualquery.table.schema_json import json_schema

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "schema.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)

PEOPLE = "age,sex,income,seen\n3,f,0,2024-01-05\n40,m,3000,\n70,x,-1,2023-05-05\n8,f,77,2024-02-02\n"
GOOD = """
[[attribute]]
name = "age"
edges = [0, 15, 65, 100]
integer = true
[[attribute]]
name = "sex"
values = ["f", "m", "x"]
[[attribute]]
name = "income"
edges = [0, 1, 1000, 100000]
integer = true
empty = ["-1"]
[[attribute]]
name = "seen"
from = "2023"
to = "2024"
by = "quarter"
missing = "never"
[[rule]]
says = "age < 15 => income = 0"
"""


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    return result.exit_code, result.output + (str(result.exception) if result.exception else "")


def test_check_says_what_is_missing(tmp_path: Path) -> None:
    table, schema = tmp_path / "people.csv", tmp_path / "schema.toml"
    table.write_text(PEOPLE)
    schema.write_text(GOOD)
    code, text = run("schema", "check", schema, table)
    assert code == 0, text
    assert "nothing is missing" in text
    assert "1 of 4 rows break the rule 'age < 15 => income = 0'" in text
    bad = GOOD.replace('"x"', '"y"').replace('missing = "never"\n', "").replace("age <", "agee <")
    schema.write_text("draft = true\n" + bad)
    code, text = run("schema", "check", schema, table)
    assert code != 0
    for words in ("draft = true", "unknown attribute 'agee'", "'sex' holds values", "'seen' has empty cells"):
        assert words in text
    assert "4 things" in text


def test_draft_and_check_from_the_command_line(tmp_path: Path) -> None:
    table, schema = tmp_path / "people.csv", tmp_path / "schema.toml"
    table.write_text(PEOPLE)
    code, text = run("schema", "draft", table, "--out", schema)
    assert code == 0, text
    code, text = run("schema", "check", schema, table)
    assert code != 0
    assert "draft = true" in text
    schema.unlink()
    assert run("schema", "draft", "--public-reference", table, "--out", schema)[0] == 0
    code, text = run("schema", "check", schema, table)
    assert code == 0, text


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_example_of_the_page_is_a_schema(number: int) -> None:
    text = BLOCKS[number]
    if "[[attribute]]" not in text:
        text += '\n[[attribute]]\nname = "other"\nvalues = ["a", "b"]\n'
    if "[[rule]]" in text:
        from dualquery.queries.rules import check_rules

        check_rules(parse_schema(text, origin="the page").domain)
    schema = parse_schema(text, origin="the page")
    assert parse_schema(schema_text(schema), origin="again") == schema


def test_every_key_is_explained_with_an_example() -> None:
    keys = set().union(*KEYS.values()) | {"drop_rows_containing", "unit", "long", "encoding", "draft", "says"}
    examples = "\n".join(BLOCKS)
    for key in keys:
        assert f"`{key}`" in PAGE, key
        assert re.search(rf"^#?\s*{key} = ", examples, re.MULTILINE), key


def test_the_json_schema_knows_the_same_keys_and_judges_alike() -> None:
    written = json.loads((ROOT / "docs" / "schema.json").read_text(encoding="utf-8"))
    assert written == json_schema()
    judge = jsonschema_rs.validator_for(written)
    for text in (*BLOCKS, GOOD):
        if "[[attribute]]" in text:
            document = json.loads(json.dumps(tomllib.loads(text), default=str))
            assert judge.is_valid(document), text
    for attributes in ([], [{"name": "x"}], [{"name": "x", "valuess": ["a"]}]):
        assert not judge.is_valid({"attribute": attributes})
