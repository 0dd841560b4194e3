"""Databases, workbooks and text in other encodings: what they hold arrives as from CSV."""

from __future__ import annotations

import gzip
import re
import sqlite3
import zipfile
from datetime import date
from pathlib import Path

import pandas as pd
import pytest

import dualquery
from dualquery.errors import DataError, SchemaError
from dualquery.table.schema import parse_schema, schema_text

SCHEMA = parse_schema(
    """
[[attribute]]
name = "code"
values = ["007", "12", "8"]
[[attribute]]
name = "rate"
edges = [0, 1, 10]
missing = "?"
[[attribute]]
name = "seen"
from = "2023"
to = "2024"
by = "year"
missing = "never"
""",
    origin="t",
)
ROWS = [("007", 0.5, "2023-05-01"), (12, 3, None), (8.0, None, "2024-01-01")]
CODES = [[0, 0, 0], [1, 1, 2], [2, 2, 1]]


def sqlite(path: Path, *tables: str) -> Path:
    with sqlite3.connect(path) as connection:
        for table in tables:
            connection.execute(f'create table "{table}" (id, code, rate, seen)')
            connection.executemany(f'insert into "{table}" values (1, ?, ?, ?)', ROWS)
    connection.close()
    return path


def excel(path: Path, *sheets: str) -> Path:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name in sheets:
        sheet = book.create_sheet(name)
        sheet.append(["code", "rate", "seen"])
        for code, rate, seen in ROWS:
            sheet.append([code, rate, None if seen is None else date.fromisoformat(seen)])
    book.save(path)
    return path


def duckdb_file(path: Path, *tables: str) -> Path:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(str(path))
    for table in tables:
        connection.execute(f'create table "{table}" (code varchar, rate double, seen date)')
        for code, rate, seen in ROWS:
            text = code if isinstance(code, str) else str(int(code))
            connection.execute(f'insert into "{table}" values (?, ?, ?)', [text, rate, seen])
    connection.close()
    return path


@pytest.mark.parametrize(
    ("make", "name"), [(sqlite, "t.sqlite"), (excel, "t.xlsx"), (duckdb_file, "t.duckdb")]
)
def test_a_book_reads_like_any_table(make: object, name: str, tmp_path: Path) -> None:
    alone = make(tmp_path / name, "people")
    assert dualquery.encode(alone, SCHEMA).to_rows().tolist() == CODES
    assert dualquery.encode(f"{alone}#people", SCHEMA).to_rows().tolist() == CODES
    both = make(tmp_path / f"two.{name.rpartition('.')[2]}", "people", "other")
    with pytest.raises(DataError, match=r"more than one .*#NAME"):
        dualquery.encode(both, SCHEMA)
    with pytest.raises(DataError, match=r"has no .* 'gone'"):
        dualquery.encode(f"{both}#gone", SCHEMA)
    assert dualquery.encode(f"{both}#other", SCHEMA).rows == 3
    (tmp_path / f"bad.{name.rpartition('.')[2]}").write_bytes(b"no such thing")
    with pytest.raises(DataError, match="cannot be read"):
        dualquery.encode(tmp_path / f"bad.{name.rpartition('.')[2]}", SCHEMA)
    with pytest.raises(DataError, match="there is no file"):
        dualquery.encode(tmp_path / f"none.{name.rpartition('.')[2]}", SCHEMA)


def test_a_relation_is_a_frame(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect(str(duckdb_file(tmp_path / "t.duckdb", "people")))
    relation = connection.sql("select * from people where rate is not null")
    assert dualquery.encode(relation, SCHEMA).to_rows().tolist() == CODES[:2]


def test_a_formula_without_a_value_is_refused(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (["code", "rate", "seen"], ["12", "=1+1", date(2024, 1, 1)]):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    with pytest.raises(DataError, match="never worked out"):
        dualquery.encode(tmp_path / "t.xlsx", SCHEMA)


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16", "cp437"])
@pytest.mark.parametrize("packed", [False, True])
def test_text_in_a_declared_encoding(encoding: str, packed: bool, tmp_path: Path) -> None:
    text = "größe,sex\nklein,männlich\ngroß,weiblich\n".encode(encoding)
    path = tmp_path / ("t.csv.gz" if packed else "t.csv")
    path.write_bytes(gzip.compress(text) if packed else text)
    body = '[[attribute]]\nname = "größe"\nvalues = ["klein", "groß"]\n[[attribute]]\nname = "sex"\n'
    body += 'values = ["männlich", "weiblich"]\n'
    schema = parse_schema(f'[table]\nencoding = "{encoding}"\n{body}', origin="t")
    assert parse_schema(schema_text(schema), origin="again") == schema
    assert dualquery.encode(path, schema).to_rows().tolist() == [[0, 0], [1, 1]]
    with pytest.raises(DataError, match=r"UTF-8|cannot be read"):
        dualquery.encode(path, parse_schema(body, origin="t"))


def test_encodings_that_cannot_be_read_line_by_line() -> None:
    body = '[[attribute]]\nname = "x"\nvalues = ["a"]\n'
    for name, words in (
        ("iso2022_jp", "line by line"),
        ("utf-7", "line by line"),
        ("klingon", "no encoding"),
    ):
        with pytest.raises(SchemaError, match=words):
            parse_schema(f'[table]\nencoding = "{name}"\n{body}', origin="t")


def test_text_that_is_not_in_its_encoding(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"x\na\n" + b"\x81\xff\n")
    schema = parse_schema(
        '[table]\nencoding = "gbk"\n[[attribute]]\nname = "x"\nvalues = ["a"]\n', origin="t"
    )
    with pytest.raises(DataError, match="not text in the encoding"):
        dualquery.encode(tmp_path / "t.csv", schema)


def test_a_frame_of_pandas_is_still_one() -> None:
    frame = pd.DataFrame({"code": ["007"], "rate": [0.5], "seen": ["2023-01-01"]})
    assert dualquery.encode(frame, SCHEMA).to_rows().tolist() == CODES[:1]


ALL_MISSING = parse_schema(
    """
[[attribute]]
name = "code"
values = ["a", "b"]
missing = "none"
[[attribute]]
name = "rate"
edges = [0, 1, 10]
missing = "?"
""",
    origin="t",
)


@pytest.mark.parametrize("empty", [[0], [50], [99], [0, 1, 50, 98, 99]])
def test_a_row_without_any_cell_is_a_record_in_every_format(empty: list[int], tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    rows = [(None, None) if i in empty else ("a", 0.5) for i in range(100)]
    frame = pd.DataFrame(rows, columns=["code", "rate"])
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.to_parquet(tmp_path / "t.parquet")
    frame.to_json(tmp_path / "t.json", orient="records")
    frame.to_excel(tmp_path / "pandas.xlsx", index=False)
    book = openpyxl.Workbook()
    for row in (["code", "rate"], *rows):
        book.active.append(row)
    book.save(tmp_path / "t.xlsx")
    codes = [[2, 2] if i in empty else [0, 0] for i in range(100)]
    for name in ("t.csv", "t.parquet", "t.json", "pandas.xlsx", "t.xlsx"):
        assert dualquery.encode(tmp_path / name, ALL_MISSING).to_rows().tolist() == codes, name


def rewritten(path: Path, change: object) -> Path:
    """A workbook whose sheet was changed as text."""
    with zipfile.ZipFile(path) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    with zipfile.ZipFile(path, "w") as book:
        for name, content in parts.items():
            book.writestr(name, change(content) if "sheet1.xml" in name else content)  # type: ignore[operator]
    return path


def test_rows_that_the_sheet_leaves_out_are_records_where_others_follow(tmp_path: Path) -> None:
    path = excel(tmp_path / "t.xlsx", "people")
    rewritten(path, lambda text: text.replace(b'<row r="4">', b'<row r="6">').replace(b'4"', b'6"'))
    with pytest.raises(DataError, match="column 'code' has empty cells"):
        dualquery.encode(path, SCHEMA)


def test_what_a_sheet_says_about_its_size_cuts_nothing_off(tmp_path: Path) -> None:
    path = excel(tmp_path / "t.xlsx", "people")
    rewritten(path, lambda text: text.replace(b'ref="A1:C4"', b'ref="A1:B2"'))
    assert dualquery.encode(path, SCHEMA).to_rows().tolist() == CODES


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b'<row r="4">', b'<row r="3">').replace(b'4"', b'3"'),
        lambda text: text.replace(b'<row r="3">', b'<row r="9">').replace(b'3"', b'9"'),
        lambda text: text.replace(b'<row r="4">', b'<row r="2">'),
        lambda text: text.replace(b'r="B2"', b'r="A2"'),
        lambda text: text.replace(b'r="A4"', b'r="D4"'),
        lambda text: text.replace(b'r="A4"', b'r="A9"'),
    ],
)
def test_rows_and_cells_that_are_double_or_out_of_order_are_not_lost(change: object, tmp_path: Path) -> None:
    """openpyxl leaves out rows that come late, and cells behind the last of their row."""
    path = rewritten(excel(tmp_path / "t.xlsx", "people"), change)
    with pytest.raises(DataError, match="double or out of order"):
        dualquery.encode(path, SCHEMA)


def test_rows_and_cells_without_numbers_are_read_in_their_order(tmp_path: Path) -> None:
    frame = pd.DataFrame({"code": ["a", "b", "b"], "rate": [0.5, 3, 0]})
    frame.to_excel(tmp_path / "t.xlsx", index=False)
    path = rewritten(tmp_path / "t.xlsx", lambda text: re.sub(rb'(<row|<c) r="[A-Z]?[0-9]"', rb"\1", text))
    assert dualquery.encode(path, ALL_MISSING).to_rows().tolist() == [[0, 0], [1, 1], [1, 0]]


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text[: len(text) // 2],
        lambda text: text.replace(b'r="4"', b'r="99999999999"'),
        lambda text: text.replace(b'r="4"', b'r="x"'),
        lambda text: text.replace(b'r="A4"', b'r="4"'),
        lambda text: text.replace(b'r="C4"', b'r="ZZZZ4"'),
        lambda text: text.replace(b"<v>", b"<v>x"),
        lambda text: text.replace(b't="n"', b't="s"'),
        lambda text: text.replace(b't="n"', b't="d"'),
        lambda text: text.replace(b' s="', b' s="9999'),
        lambda text: b"",
    ],
)
def test_a_damaged_sheet_is_a_sentence(change: object, tmp_path: Path) -> None:
    path = rewritten(excel(tmp_path / "t.xlsx", "people"), change)
    with pytest.raises(DataError, match=r"cannot be read|cells that"):
        dualquery.encode(path, SCHEMA)
