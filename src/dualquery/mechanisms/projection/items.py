"""Projection for transaction data: one block of very many items, of which a record holds few.

Almost every query of such a workload has an attribute set of its own, so that its tables cannot be measured
one by one. Instead all items are counted, then all pairs of those that matter most, each record counting with
a bounded number of items (`queries.itemsets`): the noise of 45,000 pairs is that of 190 queries. The rows are
fitted to the items and pairs that matter; every other item is independent and follows its own noisy count.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.mechanisms.mechanism import Step, Task
from dualquery.mechanisms.projection.allocation import measures_total
from dualquery.mechanisms.projection.item_rows import MeasuredItems, shrunk_pairs, shrunk_singles
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.gaussian_filter import fine_multiplier
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.statistics import ItemCounts, Multiplied, PairCounts, number_of_records
from dualquery.queries.itemsets import HeldItems, HeldPairs
from dualquery.queries.predicates import NONE
from dualquery.table.domain import Domain, Items

SHARE_OF_TOTAL = 0.01  # where the number of records is private
SHARE_OF_ORDER = 0.06  # to find out which items matter
SHARE_OF_ITEMS = 0.23
FITTED_ITEMS = 400
ITEMS_PER_RECORD = 20


def is_transactions(domain: Domain) -> bool:
    """Whether a table is one block of items and nothing else."""
    return len(domain.columns) == 1 and isinstance(domain.columns[0], Items)


@dataclass(frozen=True)
class ItemPlan:
    """The noise of the four measurements; none of the total where it is public or was measured before.

    Counts are multiplied by `times`, so that noise can be finer than a record.
    """

    times: int
    width: int
    limit: int  # items of a record that count
    fitted: int
    total: Gaussian | None
    order: Gaussian
    items: Gaussian
    pairs: Gaussian

    @property
    def has_pairs(self) -> bool:
        return self.fitted > 1 and self.limit > 1

    def number(self, domain: Domain) -> Multiplied:
        return Multiplied(number_of_records(domain), self.times)

    def counted(self, rank: NDArray[np.int64]) -> Multiplied:
        """All items, those that matter most first."""
        return Multiplied(ItemCounts(HeldItems(0, rank, self.width, self.limit)), self.times)

    def paired(self, rank: NDArray[np.int64]) -> Multiplied:
        """The pairs of those that matter most."""
        return Multiplied(PairCounts(HeldPairs(0, rank, self.fitted, self.limit)), self.times)

    def in_records(self, noise: Gaussian) -> float:
        """The deviation of a count, in records."""
        return noise.deviation / self.times

    def asked(self, task: Task) -> list[tuple[str, GaussianMeasurement]]:
        """What will be asked, in this order. The order of the items does not change a price."""
        rank = np.arange(self.width, dtype=np.int64)
        questions: list[tuple[str, Multiplied, Gaussian | None]] = [
            ("measure the number of records", self.number(task.domain), self.total),
            ("measure items, to order them", self.counted(rank), self.order),
            ("measure items", self.counted(rank), self.items),
            ("measure pairs of items", self.paired(rank), self.pairs if self.has_pairs else None),
        ]
        return [
            (words, noise.event(statistic.sensitivity(task.budget.neighbours)))
            for words, statistic, noise in questions
            if noise is not None
        ]

    def steps(self, task: Task) -> tuple[Step, ...]:
        return tuple(Step(words, event) for words, event in self.asked(task))

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> MeasuredItems:
        """Total, then a first count to order the items by, then all items, then the pairs that matter."""
        allowed = iter(curator.allow(*(event for _, event in self.asked(task))))

        def noisy(statistic: Multiplied, noise: Gaussian) -> NDArray[np.float64]:
            return curator.measure(statistic, noise=noise, within=next(allowed)) / self.times

        total = float(task.rows)
        if self.total is not None:
            total = max(1.0, float(noisy(self.number(task.domain), self.total)[0]))
        first = noisy(self.counted(np.arange(self.width, dtype=np.int64)), self.order)
        asked = np.zeros(self.width, np.bool_)
        asked[task.workload.scope[task.workload.scope != NONE]] = True
        matters = np.clip(first / total, 0, 1) * asked
        rank = np.empty(self.width, np.int64)
        rank[np.lexsort((rng.random(self.width), -matters))] = np.arange(self.width)
        noise_of_single, noise_of_pair = (
            self.in_records(self.items) / total,
            self.in_records(self.pairs) / total,
        )
        single = noisy(self.counted(rank), self.items) / total
        single = np.clip(shrunk_singles(single, noise_of_single, rng), 0, 1)
        pair = np.zeros((self.fitted, self.fitted))
        if self.has_pairs:
            pairs = noisy(self.paired(rank), self.pairs) / total
            pair = shrunk_pairs(pairs, single[: self.fitted], noise_of_pair, rng)
        return MeasuredItems(rank, single, pair, noise_of_single, noise_of_pair)


def plan_items(task: Task, items_per_record: int | None) -> ItemPlan:
    """The largest precision that the budget affords, in the shares above."""
    width, neighbours = task.domain.width, task.budget.neighbours
    limit, fitted = min(items_per_record or ITEMS_PER_RECORD, width), min(FITTED_ITEMS, width)
    rank = np.arange(width, dtype=np.int64)
    total_moves = number_of_records(task.domain).sensitivity(neighbours).l2_squared
    items = ItemCounts(HeldItems(0, rank, width, limit)).sensitivity(neighbours).l2_squared
    pairs = PairCounts(HeldPairs(0, rank, fitted, limit)).sensitivity(neighbours).l2_squared
    rest = 1 - SHARE_OF_TOTAL - SHARE_OF_ORDER - SHARE_OF_ITEMS
    shares = [(total_moves, SHARE_OF_TOTAL), (items, SHARE_OF_ORDER), (items, SHARE_OF_ITEMS), (pairs, rest)]
    if not measures_total(task):
        shares[0] = (0, SHARE_OF_TOTAL)
    wanted = [squared / Fraction(share).limit_denominator(1000) for squared, share in shares]
    planned = [
        GaussianMeasurement(Fraction(squared), variance)
        for (squared, _), variance in zip(shares, wanted, strict=True)
        if variance > 0
    ]
    times = fine_multiplier(task.budget, planned)
    fine = [GaussianMeasurement(times**2 * each.sensitivity_squared, each.variance) for each in planned]
    factor = smallest_gaussian_scale(task.budget, fine)
    total, order, single, pair = (Gaussian(variance * factor) for variance in wanted)
    return ItemPlan(times, width, limit, fitted, total if total.variance else None, order, single, pair)
