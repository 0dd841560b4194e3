"""Cells of one histogram over a universe that nobody could write out, read where somebody asks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery.counting.counter import Counter
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.privacy.noise import Noise
from dualquery.queries.lists import NamedCells
from dualquery.types import Integers, Words


@dataclass(frozen=True)
class CellCounts:
    """How many records lie in each of some distinct cells: a record lies in one of them at most, two in two."""

    named: NamedCells

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.named)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.sensitivity(alone=Sensitivity(1, 1), apart=Sensitivity(2, 2))


class UnreadCells(Allowance):
    """The part of a histogram that is paid for and was not read yet; `LazyCells` keeps account of it."""


class LazyCells:
    """One noisy histogram over the whole universe, read cell by cell, in whatever order somebody asks.

    The histogram as a whole is one measurement, of L2 sensitivity 1 (or √2 where a record is replaced), however many
    cells it has: a neighbour moves one cell of all of them (or two). It is paid for once, before the first cell is
    read. A cell is drawn when it is first asked for and *kept*: two draws of one cell would be two measurements.
    Which cells are asked for may depend on what was told before, and on nothing else.
    """

    def __init__(self, curator: Curator, noise: Noise) -> None:
        self._curator = curator
        self._noise = noise
        self._event = noise.event(
            CellCounts(NamedCells(np.empty(0, np.uint64))).sensitivity(curator.neighbours)
        )
        curator.allow(self._event)
        self._told: dict[int, int] = {}

    @property
    def told(self) -> dict[int, int]:
        """Every cell that was read, with its noisy count. Whoever goes on later must keep this."""
        return self._told

    def read(self, cells: Words) -> Integers:
        """The noisy count of each cell: drawn now, or as it was drawn before."""
        fresh = np.array(sorted({int(cell) for cell in cells} - self._told.keys()), np.uint64)
        if len(fresh):
            unread = UnreadCells(self._event, self._curator)
            noisy = self._curator.measure(CellCounts(NamedCells(fresh)), noise=self._noise, within=unread)
            self._told.update(zip(fresh.tolist(), noisy.tolist(), strict=True))
        return np.array([self._told[int(cell)] for cell in cells], np.int64)
