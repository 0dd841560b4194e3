"""A service, opened from its file and run until it is told to stop."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from dualquery.asking.opening import online
from dualquery.asking.rehearsal import rehearse
from dualquery.errors import DualQueryError
from dualquery.ledger.chain import Witness
from dualquery.ledger.journal import Storage
from dualquery.releases.release import Release
from dualquery.service.clerk import Clerk
from dualquery.service.describing import of_release, of_table
from dualquery.service.desk import Desk
from dualquery.service.keeping import Keeper
from dualquery.service.limits import Daily
from dualquery.service.settings import Settings
from dualquery.service.tally import Tally
from dualquery.table.schema import read_schema
from dualquery.types import Progress, silent


@contextmanager
def opened(
    settings: Settings,
    *,
    trust: bool = False,
    table_changed: bool = False,
    log: Callable[[str], object] | None = None,
    progress: Progress = silent,
) -> Iterator[Desk]:
    """The desk of a service: ledger verified, hypothesis rebuilt, a fire prepaid. A clean stop at the end."""
    storage = Storage(settings.place)
    keeper = Keeper(storage, Witness(settings.path(settings.witness)), dataset=settings.dataset, trust=trust)
    try:
        schema = read_schema(settings.path(settings.schema))
        published = {name: Release.load(settings.path(place)) for name, place in settings.published.items()}
        table = online(
            settings.path(settings.table),
            schema=schema,
            budget=settings.budget,
            release=Release.load(settings.path(settings.release)),
            questions=settings.questions,
            tolerance=settings.tolerance,
            published=published,
            records=settings.public_rows,
            journal=keeper,
            table_changed=table_changed,
            progress=progress,
        )
        rehearse(table.rule, table.release)  # before anybody can hold a watch
    except BaseException:
        keeper.close()
        raise
    clerk = Clerk(table, keeper)
    described = {
        settings.dataset: of_table(settings.dataset, table, declared=settings.public_rows is not None),
        **{name: of_release(name, release) for name, release in published.items()},
    }
    clerk.start()
    try:
        daily, tally = Daily(settings.http.bytes_a_day), Tally(log)
        yield Desk(settings, storage, keeper.tokens, clerk, described, daily, tally)
    finally:
        clerk.stop()


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

        from dualquery.service.listening import bound, configured
    except ModuleNotFoundError:
        raise DualQueryError("serving needs the extra `service`: pip install 'dualquery[service]'") from None
    http = settings.http
    sockets = bound(settings)
    with opened(settings, trust=trust, table_changed=table_changed, log=log, progress=progress) as desk:
        desk.clerk.prepare_all()
        if ready is not None:
            scheme = "https" if http.certificate else "http"
            ready(f"{settings.dataset}: {scheme}://{http.host}:{http.port}/ (stop with Ctrl-C)")
            if not desk.tokens.all:
                ready("Nobody has a token yet: dualquery serve token add NAME")
        with suppress(KeyboardInterrupt), _stopped_like_an_interrupt():
            uvicorn.Server(configured(desk)).run(sockets)


@contextmanager
def _stopped_like_an_interrupt() -> Iterator[None]:
    """SIGTERM must not end the process before the ledger is closed: uvicorn passes it on when it is done."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
