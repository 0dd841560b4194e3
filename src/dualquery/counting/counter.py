"""A counter: whoever holds private records and adds whole numbers up over them.

Every number that is counted is a sum over records, so counts of parts of a table add up to those of the whole: a
counter may keep its records in memory, read them from disk block by block, or leave them on other machines. It needs
to know what is counted and gives back whole numbers. What it gives is the truth: names that begin with `true_` occur
here, in the curator's room and in the evaluation of a release, and nowhere else. Counting *public* rows is
`group.counts(rows)`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain, Items
from dualquery.table.records import ColumnCodes, Records, SparseItems, as_lists, smallest_type
from dualquery.types import Done, Integers, no_progress


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


class KeptCounts:
    """What every counter does around its counting: it says that a pass begins and ends, and keeps the numbers."""

    def __init__(self, progress: Done) -> None:
        self._progress = progress
        # By identity, and with the countable itself, so that no other one can come to stand at its address.
        self._kept: dict[int, tuple[Countable, Integers]] = {}

    def of(self, countable: Countable, count: Callable[[Countable], Integers], *, kept: bool) -> Integers:
        if id(countable) in self._kept:
            return self._kept[id(countable)][1]
        # Begun and done, and nothing between: how far a pass has come by the record tells how many records there are.
        self._progress(0, 1)
        counts = count(countable)
        self._progress(1, 1)
        if kept:
            self._kept[id(countable)] = (countable, counts)
        return counts


@runtime_checkable
class RoundedOnce(Protocol):
    """counts(records) = rounded(sums(records)), and sums add up over records."""

    def sums(self, records: Records, progress: Done = ..., /) -> Integers: ...

    def rounded(self, sums: Integers) -> Integers: ...


@dataclass(frozen=True)
class InParts:
    """What is counted of each part of a table, and what is made of all parts together.

    Numbers that are rounded are rounded once, over all records. Rounded in every part they would depend on where the
    parts begin, which a single record can shift for all that follow. So parts give the sums before rounding.
    """

    asked: Countable

    @property
    def _pieces(self) -> Sequence[Countable]:
        return self.asked.groups if isinstance(self.asked, Workload) else (self.asked,)

    def counts(self, records: Records, progress: Done = no_progress) -> Integers:
        """Of a part, before rounding."""
        return np.concatenate(
            [
                (each.sums if isinstance(each, RoundedOnce) else each.counts)(records, progress)
                for each in self._pieces
            ]
        )

    def whole(self, sums: Integers) -> Integers:
        """Of all parts, whose numbers were added up."""
        if not isinstance(self.asked, Workload):
            return self.asked.rounded(sums) if isinstance(self.asked, RoundedOnce) else sums
        parts = np.split(sums, self.asked.starts[1:-1])
        return np.concatenate(
            [
                group.rounded(part) if isinstance(group, RoundedOnce) else part
                for group, part in zip(self.asked.groups, parts, strict=True)
            ]
        )


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


class _Numbers:
    """Numbers of one type, one behind the other in a file without a name."""

    def __init__(self, kind: Any) -> None:
        self._kind = np.dtype(kind)
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 (it stays open)
        self.length = 0

    def append(self, numbers: NDArray[Any]) -> None:
        data = memoryview(np.ascontiguousarray(numbers, self._kind).data).cast("B")
        while len(data):
            data = data[self._file.write(data) :]
        self.length += len(numbers)

    def read(self, first: int, last: int) -> NDArray[Any]:
        out = np.empty(last - first, self._kind)
        data, place = memoryview(out.data).cast("B"), first * self._kind.itemsize
        while len(data):
            count = os.preadv(self._file.fileno(), [data], place)
            if count == 0:
                raise OSError("the temporary file of a table was cut short")
            data, place = data[count:], place + count
        return out

    def mapped(self) -> NDArray[Any]:
        """All of them, mapped into memory: the system keeps of them what fits."""
        if self.length == 0:
            return np.empty(0, self._kind)
        return np.asarray(np.memmap(self._file, self._kind, "r", shape=(self.length,)))

    def close(self) -> None:
        self._file.close()


class _Column:
    """The codes of a column, or the items of its records."""

    def __init__(self, column: Any) -> None:
        self._items = isinstance(column, Items)
        self._codes = _Numbers(np.int32 if self._items else smallest_type(len(column.labels)))
        self._starts = _Numbers(np.int64) if self._items else None
        if self._starts is not None:
            self._starts.append(np.zeros(1, np.int64))

    def append(self, codes: ColumnCodes, rows: int) -> None:
        if self._starts is None:
            assert isinstance(codes, np.ndarray)
            self._codes.append(codes)
            return
        assert not isinstance(codes, np.ndarray)
        items = codes if isinstance(codes, SparseItems) else as_lists(codes, rows)
        self._starts.append(items.start[1:] + self._codes.length)
        self._codes.append(items.ids)

    def read(self, first: int, last: int) -> ColumnCodes:
        if self._starts is None:
            return self._codes.read(first, last)
        start = self._starts.read(first, last + 1)
        return SparseItems(start - start[0], self._codes.read(int(start[0]), int(start[-1])))

    def mapped(self) -> ColumnCodes:
        codes = self._codes.mapped()
        return codes if self._starts is None else SparseItems(self._starts.mapped(), codes)

    def close(self) -> None:
        self._codes.close()
        if self._starts is not None:
            self._starts.close()


class SpilledCounter:
    """Counts records that lie on disk, a block of them in memory at a time.

    A run asks the curator several times, and reading a table is dearer than counting it: the first pass reads, checks
    and encodes all of it, and writes the codes of each column into a file; every question then reads the codes. The
    files have no name: nobody else can open them, and nothing of them is left when the process ends, however it ends.
    They take a byte a cell of the table, or two where an attribute has more than 256 values.
    """

    def __init__(
        self,
        domain: Domain,
        blocks: Iterable[Records],
        *,
        rows: int,
        records_per_person: int | None = None,
        progress: Done = no_progress,
    ) -> None:
        """`rows` are read back at once; what comes in may be cut otherwise, and be nothing at all."""
        self._domain = domain
        self._at_once = rows
        self._counts = KeptCounts(progress)
        self._columns = [_Column(column) for column in domain.columns]
        self._rows = 0
        self._records_per_person = records_per_person
        for records in blocks:
            assert records.records_per_person == records_per_person, "blocks are read under one limit"
            self._rows += records.rows
            for column, codes in zip(self._columns, records.columns, strict=True):
                column.append(codes, records.rows)

    @property
    def domain(self) -> Domain:
        return self._domain

    @property
    def records_per_person(self) -> int | None:
        return self._records_per_person

    @property
    def true_rows(self) -> int:
        return self._rows

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        return self._counts.of(countable, self._counted, kept=kept)

    @property
    def records(self) -> Records:
        """All of them, their columns mapped into memory."""
        columns = tuple(column.mapped() for column in self._columns)
        return Records(self._domain, self._rows, columns, self._records_per_person)

    def _counted(self, countable: Countable) -> Integers:
        asked, blocks = InParts(countable), self._blocks()
        counts = asked.counts(next(blocks)).copy()
        for records in blocks:
            counts += asked.counts(records)
        return asked.whole(counts)

    def _blocks(self) -> Iterator[Records]:
        for first in range(0, max(1, self._rows), self._at_once):
            last = min(first + self._at_once, self._rows)
            columns = tuple(column.read(first, last) for column in self._columns)
            yield Records(self._domain, last - first, columns, self._records_per_person)

    def close(self) -> None:
        """Give the disk back."""
        for column in self._columns:
            column.close()
