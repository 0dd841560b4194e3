"""Tables that differ in several records: what each event is then, and what the ledger makes of it."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.conversion import (
    UNITS,
    advanced_composition,
    best_order,
    discrete_gaussian_epsilon,
    epsilon_of,
    gaussian_epsilon,
    renyi_cap,
    renyi_epsilon,
    renyi_group_epsilon,
    rho_of,
)
from dualquery.privacy.events import Epoch, Event, Fire, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.thresholds import price_holds, tabulate

DELTA = 1e-6
MANY = [1, 2, 3, 5, 10]


def ledger(accounting: Accounting, epsilon: float = 100.0, delta: float = DELTA) -> Ledger:
    delta = 0.0 if accounting is Accounting.PURE else delta
    return Ledger(Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=accounting))


@pytest.mark.parametrize("k", MANY)
def test_each_event_between_tables_that_differ_in_k_records(k: int) -> None:
    ratio = Fraction(1, 7)
    assert Selection(ratio, 3).for_records(k) == Selection(k * ratio, 3)
    assert GaussianMeasurement(Fraction(5), ratio).for_records(k) == GaussianMeasurement(
        Fraction(5 * k * k), ratio
    )
    assert LaplaceMeasurement(Fraction(5), ratio).for_records(k) == LaplaceMeasurement(Fraction(5 * k), ratio)
    assert Epoch(ratio).for_records(k) == Epoch(k * ratio)
    small = Fraction(1, 1000)
    assert Fire(small, 2, 9).for_records(k) == Fire(small, 2 * k, 9)


@pytest.mark.parametrize("event", [
    Selection(Fraction(1, 7), 3), GaussianMeasurement(Fraction(2), Fraction(9)),
    LaplaceMeasurement(Fraction(1), Fraction(9)), Epoch(Fraction(1, 5)),
], ids=lambda event: event.kind)  # fmt: skip
@pytest.mark.parametrize("k", MANY)
def test_rho_grows_with_the_square(event: Selection, k: int) -> None:
    assert event.for_records(k).rho == k**2 * event.rho
    if not isinstance(event, GaussianMeasurement):
        assert event.for_records(k).pure == k * event.pure


# ── Brute force ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_range_of_a_selection_over_chains_of_neighbours() -> None:
    """Three scores, each moved by −1, 0 or 1 a neighbour: after k of them the range is at most 2k, and attained."""
    steps = list(product((-1, 0, 1), repeat=3))
    reached = {(0, 0, 0)}
    for k in range(1, 5):
        reached = {tuple(a + b for a, b in zip(s, d, strict=True)) for s in reached for d in steps}  # type: ignore[misc]
        assert max(max(s) - min(s) for s in reached) == Selection(Fraction(2), 1).for_records(k).range


def exact_delta(variance: float, shift: int, epsilon: float) -> float:
    """δ(ε) of discrete Gaussian noise on one count that moves by `shift`, by summing."""
    reach = range(-int(12 * math.sqrt(variance)) - shift, int(12 * math.sqrt(variance)) + shift + 1)
    mass = math.fsum(math.exp(-z * z / (2 * variance)) for z in reach)
    return (
        math.fsum(
            max(
                0.0,
                math.exp(-((z - shift) ** 2) / (2 * variance)) - math.exp(epsilon - z * z / (2 * variance)),
            )
            for z in reach
        )
        / mass
    )


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN, Accounting.RENYI])
@pytest.mark.parametrize("k", [1, 2, 3, 5])
@pytest.mark.parametrize("variance", [30, 400])
def test_noise_hides_k_records_as_well_as_the_ledger_says(
    accounting: Accounting, k: int, variance: int
) -> None:
    paid = ledger(accounting, epsilon=2.0)
    paid.charge(GaussianMeasurement(Fraction(1), Fraction(variance)))
    assert exact_delta(variance, k, paid.epsilon_for(k)) <= DELTA
    if accounting is not Accounting.RENYI:  # which promises its cap
        assert exact_delta(variance, k, 0.7 * paid.epsilon_for(k)) > DELTA


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_table_of_hazards_is_covered_by_the_price_for_k_records(k: int) -> None:
    epsilon, threshold = Fraction(1, 50), 30
    fire = Fire(epsilon, 1, 9).for_records(k)
    table = tabulate(epsilon, threshold)
    units = int(fire.cost * UNITS)
    assert price_holds(table, order=9, sensitivity=k, units=units)
    assert not price_holds(table, order=9, sensitivity=k + 1, units=units)


def test_a_fire_has_no_price_for_too_many_records() -> None:
    fire = Fire(Fraction(1, 50), 1, 9)
    fire.for_records(5)
    with pytest.raises(BudgetError, match="no finite price"):
        fire.for_records(6)


# ── Closed forms ────────────────────────────────────────────────────────────────────────────────────────────────

EVENTS: list[Event] = [
    Selection(Fraction(3, 1000), 40),
    LaplaceMeasurement(Fraction(2), Fraction(700)),
    Selection(Fraction(1, 500), 1),
    Epoch(Fraction(1, 300)),
]


@pytest.mark.parametrize("k", MANY)
def test_closed_forms(k: int) -> None:
    pure = ledger(Accounting.PURE)
    pure.charge(*EVENTS)
    total = 40 * Fraction(3, 1000) + Fraction(2, 700) + Fraction(1, 500) + Fraction(1, 300)
    assert 0 <= Fraction(pure.epsilon_for(k)) - k * total <= Fraction(5, UNITS)

    zcdp = ledger(Accounting.ZCDP)
    zcdp.charge(*EVENTS, GaussianMeasurement(Fraction(2), Fraction(5000)))
    rho = sum(event.rho for event in zcdp.events if not isinstance(event, Fire))
    assert zcdp.epsilon_for(k) == pytest.approx(epsilon_of(k * k * rho, delta=DELTA), rel=1e-6)
    assert zcdp.epsilon_for(k) >= epsilon_of(k * k * rho, delta=DELTA)

    theorem = ledger(Accounting.THEOREM_4_3)
    theorem.charge(*EVENTS)
    assert theorem.epsilon_for(k) == advanced_composition(k * Fraction(1, 300), 43, delta=DELTA)

    gaussian = ledger(Accounting.GAUSSIAN)
    gaussian.charge(*2 * [GaussianMeasurement(Fraction(3), Fraction(900))])
    noises = 2 * [(Fraction(3 * k * k), Fraction(900))]
    assert gaussian.epsilon_for(k) == discrete_gaussian_epsilon(noises, delta=DELTA)
    assert gaussian.epsilon_for(k) >= gaussian_epsilon(Fraction(6 * k * k, 900), delta=DELTA)


def test_k_records_are_worse_than_k_times_epsilon_where_delta_is_kept() -> None:
    """ε = 1, δ = 10⁻⁶, all of ρ spent: 5.84 for five records, 13.2 for ten. Not 5 and 10."""
    paid = ledger(Accounting.ZCDP, epsilon=1.0)
    rho = rho_of(epsilon=1, delta=DELTA)
    paid.charge(GaussianMeasurement(2 * rho, Fraction(1)))
    assert [round(paid.epsilon_for(k), 3) for k in (1, 2, 5, 10)] == [1.0, 2.112, 5.839, 13.164]


@pytest.mark.parametrize("accounting", [a for a in Accounting if a is not Accounting.TIGHTEST])
def test_one_record_is_what_was_spent(accounting: Accounting) -> None:
    paid = ledger(accounting, epsilon=1.0)
    if accounting is Accounting.GAUSSIAN:
        paid.charge(GaussianMeasurement(Fraction(1), Fraction(500)))
    else:
        paid.charge(Selection(Fraction(1, 400), 1))
    assert paid.epsilon_for(1) == paid.spent().epsilon
    larger = [paid.epsilon_for(k) for k in (1, 2, 3, 4)]
    assert larger == sorted(larger)
    assert all(b > a for a, b in pairwise(larger))
    for wrong in (0, -1):
        with pytest.raises(BudgetError, match="at least one"):
            paid.epsilon_for(wrong)


def test_nothing_spent_is_nothing_for_any_number_but_a_cap_is_a_cap() -> None:
    for accounting in (Accounting.ZCDP, Accounting.PURE, Accounting.THEOREM_4_3, Accounting.GAUSSIAN):
        assert ledger(accounting, epsilon=1.0).epsilon_for(7) == 0
    assert ledger(Accounting.RENYI, epsilon=1.0).epsilon_for(7) > 7


def test_advanced_composition_of_too_much_is_infinite() -> None:
    paid = ledger(Accounting.THEOREM_4_3)
    paid.charge(Selection(Fraction(1), 1))
    assert paid.epsilon_for(701) == math.inf


# ── A Rényi cap ─────────────────────────────────────────────────────────────────────────────────────────────────


@given(
    order=st.integers(2, 80), k=st.integers(1, 90), cost=st.floats(0.001, 3), exponent=st.integers(-12, -2)
)
def test_a_group_bound_is_a_bound_and_close_to_the_best(
    order: int, k: int, cost: float, exponent: int
) -> None:
    delta = 10.0**exponent
    epsilon = renyi_group_epsilon(cost, order=order, records=k, delta=delta)
    if k >= order:
        assert epsilon == math.inf
        return

    def leaves(each: float, depth: float) -> float:
        """ln of δ′ Σ e^{iε′}."""
        return -depth + (k - 1) * each + math.log(sum(math.exp(-i * each) for i in range(k)))

    depths = [-math.log(delta) + i * (700 + math.log(delta)) / 3000 for i in range(3001)]
    every = [(renyi_epsilon(cost, order=order, delta=math.exp(-d)), d) for d in depths]
    fitting = [k * each for each, d in every if leaves(each, d) <= math.log(delta) - 1e-9]
    assert epsilon <= min(fitting, default=math.inf) * (1 + 1e-12)
    if math.isfinite(epsilon) and epsilon > 0:
        lower = [k * each for each, d in every if leaves(each, d) > math.log(delta)]
        assert epsilon >= max(lower, default=0) * (1 - 1e-12)


@pytest.mark.parametrize("k", [2, 3, 5])
def test_a_group_bound_holds_for_noise_at_the_cap(k: int) -> None:
    """Gaussian noise with D_α = C exactly, on a count that moves by k: its δ at the bound is below δ."""
    order = best_order(epsilon=1.0, delta=DELTA)
    cap = renyi_cap(epsilon=1.0, delta=DELTA, order=order) / UNITS
    variance = order / (2 * cap)
    assert exact_delta(variance, k, renyi_group_epsilon(cap, order=order, records=k, delta=DELTA)) <= DELTA


def test_a_group_of_none_is_refused() -> None:
    with pytest.raises(BudgetError, match="at least one"):
        renyi_group_epsilon(0.1, order=9, records=0, delta=DELTA)


def test_one_record_of_a_cap_is_the_conversion() -> None:
    assert renyi_group_epsilon(0.1, order=9, records=1, delta=DELTA) == pytest.approx(
        renyi_epsilon(0.1, order=9, delta=DELTA), rel=1e-9
    )
