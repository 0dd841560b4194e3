"""The cells of a column as a draft looks at them, and what is left out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.table.cells import distinct, texts_of
from dualquery.table.dates import Dates

FEW = 20  # whole numbers with at most so many distinct values are categories
MANY = 200  # texts with more distinct values are taken for names, ids or free text, and left out
SOME_ROWS = 50  # in fewer rows all values may differ by chance

MARKERS = (
    "NA",
    "N/A",
    "n/a",
    "na",
    "NaN",
    "nan",
    "NULL",
    "null",
    "None",
    "none",
    "?",
    "-",
    "--",
    ".",
    "missing",
)


@dataclass(frozen=True)
class LeftOut:
    """A column that no attribute is drafted for, and why; what a person may make of it."""

    name: str
    reason: str
    unit: str | None = None  # why it may be the unit
    guess: Dates | None = None  # an attribute, if it is read by the first of these formats
    formats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cells:
    """The cells of one column: its distinct texts, how often each occurs, and how many cells are empty."""

    name: str
    texts: tuple[str, ...]
    counts: NDArray[np.int64]
    empty: int

    @staticmethod
    def of(name: str, cells: pa.ChunkedArray) -> Cells:
        held = distinct(cells, name)
        written = texts_of(held.values, name)
        number = np.bincount(held.index, minlength=len(written) + 1)
        counts: dict[str, int] = {}
        for text, times in zip((*written, None), number.tolist(), strict=True):
            key = (text or "").strip()
            counts[key] = counts.get(key, 0) + times
        empty = counts.pop("", 0)
        kept = sorted(text for text, times in counts.items() if times)
        return Cells(name, tuple(kept), np.array([counts[text] for text in kept], np.int64), empty)

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def without(self, markers: Sequence[str]) -> Cells:
        kept = [i for i, text in enumerate(self.texts) if text not in markers]
        gone = self.rows - int(self.counts[kept].sum())
        return Cells(self.name, tuple(self.texts[i] for i in kept), self.counts[kept], self.empty + gone)


def absent(held: Cells, empty: tuple[str, ...]) -> dict[str, Any]:
    """The place of missing cells, where there are some."""
    if not empty and not held.empty:
        return {"missing": None, "empty": ()}
    taken = set(held.texts)
    return {
        "missing": next(m for m in ("missing", "(missing)", "((missing))") if m not in taken),
        "empty": empty,
    }
