"""Requests that nobody would write: never a 5xx, and nothing charged for what was refused."""

from __future__ import annotations

import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from http.client import HTTPConnection
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from dualquery.interactive import rule
from dualquery.service.journal import ledger_status
from tests.service import small
from tests.service.conftest import Running, running

FUZZED = settings(
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


fuzzed = pytest.mark.parametrize("many", [60, pytest.param(1800, marks=pytest.mark.long)])


@pytest.fixture(scope="module")
def service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("fuzz") / "service"
    shutil.copytree(request.getfixturevalue("files"), folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rule, "EACH", Fraction(1, 1000))
        made = small.begun(folder)
        made = replace(
            made, published={"stale": "stale"}, http=replace(made.http, requests_a_second=1e6, quantum=0.001)
        )
        with running(made, ada=1.0, steward="owner") as found:
            yield found


class Watched:
    """Requests, and what the ledger says of each: only what was answered with 200 may have written a charge."""

    def __init__(self, service: Running) -> None:
        self.service = service
        self.seen: Counter[int] = Counter()
        self.before = self._charged()

    def _charged(self) -> int:
        """Lines that were written for an analyst."""
        journal = self.service.core.journal
        return journal.head.length

    def look(self, status: int) -> None:
        assert status < 500
        self.seen[status] += 1
        after = self._charged()
        if status != 200:
            assert after == self.before, "something was written for a request that was refused"
        self.before = after


_WORDS = st.sampled_from(
    [
        *(
            "colour",
            "size",
            "shape",
            "age",
            "c0",
            "s1",
            "a7",
            "'c0'",
            '"age"',
            "by",
            "in",
            "not",
            "is",
            "missing",
        ),
        *(
            "and",
            "or",
            "parity",
            "&",
            "|",
            "!",
            "=",
            "!=",
            "<",
            ">=",
            "(",
            ")",
            "[",
            "]",
            "{",
            "}",
            ",",
            "#",
            "'",
        ),
        *("0", "1e9", "-1", "nan", "∧", "¬", "≤", "\x00", "\n", "😀", "colour = c0", "size in {s0, s1}"),
    ]
)
_CONDITIONS = st.sampled_from(
    [
        *(
            "colour = c0",
            "colour != c5",
            "size in {s0, s4}",
            "!(shape = s1)",
            "age = a7",
            "age not in {a1}",
            "(size = s2)",
        ),
        *(
            "colour in {c1}",
            "'age' = \"a0\"",
            "not shape = s3",
            "colour",
            "size > s1",
            "by age",
            "colour by size",
        ),
    ]
)
_FORMULAS = st.lists(_CONDITIONS, min_size=1, max_size=4).flatmap(
    lambda parts: st.sampled_from([" & ", " | ", " and ", " or ", " by ", " "]).map(
        lambda sign: sign.join(parts)
    )
)
_QUESTIONS = _FORMULAS | st.lists(_WORDS, max_size=14).map(" ".join) | st.text(max_size=40)


@fuzzed
def test_the_language(service: Running, many: int) -> None:
    watched = Watched(service)

    @settings(FUZZED, max_examples=many)
    @given(question=_QUESTIONS, free=st.booleans(), tolerance=st.none() | st.floats(0.2, 1))
    def ask(question: str, free: bool, tolerance: float | None) -> None:
        body: dict[str, Any] = {"question": question, "free": free}
        if tolerance is not None:
            body["tolerance"] = tolerance
        status, found, _ = service.request("POST", "/v1/datasets/people/ask", body)
        watched.look(status)
        if status == 422 and "column" in found["error"]:
            assert 1 <= found["error"]["column"] <= len(question) + 1

    ask()
    assert watched.seen[200] > 0
    assert watched.seen[422] > 0
    assert ledger_status(service.core.settings).spent <= ledger_status(service.core.settings).cap
    print("language", dict(watched.seen))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
_BODIES = (
    st.binary(max_size=60)
    | _JSON.map(lambda each: json.dumps(each).encode())
    | st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("question", "tolerance", "free", "error"), _JSON)
    ).map(lambda each: json.dumps(each).encode())
)


@fuzzed
def test_bodies_and_paths(service: Running, many: int) -> None:
    watched = Watched(service)
    headers = {"Authorization": f"Bearer {service.tokens['ada']}", "Content-Type": "application/json"}

    @settings(FUZZED, max_examples=many)
    @given(
        method=st.sampled_from(["POST", "POST", "POST", "GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD"]),
        path=st.sampled_from(
            [
                "ask",
                "ask",
                "buy",
                "buy",
                "quote",
                "budget",
                "",
                "../../health",
                "%00",
                "ask?x=1",
                "buy/",
                "a" * 300,
            ]
        ),
        dataset=st.sampled_from(
            ["people", "people", "people", "stale", "nobody", "%2e%2e", "%F0%9F%98%80", "people%00"]
        ),
        body=_BODIES,
    )
    def send(method: str, path: str, dataset: str, body: bytes) -> None:
        connection = HTTPConnection("127.0.0.1", service.port, timeout=30)
        connection.request(method, f"/v1/datasets/{dataset}/{path}", body, headers)
        response = connection.getresponse()
        response.read()
        connection.close()
        watched.look(response.status)

    send()
    assert all(watched.seen[status] > 0 for status in (404, 405, 422)), (
        "bad paths, methods and bodies were sent"
    )
    print("bodies", dict(watched.seen))


_NUMBERS = (
    st.floats(width=64)
    | st.floats(0, 1)
    | st.floats(5e-324, 1e-300)  # the smallest that there are
    | st.integers()
    | st.integers(-300, 300).map(lambda power: 10**power)
    | st.sampled_from([5e-324, 1e-160, 1e-154, 1e-12, 0.5, 1.0, 10**400, -(10**400), 10**5000])
    | st.floats().map(str)
)


def _written(body: dict[str, Any]) -> bytes:
    """JSON with NaN, infinities and whole numbers of any length, as nobody should send it."""
    limit = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(body).encode()
    finally:
        sys.set_int_max_str_digits(limit)


@fuzzed
def test_errors_and_tolerances(service: Running, many: int) -> None:
    """Every float, and what is none: one free request must not stop the service for everybody."""
    watched = Watched(service)

    @settings(FUZZED, max_examples=2 * many)
    @given(
        path=st.sampled_from(["quote", "buy", "ask"]),
        name=st.sampled_from(["error", "tolerance"]),
        number=_NUMBERS,
        question=st.sampled_from(["colour = c0", "colour by size by age", "age = a1"]),
    )
    @example(path="quote", name="error", number=1e-160, question="colour = c0")
    @example(path="buy", name="error", number=5e-324, question="colour by size by age")
    @example(path="quote", name="error", number=1e-12, question="colour = c0")
    @example(path="ask", name="tolerance", number=5e-324, question="colour = c0")
    @example(path="buy", name="error", number=10**5000, question="colour = c0")
    def send(path: str, name: str, number: float | str, question: str) -> None:
        body = _written({"question": question, name: number})
        status, _, _ = service.request("POST", f"/v1/datasets/people/{path}", body)
        watched.look(status)

    send()
    assert watched.seen[200] > 0
    assert watched.seen[422] > 0
    assert service.request("GET", "/v1/ready", who=None)[0] == 200
    print("numbers", dict(watched.seen))


@fuzzed
def test_what_the_openapi_document_allows_and_forbids(service: Running, many: int) -> None:
    """Schemathesis makes requests from the document, good and bad ones."""
    schemathesis = pytest.importorskip("schemathesis")
    schema = schemathesis.openapi.from_url(f"{service.url}/v1/openapi.json")
    watched = Watched(service)
    headers = {"Authorization": f"Bearer {service.tokens['ada']}"}
    operations = [each.ok() for each in schema.get_all_operations()]
    each_of_them = max(5, many // len(operations))
    documented = 0
    for operation in operations:
        strategy = operation.as_strategy() | operation.as_strategy(
            generation_mode=schemathesis.GenerationMode.NEGATIVE
        )

        @settings(FUZZED, max_examples=each_of_them)
        @given(case=strategy)
        def one(case: Any) -> None:
            nonlocal documented
            if case.path_parameters and case.path_parameters.get("dataset", "")[:1] > "A":
                case.path_parameters["dataset"] = "people"
            response = case.call(headers=headers)
            watched.look(response.status_code)
            documented += str(response.status_code) in case.operation.definition.raw["responses"]

        one()
    print("openapi", dict(watched.seen))
    assert documented == sum(watched.seen.values())
