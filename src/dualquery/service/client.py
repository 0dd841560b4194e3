"""The other end of a service, in Python.

    with Client("http://127.0.0.1:8642", token="dq_…") as people:
        print(people.ask("age >= 50 & sex = Female"))

Every question has an idempotency key, so that one whose answer got lost can be asked again and is paid for once.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote as escaped
from urllib.parse import urlsplit

from dualquery.errors import DualQueryError

_TRIES = 3
_PATIENCE = 60.0  # seconds for an answer


class RefusedError(DualQueryError):
    """The service refused; `status`, `code` and `details` say what, for programs."""

    def __init__(self, status: int, error: dict[str, Any]) -> None:
        message = str(error.get("message", "the service refused"))
        if "column" in error:
            message = f"column {error['column']}: {message}\n{error.get('picture', '')}"
        super().__init__(message)
        self.status, self.code, self.details = status, str(error.get("code", "")), error


@dataclass(frozen=True)
class Reply:
    """An answer as the service sent it."""

    data: dict[str, Any]

    @property
    def values(self) -> list[float]:
        return [float(each) for each in self.data["values"]]

    @property
    def value(self) -> float:
        (value,) = self.values
        return value

    @property
    def badge(self) -> str:
        return str(self.data["badge"])

    def __str__(self) -> str:
        """`0.142 ± 0.006 (95%)`, the badge, the bound and the price."""
        bars = self.data["bars_95"]
        if self.data["labels"]:
            rows = zip(self.data["labels"], self.values, bars, strict=True)
            head = "\n".join(f"{_with_bar(v, bar):<26} {', '.join(labels)}" for labels, v, bar in rows)
        else:
            head = _with_bar(self.value, bars[0])
        bound = self.data["bound"]
        sure = "" if bound is None else f", guaranteed within {bound:.2g} ({self.data['confidence']:.0%})"
        share = self.data["cost"]["share"]
        price = "free" if self.data["free"] else f"{100 * share:.2g}% of the budget"
        return f"{head}\n{self.badge}{sure}; {price}; {self.data['left']['fires']} paid checks left"


class Client:
    """Asks one service. Without `dataset`, its interactive table."""

    def __init__(self, url: str, token: str, *, dataset: str | None = None) -> None:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DualQueryError("the address of a service looks like http://127.0.0.1:8642")
        self._parts, self._token, self._dataset = parts, token, dataset
        self._connection: HTTPConnection | None = None

    @property
    def dataset(self) -> str:
        if self._dataset is None:
            all_of_them = self._get("/v1/datasets")
            self._dataset = next(each["name"] for each in all_of_them if each["kind"] == "interactive")
        return self._dataset

    def ask(
        self, question: str, *, tolerance: float | None = None, free: bool = False, key: str | None = None
    ) -> Reply:
        body: dict[str, Any] = {"question": question, "free": free}
        if tolerance is not None:
            body["tolerance"] = tolerance
        return Reply(self._post("ask", body, key or secrets.token_hex(16)))

    def buy(self, question: str, *, error: float, key: str | None = None) -> Reply:
        """A question, measured with a standard error (a fraction of the table), for its price."""
        return Reply(self._post("buy", {"question": question, "error": error}, key or secrets.token_hex(16)))

    def quote(
        self, question: str, *, tolerance: float | None = None, error: float | None = None
    ) -> dict[str, Any]:
        body = {"question": question, "tolerance": tolerance, "error": error}
        return self._post("quote", {name: each for name, each in body.items() if each is not None}, None)

    def budget(self) -> dict[str, Any]:
        found: dict[str, Any] = self._get(f"/v1/datasets/{escaped(self.dataset, safe='')}/budget")
        return found

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _get(self, path: str) -> Any:
        return self._request("GET", path, None, {})

    def _post(self, what: str, body: dict[str, Any], key: str | None) -> dict[str, Any]:
        headers = {} if key is None else {"Idempotency-Key": key}
        path = f"/v1/datasets/{escaped(self.dataset, safe='')}/{what}"
        found: dict[str, Any] = self._request("POST", path, json.dumps(body).encode(), headers)
        return found

    def _request(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Any:
        """One request, again where the connection breaks: what is repeated has its key, or costs nothing."""
        sent = {
            "Authorization": f"Bearer {self._token}",
            "Content-Type": "application/json",
            **headers,
        }
        for attempt in range(_TRIES):
            if self._connection is None:
                secure = self._parts.scheme == "https"
                kind = HTTPSConnection if secure else HTTPConnection
                self._connection = kind(str(self._parts.hostname), self._parts.port, timeout=_PATIENCE)
            try:
                self._connection.request(method, self._parts.path.rstrip("/") + path, body, sent)
                response = self._connection.getresponse()
                return _read(response.status, response.read())
            except (OSError, HTTPException):
                self.close()
                time.sleep(0.2 * attempt)
        raise DualQueryError(f"no service answers at {self._parts.scheme}://{self._parts.netloc}")


def _read(status: int, body: bytes) -> Any:
    try:
        found = json.loads(body)
    except ValueError:
        raise RefusedError(status, {"message": "what answers there is not a service of dualquery"}) from None
    if status != 200:
        raise RefusedError(status, found.get("error", {}) if isinstance(found, dict) else {})
    return found


def _with_bar(value: float, bar: float | None) -> str:
    """`0.142 ± 0.006 (95%)`: the bar with one digit, two where it begins with 1, and the value to match."""
    if not bar:
        return f"{value:.4f}"
    digits = -math.floor(math.log10(bar))
    digits = min(max(digits + (round(bar * 10**digits, 1) < 2), 0), 12)
    return f"{value:.{digits}f} ± {bar:.{digits}f} (95%)"
