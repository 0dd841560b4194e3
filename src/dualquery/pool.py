"""One pool of threads for all work that has independent parts: replicas, chains, tables, columns, questions.

Parts run at the same time where they let go of the interpreter: in numpy, in Arrow, and in compiled loops that say
`nogil`. Whoever asks for parts to be done works on them too, and idle threads join in, so that parts may have parts
of their own and nobody waits for a thread that is not there. No more threads work than are allowed (`limited`), and
none is started for work that is not there.

What a part is never depends on the number of threads where the sum of parts would: the same seed gives the same bytes
on any number of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from threading import Condition, Lock
from typing import Any, Generic, TypeVar

from dualquery.errors import DualQueryError

Item = TypeVar("Item")
Made = TypeVar("Made")

_LIMIT: ContextVar[int | None] = ContextVar("threads", default=None)


def cores() -> int:
    """The cores that this process may use; NUMBA_NUM_THREADS says fewer, as it does to numba's own loops."""
    affinity = getattr(os, "sched_getaffinity", None)
    there = len(affinity(0)) if affinity else os.cpu_count() or 1
    wanted = os.environ.get("NUMBA_NUM_THREADS", "")
    return max(1, min(there, int(wanted))) if wanted.isdecimal() and int(wanted) else there


def threads() -> int:
    """How many threads may work at once for whoever asks."""
    return _LIMIT.get() or cores()


@contextmanager
def limited(number: int | None) -> Iterator[None]:
    """At most so many threads inside, the one that asks counted; None leaves it as it is."""
    if number is None:
        yield
        return
    if number < 1:
        raise DualQueryError("threads must be a whole number, and at least 1")
    before = _LIMIT.set(number)
    try:
        yield
    finally:
        _LIMIT.reset(before)


def together(
    function: Callable[[Item], Made],
    items: Sequence[Item],
    done: Callable[[int], None] = lambda number: None,
) -> list[Made]:
    """The function of every item, in their order; `done` hears how many are done, one call at a time.

    What fails first, by the order of items, is raised when no part runs any more.
    """
    number = threads()
    job = _Job(function, items, done)
    for _ in range(min(number, len(items)) - 1):
        _helpers(number).submit(copy_context().run, job.work)
    job.work()
    return job.results()


def in_shares(loop: Callable[..., Any], number: int, *arguments: Any, least: int = 1) -> None:
    """loop(first, last, *arguments) over shares of range(number), of at least so many each.

    For loops that add up whole numbers, or whose places share nothing: how many shares there are follows the threads.
    """
    shares = min(4 * threads(), number // least) if threads() > 1 else 1
    if shares <= 1:
        loop(0, number, *arguments)
        return
    edges = [number * i // shares for i in range(shares + 1)]
    together(lambda i: loop(edges[i], edges[i + 1], *arguments), range(shares))


@contextmanager
def plain_algebra() -> Iterator[None]:
    """Linear algebra by one thread of its own library inside, whoever else is inside; as it was afterwards.

    For many small matrices, for parts that already share the cores, and for the same sums on any machine.
    """
    _ONE_THREAD.enter()
    try:
        yield
    finally:
        _ONE_THREAD.leave()


class _OneThread:
    """The libraries have one setting for all threads: who comes first changes it, who leaves last restores it."""

    def __init__(self) -> None:
        self._inside, self._lock = 0, Lock()
        self._before: Any = None

    def enter(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._before = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def leave(self) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                self._before.restore_original_limits()


_ONE_THREAD = _OneThread()


@cache
def _libraries() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()  # looks at what is loaded: once


class _Job(Generic[Item, Made]):
    """Items that several threads take one after another."""

    def __init__(
        self, function: Callable[[Item], Made], items: Sequence[Item], done: Callable[[int], None]
    ) -> None:
        self._function, self._items, self._tell = function, items, done
        self._made: dict[int, Made] = {}
        self._failed: dict[int, BaseException] = {}
        self._next = self._running = 0
        self._changed = Condition()

    def work(self) -> None:
        """Do what nobody has taken yet."""
        while (place := self._take()) is not None:
            try:
                made = self._function(self._items[place])
                with self._changed:
                    self._made[place] = made
                    self._tell(len(self._made))
            except BaseException as problem:  # raised by whoever asked
                with self._changed:
                    self._failed[place] = problem
            finally:
                with self._changed:
                    self._running -= 1
                    self._changed.notify_all()

    def _take(self) -> int | None:
        with self._changed:
            if self._failed or self._next == len(self._items):
                return None
            self._next, self._running = self._next + 1, self._running + 1
            return self._next - 1

    def results(self) -> list[Made]:
        with self._changed:
            try:
                while self._running:
                    self._changed.wait()
            finally:
                self._next = len(self._items)  # whoever was interrupted wants no more of them
        if self._failed:
            raise self._failed[min(self._failed)]
        return [self._made[place] for place in range(len(self._items))]


@cache
def _helpers(number: int) -> ThreadPoolExecutor:
    """One fewer than may work: whoever asks is one of them. Threads start when there is work for them."""
    return ThreadPoolExecutor(number - 1, f"dualquery-{number}")


if hasattr(os, "register_at_fork"):  # a child has none of the threads
    os.register_at_fork(after_in_child=_helpers.cache_clear)
