"""What the ledger of a service promises: charged before, kept after, never rolled back, never opened twice."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dualquery.errors import DualQueryError, LedgerError
from dualquery.interactive import KINDS, Fired, Fixed, Prepaid, read, rule
from dualquery.ledger.journal import Storage
from dualquery.ledger.storage import AwayError
from dualquery.privacy.curator import Curator
from dualquery.service.journal import LedgerJournal, ledger_status, log_of
from dualquery.service.run import opened
from dualquery.service.settings import Settings
from tests.service import small
from tests.service.conftest import Make, ask, token


def unclean(service: Any) -> None:
    """Let the worker stop as a crash would: nothing is closed, and the ledger is let go."""
    service.online.close = lambda: None
    service.journal.flush = lambda: None


def test_a_stop_while_nothing_is_asked_burns_nothing(make: Make, place: str | None) -> None:
    """Clean or not, before the first test or after the last answer."""
    settings = make(place)
    token(settings)
    before = ledger_status(settings)
    for number in range(6):
        with opened(settings) as service:
            if number % 2:
                ask(service, *small.questions(3, seed=number))
            if number > 1:
                unclean(service)
    with opened(settings):
        pass
    found = ledger_status(settings)
    assert found.burned == 0
    assert not found.running
    assert found.spent == before.spent + found.fires * before.price
    assert found.fires_left == before.fires_left - found.fires


def test_a_stop_while_a_test_is_open_burns_one_fire(
    make: Make, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make(place)
    token(settings)
    before = ledger_status(settings)
    real = Curator.exceeds

    def and_then_stopped(self: Curator, *arguments: Any, **options: Any) -> Any:
        real(self, *arguments, **options)
        raise RuntimeError("the machine is gone")

    for number in (1, 2):
        with opened(settings) as service:
            monkeypatch.setattr(Curator, "exceeds", and_then_stopped)
            with pytest.raises(LedgerError):
                ask(service, "colour = c0")
            monkeypatch.undo()
            monkeypatch.setattr(rule, "EACH", Fraction(1, 1000))
        # the stop is noticed by the next start, which burns what was prepaid and pays for another
        with opened(settings):
            pass
        found = ledger_status(settings)
        assert found.burned == number
        assert found.spent == before.spent + number * before.price
    assert found.fires_left == before.fires_left - 2


def test_the_hypothesis_is_rebuilt_byte_for_byte(make: Make, place: str | None) -> None:
    settings = make(place)
    token(settings)
    with opened(settings) as service:
        told = ask(service, *small.questions(30, seed=1))
        assert {"not contradicted", "measured"} <= {each["badge"] for each in told}
        fingerprint = service.online.fingerprint()
        state = service.online.status()
    with opened(settings) as service:
        assert service.online.fingerprint() == fingerprint
        assert service.online.status() == state


def test_many_questions_share_one_sync(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make()
    token(settings)
    commits: list[int] = []
    real = Storage.commit

    def counted(self: Storage, base: Any, lines: Any) -> None:
        commits.append(len(lines))
        real(self, base, lines)

    monkeypatch.setattr(Storage, "commit", counted)
    with opened(settings) as service:
        questions = small.questions(60, seed=2)
        ask(service, *questions)
        commits.clear()
        told = ask(service, *questions[:40])
    fires = sum(each["badge"] == "measured" and not each["free"] for each in told)
    assert sum(commits) >= 40
    assert len(commits) <= 6 + 2 * fires


def test_a_fire_is_on_disk_with_the_next_one_prepaid_before_another_test(make: Make) -> None:
    """Between two tests there is never a fire that the ledger does not know."""
    settings = make()
    token(settings)
    with opened(settings) as service:
        ask(service, *small.questions(40, seed=3))
    entries = [read(line.body) for line in _lines(settings) if line.kind in KINDS]
    paid: set[int] = set()
    for entry in entries:
        if isinstance(entry, Prepaid):
            paid.add(entry.slot)
        if isinstance(entry, Fired):
            paid.remove(entry.slot)  # each fire has its own


def test_nothing_is_tested_before_its_fire_is_on_disk(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make()
    token(settings)
    real = Curator.exceeds
    seen: list[bool] = []

    def watched(self: Curator, *arguments: Any, **options: Any) -> Any:
        state = ledger_status(settings)  # from disk
        seen.append(state.spent >= state.release + (state.fires + state.burned + 1) * state.price)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Curator, "exceeds", watched)
    with opened(settings) as service:
        ask(service, *small.questions(15, seed=4))
    assert len(seen) >= 10
    assert all(seen)


def test_a_ledger_has_one_server(make: Make, place: str | None) -> None:
    settings = make(place)
    with (
        opened(settings),
        pytest.raises(LedgerError, match="another server has this ledger open"),
        opened(settings),
    ):
        pass
    with opened(settings):
        pass  # when the first has gone


def test_a_server_that_was_pushed_aside_tells_nothing(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock is lost (a file system that does not lock), and a second server opens the same ledger."""
    monkeypatch.setattr(Storage, "hold", lambda self: None)
    settings = make()
    token(settings)
    with opened(settings) as first:
        ask(first, "colour = c0")
        with opened(settings) as second:
            ask(second, "colour = c1")
        with pytest.raises(LedgerError, match="another server"):
            ask(first, "colour = c2")
        with pytest.raises(LedgerError, match="another server"):
            ask(first, "colour = c3")


def _lines(settings: Settings) -> list[Any]:
    storage = Storage(settings.place)
    return list(storage.verified(storage.promise()))


@pytest.mark.parametrize("copied_witness", [False, True])
def test_a_rolled_back_ledger_is_refused(make: Make, copied_witness: bool) -> None:
    settings = make()
    token(settings)
    ledger = Path(settings.place)
    shutil.copy(ledger, f"{ledger}.old")
    with opened(settings) as service:
        ask(service, "colour = c0", "size = s1")
    os.replace(f"{ledger}.old", ledger)
    if copied_witness:
        settings.path(settings.witness).unlink()
        with pytest.raises(LedgerError, match="witness"), opened(settings):
            pass
        with opened(settings, trust=True):
            pass  # whoever is sure
        return
    with pytest.raises(LedgerError, match="rolled back"), opened(settings):
        pass
    with pytest.raises(LedgerError, match="rolled back"):
        ledger_status(settings)


def test_the_ledger_of_another_service_is_refused(make: Make) -> None:
    one, other = make(), make()
    with (
        pytest.raises(LedgerError, match="rolled back, or is another one"),
        opened(replace(one, ledger=other.place)),
    ):
        pass


EDITS = {
    "spent": "UPDATE dualquery_chains SET spent = spent - 1",
    "cap": "UPDATE dualquery_chains SET cap = cap * 2",
    "a fire less": "DELETE FROM dualquery_lines WHERE sequence = (SELECT MAX(sequence) FROM dualquery_lines)",
    "units": "UPDATE dualquery_lines SET units = 0, spent_after = 0 WHERE units > 0",
    "a reply": "UPDATE dualquery_lines SET reply = 'x' WHERE reply <> ''",
    "whose question": "UPDATE dualquery_lines SET analyst = 'bob' WHERE analyst <> ''",
    "the head": "UPDATE dualquery_chains SET head = 'x'",
    "everything": "DELETE FROM dualquery_chains",
}


@pytest.mark.parametrize("what", EDITS)
@pytest.mark.parametrize("guarded", [True, False])
def test_an_edited_ledger_is_refused(make: Make, what: str, guarded: bool) -> None:
    """With the triggers in place the edit is refused; without them, the ledger."""
    settings = make()
    token(settings)
    with opened(settings) as service:
        ask(service, "colour = c0", "size = s1")
    with sqlite3.connect(settings.place) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        if not guarded:
            for name, _ in triggers:
                connection.execute(f"DROP TRIGGER {name}")
        else:
            with pytest.raises(sqlite3.IntegrityError):
                connection.execute(EDITS[what])
            return
        connection.execute(EDITS[what])
    with pytest.raises(LedgerError, match="triggers were changed"), opened(settings):
        pass
    with sqlite3.connect(settings.place) as connection:
        for _, text in triggers:
            connection.execute(text)
    with pytest.raises(LedgerError, match=r"not as it was written|missing|emptied"), opened(settings):
        pass


def test_another_table_under_the_same_name_is_refused(make: Make, place: str | None) -> None:
    settings = make(place)
    token(settings)
    table = settings.path(settings.table)
    heads, *rows = table.read_text().splitlines()
    table.write_text("\n".join([heads, *rows[1:], rows[0].replace("c0", "c1") + "\n"]))
    length = ledger_status(settings).head.length
    with pytest.raises(LedgerError, match=r"another table.*--table-changed"), opened(settings):
        pass
    assert ledger_status(settings).head.length == length
    with opened(settings, table_changed=True) as service:
        reply = ask(service, "colour = c0")
    with opened(settings) as service:
        shown = [json.dumps([*reply, service.schema]), *(str(each) for each in log_of(settings))]
    fixed = [read(line.body) for line in _lines(settings) if line.kind == Fixed.kind]
    assert len(fixed) == 2
    assert not any(secret in text for each in fixed for secret in (each.key, each.digest) for text in shown)


def test_another_schema_or_budget_is_refused(make: Make) -> None:
    settings = make()
    with pytest.raises(LedgerError), opened(replace(settings, epsilon=2.0)):
        pass
    with pytest.raises(LedgerError), opened(replace(settings, questions=5)):
        pass
    with opened(settings):
        pass


def test_quotas_stand_under_the_cap_and_two_who_collude_cannot_exceed_it(make: Make) -> None:
    """Each may take three quarters of what is left: together they take all of it, and no more."""
    settings = make()
    for name in ("ada", "bob"):
        token(settings, name, quota=0.75)
    with opened(settings) as service:
        taken, refused = {"ada": 0, "bob": 0}, 0
        for i, question in enumerate(small.questions(60, seed=6)):
            name = ("ada", "bob")[i % 2]
            try:
                (reply,) = ask(service, question, name=name, error=0.0008)
                taken[name] += reply["cost"]["units"]
            except DualQueryError:
                refused += 1
        assert refused > 10
        status = service.online.status()
        assert status.spent <= status.cap
        interactive = status.cap - service.journal.account.release
        assert all(0 < each <= 0.75 * interactive for each in taken.values())
        assert sum(taken.values()) <= interactive
        assert sum(taken.values()) > 0.8 * interactive  # and they did try


def test_what_cannot_be_written_is_told_to_nobody_and_written_once_later(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk: 503 meanwhile; afterwards the same lines, once, and who repeats the request gets the reply."""
    settings = make()
    token(settings)
    real = Storage.commit
    full, lost = [True], [False]

    def commit(self: Storage, base: Any, lines: Any) -> None:
        if full[0]:
            raise AwayError("the disk is full")
        real(self, base, lines)
        if lost[0]:
            lost[0] = False
            raise AwayError("the answer of the database got lost")

    with opened(settings) as service:
        monkeypatch.setattr(Storage, "commit", commit)
        before = ledger_status(settings)
        for _ in range(3):
            with pytest.raises(AwayError):
                ask(service, "colour = c0", key="one")
        assert ledger_status(settings) == before
        full[0] = False
        (reply,) = ask(service, "colour = c0", key="one")
        assert ask(service, "colour = c0", key="one") == [reply]
        after = ledger_status(settings)
        assert after.fires + sum(after.answers.values()) - after.fires == 1
        lost[0] = True  # committed, but nobody heard of it
        with pytest.raises(AwayError):
            ask(service, "size = s1", key="two")
        (second,) = ask(service, "size = s1", key="two")
        assert second["line"] > reply["line"]
    assert sum(ledger_status(settings).answers.values()) == 2
    assert ledger_status(settings).burned == 0


def test_a_keeper_writes_a_reply_into_the_line_of_its_answer(make: Make) -> None:
    settings = make()
    token(settings)
    with opened(settings) as service:
        told = ask(service, *small.questions(20, seed=8))
    lines = {line.sequence: line for line in _lines(settings)}
    for reply in told:
        assert lines[reply["line"]].reply
        assert lines[reply["after"]["line"]].hash == reply["after"]["hash"]
    assert isinstance(service.journal, LedgerJournal)


def test_who_was_told_that_the_ledger_is_away_is_not_asked_about_later(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fills up at the first fire of a batch: what waits behind it is dismissed, and not asked in secret."""
    settings = make()
    token(settings)
    real = Storage.commit
    failures = [1]

    def commit(self: Storage, base: Any, lines: Any) -> None:
        if failures[0] and any(line.kind == "fired" for line in lines):
            failures[0] -= 1
            raise AwayError("the disk is full")
        real(self, base, lines)

    with opened(settings) as service:
        monkeypatch.setattr(Storage, "commit", commit)
        with pytest.raises(AwayError):
            ask(service, *small.questions(40, seed=1))
        ask(service, "colour = c0")
        given = sum(ledger_status(settings).answers.values())
    assert given < 40


def test_a_purchase_that_was_killed_is_delivered_without_another_charge(
    make: Make, place: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = make(place)
    token(settings, "ada", quota=0.1)
    token(settings, "bob")

    def gone(*_: object, **__: object) -> None:
        raise RuntimeError("the machine is gone")

    with opened(settings) as service:
        monkeypatch.setattr(Curator, "measure", gone)
        with pytest.raises(LedgerError):
            ask(service, "colour = c0", error=0.003, key="one")
        monkeypatch.undo()
        monkeypatch.setattr(rule, "EACH", Fraction(1, 1000))
    charged = ledger_status(settings)
    assert charged.spent_by["ada"] > 0
    with opened(settings) as service:
        (reply,) = ask(service, "colour = c0", error=0.003, key="one")
        assert reply["badge"] == "bought"
        assert ask(service, "colour = c0", error=0.003, key="one") == [reply]
        assert reply["cost"]["units"] == charged.spent_by["ada"]
    after = ledger_status(settings)
    assert (after.spent, after.burned) == (charged.spent, 0)
    assert after.spent_by == charged.spent_by


def test_a_full_disk_is_said_at_the_start(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = make()

    def commit(self: Storage, base: Any, lines: Any) -> None:
        raise AwayError("the disk is full")

    monkeypatch.setattr(Storage, "commit", commit)
    with pytest.raises(AwayError, match="full"), opened(settings):
        pass
    monkeypatch.undo()
    monkeypatch.setattr(rule, "EACH", Fraction(1, 1000))
    with opened(settings):
        pass
    assert ledger_status(settings).burned == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a small disk")
def test_a_disk_that_is_really_full(make: Make, tmp_path: Path) -> None:
    """The start says so, at once; with room again nothing is lost."""
    settings, disk = make(), tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "none", str(disk)]).returncode:
        pytest.skip("this machine mounts nothing")
    try:
        for name in (settings.ledger, settings.witness):
            shutil.copy(settings.path(name), disk / name)
        moved = replace(settings, ledger=str(disk / settings.ledger), witness=str(disk / settings.witness))
        token(moved)
        with opened(moved) as service:
            ask(service, "colour = c0")
        before = ledger_status(moved)
        filling = disk / "filling"
        with filling.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(b"0" * 512)
        began = time.monotonic()
        with pytest.raises(LedgerError, match="space left"), opened(moved):
            pass
        assert time.monotonic() - began < 20
        filling.unlink()
        with opened(moved) as service:
            ask(service, "colour = c1")
        assert ledger_status(moved).burned == 0
        assert ledger_status(moved).spent >= before.spent
    finally:
        subprocess.run(["umount", str(disk)], check=True)
