"""A desk that listens in this process, in a folder with an invented survey."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow.csv
import pytest
import uvicorn

from dualquery import example
from dualquery.desk import bound
from dualquery.desk.app import Desk, application

KEY = "0123456789abcdef"


@dataclass
class Sitting:
    desk: Desk
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def link(self) -> str:
        return f"{self.url}/#{self.desk.token}"

    def request(
        self, method: str, path: str, body: Any = None, *, token: str | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        sent = {"Authorization": f"Bearer {self.desk.token if token is None else token}", **headers}
        if body is not None:
            sent["Content-Type"] = "application/json"
        connection = HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        kind = response.getheader("Content-Type", "")
        return (
            response.status,
            json.loads(content) if "json" in kind else content,
            dict(response.getheaders()),
        )

    def post(self, path: str, body: Any, key: str = KEY) -> tuple[int, Any]:
        status, said, _ = self.request("POST", path, body, **{"Idempotency-Key": key})
        return status, said

    def end(self, job: dict[str, Any]) -> dict[str, Any]:
        """The job when it has ended."""
        while job["running"]:
            time.sleep(0.05)
            job = self.request("GET", f"/v1/jobs/{job['key']}")[1]
        return job


@contextmanager
def sitting(folder: Path) -> Iterator[Sitting]:
    desk, listening = Desk(folder), bound(0)
    port = listening.getsockname()[1]
    app = application(desk, lambda: port)
    server = uvicorn.Server(uvicorn.Config(app, access_log=False, log_level="warning", ws="none"))
    thread = Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield Sitting(desk, port)
    finally:
        server.should_exit = True
        thread.join()
        desk.jobs.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pyarrow.csv.write_csv(example.survey(300), tmp_path / "people.csv")
    return tmp_path


@pytest.fixture
def here(folder: Path) -> Iterator[Sitting]:
    with sitting(folder) as found:
        yield found
