"""The hazard test: its table, its price for every pair of rows, its draws, and games that use up a cap."""

from __future__ import annotations

import json
from collections import Counter
from fractions import Fraction
from functools import lru_cache

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dualquery.errors import BudgetError
from dualquery.privacy.conversion import (
    UNITS,
    best_order,
    exp_minus,
    fire_units,
    renyi_cap,
    renyi_epsilon,
    rho_of,
)
from dualquery.privacy.events import Epoch, Fire, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.thresholds import FarSide, Found, HazardTest, Table, price_holds, tabulate
from dualquery.randomness import SeededEntropy

ONE = 1 << 128
# ε that make a fire cost about 1% and 4% of the cap of ε = 1, δ = 10⁻⁶ (order 22); 1% at ε = 0.3 (order 63)
GRID = [
    HazardTest(Fraction(1, 53), 450, 22),
    HazardTest(Fraction(1, 32), 265, 22),
    HazardTest(Fraction(1, 150), 1300, 63),
    HazardTest(Fraction(1, 160), 1400, 22, sensitivity=3),
    HazardTest(Fraction(1, 40), 0, 22),
    HazardTest(Fraction(1, 40), 3000, 22),  # both clocks clipped around 0
    HazardTest(Fraction(1, 2), 20, 2),
]


def units(test: HazardTest) -> int:
    return int(test.event.cost * UNITS)


def holds(table: Table, test: HazardTest, price: int) -> bool:
    return price_holds(table, order=test.order, sensitivity=test.sensitivity, units=price)


# The table


def ideal(test: HazardTest, x: int) -> tuple[mpmath.mpf, mpmath.mpf, mpmath.mpf]:
    """Silence, "too low" and "too high" by the definition; call within a precision."""
    epsilon = mpmath.mpf(test.epsilon.numerator) / test.epsilon.denominator
    rates = [mpmath.exp(epsilon * (sign * x - test.threshold)) for sign in (1, -1)]
    a, b = (min(max(rate, mpmath.mpf(2) ** -40), mpmath.mpf(64)) for rate in rates)
    fires = -mpmath.expm1(-(a + b))
    return 1 - fires, fires * a / (a + b), fires * b / (a + b)


@pytest.mark.parametrize("test", GRID)
def test_every_row_is_the_law_to_the_last_bits_and_silence_is_never_more_likely(test: HazardTest) -> None:
    table = tabulate(test.epsilon, test.threshold)
    rows = {0, 1, test.threshold, table.last, table.last + 1, 10**9, *range(0, table.last, 37)}
    with mpmath.workdps(80):
        for x in [*rows, *(-row for row in rows)]:
            outcomes, exact = table.outcomes(x), ideal(test, x)
            assert sum(outcomes) == ONE
            assert all(abs(ours - p * ONE) <= 3 for ours, p in zip(outcomes, exact, strict=True))
            assert outcomes[0] <= exact[0] * ONE
            silence, low, high = outcomes
            assert table.outcomes(-x) == (silence, high, low)


@pytest.mark.parametrize("test", GRID[:3])
@pytest.mark.parametrize("beta", [1e-27, 1e-6, 0.05, 0.3])
def test_a_gap_beyond_the_bound_is_silent_with_probability_at_most_beta(
    test: HazardTest, beta: float
) -> None:
    reach = int(test.bound(beta) - 0.5)  # |count − n h| > bound, hence |x| ≥ |count − n h| − ½ > bound − ½
    for x in (reach + 1, -reach - 1, 10**7):
        assert 1 - sum(test.probabilities(x)) <= Fraction(beta)
    assert 1 - sum(test.probabilities(reach - 2)) > Fraction(beta)
    with pytest.raises(BudgetError, match="beta"):
        test.bound(1e-28)


@pytest.mark.parametrize("bound", [51, 301, 512, 995])
@pytest.mark.parametrize("questions", [1, 2000, 10**6])
def test_a_test_for_a_bound_keeps_it_and_stays_quiet(bound: int, questions: int) -> None:
    test = HazardTest.for_bound(bound, beta=0.05, questions=questions, order=2)
    assert bound - 2 < test.bound(0.05) <= bound
    assert 0.9 < questions * sum(test.probabilities(0)) <= 1 or questions == 1
    with pytest.raises(BudgetError, match="no room"):
        HazardTest.for_bound(1, beta=0.05, questions=questions, order=2)


# The price


@pytest.mark.parametrize("test", GRID)
def test_the_price_is_the_formula_rounded_up(test: HazardTest) -> None:
    with mpmath.workdps(60):
        alpha, step = test.order, test.sensitivity * mpmath.mpf(test.epsilon.numerator)
        step /= test.epsilon.denominator
        exact = (-step * (alpha - 1) - mpmath.log(1 - (alpha - 1) * mpmath.expm1(step))) / (alpha - 1)
        assert 1 <= units(test) - exact * UNITS <= 2
    assert test.event.cost == Fraction(fire_units(**vars(test.event)), UNITS)


@pytest.mark.parametrize("test", GRID)
def test_the_inequality_holds_for_every_pair_of_rows_and_the_price_is_needed(test: HazardTest) -> None:
    table = tabulate(test.epsilon, test.threshold)
    assert holds(table, test, units(test))
    if test.threshold > 0:  # otherwise a fire is so likely that no pair comes close
        assert not holds(table, test, units(test) * 9 // 10)
    if test.threshold * test.epsilon > 8:  # some pair is close to equality
        assert not holds(table, test, units(test) * 99 // 100)


def test_further_neighbours_cost_more() -> None:
    test = GRID[3]
    table = tabulate(test.epsilon, test.threshold)
    near = fire_units(epsilon=test.epsilon, sensitivity=1, order=test.order)
    assert price_holds(table, order=test.order, sensitivity=1, units=near)
    assert not holds(table, test, near)
    assert not holds(table, test, fire_units(epsilon=test.epsilon, sensitivity=2, order=test.order))


@pytest.mark.parametrize("test", GRID[:4])
def test_a_doubled_epsilon_or_an_open_end_is_caught(test: HazardTest) -> None:
    price = units(test)
    assert not holds(tabulate(2 * test.epsilon, test.threshold), test, price)
    assert not holds(tabulate(test.epsilon, test.threshold, fastest=8), test, price)  # silence becomes 0
    quiet = 100 * test.epsilon.denominator  # rates so small that single units of 2⁻¹²⁸ decide
    assert holds(tabulate(test.epsilon, quiet), test, price)
    assert not holds(tabulate(test.epsilon, quiet, slowest=140), test, price)


def exact_moment(table: Table, x: int, y: int, test: HazardTest) -> Fraction:
    """The left side of (∗) in rationals; only e^−(α−1)D is replaced by a rational a little above it."""
    p, q = ([Fraction(n, ONE) for n in table.outcomes(z)] for z in (x, y))
    silence, low, high = (a**test.order / b ** (test.order - 1) for a, b in zip(p, q, strict=True))
    discount = Fraction(exp_minus((test.order - 1) * test.event.cost, 400)[1], 1 << 400)
    return silence + discount * (low + high)


@pytest.mark.parametrize("test", GRID[:4])
def test_the_inequality_in_plain_rationals(test: HazardTest) -> None:
    """The check itself rounds upward in fixed point; here nothing is rounded."""
    table = tabulate(test.epsilon, test.threshold)
    largest = Fraction(0)
    for x in range(0, table.last + 1, 29):
        for y in (x - test.sensitivity, x + 1, x + test.sensitivity):
            largest = max(largest, exact_moment(table, x, y, test), exact_moment(table, -y, -x, test))
    assert Fraction(999, 1000) < largest <= 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ((Fraction(1, 20), 10, 22), "no finite price"),
        ((Fraction(1, 60), 10, 22, 3), "no finite price"),
        ((Fraction(0), 10, 22), "positive"),
        ((Fraction(1, 50), -1, 22), "negative"),
        ((Fraction(1, 50), 10, 1), "at least 2"),
        ((Fraction(1, 50), 10, 22, 0), "at least 1"),
        ((Fraction(1, 10**6), 10, 22), "rows"),
    ],
)
def test_impossible_tests_are_refused(values: tuple[Fraction, int, int], sentence: str) -> None:
    with pytest.raises(BudgetError, match=sentence):
        HazardTest(*values)


# The draw


class Scripted:
    """Hands out the numbers it was given."""

    statement = "scripted"
    private = False

    def __init__(self, *numbers: int) -> None:
        self.numbers = list(numbers)

    def below(self, bound: int, count: int) -> list[int]:
        raise AssertionError("a draw is two words of 64 bits")

    def words(self, count: int) -> NDArray[np.uint64]:
        assert count == 2
        return np.array(divmod(self.numbers.pop(0), 1 << 64), np.uint64)

    def public_generator(self) -> np.random.Generator:
        raise AssertionError("a draw needs no public chance")


def said(found: Found | None) -> FarSide | None:
    """Of one number."""
    return None if found is None else found.side


@pytest.mark.parametrize("x", [0, 3, -3, 90, -90, 10**6, -(10**6)])
def test_a_draw_compares_128_bits_with_the_row(x: int) -> None:
    test = HazardTest(Fraction(1, 40), 100, 22)
    _, low, high = tabulate(test.epsilon, test.threshold).outcomes(x)
    first, second = (FarSide.TOO_LOW, FarSide.TOO_HIGH) if x >= 0 else (FarSide.TOO_HIGH, FarSide.TOO_LOW)
    edge = low if x >= 0 else high
    chances = [0, edge - 1, edge, low + high - 1, low + high, ONE - 1]
    drawn = [said(test.draw(np.array([x]), Scripted(chance))) for chance in chances]
    assert drawn == [first, first, second, second, None, None]


def p_value(test: HazardTest, wrong: Fraction, x: int, draws: int) -> float:
    """Chi-square of draws of a test against the law of one whose ε is `wrong`."""
    entropy = SeededEntropy(x)
    seen = Counter(said(test.draw(np.array([x]), entropy)) for _ in range(draws))
    with mpmath.workdps(30):
        expected = [float(p) * draws for p in ideal(HazardTest(wrong, test.threshold, 2), x)]
    found = [seen[None], seen[FarSide.TOO_LOW], seen[FarSide.TOO_HIGH]]
    return float(stats.chisquare(found, expected).pvalue)


@pytest.mark.parametrize("x", [0, 40, -60, 130, -150])
def test_draws_follow_the_law_and_an_epsilon_20_percent_off_is_rejected(x: int) -> None:
    test = HazardTest(Fraction(1, 50), 100, 22)
    assert p_value(test, test.epsilon, x, 20_000) > 1e-10
    assert p_value(test, test.epsilon * Fraction(6, 5), x, 20_000) < 1e-20
    assert p_value(test, test.epsilon * Fraction(4, 5), x, 20_000) < 1e-20


# Games


@lru_cache
def moves(test: HazardTest) -> list[tuple[float, float]]:
    """What each pair of rows does to the moment: by silence and by a fire, before any price."""
    table, found = tabulate(test.epsilon, test.threshold), []
    for x in range(-table.last, table.last + 1, 7):
        for y in (x - 1, x + 1):
            p, q = (np.array(table.outcomes(z), dtype=float) / ONE for z in (x, y))
            silence, low, high = p * np.exp((test.order - 1) * np.log(p / q))
            found.append((float(silence), float(low + high)))
    return found


def largest_moment(test: HazardTest, *, fires: int, tests: int, overdraft: int = 0) -> float:
    """The best an adaptive analyst does who may go on asking until the reserved fires are used up."""
    values = np.ones(fires + overdraft + 1)  # by the fires that are left; with none left there is no test
    silence, fire = np.array(moves(test)).T
    for _ in range(tests):
        asked = [float(np.max(silence * values[k] + fire * values[k - 1])) for k in range(1, len(values))]
        values[1:] = np.maximum(values[1:], asked)
    return float(values[-1])


def test_an_adaptive_game_never_exceeds_its_cap_and_an_overdraft_does() -> None:
    test = GRID[0]
    allowed = float(np.exp((test.order - 1) * float(test.event.cost)))
    for fires in (1, 3):
        moment = largest_moment(test, fires=fires, tests=300)
        assert 0.97 * allowed**fires < moment <= allowed**fires * (1 + 1e-9)
    assert largest_moment(test, fires=1, tests=300, overdraft=1) > allowed * 1.05


def test_ten_tests_against_one_reservation_would_break_the_promise() -> None:
    test = GRID[0]
    allowed = float(np.exp((test.order - 1) * float(test.event.cost)))
    at_once = max(silence + fire for silence, fire in moves(test)) ** 10
    assert 1.05 < allowed < 1.15
    assert at_once > 1.5


# Events and conversions


def test_a_fire_is_priced_at_its_own_order_only() -> None:
    fire = Fire(Fraction(1, 50), 1, 22)
    assert fire.renyi(22) == fire.cost
    with pytest.raises(BudgetError, match="order 22"):
        fire.renyi(23)
    assert not hasattr(fire, "rho")
    assert not hasattr(fire, "pure")
    written = json.loads(json.dumps(fire.to_json()))
    assert Fire(Fraction(written["epsilon"]), written["sensitivity"], written["order"]) == fire
    assert "22" in fire.words()


def test_the_other_events_cost_order_times_rho() -> None:
    half = Fraction(1, 2)
    epoch = Epoch(half)
    assert (epoch.pure, epoch.rho) == (half, Fraction(1, 8))
    assert Fraction(json.loads(json.dumps(epoch.to_json()))["epsilon"]) == half
    for event in (epoch, Selection(half, 3), GaussianMeasurement(half, half), LaplaceMeasurement(half, half)):
        assert event.renyi(22) == 22 * event.rho
    with pytest.raises(BudgetError):
        Epoch(Fraction(0))


@settings(max_examples=30, deadline=None)
@given(st.floats(0.01, 20), st.floats(-40, -1).map(lambda x: 10**x), st.integers(2, 500))
def test_the_cap_of_an_order_is_the_formula_and_never_above_it(
    epsilon: float, delta: float, order: int
) -> None:
    cap = renyi_cap(epsilon=epsilon, delta=delta, order=order)
    with mpmath.workdps(60):
        exact = mpmath.mpf(epsilon) + (mpmath.log(delta) + mpmath.log(order)) / (order - 1)
        exact += mpmath.log1p(mpmath.mpf(1) / (order - 1))
        assert cap <= max(exact * UNITS, 0)
        assert cap >= exact * UNITS * (1 - mpmath.mpf(10) ** -10) - 100
    assert renyi_epsilon(Fraction(cap, UNITS), order=order, delta=delta) <= epsilon
    assert renyi_epsilon(Fraction(cap + 1, UNITS), order=order, delta=delta) > epsilon


@pytest.mark.parametrize(("epsilon", "order"), [(1.0, 22), (0.3, 63)])
def test_the_best_order_loses_next_to_nothing(epsilon: float, order: int) -> None:
    assert best_order(epsilon=epsilon, delta=1e-6) == order
    per_order = [
        Fraction(renyi_cap(epsilon=epsilon, delta=1e-6, order=alpha), alpha) for alpha in range(2, 3 * order)
    ]
    assert per_order.index(max(per_order)) + 2 == order
    rho = rho_of(epsilon=epsilon, delta=1e-6) * UNITS
    assert 0 < 1 - max(per_order) / rho < 3e-5


def test_the_price_of_a_fire_on_adult() -> None:
    """Bounds of 1.0, 1.7, 2.3 and 3.3% of 30,162 records, 95%, one false fire in 2,000 questions."""
    cap = renyi_cap(epsilon=1, delta=1e-6, order=22)
    percent = []
    for share in (0.01, 0.017, 0.023, 0.033):
        test = HazardTest.for_bound(int(share * 30_162), beta=0.05, questions=2000, order=22)
        percent.append(100 * units(test) / cap)
    assert percent == pytest.approx([3.949, 0.957, 0.473, 0.2125], rel=1e-3)
