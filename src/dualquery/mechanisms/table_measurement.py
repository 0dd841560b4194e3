"""What a measurement of tables says: interactions with known noise, and the tables put together from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.measurement import TablePlan
from dualquery.mechanisms.plan import Shape
from dualquery.mechanisms.shrinkage import cell_variance, onto_simplex, reconstructed
from dualquery.privacy.curator import Curator
from dualquery.privacy.interactions import measure_interactions
from dualquery.queries.counting import true_counts
from dualquery.queries.query import Tables
from dualquery.table.domain import Domain
from dualquery.table.records import Records

Set = tuple[int, ...]
Cells = NDArray[np.float64]


@dataclass(frozen=True)
class Measured:
    """What came back: interactions in records, the variance of their noise, and the number of records."""

    domain: Domain
    interactions: Mapping[Set, Cells]
    variance: Mapping[Set, float]
    total: float

    def table(self, members: Set) -> Cells:
        """The table over a set as fractions, with all its noise."""
        return reconstructed(members, self.interactions, self.domain.sizes) / self.total

    def deviation(self, members: Set) -> float:
        """The standard deviation of a cell of that table."""
        return math.sqrt(cell_variance(members, self.variance, self.domain.sizes)) / self.total


def measure(curator: Curator, plan: TablePlan, shape: Shape) -> Measured:
    """Ask the curator once for everything that is planned."""
    interactions = measure_interactions(curator, plan.interactions)
    variance = plan.noise(shape.domain.sizes)
    if () not in interactions:  # between tables of one length the length is public
        interactions[()] = np.array(float(shape.rows))
        variance[()] = 0.0
    return Measured(shape.domain, interactions, variance, max(1.0, float(interactions[()])))


def fractions_of_ones(measured: Measured) -> dict[int, Cells]:
    """The one-way tables as distributions."""
    return {
        members[0]: onto_simplex(measured.table(members), 1.0)
        for members in measured.interactions
        if len(members) == 1
    }


def rehearsed(released: Records, measured: Measured, rng: np.random.Generator) -> Measured:
    """The measurement as it might have come out, had the released rows been the table. All of it is public."""
    sets = tuple(members for members in measured.interactions if members)
    tables = Tables(measured.domain, sets)
    counts = true_counts(tables, released) * (measured.total / released.rows)
    interactions: dict[Set, Cells] = {
        (): np.array(measured.total + rng.normal(0.0, math.sqrt(measured.variance[()])))
    }
    for t, members in enumerate(sets):
        cells = counts[tables.starts[t] : tables.starts[t + 1]]
        noisy = cells + rng.normal(0.0, math.sqrt(measured.variance[members]), len(cells))
        interactions[members] = centred(noisy.reshape([int(measured.domain.sizes[j]) for j in members]))
    total = max(1.0, float(interactions[()]))
    return Measured(measured.domain, interactions, measured.variance, total)


def centred(table: Cells) -> Cells:
    """A table less its means along each attribute."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table
