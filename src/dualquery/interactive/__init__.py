"""Questions one at a time: an analyst asks, a public hypothesis answers, and only surprises cost anything.

The journal: every change of state, in order, on disk before anybody is told of it.

State is what follows from the journal. Whoever replays its entries over the same release holds the same hypothesis,
to the byte, and the same ledger. What pays for anything is durable before the table is looked at; what came of it is
durable before it is told. An unclean stop loses at most what nobody has heard.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from threading import Lock
from typing import ClassVar, Protocol

from dualquery.errors import LedgerError

FORMAT = 2
LONGEST_NOTE = 500


@dataclass(frozen=True)
class JournalEntry:
    """One change of state. Its kind is the name of its class in small letters."""

    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        cls.kind = cls.__name__.lower()


@dataclass(frozen=True)
class Planned(JournalEntry):
    """A release will be made for this table, and is paid for. Nothing is counted before this is durable."""

    units: int


@dataclass(frozen=True)
class Opened(JournalEntry):
    """What is asked about, under which promise, by which rule: the first entry, or the one behind `Planned`.

    Every later opening must say the same.
    """

    format: int
    domain: str  # digests
    release: str
    rows: int
    epsilon: str  # decimals as they were asked for
    delta: str
    neighbours: str
    order: int
    cap: int
    units: int  # that the release takes of the cap; 0 where `Planned` has paid for it
    rule: str  # canonical JSON


@dataclass(frozen=True)
class Prepaid(JournalEntry):
    """One fire and its measurement, paid for. No test is drawn before this is durable."""

    slot: int
    units: int


@dataclass(frozen=True)
class Answered(JournalEntry):
    """An answer that cost nothing: a silent test, a published release, or nothing left to test with."""

    question: str
    badge: str
    values: str  # SHA-256 of what was told: it follows from the release and the entries before
    bound: float | None
    version: int  # updates of the hypothesis before it
    note: str = ""


@dataclass(frozen=True)
class Fired(JournalEntry):
    """A test spoke, and what was measured then. The slot is used up; the hypothesis hears it."""

    slot: int
    question: str
    cell: int
    side: str
    noisy: tuple[int, ...]
    note: str = ""


@dataclass(frozen=True)
class Charged(JournalEntry):
    """A purchase, paid for. Nothing is counted before this is durable."""

    purchase: int
    question: str
    variance: str  # σ² of each number, an exact fraction
    units: int
    note: str = ""
    buyer: str = ""


@dataclass(frozen=True)
class Bought(JournalEntry):
    """What a purchase measured. The hypothesis hears it."""

    purchase: int
    question: str
    noisy: tuple[int, ...]
    note: str = ""


@dataclass(frozen=True)
class Fixed(JournalEntry):
    """Which records are asked: their digest under a secret key. Both are secret, and stay in the journal.

    Whoever opens a journal over other records says so, and that is another entry of this kind.
    """

    key: str
    digest: str


@dataclass(frozen=True)
class Serving(JournalEntry):
    """From here on a test may be under way. No test is drawn before this is durable."""


@dataclass(frozen=True)
class Rested(JournalEntry):
    """No test is under way, and all that were drawn stand before this.

    *What an unclean stop burns.* The slot, if the last of `Serving`, `Rested`, `Closed` on disk is `Serving`; nothing
    otherwise. Let a test be *open* when it was drawn and its outcome, `Answered` or `Fired`, is not on disk.

    (1) No open test is left out: it was drawn with `Serving` on disk and neither `Rested` nor `Closed` behind that,
    because whoever draws writes `Serving` first where it is not the last of them, and holds from there to the outcome
    a lock under which alone the other two are appended. What is appended later stands behind the outcome, and a
    journal has durable prefixes: it is not on disk without the outcome. So `Serving` is the last of them on disk.
    (2) Nothing else is burned, once whoever answers rests: `Rested` is on disk with the last outcomes, before anybody
    hears them, unless the next question waits already. While nothing is asked, and while a table is opened, `Serving`
    is not the last. One slot is open at a time, and pays for the one test that can be open: one fire is enough.

    Why an open test counts as fired although nobody was told: a fire is written down and paid for otherwise than
    silence, so that whether it happened may have decided when the stop came, and somebody may have seen that.
    """


@dataclass(frozen=True)
class Burned(JournalEntry):
    """A test was open when something stopped uncleanly: it may have fired with nobody told.

    Or an epoch of the sparse vector was, at any stop: nobody knows the noise of its threshold any more, and another
    noise would be another epoch. One against which no test was drawn stays good.
    """

    slot: int


@dataclass(frozen=True)
class Closed(JournalEntry):
    """A clean stop: no test is under way, and the open slot stays good."""


@dataclass(frozen=True)
class Reopened(JournalEntry):
    """Somebody goes on from here."""


KINDS: dict[str, type[JournalEntry]] = {each.kind: each for each in JournalEntry.__subclasses__()}


@dataclass
class Account:
    """What entries add up to, in units of the cap: what was paid, for what and by whom, and what was told."""

    cap: int
    spent: int = 0
    release: int = 0  # of what was spent: the first release
    price: int = 0  # of a fire, 0 where none was ever paid for
    slot: int = 0  # the number of the last fire that was paid for
    unused: bool = False  # whether it has not happened yet
    fires: int = 0
    burned: int = 0
    purchases: int = 0
    answers: Counter[str] = field(default_factory=Counter)  # by badge
    # By analyst: a fire is prepaid, and charged to who asked.
    spent_by: Counter[str] = field(default_factory=Counter)
    tested: bool = False  # whether a test was drawn against the fire that is paid for
    serving: bool = False  # whether a test may be under way
    running: bool = True  # or stopped uncleanly

    @property
    def left(self) -> int:
        return self.cap - self.spent

    @property
    def fires_left(self) -> int:
        """How many the rest pays for, the one that is paid for included."""
        return (self.left // self.price if self.price else 0) + self.unused

    def hear(self, entry: JournalEntry, analyst: str = "") -> None:
        self.running = not isinstance(entry, Closed)
        if not isinstance(entry, Answered | Fired | Prepaid | Charged | Bought):
            self.serving = isinstance(entry, Serving)
        self.spent += units_of(entry)
        if isinstance(entry, Planned | Opened):
            self.release += entry.units
        elif isinstance(entry, Prepaid):
            self.price, self.slot, self.unused, self.tested = entry.units, entry.slot, True, False
        elif isinstance(entry, Answered):
            self.answers[entry.badge] += 1
            self.tested = self.tested or entry.badge == "not contradicted"
        elif isinstance(entry, Fired):
            self.fires, self.unused = self.fires + 1, False
            self.answers["measured"] += 1
            self.spent_by[analyst] += self.price
        elif isinstance(entry, Burned):
            self.burned, self.unused = self.burned + 1, False
        elif isinstance(entry, Charged):
            self.purchases = entry.purchase
            self.spent_by[analyst] += entry.units
        elif isinstance(entry, Bought):
            self.answers["bought"] += 1


def units_of(entry: JournalEntry) -> int:
    """What an entry spends: the release, a prepaid fire, a purchase."""
    return entry.units if isinstance(entry, Planned | Opened | Prepaid | Charged) else 0


class Journal(Protocol):
    """An ordered log with durable prefixes: no entry is on disk before one that was appended earlier."""

    def entries(self) -> Iterable[JournalEntry]:
        """All entries so far, in order. Asked once, before anything is appended."""

    def append(self, *entries: JournalEntry) -> int:
        """Put entries behind all others, quickly; the position of the last. They need not be durable yet."""

    def sync(self, position: int) -> None:
        """Return when everything up to a position is durable; raise where it cannot be. Called by many threads."""


class MemoryJournal:
    """A journal for the life of a process: whoever needs more has a database."""

    def __init__(self, entries: Iterable[JournalEntry] = ()) -> None:
        self._entries: list[JournalEntry] = list(entries)
        self._lock = Lock()

    def entries(self) -> tuple[JournalEntry, ...]:
        return tuple(self._entries)

    def append(self, *entries: JournalEntry) -> int:
        with self._lock:
            self._entries.extend(entries)
            return len(self._entries)

    def sync(self, position: int) -> None:
        assert position <= len(self._entries)


def written(entry: JournalEntry) -> str:
    """An entry as one line of JSON; equal entries are equal lines."""
    row = {each.name: getattr(entry, each.name) for each in fields(entry)}
    return json.dumps({"kind": entry.kind, **row}, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def read(text: str) -> JournalEntry:
    """The entry that a line holds, or LedgerError."""
    try:
        row = json.loads(text)
        kind = KINDS[row.pop("kind")]
        entry = kind(
            **{name: tuple(value) if isinstance(value, list) else value for name, value in row.items()}
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise LedgerError("an entry of the journal cannot be read; restore the last good copy") from None
    if written(entry) != text:
        raise LedgerError("an entry of the journal is not as it was written; restore the last good copy")
    return entry
