"""Signed tables as a statistic, and how wrong public rows are on them as a score.

They are what Laplace noise is best added to: one record adds ±1 to a single entry of a signed table, L1 length one,
where the centred interaction of the same set has Π 2(k_j − 1)/k_j and says no more. As in `statistics` and `scores`,
each class states its sensitivity or range here and nowhere else, and tests/privacy/test_statistics.py holds it
against brute force.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Counter
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.privacy.scores import FINE, TableErrors
from dualquery.privacy.selection import Candidates, Scored
from dualquery.queries.tables import Tables, signed, signed_shape
from dualquery.table.domain import Domain
from dualquery.types import Integers


@dataclass(frozen=True)
class SignedTables:
    """The signed tables of several sets, each times a positive integer of its own.

    One record adds ± its multiplier to one entry of each: L1 Σ m, L2² Σ m². Two records add to the same entry with
    opposite signs, or to two entries, or the same: L1 2m at most, where any attribute of the set has two values; L2²
    4m² where one of them is binary, 2m² where none is. Several sets side by side are charged the sum, which two
    records need not attain: if they differ in both of two binary attributes, the sign over both is the same.

    With noise of one scale b the multipliers share the budget: set S then has noise of scale b / m, in records.
    """

    domain: Domain
    sets: tuple[tuple[int, ...], ...]
    multipliers: tuple[int, ...]

    def of(self, counter: Counter) -> Integers:
        tables = Tables(self.domain, self.sets)
        counts = counter.true_counts(tables)
        parts = [
            multiplier * signed(counts[tables.cells_of(t)].reshape(tables.shape_of(t))).ravel()
            for t, multiplier in enumerate(self.multipliers)
        ]
        return np.concatenate(parts)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        alone, apart = [0, 0], [0, 0]
        for members, multiplier in zip(self.sets, self.multipliers, strict=True):
            sizes = {int(self.domain.sizes[j]) for j in members}
            alone = [alone[0] + multiplier, alone[1] + multiplier**2]
            if sizes - {1}:
                squared = (4 if 2 in sizes else 2) * multiplier**2
                apart = [apart[0] + 2 * multiplier, apart[1] + squared]
        return neighbours.sensitivity(alone=Sensitivity(*alone), apart=Sensitivity(*apart))

    def in_records(self, noisy: Integers) -> dict[tuple[int, ...], NDArray[np.float64]]:
        """The noisy signed tables in records."""
        out, start = {}, 0
        for members, multiplier in zip(self.sets, self.multipliers, strict=True):
            shape = signed_shape([int(self.domain.sizes[j]) for j in members])
            stop = start + int(np.prod(shape))
            out[members] = noisy[start:stop].reshape(shape) / multiplier
            start = stop
        return out


@dataclass(frozen=True, eq=False)
class SignedTableErrors(TableErrors):
    """How wrong public answers are on whole signed tables: s_t = Σ_entries |2^F · entry − offset| − penalty_t.

    An added record moves one entry of each signed table by one, an exchanged one two by one or one by two: the range
    is that of `TableErrors`.
    """

    def of(self, counter: Counter) -> Scored:
        assert self.answers is not None, "a score that was not told any answers has only a price"
        scale = FINE * self.public_rows
        answers = np.rint(scale * np.clip(self.answers, 0, 1)).astype(np.int64)
        wrong = self._signed(FINE * counter.true_counts(self.tables, kept=True) - answers)
        sums = np.add.reduceat(np.abs(wrong), self._starts[:-1])
        fixed = self._fixed
        if self.among is not None:
            sums, fixed = sums[self.among], fixed[self.among]
        return Scored(sums, 1, 1, fixed, 0, Candidates.ABSOLUTE)

    def _signed(self, cells: Integers) -> Integers:
        """The cells of all tables as the entries of all signed tables."""
        tables = self.tables
        return np.concatenate(
            [
                signed(cells[tables.cells_of(t)].reshape(tables.shape_of(t))).ravel()
                for t in range(len(tables.sets))
            ]
        )

    @cached_property
    def _starts(self) -> NDArray[np.int64]:
        entries = [int(np.prod(signed_shape(self.tables.shape_of(t)))) for t in range(len(self.tables.sets))]
        return np.concatenate([[0], np.cumsum(entries)]).astype(np.int64)
