"""The public rule: how a budget becomes a release, fires and thresholds, before the table is looked at.

    release     90% of the cap, or what an earlier release has cost
    a fire      at most 1% of the cap for the test and 1% for the measurement after it, σ² = Δ²/(2 · 1% of ρ)
    bound τ     the larger of the owner's tolerance and what such a test can guarantee
    test        θ = ln(2k)/ε and ε = (ln 2k + ln ln 20)/(τ − ½): one false fire in k questions, and a
                hypothesis that is off by more than τ stays unnoticed with probability 5% at the most
    table       of c cells: θ + ln(c)/ε, so that all of its cells together fire falsely as often as one question

With a tolerance of the owner above what 1% buys, tests are cheaper and fires are more. Who asks may name a tolerance:
θ is then one of a few multiples, at the same ε and so at the same price.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from statistics import NormalDist

from dualquery.errors import BudgetError, QueryError
from dualquery.interactive.answers import CONFIDENCE
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, best_order, epsilon_of, renyi_cap, rho_units_of, units
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.thresholds import HazardTest
from dualquery.queries.question import Question

SHARE = Fraction(9, 10)  # of the cap, for the release
EACH = Fraction(1, 100)  # of the cap, for a test that fires, and for what is measured then
QUESTIONS = 2000
BETA = 1 - CONFIDENCE
MENU = (Fraction(1, 2), Fraction(3, 4), Fraction(1), Fraction(3, 2), Fraction(2), Fraction(3), Fraction(5))
LEAST_ERROR, MOST_ERROR = 1e-12, 0.5  # of a purchase: a smaller one costs more than any budget has
LEAST_BOUND, MOST_BOUND = 3, 20_000  # records; a larger one would need a table that takes minutes to make


def of_questions(budget: Budget) -> Budget:
    """A budget that names no accounting is added up by the one that can pay for questions."""
    if budget.accounting is Accounting.TIGHTEST:
        return replace(budget, accounting=Accounting.RENYI)
    return budget


@dataclass(frozen=True)
class OnlineRule:
    """Everything that a question goes by. Public, and fixed when the table is opened."""

    budget: Budget
    rows: int
    questions: int
    test: HazardTest  # of a single question, where no tolerance is named
    measurement: Fraction  # ρ of what follows a fire

    @staticmethod
    def of(
        budget: Budget, *, rows: int, questions: int = QUESTIONS, tolerance: float | None = None
    ) -> OnlineRule:
        if budget.accounting is not Accounting.RENYI:
            raise BudgetError(
                f"questions one at a time are paid for by renyi accounting, not by {budget.accounting.value}; "
                "make the budget with Accounting.RENYI"
            )
        if tolerance is not None and not 0 < tolerance <= 1:
            raise BudgetError(
                f"a tolerance is a fraction of the table between 0 and 1, and {tolerance:g} is none"
            )
        if questions < 1:
            raise BudgetError("the expected number of questions is at least 1")
        order, moved = order_of(budget), budget.neighbours.largest(alone=1, apart=1)
        share = Fraction(cap_of(budget)) * EACH

        def test(bound: int) -> HazardTest:
            return HazardTest.for_bound(bound, beta=BETA, questions=questions, order=order, sensitivity=moved)

        wanted = 0 if tolerance is None else math.floor(tolerance * rows)
        bound = min(max(_least(test, share), wanted), MOST_BOUND)
        return OnlineRule(budget, rows, questions, test(bound), Fraction(math.floor(share / order), UNITS))

    @cached_property
    def cap(self) -> int:
        """The most Rényi divergence that is ever charged, in units."""
        return cap_of(self.budget)

    @cached_property
    def order(self) -> int:
        return order_of(self.budget)

    @cached_property
    def measured(self) -> GaussianMeasurement:
        """What follows a fire, as the ledger pays for it; a table is measured with more noise for the same ρ."""
        return GaussianMeasurement(Fraction(1), 1 / (2 * self.measurement))

    @cached_property
    def price(self) -> int:
        """Of a fire and its measurement, in units."""
        return units(self.test.event.cost) + units(self.measured.renyi(self.order))

    def noise(self, question: Question) -> Gaussian:
        """Of the measurement after a fire: Δ²/(2ρ)."""
        moved = self.budget.neighbours.sensitivity(question.group.bound())
        return Gaussian(moved.l2_squared / (2 * self.measurement))

    def test_of(self, question: Question, tolerance: float | None) -> HazardTest:
        """The test of a question: of all on the menu the one of the largest threshold within the tolerance."""
        if tolerance is None:
            return self._menu(question.cells)[MENU.index(Fraction(1))]
        within = [test for test in self._menu(question.cells) if self.bound(test) <= tolerance]
        if not (within and 0 < tolerance <= 1):
            least = self.bound(self._menu(question.cells)[0])
            raise QueryError(
                f"a tolerance of this question lies between {rounded_up(least)} and 1; buy the answer at a precision "
                "instead, or leave the tolerance out"
            )
        return within[-1]

    def menus(self, cells: Iterable[int]) -> Iterator[HazardTest]:
        """Tests to be asked for: all of single questions, and the usual one of tables of so many cells."""
        single = [test for test in self._menu(1) if self.bound(test) <= 1]
        yield from sorted(single, key=lambda test: test != self.test)  # the usual one first
        for each in cells:
            yield self._menu(each)[MENU.index(Fraction(1))]

    def bound(self, test: HazardTest) -> float:
        """What a silent test guarantees, as a fraction of the table."""
        return test.bound(BETA) / self.rows

    def _menu(self, cells: int) -> tuple[HazardTest, ...]:
        known = self._menus.get(cells)
        if known is None:
            more = math.ceil(math.log(cells) / self.test.epsilon)
            known = self._menus[cells] = tuple(
                replace(self.test, threshold=math.ceil(self.test.threshold * multiple) + more)
                for multiple in MENU
            )
        return known

    @cached_property
    def _menus(self) -> dict[int, tuple[HazardTest, ...]]:
        """Made once for each number of cells."""
        return {}

    @cached_property
    def tolerances(self) -> tuple[float, ...]:
        """The bounds on the menu of a single question."""
        return self.tolerances_of(1)

    def tolerances_of(self, cells: int) -> tuple[float, ...]:
        """The bounds on the menu of a question of so many cells."""
        return tuple(self.bound(test) for test in self._menu(cells))

    def to_json(self) -> str:
        """The rule as the journal writes it."""
        return json.dumps(
            {
                "questions": self.questions,
                "epsilon": str(self.test.epsilon),
                "threshold": self.test.threshold,
                "sensitivity": self.test.sensitivity,
                "measurement": str(self.measurement),
                "price": self.price,
                "menu": [str(multiple) for multiple in MENU],
            },
            sort_keys=True,
            separators=(",", ":"),
        )


def order_of(budget: Budget) -> int:
    return best_order(epsilon=budget.epsilon, delta=budget.delta)


def cap_of(budget: Budget) -> int:
    return renyi_cap(epsilon=budget.epsilon, delta=budget.delta, order=order_of(budget))


def budget_of_release(budget: Budget, share: Fraction) -> Budget:
    """The zCDP budget of the first release: the largest ε at the same δ whose ρ is within a share of the cap."""
    if not 0 < share < 1:
        raise BudgetError(f"the share of the release lies between 0 and 1, and {float(share):g} does not")
    most = math.floor(cap_of(budget) * share / order_of(budget))
    if most < 1:
        raise BudgetError("the budget is too small for a release; use a larger epsilon")
    epsilon = epsilon_of(Fraction(most, UNITS), delta=budget.delta)
    while rho_units_of(epsilon=epsilon, delta=budget.delta) > most:
        epsilon *= 1 - 1e-9
    return replace(budget, epsilon=epsilon, accounting=Accounting.ZCDP)


def check_wishes(budget: Budget, *, share: float | None, questions: int, tolerance: float | None) -> None:
    """Refuse what no rule can be made of, before a release is paid for. Without a share, none is made."""
    OnlineRule.of(budget, rows=1, questions=questions, tolerance=tolerance)
    if share is not None:
        budget_of_release(budget, decimal(share))


def gaussian_bound(deviation: float, cells: int) -> float:
    """With 95% confidence no one of so many draws of discrete Gaussian noise is larger.

    A discrete Gaussian exceeds m with a smaller probability than a continuous one exceeds m − 1 (Canonne, Kamath,
    Steinke 2020, Proposition 25); z is the quantile of BETA/(2 cells).
    """
    return NormalDist().inv_cdf(1 - BETA / (2 * cells)) * deviation + 1


def variance_of(error: float, rows: int) -> Fraction:
    """σ² in records of a standard error that was named as a fraction of the table."""
    if not LEAST_ERROR <= error <= MOST_ERROR:
        raise QueryError(
            f"the error of a purchase is a fraction of the table between {LEAST_ERROR:g} and {MOST_ERROR:g}"
        )
    return (decimal(error) * rows) ** 2


def _least(test_of_bound, share: Fraction) -> int:  # type: ignore[no-untyped-def]
    """The smallest bound, in records, whose test costs at most a share of the cap."""

    def affordable(bound: int) -> bool:
        try:
            return bool(test_of_bound(bound).event.cost * UNITS <= share)
        except BudgetError:  # a test so fine has no price at this order
            return False

    low, high = LEAST_BOUND - 1, LEAST_BOUND
    while not affordable(high):
        low, high = high, 2 * high
        if high > MOST_BOUND:
            raise BudgetError("the budget is too small to test a question; use a larger epsilon")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if affordable(middle) else (middle, high)
    return high


def rounded_up(error: float) -> str:
    """Three digits, rounded up: what is named must be allowed."""
    step = 10.0 ** (math.floor(math.log10(error)) - 2)
    return f"{math.ceil(error / step) * step:.3g}"
