"""The counter of a table that is asked one question at a time."""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Countable, Counter
from dualquery.counting.memory import MemoryCounter
from dualquery.counting.spilled import SpilledCounter
from dualquery.errors import DualQueryError
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.kept_columns import MOST_BYTES, KeptColumns
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain
from dualquery.table.records import BitItems, Records, SparseItems, as_lists
from dualquery.types import Integers

FEW = 64  # queries; more of them are counted together, by the loops of their kind
MOST_ON_DISK = 64 * MOST_BYTES


class ColumnCounter:
    """Keeps the bit columns that questions have needed, in memory or on disk as the table itself is.

    A count takes a time that only the question decides.
    """

    def __init__(self, counter: Counter) -> None:
        records = _records_of(counter)
        if isinstance(counter, SpilledCounter):
            columns = KeptColumns(records, most_bytes=MOST_ON_DISK, stored=on_disk)
        else:
            columns = KeptColumns(records)
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


def true_digest(counter: Counter, key: str) -> str:
    """HMAC-SHA-256 of all records in their order, under a secret key: it says whether a table is still the same.

    Without the key it says nothing; it is as secret as the key all the same. Items are hashed as lists, however they
    are stored.
    """
    records = _records_of(counter)
    mac = hmac.new(bytes.fromhex(key), f"{records.rows} records".encode(), hashlib.sha256)
    for codes in records.columns:
        items = as_lists(codes, records.rows) if isinstance(codes, BitItems) else codes
        for array in (items.start, items.ids) if isinstance(items, SparseItems) else (items,):
            numbers = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            mac.update(f"\n{numbers.dtype.str} {len(numbers)}\n".encode())
            mac.update(numbers.data)
    return mac.hexdigest()


def _records_of(counter: Counter) -> Records:
    if isinstance(counter, SpilledCounter | MemoryCounter):
        return counter.records
    raise DualQueryError(
        "questions one at a time need the table on this machine; give its file instead of a cluster's frame"
    )


def on_disk(numbers: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a file without a name, mapped into memory: the system keeps of it what fits."""
    if numbers.nbytes == 0:
        return numbers
    with tempfile.TemporaryFile(buffering=0) as file:
        np.ascontiguousarray(numbers).tofile(file)
        return np.asarray(np.memmap(file, numbers.dtype, "r", shape=numbers.shape))
