"""The measurement plan: which tables, and how precisely, from workload, domain, budget and n alone.

Conjunctions are measured through the tables that they fall in. Of every attribute set of the workload, and
of all its subsets, the *interaction* may be measured (`privacy.statistics`); a table is put together again
from the interactions of its subsets. Orders one and two always are. A set of three or more attributes is
measured where the noise of its interaction, summed over its cells, is expected to stay below `WORTHWHILE`:
otherwise it is left to what the pairs imply (docs/projection.md has the evidence).
What a set costs does not depend on which others are taken; what is saved goes to the pairs.
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
from dualquery.mechanisms.projection.shrinkage import cell_variance
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.privacy.budget import Accounting
from dualquery.privacy.conversion import UNITS, rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.gaussian_filter import mu_squared_units
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.statistics import Interactions, interaction_scale
from dualquery.queries.group import distinct_sets
from dualquery.queries.predicates import NONE

SHARE_OF_TOTAL = 0.01  # of the budget, where the number of records is private and was not measured before
SHARE_OF_ONES = 0.19
SHARE_OF_LARGER = (
    0.4  # for all sets of three and more; a set that is not measured leaves its part to the pairs
)
WORTHWHILE = 0.02  # expected L1 noise of an interaction, as a fraction of the records
MOST_VARIANCE = 1 << 61  # what the sampler can draw, with room to spare
FINENESS = 256  # the smallest multiplier: shares of the budget are met to one part in some hundreds
MOST_SETS = 200_000  # more attribute sets than this are not worth listing: the workload is wide
_HALF_NORMAL = math.sqrt(2 / math.pi)


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

    def cell_noise(self, task: Task) -> float:
        """The standard deviation of a cell of a pair's table (of a one-way table where there are no pairs)."""
        sizes = task.domain.sizes
        variance = {(): 0.0, **self.variances()}
        order = 2 if any(len(members) == 2 for members in variance) else 1
        base = [members for members in variance if len(members) == order]
        precision = float(np.mean([1 / cell_variance(members, variance, sizes) for members in base]))
        return 1 / math.sqrt(precision) / task.rows

    def cells(self) -> int:
        """Of all views: every table is kept once a member attribute."""
        sizes_of = self.interactions.sizes_of
        return sum(len(members) * prod(sizes_of(members)) for members in self.interactions.sets)

    def visits(self) -> float:
        """How many values one row looks at in a pass; a table costs some eight values whatever its size."""
        sizes_of = self.interactions.sizes_of
        return float(sum(8 * len(members) + sum(sizes_of(members)) for members in self.interactions.sets))


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
    """ρ of the budget: what Gaussian measurements may cost, nearly."""
    budget = task.budget
    if budget.accounting not in (Accounting.ZCDP, Accounting.GAUSSIAN):
        raise BudgetError(
            f"projection adds Gaussian noise, which {budget.accounting.value} accounting cannot pay for; use zcdp"
        )
    if budget.accounting is Accounting.GAUSSIAN:
        return mu_squared_units(epsilon=budget.epsilon, delta=budget.delta) / (2 * UNITS)
    return float(rho_of(epsilon=budget.epsilon, delta=budget.delta))


def measures_total(task: Task) -> bool:
    """Whether the number of records is still to be measured: it is private, and no measurement came before."""
    return not task.budget.neighbours.size_is_public and task.rows_variance is None


def plan_tables(task: Task) -> TablePlan:
    """Shares of the budget by order, then within an order in proportion to (c_S · cells)^¼."""
    sizes = task.domain.sizes
    orders = {
        order: [members for members in sets if all(sizes[j] > 1 for j in members)]
        for order, sets in closure(task.workload.scope).items()
    }
    larger = [members for order in sorted(orders) if order > 2 for members in orders[order]]
    rho = available_rho(task)
    worth = [
        members
        for members in larger
        if _expected_l1(members, rho * SHARE_OF_LARGER / len(larger), task) <= WORTHWHILE
    ]
    shares: dict[Set, float] = {(): SHARE_OF_TOTAL} if measures_total(task) else {}
    left = 1.0 - sum(shares.values())
    for members in worth:
        shares[members] = SHARE_OF_LARGER / len(larger)
        left -= shares[members]
    pairs = orders.get(2, [])
    ones = orders.get(1, [])
    share_of_ones = SHARE_OF_ONES if pairs else left
    shares.update(_split(ones, share_of_ones, task))
    shares.update(_split(pairs, left - share_of_ones, task))
    counts = [sum(len(members) == order for members in shares) for order in range(1, max(orders) + 1)]
    return _priced(shares, tuple(counts), task)


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


def _expected_l1(members: Set, rho: float, task: Task) -> float:
    """The noise of an interaction that costs ρ, summed over its cells, as a fraction of the records."""
    sizes = [int(task.domain.sizes[j]) for j in members]
    deviation = math.sqrt(_relative_sensitivity(members, task) / (2 * rho))
    return _HALF_NORMAL * deviation * math.sqrt(prod(k * (k - 1) for k in sizes)) / task.rows


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
