"""Artefacts of special tables: neither records nor a list of answers, but something that answers every question.

Such an artefact says itself which files it is kept in and how far its answers may be off. `releases.special` knows
how each is read again and shown.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa

from dualquery.mechanisms.artefact import Artefact, Fractions
from dualquery.queries.group import Group


@runtime_checkable
class Filed(Artefact, Protocol):
    """An artefact with files of its own."""

    def files(self) -> dict[str, pa.Table]:
        """What is kept, by file name; the first file is what people open."""

    def words(self) -> str:
        """What it is, in a few words that begin a sentence."""

    def bars(self, group: Group) -> Fractions:
        """How far off each answer may be, 19 times of 20 (`error_bars.LEVEL`)."""
