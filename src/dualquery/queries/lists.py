"""Lists of records: a query accepts the cells of a list, few out of a universe that nobody could write out.

Query q accepts cells[start[q] : start[q + 1]] (sorted, each once). A record lies in one cell, so that it satisfies as
many queries as there are lists that its cell lies in: at most r, the *incidence*, however many queries there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.countable import ONE_CELL, Bound
from dualquery.queries.group import (
    Digest,
    NotProducts,
)
from dualquery.table.codes import CodeTable, cells_of
from dualquery.table.records import Records
from dualquery.types import Integers, Words


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Cells that somebody named, sorted, with the texts of their records: one row per cell, one column per column."""

    cells: Words
    texts: NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Lists(NotProducts):
    """Lists of cells, how each is written, and what the cells are called."""

    domain: CodeTable
    start: NDArray[np.int64]
    cells: Words
    said: tuple[str, ...] = field(repr=False)
    catalogue: Catalogue = field(repr=False)

    noun = "lists of records"

    @property
    def size(self) -> int:
        return len(self.start) - 1

    def counts(self, records: Records) -> Integers:
        held, times = np.unique(record_cells(records), return_counts=True)
        counts = np.concatenate([[0], np.cumsum(_found(held, times, self.cells))])
        return (counts[self.start[1:]] - counts[self.start[:-1]]).astype(np.int64)

    def given(self, records: Records) -> Integers:
        """1 for each of some records that the only list names."""
        return np.isin(record_cells(records), self.cells).astype(np.int64)

    def changed(self, rows: Records, *, more: bool) -> Records:
        """The records that the only list names; to have fewer of them none is needed."""
        place = np.searchsorted(self.catalogue.cells, self.cells)
        return self.domain.records(self.catalogue.texts[place if more else place[:0]])

    def add_answers(self, record: NDArray[np.int32], answers: NDArray[np.int32]) -> None:
        cell = cells_of([np.array([code], np.uint64) for code in record.tolist()], 1)[0]
        hits = np.concatenate([[0], np.cumsum(self.cells == cell)])
        answers += (hits[self.start[1:]] - hits[self.start[:-1]]).astype(np.int32)

    @cached_property
    def _times(self) -> NDArray[np.int64]:
        """In how many lists the most often named cells lie, falling."""
        return np.sort(np.unique(self.cells, return_counts=True)[1])[::-1].astype(np.int64)

    def most_satisfied(self) -> int:
        """The incidence r: the most lists that one cell lies in."""
        return int(self._times[0]) if len(self._times) else 0

    def most_differing(self) -> int:
        """Those of two cells; all, where two records together meet every list."""
        return min(self.size, int(self._times[:2].sum()))

    @property
    def longest(self) -> int:
        return int(np.diff(self.start).max(initial=0))

    def take(self, indices: NDArray[np.int64]) -> Lists:
        lengths = np.diff(self.start)[indices]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(start[-1]) + np.repeat(self.start[indices] - start[:-1], lengths)
        said = tuple(self.said[i] for i in indices.tolist())
        return Lists(self.domain, start, self.cells[places], said, self.catalogue)

    def describe(self, digest: Digest) -> None:
        digest.add("lists end at", np.ascontiguousarray(self.start, "<i8").data, self.start.shape)
        digest.add("cells", np.ascontiguousarray(self.cells, "<u8").data, self.cells.shape)

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        return [self.said[i] for i in indices.tolist()]


def record_cells(records: Records) -> Words:
    columns = [codes for codes in records.columns if isinstance(codes, np.ndarray)]
    return cells_of(columns, records.rows)


@dataclass(frozen=True, eq=False)
class NamedCells:
    """How many records lie in each of some distinct cells: a few cells of one histogram over the whole universe."""

    cells: Words

    def __post_init__(self) -> None:
        if (self.cells[1:] <= self.cells[:-1]).any():  # the bound rests on it: each is one number
            raise ValueError("cells are named once each, in their order")

    def counts(self, records: Records) -> Integers:
        held, times = np.unique(record_cells(records), return_counts=True)
        return _found(held, times, self.cells).astype(np.int64)

    def bound(self) -> Bound:
        return ONE_CELL


def _found(held: Words, times: NDArray[np.integer], wanted: Words) -> NDArray[np.integer]:
    """The number at each wanted cell, nought where it is not held."""
    if not len(held):
        return np.zeros(len(wanted), np.int64)
    place = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    return np.where(held[place] == wanted, times[place], 0)


def joined(groups: list[Lists]) -> Lists:
    if len(groups) == 1:
        return groups[0]
    cells = np.concatenate([group.catalogue.cells for group in groups])
    texts = np.concatenate([group.catalogue.texts for group in groups])
    distinct, first = np.unique(cells, return_index=True)
    ends = np.cumsum([0, *(int(group.start[-1]) for group in groups)])
    start = np.concatenate([[0], *(group.start[1:] + end for group, end in zip(groups, ends, strict=False))])
    return Lists(
        groups[0].domain,
        start.astype(np.int64),
        np.concatenate([group.cells for group in groups]),
        tuple(text for group in groups for text in group.said),
        Catalogue(distinct, texts[first]),
    )
