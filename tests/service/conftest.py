"""Services for tests: files once for all, a ledger in a new file or a new database for each test."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn

from dualquery.interactive import rule
from dualquery.interactive.online import Online
from dualquery.ledger.journal import Storage
from dualquery.service import tokens
from dualquery.service.app import bound, configured
from dualquery.service.requests import PendingRequest, Service
from dualquery.service.run import FEW_ROWS, opened, rehearse
from dualquery.service.settings import Settings
from tests.ledger.conftest import Server, own_server, server  # noqa: F401 - fixtures
from tests.service import small

Make = Callable[..., Settings]
SECONDS: list[float] = []  # that a question takes, by the first rehearsal


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.files(tmp_path_factory.mktemp("service") / "files")


@pytest.fixture(autouse=True)
def _cheap_fires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some 470 fires instead of four or five."""
    monkeypatch.setattr(rule, "EACH", Fraction(1, 1000))


@pytest.fixture(autouse=True)
def _one_rehearsal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a rehearsal compiles and loads is there after the first one of this process."""
    monkeypatch.setattr("dualquery.service.run.rehearse", rehearsed)


def rehearsed(table: Online, *, rows: int = FEW_ROWS) -> float:
    if not SECONDS:
        SECONDS.append(rehearse(table, rows=rows))
    return SECONDS[0]


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest) -> str | None:
    """Where there is no ledger yet; None is a file beside the service."""
    if request.param == "sqlite":
        return None
    found: Server = request.getfixturevalue("server")
    return found.new_database()


@pytest.fixture
def make(files: Path, tmp_path: Path) -> Make:
    """Makes services, each in a folder of its own."""
    made = 0

    def new(place: str | None = None, **options: Any) -> Settings:
        nonlocal made
        made += 1
        folder = tmp_path / f"service-{made}"
        shutil.copytree(files, folder)
        begun = small.begun(folder, place=place, **options)
        return replace(begun, http=replace(begun.http, requests_a_second=1e6, quantum=0.002))

    return new


def token(settings: Settings, name: str = "ada", *, quota: float = 1.0, owner: bool = False) -> str:
    return tokens.add(Storage(settings.place), name, quota=quota, owner=owner)


def ask(service: Service, *questions: str, name: str = "ada", **options: Any) -> list[dict[str, Any]]:
    """The replies to questions that are asked at once, without HTTP."""

    async def all_of_them() -> list[bytes]:
        (holder,) = (each for each in service.tokens.all if each.name == name)
        asked = [
            PendingRequest(holder=holder, dataset=service.settings.dataset, question=each, **options)
            for each in questions
        ]
        return await asyncio.gather(*map(service.ask, asked))

    return [json.loads(each) for each in asyncio.run(all_of_them())]


@dataclass
class Running:
    """A service that listens, in this process."""

    core: Service
    port: int
    tokens: dict[str, str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        who: str | None = "ada",
        key: str | None = None,
        **headers: str,
    ) -> tuple[int, Any, bytes]:
        """Status, what the body says, and its bytes."""
        sent = {"Content-Type": "application/json", **headers}
        if who is not None:
            sent["Authorization"] = f"Bearer {self.tokens.get(who, who)}"
        if key is not None:
            sent["Idempotency-Key"] = key
        connection = HTTPConnection("127.0.0.1", self.port, timeout=30)
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, raw, sent)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, json.loads(content), content

    def ask(self, question: str, **options: Any) -> tuple[int, Any, bytes]:
        fields = {name: options.pop(name) for name in ("tolerance", "free") if name in options}
        path = f"/v1/datasets/{self.core.settings.dataset}/ask"
        return self.request("POST", path, {"question": question, **fields}, **options)


@contextmanager
def running(settings: Settings, **people: float | str) -> Iterator[Running]:
    """A server, with tokens: a quota for each analyst, or "owner"."""
    given = {
        name: token(settings, name, quota=1.0 if what == "owner" else float(what), owner=what == "owner")
        for name, what in people.items()
    }
    with opened(settings) as service:
        local = replace(settings, http=replace(settings.http, host="127.0.0.1", port=0))
        sockets = bound(local)
        listener = uvicorn.Server(configured(service))
        thread = Thread(target=listener.run, args=(sockets,))
        thread.start()
        while not listener.started:
            time.sleep(0.005)
        try:
            yield Running(service, sockets[0].getsockname()[1], given)
        finally:
            listener.should_exit = True
            thread.join()
