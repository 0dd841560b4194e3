"""Cells of every type, and the cells that have no place in the schema."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from dualquery.errors import DataError
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric, equal_width
from dualquery.table.encoding import decode, encode
from dualquery.table.records import Records
from dualquery.table.schema import Schema

BINARY = Categorical("x", ("0", "1"))
RATE = equal_width("x", 0, 1, 10)


def codes(column: Column, cells: object) -> list[int]:
    return encode(pa.table({"x": cells}), Domain((column,))).columns[0].tolist()


def advice(column: Column, cells: object) -> str:
    with pytest.raises(DataError) as raised:
        codes(column, cells)
    assert "column 'x'" in str(raised.value)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "0"],
        [" 1", "0 "],
        ["1.0", "-0.0"],
        [1, 0],
        [1.0, -0.0],
        [True, False],
        ["true", "FALSE"],
        [Decimal("1.00"), Decimal("0.00")],
        pa.array([1, 0], pa.uint8()),
        pa.array([1, 0], pa.float32()),
        pa.array(["1", "0"], pa.large_string()),
        pa.array(["1", "0"], pa.string_view()),
        pa.array([b"1", b"0"]),
        pa.array(["1", "0"]).dictionary_encode(),
        pa.array([1.0, 0.0]).dictionary_encode(),
        pd.Categorical([1, 0], categories=[7, 0, 1]),
        pd.array([1, 0], dtype="Int64"),
    ],
    ids=lambda cells: type(cells).__name__ + str(getattr(cells, "dtype", getattr(cells, "type", ""))),
)
def test_one_and_zero_in_every_type(cells: object) -> None:
    assert codes(BINARY, cells) == [1, 0]
    if cells[0] != "true":
        assert codes(equal_width("x", 0, 1, 2), cells) == [1, 0]
    frame = pd.DataFrame({"x": cells.to_pylist() if isinstance(cells, pa.Array) else cells})
    if not isinstance(frame["x"].iloc[0], bytes):
        assert encode(frame, Domain((BINARY,))).columns[0].tolist() == [1, 0]


def test_a_truth_value_by_its_names() -> None:
    for listed in (("false", "true"), ("False", "True"), ("FALSE", "TRUE"), ("0", "1")):
        for cells in ([False, True], ["False", "True"], ["false", "true"]):
            assert codes(Categorical("x", listed), cells) == [0, 1]


def test_the_closest_spelling_counts() -> None:
    assert codes(Categorical("x", ("1", "1.0", " 1")), ["1", "1.0", " 1", "1.00", "  1"]) == [0, 1, 2, 0, 0]
    assert codes(Categorical("x", ("0.1", "2020-01-31")), pa.array([0.1], pa.float32())) == [0]
    assert codes(Categorical("x", ("0.1", "2020-01-31")), [date(2020, 1, 31)]) == [1]


def test_leading_zeros_are_letters() -> None:
    assert codes(Categorical("x", ("1234", "01234")), ["01234", "1234"]) == [1, 0]
    assert "does not list" in advice(Categorical("x", ("1234",)), ["01234"])


def test_unknown_and_missing_have_their_places() -> None:
    column = Categorical("x", ("a", "other", "none"), unknown="other", missing="none")
    assert codes(column, ["a", "z", None, "", " ", "none"]) == [0, 1, 2, 2, 2, 2]
    assert codes(column, [1.5, float("nan"), None]) == [1, 2, 2]
    assert codes(column, pa.nulls(2)) == [2, 2]
    assert codes(Categorical("x", ("", "a")), ["a", "", None]) == [1, 0, 0]
    assert codes(Categorical("x", ("", "a"), missing="a"), ["a", "", None]) == [1, 0, 1]


def test_categories_without_a_place() -> None:
    for cells in (["b"], [1], [True], [1.5], [date(2020, 1, 1)]):
        message = advice(Categorical("x", ("a",), missing="a"), cells)
        assert "add them" in message
        assert "unknown = " in message
    for cells in ([None], [""], [" "], [float("nan")], pa.nulls(1), pd.Categorical(["a", None])):
        assert "missing = " in advice(Categorical("x", ("a",), unknown="a"), cells)
    for cells in ([{"a": 1}], [[1]], [b"\xff"]):
        assert "neither texts nor numbers" in advice(Categorical("x", ("a",)), cells)


def test_numbers_as_texts() -> None:
    assert codes(RATE, ["0", "1", "0.1", " 0.95 ", "+.5", "3e-1", "1."]) == [0, 9, 1, 9, 5, 3, 9]
    clamped = equal_width("x", 0, 1, 10, clamp=True)
    assert codes(clamped, ["-5", "5", "inf", "-inf"]) == [0, 9, 9, 0]
    assert codes(clamped, [-5, 5]) == [0, 9]


def test_numbers_without_a_place() -> None:
    for cells in (["-0.001"], [1.001], ["inf"], [2], [Decimal("1.5")], [float("-inf")]):
        message = advice(RATE, cells)
        assert "clamp = true" in message
        assert "widen" in message
    for cells in ([None], ["", "0"], ["nan"], ["NaN"], [float("nan"), 0.5], pa.nulls(2), [" "]):
        assert "missing = " in advice(RATE, cells)
    for cells in (["0,5"], ["?"], ["1_0"], ["0x1"], ["0.5", "half"], [date(2020, 1, 1)], ["1 2"]):
        assert "not numbers" in advice(RATE, cells)
        assert "not numbers" in advice(equal_width("x", 0, 1, 10, clamp=True, missing="missing"), cells)


def test_missing_numbers_have_their_place() -> None:
    column = equal_width("x", 0, 1, 2, missing="?")
    assert codes(column, ["0", None, "", "nan", "?", " ? ", "0.5"]) == [0, 2, 2, 2, 2, 2, 1]
    assert codes(column, [0.0, None, float("nan")]) == [0, 2, 2]
    assert codes(column, pa.nulls(2)) == [2, 2]
    minus_one = equal_width("x", 0, 1, 2, missing="-1", clamp=True)
    assert codes(minus_one, ["-1", "-1.0", "-2"]) == codes(minus_one, [-1.0, -1.0, -2.0]) == [2, 2, 0]


def test_nan_in_frames() -> None:
    for frame in (pd.DataFrame({"x": [0.5, np.nan]}), pl.DataFrame({"x": [0.5, float("nan")]})):
        with pytest.raises(DataError, match="NaN"):
            encode(frame, Domain((RATE,)))
        assert encode(frame, Domain((equal_width("x", 0, 1, 2, missing="gone"),))).columns[0].tolist() == [
            1,
            2,
        ]


def test_values_that_occur_nowhere_are_no_error() -> None:
    cells = pa.DictionaryArray.from_arrays(pa.array([1, None, 1]), pa.array(["z", "a", None]))
    assert codes(Categorical("x", ("a", "b"), missing="b"), cells) == [0, 1, 0]
    assert codes(Categorical("x", ("a",)), cells.slice(2, 1)) == [0]


def test_chunks_with_dictionaries_of_their_own() -> None:
    chunks = [pa.array(list(letters), pa.string()).dictionary_encode() for letters in ("ba", "cb", "", "ac")]
    assert codes(Categorical("x", ("a", "b", "c")), pa.chunked_array(chunks)) == [1, 0, 2, 1, 0, 2]
    views = [
        pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string_view())) for c in chunks[:2]
    ]
    assert codes(Categorical("x", ("a", "b", "c")), pa.chunked_array(views)) == [1, 0, 2, 1]


@pytest.mark.parametrize(("size", "kind"), [(256, np.uint8), (257, np.uint16), (65537, np.uint32)])
def test_codes_are_of_the_smallest_type(size: int, kind: type) -> None:
    domain = Domain((Categorical("x", tuple(map(str, range(size)))),))
    records = encode(pa.table({"x": np.arange(size)}), domain)
    assert records.columns[0].dtype == kind
    assert records.columns[0].tolist() == list(range(size))
    assert decode(records)["x"].cast(pa.string()).to_pylist() == list(domain.columns[0].labels)
    numbers = Domain((equal_width("x", 0, size, size, integer=True),))
    assert encode(pa.table({"x": np.arange(size)}), numbers).columns[0].dtype == kind


def test_rows_are_dropped_by_a_public_rule(tmp_path: Path) -> None:
    columns = (Categorical("a", ("x", "y")), equal_width("b", 0, 10, 5), Items("i", 9))
    schema = Schema(Domain(columns), drop_rows_containing="?")
    path = tmp_path / "t.csv"
    path.write_text("a,b,i,other\nx,1,3 4,?\n?,2,5,\ny,?,6,\ny, ? ,7,\ny,9,8 9,\nz?,?,1,\n")
    records = encode(path, schema)
    assert records.rows == 2
    assert records.to_rows()[:, :2].tolist() == [[0, 0], [1, 4]]
    assert records.columns[2].ids.tolist() == [2, 3, 7, 8]
    assert encode(pl.read_csv(path, infer_schema=False), schema).rows == 2
    path.write_text("a,b,i\n?,1,2\n")
    assert encode(path, schema).rows == 0
    frame = pd.DataFrame({"a": ["x", "y"], "b": [-1.0, 3.0], "i": [[1], [2]]})
    assert encode(frame, Schema(Domain(columns), drop_rows_containing="-1")).columns[1].tolist() == [1]


def test_decoded_columns() -> None:
    domain = Domain(
        (
            Categorical("grade", ("low", "high"), ordered=True),
            Numeric("age", (0.0, 0.75, 1.5, 2.25, 3.0), integer=True),
            equal_width("rate", 0, 1, 10, missing="gone"),
            Items("item", 5),
        )
    )
    rows = np.array([[0, 0, 1, 1, 0, 0, 0, 1], [1, 3, 10, 0, 0, 0, 0, 0]])
    table = decode(Records.from_rows(domain, rows))
    first, second = table.to_pylist()
    assert 0.1 <= first.pop("rate") < 0.2
    assert first == {"grade": "low", "age": 0, "item": [1, 5]}
    assert second == {"grade": "high", "age": 3, "rate": None, "item": []}
    assert table.schema.field("item").type == pa.list_(pa.int32())
    assert table.schema.field("age").type == pa.int64()
    assert table.schema.field("grade").type == pa.dictionary(pa.int8(), pa.string(), ordered=True)


def test_half_a_million_items_stay_sparse() -> None:
    domain = Domain((Items("item", 512_000),))
    random = np.random.default_rng(1)
    lists = pa.ListArray.from_arrays(
        np.arange(0, 50_001, 5, dtype=np.int32), random.integers(1, 512_001, 50_000)
    )
    records = encode(pa.table({"item": lists}), domain)
    assert decode(records).nbytes < 1_000_000
    assert records.columns[0].ids.nbytes + records.columns[0].start.nbytes < 1_000_000
