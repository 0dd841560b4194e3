"""Cells before a schema says what they mean: forms, notations, and what is kept of a person."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from dualquery import DataError
from dualquery.releases.draft_columns import (
    FORMS,
    days_written,
    forms_of,
    numbers_written,
    sorted_by,
    texts_table,
)
from dualquery.table.reading import read_table


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("", "empty"), ("?", "marker"), ("NA", "marker"), ("0", "0 decimals"), ("-17", "0 decimals"),
        ("1.0", "0 decimals"), ("1.50", "1 decimals"), (".25", "2 decimals"), ("3.1415926", "4 decimals"),
        ("1e5", "4 decimals"), ("007", "code"), ("1,5", "decimal comma"), ("1.234,50", "decimal comma"),
        ("$12", "with $"), ("1,234.50 €", "with €"), ("2014-03-01", "ISO day"), ("2014-03", "ISO month"),
        ("2014-03-01 12:30:00", "ISO moment"), ("31.12.2014", "%d.%m.%Y"), ("31/12/2014", "%d/%m/%Y"),
        ("12/31/2014 10:05", "%m/%d/%Y %H:%M"), ("01/02/2014", "%d/%m/%Y or %m/%d/%Y"), ("01-Feb-2014", "%d-%b-%Y"),
        ("x", "text"), ("9th", "text"), ("HS-grad", "text"), ("inf", "text"), ("nan", "marker"),
        ("a very long remark about somebody, with 12 words", "long text"), ("2014-W09", "text"),
        ("01.02.0014", "text"),
    ],
)  # fmt: skip
def test_what_a_cell_looks_like(text: str, form: str) -> None:
    assert [FORMS[found] for found in forms_of([text])] == [form]


def test_a_form_does_not_depend_on_the_texts_beside_it() -> None:
    texts = ["$12", "12 €", "1,5", "1,x", "a", "$x", "1.234,5", "£1,200.00", "7"]
    together = forms_of(texts).tolist()
    assert together == [forms_of([text])[0] for text in texts]
    assert together == forms_of(texts[::-1]).tolist()[::-1]


def test_numbers_and_days_in_their_notation() -> None:
    cells = ["1", " 2", "x", "", "1.5", "1,5", "inf", "1e400"]
    np.testing.assert_array_equal(numbers_written(cells), [1, np.nan, np.nan, np.nan, 1.5, *[np.nan] * 3])
    np.testing.assert_array_equal(
        numbers_written(["1.234,5", "7", "x"], decimal_comma=True), [1234.5, 7, np.nan]
    )
    np.testing.assert_array_equal(numbers_written(["$1,200", "-3 $", "€5"], currency="$"), [1200, -3, np.nan])
    np.testing.assert_array_equal(
        days_written(["1970-01-03", "1970-02", "0007-01-01", "3 May"], None), [2, 31, np.nan, np.nan]
    )
    np.testing.assert_array_equal(days_written(["03.01.1970", "1970-01-03"], "%d.%m.%Y"), [2, np.nan])


def test_a_sorting_goes_by_intervals_and_leaves_out_what_lies_in_none() -> None:
    sort = sorted_by(np.array([0.0, 1.0, 5.0]), numbers_written)
    assert sort(["0", "0.9", "1", "4.99", "5", "-0.1", "x", ""]).tolist() == [0, 0, 1, 1, -1, -1, -1, -1]


CELLS = ["1", "x", "", "1.0", "2014-01-01", None, "NA", "007", " 1 "]


@pytest.mark.parametrize("extra", ["5", "x", "", "?", "9" * 400, "2014-01-01", "a,b\nc", "1e5"])
def test_no_cell_decides_how_another_is_read(extra: str) -> None:
    """The texts of all other cells, and so all that is sorted by them, are the same beside any cell."""

    def said(cells: list[str | None]) -> list[str]:
        records = texts_table(pa.table({"a": pa.array(cells, pa.string())}))
        (column,) = records.domain.columns
        return [column.labels[code] for code in records.columns[0]]

    assert said([*CELLS, extra])[: len(CELLS)] == said(CELLS) == [(cell or "").strip() for cell in CELLS]


def test_cells_of_any_type_have_the_texts_of_a_file(tmp_path) -> None:
    frame = pd.DataFrame({"n": [1, 2, 30], "x": [0.5, np.nan, 2.0], "t": [True, False, True]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    typed, written = texts_table(pa.Table.from_pandas(frame)), texts_table(read_table(tmp_path / "t.csv"))

    def said(records, place: int) -> list[str]:
        return [records.domain.columns[place].labels[code] for code in records.columns[place]]

    assert said(typed, 0) == said(written, 0) == ["1", "2", "30"]
    assert (said(typed, 1), said(written, 1)) == (
        ["0.5", "", "2"],
        ["0.5", "", "2.0"],
    )  # whole without its point
    assert said(typed, 2) == ["true", "false", "true"]


def test_what_is_kept_of_a_person_depends_on_that_person_alone() -> None:
    def kept(ids: list[str], words: list[str], who: str) -> list[str]:
        table = pa.table({"id": ids, "word": words, "other": [word * 2 for word in words]})
        records = texts_table(table, unit="id", records_per_person=2)
        assert [column.name for column in records.domain.columns] == ["word", "other"]
        assert records.records_per_person == 2
        labels = records.domain.columns[0].labels
        alone = texts_table(table.filter(pa.compute.equal(table["id"], who)), unit="id", records_per_person=2)
        mine = {alone.domain.columns[0].labels[code] for code in alone.columns[0]}
        assert mine <= {labels[code] for code in records.columns[0]}
        return sorted(mine)

    mine = ["d", "b", "c", "a"]
    first = kept(["p"] * 4, mine, "p")
    assert len(first) == 2
    assert kept(["q"] * 3 + ["p"] * 4 + ["r"], ["aa", "zz", "b", *mine, "A"], "p") == first
    assert kept(["p"] * 4, mine[::-1], "p") == first


def test_lists_are_refused_with_what_to_do() -> None:
    with pytest.raises(DataError, match="'basket' holds lists"):
        texts_table(pa.table({"basket": [[1, 2], [3]]}))
