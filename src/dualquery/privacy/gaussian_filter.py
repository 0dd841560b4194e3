"""Gaussian accounting where the sizes of later measurements follow earlier outputs.

The theorem on Gaussian releases takes every (Δ², σ²) as fixed. Where they are not, a ratio Δ²/σ² says too little:
discrete noise of variance 1 tells more than discrete noise of variance 10⁴ on numbers that move 100 times as far. The
lemma of the Gaussian filter (docs/privacy.md, "The ledger as a filter") fixes r², μ² and M instead, before anything
is drawn:

    Σ Δ_i²/(σ_i² − r²) ≤ μ²   and   Σ Δ_i² ≤ M   on every path   ⟹   (ε + 2Mτ, e^(Mτ) δ)-DP,

(ε, δ) on the curve of real noise with μ. Here r² and M are constants, and μ² is the largest that fits the budget. A
selection is as good as real Gaussian noise of μ² = πε²/8, and adds to the same sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from dualquery.privacy.budget import Accounting, Budget, Spent
from dualquery.privacy.conversion import UNITS, distortion_of, gaussian_epsilon, largest_units, units
from dualquery.privacy.events import Concentrated, GaussianMeasurement

ROUNDING = Fraction(5)  # r²: so much of every variance is given up for the rounding of real noise
MOST_CELLS = 2**80  # M: more than any plan needs, and yet Mτ < 10⁻¹⁸ at this r²
FINE = 2**14  # a variance of which r² is 0.03%
MOST_TIMES = 2**20  # counts times this still fit 64 bits


def filter_epsilon(mu_squared: Fraction | float, *, delta: float, records: int = 1) -> float:
    """The ε at δ of everything that stays within μ² and M, between tables so many records apart: k²μ² and k²M."""
    distortion = records**2 * MOST_CELLS * distortion_of(ROUNDING)
    real = gaussian_epsilon(
        records**2 * mu_squared, delta=math.nextafter(delta * math.exp(-2 * distortion), 0.0)
    )
    return math.nextafter(real + 2 * distortion, math.inf) if real else 2 * distortion


@lru_cache(maxsize=256)
def mu_squared_units(*, epsilon: float, delta: float) -> int:
    """The largest μ², in whole units of 10⁻¹², that keeps within (ε, δ)."""
    return largest_units(lambda cost: filter_epsilon(cost, delta=delta) <= epsilon)


def fine_multiplier(budget: Budget, noises: Sequence[GaussianMeasurement]) -> int:
    """By which power of two to multiply whole numbers, so that discreteness costs nothing: 1 unless gaussian.

    Discrete noise on numbers that are m times as large, with m² times the variance, is as much noise, in finer steps.
    The measurements are all of a plan; one factor on their variances will use up the budget.
    """
    if budget.accounting is not Accounting.GAUSSIAN:
        return 1
    most = Fraction(max(1, mu_squared_units(epsilon=budget.epsilon, delta=budget.delta)), UNITS)
    factor = sum(each.sensitivity_squared / each.variance for each in noises) / most
    return times_for(factor * min(each.variance for each in noises))


def times_for(variance: Fraction) -> int:
    """The least power of two that makes noise of this variance `FINE`."""
    times = 1
    while times**2 * variance < FINE and times < MOST_TIMES:
        times *= 2
    return times


@dataclass(frozen=True)
class GaussianFilter:
    """Σ μ_i² in units, each term rounded up, and Σ Δ² of the noise; the limits are μ² of the budget, and M."""

    budget: Budget
    total: int = 0
    cells: Fraction = Fraction(0)
    too_narrow: bool = False  # some variance does not exceed r²

    def after(self, event: Concentrated) -> GaussianFilter:
        cells = event.sensitivity_squared if isinstance(event, GaussianMeasurement) else Fraction(0)
        cost = event.mu_squared(ROUNDING)
        return GaussianFilter(
            self.budget,
            self.total + units(cost or Fraction(0)),
            self.cells + cells,
            self.too_narrow or cost is None,
        )

    @property
    def limit(self) -> int:
        """μ², in units."""
        return mu_squared_units(epsilon=self.budget.epsilon, delta=self.budget.delta)

    @property
    def affordable(self) -> bool:
        return not self.too_narrow and self.cells <= MOST_CELLS and self.total <= self.limit

    @property
    def epsilon(self) -> float:
        """Of what was paid for on this path; what is promised is the limit."""
        if self.too_narrow:
            return math.inf
        return filter_epsilon(Fraction(self.total, UNITS), delta=self.budget.delta)

    def limit_for(self, records: int) -> float | None:
        return filter_epsilon(Fraction(self.limit, UNITS), delta=self.budget.delta, records=records)

    def spent(self) -> Spent:
        """The whole budget; ρ of the limit is μ²/2, since Δ²/σ² < Δ²/(σ² − r²)."""
        return Spent(-(-self.limit // 2), self.budget.epsilon, self.budget.delta)
