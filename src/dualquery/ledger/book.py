"""What a book is: a cap on all releases of one dataset, what is spent of it, and the charges in their order.

The ledger of a release that is charged to a book is charged there, whole, before it pays for anything.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from threading import Lock
from typing import TYPE_CHECKING, TypeAlias

from dualquery.errors import BudgetError, LedgerError, SchemaError
from dualquery.ledger import MOST_UNITS, Head, Line, Promise
from dualquery.ledger.periods import PeriodCost, PeriodsSpent, of_person
from dualquery.privacy.accounting import (
    filter_epsilon,
    mu_squared_cap,
    mu_squared_units,
    pure_cap,
    rho_cap,
)
from dualquery.privacy.budget import Accounting, Budget, Neighbours, decimal
from dualquery.privacy.conversion import UNITS, best_order, epsilon_of, renyi_cap, renyi_epsilon, rho_units_of
from dualquery.privacy.conversion import units as units_of
from dualquery.privacy.events import Event
from dualquery.privacy.ledger import Ledger
from dualquery.table.persons import Calendar, Span

Place: TypeAlias = str | os.PathLike[str]  # of a ledger: a file or a URL

BOOK = "book"  # the kind of chain
LONGEST_NAME = 200
USUAL_PERIODS = 4  # for the line about a person, where the book names no number


class Currency(Enum):
    """What a book adds up, in whole units of 10⁻¹²; one for its life."""

    RHO = "rho"
    EPSILON = "epsilon"
    MU_SQUARED = "mu_squared"  # of Gaussian noise alone, which promises more for the same noise than ρ does
    RENYI = "renyi"  # divergence at one whole order: what questions one at a time can be paid by

    def price(self, budget: Budget, order: int = 1) -> int:
        """What a release within a budget is charged: the most that its own ledger can pay, whatever it pays."""
        if self is Currency.RENYI:
            units = renyi_price(budget, order)
        elif self is Currency.RHO and budget.accounting is Accounting.RENYI:
            raise BudgetError(
                "a service that answers questions is charged to a book for questions; make one with "
                "`dualquery ledger create --questions`"
            )
        elif self is Currency.MU_SQUARED:
            units = mu_squared_cap(budget)
        else:
            units = rho_cap(budget) if self is Currency.RHO else pure_cap(budget)
        if not 0 < units <= MOST_UNITS:
            raise BudgetError(
                f"a budget of epsilon = {budget.epsilon:g} is too small or too large to be charged"
            )
        return units


@dataclass(frozen=True, kw_only=True)
class Book:
    """One dataset: everything released about it is (ε, δ)-DP together, between tables of one relation.

    `neighbours` is the relation as it prints itself, `epsilon` and `delta` are the decimals that were asked for;
    `cap` and `spent` are units of the currency: ρ, or pure ε where δ = 0.
    """

    name: str
    neighbours: str
    currency: str
    epsilon: str
    delta: str
    cap: int
    created: str
    origin: str  # what the first charge follows
    spent: int  # where there is a calendar, by the dearest record, or by a person with records in so many periods
    by: str = ""  # the column that says to which period of the calendar a record belongs
    calendar: str = ""
    periods_per_person: int = 0  # L; 0 where nobody said how many

    @staticmethod
    def of(promise: Promise, head: Head) -> Book:
        """The book that a chain is; LedgerError where it cannot be read as one, or its cap implies no such ε."""
        known = {name: getattr(promise, name) for name in ("name", "cap", "created", "origin")}
        try:
            book = Book(**json.loads(promise.promise), **known, spent=head.spent)
            readable = 0 < float(book.epsilon) < math.inf and 0 <= float(book.delta) < 1 and _printable(book)
            readable = readable and (book.periods is None) == (not book.calendar)
        except (TypeError, ValueError, SchemaError):
            readable = False
        if not readable or not covers(book):
            raise LedgerError("a book of this ledger cannot be read, or its cap was changed; restore a copy")
        return book

    @property
    def order(self) -> int:
        """The Rényi order at which a book adds up, where it adds up divergence; it follows from ε and δ."""
        if self.currency != Currency.RENYI.value:
            return 1
        return best_order(epsilon=float(self.epsilon), delta=float(self.delta))

    def price(self, budget: Budget) -> int:
        return Currency(self.currency).price(budget, self.order)

    @property
    def accounting(self) -> Accounting:
        """What it asks the least for, of a release that names no accounting."""
        return Accounting.GAUSSIAN if self.currency == Currency.MU_SQUARED.value else Accounting.ZCDP

    @property
    def periods(self) -> Calendar | None:
        """The calendar, where releases of different periods do not add up."""
        return Calendar(self.by, self.calendar) if self.by else None

    @property
    def left(self) -> int:
        return self.cap - self.spent

    def reserve(self, before: Fraction, failure: Fraction) -> int:
        """Units for a step that fails with this probability, after others that fail with `before`.

        What is promised at δ holds with all failures f where the rest keeps (ε, δ − f): so much less may be spent.
        With the reserve in what is spent, spent ≤ cap says exactly that.
        """
        if not failure:
            return 0
        if self.currency == Currency.EPSILON.value:
            raise BudgetError(
                f"the book of '{self.name}' has no delta, and what this would charge may fail with a small "
                "probability; use a book with a delta"
            )
        return self._cap_without(before) - self._cap_without(before + failure)

    def _cap_without(self, failure: Fraction) -> int:
        """The cap of the same ε at a δ that is smaller by so much."""
        delta = (
            math.nextafter(float(decimal(float(self.delta)) - failure), 0.0) if failure else float(self.delta)
        )
        if delta <= 0:
            raise BudgetError(f"no delta is left in the book of '{self.name}'; nothing was charged")
        if self.currency == Currency.RENYI.value:
            return renyi_cap(epsilon=float(self.epsilon), delta=delta, order=self.order)
        if self.currency == Currency.MU_SQUARED.value:
            return mu_squared_units(epsilon=float(self.epsilon), delta=delta)
        return rho_units_of(epsilon=float(self.epsilon), delta=delta)

    def cost(self, units: int, span: Span | None) -> PeriodCost:
        """What a charge costs whom: the records of some periods, where the book keeps their calendar."""
        if span is None or self.periods is None:
            return PeriodCost(units, {})
        if span.calendar != self.periods:
            raise BudgetError(
                f"the book of '{self.name}' counts in {self.periods.words}, and this release in "
                f"{span.calendar.words}; use the period and calendar of the book"
            )
        return PeriodCost(0, span.parts(units))

    def promises(self, costs: Sequence[PeriodCost]) -> dict[str, str]:
        """What all charges cost a record, and a person: three lines, each with the ε at the δ of the cap."""
        if self.periods is None:
            return {}
        persons, length = self.neighbours.startswith("person-"), self.periods_per_person or USUAL_PERIODS
        seen = [period for each in costs for period in each.parts]
        number = max(seen) - min(seen) + 1 if seen else 0
        one, several, ever = (
            self._epsilon(
                of_person(costs, k, persons=persons, squared=self.currency != Currency.EPSILON.value)
                if k
                else 0,
                1 if persons else max(1, k),
            )
            for k in (1, length, number)
        )
        who = "a person" if persons else "a person with one record in each period"
        return {
            f"one {'person in one period' if persons else 'record'}": f"ε = {one}, for ever",
            f"{who}, in any {length} consecutive {self.calendar}s": f"ε = {several}",
            f"{who}, in all {self.calendar}s": f"ε = {ever} after {number}; it grows with each, and has no cap",
        }

    def _epsilon(self, units: int, records: int) -> str:
        if self.currency == Currency.EPSILON.value:
            return f"{units / UNITS:.4g}"
        return f"{self._implied(units, records):.4g}"

    def _implied(self, units: int, records: int = 1) -> float:
        """The ε at the δ of the cap that so much ρ is, or μ² where tables differ in so many records."""
        if self.currency == Currency.MU_SQUARED.value:
            each = Fraction(units, UNITS * records**2)
            return filter_epsilon(each, delta=float(self.delta), records=records) if units else 0.0
        return epsilon_of(Fraction(units, UNITS), delta=float(self.delta))

    @property
    def epsilon_spent(self) -> float:
        """The ε of everything so far, at the δ of the cap, rounded up."""
        if self.currency == Currency.EPSILON.value:
            return self.spent / UNITS
        if self.currency == Currency.RENYI.value:
            spent = renyi_epsilon(Fraction(self.spent, UNITS), order=self.order, delta=float(self.delta))
            return min(spent, float(self.epsilon))
        return min(self._implied(self.spent), float(self.epsilon))

    @property
    def epsilon_left(self) -> float:
        """The largest ε, about, that one more release could have at the δ of the cap: never too large."""
        if self.spent == 0:
            return float(self.epsilon)
        if self.currency == Currency.EPSILON.value:
            return max(0.0, self.left / UNITS * (1 - 1e-12))
        left = self.left // self.order  # as ρ
        if left == 0:
            return 0.0
        found = self._implied(left)
        units_of_epsilon = mu_squared_units if self.currency == Currency.MU_SQUARED.value else rho_units_of
        while found > 0 and units_of_epsilon(epsilon=found, delta=float(self.delta)) > left:
            found *= 1 - 1e-9
        return found


@dataclass(frozen=True, kw_only=True)
class Charge:
    """One release, charged before it read a count; never changed and never taken back."""

    sequence: int  # 1, 2, 3, … in each book
    day: str  # no time: beside that of the certificate it would say how long the run took
    release: str  # a random number, which stands on the certificate too
    what: str  # in words
    units: int  # by how much it raised what is spent
    spent_after: int
    previous: str  # the hash of the charge before, or the origin of the book
    hash: str
    periods: str = ""  # of a calendar, and what it cost their records; all there are where none is named
    unit: str = ""  # whose rows it protects together: `Schema.protects`; nothing in older books
    failure: str = (
        ""  # the part of the δ of the cap that it takes away (`Book.reserve`); nothing where none is named
    )

    @property
    def named(self) -> str:
        """The periods that it was for."""
        ends = [each.split("=")[0] for each in self.periods.split(", ")]
        return ends[0] if len(ends) == 1 else f"{ends[0].split('..')[0]}..{ends[-1].split('..')[-1]}"

    def cost(self, book: Book) -> PeriodCost:
        return PeriodCost.read(self.periods, self.units, book.periods)

    @staticmethod
    def of(line: Line) -> Charge:
        """The charge that a line of a book is; LedgerError where it is none."""
        own = {name: getattr(line, name) for name in ("sequence", "units", "spent_after", "previous", "hash")}
        try:
            charge = Charge(**json.loads(line.body), release=str(line.key), **own)
            readable = (charge.units > 0 or bool(charge.periods)) and _printable(charge)
        except (TypeError, ValueError):
            readable = False
        if not readable:
            raise LedgerError(f"line {line.sequence} of this book is no charge; restore a copy")
        return charge


@dataclass(frozen=True)
class Statement:
    """A book and all its charges, which have been found to follow from each other."""

    book: Book
    charges: tuple[Charge, ...]

    @property
    def head(self) -> str:
        return self.charges[-1].hash if self.charges else self.book.origin

    @property
    def failures(self) -> Fraction:
        """With which probability what is promised for the charges may fail altogether."""
        return sum((Fraction(charge.failure or 0) for charge in self.charges), Fraction(0))

    @property
    def costs(self) -> tuple[PeriodCost, ...]:
        return tuple(charge.cost(self.book) for charge in self.charges)

    def added_up(self) -> PeriodsSpent:
        """All charges; LedgerError where one says of itself another sum than those before it make."""
        spent = PeriodsSpent(max(1, self.book.periods_per_person))
        for charge, cost in zip(self.charges, self.costs, strict=True):
            if spent.add(cost) != charge.units:
                raise LedgerError(
                    f"charge {charge.sequence} of this book does not add up to what it says; restore a copy"
                )
        return spent


@dataclass(frozen=True)
class Entry:
    """What a certificate says of its charge. Whoever keeps it can tell whether the book still contains it."""

    book: Book
    charge: Charge

    def to_json(self) -> dict[str, str | int]:
        currency = self.book.currency
        return {
            "name": self.book.name,
            "origin": self.book.origin,
            "release": self.charge.release,
            "sequence": self.charge.sequence,
            "head": self.charge.hash,
            **({"periods": self.charge.named} if self.charge.periods else {}),
            f"charged_{currency}": written(self.charge.cost(self.book).largest),
            f"spent_{currency}": written(self.charge.spent_after),
            f"cap_{currency}": written(self.book.cap),
            "cap_epsilon_delta": f"{self.book.epsilon}, {self.book.delta}",
        }


def renyi_price(budget: Budget, order: int) -> int:
    """What a budget may cost at a whole Rényi order: α times its ρ, or the cap of a service at its own order.

    The divergence of every event, also of a fire, grows with the order (docs/certificate.md). So the cap of a
    service at a larger order is a bound at this one, event by event; at a smaller one it says nothing.
    """
    if budget.accounting is not Accounting.RENYI:
        return units_of(order * Fraction(rho_cap(budget), UNITS))
    own = best_order(epsilon=budget.epsilon, delta=budget.delta)
    if own < order:
        raise BudgetError(
            f"the book adds up Rényi divergence at the order {order}, and a service of epsilon = {budget.epsilon:g} "
            f"and delta = {budget.delta:g} at {own}, which says nothing about a larger one; use the delta of the "
            "book, and at most its epsilon"
        )
    return renyi_cap(epsilon=budget.epsilon, delta=budget.delta, order=own)


def cap_units(
    *, epsilon: float, delta: float, neighbours: Neighbours, questions: bool = False, gaussian: bool = False
) -> tuple[Currency, int]:
    """What (ε, δ) may be spent in a book: ρ = rho_of(ε, δ), or ε itself where δ = 0; for questions, divergence; for
    Gaussian noise alone μ².
    """
    if gaussian:
        if delta == 0 or questions:
            raise BudgetError(
                "a book for Gaussian noise has a delta and takes no questions; leave --gaussian out"
            )
        of_noise = Budget(epsilon, delta, neighbours, Accounting.GAUSSIAN, adaptive=True)
        return Currency.MU_SQUARED, Currency.MU_SQUARED.price(of_noise)
    if questions:
        if delta == 0:
            raise BudgetError(
                "questions one at a time need a delta; give the book one, or leave --questions out"
            )
        service = Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=Accounting.RENYI)
        return Currency.RENYI, Currency.RENYI.price(service, best_order(epsilon=epsilon, delta=delta))
    accounting = Accounting.PURE if delta == 0 else Accounting.ZCDP
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)
    currency = Currency.EPSILON if delta == 0 else Currency.RHO
    return currency, currency.price(budget)


def written(units: int) -> str:
    return f"{units // UNITS}.{units % UNITS:012d}"


def covers(book: Book) -> bool:
    """Whether the cap in units still implies the (ε, δ) that the book names; true of every book ever created."""
    epsilon, delta = float(book.epsilon), float(book.delta)
    if delta == 0:
        return book.currency == Currency.EPSILON.value and book.cap <= decimal(epsilon) * UNITS
    cap = Fraction(book.cap, UNITS)
    if book.currency == Currency.RENYI.value:
        try:
            implied = renyi_epsilon(cap, order=book.order, delta=delta)
        except BudgetError:  # no book has such an ε and δ
            return False
    elif book.currency in (Currency.RHO.value, Currency.MU_SQUARED.value):
        implied = book._implied(book.cap)
    else:
        return False
    return implied <= epsilon * (1 + 1e-9)  # another library's logarithms


def _printable(row: Book | Charge) -> bool:
    return all(type(each) is int or (type(each) is str and each.isprintable()) for each in vars(row).values())


def below(x: float) -> str:
    """Four digits, rounded down: what is left must not look like more."""
    if x <= 0:
        return "0"
    step = 10.0 ** (math.floor(math.log10(x)) - 3)
    return f"{math.floor(x / step) * step:.4g}"


def check_name(name: str) -> str:
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise BudgetError(f"the name of a dataset has 1 to {LONGEST_NAME} printable characters")
    return name


if TYPE_CHECKING:
    from dualquery.ledger.books import Books


class PrepaidLedger(Ledger):
    """Nothing is drawn that was not charged here, and nothing is charged here before the book was charged, durably.

    The book is charged with all that the budget allows, not with what the release turns out to spend: how much that
    is may not be known before a count is read. Nothing comes back, whatever happens: a release that failed may have
    failed because of what it saw.
    """

    def __init__(
        self,
        budget: Budget,
        *,
        books: Books,
        dataset: str | None,
        span: Span | None = None,
        kind: str = "release",
        unit: str = "",
        failure: Fraction = Fraction(0),
    ) -> None:
        super().__init__(budget, failure=failure)
        self._kind, self._unit = kind, unit
        self._books = books
        self._span = span
        self._dataset = dataset
        self._entry: Entry | None = None
        self._charging = Lock()
        books.refuse_unaffordable(dataset, budget, span, unit=unit, failure=failure)

    def prepay(self) -> Entry:
        """The charge in the book; made now, if it has not been made."""
        with self._charging:
            if self._entry is None:
                self._entry = self._books.charge_release(
                    self._dataset,
                    self.budget,
                    kind=self._kind,
                    span=self._span,
                    unit=self._unit,
                    failure=self.failure,
                )
            return self._entry

    def charge(self, *events: Event) -> None:
        self.prepay()
        super().charge(*events)

    def risk(self, failure: Fraction) -> None:
        self.prepay()
        super().risk(failure)


def accounting_of(ledger: Place, dataset: str | None) -> Accounting:
    """What the book of a dataset asks the least for."""
    from dualquery.ledger.books import Books

    return Books(ledger).read(dataset).book.accounting


def ledger_of(
    budget: Budget,
    *,
    ledger: Place | None,
    dataset: str | None,
    span: Span | None = None,
    kind: str = "release",
    unit: str = "",
    failure: Fraction = Fraction(0),
) -> Ledger:
    """The ledger of a release: charged to a book where one is named, on the records of these periods."""
    if ledger is None:
        return Ledger(budget, failure=failure)
    from dualquery.ledger.books import Books  # no database is loaded where none is asked for

    return PrepaidLedger(
        budget, books=Books(ledger), dataset=dataset, span=span, kind=kind, unit=unit, failure=failure
    )
