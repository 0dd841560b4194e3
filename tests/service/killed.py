"""A server that is killed again and again, and clients that remember what they were told. Run as a program:

    killed.py SERVICE TOKEN QUIET COUNT SEED      kill it so often while nothing is asked, and so often while much is;
                                                  print how often at which point

Each server is a fork of this process, so that nothing is imported twice. It dies at a named point between the charge
and the reply, at its first occurrence or a later one, or at a moment of chance. Afterwards the ledger must verify;
hold every reply that anybody ever got, byte for byte; have spent no less than before and no more than the cap; and
have burned at most one prepaid fire for each kill that left a question without its answer: none for one that came
while it started, or when everybody had been answered.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import random
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from threading import Thread
from typing import Any

os.environ["NUMBA_THREADING_LAYER"] = "workqueue"  # the one whose threads come back after a fork
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import small
import uvicorn.lifespan.on
import uvicorn.protocols.http.auto  # noqa: F401
from sqlalchemy import event

from dualquery.interactive.online import Online
from dualquery.ledger.journal import Storage
from dualquery.privacy.curator import Curator
from dualquery.service import app, worker
from dualquery.service.journal import LedgerJournal, ledger_status
from dualquery.service.requests import PendingRequest, Service
from dualquery.service.run import opened, serve
from dualquery.service.settings import Settings, read_settings

POINTS = (
    *("arrived", "asking", "counted", "appended", "paying", "begun", "updated", "inserted", "committing"),
    *("committed", "found", "told", "flushed", "leaving", "left"),
)
CLIENTS = 3
PAGE = 512
START = 0.6  # seconds, about, from the fork to the first answer


class Reaper:
    """Ends this process when a point has been passed often enough."""

    def __init__(self, point: str, after: int) -> None:
        self.point, self.left = point, after

    def passed(self, point: str) -> None:
        if point == self.point:
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1


def around(owner: Any, name: str, before: Callable[[], None], after: Callable[[], None]) -> None:
    real = getattr(owner, name)

    @functools.wraps(real)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        before()
        result = real(*arguments, **options)
        after()
        return result

    setattr(owner, name, wrapped)


def arm(reaper: Reaper) -> None:
    """Let this process die at a point."""

    def at(point: str) -> Callable[[], None]:
        return lambda: reaper.passed(point)

    def nothing() -> None:
        pass

    around(Service, "_answer", at("arrived"), nothing)
    around(Online, "ask", at("asking"), at("found"))
    around(Curator, "exceeds", nothing, at("counted"))
    around(LedgerJournal, "append", nothing, at("appended"))
    around(LedgerJournal, "sync", at("paying"), nothing)
    around(LedgerJournal, "tell", nothing, at("told"))
    around(LedgerJournal, "flush", nothing, at("flushed"))
    around(Storage, "commit", nothing, at("committed"))
    around(worker, "_settle", at("leaving"), nothing)
    real_storage, real_departures = Storage.__init__, app.Departures.__call__

    def storage(self: Storage, *arguments: Any, **options: Any) -> None:
        real_storage(self, *arguments, **options)
        event.listen(self.engine, "begin", lambda _: reaper.passed("begun"))
        event.listen(self.engine, "commit", lambda _: reaper.passed("committing"))
        event.listen(self.engine, "after_cursor_execute", executed)

    def executed(_c: object, _cursor: object, statement: str, *_: object) -> None:
        reaper.passed({"UPDATE": "updated", "INSERT": "inserted"}.get(statement[:6], ""))

    async def departures(self: Any, scope: Any, receive: Any, send: Any) -> None:
        await real_departures(self, scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "POST":
            reaper.passed("left")

    Storage.__init__ = storage  # type: ignore[method-assign, assignment]
    app.Departures.__call__ = departures  # type: ignore[method-assign]


@dataclass
class Client:
    """Asks one question after another; what got no answer is asked again, with its key."""

    port: int
    token: str
    dataset: str
    todo: list[tuple[str, str]]  # key and question
    told: dict[str, tuple[str, bytes]] = field(default_factory=dict)
    wrong: str = ""

    def post(self, connection: HTTPConnection, key: str, question: str) -> bytes | None:
        headers = {
            "Authorization": f"Bearer {self.token}",
            "Idempotency-Key": key,
            "Content-Type": "application/json",
        }
        connection.request(
            "POST", f"/v1/datasets/{self.dataset}/ask", json.dumps({"question": question}), headers
        )
        response = connection.getresponse()
        body = response.read()
        if response.status == 403:
            return None
        assert response.status == 200, body
        return body

    def run(self, most: int = 10**9) -> None:
        """Until the server is gone, or so many were asked."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            if self.told:  # what was told once is told again, to the byte
                key, (question, body) = random.choice(list(self.told.items()))
                assert self.post(connection, key, question) == body, "another answer to the same key"
            stop_at = max(0, len(self.todo) - most)
            while len(self.todo) > stop_at:
                key, question = self.todo[-1]
                body = self.post(connection, key, question)
                if body is not None:
                    self.told[key] = (question, body)
                self.todo.pop()
        except (OSError, HTTPException):
            pass
        except AssertionError as error:
            self.wrong = str(error)


def never_sync() -> None:
    """A twin that must be caught."""
    real = Storage.__init__

    def storage(self: Storage, *arguments: Any, **options: Any) -> None:
        real(self, *arguments, **options)
        event.listen(
            self.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF")
        )

    Storage.__init__ = storage  # type: ignore[method-assign, assignment]


def child(settings: Settings, point: str | None, after: int) -> None:
    """A server, armed."""
    if "NEVER_SYNCS" in os.environ:
        never_sync()
    if point is not None:
        arm(Reaper(point, after))
    serve(settings)


def listening(port: int, pid: int) -> bool:
    """Wait until the server answers; False where it died before."""
    while True:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            assert os.WIFSIGNALED(status), f"the server failed by itself: {status}"
            return False
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            time.sleep(0.01)


def died_by_itself(pid: int, patience: float) -> bool:
    until = time.monotonic() + patience
    while time.monotonic() < until:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone:
            assert os.WIFSIGNALED(status), f"the server failed by itself: {status}"
            return True
        time.sleep(0.005)
    return False


def warmed(settings: Settings, token: str) -> None:
    """Load and tabulate here, once, what every server needs."""

    async def ask(service: Service) -> None:
        holder = service.tokens.holder(token)
        assert holder is not None
        for question in small.questions(12, seed=99):
            await service.ask(PendingRequest(holder=holder, dataset=settings.dataset, question=question))

    with opened(settings) as service:
        service.online.prepare_all()
        asyncio.run(ask(service))


def lose_power(chance: random.Random) -> None:
    """Take away what was not synced: all of it, or a part of it by chance, page by page."""
    folder, shadow = Path(os.environ["LOSES_FOLDER"]), Path(os.environ["LOSES_SHADOW"])
    everything = chance.random() < 0.5
    for name in {path.name for path in (*folder.glob("service.*"), *shadow.glob("service.*"))}:
        here, there = folder / name, shadow / name
        new = here.read_bytes() if here.exists() else None
        old = there.read_bytes() if there.exists() else None
        kept = old if everything else mixed(old, new, chance)
        if kept is None:
            here.unlink(missing_ok=True)
            there.unlink(missing_ok=True)
        else:
            here.write_bytes(kept)
            there.write_bytes(kept)


def mixed(old: bytes | None, new: bytes | None, chance: random.Random) -> bytes | None:
    """Of each page the old or the new one; a file that came or went is there or not."""
    if old is None or new is None:
        return chance.choice((old, new))
    size = chance.choice((len(old), len(new)))
    whole = bytearray()
    for start in range(0, size, PAGE):
        page = chance.choice((old, new))[start : start + PAGE]
        whole += page.ljust(min(PAGE, size - start), b"\0")
    return bytes(whole)


def check(settings: Settings, clients: list[Client], before: int, in_flight: int) -> Any:
    found = ledger_status(settings)
    assert found.cap >= found.spent >= before, "spent less than before, or more than the cap"
    assert found.burned <= in_flight, "more burned than was in flight"
    storage = Storage(settings.place)
    lines, _ = storage.told(None, before=2**53, most=10**7, size=10**12)
    replies = {line.sequence: line.reply for line in lines}
    for client in clients:
        assert not client.wrong, client.wrong
        for _, body in client.told.values():
            assert replies[json.loads(body)["line"]].encode() == body, "told and not in the ledger"
    return found


def started(settings: Settings, point: str | None = None, after: int = 0) -> int:
    """The number of a process that serves."""
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            child(settings, point, after)
            os._exit(0)  # a clean stop
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(9)  # only an error comes here
    return pid


def killed_quietly(settings: Settings, clients: list[Client], number: int, chance: random.Random) -> str:
    """A kill that leaves no question open: while it starts, or when all that was asked has been answered."""
    pid = started(settings)
    if number % 2:
        time.sleep(chance.random() * START)
        how = signal.SIGTERM if number % 4 == 1 else signal.SIGKILL
        os.kill(pid, how)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or status == 0, f"the server failed by itself: {status}"
        return "starting"
    assert listening(settings.http.port, pid)
    for client in clients:
        client.run(most=chance.randrange(3))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "idle"


def run(settings: Settings, token: str, quiet: int, count: int, seed: int) -> None:
    chance = random.Random(seed)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = replace(settings, http=replace(settings.http, port=port, requests_a_second=1e6, quantum=0.002))
    asked = [(f"key-{i}", question) for i, question in enumerate(small.questions(6000, seed=seed))]
    clients = [Client(port, token, settings.dataset, asked[i::CLIENTS]) for i in range(CLIENTS)]
    died = dict.fromkeys((*POINTS, "at random", "idle", "starting"), 0)
    warmed(settings, token)
    spent, found = 0, ledger_status(settings)
    for number in range(quiet):
        died[killed_quietly(settings, clients, number, chance)] += 1
        found = check(settings, clients, spent, 0)
        spent = found.spent
    with opened(settings):
        pass  # what the last of them burned would be seen now
    check(settings, clients, spent, 0)
    every = (*POINTS, *(None for _ in range(len(POINTS) if count > 2 * len(POINTS) else 3)))
    if "LOSES_SHADOW" in os.environ:
        every = tuple(each for point in POINTS for each in (None, point))
    for number in range(count):
        point = every[number % len(every)]
        after = chance.randrange(1 + number // 5)
        pid = started(settings, point, after)
        if listening(port, pid):
            threads = [Thread(target=client.run) for client in clients]
            for thread in threads:
                thread.start()
            patience = 0.05 * chance.randrange(20) if point is None else 10
            if not died_by_itself(pid, patience):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                point = None
            for thread in threads:
                thread.join()
        died[point or "at random"] += 1
        if "LOSES_SHADOW" in os.environ:
            lose_power(chance)
        found = check(settings, clients, spent, number + 1)
        spent = found.spent
    told = sum(len(client.told) for client in clients)
    print(
        json.dumps(
            {
                "died": died,
                "told": told,
                "fires": found.fires,
                "burned": found.burned,
                "lines": found.head.length,
            }
        )
    )


if __name__ == "__main__":
    small.cheap_fires(Fraction(1, 1000))
    run(read_settings(sys.argv[1]), sys.argv[2], *map(int, sys.argv[3:6]))
