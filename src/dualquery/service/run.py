"""A service, opened from its file and run until it is told to stop.

*Rehearsal*: before the first real question every path is run once on public rows, so that it is no slower than later
ones.

The table of a rehearsal is one row of the release, again and again. No real table is like it, so that tests fire; and
a count takes a time that its question and the number of records decide, whatever the records hold.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from time import thread_time
from typing import Any

import numpy as np

from dualquery.counting.counter import Counter, MemoryCounter
from dualquery.counting.opening import ColumnCounter
from dualquery.errors import DualQueryError
from dualquery.interactive.journal import MemoryJournal
from dualquery.interactive.online import Online
from dualquery.interactive.opening import hypothesis_of, online
from dualquery.interactive.rule import MOST_ERROR, State
from dualquery.ledger.journal import Storage
from dualquery.privacy.curator import Curator
from dualquery.queries.families import grammar_of
from dualquery.queries.language.canonical import Literal, Query
from dualquery.queries.question import MOST_CELLS, QuestionReader, table_text
from dualquery.randomness import entropy_from
from dualquery.releases.release import Release
from dualquery.service.journal import LedgerJournal
from dualquery.service.requests import Service
from dualquery.service.settings import Settings
from dualquery.table.domain import Domain
from dualquery.table.reading import AnyTable
from dualquery.table.records import Records
from dualquery.table.schema import Schema, read_schema
from dualquery.types import Progress, silent


@contextmanager
def opened(
    settings: Settings,
    *,
    trust: bool = False,
    table_changed: bool = False,
    log: Callable[[str], object] | None = None,
    progress: Progress = silent,
) -> Iterator[Service]:
    """A service: ledger verified, hypothesis rebuilt, a fire prepaid. A clean stop at the end."""
    journal = LedgerJournal(settings, Storage(settings.place), trust=trust)
    try:
        schema = read_schema(settings.path(settings.schema))
        published = {name: Release.load(settings.path(place)) for name, place in settings.published.items()}
        release = Release.load(settings.path(settings.release)) if settings.release else None
        table = table_of(
            settings,
            settings.path(settings.table),
            schema,
            release,
            journal,
            published=published,
            table_changed=table_changed,
            progress=progress,
        )
        rehearse(table)  # before anybody can hold a watch
    except BaseException:
        journal.close()
        raise
    service = Service(settings, table, journal, log=log)
    service.worker.start()
    try:
        yield service
    finally:
        service.worker.stop()


def table_of(
    settings: Settings,
    table: AnyTable | Counter,
    schema: Schema,
    release: Release | None,
    journal: LedgerJournal,
    **more: Any,
) -> Online:
    return online(
        table,
        schema=schema,
        budget=settings.budget,
        release=release,
        questions=settings.questions,
        tolerance=settings.tolerance,
        test=settings.test,
        records=settings.public_rows,
        journal=journal,
        **more,
    )


def serve(
    settings: Settings,
    *,
    trust: bool = False,
    log: Callable[[str], object] | None = None,
    table_changed: bool = False,
    ready: Callable[[str], object] | None = None,
    progress: Progress = silent,
) -> None:
    """Listen until interrupted. `ready` hears where, once all is open; `log` hears a line of JSON a request.

    Nothing said depends on the table. What keeps it from listening is found out before the ledger is opened.
    """
    try:
        import uvicorn

        from dualquery.service.app import bound, configured
    except ModuleNotFoundError:
        raise DualQueryError("serving needs the extra `service`: pip install 'dualquery[service]'") from None
    http = settings.http
    sockets = bound(settings)
    with opened(settings, trust=trust, table_changed=table_changed, log=log, progress=progress) as service:
        service.online.prepare_all()
        if ready is not None:
            scheme = "https" if http.certificate else "http"
            ready(f"{settings.dataset}: {scheme}://{http.host}:{http.port}/ (stop with Ctrl-C)")
            if not service.tokens.all:
                ready("Nobody has a token yet: dualquery serve token add NAME")
        server = uvicorn.Server(configured(service))
        with suppress(KeyboardInterrupt), _stopped_by_a_flag(server):
            server.run(sockets)


@contextmanager
def _stopped_by_a_flag(server: Any) -> Iterator[None]:
    """SIGTERM must not end the process before the ledger is closed, nor be lost before the server has begun.

    An exception may be swallowed by whoever runs at that moment; a flag is read once the server has started.
    """

    def stop(*_: object) -> None:
        server.should_exit = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


MOST_ROWS = 1 << 20  # of a rehearsal; a larger table takes longer in proportion
FEW_ROWS = 1 << 10  # that are enough to have everything compiled and loaded


def rehearse(table: Online, *, rows: int = FEW_ROWS) -> float:
    """The most processor seconds that a question takes, with a fire and a purchase, once everything is ready."""
    start = None if table.release is None else table.release.records
    if start is None:
        start = Records.from_rows(table.domain, np.zeros((1, table.domain.width), np.int64))
    public = start.take(np.zeros(min(rows, MOST_ROWS), np.int64))
    passes = [max(_times(lambda: _asked(table, public))) for _ in range(3)]
    return min(passes[1:]) * max(1.0, rows / MOST_ROWS)  # the first one compiles and loads


def _asked(table: Online, public: Records) -> Online:
    rule, domain = table.rule, table.domain
    state = State(rule, hypothesis_of(rule, table.release, domain), QuestionReader(domain))
    curator = Curator(ColumnCounter(MemoryCounter(public)), state.ledger, entropy_from(0))
    return Online(state, curator, MemoryJournal(), table.release)


def _times(opened: Callable[[], Online]) -> Iterator[float]:
    seller, table = opened(), opened()
    texts = list(_texts(table.domain))
    bought = [] if table.rule.accuracy else [partial(seller.buy, texts[0], error=MOST_ERROR)]
    for work in (*bought, *(partial(table.ask, each) for each in texts)):
        before = thread_time()
        work()
        yield thread_time() - before


def _texts(domain: Domain) -> Iterator[str]:
    """Of the attributes with the fewest and the most values: one value, both, and the tables; none of them twice."""
    if domain.kind != "records":
        yield grammar_of(domain).example(domain)
        return
    by_size = np.argsort(domain.sizes, kind="stable")
    few, many = int(by_size[0]), int(by_size[-1])
    conditions = [Literal(j, (0,), False) for j in sorted({few, many})]
    for chosen in ([conditions[0]], [conditions[-1]], conditions)[: len(conditions) + 1]:
        yield Query(tuple(chosen)).text(domain)
    for members in {(few,), (many,), tuple(sorted({few, many}))}:
        if np.prod(domain.sizes[list(members)], dtype=np.int64) <= MOST_CELLS:
            yield table_text(domain, members)
