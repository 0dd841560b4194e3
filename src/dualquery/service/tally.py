"""What a running service counts, and how it is told: to Prometheus, and to a log, one JSON line a request.

Nothing in either depends on the table other than through answers that were given: no durations, no sizes, no text of
a question. Missed ticks do depend on how long the work takes; they are told to owners alone, with the budget.
"""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from threading import Thread

_WAITING = 10_000  # lines that a log may be behind; more are dropped: no request waits for a log
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Tally:
    """Counts of one running service. Changed by one thread, its event loop's."""

    def __init__(self, log: Callable[[str], object] | None = None) -> None:
        self.requests: Counter[tuple[str, str, int]] = Counter()  # by method, route and status
        self.missed = 0  # answers that left behind their tick
        self._began = time.monotonic()
        self._lines: queue.Queue[str] | None = None
        if log is not None:
            self._lines = queue.Queue(_WAITING)
            Thread(target=_write, args=(self._lines, log), name="log", daemon=True).start()

    def count(self, method: str, route: str, status: int, *, analyst: str | None, arrived: float) -> None:
        """One request that has been answered."""
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
        for name, value in {"uptime_seconds": int(time.monotonic() - self._began), **more}.items():
            lines += [f"# TYPE dualquery_{name} gauge", f"dualquery_{name} {value}"]
        return "\n".join(lines) + "\n"


def _write(lines: queue.Queue[str], log: Callable[[str], object]) -> None:
    """On a thread of its own: who reads a log slowly stops nobody."""
    with suppress(OSError, ValueError):  # nobody reads it any more
        while True:
            log(lines.get())
