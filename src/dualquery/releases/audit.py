"""Books against certificates: a book that was rolled back, edited or replaced lacks what some certificate saw.

A chain that follows from its origin may still be an old copy, or have been rewritten as a whole. Each certificate
holds a head that its book once had: if the book does not contain it, the book is not the one that was charged.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dualquery.errors import BudgetError, LedgerError, ReleaseError
from dualquery.ledger.book import Currency, Place, Statement, written
from dualquery.ledger.books import NO_BOOK, Books
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.neighbours import Neighbours
from dualquery.releases.certificate import Certificate
from dualquery.releases.recount import recounted


@dataclass(frozen=True)
class BookAudit:
    """What was found to be in order."""

    statements: tuple[Statement, ...]
    certificates: int


def audit(
    ledger: Place, folders: Sequence[str | os.PathLike[str]] = (), *, dataset: str | None = None
) -> BookAudit:
    """Verify every book of a ledger (or one), and that each release stands in it as its certificate says.

    LedgerError with the first thing that is amiss: a chain that does not follow, a sum that is not what is spent, a
    certificate whose charge is not there, is another, or is for less than the budget on the certificate. ReleaseError
    where the events on a certificate cost more than it says.
    """
    books = Books(ledger)
    names = books.names() if dataset is None else [dataset]
    if not names:
        raise LedgerError(NO_BOOK)
    statements = {statement.book.name: statement for statement in map(books.read, names)}
    seen: dict[str, tuple[Path, str]] = {}
    for folder in map(Path, folders):
        certificate = read_certificate(folder)
        recounted(certificate)
        release = _check(certificate, statements, folder)
        other, text = seen.setdefault(release, (folder, certificate.to_json()))
        if text != certificate.to_json():
            raise LedgerError(
                f"'{folder}' and '{other}' are different releases on one charge; one was not paid for"
            )
    return BookAudit(tuple(statements.values()), len(folders))


def read_certificate(folder: Path) -> Certificate:
    """The certificate in the folder of a release, or in a file of its own."""
    path = folder / "certificate.json" if folder.is_dir() else folder
    try:
        return Certificate.from_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeError, RecursionError):
        raise ReleaseError(
            f"there is no certificate to read in '{folder}'; name the folder of a release"
        ) from None


def _check(certificate: Certificate, statements: Mapping[str, Statement], folder: Path) -> str:
    """The random number of a release whose charge is in order."""
    entry = certificate.get("book")
    if not isinstance(entry, Mapping):
        raise LedgerError(f"the release in '{folder}' was charged to no ledger")
    name, sequence = entry.get("name"), entry.get("sequence")
    statement = statements.get(name) if isinstance(name, str) else None
    if statement is None:
        raise LedgerError(f"the release in '{folder}' was charged to the book of '{name}', which is not here")
    if entry.get("origin") != statement.book.origin:
        raise LedgerError(f"the release in '{folder}' was charged to another book of '{name}' than this one")
    known = {charge.sequence: charge for charge in statement.charges}
    charge = known.get(sequence) if type(sequence) is int else None
    if charge is None or charge.hash != entry.get("head"):
        raise LedgerError(
            f"the book of '{name}' does not contain the charge of the release in '{folder}': it was rolled back to "
            "an older copy, or rewritten. More is spent than it says; restore a later copy, or close the dataset"
        )
    currency = Currency(statement.book.currency)
    amounts = {"charged": charge.units, "spent": charge.spent_after, "cap": statement.book.cap}
    told = {f"{word}_{currency.value}": written(amount) for word, amount in amounts.items()}
    told["release"] = charge.release
    if any(entry.get(key) != value for key, value in told.items()) or not _paid(
        certificate["budget"], charge.what, charge.units, statement
    ):
        raise LedgerError(f"the certificate in '{folder}' says something else than the charge in its book")
    return charge.release


def _paid(budget: Mapping[str, Any], what: str, units: int, statement: Statement) -> bool:
    """Whether the budget on a certificate is the one that was charged.

    Its price is computed again, with room for the last digits of another machine's logarithms.
    """
    try:
        found = Budget(
            epsilon=float(budget["epsilon"]),
            delta=float(budget["delta"]),
            neighbours=Neighbours.REPLACE,  # of no consequence for the price
            accounting=Accounting(budget["accounting"]),
        )
        price = statement.book.price(found)
    except (KeyError, TypeError, ValueError, BudgetError):
        return False
    same = what.endswith(f"epsilon {found.epsilon!r}, delta {found.delta!r}, {found.accounting.value}")
    relation = statement.book.neighbours.split(" ")[0]  # a relation may print its parameters behind its name
    return same and relation == budget.get("neighbours") and price <= units + units // 10**6 + 1


def as_json(statements: Iterable[Statement]) -> list[dict[str, object]]:
    """Books as plain data, for `--json`."""
    return [
        {
            "dataset": each.book.name,
            "neighbours": each.book.neighbours,
            "currency": each.book.currency,
            "epsilon": float(each.book.epsilon),
            "delta": float(each.book.delta),
            "cap": written(each.book.cap),
            "spent": written(each.book.spent),
            "epsilon_spent": each.book.epsilon_spent,
            "epsilon_left": each.book.epsilon_left,
            "created": each.book.created,
            "head": each.head,
            "charges": [
                {
                    "sequence": charge.sequence,
                    "day": charge.day,
                    "release": charge.release,
                    "what": charge.what,
                    "charged": written(charge.units),
                    "spent_after": written(charge.spent_after),
                    "hash": charge.hash,
                }
                for charge in each.charges
            ],
        }
        for each in statements
    ]
