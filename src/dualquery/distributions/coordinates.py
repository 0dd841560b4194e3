"""One distribution a column, and the learner that moves all of them by one measured distance.

The mean L1 distance to a point y is Σ_j share_j E_{x ~ p_j} |x − y_j|: it depends on the columns one by one, so the
universe has as many elements as there are places in all columns together, and not their product (Huang, Roth 2014).
Draw a column by its share, then a place in it: over this universe the update is that of multiplicative weights,

    p_j(x) ∝ p_j(x) · exp(λ |x − y_j|),

the same λ for all columns, here the Newton step after which the answer is about what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.distances import UNIT, Distances
from dualquery.queries.workload import Workload
from dualquery.table.points import GRID, KNOTS

LONGEST = 6.0  # |λ| of one update at most
Places = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class HeardDistance:
    """The noisy mean distance to a point, as a fraction of the diameter; positions as fractions of the widths."""

    point: Places
    shares: Places
    value: float


@dataclass(frozen=True, eq=False)
class Columns:
    """A distribution over the knots of each column: a row a column."""

    weights: NDArray[np.float64]

    def curves(self) -> NDArray[np.float64]:
        """The mean distance to every knot of every column, as a fraction of its width."""
        places = knots()
        return self.weights @ np.abs(places[:, None] - places[None, :])

    def answers(self, workload: Workload) -> NDArray[np.float64]:
        curves, grid = self.curves(), np.arange(KNOTS + 1) * (GRID // KNOTS)
        parts = []
        for group in workload.groups:
            assert isinstance(group, Distances), "of points only distances can be asked"
            out = np.zeros(group.size)
            for j in group.columns.tolist():
                share = group.shares[group.which, j] / UNIT
                out += share * np.interp(group.positions[:, j], grid, curves[j])
            parts.append(out)
        return np.concatenate(parts)


class CoordinateWeights:
    """The belief of a data player that learns column by column; it goes over all it has heard a few times."""

    def __init__(self, columns: int, *, passes: int) -> None:
        self._weights = np.full((columns, KNOTS + 1), 1 / (KNOTS + 1))
        self._heard: list[HeardDistance] = []
        self._passes = passes

    def hear(self, challenge: HeardDistance) -> None:
        self._heard.append(challenge)
        for _ in range(self._passes):
            for each in reversed(self._heard):
                self._update(each)

    def snapshot(self) -> Columns:
        return Columns(self._weights.copy())

    def _update(self, heard: HeardDistance) -> None:
        asked = np.flatnonzero(heard.shares)
        weights, shares = self._weights[asked], heard.shares[asked]
        apart = np.abs(knots()[None, :] - heard.point[asked, None])
        mean = (weights * apart).sum(axis=1)
        spread = shares @ ((weights * apart**2).sum(axis=1) - mean**2)
        step = np.clip((heard.value - shares @ mean) / max(spread, 1e-9), -LONGEST, LONGEST)
        weights = weights * np.exp(step * apart)
        self._weights[asked] = weights / weights.sum(axis=1, keepdims=True)


def knots() -> Places:
    """The knots, as fractions of the width."""
    return np.arange(KNOTS + 1) / KNOTS
