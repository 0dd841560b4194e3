"""Whole units best-respond: what is fitted to measured views is units, each with the rows that hang on it.

As rows answer tables one after another (`fitting.fitter`), so do units. The residual challenges, w·(N·y − counts), of
tables over units, over rows with their unit, and over pairs of rows, and of tallies. In a pass the units come in
random order. Each attribute of a unit, and then each attribute of each of its rows, takes the value of greatest
gain + temperature · Gumbel noise, its own part being taken out first. A gain is the sum of the residual over all
flat records that the attribute is part of; of a pair of rows it counts 1/√(p(p − 1)), of p rows that are paired, so
that those of a large unit do not drown the rest. (To count a row of m by 1/m would hold large units back.) Which unit
a row belongs to is settled by swaps: two rows of different units change places, or not, by the logistic law of the
same temperature. The number of rows of each unit stays.

Lean is part of the residual (`fitting.fitter.Targets.add_lean`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.unit_kernels import answer_units, swap_rows
from dualquery.queries.tables import Tables
from dualquery.queries.views import MOST_PAIRED, WHOLE, Tallies, View, ViewTables
from dualquery.table.database import Database
from dualquery.table.records import Records, smallest_type
from dualquery.table.units import Members, Units
from dualquery.types import Cells, Integers, Set

NONE_SUCH = -1  # no attribute, no row, no tally


@dataclass(frozen=True, eq=False)
class UnitTarget:
    """A table that units should answer: of a view, or (None) of the units themselves, in numbers a unit.

    They lower weight · ‖N·target − counts‖², and lean to `lean` as if N times it were residual.
    """

    view: View | None
    members: Set
    target: Cells
    weight: float
    lean: Cells | float = 0.0

    def counts(self, units: Units) -> Cells:
        """Of some units, in the target's unit and shape."""
        return counted([self], units)[0]


def counted(targets: Sequence[UnitTarget], units: Units) -> list[Cells]:
    """The counts of each target; those of a view are counted at once."""
    out: dict[int, Cells] = {}
    for view in dict.fromkeys(each.view for each in targets):
        mine = [number for number, each in enumerate(targets) if each.view == view]
        sets = tuple(targets[number].members for number in mine)
        if view is None:
            tables = Tables(units.domain, sets)
            cells = tables.split(tables.counts(units) / 1.0)
        else:
            of_view = ViewTables(view, sets)
            cells = of_view.tables.split(of_view.counts(units) / WHOLE)
        out |= dict(zip(mine, cells, strict=True))
    return [out[number] for number in range(len(targets))]


@dataclass(frozen=True, eq=False)
class TallyTarget:
    """The tallies of one set of attributes, one or two, that units should answer, in numbers a unit."""

    tallies: Tallies
    target: Cells
    weight: float

    def counts(self, units: Units) -> Cells:
        return self.tallies.counts(units).reshape(self.target.shape) / WHOLE


class Layout(NamedTuple):
    """Where the cells of tables lie: table t begins at offset[t], and the code of the attribute in place k of it, of
    role 0 (the unit), 1 (a row) or 2 (the other row), steps by stride[t, k].

    `kind` is the largest role, `child` the number of the child table, `counts` what a flat record of a unit with so
    many rows counts, by child table and kind. The tables of attribute a of the unit are listed[of[a] : of[a + 1]];
    behind them come, child table by child table, those of each attribute of a row, and at last all with any of its
    rows.
    """

    unit_sizes: Integers
    row_sizes: Integers  # by child table
    width: Integers  # attributes of each child table
    chained: NDArray[np.bool_]  # whether a pair of its rows is a row and the next one
    role: Integers
    attribute: Integers
    stride: Integers
    offset: Integers
    kind: Integers
    child: Integers
    weight: Cells
    counts: Cells
    of: Integers
    listed: Integers
    of_rows: Integers  # where the attributes of a child table begin in `of`, and in `of_tallies`
    of_tallies: (
        Integers  # the tallies of each attribute of a row, and all of a child table, listed as tables are
    )
    tallies: Integers
    tally_child: Integers
    tally_set: Integers  # two attributes, or one twice
    tally_offset: Integers
    tally_most: Integers  # k at most
    tally_weight: Cells
    tally_counts: Cells  # of a unit with so many rows


class UnitCodes(NamedTuple):
    """The units: codes of their own attributes, of all rows of all child tables, and where the rows of each begin."""

    units: NDArray[np.int32]
    rows: NDArray[np.int32]
    begin: Integers  # by child table


class FlatRecords(NamedTuple):
    """Flat records that hold something: their cell, the step of the attribute that moves, how much their residual
    counts, and how much they themselves weigh in it."""

    cell: Integers
    step: Integers
    pull: Cells
    own: Cells


def fit_units(
    start: Units,
    targets: Sequence[UnitTarget],
    tallies: Sequence[TallyTarget],
    heat: Iterable[float],
    rng: np.random.Generator,
) -> Units:
    """The units after passes of these temperatures, in units."""
    layout, held = layout_of(start.database, targets, tallies), held_of(start)
    parts = [
        (start.rows * (each.weight * each.target + each.lean) - each.weight * counts).ravel()
        for each, counts in zip(targets, counted(targets, start), strict=True)
    ]
    parts += [each.weight * (start.rows * each.target - each.counts(start)).ravel() for each in tallies]
    residual = np.concatenate(parts)
    found = room_for(layout, held)
    counter = rng.integers(0, 1 << 63, 1, dtype=np.uint64)
    for temperature in heat:
        answer_units(held, layout, residual, found, float(temperature), counter)
        swap_rows(held, layout, residual, found, float(temperature), counter)
    return units_from(start, held)


def held_of(units: Units) -> UnitCodes:
    columns = [np.asarray(codes, np.int32) for codes in units.columns]
    rows = [each.records.to_rows().astype(np.int32) for each in units.members]
    widest = max(each.shape[1] for each in rows)
    rows = [np.pad(each, ((0, 0), (0, widest - each.shape[1]))) for each in rows]
    before = np.cumsum([0, *(len(each) for each in rows)])
    begin = np.stack([each.start + at for each, at in zip(units.members, before, strict=False)])
    return UnitCodes(np.stack(columns, axis=1), np.concatenate(rows), begin)


def units_from(start: Units, held: UnitCodes) -> Units:
    """The units again; their numbers of rows are those of the start."""
    members = []
    for number, each in enumerate(start.members):
        rows = held.rows[held.begin[number, 0] : held.begin[number, -1]]
        members.append(Members(each.start, _records(each.records, rows)))
    flat = _records(start, held.units)
    return replace(start, columns=flat.columns, members=tuple(members))


def _records(like: Records, codes: NDArray[np.int32]) -> Records:
    sizes = like.domain.sizes
    columns = [codes[:, j].astype(smallest_type(int(size))) for j, size in enumerate(sizes)]
    return Records(like.domain, len(codes), tuple(columns))


def layout_of(database: Database, targets: Sequence[UnitTarget], tallies: Sequence[TallyTarget]) -> Layout:
    children = [each.domain.sizes for each in database.children]
    widest, most_rows = max(map(len, children)), max(each.at_most for each in database.children)
    row_sizes = np.ones((len(children), widest), np.int64)
    for g, sizes in enumerate(children):
        row_sizes[g, : len(sizes)] = sizes
    longest = max(len(each.members) for each in targets)
    role = np.full((len(targets), longest), NONE_SUCH)
    attribute, stride = np.zeros_like(role), np.zeros_like(role)
    offset, child, kind = (np.zeros(len(targets), np.int64) for _ in range(3))
    counts = np.zeros((len(children), 3, most_rows + 1))
    place = 0
    for t, each in enumerate(targets):
        offset[t], step = place, each.target.size
        child[t] = 0 if each.view is None else database.place(each.view.child)
        for k, (j, size) in enumerate(zip(each.members, each.target.shape, strict=True)):
            step //= size
            role[t, k], attribute[t, k] = role_of(database, each.view, j)
            stride[t, k] = step
        kind[t] = role[t].max()
        if each.view is not None:
            weights = each.view.weights
            counts[child[t], each.view.slots, : len(weights)] = weights / WHOLE
        place += each.target.size
    sets = [each.tallies.sets[0] for each in tallies]
    tally_child = np.array([database.place(each.tallies.child) for each in tallies], np.int64)
    tally_counts = np.zeros((len(tallies), most_rows + 1))
    for number, tally in enumerate(tallies):
        weights = tally.tallies.weights(sets[number])
        tally_counts[number, : len(weights)] = weights / WHOLE
    ends = place + np.cumsum([0, *(each.target.size for each in tallies)])
    lists = [_with(role, attribute, np.ones(len(targets), np.bool_), {0}, a) for a in range(database.width)]
    of_rows, of_tallies = [], [list[int]() for _ in range(len(lists))]
    for g, sizes in enumerate(children):
        of_rows.append(len(lists))
        mine = (child == g) & (kind > 0)
        lists += [_with(role, attribute, mine, {1, 2}, a) for a in range(len(sizes))]
        lists.append(np.flatnonzero(mine))
        of_child = [q for q in range(len(sets)) if tally_child[q] == g]
        of_tallies += [[q for q in of_child if a in sets[q]] for a in range(len(sizes))]
        of_tallies.append(of_child)
    return Layout(
        unit_sizes=database.sizes.astype(np.int64),
        row_sizes=row_sizes,
        width=np.array([len(sizes) for sizes in children]),
        chained=np.array([each.order is not None for each in database.children]),
        role=role,
        attribute=attribute,
        stride=stride,
        offset=offset,
        kind=kind,
        child=child,
        weight=np.array([each.weight for each in targets]),
        counts=counts,
        of=np.cumsum([0, *map(len, lists)]),
        listed=np.concatenate(lists),
        of_rows=np.array(of_rows),
        of_tallies=np.cumsum([0, *map(len, of_tallies)]),
        tallies=np.array([q for each in of_tallies for q in each], np.int64),
        tally_child=tally_child,
        tally_set=np.array([(members[0], members[-1]) for members in sets], np.int64).reshape(-1, 2),
        tally_offset=ends[:-1],
        tally_most=np.array([each.target.shape[-1] for each in tallies], np.int64),
        tally_weight=np.array([each.weight for each in tallies], np.float64),
        tally_counts=tally_counts,
    )


def role_of(database: Database, view: View | None, column: int) -> tuple[int, int]:
    """Whose attribute a column of a view is, and which: 0 of the unit, 1 of a row, 2 of the other row."""
    if view is None or column < database.width:
        return 0, column
    row, attribute = divmod(column - database.width, database.child(view.child).domain.width)
    return 1 + row, attribute


def _with(
    role: Integers, attribute: Integers, some: NDArray[np.bool_], roles: set[int], a: int
) -> NDArray[np.int64]:
    held = np.isin(role, [*roles]) & (attribute == a)
    return np.flatnonzero(held.any(axis=1) & some)


def room_for(layout: Layout, held: UnitCodes) -> FlatRecords:
    """For the flat records of all tables with one unit, or with two rows before and after a swap."""
    most = int(np.diff(held.begin, axis=1).max())
    paired = min(most, MOST_PAIRED)
    room = 4 * (len(layout.kind) * max(1, most, paired * paired) + 2 * len(layout.tally_child))
    numbers = np.zeros((2, room), np.int64), np.zeros((2, room))
    return FlatRecords(*numbers[0], *numbers[1])
