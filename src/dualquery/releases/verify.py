"""What can be said of a release without its table: as it was sealed, the sum is right, who signed, what was charged.

The sum: what a certificate claims to have spent is added up again from the events that it lists. Anybody can do this:
the events stand there in exact rationals, and the theorem by its name. A seal says that nothing was changed since;
this says that the claim followed in the first place.

The charge: a book whose chain follows from its origin may still be an old copy, or have been rewritten as a whole.
Each certificate holds a head that its book once had: if the book does not contain it, the book is not the one that
was charged.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any

from dualquery.errors import BudgetError, LedgerError, ReleaseError
from dualquery.ledger.book import Charge, Currency, Place, Statement, written
from dualquery.ledger.books import NO_BOOK, Books
from dualquery.privacy.budget import Accounting, Budget, Spent
from dualquery.privacy.events import Epoch, Event, Fire, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.releases import sentences as words
from dualquery.releases.certificate import Certificate, RowsFrom
from dualquery.releases.folder import read_certificate
from dualquery.releases.seal import check_signature, printable, read_public_key
from dualquery.releases.sentences import relation


@dataclass(frozen=True)
class Verification:
    """A certificate whose seal and files have been checked, and what its signature is worth.

    `signed` without `key_given` means that the folder itself named the key: anybody could have done that.
    """

    certificate: Certificate
    signed: bool
    key_given: bool
    recounted: Spent  # from the events that the certificate lists

    @property
    def public_key(self) -> str | None:
        return str(self.certificate["signature"]["public_key"]) if self.signed else None

    def facts(self) -> dict[str, str]:
        """What is certified, in six lines."""
        certificate = self.certificate
        files = sorted(certificate["files"])
        privacy = words.cost(certificate)
        if not certificate.private:
            privacy = f"none: {words.why_not_private(certificate)}"
        facts = {
            "certified": words.headline(certificate),
            "privacy": privacy,
            "added up again": f"ε = {words.number_above(self.recounted.epsilon)} by "
            f"{certificate['budget']['accounting']}, from the uses of the table that are listed",
            "made": f"{certificate['created']} by dualquery {certificate['versions']['dualquery']}, mechanism "
            f"{certificate['mechanism']}, from {certificate['entropy']['statement']}",
            "files": f"as they were sealed: {', '.join(files)}",
            "signature": self._signature(),
        }
        return {name: printable(fact) for name, fact in facts.items()}

    def _signature(self) -> str:
        if not self.signed:
            return "none. The seal shows accidents only: whoever changes a release with care can seal it anew"
        if self.key_given:
            return "by the key given"
        return (
            f"by the key {self.public_key}, which is the folder's own word: compare it with one that you got "
            "another way (--key)"
        )

    def to_json(self) -> dict[str, Any]:
        certificate = self.certificate
        return {
            "private": certificate.private,
            "budget": {name: certificate["budget"][name] for name in ("epsilon", "delta", "neighbours")},
            "spent": {name: certificate["spent"][name] for name in ("epsilon", "delta")},
            "accounting": certificate["budget"]["accounting"],
            "recounted": {"epsilon": self.recounted.epsilon, "delta": self.recounted.delta},
            **{name: certificate.plain()[name] for name in ("mechanism", "created", "files", "seal")},
            "signed": self.signed,
            "public_key": self.public_key,
            "key_given": self.key_given,
        }


def verify(folder: str | os.PathLike[str], key: str | os.PathLike[str] | None = None) -> Verification:
    """Check the files, the seal, the signature and the sum of a release; ReleaseError where one of them is wrong.

    `key` names the file of a public key. With it, a release that is not signed by that key is refused.
    """
    known = None if key is None else read_public_key(key)
    certificate = read_certificate(Path(folder))
    signed = check_signature(certificate, known)
    return Verification(certificate, signed, known is not None, recounted(certificate))


MOST_EVENTS = 1_000_000
LONGEST = 4000  # digits of a rational
ROOM = 1e-9  # for the logarithms of another machine


def recounted(certificate: Certificate) -> Spent:
    """What a fresh ledger says of the listed events; ReleaseError where the certificate claims less."""
    if "fitted" in certificate and not certificate["events"]:
        return Spent(None, 0.0, 0.0)  # to tables that others measured: nothing private was read
    ledger = Ledger(_budget(certificate))
    try:
        ledger.charge(*_events(certificate))
    except BudgetError:
        raise ReleaseError(
            "the uses of the table that the certificate lists cost more than its budget: it is not to be believed"
        ) from None
    spent, told = ledger.spent(), certificate["spent"]
    claims = [(told["epsilon"], spent.epsilon), (told["delta"], spent.delta)]
    for k, epsilon in certificate["several"].items():
        claims.append((math.inf if epsilon is None else epsilon, ledger.epsilon_for(int(k))))
    if any(claimed < found * (1 - ROOM) for claimed, found in claims):
        raise ReleaseError(
            "the certificate claims to have spent less than the uses of the table that it lists: it is not to be "
            "believed"
        )
    return spent


def _budget(certificate: Certificate) -> Budget:
    told = certificate["budget"]
    try:
        if Accounting(told["accounting"]) is Accounting.TIGHTEST:
            raise ValueError("settled before anything is drawn")
        return Budget(
            epsilon=told["epsilon"],
            delta=told["delta"],
            neighbours=relation(certificate),
            accounting=Accounting(told["accounting"]),
            adaptive=certificate["records"]["from"] == RowsFrom.MEASURED.value
            or f"charged_{Currency.MU_SQUARED.value}" in (certificate.get("book") or {}),
        )
    except (BudgetError, ValueError):
        raise ReleaseError("the certificate states no valid budget: it was changed by hand") from None


def _events(certificate: Certificate) -> list[Event]:
    listed = certificate["events"]
    if sum(each["times"] for each in listed) > MOST_EVENTS:
        raise ReleaseError("the certificate lists more uses of the table than any release has")
    try:
        return [event for each in listed for event in [_event(each)] * each["times"]]
    except (KeyError, TypeError, ValueError, ZeroDivisionError, BudgetError):
        raise ReleaseError("the certificate lists a use of the table that there is not") from None


def _event(listed: Mapping[str, Any]) -> Event:
    """An event from its fields: rationals are written as texts, whole numbers as numbers."""
    kind = _KINDS[listed["event"]]
    return kind(**{each.name: _READ[str(each.type)](listed[each.name]) for each in fields(kind)})


def _exact(text: Any) -> Fraction:
    if not isinstance(text, str) or len(text) > LONGEST or "e" in text.lower():
        raise ValueError("no rational")
    return Fraction(text)


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise ValueError("no whole number")
    return number


_READ: dict[str, Callable[[Any], Any]] = {"Fraction": _exact, "int": _whole}
_KINDS: dict[str, Any] = {
    kind.kind: kind for kind in (Selection, GaussianMeasurement, LaplaceMeasurement, Epoch, Fire)
}


@dataclass(frozen=True)
class BookAudit:
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
        certificate = certificate_at(folder)
        recounted(certificate)
        release = _check(certificate, statements, folder)
        other, text = seen.setdefault(release, (folder, certificate.to_json()))
        if text != certificate.to_json():
            raise LedgerError(
                f"'{folder}' and '{other}' are different releases on one charge; one was not paid for"
            )
    return BookAudit(tuple(statements.values()), len(folders))


def certificate_at(folder: Path) -> Certificate:
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
    charged = charge.cost(statement.book).largest
    amounts = {"charged": charged, "spent": charge.spent_after, "cap": statement.book.cap}
    told = {f"{word}_{currency.value}": written(amount) for word, amount in amounts.items()}
    told["release"] = charge.release
    if charge.periods:
        told["periods"] = charge.named
        if charge.named != (certificate.get("period") or {}).get("periods"):
            raise LedgerError(f"the release in '{folder}' is of other periods than those that were charged")
    if any(entry.get(key) != value for key, value in told.items()) or not _paid(
        certificate, charge, statement
    ):
        raise LedgerError(f"the certificate in '{folder}' says something else than the charge in its book")
    return charge.release


def _paid(certificate: Certificate, charge: Charge, statement: Statement) -> bool:
    """Whether the budget on a certificate is the one that was charged.

    Its price is computed again, with room for the last digits of another machine's logarithms.
    """
    budget = _budget(certificate)
    try:
        price = statement.book.price(budget)
    except (ValueError, BudgetError):
        return False
    same = charge.what.endswith(
        f"epsilon {budget.epsilon!r}, delta {budget.delta!r}, {budget.accounting.value}"
    )
    relation = statement.book.neighbours.split(" ")[0]  # a relation may print its parameters behind its name
    charged = charge.cost(statement.book).largest
    room = charged // 10**6 + 1
    alike = relation == str(budget.neighbours).split(" ")[0] and charge.unit in (
        "",
        certificate.schema.protects,
    )
    return same and alike and price <= charged + room


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
            **({} if each.book.periods is None else {"promises": each.book.promises(each.costs)}),
            "created": each.book.created,
            "head": each.head,
            "charges": [
                {
                    "sequence": charge.sequence,
                    "day": charge.day,
                    "release": charge.release,
                    "what": charge.what,
                    **({"periods": charge.named} if charge.periods else {}),
                    "charged": written(charge.cost(each.book).largest),
                    "spent_after": written(charge.spent_after),
                    "hash": charge.hash,
                }
                for charge in each.charges
            ],
        }
        for each in statements
    ]
