"""Nothing waits for ever for a database: a network may swallow everything and say nothing.

Keepalives notice a machine that is gone, and the limits of a session a server that is slow; neither notices
somebody in between who confirms every packet and passes none on. So whoever works with connections does it under a
watch, which hangs up on them when time is over: whoever waits there hears of a connection that is broken.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from threading import Lock, Timer
from typing import Any

import sqlalchemy as sql
from sqlalchemy import event

LONGEST = 10.0  # seconds that anything may take


class SilenceWatch:
    """Hangs up on connections when its time is over."""

    def __init__(self) -> None:
        self._lines: list[socket.socket] = []
        self._lock, self._over = Lock(), False

    def add(self, connection: Any) -> None:
        """Watch a connection of the driver, too."""
        line = socket.socket(fileno=os.dup(connection.fileno()))  # our own number: theirs may be given away
        with self._lock:
            self._lines.append(line)
        if self._over:
            self.hang_up()

    def hang_up(self) -> None:
        self._over = True
        with self._lock, suppress(OSError):
            for line in self._lines:
                line.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        with self._lock:
            for line in self._lines:
                line.close()
            self._lines.clear()


_WATCH: ContextVar[SilenceWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(engine: sql.Engine, connection: sql.Connection | None = None) -> Iterator[None]:
    """Whatever is done here with this connection, or with new ones, is over in time. A file needs none of this."""
    if engine.dialect.name == "sqlite":
        yield
        return
    watch = SilenceWatch()
    timer = Timer(LONGEST, watch.hang_up)
    timer.daemon = True
    token = _WATCH.set(watch)
    timer.start()
    try:
        if connection is not None and not connection.invalidated:
            watch.add(connection.connection.driver_connection)
        yield
    finally:
        timer.cancel()
        _WATCH.reset(token)
        watch.end()


def watch_new(engine: sql.Engine) -> None:
    """New connections come under the watch before anything is asked through them."""

    def made(connection: object, _record: object) -> None:
        watch = _WATCH.get()
        if watch is not None:
            watch.add(connection)

    event.listen(engine, "connect", made, insert=True)
