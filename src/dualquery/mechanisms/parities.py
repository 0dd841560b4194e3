"""Parities: every query over binary attributes from the parities of its subsets, or from items and pairs of them.

A query is a sum of parities: with χ_j = (−1)^{x_j}, x_j = (1 − χ_j)/2 and ¬x_j = (1 + χ_j)/2, so that a product of k
literals is

    Π = 2^{−k} Σ_{S ⊆ its attributes} Π_{j ∈ S} s_j · χ_S,       s_j = −1 for x_j, +1 for ¬x_j,

and a disjunction 1 − Π of negated ones. Every coefficient is 2^{−k}: noise in parities averages out.

Around the product of means μ_j = E χ_j, E χ_S = Σ_{B ⊆ S} Π_{S∖B} μ_j · κ_B with κ_B = E Π_B (χ_j − μ_j). Most κ of
two and more attributes are small, and those that were measured are shrunk towards what the smaller sets say
(`fitting.shrink`).

*By order*: one Gaussian measurement for all parities of an order. What a query needs of order r are C(k, r) of the
M_r that are measured, each with noise of variance M_r / share_r and the coefficient 2^{−k}, so that the mean squared
error is least at

    share_r ∝ √(C(k, r) · M_r)          (.06, .28, .66 for all disjunctions of 3 out of 50),

public numbers all. No polynomial saves anything up to k = 4 (`dualquery degrees`), and no learner has to find what
was measured anyway. Baskets too wide for it are measured by items and their pairs.

*By items*, of wide baskets: all items are counted, then the pairs of those that matter (`projection.baskets`), then
the parities of all triples of the top. A query is expanded around independence: with f_j = a_j + b_j x_j and m_j =
a_j + b_j p_j

    E Π f_j = Π m_j + Σ_{i<j} b_i b_j c_ij Π_rest m + Σ_{i<j<k} b_i b_j b_k c_ijk Π_rest m,

c the central moments, nought where they were not measured. Rows are not fitted: with three rare items in a query,
what rows miss of each adds up, and the item counts alone are better there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from dualquery.errors import QueryError
from dualquery.fitting.shrink import shrunk as shrunk_by
from dualquery.fitting.shrink import spreads
from dualquery.fitting.wide import MeasuredItems
from dualquery.mechanisms.artefact import MeasuredParities, SignedRows
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.mechanism import NO_RECORDS, Mechanism, Outcome, Plan, Task, answers_only, hidden
from dualquery.mechanisms.monomials import checked_width
from dualquery.mechanisms.projection.baskets import (
    MOST_PAIRED,
    Limits,
    Spending,
    measured_items,
    measured_lengths,
    measured_total,
)
from dualquery.mechanisms.projection.baskets import (
    WORDS as STAGE_WORDS,
)
from dualquery.mechanisms.shares import (
    SHARE_OF_TOTAL,
    Purse,
    Shares,
    measures_total,
    shares_of,
)
from dualquery.mechanisms.wishes import ParityWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.queries.conjunctions import Parities
from dualquery.queries.derived import GroupBalances
from dualquery.queries.families import attributes_of_disjunctions
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload
from dualquery.table.domain import is_transactions
from dualquery.types import Fractions, Progress, Reals


def shrunk(measured: Mapping[int, MeasuredParities], width: int) -> dict[int, MeasuredParities]:
    """Each order shrunk towards what the smaller ones say of it, the smallest first."""
    means = measured[1].chi
    place = np.full(width, NONE)
    place[measured[1].sets[:, 0]] = np.arange(len(means))
    told = {1: MeasuredParities(measured[1].sets, np.clip(means, -1, 1), measured[1].noise)}
    moments: dict[int, MeasuredParities] = {}  # κ of the orders from two on
    for order in sorted(set(measured) - {1}):
        mine = measured[order]
        mu = told[1].chi[place[mine.sets]]
        guess = mu.prod(axis=1)
        for lower, kappa in moments.items():
            for columns in combinations(range(order), lower):
                rest = [c for c in range(order) if c not in columns]
                guess = guess + mu[:, rest].prod(axis=1) * kappa.at(mine.sets[:, columns], width)
        residual = towards_zero(mine.chi - guess, mine.noise)
        moments[order] = MeasuredParities(mine.sets, residual, mine.noise)
        told[order] = MeasuredParities(mine.sets, np.clip(guess + residual, -1, 1), mine.noise)
    return told


SPREADS = np.array([0.0, 0.3, 0.7, 1.5, 3.0, 6.0, 12.0, 30.0])  # of residuals, in units of the noise


def towards_zero(noisy: Reals, noise: float) -> Reals:
    """What residuals that are mostly small are likely to be, from noisy ones; what is clear is kept."""
    z = noisy / noise
    widest = max(100.0, float(np.abs(z).max(initial=0.0)))
    return noise * shrunk_by(z, 1.0, spreads(np.append(SPREADS, widest)), most=50_000)


PARTS = {"held": 0.03, "order": 0.03, "items": 0.42, "pairs": 0.45, "triples": 0.07}
TOP = 20  # items whose triples are measured
CUT_OFF = 0.004  # of the records may hold more items than count
CUT_OFF_PAIRS = 0.03  # the same among pairs
TRIPLES = "measure parities of three of the items that matter most"


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
        known = measured_total(purse, task)
        total = float(known.values)
        lengths = measured_lengths(purse, task.domain, total)
        limits = Limits(lengths.quantile(CUT_OFF), min(MOST_PAIRED, lengths.quantile(CUT_OFF_PAIRS)))
        spending = Spending(("order",), ("items",), ("pairs",))
        items = measured_items(purse, task, known, rng, spending, limits)
        progress("measuring", 1, 2)
        triples = _triples(purse, task, items, total, self.top)
        progress("measuring", 2, 2)
        return _expanded(SignedRows.of(task.workload), items, triples)


def plan_by_items(task: Task, signed: SignedRows) -> Plan[ByItemSets]:
    """Shares are fixed; what the noise will be depends on how many items records hold, which is measured first."""
    parts = {"total": SHARE_OF_TOTAL} if measures_total(task) else {}
    shares = shares_of(task.budget, parts | PARTS, {**STAGE_WORDS, "triples": TRIPLES})
    deviation = shares.deviation(MOST_PAIRED, "items") / task.rows
    noise = deviation * math.sqrt(signed.order)
    return Plan(
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
        records=False,
    )


def _triples(purse: Purse, task: Task, items: MeasuredItems, total: float, top: int) -> Reals:
    """c_ijk of the items that matter most, a cube by rank; symmetric, nought on its diagonals."""
    item_of_rank = np.argsort(items.rank)[:top]
    sets = np.array(list(combinations(range(len(item_of_rank)), 3)), np.int64).reshape(-1, 3)
    attributes = np.sort(item_of_rank[sets], axis=1).astype(np.int32)
    told = purse.measure(GroupBalances(Parities(task.domain, attributes)), "triples")
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
    pairs = items.pair - np.outer(items.single[: len(items.pair)], items.single[: len(items.pair)])
    total = mean.prod(axis=1)
    for moments, noise in ((pairs, items.noise_of_pair), (triples, 0.0)):
        for columns in combinations(range(signed.order), moments.ndim):
            mine = rank[:, columns]
            rows = np.flatnonzero((mine >= 0).all(axis=1) & (mine < len(moments)).all(axis=1))
            rest = np.delete(mean[rows], columns, axis=1).prod(axis=1)
            total[rows] += slope[rows][:, columns].prod(axis=1) * moments[tuple(mine[rows].T)] * rest
            variance[rows] += noise**2 / 4
    return signed.offset + signed.slope * total, np.sqrt(variance)


MOST_PARITIES = 2_000_000
MANY = 200  # attributes of a block of items that are too many for parities of all their sets
WIDEST = 12  # attributes of a query: 4,096 parities each


@dataclass(frozen=True, kw_only=True)
class ByOrder:
    """The parities of each order, with a share of the budget each."""

    widest: int
    parities: int
    noise: float  # expected, of an answer, as a fraction
    shares: Shares = hidden()

    def answers(
        self, curator: Curator, task: Task, rng: np.random.Generator, progress: Progress
    ) -> tuple[Fractions, Fractions]:
        """Measured, shrunk, summed: the answers and the deviation of their noise."""
        signed = SignedRows.of(task.workload)
        purse = self.shares.purse(curator)
        measured = {}
        for order in range(1, self.widest + 1):
            sets = signed.sets(order)
            if len(sets):
                told = purse.measure(
                    GroupBalances(Parities(task.domain, sets.astype(np.int32))), f"order {order}"
                )
                measured[order] = MeasuredParities(sets, told.values / task.rows, told.deviation / task.rows)
            progress("measuring", order, self.widest)
        answers = signed.answers(shrunk(measured, task.domain.width))
        return answers, np.sqrt(signed.variances(measured))


def plan(task: Task, wanted: ParityWishes) -> Plan[Any]:
    """By order where all parities can be measured; by items where a basket has very many."""
    if wanted.widest is not None:
        checked_width(task.workload, wanted.widest)
    signed = SignedRows.of(task.workload)
    if signed.order > WIDEST:
        raise QueryError(
            f"a query of {signed.order} attributes is a sum of 2^{signed.order} parities; at most {WIDEST} are taken"
        )
    if is_wide_basket(task.workload):
        return plan_by_items(task, signed)
    return _plan_by_order(task, signed)


def is_wide_basket(workload: Workload) -> bool:
    """Whether a table is one block of items, of which too many are asked about for their parities."""
    return is_transactions(workload.domain) and len(workload.attributes) > MANY


def asks_wide_disjunctions(workload: Workload) -> bool:
    """Whether all that is asked of a wide basket are disjunctions of two items and more."""
    if not is_wide_basket(workload):
        return False
    try:
        queries = attributes_of_disjunctions(workload)
    except QueryError:
        return False
    return bool(((queries != NONE).sum(axis=1) > 1).all())


def _plan_by_order(task: Task, signed: SignedRows) -> Plan[ByOrder]:
    numbers = {order: len(signed.sets(order)) for order in range(1, signed.order + 1)}
    numbers = {order: number for order, number in numbers.items() if number}
    parities = sum(numbers.values())
    if parities > MOST_PARITIES:
        raise QueryError(
            f"the workload is made of {parities:,} parities, more than {MOST_PARITIES:,}; ask about fewer attributes"
        )
    roots = {order: math.sqrt(signed.subsets_a_query(order) * m) for order, m in numbers.items()}
    parts = {f"order {order}": max(1e-4, root / sum(roots.values())) for order, root in roots.items()}
    shares = shares_of(task.budget, parts, {name: f"measure the parities of {name}" for name in parts})
    variance = 0.0
    for order in numbers:
        moved = GroupBalances(Parities(task.domain, signed.sets(order).astype(np.int32)))
        squared = task.budget.neighbours.sensitivity(moved.bound()).l2_squared
        deviation = shares.deviation(squared, f"order {order}")
        variance += signed.subsets_a_query(order) * deviation**2
    noise = math.sqrt(variance) / 2**signed.order / task.rows
    return Plan(
        task=task,
        reason=f"all {parities:,} parities within the queries are measured, each order with a share of its own",
        parameters=ByOrder(widest=signed.order, parities=parities, noise=noise, shares=shares),
        steps=shares.steps(),
        mean_error=min(0.5, 0.8 * noise),
        max_error=min(1.0, noise * math.sqrt(2 * math.log(2 * task.workload.size))),
        seconds=2.0 + parities * task.rows * 2e-10 + task.workload.size * 2e-6,
        bytes=64 * parities + 200 * task.workload.size,
        notes=(NO_RECORDS,),
        records=False,
    )


def run(plan: Plan[Any], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    workload: Workload = plan.task.workload
    way: ByOrder | ByItemSets = plan.parameters
    answers, deviations = way.answers(curator, plan.task, rng, progress)
    bars = np.maximum(BAR * deviations, 1 / plan.task.rows)
    return answers_only(workload, answers, bars)


WORDS = "the parities within the queries, measured by order, or items and pairs of wide baskets: answers only"
PARITIES = Mechanism(
    "parities", WORDS, ParityWishes, plan, run, paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP)
)
