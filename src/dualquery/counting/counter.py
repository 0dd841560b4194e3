"""A counter: whoever holds private records and adds whole numbers up over them.

Every number that is counted is a sum over records, so counts of parts of a table add up to those of the whole: a
counter may keep its records in memory, read them in a stream, or leave them on other machines. It needs to know
what is counted and gives back whole numbers. What it gives is the truth: names that begin with `true_` occur here,
in the curator's room and in the evaluation of a release, and nowhere else. Counting *public* rows is
`group.counts(rows)`.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Done, Integers


class Countable(Protocol):
    """Whole numbers that add up over records: a group of queries, a workload, the items that records hold."""

    def counts(self, records: Records, progress: Done = ..., /) -> Integers:
        """The numbers for some of the records."""


@runtime_checkable
class Counter(Protocol):
    """Holds private records, wherever they are."""

    @property
    def domain(self) -> Domain: ...

    @property
    def records_per_person(self) -> int | None:
        """Set where nobody has more records than that."""

    @property
    def true_rows(self) -> int:
        """The number of records."""

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        """The numbers for all records. `kept` keeps them, for what is asked again every round."""
