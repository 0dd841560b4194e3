"""Processes that charge books, to be raced and killed; run as a program, so that nothing of the tests is inherited.

    worker.py charge PLACE UNITS TIMES         charge so often; print how often it was accepted
    worker.py kills PLACE DRAWN COUNT SEED     fork children that charge, kill each, look at the book; print all

A child charges, then "draws": it appends the number of its charge to the file DRAWN. A draw without a charge would be
a line that the book does not know.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from sqlalchemy import event

from dualquery.errors import BudgetError
from dualquery.ledger.books import Books

POINTS = ("before", "begun", "updated", "inserted", "committing", "committed", "drawn")


def charge(place: str, units: int, times: int) -> None:
    books, accepted = Books(place), 0
    for _ in range(times):
        try:
            books.charge(None, units=units, what="raced")
            accepted += 1
        except BudgetError:
            pass
    print(json.dumps(accepted))


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(books: Books, point: str) -> Callable[[], None]:
    """Arrange to die at a point of the transaction; what to call between the charge and the draw."""
    engine = books._engine

    def executed(_c: object, _cursor: object, statement: str, *_: object) -> None:
        if point == "updated" and statement.startswith("UPDATE"):
            die()
        if point == "inserted" and statement.startswith("INSERT"):
            die()

    event.listen(engine, "after_cursor_execute", executed)
    if point == "begun":
        event.listen(engine, "begin", lambda _: die())
    if point == "committing":
        event.listen(engine, "commit", lambda _: die())
    return die if point == "committed" else lambda: None


def child(place: str, drawn: str, point: str | None, after: int) -> None:
    """Charge and draw for ever; with a point, die there at the charge number `after`."""
    books, number = Books(place), 0
    line = os.open(drawn, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    between: Callable[[], None] = lambda: None  # noqa: E731
    while True:
        if point is not None and number == after:
            if point == "before":
                die()
            between = die_at(books, point)
        entry = books.charge(None, units=1, what="killed")
        between()
        os.write(line, f"{entry.charge.release}\n".encode())
        if point == "drawn" and number == after:
            die()
        number += 1


def kills(place: str, drawn: str, count: int, seed: int) -> None:
    """Half of the children are killed at a moment of chance, half at a point."""
    chance = random.Random(seed)
    books, before, died = Books(place), 0, dict.fromkeys((*POINTS, "at random"), 0)
    for number in range(count):
        point = POINTS[(number // 2) % len(POINTS)] if number % 2 else None
        pid = os.fork()
        if pid == 0:
            try:
                child(place, drawn, point, chance.randrange(2))
            finally:
                os._exit(9)  # only an error comes here
        if point is None:
            time.sleep(chance.uniform(0, 0.15))
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status), f"the child failed by itself: {status}"
        died[point or "at random"] += 1
        statement = books.read()  # the chain verifies, and what is spent is the sum of the charges
        charged = {each.release for each in statement.charges}
        lines = Path(drawn).read_text().split("\n") if Path(drawn).exists() else []
        draws = {each for each in lines if len(each) == 32}
        assert draws <= charged, "drawn and not charged"
        assert statement.book.spent >= before, "spent less than before"
        assert len(charged - draws) <= number + 1, "a kill burns at most one charge"
        before = statement.book.spent
    print(json.dumps({"died": died, "charges": len(charged), "draws": len(draws)}))


if __name__ == "__main__":
    if sys.argv[1] == "charge":
        charge(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        kills(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
