"""The slow engine: every kind of countable from its definition, record by record, without a compiled loop.

What one record adds, φ(x), is written down here once more for each kind. It says what an engine must count, and other
engines are tested against it on small tables (tests/counting/test_reference.py). A kind that is missing fails there.
"""

from __future__ import annotations

from functools import singledispatch
from itertools import combinations, pairwise, permutations
from math import isqrt

import numpy as np

from dualquery.queries.binary import (
    GRID,
    SHIFT,
    Axes,
    Balances,
    Centred,
    CentreSums,
    Classes,
    ClassSums,
    Clip,
    CrossSums,
    Held,
    HeldItems,
    HeldPairs,
    Lengths,
    SecondMoments,
)
from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.cuts import Cuts
from dualquery.queries.distances import DistanceSums, Knots
from dualquery.queries.group import NONE
from dualquery.queries.lists import Lists, NamedCells
from dualquery.queries.statistics import BinSums, CoarseEdges, Countable, SortedCells, TextCounts
from dualquery.queries.tables import Tables
from dualquery.queries.views import MOST_PAIRED, WHOLE, OverUnits, Tallies, ViewTables
from dualquery.table.graph import Graph, cells_of
from dualquery.table.records import HALF, Records
from dualquery.table.units import Units
from dualquery.types import Integers, Words


class Reference:
    """Adds up what each record adds."""

    def counts(self, what: Countable, block: Records) -> Integers:
        total = np.zeros_like(contribution(what, np.zeros(block.domain.width, np.int64), block))
        for number, x in enumerate(block.to_rows().astype(np.int64)):
            alone = block.take(np.array([number])) if block.places or isinstance(block, Units) else block
            total += contribution(what, x, alone)
        return total


@singledispatch
def contribution(what: Countable, x: Integers, block: Records) -> Integers:
    """φ(x) of a record, one code per attribute; of the block the domain, and of the record, its first, what else
    there is of it: the places of its numbers, and the rows that hang on it."""
    raise TypeError(f"{type(what).__name__} has no definition in the reference engine")


def _whole(numbers: object) -> Integers:
    return np.array(numbers, np.int64)


# Queries


@contribution.register
def _(what: Conjunctions, x: Integers, block: Records) -> Integers:
    held = []
    for q, row in enumerate(what.literals.tolist()):
        literals = [divmod(literal, 2) for literal in row if literal != NONE]
        product = all(
            (x[what.predicates.attribute[p]] in what.predicates.accepted(p)) != bool(negated)
            for p, negated in literals
        )
        held.append(product != (what.complement is not None and bool(what.complement[q])))
    return _whole(held)


@contribution.register
def _(what: Parities, x: Integers, block: Records) -> Integers:
    return _whole([sum(x[j] for j in row if j != NONE) % 2 == 0 for row in what.attributes.tolist()])


@contribution.register
def _(what: Tables, x: Integers, block: Records) -> Integers:
    out = np.zeros(what.size, np.int64)
    for table, members in enumerate(what.sets):
        out[what.cells_of(table)].reshape(what.shape_of(table))[tuple(x[list(members)])] = 1
    return out


@contribution.register
def _(what: BinSums, x: Integers, block: Records) -> Integers:
    parts = []
    for column, attribute, bins in zip(what.columns, what.attributes, what.bins, strict=True):
        part, places = np.zeros(bins + 1, np.int64), block.places[column] if block.places else None
        part[x[attribute]] = 0 if places is None or not block.rows else int(places[0]) - HALF
        parts.append(part[:bins])  # what is missing lies in no bin
    return np.concatenate(parts)


@contribution.register
def _(what: TextCounts, x: Integers, block: Records) -> Integers:
    at = block.domain.find(what.name)
    return _whole([x[at] == code for code in range(len(block.domain.labels(at or 0)))])


@contribution.register
def _(what: SortedCells, x: Integers, block: Records) -> Integers:
    at = block.domain.find(what.name) or 0
    (place,) = what.sort([block.domain.labels(at)[x[at]]])
    return _whole([place == number for number in range(what.classes)])


@contribution.register
def _(what: Lists, x: Integers, block: Records) -> Integers:
    lists = zip(what.start, what.start[1:], strict=False)
    return _whole([_cell(x) in what.cells[first:last] for first, last in lists])


@contribution.register
def _(what: NamedCells, x: Integers, block: Records) -> Integers:
    return _whole(what.cells == _cell(x))


def _cell(x: Integers) -> np.uint64:
    return cells_of([_whole([code]).astype(np.uint64) for code in x], 1)[0]


# Graphs


def _edge(domain: Graph, x: Integers) -> tuple[int, int, int]:
    """Both ends and the weight of an edge."""
    source, target = int(x[0]), int(x[1])
    if not domain.directed:
        source, target = min(source, target), max(source, target)
    return source, target, int(x[2]) if len(x) > 2 else 1


@contribution.register
def _(what: Cuts, x: Integers, block: Records) -> Integers:
    source, target, weight = _edge(what.domain, x)

    def crosses(q: int, a: int, b: int) -> bool:
        return _has(what.sources[q], a) and _has(what.targets[q], b)

    either = not what.domain.directed
    return weight * _whole(
        [crosses(q, source, target) or (either and crosses(q, target, source)) for q in range(what.size)]
    )


def _has(members: Words, vertex: int) -> bool:
    return bool(int(members[vertex // 64]) >> vertex % 64 & 1)


@contribution.register
def _(what: CoarseEdges, x: Integers, block: Records) -> Integers:
    source, target, weight = _edge(what.domain, x)
    parts = []
    for table, times in zip(what.tables, what.multipliers, strict=True):
        cells = np.zeros(table.size, np.int64)
        cells[table.cells(_whole([source]), _whole([target]))] = times * weight
        parts.append(cells)
    return np.concatenate(parts)


# Points


@contribution.register
def _(what: DistanceSums, x: Integers, block: Records) -> Integers:
    asked = what.distances
    here, there = asked.axes.placed(tuple(x[:, None])), asked.axes.placed(tuple(asked.positions.T))
    return sum(
        (
            asked.shares[asked.which, axis]
            * np.abs(asked.axes.at(axis, there) - int(asked.axes.at(axis, here)[0]))
            for axis in range(asked.shares.shape[1])
        ),
        start=np.zeros(asked.size, np.int64),
    )


@contribution.register
def _(what: Knots, x: Integers, block: Records) -> Integers:
    parts = []
    for j, factor in zip(what.columns, what.factors, strict=True):
        units = np.zeros(factor.shape[1], np.int64)
        knot, past = divmod(int(what.axes.at(j, what.axes.placed(tuple(x[:, None])))[0]), what.steps)
        units[knot] += what.steps - past
        if past:
            units[knot + 1] += past
        parts.append(factor @ units)
    return np.concatenate([*parts, _whole([what.total] if what.total else [])])


# Wide binary tables


def _places(axes: Axes, x: Integers) -> Integers:
    y = GRID * x[axes.binary.attributes] - axes.centre
    return (y @ axes.directions + (1 << SHIFT - 1)) >> SHIFT


def _class(classes: Classes | None, x: Integers) -> int:
    if classes is None:
        return 0
    return int(((_places(classes.axes, x) - classes.centres) ** 2).sum(axis=1).argmin())


def _vector(centred: Centred, x: Integers) -> Integers:
    return GRID * x[centred.binary.attributes] - centred.centre[_class(centred.classes, x)]


def _weight(clip: Clip, vector: Integers) -> int:
    return next(w for w in range(clip.most, -1, -1) if w * w * int(vector @ vector) <= clip.longest)


def _one_of(number: int, place: int) -> Integers:
    return _whole(np.arange(number) == place)


@contribution.register
def _(what: Balances, x: Integers, block: Records) -> Integers:
    return 2 * x[what.binary.attributes] - 1


@contribution.register
def _(what: Lengths, x: Integers, block: Records) -> Integers:
    y = _vector(what.centred, x)
    return _one_of(len(what.edges) + 1, int((what.edges < y @ y).sum()))


@contribution.register
def _(what: SecondMoments, x: Integers, block: Records) -> Integers:
    y = _vector(what.centred, x)
    z = _weight(what.clip, y) * y
    return _whole([a * b for a, b in combinations(z.tolist(), 2)])


@contribution.register
def _(what: ClassSums, x: Integers, block: Records) -> Integers:
    y = _vector(what.centred, x)
    w = _weight(what.clip, y)
    vector = _whole([what.count_factor * w, *(w * y)])
    return (
        vector
        if what.together
        else np.outer(_one_of(what.number, _class(what.centred.classes, x)), vector).ravel()
    )


@contribution.register
def _(what: CentreSums, x: Integers, block: Records) -> Integers:
    u = _places(what.classes.axes, x)
    w = _weight(what.clip, u)
    sums = np.outer(_one_of(what.classes.number, _class(what.classes, x)), [what.count_factor * w, *(w * u)])
    return np.append(sums.ravel(), w * w * (u @ u) // what.divisor)


@contribution.register
def _(what: CrossSums, x: Integers, block: Records) -> Integers:
    y, u = _vector(what.centred, x), _places(what.axes, x)
    return np.outer(_weight(what.clip, y) * y, _weight(what.axes_clip, u) * u).ravel()


# Items


def _first(what: Held, x: Integers, block: Records) -> list[int]:
    """The places, in the public order, of the items that a record counts with."""
    first, last = block.domain.starts[what.column], block.domain.starts[what.column + 1]
    places = sorted(what.rank[np.flatnonzero(x[first:last])].tolist())
    return [place for place in places if place < what.items][: what.limit]


@contribution.register
def _(what: HeldItems, x: Integers, block: Records) -> Integers:
    held = _first(what, x, block)
    return _whole([item in held for item in range(what.items)])


@contribution.register
def _(what: HeldPairs, x: Integers, block: Records) -> Integers:
    held = _first(what, x, block)
    return _whole([a in held and b in held for a, b in combinations(range(what.items), 2)])


# Units


def _hanging(block: Records, place: int) -> list[list[int]]:
    """The rows of a child table that hang on the one unit of a block."""
    assert isinstance(block, Units)
    rows: list[list[int]] = block.members[place].records.to_rows().tolist()
    return rows


@contribution.register
def _(what: ViewTables, x: Integers, block: Records) -> Integers:
    view = what.view
    rows = _hanging(block, view.database.place(view.child))
    paired = rows if view.slots == 1 else rows[:MOST_PAIRED]
    slots = [*pairwise(rows)] if view.chained else [*permutations(paired, view.slots)]
    weight = WHOLE * min(len(slots), view.c) // (len(slots) * view.c) if slots else 0
    out = np.zeros(what.tables.size, np.int64)
    for slot in slots:
        out += weight * contribution(
            what.tables, _whole([*x, *(code for row in slot for code in row)]), block
        )
    return out


@contribution.register
def _(what: Tallies, x: Integers, block: Records) -> Integers:
    rows, parts = _hanging(block, what.database.place(what.child)), []
    for members, multiplier in zip(what.sets, what.multipliers, strict=True):
        codes, cells = (
            [tuple(row[a] for a in members) for row in rows],
            np.zeros(what.shape(members), np.int64),
        )
        values, most = cells[..., 0].size, cells.shape[-1]
        c, t = min(what.c, values), min(max(len(rows), 1), values)
        for code in {*codes}:
            cells[(*code, min(codes.count(code), most) - 1)] = isqrt(WHOLE**2 * min(t, c) // (t * c))
        parts.append(multiplier * cells.ravel())
    return np.concatenate(parts)


@contribution.register
def _(what: OverUnits, x: Integers, block: Records) -> Integers:
    numbers = []
    for each in what.counted:
        rows = _hanging(block, what.domain.place(each.child))
        numbers.append(sum(each.query.holds([*x.tolist(), *row]) for row in rows))
    return _whole([query.holds([*x.tolist(), *numbers]) for query in what.queries])
