"""The hash chain of a book: no charge can be changed, left out or put elsewhere without changing the head.

    origin = SHA-256 of the book's own row,   hash_k = SHA-256(charge k with origin and hash_{k−1}),

each over JSON with sorted keys and without blanks. Whoever rewrites the whole chain can still lie; a certificate
holds the head as it was, so that one certificate is enough to find out (`releases.audit`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import fields

from dualquery.errors import BudgetError, LedgerError
from dualquery.privacy.book.book import FORMAT, LONGEST_NAME, MOST_UNITS, Book, Charge, Statement, covers


def origin_of(book: Book) -> str:
    """The hash of everything about a book that never changes."""
    left_out = ("origin", "spent")
    return _digest({f.name: getattr(book, f.name) for f in fields(Book) if f.name not in left_out})


def hash_of(charge: Charge, *, origin: str) -> str:
    """The hash of a charge, which includes the one before."""
    row = {f.name: getattr(charge, f.name) for f in fields(Charge) if f.name != "hash"}
    return _digest({**row, "book": origin})


def verified(book: Book, charges: Sequence[Charge]) -> Statement:
    """The book with its charges, or LedgerError: nothing was edited, left out, or added without being added up."""
    _require(_readable(book) and covers(book) and origin_of(book) == book.origin, "its first line")
    previous, spent = book.origin, 0
    for number, charge in enumerate(charges, start=1):
        follows = (
            _sound(charge)
            and charge.sequence == number
            and charge.previous == previous
            and charge.units > 0
            and charge.spent_after == spent + charge.units
            and charge.hash == hash_of(charge, origin=book.origin)
        )
        _require(follows, f"charge {number}")
        previous, spent = charge.hash, charge.spent_after
    _require(spent == book.spent <= book.cap, "what it says is spent")
    return Statement(book, tuple(charges))


def _readable(book: Book) -> bool:
    """Whether a row can be read as a book of this version at all."""
    if not _sound(book) or book.format != FORMAT or book.cap == 0:
        return False
    try:
        epsilon, delta = float(book.epsilon), float(book.delta)
    except ValueError:
        return False
    return 0 < epsilon < math.inf and 0 <= delta < 1


def _sound(row: Book | Charge) -> bool:
    """Whether numbers are whole and fit, and texts can be written down: a database may hold anything anywhere."""
    for field in fields(row):
        value = getattr(row, field.name)
        if field.type == "int":
            if type(value) is not int or not 0 <= value <= MOST_UNITS:
                return False
        elif type(value) is not str or not value.isprintable():
            return False
    return True


def check_name(name: str) -> str:
    """The name of a dataset, or BudgetError."""
    if not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise BudgetError(f"the name of a dataset has 1 to {LONGEST_NAME} printable characters")
    return name


def _digest(row: dict[str, object]) -> str:
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _require(condition: bool, place: str) -> None:
    if not condition:
        raise LedgerError(
            f"this ledger is not as it was written: {place} does not follow from the rest. It was edited or "
            "damaged; charge nothing to it, and restore the last copy whose audit against all certificates passes"
        )
