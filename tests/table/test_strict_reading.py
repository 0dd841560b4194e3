"""What used to be read wrongly without a word: each is refused now, with a place and without content."""

from __future__ import annotations

import gzip
import re
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest

from dualquery.errors import DataError, DualQueryError
from dualquery.table.domain import Categorical, Column, Domain, Items, equal_width
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import encode
from dualquery.table.reading import delimited
from dualquery.table.schema import Schema, parse_schema, schema_text

SECRET = "Klytaimnestra"
DOMAIN = Domain((Categorical("a", ("x", "y"), unknown="y", missing="y"), equal_width("b", 0, 10, 5)))
BASKETS = Domain((Items("item", 9),))


def refused(source: object, domain: Domain | Schema, *words: str) -> str:
    with pytest.raises(DataError) as raised:
        encode(source, domain)  # type: ignore[arg-type]
    message = str(raised.value)
    assert all(word in message for word in words), message
    assert SECRET not in message
    assert "\n" not in message
    return message


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def rows_with(line: str, at: int, count: int = 2000) -> str:
    lines = [f"x,{i % 10}" if i % 30 else f'"x",{i % 10}' for i in range(count)]
    lines[at] = line
    return "a,b\n" + "\n".join(lines) + "\n"


@pytest.mark.parametrize("at", [0, 7, 1000, 1999])
@pytest.mark.parametrize(
    ("line", "word"),
    [
        (f'"{SECRET},3', "quote"),
        (f'{SECRET},"3', "quote"),
        (f'{SECRET}",3', "quote"),
        (f'"{SECRET}"x,3', "stray quote"),
        (f'{SECRET} "in" quotes,3', "stray quote"),
        (f' "{SECRET}",3', "stray quote"),
        (f"{SECRET}", "more or fewer cells"),
        (f"{SECRET},3,4", "more or fewer cells"),
        (f"{SECRET}\rx,3", "carriage return"),
    ],
)
def test_a_record_that_is_none_is_refused_with_its_place(
    tmp_path: Path, line: str, word: str, at: int
) -> None:
    text = rows_with(line, at)
    message = refused(write(tmp_path / "t.csv", text), DOMAIN, word)
    place = int(re.findall(r"after ([0-9,]+) bytes", message)[0].replace(",", ""))
    assert place <= text.index("\n", text.index(SECRET))
    refused(write(tmp_path / "t.csv.gz", gzip.compress(text.encode())), DOMAIN, word)


def test_a_file_cut_inside_a_quoted_cell(tmp_path: Path) -> None:
    text = rows_with(f'"{SECRET}",3', 1999)
    refused(write(tmp_path / "t.csv", text[: text.index(SECRET) + 4]), DOMAIN, "not closed", "bytes")


def test_a_quote_that_the_next_record_closes(tmp_path: Path) -> None:
    # Two wrongs that look like one right: the old reader made one record of three.
    text = 'a,b\nx,1\n"x,2\nx,3\nx",4\n'
    assert encode(write(tmp_path / "t.csv", text), DOMAIN).rows == 2  # a cell with two line ends, well formed
    refused(write(tmp_path / "t.csv", text.replace('x",4', "x,4")), DOMAIN, "not closed")


def test_a_record_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "BLOCK", 1000)
    fits = 'a,b\nx,1\n"' + "y\n" * 400 + '",2\nx,3\n'
    assert encode(write(tmp_path / "t.csv", fits), DOMAIN).rows == 3
    for padding in range(0, 2000, 250):
        lines = "x,1\n" * padding
        refused(write(tmp_path / "t.csv", f'a,b\n{lines}"{"y" * 1100}",2\nx,3\n'), DOMAIN, "1,000 bytes")


def test_no_name_of_the_file_is_told(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.csv", f"{SECRET},b\nx,1\n"), DOMAIN, "no column 'a'")
    refused(write(tmp_path / "t.json", f'[{{"{SECRET}": 1, "b": 2}}]'), DOMAIN, "no column 'a'")
    refused(pd.DataFrame({SECRET: ["x"], "b": [1]}), DOMAIN, "no column 'a'")
    pyarrow.parquet.write_table(pa.table({SECRET: ["x"], "b": [1]}), tmp_path / "t.parquet")
    refused(tmp_path / "t.parquet", DOMAIN, "no column 'a'")


def test_texts_that_are_not_utf8(tmp_path: Path) -> None:
    bad = pa.StringArray.from_buffers(2, pa.py_buffer(np.array([0, 1, 2], np.int32)), pa.py_buffer(b"x\xff"))
    table = pa.table({"a": bad, "b": [1, 2]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    with pa.ipc.new_file(tmp_path / "t.arrow", table.schema) as writer:
        writer.write_table(table)
    for source in (table, tmp_path / "t.parquet", tmp_path / "t.arrow"):
        refused(source, DOMAIN, "column 'a'", "UTF-8")
    refused(write(tmp_path / "t.json", b'[{"a": "\xff", "b": 1}]'), DOMAIN, "UTF-8")
    refused(write(tmp_path / "t.json", r'[{"a": "\ud800", "b": 1}]'), DOMAIN, "half a character")


def test_json_cells_go_by_the_schema(tmp_path: Path) -> None:
    domain = Domain((*DOMAIN.columns, Items("i", 9)))
    records = [
        '{"a": "x", "b": 1, "i": [3, 1]}',
        '{"b": "2.0", "i": "4 5"}',
        '{"a": true, "b": 9e0, "i": null, "other": {"x": [1]}}',
        '{"i": ["7"], "b": 0.5, "a": 3}',
    ]
    for name, text in (("t.json", f"[{', '.join(records)}]"), ("t.jsonl", "\n".join(records))):
        rows = encode(write(tmp_path / name, text), domain).to_rows()
        assert rows[:, :2].tolist() == [[0, 0], [1, 1], [1, 4], [1, 0]]
        assert [np.flatnonzero(row[2:]).tolist() for row in rows] == [[0, 2], [3, 4], [], [6]]
    for cell in ("[1]", '{"x": 1}'):
        refused(write(tmp_path / "t.json", f'[{{"a": {cell}, "b": 1}}]'), DOMAIN, "column 'a'")
    for items in ("[null]", "[[1]]", "[1.5]", '{"x": 1}', '["x"]', "[true]"):
        refused(write(tmp_path / "t.json", f'[{{"item": {items}}}]'), BASKETS, "'item'")


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}',
        '[{"a": 1},',
        '[{"a": 1},]',
        '[{"a": 1}]]',
        '[{"a": 1}] {"a": 1}',
        '{"a": 1}}',
        '{"a": 1},{"a": 1}',
        '[{"a": "x},{"a": "y"}]',
        '{"a": "x}\n{"a": "y"}',
        "[1]",
        '["a"]',
        "[" * 100_000,
        '[{"a": ' + "[" * 100_000,
        '{"a"',
        "",
        "nul",
    ],
)
def test_json_that_is_none(tmp_path: Path, text: str) -> None:
    refused(write(tmp_path / "t.json", text), Domain((Categorical("a", ("1",)),)), "t.json")


def test_carriage_returns_in_transactions(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.dat", "1 2\r3 4\r5\r"), BASKETS, "carriage return", "after 3 bytes")
    assert encode(write(tmp_path / "t.dat", "1 2\r\n3 4\r\n5\r\n"), BASKETS).rows == 3


def test_partitions_are_texts(tmp_path: Path) -> None:
    def put(folder: str) -> None:
        (tmp_path / folder).mkdir()
        pyarrow.parquet.write_table(pa.table({"b": [1]}), tmp_path / folder / "part.parquet")

    domain = Domain((Categorical("a", ("7", "007", "x")), DOMAIN.columns[1]))
    put("a=007")
    assert encode(tmp_path, domain).columns[0].tolist() == [1]
    put("a=x")
    assert encode(tmp_path, domain).columns[0].tolist() == [1, 2]
    pyarrow.parquet.write_table(pa.table({"c": [1]}), tmp_path / "a=x" / "zz.parquet")
    refused(tmp_path, domain, "has no column 'b'")


def test_decimals_and_times_do_not_hang_on_their_neighbours() -> None:
    column = Categorical("a", ("1.5", "2.50", "2020-01-31 12:00:00", "other"), unknown="other")
    for more in (Decimal("1.255"), Decimal("3")):
        frame = pd.DataFrame({"a": [Decimal("1.5"), Decimal("2.5"), more]})
        assert encode(frame, Domain((column,))).columns[0].tolist() == [0, 1, 3]
    for unit in ("s", "ms", "us", "ns"):
        times = pa.array([datetime(2020, 1, 31, 12), datetime(2020, 2, 1)], pa.timestamp(unit))
        assert encode(pa.table({"a": times}), Domain((column,))).columns[0].tolist() == [2, 3]


STRANGE = [
    pa.array([[1]], pa.list_(pa.int8())), pa.array([{"x": 1}]),
    pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int8())), pa.array([(1, 2, 3)], pa.month_day_nano_interval()),
    pa.array([1], pa.duration("s")), pa.array([1], pa.time32("s")),
    pa.array([b"\xff"], pa.binary()), pa.array([b"x"], pa.binary_view()), pa.array(["x"], pa.string_view()),
    pa.array([np.float16(1.5)], pa.float16()), pa.array([2**64 - 1], pa.uint64()),
    pa.array([[1, 2]], pa.list_view(pa.int8())),
    pa.RunEndEncodedArray.from_arrays([1], ["x"]), pa.nulls(1), pa.array([[[1]]]), pa.array([Decimal(10) ** 60]),
    pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])]), pa.array([[None]], pa.list_(pa.null())),
    pa.array([[2**64 - 1]], pa.list_(pa.uint64())), pa.array([[1.5]]), pa.array([["1"]]), pa.array([[b"1"]]),
    pa.array([[1]], pa.large_list_view(pa.int8())), pa.array([b"xx"], pa.binary(2)), pa.array([1], pa.date64()),
]  # fmt: skip


@pytest.mark.parametrize("cells", STRANGE, ids=lambda cells: str(cells.type))
@pytest.mark.parametrize(
    "column", [DOMAIN.columns[0], equal_width("a", 0, 1, 2, missing="?"), Items("a", 9)], ids=["c", "n", "i"]
)
def test_cells_of_strange_types_give_a_code_or_a_sentence(cells: pa.Array, column: Column) -> None:
    table = pa.table({"a": cells})
    for schema in (Schema(Domain((column,))), Schema(Domain((column,)), drop_rows_containing="x")):
        with suppress(DataError):
            assert encode(table, schema).rows <= 1
    with suppress(DataError):
        assert schema_draft(table).schema.draft


def test_frames_with_an_index_or_large_numbers() -> None:
    frame = pd.DataFrame({"a": ["x", "y"], "b": [1, 2]}, index=["r", "s"])
    assert encode(frame, DOMAIN).rows == 2
    refused(pd.DataFrame({"a": ["x"], "b": [2**70]}, dtype=object), DOMAIN, "column 'b'")


def test_a_draft_carries_its_mark() -> None:
    table = pd.DataFrame({"a": ["x", "y"]})
    schema = schema_draft(table).schema
    assert schema.draft
    text = str(schema_draft(table))
    assert parse_schema(text, origin="draft") == schema
    # Without its comments it is still a draft, and so is what a certificate keeps of it.
    bare = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert parse_schema(bare, origin="draft").draft
    assert parse_schema(schema_text(schema), origin="certificate").draft
    edited = "\n".join(line for line in bare.splitlines() if not line.startswith("draft"))
    assert parse_schema(edited, origin="schema") == Schema(schema.domain)
    with pytest.raises(DualQueryError, match="'draft' must be true or false"):
        parse_schema("draft = 1\n" + edited, origin="schema")


def test_a_schema_says_whether_it_drops_rows() -> None:
    assert Schema(DOMAIN, drop_rows_containing="?").drops_rows
    assert not Schema(DOMAIN).drops_rows


def test_drafts_of_numbers_that_floats_hardly_tell_apart() -> None:
    for first, step in ((-5e-323, 5e-324), (0.0, 5e-324), (1e16, 2.0), (-1e300, 1e284), (1.0, 2.3e-16)):
        table = pa.table({"a": [first + i * step for i in range(21)]})
        assert encode(table, schema_draft(table).schema).rows == 21
