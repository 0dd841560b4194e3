"""How many may be connected, and how long they may take to ask.

A client that sends its request slowly, or none, costs a connection. There are so many of them; each has so many
seconds until its headers are here; and where all are taken, the one that has waited longest without asking makes room
for the next. So whoever asks at once is heard, whatever others do.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

SLOWEST = 10.0  # seconds for headers to arrive
LONGEST = 65_536  # bytes of them


class Patient(HttpToolsProtocol):
    """A connection that must ask in time. `most` is set by `patient`."""

    most, slowest = 500, SLOWEST

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._deadline: asyncio.TimerHandle | None = None
        self._early = 0  # bytes of headers that are not whole
        self.since = 0.0  # when it began to ask

    @property
    def asking(self) -> bool:
        """Whether a request is here as a whole and its answer is not gone yet."""
        return self.cycle is not None and not self.cycle.response_complete and not self.cycle.more_body

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._begin()
        if len(self.connections) > self.most:
            here = [each for each in self.connections if not each.transport.is_closing()]
            waiting = [each for each in here if isinstance(each, Patient) and not each.asking]
            if len(here) > self.most:
                min(waiting, key=lambda each: each.since).close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        heading = self.cycle is None or self.cycle.response_complete
        if heading and self._deadline is None:
            self._begin()
        self._early += len(data) if heading else 0
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._forget()  # the headers are here; a body has a time of its own (limits.py)
        elif self._early > LONGEST:
            self.close()

    def close(self) -> None:
        """At once, with nothing said."""
        self._forget()
        self.transport.abort()

    def _begin(self) -> None:
        self.since, self._early = self.loop.time(), 0
        self._deadline = self.loop.call_later(self.slowest, self.close)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def patient(*, most: int) -> type[Patient]:
    """The protocol of a server with so many connections."""
    return type("Patient", (Patient,), {"most": most})
