"""Answers leave at fixed moments, errors too.

How long a count takes depends on the table, and somebody may hold a watch. A request that arrives at t is answered
at the first tick (a multiple of the quantum) after t + half a quantum: a public function of t, as long as the work is
done by then. Otherwise it leaves 2, 4, 8, … quanta after that tick, so that of a work of any length no more is seen
than how often it doubles; such a tick is *missed*, and counted for the owner. What takes long and looks at no table
(a body that arrives slowly, the table of a test that is made for the first time) starts the watch anew.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from contextvars import ContextVar
from typing import Any, TypeAlias

from dualquery.service.tally import Tally

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
    """An application whose answers under /v1/ leave on the tick."""

    def __init__(self, application: Application, *, quantum: float, tally: Tally) -> None:
        self._application = application
        self._quantum = quantum
        self._tally = tally

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not str(scope["path"]).startswith("/v1/"):
            await self._application(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        watch = Departure(self._quantum, clock)
        _WATCH.set(watch)
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        try:
            await self._application(scope, receive, keep)
        finally:  # a defect has its answer, too
            now = clock()
            self._tally.missed += now > watch.first
            await asyncio.sleep(max(0.0, watch.leaves(now) - now))
            for message in answer:
                await send(message)
