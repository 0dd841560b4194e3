"""Parities measured by order: every query over binary attributes from the parities of its subsets.

One Gaussian measurement for all parities of an order. What a query needs of order r are C(k, r) of the M_r that are
measured, each with noise of variance M_r / share_r and the coefficient 2^{−k}, so that the mean squared error
is least at

    share_r ∝ √(C(k, r) · M_r)          (.06, .28, .66 for all disjunctions of 3 out of 50),

public numbers all. No polynomial saves anything up to k = 4 (`dualquery degrees`), and no learner has to find what
was measured anyway. Baskets too wide for it are measured by items and their pairs (`baskets`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from dualquery.errors import QueryError
from dualquery.mechanisms.artefact import BareAnswers, Fractions
from dualquery.mechanisms.disjunctions.baskets import ByItemSets, plan_by_items
from dualquery.mechanisms.disjunctions.expansion import MeasuredParities, SignedRows, shrunk
from dualquery.mechanisms.disjunctions.monomials import checked_width
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.mechanisms.independent import NO_RECORDS
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Progress, Task, hidden
from dualquery.mechanisms.projection.baskets import is_transactions
from dualquery.mechanisms.shares import Shares, refuse_other_noise, shares_of
from dualquery.mechanisms.wishes import ParityWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.parity_statistics import ParityBalances
from dualquery.queries.conjunctions import Parities
from dualquery.queries.families import attributes_of_disjunctions
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload

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
                    ParityBalances(Parities(task.domain, sets.astype(np.int32))), f"order {order}"
                )
                measured[order] = MeasuredParities(sets, told.values / task.rows, told.deviation / task.rows)
            progress("measuring", order, self.widest)
        answers = signed.answers(shrunk(measured, task.domain.width))
        return answers, np.sqrt(signed.variances(measured))


def plan(task: Task, wanted: ParityWishes) -> Plan[Any]:
    """By order where all parities can be measured; by items where a basket has very many."""
    refuse_other_noise(task)
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
        moved = ParityBalances(Parities(task.domain, signed.sets(order).astype(np.int32)))
        squared = moved.sensitivity(task.budget.neighbours).l2_squared
        deviation = shares.deviation(squared, f"order {order}")
        variance += signed.subsets_a_query(order) * deviation**2
    noise = math.sqrt(variance) / 2**signed.order / task.rows
    return Plan(
        mechanism="parities",
        task=task,
        reason=f"all {parities:,} parities within the queries are measured, each order with a share of its own",
        parameters=ByOrder(widest=signed.order, parities=parities, noise=noise, shares=shares),
        steps=shares.steps(),
        mean_error=min(0.5, 0.8 * noise),
        max_error=min(1.0, noise * math.sqrt(2 * math.log(2 * task.workload.size))),
        seconds=2.0 + parities * task.rows * 2e-10 + task.workload.size * 2e-6,
        bytes=64 * parities + 200 * task.workload.size,
        notes=(NO_RECORDS,),
    )


def run(plan: Plan[Any], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """Measure as planned, and sum."""
    workload: Workload = plan.task.workload
    way: ByOrder | ByItemSets = plan.parameters
    answers, deviations = way.answers(curator, plan.task, rng, progress)
    answers = np.clip(answers, 0.0, 1.0)
    bars = np.maximum(NormalDist().inv_cdf(0.5 + LEVEL / 2) * deviations, 1 / plan.task.rows)
    artefact = BareAnswers(list(workload.texts()), answers, bars)
    return Outcome(artefact=artefact, answers=answers, notes=(NO_RECORDS,))


WORDS = "the parities within the queries, measured by order, or items and pairs of wide baskets: answers only"
PARITIES = Mechanism(
    "parities", WORDS, ParityWishes, plan, run, paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP)
)
