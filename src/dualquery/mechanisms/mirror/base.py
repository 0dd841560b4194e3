"""The one-way tables that a product base is made of: one measurement of all attributes that are asked about."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualquery.counting.counter import Integers
from dualquery.distributions.multiplicative_weights import nearest_probabilities
from dualquery.distributions.product_base import ProductBase
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.statistics import SHORT, Interactions

FINE = 1 << 12  # multipliers are whole numbers about as large as this


@dataclass(frozen=True)
class OneWayTables:
    """The interactions of single attributes, in shares that grow with the eighth root of their values.

    (Of a binary attribute the interaction is the balance 2·count − n, twice.)
    """

    interactions: Interactions
    rows: int

    @staticmethod
    def of(task: Task) -> OneWayTables:
        sets = tuple((int(j),) for j in task.workload.attributes if task.domain.sizes[j] > 1)
        multipliers = []
        for (j,) in sets:
            k = int(task.domain.sizes[j])
            length = k * (k - 1) if k <= SHORT else 1
            multipliers.append(max(1, round(FINE * (k - 1) ** 0.125 / length**0.5)))
        return OneWayTables(Interactions(task.domain, sets, tuple(multipliers)), task.rows)

    def base(self, noisy: Integers, floor: float) -> ProductBase:
        """The probabilities nearest to what was measured, none below the floor."""
        ones = {}
        for (j,), cells in self.interactions.in_records(noisy).items():
            size = len(cells)
            values = nearest_probabilities(cells / self.rows + 1 / size)
            ones[j] = (1 - size * min(floor, 0.5 / size)) * values + min(floor, 0.5 / size)
            ones[j] = np.asarray(ones[j] / ones[j].sum())
        return ProductBase(ones)
