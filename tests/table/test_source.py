"""Sources that cannot be read: one sentence that names the file or column and quotes no cell."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from dualquery.errors import DataError
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.encoding import decode, encode, record_blocks
from dualquery.table.reading import SOURCES
from dualquery.table.reading.source import WantedColumns, file_source
from dualquery.table.records import SparseItems
from dualquery.table.schema import Schema

DOMAIN = Domain((Categorical("colour", ("red", "green")), equal_width("size", 0, 10, 5)))
BASKETS = Domain((Items("item", 9),))
SECRET = "Klytaimnestra"


def refused(source: object, domain: Domain, *words: str) -> None:
    with pytest.raises(DataError) as raised:
        encode(source, domain)  # type: ignore[arg-type]
    message = str(raised.value)
    assert all(word in message for word in words), message
    assert SECRET not in message
    assert "\n" not in message
    assert raised.value.__cause__ is None
    assert raised.value.__suppress_context__ or raised.value.__context__ is None


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def items(path: Path, domain: Domain = BASKETS) -> list[list[int]]:
    codes = encode(path, domain).columns[0]
    assert isinstance(codes, SparseItems)
    return [part.tolist() for part in np.split(codes.ids, codes.start[1:-1])]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.parquet", "t.feather", "t.json", "t.strange", "t"])
def test_no_such_file(tmp_path: Path, name: str) -> None:
    refused(tmp_path / name, DOMAIN, "there is no file", name)


@pytest.mark.parametrize(
    "name",
    ["t.csv", "t.csv.gz", "t.csv.zst", "t.parquet", "t.feather", "t.arrow", "t.json", "t.xlsx", "t.db"],
)
@pytest.mark.parametrize("content", [b"", b"\x00\xffgarbage\n" * 100, f"{SECRET},3\n".encode() * 9])
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str, content: bytes) -> None:
    refused(write(tmp_path / name, content), DOMAIN, name)


@pytest.mark.parametrize("name", ["t.csv.gz", "t.parquet", "t.feather", "t.arrow", "t.json"])
@pytest.mark.parametrize("share", [0.3, 0.9, 0.999])
def test_a_file_cut_short(tmp_path: Path, name: str, share: float) -> None:
    random = np.random.default_rng(1)
    table = pa.table({"colour": random.choice(["red", "green"], 5000), "size": random.random(5000)})
    path = tmp_path / name
    if name == "t.csv.gz":
        table.to_pandas().to_csv(path, index=False)
    elif name == "t.parquet":
        pyarrow.parquet.write_table(table, path)
    elif name == "t.json":
        table.to_pandas().to_json(path, orient="records")
    elif name == "t.feather":
        pyarrow.feather.write_feather(table, path)
    else:
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table, max_chunksize=100)
    assert encode(path, DOMAIN).rows == 5000
    whole = path.read_bytes()
    refused(write(path, whole[: int(len(whole) * share)]), DOMAIN, name)


def test_a_damaged_archive(tmp_path: Path) -> None:
    text = "colour,size\n" + "".join(f"red,{i % 10}\n" for i in range(5000))
    packed = bytearray(gzip.compress(text.encode()))
    packed[len(packed) // 2] ^= 0xFF
    refused(write(tmp_path / "t.csv.gz", bytes(packed)), DOMAIN, "cut short, damaged")
    two = gzip.compress(text.encode()) + gzip.compress(b"green,1\n")
    assert encode(write(tmp_path / "two.csv.gz", two), DOMAIN).rows == 5001


def test_lines_of_unequal_length(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.csv", f"colour,size\nred,1\n{SECRET}\n"), DOMAIN, "more or fewer cells")
    refused(write(tmp_path / "t.csv", f"colour,size\nred,1,{SECRET}\n"), DOMAIN, "more or fewer cells")
    refused(write(tmp_path / "t.csv", b"colour,size\nr\xe9d,1\n"), DOMAIN, "UTF-8")


def test_missing_columns(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.csv", "colour,weight\nred,1\n"), DOMAIN, "no column 'size'")
    refused(pd.DataFrame({"colour": ["red"]}), DOMAIN, "the table has no column 'size'")
    refused(pl.DataFrame({"colour": ["red"]}), DOMAIN, "no column 'size'")
    pyarrow.parquet.write_table(pa.table({"size": [1]}), tmp_path / "t.parquet")
    refused(tmp_path / "t.parquet", DOMAIN, "t.parquet", "no column 'colour'")
    refused(write(tmp_path / "t.json", '[{"size": 1}]'), DOMAIN, "no column 'colour'")


def test_the_first_line_is_not_quoted_when_it_may_be_a_record(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.csv", f"{SECRET},3\nred,4\n"), DOMAIN, "header line")


def test_columns_twice(tmp_path: Path) -> None:
    refused(write(tmp_path / "t.csv", "size,colour,size\n1,red,2\n"), DOMAIN, "more than one column 'size'")
    assert encode(write(tmp_path / "t.csv", "x,size,x,colour\n1,2,3,red\n"), DOMAIN).rows == 1


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff", "\ufeff\r\n"])
def test_empty_text(tmp_path: Path, text: str) -> None:
    refused(write(tmp_path / "t.csv", text), DOMAIN, "t.csv")


@pytest.mark.parametrize("text", ["colour,size\n", "colour,size", "colour,size\r\n", "\ufeffcolour,size"])
def test_a_header_alone_is_a_table_without_records(tmp_path: Path, text: str) -> None:
    assert encode(write(tmp_path / "t.csv", text), DOMAIN).rows == 0
    assert encode(write(tmp_path / "t.csv", text.replace("colour,size", "item")), BASKETS).rows == 0


def test_empty_tables(tmp_path: Path) -> None:
    empty = pa.table({"colour": pa.array([], pa.string()), "size": pa.array([], pa.float64())})
    pyarrow.parquet.write_table(empty, tmp_path / "t.parquet")
    pyarrow.feather.write_feather(empty, tmp_path / "t.feather")
    files = [tmp_path / "t.parquet", tmp_path / "t.feather"]
    files += [write(tmp_path / "t.json", " [ ] "), write(tmp_path / "t.jsonl", "")]
    for source in (empty, empty.to_pandas(), pl.from_arrow(empty), *files):
        records = encode(source, DOMAIN)
        assert records.rows == 0
        assert decode(records).num_rows == 0
    assert encode(write(tmp_path / "t.dat", ""), BASKETS).rows == 0


def test_things_that_are_not_tables() -> None:
    refused(3, DOMAIN, "int", "not a table")
    refused([{"colour": "red"}], DOMAIN, "list", "not a table")
    odd = pd.DataFrame({"colour": [SECRET, 1j], "size": [1, 2]})
    refused(odd, DOMAIN, "column 'colour' holds cells that are neither texts nor numbers nor dates")


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_told_by_the_header(tmp_path: Path, delimiter: str) -> None:
    text = 'colour, size ,"a;b,c"\nred,1,x\ngreen, 9.5 ,\n'.replace(",", delimiter)
    assert encode(write(tmp_path / "t.csv", text), DOMAIN).to_rows().tolist() == [[0, 0], [1, 4]]


def test_one_column_with_an_empty_line(tmp_path: Path) -> None:
    domain = Domain((Categorical("a", ("x", "none"), missing="none"),))
    assert encode(write(tmp_path / "t.csv", "a\nx\n\nx\n"), domain).columns[0].tolist() == [0, 1, 0]


def test_a_wide_table(tmp_path: Path) -> None:
    names = [f"c{i}" for i in range(5_000)]
    text = ",".join(names) + "\n" + ",".join(["1"] * len(names)) + "\n"
    domain = Domain(tuple(Categorical(name, ("0", "1")) for name in names))
    records = encode(write(tmp_path / "t.csv", text), domain)
    assert records.rows == 1
    assert decode(records).num_columns == 5_000


def test_transactions(tmp_path: Path) -> None:
    text = "3 1 3\n\n 9\t2 \r\n7"
    wanted = [[0, 2], [], [1, 8], [6]]
    assert items(write(tmp_path / "t.dat", text)) == wanted
    assert items(write(tmp_path / "t.txt", text)) == wanted
    assert items(write(tmp_path / "t.txt.gz", gzip.compress(text.encode()))) == wanted
    refused(write(tmp_path / "cut.txt.gz", gzip.compress(text.encode())[:-9]), BASKETS, "cut short")
    assert items(write(tmp_path / "t.txt", "\n \n")) == [[], []]
    assert items(write(tmp_path / "t.csv", "item,other\n3 1 3,x\n,x\n9 2,x\n7,x\n")) == wanted
    assert items(write(tmp_path / "t.json", '[{"item": [3, 1]}, {"item": []}, {"item": null}]')) == [
        [0, 2],
        [],
        [],
    ]


@pytest.mark.parametrize(
    "text", ["1 10\n", "0\n", "99999999999999999999999\n", f"{SECRET}\n", "1,2\n", "-1\n", "1.5\n", "１\n"]
)
def test_transactions_with_strange_items(tmp_path: Path, text: str) -> None:
    refused(write(tmp_path / "t.dat", text), BASKETS, "item")
    refused(write(tmp_path / "t.csv", f'item,other\n"{text.strip()}",x\n'), BASKETS, "'item'")


def test_lists_with_strange_items() -> None:
    for lists in ([[1.5]], [[None]], [["x"]], [[10]], [[-1]], [[2**63 - 1]], [{"a": 1}]):
        refused(pa.table({"item": lists}), BASKETS, "'item'")
    kinds = [
        pa.list_(pa.uint8()), pa.large_list(pa.int64()), pa.list_(pa.float64()), pa.list_(pa.int16(), 2)
    ]  # fmt: skip
    for kind in kinds:
        table = pa.table(
            {"item": pa.chunked_array([pa.array([[2, 1], None], kind), pa.array([[9, 9]], kind)])}
        )
        assert encode(table.slice(0, 3), BASKETS).to_rows().sum(axis=1).tolist() == [2, 0, 1]
        assert encode(table.slice(2, 1), BASKETS).to_rows()[0, 8] == 1


def test_columns_in_the_names_of_folders_are_read_at_once_and_in_blocks(tmp_path: Path) -> None:
    for colour, sizes in (("red", [1.0, 3.0]), ("green", [5.0])):
        folder = tmp_path / f"colour={colour}"
        folder.mkdir()
        pyarrow.parquet.write_table(pa.table({"size": sizes}), folder / "part.parquet")
    whole = encode(tmp_path, DOMAIN).to_rows()
    blocks = [block.to_rows() for block in record_blocks(tmp_path, Schema(DOMAIN), rows=1)]
    assert whole.tolist() == np.concatenate(blocks).tolist() == [[1, 2], [0, 0], [0, 1]]
    refused(tmp_path, Domain((Categorical("shape", ("round",)),)), "no column 'shape'")


def test_a_source_is_one_value_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(path: Path, wanted: WantedColumns) -> Iterator[pa.Table]:
        for line in path.read_text().splitlines():
            yield pa.table({"colour": [line], "size": ["1"]}).select(wanted.names)

    path = write(tmp_path / "a.colours", "red\ngreen\n")
    write(tmp_path / "b.colours", "green\n")
    refused(path, DOMAIN, "unsupported file type")
    monkeypatch.setitem(SOURCES, "colours", file_source({".colours"}, batches, name="colours"))
    assert encode(path, DOMAIN).to_rows().tolist() == [[0, 0], [1, 0]]
    assert encode(str(tmp_path / "*.colours"), DOMAIN).rows == 3
    assert len(list(record_blocks(path, Schema(DOMAIN), rows=1))) == 2
