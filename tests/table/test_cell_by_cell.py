"""Two cells beside each other are read as each is read alone, whatever their kinds, by every reader of cells.

A table of the cells x and y gives the record of x and the record of y, and is refused where x or y alone is. So
neither a code nor a refusal depends on another record.
"""

from __future__ import annotations

import json
import sqlite3
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet
import pytest

from dualquery.errors import DataError
from dualquery.releases.synthesizer import array_as_table
from dualquery.table.cells import floats_of, of_objects, texts_of
from dualquery.table.dates import dates
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import encode, encoded, record_blocks
from dualquery.table.graph import OpenText
from dualquery.table.persons import owners_of
from dualquery.table.reading import read_table
from dualquery.table.reading.source import WantedColumns
from dualquery.table.records import Records
from dualquery.table.schema import Schema

NINE = datetime(2024, 3, 1, 9, 30)
TOKYO, DELHI = ZoneInfo("Asia/Tokyo"), timezone(timedelta(hours=5, minutes=30))
CELLS: tuple[Any, ...] = (
    None,
    float("nan"),
    np.float32("nan"),
    Decimal("NaN"),
    pd.NA,
    pd.NaT,
    np.datetime64("NaT"),
    date(2024, 3, 1),
    NINE,
    datetime(2024, 3, 1),
    NINE.replace(microsecond=7),
    NINE.replace(tzinfo=UTC),
    NINE.replace(tzinfo=TOKYO),
    NINE.replace(tzinfo=DELHI),
    NINE.replace(tzinfo=timezone(timedelta(hours=-5))),
    np.datetime64("2024-03-01"),
    np.datetime64("2024-03-01T09:30"),
    np.datetime64("2024-03-01T09:30:00.000000007", "ns"),
    np.datetime64("2024-03"),
    pd.Timestamp("2024-03-01 09:30"),
    pd.Timestamp("2024-03-01 09:30:00.000000007"),
    pd.Timestamp("2024-03-01 09:30", tz="Asia/Tokyo"),
    time(9, 30),
    time(9, 30, 0, 500),
    timedelta(hours=1),
    True,
    np.bool_(False),
    0,
    1,
    -1,
    np.int8(1),
    np.uint64(2**64 - 1),
    2**53 + 1,
    2**70,
    10**400,
    0.3,
    1.0,
    1.234,
    -0.0,
    1e-7,
    1e300,
    float("inf"),
    np.float32(0.1),
    np.float64(0.7),
    np.float16(0.5),
    Decimal("0.3"),
    Decimal("2.50"),
    Decimal("1e-30"),
    Decimal("1e60"),
    Decimal("1.23456789012345678901234567890"),
    Decimal("Infinity"),
    "",
    " ",
    "a",
    "1",
    "1.0",
    "1.234",
    "0,3",
    "true",
    "2024-03-01",
    "2024-03-01T09:30+09:00",
    "x\ny",
    "\ud800",
    b"a",
    b"\xff",
    uuid.UUID(int=7),
    [1, 2],
    [1.0],
    (3,),
    np.array([2, 1]),
    [None],
    {"a": 1},
    1j,
    object(),
)
VALUES = (
    "a", "1", "0", "-1", "true", "0.3", "2.50", "0.1", "9007199254740993", "18446744073709551615", "2024-03-01",
    "2024-03-01 09:30:00", "2024-03-01 09:30:00Z", "2024-03-01 09:30:00+0900", "2024-03-01 00:00:00", "09:30:00",
    "1.234", "1e-07", "other", "none",
)  # fmt: skip
SMALL = (0.1, 0.3, 0.7, 1.0)
COLUMNS: dict[str, Column] = {
    "categories": Categorical("x", VALUES, unknown="other", missing="none"),
    "closed": Categorical("x", VALUES),
    "numbers": Numeric("x", (-1e9, 0.0, *SMALL, 2.5, 1e9), clamp=True, missing="none"),
    "comma": Numeric(
        "x", (0.0, *SMALL, 1.2, 1.3, 2.5, 100.0), clamp=True, missing="none", decimal_comma=True
    ),
    "money": Numeric("x", (0.0, *SMALL, 1.2, 1.3, 2.5, 100.0), clamp=True, missing="none", currency="$"),
    "hours": dates("x", "2024-03-01T00", "2024-03-01T23", "hour", clamp=True, missing="none"),
    "days": dates("x", "2024-02-25", "2024-03-05", "day", clamp=True, missing="none"),
    "format": dates(
        "x",
        "2024-02",
        "2024-05",
        "month",
        clamp=True,
        missing="none",
        format="%Y-%d-%m",
        empty=("2024-03-01",),
    ),
    "texts": OpenText("x", ("any text",), longest=40),
    "items": Items("x", 9, 0),
}
SCHEMAS = {name: Schema(Domain((column,))) for name, column in COLUMNS.items()}
SCHEMAS["dropping"] = Schema(Domain((COLUMNS["categories"],)), drop_rows_containing="1")

Write = Callable[[Sequence[Any], Path], object]


class NotWritten(Exception):
    """This format, or its writer, has no such cells."""


def held(cells: Sequence[Any]) -> Any:
    """Cells as numpy keeps objects, without a look at what they are."""
    out = np.empty(len(cells), object)
    for place, cell in enumerate(cells):
        out[place] = cell
    return out


def in_pandas(cells: Sequence[Any], folder: Path) -> object:
    return pd.DataFrame({"x": pd.Series(held(cells), dtype=object)})


def in_pandas_categories(cells: Sequence[Any], folder: Path) -> object:
    try:
        codes, values = list(range(len(cells))), pd.Index(held(cells), dtype=object)
        return pd.DataFrame({"x": pd.Categorical.from_codes(codes, values)})
    except (ValueError, TypeError, OverflowError):
        raise NotWritten from None


def in_polars(cells: Sequence[Any], folder: Path) -> object:
    return pl.DataFrame({"x": pl.Series("x", list(cells), dtype=pl.Object)})


def in_array(cells: Sequence[Any], folder: Path) -> object:
    try:
        return array_as_table(held(cells)[:, None])[0].rename_columns(["x"])
    except DataError:
        raise NotWritten from None


def in_json(cells: Sequence[Any], folder: Path) -> object:
    if not all(cell is None or type(cell) in (str, bool, int, float, list, dict) for cell in cells):
        raise NotWritten
    (folder / "t.json").write_text(json.dumps([{"x": cell} for cell in cells]))
    return folder / "t.json"


def in_csv(cells: Sequence[Any], folder: Path) -> object:
    if not all(cell is None or type(cell) in (str, bool, int, float, date, Decimal) for cell in cells):
        raise NotWritten
    lines = ['"' + ("" if cell is None else str(cell)).replace('"', '""') + '"\n' for cell in cells]
    (folder / "t.csv").write_bytes(("x\n" + "".join(lines)).encode("utf-8", "surrogatepass"))
    return folder / "t.csv"


def in_excel(cells: Sequence[Any], folder: Path) -> object:
    book = openpyxl.Workbook()
    assert book.active is not None
    try:
        for cell in ("x", *cells):
            book.active.append([cell])
        book.save(folder / "t.xlsx")
    except (
        ValueError,
        TypeError,
        AttributeError,
        OverflowError,
        UnicodeEncodeError,
        openpyxl.utils.exceptions.IllegalCharacterError,
    ):
        raise NotWritten from None
    return folder / "t.xlsx"


def in_sqlite(cells: Sequence[Any], folder: Path) -> object:
    if not all(cell is None or type(cell) in (str, bool, int, float, bytes) for cell in cells):
        raise NotWritten
    (folder / "t.sqlite").unlink(missing_ok=True)
    with closing(sqlite3.connect(folder / "t.sqlite")) as base:
        base.execute("create table t (x)")
        try:
            base.executemany("insert into t values (?)", [(cell,) for cell in cells])
        except (OverflowError, UnicodeEncodeError):
            raise NotWritten from None
        base.commit()
    return folder / "t.sqlite"


DUCKDB = (
    "union(a bigint, b double, c varchar, d date, e timestamp, f boolean)",
    "varchar",
    "double",
    "decimal(38, 30)",
)


def in_duckdb(kind: str) -> Write:
    def write(cells: Sequence[Any], folder: Path) -> object:
        (folder / "t.duckdb").unlink(missing_ok=True)
        with closing(duckdb.connect(folder / "t.duckdb")) as base:
            base.execute(f"create table t (x {kind})")
            try:
                for cell in cells:
                    base.execute("insert into t values (?)", [cell])
            except (duckdb.Error, TypeError, ValueError, OverflowError, UnicodeEncodeError, RuntimeError):
                raise NotWritten from None
        return folder / "t.duckdb"

    return write


ARROW = (
    pa.string(),
    pa.float32(),
    pa.float64(),
    pa.int64(),
    pa.decimal128(38, 30),
    pa.decimal256(76, 9),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("ns", "Asia/Tokyo"),
    pa.time64("us"),
    pa.bool_(),
    pa.binary(),
    pa.list_(pa.int64()),
)


def in_arrow(kind: pa.DataType) -> Write:
    def write(cells: Sequence[Any], folder: Path) -> object:
        try:
            return pa.table({"x": pa.array(list(cells), kind)})
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            raise NotWritten from None

    return write


READERS: dict[str, Write] = {
    "pandas": in_pandas,
    "pandas categories": in_pandas_categories,
    "polars": in_polars,
    "array": in_array,
    "json": in_json,
    "csv": in_csv,
    "excel": in_excel,
    "sqlite": in_sqlite,
    **{f"duckdb {kind}": in_duckdb(kind) for kind in DUCKDB},
    **{f"arrow {kind}": in_arrow(kind) for kind in ARROW},
}
FILES = ("excel", "sqlite", "duckdb")  # a file a pair: fewer of them in the usual run


Found = list[list[list[int]] | None]  # by each schema, None where it refuses


def read(cells: Sequence[Any], write: Write, folder: Path) -> Found:
    """What cells are read as."""
    source = write(cells, folder)
    return [_by(schema, source) for schema in SCHEMAS.values()]


def _by(schema: Schema, source: Any) -> list[list[int]] | None:
    return _codes(partial(encode, source, schema), schema)


def _codes(make: Callable[[], Records], schema: Schema) -> list[list[int]] | None:
    try:
        records = make()
    except DataError:
        return None
    if isinstance(schema.domain.columns[0], OpenText):
        return [[int(code)] for code in records.columns[0]]  # type: ignore[union-attr]
    return records.to_rows().tolist()


def alone(numbers: Iterable[int], write: Write, folder: Path) -> dict[int, Found]:
    """What each of these cells is read as by itself, where it can be written."""
    single = {}
    for number in numbers:
        with suppress(NotWritten):
            single[number] = read([CELLS[number]], write, folder)
    return single


def check_pair(first: int, second: int, found: Found, single: dict[int, Found]) -> None:
    """A pair is read as each of its cells is read alone, and refused by the schemas that refuse one of them."""
    both = zip(single[first], single[second], strict=True)
    wanted = [None if x is None or y is None else x + y for x, y in both]
    odd = [schema for schema, x, y in zip(SCHEMAS, found, wanted, strict=True) if x != y]
    assert not odd, (CELLS[first], CELLS[second], odd)


def check_pairs(name: str, folder: Path, *, every: int) -> int:
    """How many ordered pairs of cells were read as each of them is read alone."""
    write, tried = READERS[name], 0
    pairs = [pair for number, pair in enumerate(product(range(len(CELLS)), repeat=2)) if number % every == 0]
    single = alone({number for pair in pairs for number in pair}, write, folder)
    for first, second in pairs:
        if first in single and second in single:
            with suppress(NotWritten):
                check_pair(first, second, read([CELLS[first], CELLS[second]], write, folder), single)
                tried += 1
    return tried


def check_pairs_of_one_file(kind: str, folder: Path) -> int:
    """The same for all pairs in DuckDB, which takes long to open: a table a first cell, a column a second one.

    The cells of a typed column lie apart from those of all others. What is read of a table at once is encoded column
    by column, as `encode` does it with a table of one column.
    """
    single = alone(range(len(CELLS)), in_duckdb(kind), folder)
    names = [f"x{second}" for second in single]
    path, tried = folder / "pairs.duckdb", 0
    with closing(duckdb.connect(path)) as base:
        for first in single:
            base.execute(f"create table t{first} ({', '.join(f'{name} {kind}' for name in names)})")
            row = f"insert into t{first} values ({', '.join('?' * len(names))})"
            base.execute(row, [CELLS[first]] * len(names))
            base.execute(row, [CELLS[second] for second in single])
    for first in single:
        table = read_table(f"{path}#t{first}", WantedColumns(names))
        for second, name in zip(single, names, strict=True):
            pair = table.select([name]).rename_columns(["x"])
            check_pair(
                first,
                second,
                [_codes(partial(encoded, pair, each), each) for each in SCHEMAS.values()],
                single,
            )
            tried += 1
    return tried


@pytest.mark.parametrize("name", READERS)
def test_some_pairs_of_cells(name: str, tmp_path: Path) -> None:
    check_pairs(name, tmp_path, every=1801 if name.startswith(FILES) else 97)


@pytest.mark.long
@pytest.mark.parametrize("name", [name for name in READERS if not name.startswith("duckdb")])
def test_all_pairs_of_cells(name: str, tmp_path: Path) -> None:
    assert check_pairs(name, tmp_path, every=1) > 1


@pytest.mark.long
@pytest.mark.parametrize("kind", DUCKDB)
def test_all_pairs_of_cells_of_duckdb(kind: str, tmp_path: Path) -> None:
    assert check_pairs_of_one_file(kind, tmp_path) > 400


def test_a_person_is_the_same_beside_any_other() -> None:
    """Ids too: who a row belongs to does not depend on the ids of others."""

    def person(cells: Sequence[Any]) -> list[str | None] | None:
        try:
            found = owners_of(pa.chunked_array([of_objects(held(cells), "id", lists=False)]), "id")
        except DataError:
            return None
        ids = found.ids.to_pylist()
        return [ids[owner] if owner < len(ids) else None for owner in found.of.tolist()]

    alone = [person([cell]) for cell in CELLS]
    for (x, first), (y, second) in list(product(zip(CELLS, alone, strict=True), repeat=2))[::5]:
        wanted = None if first is None or second is None else first + second
        assert person([x, y]) == wanted, (x, y)


def test_one_record_moves_no_other() -> None:
    """A thousand records at half past nine stay there, whatever the first one is."""
    hours = SCHEMAS["hours"]
    for first in (date(2024, 3, 1), NINE.replace(tzinfo=UTC), NINE, "2024-03-01", 1.5, None):
        for rest in (NINE, NINE.replace(tzinfo=TOKYO), NINE.replace(tzinfo=DELHI)):
            with suppress(
                DataError
            ):  # a day is longer than an hour, and a number is no date: with or without others
                found = encode(in_pandas([first] + [rest] * 999, Path()), hours)  # type: ignore[arg-type]
                assert found.to_rows()[1:].tolist() == [[9]] * 999


def test_columns_of_objects_read_as_typed_ones_do() -> None:
    typed = {
        "numbers": [0.1, 0.3, None, 5.5],
        "comma": [0.3, 1.234, None],
        "categories": [1, 0, None],
        "days": [date(2024, 3, 1), None],
        "hours": [NINE, None],
        "items": [[1, 2], [], None],
        "money": [Decimal("0.30"), Decimal("2.5"), None],
    }
    for name, cells in typed.items():
        column = pa.table({"x": pa.array(cells)})
        assert _by(SCHEMAS[name], column) == _by(SCHEMAS[name], in_pandas(cells, Path())), name
    truths = pa.table({"x": pa.array([True, None, False])})
    assert _by(SCHEMAS["numbers"], truths) == _by(SCHEMAS["numbers"], in_pandas([True, None, False], Path()))


@pytest.mark.parametrize("scale", [6, 20, 30])
def test_a_decimal_is_the_nearest_float_however_many_decimals_its_column_has(scale: int) -> None:
    cells = [Decimal(figures).scaleb(-places) for figures in range(1, 2000, 7) for places in range(6)]
    assert floats_of(pa.array(cells, pa.decimal128(38, scale))).tolist() == [float(cell) for cell in cells]
    few = pa.array([Decimal(0), Decimal("0.3"), Decimal("2.5")], pa.decimal128(38, scale))
    assert texts_of(few, "x") == ["0", "0.3", "2.5"]


def test_a_draft_of_objects() -> None:
    cells = ["north", "south", 1, None, date(2024, 3, 1)] * 20
    drafted = schema_draft(in_pandas(cells, Path())).schema  # type: ignore[arg-type]
    assert encode(in_pandas(cells, Path()), drafted).rows == 100  # type: ignore[arg-type]
    lists = schema_draft(in_pandas([[1, 2], None, np.array([3])], Path())).schema  # type: ignore[arg-type]
    assert isinstance(lists.domain.columns[0], Items)


def test_persons_in_a_column_of_objects_are_streamed() -> None:
    frame = pd.DataFrame({"x": held(["a", 1, None, "a"]), "who": held([17, "17", 17.0, None])})
    schema = Schema(Domain((COLUMNS["categories"],)), unit="who")
    whole = encode(frame, schema, records_per_person=1)
    blocks = list(record_blocks(frame, schema, rows=1, records_per_person=1))
    assert whole.rows == sum(block.rows for block in blocks) == 2


def test_columns_of_objects_are_streamed_as_they_are_read_at_once() -> None:
    frame = pd.DataFrame({"x": held(["a", 1, None, "a", 0, date(2024, 3, 1), "true", 0.3])})
    schema = Schema(Domain((COLUMNS["categories"],)))
    whole = encode(frame, schema).to_rows().tolist()
    for rows in (1, 3):
        blocks = record_blocks(frame, schema, rows=rows)
        assert [row for block in blocks for row in block.to_rows().tolist()] == whole
