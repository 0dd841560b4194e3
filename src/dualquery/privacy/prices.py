"""What one step may cost, and the noise or the rate of selection that this buys; and a budget in two.

A `portion` is noise for one measurement that costs a share of a budget, and what is left, again a budget of its kind.
Pure: Laplace noise of scale Δ₁/price costs the price, and ε adds up. zCDP: Gaussian noise of variance Δ₂²/(2 price),
and ρ adds up; what is left is the largest ε whose ρ is at most the rest. Gaussian: of μ² the noise costs
Δ₂²/(σ² − r²), which adds up, and the rest again is the largest ε whose μ² is at most that: by the filter where sizes
may follow outputs, else by the curve of real noise, whose μ² is met to one part in a million.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

from dualquery.errors import BudgetError
from dualquery.privacy.accounting import ROUNDING, filter_epsilon, mu_squared_units, times_for
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, epsilon_of, gaussian_epsilon, largest_units, rho_of, units
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Gaussian, Laplace, Noise

TOO_SMALL = "the budget is too small for this many rounds; use fewer rounds or a larger epsilon"
MARGIN = Fraction(1, 10**6)  # of μ², for the rounding of the bounds that a ledger takes the best of


@dataclass(frozen=True)
class Price:
    """What one selection and one measurement may cost each: pure ε, or ρ. One of them is given."""

    pure: Fraction | None
    rho: Fraction | None

    def selection_range(self) -> Fraction:
        """The range of log-weights that a selection may have: ε, or √(8ρ) rounded down."""
        if self.pure is not None:
            return self.pure
        assert self.rho is not None
        return _root_below(8 * self.rho)

    def noise(self, sensitivity: Sensitivity) -> Gaussian | Laplace:
        """Laplace noise of scale Δ₁/ε, or Gaussian noise of variance Δ₂²/(2ρ)."""
        if self.pure is not None:
            return Laplace(sensitivity.l1 / self.pure)
        assert self.rho is not None
        return Gaussian(sensitivity.l2_squared / (2 * self.rho))


def equal_prices(budget: Budget, events: int, share: Fraction = Fraction(1)) -> Price:
    """The price of each of `events` selections or measurements that together cost a share of the budget.

    The ledger rounds every charge up to a unit, so each price is a whole number of units, less one.
    """
    if budget.accounting is Accounting.PURE:
        return Price(_whole_units(decimal(budget.epsilon) * share / events), None)
    if budget.accounting is Accounting.ZCDP:
        total = rho_of(epsilon=budget.epsilon, delta=budget.delta)
        return Price(None, _whole_units(total * share / events))
    raise BudgetError(
        f"this mechanism is paid for by pure or by zcdp accounting, not by {budget.accounting.value}; "
        "choose one of these"
    )


def least_gaussian(budget: Budget, moved: Sequence[Sensitivity]) -> Gaussian:
    """Gaussian noise of the least variance at which all that moves so far can be measured for the budget."""
    return Gaussian(smallest_gaussian_scale(budget, [Gaussian(Fraction(1)).event(each) for each in moved]))


def _whole_units(cost: Fraction) -> Fraction:
    whole = cost * UNITS // 1 - 1
    if whole < 1:
        raise BudgetError(TOO_SMALL)
    return Fraction(int(whole), UNITS)


def _root_below(square: Fraction) -> Fraction:
    """A rational at most √square, to ten digits."""
    root = Fraction(float(square) ** 0.5) * (1 - Fraction(1, 10**10))
    assert root * root <= square
    return root


# A budget in two


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
