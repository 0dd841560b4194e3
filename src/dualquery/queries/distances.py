"""Distances: the mean distance of the records to a public point, over some or all columns.

A query is a point y and a share of the unit for each axis (`table.points`: of L1 the columns, else directions): those
of a column it does not ask about are zero, the others are in proportion to the widths of the axes, so that the answer
is the mean distance as a fraction of the diameter (of L1 the sum of the widths asked about). With positions x_j, y_j
from 0 to G a record adds

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

*Questions* name the columns that count; of other metrics than L1, all of them.

    distance to (lat = 51.2, lon = 6.8)      one query; a file may hold one per line
    points:FILE                              a CSV or Parquet file of points, a column for each column asked about
    points:random:COUNT[:SEED]               points drawn uniformly between the bounds
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from os.path import isfile

import numpy as np

from dualquery.errors import DualQueryError, QueryError
from dualquery.queries.group import Digest, NotProducts, padded
from dualquery.queries.language.formula import Fault, Phrase, Token, read_each
from dualquery.queries.random_families import Stream
from dualquery.queries.statistics import NOTHING, Bound, Derived
from dualquery.queries.workload import Grammar, Workload, check_count
from dualquery.table.encoding import encode
from dualquery.table.points import (
    COLUMNS,
    GRID,
    Coordinate,
    Directions,
    DistanceAxes,
    Metric,
    Points,
    Positions,
)
from dualquery.table.reading import read_table
from dualquery.table.records import Records
from dualquery.types import Integers, Ints

UNIT = 1 << 20


@dataclass(frozen=True, eq=False)
class Distances(NotProducts, Derived):
    """Query q asks for the mean distance to the point positions[q] by the shares of row which[q]."""

    domain: Points
    positions: Integers  # one row per query, one column per column of the table
    shares: Integers  # of each axis; a row adds up to UNIT
    which: Integers
    grid: int = GRID  # the last position of a column
    axes: DistanceAxes = COLUMNS

    unit = UNIT
    noun = "distances"

    @property
    def size(self) -> int:
        return len(self.positions)

    @cached_property
    def asked(self) -> Integers:
        """The axes that some query asks about."""
        return np.flatnonzero(self.shares[np.unique(self.which)].any(axis=0))

    @cached_property
    def _placed(self) -> Sequence[Positions]:
        return self.axes.placed(tuple(self.positions.T))

    def places(self, axis: int) -> Positions:
        return self.axes.at(axis, self._placed)

    def _columns(self) -> list[list[int]]:
        """Of each row of shares the columns that are asked about: all of them where axes are directions."""
        if isinstance(self.axes, Directions):
            return [list(range(self.positions.shape[1]))] * len(self.shares)
        return [np.flatnonzero(row).tolist() for row in self.shares]

    def counted(self) -> DistanceSums:
        return DistanceSums(self)

    def of(self, counts: Integers, rows: int) -> Integers:
        return counts // self.grid

    def sums(self, records: Records) -> Integers:
        total = np.zeros(self.size, np.int64)
        held = self.axes.placed(positions_of(records))
        for axis in self.asked.tolist():
            apart = _sums_of_distances(self.axes.at(axis, held), self.places(axis), self.grid)
            total += self.shares[self.which, axis] * apart
        return total

    def given(self, records: Records) -> Integers:
        """The distance of each of some public points to the only point asked about."""
        held, shares = self.axes.placed(positions_of(records)), self.shares[self.which[0]]
        total = np.zeros(records.rows, np.int64)
        for axis in np.flatnonzero(shares).tolist():
            total += shares[axis] * np.abs(
                self.axes.at(axis, held).astype(np.int64) - int(self.places(axis)[0])
            )
        return total // self.grid

    def changed(self, rows: Records, *, more: bool) -> Records:
        """Public points, moved to the farthest corner, or to the point itself; in the columns asked about."""
        codes, here = rows.to_rows(), self.positions[0]
        asked = self._columns()[self.which[0]]
        there = np.where(2 * here > self.grid, 0, self.grid) if more else here
        codes[:, asked] = there[asked]
        return Records.from_rows(self.domain, codes)

    def scope(self) -> Ints:
        columns = self._columns()
        return padded(sorted({tuple(columns[row]) for row in np.unique(self.which).tolist()}))

    def take(self, indices: Integers) -> Distances:
        return replace(self, positions=self.positions[indices], which=self.which[indices])

    def describe(self, digest: Digest) -> None:
        if isinstance(self.axes, Directions):
            digest.add_integers("distances to", self.positions)
            digest.add_integers("directions", self.axes.directions)
            digest.add_integers("shares", self.shares)
        else:
            digest.add_integers("distances to", np.where(self.shares[self.which] > 0, self.positions, -1))
            digest.add_integers("shares", self.shares[self.which])

    def texts(self, indices: Integers) -> list[str]:
        """`distance to (lat = 51.2, lon = 6.8)`: the columns asked about, positions as numbers."""
        columns = self._columns()
        return [
            f"distance to ({', '.join(self._term(q, j) for j in columns[self.which[q]])})"
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


def shares_of(domain: Points, columns: Integers) -> Integers:
    """UNIT shared out among the axes of some columns in proportion to their widths, to the nearest whole number."""
    axes = columns
    if isinstance(domain.axes, Directions):
        if len(columns) < domain.width:
            left_out = next(j for j in range(domain.width) if j not in columns)
            raise QueryError(
                f"a {domain.metric.value} distance is one over all columns; name '{domain.name(left_out)}' too"
            )
        axes = np.arange(len(domain.axes.widths))
    widths = domain.axes.widths
    ideal = np.zeros(len(widths))
    ideal[axes] = UNIT * widths[axes] / widths[axes].sum()
    shares = np.maximum(np.floor(ideal).astype(np.int64), 0)
    left = UNIT - int(shares.sum())
    most = axes[np.argsort(-(ideal - shares)[axes], kind="stable")]
    np.add.at(shares, np.resize(most, left), 1)
    return shares


def distances_to(domain: Points, positions: Integers, columns: Integers | None = None) -> Distances:
    """The mean distance to each of some points, by all columns unless some are named."""
    shares = shares_of(domain, np.arange(domain.width) if columns is None else columns)[None, :]
    which = np.zeros(len(positions), np.int64)
    return Distances(domain, positions.astype(np.int64), shares, which, axes=domain.axes)


def positions_of(records: Records) -> tuple[Positions, ...]:
    columns = records.columns
    assert all(isinstance(each, np.ndarray) for each in columns), "a coordinate is a position"
    return columns  # type: ignore[return-value]


def _sums_of_distances(codes: Positions, points: Positions, grid: int) -> Integers:
    """Σ_x |x − y| for every point y of one column."""
    held = np.bincount(codes, minlength=grid + 1).astype(np.int64)
    number, total = np.cumsum(held), np.cumsum(held * np.arange(grid + 1))
    return points * (2 * number[points] - number[-1]) + total[-1] - 2 * total[points]


Factor = Integers  # one row per number that is counted, one column per knot


@dataclass(frozen=True, eq=False)
class Knots:
    """R_j h_j of each of some axes, one behind the other, and total · rows where `total` is not 0."""

    columns: tuple[int, ...]  # numbers of axes, which are columns unless directions are given
    factors: tuple[Factor, ...]  # one an axis; axes may share one
    steps: int  # s: positions between two knots
    total: int = 0
    axes: DistanceAxes = COLUMNS

    @property
    def size(self) -> int:
        return sum(len(factor) for factor in self.factors) + (self.total > 0)

    def counts(self, records: Records) -> Integers:
        held = self.axes.placed(positions_of(records))
        parts = [
            factor @ units_at_knots(self.axes.at(axis, held), factor.shape[1], self.steps)
            for axis, factor in zip(self.columns, self.factors, strict=True)
        ]
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


def units_at_knots(codes: Positions, knots: int, steps: int) -> Integers:
    """What all records give each knot: `steps` units a record."""
    held = np.bincount(codes, minlength=(knots - 1) * steps + 1).astype(np.int64)
    between = held[:-1].reshape(knots - 1, steps)
    past = np.arange(steps)
    units = np.zeros(knots, np.int64)
    units[:-1] += between @ (steps - past)
    units[1:] += between @ past
    units[-1] += steps * held[-1]
    return units


EXAMPLE = "distance to (lat = 51.2, lon = 6.8)"
Point = dict[int, int]  # the position in each column that is asked about


def groups_of(domain: Points, texts: Sequence[str], places: Sequence[str]) -> tuple[Distances, ...]:
    points = read_each(texts, places, lambda text: _read(domain, text))
    asked = list(dict.fromkeys(tuple(sorted(point)) for point in points))
    positions = np.zeros((len(points), domain.width), np.int64)
    for row, point in enumerate(points):
        positions[row, list(point)] = list(point.values())
    shares = np.stack([shares_of(domain, np.array(columns)) for columns in asked])
    which = np.array([asked.index(tuple(sorted(point))) for point in points])
    return (Distances(domain, positions, shares, which, axes=domain.axes),)


def example_of(domain: Points) -> str:
    """A question that these points can be asked: the middle, of L1 that of the first two columns."""
    columns = np.arange(min(2, domain.width) if domain.metric is Metric.L1 else domain.width)
    group = distances_to(domain, np.full((1, domain.width), GRID // 2), columns)
    return group.texts(np.zeros(1, np.int64))[0]


def family_of(domain: Points, spec: str) -> Workload | None:
    """The workload of `points:…`, or None where the SPEC is something else."""
    family, colon, rest = spec.partition(":")
    if not colon or family != "points":
        return None
    if isfile(rest):
        return Workload(domain, (_from_file(domain, rest),), spec)
    fields = rest.split(":")
    if fields[0] != "random" or len(fields) not in (2, 3) or not all(each.isdecimal() for each in fields[1:]):
        raise QueryError(
            f"'{spec}' should read points:FILE or points:random:COUNT[:SEED], and there is no such file"
        )
    count, seed = int(fields[1]), int(fields[2]) if fields[2:] else 0
    check_count(count)
    stream = Stream(seed)
    positions = stream.below(np.full((count, domain.width), GRID + 1))
    return Workload(domain, (distances_to(domain, positions),), spec)


DISTANCES = Grammar("distances", "points:FILE, points:random:COUNT", example_of, groups_of, family_of)


def _from_file(domain: Points, path: str) -> Distances:
    """One point per row; columns that the file does not have are not asked about."""
    try:
        table = read_table(path)
        columns = np.array(
            [j for j, name in enumerate(domain.names()) if name in table.column_names], np.int64
        )
        if not len(columns):
            raise QueryError("it has none of the columns of the schema")
        # A private number may be clamped to its bounds; a point that somebody asks about is a mistake there.
        strict = Points(tuple(replace(domain.coordinates[j], clamp=False) for j in columns.tolist()))
        rows = encode(table, strict).to_rows().astype(np.int64)
    except DualQueryError as problem:
        raise QueryError(f"the file of points '{path}' does not fit the schema: {problem}") from None
    if not len(rows):
        raise QueryError(f"the file of points '{path}' holds no point")
    positions = np.zeros((len(rows), domain.width), np.int64)
    positions[:, columns] = rows
    return distances_to(domain, positions, columns)


def _read(domain: Points, text: str) -> Point:
    phrase = Phrase(text, f"a question about points reads like {EXAMPLE}")
    phrase.word("distance")
    phrase.word("to")
    phrase.take("(")
    point: Point = {}
    while not point or phrase.takes(","):
        name, column = phrase.attribute(domain)
        if column in point:
            raise Fault(name.column, "this column is named twice")
        phrase.take("=")
        point[column] = _position(domain.coordinates[column], phrase.take("word", "quoted"))
    phrase.take(")")
    phrase.end()
    return point


def _position(coordinate: Coordinate, given: Token) -> int:
    try:
        number = float(given.text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise Fault(given.column, f"'{coordinate.name}' needs a number here")
    low, high = coordinate.edges
    if not low <= number <= high:
        raise Fault(given.column, f"this lies outside the bounds of '{coordinate.name}', {low:g} to {high:g}")
    return int(coordinate.positions(np.array([number]))[0])
