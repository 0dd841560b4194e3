"""Many at once, and killed at any moment: never past the cap, never less charged than drawn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import dualquery
from dualquery import BudgetError, LedgerError, Neighbours
from dualquery.ledger.books import Books, create

WORKER = str(Path(__file__).with_name("worker.py"))
SOURCE = str(Path(dualquery.__file__).resolve().parents[1])


def start(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, WORKER, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def result(process: subprocess.Popen[str]) -> Any:
    out, err = process.communicate(timeout=1200)
    assert process.returncode == 0, err
    return json.loads(out)


def new_book(place: str) -> int:
    return create(place, name="people", epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE).book.cap


def test_of_two_releases_at_once_one_is_refused(place: str) -> None:
    """Both want more than half of the cap, again and again."""
    cap = new_book(place)
    racers = [start("charge", place, cap // 2 + 1, 20) for _ in range(2)]
    assert sum(map(result, racers)) == 1
    assert Books(place).read().book.spent == cap // 2 + 1


def test_eight_processes_share_a_cap_of_two_hundred_charges(place: str) -> None:
    cap = new_book(place)
    units = cap // 200
    racers = [start("charge", place, units, 50) for _ in range(8)]
    assert sum(map(result, racers)) == 200
    statement = Books(place).read()
    assert len(statement.charges) == 200
    assert statement.book.spent == 200 * units <= cap
    with pytest.raises(BudgetError):
        Books(place).charge(None, units=units, what="one more")


def killed(place: str, drawn: Path, count: int, seed: int) -> dict[str, Any]:
    new_book(place)
    seen: dict[str, Any] = result(start("kills", place, drawn, count, seed))
    assert sum(seen["died"].values()) == count
    assert seen["draws"] > 0
    return seen


def test_nothing_is_drawn_uncharged_whenever_a_process_is_killed(place: str, tmp_path: Path) -> None:
    seen = killed(place, tmp_path / "drawn", 30, seed=1)
    assert all(seen["died"].values()), "every point was reached"


@pytest.mark.long
def test_three_hundred_kills(place: str, tmp_path: Path) -> None:
    print(place.partition(":")[0], killed(place, tmp_path / "drawn", 300, seed=2))


def test_a_server_that_falls_forgets_no_draw(own_server: Any, tmp_path: Path) -> None:
    """The server is stopped without warning while a process charges; afterwards every draw has its charge."""
    server = own_server
    place, drawn = server.new_database(), tmp_path / "drawn"
    new_book(place)
    spent = 0
    for _ in range(2):
        process = start("kills", place, drawn, 10**6, 3)
        time.sleep(2)
        server.stop("immediate")
        process.communicate(timeout=60)
        assert process.returncode != 0
        with pytest.raises(LedgerError, match="cannot be reached"):
            Books(place).read()
        server.start()
        statement = Books(place).read()
        draws = {line for line in drawn.read_text().split("\n") if len(line) == 32}
        assert draws <= {charge.release for charge in statement.charges}
        assert statement.book.spent >= spent
        spent = statement.book.spent
    assert spent > 2
