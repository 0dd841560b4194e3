"""The counter of a table that is asked one question at a time."""

from __future__ import annotations

from dualquery.counting.counter import Countable, Integers
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.kept_columns import KeptColumns
from dualquery.queries.parities import Parities
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain
from dualquery.table.records import Records

FEW = 64  # queries; more of them are counted together, by the loops of their kind


class ColumnCounter:
    """Keeps the bit columns that questions have needed. A count takes a time that only the question decides."""

    def __init__(self, records: Records) -> None:
        self._columns = KeptColumns(records)

    @property
    def domain(self) -> Domain:
        return self._columns.records.domain

    @property
    def records_per_person(self) -> int | None:
        return self._columns.records.records_per_person

    @property
    def true_rows(self) -> int:
        return self._columns.records.rows

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        if isinstance(countable, Tables) and len(countable.sets) == 1:
            return self._columns.cell_counts(countable)
        if isinstance(countable, Conjunctions | Parities) and countable.size <= FEW:
            return self._columns.counts(countable)
        return countable.counts(self._columns.records)
