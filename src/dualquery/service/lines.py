"""One line of a service's ledger, its hash, and what makes a chain of lines believable.

    origin = SHA-256 of what never changes,   hash_k = SHA-256(line k with origin and hash_{k−1}),

each over JSON with sorted keys and without blanks. A line holds an entry of the journal, what it charged, and the
very bytes of the reply, where it was the answer to a request.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime

from dualquery.errors import LedgerError
from dualquery.interactive.journal import Charged, Entry, Opened, Planned, Prepaid

FORMAT = 2
MOST_UNITS = 2**62
TOLD = "told"  # a line that holds a reply alone: the entry that it tells was on disk before


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where a ledger stands: how many lines, the hash of the last, and what all of them have spent."""

    length: int
    hash: str
    spent: int


@dataclass(frozen=True, kw_only=True)
class Line:
    """What was written at once and is never changed."""

    sequence: int  # 1, 2, 3, …
    kind: str  # of the entry, or "told"
    analyst: str  # "" where nobody asked
    key: str | None  # of a request that may be repeated
    request: str  # its SHA-256
    body: str  # the entry
    reply: str  # the bytes that were answered
    units: int
    spent_after: int
    previous: str
    hash: str

    @property
    def head(self) -> Head:
        return Head(length=self.sequence, hash=self.hash, spent=self.spent_after)


@dataclass(frozen=True, kw_only=True)
class NewLine:
    """A line before it has its place in the chain."""

    kind: str
    body: str
    units: int
    analyst: str = ""
    key: str | None = None
    request: str = ""
    reply: str = ""


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The first row of a ledger: what is asked about, the cap, and a random number that tells two of a name apart."""

    format: int
    dataset: str
    nonce: str
    promise: str  # ε, δ and the relation, in JSON
    cap: int
    created: str
    origin: str


def units_of(entry: Entry) -> int:
    """What an entry spends: the release, a prepaid fire, a purchase."""
    return entry.units if isinstance(entry, Planned | Opened | Prepaid | Charged) else 0


def promised(dataset: str, promise: dict[str, object], *, cap: int) -> Promise:
    """A new ledger, which is about nothing else than this dataset under this promise."""
    made = Promise(
        format=FORMAT,
        dataset=dataset,
        nonce=secrets.token_hex(16),
        promise=json.dumps(promise, sort_keys=True),
        cap=cap,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        origin="",
    )
    return replace(made, origin=origin_of(made))


def origin_of(promise: Promise) -> str:
    """The hash of everything about a ledger that never changes."""
    return digest({f.name: getattr(promise, f.name) for f in fields(Promise) if f.name != "origin"})


def chained(draft: NewLine, head: Head, *, origin: str) -> Line:
    """The line that a draft becomes behind a head."""
    row: dict[str, object] = {
        "sequence": head.length + 1,
        **{f.name: getattr(draft, f.name) for f in fields(NewLine)},
        "spent_after": head.spent + draft.units,
        "previous": head.hash,
    }
    return Line(**row, hash=digest({**row, "ledger": origin}))  # type: ignore[arg-type]


def check(line: Line, head: Head, promise: Promise) -> None:
    """LedgerError unless this very line follows from that head, within the cap."""
    draft = NewLine(**{f.name: getattr(line, f.name) for f in fields(NewLine)})
    numbers = {"sequence", "units", "spent_after"}
    sound = (
        all(type(getattr(line, f.name)) is int for f in fields(Line) if f.name in numbers)
        and all(isinstance(getattr(line, f.name), str | None) for f in fields(Line) if f.name not in numbers)
        and 0 <= line.units <= MOST_UNITS
        and line.spent_after <= promise.cap
        and chained(draft, head, origin=promise.origin) == line
    )
    if not sound:
        raise LedgerError(
            f"the ledger of this service is not as it was written: line {head.length + 1} does not follow from the "
            "rest. It was edited or damaged; restore the last copy that agrees with the replies that were given"
        )


def digest(row: dict[str, object]) -> str:
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()
