"""All books of one ledger file or database: create one, read one, charge one.

A charge is one transaction: lock, verify the chain, `UPDATE … SET spent = spent + x WHERE spent + x <= cap`, append
the row, commit. Whatever dies before the commit has charged nothing and drawn nothing, because a release draws only
after `charge` has returned. Whatever dies after it has charged, perhaps for nothing: never the other way round.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import asdict, fields, replace
from datetime import UTC, datetime

import sqlalchemy as sql

from dualquery.errors import BudgetError, LedgerError
from dualquery.ledger import storage
from dualquery.ledger.book import (
    FORMAT,
    Book,
    Charge,
    Entry,
    Place,
    Statement,
    cap_units,
    check_name,
    hash_of,
    origin_of,
    verified,
)
from dualquery.ledger.storage import BOOKS, CHARGES, engine_of, transaction
from dualquery.privacy.budget import Budget
from dualquery.privacy.neighbours import Neighbours

NO_BOOK = "this ledger has no book yet; make one with `dualquery ledger create`"


class Books:
    """The books at a place. Every call opens a connection of its own, so that processes and threads may share it."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._engine = engine_of(place)

    def names(self) -> list[str]:
        """The datasets that have a book."""
        with transaction(self._engine, writes=False) as connection:
            if not storage.exist(connection):
                return []
            return [str(name) for name in connection.scalars(sql.select(BOOKS.c.name).order_by(BOOKS.c.id))]

    def read(self, name: str | None = None) -> Statement:
        """The book of a dataset, verified; without a name the only one. LedgerError where anything is amiss."""
        with transaction(self._engine, writes=False) as connection:
            return _read(connection, name, lock=False)[1]

    def charge(self, name: str | None, *, units: int, what: str) -> Entry:
        """Charge units to a book, durably; BudgetError where too little is left, and nothing is changed."""
        with transaction(self._engine, writes=True) as connection:
            number, before = _read(connection, name, lock=True)
            if not 0 < units <= before.book.left:
                raise BudgetError(_too_little(before.book, units))
            within = sql.and_(BOOKS.c.id == number, BOOKS.c.spent + units <= BOOKS.c.cap)
            done = connection.execute(sql.update(BOOKS).where(within).values(spent=BOOKS.c.spent + units))
            if done.rowcount != 1:
                raise BudgetError(_too_little(before.book, units))
            charge = _next(before, units, what)
            connection.execute(sql.insert(CHARGES).values(book=number, **asdict(charge)))
        return Entry(replace(before.book, spent=charge.spent_after), charge)

    def charge_release(self, name: str | None, budget: Budget, *, kind: str = "release") -> Entry:
        """Charge all that a release, or a service, within this budget may cost, before it begins."""
        book = refuse_other_relation(self.read(name).book, budget)
        what = f"{kind}: epsilon {budget.epsilon!r}, delta {budget.delta!r}, {budget.accounting.value}"
        return self.charge(book.name, units=book.price(budget), what=what)

    def refuse_unaffordable(self, name: str | None, budget: Budget) -> None:
        """What `charge_release` would refuse now, before anybody has read a table for nothing."""
        book = refuse_other_relation(self.read(name).book, budget)
        price = book.price(budget)
        if price > book.left:
            raise BudgetError(_too_little(book, price))


def create(
    place: Place,
    *,
    name: str,
    epsilon: float,
    delta: float,
    neighbours: Neighbours,
    questions: bool = False,
) -> Statement:
    """A book for a dataset, in a new ledger or in one that has other books. δ = 0: a book of pure releases.

    `questions`: a service of the dataset, which answers questions one at a time, can be charged to it, too.
    """
    currency, cap = cap_units(epsilon=epsilon, delta=delta, neighbours=neighbours, questions=questions)
    book = Book(
        format=FORMAT,
        name=check_name(name),
        nonce=secrets.token_hex(16),
        neighbours=str(neighbours),
        currency=currency.value,
        epsilon=repr(float(epsilon)),
        delta=repr(float(delta)),
        cap=cap,
        created=_now(),
        origin="",
        spent=0,
    )
    book = replace(book, origin=origin_of(book))
    with transaction(engine_of(place, new=True), writes=True) as connection:
        if not storage.exist(connection):
            storage.make(connection)
        if connection.scalar(sql.select(sql.func.count()).where(BOOKS.c.name == name)):
            raise LedgerError(
                f"the dataset '{name}' has a book in this ledger already; a dataset has one cap"
            )
        connection.execute(sql.insert(BOOKS).values(**asdict(book)))
    return Statement(book, ())


def refuse_other_relation(book: Book, budget: Budget) -> Book:
    """One relation for the life of a book: promises about different neighbours do not add up."""
    if book.neighbours != str(budget.neighbours):
        raise BudgetError(
            f"the book of '{book.name}' is about neighbours '{book.neighbours}', and this release about "
            f"'{budget.neighbours}', which do not add up; use the neighbours of the book"
        )
    return book


def _read(connection: sql.Connection, name: str | None, *, lock: bool) -> tuple[int, Statement]:
    """A book with its number in the database; locked until the transaction ends, where it is to be charged."""
    if not storage.exist(connection):
        raise LedgerError(NO_BOOK)
    wanted = sql.select(BOOKS) if name is None else sql.select(BOOKS).where(BOOKS.c.name == name)
    rows = connection.execute(wanted.with_for_update() if lock else wanted).mappings().all()
    if len(rows) != 1:
        raise LedgerError(_which(connection, name))
    (row,) = rows
    book = Book(**{field.name: row[field.name] for field in fields(Book)})
    own = sql.select(CHARGES).where(CHARGES.c.book == row["id"]).order_by(CHARGES.c.sequence)
    charges = [
        Charge(**{field.name: each[field.name] for field in fields(Charge)})
        for each in connection.execute(own).mappings()
    ]
    return row["id"], verified(book, charges)


def _which(connection: sql.Connection, name: str | None) -> str:
    names = [
        str(each) for each in connection.scalars(sql.select(BOOKS.c.name).order_by(BOOKS.c.id).limit(20))
    ]
    if not names:
        return NO_BOOK
    missing = "several books" if name is None else f"no book of '{name}'"
    return f"this ledger has {missing}; name one of its datasets with --dataset: {', '.join(names)}"


def _next(before: Statement, units: int, what: str) -> Charge:
    """The charge that follows; its hash is the new head."""
    charge = Charge(
        sequence=len(before.charges) + 1,
        day=_now()[:10],
        release=secrets.token_hex(16),
        what=what,
        units=units,
        spent_after=before.book.spent + units,
        previous=before.head,
        hash="",
    )
    return replace(charge, hash=hash_of(charge, origin=before.book.origin))


def _too_little(book: Book, units: int) -> str:
    share = f"{100 * units / book.cap:.3g}% of the cap" if units > 0 else "no positive amount"
    return (
        f"too little is left in the book of '{book.name}': this would charge {share}, and what is left is "
        f"{100 * book.left / book.cap:.3g}%, enough for a release of epsilon = {below(book.epsilon_left)} at delta = "
        f"{float(book.delta):g}; nothing was charged"
    )


def below(x: float) -> str:
    """Four digits, rounded down: what is left must not look like more."""
    if x <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(x)) - 3)
    return f"{math.floor(x / step) * step:.4g}"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
