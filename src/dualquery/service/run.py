"""A service: begun (its ledger, the first release, its file), opened from its file, and run until it is told to stop.

*Rehearsal*: before the first real question every path is run once on public rows, so that it is no slower than later
ones.

The table of a rehearsal is one row of the release, again and again. No real table is like it, so that tests fire; and
a count takes a time that its question and the number of records decide, whatever the records hold.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np

from dualquery.counting import Counter, MemoryCounter
from dualquery.counting.opening import ColumnCounter
from dualquery.errors import BudgetError, DualQueryError, LedgerError
from dualquery.interactive import MemoryJournal
from dualquery.interactive.online import Online
from dualquery.interactive.opening import (
    UNKNOWN_ROWS,
    first_release,
    hypothesis_of,
    online,
    starts_from_release,
)
from dualquery.interactive.rule import MOST_ERROR, OnlineRule, State, cap_of, check_wishes
from dualquery.ledger import promised
from dualquery.ledger.book import Place
from dualquery.ledger.books import Books
from dualquery.ledger.journal import Storage
from dualquery.privacy.budget import Neighbours, default_delta
from dualquery.privacy.curator import Curator
from dualquery.queries.families import grammar_of
from dualquery.queries.language.formula import Literal, Query
from dualquery.queries.question import MOST_CELLS, QuestionReader, table_text
from dualquery.randomness import entropy_from
from dualquery.releases.folder import refuse_occupied
from dualquery.releases.make import counting
from dualquery.releases.plan import shared_rows
from dualquery.releases.release import Release
from dualquery.service.journal import LedgerJournal
from dualquery.service.requests import Service
from dualquery.service.settings import Http, Settings
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


SLOWEST_QUANTUM = 60.0  # seconds


def begin(
    table: Path,
    *,
    schema: Path,
    epsilon: float,
    out: Path,
    delta: float | None = None,
    neighbours: Neighbours = Neighbours.REPLACE,
    records_per_person: int | None = None,
    public_rows: int | None = None,
    dataset: str | None = None,
    ledger: str | None = None,
    book: str | None = None,
    share: float = 0.9,
    release: Path | None = None,
    questions: int = 2000,
    tolerance: float | None = None,
    test: str = "hazard",
    resume: bool = False,
    progress: Progress = silent,
) -> Settings:
    """Open the ledger, charge it, make the first release (or take an earlier one), and write the file.

    The release is charged before a count is read, and stays charged if something fails later. To `resume`, with the
    same wishes, goes on from wherever that was, without another charge. `book` is a ledger of releases that has a
    book for this dataset and for questions: it is charged with the whole cap of the service.
    """
    if out.exists():
        raise DualQueryError(f"'{out}' exists already; name another file with --out")
    described = read_schema(schema)
    counter = counting(table, described, neighbours, None, progress)
    rows = shared_rows(counter, neighbours) or public_rows
    if delta is None and rows is None:
        raise BudgetError("the number of records is private between these neighbours, so give --delta")
    folder, stem = out.resolve().parent, out.stem

    def named(path: Path) -> str:
        """A file as the service names it: from its own folder, where it lies below."""
        whole = path.resolve()
        return os.fspath(whole.relative_to(folder) if whole.is_relative_to(folder) else whole)

    dataset, own = dataset or table.name.partition(".")[0], f"{stem}-release"
    released = starts_from_release(test, described.domain, given=release is not None, share=share)
    place = "" if not released else own if release is None else named(release)
    if ledger is None:
        ledger = f"{stem}.ledger"
    elif "://" not in ledger:
        ledger = named(Path(ledger))
    # The first release is asked by the name of its folder, unless the table has that name.
    published = own if release is None or release.resolve().name == dataset else release.resolve().name
    made = Settings(
        folder=folder,
        dataset=dataset,
        table=named(table),
        schema=named(schema),
        release=place,
        ledger=ledger,
        witness=f"{stem}.witness",
        epsilon=epsilon,
        delta=default_delta(rows or 2) if delta is None else delta,
        neighbours=neighbours.value,
        records_per_person=records_per_person,
        public_rows=public_rows,
        questions=questions,
        tolerance=tolerance,
        test=test,
        published={published: place} if released else {},
    )
    first = share if released and release is None else None
    check_wishes(made.budget, share=first, questions=questions, tolerance=tolerance, test=test)
    if not released and rows is None:
        raise BudgetError(UNKNOWN_ROWS)
    if rows is not None:
        OnlineRule.of(
            made.budget,
            rows=rows,
            questions=questions,
            tolerance=tolerance,
            test=test,
            domain=described.domain,
        )
    books = None if book is None else Books(book)
    if not resume:
        if books is not None:
            books.refuse_unaffordable(made.dataset, made.budget, unit=described.protects)
        _refuse_begun(made)
        if first is not None:
            refuse_occupied(made.path(place))
    longest = _open(made, described, counter, books, share=first, resume=resume, progress=progress)
    made = replace(made, http=replace(made.http, quantum=quantum_for(longest)))
    write_whole(out, made.to_toml())
    return made


def _open(
    made: Settings,
    schema: Schema,
    counter: Counter,
    books: Books | None,
    *,
    share: float | None,
    resume: bool,
    progress: Progress,
) -> float:
    """The ledger and, for a share of the budget, the release: charged, made, saved. The seconds of a question."""
    place = made.path(made.release)
    # With --resume it may be whole, and only the rest is missing.
    whole = made.release and (share is None or (resume and place.exists()))
    release = Release.load(place) if whole else None
    journal = LedgerJournal(made, _ledger(made, schema, books), trust=True)
    try:
        if made.release and release is None:
            assert share is not None
            release = first_release(
                counter,
                schema=schema,
                budget=made.budget,
                share=share,
                records=made.public_rows,
                journal=journal,
                resume=resume,
                progress=progress,
            )
            release.save(place)
        table = table_of(made, counter, schema, release, journal, progress=progress)
        table.close()
    finally:
        journal.close()
    return rehearse(table, rows=table.rule.rows)


def _refuse_begun(made: Settings) -> None:
    """A ledger that is there is the budget of this table, even where its beginning was stopped."""
    is_file = "://" not in made.place
    if is_file and (not Path(made.place).exists() or not Path(made.place).stat().st_size):
        return
    if not Storage(made.place).empty:
        raise LedgerError(
            "there is a ledger of a service already. If its beginning was stopped, give the same command with "
            "--resume; a ledger in another place would be a second budget for the same table"
        )


def _ledger(made: Settings, schema: Schema, books: Books | None) -> Storage:
    """A new ledger; or the one that a beginning has left, if it is about the same."""
    budget, cap = made.budget, cap_of(made.budget)
    promise: dict[str, object] = {
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "neighbours": str(budget.neighbours),
    }
    _make_private(made.place)
    storage = Storage(made.place, new=True)
    if storage.empty:
        if books is not None:  # with all that will ever be told, before anything is counted
            paid = books.charge_release(made.dataset, budget, kind="service", unit=schema.protects)
            promise["book"] = paid.to_json()
        storage.create(promised(made.dataset, promise, cap=cap))
        return storage
    found = storage.promise()
    said = json.loads(found.promise)
    said.pop("book", None)  # the entry of the book that has paid for it
    if (found.name, said, found.cap) != (made.dataset, promise, cap):
        raise LedgerError(
            "this ledger was begun for another dataset, budget or neighbours; give --resume with the same command as "
            "the first time"
        )
    return storage


def quantum_for(longest: float) -> float:
    """Seconds between two moments at which answers leave: four times what a question takes, or more."""
    quantum = Http.quantum
    while 4 * longest > quantum and quantum < SLOWEST_QUANTUM / 2:
        quantum *= 2
    return quantum


def _make_private(place: Place) -> None:
    """A file that nobody else on the machine may read: questions, replies and hashed tokens will stand in it."""
    if "://" not in os.fspath(place):
        with suppress(OSError):  # whoever opens it says what is wrong
            os.close(os.open(place, os.O_CREAT | os.O_RDWR, 0o600))


def write_whole(path: Path, text: str) -> None:
    """A file that appears whole or not at all."""
    aside = path.with_name(f".{path.name}.partial")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
