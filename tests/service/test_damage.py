"""Flipped bits in what a service keeps: one sentence, or nothing changed; never a traceback, never another number."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from dualquery import cli
from dualquery.errors import DualQueryError, LedgerError
from dualquery.ledger import _SIZE, Witness
from dualquery.service.journal import ledger_status
from dualquery.service.run import begin, opened
from dualquery.service.settings import Settings, read_settings
from tests.service import small
from tests.service.conftest import Make, ask, token

COMMANDS = {
    "service.ledger": (["serve", "status", "service.toml", "--json"], ["serve", "log", "service.toml", "--json"],
                       ["serve", "token", "list", "--json"], ["serve", "token", "add", "eve"]),
    "service.witness": (["serve", "status", "service.toml", "--json"], ["serve", "log", "service.toml", "--json"]),
    "people.ledger": (["ledger", "show", "people.ledger", "--json"],
                      ["ledger", "audit", "people.ledger"]),
}  # fmt: skip
WAYS = ("service.ledger",) * 6 + ("service.witness",) * 2 + ("people.ledger",) * 2


@pytest.fixture
def kept(make: Make, capsys: pytest.CaptureFixture[str]) -> Settings:
    """A service with a past, and a book beside it."""
    settings = make()
    token(settings)
    token(settings, "steward", quota=0.5, owner=True)
    with opened(settings) as service:
        ask(service, *small.questions(25, seed=1))
        ask(service, "colour = c1", error=0.01, key="one")
    book = str(settings.folder / "people.ledger")
    assert (
        cli.run(["ledger", "create", book, "--dataset", "people", "--epsilon", "1", "--delta", "1e-6"]) == 0
    )
    capsys.readouterr()
    return settings


def flipped(content: bytes, chance: random.Random) -> bytes:
    """One bit, a few, or those of a byte among them that are in use."""
    found = bytearray(content)
    used = [place for place in range(0, len(found)) if found[place]]
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        place = chance.choice(used) if chance.random() < 0.7 else chance.randrange(len(found))
        found[place] ^= 1 << chance.randrange(8)
    return bytes(found)


@pytest.mark.parametrize("many", [12, pytest.param(1500, marks=pytest.mark.long)])
def test_flipped_bits(
    kept: Settings,
    many: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(kept.folder)
    chance, seen = random.Random(many), Counter[str]()
    whole = {name: Path(name).read_bytes() for name in COMMANDS}
    before = {}
    for commands in COMMANDS.values():
        for command in commands[:-1]:
            assert cli.run(command) == 0
            before[tuple(command)] = capsys.readouterr().out
    for number in range(many):
        name = WAYS[number % len(WAYS)]
        Path(name).write_bytes(flipped(whole[name], chance))
        for command in COMMANDS[name]:
            code = cli.run(command)
            out, err = capsys.readouterr()
            assert code in (0, 2), err
            said = [line for line in err.strip().splitlines() if not line.startswith("This quota buys")]
            assert [line.startswith("Error: ") for line in said] == [True] * (code == 2), err
            if tuple(command) in before and code == 0:
                assert out == before[tuple(command)], "believed"
            seen[f"{name} {code}"] += 1
        if number % 10 == 0:
            try:
                with opened(read_settings("service.toml")):
                    seen["opened"] += 1
            except DualQueryError:
                seen["not opened"] += 1
        for each, content in whole.items():  # a command that went well has written, too
            Path(each).write_bytes(content)
        Path("service.ledger-journal").unlink(missing_ok=True)
    print(dict(seen))
    assert seen["service.ledger 2"] > many / 2
    assert seen["service.witness 2"] + seen["people.ledger 2"] > 0
    assert many < 100 or (seen["service.witness 2"] and seen["people.ledger 2"])


def test_a_witness_with_wrong_words_is_one_sentence(kept: Settings) -> None:
    """Sealed as we seal it, and yet not what we write."""
    path = kept.path(kept.witness)
    for words in ("", "a", "a b", "a b c d", "a -1 c", "a x c", "a 1e3 c", f"a {'9' * 40} c", "ü 1 c"):
        line = f"{words} {hashlib.sha256(words.encode()).hexdigest()}\n".encode().ljust(_SIZE, b"\n")
        path.write_bytes(line + line)
        assert Witness(path).read() is None, words
        with pytest.raises(LedgerError, match="missing or damaged"):
            ledger_status(kept)


def test_the_ledger_of_an_earlier_version_is_one_sentence(kept: Settings) -> None:
    with sqlite3.connect(kept.place) as connection:
        connection.execute("DROP TABLE dualquery_wishes")
        connection.execute("CREATE TABLE dualquery_tokens (name TEXT)")
    with pytest.raises(LedgerError, match="this version"):
        ledger_status(kept)


def test_the_first_release_is_published_also_where_it_is_an_earlier_one(make: Make) -> None:
    settings = make()
    assert settings.published == {"stale": "stale"}
    assert read_settings(settings.folder / "service.toml").published == settings.published
    token(settings)
    with opened(settings) as service:
        assert list(service.schema) == ["people", "stale"]
        answer = json.loads(json.dumps(service.online.ask("colour = c0", release="stale").to_json()))
    assert answer["cost"]["units"] == 0
    folder = settings.folder.with_name("other")
    shutil.copytree(settings.folder / "stale", folder / "people")
    for name in ("people.csv", "schema.toml"):
        shutil.copy(settings.folder / name, folder / name)
    made = begin(
        folder / "people.csv", schema=folder / "schema.toml", epsilon=1.0, delta=1e-6, out=folder / "s.toml",
        release=folder / "people",
    )  # fmt: skip
    assert made.published == {"s-release": "people"}
