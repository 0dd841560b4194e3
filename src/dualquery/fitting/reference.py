"""The fitter in plain numpy, from its definition: slow, and what every other one is tested against.

Residuals are worked out from counts of tables in double precision, cell by cell. Rows, attributes and noise come in
the order of `cpu.answer_rows`, so that tables of attributes of any sizes are fitted to the same rows there, seed by
seed; its kernels for binary attributes and for items draw one logistic number where this draws two of Gumbel's law,
and agree in distribution.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dualquery.fitting.cpu import GUMBEL
from dualquery.fitting.fitter import RAREST, Chains, ItemTargets, Rows, Seeds, Targets
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

    def shuffle(self, order: list[int]) -> list[int]:
        for i in range(len(order) - 1, 0, -1):
            k = ((self.word() >> 32) * (i + 1)) >> 32
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
