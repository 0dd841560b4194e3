"""The chain of a ledger in words, line by line, for the owner; without its secrets: no key, no hash of a token."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass

from dualquery.interactive.journal import (
    KINDS,
    Answered,
    Bought,
    Burned,
    Charged,
    Entry,
    Fired,
    Opened,
    Prepaid,
    read,
)
from dualquery.ledger.chain import Line, Witness
from dualquery.ledger.journal import Storage
from dualquery.service.settings import Settings
from dualquery.service.tokens import GRANTED, REVOKED

_WORDS = {
    "planned": "the first release is paid for",
    "fixed": "these are the records that are asked from here on",
    "serving": "from here on a test may be under way",
    "rested": "no test is under way",
    "closed": "a clean stop",
    "reopened": "a start",
    "told": "a reply to what stands above",
}


@dataclass(frozen=True)
class Row:
    """One line as people read it."""

    line: int
    kind: str
    analyst: str
    units: int
    words: str
    hash: str


def log_of(settings: Settings, *, last: int | None = None, trust: bool = False) -> list[Row]:
    """All lines, or the last ones; LedgerError where they do not follow from each other, or some are missing."""
    storage, witness = Storage(settings.place), Witness(settings.path(settings.witness))
    promise = storage.promise()
    lines = witness.checked(storage.verified(promise), promise, trust=trust)
    return list(deque((_row(line) for line in lines), maxlen=last))


def _row(line: Line) -> Row:
    return Row(line.sequence, line.kind, line.analyst, line.units, _words(line), line.hash)


def _words(line: Line) -> str:
    if line.kind in (GRANTED, REVOKED):
        row = json.loads(line.body)
        if line.kind == REVOKED:
            return f"{row['at']}: the token opens nothing any more"
        until = f", until {row['expires']}" if row["expires"] else ""
        return f"{row['added']}: a token, {row['role']}, quota {row['quota']}{until}"
    return _of_entry(read(line.body)) if line.kind in KINDS else _WORDS.get(line.kind, "")


def _of_entry(entry: Entry) -> str:
    if isinstance(entry, Opened):
        return (
            f"ε = {entry.epsilon}, δ = {entry.delta}, neighbours {entry.neighbours}, {entry.rows:,} records"
        )
    if isinstance(entry, Prepaid):
        return f"fire {entry.slot} is paid for"
    if isinstance(entry, Answered):
        return f"{entry.badge}: {entry.question}"
    if isinstance(entry, Fired):
        return f"fire {entry.slot}, measured: {entry.question}"
    if isinstance(entry, Charged):
        return f"purchase {entry.purchase} is paid for: {entry.question}"
    if isinstance(entry, Bought):
        return f"purchase {entry.purchase}: {entry.question}"
    if isinstance(entry, Burned):
        return f"fire {entry.slot} is lost: a test may have been under way at an unclean stop"
    return _WORDS[entry.kind]
