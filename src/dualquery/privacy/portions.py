"""A budget in two: noise for one measurement that costs a share of it, and what is left, again a budget of its kind.

Pure: Laplace noise of scale Δ₁/price costs the price, and ε adds up. zCDP: Gaussian noise of variance Δ₂²/(2 price),
and ρ adds up; what is left is the largest ε whose ρ is at most the rest. Gaussian: of μ² the noise costs
Δ₂²/(σ² − r²), which adds up, and the rest again is the largest ε whose μ² is at most that: by the filter where sizes
may follow outputs, else by the curve of real noise, whose μ² is met to one part in a million.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from dualquery.errors import BudgetError
from dualquery.privacy.accounting import ROUNDING, filter_epsilon, mu_squared_units, times_for
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, epsilon_of, gaussian_epsilon, largest_units, rho_of, units
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Gaussian, Laplace, Noise

MARGIN = Fraction(1, 10**6)  # of μ², for the rounding of the bounds that a ledger takes the best of


@dataclass(frozen=True)
class Portion:
    """Noise for so many times what is measured, and the budget that is left after it."""

    noise: Noise
    left: Budget
    times: int = 1


def portion(budget: Budget, share: Fraction, moved: Sensitivity, too_small: str) -> Portion:
    """Noise that costs this share of a budget, on numbers that neighbours move so far; refused with these words."""
    if budget.accounting is Accounting.PURE:
        return _pure(budget, share, moved, too_small)
    if budget.accounting is Accounting.ZCDP:
        return _concentrated(budget, share, moved, too_small)
    if budget.accounting is Accounting.GAUSSIAN:
        split = _filtered if budget.adaptive else _gaussian
        return split(budget, share, moved, too_small)
    raise BudgetError(f"{budget.accounting.value} accounting knows no shares of a budget")


def _pure(budget: Budget, share: Fraction, moved: Sensitivity, too_small: str) -> Portion:
    price = decimal(budget.epsilon) * share
    rest = Fraction(math.floor(decimal(budget.epsilon) * UNITS) - math.ceil(price * UNITS), UNITS)
    if rest <= 0:
        raise BudgetError(too_small)
    # Rounded down once more: a float may print above the fraction that it came from.
    return Portion(Laplace(scale=moved.l1 / price), replace(budget, epsilon=_below(float(rest), rest)))


def _concentrated(budget: Budget, share: Fraction, moved: Sensitivity, too_small: str) -> Portion:
    rho = rho_of(epsilon=budget.epsilon, delta=budget.delta)
    price = rho * share
    rest = rho - Fraction(math.ceil(price * UNITS), UNITS)
    if price <= 0 or rest <= 0:
        raise BudgetError(too_small)
    epsilon_left = epsilon_of(rest, delta=budget.delta)
    while rho_of(epsilon=epsilon_left, delta=budget.delta) > rest:
        epsilon_left *= 1 - 1e-9
    return Portion(Gaussian(variance=moved.l2_squared / (2 * price)), replace(budget, epsilon=epsilon_left))


def _filtered(budget: Budget, share: Fraction, moved: Sensitivity, too_small: str) -> Portion:
    whole = mu_squared_units(epsilon=budget.epsilon, delta=budget.delta)
    price = Fraction(whole, UNITS) * share
    rest = whole - units(price)
    if rest <= 0:
        raise BudgetError(too_small)
    noise, times = _fine(moved, price)
    epsilon_left, shrink = filter_epsilon(Fraction(rest, UNITS), delta=budget.delta), 1e-9
    while mu_squared_units(epsilon=epsilon_left, delta=budget.delta) > rest:
        epsilon_left, shrink = epsilon_left * (1 - shrink), 2 * shrink
        if shrink >= 1:
            raise BudgetError(too_small)
    return Portion(noise, replace(budget, epsilon=epsilon_left), times)


def _gaussian(budget: Budget, share: Fraction, moved: Sensitivity, too_small: str) -> Portion:
    whole = _real_units(budget.epsilon, budget.delta)
    price = Fraction(whole, UNITS) * share
    rest = (Fraction(whole, UNITS) - price) * (1 - MARGIN)
    if rest <= 0:
        raise BudgetError(too_small)
    noise, times = _fine(moved, price * (1 - MARGIN))
    return Portion(noise, replace(budget, epsilon=gaussian_epsilon(rest, delta=budget.delta)), times)


@lru_cache(maxsize=256)
def _real_units(epsilon: float, delta: float) -> int:
    """The largest μ² of real noise within (ε, δ), in units."""
    return largest_units(lambda cost: gaussian_epsilon(cost, delta=delta) <= epsilon)


def _fine(moved: Sensitivity, price: Fraction) -> tuple[Gaussian, int]:
    """Noise whose discreteness costs nothing, on so many times the numbers."""
    times = times_for(moved.l2_squared / price)
    return Gaussian(variance=times**2 * moved.l2_squared / price + ROUNDING), times


def _below(x: float, bound: Fraction) -> float:
    while decimal(x) > bound:
        x = math.nextafter(x, 0.0)
    return x
