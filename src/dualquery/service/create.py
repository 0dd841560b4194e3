"""A new service: its ledger, the first release, and the file that describes it all."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from dualquery.counting.counter import Counter
from dualquery.errors import BudgetError, DualQueryError, LedgerError
from dualquery.interactive.opening import UNKNOWN_ROWS, first_release, starts_from_release
from dualquery.interactive.rule import OnlineRule, cap_of, check_wishes
from dualquery.ledger.book import Place
from dualquery.ledger.books import Books
from dualquery.ledger.chain import promised
from dualquery.ledger.journal import Storage
from dualquery.privacy.budget import default_delta
from dualquery.privacy.neighbours import Neighbours
from dualquery.releases.folder import refuse_occupied
from dualquery.releases.make import counting
from dualquery.releases.number_of_records import shared_rows
from dualquery.releases.release import Release
from dualquery.service.journal import LedgerJournal
from dualquery.service.run import rehearse, table_of
from dualquery.service.settings import Http, Settings
from dualquery.table.schema import Schema, read_schema
from dualquery.types import Progress, silent

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
            books.refuse_unaffordable(made.dataset, made.budget)
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
    journal = LedgerJournal(made, _ledger(made, books), trust=True)
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


def _ledger(made: Settings, books: Books | None) -> Storage:
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
            promise["book"] = books.charge_release(made.dataset, budget, kind="service").to_json()
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
