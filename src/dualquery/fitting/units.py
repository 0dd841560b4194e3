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
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.fitting.cpu import GUMBEL, LOGISTIC, STEP, index_below, shuffle, word_of
from dualquery.queries.tables import Tables
from dualquery.queries.views import MOST_PAIRED, WHOLE, Tallies, View, ViewTables
from dualquery.table.database import Database
from dualquery.table.records import Records, smallest_type
from dualquery.table.units import Members, Units
from dualquery.types import Cells, Integers, Set

NONE_SUCH = -1  # no attribute, no row, no tally
_BITS, _PER_WORD = np.uint64(12), 5


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


@njit(cache=True)
def _find(held, layout, group, u, r, a, found, n):  # type: ignore[no-untyped-def]
    """Behind the first n: the flat records, in a group of tables, of unit u (r < 0) or with its row r, whose cell an
    attribute a moves; with a < 0 all. How many there are then.

    A cell is a sum: of the table, of the unit, of the one row and of the other.
    """
    role, attribute, stride = layout.role, layout.attribute, layout.stride
    units, rows, begins = held.units, held.rows, held.begin
    cell, steps, pulls, owns = found.cell, found.step, found.pull, found.own
    places = role.shape[1]
    for q in range(layout.of[group], layout.of[group + 1]):
        t = layout.listed[q]
        kind, w, g = layout.kind[t], layout.weight[t], layout.child[t]
        base, of_unit, of_one, of_two = layout.offset[t], 0, 0, 0
        for k in range(places):
            if role[t, k] < 0:
                break
            if role[t, k] == 0:
                base += units[u, attribute[t, k]] * stride[t, k]
            if attribute[t, k] == a:
                if role[t, k] == 0:
                    of_unit = stride[t, k]
                elif role[t, k] == 1:
                    of_one = stride[t, k]
                else:
                    of_two = stride[t, k]
        if kind == 0:
            cell[n], steps[n], pulls[n], owns[n] = base, of_unit, 1.0, w
            n += 1
            continue
        begin, end = begins[g, u], begins[g, u + 1]
        own = w * layout.counts[g, kind, end - begin]
        if kind == 1:
            for i in range(begin if r < 0 else r, end if r < 0 else r + 1):
                place = base
                for k in range(places):
                    if role[t, k] == 1:
                        place += rows[i, attribute[t, k]] * stride[t, k]
                cell[n], steps[n], pulls[n], owns[n] = place, of_unit if r < 0 else of_one, 1.0, own
                n += 1
            continue
        paired = min(end - begin, MOST_PAIRED)
        if paired < 2 or r >= begin + paired:
            continue
        pull = 1.0 / sqrt(paired * (paired - 1.0))
        for i in range(begin if r < 0 else r, begin + paired if r < 0 else r + 1):
            one, two = base, base
            for k in range(places):
                if role[t, k] == 1:
                    one += rows[i, attribute[t, k]] * stride[t, k]
                elif role[t, k] == 2:
                    two += rows[i, attribute[t, k]] * stride[t, k]
            for j in range(begin, begin + paired):
                if i == j:
                    continue
                as_one, as_two = 0, 0
                for k in range(places):
                    if role[t, k] == 1:
                        as_one += rows[j, attribute[t, k]] * stride[t, k]
                    elif role[t, k] == 2:
                        as_two += rows[j, attribute[t, k]] * stride[t, k]
                if r < 0 or a < 0 or of_one > 0:
                    cell[n], steps[n], pulls[n], owns[n] = (
                        one + as_two,
                        of_unit if r < 0 else of_one,
                        pull,
                        own,
                    )
                    n += 1
                if r >= 0 and (a < 0 or of_two > 0):
                    cell[n], steps[n], pulls[n], owns[n] = two + as_one, of_two, pull, own
                    n += 1
    return n


@njit(cache=True)
def _tally(held, layout, u, r, first, last, found, n):  # type: ignore[no-untyped-def]
    """Behind the first n: what row r, as it is, does to some tallies, which is to enter the cell of one row more, and
    to leave the one before."""
    rows = held.rows
    for q in range(first, last):
        tally = layout.tallies[q]
        g, most, many = layout.tally_child[tally], layout.tally_most[tally], 0
        begin, end = held.begin[g, u], held.begin[g, u + 1]
        one, two = layout.tally_set[tally, 0], layout.tally_set[tally, 1]
        for i in range(begin, end):
            if i != r and rows[i, one] == rows[r, one] and rows[i, two] == rows[r, two]:
                many += 1
        if many >= most:
            continue
        once = layout.tally_counts[tally, end - begin]
        own = once * layout.tally_weight[tally]
        code = rows[r, one] if one == two else rows[r, one] * layout.row_sizes[g, two] + rows[r, two]
        cell = layout.tally_offset[tally] + code * most + many
        found.cell[n], found.step[n], found.pull[n], found.own[n] = cell, 0, once, own
        n += 1
        if many:
            found.cell[n], found.step[n], found.pull[n], found.own[n] = cell - 1, 0, -once, -own
            n += 1
    return n


@njit(cache=True)
def _add_tally_gains(held, layout, u, r, first, last, a, values, residual, gain):  # type: ignore[no-untyped-def]
    """gain[v] += what the residual says of row r with each value v of attribute a in these tallies."""
    rows = held.rows
    before = rows[r, a]
    for q in range(first, last):
        tally = layout.tallies[q]
        g, most = layout.tally_child[tally], layout.tally_most[tally]
        begin, end = held.begin[g, u], held.begin[g, u + 1]
        one, two = layout.tally_set[tally, 0], layout.tally_set[tally, 1]
        once = layout.tally_counts[tally, end - begin]
        for v in range(values):
            rows[r, a] = v
            many = 0
            for i in range(begin, end):
                if i != r and rows[i, one] == rows[r, one] and rows[i, two] == rows[r, two]:
                    many += 1
            if many < most:
                code = rows[r, one] if one == two else rows[r, one] * layout.row_sizes[g, two] + rows[r, two]
                cell = layout.tally_offset[tally] + code * most + many
                gain[v] += once * (residual[cell] - (residual[cell - 1] if many else 0.0))
    rows[r, a] = before


@njit(cache=True)
def _add(found, first, last, residual, sign):  # type: ignore[no-untyped-def]
    for e in range(first, last):
        residual[found.cell[e]] += sign * found.own[e]


@njit(cache=True)
def _sum(found, first, last, residual):  # type: ignore[no-untyped-def]
    total = 0.0
    for e in range(first, last):
        total += found.pull[e] * residual[found.cell[e]]
    return total


@njit(cache=True)
def _answer(  # type: ignore[no-untyped-def]
    held, layout, g, u, r, a, residual, found, temperature, counter, gain
):
    """Attribute a of unit u, or of its row r, best-responds."""
    if r < 0:
        values, old, group = layout.unit_sizes[a], held.units[u, a], a
    else:
        values, old, group = layout.row_sizes[g, a], held.rows[r, a], layout.of_rows[g] + a
    if values < 2:
        return counter
    n = last = _find(held, layout, group, u, r, a, found, 0)
    first, end = layout.of_tallies[group], layout.of_tallies[group + 1]
    if r >= 0:
        last = _tally(held, layout, u, r, first, end, found, n)
    _add(found, 0, last, residual, 1.0)
    gain[:values] = 0.0
    for e in range(n):
        step, pull = found.step[e], found.pull[e]
        place = found.cell[e] - old * step
        for v in range(values):
            gain[v] += pull * residual[place + v * step]
    if r >= 0:
        _add_tally_gains(held, layout, u, r, first, end, a, values, residual, gain)
    left, word = 0, np.uint64(0)
    best = old
    for v in range(values):
        if left == 0:
            counter += STEP
            word = word_of(counter)
            left = _PER_WORD
        gain[v] += temperature * GUMBEL[word & np.uint64(4095)]
        word >>= _BITS
        left -= 1
    for v in range(values):
        if gain[v] > gain[best]:
            best = v
    if r < 0:
        held.units[u, a] = best
    else:
        held.rows[r, a] = best
        last = _tally(held, layout, u, r, first, end, found, n)
    for e in range(n):
        residual[found.cell[e] + (best - old) * found.step[e]] -= found.own[e]
    _add(found, n, last, residual, -1.0)
    return counter


@njit(cache=True)
def answer_units(held, layout, residual, found, temperature, counters):  # type: ignore[no-untyped-def]
    """Once over all units in random order: first their own attributes, then those of their rows. The sizes, which are
    the last attributes of a unit, stay."""
    children = len(layout.width)
    own = held.units.shape[1] - children
    order = np.arange(len(held.units))
    counter = shuffle(order, counters[0])
    gain = np.empty(max(layout.unit_sizes.max(), layout.row_sizes.max()))
    for u in order:
        for a in range(own):
            counter = _answer(held, layout, 0, u, -1, a, residual, found, temperature, counter, gain)
        for g in range(children):
            for r in range(held.begin[g, u], held.begin[g, u + 1]):
                for a in range(layout.width[g]):
                    counter = _answer(held, layout, g, u, r, a, residual, found, temperature, counter, gain)
    counters[0] = counter


@njit(cache=True)
def _find_row(held, layout, g, u, r, found, n):  # type: ignore[no-untyped-def]
    """All flat records with row r, and its tallies."""
    group = layout.of_rows[g] + layout.width[g]
    n = _find(held, layout, group, u, r, -1, found, n)
    first, last = layout.of_tallies[group], layout.of_tallies[group + 1]
    return _tally(held, layout, u, r, first, last, found, n)


@njit(cache=True)
def swap_rows(held, layout, residual, found, temperature, counters):  # type: ignore[no-untyped-def]
    """As many proposals as there are rows: two rows of different units change places."""
    counter, rows = counters[0], held.rows
    for g in range(len(layout.width)):
        width = layout.width[g]
        first, last = held.begin[g, 0], held.begin[g, -1]
        owner = np.empty(last - first, np.int64)
        for u in range(len(held.units)):
            owner[held.begin[g, u] - first : held.begin[g, u + 1] - first] = u
        for _ in range(last - first):
            counter += STEP
            r = first + index_below(counter, last - first)
            counter += STEP
            s = first + index_below(counter, last - first)
            counter += STEP
            noise = LOGISTIC[word_of(counter) & np.uint64(4095)]
            u, v = owner[r - first], owner[s - first]
            same = u == v
            if not same:
                same = True
                for a in range(width):
                    same = same and rows[r, a] == rows[s, a]
            if same:
                continue
            n = _find_row(held, layout, g, v, s, found, _find_row(held, layout, g, u, r, found, 0))
            _add(found, 0, n, residual, 1.0)
            stay = _sum(found, 0, n, residual)
            for a in range(width):
                rows[r, a], rows[s, a] = rows[s, a], rows[r, a]
            more = _find_row(held, layout, g, v, s, found, _find_row(held, layout, g, u, r, found, n))
            if _sum(found, n, more, residual) - stay + temperature * noise > 0:
                _add(found, n, more, residual, -1.0)
                continue
            for a in range(width):
                rows[r, a], rows[s, a] = rows[s, a], rows[r, a]
            _add(found, 0, n, residual, -1.0)
    counters[0] = counter
