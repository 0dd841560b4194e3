"""What one step may cost, and the noise or the rate of selection that this buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, rho_of
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Gaussian, Laplace

TOO_SMALL = "the budget is too small for this many rounds; use fewer rounds or a larger epsilon"


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
