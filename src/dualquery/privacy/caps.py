"""The most that a ledger can have paid when its budget is used up: what a release is charged before it begins.

ρ and pure ε add up over releases as they do within one. A release is therefore charged, once and beforehand, with
a bound on all that its own ledger will ever accept:

    accounting    pure ε               ρ
    pure          ε                    ε²/2            (ε-DP is ε²/2-zCDP; Bun and Steinke 2016, Prop. 1.4)
    zcdp          none                 rho_of(ε, δ)    (the limit of its ledger)
    gaussian      none                 `gaussian_rho_units`, which its ledger enforces
    theorem-4.3, renyi: none. Their (ε, δ) does not add up; zcdp charges the same draws.
"""

from __future__ import annotations

import math
from functools import lru_cache

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, largest_units, rho_units_of, tight_gaussian_epsilon, units


def rho_cap(budget: Budget) -> int:
    """The most ρ, in units of 10⁻¹², that a release within this budget can cost."""
    if budget.accounting is Accounting.ZCDP:
        return rho_units_of(epsilon=budget.epsilon, delta=budget.delta)
    if budget.accounting is Accounting.GAUSSIAN:
        return gaussian_rho_units(epsilon=budget.epsilon, delta=budget.delta)
    if budget.accounting is Accounting.PURE:
        return units(decimal(budget.epsilon) ** 2 / 2)
    raise BudgetError(
        f"what a release costs by {budget.accounting.value} accounting cannot be added to what others cost; use "
        "zcdp accounting, or leave the ledger out"
    )


def pure_cap(budget: Budget) -> int:
    """The most pure ε, in units of 10⁻¹², that a release within this budget can cost."""
    if budget.accounting is Accounting.PURE:
        return math.floor(decimal(budget.epsilon) * UNITS)
    raise BudgetError(
        f"a book whose delta is 0 adds up pure epsilon, and a release by {budget.accounting.value} accounting has "
        "none; use pure accounting, or a book with a delta"
    )


def refuse_nothing(budget: Budget) -> None:
    """Refuse a budget that is not worth one unit: no amount of noise is enough for it."""
    by = budget.accounting
    worth = rho_cap(budget) if by is Accounting.ZCDP else pure_cap(budget) if by is Accounting.PURE else 1
    if worth == 0:
        raise BudgetError(
            f"a budget of epsilon = {budget.epsilon:g} and delta = {budget.delta:g} pays for nothing at all; use a "
            "larger epsilon"
        )


@lru_cache(maxsize=256)
def gaussian_rho_units(*, epsilon: float, delta: float) -> int:
    """A limit on the ρ of ledgers with Gaussian accounting, in units: no plan that is affordable comes near it.

    (ε, δ) buys more ρ of Gaussian noise than of zCDP in general. `discrete_gaussian_epsilon` is never below the ε of
    real noise with the same ρ, so that the largest ρ of real noise is a limit; it is widened a little for rounding.
    Nothing depends on that being exact: `Ledger` refuses whatever lies above this number.
    """
    most = largest_units(lambda cost: tight_gaussian_epsilon(cost, delta=delta) <= epsilon)
    most = max(most, rho_units_of(epsilon=epsilon, delta=delta))
    return most + most // 10**4 + 100
