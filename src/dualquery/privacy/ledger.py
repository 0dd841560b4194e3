"""What the events cost together: the ledger.

Interpreters come after the events: the same events are added up by one of six theorems (`accounting`). A charge is
checked, then committed; whoever draws, charges first. A measurement may be paid for before it is known what will be
measured (`Allowance`).

What one step may cost, and the noise or the rate of selection that this buys; and a budget in two.

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
from threading import Lock

from dualquery.errors import BudgetError, require
from dualquery.privacy.accounting import (
    ROUNDING,
    GaussianSum,
    Interpreter,
    RenyiSum,
    after_all,
    filter_epsilon,
    mu_squared_units,
    opened,
    times_for,
)
from dualquery.privacy.budget import Accounting, Budget, Sensitivity, Spent, decimal
from dualquery.privacy.conversion import (
    UNITS,
    best_order,
    epsilon_of,
    gaussian_epsilon,
    largest_units,
    rho_of,
    units,
)
from dualquery.privacy.events import Event, GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.noise import Gaussian, Laplace, Noise


class Ledger:
    """Pays for events out of one budget, and never pays more than it holds.

    The sizes of the events are fixed by public parameters before anything is drawn. Where they follow earlier outputs
    the budget says so (`adaptive`), and what is spent is all of it. Gaussian accounting takes the best of several
    bounds, which holds for fixed sizes only: for what is charged after the first draw it goes on as a filter.
    """

    def __init__(self, budget: Budget, *, failure: Fraction = Fraction(0)) -> None:
        self._budget = budget
        self._failure = failure  # what may be risked beside the budget, and adds to its δ
        self._risked = Fraction(0)
        self._interpreter = opened(budget)
        self._events: list[Event] = []
        self._begun = False
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
        require(isinstance(self._interpreter, RenyiSum), "Only renyi accounting keeps one Rényi order.")
        return best_order(epsilon=self._budget.epsilon, delta=self._budget.delta)

    @property
    def failure(self) -> Fraction:
        """The probability with which what is promised for the budget may fail altogether."""
        return self._failure

    def risk(self, failure: Fraction) -> None:
        """Account for a step that fails with this probability, before it happens."""
        with self._lock:
            if self._risked + failure > self._failure:
                raise BudgetError("The budget does not pay for this risk; reserve more of its delta for it.")
            self._risked += failure

    def charge(self, *events: Event) -> None:
        """Pay for events before they happen; if they cost too much, raise BudgetError and change nothing."""
        if not events:
            return
        with self._lock:
            self._interpreter = self._paid(*events)
            self._events.extend(events)

    def affords(self, *events: Event) -> bool:
        with self._lock:
            return after_all(self._now, events).affordable

    def begin(self) -> None:
        """Something that was paid for is about to be drawn; the curator says so."""
        with self._lock:
            self._begun = True

    @property
    def _now(self) -> Interpreter:
        """What the next charge adds to: once something was drawn, a charge may follow it."""
        total = self._interpreter
        return total.filtered if self._begun and isinstance(total, GaussianSum) else total

    def spent(self) -> Spent:
        """The total so far, rounded up, never above the budget.

        The budget itself, and the limit of ρ, where sizes follow outputs: the total of one run is then an output, and
        no bound for other runs.
        """
        return self._interpreter.spent()

    def epsilon_for(self, records: int) -> float:
        """What was spent, as ε at the same δ, for tables that differ in so many records instead of one.

        Each event is taken as what it is between such tables (`for_records`), and the same theorem adds up. At δ > 0
        this is more than `records` times ε. Infinite where no ε at this δ follows. (Where neighbours differ in what a
        person contributed, so many persons.)
        """
        require(records >= 1, "Tables differ in a whole number of records, at least one.")
        if records == 1:
            return self.spent().epsilon
        limit = self._interpreter.limit_for(records)
        if limit is not None:
            return limit
        return after_all(opened(self._budget), [event.for_records(records) for event in self._events]).epsilon

    def _paid(self, *events: Event) -> Interpreter:
        after = after_all(self._now, events)
        if not after.affordable:
            step = ", then ".join(event.words() for event in events)
            late = isinstance(self._interpreter, GaussianSum) and self._begun
            raise BudgetError(
                f"The budget of epsilon = {self._budget.epsilon:g} and delta = {self._budget.delta:g} does "
                f"not pay for this step ({step}); use a larger budget, fewer steps or more noise"
                + (", or pay for all steps before the first is drawn." if late else ".")
            )
        return after


def smallest_gaussian_scale(
    budget: Budget, noises: Sequence[GaussianMeasurement], *, bits: int = 40
) -> Fraction:
    """The smallest factor, to one part in 2^bits, that makes a plan affordable when it multiplies all variances.

    A fresh ledger accepts every event of the plan with its variance multiplied by the factor.
    """

    measures = any(noise.sensitivity_squared for noise in noises)
    require(measures, "A plan that measures nothing needs no noise.")
    low, high, factor = Fraction(0), None, Fraction(1)
    while high is None or high - low > low / 2**bits:
        require(factor < 2**256, "The budget is too small for this plan at any amount of noise.")
        scaled = [GaussianMeasurement(noise.sensitivity_squared, noise.variance * factor) for noise in noises]
        if after_all(opened(budget), scaled).affordable:
            high = factor
        else:
            low = factor
        factor = 4 * low if high is None else high / 2 if 2 * low < high else (low + high) / 2
    return high


class Allowance:
    """Noise of one law on any numbers of at most one sensitivity: once, by whoever paid.

    *Why the sizes are fixed and the content is free.* The theorem on Gaussian releases (docs/privacy.md) adds up
    pairs (Δ², σ²) that are known before anything is drawn. What is measured within them may depend on everything that
    was said before. A smaller sensitivity at the same variance is no more than was paid for; another variance is
    something else, even where the ratio Δ²/σ² is the same: discrete noise of variance 1 tells more than discrete
    noise of variance 10⁴ on numbers that move 100 times as far.
    """

    def __init__(self, event: GaussianMeasurement | LaplaceMeasurement, owner: object) -> None:
        self._event = event
        self._owner = owner
        self._used = Lock()  # held from the use on: of two threads one uses it

    @property
    def event(self) -> GaussianMeasurement | LaplaceMeasurement:
        return self._event

    def use(self, event: GaussianMeasurement | LaplaceMeasurement, user: object) -> None:
        """Use it up for a measurement that costs no more; raise BudgetError, and change nothing, for any other."""
        paid = self._event.words()
        require(user is self._owner, "An allowance serves the curator who paid for it, and no other.")
        require(
            event.same_noise(self._event),
            f"This allowance paid for {paid}; a measurement within it adds noise of that law.",
        )
        require(
            event.moved <= self._event.moved,
            f"This allowance paid for {paid}; measure less within it than that.",
        )
        require(
            self._used.acquire(blocking=False), "This allowance has been used; one pays for one measurement."
        )


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
