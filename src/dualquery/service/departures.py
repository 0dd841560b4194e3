"""Answers leave at fixed moments, errors too.

How long a count takes depends on the table, and somebody may hold a watch. A request that arrives at t is answered
at the first tick (a multiple of the quantum) after t + half a quantum: a public function of t, as long as the work is
done by then; otherwise at the next tick. The work of a question is much shorter than half a quantum.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, TypeAlias

Message: TypeAlias = MutableMapping[str, Any]
Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Application: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]


class Departures:
    """An application whose answers under /v1/ leave on the tick."""

    def __init__(self, application: Application, *, quantum: float) -> None:
        self._application = application
        self._quantum = quantum

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not str(scope["path"]).startswith("/v1/"):
            await self._application(scope, receive, send)
            return
        clock = asyncio.get_running_loop().time
        leaves = self._tick(clock() + self._quantum / 2)
        answer: list[Message] = []

        async def keep(message: Message) -> None:
            answer.append(message)

        try:
            await self._application(scope, receive, keep)
        finally:  # a defect has its answer, too
            now = clock()
            leaves = leaves if now <= leaves else self._tick(now)
            await asyncio.sleep(leaves - now)
            for message in answer:
                await send(message)

    def _tick(self, moment: float) -> float:
        return math.ceil(moment / self._quantum) * self._quantum
