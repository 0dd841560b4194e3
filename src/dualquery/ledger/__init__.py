"""Ledgers that last: hash-chained lines in a file (SQLite) or a database (PostgreSQL), for years.

here        a line, its hash, what makes a chain of lines believable; the witness of the last head
storage.py  where a ledger is kept, opened so that what is committed is on disk
book.py     the book of a dataset: a cap on all its releases, and what each was charged
books.py    all books of one ledger: create, read, charge
journal.py  the journal of a service: written by one server at a time

One chain of lines: no line can be changed, left out or put elsewhere without changing the head.

    origin = SHA-256 of what never changes,   hash_k = SHA-256(line k with origin and hash_{k−1}),

each over JSON with sorted keys and without blanks. Two uses: the book of a dataset, whose lines are charges, and the
journal of a service, whose lines hold an entry, what it charged, and the very bytes of the reply to a request.

Whoever rewrites a whole chain can still lie, and an old copy verifies. Heads that were seen elsewhere find both out:
those on certificates (`releases/verify.py`), and that in the witness of a service.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dualquery.errors import LedgerError

FORMAT = 3
MOST_UNITS = 2**62  # two of them still fit the 64 bits of a database
TOLD = "told"  # a line that holds a reply alone: the entry that it tells was on disk before

_SIZE = 512  # of a place in a witness: a sector


@dataclass(frozen=True, kw_only=True)
class Promise:
    """What never changes: what a chain is about, its cap, and a random number that tells two of a name apart."""

    format: int
    kind: str  # "book" or "journal"
    name: str  # of the dataset
    nonce: str
    promise: str  # ε, δ, the relation and the like, in JSON
    cap: int
    created: str
    origin: str

    @property
    def start(self) -> Head:
        return Head(length=0, hash=self.origin, spent=0)


@dataclass(frozen=True, kw_only=True)
class Head:
    """Where a chain stands: how many lines, the hash of the last, and what all of them have spent."""

    length: int
    hash: str
    spent: int


@dataclass(frozen=True, kw_only=True)
class NewLine:
    """A line before it has its place in the chain."""

    kind: str  # of the entry, "told" or "charge"
    body: str  # the entry
    units: int
    analyst: str = ""  # "" where nobody asked
    key: str | None = None  # of a request that may be repeated; of a charge the number of the release
    request: str = ""  # its SHA-256
    reply: str = ""  # the bytes that were answered


@dataclass(frozen=True, kw_only=True)
class Line(NewLine):
    """What was written at once and is never changed."""

    sequence: int  # 1, 2, 3, …
    spent_after: int
    previous: str
    hash: str

    @property
    def head(self) -> Head:
        return Head(length=self.sequence, hash=self.hash, spent=self.spent_after)


LINE = tuple(field.name for field in fields(Line))


def promised(name: str, promise: Mapping[str, object], *, cap: int, kind: str = "journal") -> Promise:
    """A new chain, which is about nothing else than this dataset under this promise."""
    made = Promise(
        format=FORMAT,
        kind=kind,
        name=name,
        nonce=secrets.token_hex(16),
        promise=json.dumps(promise, sort_keys=True),
        cap=cap,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        origin="",
    )
    return replace(made, origin=_origin(made))


def chained(draft: NewLine, head: Head, *, origin: str) -> Line:
    row: dict[str, Any] = {
        "sequence": head.length + 1,
        **{field.name: getattr(draft, field.name) for field in fields(NewLine)},
        "spent_after": head.spent + draft.units,
        "previous": head.hash,
    }
    return Line(**row, hash=_digest({**row, "ledger": origin}))


def believed(promise: Promise, head: Head) -> None:
    """LedgerError unless the first row of a chain is as it was written, as far as it says itself."""
    sound = (
        _sound(promise) and _sound(head) and promise.format == FORMAT and _origin(promise) == promise.origin
    )
    _require(sound, "its first line")


def verified(promise: Promise, head: Head, lines: Iterable[Line]) -> Iterator[Line]:
    """The same lines, each found to follow from the one before; LedgerError unless they add up to the head."""
    before = promise.start
    for line in lines:
        follows = (
            _sound(line)
            and line.spent_after <= promise.cap
            and chained(line, before, origin=promise.origin) == line
        )
        _require(follows, f"line {before.length + 1}")
        before = line.head
        yield line
    _require(before == head, "how long it is, or what it says is spent,")


def _origin(promise: Promise) -> str:
    row = asdict(promise)
    del row["origin"]
    return _digest(row)


def _digest(row: Mapping[str, object]) -> str:
    text = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def _sound(row: Promise | Head | Line) -> bool:
    """Whether numbers are whole and fit, and texts are texts: a database may hold anything anywhere."""
    kinds: dict[Any, tuple[type, ...]] = {"int": (int,), "str": (str,), "str | None": (str, type(None))}
    values = {field.name: getattr(row, field.name) for field in fields(row)}
    return all(type(values[field.name]) in kinds[field.type] for field in fields(row)) and all(
        0 <= value <= MOST_UNITS for value in values.values() if isinstance(value, int)
    )


def _require(condition: bool, place: str) -> None:
    if not condition:
        raise LedgerError(
            f"this ledger is not as it was written: {place} does not follow from the rest. It was edited or "
            "damaged; write nothing to it, and restore the last copy that agrees with all certificates, or with the "
            "replies that were given"
        )


class Witness:
    """A small file beside a journal that remembers the last head: a ledger that was rolled back does not contain it.

    It is written after every commit, without waiting for the disk: it never runs ahead of the ledger, and what a loss
    of power takes from it only makes it older. Two places are written in turn, so that one is always whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None

    def write(self, head: Head, *, origin: str) -> None:
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
