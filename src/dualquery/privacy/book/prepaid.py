"""The ledger of a release that is charged to a book, whole, before it pays for anything."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

from dualquery.privacy.book.book import Entry, Place
from dualquery.privacy.budget import Budget
from dualquery.privacy.events import Concentrated, Event, Fire
from dualquery.privacy.ledger import Ledger, Reservation

if TYPE_CHECKING:
    from dualquery.privacy.book.books import Books


class PrepaidLedger(Ledger):
    """Nothing is drawn that was not charged here, and nothing is charged here before the book was charged, durably.

    The book is charged with all that the budget allows, not with what the release turns out to spend: how much that
    is may not be known before a count is read. Nothing comes back, whatever happens: a release that failed may have
    failed because of what it saw.
    """

    def __init__(self, budget: Budget, *, books: Books, dataset: str | None) -> None:
        super().__init__(budget)
        self._books = books
        self._dataset = dataset
        self._entry: Entry | None = None
        self._charging = Lock()
        books.refuse_unaffordable(dataset, budget)

    def prepay(self) -> Entry:
        """The charge in the book; made now, if it has not been made."""
        with self._charging:
            if self._entry is None:
                self._entry = self._books.charge_release(self._dataset, self.budget)
            return self._entry

    def charge(self, *events: Event) -> None:
        self.prepay()
        super().charge(*events)

    def reserve(self, fire: Fire, *follow_up: Concentrated) -> Reservation:
        self.prepay()
        return super().reserve(fire, *follow_up)


def ledger_of(budget: Budget, *, ledger: Place | None, dataset: str | None) -> Ledger:
    """The ledger of a release: charged to a book where one is named."""
    if ledger is None:
        return Ledger(budget)
    from dualquery.privacy.book.books import Books  # no database is loaded where none is asked for

    return PrepaidLedger(budget, books=Books(ledger), dataset=dataset)
