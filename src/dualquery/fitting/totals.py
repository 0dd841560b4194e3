"""Rows that meet public totals exactly: fitted rows are raked to them, and the raked table is rounded to whole rows.

Totals are tables of whole numbers over a few attributes each. *Raking* (Deming and Stephan 1940) multiplies the table
of fitted rows, cell by cell, until it has them as margins. *Rounding* keeps the margins: tables are joined one after
the other, where what a table shares with those before lies within one of them. Each join is, cell by cell of what is
shared, a matrix with whole row and column sums, and every such matrix rounds to whole numbers with the same sums
(a flow, Ford and Fulkerson 1956). Of tables that go round in a circle this need not be true, so they are refused.

Rows of a block are drawn from the fitted rows of their cell. Each block of as many rows as the totals count meets
them by itself. All of it is made of public things.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.queries.rules import zeros_of
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain
from dualquery.table.records import Records, smallest_type
from dualquery.types import Cells, Flags, Integers, Set

Number = TypeVar("Number", np.int64, np.float64)

MOST_CELLS = 1_000_000  # of the table over all attributes that totals are about
MOST_COUNTED = 10**7  # rows that are released
MOST_ROWS = 120_000  # of all blocks together, where more than one is made
ROUNDS = 200  # of raking
CLOSE = 1e-10  # of a share, when it is over
UNSEEN = 1e-6  # of the mass: what a cell without fitted rows has before it is raked


@dataclass(frozen=True, eq=False)
class Totals:
    """Tables of whole numbers that rows must have. They agree with each other, and their joins have an order."""

    domain: Domain
    tables: tuple[tuple[Set, Integers], ...]

    @property
    def number(self) -> int:
        """Of records that they count."""
        return int(self.tables[0][1].sum())

    @property
    def members(self) -> Set:
        """All attributes that they are about."""
        return tuple(sorted({j for members, _ in self.tables for j in members}))

    @property
    def names(self) -> tuple[str, ...]:
        names = list(self.domain.names())
        return tuple(names[j] for j in self.members)

    @staticmethod
    def of(domain: Domain, tables: Sequence[tuple[Set, Integers]]) -> Totals:
        """DataError where they contradict each other, or what the schema says cannot be."""
        names = list(domain.names())
        for (a, one), (b, other) in combinations(tables, 2):
            shared = tuple(j for j in a if j in b)
            if not np.array_equal(_margin(one, a, shared), _margin(other, b, shared)):
                about = (
                    f"how many have which {' and '.join(names[j] for j in shared)}" if shared else "how many"
                )
                raise DataError(f"the totals contradict each other: they do not agree {about} there are")
        made = Totals(domain, tuple(tables))
        if made.number < 1:
            raise DataError("the totals count nobody; leave them out")
        if made.number > MOST_COUNTED:
            raise DataError(f"the totals count more than {MOST_COUNTED:,} records, too many rows to release")
        if math.prod(made._shape(made.members)) > MOST_CELLS:
            raise DataError(
                f"the totals are about {len(made.members)} attributes that have more than {MOST_CELLS:,} "
                "combinations; leave some of them out"
            )
        for members, counts in tables:
            zeros = zeros_of(domain, members) if domain.rules else None
            if zeros is not None and counts[zeros].any():
                raise DataError(
                    f"the totals of {' and '.join(names[j] for j in members)} contradict the schema: they count "
                    "records that its rules exclude"
                )
        made.rounded(made.raked(np.ones(made._shape(made.members))), np.random.default_rng(0))
        return made

    def counted(self, records: Records) -> Totals:
        """The same totals of other records."""
        tables = Tables(self.domain, tuple(members for members, _ in self.tables))
        return Totals(self.domain, tuple(zip(tables.sets, tables.split(tables.counts(records)), strict=True)))

    def _shape(self, members: Set) -> tuple[int, ...]:
        return tuple(int(self.domain.sizes[j]) for j in members)

    def raked(self, seen: Cells) -> Cells:
        """The table over all attributes, with these totals as margins, that has least relative entropy to `seen`."""
        table = seen / seen.sum() + UNSEEN / seen.size
        if self.domain.rules and (zeros := zeros_of(self.domain, self.members)) is not None:
            table = np.where(zeros, 0.0, table)
        for _ in range(ROUNDS):
            off = 0.0
            for members, counts in self.tables:
                now = _margin(table, self.members, members)
                off = max(off, float(np.abs(now - counts).max()) / self.number)
                ratio = np.divide(counts, now, out=np.zeros_like(now), where=now > 0)
                table = table * _spread(ratio, members, self.members)
            if off < CLOSE:
                break
        return table

    def rounded(self, raked: Cells, rng: np.random.Generator) -> Integers:
        """Whole numbers near to a raked table that have exactly these totals."""
        whole = self.members
        possible = None if not self.domain.rules else zeros_of(self.domain, whole)
        (members, counts), *rest = _in_order(self.tables, list(self.domain.names()))
        for other, more in rest:
            joined = tuple(sorted({*members, *other}))
            wanted = _margin(raked, whole, joined)
            open_to = (
                np.ones(wanted.shape, np.bool_)
                if possible is None
                else _margin((~possible).astype(np.int64), whole, joined) > 0
            )
            counts = _joined(wanted, open_to, joined, (members, counts), (other, more), rng)
            members = joined
        return counts

    def met(self, records: Records, rng: np.random.Generator) -> Records:
        """As many blocks of rows as come near to the number of fitted ones, each of which has these totals."""
        shape, codes = self._shape(self.members), [np.asarray(records.columns[j]) for j in self.members]
        cell = np.ravel_multi_index([each.astype(np.int64) for each in codes], shape)
        seen = np.bincount(cell, minlength=math.prod(shape)).reshape(shape)
        order = rng.permutation(len(cell))
        order = order[np.argsort(cell[order], kind="stable")]
        first = np.concatenate([[0], np.cumsum(seen.ravel())])[:-1]
        used, parts, cells = np.zeros(seen.size, np.int64), [], []
        raked = self.raked(seen.astype(np.float64))
        for _ in range(max(1, round(min(records.rows, MOST_ROWS) / self.number))):
            number = self.rounded(raked, rng).ravel()
            mine = np.repeat(np.arange(seen.size), number)
            turn = np.arange(len(mine)) - np.repeat(np.cumsum(number) - number, number)
            held = seen.ravel()[mine]
            place = first[mine] + (used[mine] + turn) % np.maximum(held, 1)
            rows = order[np.minimum(place, len(order) - 1)]
            rows[held == 0] = rng.integers(0, records.rows, int((held == 0).sum()))
            used += number
            mixed = rng.permutation(len(mine))
            parts.append(rows[mixed])
            cells.append(mine[mixed])
        made = records.take(np.concatenate(parts))
        columns = list(made.columns)
        for j, values in zip(self.members, np.unravel_index(np.concatenate(cells), shape), strict=True):
            columns[j] = values.astype(smallest_type(int(self.domain.sizes[j])))
        return replace(made, columns=tuple(columns), places=())


def _margin(table: NDArray[Number], members: Set, kept: Set) -> NDArray[Number]:
    found: NDArray[Number] = table.sum(axis=tuple(axis for axis, j in enumerate(members) if j not in kept))
    return found


def _spread(table: Cells, members: Set, whole: Set) -> Cells:
    """With an axis of length one for each attribute that it lacks."""
    return table.reshape([table.shape[members.index(j)] if j in members else 1 for j in whole])


def _in_order(tables: Sequence[tuple[Set, Integers]], names: Sequence[str]) -> list[tuple[Set, Integers]]:
    """Such that what a table shares with all before lies within one of them; DataError where that cannot be."""
    left, order = sorted(tables, key=lambda each: -len(each[0])), []
    order.append(left.pop(0))
    while left:
        before = {j for members, _ in order for j in members}
        next_one = max(left, key=lambda each: max(len({*each[0]} & {*members}) for members, _ in order))
        shared = {*next_one[0]} & before
        if not any(shared <= {*members} for members, _ in order):
            around = ", ".join(names[j] for j in sorted(shared))
            raise DataError(
                f"the totals of {around} go round in a circle, and whole records cannot always meet such; leave "
                "one table out, or give one over all of these"
            )
        left = [each for each in left if each is not next_one]
        order.append(next_one)
    return order


def _joined(
    wanted: Cells,
    possible: Flags,
    joined: Set,
    one: tuple[Set, Integers],
    other: tuple[Set, Integers],
    rng: np.random.Generator,
) -> Integers:
    """The table over both, in whole numbers, that has both as margins: a matrix for each cell of what they share."""
    (a, rows), (b, columns) = one, other
    shared = tuple(j for j in joined if j in a and j in b)
    left, right = (tuple(j for j in each if j not in shared) for each in (a, b))
    axes = [joined.index(j) for j in (*shared, *left, *right)]
    shape = [wanted.shape[axis] for axis in axes]
    cut = (math.prod(shape[: len(shared)]), math.prod(shape[len(shared) : len(shared) + len(left)]), -1)
    near, open_to = (np.transpose(each, axes).reshape(cut) for each in (wanted, possible))
    downs = np.transpose(rows, [a.index(j) for j in (*shared, *left)]).reshape(cut[:2])
    acrosses = np.transpose(columns, [b.index(j) for j in (*shared, *right)]).reshape(cut[0], -1)
    out = np.stack(
        [
            whole_matrix(each, flags, down, across, rng)
            for each, flags, down, across in zip(near, open_to, downs, acrosses, strict=True)
        ]
    )
    found: Integers = np.transpose(out.reshape(shape), np.argsort(axes))
    return found


def whole_matrix(
    near: Cells, possible: Flags, rows: Integers, columns: Integers, rng: np.random.Generator
) -> Integers:
    """Whole numbers with these row and column sums: those near, rounded down, and one more where there is room.

    What is missing then goes by flow. DataError where what is possible leaves no such matrix.
    """
    out = np.where(possible, np.floor(near + 1e-7), 0).astype(np.int64)
    for axis, sums in ((1, rows), (0, columns)):  # raking comes near, and no nearer
        for n in np.flatnonzero(out.sum(axis=axis) > sums):
            line = out[n] if axis else out[:, n]
            excess = int(line.sum() - sums[n])
            falling = np.argsort(-line)
            for place in falling:
                taken = min(excess, int(line[place]))
                line[place] -= taken
                excess -= taken
    lacks, room = rows - out.sum(axis=1), columns - out.sum(axis=0)
    turn = np.argsort(np.where(possible, -(near - out - rng.random(near.shape)), np.inf), axis=None)
    for flat in turn[: int(possible.sum())]:
        i, j = divmod(int(flat), out.shape[1])
        if lacks[i] and room[j] and near[i, j] > out[i, j]:
            out[i, j] += 1
            lacks[i] -= 1
            room[j] -= 1
    for i in np.flatnonzero(lacks):
        while lacks[i]:
            _sent(out, possible, int(i), lacks, room)
    return out


def _sent(out: Integers, possible: Flags, start: int, lacks: Integers, room: Integers) -> None:
    """As many as can be from a row that lacks some, over rows that give and take, to a column with room."""
    came: dict[int, tuple[int, int]] = {}  # of a row: the column that it gave up, and the row that took it
    queue = deque([start])
    while queue:
        i = queue.popleft()
        free = np.flatnonzero(possible[i] & (room > 0))
        if len(free):
            path, j = [(i, int(free[0]))], int(free[0])
            while i != start:
                given, taker = came[i]
                path += [(i, -1 - given), (taker, given)]
                i = taker
            limits = [int(out[r, -1 - c]) for r, c in path if c < 0]
            number = min([int(lacks[start]), int(room[j]), *limits])
            for r, c in path:
                out[r, c if c >= 0 else -1 - c] += number if c >= 0 else -number
            lacks[start] -= number
            room[j] -= number
            return
        for column in np.flatnonzero(possible[i]):
            for other in np.flatnonzero(out[:, column]):
                if int(other) != start and int(other) not in came:
                    came[int(other)] = int(column), i
                    queue.append(int(other))
    raise DataError("the totals leave no table that keeps the rules of the schema; look at both")
