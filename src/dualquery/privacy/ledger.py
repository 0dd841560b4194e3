"""What the events cost together: the ledger, and the theorems by which it adds up.

Interpreters come after the events: the same events are added up by one of five theorems. Whoever draws, charges
first. A test that costs only if it fires is paid for before, too, and repaid if it does not (`Reservation`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from threading import Lock
from typing import TypeAlias

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.caps import gaussian_rho_units
from dualquery.privacy.conversion import (
    UNITS,
    advanced_composition,
    best_order,
    discrete_gaussian_epsilon,
    epsilon_of,
    renyi_cap,
    rho_units_of,
    units,
)
from dualquery.privacy.events import Concentrated, Event, Fire, GaussianMeasurement, Selection
from dualquery.privacy.reservation import Reservation


@dataclass(frozen=True)
class Spent:
    """What a ledger has paid: (ε, δ), and ρ in units of 10⁻¹² where the theorem knows one."""

    rho_units: int | None
    epsilon: float
    delta: float


class Ledger:
    """Pays for events out of one budget, and never pays more than it holds.

    The sizes of the events must be fixed by public parameters before anything is drawn, as they are in every
    mechanism here. (With zCDP, Rényi and pure accounting they may even depend on earlier outputs.)
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._interpreter = _INTERPRETERS[budget.accounting](budget)
        self._events: list[Event] = []
        self._lock = Lock()  # two threads that check at once must not both commit

    @property
    def budget(self) -> Budget:
        return self._budget

    @property
    def events(self) -> tuple[Event, ...]:
        return tuple(self._events)

    @property
    def order(self) -> int:
        """The whole Rényi order α at which this ledger adds up, one for its life."""
        _require(isinstance(self._interpreter, _Renyi), "Only renyi accounting keeps one Rényi order.")
        return best_order(epsilon=self._budget.epsilon, delta=self._budget.delta)

    def charge(self, *events: Event) -> None:
        """Pay for events before they happen; if they cost too much, raise BudgetError and change nothing."""
        with self._lock:
            self._interpreter = self._paid(*events)
            self._events.extend(events)

    def affords(self, *events: Event) -> bool:
        """Whether these events could be paid for now, all of them."""
        with self._lock:
            return _all(self._interpreter, events).affordable

    def reserve(self, fire: Fire, *follow_up: Concentrated) -> Reservation:
        """Pay for a fire, and for what is measured after it, before the test is drawn: Rényi accounting only.

        If they cost too much, raise BudgetError and change nothing: then there is no test. Every test in flight
        holds a reservation of its own, so that all of them could fire.
        """
        _require(isinstance(fire, Fire), "Only the fire of a test is reserved; charge everything else.")
        with self._lock:
            self._interpreter = self._paid(fire, *follow_up)
        return Reservation(fire, follow_up, self._settle)

    def spent(self) -> Spent:
        """The total so far, rounded up, never above the budget; with Rényi accounting the budget itself."""
        return self._interpreter.spent()

    def _paid(self, *events: Event) -> _Interpreter:
        after = _all(self._interpreter, events)
        if not after.affordable:
            step = ", then ".join(event.words() for event in events)
            raise BudgetError(
                f"The budget of epsilon = {self._budget.epsilon:g} and delta = {self._budget.delta:g} does "
                f"not pay for this step ({step}); use a larger budget, fewer steps or more noise."
            )
        return after

    def _settle(self, events: Sequence[Event], fired: bool) -> None:
        with self._lock:
            if fired:
                self._events.extend(events)
            else:
                assert isinstance(self._interpreter, _Renyi)  # no other ledger pays for a fire
                self._interpreter = self._interpreter.without(events)


@dataclass(frozen=True)
class _Concentrated:
    """ρ adds up; the limit is the largest ρ that still converts to (ε, δ)."""

    budget: Budget
    total: int = 0

    def after(self, event: Event) -> _Concentrated:
        return _Concentrated(self.budget, self.total + units(_not_a_fire(event, self.budget).rho))

    @property
    def affordable(self) -> bool:
        return self.total <= rho_units_of(epsilon=self.budget.epsilon, delta=self.budget.delta)

    def spent(self) -> Spent:
        epsilon = epsilon_of(Fraction(self.total, UNITS), delta=self.budget.delta)
        return Spent(self.total, min(epsilon, self.budget.epsilon), self.budget.delta)


@dataclass(frozen=True)
class _Gaussian:
    """Only discrete Gaussian noise, converted as one Gaussian (`discrete_gaussian_epsilon`); ρ is limited too."""

    budget: Budget
    noises: tuple[tuple[Fraction, Fraction], ...] = ()
    total: int = 0

    def after(self, event: Event) -> _Gaussian:
        event = _not_a_fire(event, self.budget)
        if not isinstance(event, GaussianMeasurement):
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
        epsilon, delta = self.budget.epsilon, self.budget.delta
        within_rho = self.total <= rho_units_of(epsilon=epsilon, delta=delta)  # settles most cases, and soon
        within_cap = within_rho or self.total <= gaussian_rho_units(epsilon=epsilon, delta=delta)
        return within_rho or (within_cap and self.epsilon <= epsilon)

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


@dataclass(frozen=True)
class _Renyi:
    """Rényi divergences at one whole order α add up; the limit is the cap C that converts to (ε, δ).

    What is promised is the cap, because how much of it is charged depends on the data through what fired.
    """

    budget: Budget
    total: int = 0

    @property
    def order(self) -> int:
        return best_order(epsilon=self.budget.epsilon, delta=self.budget.delta)

    def after(self, event: Event) -> _Renyi:
        return _Renyi(self.budget, self.total + units(event.renyi(self.order)))

    def without(self, events: Sequence[Event]) -> _Renyi:
        """For reservations that did not fire; units are whole, so what was added is what is taken away."""
        return _Renyi(self.budget, self.total - sum(units(event.renyi(self.order)) for event in events))

    @property
    def affordable(self) -> bool:
        cap = renyi_cap(epsilon=self.budget.epsilon, delta=self.budget.delta, order=self.order)
        return self.total <= cap

    def spent(self) -> Spent:
        return Spent(None, self.budget.epsilon, self.budget.delta)


_Interpreter: TypeAlias = _Concentrated | _Gaussian | _Advanced | _Pure | _Renyi

_INTERPRETERS: dict[Accounting, Callable[[Budget], _Interpreter]] = {
    Accounting.ZCDP: _Concentrated,
    Accounting.GAUSSIAN: _Gaussian,
    Accounting.THEOREM_4_3: _Advanced,
    Accounting.PURE: _Pure,
    Accounting.RENYI: _Renyi,
}


def _all(total: _Interpreter, events: Iterable[Event]) -> _Interpreter:
    return reduce(lambda total, event: total.after(event), events, total)


def smallest_gaussian_scale(budget: Budget, noises: Sequence[GaussianMeasurement]) -> Fraction:
    """The smallest factor, to one part in 2⁴⁰, that makes a plan affordable when it multiplies all variances.

    A fresh ledger accepts every event of the plan with its variance multiplied by the factor.
    """

    def affordable(factor: Fraction) -> bool:
        scaled = [GaussianMeasurement(noise.sensitivity_squared, noise.variance * factor) for noise in noises]
        return _all(_INTERPRETERS[budget.accounting](budget), scaled).affordable

    measures = any(noise.sensitivity_squared for noise in noises)
    _require(measures, "A plan that measures nothing needs no noise.")
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


def _not_a_fire(event: Event, budget: Budget) -> Concentrated:
    if isinstance(event, Fire):
        raise BudgetError(
            "The fire of a hazard test has a price at one Rényi order only, which "
            f"{budget.accounting.value} accounting cannot add up; use renyi accounting."
        )
    return event


def _pure_or_refuse(event: Event, budget: Budget) -> Fraction:
    event = _not_a_fire(event, budget)
    if isinstance(event, GaussianMeasurement):
        raise BudgetError(
            f"Gaussian noise has no pure bound, which {budget.accounting.value} accounting needs; use zcdp."
        )
    return event.pure


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise BudgetError(sentence)
