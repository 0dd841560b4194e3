"""Drafts: they fit the table they were read off, and say loudly that they were."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dualquery.errors import DataError
from dualquery.table.dates import dates
from dualquery.table.domain import Categorical, Items, Numeric
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import encode
from dualquery.table.schema import Schema, parse_schema

people = pd.DataFrame(
    {
        "sex": ["F", "M", None] * 100,
        "children": [0, 1, 10] * 100,
        "age": [17 + i % 73 for i in range(300)],
        "rate": [f"{i / 400:.3f}" if i else "?" for i in range(300)],
        "born": pd.to_datetime(["1980-01-31"] * 300),
        "name": [f"person {i}" for i in range(300)],
        "visits": [[3, 9871]] * 300,
    }
)


def drafted(source: object) -> Schema:
    return schema_draft(source).schema


def str_of(source: object) -> str:
    return str(schema_draft(source))


def test_kinds() -> None:
    assert drafted(people).domain.columns == (
        Categorical("sex", ("F", "M", "missing"), missing="missing"),
        Categorical("children", tuple(map(str, range(11))), numeric=True),  # every unit, held or not
        Numeric("age", (15, 25, 40, 50, 65, 80, 90), clamp=True, integer=True),
        Numeric(
            "rate",
            (0, 0.15, 0.25, 0.4, 0.5, 0.65, 0.75),
            clamp=True,
            missing="missing",
            empty=("?",),
            decimals=3,
        ),
        dates("born", "1980-01-31", "1980-01-31", "day", clamp=True),
        Items("visits", 9900),
    )


def test_the_text_warns_and_names_what_it_left_out() -> None:
    text = str_of(people)
    assert text.startswith("# !!! DRAFT, READ OFF THE PRIVATE TABLE")
    assert "NOT PRIVATE" in text
    assert '#   "name"' in text
    schema = parse_schema(text, origin="draft")
    assert schema == drafted(people)
    assert encode(people, schema).rows == 300


def test_files(tmp_path: Path) -> None:
    (tmp_path / "t.dat").write_text("1 2\n40 5\n")
    assert drafted(tmp_path / "t.dat").domain.columns == (Items("item", 40),)
    (tmp_path / "t.txt").write_text("a;b\nx;1\ny;2\n")
    assert [column.name for column in drafted(tmp_path / "t.txt").domain.columns] == ["a", "b"]
    with pytest.raises(DataError, match="there is no file"):
        drafted(tmp_path / "none.txt")
    with pytest.raises(DataError, match="no rows"):
        drafted(people[:0])
    with pytest.raises(DataError, match="by hand"):
        drafted(people[["name"]])


cells = (
    st.none()
    | st.sampled_from(["", "a", " a", "1", "1.0", "nan", "?", "true", "inf"])
    | st.text("ab1. ", max_size=3)
)
numbers = st.floats(-1e9, 1e9) | st.integers(-(10**12), 10**12)


@given(st.lists(cells, min_size=1, max_size=20), st.lists(numbers, min_size=1, max_size=40))
@example(texts=["1", "inf"], floats=[0.0])  # one number is no finite one
@example(
    texts=["a"], floats=[0.0, 0.5, *range(1, 7), 3e-191, *range(-11, 0), 190.0]
)  # one number is next to nothing
@example(texts=["1.0", "inf", "-inf"], floats=[0.0])
@settings(max_examples=50)
def test_a_draft_fits_its_table(texts: list[str | None], floats: list[float]) -> None:
    for column in (
        pa.array(texts, pa.string()),
        pa.array([float(x) for x in floats]),
        pa.array(map(str, floats)),
    ):
        table = pa.table({"x": column})
        if all(cell is None or not str(cell).strip() for cell in column.to_pylist()):
            continue  # a column without a cell is left out
        schema = drafted(table)
        assert encode(table, parse_schema(str_of(table), origin="draft")).rows == len(column)
        (found,) = schema.domain.columns
        if isinstance(found, Numeric):
            assert 1 <= found.bins <= 60
            assert found.edges[0] <= np.min(floats)
            assert found.edges[-1] >= np.max(floats)
