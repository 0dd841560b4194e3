"""Ledger, events and conversions: against the formulas, arbitrary precision and dp-accounting."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from functools import partial

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.privacy.budget import RELATIONS, Accounting, Budget
from dualquery.privacy.conversion import (
    UNITS,
    discrete_gaussian_epsilon,
    epsilon_of,
    gaussian_epsilon,
    rho_of,
    rho_units_of,
    tight_gaussian_epsilon,
)
from dualquery.privacy.events import Event, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger, smallest_gaussian_scale
from tests import house

DRAWING = [Accounting.ZCDP, Accounting.THEOREM_4_3, Accounting.PURE]

epsilons = st.floats(math.log(1e-4), math.log(1e4)).map(math.exp)
deltas = st.floats(math.log(1e-300), math.log(0.5)).map(math.exp)
rhos = st.floats(math.log(1e-12), math.log(2e4)).map(math.exp)
costs = st.fractions(min_value=0, max_value=3, max_denominator=10**6)
positive = st.fractions(min_value=Fraction(1, 1000), max_value=1000, max_denominator=10**6)
selections = st.builds(Selection, costs, st.integers(1, 1000))
laplaces = st.builds(LaplaceMeasurement, costs, positive)
gaussians = st.builds(GaussianMeasurement, costs, positive)
budgets = st.builds(
    Budget,
    epsilon=epsilons,
    delta=deltas,
    neighbours=st.sampled_from(RELATIONS),
    accounting=st.sampled_from(DRAWING),
)


budget = partial(house.budget, delta=1e-3)


# Conversions


def exact_epsilon(rho: float, delta: float) -> mpmath.mpf:
    """Proposition 12 of Canonne, Kamath and Steinke in 60 digits, minimised over α by bisection."""
    with mpmath.workdps(60):
        cost, depth = mpmath.mpf(rho), -mpmath.log(delta)
        low, high = mpmath.mpf(-800), mpmath.mpf(800)
        for _ in range(220):
            middle = (low + high) / 2
            x = mpmath.exp(middle)
            low, high = (middle, high) if cost * x**2 + mpmath.log1p(x) < depth else (low, middle)
        x = mpmath.exp(high)
        return max(mpmath.mpf(0), (1 + x) * cost + (depth - mpmath.log1p(x)) / x - mpmath.log1p(1 / x))


@settings(max_examples=30, deadline=None)
@given(rhos, deltas)
@example(1e-12, 1e-300)
@example(2e4, 0.5)
def test_epsilon_is_tight_and_never_below_the_truth(rho: float, delta: float) -> None:
    ours, exact = epsilon_of(rho, delta=delta), exact_epsilon(rho, delta)
    assert ours >= exact
    assert ours <= exact * (1 + 1e-12) + 1e-12


def exact_log_delta(rho: float, epsilon: float) -> mpmath.mpf:
    """The same proposition, solved for δ."""
    with mpmath.workdps(60):
        cost, target = mpmath.mpf(rho), mpmath.mpf(epsilon)
        low, high = mpmath.mpf(-2e5), mpmath.mpf(800)
        for _ in range(240):
            middle = (low + high) / 2
            x = mpmath.exp(middle)
            low, high = (middle, high) if (1 + 2 * x) * cost - mpmath.log1p(1 / x) < target else (low, middle)
        x = mpmath.exp(high)
        return x * ((1 + x) * cost - target) - mpmath.log1p(x) - x * mpmath.log1p(1 / x)


@settings(max_examples=30, deadline=None)
@given(epsilons, deltas)
@example(1e-4, 1e-300)
@example(1e4, 0.5)
def test_rho_converted_back_never_overshoots_and_one_unit_more_does(epsilon: float, delta: float) -> None:
    rho = rho_of(epsilon=epsilon, delta=delta)
    assert epsilon_of(rho, delta=delta) <= epsilon
    assert epsilon_of(rho + Fraction(1, UNITS), delta=delta) > epsilon


@settings(max_examples=30, deadline=None)
@given(rhos, rhos, deltas, deltas)
def test_conversions_are_monotone(rho: float, other: float, delta: float, weaker: float) -> None:
    less, more = sorted([rho, other])
    strict, loose = sorted([delta, weaker])
    assert epsilon_of(less, delta=delta) <= epsilon_of(more, delta=delta) * (1 + 1e-12)
    assert epsilon_of(rho, delta=loose) <= epsilon_of(rho, delta=strict) * (1 + 1e-12)
    assert rho_of(epsilon=1, delta=strict) <= rho_of(epsilon=1, delta=loose)


def test_nothing_costs_nothing() -> None:
    assert epsilon_of(0, delta=1e-9) == 0
    assert gaussian_epsilon(0, delta=1e-9) == 0


@pytest.mark.parametrize(
    ("rho", "delta"), [(1e-4, 1e-9), (0.02, 1e-6), (0.059, 1e-3), (2.0, 1e-12), (50.0, 1e-5)]
)
def test_conversion_against_dp_accounting(rho: float, delta: float) -> None:
    """Their accountant evaluates the same formula at chosen orders only, so theirs is a little larger."""
    best = np.sqrt(-math.log(delta) / rho) + 1
    accountant = rdp.RdpAccountant(orders=np.linspace(max(1.001, best / 3), best * 2, 4000))
    accountant.compose(dp_accounting.ZCDpEvent(rho))
    theirs = accountant.get_epsilon(delta)
    assert epsilon_of(rho, delta=delta) <= theirs * (1 + 1e-12)
    assert epsilon_of(rho, delta=delta) == pytest.approx(theirs, rel=1e-5)


@pytest.mark.parametrize("sigma", [0.05, 0.5, 1.0, 4.2, 30.0, 500.0])
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3, 0.1])
def test_real_gaussian_against_dp_accounting(sigma: float, delta: float) -> None:
    ours = tight_gaussian_epsilon(1 / (2 * sigma**2), delta=delta)
    theirs = dp_accounting.get_epsilon_gaussian(sigma, delta)
    assert ours == pytest.approx(theirs, rel=1e-9, abs=1e-9)
    assert ours <= epsilon_of(1 / (2 * sigma**2), delta=delta)


@settings(max_examples=30, deadline=None)
@given(st.floats(-7, 4).map(lambda x: 10**x), st.floats(-250, -0.4).map(lambda x: 10**x))
def test_real_gaussian_is_never_below_the_truth(mu: float, delta: float) -> None:
    ours = gaussian_epsilon(mu**2, delta=delta)
    with mpmath.workdps(320):
        m, e = mpmath.mpf(mu), mpmath.mpf(ours)
        achieved = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
        assert achieved <= delta


# The discrete Gaussian against its own distribution


def discrete_gaussian(variance: float, reach: int) -> np.ndarray:
    weights = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * variance))
    return weights / weights.sum()


@pytest.mark.parametrize("variance", [1.2, 2.6, 4.0, 9.5, 40.0, 300.0])
@pytest.mark.parametrize("cells", [1, 2, 7])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 3.0])
def test_discrete_gaussian_against_its_exact_privacy_loss(
    variance: float, cells: int, epsilon: float
) -> None:
    """δ(ε) of `cells` counts that all move by one: the loss is (cells + 2S)/(2σ²), S their summed noise."""
    reach = int(14 * math.sqrt(variance)) + 14
    single = discrete_gaussian(variance, reach)
    total = single
    for _ in range(cells - 1):
        total = np.convolve(total, single)
    loss = (cells + 2 * np.arange(-reach * cells, reach * cells + 1)) / (2 * variance)
    exact = float(np.sum(total * np.maximum(0, -np.expm1(np.minimum(epsilon - loss, 0)))))
    if exact < 1e-30:  # beyond the reach of this sum
        return
    bound = discrete_gaussian_epsilon([(Fraction(cells), Fraction(variance))], delta=exact)
    assert bound >= epsilon * (1 - 1e-9)
    # no worse than ρ, and close to the truth where the noise is not tiny
    assert bound <= epsilon_of(Fraction(cells) / (2 * Fraction(variance)), delta=exact) * (1 + 1e-9)
    if variance >= 40:
        assert bound <= epsilon * 1.1 + 0.02


def test_randomised_rounding_of_a_real_gaussian_is_the_discrete_gaussian() -> None:
    """The lemma behind Gaussian accounting, integrated numerically: its factor is within e^±τ of one."""
    variance, rounding = 6.0, 1.0
    eta = 2 * sum(math.exp(-2 * math.pi**2 * rounding * m**2) for m in (1, 2))
    y = np.linspace(-40, 40, 8_001)  # equally spaced points integrate such functions to full precision
    density = np.exp(-(y**2) / (2 * (variance - rounding))) / math.sqrt(2 * math.pi * (variance - rounding))
    theta = sum(np.exp(-((z - y) ** 2) / (2 * rounding)) for z in range(-50, 51))
    law = discrete_gaussian(variance, 60)
    for z in range(-8, 9):
        kernel = np.exp(-((z - y) ** 2) / (2 * rounding)) / theta
        rounded = float(np.sum(density * kernel) * (y[1] - y[0]))
        assert abs(math.log(rounded / law[60 + z])) <= math.log((1 + eta) / (1 - eta)) + 1e-11


# Events


@given(selections, laplaces, gaussians)
def test_prices_of_events(
    selection: Selection, laplace: LaplaceMeasurement, gaussian: GaussianMeasurement
) -> None:
    assert selection.rho == selection.draws * selection.range**2 / 8
    assert selection.pure == selection.draws * selection.range
    assert laplace.pure == laplace.sensitivity / laplace.scale
    assert laplace.rho == laplace.pure**2 / 2
    assert gaussian.rho == gaussian.sensitivity_squared / (2 * gaussian.variance)


@given(st.one_of(selections, laplaces, gaussians))
def test_events_are_written_exactly(event: Event) -> None:
    written = json.loads(json.dumps(event.to_json()))
    assert written["event"] in {"selection", "laplace noise", "gaussian noise"}
    fields = [Fraction(written[name]) for name in event.__dataclass_fields__]
    assert type(event)(*fields) == event  # type: ignore[arg-type]
    assert event.words()


@pytest.mark.parametrize(
    ("kind", "values"),
    [(Selection, (-1, 1)), (Selection, (1, 0)), (GaussianMeasurement, (1, 0)), (GaussianMeasurement, (-1, 1)),
     (LaplaceMeasurement, (1, 0)), (LaplaceMeasurement, (-1, 1))],
)  # fmt: skip
def test_impossible_events_are_refused(kind: type, values: tuple[int, int]) -> None:
    with pytest.raises(BudgetError):
        kind(Fraction(values[0]), values[1] if kind is Selection else Fraction(values[1]))


def bounded_range_pairs(rng: np.random.Generator, width: float) -> tuple[np.ndarray, np.ndarray]:
    weights = rng.gumbel(size=6) * 3
    moved = weights + rng.choice([0, width], size=6)
    p, q = np.exp(weights - weights.max()), np.exp(moved - moved.max())
    return p / p.sum(), q / q.sum()


def test_bounded_range_bound_holds_and_is_nearly_attained() -> None:
    """Rényi divergences of exponential mechanisms whose log-weights move within ε: at most α ε²/8."""
    rng = np.random.default_rng(7)
    closest = 0.0
    for _ in range(3000):
        width, alpha = rng.uniform(0.01, 3), 1 + rng.exponential(3)
        p, q = bounded_range_pairs(rng, width)
        divergence = math.log(float(np.sum(p**alpha * q ** (1 - alpha)))) / (alpha - 1)
        bound = alpha * width**2 / 8
        assert divergence <= bound * (1 + 1e-9) + 1e-15
        closest = max(closest, divergence / bound)
    assert closest > 0.9


# The ledger


@settings(max_examples=30, deadline=None)
@given(budgets, st.lists(st.one_of(selections, laplaces, gaussians), max_size=8))
def test_a_ledger_never_overshoots_and_a_failed_charge_changes_nothing(
    the_budget: Budget, events: list[Event]
) -> None:
    ledger = Ledger(the_budget)
    paid: list[Event] = []
    assert ledger.spent().epsilon == 0
    for event in events:
        before = ledger.spent()
        try:
            ledger.charge(event)
        except BudgetError:
            assert ledger.spent() == before
        else:
            paid.append(event)
            assert ledger.spent().epsilon >= before.epsilon * (1 - 1e-12)
        assert ledger.events == tuple(paid)
        assert ledger.spent().epsilon <= the_budget.epsilon
        assert ledger.spent().delta <= the_budget.delta


@settings(max_examples=30, deadline=None)
@given(st.lists(st.one_of(selections, laplaces, gaussians), max_size=8))
def test_rho_is_added_up_and_rounded_up(events: list[Event]) -> None:
    ledger = Ledger(budget(1e9, delta=0.4))
    for event in events:
        ledger.charge(event)
    exact = sum(event.rho for event in events) * UNITS
    assert ledger.spent().rho_units is not None
    assert exact <= ledger.spent().rho_units < exact + len(events) + 1


def test_zcdp_spends_up_to_the_last_unit() -> None:
    limit = rho_units_of(epsilon=1, delta=1e-3)
    ledger = Ledger(budget())
    ledger.charge(GaussianMeasurement(Fraction(1), Fraction(UNITS, 2 * limit)))
    assert ledger.spent().rho_units == limit
    assert ledger.spent().epsilon == pytest.approx(1, rel=1e-9)
    with pytest.raises(BudgetError, match="does not pay"):
        ledger.charge(Selection(Fraction(1, 10**6), 1))
    ledger.charge(Selection(Fraction(0), 1))


def test_pure_budget_means_its_decimal() -> None:
    ledger = Ledger(budget(0.3, delta=0.0, accounting=Accounting.PURE))
    for _ in range(3):
        ledger.charge(LaplaceMeasurement(Fraction(1), Fraction(10)))
    assert ledger.spent().epsilon == 0.3
    assert ledger.spent().delta == 0
    with pytest.raises(BudgetError):
        ledger.charge(LaplaceMeasurement(Fraction(1), Fraction(10**12)))


@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.THEOREM_4_3])
def test_gaussian_noise_has_no_pure_bound(accounting: Accounting) -> None:
    ledger = Ledger(budget(accounting=accounting))
    with pytest.raises(BudgetError, match="no pure bound"):
        ledger.charge(GaussianMeasurement(Fraction(1), Fraction(10**9)))
    assert ledger.events == ()


def test_gaussian_accounting_pays_up_to_what_the_curve_says() -> None:
    ledger = Ledger(budget(accounting=Accounting.GAUSSIAN))
    ledger.charge(GaussianMeasurement(Fraction(2), Fraction(100)))
    spent = ledger.spent()
    assert spent.epsilon == discrete_gaussian_epsilon([(Fraction(2), Fraction(100))], delta=1e-3)
    assert spent.epsilon < epsilon_of(Fraction(1, 100), delta=1e-3)
    with pytest.raises(BudgetError, match="does not pay"):
        ledger.charge(GaussianMeasurement(Fraction(1), Fraction(1)))
    assert ledger.spent() == spent


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
def test_gaussian_plan_is_calibrated_to_what_the_ledger_accepts(
    accounting: Accounting, epsilon: float
) -> None:
    plan = [
        GaussianMeasurement(Fraction(30), Fraction(5, 2)),
        GaussianMeasurement(Fraction(435), Fraction(7)),
    ]
    the_budget = budget(epsilon, accounting=accounting)
    factor = smallest_gaussian_scale(the_budget, plan)
    ledger = Ledger(the_budget)
    for noise in plan:
        ledger.charge(GaussianMeasurement(noise.sensitivity_squared, noise.variance * factor))
    assert ledger.spent().epsilon == pytest.approx(epsilon, rel=1e-6)
    ledger = Ledger(the_budget)
    ledger.charge(
        GaussianMeasurement(plan[0].sensitivity_squared, plan[0].variance * factor * Fraction(999, 1000))
    )
    with pytest.raises(BudgetError):
        ledger.charge(
            GaussianMeasurement(plan[1].sensitivity_squared, plan[1].variance * factor * Fraction(999, 1000))
        )


def test_gaussian_accounting_asks_for_less_noise() -> None:
    plan = [GaussianMeasurement(Fraction(455), Fraction(1))]
    by_rho = smallest_gaussian_scale(budget(), plan)
    by_gauss = smallest_gaussian_scale(budget(accounting=Accounting.GAUSSIAN), plan)
    assert float(by_gauss / by_rho) == pytest.approx(0.788, abs=0.002)


def test_calibration_says_when_no_noise_is_enough() -> None:
    with pytest.raises(BudgetError, match="too small"):
        smallest_gaussian_scale(budget(1e-9, delta=1e-12), [GaussianMeasurement(Fraction(1), Fraction(1))])
    with pytest.raises(BudgetError, match="needs no noise"):
        smallest_gaussian_scale(budget(), [GaussianMeasurement(Fraction(0), Fraction(1))])
