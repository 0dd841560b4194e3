"""The HTTP interface: what is answered, and what every kind of bad input gets."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from dualquery.errors import DualQueryError
from dualquery.ledger.journal import Storage
from dualquery.ledger.storage import AwayError
from dualquery.service import tokens
from dualquery.service.app import HEADERS
from dualquery.service.client import Client, RefusedError
from dualquery.service.journal import ledger_status
from dualquery.service.requests import Service
from dualquery.service.settings import ProblemError, RequestRate
from tests.service import small
from tests.service.conftest import Make, Running, running

ASK = "/v1/datasets/people/ask"


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service for all tests that leave it as it was; the stale release is published beside the table."""
    import shutil
    from dataclasses import replace
    from fractions import Fraction

    from dualquery.interactive import rule

    folder = tmp_path_factory.mktemp("http") / "service"
    shutil.copytree(request.getfixturevalue("files"), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "EACH", Fraction(1, 1000))
        made = small.begun(folder)
        made = replace(
            made,
            published={"stale": "stale"},
            http=replace(made.http, requests_a_second=1e6, quantum=0.002),
        )
        with running(made, ada=1.0, bob=0.0, steward="owner") as found:
            yield found


def test_an_answer_has_a_badge_two_errors_a_cost_and_what_is_left(service: Running) -> None:
    status, reply, _ = service.ask("colour in {c0, c1} & size = s0")
    assert status == 200
    assert reply["badge"] in ("not contradicted", "measured")
    assert len(reply["values"]) == len(reply["bars_95"]) == 1
    assert 0 < reply["bound"] < 1
    assert reply["confidence"] == 0.95
    assert reply["cost"]["units"] >= 0
    assert reply["left"]["fires"] > 0
    assert reply["words"]


def test_a_table_is_one_question(service: Running) -> None:
    status, reply, _ = service.ask("colour by shape")
    assert status == 200
    assert reply["attributes"] == ["colour", "shape"]
    assert len(reply["values"]) == len(reply["labels"]) == 24


def test_a_published_release_is_free_and_says_so(service: Running) -> None:
    budget = service.request("GET", "/v1/datasets/people/budget")[1]
    assert [(each["name"], each["epsilon"], each["covered"]) for each in budget["published"]] == [
        ("stale", 0.2, True)  # the one that this service starts from
    ]
    before = budget["spent"]
    status, reply, _ = service.request(
        "POST", "/v1/datasets/stale/ask", {"question": "colour = c0"}, who="bob"
    )
    assert status == 200
    assert reply["badge"] == "release"
    assert reply["free"]
    assert "free" in reply["words"]
    assert service.request("GET", "/v1/datasets/people/budget")[1]["spent"] == before
    status, problem, _ = service.request(
        "POST", "/v1/datasets/stale/buy", {"question": "colour = c0", "error": 0.1}
    )
    assert status == 422
    assert "free" in problem["error"]["message"]
    assert (
        "free" in service.request("POST", "/v1/datasets/stale/quote", {"question": "colour = c0"})[1]["words"]
    )


@pytest.mark.parametrize("wrong", [None, "", "x", "dq_0000000000000000_x", "dq__", "Bearer", "é"])
def test_a_wrong_token_is_401(service: Running, wrong: str | None) -> None:
    headers = {"Content-Type": "application/json"}
    if wrong is not None:
        headers["Authorization"] = f"Bearer {wrong}".encode().decode("latin-1")
    connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("POST", ASK, json.dumps({"question": "colour = c0"}), headers)
    response = connection.getresponse()
    assert response.status == 401
    assert response.headers["WWW-Authenticate"] == "Bearer"
    assert json.loads(response.read())["error"]["code"] == "wrong_token"


def test_an_exhausted_quota_is_403_with_what_is_left(service: Running) -> None:
    status, problem, _ = service.ask("age = a1 & size = s1", who="bob")
    assert status == 403
    error = problem["error"]
    assert error["code"] == "quota_exhausted"
    assert error["quota"]["left"] == 0
    assert error["left"]["fires"] > 0
    assert error["price"] > 0
    status, reply, _ = service.ask("age = a1 & size = s1", who="bob", free=True)
    assert status == 200
    assert reply["badge"] == "not checked"
    assert reply["free"]
    assert reply["bound"] is None


def test_a_question_that_was_checked_is_told_again_to_anybody(service: Running) -> None:
    """Without another test, which could fire by chance and take a quota; bob, who has none, is told it, too."""
    question, path = "age = a6 & size = s4 & shape = s3", "/v1/datasets/people/quote"
    status, first, _ = service.ask(question, tolerance=0.9)
    assert (status, first["badge"]) == (200, "not contradicted")
    before = ledger_status(service.core.settings)
    assert (
        service.request("POST", path, {"question": question, "tolerance": 0.9}, who="bob")[1]["most"]["units"]
        == 0
    )
    for who in ("ada", "bob", "bob", "ada"):
        status, again, _ = service.ask(question, tolerance=0.9, who=who)
        assert status == 200
        assert [again[name] for name in ("badge", "values", "bars_95", "bound", "free")] == [
            first[name] for name in ("badge", "values", "bars_95", "bound", "free")
        ]
    after = ledger_status(service.core.settings)
    assert (after.spent, after.fires) == (before.spent, before.fires)
    assert service.ask(question, who="bob")[0] == 403, "a stricter check is another one"


def test_an_exhausted_cap_is_403_with_what_is_left(make: Make) -> None:
    with running(make(), ada=1.0) as found:
        left = found.request("GET", "/v1/datasets/people/budget")[1]["left"]["units"]
        per_unit = found.request(
            "POST", "/v1/datasets/people/quote", {"question": "age = a0", "error": 0.01}
        )[1]
        error = 0.01 * (per_unit["most"]["units"] / left) ** 0.5 * 1.001
        path = "/v1/datasets/people/buy"
        status, reply, _ = found.request("POST", path, {"question": "age = a0", "error": error})
        assert status == 200
        assert reply["badge"] == "bought"
        status, problem, _ = found.request("POST", path, {"question": "age = a1", "error": error})
        assert status == 403
        assert problem["error"]["code"] in ("budget_exhausted", "quota_exhausted")
        assert problem["error"]["left"]["share"] < 0.01
        while found.request("GET", "/v1/datasets/people/budget")[1]["left"]["fires"]:
            assert found.ask(small.questions(1, seed=int(time.monotonic_ns()) % 2**31)[0])[0] in (200, 403)
        status, problem, _ = found.ask("age = a2 & colour = c1")
        assert status == 403
        assert problem["error"]["left"]["fires"] == 0


@pytest.mark.parametrize(
    ("question", "column"),
    [
        ("colour = ", 10),
        ("colour = c9", 10),
        ("clour = c1", 1),
        ("colour = c0 & (size = s1", 25),
        ("colour by nothing", 11),
        ("colour = c0 &", 14),
        ("(" * 60 + "colour = c0" + ")" * 60, 51),
    ],
)
def test_a_malformed_query_is_422_and_points_at_the_column(
    service: Running, question: str, column: int
) -> None:
    before = ledger_status(service.core.settings)
    status, problem, _ = service.ask(question)
    assert status == 422
    assert problem["error"]["code"] == "malformed_query"
    assert problem["error"]["column"] == column
    assert ledger_status(service.core.settings) == before


def test_other_bad_requests_are_refused_in_the_same_shape(service: Running) -> None:
    before = ledger_status(service.core.settings)
    cases: list[tuple[int, str, str, Any]] = [
        (404, "POST", "/v1/datasets/nobody/ask", {"question": "colour = c0"}),
        (404, "GET", "/v1/datasets/nobody", None),
        (404, "GET", "/v1/nothing", None),
        (405, "GET", ASK, None),
        (422, "POST", ASK, {}),
        (422, "POST", ASK, b"{"),
        (400, "POST", ASK, b"\xff"),
        (400, "POST", ASK, b"[" * 60_000),
        (400, "POST", ASK, b'{"question": "colour = c0", "tolerance": ' + b"9" * 5000 + b"}"),
        (422, "POST", ASK, {"question": 5}),
        (422, "POST", ASK, {"question": ""}),
        (422, "POST", ASK, {"question": "colour = c0", "tolerance": 0}),
        (422, "POST", ASK, {"question": "colour = c0", "tolerance": 1e-9}),
        (422, "POST", ASK, b'{"question": "colour = c0", "tolerance": NaN}'),
        (422, "POST", ASK, {"question": "colour = c0", "more": 1}),
        (422, "POST", ASK, b'{"question": "\\ud800"}'),
        (422, "POST", ASK, {"question": "colour = c0 # " + "x" * 5000}),
        (413, "POST", ASK, {"question": "x" * 100_000}),
        (422, "GET", "/v1/history?most=0", None),
        (403, "GET", "/v1/charges", None),
        (403, "GET", "/v1/analysts", None),
    ]
    for wanted, method, path, body in cases:
        status, problem, _ = service.request(method, path, body)
        assert status == wanted, (path, body, problem)
        assert set(problem) == {"error"}
        assert {"code", "message"} <= set(problem["error"])
    assert service.request("POST", ASK, {"question": "colour = c0"}, key="a b")[0] == 422
    assert ledger_status(service.core.settings) == before


def test_a_repeated_request_gets_the_stored_bytes_at_no_cost(service: Running) -> None:
    status, _, first = service.ask("shape = s1 & age = a1", key="once")
    assert status == 200
    spent = ledger_status(service.core.settings)
    for _ in range(3):
        assert service.ask("shape = s1 & age = a1", key="once")[::2] == (200, first)
    assert ledger_status(service.core.settings) == spent
    status, problem, _ = service.ask("shape = s2 & age = a1", key="once")
    assert (status, problem["error"]["code"]) == (409, "key_reused")
    assert service.ask("shape = s1 & age = a1", key="once", tolerance=0.9)[0] == 409
    assert (
        service.ask("shape = s1 & age = a1", key="once", who="steward")[2] != first
    )  # another's key is another


def test_a_stored_reply_survives_a_restart(make: Make) -> None:
    settings = make()
    with running(settings, ada=1.0) as found:
        keys = found.tokens
        replies = [found.ask(q, key=f"k{i}")[2] for i, q in enumerate(small.questions(8, seed=3))]
    with running(settings) as found:
        found.tokens = keys
        again = [found.ask(q, key=f"k{i}")[2] for i, q in enumerate(small.questions(8, seed=3))]
    assert again == replies


def test_a_ledger_that_is_away_is_503_and_nothing_is_charged(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(make(), ada=1.0) as found:
        before = ledger_status(found.core.settings)

        def away(*_: object) -> None:
            raise AwayError("the disk is full")

        with monkeypatch.context() as patch:
            patch.setattr(Storage, "commit", away)
            for _ in range(2):
                status, problem, _ = found.ask("colour = c0", key="k")
                assert (status, problem["error"]["code"]) == (503, "ledger_away")
        assert ledger_status(found.core.settings) == before
        status, _, first = found.ask("colour = c0", key="k")
        assert status == 200
        assert found.ask("colour = c0", key="k")[2] == first
        assert sum(ledger_status(found.core.settings).answers.values()) == 1


def test_a_database_that_goes_away_and_comes_back(make: Make, own_server: Any) -> None:
    settings = make(own_server.new_database())
    with running(settings, ada=1.0) as found:
        status, _, first = found.ask("colour = c0", key="one")
        assert status == 200
        own_server.stop("immediate")
        for _ in range(3):
            assert found.ask("size = s1", key="two")[0] == 503
        own_server.start()
        until = time.monotonic() + 20
        while (answer := found.ask("size = s1", key="two"))[0] == 503 and time.monotonic() < until:
            time.sleep(0.1)
        assert answer[0] == 200
        assert found.ask("size = s1", key="two")[2] == answer[2]
        assert found.ask("colour = c0", key="one")[2] == first
    after = ledger_status(settings)
    assert sum(after.answers.values()) == 2
    assert after.burned == 0


def test_an_owner_sees_everybody_and_an_analyst_only_himself(service: Running) -> None:
    service.ask("colour = c2", who="ada")
    service.ask("colour = c3", who="steward")
    own = service.request("GET", "/v1/history?most=1000")[1]["replies"]
    everybody = service.request("GET", "/v1/history?most=1000", who="steward")[1]["replies"]
    assert {each["analyst"] for each in own} == {"ada"}
    assert {"ada", "steward"} <= {each["analyst"] for each in everybody}
    assert [each["line"] for each in everybody] == sorted((each["line"] for each in everybody), reverse=True)
    older = service.request("GET", f"/v1/history?most=1&before={own[0]['line']}")[1]["replies"]
    assert older == own[1:2]
    analysts = service.request("GET", "/v1/analysts", who="steward")[1]["analysts"]
    assert [each["name"] for each in analysts] == ["ada", "bob", "steward"]
    charges = service.request("GET", "/v1/charges?most=1000", who="steward")[1]["charges"]
    spent = service.request("GET", "/v1/datasets/people/budget", who="steward")[1]["spent"]
    assert sum(each["units"] for each in charges) == spent


def test_the_schema_is_public_and_says_how_to_ask(service: Running) -> None:
    found = service.request("GET", "/v1/datasets")[1]
    assert [each["kind"] for each in found] == ["interactive", "release"]
    assert [each["name"] for each in found[0]["attributes"]] == list(small.ATTRIBUTES)
    document = service.request("GET", "/v1/openapi.json", who=None)[1]
    assert "/v1/datasets/{dataset}/ask" in document["paths"]


@pytest.mark.parametrize("path", ["/", "/v1/datasets", "/v1/datasets/people/budget", "/v1/nothing"])
def test_nothing_is_kept_or_guessed_by_a_browser(service: Running, path: str) -> None:
    connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
    connection.request("GET", path, headers={"Authorization": f"Bearer {service.tokens['ada']}"})
    response = connection.getresponse()
    response.read()
    connection.close()
    for name, value in HEADERS.items():
        assert response.headers.get_all(name) == [value]


def test_a_revoked_token_opens_nothing_within_a_second_or_two(make: Make) -> None:
    with running(make(), ada=1.0) as found:
        assert found.request("GET", "/v1/datasets")[0] == 200
        tokens.revoke(Storage(found.core.settings.place), "ada")
        until = time.monotonic() + 10
        while found.request("GET", "/v1/datasets")[0] == 200:
            assert time.monotonic() < until
            time.sleep(0.1)


def test_a_defect_stops_the_asking_and_says_nothing_of_the_table(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from dualquery.privacy.curator import Curator

    def defect(*_: object, **__: object) -> None:
        raise ValueError("the count is 1234")

    settings = make()
    with running(settings, ada=1.0) as found:
        monkeypatch.setattr(Curator, "exceeds", defect)
        for _ in range(2):
            status, problem, _ = found.ask("colour = c0")
            assert status == 503
            assert "1234" not in json.dumps(problem)
        assert found.request("GET", "/v1/health", who=None)[0] == 200
        assert found.request("GET", "/v1/ready", who=None)[0] == 503
    assert "1234" not in caplog.text
    assert "ValueError" in caplog.text
    monkeypatch.undo()
    assert ledger_status(
        settings
    ).running  # not cleanly closed: what was looked at is burned at the next start


def test_a_defect_before_the_table_is_of_one_request_alone(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing was looked at and nothing was written: 500 for who asked, and everybody else goes on."""
    from dualquery.beliefs.weighted_rows import WeightedRows
    from dualquery.interactive.online import Online
    from dualquery.interactive.rule import OnlineRule

    def defect(*_: object, **__: object) -> None:
        raise OverflowError("the count is 1234")

    settings = make()
    with running(settings, ada=1.0, bob=1.0) as found:
        before = ledger_status(settings).head
        for owner, name in ((OnlineRule, "test_of"), (WeightedRows, "mass"), (Online, "quote")):
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, defect)
                status, problem, _ = found.ask("colour = c0")
                assert (status, problem["error"]["code"]) == (500, "defect")
        assert ledger_status(settings).head == before
        assert found.ask("colour = c0", who="bob")[0] == 200
    assert "1234" not in caplog.text
    assert "OverflowError" in caplog.text
    assert not ledger_status(settings).running  # cleanly closed


def test_a_defect_after_a_line_stops_the_asking(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was found is in a line, and its reply is not: nobody can say what was seen."""
    with running(make(), ada=1.0) as found:
        with monkeypatch.context() as patch:
            patch.setattr(Service, "_reply", lambda *_: 1 // 0)
            assert found.ask("colour = c0")[0] == 503
        assert found.ask("colour = c0")[0] == 503
        assert found.request("GET", "/v1/health", who=None)[0] == 200
        status, problem, _ = found.request("GET", "/v1/ready", who=None)
        assert (status, problem["error"]["code"]) == (503, "stopped")


def test_answers_leave_on_the_tick(make: Make) -> None:
    """Whether it is an answer or a refusal, it leaves at a multiple of the quantum."""
    from dataclasses import replace

    settings = make()
    quantum = 0.1
    settings = replace(settings, http=replace(settings.http, quantum=quantum))
    with running(settings, ada=1.0) as found:
        connection = HTTPConnection("127.0.0.1", found.port, timeout=30)
        late = []
        for i, (who, question) in enumerate(
            [("ada", "colour = c0"), ("ada", "colour = "), ("x", "colour = c0")] * 4
        ):
            time.sleep(0.017 * i)
            headers = {
                "Authorization": f"Bearer {found.tokens.get(who, who)}",
                "Content-Type": "application/json",
            }
            connection.request("POST", ASK, json.dumps({"question": question}), headers)
            connection.getresponse().read()
            late.append(time.monotonic() % quantum)
    assert sorted(late)[len(late) // 2] < quantum / 3


def test_a_bucket_empties_and_fills() -> None:
    now = [0.0]
    rate = RequestRate(2, clock=lambda: now[0])
    rate.take("ada")
    rate.take("ada")
    with pytest.raises(ProblemError) as caught:
        rate.take("ada")
    assert caught.value.status == 429
    assert caught.value.headers["Retry-After"] == "1"
    rate.take("bob")
    now[0] = 0.5
    rate.take("ada")


def test_the_client_asks_buys_quotes_and_says_what_is_wrong(service: Running) -> None:
    with Client(service.url, service.tokens["ada"]) as client:
        reply = client.ask("colour = c1", tolerance=0.9)
        assert "(95%)\nnot contradicted, guaranteed within 0." in str(reply)
        assert 0 <= reply.value <= 1
        assert "paid checks left" in str(client.ask("colour by shape"))
        assert "budget" in client.quote("colour = c5 & age = a1", error=0.01)["words"]
        bought = client.buy("age = a3", error=0.01)
        assert bought.badge == "bought"
        assert "% of the budget" in str(bought)
        assert client.budget()["cap"] > 0
        with pytest.raises(RefusedError, match="column 1: unknown attribute") as caught:
            client.ask("clour = c1")
        assert caught.value.status == 422
    with pytest.raises(DualQueryError, match="no service answers"):
        Client("http://127.0.0.1:9", "x").budget()
    with pytest.raises(DualQueryError, match="looks like"):
        Client("ftp://x", "x")


def test_tls_by_flags(make: Make, tmp_path: Path) -> None:
    """A certificate and a key, and the service speaks HTTPS."""
    pytest.importorskip("cryptography")
    import uvicorn

    from dualquery.service.app import application
    from dualquery.service.run import opened
    from tests.service.certificates import self_signed

    certificate, key = self_signed(tmp_path)
    with opened(make()) as service:
        config = uvicorn.Config(
            application(service),
            port=0,
            ssl_certfile=str(certificate),
            ssl_keyfile=str(key),
            log_level="critical",
        )
        from threading import Thread

        listener = uvicorn.Server(config)
        thread = Thread(target=listener.run)
        thread.start()
        while not listener.started:
            time.sleep(0.01)
        port = listener.servers[0].sockets[0].getsockname()[1]
        try:
            trusted = ssl.create_default_context(cafile=str(certificate))
            from http.client import HTTPSConnection

            connection = HTTPSConnection("localhost", port, context=trusted, timeout=30)
            connection.request("GET", "/v1/health")
            assert connection.getresponse().status == 200
            connection.close()
        finally:
            listener.should_exit = True
            thread.join()
