"""What an operator sees: alive, ready, counters, a log; and answers that leave at moments that tell nothing."""

from __future__ import annotations

import json
import re
import socket
import time
from dataclasses import replace
from fractions import Fraction
from http.client import HTTPConnection
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import sqlalchemy as sql

from dualquery import cli
from dualquery.interactive import rule
from dualquery.ledger.journal import Storage
from dualquery.ledger.storage import AwayError
from dualquery.privacy.thresholds import HazardTest
from dualquery.service import worker
from dualquery.service.journal import ledger_status
from dualquery.service.run import opened, quantum_for, rehearse
from dualquery.service.settings import Departure, RequestCounts
from tests.service import small
from tests.service.conftest import Make, Running, ask, running, token


def _until(found: Running, status: int) -> dict[str, Any]:
    """What /v1/ready says once it has this status; it is asked again and again, alive all the time."""
    until = time.monotonic() + 60
    while (seen := found.request("GET", "/v1/ready", who=None))[0] != status:
        assert time.monotonic() < until, seen
        assert found.request("GET", "/v1/health", who=None)[:2] == (200, {"status": "ok"})
        time.sleep(0.05)
    said: dict[str, Any] = seen[1]
    return said


def test_not_ready_when_the_file_is_gone(make: Make) -> None:
    """Nobody has asked anything, and still it is noticed; then it comes back."""
    with running(make(), ada=1.0) as found:
        place = Path(found.core.settings.place)
        _until(found, 200)
        place.rename(place.with_name("elsewhere"))
        assert _until(found, 503)["error"] == {
            "code": "ledger_away",
            "message": "the ledger cannot be written now",
        }
        place.with_name("elsewhere").rename(place)
        _until(found, 200)
        assert found.ask("colour = c0")[0] == 200


def test_not_ready_when_nothing_can_be_written_or_nothing_answers(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise AwayError("no room at /secret/place, user steward")

    with running(make(), ada=1.0) as found:
        for name in ("probe", "commit"):
            with monkeypatch.context() as patch:
                patch.setattr(Storage, name, away)
                if name == "commit":
                    patch.setattr(Storage, "probe", away)
                    assert found.ask("colour = c0", key="k")[0] == 503
                assert "steward" not in str(_until(found, 503))
            _until(found, 200)
        going_on = Event()
        monkeypatch.setattr(worker, "HANGING", 0.2)
        monkeypatch.setattr(Storage, "probe", lambda _: going_on.wait(30))
        assert _until(found, 503)["error"]["code"] == "ledger_silent"
        going_on.set()
        _until(found, 200)


def test_not_ready_when_the_database_is_away_or_a_right_is_revoked(make: Make, own_server: Any) -> None:
    place = own_server.new_database()
    settings = make(place)
    given = {"ada": token(settings)}

    def as_steward(*statements: str) -> None:
        with Storage(place).engine.begin() as connection:
            for statement in statements:
                connection.execute(sql.text(statement))

    as_steward(
        "CREATE ROLE clerk LOGIN PASSWORD 'clerk'",
        "GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO clerk",
    )
    url = sql.make_url(place).set(username="clerk", password="clerk").render_as_string(hide_password=False)
    with running(replace(settings, ledger=url)) as found:
        found.tokens = given
        _until(found, 200)
        as_steward("REVOKE INSERT ON dualquery_lines FROM clerk")
        assert _until(found, 503)["error"]["code"] == "ledger_away"
        as_steward("GRANT INSERT ON dualquery_lines TO clerk")
        _until(found, 200)
        own_server.stop("immediate")
        assert _until(found, 503)["error"]["code"] == "ledger_away"
        own_server.start()
        _until(found, 200)
        assert found.ask("colour = c0")[0] == 200


def _text(found: Running, path: str, who: str) -> tuple[int, str, str]:
    connection = HTTPConnection("127.0.0.1", found.port, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {found.tokens[who]}"})
    response = connection.getresponse()
    body = response.read().decode()
    connection.close()
    return response.status, response.headers["Content-Type"], body


def test_prometheus_reads_counters_that_say_nothing_of_the_table(make: Make) -> None:
    with running(make(), ada=1.0, steward="owner") as found:
        found.ask("colour = c0")
        found.ask("colour = ")
        found.request("GET", "/v1/some/secret/path")
        assert _text(found, "/metrics", "ada")[0] == 403
        status, kind, body = _text(found, "/metrics", "steward")
    assert status == 200
    assert kind.startswith("text/plain; version=0.0.4")
    lines = body.splitlines()
    route = 'method="POST",route="/v1/datasets/{dataset}/ask"'
    assert f'dualquery_requests_total{{{route},status="200"}} 1' in lines
    assert f'dualquery_requests_total{{{route},status="422"}} 1' in lines
    assert 'dualquery_requests_total{method="GET",route="other",status="404"} 1' in lines
    assert "dualquery_ready 1" in lines
    assert all(re.fullmatch(r'# TYPE \w+ \w+|\w+(\{(\w+="[^"]*",?)+\})? [\d.]+', line) for line in lines)
    assert {line.split("{")[0].split()[0] for line in lines if not line.startswith("#")} == {
        *("dualquery_requests_total", "dualquery_uptime_seconds", "dualquery_ready"),
        *("dualquery_ledger_lines", "dualquery_spent_units"),
    }, "whatever is new here must not depend on the table other than through the answers"


def test_a_log_of_requests_without_questions() -> None:
    lines: list[str] = []
    counts = RequestCounts(lines.append)
    counts.count("POST", "/v1/datasets/{dataset}/ask", 200, analyst="ada", arrived=0.25)
    until = time.monotonic() + 10
    while not lines and time.monotonic() < until:
        time.sleep(0.01)
    assert json.loads(lines[0]) == {
        "time": "1970-01-01T00:00:00.250+00:00",
        "method": "POST",
        "route": "/v1/datasets/{dataset}/ask",
        "status": 200,
        "analyst": "ada",
    }


def test_a_log_that_nobody_reads_stops_nobody() -> None:
    stuck = Event()
    counts = RequestCounts(lambda _: stuck.wait(30))
    began = time.monotonic()
    for _ in range(20_000):
        counts.count("GET", "/v1/health", 200, analyst=None, arrived=0.0)
    assert time.monotonic() - began < 20
    assert counts.requests["GET", "/v1/health", 200] == 20_000
    stuck.set()


# Departures


def test_what_is_late_leaves_after_two_four_eight_quanta() -> None:
    now = [0.3]
    watch = Departure(1.0, lambda: now[0])
    assert watch.first == 1.0
    late = {0.9: 1, 1.0: 1, 1.1: 3, 2.9: 3, 3.1: 5, 5.5: 9, 9.5: 17, 100.0: 129}
    assert {moment: watch.leaves(moment) for moment in late} == late
    now[0] = 7.6
    watch.start()
    assert watch.first == 9.0


def test_missed_ticks_are_counted_for_the_owner(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from dualquery.privacy.curator import Curator

    settings = make()
    settings = replace(settings, http=replace(settings.http, quantum=0.2))
    real = Curator.exceeds

    def slow(self: Curator, *arguments: Any, **options: Any) -> Any:
        time.sleep(0.7)
        return real(self, *arguments, **options)

    path = "/v1/datasets/people/budget"
    with running(settings, ada=1.0, steward="owner") as found:
        before = found.request("GET", path, who="steward")[1]["missed_ticks"]
        monkeypatch.setattr(Curator, "exceeds", slow)
        assert found.ask("colour = c0")[0] == 200
        assert found.request("GET", path, who="steward")[1]["missed_ticks"] > before
        assert "missed_ticks" not in found.request("GET", path)[1]


def test_the_first_fire_is_no_slower_than_later_ones(make: Make) -> None:
    """Compiled and loaded before anybody asks, and the tables of tests are made elsewhere."""
    settings = make()
    token(settings)
    seconds = []
    with opened(settings) as service:
        for question in small.questions(12, seed=5):
            before = time.process_time()
            (reply,) = ask(service, question)
            if reply["badge"] == "measured":
                seconds.append(time.process_time() - before)
    assert len(seconds) > 3
    assert seconds[0] < 20 * sorted(seconds)[len(seconds) // 2]


def test_tables_of_tests_are_ready_before_anybody_asks(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rule, "EACH", Fraction(1, 100))  # the real one
    settings = make()
    token(settings)
    with opened(settings) as service:
        service.online.prepare_all()
        made: list[HazardTest] = []
        monkeypatch.setattr(HazardTest, "prepare", lambda test: made.append(test))
        ask(service, "colour = c0", "by colour", "colour by size")
        assert made == []
        ask(service, "colour by size by age")
        assert len(made) == 1


def test_the_quantum_of_a_new_service_is_measured(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quantum_for(0.001) == 0.02
    assert quantum_for(0.0051) == 0.04
    assert quantum_for(1.0) == 5.12
    assert quantum_for(1000.0) <= 60
    asked: list[int] = []

    def slow(table: Any, *, rows: int = 1024) -> float:
        asked.append(rows)
        return 0.1

    monkeypatch.setattr("dualquery.service.run.rehearse", slow)
    settings = make()
    assert asked == [small.ROWS]
    assert "quantum = 0.64" in (settings.folder / "service.toml").read_text()


def test_a_rehearsal_takes_every_path(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    from dualquery.interactive.answers import Badge, OnlineAnswer

    seen: list[Badge] = []
    real = OnlineAnswer.of

    def noted(question: Any, badge: Badge, *arguments: Any, **options: Any) -> Any:
        seen.append(badge)
        return real(question, badge, *arguments, **options)

    with opened(make()) as service:
        table = service.online
        monkeypatch.setattr(OnlineAnswer, "of", staticmethod(noted))
        before = service.journal.head
        assert 0 < rehearse(table) < 10
        assert service.journal.head == before
    assert {Badge.MEASURED, Badge.BOUGHT} <= set(seen)


# What keeps a service from starting, and what it says of a price


def test_a_taken_port_and_missing_tls_files_are_sentences(
    make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = make()
    service, before = str(settings.folder / "service.toml"), ledger_status(settings).head
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert cli.run(["serve", service, "--port", port]) == 2
        assert "something else listens there" in capsys.readouterr().err
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no certificate")
    for flags, said in {
        ("--tls-certificate", str(tmp_path / "nothing.pem")): "is not there",
        ("--tls-certificate", str(garbage), "--tls-key", str(tmp_path / "nothing.key")): "is not there",
        ("--tls-certificate", str(garbage)): "not a TLS certificate",
        ("--tls-key", str(garbage)): "needs its certificate",
        ("--host", "256.0.0.1"): "annot listen",
    }.items():
        assert cli.run(["serve", service, "--port", "0", *flags]) == 2, flags
        shown = " ".join(capsys.readouterr().err.split())
        assert said in shown
        assert "Traceback" not in shown
    assert ledger_status(settings).head == before


def test_what_is_too_dear_has_its_price(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is left to test with: the price is that of a fire, and not 0."""
    from dualquery.interactive.rule import State

    with running(make(), ada=1.0) as found:
        monkeypatch.setattr(State, "open_slot", None)
        status, problem, _ = found.ask("colour = c0")
        price = found.request("GET", "/v1/datasets/people/budget")[1]["price"]["units"]
    assert (status, problem["error"]["code"]) == (403, "budget_exhausted")
    assert problem["error"]["price"] == price > 0
