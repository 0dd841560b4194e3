"""Where a service stands, from its ledger alone: verified, and read beside a server that may be running."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass

from dualquery.asking.journal import (
    KINDS,
    Answered,
    Bought,
    Burned,
    Charged,
    Closed,
    Fired,
    Opened,
    Planned,
    Prepaid,
    read,
)
from dualquery.ledger.chain import Head, Witness
from dualquery.ledger.journal import Storage
from dualquery.privacy.budget import decimal
from dualquery.service.settings import Settings


@dataclass(frozen=True)
class Standing:
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


def standing(settings: Settings, *, trust: bool = False) -> Standing:
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
    return Standing(
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
