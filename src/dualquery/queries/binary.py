"""Binary attributes of a wide table as vectors: a record x in {0, 1}^d, centred, clipped, in classes.

A record counts with whole numbers of its own, each a function of that record and of public numbers:

    y = GRID·x − centre         the vector around a public centre, in steps of 1/GRID (`Centred`),
    w ∈ {0 … F}                 the largest weight with w·|y| ≤ F·B (`Clip`),
    u = ⌊(y · directions) / 2^SHIFT⌉   its place along a few public axes (`Axes`),
    c                           the nearest of some public centres in that space, the first of several (`Classes`).

Products of whole numbers below 2⁵³ are exact in floating point, whatever the order in which they are added: nothing
here depends on which other records lie beside a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.bit_columns import predicate_bits
from dualquery.queries.bit_sums import add_along_attributes
from dualquery.queries.group import Integers
from dualquery.queries.predicates import Predicates
from dualquery.table.domain import Domain
from dualquery.table.records import Records, unpack_bits

GRID = 16  # steps of a centre between 0 and 1
SHIFT = 10  # binary places of a direction
SLAB_BYTES = 1 << 27  # bit columns held at once
LEAST_ROWS = 1 << 9
MOST_ROWS = 1 << 17
SPREAD_ROWS = 1 << 13  # whose vectors are spread out at once


@dataclass(frozen=True, eq=False)
class Binary:
    """Some attributes of two values each: of a record the vector of zeros and ones."""

    domain: Domain
    attributes: NDArray[np.int64]

    @property
    def width(self) -> int:
        return len(self.attributes)

    def bits(self, records: Records, first: int, rows: int) -> NDArray[np.uint64]:
        """A bit column for each attribute, over `rows` records from `first` (a multiple of 64)."""
        ones = np.ones(self.width, np.int32)
        which = Predicates(self.attributes.astype(np.int32), np.arange(self.width + 1, dtype=np.int64), ones)
        return predicate_bits(which, records, first, rows)

    def matrix(self, records: Records, first: int, rows: int) -> NDArray[np.float64]:
        """The vectors themselves, a row a record. For few attributes."""
        return unpack_bits(self.bits(records, first, rows), rows).T.astype(np.float64)

    def slabs(self, records: Records) -> Iterator[tuple[int, int]]:
        """The first record and the number of records of each slab."""
        step = SLAB_BYTES * 8 // max(1, self.width) // LEAST_ROWS * LEAST_ROWS
        step = min(max(LEAST_ROWS, step), MOST_ROWS)
        for first in range(0, records.rows, step):
            yield first, min(step, records.rows - first)


@dataclass(frozen=True)
class Clip:
    """Weights that make every vector at most F·B long: w = min(F, ⌊F·B/|y|⌋)."""

    most: int  # F
    squared: int  # B²

    @property
    def longest(self) -> int:
        """F²B²: the squared length that no weighted vector exceeds."""
        return self.most**2 * self.squared

    def weights(self, squared_lengths: Integers) -> Integers:
        """The largest w ≤ F with w²·|y|² ≤ F²B², in whole numbers."""
        length = np.maximum(squared_lengths, 1)
        w = np.minimum(self.most, np.sqrt(self.longest / length).astype(np.int64) + 1)
        while (over := w * w * squared_lengths > self.longest).any():
            w = w - over
        return w


@dataclass(frozen=True, eq=False)
class Axes:
    """u = ⌊(GRID·x − centre)·directions / 2^SHIFT⌉, a few whole numbers of each record."""

    binary: Binary
    centre: NDArray[np.int64]
    directions: NDArray[np.int64]  # attributes × axes

    @property
    def number(self) -> int:
        return self.directions.shape[1]

    def places(self, records: Records, first: int, rows: int) -> NDArray[np.float64]:
        """A row of whole numbers a record."""
        placed = np.empty((rows, self.number))
        along = self.directions.astype(np.float64)
        for begin in range(0, rows, SPREAD_ROWS):
            y = self.binary.matrix(records, first + begin, min(SPREAD_ROWS, rows - begin))
            y *= GRID
            y -= self.centre
            placed[begin : begin + len(y)] = np.floor(y @ along / 2**SHIFT + 0.5)
        return placed


@dataclass(frozen=True, eq=False)
class Classes:
    """The nearest of some public centres; of several the first."""

    axes: Axes
    centres: NDArray[np.int64]  # classes × axes

    @property
    def number(self) -> int:
        return len(self.centres)

    def nearest(self, places: NDArray[np.float64]) -> Integers:
        """argmin_c |u − c|², as |c|² − 2u·c."""
        centres = self.centres.astype(np.float64)
        distance = (centres**2).sum(axis=1) - 2 * (places @ centres.T)
        return np.argmin(distance, axis=1).astype(np.int64)

    def of(self, records: Records, first: int, rows: int) -> Integers:
        return self.nearest(self.axes.places(records, first, rows))


@dataclass(frozen=True, eq=False)
class Centred:
    """y = GRID·x − centre[class of x]; one centre for all where there are no classes."""

    binary: Binary
    centre: NDArray[np.int64]  # classes × attributes
    classes: Classes | None = None

    def classes_of(self, records: Records, first: int, rows: int) -> Integers:
        if self.classes is None:
            return np.zeros(rows, np.int64)
        return self.classes.of(records, first, rows)

    def squared_lengths(self, bits: NDArray[np.uint64], group: Integers) -> Integers:
        """|y|² = Σ_j centre_j² + Σ_{j: x_j = 1} GRID·(GRID − 2·centre_j)."""
        sums = (self.centre**2).sum(axis=1)[group]
        values = np.ascontiguousarray((GRID * (GRID - 2 * self.centre)).T)
        add_along_attributes(bits, group, values, sums)
        return sums

    @property
    def longest(self) -> int:
        """The squared length that no vector exceeds."""
        return int((np.maximum(self.centre, GRID - self.centre) ** 2).sum(axis=1).max())
