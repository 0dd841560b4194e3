"""A PostgreSQL behind a network that falls silent: everybody is told in time, and a stop is a stop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

import dualquery
from dualquery.ledger import journal
from dualquery.ledger.journal import Storage
from dualquery.ledger.storage import AwayError
from dualquery.service.journal import ledger_status
from dualquery.service.run import opened
from dualquery.service.settings import Settings
from tests.ledger.conftest import Server
from tests.service.conftest import Make, ask, token
from tests.service.silent_network import Network

SOURCE = str(Path(dualquery.__file__).resolve().parents[1])


@pytest.fixture
def network(server: Server) -> Iterator[Network]:
    made = Network(server.port)
    yield made
    made.end()


@pytest.fixture
def behind(make: Make, server: Server, network: Network) -> Settings:
    """A service whose database is reached by that network."""
    settings = make(server.new_database())
    token(settings)
    return replace(settings, ledger=settings.ledger.replace(f":{server.port}/", f":{network.port}/"))


def test_everybody_is_told_and_it_goes_on_when_the_network_is_back(
    behind: Settings, network: Network, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "LONGEST", 1.0)
    with opened(behind) as service:
        (first,) = ask(service, "colour = c0", key="one")
        network.fall_silent()
        for _ in range(2):
            began = time.monotonic()
            with pytest.raises(AwayError, match="cannot be reached"):
                ask(service, "colour = c1", key="two")
            assert time.monotonic() - began < 15
        with pytest.raises(AwayError):
            service.storage.told(None, before=2**53, most=10, size=1000)
        network.come_back()
        until = time.monotonic() + 30
        while True:  # the old session still holds the lock at the far end, and is ended
            try:
                (second,) = ask(service, "colour = c1", key="two")
                break
            except AwayError:
                assert time.monotonic() < until
        assert second["line"] > first["line"]
        assert ask(service, "colour = c0", key="one") == [first]
    direct = replace(behind, ledger=behind.ledger.replace(f":{network.port}/", f":{server.port}/"))
    found = ledger_status(direct)
    assert found.burned == 0
    assert sum(found.answers.values()) == 2


@pytest.mark.parametrize("asked", [False, True])
def test_a_server_before_a_silent_network_can_be_stopped(
    behind: Settings, network: Network, server: Server, asked: bool
) -> None:
    """As a process of its own, with a shorter limit."""
    given = token(
        replace(behind, ledger=behind.ledger.replace(f":{network.port}/", f":{server.port}/")), "bob"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    file = behind.folder / "behind.toml"
    file.write_text(behind.to_toml())
    program = (
        "from fractions import Fraction; from dualquery.interactive import rule; rule.EACH = Fraction(1, 1000); "
        "from dualquery.ledger import journal; journal.LONGEST = 3.0; "
        "from dualquery.cli import main; main()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, "serve", str(file), "--port", str(port)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        status, body = _post(port, given, "colour = c0")
        assert status == 200, body
        network.fall_silent()
        if asked:
            began = time.monotonic()
            status, body = _post(port, given, "colour = c1")
            assert status == 503, body
            assert time.monotonic() - began < journal.LONGEST + 10
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=50)
        assert "Traceback" not in out, out
    finally:
        process.kill()
    network.come_back()
    direct = replace(behind, ledger=behind.ledger.replace(f":{network.port}/", f":{server.port}/"))
    storage = Storage(direct.place)  # the far end has not heard of the stop: its owner ends what is left
    with storage.reading() as connection:
        connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND datname = "
            "current_database()"
        ).all()
    with opened(direct):
        pass
    assert ledger_status(direct).burned <= asked


def _post(port: int, given: str, question: str) -> tuple[int, Any]:
    until = time.monotonic() + 120
    while True:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        try:
            connection.request(
                "POST",
                "/v1/datasets/people/ask",
                f'{{"question": "{question}"}}',
                {"Authorization": f"Bearer {given}", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            return response.status, response.read()
        except ConnectionError:
            assert time.monotonic() < until
            time.sleep(0.1)
