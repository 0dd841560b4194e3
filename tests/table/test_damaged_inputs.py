"""A second fuzzer: real tables in every format, damaged by somebody who knows the format, and byte by byte.

Text formats are taken apart into their tokens, which are swapped, doubled, left out and exchanged for hostile ones;
archives are opened and what is in them is damaged, so that the damage lies behind the checksums of the container.
Whatever comes out is read, streamed and drafted: a table or one of our own errors, never a traceback.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import openpyxl
import pyarrow as pa
import pyarrow.parquet
import pytest

from dualquery.errors import DualQueryError
from dualquery.table.draft import schema_draft
from dualquery.table.encoding import encode, record_blocks
from dualquery.table.schema import Schema, parse_schema, read_schema, schema_text

TOML = """
[table]
unit = "who"
[[attribute]]
name = "place"
values = ["north", "south", "é", "other"]
unknown = "other"
missing = "none"
[[attribute]]
name = "paid"
low = 0
high = 100
bins = 5
clamp = true
missing = "none"
empty = ["?", "-9"]
[[attribute]]
name = "seen"
from = "2024-01"
to = "2024-12"
by = "month"
clamp = true
missing = "none"
"""
SCHEMA = parse_schema(TOML, origin="t")
BASKETS = parse_schema('[[attribute]]\nname = "item"\ncount = 50\nfirst = 0\n', origin="t")
ROWS = [
    {"who": i // 2, "place": ("north", "south", "é", 'a "b", c', None)[i % 5], "paid": (1.5, None, -9, 40)[i % 4],
     "seen": ("2024-03-01", "2024-05-02T10:30:00+09:00", None)[i % 3]}
    for i in range(24)
]  # fmt: skip
NAMES = list(ROWS[0])
HOSTILE = (
    "", " ", "0", "-0", "1", "-1", "1e999", "1e-999", "nan", "inf", "NaN", "Infinity", "9" * 25, "9" * 5000, "2**63",
    "0x10", "null", "true", "\0", "\x1a", "\u2028", "\ufeff", "\ud800", "\U0010ffff", "é", "A" * 70_000,
    "'", '"', '""',
    "\\", "\\u0000", "\\ud800", "\n", "\r", "\r\n", ",", ";", "\t", "|", "[", "]", "{", "}", "[[", "]]", ":", "=",
    "#",
    "0000-00-00", "9999-12-31", "2024-02-30", "10000-01-01", "24:00", "place", "who", "&#0;", "&x;", "<", "<row>",
    "/>",
    "<!DOCTYPE a [<!ENTITY b 'c'>]>", "%s", "{0}", "../x", "[" * 3000,
)  # fmt: skip
TOKENS = re.compile(r"\w+|\s+|[^\w\s]")


def by_tokens(text: bytes, dice: random.Random) -> bytes:
    """The tokens of a text in a worse order, or some hostile ones among them."""
    parts = TOKENS.findall(text.decode("utf-8", "surrogateescape"))
    for _ in range(dice.choice((1, 1, 2, 5))):
        at, other = dice.randrange(len(parts) + 1), dice.randrange(len(parts) + 1)
        move = dice.randrange(6)
        if move == 0:
            parts[at:at] = [dice.choice(HOSTILE)]
        elif move == 1:
            parts[at : at + 1] = [dice.choice(HOSTILE)]
        elif move == 2:
            del parts[at : at + dice.choice((1, 1, 3, 20))]
        elif move == 3:
            parts[at:at] = parts[other : other + dice.choice((1, 4, 40))]
        elif move == 4 and parts:
            a, b = at % len(parts), other % len(parts)
            parts[a], parts[b] = parts[b], parts[a]
        else:
            del parts[max(1, at) :]
    return "".join(parts).encode("utf-8", "surrogatepass" if dice.random() < 0.5 else "replace")


def by_bytes(content: bytes, dice: random.Random) -> bytes:
    """Bits turned, words overwritten, pieces exchanged, lengths changed."""
    data = bytearray(content)
    for _ in range(dice.choice((1, 1, 1, 3, 10))):
        if not data:
            break
        at, move = dice.randrange(len(data)), dice.randrange(6)
        if move == 0:
            data[at] ^= 1 << dice.randrange(8)
        elif move == 1:
            word = dice.choice((0, 1, 0x7F, 0xFF, 0x7FFFFFFF, 0xFFFFFFFF, 0x80000000, dice.getrandbits(32)))
            data[at : at + 4] = word.to_bytes(4, dice.choice(("little", "big")))[: len(data) - at]
        elif move == 2:
            other, size = dice.randrange(len(data)), dice.choice((1, 8, 64))
            data[at : at + size], data[other : other + size] = (
                data[other : other + size],
                data[at : at + size],
            )
        elif move == 3:
            del data[at : at + dice.choice((1, 4, 100))]
        elif move == 4:
            data[at:at] = bytes(dice.choice((1, 4, 100)))
        elif dice.random() < 0.3:
            del data[at:]
    return bytes(data)


def either(content: bytes, dice: random.Random) -> bytes:
    return (by_tokens if dice.random() < 0.6 else by_bytes)(content, dice)


def within_gzip(content: bytes, dice: random.Random) -> bytes:
    """The text inside, or the archive around it."""
    if dice.random() < 0.5:
        return gzip.compress(either(gzip.decompress(content), dice), 1, mtime=0)
    return by_bytes(content, dice)


def within_zip(content: bytes, dice: random.Random) -> bytes:
    """A part of a workbook, with the checksum that belongs to it; or the archive."""
    if dice.random() < 0.2:
        return by_bytes(content, dice)
    with zipfile.ZipFile(io.BytesIO(content)) as book:
        parts = {name: book.read(name) for name in book.namelist()}
    name = dice.choice([name for name in parts if "sheet" in name] if dice.random() < 0.5 else list(parts))
    if dice.random() < 0.1:
        del parts[name]
    else:
        parts[name] = either(parts[name], dice)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as book:
        for part, text in parts.items():
            book.writestr(part, text)
    return out.getvalue()


def behind_the_head(content: bytes, dice: random.Random) -> bytes:
    """Damage in the footer of a binary file, where sizes and types stand, or anywhere."""
    cut = len(content) - dice.choice((200, 1000, len(content)))
    return content[: max(0, cut)] + by_bytes(content[max(0, cut) :], dice)


def text_table(delimiter: str) -> bytes:
    cells = [["" if row[name] is None else str(row[name]) for name in NAMES] for row in ROWS]
    quoted = [
        [f'"{cell.replace(chr(34), chr(34) * 2)}"' if '"' in cell else cell for cell in row] for row in cells
    ]
    return "".join(delimiter.join(row) + "\n" for row in [NAMES, *quoted]).encode()


def workbook() -> bytes:
    book, out = openpyxl.Workbook(), io.BytesIO()
    assert book.active is not None
    for row in [NAMES, *([row[name] for name in NAMES] for row in ROWS)]:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def database(folder: Path) -> bytes:
    path = folder / "made.sqlite"
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as base:
        base.execute("create table t (who, place text, paid real, seen)")
        base.executemany("insert into t values (?, ?, ?, ?)", [tuple(row.values()) for row in ROWS])
        base.commit()
    return path.read_bytes()


def parquet(**options: object) -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(ROWS), out, row_group_size=9, **options)
    return out.getvalue()


def arrow(*, file: bool) -> bytes:
    out, table = io.BytesIO(), pa.Table.from_pylist(ROWS)
    with (pa.ipc.new_file if file else pa.ipc.new_stream)(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=9)
    return out.getvalue()


LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
Damage = Callable[[bytes, random.Random], bytes]
INPUTS: dict[str, tuple[Callable[[Path], bytes], Damage]] = {
    "t.csv": (lambda _: text_table(","), either),
    "t.tsv": (lambda _: text_table("\t"), either),
    "t.csv.gz": (lambda _: gzip.compress(text_table(";"), mtime=0), within_gzip),
    "t.json": (lambda _: json.dumps(ROWS).encode(), either),
    "t.jsonl": (lambda _: LINES, either),
    "t.ndjson.gz": (lambda _: gzip.compress(LINES, mtime=0), within_gzip),
    "t.xlsx": (lambda _: workbook(), within_zip),
    "t.parquet": (lambda _: parquet(), behind_the_head),
    "plain.parquet": (lambda _: parquet(compression="none", use_dictionary=False), behind_the_head),
    "t.arrow": (lambda _: arrow(file=True), behind_the_head),
    "t.arrows": (lambda _: arrow(file=False), behind_the_head),
    "t.sqlite": (database, by_bytes),
    "t.dat": (lambda _: b"1 2 3\n\n49 7\r\n5 5\n0\n" * 5, either),
    "schema.toml": (lambda _: TOML.encode(), either),
}
ENCODINGS = (
    "latin-1",
    "cp1252",
    "utf-16",
    "utf-16-le",
    "utf-32",
    "gbk",
    "shift_jis",
    "big5",
    "cp037",
    "koi8-r",
)


def tried(path: Path) -> bool:
    """Whether a file was read in any of the ways there are."""
    if path.suffix == ".toml":
        schema = read_schema(path)
        return parse_schema(schema_text(schema), origin="again") == schema
    schema = BASKETS if path.suffix == ".dat" else SCHEMA
    ways: list[Callable[[], object]] = [
        lambda: encode(path, schema),
        lambda: list(record_blocks(path, schema, rows=7)),
        lambda: str(schema_draft(path)),
    ]
    if schema.unit is not None:
        ways.append(lambda: encode(path, schema, records_per_person=1))
    done = 0
    for way in ways:
        with suppress(DualQueryError):
            way()
            done += 1
    return done > 0


def check(name: str, folder: Path, count: int, seed: int) -> int:
    """How many damaged inputs of a kind were still read."""
    make, damage = INPUTS[name]
    whole, dice, read = make(folder), random.Random(f"{name} {seed}"), 0
    path = folder / name
    path.write_bytes(whole)
    assert tried(path), "undamaged it is read"
    for number in range(count):
        path.write_bytes(damage(whole, dice))
        try:
            read += tried(path)
        except DualQueryError:
            pass
        except Exception as error:
            error.add_note(f"input {number} of {name}, seed {seed}")
            raise
    return read


def check_encodings(folder: Path, count: int, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(count):
        encoding = ENCODINGS[number % len(ENCODINGS)]
        schema = Schema(SCHEMA.domain, encoding=encoding)
        (folder / "e.csv").write_bytes(either(text_table(",").decode().encode(encoding, "replace"), dice))
        with suppress(DualQueryError):
            encode(folder / "e.csv", schema)
        with suppress(DualQueryError):
            list(record_blocks(folder / "e.csv", schema, rows=7))


FEW, MANY = 20, 334  # of each of the fifteen kinds: 300, and 5,010


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", INPUTS)
def test_damaged_inputs(name: str, count: int, tmp_path: Path) -> None:
    assert check(name, tmp_path, count, seed=count) < count


@pytest.mark.parametrize("count", [FEW, pytest.param(MANY, marks=pytest.mark.long)])
def test_damaged_texts_in_other_encodings(count: int, tmp_path: Path) -> None:
    check_encodings(tmp_path, count, seed=count)
