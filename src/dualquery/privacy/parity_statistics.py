"""Parities of binary attributes as balances: Σ_x Π_{j ∈ S} (−1)^{x_j} of each of many sets S."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np

from dualquery.counting.counter import Counter
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.queries.conjunctions import Parities
from dualquery.queries.group import NONE
from dualquery.types import Integers


@dataclass(frozen=True)
class ParityBalances:
    """2·(records with an even number of ones in S) − n, of each of M sets: a record adds 1 or −1 to every one.

    Alone M in L1 and in squared L2. Two records that differ in the attributes A differ on S where |S ∩ A| is
    odd, by 2 each. Where the sets are all those of one order r out of u attributes, that are at most

        s = max_a Σ_{i odd} C(a, i) · C(u − a, r − i)

    of them, else s = M: 2s in L1, 4s in squared L2.
    """

    parities: Parities

    def of(self, counter: Counter) -> Integers:
        return 2 * counter.true_counts(self.parities) - counter.true_rows

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        sets, differing = self.parities.size, self._most_differing()
        return neighbours.sensitivity(
            alone=Sensitivity(sets, sets), apart=Sensitivity(2 * differing, 4 * differing)
        )

    def _most_differing(self) -> int:
        rows = self.parities.attributes
        orders = np.unique((rows != NONE).sum(axis=1))
        used = len(np.unique(rows[rows != NONE]))
        order = int(orders[0]) if len(orders) == 1 else 0
        if not order or len(np.unique(rows, axis=0)) != len(rows) or comb(used, order) != len(rows):
            return len(rows)
        return max(
            sum(comb(a, i) * comb(used - a, order - i) for i in range(1, order + 1, 2))
            for a in range(used + 1)
        )
