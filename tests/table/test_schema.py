"""Schema files: what they say, and one sentence for each thing that can be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dualquery.errors import SchemaError
from dualquery.table.domain import Categorical, Domain, Items, Numeric, equal_width
from dualquery.table.schema import Schema, parse_schema, read_schema, schema_text

WHOLE = """
# a comment
[table]
drop_rows_containing = "?"

[[attribute]]
name = "sex"
values = ["Female", "Male", "other"]
unknown = "other"
missing = "other"

[[attribute]]
name = "age"
low = 0
high = 100
bins = 20
clamp = true
integer = true

[[attribute]]
name = "income"
edges = [0, 1e3, 2500.5]
missing = "not said"

[[attribute]]
name = "item"
count = 17770
"""


def test_every_kind_of_attribute() -> None:
    columns = (
        Categorical("sex", ("Female", "Male", "other"), unknown="other", missing="other"),
        equal_width("age", 0, 100, 20, clamp=True, integer=True),
        Numeric("income", (0.0, 1000.0, 2500.5), missing="not said"),
        Items("item", 17770),
    )
    schema = parse_schema(WHOLE, origin="schema")
    assert schema == Schema(Domain(columns), drop_rows_containing="?")
    assert schema.domain.width == 3 + 17770
    assert parse_schema(schema_text(schema), origin="schema") == schema


def test_the_text_is_for_reading() -> None:
    domain = Domain((equal_width("age", 0, 100, 20, clamp=True), Categorical("a", tuple("abcdefghij") * 1)))
    text = schema_text(domain, heading="one\ntwo")
    assert text == (
        "# one\n# two\n\n"
        '[[attribute]]\nname = "age"\nlow = 0\nhigh = 100\nbins = 20\nclamp = true\n\n'
        '[[attribute]]\nname = "a"\nvalues = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"]\n'
    )
    many = schema_text(Domain((Categorical("a", tuple(f"value {i}" for i in range(100))),)))
    assert max(len(line) for line in many.splitlines()) <= 100


def attribute(**keys: str) -> str:
    return "[[attribute]]\n" + "\n".join(f"{key} = {value}" for key, value in keys.items()) + "\n"


SEX = attribute(name='"sex"', values='["F", "M"]')
BAD = {
    "no attribute at all": ("", "names no attribute"),
    "not TOML": ("[[attribute]\n", "not well-formed TOML.*line 1"),
    "unknown section": ("[tables]\n" + SEX, "'tables'"),
    "unknown key of the table": ('[table]\ndrop = "?"\n' + SEX, "'drop'"),
    "blank marker": ('[table]\ndrop_rows_containing = " "\n' + SEX, "drop_rows_containing.*blank"),
    "table is no section": ("table = 1\n" + SEX, "section"),
    "attribute is no section": ("attribute = [1]\n", "sections"),
    "no name": (SEX + attribute(values='["a"]'), "attribute number 2 has no 'name'"),
    "empty name": (attribute(name='""', values='["a"]'), "empty name"),
    "control character in a name": (attribute(name='"a\\n"', values='["a"]'), "control character"),
    "name is no text": (attribute(name="1", values='["a"]'), "'name' must be a text"),
    "twice the same name": (SEX + SEX, "'sex' stands twice"),
    "named like an item": (
        attribute(name='"item"', count="3") + attribute(name='"item[2]"', values='["a"]'),
        r"'item\[2\]' has the name of an item",
    ),
    "misspelt key": (attribute(name='"sex"', values='["a"]', mising='"a"'), "'sex'.*'mising'"),
    "key of another kind": (attribute(name='"sex"', values='["a"]', clamp="true"), "'sex'.*'clamp'"),
    "no kind": (attribute(name='"sex"'), "'sex' needs"),
    "two kinds": (attribute(name='"x"', edges="[0, 1]", low="0", high="1", bins="2"), "'edges' and 'low'"),
    "two other kinds": (attribute(name='"x"', values='["a"]', count="3"), "'values' and 'count'"),
    "values are no texts": (attribute(name='"x"', values="[0, 1]"), "'x': 'values' must be a list of texts"),
    "no values": (attribute(name='"x"', values="[]"), "'x' has no values"),
    "a value twice": (attribute(name='"x"', values='["a", "a"]'), "'x' lists a value twice"),
    "unlisted place": (attribute(name='"x"', values='["a"]', unknown='"b"'), "'x'.*unknown.*not among"),
    "empty texts are a list": (attribute(name='"x"', values='["a"]', empty='"b"'), "'empty' must be a list"),
    "ordered is no truth": (attribute(name='"x"', values='["a"]', ordered="1"), "'ordered' must be true or"),
    "bins missing": (attribute(name='"x"', low="0", high="1"), "'x' has no 'bins'"),
    "bins not whole": (attribute(name='"x"', low="0", high="1", bins="2.5"), "'bins' must be a whole"),
    "bins is true": (attribute(name='"x"', low="0", high="1", bins="true"), "'bins' must be a whole"),
    "no bins": (attribute(name='"x"', low="0", high="1", bins="0"), "'x' needs high > low"),
    "far too many bins": (attribute(name='"x"', low="0", high="1", bins="9999999999"), "bins"),
    "low above high": (attribute(name='"x"', low="2", high="1", bins="3"), "high > low"),
    "low is a text": (attribute(name='"x"', low='"0"', high="1", bins="3"), "'low' must be a finite number"),
    "low is nan": (attribute(name='"x"', low="nan", high="1", bins="3"), "'x'"),
    "high is infinite": (attribute(name='"x"', low="0", high="inf", bins="3"), "'high' must be a finite"),
    "high is beyond floats": (attribute(name='"x"', low="0", high="1" + "0" * 400, bins="3"), "finite"),
    "bins too narrow": (attribute(name='"x"', low="1e15", high="1000000000000001", bins="100"), "increase"),
    "edges fall": (attribute(name='"x"', edges="[0, 2, 1]"), "edges of attribute 'x' must increase"),
    "one edge": (attribute(name='"x"', edges="[0]"), "'x' needs at least two"),
    "edges are no list": (attribute(name='"x"', edges="3"), "'edges' must be a list"),
    "empty label for missing": (attribute(name='"x"', edges="[0, 1]", missing='""'), "'x'.*missing"),
    "label of a bin for missing": (attribute(name='"x"', edges="[0, 1]", missing='"[0, 1]"'), "'x'.*missing"),
    "number for missing": (attribute(name='"x"', edges="[0, 9]", missing='"5"'), "'x'.*missing"),
    "bin without an integer": (attribute(name='"x"', edges="[0.1, 0.9, 5]", integer="true"), "no integer"),
    "integers beyond floats": (attribute(name='"x"', edges="[0, 1e17]", integer="true"), "2\\^53"),
    "count not whole": (attribute(name='"i"', count='"5"'), "'i': 'count' must be a whole number"),
    "no item": (attribute(name='"i"', count="0"), "'i' needs at least one item"),
    "too many items": (attribute(name='"i"', count="3000000000"), "ids of block 'i'"),
    "negative ids": (attribute(name='"i"', count="3", first="-1"), "ids of block 'i'"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_one_sentence_for_what_is_wrong(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message) as raised:
        parse_schema(text, origin="schema 'my.toml'")
    assert str(raised.value).startswith("schema 'my.toml'")
    assert "\n" not in str(raised.value)


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "schema.toml"
    with pytest.raises(SchemaError, match="no schema file"):
        read_schema(path)
    with pytest.raises(SchemaError, match="cannot be read"):
        read_schema(tmp_path)
    path.write_bytes(b"\xff\xfe" + SEX.encode("utf-16-le"))
    with pytest.raises(SchemaError, match="UTF-8"):
        read_schema(path)
    path.write_bytes(b"\xef\xbb\xbf" + SEX.encode())
    assert read_schema(str(path)) == Schema(Domain((Categorical("sex", ("F", "M")),)))


@pytest.mark.parametrize(
    ("low", "high", "bins", "third"),
    [(0, 1, 10, 0.3), (0.1, 0.8, 7, 0.4), (-1.1, 1.9, 30, -0.8), (0, 3, 4, 2.25)],
)
def test_edges_are_the_decimals_one_expects(low: float, high: float, bins: int, third: float) -> None:
    edges = equal_width("x", low, high, bins).edges
    assert (edges[0], edges[3], edges[-1]) == (low, third, high)


def test_items_are_found_by_name() -> None:
    domain = Domain((Items("a[1]", 5, first=0), Categorical("b", ("x", "y")), Items("b[", 3)))
    for number, name in enumerate(domain.names()):
        assert domain.find(name) == number
    assert domain.find("a[1]") is None
    assert domain.find("a[1][5]") is None


def test_labels_tell_close_edges_apart() -> None:
    column = Numeric("x", (0.0, 1.0, 1.0000000000000002, 2.0))
    assert column.labels == ("[0, 1)", "[1, 1.0000000000000002)", "[1.0000000000000002, 2]")


def test_a_number_of_very_many_figures_is_a_sentence() -> None:
    with pytest.raises(SchemaError, match="number of very many figures"):
        parse_schema(f"bins = {'9' * 5000}", origin="schema.toml")
