"""Three measurements whose sizes are fixed before the first: one-way tables, misfits, and the rest.

All of them are Gaussian, so that one theorem adds them up, whichever accounting is kept. What the last one measures
is chosen after the first two were heard, within the sensitivity and at the variance that were paid for (`Allowance`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dualquery.errors import BudgetError
from dualquery.game.residual import Set
from dualquery.mechanisms.mechanism import Step, Task
from dualquery.mechanisms.projection.allocation import MOST_VARIANCE, measures_total
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.privacy.allowance import Allowance
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.misfits import misfit_sensitivity
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.prices import TOO_SMALL
from dualquery.privacy.statistics import (
    Interactions,
    interaction_distance,
    interaction_length,
    interaction_scale,
)
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain

TOTAL_OF_ONES = 0.05  # of the share of the one-way tables, for the number of records where that is private
CAUTION = (
    0.5  # standard deviations by which the number of records is taken lower than measured: too many would
)
# leave records in empty cells, while too few are mended where tables are made distributions
FINENESS = 256  # the least multiplier of an interaction, where the budget is not tiny


@dataclass(frozen=True)
class Shares:
    """Of the budget: for one-way tables (and the number of records), for misfits, and the rest."""

    ones: float
    misfits: float

    @property
    def rest(self) -> float:
        return 1.0 - self.ones - self.misfits


@dataclass(frozen=True)
class Stages:
    """What is measured first, and what the other two may cost."""

    ones: Interactions
    ones_noise: Gaussian
    candidates: Tables  # whose misfits are measured
    misfit_noise: Gaussian
    allowed: int  # the squared sensitivity of the last measurement
    last_noise: Gaussian

    def steps(self, task: Task, last: str) -> tuple[Step, ...]:
        """As the plan lists them."""
        events = self.events(task.budget.neighbours)
        words = (
            f"measure {len(self.ones.sets):,} one-way tables at once",
            f"measure how far {len(self.candidates.sets):,} tables lie from independence",
            last,
        )
        return tuple(Step(*step) for step in zip(words, events, strict=True))

    def events(self, neighbours: Neighbours) -> tuple[GaussianMeasurement, ...]:
        """What all three cost."""
        return (
            self.ones_noise.event(self.ones.sensitivity(neighbours)),
            self.misfit_noise.event(misfit_sensitivity(len(self.candidates.sets), neighbours)),
            GaussianMeasurement(Fraction(self.allowed), self.last_noise.variance),
        )

    def measure_ones(self, curator: Curator, task: Task, within: Allowance) -> MeasuredTables:
        """One-way tables, and the number of records where that is not known."""
        noisy = curator.measure(self.ones, noise=self.ones_noise, within=within)
        measured = MeasuredPart(self.ones.in_records(noisy), variances(self.ones, self.ones_noise))
        if measures_total(task):
            return measured.joined(MeasuredTables(task.domain, {}, {}, 1.0))
        rows, variance = np.array(float(task.rows)), task.rows_variance or 0.0
        return measured.joined(MeasuredTables(task.domain, {(): rows}, {(): variance}, task.rows))

    def within(self, shares: Mapping[Set, float], neighbours: Neighbours) -> Interactions:
        """Interactions with these shares of the last measurement, at most its sensitivity all together.

        A share too small for any whole multiplier leaves its set out.
        """
        exact = {
            members: share * self.allowed / squared_sensitivity(members, self.ones.domain, neighbours)
            for members, share in shares.items()
        }
        kept = {members: math.isqrt(math.floor(square)) for members, square in exact.items() if square >= 1}
        return Interactions(self.ones.domain, tuple(kept), tuple(kept.values()))

    def measure_last(self, curator: Curator, what: Interactions, within: Allowance) -> MeasuredPart:
        """What was chosen, in records, with the variance of its noise."""
        noisy = curator.measure(what, noise=self.last_noise, within=within)
        return MeasuredPart(what.in_records(noisy), variances(what, self.last_noise))


@dataclass(frozen=True)
class MeasuredPart:
    """Some interactions in records, and the variance of their noise before centring."""

    interactions: Mapping[Set, np.ndarray]
    variance: Mapping[Set, float]

    def joined(self, before: MeasuredTables) -> MeasuredTables:
        """With what was measured before; what was measured twice is weighed by inverse variance."""
        interactions, variance = dict(before.interactions), dict(before.variance)
        for members, cells in self.interactions.items():
            new = self.variance[members]
            if members in interactions:
                old = variance[members]
                part = old / (old + new)
                interactions[members] = part * cells + (1 - part) * interactions[members]
                variance[members] = part * new
            else:
                interactions[members], variance[members] = cells, new
        rows = float(interactions[()]) - CAUTION * math.sqrt(variance[()])
        return MeasuredTables(before.domain, interactions, variance, max(1.0, rows))


def variances(interactions: Interactions, noise: Gaussian) -> dict[Set, float]:
    """The variance of the noise of each interaction, in records, before centring."""
    return {
        members: float(noise.variance / interactions.scale(place) ** 2)
        for place, members in enumerate(interactions.sets)
    }


def squared_sensitivity(members: Set, domain: Domain, neighbours: Neighbours) -> int:
    """Δ₂² of the integer interaction of a set."""
    return _squared(tuple(int(domain.sizes[j]) for j in members), neighbours)


def relative_sensitivity(members: Set, domain: Domain, neighbours: Neighbours) -> float:
    """c_S: Δ₂² of the interaction, in records; Π (k_j − 1)/k_j under add-remove."""
    sizes = tuple(int(domain.sizes[j]) for j in members)
    return _squared(sizes, neighbours) / interaction_scale(sizes) ** 2


@lru_cache(maxsize=4096)
def _squared(sizes: tuple[int, ...], neighbours: Neighbours) -> int:
    """As `Interactions` charges for one set; sets of equal sizes are alike."""
    return neighbours.largest_squared(alone=interaction_length(sizes), apart=interaction_distance(sizes))


def shares_of_first(ones: list[Set], domain: Domain, neighbours: Neighbours) -> dict[Set, float]:
    """Of one-way tables in proportion to (c_S · cells)^¼, and of the number of records; together one."""
    wanted = {s: (relative_sensitivity(s, domain, neighbours) * domain.sizes[s[0]]) ** 0.25 for s in ones}
    if not neighbours.size_is_public:
        wanted[()] = TOTAL_OF_ONES * sum(wanted.values())
    total = sum(wanted.values())
    return {members: part / total for members, part in wanted.items()}


def stages_of(task: Task, ones: list[Set], candidates: list[Set], shares: Shares) -> Stages:
    """Integer multipliers in the ratio of the shares, and the smallest variances that the budget affords."""
    fineness = FINENESS
    while True:
        stages = _stages(task, ones, candidates, shares, fineness)
        noises = (stages.ones_noise, stages.misfit_noise, stages.last_noise)
        if max(noise.variance for noise in noises) < MOST_VARIANCE:
            return stages
        if fineness == 1:
            raise BudgetError(TOO_SMALL)
        fineness //= 4


def _stages(task: Task, ones: list[Set], candidates: list[Set], shares: Shares, fineness: int) -> Stages:
    domain, neighbours = task.domain, task.budget.neighbours
    wanted = shares_of_first(ones, domain, neighbours)
    exact = {s: math.sqrt(x / squared_sensitivity(s, domain, neighbours)) for s, x in wanted.items()}
    unit = fineness / min(exact.values())
    first = Interactions(domain, tuple(exact), tuple(max(1, round(unit * x)) for x in exact.values()))
    moved = first.sensitivity(neighbours).l2_squared
    tables = Tables(domain, tuple(candidates))
    misfit = misfit_sensitivity(len(tables.sets), neighbours).l2_squared
    # With equal noise on all candidates, in records, the multiplier of the largest scale is `fineness`.
    largest = max(interaction_scale([int(domain.sizes[j]) for j in s]) for s in candidates)
    together = sum(relative_sensitivity(s, domain, neighbours) for s in candidates)
    allowed = math.ceil((fineness * largest) ** 2 * together)
    parts = (moved, shares.ones), (misfit, shares.misfits), (allowed, shares.rest)
    unscaled = [Fraction(square) / Fraction(share).limit_denominator(10_000) for square, share in parts]
    events = [GaussianMeasurement(Fraction(p[0]), v) for p, v in zip(parts, unscaled, strict=True)]
    factor = smallest_gaussian_scale(task.budget, events)
    noises = [Gaussian(factor * variance) for variance in unscaled]
    return Stages(first, noises[0], tables, noises[1], allowed, noises[2])
