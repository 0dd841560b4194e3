"""Projection for transaction data: one block of very many items, of which a record holds few.

Almost every query of such a workload has an attribute set of its own, so that its tables cannot be measured
one by one. Instead all items are counted, then all pairs of those that matter most, each record counting with
a bounded number of items (`privacy.itemsets`): the noise of 45,000 pairs is that of 190 queries. The rows are
fitted to the items and pairs that matter; every other item is independent and follows its own noisy count.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Transcript
from dualquery.game.play import play
from dualquery.game.row_players import Chains, ItemRowDataPlayer, Residual, ResidualQueryPlayer
from dualquery.mechanisms.measurement import attribute_sets
from dualquery.mechanisms.pace import Pace
from dualquery.mechanisms.plan import Progress, Shape
from dualquery.mechanisms.shrinkage import shrunk
from dualquery.privacy.curator import Curator, Gaussian
from dualquery.privacy.events import GaussianNoise
from dualquery.privacy.itemsets import ItemLimit, measure_items, measure_pairs
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.neighbours import Neighbours
from dualquery.queries.query import Tables
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records, SparseItems

SHARE_OF_TOTAL = 0.01  # where the number of records is private
SHARE_OF_ORDER = 0.06  # to find out which items matter
SHARE_OF_ITEMS = 0.23
FITTED_ITEMS = 400
ITEMS_PER_RECORD = 20
CLEAR = 6.0  # standard deviations above which an item's count needs no shrinkage


@dataclass(frozen=True)
class ItemPlan:
    """Variances, in records, of the four measurements; the first is 0 where the total is public."""

    limit: ItemLimit
    fitted: int
    total: Fraction
    order: Fraction
    items: Fraction
    pairs: Fraction


def is_transactions(domain: Domain) -> bool:
    """Whether a table is one block of items and nothing else."""
    return len(domain.columns) == 1 and isinstance(domain.columns[0], Items)


def plan_items(shape: Shape, items_per_record: int | None, fitted: int | None = None) -> ItemPlan:
    """The largest precision that the budget affords, in the shares above."""
    neighbours = shape.budget.neighbours
    width = shape.domain.width
    limit = ItemLimit(min(items_per_record or ITEMS_PER_RECORD, width))
    fitted = min(fitted or FITTED_ITEMS, width)
    one = Fraction(1)
    with_total = neighbours is Neighbours.ADD_REMOVE
    events = [
        (GaussianNoise(one, one), SHARE_OF_TOTAL if with_total else 0.0),
        (limit.items_event(one, neighbours), SHARE_OF_ORDER),
        (limit.items_event(one, neighbours), SHARE_OF_ITEMS),
        (limit.pairs_event(one, neighbours), 1 - SHARE_OF_TOTAL - SHARE_OF_ORDER - SHARE_OF_ITEMS),
    ]
    wanted = [
        event.sensitivity_squared / Fraction(share).limit_denominator(1000) if share else Fraction(0)
        for event, share in events
    ]
    planned = [
        GaussianNoise(event.sensitivity_squared, variance)
        for (event, _), variance in zip(events, wanted, strict=True)
        if variance > 0
    ]
    factor = smallest_gaussian_scale(shape.budget, planned)
    total, order, items, pairs = (variance * factor for variance in wanted)
    return ItemPlan(limit, fitted, total, order, items, pairs if pairs > 0 else one)


@dataclass(frozen=True)
class MeasuredItems:
    """Items in the order of how much they matter; fractions of the records."""

    rank: NDArray[np.int64]  # of each item id
    single: NDArray[np.float64]  # of all items, by rank
    pair: NDArray[np.float64]  # of the fitted ones
    noise_of_single: float
    noise_of_pair: float


def measure(curator: Curator, plan: ItemPlan, shape: Shape, rng: np.random.Generator) -> MeasuredItems:
    """Total, then a first count to order the items by, then all items, then the pairs that matter."""
    width = shape.domain.width
    total = float(shape.rows)
    if plan.total > 0:
        noise = Gaussian(plan.total)
        total = max(1.0, float(curator.measure(Tables(shape.domain, ((),)), noise=noise)[0]))
    first = measure_items(curator, 0, np.arange(width, dtype=np.int64), limit=plan.limit, variance=plan.order)
    asked = np.bincount(attribute_sets(shape.workload).ravel() + 1, minlength=width + 1)[1:]
    matters = np.clip(first / total, 0, 1) * (asked > 0)
    rank = np.empty(width, np.int64)
    rank[np.lexsort((rng.random(width), -matters))] = np.arange(width)
    noise_of_single = math.sqrt(plan.items) / total
    single = measure_items(curator, 0, rank, limit=plan.limit, variance=plan.items) / total
    single = np.clip(_shrunk_singles(single, noise_of_single, rng), 0, 1)
    noise_of_pair = math.sqrt(plan.pairs) / total
    pair = np.zeros((plan.fitted, plan.fitted))
    if plan.fitted > 1 and plan.limit.limit > 1:
        noisy = measure_pairs(curator, 0, rank, items=plan.fitted, limit=plan.limit, variance=plan.pairs)
        above = np.triu_indices(plan.fitted, 1)
        mean = np.outer(single[: plan.fitted], single[: plan.fitted])[above]
        pair[above] = shrunk(noisy[above] / total, mean, np.full(len(mean), noise_of_pair), rng)
        pair += pair.T
    return MeasuredItems(rank, single, pair, noise_of_single, noise_of_pair)


def _shrunk_singles(
    noisy: NDArray[np.float64], noise: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Most of very many items are rare: their counts are shrunk towards what rare items mostly are."""
    unclear = noisy < CLEAR * noise
    mean = np.full(
        int(unclear.sum()), max(float(noisy[unclear].mean()), 0.01 * noise) if unclear.any() else noise
    )
    out: NDArray[np.float64] = noisy.copy()
    out[unclear] = shrunk(noisy[unclear], mean, np.full(len(mean), noise), rng)
    return out


def fit(
    measured: MeasuredItems, pace: Pace, rng: np.random.Generator, progress: Progress
) -> Transcript[Residual, Chains]:
    """Play the residual of items and pairs against chains of rows."""
    fitted = len(measured.pair)
    single = measured.single[:fitted]
    start = (rng.random((pace.chains, pace.chain_rows, fitted)) < single).astype(np.uint8)
    weight = (measured.noise_of_pair / measured.noise_of_single) ** 2
    temperatures = pace.temperatures(measured.noise_of_pair)
    data_player = ItemRowDataPlayer(single, measured.pair, weight, 1.0, start, rng)
    return play(
        ResidualQueryPlayer(temperatures),
        data_player,
        rounds=len(temperatures),
        progress=lambda done, total: progress("fitting rows", done, total),
    )


def rehearsed(
    rows: NDArray[np.unsignedinteger], measured: MeasuredItems, rng: np.random.Generator
) -> MeasuredItems:
    """The measurement as it might have come out, had the released rows been the table."""
    held = rows.astype(np.float32)
    pair = (held.T @ held).astype(np.float64) / len(rows)
    fitted = len(pair)
    single = measured.single.copy()
    single[:fitted] = np.diagonal(pair)
    noisy = single + rng.normal(0.0, measured.noise_of_single, len(single))
    single = np.clip(_shrunk_singles(noisy, measured.noise_of_single, rng), 0, 1)
    above = np.triu_indices(fitted, 1)
    noise = measured.noise_of_pair
    mean = np.outer(single[:fitted], single[:fitted])[above]
    again = np.zeros_like(pair)
    again[above] = shrunk(
        pair[above] + rng.normal(0.0, noise, len(mean)), mean, np.full(len(mean), noise), rng
    )
    return MeasuredItems(measured.rank, single, again + again.T, measured.noise_of_single, noise)


def to_records(
    domain: Domain, rows: NDArray[np.unsignedinteger], measured: MeasuredItems, rng: np.random.Generator
) -> Records:
    """Fitted items as the rows hold them; each other item in as many random rows as its count says."""
    count, fitted = rows.shape
    item_of_rank = np.argsort(measured.rank)
    owner, place = np.nonzero(rows)
    owners, items = [owner], [item_of_rank[place]]
    expected = measured.single[fitted:] * count
    times = np.floor(expected + rng.random(len(expected))).astype(np.int64)
    for i in np.flatnonzero(times):
        owners.append(rng.choice(count, int(min(times[i], count)), replace=False))
        items.append(np.full(len(owners[-1]), item_of_rank[fitted + i]))
    all_owners, all_items = np.concatenate(owners), np.concatenate(items)
    order = np.lexsort((all_items, all_owners))
    start = np.searchsorted(all_owners[order], np.arange(count + 1)).astype(np.int64)
    return Records(domain, count, (SparseItems(start, all_items[order].astype(np.int32)),))
