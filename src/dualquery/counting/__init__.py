"""Counting the truth, wherever the records are.

A counter: whoever holds private records and adds whole numbers up over them.

Every number that is counted is a sum over records, so counts of parts of a table add up to those of the whole: a
counter may keep its records in memory, read them from disk block by block, or leave them on other machines. A counter
says where the records are, its engine who counts a block of them. What it gives is the truth: names that begin with
`true_` occur here (and where public rows are put into a counter), in the curator's room and in the evaluation of a
release, and nowhere else. Counting *public* rows is `group.counts(rows)`.

Rows of units that have one each, counted as records of one table.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.statistics import Countable, Derived, Together
from dualquery.queries.tables import Tables
from dualquery.queries.views import WHOLE, View, ViewTables
from dualquery.table.domain import Domain, Items
from dualquery.table.persons import Span
from dualquery.table.records import (
    ColumnCodes,
    Places,
    Records,
    SparseItems,
    as_lists,
    has_places,
    smallest_type,
)
from dualquery.table.units import Units, joined_units
from dualquery.types import Done, Integers, no_progress


class Engine(Protocol):
    """Who counts."""

    def counts(self, what: Countable, block: Records) -> Integers:
        """The numbers for the records of a block; `what` is neither derived nor several countables together."""


class Cpu:
    """The compiled loops that every kind of countable has."""

    def counts(self, what: Countable, block: Records) -> Integers:
        return what.counts(block)


CPU = Cpu()
_USUAL: ContextVar[Engine] = ContextVar("engine", default=CPU)


@contextmanager
def counting_with(engine: Engine) -> Iterator[None]:
    """Counters that are made inside, and are given no engine, have this one."""
    before = _USUAL.set(engine)
    try:
        yield
    finally:
        _USUAL.reset(before)


def counted_by(engine: Engine, what: Countable, block: Records) -> Integers:
    """The numbers of what is no further derived, for the records of a block."""
    if isinstance(what, Together):
        return np.concatenate([engine.counts(part, block) for part in what.parts])
    return engine.counts(what, block)


class Counter(ABC):
    """Holds private records, wherever they are."""

    def __init__(
        self,
        domain: Domain,
        records_per_person: int | None = None,
        *,
        engine: Engine | None = None,
        progress: Done = no_progress,
    ) -> None:
        self.domain = domain
        self.records_per_person = records_per_person  # set where nobody has more records than that
        self.within: Span | None = None  # set where only the records of these periods were read
        self._engine = _USUAL.get() if engine is None else engine
        self._progress = progress
        # By identity, and with the countable itself, so that no other one can come to stand at its address.
        self._kept: dict[int, tuple[Countable, Integers]] = {}

    @property
    def engine(self) -> Engine:
        """Who counts."""
        return self._engine

    @property
    @abstractmethod
    def true_rows(self) -> int:
        """The number of records."""

    def shared_rows(self, size_is_public: bool) -> int | None:
        """The number of records where neighbours share it, so that it is no secret."""
        return self.true_rows if size_is_public else None

    @property
    def knows_places(self) -> bool:
        """Whether records were encoded from cells, so that it is known where in their bins numbers lie. Public."""
        return True

    def true_counts(self, what: Countable, *, kept: bool = False) -> Integers:
        """The numbers for all records. `kept` keeps them, for what is asked again every round."""
        if id(what) in self._kept:
            return self._kept[id(what)][1]
        if isinstance(what, Derived):
            counts = what.of(self.true_counts(what.counted(), kept=what.kept), self.true_rows)
        else:
            # Begun and done, and nothing between: how far a pass has come by the record tells how many there are.
            self._progress(0, 1)
            counts = self._counted(what)
            self._progress(1, 1)
        if kept:
            self._kept[id(what)] = (what, counts)
        return counts

    def true_labels(self, name: str) -> Sequence[str]:
        """The values of a column; where no schema says them, the texts that occur (`queries.statistics`)."""
        return next(column.labels for column in self.domain.columns if column.name == name)

    @abstractmethod
    def _counted(self, what: Countable) -> Integers:
        """The numbers of what is not derived, for all records."""


class MemoryCounter(Counter):
    """Counts encoded records that fit into memory."""

    def __init__(
        self, records: Records, *, engine: Engine | None = None, progress: Done = no_progress
    ) -> None:
        super().__init__(records.domain, records.records_per_person, engine=engine, progress=progress)
        self.records = records

    @property
    def true_rows(self) -> int:
        return self.records.rows

    @property
    def knows_places(self) -> bool:
        return bool(self.records.places)

    def _counted(self, what: Countable) -> Integers:
        return counted_by(self._engine, what, self.records)


class WeighedCounter(Counter):
    """Counts records of several parts of a table, those of a part so many times each."""

    def __init__(self, parts: Sequence[tuple[Counter, int]]) -> None:
        super().__init__(parts[0][0].domain, parts[0][0].records_per_person, engine=parts[0][0].engine)
        self._parts = tuple(parts)

    @property
    def true_rows(self) -> int:
        return sum(times * part.true_rows for part, times in self._parts)

    @property
    def knows_places(self) -> bool:
        return all(part.knows_places for part, _ in self._parts)

    def _counted(self, what: Countable) -> Integers:
        first, *others = (times * part.true_counts(what) for part, times in self._parts)
        return sum(others, first)


class StoredNumbers:
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
        self._codes = StoredNumbers(np.int32 if self._items else smallest_type(len(column.labels)))
        self._starts = StoredNumbers(np.int64) if self._items else None
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


class SpilledUnits(Counter):
    """Counts the units of a database that lie on disk, those of some keys in memory at a time."""

    def __init__(
        self,
        domain: Domain,
        blocks: Iterable[Records],
        *,
        engine: Engine | None = None,
        progress: Done = no_progress,
    ) -> None:
        super().__init__(domain, engine=engine, progress=progress)
        self._file, self._ends, self._rows = StoredNumbers(np.uint8), [0], 0
        self.dropped: dict[str, int] = {}
        for units in blocks:
            assert isinstance(units, Units), "a database consists of units"
            self._file.append(np.frombuffer(pickle.dumps(units, protocol=5), np.uint8))
            self._ends.append(self._file.length)
            self._rows += units.rows
            for why, number in units.dropped.items():
                self.dropped[why] = self.dropped.get(why, 0) + number

    @property
    def true_rows(self) -> int:
        return self._rows

    @property
    def records(self) -> Units:
        """All of them, in memory: their codes are far smaller than the tables."""
        return joined_units([*self._blocks()])

    def _blocks(self) -> Iterator[Units]:
        for first, last in pairwise(self._ends):
            yield pickle.loads(self._file.read(first, last).data)

    def _counted(self, what: Countable) -> Integers:
        return cast("Integers", sum(counted_by(self._engine, what, units) for units in self._blocks()))


class SpilledCounter(Counter):
    """Counts records that lie on disk, a block of them in memory at a time.

    A run asks the curator several times, and reading a table is dearer than counting it: the first pass reads, checks
    and encodes all of it, and writes the codes of each column into a file; every question then reads the codes. The
    files have no name: nobody else can open them, and nothing of them is left when the process ends, however it ends.
    They take a byte per cell of the table, or two where an attribute has more than 256 values, and two more for
    a number in bins (its place inside).
    """

    def __init__(
        self,
        domain: Domain,
        blocks: Iterable[Records],
        *,
        rows: int,
        records_per_person: int | None = None,
        engine: Engine | None = None,
        progress: Done = no_progress,
    ) -> None:
        """`rows` are read back at once; what comes in may be cut otherwise, and be nothing at all."""
        super().__init__(domain, records_per_person, engine=engine, progress=progress)
        self._at_once = rows
        self._columns = [_Column(column) for column in domain.columns]
        self._places = [StoredNumbers(np.uint16) if has_places(each) else None for each in domain.columns]
        self._rows = 0
        for records in blocks:
            assert records.records_per_person == records_per_person, "blocks are read under one limit"
            self._rows += records.rows
            for column, codes in zip(self._columns, records.columns, strict=True):
                column.append(codes, records.rows)
            for stored, places in zip(self._places, records.places, strict=False):
                if stored is not None and places is not None:
                    stored.append(places)

    @property
    def true_rows(self) -> int:
        return self._rows

    @property
    def records(self) -> Records:
        """All of them, their columns mapped into memory."""
        columns = tuple(column.mapped() for column in self._columns)
        places = self._placed(lambda stored: stored.mapped())
        return Records(self.domain, self._rows, columns, self.records_per_person, places)

    def _placed(self, read: Callable[[StoredNumbers], NDArray[Any]]) -> tuple[Places | None, ...]:
        """The places of some records; none where not all blocks have had them."""
        stored = [each for each in self._places if each is not None]
        if not stored or any(each.length != self._rows for each in stored):
            return ()
        return tuple(None if each is None else read(each) for each in self._places)

    def _counted(self, what: Countable) -> Integers:
        blocks = self._blocks()
        counts = counted_by(self._engine, what, next(blocks)).copy()
        for records in blocks:
            counts += counted_by(self._engine, what, records)
        return counts

    def _blocks(self) -> Iterator[Records]:
        for first in range(0, max(1, self._rows), self._at_once):
            last = min(first + self._at_once, self._rows)
            columns = tuple(column.read(first, last) for column in self._columns)
            places = self._placed(lambda stored, a=first, b=last: stored.read(a, b))  # type: ignore[misc]
            yield Records(self.domain, last - first, columns, self.records_per_person, places)

    def close(self) -> None:
        """Give the disk back."""
        for column in self._columns:
            column.close()
        for stored in self._places:
            if stored is not None:
                stored.close()


class JoinedCounter(Counter):
    """Counts the flat records of a view of which every unit has exactly one: a record here is a unit there, so that
    neighbours are the same."""

    def __init__(self, units: Counter, view: View) -> None:
        assert view.number.max() == view.database.child(view.child).at_least == 1, "one row each"
        super().__init__(view.domain, engine=units.engine)
        self._units, self._view = units, view

    @property
    def true_rows(self) -> int:
        return self._units.true_rows

    def _counted(self, what: Countable) -> Integers:
        assert isinstance(what, Tables), "tables are measured, and what follows from them"
        return self._units.true_counts(ViewTables(self._view, what.sets)) // WHOLE


def is_spark_frame(source: object) -> bool:
    """Whether a table is a Spark DataFrame, be it of a session here or of a Spark Connect server."""
    return type(source).__module__.startswith("pyspark.sql") and hasattr(source, "mapInArrow")
