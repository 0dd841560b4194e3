"""Statistics of special tables, each with how far neighbours move it; held against brute force like all others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from dualquery.counting.counter import Counter
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.queries.cuts import CoarseEdges
from dualquery.queries.distances import Factor, Knots
from dualquery.types import Integers


@dataclass(frozen=True)
class KnotSums:
    """Sums at the knots of columns.

    In each column a record adds a mixture, in whole units s, of two neighbouring columns R_k of its factor. A norm is
    convex, so it is longest at a knot, s·max_k ‖R_k‖, and two records are farthest apart at two knots, s·max ‖R_k −
    R_l‖. Columns are free of each other, so that these add up (squared, for L2) over the columns. The number of
    records, `total` times, adds `total` for a record and nothing between two.
    """

    knots: Knots

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.knots)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        steps, total = self.knots.steps, self.knots.total
        reach = [_reach(_Key(factor)) for factor in self.knots.factors]
        alone = Sensitivity(
            total + steps * sum(each[0].l1 for each in reach),
            total**2 + steps**2 * sum(each[0].l2_squared for each in reach),
        )
        apart = Sensitivity(
            steps * sum(each[1].l1 for each in reach), steps**2 * sum(each[1].l2_squared for each in reach)
        )
        return neighbours.sensitivity(alone=alone, apart=apart)


@dataclass(frozen=True)
class CoarseEdgeCounts:
    """Tables of edges over coarsenings of the vertices, table t times m_t.

    An edge adds a weight of at most h to one cell of each table: m_t·h. Two edges differ in two cells of each table
    at most, 2·m_t·h in L1 and 2·(m_t·h)² in L2². (Of a table with a single cell the latter exceeds the truth.)
    """

    edges: CoarseEdges

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.edges)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        moved = [times * self.edges.domain.heaviest for times in self.edges.multipliers]
        l1, l2_squared = sum(moved), sum(each**2 for each in moved)
        return neighbours.sensitivity(
            alone=Sensitivity(l1, l2_squared), apart=Sensitivity(2 * l1, 2 * l2_squared)
        )


class _Key:
    """A factor by what it holds."""

    def __init__(self, factor: Factor) -> None:
        self.factor = factor
        self._contents = (factor.shape, factor.tobytes())

    def __hash__(self) -> int:
        return hash(self._contents)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._contents == other._contents


@lru_cache(maxsize=64)
def _reach(key: _Key) -> tuple[Sensitivity, Sensitivity]:
    """The longest column of a factor, and the two that are farthest apart, in L1 and squared L2."""
    factor = key.factor
    alone = Sensitivity(int(np.abs(factor).sum(axis=0).max()), int((factor**2).sum(axis=0).max()))
    l1 = l2 = 0
    for k in range(factor.shape[1]):
        apart = factor - factor[:, [k]]
        l1 = max(l1, int(np.abs(apart).sum(axis=0).max()))
        l2 = max(l2, int((apart**2).sum(axis=0).max()))
    return alone, Sensitivity(l1, l2)
