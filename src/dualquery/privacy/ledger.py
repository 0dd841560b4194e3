"""What the events cost together: the ledger, and the theorems by which it adds up.

Interpreters come after the events: the same events are added up by one of four theorems. A charge is
checked, then committed; whoever draws, charges first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import (
    UNITS,
    advanced_composition,
    discrete_gaussian_epsilon,
    epsilon_of,
    rho_units_of,
    units,
)
from dualquery.privacy.events import Event, GaussianNoise, Selection


@dataclass(frozen=True)
class Spent:
    """What a ledger has paid: (ε, δ), and ρ in units of 10⁻¹² where the theorem knows one."""

    rho_units: int | None
    epsilon: float
    delta: float


class Ledger:
    """Pays for events out of one budget, and never pays more than it holds.

    The sizes of the events must be fixed by public parameters before anything is drawn, as they are in every
    mechanism here. (With zCDP and with pure accounting they may even depend on earlier outputs.)
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._interpreter = _INTERPRETERS[budget.accounting](budget)
        self._events: list[Event] = []

    @property
    def budget(self) -> Budget:
        return self._budget

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    def charge(self, event: Event) -> None:
        """Pay for an event before it happens; if it costs too much, raise BudgetError and change nothing."""
        after = self._interpreter.after(event)
        if not after.affordable:
            raise BudgetError(
                f"The budget of epsilon = {self._budget.epsilon:g} and delta = {self._budget.delta:g} does "
                f"not pay for this step ({event.words()}); use a larger budget, fewer steps or more noise."
            )
        self._interpreter = after
        self._events.append(event)

    def spent(self) -> Spent:
        """The total so far, rounded up, never above the budget."""
        return self._interpreter.spent()


@dataclass(frozen=True)
class _Concentrated:
    """ρ adds up; the limit is the largest ρ that still converts to (ε, δ)."""

    budget: Budget
    total: int = 0

    def after(self, event: Event) -> _Concentrated:
        return _Concentrated(self.budget, self.total + units(event.rho))

    @property
    def affordable(self) -> bool:
        return self.total <= rho_units_of(epsilon=self.budget.epsilon, delta=self.budget.delta)

    def spent(self) -> Spent:
        epsilon = epsilon_of(Fraction(self.total, UNITS), delta=self.budget.delta)
        return Spent(self.total, min(epsilon, self.budget.epsilon), self.budget.delta)


@dataclass(frozen=True)
class _Gaussian:
    """Only discrete Gaussian noise, converted as one Gaussian (see `discrete_gaussian_epsilon`)."""

    budget: Budget
    noises: tuple[tuple[Fraction, Fraction], ...] = ()
    total: int = 0

    def after(self, event: Event) -> _Gaussian:
        if not isinstance(event, GaussianNoise):
            raise BudgetError(
                "Gaussian accounting pays for Gaussian noise only; use zcdp accounting for this mechanism."
            )
        noises = (*self.noises, (event.sensitivity_squared, event.variance))
        return _Gaussian(self.budget, noises, self.total + units(event.rho))

    @property
    def epsilon(self) -> float:
        return discrete_gaussian_epsilon(self.noises, delta=self.budget.delta)

    @property
    def affordable(self) -> bool:
        # ρ alone settles most cases, and in less time
        within_rho = self.total <= rho_units_of(epsilon=self.budget.epsilon, delta=self.budget.delta)
        return within_rho or self.epsilon <= self.budget.epsilon

    def spent(self) -> Spent:
        return Spent(self.total, min(self.epsilon, self.budget.epsilon), self.budget.delta)


@dataclass(frozen=True)
class _Advanced:
    """Lemma 2.4 of Gaboardi et al.: k draws, each at most ε'-DP. For DualQuery this is Theorem 4.3."""

    budget: Budget
    draws: int = 0
    largest: Fraction = Fraction(0)

    def after(self, event: Event) -> _Advanced:
        each = _pure_or_refuse(event, self.budget)
        draws = event.draws if isinstance(event, Selection) else 1
        if each == 0:  # independent of the data, like the first round of DualQuery
            return self
        return _Advanced(self.budget, self.draws + draws, max(self.largest, each / draws))

    @property
    def epsilon(self) -> float:
        return advanced_composition(self.largest, self.draws, delta=self.budget.delta)

    @property
    def affordable(self) -> bool:
        return self.epsilon <= self.budget.epsilon

    def spent(self) -> Spent:
        return Spent(None, self.epsilon, self.budget.delta)


@dataclass(frozen=True)
class _Pure:
    """ε adds up, in units of 10⁻¹²."""

    budget: Budget
    total: int = 0

    def after(self, event: Event) -> _Pure:
        return _Pure(self.budget, self.total + units(_pure_or_refuse(event, self.budget)))

    @property
    def affordable(self) -> bool:
        return self.total <= decimal(self.budget.epsilon) * UNITS

    def spent(self) -> Spent:
        return Spent(None, min(self.total / UNITS, self.budget.epsilon), 0.0)


_Interpreter: TypeAlias = _Concentrated | _Gaussian | _Advanced | _Pure

_INTERPRETERS: dict[Accounting, Callable[[Budget], _Interpreter]] = {
    Accounting.ZCDP: _Concentrated,
    Accounting.GAUSSIAN: _Gaussian,
    Accounting.THEOREM_4_3: _Advanced,
    Accounting.PURE: _Pure,
}


def smallest_gaussian_scale(budget: Budget, noises: Sequence[GaussianNoise]) -> Fraction:
    """The smallest factor, to one part in 2⁴⁰, that makes a plan affordable when it multiplies all variances.

    A fresh ledger accepts every event of the plan with its variance multiplied by the factor.
    """

    def affordable(factor: Fraction) -> bool:
        total = _INTERPRETERS[budget.accounting](budget)
        for noise in noises:
            total = total.after(GaussianNoise(noise.sensitivity_squared, noise.variance * factor))
        return total.affordable

    _require(
        any(noise.sensitivity_squared for noise in noises), "A plan that measures nothing needs no noise."
    )
    high = Fraction(1)
    while not affordable(high):
        high *= 4
        _require(high < 2**256, "The budget is too small for this plan at any amount of noise.")
    while affordable(high / 2):
        high /= 2
    low = high / 2
    while high - low > low / 2**40:
        middle = (low + high) / 2
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return high


def _pure_or_refuse(event: Event, budget: Budget) -> Fraction:
    if isinstance(event, GaussianNoise):
        raise BudgetError(
            f"Gaussian noise has no pure bound, which {budget.accounting.value} accounting needs; use zcdp."
        )
    return event.pure


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BudgetError(sentence)
