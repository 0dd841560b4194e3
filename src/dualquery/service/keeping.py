"""The journal of the core, on disk: many questions, one sync.

Two promises differ, and so do their moments. What *pays* (`Prepaid`, `Charged`, and the opening) must be on disk
before the table is looked at: `sync` waits for it. What was *found* (`Answered`, `Fired`, `Bought`) must be on disk
before anybody hears of it: it waits here until `flush`, with everything else that was found meanwhile, and the clerk
hands out no reply before `flush` has returned. Lines are written in their order, so that after a fire no test is
drawn before both the fire and the next prepaid one are on disk.

Where the disk is full or the database away, lines stay here and are written later, the same ones, once: `flush` asks
first where the ledger stands, because a commit whose answer got lost may have happened.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from threading import Event

from dualquery.asking.journal import (
    KINDS,
    Answered,
    Bought,
    Charged,
    Entry,
    Fired,
    Opened,
    Planned,
    Prepaid,
    read,
    written,
)
from dualquery.errors import LedgerError
from dualquery.ledger.chain import TOLD, Head, Line, NewLine, Promise, Witness, chained
from dualquery.ledger.journal import AwayError, FencedError, Storage
from dualquery.service.tokens import Tokens, draft_of

PAYING = (Planned, Opened, Prepaid, Charged)
FOUND = (Answered, Fired, Bought)
PATIENCE = 0.2  # seconds between two attempts to write


class Keeper:
    """Keeps the journal. Used by one thread, the clerk's."""

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

    # What the clerk calls

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
