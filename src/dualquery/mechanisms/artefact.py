"""Artefacts: what a mechanism hands out, and what leaves the house. All of it is public.

Synthetic records and bare answers are the first two kinds; a weighted graph, curves or noisy cells are classes with
these members.

Artefacts of special tables: neither records nor a list of answers, but something that answers every question.

Such an artefact says itself which files it is kept in and how far its answers may be off. `releases.special` knows
how each is read again and shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.group import Group
from dualquery.table.decoding import decode
from dualquery.table.records import Records
from dualquery.types import Fractions


class Artefact(Protocol):
    """Something that answers queries."""

    @property
    def rows(self) -> int | None:
        """The number of synthetic records, where it consists of records."""

    def fractions(self, group: Group) -> Fractions:
        """The answer to each query of a group, or a QueryError where it has none."""

    def to_arrow(self) -> pa.Table:
        """The artefact as people read it."""


@dataclass(frozen=True, eq=False)
class SyntheticRecords:
    """Records that nobody is behind. They answer every query."""

    records: Records

    @property
    def rows(self) -> int:
        return self.records.rows

    def fractions(self, group: Group) -> Fractions:
        return group.counts(self.records) / (group.unit * self.records.rows)

    def to_arrow(self) -> pa.Table:
        return decode(self.records)


@dataclass(frozen=True, eq=False)
class BareAnswers:
    """Answers of a mechanism that gives no synthetic records: query texts in canonical form, values, 95% bars."""

    texts: Sequence[str]
    values: Fractions
    half_widths: Fractions

    @property
    def rows(self) -> None:
        return None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: i for i, text in enumerate(self.texts)}

    def fractions(self, group: Group) -> Fractions:
        return self.values[self._places_of(group)]

    def bars(self, group: Group) -> Fractions:
        """How far off each answer may be, from the noise that it was given (`error_bars.LEVEL`)."""
        return self.half_widths[self._places_of(group)]

    def _places_of(self, group: Group) -> NDArray[np.int64]:
        texts = group.texts(np.arange(group.size, dtype=np.int64))
        places = [self._places.get(text) for text in texts]
        if None in places:
            raise QueryError(
                f"this release holds answers and no records, and '{texts[places.index(None)]}' is not among its "
                "queries; release with a mechanism that makes synthetic records"
            )
        return np.array(places, np.int64)

    def to_arrow(self) -> pa.Table:
        columns = {"answer": self.values, "bar": self.half_widths}
        return pa.table({"query": pa.array(self.texts, pa.string()), **columns})


@runtime_checkable
class Filed(Artefact, Protocol):
    """An artefact with files of its own."""

    def files(self) -> dict[str, pa.Table]:
        """What is kept, by file name; the first file is what people open."""

    def words(self) -> str:
        """What it is, in a few words that begin a sentence."""

    def bars(self, group: Group) -> Fractions:
        """How far off each answer may be, in 19 of 20 cases (`error_bars.LEVEL`)."""
