"""What a measurement of tables says: interactions with known noise, and the tables put together from them.

Everything here is post-processing of released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dualquery.game.moves import Cells
from dualquery.game.residual import Set
from dualquery.mechanisms.projection.shrinkage import cell_variance, onto_simplex, reconstructed
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Domain
from dualquery.table.records import Records


@dataclass(frozen=True)
class MeasuredTables:
    """What came back: interactions in records, the variance of their noise, and the number of records."""

    domain: Domain
    interactions: Mapping[Set, Cells]
    variance: Mapping[Set, float]
    total: float

    def joined(self, interactions: Mapping[Set, Cells], variance: Mapping[Set, float]) -> MeasuredTables:
        """With what was measured later; what was measured twice is weighed by inverse variance."""
        cells, spread = dict(self.interactions), dict(self.variance)
        for members, new in interactions.items():
            if members in cells:
                part = spread[members] / (spread[members] + variance[members])
                cells[members] = part * new + (1 - part) * cells[members]
                spread[members] = part * variance[members]
            else:
                cells[members], spread[members] = new, variance[members]
        return MeasuredTables(self.domain, cells, spread, self.total)

    def of_order(self, order: int) -> list[Set]:
        """The sets of so many attributes that were measured."""
        return [members for members in self.interactions if len(members) == order]

    def larger(self) -> list[Set]:
        """Those of three and more."""
        return [members for members in self.interactions if len(members) > 2]

    def table(self, members: Set) -> Cells:
        """The table over a set as fractions, with all its noise."""
        return reconstructed(members, self.interactions, self.domain.sizes) / self.total

    def deviation(self, members: Set) -> float:
        """The standard deviation of a cell of that table."""
        return math.sqrt(cell_variance(members, self.variance, self.domain.sizes)) / self.total

    def ones(self) -> dict[int, Cells]:
        """The one-way tables as distributions."""
        return {
            members[0]: onto_simplex(self.table(members), 1.0)
            for members in self.interactions
            if len(members) == 1
        }


def replica(released: Records, measured: MeasuredTables, rng: np.random.Generator) -> MeasuredTables:
    """The measurement as it might have come out, had the released rows been the table. All of it is public."""
    sets = tuple(members for members in measured.interactions if members)
    tables = Tables(measured.domain, sets)
    counts = tables.counts(released) * (measured.total / released.rows)
    interactions: dict[Set, Cells] = {
        (): np.array(measured.total + rng.normal(0.0, math.sqrt(measured.variance[()])))
    }
    for t, members in enumerate(sets):
        cells = counts[tables.cells_of(t)]
        noisy = cells + rng.normal(0.0, math.sqrt(measured.variance[members]), len(cells))
        interactions[members] = centred(noisy.reshape(tables.shape_of(t)))
    total = max(1.0, float(interactions[()]))
    return MeasuredTables(measured.domain, interactions, measured.variance, total)
