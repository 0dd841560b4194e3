"""Projection for baskets: one block of very many items, of which a record holds few.

Almost every query of such a workload has an attribute set of its own, so that its tables cannot be measured
one by one. Instead all items are counted, then all pairs of those that matter most, each record counting with
a bounded number of items (`queries.binary`): the noise of 45,000 pairs is that of 190 queries. The rows are
fitted to the items and pairs that matter; every other item is independent and follows its own noisy count. Where
hardly a query asks about two items that could matter, all goes to the items.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fitter import Effort, Fitting
from dualquery.fitting.measured import Measured, Numbers
from dualquery.fitting.wide import (
    MeasuredItems,
    fit_items,
    item_records,
    shrunk_pairs,
    shrunk_singles,
    upper_quantile,
)
from dualquery.mechanisms.floors import ITEMS, PAIRS
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.shares import (
    SHARE_OF_TOTAL,
    FitCost,
    Purse,
    Shares,
    built,
    measures_total,
    per_query,
    plainer,
    shares_of,
)
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.queries.binary import Binary, HeldItems, HeldPairs, held_lengths
from dualquery.queries.derived import number_of_records
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain

SHARE_OF_ORDER = 0.06  # to find out which items matter
SHARE_OF_ITEMS = 0.40
FITTED_ITEMS = 400
LONG = 40  # items of a record; where more than `MOST_LONG` of the records hold more, they are no baskets
MOST_LONG = 0.1
MOST_PAIRED = 30  # items of a record that count among the pairs, where lengths are measured
ASKED_PAIRS = 0.05  # of the queries: where fewer ask about two items that may matter, pairs are not measured
FINE_LENGTHS = 64  # lengths up to here are told apart

WORDS = {
    "total": "measure the number of records",
    "held": "measure how many items records hold",
    "order": "measure items, to order them",
    "items": "measure items",
    "pairs": "measure pairs of items",
}


def asks_about_pairs(workload: Workload, fitted: int = FITTED_ITEMS) -> bool:
    """Whether enough queries ask about two of the items that are asked about most; public."""
    sets = workload.scope
    times = np.bincount(sets[sets != NONE], minlength=workload.domain.width)
    often = np.zeros(workload.domain.width + 1, np.bool_)
    often[np.argsort(-times, kind="stable")[:fitted]] = True  # the last place is that of the padding
    return bool((often[sets].sum(axis=1) >= 2).mean() >= ASKED_PAIRS)


class Spending(NamedTuple):
    """Which shares pay for the order of the items, for the items, and for their pairs."""

    order: tuple[str, ...]
    items: tuple[str, ...]
    pairs: tuple[str, ...]


class Limits(NamedTuple):
    """How many items of a record count: among items, and among pairs."""

    items: int
    pairs: int


@dataclass(frozen=True, kw_only=True)
class ByItems:
    """Items and pairs of items, where a record is declared to hold few of very many."""

    measured: str
    items_per_record: int  # that count
    fitted_items: int
    cell_noise: float  # of a pair, or of an item where there are no pairs
    effort: Effort
    shares: Shares = hidden()

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        purse = self.shares.purse(curator)
        pairs = "pairs" in self.shares.stages
        spending = Spending(("order",), ("items",), ("pairs",)) if pairs else Spending((), ("items",), ())
        limits = Limits(self.items_per_record, self.items_per_record)
        total = measured_total(purse, task)
        return of_items(task.domain, measured_items(purse, task, total, rng, spending, limits))


def of_items(domain: Domain, measured: MeasuredItems, settled: Any = None) -> Fitting:
    return Fitting(
        lambda effort, rng, tell: fit_items(measured, effort, rng, tell),
        lambda rows, rng: item_records(domain, rows, measured, rng),
        settled,
        measured.measured,
    )


def plan_baskets(task: Task, wanted: ProjectionWishes, items_per_record: int) -> Plan[Any]:
    """The largest precision that the budget affords, in the shares above."""
    width, effort = task.domain.width, Effort.of(wanted.synthetic_rows)
    limit, fitted = min(items_per_record, width), min(FITTED_ITEMS, width)
    has_pairs = fitted > 1 and limit > 1 and asks_about_pairs(task.workload, fitted)
    parts = {"total": SHARE_OF_TOTAL} if measures_total(task) else {}
    if has_pairs:
        rest = 1 - SHARE_OF_TOTAL - SHARE_OF_ORDER - SHARE_OF_ITEMS
        parts |= {"order": SHARE_OF_ORDER, "items": SHARE_OF_ITEMS, "pairs": rest}
    else:
        parts |= {"items": 1 - SHARE_OF_TOTAL}
    shares = shares_of(task.budget, parts, WORDS)
    squared = limit * (limit - 1) / 2 if has_pairs else limit
    noise = shares.deviation(squared, "pairs" if has_pairs else "items") / task.rows
    counted = (
        f"all items and the pairs of the {fitted} that matter most are counted"
        if has_pairs
        else "hardly two items that could matter are asked about together, so that items are counted alone"
    )
    return built(
        task,
        ByItems(
            measured="items and pairs" if has_pairs else "items",
            items_per_record=limit,
            fitted_items=fitted if has_pairs else 0,
            cell_noise=noise,
            effort=effort,
            shares=shares,
        ),
        reason=(
            f"the workload asks about very many sets of items: {counted}, at most {limit} items a record "
            f"(noise {noise:.2g}; one by one the queries would have {per_query(task, shares):.2g}), and rows are "
            "fitted"
        ),
        steps=shares.steps(),
        errors=(noise, 15 * noise),
        cost=FitCost(
            effort.seconds(fitted / 2, noise) + task.rows * 2e-6 + width * 1e-4,
            effort.bytes(fitted, 2 * fitted**2) + 400 * task.rows,
        ),
        memory=wanted.memory,
        notes=plainer(task, shares, noise),
    )


def measured_total(purse: Purse, task: Task) -> Measured:
    """The number of records: public, measured before, or measured now."""
    if not measures_total(task):
        return Measured((), np.array(float(task.rows)), task.rows_variance or 0.0)
    told = purse.measure(number_of_records(task.domain), "total")
    return Measured((), np.maximum(1.0, told.values[0]), float(told.variance))


@dataclass(frozen=True)
class MeasuredLengths:
    """How many items records hold, with noise."""

    numbers: NDArray[np.float64]
    deviation: float
    edges: NDArray[np.int64]
    total: float

    def quantile(self, tail: float) -> int:
        """A length that all but about this share of the records stay below."""
        found = upper_quantile(self.numbers, self.deviation, self.edges, self.total, tail)
        return max(1, int(self.edges[-1]) if found is None else found)

    @property
    def sparse(self) -> bool:
        """Whether most records hold few items."""
        return self.quantile(MOST_LONG) <= LONG

    def limits(self) -> Limits:
        """What all but 2% of the records hold; of pairs 5%, and 30 at most."""
        return Limits(self.quantile(0.02), min(MOST_PAIRED, self.quantile(0.05)))


def measured_lengths(purse: Purse, domain: Domain, total: float) -> MeasuredLengths:
    """With the share `held`."""
    width = domain.width
    beyond = np.geomspace(FINE_LENGTHS, max(width, FINE_LENGTHS + 1), 40).astype(np.int64)
    edges = np.unique(np.append(np.arange(min(width, FINE_LENGTHS) + 1), beyond[beyond <= width]))
    lengths = held_lengths(Binary(domain, np.arange(width, dtype=np.int64)), edges)
    noisy = purse.measure(lengths, "held")
    return MeasuredLengths(noisy.values, noisy.deviation, edges, total)


def measured_items(
    purse: Purse, task: Task, known: Measured, rng: np.random.Generator, spending: Spending, limits: Limits
) -> MeasuredItems:
    """A first count to order the items by, then all items, then the pairs that matter; in fractions."""
    width, total = task.domain.width, float(known.values)
    rank = np.arange(width, dtype=np.int64)
    fitted = min(FITTED_ITEMS, width) if spending.pairs else 0
    if spending.order:
        first = purse.measure(HeldItems(0, rank, width, limits.items), *spending.order)
        asked = np.zeros(width, np.bool_)
        asked[task.workload.attributes] = True
        matters = np.clip(first.values / total, 0, 1) * asked
        rank = np.empty(width, np.int64)
        rank[np.lexsort((rng.random(width), -matters))] = np.arange(width)
    counted = purse.measure(HeldItems(0, rank, width, limits.items), *spending.items)
    noise_of_single = noise_of_pair = counted.deviation / total
    single = np.clip(shrunk_singles(counted.values / total, noise_of_single, rng), 0, 1)
    pair = np.zeros((fitted, fitted))
    by_rank = tuple(np.argsort(rank).tolist())
    kept = [known, Measured(Numbers(ITEMS, by_rank), counted.values, float(counted.variance))]
    if fitted > 1 and limits.pairs > 1:
        paired = purse.measure(HeldPairs(0, rank, fitted, limits.pairs), *spending.pairs)
        noise_of_pair = paired.deviation / total
        upper = Numbers(PAIRS, by_rank[:fitted])  # the upper triangle, row by row
        kept.append(Measured(upper, paired.values, float(paired.variance)))
        pair = shrunk_pairs(paired.values / total, single[:fitted], noise_of_pair, rng)
    return MeasuredItems(rank, single, pair, noise_of_single, noise_of_pair, tuple(kept))
