"""The journal of the core, on disk: many questions, one sync.

Two promises differ, and so do their moments. What *pays* (`Prepaid`, `Charged`, and the opening) must be on disk
before the table is looked at: `sync` waits for it. What was *found* (`Answered`, `Fired`, `Bought`) must be on disk
before anybody hears of it: it waits here until `flush`, with everything else that was found meanwhile, and the worker
hands out no reply before `flush` has returned. Lines are written in their order, so that after a fire no test is
drawn before both the fire and the next prepaid one are on disk.

Where the disk is full or the database away, lines stay here and are written later, the same ones, once: `flush` asks
first where the ledger stands, because a commit whose answer got lost may have happened.

Where a service stands, from its ledger alone: verified, and read beside a server that may be running.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event

from dualquery.errors import LedgerError
from dualquery.interactive.journal import (
    KINDS,
    Answered,
    Bought,
    Burned,
    Charged,
    Closed,
    Entry,
    Fired,
    Opened,
    Planned,
    Prepaid,
    read,
    written,
)
from dualquery.ledger.chain import TOLD, Head, Line, NewLine, Promise, Witness, chained
from dualquery.ledger.journal import AwayError, FencedError, Storage
from dualquery.privacy.budget import decimal
from dualquery.service.settings import Settings
from dualquery.service.tokens import Tokens, draft_of

PAYING = (Planned, Opened, Prepaid, Charged)
FOUND = (Answered, Fired, Bought)
PATIENCE = 0.2  # seconds between two attempts to write


class LedgerJournal:
    """Keeps the journal. Used by one thread, the worker's."""

    def __init__(self, storage: Storage, witness: Witness, *, dataset: str, trust: bool = False) -> None:
        self._storage, self._witness, self._dataset, self._trust = storage, witness, dataset, trust
        self._promise: Promise | None = None
        self._head = Head(length=0, hash="", spent=0)
        self._drafts: list[NewLine] = []
        self._in_doubt = False
        self._recalled: dict[tuple[str, str], Line] = {}
        self._prices: dict[int, int] = {}  # of prepaid fires, by slot
        self.spent_by: dict[str, int] = {}  # of analysts
        self.release_units = 0  # what the release has taken of the cap
        self.asking = ""  # the analyst whose question is under way
        self.tokens = Tokens()
        self.stopping = Event()
        self.on_delay: Callable[[LedgerError], None] = _give_up  # unless somebody can be told

    # What the core calls

    def entries(self) -> tuple[Entry, ...]:
        """All entries, once every line has been found to follow from the one before, up to the head last seen."""
        self._storage.hold()
        self._promise = self._storage.promise()
        if self._promise.dataset != self._dataset:
            raise LedgerError(f"this is the ledger of '{self._promise.dataset}', not of '{self._dataset}'")
        found = []
        lines = self._storage.verified(self._promise)
        self._head = Head(length=0, hash=self._promise.origin, spent=0)
        self._prices, self.spent_by, self.release_units = {}, {}, 0
        self.tokens = Tokens()
        for line in self._witness.checked(lines, self._promise, trust=self._trust):
            self._head = line.head
            self.tokens.hear(line)
            if line.kind in KINDS:
                entry = read(line.body)
                self._account(entry, line.analyst)
                found.append(entry)
        self._witness.write(self._head, origin=self._promise.origin)
        return tuple(found)

    def append(self, *entries: Entry) -> int:
        for entry in entries:
            asked = isinstance(entry, (Charged, *FOUND))
            analyst = self.asking if asked else ""
            units = entry.units if isinstance(entry, PAYING) else 0
            self._drafts.append(NewLine(kind=entry.kind, body=written(entry), units=units, analyst=analyst))
            self._account(entry, analyst)
        return self.length

    def sync(self, position: int) -> None:
        """Wait for the disk where something was paid; what was only found is written with its batch."""
        kinds = {draft.kind for draft in self._drafts[: position - self._head.length]}
        if kinds <= {each.kind for each in FOUND} | {TOLD}:
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
        """How many lines there are, on disk or about to be."""
        return self._head.length + len(self._drafts)

    @property
    def head(self) -> Head:
        """What is on disk."""
        return self._head

    @property
    def origin(self) -> str:
        return "" if self._promise is None else self._promise.origin

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
        self._recalled = self._storage.replied(requests) if requests else {}

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
        lines, head = [], self._head
        for draft in self._drafts:
            lines.append(chained(draft, head, origin=self.origin))
            head = lines[-1].head
        if self._in_doubt:
            on_disk = self._storage.head()
            if on_disk not in (self._head, head):
                raise FencedError("another server has written to this ledger; a ledger has one server")
            self._in_doubt = on_disk == self._head
            if on_disk == head:
                return self._written(lines)
        self._in_doubt = True
        self._storage.commit(self._head, lines)
        self._in_doubt = False
        return self._written(lines)

    def probe(self) -> None:
        """AwayError where no line could be written now."""
        self._storage.probe()

    def close(self) -> None:
        """After the core has closed: the last lines to disk, and the next server may come."""
        self._witness.close()
        self._storage.release()

    def _written(self, lines: Sequence[Line]) -> None:
        self._head = lines[-1].head
        self._drafts.clear()
        for line in lines:
            self.tokens.hear(line)
        self._recalled |= {(line.analyst, line.key): line for line in lines if line.key is not None}
        self._witness.write(self._head, origin=self.origin)

    def _untold(self) -> bool:
        """Whether the last line is an answer that waits for its reply."""
        found = {each.kind for each in FOUND}
        return bool(self._drafts) and self._drafts[-1].kind in found and not self._drafts[-1].reply

    def _account(self, entry: Entry, analyst: str) -> None:
        """Whose quota an entry takes from: a fire is prepaid by the house and charged to whoever asked."""
        if isinstance(entry, Planned | Opened):
            self.release_units += entry.units
        elif isinstance(entry, Prepaid):
            self._prices[entry.slot] = entry.units
        elif isinstance(entry, Fired):
            price = self._prices.get(entry.slot, 0)
            self.spent_by[analyst] = self.spent_by.get(analyst, 0) + price
        elif isinstance(entry, Charged):
            self.spent_by[analyst] = self.spent_by.get(analyst, 0) + entry.units


def _give_up(problem: LedgerError) -> None:
    raise problem


@dataclass(frozen=True)
class LedgerStatus:
    """What is spent and left, in units of the cap, and what was told."""

    dataset: str
    cap: int
    release: int
    spent: int
    price: int  # of a fire, 0 where none was ever paid for
    fires_left: int
    answers: dict[str, int]
    fires: int
    burned: int
    spent_by: dict[str, int]
    running: bool  # or stopped uncleanly
    head: Head

    @property
    def left(self) -> int:
        return self.cap - self.spent

    def to_json(self) -> dict[str, object]:
        return {
            "dataset": self.dataset,
            "cap": self.cap,
            "release": self.release,
            "spent": self.spent,
            "left": self.left,
            "price": self.price,
            "fires_left": self.fires_left,
            "fires": self.fires,
            "burned": self.burned,
            "answers": self.answers,
            "spent_by": self.spent_by,
            "running": self.running,
            "line": self.head.length,
            "hash": self.head.hash,
        }


def checks_of(storage: Storage, quota: float) -> tuple[int, float]:
    """How many fires a quota pays for, and the least quota that pays for one; by the first lines of the ledger."""
    promise, release = storage.promise(), 0
    for line in storage.verified(promise):
        entry = read(line.body) if line.kind in KINDS else None
        if isinstance(entry, Planned | Opened):
            release += entry.units
        if isinstance(entry, Opened):
            price, whole = json.loads(entry.rule)["price"], entry.cap - release
            return int(decimal(quota) * whole) // price, price / whole if whole else math.inf
    return 0, math.inf


def ledger_status(settings: Settings, *, trust: bool = False) -> LedgerStatus:
    """LedgerError where anything was edited, or rolled back behind what this service has seen."""
    storage = Storage(settings.place)
    promise = storage.promise()
    head = Head(length=0, hash=promise.origin, spent=0)
    answers: Counter[str] = Counter()
    spent_by: Counter[str] = Counter()
    prices: dict[int, int] = {}
    release = price = fires = burned = 0
    unused, running = False, True
    witness = Witness(settings.path(settings.witness))
    for line in witness.checked(storage.verified(promise), promise, trust=trust):
        head = line.head
        if line.kind not in KINDS:
            continue
        entry = read(line.body)
        running = not isinstance(entry, Closed)
        if isinstance(entry, Planned | Opened):
            release += entry.units
        elif isinstance(entry, Prepaid):
            prices[entry.slot] = price = entry.units
            unused = True
        elif isinstance(entry, Answered):
            answers[entry.badge] += 1
        elif isinstance(entry, Fired):
            fires, unused = fires + 1, False
            answers["measured"] += 1
            spent_by[line.analyst] += prices.get(entry.slot, 0)
        elif isinstance(entry, Burned):
            burned, unused = burned + 1, False
        elif isinstance(entry, Charged):
            spent_by[line.analyst] += entry.units
        elif isinstance(entry, Bought):
            answers["bought"] += 1
    left = promise.cap - head.spent
    return LedgerStatus(
        promise.dataset,
        promise.cap,
        release,
        head.spent,
        price,
        (left // price if price else 0) + unused,
        dict(answers),
        fires,
        burned,
        dict(spent_by),
        running,
        head,
    )
