"""The theorems by which a ledger adds up: one interpreter each, from the same events to a total.

An interpreter is a value. `after` is the interpreter with one more event, `affordable` says whether its total stays
within the budget, `spent` what it is. Where the sizes of events may follow earlier outputs (`Budget.adaptive`) the
total of one run says nothing about others, and the limit is what is promised: it is spent, and `limit_for` is what it
promises between tables that differ in k records.

*Gaussian accounting as a filter.* The theorem on Gaussian releases takes every (Δ², σ²) as fixed. Where they follow
earlier outputs, a ratio Δ²/σ² says too little: discrete noise of variance 1 tells more than discrete noise of
variance 10⁴ on numbers that move 100 times as far. The lemma of the Gaussian filter fixes r², μ² and M instead,
before anything is drawn:

    Σ Δ_i²/(σ_i² − r²) ≤ μ²   and   Σ Δ_i² ≤ M   on every path   ⟹   (ε + 2Mτ, e^(Mτ) δ)-DP,

(ε, δ) on the curve of real noise with μ. Here r² and M are constants, and μ² is the largest that fits the budget. A
selection is as good as real Gaussian noise of μ² = πε²/8, and adds to the same sum.

*Caps.* ρ and pure ε add up over releases as they do within one. A release is therefore charged to a book, once and
before it begins, with a bound on all that its own ledger will ever accept:

    accounting    pure ε               ρ
    pure          ε                    ε²/2            (ε-DP is ε²/2-zCDP; Bun and Steinke 2016, Prop. 1.4)
    zcdp          none                 rho_of(ε, δ)    (the limit of its ledger)
    gaussian      none                 `gaussian_rho_units`, which its ledger enforces
    theorem-4.3, renyi: none. Their (ε, δ) does not add up; zcdp charges the same draws.

μ² of Gaussian filters adds up as well, and a book of it promises by the curve of real noise (`mu_squared_cap`).

Proofs: docs/privacy.md, "The ledger as a filter" and before.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TypeAlias

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, Spent, decimal
from dualquery.privacy.conversion import (
    UNITS,
    advanced_composition,
    best_order,
    discrete_gaussian_epsilon,
    distortion_of,
    epsilon_of,
    gaussian_epsilon,
    largest_units,
    renyi_cap,
    renyi_group_epsilon,
    rho_units_of,
    units,
)
from dualquery.privacy.events import Concentrated, EarlierRelease, Event, Fire, GaussianMeasurement, Selection

ROUNDING = Fraction(5)  # r²: so much of every variance is given up for the rounding of real noise
MOST_CELLS = 2**80  # of a release: more than any plan needs, and yet for Mτ < 10⁻¹² at this r² there may be
MOST_RELEASES = 2**20  # of them in a book, M = 2¹⁰⁰
FINE = 2**14  # a variance of which r² is 0.03%
MOST_TIMES = 2**20  # counts times this still fit 64 bits


def filter_epsilon(mu_squared: Fraction | float, *, delta: float, records: int = 1) -> float:
    """The ε at δ of everything that stays within μ² and M, between tables so many records apart: k²μ² and k²M."""
    distortion = records**2 * MOST_CELLS * MOST_RELEASES * distortion_of(ROUNDING)
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


def mu_squared_cap(budget: Budget) -> int:
    """The most μ², in units of 10⁻¹², that a release within this budget can cost: the limit of its own filter."""
    if budget.accounting is Accounting.GAUSSIAN and budget.adaptive:
        return mu_squared_units(epsilon=budget.epsilon, delta=budget.delta)
    raise BudgetError(
        "the book adds up Gaussian noise alone, and this is not paid for by gaussian accounting; use a mechanism "
        "that adds Gaussian noise, or a book without --gaussian"
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
    most = largest_units(lambda cost: gaussian_epsilon(2 * cost, delta=delta) <= epsilon)
    most = max(most, rho_units_of(epsilon=epsilon, delta=delta))
    return most + most // 10**4 + 100


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
        if within_rho or not within_cap:
            return within_rho
        others = Fraction(self.others, UNITS)
        return discrete_gaussian_epsilon(self.noises, delta=delta, others=others) <= epsilon

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
