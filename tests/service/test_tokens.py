"""Tokens: hashed, given, rotated, expired and revoked, all of it in the chain; also beside a server that runs."""

from __future__ import annotations

import json
import sqlite3
import time
from datetime import UTC, datetime, timedelta

import pytest

from dualquery import cli
from dualquery.errors import DualQueryError, LedgerError
from dualquery.ledger import Witness
from dualquery.ledger.journal import Storage
from dualquery.service import tokens
from dualquery.service.run import opened
from tests.service.conftest import Make, running, token


def test_tokens_are_hashed_revoked_and_given_again(make: Make, place: str | None) -> None:
    settings = make(place)
    storage = Storage(settings.place)
    first = token(settings)
    lines = list(storage.verified(storage.promise()))
    assert lines[-1].kind == "granted"
    assert lines[-1].analyst == "ada"
    assert first.split("_", 2)[2] not in str(lines)
    known = tokens.known(storage)
    assert known.holder(first) is not None
    for wrong in ("", "dq_", first[:-1], first + "x", first.replace("dq_", "dq-"), "dq_" + "0" * 16 + "_x"):
        assert known.holder(wrong) is None
    with pytest.raises(DualQueryError, match="revoke it first"):
        token(settings)
    tokens.revoke(storage, "ada")
    assert tokens.known(storage).holder(first) is None
    with pytest.raises(DualQueryError, match="no token"):
        tokens.revoke(storage, "ada")
    second = token(settings)
    assert second != first
    third = tokens.rotate(storage, "ada")
    known = tokens.known(storage)
    assert [known.holder(each) is not None for each in (first, second, third)] == [False, False, True]
    assert known.all[0].quota == 1
    kinds = [line.kind for line in storage.verified(storage.promise()) if line.analyst == "ada"]
    assert kinds == ["granted", "revoked", "granted", "granted"]
    with opened(settings) as service:
        assert service.tokens.holder(third) is not None


def test_a_token_ends_when_its_time_has_come(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make()
    storage = Storage(settings.place)
    given = tokens.add(storage, "ada", quota=0.5, expires=tokens.expiry("30d"))
    known = tokens.known(storage)
    assert known.holder(given) is not None
    for days, good in ((29, True), (31, False)):
        later = (datetime.now(UTC) + timedelta(days=days)).isoformat(timespec="seconds")
        monkeypatch.setattr(tokens, "_now", lambda later=later: later)
        assert (known.holder(given) is not None) is good
        assert bool(known.all) is good
    with pytest.raises(DualQueryError, match="add one"):
        tokens.rotate(storage, "ada")
    assert tokens.add(storage, "ada", quota=0.5)  # what has ended is no token


@pytest.mark.parametrize("wrong", ["", "30", "30m", "-3d", "0d", "99999d", "soon", "2020-01-01", "d"])
def test_a_time_that_is_none_is_one_sentence(wrong: str) -> None:
    with pytest.raises(DualQueryError, match=r"30d|passed"):
        tokens.expiry(wrong)


def test_expiry_in_hours_days_weeks_or_on_a_date() -> None:
    now = datetime(2030, 1, 1, tzinfo=UTC)
    assert tokens.expiry("12h", now) == "2030-01-01T12:00:00+00:00"
    assert tokens.expiry("2w", now) == "2030-01-15T00:00:00+00:00"
    assert tokens.expiry("2099-05-01") == "2099-05-01T00:00:00+00:00"


def test_tokens_beside_a_running_server(make: Make, place: str | None) -> None:
    """The server writes what is wished for into its chain, and is not pushed aside by it."""
    settings = make(place)
    storage = Storage(settings.place)
    with running(settings, ada=1.0) as found:
        assert found.ask("colour = c0")[0] == 200
        found.tokens["bob"] = token(settings, "bob", quota=0.5)
        assert found.ask("colour = c1", who="bob")[0] == 200
        before, found.tokens["bob"] = found.tokens["bob"], tokens.rotate(storage, "bob")
        assert found.ask("colour = c1", who=before)[0] == 401
        assert found.ask("colour = c1", who="bob")[0] == 200
        tokens.revoke(storage, "bob")
        assert found.ask("colour = c2", who="bob")[0] == 401
        assert found.ask("colour = c2")[0] == 200
        assert not storage.wishes()
    kinds = [line.kind for line in storage.verified(storage.promise()) if line.analyst == "bob"]
    assert kinds == ["granted", "answered", "granted", "answered", "revoked"] or "fired" in kinds


def test_a_server_that_does_not_listen_is_said_so(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make()
    monkeypatch.setattr(tokens, "PATIENCE", 0.3)
    with opened(settings), pytest.raises(DualQueryError, match="nothing was changed"):
        token(settings)
    assert not Storage(settings.place).wishes()
    assert not tokens.known(Storage(settings.place)).everybody


def test_a_wish_that_nobody_of_us_wrote_is_left_out_and_a_wish_is_written_once(make: Make) -> None:
    settings = make()
    storage = Storage(settings.place)
    for number, body in {
        "1": "",
        "2": "{}",
        "3": "[]",
        "4": '{"line":"charged","analyst":"eve","wish":"4"}',
    }.items():
        storage.wish(number, body)
    granted = {
        "line": "granted",
        "analyst": "eve",
        "wish": "5",
        "name": "eve",
        "role": "owner",
        "quota": "abc",
    }
    storage.wish("5", json.dumps(granted))
    storage.wish("6", json.dumps({"line": "revoked", "analyst": "ada", "wish": "6", "at": "2030"}))
    with running(settings, ada=1.0) as found:
        until = time.monotonic() + 10
        while storage.wishes() and time.monotonic() < until:
            time.sleep(0.05)
        assert not storage.wishes()
        storage.wish("6", json.dumps({"line": "revoked", "analyst": "ada", "wish": "6", "at": "2030"}))
        while storage.wishes():
            time.sleep(0.05)
        assert found.request("GET", "/v1/health", who=None)[0] == 200
    lines = list(storage.verified(storage.promise()))
    assert [line.kind for line in lines].count("revoked") == 1
    assert not any(line.analyst == "eve" for line in lines)


def test_a_token_that_was_slipped_in_is_noticed(make: Make) -> None:
    """A role that is edited in the file breaks the chain."""
    settings = make()
    token(settings)
    with sqlite3.connect(settings.place) as connection:
        (trigger,) = connection.execute(
            "SELECT sql FROM sqlite_master WHERE name = 'dualquery_lines_keep'"
        ).fetchone()
        connection.execute("DROP TRIGGER dualquery_lines_keep")
        connection.execute(
            """UPDATE dualquery_lines SET body = replace(body, '"role":"analyst"', '"role":"owner"')"""
        )
        connection.execute(trigger)
    with pytest.raises(LedgerError, match="not as it was written"):
        tokens.known(Storage(settings.place), Witness(settings.path(settings.witness)))


def test_the_commands(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    settings = make()
    service = ["--service", str(settings.folder / "service.toml")]

    def run(*words: str, code: int = 0) -> str:
        assert cli.run(["serve", *words]) == code
        out, err = capsys.readouterr()
        return err if code else out

    first = run("token", "add", "ada", "--quota", "0.25", "--expires", "30d", *service).strip()
    second = run("token", "rotate", "ada", "--expires", "4w", *service).strip()
    assert first != second
    (row,) = json.loads(run("token", "list", "--json", *service))
    assert row["quota"] == 0.25
    assert row["expires"]
    assert "30d" in run("token", "rotate", "ada", "--expires", "soon", *service, code=2)
    run("token", "revoke", "ada", *service)
    for lines in (run("log", service[1]), run("log", service[1], "--json")):
        assert [lines.count(kind) for kind in ("granted", "revoked")] == [2, 1]
        assert first not in lines
        assert tokens.known(Storage(settings.place)).everybody[0].hash not in lines
    assert len(json.loads(run("log", service[1], "--json", "--last", "2"))) == 2
