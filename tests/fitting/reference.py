"""The fitter in plain numpy, from its definition: slow, and what every other one is tested against.

Residuals are worked out from counts of tables in double precision, cell by cell. Rows, attributes and noise come in
the order of `cpu.answer_rows`, so that tables of attributes of any sizes are fitted to the same rows there, seed by
seed; its kernels for binary attributes and for items draw one logistic number where this draws two of Gumbel's law,
and agree in distribution.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations

import numpy as np

from dualquery.fitting.cpu import GUMBEL, LOGISTIC
from dualquery.fitting.fitter import RAREST, Chains, ItemTargets, Rows, Seeds, Targets
from dualquery.fitting.units import TallyTarget, UnitTarget
from dualquery.queries.views import MOST_PAIRED, WHOLE
from dualquery.table.units import Units, units_of
from dualquery.types import Cells, Set

WORD = (1 << 64) - 1


class ReferenceFitter:
    """One chain after another, one row after another, one table after another."""

    def fit(
        self, targets: Targets | ItemTargets, start: Chains, heat: Sequence[float], seeds: Seeds
    ) -> Iterator[Chains]:
        tables = _as_tables(targets) if isinstance(targets, ItemTargets) else targets
        chains = [
            _Chain(tables, rows.copy(), _Chance(int(seed))) for rows, seed in zip(start, seeds, strict=True)
        ]
        for temperature in heat:
            for chain in chains:
                chain.answer(temperature)
            yield np.stack([chain.rows for chain in chains])


def _as_tables(items: ItemTargets) -> Targets:
    """Items and pairs as tables of which one cell is asked for: a weight for each cell."""
    width = len(items.single)
    lean = {j: np.array([1 - p, p]) for j, p in enumerate(np.clip(items.single, RAREST, 1 - RAREST))}
    targets = Targets(np.full(width, 2), lean)
    for i in range(width):
        for j in range(i, width):
            members, shape = ((i,), (2,)) if i == j else ((i, j), (2, 2))
            weight = np.zeros(shape)
            weight[(1,) * len(members)] = items.weight_single if i == j else items.weight_pair
            targets.pull[members] = weight * (items.single[i] if i == j else items.pair[i, j])
            targets.weight[members] = weight  # type: ignore[assignment]
    return targets


class _Chance:
    """The generator of the kernels: counted words, of which a draw of noise takes twelve bits and a place 32."""

    def __init__(self, seed: int) -> None:
        self._counter = seed

    def word(self) -> int:
        """The next word of splitmix64 (Steele, Lea, Flood 2014)."""
        self._counter = z = (self._counter + 0x9E3779B97F4A7C15) & WORD
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & WORD
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & WORD
        return z ^ (z >> 31)

    def below(self, bound: int) -> int:
        return ((self.word() >> 32) * bound) >> 32

    def shuffle(self, order: list[int]) -> list[int]:
        for i in range(len(order) - 1, 0, -1):
            k = self.below(i + 1)
            order[i], order[k] = order[k], order[i]
        return order

    def gumbel(self, number: int) -> Cells:
        words = [self.word() for _ in range(-(-number // 5))]
        places = [(words[v // 5] >> (12 * (v % 5))) & 0xFFF for v in range(number)]
        return GUMBEL[places].astype(np.float64)


class _Chain:
    """Rows, and for each table the weighted residual w·(N·y − counts)."""

    def __init__(self, targets: Targets, rows: Rows, chance: _Chance) -> None:
        self.rows = rows
        self._targets = targets
        self._chance = chance
        self._residual = {s: len(rows) * pull.astype(np.float64) for s, pull in targets.pull.items()}
        self._weight = {s: np.broadcast_to(w, self._residual[s].shape) for s, w in targets.weight.items()}
        for row in rows:
            self._put(row, -1)

    def _put(self, row: Rows, sign: int) -> None:
        for members, residual in self._residual.items():
            cell = tuple(row[list(members)])
            residual[cell] += sign * self._weight[members][cell]

    def _gains(self, row: Rows, j: int) -> Cells:
        """Of each value of attribute j, the row being taken out."""
        gains = np.zeros(int(self._targets.sizes[j]))
        for members, residual in self._residual.items():
            if j in members:
                along: Set = tuple(slice(None) if i == j else row[i] for i in members)  # type: ignore[misc]
                gains += residual[along] - self._weight[members][along] / 2
        return gains

    def answer(self, temperature: float) -> None:
        """A pass."""
        asked = {j for members in self._residual for j in members if self._targets.sizes[j] > 1}
        order = list(range(self.rows.shape[1]))
        for r in self._chance.shuffle(list(range(len(self.rows)))):
            row = self.rows[r]
            for j in self._chance.shuffle(order):
                if j not in asked:
                    continue
                self._put(row, 1)
                gains = self._gains(row, j)
                if temperature > 0:
                    lean = self._targets.lean.get(j, np.ones(len(gains)))
                    noise = self._chance.gumbel(len(gains))
                    gains += temperature * (np.log(np.maximum(lean, RAREST)) + noise)
                best = int(np.argmax(gains))
                if gains[best] > gains[row[j]]:  # of two alike the present one stays
                    row[j] = best
                self._put(row, -1)


def reference_units(
    start: Units,
    targets: Sequence[UnitTarget],
    tallies: Sequence[TallyTarget],
    heat: Sequence[float],
    rng: np.random.Generator,
) -> Units:
    """What `units.fit_units` gives, from its definition."""
    fitted = _WholeUnits(
        start, targets, tallies, _Chance(int(rng.integers(0, 1 << 63, 1, dtype=np.uint64)[0]))
    )
    for temperature in heat:
        fitted.answer(temperature)
        fitted.swap(temperature)
    return fitted.units()


class _WholeUnits:
    """Units as lists; of each table and tally the weighted residual. A part is what a flat record adds to a cell."""

    def __init__(
        self, start: Units, targets: Sequence[UnitTarget], tallies: Sequence[TallyTarget], chance: _Chance
    ) -> None:
        self._start, self._targets, self._tallies, self._chance = start, targets, tallies, chance
        self._own: list[list[int]] = start.to_rows().tolist()
        self._rows: list[list[list[list[int]]]] = [
            [each.records.to_rows()[a:b].tolist() for a, b in zip(each.start, each.start[1:], strict=False)]
            for each in start.members
        ]
        number = start.rows
        self._residual = [
            number * (each.weight * each.target + each.lean) - each.weight * each.counts(start)
            for each in targets
        ] + [each.weight * (number * each.target - each.counts(start)) for each in tallies]

    def units(self) -> Units:
        children = self._start.database.children
        tables = [
            (np.array([len(each) for each in rows]), np.array([row for each in rows for row in each]))
            for rows in self._rows
        ]
        own = np.array(self._own)[:, : self._start.database.width - len(children)]
        return units_of(self._start.database, own, tables)

    def _parts(
        self, u: int, g: int | None, i: int, a: int | None = None
    ) -> list[tuple[int, Set, float, float]]:
        """Table, cell, pull and weight of all flat records of unit u; or with row i of table g, and its tallies. With
        an attribute only where it says which cell it is."""
        own_width = self._start.database.width
        out: list[tuple[int, Set, float, float]] = []
        for t, each in enumerate(self._targets):
            child = None if each.view is None else self._start.database.place(each.view.child)
            if g is not None and child != g:
                continue
            rows = [] if child is None else self._rows[child][u]
            slots = 0 if each.view is None else each.view.slots
            chained = each.view is not None and each.view.chained
            paired = rows[:MOST_PAIRED] if slots == 2 and not chained else rows
            found = [*pairwise(range(len(rows)))] if chained else [*permutations(range(len(paired)), slots)]
            pull = 1.0 if slots < 2 or not found else 1 / math.sqrt(len(found))
            own = 1.0 if each.view is None else each.view.weights[len(rows)] / WHOLE
            for places in found:
                if g is None or i in places:
                    flat = [*self._own[u], *(code for place in places for code in paired[place])]
                    moving = a
                    if g is not None and a is not None:
                        moving = own_width + places.index(i) * len(rows[i]) + a
                    if moving is not None and moving not in each.members:
                        continue
                    cell = tuple(flat[j] for j in each.members)
                    out.append((t, cell, pull, own * each.weight))
        for t, tally in enumerate(self._tallies, start=len(self._targets)):
            if g is not None and self._start.database.place(tally.tallies.child) == g:
                (members,) = tally.tallies.sets
                if a is not None and a not in members:
                    continue
                codes = [tuple(row[a] for a in members) for row in self._rows[g][u]]
                own = tally.tallies.weights(members)[len(codes)] / WHOLE
                many = codes.count(codes[i])
                if many <= tally.target.shape[-1]:
                    out.append((t, (*codes[i], many - 1), own, own * tally.weight))
                    if many > 1:
                        out.append((t, (*codes[i], many - 2), -own, -own * tally.weight))
        return out

    def _put(self, parts: list[tuple[int, Set, float, float]], sign: int) -> None:
        for t, cell, _, own in parts:
            self._residual[t][cell] -= sign * own

    def _pulled(self, parts: list[tuple[int, Set, float, float]]) -> float:
        return sum(pull * self._residual[t][cell] for t, cell, pull, _ in parts)

    def _best(
        self, codes: list[int], a: int, size: int, place: tuple[int, int | None, int], heat: float
    ) -> None:
        """The code of an attribute, all that it is part of being taken out first."""
        if size < 2:
            return
        old, gains = codes[a], np.zeros(size)
        self._put(self._parts(*place, a), -1)
        for codes[a] in range(size):
            gains[codes[a]] = self._pulled(self._parts(*place, a))
        gains += heat * self._chance.gumbel(size)
        best = int(np.argmax(gains))
        codes[a] = best if gains[best] > gains[old] else old
        self._put(self._parts(*place, a), 1)

    def answer(self, heat: float) -> None:
        database = self._start.database
        for u in self._chance.shuffle(list(range(len(self._own)))):
            for a in range(database.width - len(database.children)):
                self._best(self._own[u], a, int(database.sizes[a]), (u, None, 0), heat)
            for g, child in enumerate(database.children):
                for i, row in enumerate(self._rows[g][u]):
                    for a, size in enumerate(child.domain.sizes.tolist()):
                        self._best(row, a, size, (u, g, i), heat)

    def swap(self, heat: float) -> None:
        for g, rows in enumerate(self._rows):
            places = [(u, i) for u, each in enumerate(rows) for i in range(len(each))]
            for _ in places:
                (u, i), (v, j) = (places[self._chance.below(len(places))] for _ in range(2))
                noise = float(LOGISTIC[self._chance.word() & 0xFFF])
                if u == v or rows[u][i] == rows[v][j]:
                    continue
                self._put(both := self._parts(u, g, i) + self._parts(v, g, j), -1)
                stay = self._pulled(both)
                rows[u][i], rows[v][j] = rows[v][j], rows[u][i]
                both = self._parts(u, g, i) + self._parts(v, g, j)
                if self._pulled(both) - stay + heat * noise <= 0:
                    rows[u][i], rows[v][j] = rows[v][j], rows[u][i]
                self._put(self._parts(u, g, i) + self._parts(v, g, j), 1)
