"""What a service is, in one file: a table and its schema, the releases, the ledger, the promise, the limits.

What surrounds every request: its limits, the moment at which its answer leaves, refusals, and what is counted.

*Answers leave at fixed moments*, errors too. How long a count takes depends on the table, and somebody may hold a
watch. A request that arrives at t is answered at the first tick (a multiple of the quantum) after t + half a quantum:
a public function of t, as long as the work is done by then. Otherwise it leaves 2, 4, 8, … quanta after that tick, so
that of a work of any length no more is seen than how often it doubles; such a tick is *missed*, and counted for the
owner. What takes long and looks at no table (a body that arrives slowly, the table of a test that is made for the
first time) starts the watch anew.

*What is counted* is told to Prometheus, and to a log, one JSON line a request. Nothing in either depends on the table
other than through answers that were given: no durations, no sizes, no text of a question. Missed ticks do depend on
how long the work takes; they are told to owners alone, with the budget.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import queue
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from time import monotonic, time
from typing import Any, TypeAlias

from dualquery.errors import BudgetError, DualQueryError, LedgerError, QueryError
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.table.toml_text import document, quoted


class ServiceError(DualQueryError):
    """The file that describes a service cannot be read, or says something that cannot be."""


@dataclass(frozen=True, kw_only=True)
class Http:
    """Where the service listens, and how much it takes."""

    host: str = "127.0.0.1"
    port: int = 8642
    quantum: float = 0.02  # seconds between two moments at which answers leave
    longest_body: int = 65_536
    longest_query: int = 4_000
    requests_a_second: float = 200.0  # for each analyst
    bytes_a_day: int = 100_000_000  # of replies that are kept, for each analyst
    connections: int = 500  # at once
    certificate: str = ""  # of TLS, and its key
    key: str = ""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A service as its owner wrote it down. Files are named from the folder of service.toml."""

    folder: Path
    dataset: str
    table: str
    schema: str
    release: str = ""  # that the table starts from; nothing where it starts from none
    ledger: str
    witness: str
    epsilon: float
    delta: float
    neighbours: str = "replace"
    records_per_person: int | None = None
    public_rows: int | None = None
    questions: int = 2000
    tolerance: float | None = None
    test: str = "hazard"
    published: Mapping[str, str] = field(default_factory=dict)
    http: Http = field(default_factory=Http)

    @property
    def budget(self) -> Budget:
        relation = Neighbours.named(self.neighbours, self.records_per_person)
        return Budget(
            epsilon=self.epsilon, delta=self.delta, neighbours=relation, accounting=Accounting.RENYI
        )

    def path(self, name: str) -> Path:
        return self.folder / name

    @property
    def place(self) -> str:
        return self.ledger if "://" in self.ledger else os.fspath(self.path(self.ledger))

    def to_toml(self) -> str:
        """The file, with a word on each part."""
        lines = [
            "# A service of dualquery. `dualquery serve service.toml` starts it; docs/service.md explains it.",
            "# What stands under the first heading is fixed by the ledger and cannot be changed later.",
            *_assigned(self),
            "\n[published]  # releases that anybody with a token may ask, free",
            *(f"{quoted(name)} = {quoted(place)}" for name, place in self.published.items()),
            "\n[http]",
            *_assigned(self.http),
        ]
        return "\n".join(lines) + "\n"


_NUMBER = (int, float)
_KINDS = {"str": str, "int": int, "int | None": int, "float": _NUMBER, "float | None": _NUMBER}


def _names(of: type) -> dict[str, Any]:
    """The settings that a class has, each with the kind of its value."""
    return {each.name: _KINDS[str(each.type)] for each in fields(of) if str(each.type) in _KINDS}


def read_settings(path: str | os.PathLike[str]) -> Settings:
    """The service that a file describes, or ServiceError."""
    place = Path(path)
    try:
        found = document(place.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise ServiceError(
            f"'{place}' cannot be read: {error.strerror}; make it with `dualquery serve init`"
        ) from None
    except UnicodeDecodeError:
        raise ServiceError(f"'{place}' is not UTF-8 text") from None
    except ValueError as problem:
        raise ServiceError(f"'{place}' {problem}") from None
    first = _checked(found, {**_names(Settings), "published": dict, "http": dict}, place)
    http = Http(**_checked(first.pop("http", {}), _names(Http), place))
    published = first.pop("published", {})
    if not all(isinstance(each, str) for each in published.values()):
        raise ServiceError(f"'{place}': under [published] stand names and folders")
    try:
        made = Settings(folder=place.resolve().parent, published=published, http=http, **first)
    except TypeError:
        wanted = {name for name in _names(Settings) if not hasattr(Settings, name)}  # they have no default
        missing = ", ".join(sorted(wanted - set(first)))
        raise ServiceError(f"'{place}' says nothing about: {missing}") from None
    if not (0.001 <= http.quantum <= 60 and http.requests_a_second > 0 and 0 <= http.port < 65_536):
        raise ServiceError(f"'{place}': under [http] the quantum is 0.001 to 60 seconds, the rate positive")
    if http.bytes_a_day < 1 or http.connections < 1:
        raise ServiceError(f"'{place}': under [http] bytes_a_day and connections are at least 1")
    if made.dataset in published:
        raise ServiceError(f"'{place}': a published release needs another name than the dataset")
    return made


def _checked(
    found: dict[str, Any], kinds: Mapping[str, type | tuple[type, ...]], place: Path
) -> dict[str, Any]:
    for name, value in found.items():
        if name not in kinds:
            raise ServiceError(f"'{place}': '{name}' is not a setting; there are {', '.join(kinds)}")
        beyond = isinstance(value, int) and abs(value) >= 2**63
        if not isinstance(value, kinds[name]) or isinstance(value, bool) or beyond:
            raise ServiceError(f"'{place}': '{name}' has a value of the wrong kind")
    return found


def _assigned(values: Settings | Http) -> list[str]:
    found = {name: getattr(values, name) for name in _names(type(values))}
    return [
        f"{name} = {quoted(value) if isinstance(value, str) else repr(value)}"
        for name, value in found.items()
        if value is not None
    ]


Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Departure:
    """When one answer leaves."""

    def __init__(self, quantum: float, clock: Callable[[], float]) -> None:
        self._quantum, self._clock = quantum, clock
        self.start()

    def start(self) -> None:
        """From now on: all that was done so far is public."""
        self.first = math.ceil(self._clock() / self._quantum + 0.5) * self._quantum

    def leaves(self, now: float) -> float:
        """The first tick, or so many quanta behind it: 2, 4, 8, …"""
        if now <= self.first:
            return self.first
        return self.first + self._quantum * 2 ** max(
            1, math.ceil(math.log2((now - self.first) / self._quantum))
        )


_WATCH: ContextVar[Departure | None] = ContextVar("watch", default=None)


def start_again() -> None:
    """What this request has done so far looked at no table: its answer leaves as if it had just arrived."""
    watch = _WATCH.get()
    if watch is not None:
        watch.start()


class Departures:
    """An application around which every request is limited and counted, and answers under /v1/ leave on the tick."""

    def __init__(
        self, application: Application, http: Http, counts: RequestCounts, *, headers: Mapping[str, str]
    ) -> None:
        self._application, self._http, self._counts = application, http, counts
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
        clock, arrived = asyncio.get_running_loop().time, time()
        watch = Departure(self._http.quantum, clock)
        _WATCH.set(watch)
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        status = 0
        try:
            try:
                await self._answer(scope, receive, keep)
            finally:  # a defect has its answer, too
                now = clock()
                if str(scope["path"]).startswith("/v1/"):
                    self._counts.missed += now > watch.first
                    await asyncio.sleep(max(0.0, watch.leaves(now) - now))
                for message in answer:
                    if message["type"] == "http.response.start":
                        status = message["status"]
                        message["headers"] = [*message.get("headers", []), *self._headers]
                    await send(message)
        finally:
            route = getattr(scope.get("route"), "path", "other")  # a path may hold anything
            self._counts.count(scope["method"], route, status, analyst=scope.get("analyst"), arrived=arrived)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Each body is read before anything else looks at the request; one that is too large or slow is refused."""
        try:
            body = await asyncio.wait_for(self._body(scope, receive), SLOWEST)
        except TimeoutError:
            await refuse(send, ProblemError(408, "too_slow", "the body did not arrive in time"))
            return
        except ProblemError as problem:
            await refuse(send, problem)
            return
        start_again()  # however slowly it came
        arrived: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return arrived.pop() if arrived else await receive()

        await self._application(scope, again, send)

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        most = self._http.longest_body
        too_large = ProblemError(413, "too_large", f"a request has at most {most} bytes")
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > most:
            raise too_large
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > most:
                raise too_large
            parts.append(part)
        return b"".join(parts)


async def refuse(send: Send, problem: ProblemError) -> None:
    """Answer with a problem, outside of any framework."""
    body = problem.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class ProblemError(DualQueryError):
    """A refusal with its HTTP status."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        headers: dict[str, str] | None = None,
        **details: object,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.details = status, code, details
        self.headers = headers or {}

    def body(self) -> bytes:
        said = {"error": {"code": self.code, "message": str(self), **self.details}}
        return json.dumps(said, separators=(",", ":")).encode("ascii")


def not_ready(code: str, message: str) -> ProblemError:
    """Why nothing can be asked now; nothing in it names a place, a person or a number."""
    return ProblemError(503, code, message, headers={"Retry-After": "5"})


def problem_of(error: Exception) -> ProblemError:
    """An error of the library, as a refusal. Of a fault of ours nothing is said of where it was, or what it found."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, QueryError):
        return malformed(str(error))
    if isinstance(error, BudgetError):
        return ProblemError(403, "budget_exhausted", str(error))
    if isinstance(error, LedgerError):
        return not_ready("ledger_away", f"{error}; nothing was told")
    if isinstance(error, DualQueryError):
        return ProblemError(422, "refused", str(error))
    return ProblemError(500, "defect", "the service met a defect with this request; tell its owner")


def malformed(message: str) -> ProblemError:
    """A query that cannot be understood, with the column of the fault, counted from 1."""
    first, _, picture = message.partition("\n")
    found = re.match(r"column (\d+): (.*)", first, re.DOTALL)
    if found is None:
        return ProblemError(422, "malformed_query", message)
    return ProblemError(422, "malformed_query", found[2], column=int(found[1]), picture=picture)


SLOWEST = 10.0  # seconds for a body to arrive
_DAY = 86_400  # seconds


class Daily:
    """How many bytes a day may be kept for each name, so that nobody fills the disk with what costs nothing."""

    def __init__(self, most: int, *, clock: Callable[[], float] = time) -> None:
        self._most, self._clock = most, clock
        self._kept: dict[str, tuple[int, int]] = {}  # the day, and how many

    def check(self, name: str) -> None:
        """ProblemError 429 where today's are used up."""
        if self._today(name) >= self._most:
            raise ProblemError(
                429,
                "too_many_bytes",
                f"replies of {self._most} bytes were kept for you today; go on tomorrow (UTC)",
                headers={"Retry-After": str(_DAY - int(self._clock()) % _DAY)},
            )

    def add(self, name: str, size: int) -> None:
        self._kept[name] = (int(self._clock()) // _DAY, self._today(name) + size)

    def _today(self, name: str) -> int:
        day, kept = self._kept.get(name, (0, 0))
        return kept if day == int(self._clock()) // _DAY else 0


class RequestRate:
    """A bucket for each name: so many requests a second, and as many at once."""

    def __init__(self, a_second: float, *, clock: Callable[[], float] = monotonic) -> None:
        self._a_second, self._clock = a_second, clock
        self._buckets: dict[str, tuple[float, float]] = {}  # how full, and when

    def take(self, name: str) -> None:
        """One request; ProblemError 429 where the bucket is empty."""
        now = self._clock()
        full, before = self._buckets.get(name, (self._a_second, now))
        full = min(self._a_second, full + (now - before) * self._a_second)
        if full < 1:
            self._buckets[name] = (full, now)
            wait = max(1, round((1 - full) / self._a_second))
            raise ProblemError(
                429,
                "too_many_requests",
                f"at most {self._a_second:g} requests a second; wait a moment",
                headers={"Retry-After": str(wait)},
            )
        self._buckets[name] = (full - 1, now)


_WAITING = 10_000  # lines that a log may be behind; more are dropped: no request waits for a log
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class RequestCounts:
    """Counts of one running service. Changed by one thread, its event loop's."""

    def __init__(self, log: Callable[[str], object] | None = None) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self.missed = 0  # answers that left behind their tick
        self._began = monotonic()
        self._lines: queue.Queue[str] | None = None
        if log is not None:
            self._lines = queue.Queue(_WAITING)
            Thread(target=_write, args=(self._lines, log), name="log", daemon=True).start()

    def count(self, method: str, route: str, status: int, *, analyst: str | None, arrived: float) -> None:
        self.requests[method, route, status] += 1
        if self._lines is None:
            return
        moment = datetime.fromtimestamp(arrived, UTC).isoformat(timespec="milliseconds")
        line = {"time": moment, "method": method, "route": route, "status": status, "analyst": analyst}
        with suppress(queue.Full):
            self._lines.put_nowait(json.dumps(line))

    def metrics(self, more: Mapping[str, float]) -> str:
        """The text format of Prometheus; `more` are numbers that go up and down."""
        lines = ["# TYPE dualquery_requests_total counter"]
        for (method, route, status), count in sorted(self.requests.items()):
            labels = f'method="{method}",route="{route}",status="{status}"'
            lines.append(f"dualquery_requests_total{{{labels}}} {count}")
        for name, value in {"uptime_seconds": int(monotonic() - self._began), **more}.items():
            lines += [f"# TYPE dualquery_{name} gauge", f"dualquery_{name} {value}"]
        return "\n".join(lines) + "\n"


def _write(lines: queue.Queue[str], log: Callable[[str], object]) -> None:
    """On a thread of its own: who reads a log slowly stops nobody."""
    with suppress(OSError, ValueError):  # nobody reads it any more
        while True:
            log(lines.get())
