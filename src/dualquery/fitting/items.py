"""Rows fitted to noisy counts of items and of their pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.pace import Chains, Pace, Progress
from dualquery.fitting.rows import ItemRowDataPlayer, ResidualQueryPlayer
from dualquery.fitting.shrink import CLEAR, multiples
from dualquery.game.moves import Residual, Transcript
from dualquery.game.play import play
from dualquery.table.domain import Domain
from dualquery.table.records import Records, SparseItems


@dataclass(frozen=True)
class MeasuredItems:
    """Items in the order of how much they matter; fractions of the records."""

    rank: NDArray[np.int64]  # of each item id
    single: NDArray[np.float64]  # of all items, by rank
    pair: NDArray[np.float64]  # of the fitted ones
    noise_of_single: float
    noise_of_pair: float


def shrunk_singles(noisy: NDArray[np.float64], noise: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Most of very many items are rare: their counts are shrunk towards what rare items mostly are."""
    unclear = noisy < CLEAR * noise
    mean = np.full(
        int(unclear.sum()), max(float(noisy[unclear].mean()), 0.01 * noise) if unclear.any() else noise
    )
    out: NDArray[np.float64] = noisy.copy()
    out[unclear] = multiples(noisy[unclear], mean, noise, rng)
    return out


def shrunk_pairs(
    noisy: NDArray[np.float64], single: NDArray[np.float64], noise: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """A symmetric matrix of pairs, from the noisy fractions of its upper triangle, shrunk around independence."""
    above = np.triu_indices(len(single), 1)
    out = np.zeros((len(single), len(single)))
    out[above] = multiples(noisy, np.outer(single, single)[above], noise, rng)
    return out + out.T


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
    return play(ResidualQueryPlayer(temperatures), data_player, rounds=len(temperatures), progress=progress)


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
