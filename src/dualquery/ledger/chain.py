"""One line of a service's ledger, its hash, and what makes a chain of lines believable.

    origin = SHA-256 of what never changes,   hash_k = SHA-256(line k with origin and hash_{k−1}),

each over JSON with sorted keys and without blanks. A line holds an entry of the journal, what it charged, and the
very bytes of the reply, where it was the answer to a request.

The last head, beside the ledger: a ledger that was rolled back does not contain it, and is refused.

It is written after every commit, without waiting for the disk: it never runs ahead of the ledger, and what a loss of
power takes from it only makes it older. Two places are written in turn, so that one is always whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path

from dualquery.errors import LedgerError

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


_SIZE = 512  # of a place: a sector


class Witness:
    """A small file that remembers the longest chain that this server has seen."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def write(self, head: Head, *, origin: str) -> None:
        """Remember a head that is on disk."""
        if self._file is None:
            self._open()
        assert self._file is not None
        text = f"{origin} {head.length} {head.hash}"
        line = f"{text} {hashlib.sha256(text.encode()).hexdigest()}\n"
        with suppress(OSError):  # then it is older, as after a loss of power
            os.pwrite(self._file, line.encode().ljust(_SIZE, b"\n"), _SIZE * (head.length % 2))

    def _open(self) -> None:
        """With all the room that it will ever need, so that a disk that fills up later does not make it old."""
        try:
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
            os.posix_fallocate(self._file, 0, 2 * _SIZE)
        except OSError as error:
            raise LedgerError(
                f"'{self._path}' cannot be written: {error.strerror}; look at its folder, and the space left"
            ) from None

    def close(self) -> None:
        """To disk, at a clean stop."""
        if self._file is not None:
            with suppress(OSError):
                os.fsync(self._file)
            os.close(self._file)
            self._file = None

    def read(self) -> tuple[str, int, str] | None:
        """The origin, the length and the hash that were seen last; None where nothing readable stands here."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return None
        found = []
        for place in (data[:_SIZE], data[_SIZE : 2 * _SIZE]):
            text, _, seal = place.decode("ascii", errors="replace").strip().rpartition(" ")
            if text and hashlib.sha256(text.encode()).hexdigest() == seal:
                words = text.split(" ")
                if len(words) == 3 and words[1].isdecimal() and len(words[1]) < 19:
                    found.append((words[0], int(words[1]), words[2]))
        return max(found, key=lambda each: each[1]) if found else None

    def checked(self, lines: Iterable[Line], promise: Promise, *, trust: bool) -> Iterable[Line]:
        """The same lines; LedgerError at their end unless the head that was seen last is among them."""
        seen = self.read()
        if trust:
            yield from lines
            return
        if seen is None:
            raise LedgerError(
                f"'{self._path}' is missing or damaged: it remembers the last line of the ledger, so that an "
                "old copy is noticed. Bring it back; or, if you are sure that this is the newest ledger, start once "
                "with --trust-ledger"
            )
        origin, length, digest = seen
        met = origin == promise.origin and length == 0
        for line in lines:
            met = met or (origin == promise.origin and line.sequence == length and line.hash == digest)
            yield line
        if not met:
            raise LedgerError(
                f"this ledger was rolled back, or is another one: line {length}, which this service has written, is "
                "not in it. What was told since cannot be taken back; restore the newest ledger"
            )
