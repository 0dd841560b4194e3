"""A number is a number and a date a date wherever the source knows it as one: only texts follow the notation."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

import dualquery
from dualquery import Domain
from dualquery.errors import DataError
from dualquery.queries.rules import checked
from dualquery.table.dates import dates
from dualquery.table.domain import Column, Numeric

Write = Callable[[Sequence[Any], Path], Any]


def in_json(cells: Sequence[Any], folder: Path) -> Any:
    (folder / "t.json").write_text(json.dumps([{"x": cell} for cell in cells]))
    return folder / "t.json"


def in_sqlite(cells: Sequence[Any], folder: Path) -> Any:
    with closing(sqlite3.connect(folder / "t.sqlite")) as base:
        base.execute("create table t (x)")
        base.executemany("insert into t values (?)", [(cell,) for cell in cells])
        base.commit()
    return folder / "t.sqlite"


def in_excel(cells: Sequence[Any], folder: Path) -> Any:
    book = openpyxl.Workbook()
    assert book.active is not None
    for cell in ("x", *cells):
        book.active.append([cell])
    book.save(folder / "t.xlsx")
    return folder / "t.xlsx"


def in_parquet(cells: Sequence[Any], folder: Path) -> Any:
    pa.parquet.write_table(pa.table({"x": pa.array(cells)}), folder / "t.parquet")
    return folder / "t.parquet"


def in_pandas(cells: Sequence[Any], folder: Path) -> Any:
    return pd.DataFrame({"x": pd.Series(list(cells))})


def in_objects(cells: Sequence[Any], folder: Path) -> Any:
    return pd.DataFrame({"x": pd.Series(list(cells), dtype=object)})


def in_categories(cells: Sequence[Any], folder: Path) -> Any:
    return pd.DataFrame({"x": pd.Categorical(list(cells))})


def in_polars(cells: Sequence[Any], folder: Path) -> Any:
    return pl.DataFrame({"x": list(cells)})


FRAMES = (in_parquet, in_pandas, in_objects, in_categories, in_polars)


def codes(source: Any, column: Column) -> list[int]:
    return dualquery.encode(source, Domain((column,))).to_rows()[:, 0].tolist()


@pytest.mark.parametrize(
    "notation", [{"decimal_comma": True}, {"currency": "$"}, {"currency": "€", "decimal_comma": True}]
)
@pytest.mark.parametrize("write", [in_json, in_sqlite, in_excel, *FRAMES])
def test_a_typed_number_is_in_no_notation(write: Write, notation: dict[str, Any], tmp_path: Path) -> None:
    column = Numeric("x", (0.0, 1.0, 2.0, 1000.0, 2000.0), missing="none", empty=("-99",), **notation)
    source = write([1.234, 0.5, 1234.0, None, -99.0, 1e-7], tmp_path)
    assert codes(source, column) == [1, 0, 3, 4, 4, 0]
    assert not checked(dualquery.Schema(Domain((column,))), source).problems


@pytest.mark.parametrize("write", [in_json, in_sqlite, in_excel, in_objects])
def test_texts_follow_the_notation_beside_numbers(write: Write, tmp_path: Path) -> None:
    column = Numeric("x", (0.0, 1.0, 2.0, 1000.0, 2000.0), decimal_comma=True)
    assert codes(write([1.234, "1.234", "1,234", 1234], tmp_path), column) == [1, 3, 1, 3]


def test_numbers_that_no_type_holds_are_numbers_too() -> None:
    column = Numeric("x", (0.0, 1.0, 2.0), clamp=True, decimal_comma=True)
    assert codes(in_objects([2**70, Decimal("1e-60"), Decimal("1.5")], Path()), column) == [1, 0, 1]


DAYS = [date(2024, 3, 1), date(2024, 3, 4), None]


@pytest.mark.parametrize("write", [in_excel, in_objects, in_categories, *FRAMES])
def test_a_typed_date_is_in_no_format(write: Write, tmp_path: Path) -> None:
    column = dates("x", "2024-03-01", "2024-03-05", "day", format="%d.%m.%Y", missing="none")
    assert codes(write(DAYS, tmp_path), column) == [0, 3, 5]
    moments = [None if day is None else datetime.combine(day, time(9, 30)) for day in DAYS]
    assert codes(write(moments, tmp_path), column) == [0, 3, 5]


def test_moments_of_any_class_and_zone_are_in_no_format() -> None:
    column = dates("x", "2024-03-01", "2024-03-05", "day", format="%Y-%d-%m", missing="none")
    cells = [
        datetime(2024, 3, 4, 9, tzinfo=UTC),
        pd.Timestamp("2024-03-04 09:30", tz="Asia/Tokyo"),
        np.datetime64("2024-03-04"),
        np.datetime64("2024-03-04T09:30"),
        "2024-04-03",
    ]
    assert codes(in_objects(cells, Path()), column) == [3] * 5
    zoned = pd.DataFrame(
        {"x": pd.Categorical(pd.to_datetime(["2024-03-04 09:30"]).tz_localize("Asia/Tokyo"))}
    )
    assert codes(zoned, column) == [3]


@pytest.mark.parametrize("kind", [pa.date32(), pa.date64()])
def test_a_day_is_longer_than_an_hour_whatever_its_type(kind: pa.DataType) -> None:
    column = dates(
        "x", "2024-03-01T00", "2024-03-01T23", "hour", missing="none", clamp=True, empty=("1900-01-01",)
    )
    typed = pa.table({"x": pa.array([date(2024, 3, 1)], kind)})
    for source in (
        typed,
        pa.table({"x": typed["x"].dictionary_encode()}),
        in_objects([date(2024, 3, 1)], Path()),
    ):
        with pytest.raises(DataError, match="longer than a hour"):
            codes(source, column)
    missing = pa.table({"x": pa.array([None, date(1900, 1, 1)], kind)})
    assert codes(missing, column) == [24, 24]
    assert codes(pa.table({"x": [datetime(2024, 3, 1)]}), column) == [0]


def test_a_time_of_day_is_no_date() -> None:
    column = dates("x", "1970-01-01T00", "1970-01-01T23", "hour", clamp=True)
    for source in (pa.table({"x": [time(9, 30)]}), in_objects([time(9, 30)], Path())):
        with pytest.raises(DataError, match="no dates"):
            codes(source, column)


@pytest.mark.parametrize("write", [in_excel, *FRAMES])
@pytest.mark.parametrize(
    ("form", "text"), [(None, "1900-01-01"), ("%d.%m.%Y", "01.01.1900"), ("%d.%m.%Y", "1900-01-01")]
)
@pytest.mark.parametrize("said", ["empty", "missing"])
def test_a_typed_date_that_stands_for_a_missing_one(
    write: Write, form: str | None, text: str, said: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"missing": text} if said == "missing" else {"missing": "none", "empty": (text,)}
    column = dates("x", "2024-03-01", "2024-03-05", "day", format=form, clamp=True, **given)
    days = [date(1900, 1, 1), date(2024, 3, 4), date(1900, 1, 2), None]
    texts = [text, *(each.strftime(form or "%Y-%m-%d") for each in days if each), None]
    assert codes(pa.table({"x": texts}), column)[0::2] == [5, 3, 5]
    assert codes(write(days, tmp_path), column) == [5, 3, 0, 5]
    at = [datetime(1900, 1, 1), datetime(2024, 3, 4, 9), datetime(1900, 1, 1, 9), None]
    assert codes(write(at, tmp_path), column) == [5, 3, 0, 5]


def test_parts_of_json_are_of_one_kind_whatever_their_cells_are(tmp_path: Path) -> None:
    column = Numeric("x", (0.0, 2.0, 2000.0), decimal_comma=True)
    for name, cell in (("a", 1.234), ("b", "1.234"), ("c", "1,2")):
        (tmp_path / f"{name}.ndjson").write_text(json.dumps({"x": cell}))
    assert codes(str(tmp_path / "*.ndjson"), column) == [0, 1, 0]
    (tmp_path / "d.csv").write_text("x\n1\n")
    with pytest.raises(DataError, match="holds string there and cells of any type in the parts before it"):
        codes(str(tmp_path / "*"), column)
