"""The measurement plan: which tables, and how precisely, from workload, domain, budget and n alone.

Conjunctions are measured through the tables that they fall in. Of every attribute set of the workload, and
of all its subsets, the *interaction* may be measured (`privacy.interactions`); a table is put together again
from the interactions of its subsets. Orders one and two always are. A set of three or more attributes is
measured where the noise of its interaction, summed over its cells, is expected to stay below `WORTHWHILE`:
otherwise it is left to what the pairs imply (docs/projection.md has the evidence).
What a set costs does not depend on which others are taken; what is saved goes to the pairs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.plan import Shape
from dualquery.mechanisms.shrinkage import cell_variance
from dualquery.privacy.budget import Accounting
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.interactions import InteractionPlan, interaction_scale, interaction_sensitivity
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.neighbours import Neighbours
from dualquery.queries.query import NONE, Conjunctions, Group, Parities, Tables
from dualquery.queries.workload import Workload

Set = tuple[int, ...]

SHARE_OF_TOTAL = 0.01  # of the budget, where the number of records is private
SHARE_OF_ONES = 0.19
SHARE_OF_LARGER = (
    0.4  # for all sets of three and more; a set that is not measured leaves its part to the pairs
)
WORTHWHILE = 0.02  # expected L1 noise of an interaction, as a fraction of the records
MOST_VARIANCE = 1 << 61  # what the sampler can draw, with room to spare
FINENESS = 256  # the smallest multiplier: shares of the budget are met to one part in some hundreds
MOST_SETS = 200_000  # more attribute sets than this are not worth listing: the workload is wide
_ONE = Fraction(1)
_HALF_NORMAL = math.sqrt(2 / math.pi)


@dataclass(frozen=True)
class TablePlan:
    """Interactions to measure, and the sets whose tables the rows are fitted to."""

    interactions: InteractionPlan
    orders: tuple[int, ...]  # how many sets of each order, from one

    def noise(self, sizes: NDArray[np.integer]) -> dict[Set, float]:
        """The variance of the noise of each interaction, in records."""
        return self.interactions.noise(sizes)

    def cell_noise(self, shape: Shape) -> float:
        """The standard deviation of a cell of a pair's table (of a one-way table where there are no pairs)."""
        sizes = shape.domain.sizes
        variance = {(): 0.0, **self.noise(sizes)}
        order = 2 if any(len(members) == 2 for members in variance) else 1
        base = [members for members in variance if len(members) == order]
        precision = float(np.mean([1 / cell_variance(members, variance, sizes) for members in base]))
        return 1 / math.sqrt(precision) / shape.rows

    def cells(self, sizes: NDArray[np.integer]) -> int:
        """Of all views: every table is kept once a member attribute."""
        return sum(len(members) * prod(int(sizes[j]) for j in members) for members in self.interactions.sets)

    def visits(self, sizes: NDArray[np.integer]) -> float:
        """How many values one row looks at in a pass; a table costs some eight values whatever its size."""
        return float(sum(sum(8 + int(sizes[j]) for j in members) for members in self.interactions.sets))


def attribute_sets(workload: Workload) -> NDArray[np.int32]:
    """The distinct attribute sets of a workload's queries, one a row, increasing, padded with -1 at the end."""
    parts = [_sets_of(group) for group in workload.groups]
    width = max(part.shape[1] for part in parts)
    padded = [np.pad(part, ((0, 0), (0, width - part.shape[1])), constant_values=NONE) for part in parts]
    return distinct(np.concatenate(padded))


def _sets_of(group: Group) -> NDArray[np.int32]:
    if isinstance(group, Tables):
        width = max(1, max(len(members) for members in group.sets))
        rows = [list(members) + [NONE] * (width - len(members)) for members in group.sets]
        return np.array(rows, np.int32)
    if isinstance(group, Conjunctions):
        padded = np.append(
            group.predicates.attribute, NONE
        )  # a literal -1 stays -1 under >> and finds the end
        attributes = padded[group.literals >> 1]
    else:
        assert isinstance(group, Parities)
        attributes = group.attributes
    last = np.iinfo(np.int32).max
    ordered = np.sort(np.where(attributes == NONE, last, attributes), axis=1)
    return np.where(ordered == last, NONE, ordered).astype(np.int32)


def distinct(rows: NDArray[np.int32]) -> NDArray[np.int32]:
    """Distinct rows, through one 64-bit key a row where that is possible."""
    base = int(rows.max(initial=0)) + 2
    if base ** rows.shape[1] < 1 << 63:
        key = np.zeros(len(rows), np.int64)
        for column in rows.T:
            key = key * base + column + 1
        _, first = np.unique(key, return_index=True)
        return rows[first]
    return np.unique(rows, axis=0)


def closure(sets: NDArray[np.int32]) -> dict[int, list[Set]]:
    """All non-empty subsets of the sets, by order, each order sorted; without the orders that are too many."""
    found: dict[int, list[Set]] = {}
    width = sets.shape[1]
    for order in range(1, width + 1):
        parts = [sets[:, list(columns)] for columns in combinations(range(width), order)]
        complete = [part[np.all(part != NONE, axis=1)] for part in parts]
        together = distinct(np.concatenate(complete)) if any(len(part) for part in complete) else parts[0][:0]
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


def available_rho(shape: Shape) -> float:
    """ρ of the budget: what Gaussian measurements may cost, at least."""
    budget = shape.budget
    if budget.accounting not in (Accounting.ZCDP, Accounting.GAUSSIAN):
        raise BudgetError(
            f"projection adds Gaussian noise, which {budget.accounting.value} accounting cannot pay for; use zcdp"
        )
    return float(rho_of(epsilon=budget.epsilon, delta=budget.delta))


def plan_tables(shape: Shape) -> TablePlan:
    """Shares of the budget by order, then within an order in proportion to (c_S · cells)^¼."""
    sizes, neighbours = shape.domain.sizes, shape.budget.neighbours
    orders = closure(attribute_sets(shape.workload))
    orders = {
        order: [members for members in sets if all(sizes[j] > 1 for j in members)]
        for order, sets in orders.items()
    }
    larger = [members for order in sorted(orders) if order > 2 for members in orders[order]]
    rho = available_rho(shape)
    worth = [
        members
        for members in larger
        if _expected_l1(members, rho * SHARE_OF_LARGER / len(larger), shape) <= WORTHWHILE
    ]
    shares: dict[Set, float] = {}
    if neighbours is Neighbours.ADD_REMOVE:
        shares[()] = SHARE_OF_TOTAL
    left = 1.0 - sum(shares.values())
    for members in worth:
        shares[members] = SHARE_OF_LARGER / len(larger)
        left -= shares[members]
    pairs = orders.get(2, [])
    ones = orders.get(1, [])
    share_of_ones = SHARE_OF_ONES if pairs else left
    shares.update(_split(ones, share_of_ones, shape))
    shares.update(_split(pairs, left - share_of_ones, shape))
    counts = [sum(len(members) == order for members in shares) for order in range(1, max(orders) + 1)]
    return TablePlan(_priced(shares, shape), tuple(counts))


def one_way_plan(shape: Shape, share: Fraction) -> TablePlan:
    """One-way tables (and the total) alone, for a share of ρ."""
    sizes, neighbours = shape.domain.sizes, shape.budget.neighbours
    used = closure(attribute_sets(shape.workload)).get(1, [])
    ones = [members for members in used if sizes[members[0]] > 1]
    shares: dict[Set, float] = {(): 0.05} if neighbours is Neighbours.ADD_REMOVE else {}
    shares.update(_split(ones, 1.0 - sum(shares.values()), shape))
    plan = _priced(shares, shape)
    rho = rho_of(epsilon=shape.budget.epsilon, delta=shape.budget.delta) * share
    variance = plan.event(sizes, neighbours).sensitivity_squared / (2 * rho)
    return TablePlan(InteractionPlan(plan.sets, plan.multipliers, variance), (len(ones),))


def _relative_sensitivity(members: Set, shape: Shape) -> float:
    """c_S: Δ₂² of the interaction, in records; Π (k_j − 1)/k_j under add-remove."""
    sizes = [int(shape.domain.sizes[j]) for j in members]
    return interaction_sensitivity(sizes, shape.budget.neighbours) / interaction_scale(sizes) ** 2


def _expected_l1(members: Set, rho: float, shape: Shape) -> float:
    """The noise of an interaction that costs ρ, summed over its cells, as a fraction of the records."""
    sizes = [int(shape.domain.sizes[j]) for j in members]
    deviation = math.sqrt(_relative_sensitivity(members, shape) / (2 * rho))
    return _HALF_NORMAL * deviation * math.sqrt(prod(k * (k - 1) for k in sizes)) / shape.rows


def _split(sets: list[Set], share: float, shape: Shape) -> dict[Set, float]:
    wanted = [
        (_relative_sensitivity(s, shape) * prod(int(shape.domain.sizes[j]) for j in s)) ** 0.25 for s in sets
    ]
    total = sum(wanted)
    return {members: share * part / total for members, part in zip(sets, wanted, strict=True)}


def _priced(shares: dict[Set, float], shape: Shape) -> InteractionPlan:
    """Integer multipliers in the ratio of the shares, and the smallest variance that the budget affords."""
    sizes, budget = shape.domain.sizes, shape.budget
    exact = {
        members: math.sqrt(
            share / interaction_sensitivity([int(sizes[j]) for j in members], budget.neighbours)
        )
        for members, share in shares.items()
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
        event = InteractionPlan(sets, multipliers, _ONE).event(sizes, budget.neighbours)
        variance = smallest_gaussian_scale(budget, [event])
        if variance < MOST_VARIANCE or fineness == 1:
            return InteractionPlan(sets, multipliers, variance)
        fineness //= 4  # a tiny budget has room for coarse shares only
