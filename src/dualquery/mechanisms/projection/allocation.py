"""One measurement of tables, and the attribute sets of a workload.

Conjunctions are measured through the tables that they fall in. Of every attribute set of the workload, and of
all its subsets, the *interaction* may be measured (`privacy.statistics`); a table is put together again from
the interactions of its subsets. Several of them at once share one noise level, each times a whole number of
its own (`TablePlan`). How the default way measures in stages is in `planning` and `staged`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DualQueryError
from dualquery.game.residual import Set
from dualquery.mechanisms.mechanism import Step, Task
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.privacy.budget import Accounting
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.statistics import Interactions, interaction_scale
from dualquery.queries.group import distinct_sets
from dualquery.queries.predicates import NONE

MOST_VARIANCE = 1 << 61  # what the sampler can draw, with room to spare
FINENESS = 256  # the smallest multiplier: shares of the budget are met to one part in some hundreds
MOST_SETS = 200_000  # more attribute sets than this are not worth listing: the workload is wide


@dataclass(frozen=True)
class TablePlan:
    """Interactions to measure, all with the same noise; in records a set has it over its scale."""

    interactions: Interactions
    noise: Gaussian
    orders: tuple[int, ...]  # how many sets of each order, from one

    def step(self, task: Task) -> Step:
        """All of them as the one measurement that they are."""
        moved = self.interactions.sensitivity(task.budget.neighbours)
        words = f"measure {len(self.interactions.sets):,} interactions at once"
        return Step(words, self.noise.event(moved))

    def variances(self) -> dict[Set, float]:
        """The variance of the noise of each interaction, in records, before centring."""
        return {
            members: float(self.noise.variance / self.interactions.scale(place) ** 2)
            for place, members in enumerate(self.interactions.sets)
        }

    def measure(self, curator: Curator, task: Task) -> MeasuredTables:
        """Ask the curator once for everything that is planned."""
        noisy = curator.measure(self.interactions, noise=self.noise)
        interactions, variance = self.interactions.in_records(noisy), self.variances()
        if () not in interactions:  # the number of records is public, or was measured before
            interactions[()] = np.array(float(task.rows))
            variance[()] = task.rows_variance or 0.0
        return MeasuredTables(task.domain, interactions, variance, max(1.0, float(interactions[()])))


def closure(sets: NDArray[np.int32]) -> dict[int, list[Set]]:
    """All non-empty subsets of the sets, by order, each order sorted; without the orders that are too many."""
    found: dict[int, list[Set]] = {}
    width = sets.shape[1]
    for order in range(1, width + 1):
        parts = [sets[:, list(columns)] for columns in combinations(range(width), order)]
        complete = [part[np.all(part != NONE, axis=1)] for part in parts]
        together = (
            distinct_sets(np.concatenate(complete)) if any(len(part) for part in complete) else parts[0][:0]
        )
        if len(together) > MOST_SETS:
            if order > 2:  # so many would each be measured too poorly to be worthwhile; their pairs still are
                break
            raise DualQueryError(
                f"the workload asks about more than {MOST_SETS:,} different sets of {order} attributes, too many "
                "to measure as tables; ask about fewer attributes, or use another mechanism"
            )
        if len(together):
            found[order] = [tuple(row) for row in together.tolist()]
    return found


def available_rho(task: Task) -> float:
    """ρ of the budget: what Gaussian measurements may cost, at least."""
    budget = task.budget
    if budget.accounting not in (Accounting.ZCDP, Accounting.GAUSSIAN):
        raise BudgetError(
            f"projection adds Gaussian noise, which {budget.accounting.value} accounting cannot pay for; use zcdp"
        )
    return float(rho_of(epsilon=budget.epsilon, delta=budget.delta))


def measures_total(task: Task) -> bool:
    """Whether the number of records is still to be measured: it is private, and no measurement came before."""
    return not task.budget.neighbours.size_is_public and task.rows_variance is None


def one_way_plan(task: Task, share: Fraction) -> TablePlan:
    """One-way tables (and the total) alone, for a share of ρ."""
    used = closure(task.workload.scope).get(1, [])
    ones = [members for members in used if task.domain.sizes[members[0]] > 1]
    shares: dict[Set, float] = {(): 0.05} if measures_total(task) else {}
    shares.update(_split(ones, 1.0 - sum(shares.values()), task))
    whole = _priced(shares, (len(ones),), task)
    rho = rho_of(epsilon=task.budget.epsilon, delta=task.budget.delta) * share
    moved = whole.interactions.sensitivity(task.budget.neighbours)
    return replace(whole, noise=Gaussian(moved.l2_squared / (2 * rho)))


def _squared_sensitivity(members: Set, task: Task) -> int:
    """Δ₂² of the integer interaction of a set."""
    return Interactions(task.domain, (members,), (1,)).sensitivity(task.budget.neighbours).l2_squared


def _relative_sensitivity(members: Set, task: Task) -> float:
    """c_S: Δ₂² of the interaction, in records; Π (k_j − 1)/k_j under add-remove."""
    sizes = [int(task.domain.sizes[j]) for j in members]
    return _squared_sensitivity(members, task) / interaction_scale(sizes) ** 2


def _split(sets: list[Set], share: float, task: Task) -> dict[Set, float]:
    wanted = [
        (_relative_sensitivity(s, task) * prod(int(task.domain.sizes[j]) for j in s)) ** 0.25 for s in sets
    ]
    total = sum(wanted)
    return {members: share * part / total for members, part in zip(sets, wanted, strict=True)}


def _priced(shares: dict[Set, float], orders: tuple[int, ...], task: Task) -> TablePlan:
    """Integer multipliers in the ratio of the shares, and the smallest variance that the budget affords."""
    exact = {
        members: math.sqrt(share / _squared_sensitivity(members, task)) for members, share in shares.items()
    }
    if not exact:
        raise DualQueryError(
            "every attribute that the workload asks about is constant: there is nothing to measure"
        )
    sets = tuple(exact)
    fineness = FINENESS
    while True:
        unit = fineness / min(exact.values())
        multipliers = tuple(max(1, round(unit * exact[members])) for members in sets)
        interactions = Interactions(task.domain, sets, multipliers)
        moved = interactions.sensitivity(task.budget.neighbours)
        variance = smallest_gaussian_scale(
            task.budget, [GaussianMeasurement(Fraction(moved.l2_squared), Fraction(1))]
        )
        if variance < MOST_VARIANCE or fineness == 1:
            return TablePlan(interactions, Gaussian(variance), orders)
        fineness //= 4  # a tiny budget has room for coarse shares only
