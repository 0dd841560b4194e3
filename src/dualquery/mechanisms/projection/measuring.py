"""Measuring tables in stages: sizes are fixed and paid for before the first, what a later one measures
follows from the earlier ones.

A stage is an `Allowance`: a squared sensitivity A and a variance V, from public things. What is measured
within it are interactions, each times a whole number m_S of its own with Σ m_S² Δ_S² ≤ A
(`privacy.statistics`); the share x_S of a set is m_S² Δ_S²/A. All noise is Gaussian, so that the exact
theorem for Gaussian releases adds the stages up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import numpy as np

from dualquery.errors import BudgetError
from dualquery.game.moves import Cells
from dualquery.game.residual import Set
from dualquery.mechanisms.mechanism import Step, Task
from dualquery.mechanisms.projection.allocation import MOST_VARIANCE, measures_total
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.privacy.allowance import Allowance
from dualquery.privacy.budget import Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.prices import TOO_SMALL
from dualquery.privacy.statistics import (
    Interactions,
    interaction_distance,
    interaction_length,
    interaction_scale,
)
from dualquery.table.domain import Domain

ROOM = 1 << 44  # A: multipliers of a few thousand, so that shares are met to one part in thousands
LEAST_ROOM = 1 << 16
MOST_COUNT = 1 << 58  # of what a stage adds noise to


@dataclass(frozen=True)
class Stage:
    """Something that will be measured, the share of the budget it has, and the noise that this buys."""

    words: str
    share: float
    squared: int  # A
    noise: Gaussian

    @property
    def event(self) -> GaussianMeasurement:
        return GaussianMeasurement(Fraction(self.squared), self.noise.variance)

    def step(self) -> Step:
        return Step(f"{self.words} ({self.share:.0%} of the budget)", self.event)

    def chosen(self, shares: Mapping[Set, float], domain: Domain, neighbours: Neighbours) -> Interactions:
        """Interactions whose shares, of this stage, are in these proportions. What rounds to nothing is left
        out.
        """
        total = sum(shares.values()) * (1 + 1e-12)  # rounding must not exceed what was paid for
        multipliers = {
            members: math.isqrt(
                math.floor(self.squared * (share / total) / squared_sensitivity(members, domain, neighbours))
            )
            for members, share in shares.items()
            if share > 0
        }
        kept = {members: multiplier for members, multiplier in multipliers.items() if multiplier}
        return Interactions(domain, tuple(kept), tuple(kept.values()))

    def measured(
        self, curator: Curator, within: Allowance, what: Interactions
    ) -> tuple[dict[Set, Cells], dict[Set, float]]:
        """Interactions in records, and the variance of their noise before centring."""
        if not what.sets:
            return {}, {}
        noisy = curator.measure(what, noise=self.noise, within=within)
        return what.in_records(noisy), self.variances(what)

    def variances(self, what: Interactions) -> dict[Set, float]:
        return {
            members: float(self.noise.variance / what.scale(place) ** 2)
            for place, members in enumerate(what.sets)
        }


def squared_sensitivity(members: Set, domain: Domain, neighbours: Neighbours) -> int:
    """Δ_S² of the integer interaction of a set."""
    return _squared(tuple(int(domain.sizes[j]) for j in members), neighbours)


@lru_cache(maxsize=4096)
def _squared(sizes: tuple[int, ...], neighbours: Neighbours) -> int:
    return neighbours.largest_squared(alone=interaction_length(sizes), apart=interaction_distance(sizes))


def relative_sensitivity(members: Set, domain: Domain, neighbours: Neighbours) -> float:
    """c_S: Δ₂² of the interaction, in records; Π (k_j − 1)/k_j under add-remove."""
    sizes = tuple(int(domain.sizes[j]) for j in members)
    return _squared(sizes, neighbours) / interaction_scale(sizes) ** 2


def unit_of(members: Set, domain: Domain, neighbours: Neighbours, variance: float) -> float:
    """The variance of a cell of a set's interaction, in records², where `variance` is that of sensitivity
    one.
    """
    kept = math.prod((int(domain.sizes[j]) - 1) / int(domain.sizes[j]) for j in members)
    return kept * relative_sensitivity(members, domain, neighbours) * variance


@lru_cache(maxsize=64)
def unit_variance(budget: Budget) -> float:
    """v: the variance that the whole budget affords where one record moves one number by one, but for
    rounding.
    """
    fine = Fraction(1 << 40)
    return float(smallest_gaussian_scale(budget, [GaussianMeasurement(fine, fine)], bits=16))


def stages_of(task: Task, wanted: list[tuple[str, float, int | None]]) -> tuple[Stage, ...]:
    """Words, share and squared sensitivity of each stage; where that is None, as much room as the noise
    leaves.

    Variances are in proportion to A/share, and the smallest that the budget affords.
    """
    room = min(ROOM, (MOST_COUNT // (16 * task.rows)) ** 2)
    while True:
        sized = [(words, share, room if squared is None else squared) for words, share, squared in wanted]
        variances = [Fraction(a) / Fraction(share).limit_denominator(10_000) for _, share, a in sized]
        events = [
            GaussianMeasurement(Fraction(a), variance)
            for (_, _, a), variance in zip(sized, variances, strict=True)
        ]
        factor = smallest_gaussian_scale(task.budget, events, bits=24)
        if all(factor * variance < MOST_VARIANCE for variance in variances):
            return tuple(
                Stage(words, share, a, Gaussian(factor * variance))
                for (words, share, a), variance in zip(sized, variances, strict=True)
            )
        if room <= LEAST_ROOM:
            raise BudgetError(TOO_SMALL)
        room //= 16  # a tiny budget has room for coarse shares only


def known_at_first(
    task: Task, interactions: Mapping[Set, Cells], variance: Mapping[Set, float]
) -> MeasuredTables:
    """One-way tables and the number of records: measured with them, before (or both: they are joined), or public."""
    measured = MeasuredTables(task.domain, interactions, variance, 1.0)
    if not (measures_total(task) and () in interactions):
        rows, spread = np.array(float(task.rows)), task.rows_variance or 0.0
        measured = MeasuredTables(task.domain, {(): rows}, {(): spread}, 1.0).joined(interactions, variance)
    return replace(measured, total=max(1.0, float(measured.interactions[()])))
