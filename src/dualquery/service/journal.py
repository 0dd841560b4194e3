"""The journal of the core, on disk: many questions, one sync.

Two promises differ, and so do their moments. What *pays* (`Prepaid`, `Charged`, and the opening) must be on disk
before the table is looked at: `sync` waits for it. What was *found* (`Answered`, `Fired`, `Bought`) must be on disk
before anybody hears of it: it waits here until `flush`, with everything else that was found meanwhile, and the worker
hands out no reply before `flush` has returned. Lines are written in their order, so that after a fire no test is
drawn before both the fire and the next prepaid one are on disk.

Where the disk is full or the database away, lines stay here and are written later, the same ones, once: `flush` asks
first where the ledger stands, because a commit whose answer got lost may have happened.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any

from dualquery.errors import LedgerError
from dualquery.interactive import (
    KINDS,
    Account,
    Answered,
    Bought,
    Charged,
    Fired,
    JournalEntry,
    Opened,
    read,
    units_of,
    written,
)
from dualquery.interactive.rule import Accuracy
from dualquery.ledger import TOLD, Head, Line, NewLine, Promise, Witness, chained
from dualquery.ledger.journal import Storage
from dualquery.ledger.storage import AwayError, FencedError
from dualquery.privacy.budget import decimal
from dualquery.service.settings import Settings
from dualquery.service.tokens import GRANTED, REVOKED, Tokens, draft_of

FOUND = {Answered.kind, Fired.kind, Bought.kind}
PATIENCE = 0.2  # seconds between two attempts to write


class LedgerJournal:
    """Keeps the journal. Used by one thread, the worker's."""

    def __init__(self, settings: Settings, storage: Storage, *, trust: bool = False) -> None:
        self.storage, self._dataset, self._trust = storage, settings.dataset, trust
        self._witness = Witness(settings.path(settings.witness))
        self.origin = ""
        self._drafts: list[NewLine] = []
        self._in_doubt = False
        self._recalled: dict[tuple[str, str], Line] = {}
        self.head = Head(length=0, hash="", spent=0)  # what is on disk
        self.account = Account(0)  # what is on disk or about to be
        self.asking = ""  # the analyst whose question is under way
        self.tokens = Tokens()
        self.stopping = Event()
        self.on_delay: Callable[[LedgerError], None] = _give_up  # unless somebody can be told

    # What the core calls

    def entries(self) -> tuple[JournalEntry, ...]:
        """All entries, once every line has been found to follow from the one before, up to the head last seen."""
        self.storage.hold()
        promise = self.storage.promise()
        if promise.name != self._dataset:
            raise LedgerError(f"this is the ledger of '{promise.name}', not of '{self._dataset}'")
        found = []
        self.origin, self.account, self.tokens = promise.origin, Account(promise.cap), Tokens()
        self.head = promise.start
        for line in self._witness.checked(self.storage.verified(promise), promise, trust=self._trust):
            self.head = line.head
            self.tokens.hear(line)
            if (entry := entry_in(line)) is not None:
                self.account.hear(entry, line.analyst)
                found.append(entry)
        self._witness.write(self.head, origin=promise.origin)
        return tuple(found)

    def append(self, *entries: JournalEntry) -> int:
        for entry in entries:
            analyst = self.asking if isinstance(entry, Charged) or entry.kind in FOUND else ""
            self._drafts.append(
                NewLine(kind=entry.kind, body=written(entry), units=units_of(entry), analyst=analyst)
            )
            self.account.hear(entry, analyst)
        return self.length

    def sync(self, position: int) -> None:
        """Wait for the disk where something was paid; what was only found is written with its batch."""
        kinds = {draft.kind for draft in self._drafts[: position - self.head.length]}
        if kinds <= FOUND | {TOLD}:
            return None
        while True:
            try:
                return self.flush()
            except AwayError as problem:
                if self.stopping.is_set():
                    raise
                self.on_delay(problem)
                self.stopping.wait(PATIENCE)

    # What the worker calls

    @property
    def next_line(self) -> int:
        """The number of the line that the reply to the last question will stand in."""
        return self.length + (not self._untold())

    @property
    def length(self) -> int:
        return self.head.length + len(self._drafts)

    def tell(self, reply: str, *, analyst: str, key: str | None, request: str) -> None:
        """Put a reply to what was found last: into its line, if that is still here, else into one of its own."""
        if not self._untold():
            self._drafts.append(NewLine(kind=TOLD, body="{}", units=0))
        self._drafts[-1] = replace(self._drafts[-1], reply=reply, analyst=analyst, key=key, request=request)

    def grant(self, wishes: Mapping[str, str]) -> None:
        """Write down what others want to be known about tokens, once; what nobody of us wrote is left out."""
        for number, body in wishes.items():
            draft = draft_of(body)
            if draft is not None and not self.tokens.heard(number):
                self._drafts.append(draft)

    def recall(self, requests: Sequence[tuple[str, str]]) -> None:
        """Look up, at once, what was replied to requests that are about to be answered: analyst and key of each."""
        self._recalled = self.storage.replied(requests) if requests else {}

    def replied(self, analyst: str, key: str) -> NewLine | Line | None:
        """What was replied to a request with this key, on disk or about to be."""
        for draft in self._drafts:
            if draft.key == key and draft.analyst == analyst:
                return draft
        return self._recalled.get((analyst, key))

    def flush(self) -> None:
        """Everything here to disk, all or nothing; AwayError where it cannot be now, and nothing is lost."""
        if not self._drafts:
            return None
        lines, head = [], self.head
        for draft in self._drafts:
            lines.append(chained(draft, head, origin=self.origin))
            head = lines[-1].head
        if self._in_doubt:
            on_disk = self.storage.head()
            if on_disk not in (self.head, head):
                raise FencedError("another server has written to this ledger; a ledger has one server")
            self._in_doubt = on_disk == self.head
            if on_disk == head:
                return self._written(lines)
        self._in_doubt = True
        self.storage.commit(self.head, lines)
        self._in_doubt = False
        return self._written(lines)

    def close(self) -> None:
        """After the core has closed: the last lines to disk, and the next server may come."""
        self._witness.close()
        self.storage.release()

    def _written(self, lines: Sequence[Line]) -> None:
        self.head = lines[-1].head
        self._drafts.clear()
        for line in lines:
            self.tokens.hear(line)
        self._recalled |= {(line.analyst, line.key): line for line in lines if line.key is not None}
        self._witness.write(self.head, origin=self.origin)

    def _untold(self) -> bool:
        """Whether the last line is an answer that waits for its reply."""
        return bool(self._drafts) and self._drafts[-1].kind in FOUND and not self._drafts[-1].reply


def _give_up(problem: LedgerError) -> None:
    raise problem


def entry_in(line: Line) -> JournalEntry | None:
    """The entry of the core that a line holds; None of a reply alone, or of a token."""
    return read(line.body) if line.kind in KINDS else None


@dataclass(kw_only=True)
class LedgerStatus(Account):
    """Where a service stands, from its ledger alone: verified, and read beside a server that may be running."""

    dataset: str
    head: Head
    accuracy: str | None = None  # of all answers together, where one is promised

    def to_json(self) -> dict[str, object]:
        names = ("dataset", "cap", "release", "spent", "left", "price", "fires_left", "fires", "burned", "answers",
                 "spent_by", "running", "accuracy")  # fmt: skip
        found = {name: getattr(self, name) for name in names}
        return {**found, "line": self.head.length, "hash": self.head.hash}


def ledger_status(settings: Settings, *, trust: bool = False) -> LedgerStatus:
    """LedgerError where anything was edited, or rolled back behind what this service has seen."""
    promise, lines = _verified(settings, trust=trust)
    found = LedgerStatus(cap=promise.cap, dataset=promise.name, head=promise.start)
    for line in lines:
        found.head = line.head
        if (entry := entry_in(line)) is not None:
            found.hear(entry, line.analyst)
            if isinstance(entry, Opened):
                found.accuracy = Accuracy.said(entry.rule)
    return found


def checks_of(storage: Storage, quota: float) -> tuple[int, float]:
    """How many fires a quota pays for, and the least quota that pays for one; by the first lines of the ledger."""
    promise = storage.promise()
    found = Account(promise.cap)
    for line in storage.verified(promise):
        if (entry := entry_in(line)) is not None:
            found.hear(entry)
        if found.price:
            whole = found.cap - found.release
            return int(decimal(quota) * whole) // found.price, found.price / whole
    return 0, math.inf


_WORDS = {
    "planned": "the first release is paid for",
    "opened": "ε = {epsilon}, δ = {delta}, neighbours {neighbours}, {rows:,} records",
    "fixed": "these are the records that are asked from here on",
    "prepaid": "fire {slot} is paid for",
    "serving": "from here on a test may be under way",
    "answered": "{badge}: {question}",
    "fired": "fire {slot}, measured: {question}",
    "charged": "purchase {purchase} is paid for: {question}",
    "bought": "purchase {purchase}: {question}",
    "rested": "no test is under way",
    "burned": "fire {slot} is lost: a test may have been under way at an unclean stop",
    "closed": "a clean stop",
    "reopened": "a start",
    TOLD: "a reply to what stands above",
    GRANTED: "{added}: a token, {role}, quota {quota}{until}",
    REVOKED: "{at}: the token opens nothing any more",
}


def log_of(settings: Settings, *, last: int | None = None, trust: bool = False) -> list[dict[str, Any]]:
    """The chain in words, all lines or the last, for the owner; without its secrets: no key, no hash of a token.

    LedgerError where lines do not follow from each other, or some are missing.
    """
    _, lines = _verified(settings, trust=trust)
    return list(deque(map(_row, lines), maxlen=last))


def _row(line: Line) -> dict[str, Any]:
    body = json.loads(line.body)
    until = f", until {body['expires']}" if body.get("expires") else ""
    words = _WORDS.get(line.kind, "").format(**body, until=until)
    return {"line": line.sequence, "kind": line.kind, "analyst": line.analyst, "units": line.units, "words": words,
            "hash": line.hash}  # fmt: skip


def _verified(settings: Settings, *, trust: bool) -> tuple[Promise, Iterable[Line]]:
    storage, witness = Storage(settings.place), Witness(settings.path(settings.witness))
    promise = storage.promise()
    return promise, witness.checked(storage.verified(promise), promise, trust=trust)
