"""Gaussian accounting against brute force: exact privacy losses of discrete noise, of fixed and of adaptive sizes."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from dualquery.errors import BudgetError
from dualquery.privacy.accounting import (
    FINE,
    MOST_CELLS,
    MOST_RELEASES,
    ROUNDING,
    GaussianFilter,
    filter_epsilon,
    fine_multiplier,
    mu_squared_units,
)
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.conversion import PI, UNITS, distortion_of, epsilon_of, gaussian_epsilon, rho_of
from dualquery.privacy.events import Epoch, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger, smallest_gaussian_scale

DELTA = 1e-3
BUDGETS = [(0.1, 1e-3), (1.0, 1e-3), (1.0, 1e-6), (1.0, 1e-9), (10.0, 1e-3), (10.0, 1e-6)]


def budget(epsilon: float = 1.0, delta: float = DELTA, *, adaptive: bool = False) -> Budget:
    return Budget(
        epsilon=epsilon,
        delta=delta,
        neighbours=Neighbours.ADD_REMOVE,
        accounting=Accounting.GAUSSIAN,
        adaptive=adaptive,
    )


def noise(squared: int | Fraction, variance: int | float | Fraction) -> GaussianMeasurement:
    return GaussianMeasurement(Fraction(squared), Fraction(variance))


# ── Exact privacy losses ────────────────────────────────────────────────────────────────────────────────────────


def losses(shift: int, variance: float) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities, and privacy losses (2Zd + d²)/(2σ²), of one count that moves by d."""
    reach = int(13 * math.sqrt(variance)) + 13
    z = np.arange(-reach, reach + 1.0)
    weights = np.exp(-(z**2) / (2 * variance))
    return weights / weights.sum(), (2 * z * shift + shift**2) / (2 * variance)


def delta_of(probabilities: np.ndarray, loss: np.ndarray, epsilon: float) -> float:
    """The hockey-stick divergence E(1 − e^(ε − L))₊."""
    return float(np.sum(probabilities * np.maximum(0.0, -np.expm1(np.minimum(epsilon - loss, 0.0)))))


def together(*parts: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    probabilities, loss = np.ones(1), np.zeros(1)
    for p, ell in parts:
        probabilities, loss = np.outer(probabilities, p).ravel(), np.add.outer(loss, ell).ravel()
        kept = probabilities > 1e-25
        probabilities, loss = probabilities[kept], loss[kept]
    return probabilities, loss


counts = st.tuples(st.integers(1, 3), st.integers(6, 60))


@settings(max_examples=25, deadline=None)
@given(st.lists(counts, min_size=1, max_size=3), st.sampled_from([1e-2, 1e-4, 1e-6]), st.booleans())
def test_a_ledger_never_certifies_less_than_the_exact_divergence(
    measured: list[tuple[int, int]], delta: float, adaptive: bool
) -> None:
    """Up to three counts that move by one to three, noise of its own on each: fixed sizes, and the filter."""
    paid = Ledger(budget(100.0, delta, adaptive=adaptive))
    paid.charge(*(noise(shift**2, variance) for shift, variance in measured))
    promised = paid.spent().epsilon
    if adaptive:
        assert promised == 100.0
        total = GaussianFilter(budget(100.0, delta, adaptive=True))
        for event in paid.events:
            total = total.after(event)  # type: ignore[arg-type]
        promised = total.epsilon
    exact = together(*(losses(shift, variance) for shift, variance in measured))
    assert delta_of(*exact, promised) <= delta * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
@pytest.mark.parametrize("adaptive", [False, True])
def test_the_exact_curve_is_met_and_five_percent_less_noise_is_refused(
    epsilon: float, delta: float, adaptive: bool
) -> None:
    """One count, finely multiplied: the least variance has exactly δ, and 0.95 of it more than δ, and is refused."""
    limits = budget(epsilon, delta, adaptive=adaptive)
    times = fine_multiplier(limits, [noise(1, 1)])
    variance = smallest_gaussian_scale(limits, [noise(times**2, 1)])
    assert delta * 0.97 < delta_of(*losses(times, float(variance)), epsilon) <= delta
    Ledger(limits).charge(noise(times**2, variance))
    less = variance * Fraction(95, 100)
    assert delta_of(*losses(times, float(less)), epsilon) > delta
    with pytest.raises(BudgetError, match="does not pay"):
        Ledger(limits).charge(noise(times**2, less))


GAINS = [(*each, less) for each, less in zip(BUDGETS, (28, 21, 13, 10, 14, 10), strict=True)]


@pytest.mark.parametrize(("epsilon", "delta", "less"), GAINS)
def test_the_gain_over_zcdp(epsilon: float, delta: float, less: int) -> None:
    """The variance that a plan needs, against the one that ρ would ask for: the figures of the proof page."""
    concentrated = Budget(
        epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP
    )
    plan = [noise(10**8, 1)]
    by_rho = smallest_gaussian_scale(concentrated, plan)
    for adaptive in (False, True):
        ratio = float(smallest_gaussian_scale(budget(epsilon, delta, adaptive=adaptive), plan) / by_rho)
        assert round(100 * (1 - ratio)) == less


def test_gaussian_accounting_of_fixed_sizes_never_asks_for_more_than_zcdp() -> None:
    for (epsilon, delta), squared in product(BUDGETS[::2], (1, 7, 500)):
        concentrated = Budget(
            epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP
        )
        by_rho = smallest_gaussian_scale(concentrated, [noise(squared, 1)])
        assert smallest_gaussian_scale(budget(epsilon, delta), [noise(squared, 1)]) <= by_rho


# ── Sizes that follow outputs ───────────────────────────────────────────────────────────────────────────────────


def exact_delta(variance: int, shift: int, epsilon: mpmath.mpf) -> mpmath.mpf:
    """The hockey-stick divergence of one count, in 50 digits."""
    with mpmath.workdps(50):
        reach = range(-30 * math.isqrt(variance) - 30 - shift, 30 * math.isqrt(variance) + 31 + shift)
        law = {z: mpmath.exp(-mpmath.mpf(z * z) / (2 * variance)) for z in reach}
        grown = mpmath.exp(epsilon)
        larger = (law[z] - grown * law[z + shift] for z in reach if z + shift in law)
        return mpmath.fsum(each for each in larger if each > 0) / mpmath.fsum(law.values())


def test_the_counterexample_in_fifty_digits() -> None:
    """(10⁴, 10⁴) is (3.139, 10⁻³)-DP; (1, 1), of the same ratio, has δ = 1.44·10⁻³ there."""
    with mpmath.workdps(50):
        epsilon = mpmath.mpf("3.1392")
        wide, narrow = exact_delta(10**4, 100, epsilon), exact_delta(1, 1, epsilon)
        assert wide < mpmath.mpf("0.001") < narrow
        assert abs(narrow - mpmath.mpf("0.00144")) < mpmath.mpf("0.000005")
        assert exact_delta(10**4, 100, epsilon - mpmath.mpf("0.001")) > mpmath.mpf("0.001")


def test_sizes_at_a_fixed_ratio_are_not_all_the_same_to_a_ledger() -> None:
    """What (10⁴, 10⁴) leaves pays for as much again, in noise as wide; not for the same ratio in narrow noise."""
    limits = budget(6.0, adaptive=True)
    for squared, variance, accepted in ((10**4, 10**4, True), (400, 400, True), (4, 4, False), (1, 1, False)):
        paid = Ledger(limits)
        paid.charge(noise(10**4, 10**4))
        assert paid.affords(noise(squared, variance)) is accepted
        if not accepted:
            with pytest.raises(BudgetError, match="does not pay"):
                paid.charge(noise(squared, variance))


def test_once_something_was_drawn_a_charge_is_held_against_the_filter() -> None:
    """Sizes charged before the first draw are fixed; later ones may follow it, and best-of-several ends there."""
    limits = budget(3.2)
    fixed = Ledger(limits)
    fixed.charge(noise(1, 2))
    fixed.charge(noise(1, 3))
    fixed.begin()
    assert fixed.spent().epsilon < 3.2
    with pytest.raises(BudgetError, match="before the first is drawn"):
        fixed.charge(noise(1, 10**6))  # noise as narrow as the first is beyond the filter
    roomy = Ledger(limits)
    roomy.charge(noise(10**4, 4 * 10**4))
    before = roomy.spent()
    assert before.epsilon < 2
    roomy.begin()
    assert roomy.spent() == before
    roomy.charge(noise(10**4, 4 * 10**4))
    assert (
        roomy.spent().epsilon == 3.2
    )  # from here on sizes may have followed an output: the limit is promised
    assert not roomy.affords(noise(10**4, 10**4))
    roomy.charge()  # nothing is nothing


def adaptive_delta(
    first: tuple[int, float], rest: list[tuple[int, float]], epsilon: float, rows: int = 1
) -> float:
    """The exact δ of an adversary who chooses the second measurement by the outcome of the first, as is worst."""
    probabilities, loss = losses(first[0] * rows, first[1])
    tails = [losses(shift * rows, variance) for shift, variance in rest]
    return float(
        sum(
            p * max(delta_of(*tail, epsilon - ell) for tail in tails)
            for p, ell in zip(probabilities, loss, strict=True)
            if p > 1e-20
        )
    )


@pytest.mark.parametrize(("epsilon", "delta"), [(2.0, 1e-2), (1.0, 1e-3), (3.0, 1e-4)])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_filter_covers_an_adversary_who_chooses_sizes(epsilon: float, delta: float, rows: int) -> None:
    """Half of μ² first; then, by what came out, one of several sizes that each cost the rest to the last unit."""
    mu_squared = mu_squared_units(epsilon=epsilon, delta=delta) / UNITS
    shifts = (1, 2, 6, 20)

    def filling(shift: int, share: float) -> tuple[int, float]:
        return shift, shift**2 / (share * mu_squared) + float(ROUNDING)

    promised = Ledger(budget(epsilon, delta, adaptive=True)).epsilon_for(rows)
    for shift in (1, 6):
        rest = [filling(each, 0.5) for each in shifts]
        assert adaptive_delta(filling(shift, 0.5), rest, promised, rows) <= delta * (1 + 1e-9)


def test_a_ledger_of_ratios_would_be_wrong() -> None:
    """The same adversary, were Δ²/σ² all that is added up: the δ of the choice is above what real noise has."""
    mu_squared, delta = 2.0, 1e-5
    epsilon = gaussian_epsilon(mu_squared, delta=delta)
    rest = [(1, 1 / (0.9 * mu_squared)), (30, 900 / (0.9 * mu_squared))]
    assert adaptive_delta((30, 900 / (0.1 * mu_squared)), rest, epsilon) > 1.5 * delta


def test_the_constants_of_the_filter() -> None:
    with mpmath.workdps(60):
        eta = 2 * mpmath.nsum(lambda m: mpmath.exp(-2 * mpmath.pi**2 * int(ROUNDING) * m**2), [1, mpmath.inf])
        tau = mpmath.log((1 + eta) / (1 - eta))
        assert tau <= distortion_of(ROUNDING) <= 1.01 * tau
        assert MOST_CELLS * MOST_RELEASES * tau < mpmath.mpf("1e-12")
        assert mpmath.mpf(PI.numerator) / PI.denominator > mpmath.pi
    limits = budget(1.0, adaptive=True)
    Ledger(limits).charge(noise(MOST_CELLS, 100 * MOST_CELLS))
    with pytest.raises(BudgetError):
        Ledger(limits).charge(noise(MOST_CELLS, 100 * MOST_CELLS), noise(1, 10**9))


@pytest.mark.parametrize(("epsilon", "delta"), [*BUDGETS, (1e-6, 1e-6), (300.0, 1e-12)])
def test_the_limit_is_the_last_unit_that_keeps_the_promise(epsilon: float, delta: float) -> None:
    limit = mu_squared_units(epsilon=epsilon, delta=delta)
    assert filter_epsilon(Fraction(limit, UNITS), delta=delta) <= epsilon
    assert filter_epsilon(Fraction(limit + 1, UNITS), delta=delta) > epsilon
    paid = Ledger(budget(epsilon, delta, adaptive=True))
    for share in (Fraction(limit // 3, UNITS), Fraction(limit - limit // 3, UNITS)):
        paid.charge(noise(share * FINE, FINE + ROUNDING))
    assert not paid.affords(noise(Fraction(1, 10**9), FINE))
    assert paid.spent().epsilon == epsilon
    assert paid.epsilon_for(1) == epsilon
    several = [paid.epsilon_for(k) for k in (1, 2, 5, 10)]
    assert all(b > k * a / 10 for k, (a, b) in enumerate(pairwise(several), 1))
    assert several[1] >= gaussian_epsilon(4 * Fraction(limit, UNITS), delta=delta)


def test_adaptive_ledgers_of_other_theorems_promise_their_limits() -> None:
    for accounting in (Accounting.ZCDP, Accounting.PURE):
        delta = 0.0 if accounting is Accounting.PURE else DELTA
        paid = Ledger(
            Budget(
                epsilon=1.0,
                delta=delta,
                neighbours=Neighbours.ADD_REMOVE,
                accounting=accounting,
                adaptive=True,
            )
        )
        paid.charge(LaplaceMeasurement(Fraction(1), Fraction(10)))
        assert (paid.spent().epsilon, paid.spent().delta) == (1.0, delta)
        whole = float(rho_of(epsilon=1.0, delta=DELTA))
        expected = 3.0 if accounting is Accounting.PURE else epsilon_of(9 * whole, delta=DELTA)
        assert paid.epsilon_for(3) == pytest.approx(expected, rel=1e-9)


def test_no_ledger_adds_up_by_no_theorem() -> None:
    with pytest.raises(BudgetError, match="choose an accounting"):
        Ledger(Budget(epsilon=1, delta=DELTA, neighbours=Neighbours.REPLACE))


# ── Selections among Gaussian noise ─────────────────────────────────────────────────────────────────────────────


def bounded_pair(width: float, t: float) -> tuple[np.ndarray, np.ndarray]:
    """The extreme pair of bounded range: losses t and t − ε."""
    q = (math.exp(-t) - math.exp(-width)) / -math.expm1(-width)
    return np.array([math.exp(t) * q, 1 - math.exp(t) * q]), np.array([q, 1 - q])


@pytest.mark.parametrize("width", [0.01, 0.3, 1.0, 3.0, 8.0])
def test_bounded_range_is_gaussian_differential_privacy(width: float) -> None:
    """Every test between P and Q errs as often as between N(0, 1) and N(μ, 1); at t = ε/2 just so."""
    exact = 2 * norm.ppf(1 / (1 + math.exp(-width / 2)))
    charged = math.sqrt(Selection(Fraction(width), 1).mu_squared(ROUNDING))
    assert exact <= charged * (1 + 1e-12)
    if width < 0.1:
        assert exact == pytest.approx(charged, rel=1e-3)
    gaps = []
    for t in np.linspace(0, width, 101)[1:-1]:
        p, q = bounded_pair(width, float(t))
        gaps.append(norm.ppf(p[0]) - norm.ppf(q[0]))
    assert max(gaps) == pytest.approx(exact, rel=1e-9)
    assert int(np.argmax(gaps)) == 49
    rng = np.random.default_rng(3)
    for _ in range(300):  # exponential mechanisms of more candidates: all their tests
        weights = rng.gumbel(size=6) * 2
        moved = weights + rng.uniform(0, width, 6)
        p, q = (np.exp(each - each.max()) / np.exp(each - each.max()).sum() for each in (weights, moved))
        order = np.argsort(q / p)
        alpha, beta = np.cumsum(q[order])[:-1], 1 - np.cumsum(p[order])[:-1]
        assert np.all(norm.ppf(beta) >= norm.ppf(1 - alpha) - charged - 1e-9)


@pytest.mark.parametrize("delta", [1e-2, 1e-4])
def test_selections_and_noise_together_are_covered(delta: float) -> None:
    """Three selections of the worst pairs and a count, their joint loss in full: fixed sizes, and the filter."""
    width, variance, draws = 0.4, 60, 3
    events = (Selection(Fraction(2, 5), draws), noise(4, variance))
    fixed, filtered = Ledger(budget(50.0, delta)), GaussianFilter(budget(50.0, delta, adaptive=True))
    fixed.charge(*events)
    for event in events:
        filtered = filtered.after(event)
    for promised in (fixed.spent().epsilon, filtered.epsilon):
        for t in (0.1, 0.2, 0.3):
            p, q = bounded_pair(width, t)
            selected = (p, np.log(p / q))
            exact = together(*[selected] * draws, losses(2, variance))
            assert delta_of(*exact, promised) <= delta
    zcdp = epsilon_of(sum((event.rho for event in events), Fraction(0)), delta=delta)
    assert fixed.spent().epsilon <= zcdp * (1 + 1e-9)


def test_events_of_bounded_loss_cost_pi_times_rho() -> None:
    for event in (
        Selection(Fraction(1, 7), 5),
        LaplaceMeasurement(Fraction(2), Fraction(9)),
        Epoch(Fraction(1, 5)),
    ):
        assert event.mu_squared(ROUNDING) == PI * event.rho
        by_filter, by_sum = (Ledger(budget(20.0, adaptive=adaptive)) for adaptive in (True, False))
        by_filter.charge(event)
        by_sum.charge(event)
        assert by_sum.spent().epsilon <= epsilon_of(event.rho, delta=DELTA) * (1 + 1e-9)


def test_where_selections_are_few_gaussian_accounting_is_the_tighter() -> None:
    """With 5% of ρ for selections a whole plan costs less than by zcdp; with all of it, more."""
    rho = rho_of(epsilon=1.0, delta=1e-6)
    for share, tighter in ((Fraction(1, 20), True), (Fraction(1, 5), True), (Fraction(1), False)):
        width = Fraction(math.sqrt(8 * rho * share / 10))
        total = GaussianFilter(budget(1.0, 1e-6, adaptive=True)).after(Selection(width, 10))
        if share < 1:
            total = total.after(noise(2 * rho * (1 - share) * 10**9, 10**9))
        assert (total.epsilon < 1.0) is tighter
