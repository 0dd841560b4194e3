"""The counter of a table that fits into memory."""

from __future__ import annotations

from dualquery.counting.counter import Countable
from dualquery.counting.kept import KeptCounts
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Done, Integers, no_progress


class MemoryCounter:
    """Counts encoded records with the compiled loops of each kind of query."""

    def __init__(self, records: Records, *, progress: Done = no_progress) -> None:
        self._records = records
        self._counts = KeptCounts(progress)

    @property
    def records(self) -> Records:
        """Themselves, for who counts them in another way."""
        return self._records

    @property
    def domain(self) -> Domain:
        return self._records.domain

    @property
    def records_per_person(self) -> int | None:
        return self._records.records_per_person

    @property
    def true_rows(self) -> int:
        return self._records.rows

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        return self._counts.of(countable, lambda each: each.counts(self._records), kept=kept)
