"""The counter of a table that fits into memory."""

from __future__ import annotations

from dualquery.counting.counter import Countable, Integers
from dualquery.queries.group import Progress, no_progress
from dualquery.table.domain import Domain
from dualquery.table.records import Records


class MemoryCounter:
    """Counts encoded records with the compiled loops of each kind of query."""

    def __init__(self, records: Records, *, progress: Progress = no_progress) -> None:
        self._records = records
        self._progress = progress
        # By identity, and with the countable itself, so that no other one can come to stand at its address.
        self._kept: dict[int, tuple[Countable, Integers]] = {}

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
        if id(countable) in self._kept:
            return self._kept[id(countable)][1]
        # Begun and done, and nothing between: how far a pass has come by the record tells how many records there are.
        self._progress(0, 1)
        counts = countable.counts(self._records)
        self._progress(1, 1)
        if kept:
            self._kept[id(countable)] = (countable, counts)
        return counts
