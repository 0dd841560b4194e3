"""The theorems by which a ledger adds up: one interpreter each, from the same events to a total.

An interpreter is a value. `after` is the interpreter with one more event, `affordable` says whether its total stays
within the budget, `spent` what it is. Where the sizes of events may follow earlier outputs (`Budget.adaptive`) the
total of one run says nothing about others, and the limit is what is promised: it is spent, and `limit_for` is what it
promises between tables that differ in k records. Proofs: docs/privacy.md.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import reduce
from typing import TypeAlias

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, Spent, decimal
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
from dualquery.privacy.events import Concentrated, EarlierRelease, Event, Fire, GaussianMeasurement, Selection
from dualquery.privacy.gaussian_filter import GaussianFilter
from dualquery.privacy.group_privacy import renyi_group_epsilon


@dataclass(frozen=True)
class ConcentratedSum:
    """ρ adds up; the limit is the largest ρ that still converts to (ε, δ)."""

    budget: Budget
    total: int = 0

    def after(self, event: Event) -> ConcentratedSum:
        return ConcentratedSum(self.budget, self.total + units(_not_a_fire(event, self.budget).rho))

    @property
    def affordable(self) -> bool:
        return self.total <= self.limit

    @property
    def epsilon(self) -> float:
        return epsilon_of(Fraction(self.total, UNITS), delta=self.budget.delta)

    @property
    def limit(self) -> int:
        return rho_units_of(epsilon=self.budget.epsilon, delta=self.budget.delta)

    def limit_for(self, records: int) -> float | None:
        """k²ρ: the price of every event grows with the square of the records, at most (`for_records`)."""
        if not self.budget.adaptive:
            return None
        return epsilon_of(records**2 * Fraction(self.limit, UNITS), delta=self.budget.delta)

    def spent(self) -> Spent:
        if self.budget.adaptive:
            return Spent(self.limit, self.budget.epsilon, self.budget.delta)
        return Spent(self.total, min(self.epsilon, self.budget.epsilon), self.budget.delta)


@dataclass(frozen=True)
class GaussianSum:
    """Discrete Gaussian noise, converted as one Gaussian (`discrete_gaussian_epsilon`); other events by their μ².

    The best of several bounds is taken, which holds because these sizes were fixed before anything was drawn. From
    the first draw on the ledger goes on with `filtered`.
    """

    budget: Budget
    filtered: GaussianFilter
    noises: Counter[tuple[Fraction, Fraction]] = field(default_factory=Counter)  # Δ² and σ², how often
    others: int = 0  # μ², in units
    total: int = 0  # ρ, in units

    @staticmethod
    def of(budget: Budget) -> GaussianSum | GaussianFilter:
        return GaussianFilter(budget) if budget.adaptive else GaussianSum(budget, GaussianFilter(budget))

    def after(self, event: Event) -> GaussianSum:
        event = _not_a_fire(event, self.budget)
        noises, others = self.noises, self.others
        if isinstance(event, GaussianMeasurement):
            noises = noises + Counter([(event.sensitivity_squared, event.variance)])
        else:
            cost = event.mu_squared(Fraction(0))
            if cost is None:
                raise BudgetError(
                    f"gaussian accounting cannot add up {event.words()}; use zcdp or renyi accounting"
                )
            others += units(cost)
        return GaussianSum(
            self.budget, self.filtered.after(event), noises, others, self.total + units(event.rho)
        )

    @property
    def epsilon(self) -> float:
        others = Fraction(self.others, UNITS)
        return discrete_gaussian_epsilon(self.noises, delta=self.budget.delta, others=others)

    @property
    def affordable(self) -> bool:
        epsilon, delta = self.budget.epsilon, self.budget.delta
        within_rho = self.total <= rho_units_of(epsilon=epsilon, delta=delta)  # settles most cases, and soon
        within_cap = within_rho or self.total <= gaussian_rho_units(epsilon=epsilon, delta=delta)
        return within_rho or (within_cap and self.epsilon <= epsilon)

    def limit_for(self, records: int) -> float | None:
        return None

    def spent(self) -> Spent:
        return Spent(self.total, min(self.epsilon, self.budget.epsilon), self.budget.delta)


@dataclass(frozen=True)
class AdvancedSum:
    """Lemma 2.4 of Gaboardi et al.: k draws, each at most ε'-DP. For DualQuery this is Theorem 4.3."""

    budget: Budget
    draws: int = 0
    largest: Fraction = Fraction(0)

    def after(self, event: Event) -> AdvancedSum:
        each = _pure_or_refuse(event, self.budget)
        draws = event.draws if isinstance(event, Selection) else 1
        if each == 0:  # independent of the data, like the first round of DualQuery
            return self
        return AdvancedSum(self.budget, self.draws + draws, max(self.largest, each / draws))

    @property
    def epsilon(self) -> float:
        return advanced_composition(self.largest, self.draws, delta=self.budget.delta)

    @property
    def affordable(self) -> bool:
        return self.epsilon <= self.budget.epsilon

    def limit_for(self, records: int) -> float | None:
        return None

    def spent(self) -> Spent:
        return Spent(None, self.epsilon, self.budget.delta)


@dataclass(frozen=True)
class PureSum:
    """ε adds up, in units of 10⁻¹²."""

    budget: Budget
    total: int = 0

    def after(self, event: Event) -> PureSum:
        return PureSum(self.budget, self.total + units(_pure_or_refuse(event, self.budget)))

    @property
    def affordable(self) -> bool:
        return self.total <= decimal(self.budget.epsilon) * UNITS

    @property
    def epsilon(self) -> float:
        nearest = self.total / UNITS
        return nearest if Fraction(nearest) * UNITS >= self.total else math.nextafter(nearest, math.inf)

    def limit_for(self, records: int) -> float | None:
        if not self.budget.adaptive:
            return None
        return PureSum(self.budget, records * math.floor(decimal(self.budget.epsilon) * UNITS)).epsilon

    def spent(self) -> Spent:
        if self.budget.adaptive:
            return Spent(None, self.budget.epsilon, 0.0)
        return Spent(None, min(self.epsilon, self.budget.epsilon), 0.0)


@dataclass(frozen=True)
class RenyiSum:
    """Rényi divergences at one whole order α add up; the limit is the cap C that converts to (ε, δ).

    What is promised is the cap, because how much of it is charged depends on the data through what fired.
    """

    budget: Budget
    total: int = 0

    @property
    def order(self) -> int:
        return best_order(epsilon=self.budget.epsilon, delta=self.budget.delta)

    def after(self, event: Event) -> RenyiSum:
        return RenyiSum(self.budget, self.total + units(event.renyi(self.order)))

    def without(self, events: Sequence[Event]) -> RenyiSum:
        """For reservations that did not fire; units are whole, so what was added is what is taken away."""
        return RenyiSum(self.budget, self.total - sum(units(event.renyi(self.order)) for event in events))

    @property
    def affordable(self) -> bool:
        cap = renyi_cap(epsilon=self.budget.epsilon, delta=self.budget.delta, order=self.order)
        return self.total <= cap

    @property
    def epsilon(self) -> float:
        return self.budget.epsilon

    def limit_for(self, records: int) -> float | None:
        """Of the cap, always.

        What fired on other tables is unknown, so that the events of this ledger say nothing about it; the cap does,
        and group privacy carries it over (`renyi_group_epsilon`).
        """
        cap = renyi_cap(epsilon=self.budget.epsilon, delta=self.budget.delta, order=self.order)
        return renyi_group_epsilon(
            Fraction(cap, UNITS), order=self.order, records=records, delta=self.budget.delta
        )

    def spent(self) -> Spent:
        return Spent(None, self.epsilon, self.budget.delta)


Interpreter: TypeAlias = ConcentratedSum | GaussianSum | GaussianFilter | AdvancedSum | PureSum | RenyiSum

INTERPRETERS: dict[Accounting, Callable[[Budget], Interpreter]] = {
    Accounting.ZCDP: ConcentratedSum,
    Accounting.GAUSSIAN: GaussianSum.of,
    Accounting.THEOREM_4_3: AdvancedSum,
    Accounting.PURE: PureSum,
    Accounting.RENYI: RenyiSum,
}


def opened(budget: Budget) -> Interpreter:
    """Nothing spent, under the theorem that a budget names."""
    if budget.accounting is Accounting.TIGHTEST:
        raise BudgetError("A ledger adds up by one theorem; choose an accounting for it.")
    return INTERPRETERS[budget.accounting](budget)


def after_all(total: Interpreter, events: Iterable[Event]) -> Interpreter:
    return reduce(_after, events, total)


def _after(total: Interpreter, event: Event) -> Interpreter:
    if isinstance(total, GaussianFilter):
        return total.after(_not_a_fire(event, total.budget))
    return total.after(event)


def _not_a_fire(event: Event, budget: Budget) -> Concentrated:
    if isinstance(event, Fire):
        raise BudgetError(
            "The fire of a hazard test has a price at one Rényi order only, which "
            f"{budget.accounting.value} accounting cannot add up; use renyi accounting."
        )
    return event


def _pure_or_refuse(event: Event, budget: Budget) -> Fraction:
    event = _not_a_fire(event, budget)
    if isinstance(event, GaussianMeasurement | EarlierRelease):
        raise BudgetError(
            f"Gaussian noise has no pure bound, which {budget.accounting.value} accounting needs; use zcdp."
        )
    return event.pure
