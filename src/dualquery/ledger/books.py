"""All books of one ledger file or database: create one, read one, charge one.

A charge is one transaction: lock, verify the chain, move its head, append the line, commit. Whatever dies before the
commit has charged nothing and drawn nothing, because a release draws only after `charge` has returned. Whatever dies
after it has charged, perhaps for nothing: never the other way round.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction

import sqlalchemy as sql

from dualquery.errors import BudgetError, LedgerError
from dualquery.ledger import Head, NewLine, Promise, believed, chained, promised, verified
from dualquery.ledger.book import BOOK, Book, Charge, Entry, Place, Statement, below, cap_units, check_name
from dualquery.ledger.periods import PeriodCost
from dualquery.ledger.storage import (
    CHAINS,
    add_chain,
    append,
    chains,
    engine_of,
    exist,
    lines_of,
    transaction,
)
from dualquery.privacy.accounting import MOST_RELEASES
from dualquery.privacy.budget import Budget, Neighbours
from dualquery.table.persons import MOST_PERIODS, Calendar, Span

NO_BOOK = "this ledger has no book yet; make one with `dualquery ledger create`"


class Books:
    """The books at a place. Every call opens a connection of its own, so that processes and threads may share it."""

    def __init__(self, place: Place) -> None:
        self._engine = engine_of(place)

    def names(self) -> list[str]:
        with transaction(self._engine, writes=False) as connection:
            return _names(connection) if exist(connection) else []

    def read(self, name: str | None = None) -> Statement:
        """The book of a dataset, verified; without a name the only one. LedgerError where anything is amiss."""
        with transaction(self._engine, writes=False) as connection:
            return _read(connection, name, lock=False)[-1]

    def charge(
        self,
        name: str | None,
        *,
        units: int,
        what: str,
        span: Span | None = None,
        unit: str = "",
        failure: Fraction = Fraction(0),
    ) -> Entry:
        """Charge units to a book, durably; BudgetError where too little is left, and nothing is changed.

        With `span` the records of these periods pay, where the book has a calendar; otherwise all records do.
        `failure` is charged beside the units (`Book.reserve`).
        """
        with transaction(self._engine, writes=True) as connection:
            number, promise, head, before = _read(connection, name, lock=True)
            _refuse_other_unit(before, unit)
            units += before.book.reserve(before.failures, failure)
            cost = before.book.cost(units, span)
            grown = _grown(before, units, cost)
            said = {"day": datetime.now(UTC).date().isoformat(), "what": what}
            if cost.parts and before.book.periods is not None:
                said["periods"] = cost.written(before.book.periods)
            if unit:
                said["unit"] = unit
            if failure:
                said["failure"] = str(failure)
            body = json.dumps(said, sort_keys=True)
            draft = NewLine(kind="charge", key=secrets.token_hex(16), body=body, units=grown)
            line = chained(draft, head, origin=promise.origin)
            append(connection, number, head, [line])
        return Entry(Book.of(promise, line.head), Charge.of(line))

    def charge_release(
        self,
        name: str | None,
        budget: Budget,
        *,
        kind: str = "release",
        span: Span | None = None,
        unit: str = "",
        failure: Fraction = Fraction(0),
    ) -> Entry:
        """Charge all that a release, or a service, within this budget may cost, before it begins."""
        book = refuse_other_relation(self.read(name).book, budget)
        what = f"{kind}: epsilon {budget.epsilon!r}, delta {budget.delta!r}, {budget.accounting.value}"
        if failure:
            what += f", and delta {float(failure)!r} beside"
        price = book.price(budget)
        return self.charge(book.name, units=price, what=what, span=span, unit=unit, failure=failure)

    def refuse_unaffordable(
        self,
        name: str | None,
        budget: Budget,
        span: Span | None = None,
        *,
        unit: str = "",
        failure: Fraction = Fraction(0),
    ) -> None:
        """What `charge_release` would refuse now, before anybody has read a table for nothing."""
        found = self.read(name)
        _refuse_other_unit(found, unit)
        price = refuse_other_relation(found.book, budget).price(budget)
        price += found.book.reserve(found.failures, failure)
        _grown(found, price, found.book.cost(price, span))


def create(
    place: Place,
    *,
    name: str,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    questions: bool = False,
    gaussian: bool = False,
    calendar: Calendar | None = None,
    periods_per_person: int | None = None,
) -> Statement:
    """A book for a dataset, in a new ledger or in one that has other books. δ = 0: a book of pure releases.

    `questions`: a service of the dataset, which answers questions one at a time, can be charged to it, too.
    `gaussian`: releases that add Gaussian noise alone can be charged to it, with less noise than in any other.
    `calendar`: the cap is on the records of each period by themselves; with `periods_per_person` it is on a person
    with records in no more periods than that.
    """
    _refuse_calendar(calendar, periods_per_person, neighbours, questions=questions)
    currency, cap = cap_units(
        epsilon=epsilon, delta=delta, neighbours=neighbours, questions=questions, gaussian=gaussian
    )
    terms = {
        "neighbours": str(neighbours),
        "currency": currency.value,
        "epsilon": repr(float(epsilon)),
        "delta": repr(float(delta)),
        **({} if calendar is None else {"by": calendar.column, "calendar": calendar.by}),
        **({} if periods_per_person is None else {"periods_per_person": periods_per_person}),
    }
    promise = promised(check_name(name), terms, cap=cap, kind=BOOK)
    with transaction(engine_of(place, new=True), writes=True) as connection:
        if exist(connection) and name in _names(connection):
            raise LedgerError(
                f"the dataset '{name}' has a book in this ledger already; a dataset has one cap"
            )
        add_chain(connection, promise)
    return Statement(Book.of(promise, promise.start), ())


def refuse_other_relation(book: Book, budget: Budget) -> Book:
    """One relation for the life of a book: promises about different neighbours do not add up."""
    if book.neighbours != str(budget.neighbours):
        raise BudgetError(
            f"the book of '{book.name}' is about neighbours '{book.neighbours}', and this release about "
            f"'{budget.neighbours}', which do not add up; use the neighbours of the book"
        )
    return book


def _refuse_other_unit(found: Statement, unit: str) -> None:
    """Likewise one unit: a promise about rows says less of a person, and one about whole persons nothing of a row."""
    other = next((each.unit for each in found.charges if each.unit not in ("", unit)), None)
    if unit and other is not None:
        raise BudgetError(
            f"the book of '{found.book.name}' has paid for what protects each '{other}', and this protects each "
            f"'{unit}', which do not add up; open another book for it"
        )


def _names(connection: sql.Connection) -> list[str]:
    wanted = sql.select(CHAINS.c.name).where(CHAINS.c.kind == BOOK).order_by(CHAINS.c.id)
    return [str(name) for name in connection.scalars(wanted)]


def _read(
    connection: sql.Connection, name: str | None, *, lock: bool
) -> tuple[int, Promise, Head, Statement]:
    """A book with its chain; locked until the transaction ends, where it is to be charged."""
    if not exist(connection):
        raise LedgerError(NO_BOOK)
    found = chains(connection, BOOK, name, lock=lock)
    if len(found) != 1:
        raise LedgerError(_which(_names(connection)[:20], name))
    ((number, promise, head),) = found
    believed(promise, head)
    book = Book.of(promise, head)
    lines = verified(promise, head, lines_of(connection, number, after=0))
    statement = Statement(book, tuple(map(Charge.of, lines)))
    statement.added_up()
    return number, promise, head, statement


def _grown(before: Statement, units: int, cost: PeriodCost) -> int:
    """By how much a charge would raise what is spent; BudgetError where that is more than the cap."""
    book, spent = before.book, before.added_up()
    if not 0 < units <= book.cap:
        raise BudgetError(_too_little(book, units))
    if len(before.charges) >= MOST_RELEASES:
        raise BudgetError(f"the book of '{book.name}' has {MOST_RELEASES:,} charges, and takes no more")
    grown = spent.add(cost)
    if (above := book.spent + grown - book.cap) > 0:
        there = replace(book, spent=book.cap - max(0, units - above))  # as whoever would pay most has spent
        raise BudgetError(_too_little(there, units, cost))
    return grown


def _refuse_calendar(
    calendar: Calendar | None, periods: int | None, neighbours: Neighbours, *, questions: bool
) -> None:
    if calendar is not None and questions:
        raise BudgetError("questions are about the whole table, so a book for them has no calendar")
    if periods is None:
        return
    if calendar is None or neighbours.records_per_person is None:
        raise BudgetError(
            "periods per person need a calendar (--by, --calendar) and neighbours that protect a person "
            "(--neighbours person-add-remove, --records-per-person)"
        )
    if not 1 <= periods <= MOST_PERIODS:
        raise BudgetError(f"periods per person must be a whole number from 1 to {MOST_PERIODS:,}")


def _which(names: list[str], name: str | None) -> str:
    if not names:
        return NO_BOOK
    missing = "several books" if name is None else f"no book of '{name}'"
    return f"this ledger has {missing}; name one of its datasets with --dataset: {', '.join(names)}"


def _too_little(book: Book, units: int, cost: PeriodCost | None = None) -> str:
    where = f"the book of '{book.name}'"
    if cost is not None and cost.parts and book.periods is not None:
        where += f" for {', '.join(each.split('=')[0] for each in cost.written(book.periods).split(', '))}"
    share = f"{100 * units / book.cap:.3g}% of the cap" if units > 0 else "no positive amount"
    return (
        f"too little is left in {where}: this would charge {share}, and what is left is "
        f"{100 * book.left / book.cap:.3g}%, enough for a release of epsilon = {below(book.epsilon_left)} at delta = "
        f"{float(book.delta):g}; nothing was charged"
    )
