"""Mutated inputs: a sentence or a table, never a traceback, and never fewer records than the file has."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from dualquery.errors import DataError, DualQueryError
from dualquery.table.domain import Categorical, Domain, Items, equal_width
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import decode, encode
from dualquery.table.schema import Schema, parse_schema, read_schema, schema_text
from tests.table.slow_grammar import slow_records

FEW, MANY = 100, 10_000

NAMES = ("a", "b", "c")
OPEN = Domain(
    tuple(Categorical(name, ("x", "y", "other"), unknown="other", missing="other") for name in NAMES)
)
MIXED = Domain(
    (
        OPEN.columns[0],
        equal_width("b", 0, 10, 5, clamp=True, missing="?"),
        Items("c", 40),
    )
)
BASKETS = Domain((Items("c", 40),))
TABLE = pa.table(
    {
        "a": ["x", "y", "longer", None, "", "é"] * 5,
        "b": [1.5, None, 3.0, 9.0, -1.0, float("nan")] * 5,
        "c": [[1, 2], [], None, [40], [7, 7, 3], [5]] * 5,
    }
)
HEADER = b"a,b,c\n"
LINES = 'x,y,z\n"x","y ""y""",\n,,"a\nb"\nx,2 3 4,"1, 2"\r\n' * 8
SPECIAL = (
    [bytes([i]) for i in range(256)]
    + [b'"', b"\n", b"\r", b",", b'""', b'"\n', b"\xef\xbb\xbf", b"\xff\xff\xff\xff", b"\x00" * 4, b"{", b"}"]
    + [b"[", b"]", b":", b"= ", b"1e999", b"99999999999999999999999", b"-", b"nan", b"\\ud800", b"'''", b"#"]
)


def mutated(content: bytes, random: np.random.Generator) -> bytes:
    """One byte changed, or a few bytes changed, put in, taken out, doubled or cut off."""
    if random.random() < 0.5:
        at = int(random.integers(0, len(content)))
        return content[:at] + bytes([content[at] ^ (1 << int(random.integers(0, 8)))]) + content[at + 1 :]
    for _ in range(int(random.integers(1, 6))):
        at, length = int(random.integers(0, len(content) + 1)), int(random.integers(1, 20))
        other = int(random.integers(0, len(content) + 1))
        piece = SPECIAL[int(random.integers(0, len(SPECIAL)))]
        content = (
            content[:at] + piece + content[at + len(piece) :],
            content[:at] + piece + content[at:],
            content[:at] + content[at + length :],
            content[:at] + content[other : other + length] + content[at:],
            content[:at] if random.random() < 0.2 else content,
            content[: len(content) // 2] + piece + content[len(content) // 2 :],
        )[int(random.integers(0, 6))]
    return content


def parquet(path: Path) -> None:
    # Without compression and dictionaries damage reaches the values; with them, the decoders.
    pyarrow.parquet.write_table(TABLE, path, compression="none", use_dictionary=False)


def compressed(path: Path) -> None:
    pyarrow.parquet.write_table(TABLE, path)


def feather(path: Path) -> None:
    pyarrow.feather.write_feather(TABLE, path, compression="uncompressed")


def text(path: Path) -> None:
    lines = [
        f'"{row["a"] or ""}",{"" if row["b"] is None else row["b"]},{" ".join(map(str, row["c"] or []))}\n'
        for row in TABLE.to_pylist()
    ]
    path.write_bytes(HEADER + "".join(lines).encode())


def objects(path: Path) -> None:
    rows = TABLE.to_pylist()
    lines = path.suffix == ".jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) if lines else json.dumps(rows))


SOURCES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "csv": ("t.csv", text),
    "parquet": ("t.parquet", parquet),
    "parquet, compressed": ("t.parquet", compressed),
    "arrow": ("t.feather", feather),
    "json": ("t.json", objects),
    "ndjson": ("t.jsonl", objects),
}


def each(count: int, content: bytes, path: Path, seed: int) -> list[bytes]:
    random = np.random.default_rng(seed)
    return [mutated(content, random) for _ in range(count)]


def check_files(name: str, folder: Path, count: int) -> int:
    """The number of mutated files that were still read."""
    file, make = SOURCES[name]
    path = folder / file
    make(path)
    read = 0
    for content in each(count, path.read_bytes(), path, seed=7):
        path.write_bytes(content)
        for domain in (OPEN, MIXED, Schema(MIXED, drop_rows_containing="x")):
            with suppress(DualQueryError):
                decode(encode(path, domain))
                read += 1
        with suppress(DualQueryError):
            str(schema_draft(path))
    return read


def check_csv(folder: Path, count: int) -> int:
    path = folder / "t.csv"
    read = 0
    for content in each(count, LINES.encode(), path, seed=8):
        path.write_bytes(HEADER + content)
        wanted = slow_records(HEADER + content, ord(","), 3)
        try:
            found: int | None = encode(path, OPEN).rows
        except DataError as error:
            # In the grammar, and refused: only because it is no text.
            found = wanted - 1 if wanted is not None and "UTF-8" in str(error) else None
        assert found == (None if wanted is None else wanted - 1), content
        read += found is not None
    return read


def check_transactions(folder: Path, count: int) -> int:
    path = folder / "t.dat"
    read = 0
    for content in each(count, b"1 2 3\n\n40 7\r\n5 5\n" * 8, path, seed=9):
        path.write_bytes(content)
        with suppress(DataError):
            lines = content.split(b"\n")
            assert encode(path, BASKETS).rows == len(lines) - (lines[-1] == b"")
            read += 1
        with suppress(DualQueryError):
            str(schema_draft(path))
    return read


def check_schemas(folder: Path, count: int) -> int:
    path = folder / "schema.toml"
    whole = schema_text(Schema(MIXED, drop_rows_containing="?", draft=True), heading="A table").encode()
    read = 0
    for content in each(count, whole, path, seed=10):
        path.write_bytes(content)
        with suppress(DualQueryError):
            schema = read_schema(path)
            assert parse_schema(schema_text(schema), origin="again") == schema
            read += 1
    return read


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SOURCES)
def test_mutated_files(name: str, count: int, tmp_path: Path) -> None:
    assert 0 < check_files(name, tmp_path, count) < 3 * count


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("check", [check_csv, check_transactions, check_schemas])
def test_mutated_texts(check: Callable[[Path, int], int], count: int, tmp_path: Path) -> None:
    assert 0 < check(tmp_path, count) < count
