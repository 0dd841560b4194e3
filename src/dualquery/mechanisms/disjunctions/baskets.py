"""Disjunctions over very many items: items, pairs of the ones that matter, and parities of the few that matter most.

Of baskets all items are counted, then the pairs of those that matter (`projection.items`), then the parities of all
triples of the top. A query is expanded around independence: with f_j = a_j + b_j x_j and m_j = a_j + b_j p_j

    E Π f_j = Π m_j + Σ_{i<j} b_i b_j c_ij Π_rest m + Σ_{i<j<k} b_i b_j b_k c_ijk Π_rest m,

c the central moments, nought where they were not measured. Rows are not fitted: with three rare items in a
query, what rows miss of each adds up, and the item counts alone are better there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.items import MeasuredItems
from dualquery.mechanisms.artefact import Fractions
from dualquery.mechanisms.disjunctions.expansion import SignedRows, towards_zero
from dualquery.mechanisms.independent import NO_RECORDS
from dualquery.mechanisms.mechanism import Plan, Progress, Task, hidden
from dualquery.mechanisms.projection.baskets import (
    MOST_PAIRED,
    WORDS,
    Limits,
    Spending,
    measured_items,
    measured_lengths,
    measured_total,
)
from dualquery.mechanisms.shares import SHARE_OF_TOTAL, Purse, Shares, measures_total, shares_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.parity_statistics import ParityBalances
from dualquery.queries.conjunctions import Parities
from dualquery.queries.group import NONE

PARTS = {"held": 0.03, "order": 0.03, "items": 0.42, "pairs": 0.45, "triples": 0.07}
TOP = 20  # items whose triples are measured
CUT_OFF = 0.004  # of the records may hold more items than count
CUT_OFF_PAIRS = 0.03  # the same among pairs
TRIPLES = "measure parities of three of the items that matter most"

Reals = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ByItemSets:
    """Items, pairs and triples, with a share of the budget each."""

    measured: str
    top: int
    noise: float  # expected, of an answer, as a fraction
    shares: Shares = hidden()

    def answers(
        self, curator: Curator, task: Task, rng: np.random.Generator, progress: Progress
    ) -> tuple[Fractions, Fractions]:
        """Measured, shrunk, expanded: the answers and the deviation of their noise."""
        purse = self.shares.purse(curator)
        total = measured_total(purse, task)
        lengths = measured_lengths(purse, task.domain, total)
        limits = Limits(lengths.quantile(CUT_OFF), min(MOST_PAIRED, lengths.quantile(CUT_OFF_PAIRS)))
        spending = Spending(("order",), ("items",), ("pairs",))
        items = measured_items(purse, task, total, rng, spending, limits)
        progress("measuring", 1, 2)
        triples = _triples(purse, task, items, total, self.top)
        progress("measuring", 2, 2)
        return _expanded(SignedRows.of(task.workload), items, triples)


def plan_by_items(task: Task, signed: SignedRows) -> Plan[ByItemSets]:
    """Shares are fixed; what the noise will be depends on how many items records hold, which is measured first."""
    parts = {"total": SHARE_OF_TOTAL} if measures_total(task) else {}
    shares = shares_of(task.budget, parts | PARTS, {**WORDS, "triples": TRIPLES})
    deviation = shares.deviation(MOST_PAIRED, "items") / task.rows
    noise = deviation * math.sqrt(signed.order)
    return Plan(
        mechanism="parities",
        task=task,
        reason=(
            f"{len(task.workload.attributes):,} items are too many for their parities: items, pairs, and triples of "
            f"the {TOP} that matter most are measured"
        ),
        parameters=ByItemSets(measured="items, pairs and triples", top=TOP, noise=noise, shares=shares),
        steps=shares.steps(),
        mean_error=min(0.5, noise),
        max_error=min(1.0, 8 * noise),
        seconds=5.0 + task.rows * 3e-5 + task.workload.size * 2e-6,
        bytes=400 * task.rows + 200 * task.workload.size,
        notes=(NO_RECORDS,),
    )


def _triples(purse: Purse, task: Task, items: MeasuredItems, total: float, top: int) -> Reals:
    """c_ijk of the items that matter most, a cube by rank; symmetric, nought on its diagonals."""
    item_of_rank = np.argsort(items.rank)[:top]
    sets = np.array(list(combinations(range(len(item_of_rank)), 3)), np.int64).reshape(-1, 3)
    attributes = np.sort(item_of_rank[sets], axis=1).astype(np.int32)
    told = purse.measure(ParityBalances(Parities(task.domain, attributes)), "triples")
    p = items.single[:top]
    covariance = items.pair[:top, :top] - np.outer(p, p)
    mu = 1 - 2 * p[sets]
    i, j, k = sets.T
    guess = mu.prod(axis=1)
    guess = guess + 4 * (
        mu[:, 0] * covariance[j, k] + mu[:, 1] * covariance[i, k] + mu[:, 2] * covariance[i, j]
    )
    moments = towards_zero(told.values / total - guess, told.deviation / total) / -8
    cube = np.zeros((top, top, top))
    for one in ((i, j, k), (i, k, j), (j, i, k), (j, k, i), (k, i, j), (k, j, i)):
        cube[one] = moments
    return cube


def _expanded(signed: SignedRows, items: MeasuredItems, triples: Reals) -> tuple[Fractions, Fractions]:
    held = signed.attributes != NONE
    rank = np.where(held, items.rank[signed.attributes], NONE)
    slope = np.where(held, -signed.signs, 0.0)  # x_j has s = −1 and grows with x
    p = np.where(held, items.single[rank], 0.0)
    mean = np.where(held, np.where(slope > 0, p, 1 - p), 1.0)
    variance = (held * items.noise_of_single**2).sum(axis=1).astype(float)
    total = mean.prod(axis=1)
    columns = range(signed.order)
    for i, j in combinations(columns, 2):
        rows = np.flatnonzero(
            (rank[:, [i, j]] >= 0).all(axis=1) & (rank[:, [i, j]] < len(items.pair)).all(axis=1)
        )
        a, b = rank[rows, i], rank[rows, j]
        moment = items.pair[a, b] - items.single[a] * items.single[b]
        rest = mean[rows][:, [c for c in columns if c not in (i, j)]].prod(axis=1)
        total[rows] += slope[rows, i] * slope[rows, j] * moment * rest
        variance[rows] += items.noise_of_pair**2 / 4
    for i, j, k in combinations(columns, 3):
        three = rank[:, [i, j, k]]
        rows = np.flatnonzero((three >= 0).all(axis=1) & (three < len(triples)).all(axis=1))
        rest = mean[rows][:, [c for c in columns if c not in (i, j, k)]].prod(axis=1)
        moment = triples[tuple(three[rows].T)]
        total[rows] += slope[rows, i] * slope[rows, j] * slope[rows, k] * moment * rest
    return signed.offset + signed.slope * total, np.sqrt(variance)
