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
from dualquery.table.columns import KEYS
from dualquery.table.schema import parse_schema, schema_text
from tools.schema_json import json_schema

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
    assert "4 problems" in text


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


def test_a_unit_must_be_a_column(tmp_path: Path) -> None:
    table, schema = tmp_path / "visits.csv", tmp_path / "schema.toml"
    table.write_text("".join(["patient_id,sex\n", *(f"{i // 2},{'fm'[i % 2]}\n" for i in range(80))]))
    attribute = '[[attribute]]\nname = "sex"\nvalues = ["f", "m"]\n'
    for unit, code, words in (
        ("patient_id", 0, "nothing is missing"),
        ("patient", 2, "no column 'patient', which the schema calls its unit"),
    ):
        schema.write_text(f'[table]\nunit = "{unit}"\n{attribute}')
        found, text = run("schema", "check", schema, table)
        assert (found != 0) == (code != 0), text
        assert words in text
        assert "names no unit" not in text
    schema.write_text(attribute)
    found, text = run("schema", "check", schema, table)
    assert found == 0
    assert "column 'patient_id' looks like the id of a person" in text
    assert 'unit = "patient_id"' in text


def test_check_reads_as_a_release_does(tmp_path: Path) -> None:
    schema = tmp_path / "schema.toml"
    schema.write_text(
        '[table]\nencoding = "latin-1"\n[[attribute]]\nname = "town"\nvalues = ["Köln", "Bonn"]\n'
    )
    (tmp_path / "towns.csv").write_bytes("town\nKöln\nBonn\n".encode("latin-1"))
    code, text = run("schema", "check", schema, tmp_path / "towns.csv")
    assert code == 0, text
    for part in ("a", "b"):
        (tmp_path / f"part-{part}.csv").write_bytes("town\nKöln\n".encode("latin-1"))
    assert run("schema", "check", schema, tmp_path / "part-*.csv")[0] == 0
    (tmp_path / "twice.csv").write_bytes("town,town\nBonn,Bonn\n".encode("latin-1"))
    code, text = run("schema", "check", schema, tmp_path / "twice.csv")
    assert code != 0
    assert "more than one column 'town'" in text
    (tmp_path / "indexed.csv").write_text(",town\n7,Bonn\n")
    assert 'leaves out: ""' in run("schema", "check", schema, tmp_path / "indexed.csv")[1]
    schema.write_text('[[attribute]]\nname = "item"\ncount = 9\n')
    (tmp_path / "baskets.dat").write_text("1 2\n\n9\n")
    code, text = run("schema", "check", schema, tmp_path / "baskets.dat")
    assert code == 0, text


def test_remarks_that_a_draft_has_left_are_counted(tmp_path: Path) -> None:
    table, schema = tmp_path / "people.csv", tmp_path / "schema.toml"
    table.write_text(PEOPLE * 1)
    assert run("schema", "draft", table, "--out", schema, "--quiet")[0] == 0
    text = schema.read_text(encoding="utf-8")
    drafted = parse_schema(text, origin="t")
    left = text.count("  # from the data\n")
    assert left > 3
    assert (drafted.marked, drafted.doubts) == (left, [])  # the draft says it already
    schema.write_text(text.replace("draft = true", "# draft = true"), encoding="utf-8")
    plan = ("plan", "--schema", schema, "--records", 900, "--queries", "marginals:1", "--epsilon", 1)
    release = (
        "release",
        table,
        "--schema",
        schema,
        "--queries",
        "marginals:1",
        "--epsilon",
        1,
        "--delta",
        0.1,
    )
    for command in (("schema", "check", schema), plan, (*release, "--out", tmp_path / "made")):
        code, said = run(*command)
        assert code == 0, said
        assert f"{left} lines with '# from the data'" in said
    certificate = json.loads((tmp_path / "made" / "certificate.json").read_text(encoding="utf-8"))
    assert any("from the data" in each for each in certificate["warnings"])
    schema.write_text(text.replace("draft = true", "# ").replace("  # from the data", ""), encoding="utf-8")
    assert "from the data" not in run(*plan)[1]
    schema.write_text(text, encoding="utf-8")
    assert "the schema still says that it is a draft" in run(*plan)[1].replace("The schema", "the schema")


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_example_of_the_page_is_a_schema(number: int) -> None:
    text = BLOCKS[number]
    if "[[attribute]]" not in text and "[database]" not in text:
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
