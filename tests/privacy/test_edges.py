"""Edges: the last number that is accepted and the first that is not, rounding to the safe side, and rare branches."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from dualquery.errors import BudgetError
from dualquery.privacy import conversion, noise, selection, thresholds
from dualquery.privacy.budget import MOST_RECORDS, Accounting, Budget, Neighbours
from dualquery.privacy.conversion import (
    advanced_composition,
    best_order,
    discrete_gaussian_epsilon,
    epsilon_of,
    gaussian_epsilon,
    renyi_cap,
    renyi_epsilon,
    rho_of,
    tight_gaussian_epsilon,
)
from dualquery.privacy.events import Epoch, Fire, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger, Price, equal_prices, smallest_gaussian_scale
from dualquery.privacy.noise import Law
from dualquery.privacy.scores import TableErrors
from dualquery.privacy.selection import LN2_ABOVE, Rate, mantissa
from dualquery.privacy.thresholds import FarSide, Found, HazardTest, Table, last_row, price_holds
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy, SystemEntropy
from dualquery.table.domain import Categorical, Domain

# ── What is refused ─────────────────────────────────────────────────────────────────────────────────────────────

BAD_DELTAS: list[Callable[[float], object]] = [
    lambda d: epsilon_of(0.1, delta=d),
    lambda d: renyi_epsilon(0.1, order=5, delta=d),
    lambda d: advanced_composition(0.1, 3, delta=d),
    lambda d: gaussian_epsilon(0.1, delta=d),
]
BAD_EPSILONS: list[Callable[[float], object]] = [
    lambda e: rho_of(epsilon=e, delta=1e-6),
    lambda e: renyi_cap(epsilon=e, delta=1e-6, order=9),
]


@pytest.mark.parametrize("place", range(len(BAD_DELTAS)))
@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, 1.5, math.nan])
def test_a_delta_outside_its_interval_is_refused(place: int, delta: float) -> None:
    with pytest.raises(BudgetError, match="delta must lie between 0 and 1"):
        BAD_DELTAS[place](delta)


@pytest.mark.parametrize("place", range(len(BAD_EPSILONS)))
@pytest.mark.parametrize("epsilon", [0.0, math.inf, -1.0, math.nan])
def test_an_epsilon_that_is_no_positive_number_is_refused(place: int, epsilon: float) -> None:
    with pytest.raises(BudgetError, match="epsilon must be a positive number"):
        BAD_EPSILONS[place](epsilon)


def test_costs_below_nothing_or_beyond_all_bounds_are_refused() -> None:
    for cost in (-1e-300, 10**300, math.inf, math.nan):
        with pytest.raises(BudgetError, match="finite number of at least 0"):
            epsilon_of(cost, delta=1e-6)
    with pytest.raises(BudgetError, match="at least 2"):
        renyi_epsilon(0.1, order=1, delta=1e-6)
    renyi_epsilon(0.1, order=2, delta=1e-6)


def test_nothing_costs_nothing() -> None:
    assert epsilon_of(0, delta=1e-6) == 0
    assert [renyi_epsilon(0, order=order, delta=1e-6) for order in (2, 22)] == [0, 0]
    assert gaussian_epsilon(0, delta=1e-6) == 0
    assert discrete_gaussian_epsilon([], delta=1e-6) == 0
    assert advanced_composition(0.0, 0, delta=1e-6) == 0
    assert advanced_composition(701.0, 0, delta=1e-6) == 0
    assert advanced_composition(701.0, 1, delta=1e-6) == math.inf
    assert math.isfinite(advanced_composition(700.0, 1, delta=1e-6))


def test_events_at_their_edges() -> None:
    Selection(Fraction(0), 1)
    GaussianMeasurement(Fraction(0), Fraction(1))
    LaplaceMeasurement(Fraction(0), Fraction(1))
    for make in (
        lambda: Selection(Fraction(-1, 9), 1),
        lambda: Selection(Fraction(1), 0),
        lambda: GaussianMeasurement(Fraction(-1, 9), Fraction(1)),
        lambda: GaussianMeasurement(Fraction(1), Fraction(0)),
        lambda: LaplaceMeasurement(Fraction(-1, 9), Fraction(1)),
        lambda: LaplaceMeasurement(Fraction(1), Fraction(0)),
        lambda: Epoch(Fraction(0)),
        lambda: Fire(Fraction(0), 1, 9),
        lambda: Fire(Fraction(1, 100), 0, 9),
        lambda: Fire(Fraction(1, 100), 1, 1),
    ):
        with pytest.raises(BudgetError):
            make()


def test_a_rate_of_nothing_is_a_rate() -> None:
    assert Rate(0, 40).nats == 0
    assert Rate(0, 40).largest == Rate(1, 40).largest == 2**62 - 1
    assert Rate(2, 40).largest == 2**61 - 1
    assert Rate.below(0.0, 10) == Rate(0, 60)


# ── Rounded to the safe side ────────────────────────────────────────────────────────────────────────────────────


def test_the_constants_of_the_page() -> None:
    assert conversion._ROUNDING == 2**-48
    assert tuple(map(Fraction, ("1", "1.5", "2", "2.5", "3"))) == conversion._ROUNDING_VARIANCES
    assert (thresholds._SLOWEST, thresholds._FASTEST, thresholds._BITS) == (40, 6, 128)
    assert 0 < float(thresholds._LN_2) - math.log(2) < 1e-4


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-6), (0.3, 1e-6), (2.0, 1e-3), (5.0, 1e-9), (30.0, 1e-2)]
)
def test_the_best_order_is_best_among_all(epsilon: float, delta: float) -> None:
    def buys(order: int) -> Fraction:
        return Fraction(renyi_cap(epsilon=epsilon, delta=delta, order=order), order)

    assert best_order(epsilon=epsilon, delta=delta) == max(range(2, 90), key=buys)


def test_the_coarsest_rate_and_the_first_that_is_too_fast() -> None:
    widest = 2**50 * math.log(2)
    assert (
        Rate.below(widest * (1 - 1e-12), 1).shift
        == Rate.below(widest / 2**20 * (1 - 1e-12), 2**20).shift
        == 11
    )
    for nats, largest in ((widest * (1 + 1e-12), 1), (widest / 2**20 * (1 + 1e-12), 2**20)):
        with pytest.raises(BudgetError):
            Rate.below(nats, largest)


def test_the_most_records_of_a_person() -> None:
    for relation in ("person-replace", "person-add-remove"):
        assert Neighbours.named(relation, MOST_RECORDS).records_per_person == MOST_RECORDS
        for wrong in (0, MOST_RECORDS + 1):
            with pytest.raises(BudgetError, match="whole number"):
                Neighbours.named(relation, wrong)


def test_ln_2_is_rounded_up_by_less_than_a_unit() -> None:
    with mpmath.workdps(40):
        assert (
            0 < mpmath.mpf(LN2_ABOVE.numerator) / LN2_ABOVE.denominator - mpmath.ln(2) < mpmath.mpf(10) ** -16
        )


@pytest.mark.parametrize("shift", [11, 12, 30, 52, 60])
def test_the_mantissa_is_within_kappa_where_its_polynomial_is_worst(shift: int) -> None:
    """Just before each entry of the table the Taylor polynomial is farthest from 2^f."""
    for entry in (1, 2, 700, 1365, 2047, 2048):
        fraction = (entry << shift - 11) - 1
        got = int(mantissa(np.int64(fraction), shift, selection.POWERS))
        with mpmath.workdps(40):
            exact = mpmath.mpf(2) ** (mpmath.mpf(fraction) / mpmath.mpf(2) ** shift + 40)
            assert abs(mpmath.log(got / exact)) < mpmath.mpf(2) ** -38
            assert got <= exact * (1 + mpmath.mpf(2) ** -49)
            assert got >= exact * (1 - mpmath.mpf(2) ** -49) - 1


def test_exponentials_at_their_ends() -> None:
    assert conversion.exp_minus(Fraction(0), 64) == (1 << 64, 1 << 64)
    for tiny in (Fraction(1, 10**9), Fraction(1, 10**19), Fraction(1, 10**60)):
        low, high = conversion.exp_minus(tiny, 64)
        assert (1 << 64) * (1 - tiny) - 4 <= low <= high <= 1 << 64
    assert conversion.exp_minus(Fraction(64), 64) == conversion.exp_minus(Fraction(10**9), 64) == (0, 1)


def test_the_smallest_price_and_the_finest_root() -> None:
    def price(epsilon: float) -> Price:
        return equal_prices(
            Budget(epsilon=epsilon, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE), 1
        )

    assert price(2e-12).pure == Fraction(1, 10**12)
    assert price(3e-12).pure == Fraction(2, 10**12)
    with pytest.raises(BudgetError, match="too small"):
        price(1e-12)
    for rho in (Fraction(1, 10**12), Fraction(1, 8), Fraction(7, 3)):
        root = Price(None, rho).selection_range()
        assert (1 - Fraction(11, 10**11)) ** 2 * 8 * rho <= root**2 <= 8 * rho


@pytest.mark.parametrize("mu", [0.01, 0.3, 1.0, 2.5, 8.0])
def test_the_gaussian_curve_is_bounded_from_above_and_closely(mu: float) -> None:
    """Both branches, against 60 digits."""
    for epsilon in (0.0, 1e-3, 0.1, 0.49 * mu * mu, 0.5 * mu * mu, 0.7, 2.0, 10.0, 40.0):
        with mpmath.workdps(60):
            m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
            delta = mpmath.ncdf(-e / m + m / 2) - mpmath.exp(e) * mpmath.ncdf(-e / m - m / 2)
            exact = mpmath.log(delta)
            if exact < -700:
                continue
            excess = float(conversion._log_gaussian_delta(mu, epsilon) - exact)
        a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
        room = (1 + mu) ** 2 / min(1.0, mu) + abs(a * b)
        assert 0 <= excess <= 2**-46 * (2 + room * (2 + abs(b)))


@pytest.mark.parametrize("x", [0.0, 0.5, 1.0, 1.3, 1.999, 2.0, 2.01, 2.5, 3.3, 4.7, 6.9, 9.0, 13.0, 30.0])
def test_mills_ratio(x: float) -> None:
    with mpmath.workdps(40):
        exact = mpmath.ncdf(-x) / mpmath.npdf(x)
        assert conversion._mills_ratio(x) == pytest.approx(float(exact), rel=2e-15)
    assert conversion._density(x) == pytest.approx(float(mpmath.npdf(x)), rel=1e-14)


@pytest.mark.parametrize(("each", "draws", "delta"), [(0.1, 1, 1e-6), (0.01, 500, 1e-3), (2.0, 7, 1e-9)])
def test_advanced_composition_is_its_formula(each: float, draws: int, delta: float) -> None:
    formula = each * (math.sqrt(2 * draws * math.log(1 / delta)) + draws * (math.exp(each) - 1))
    assert formula <= advanced_composition(each, draws, delta=delta) <= formula * (1 + 1e-13)


def test_a_tight_gaussian_is_the_curve_of_twice_rho() -> None:
    assert tight_gaussian_epsilon(0.05, delta=1e-6) == gaussian_epsilon(0.1, delta=1e-6)
    assert tight_gaussian_epsilon(0.05, delta=1e-6) < epsilon_of(0.05, delta=1e-6)


def test_the_smallest_scale_fits_and_a_little_less_does_not() -> None:
    noises = [GaussianMeasurement(Fraction(2), Fraction(3)), GaussianMeasurement(Fraction(5), Fraction(1, 7))]
    for accounting in (Accounting.ZCDP, Accounting.GAUSSIAN):
        budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=accounting)
        factor = smallest_gaussian_scale(budget, noises)

        def fits(factor: Fraction, budget: Budget = budget) -> bool:
            return Ledger(budget).affords(
                *(GaussianMeasurement(n.sensitivity_squared, n.variance * factor) for n in noises)
            )

        assert fits(factor)
        assert not fits(factor * (1 - Fraction(1, 2**38)))


def test_advanced_composition_counts_no_draw_that_is_free() -> None:
    budget = Budget(epsilon=5, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.THEOREM_4_3)
    ledger, other = Ledger(budget), Ledger(budget)
    ledger.charge(Selection(Fraction(1, 10), 4))
    other.charge(
        Selection(Fraction(0), 100),
        Selection(Fraction(1, 10), 4),
        LaplaceMeasurement(Fraction(0), Fraction(1)),
    )
    assert ledger.spent() == other.spent()


def test_a_budget_accepts_every_positive_epsilon_that_promises_anything() -> None:
    for epsilon in (5e-324, 1e-9, 0.5, 1.0, 1e9):
        Budget(epsilon=epsilon, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    for epsilon in (0.0, -1.0, 1e10, math.inf, math.nan):
        with pytest.raises(BudgetError, match="positive"):
            Budget(epsilon=epsilon, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)


# ── Noise ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_largest_noise_that_can_be_drawn() -> None:
    assert Law.gaussian(Fraction(2**62)).place_bits == Law.laplace(Fraction(2**31)).place_bits == 24
    for too_large in (lambda: Law.gaussian(Fraction(2**62 + 1)), lambda: Law.laplace(Fraction(2**31) + 1)):
        with pytest.raises(BudgetError, match="drowns"):
            too_large()
    assert Law.gaussian(Fraction(128**2)).place_bits == Law.laplace(Fraction(128)).place_bits == 0
    assert Law.gaussian(Fraction(128**2) + 1).place_bits == Law.laplace(Fraction(129)).place_bits == 1


def test_few_draws_have_the_law_that_was_asked_for() -> None:
    """Laplace noise of scale b has variance 2b², Gaussian noise of deviation b has b²: 10⁴ draws tell them apart."""
    entropy, few = SystemEntropy(), noise.FEW
    laplace = np.concatenate(
        [noise.discrete_laplace(few, scale=Fraction(100), entropy=entropy) for _ in range(10**4 // few)]
    )
    gaussian = np.concatenate(
        [noise.discrete_gaussian(few, variance=Fraction(10**4), entropy=entropy) for _ in range(10**4 // few)]
    )
    assert 16_000 < laplace.var() < 24_000  # nine standard errors, or more
    assert 8_500 < gaussian.var() < 11_500


class Scripted:
    """Bits as written, then zeros."""

    def __init__(self, *chunks: int) -> None:
        self.chunks = list(chunks)
        self.asked = 0

    def below(self, bound: int, count: int) -> list[int]:
        assert (bound, count) == (1 << 64, 1)
        self.asked += 1
        return [self.chunks.pop(0)]


@pytest.mark.parametrize("more", [1, 2])
def test_a_chance_that_its_bits_do_not_settle_draws_more(more: int) -> None:
    """V begins with exactly the bits of 1 − e^−γ: only later bits tell on which side it lies."""
    gamma, bits = Fraction(1, 3), 20
    with mpmath.workdps(120):
        digits = int(mpmath.floor((1 - mpmath.exp(-mpmath.mpf(1) / 3)) * mpmath.mpf(2) ** (bits + 64 * more)))
    chunks = [(digits >> 64 * (more - 1 - i)) & (2**64 - 1) for i in range(more)]
    for last, dropped in ((-5, True), (5, False)):
        entropy = Scripted(*chunks[:-1], chunks[-1] + last)
        assert noise._dropped(gamma, digits >> 64 * more, bits, entropy) is dropped  # type: ignore[arg-type]
        assert entropy.asked == more


def test_a_place_of_no_chance_is_never_dropped() -> None:
    assert noise._dropped(Fraction(0), 0, 8, Scripted()) is False  # type: ignore[arg-type]


def test_words_that_are_undecided_and_then_dropped_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that decides nothing leaves all to `settle`; what that drops gets another word."""

    def undecided(law, words, cells, out):  # type: ignore[no-untyped-def]
        return np.empty(0, np.int64), np.arange(len(words))

    law = Law.gaussian(Fraction(9))
    expected = noise._draw(law, 400, SeededEntropy(5))
    monkeypatch.setattr(noise, "decide", undecided)
    drawn = noise._draw(law, 400, SeededEntropy(5))
    assert np.array_equal(drawn, expected)


# ── Threshold tests ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_table_has_as_many_rows_as_it_needs() -> None:
    for epsilon, threshold in ((Fraction(1, 100), 0), (Fraction(1, 100), 1500), (Fraction(1, 30), 5000)):
        rows = last_row(epsilon, threshold)
        e = float(epsilon)
        assert e * (rows - threshold) >= math.log(64)
        assert e * (rows + threshold) >= 40 * math.log(2)
        less = rows - 3
        assert (
            e * (less - threshold) < math.log(64) * 1.001 or e * (less + threshold) < 40 * math.log(2) * 1.001
        )


def test_the_longest_table() -> None:
    epsilon = Fraction(1, 1000)
    most = thresholds._LONGEST - 1 - math.ceil(6 * thresholds._LN_2 / epsilon)
    HazardTest(epsilon, most, 9)
    HazardTest(epsilon, 0, 9)
    with pytest.raises(BudgetError, match="rows"):
        HazardTest(epsilon, most + 1, 9)
    with pytest.raises(BudgetError, match="cannot be negative"):
        HazardTest(epsilon, -1, 9)


def test_a_test_for_a_bound_by_its_formula() -> None:
    for bound, beta, questions in ((300, 0.3, 1), (700, 0.05, 2000), (995, 0.01, 40)):
        test = HazardTest.for_bound(bound, beta=beta, questions=questions, order=9)
        quiet, sure, room = math.log(2 * questions), math.log(math.log(1 / beta)), bound - 0.5
        assert test.threshold == math.floor(room * quiet / (quiet + sure))
        epsilon = max(quiet / test.threshold, sure / (room - test.threshold))
        assert 0 < float(test.epsilon) - epsilon < 2.1e-9
        assert test.bound(beta) <= bound
    for wrong in ({"beta": 0.31}, {"questions": 0}):
        with pytest.raises(BudgetError):
            HazardTest.for_bound(300, **{"beta": 0.05, "questions": 1, "order": 9, **wrong})  # type: ignore[arg-type]


def test_a_bound_by_its_formula() -> None:
    test = HazardTest(Fraction(1, 50), 100, 9)
    exact = 100.5 + math.log(math.log(20)) * 50
    assert exact <= test.bound(0.05) <= exact * (1 + 1e-13)
    assert test.bound(math.exp(-64)) > 100.5
    with pytest.raises(BudgetError, match="beta"):
        test.bound(1.0)


def test_a_side_that_only_one_neighbour_can_say_has_no_price() -> None:
    whole = 1 << 128
    never = Table((whole // 4, whole // 2), (whole // 2, whole // 2))  # at 1 the farther side never fires
    assert not price_holds(never, order=2, sensitivity=1, units=10**15)
    always = Table((whole // 4, whole // 4), (whole // 2, whole // 2))
    assert price_holds(always, order=2, sensitivity=1, units=0)


def test_preparing_is_what_the_first_draw_would_do() -> None:
    test = HazardTest(Fraction(1, 20), 41, 3)
    thresholds._checked.cache_clear()
    test.prepare()
    assert thresholds._checked.cache_info().misses == 1
    assert test.draw(np.array([10**6]), SeededEntropy(1)) == Found(0, FarSide.TOO_LOW)
    assert test.draw(np.array([-(10**6)]), SeededEntropy(1)) == Found(0, FarSide.TOO_HIGH)
    assert thresholds._checked.cache_info().misses == 1


def test_terms_of_the_inequality() -> None:
    """p (p/q)^{α−1} in units of 2^−(128 + 256): what cannot happen costs nothing, what only one can say too much."""
    assert thresholds._term(0, 0, 5) == thresholds._term(0, 9, 5) == 0
    assert thresholds._term(7, 7, 5) == 7 << 256
    assert thresholds._term(7, 0, 5) == 1 << 128 + 2 * 256
    assert thresholds._term(6, 3, 5) == 6 * 2**4 << 256
    for p, q, order in ((5, 7, 4), (7, 5, 9), (10**30, 10**30 + 1, 22)):
        exact = Fraction(p) * Fraction(p, q) ** (order - 1) * 2**256
        assert exact <= thresholds._term(p, q, order) <= exact * (1 + Fraction(order * p, 2**250)) + order * p


# ── Scores ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_score_that_is_told_answers_keeps_its_price() -> None:
    domain = Domain((Categorical("a", ("x", "y")),))
    score = TableErrors(Tables(domain, ((0,),)), 10, np.zeros(1))
    told = score.told(np.array([0.5, 0.5]), np.array([0]))
    assert (told.largest, told.public_rows) == (score.largest, 10)
    assert all(told.range(each) == score.range(each) for each in (Neighbours.REPLACE, Neighbours.ADD_REMOVE))
