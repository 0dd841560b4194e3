"""Distances: the mean L1 distance of the records to a public point, over some or all columns.

A query is a point y and a share of the unit for each column: those of a column it does not ask about are zero, the
others are in proportion to the widths of the columns, so that the answer is the mean distance as a fraction of the
diameter (the sum of the widths asked about). With positions x_j, y_j from 0 to G a record adds

    v(x) = Σ_j share_j |x_j − y_j|  ≤  G Σ_j share_j = G · UNIT,

and the count of the query is ⌊Σ_x v(x) / G⌋. The floor is taken once, of the whole sum: a record added or removed
moves the sum by 0 to G · UNIT, so that the floor moves by 0 to UNIT; a record exchanged, by UNIT at most, up or down.
Where a table is counted in parts, the sums of the parts are added up first (`DistanceSums`), and the floor is
taken of the whole again. Sums stay below G · UNIT · n = 2³⁴ n: 64 bits hold them for 500 million points.

The sum over a column is a sum of one-dimensional functions: Σ_x |x − y| = y (2C(y) − n) + S − 2S(y), where C(y) and
S(y) are the number and the sum of the positions up to y. So all points cost one pass over the records.

*Knots*: whole-number sums at the knots of a column, from which distance curves are made.

A record at position x of a column lies between the knots k = ⌊x / s⌋ and k + 1, s positions apart, and splits s units
between them by nearness. Of the units h_k that all records give, R h is counted, where R is a public whole-number
matrix of the column (`mechanisms.distances`); and at the end the number of records times `total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.countable import NOTHING, Bound, Derived
from dualquery.queries.group import (
    Digest,
    NotProducts,
    bound_of_queries,
    padded,
)
from dualquery.table.points import GRID, Points
from dualquery.table.records import Records
from dualquery.types import Integers

UNIT = 1 << 20


@dataclass(frozen=True, eq=False)
class Distances(Derived, NotProducts):
    """Query q asks for the mean distance to the point positions[q] by the shares of row which[q]."""

    domain: Points
    positions: NDArray[np.int64]  # one row per query, one column per column of the table
    shares: NDArray[np.int64]  # each row adds up to UNIT
    which: NDArray[np.int64]
    grid: int = GRID  # the last position of a column

    unit = UNIT
    noun = "distances"

    @property
    def size(self) -> int:
        return len(self.positions)

    @property
    def columns(self) -> NDArray[np.int64]:
        """The columns that some query asks about."""
        return np.flatnonzero(self.shares[np.unique(self.which)].any(axis=0))

    def counted(self) -> DistanceSums:
        return DistanceSums(self)

    def of(self, counts: Integers, rows: int) -> Integers:
        """The floor of sums over all records."""
        return counts // self.grid

    def bound(self) -> Bound:
        return bound_of_queries(self)

    def sums(self, records: Records) -> Integers:
        """Σ_x v(x), which adds up over records."""
        total = np.zeros(self.size, np.int64)
        for j in self.columns.tolist():
            codes = records.columns[j]
            assert isinstance(codes, np.ndarray), "a coordinate is a position"
            total += self.shares[self.which, j] * _sums_of_distances(codes, self.positions[:, j], self.grid)
        return total

    def given(self, records: Records) -> Integers:
        """The distance of each of some public points to the only point asked about."""
        codes = records.to_rows().astype(np.int64)
        return (np.abs(codes - self.positions[0]) @ self.shares[self.which[0]]) // self.grid

    def changed(self, rows: Records, *, more: bool) -> Records:
        """Public points, moved to the farthest corner, or to the point itself; in the columns asked about."""
        codes, here = rows.to_rows(), self.positions[0]
        asked = np.flatnonzero(self.shares[self.which[0]])
        there = np.where(2 * here > self.grid, 0, self.grid) if more else here
        codes[:, asked] = there[asked]
        return Records.from_rows(self.domain, codes)

    def scope(self) -> NDArray[np.int32]:
        used = self.shares[np.unique(self.which)]
        return padded(sorted({tuple(np.flatnonzero(row).tolist()) for row in used}))

    def take(self, indices: NDArray[np.int64]) -> Distances:
        return Distances(self.domain, self.positions[indices], self.shares, self.which[indices], self.grid)

    def describe(self, digest: Digest) -> None:
        digest.add_integers("distances to", np.where(self.shares[self.which] > 0, self.positions, -1))
        digest.add_integers("shares", self.shares[self.which])

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        """`distance to (lat = 51.2, lon = 6.8)`: the columns asked about, positions as numbers."""
        asked = [np.flatnonzero(row).tolist() for row in self.shares]
        return [
            f"distance to ({', '.join(self._term(q, j) for j in asked[self.which[q]])})"
            for q in indices.tolist()
        ]

    def _term(self, query: int, j: int) -> str:
        column = self.domain.coordinates[j]
        name = column.name if column.name.isidentifier() else "'" + column.name.replace("'", "''") + "'"
        return f"{name} = {column.low + column.width * int(self.positions[query, j]) / self.grid:.7g}"


@dataclass(frozen=True, eq=False)
class DistanceSums:
    """Σ_x v(x) of each query, before the floor is taken: 0 to G · UNIT of a record."""

    distances: Distances

    def counts(self, records: Records) -> Integers:
        return self.distances.sums(records)

    def bound(self) -> Bound:
        size, most = self.distances.size, self.distances.grid * self.distances.unit
        return Bound((size * most, size * most**2), (size * most, size * most**2), each=most)


def shares_of(domain: Points, columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """UNIT shared out among some columns in proportion to their widths, to the nearest whole number."""
    ideal = np.zeros(domain.width)
    ideal[columns] = UNIT * domain.widths[columns] / domain.widths[columns].sum()
    shares = np.maximum(np.floor(ideal).astype(np.int64), 0)
    left = UNIT - int(shares.sum())
    most = columns[np.argsort(-(ideal - shares)[columns], kind="stable")]
    np.add.at(shares, np.resize(most, left), 1)
    return shares


def distances_to(domain: Points, positions: NDArray[np.int64]) -> Distances:
    """The mean distance to each of some points, by all columns."""
    shares = shares_of(domain, np.arange(domain.width))[None, :]
    return Distances(domain, positions.astype(np.int64), shares, np.zeros(len(positions), np.int64))


def _sums_of_distances(codes: NDArray[np.unsignedinteger], points: NDArray[np.int64], grid: int) -> Integers:
    """Σ_x |x − y| for every point y of one column."""
    held = np.bincount(codes, minlength=grid + 1).astype(np.int64)
    number, total = np.cumsum(held), np.cumsum(held * np.arange(grid + 1))
    return points * (2 * number[points] - number[-1]) + total[-1] - 2 * total[points]


Factor = NDArray[np.int64]  # one row per number that is counted, one column per knot


@dataclass(frozen=True, eq=False)
class Knots:
    """R_j h_j of each of some columns, one behind the other, and total · rows where `total` is not 0."""

    columns: tuple[int, ...]
    factors: tuple[Factor, ...]  # one a column; columns may share one
    steps: int  # s: positions between two knots
    total: int = 0

    @property
    def size(self) -> int:
        return sum(len(factor) for factor in self.factors) + (self.total > 0)

    def counts(self, records: Records) -> Integers:
        parts = []
        for j, factor in zip(self.columns, self.factors, strict=True):
            codes = records.columns[j]
            assert isinstance(codes, np.ndarray), "a column of numbers is an array of codes"
            parts.append(factor @ units_at_knots(codes, factor.shape[1], self.steps))
        if self.total:
            parts.append(np.array([self.total * records.rows]))
        return np.concatenate(parts)

    def bound(self) -> Bound:
        """In each column a record adds a mixture, in whole units s, of two neighbouring columns R_k of its factor.

        A norm is convex, so it is longest at a knot, s·max_k ‖R_k‖, and two records are farthest apart at two knots,
        s·max ‖R_k − R_l‖. Columns are free of each other, so that these add up (squared, for L2) over the columns.
        The number of records, `total` times, adds `total` for a record and nothing between two.
        """
        reach = [_reach(factor.shape, factor.tobytes()) for factor in self.factors]
        return sum(reach, NOTHING).times(self.steps) + Bound((self.total, self.total**2), (0, 0))


@lru_cache(maxsize=64)
def _reach(shape: tuple[int, ...], contents: bytes) -> Bound:
    """The longest column of a factor, and the two that are farthest apart."""
    factor = np.frombuffer(contents, np.int64).reshape(shape)
    l1 = l2 = 0
    for k in range(shape[1]):
        apart = factor - factor[:, [k]]
        l1 = max(l1, int(np.abs(apart).sum(axis=0).max()))
        l2 = max(l2, int((apart**2).sum(axis=0).max()))
    alone = int(np.abs(factor).sum(axis=0).max()), int((factor**2).sum(axis=0).max())
    return Bound(alone, (l1, l2))


def units_at_knots(codes: NDArray[np.unsignedinteger], knots: int, steps: int) -> Integers:
    """What all records give each knot: `steps` units a record."""
    held = np.bincount(codes, minlength=(knots - 1) * steps + 1).astype(np.int64)
    between = held[:-1].reshape(knots - 1, steps)
    past = np.arange(steps)
    units = np.zeros(knots, np.int64)
    units[:-1] += between @ (steps - past)
    units[1:] += between @ past
    units[-1] += steps * held[-1]
    return units
