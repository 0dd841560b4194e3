"""Many clients at once, who want more than there is: never a fire too many."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from http.client import HTTPConnection
from threading import Thread

import pytest

from dualquery.interactive import KINDS, Fired, Prepaid, read, rule
from dualquery.ledger.journal import Storage
from dualquery.service.journal import ledger_status
from tests.service import small
from tests.service.conftest import Make, Running, running


def rush(found: Running, clients: int, requests: int, *, what: str, body: dict[str, object]) -> Counter[int]:
    """So many clients, each with so many requests, as fast as they can; how many of each status."""
    seen: Counter[int] = Counter()
    asked = small.questions(clients * requests, seed=11)

    def one(number: int) -> None:
        connection = HTTPConnection("127.0.0.1", found.port, timeout=60)
        name = f"client{number}"
        headers = {"Authorization": f"Bearer {found.tokens[name]}", "Content-Type": "application/json"}
        for question in asked[number::clients]:
            connection.request(
                "POST", f"/v1/datasets/people/{what}", json.dumps({"question": question, **body}), headers
            )
            response = connection.getresponse()
            response.read()
            seen[response.status] += 1

    threads = [Thread(target=one, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def rushed(make: Make, clients: int, requests: int, purchases: int) -> None:
    """Purchases at a price of which the budget pays for so many, whoever asks."""
    settings = make()
    with running(settings, **{f"client{i}": 1.0 for i in range(clients)}) as found:
        status = found.request("GET", "/v1/datasets/people/budget", who="client0")[1]
        probe = {"question": "age = a0", "error": 0.01}
        cost = found.request("POST", "/v1/datasets/people/quote", probe, who="client0")[1]["most"]["units"]
        left = status["left"]["units"]
        error = 0.01 * (cost / (left / (purchases + 0.5))) ** 0.5
        seen = rush(found, clients, requests, what="buy", body={"error": error})
        assert seen == {200: purchases, 403: clients * requests - purchases}
    after = ledger_status(settings)
    assert after.answers["bought"] == purchases
    assert after.spent <= after.cap


def test_eight_clients_share_what_pays_for_twenty_purchases(make: Make) -> None:
    rushed(make, 8, 10, 20)


@pytest.mark.long
def test_eight_clients_with_five_hundred_requests_share_two_hundred_purchases(make: Make) -> None:
    rushed(make, 8, 500, 200)


def fired(make: Make, monkeypatch: pytest.MonkeyPatch, each: Fraction, clients: int, requests: int) -> None:
    """Questions that surprise, against a budget for so many fires; nobody gets one more, whoever asks."""
    monkeypatch.setattr(rule, "EACH", each)
    settings = make()
    before = ledger_status(settings)
    with running(settings, **{f"client{i}": 1.0 for i in range(clients)}) as found:
        online = found.core.online
        # a hypothesis that hears nothing keeps being surprised: the ledger must stop it, and nothing else will
        monkeypatch.setattr(online._state, "_hear", lambda question, known, cell: None)
        seen = rush(found, clients, requests, what="ask", body={})
        assert set(seen) == {200, 403}
    storage = Storage(settings.place)
    entries = [read(line.body) for line in storage.verified(storage.promise()) if line.kind in KINDS]
    fires = sum(isinstance(entry, Fired) for entry in entries)
    paid = sum(isinstance(entry, Prepaid) for entry in entries)
    after = ledger_status(settings)
    print(f"{fires} fires of {before.fires_left}, {seen}")
    assert fires == before.fires_left == paid
    assert after.spent <= after.cap
    assert after.fires_left == 0


def test_eight_clients_never_get_a_fire_too_many(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fired(make, monkeypatch, Fraction(1, 100), 8, 40)


@pytest.mark.long
def test_eight_clients_with_five_hundred_requests_never_get_the_two_hundred_and_first_fire(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    fired(make, monkeypatch, Fraction(95, 40_000), 8, 500)
