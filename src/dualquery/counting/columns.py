"""The counter of a table that is asked one question at a time."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Countable, Counter, Integers
from dualquery.counting.memory import MemoryCounter
from dualquery.counting.spilled import SpilledCounter
from dualquery.errors import DualQueryError
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.kept_columns import MOST_BYTES, KeptColumns
from dualquery.queries.parities import Parities
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain

FEW = 64  # queries; more of them are counted together, by the loops of their kind
MOST_ON_DISK = 64 * MOST_BYTES


class ColumnCounter:
    """Keeps the bit columns that questions have needed, in memory or on disk as the table itself is.

    A count takes a time that only the question decides.
    """

    def __init__(self, counter: Counter) -> None:
        if isinstance(counter, SpilledCounter):
            columns = KeptColumns(counter.records, most_bytes=MOST_ON_DISK, stored=on_disk)
        elif isinstance(counter, MemoryCounter):
            columns = KeptColumns(counter.records)
        else:
            raise DualQueryError(
                "questions one at a time need the table on this machine; give its file instead of a cluster's frame"
            )
        self._counter, self._columns = counter, columns

    @property
    def domain(self) -> Domain:
        return self._counter.domain

    @property
    def records_per_person(self) -> int | None:
        return self._counter.records_per_person

    @property
    def true_rows(self) -> int:
        return self._counter.true_rows

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        if isinstance(countable, Tables) and len(countable.sets) == 1:
            return self._columns.cell_counts(countable)
        if isinstance(countable, Conjunctions | Parities) and countable.size <= FEW:
            return self._columns.counts(countable)
        return self._counter.true_counts(countable, kept=kept)


def on_disk(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a file without a name, mapped into memory: the system keeps of it what fits."""
    if numbers.nbytes == 0:
        return numbers
    with tempfile.TemporaryFile(buffering=0) as file:
        np.ascontiguousarray(numbers).tofile(file)
        return np.asarray(np.memmap(file, numbers.dtype, "r", shape=numbers.shape))
