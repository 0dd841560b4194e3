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
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Thread
from time import monotonic
from typing import Any, Generic, TypeVar

from dualquery.errors import DualQueryError, LedgerError
from dualquery.interactive.online import Online
from dualquery.ledger.storage import AwayError
from dualquery.privacy.thresholds import Test
from dualquery.service.journal import LedgerJournal
from dualquery.service.settings import not_ready, problem_of

T = TypeVar("T")
MOST_AT_ONCE = 64  # questions that one sync may wait for
HANGING = 5.0  # seconds after which what is under way is not expected to end
LONGEST_STOP = 30.0  # seconds


@dataclass(eq=False)
class Job(Generic[T]):
    """Something to do on the worker's thread, and whoever waits for it."""

    work: Callable[[], T]
    waiting: asyncio.Future[T]
    request: tuple[str, str] | None = None  # analyst and key of one that may be repeated
    outcome: T | BaseException | None = field(default=None)
    dismissed: bool = False  # told that the ledger is away: not asked any more, unless it is under way


class Worker:
    """Owns the table and its ledger, from `start` to `stop`."""

    def __init__(self, online: Online, journal: LedgerJournal) -> None:
        self._online, self._journal = online, journal
        self._jobs: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._batch: list[Job[Any]] = []
        self._thread = Thread(target=self._work, name="worker", daemon=True)
        self._making = ThreadPoolExecutor(1, "tests")
        self._since: float | None = None  # when what is under way began
        self.broken: LedgerError | None = None  # why nothing can be asked any more
        self.away = False  # whether the last attempt to write has failed
        journal.on_delay = self._tell_everybody

    def start(self) -> None:
        self._thread.start()

    async def do(self, work: Callable[[], T], *, request: tuple[str, str] | None = None) -> T:
        """Have something done, and its traces on disk; LedgerError where that is impossible now."""
        if self.broken is not None:
            raise self.broken
        job = Job(work, asyncio.get_running_loop().create_future(), request)
        self._jobs.put(job)
        return await job.waiting

    def check(self) -> None:
        """ProblemError where nothing can be asked now: why, in words that are everybody's."""
        since = self._since
        if self.broken is not None:
            raise not_ready("stopped", "the service has stopped asking; its owner must restart it")
        if since is not None and monotonic() - since > HANGING:
            raise not_ready("ledger_silent", "the ledger does not answer")
        if self.away:
            raise not_ready("ledger_away", "the ledger cannot be written now")

    async def look(self) -> None:
        """Find out whether the ledger could be written: by trying, without writing a line."""

        def probe() -> None:
            self._journal.storage.probe()
            self.away = False

        with suppress(DualQueryError):
            await self.do(probe)

    async def prepare(self, test: Test) -> None:
        """Make the table of a test, while others go on asking."""
        await asyncio.get_running_loop().run_in_executor(self._making, self._online.prepare, test)

    def stop(self) -> None:
        """Finish what is under way, close the core cleanly where the ledger can be written, and let go of it."""
        self._journal.stopping.set()
        self._jobs.put(None)
        self._making.shutdown(wait=False, cancel_futures=True)
        # Whatever the disk and the network do; what is lost is an unclean stop.
        self._thread.join(LONGEST_STOP)

    def _work(self) -> None:
        going_on = True
        try:
            while going_on:
                self._batch, going_on = self._next_batch()
                self._do_batch()
            self._online.close()
            self._journal.flush()
        except LedgerError:
            pass  # an unclean stop: the next start burns one prepaid fire, if a test was open
        finally:
            self._journal.close()

    def _do_batch(self) -> None:
        """Everything that waits, in its order, then one sync, then the replies."""
        before, self._since = self._journal.head, monotonic()
        try:
            self._journal.flush()  # what could not be written before
            self._journal.recall([job.request for job in self._batch if job.request is not None])
            for job in self._batch:
                if not job.dismissed:
                    self._do(job)
            if self._jobs.empty():
                self._online.rest()
            self._journal.flush()
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
            self.away = self.away and self._journal.head == before
            _hand_out(self._batch)
        finally:
            self._since = None

    def _next_batch(self) -> tuple[list[Job[Any]], bool]:
        found = [self._jobs.get()]
        while len(found) < MOST_AT_ONCE:
            try:
                found.append(self._jobs.get_nowait())
            except queue.Empty:
                break
        return [job for job in found if job is not None], None not in found

    def _do(self, job: Job[Any]) -> None:
        """One job. A defect that has neither looked at the table nor written a line is of this request alone."""
        before = self._journal.length
        try:
            job.outcome = job.work()
        except DualQueryError as problem:
            if isinstance(problem, LedgerError) and not isinstance(problem, AwayError):
                raise
            self.away = self.away or isinstance(problem, AwayError)
            job.outcome = problem
        except Exception as defect:
            if self._online.stopped or self._journal.length != before:
                raise
            job.outcome = problem_of(defect)
            _log_place(defect)

    def _tell_everybody(self, problem: DualQueryError) -> None:
        """Everybody who waits hears that the ledger is away. What was found stays, for who asks again."""
        self.away, waiting = True, list(self._batch)
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
    for loop in {job.waiting.get_loop() for job in jobs}:
        own = [job for job in jobs if job.waiting.get_loop() is loop]
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
