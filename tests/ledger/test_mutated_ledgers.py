"""Mutated ledgers: whatever was done to a file, it is refused in a sentence, or says exactly what was written.

Two kinds: bytes of the file (bits, pages, lengths), where a mutation may hit what nobody reads; and rows, edited by
somebody who knows SQL and has dropped the triggers for the purpose and put them back.
"""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from dualquery import DualQueryError, LedgerError, Neighbours
from dualquery.ledger import Head, NewLine, chained, storage
from dualquery.ledger.book import Statement
from dualquery.ledger.books import Books, create
from dualquery.ledger.storage import engine_of

CHARGES = 12
PAGE = 4096
Mutation = Callable[[bytearray, random.Random], bytes]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger with two books, and with an older copy beside it."""
    path = tmp_path_factory.mktemp("ledgers") / "people.ledger"
    for name in ("people", "houses"):
        create(path, name=name, epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE)
    for number in range(CHARGES):
        Books(path).charge("people", units=1000 + number, what=f"release {number}")
        if number == CHARGES - 4:
            shutil.copy(path, path.with_suffix(".old"))
    return path


def bits(content: bytearray, chance: random.Random) -> bytes:
    for _ in range(chance.choice([1, 1, 1, 2, 5, 20])):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    return content


def header(content: bytearray, chance: random.Random) -> bytes:
    content[chance.randrange(100)] = chance.randrange(256)
    return content


def where_something_is(content: bytearray, chance: random.Random) -> bytes:
    used = [place for place in range(len(content)) if content[place]]
    content[chance.choice(used)] = chance.randrange(256)
    return content


def shorter(content: bytearray, chance: random.Random) -> bytes:
    return content[
        : chance.choice([chance.randrange(len(content)), PAGE * chance.randrange(len(content) // PAGE)])
    ]


def longer(content: bytearray, chance: random.Random) -> bytes:
    return content + chance.randbytes(chance.choice([1, 100, PAGE]))


def blank(content: bytearray, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    end = min(len(content), start + chance.choice([4, 64, PAGE]))
    content[start:end] = bytes(end - start)
    return content


def pages(content: bytearray, chance: random.Random) -> bytes:
    one, other = (PAGE * chance.randrange(len(content) // PAGE) for _ in range(2))
    first, second = content[one : one + PAGE], content[other : other + PAGE]
    content[one : one + PAGE], content[other : other + PAGE] = second, first
    return content


def numbers(content: bytearray, chance: random.Random) -> bytes:
    """A digit of a text, or a byte of a hash, becomes another."""
    digits = [place for place in range(len(content)) if chr(content[place]) in "0123456789abcdef"]
    content[chance.choice(digits)] = ord(chance.choice("0123456789abcdef"))
    return content


BYTES: list[Mutation] = [bits, header, where_something_is, shorter, longer, blank, pages, numbers]


def outcome(path: Path, truth: Statement) -> str:
    """Refused in a sentence, or intact; anything else is a failure of the test."""
    try:
        found = Books(path).read("people")
    except DualQueryError as error:
        sentence = str(error)
    else:
        assert found == truth, "changed, and believed"
        return "intact"
    assert "\n" not in sentence
    assert len(sentence) < 400
    return "refused"


def mutate_bytes(original: Path, folder: Path, count: int, seed: int) -> Counter[str]:
    chance, truth, content = random.Random(seed), Books(original).read("people"), original.read_bytes()
    seen: Counter[str] = Counter()
    path = folder / "mutated.ledger"
    for number in range(count):
        kind = BYTES[number % len(BYTES)]
        for left in folder.iterdir():  # journals of files that are gone
            left.unlink()
        path.write_bytes(kind(bytearray(content), chance))
        seen[f"{kind.__name__}: {outcome(path, truth)}"] += 1
    return seen


def edited(path: Path, statements: list[str], *, guards: bool = True) -> None:
    """As somebody would who has the file: without triggers and constraints, which are put back afterwards."""
    connection = sqlite3.connect(path, isolation_level=None)
    triggers = [text for text in storage.definitions("sqlite") if text.startswith("CREATE TRIGGER")]
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute("PRAGMA ignore_check_constraints = ON")
    for text in triggers:
        connection.execute(f"DROP TRIGGER {text.split()[2]}")
    for statement in statements:
        with suppress(sqlite3.IntegrityError):  # NOT NULL and UNIQUE stay in the way
            connection.execute(statement)
    if guards:
        for text in triggers:
            connection.execute(text)
    connection.close()


def row_mutation(chance: random.Random) -> list[str]:
    one, other = chance.sample(range(1, CHARGES + 1), 2)
    small = chance.randrange(1, 10**6)
    own = f"chain = 1 AND sequence = {one}"
    book_column = chance.choice(
        ["format", "kind", "name", "nonce", "promise", "created", "origin", "length", "head"]
    )
    column = chance.choice(
        [
            "sequence",
            "kind",
            "analyst",
            "key",
            "request",
            "body",
            "reply",
            "units",
            "spent_after",
            "previous",
            "hash",
        ]
    )
    value = chance.choice(
        ["'x'", "NULL", "-1", "0", "1.5", "x'00ff'", "9223372036854775807", "''", "char(0)", "1e999"]
    )
    return chance.choice(
        [
            [f"UPDATE dualquery_lines SET {column} = {value} WHERE {own}"],
            [f"UPDATE dualquery_lines SET units = units + {small} WHERE {own}"],
            [
                f"UPDATE dualquery_lines SET units = units - 1 WHERE {own}",
                "UPDATE dualquery_chains SET spent = spent - 1",
            ],
            [f"UPDATE dualquery_chains SET cap = cap + {small} WHERE id = 1"],
            [f"UPDATE dualquery_chains SET cap = {value} WHERE id = 1"],
            [f"UPDATE dualquery_chains SET spent = {value} WHERE id = 1"],
            [f"UPDATE dualquery_chains SET spent = spent + {small} WHERE id = 1"],
            [f"UPDATE dualquery_chains SET spent = spent - {chance.randrange(1, 12000)} WHERE id = 1"],
            [f"UPDATE dualquery_chains SET {book_column} = {value} WHERE id = 1"],
            ["UPDATE dualquery_chains SET promise = replace(promise, '1.0', '10.0') WHERE id = 1"],
            ["UPDATE dualquery_chains SET promise = replace(promise, '1e-06', '0.01') WHERE id = 1"],
            [f"DELETE FROM dualquery_lines WHERE {own}"],
            [f"DELETE FROM dualquery_lines WHERE sequence >= {one}"],
            ["DELETE FROM dualquery_lines"],
            ["DELETE FROM dualquery_chains WHERE id = 1"],
            [
                f"UPDATE dualquery_lines SET sequence = 1000 WHERE {own}",
                f"UPDATE dualquery_lines SET sequence = {one} WHERE sequence = {other}",
                f"UPDATE dualquery_lines SET sequence = {other} WHERE sequence = 1000",
            ],
            [f"UPDATE dualquery_lines SET chain = 2 WHERE {own}"],
            [
                "INSERT INTO dualquery_lines SELECT chain, 13, kind, analyst, 'new', request, body, reply, 5, "
                "spent_after + 5, hash, 'h' FROM dualquery_lines WHERE sequence = 12",
                "UPDATE dualquery_chains SET spent = spent + 5, length = 13, head = 'h' WHERE id = 1",
            ],
            ["UPDATE dualquery_chains SET id = 3 WHERE id = 1"],
            ["DROP TABLE dualquery_lines"],
            ["CREATE TABLE other (x)"],
            ["CREATE VIEW other AS SELECT 1"],
            ["CREATE INDEX other ON dualquery_lines (units)"],
            [f"ALTER TABLE dualquery_lines ADD COLUMN more DEFAULT {small}"],
        ]
    )  # fmt: skip


def mutate_rows(original: Path, folder: Path, count: int, seed: int) -> Counter[str]:
    """Every change of a row is refused; one that changes nothing (0 to 0, a constraint in the way) is intact."""
    chance, truth = random.Random(seed), Books(original).read("people")
    seen: Counter[str] = Counter()
    path = folder / "mutated.ledger"
    for _ in range(count):
        for left in folder.iterdir():
            left.unlink()
        shutil.copy(original, path)
        with suppress(sqlite3.OperationalError):  # the table of the triggers is gone
            edited(path, row_mutation(chance))
        seen[f"rows: {outcome(path, truth)}"] += 1
    return seen


def check(original: Path, folder: Path, count: int, seed: int) -> Counter[str]:
    folder.mkdir()
    seen = mutate_bytes(original, folder, count * 2 // 3, seed) + mutate_rows(
        original, folder, count // 3, seed
    )
    assert seen["rows: refused"] > 0.9 * (count // 3)
    assert sum(times for kind, times in seen.items() if kind.endswith("refused")) > count / 2
    return seen


def test_mutated_ledgers_are_refused_or_intact(original: Path, tmp_path: Path) -> None:
    check(original, tmp_path / "mutated", 300, seed=1)


@pytest.mark.long
def test_ten_thousand_mutated_ledgers(original: Path, tmp_path: Path) -> None:
    print(sorted(check(original, tmp_path / "mutated", 10_000, seed=2).items()))


def test_a_ledger_without_its_triggers_is_refused(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copy(original, path)
    edited(path, [], guards=False)
    with pytest.raises(LedgerError, match="triggers were changed"):
        Books(path).read("people")
    shutil.copy(original, path)
    edited(path, [], guards=True)
    assert Books(path).read("people") == Books(original).read("people")


def test_a_forged_charge_with_the_right_hash_breaks_the_ones_behind_it(
    original: Path, tmp_path: Path
) -> None:
    path = tmp_path / "copy"
    shutil.copy(original, path)
    statement = Books(path).read("people")
    before, own = statement.charges[3], statement.charges[4]
    body = json.dumps({"day": own.day, "what": "nothing"}, sort_keys=True)
    draft = NewLine(kind="charge", key=own.release, body=body, units=own.units)
    head = Head(length=4, hash=before.hash, spent=before.spent_after)
    digest = chained(draft, head, origin=statement.book.origin).hash
    edited(path, [f"UPDATE dualquery_lines SET body = '{body}', hash = '{digest}' WHERE sequence = 5"])
    with pytest.raises(LedgerError, match="line 6"):
        Books(path).read("people")


def test_a_mutated_ledger_is_not_charged(original: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy"
    shutil.copy(original, path)
    edited(path, ["UPDATE dualquery_lines SET body = replace(body, 'release', 'nothing') WHERE sequence = 3"])
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="line 3"):
        Books(path).charge("people", units=1, what="some")
    assert path.read_bytes() == before
    Books(path).charge("houses", units=1, what="another book is as it was")


EDITS = [
    "UPDATE dualquery_lines SET units = units - 1 WHERE sequence = 2",
    "UPDATE dualquery_lines SET spent_after = 1, units = 1 WHERE sequence = 2",
    "UPDATE dualquery_lines SET body = E'a\\nb' WHERE sequence = 2",
    "UPDATE dualquery_lines SET hash = repeat('0', 64) WHERE sequence = 3",
    "UPDATE dualquery_lines SET sequence = 9 WHERE sequence = 3",
    "DELETE FROM dualquery_lines WHERE sequence = 3",
    "DELETE FROM dualquery_lines WHERE sequence = 1",
    "DELETE FROM dualquery_lines",
    "UPDATE dualquery_chains SET spent = 0",
    "UPDATE dualquery_chains SET spent = spent - 1",
    "UPDATE dualquery_chains SET cap = 9223372036854775807",
    "UPDATE dualquery_chains SET promise = replace(promise, '1.0', 'nan')",
    "UPDATE dualquery_chains SET format = 2",
    "UPDATE dualquery_chains SET created = ''",
]


def test_edited_rows_of_a_server_are_refused(server: Any) -> None:
    """By an owner who switches the triggers off, edits, and switches them on again."""
    from sqlalchemy import make_url

    place = server.new_database()
    create(place, name="people", epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE)
    for _ in range(3):
        Books(place).charge("people", units=1000, what="some")
    template, known = make_url(place).database, Books(place).read()
    for edit in EDITS:
        copy = server.new_database(template=template)
        with engine_of(copy).begin() as connection:
            for table in ("dualquery_chains", "dualquery_lines"):
                connection.exec_driver_sql(f"ALTER TABLE {table} DISABLE TRIGGER USER")
            connection.exec_driver_sql(edit)
            for table in ("dualquery_chains", "dualquery_lines"):
                connection.exec_driver_sql(f"ALTER TABLE {table} ENABLE TRIGGER USER")
        with pytest.raises(LedgerError, match="not as it was written"):
            Books(copy).charge("people", units=1, what="some")
    assert Books(server.new_database(template=template)).read() == known


def test_a_journal_that_is_not_ours_beside_the_file_is_found(original: Path, tmp_path: Path) -> None:
    """A hot journal makes SQLite write old pages back. What comes out is refused, or an older state."""
    for seed in range(20):
        path = tmp_path / f"copy{seed}"
        shutil.copy(original, path)
        journal = path.with_name(path.name + "-journal")
        journal.write_bytes(random.Random(seed).randbytes(5000))
        try:
            found = Books(path).read("people")
        except DualQueryError:
            continue
        assert found == Books(original).read("people")
