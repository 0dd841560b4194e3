"""The last head, beside the ledger: a ledger that was rolled back does not contain it, and is refused.

It is written after every commit, without waiting for the disk: it never runs ahead of the ledger, and what a loss of
power takes from it only makes it older. Two places are written in turn, so that one is always whole.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from dualquery.errors import LedgerError
from dualquery.service.lines import Head, Line, Promise

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
