"""Reading maps neighbouring tables to neighbouring records (docs/schema.md), for every format.

One record of a random table is replaced, added or removed; all others must encode to the same codes.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.table.domain import Domain
from dualquery.table.encoding import encode
from dualquery.table.schema import Schema
from tests.table.formats import CELLS, COLUMNS, FORMATS, Row


@st.composite
def neighbours(draw: st.DrawFn, columns: tuple[str, ...]) -> tuple[list[str], list[Row], list[Row], int, str]:
    """Two tables, and the place and kind of the one difference."""
    least = (
        1 if columns == ("item",) else 2
    )  # with one column an empty line is a record, with more it is none
    names = draw(st.lists(st.sampled_from(columns), min_size=least, max_size=4, unique=True))
    row = st.fixed_dictionaries({name: st.none() | CELLS[name] for name in names})
    first = draw(st.lists(row, min_size=1, max_size=8))
    place, edit = draw(st.integers(0, len(first) - 1)), draw(st.sampled_from(["replace", "add", "remove"]))
    second = list(first)
    if edit == "replace":
        second[place] = draw(row)
    elif edit == "add":
        second.insert(place, draw(row))
    else:
        del second[place]
    return names, first, second, place, edit


@pytest.mark.parametrize("name", FORMATS)
def test_the_other_records_stay(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]

    @given(neighbours(form.columns))
    @settings(max_examples=100)
    def holds(case: tuple[list[str], list[Row], list[Row], int, str]) -> None:
        names, first, second, place, edit = case
        domain = Domain(tuple(COLUMNS[column] for column in names))
        a, b = (encode(form.write(rows, names, tmp_path), domain).to_rows() for rows in (first, second))  # type: ignore[arg-type]
        assert (len(a), len(b)) == (len(first), len(second))
        others_of_a = a if edit == "add" else np.delete(a, place, axis=0)
        others_of_b = b if edit == "remove" else np.delete(b, place, axis=0)
        np.testing.assert_array_equal(others_of_a, others_of_b)

    holds()


@pytest.mark.parametrize("name", FORMATS)
def test_a_table_reads_like_its_records_one_by_one(name: str, tmp_path: Path) -> None:
    form = FORMATS[name]

    @given(neighbours(form.columns), st.sampled_from([None, "1", "a"]))
    @settings(max_examples=40)
    def holds(case: tuple[list[str], list[Row], list[Row], int, str], marker: str | None) -> None:
        names, rows, *_ = case
        schema = Schema(Domain(tuple(COLUMNS[column] for column in names)), drop_rows_containing=marker)
        tables = [rows, *([row] for row in rows)]
        whole, *single = (encode(form.write(table, names, tmp_path), schema).to_rows() for table in tables)  # type: ignore[arg-type]
        np.testing.assert_array_equal(whole, np.concatenate(single))

    holds()
