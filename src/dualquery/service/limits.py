"""How large a request may be, how long it may take to arrive, how many a second, and how much is kept a day."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic, time

from dualquery.service.departures import Application, Message, Receive, Scope, Send, start_again
from dualquery.service.problems import ProblemError

SLOWEST = 10.0  # seconds for a body to arrive
_DAY = 86_400  # seconds


class BodyLimit:
    """Reads each body before anything else looks at the request; one that is too large is refused."""

    def __init__(self, application: Application, *, most: int) -> None:
        self._application = application
        self._most = most

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._application(scope, receive, send)
            return
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
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if not declared.isdigit() or len(declared) > 18 or int(declared) > self._most:
            raise self._too_large()
        parts, size, more = [], 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                break
            part, more = message.get("body", b""), message.get("more_body", False)
            size += len(part)
            if size > self._most:
                raise self._too_large()
            parts.append(part)
        return b"".join(parts)

    def _too_large(self) -> ProblemError:
        return ProblemError(413, "too_large", f"a request has at most {self._most} bytes")


async def refuse(send: Send, problem: ProblemError) -> None:
    """Answer with a problem, outside of any framework."""
    body = problem.body()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


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
