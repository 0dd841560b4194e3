"""The one thread that asks the table: question after question, and replies once they are on disk.

Tests run one at a time, so that one prepaid fire covers the one in flight. Whatever waits is taken together, asked
in its order, and written with one sync; then all replies are handed out. Where the ledger cannot be written,
everybody who waits is told so at once, and nothing is asked before it can be.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from typing import Any, Generic, TypeVar

from dualquery.asking.online import Online
from dualquery.errors import DualQueryError, LedgerError
from dualquery.service.keeping import Keeper
from dualquery.service.storage import AwayError

T = TypeVar("T")
MOST_AT_ONCE = 64  # questions that one sync may wait for
LONGEST_STOP = 30.0  # seconds


@dataclass(eq=False)
class Job(Generic[T]):
    """Something to do on the clerk's thread, and whoever waits for it."""

    work: Callable[[Online, Keeper], T]
    loop: asyncio.AbstractEventLoop
    waiting: asyncio.Future[T]
    request: tuple[str, str] | None = None  # analyst and key of one that may be repeated
    outcome: T | BaseException | None = field(default=None)
    dismissed: bool = False  # told that the ledger is away: not asked any more, unless it is under way


class Clerk:
    """Owns the table and its ledger, from `start` to `stop`."""

    def __init__(self, online: Online, keeper: Keeper) -> None:
        self._online, self._keeper = online, keeper
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._batch: list[Job[Any]] = []
        self._thread = Thread(target=self._work, name="clerk", daemon=True)
        self.broken: LedgerError | None = None  # why nothing can be asked any more
        keeper.on_delay = self._tell_everybody

    def start(self) -> None:
        self._thread.start()

    async def do(self, work: Callable[[Online, Keeper], T], *, request: tuple[str, str] | None = None) -> T:
        """Have something done, and its traces on disk; LedgerError where that is impossible now."""
        if self.broken is not None:
            raise self.broken
        loop = asyncio.get_running_loop()
        job = Job(work, loop, loop.create_future(), request)
        self._jobs.put(job)
        return await job.waiting

    def stop(self) -> None:
        """Finish what is under way, close the core cleanly where the ledger can be written, and let go of it."""
        self._keeper.stopping.set()
        self._jobs.put(None)
        self._thread.join(
            LONGEST_STOP
        )  # whatever the disk and the network do; what is lost is an unclean stop

    def _work(self) -> None:
        going_on = True
        try:
            while going_on:
                self._batch, going_on = self._next_batch()
                self._do_batch()
            self._online.close()
            self._keeper.flush()
        except LedgerError:
            pass  # an unclean stop: the next start burns one prepaid fire, if a test was open
        finally:
            self._keeper.close()

    def _do_batch(self) -> None:
        """Everything that waits, in its order, then one sync, then the replies."""
        try:
            self._keeper.flush()  # what could not be written before
            self._keeper.recall([job.request for job in self._batch if job.request is not None])
            for job in self._batch:
                if not job.dismissed:
                    self._do(job)
            if self._jobs.empty():
                self._online.rest()
            self._keeper.flush()
        except AwayError as problem:
            self._tell_everybody(problem)
        except LedgerError as problem:
            self.broken = problem
            self._tell_everybody(problem)
        except Exception as defect:  # nobody knows what was looked at
            self.broken = LedgerError("the service met a defect and stopped asking; restart it")
            self._tell_everybody(self.broken)
            _log_place(defect)
        else:
            _hand_out(self._batch)

    def _next_batch(self) -> tuple[list[Job[Any]], bool]:
        found = [self._jobs.get()]
        while len(found) < MOST_AT_ONCE:
            try:
                found.append(self._jobs.get_nowait())
            except queue.Empty:
                break
        return [job for job in found if job is not None], None not in found

    def _do(self, job: Job[Any]) -> None:
        try:
            job.outcome = job.work(self._online, self._keeper)
        except DualQueryError as problem:
            if isinstance(problem, LedgerError) and not isinstance(problem, AwayError):
                raise
            job.outcome = problem

    def _tell_everybody(self, problem: DualQueryError) -> None:
        """Everybody who waits hears that the ledger is away. What was found stays, for who asks again."""
        waiting = list(self._batch)
        while True:
            try:
                job = self._jobs.get_nowait()
            except queue.Empty:
                break
            if job is None:
                self._jobs.put(None)
                break
            waiting.append(job)
        for job in waiting:
            job.outcome, job.dismissed = problem, True
        _hand_out(waiting)


def _log_place(defect: Exception) -> None:
    """Where it happened, and nothing of what it says: that may depend on the table."""
    places = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(defect.__traceback__)]
    logging.getLogger("dualquery.service").error("%s at %s", type(defect).__name__, " < ".join(places[::-1]))


def _hand_out(jobs: list[Job[Any]]) -> None:
    """Wake whoever waits, all of one loop at once."""
    for loop in {job.loop for job in jobs}:
        own = [job for job in jobs if job.loop is loop]
        with suppress(RuntimeError):  # nobody waits any more: the loop is closed
            loop.call_soon_threadsafe(_settle, own)


def _settle(jobs: list[Job[Any]]) -> None:
    for job in jobs:
        if job.waiting.done():
            continue
        if isinstance(job.outcome, BaseException):
            job.waiting.set_exception(job.outcome)
        else:
            job.waiting.set_result(job.outcome)
