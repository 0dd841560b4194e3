"""Every price is rounded to the safe side, and a plan's closed form is what the ledger adds up."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from dualquery.errors import BudgetError
from dualquery.mechanisms.dual_query.parameters import (
    Learning,
    dual_query_advanced,
    dual_query_pure,
    dual_query_rho,
)
from dualquery.privacy.budget import RELATIONS, Accounting, Neighbours, Sensitivity, decimal
from dualquery.privacy.conversion import (
    UNITS,
    advanced_composition,
    epsilon_of,
    fire_units,
    renyi_cap,
    renyi_epsilon,
    rho_of,
    rho_units_of,
    units,
)
from dualquery.privacy.events import (
    Concentrated,
    Epoch,
    GaussianMeasurement,
    LaplaceMeasurement,
    Selection,
)
from dualquery.privacy.ledger import Ledger, Price, equal_prices
from dualquery.privacy.scores import SignedErrors, TableErrors, rate_within, selection_event
from dualquery.privacy.selection import LN2_ABOVE, SLACK, Rate
from dualquery.queries.families import from_texts
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain
from tests.house import budget, largest_rounds

UNIT = Fraction(1, UNITS)
DOMAIN = Domain((Categorical("a", ("0", "1")), Categorical("b", ("x", "y", "z"))))
WORKLOAD = from_texts(DOMAIN, ["a = 1", "b = x"])


# ── One event ───────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("event", "rho", "pure"),
    [
        (Selection(Fraction(3, 10), 7), Fraction(7 * 9, 800), Fraction(21, 10)),
        (GaussianMeasurement(Fraction(5), Fraction(20)), Fraction(1, 8), None),
        (LaplaceMeasurement(Fraction(3), Fraction(12)), Fraction(1, 32), Fraction(1, 4)),
        (Epoch(Fraction(1, 6)), Fraction(1, 72), Fraction(1, 6)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_prices_of_events_by_hand(event: Concentrated, rho: Fraction, pure: Fraction | None) -> None:
    assert event.rho == rho
    assert getattr(event, "pure", None) == pure
    assert event.renyi(9) == 9 * rho


def test_a_cost_is_rounded_up_to_units() -> None:
    assert [units(cost) for cost in (Fraction(0), UNIT / 7, UNIT, UNIT * 8 / 7)] == [0, 1, 1, 2]


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 7.5])
def test_the_limits_are_the_last_units_that_keep_the_promise(epsilon: float) -> None:
    limit = rho_units_of(epsilon=epsilon, delta=1e-6)
    assert epsilon_of(Fraction(limit, UNITS), delta=1e-6) <= epsilon
    assert epsilon_of(Fraction(limit + 1, UNITS), delta=1e-6) > epsilon
    assert rho_of(epsilon=epsilon, delta=1e-6) == Fraction(limit, UNITS)
    cap = renyi_cap(epsilon=epsilon, delta=1e-6, order=500)
    assert renyi_epsilon(Fraction(cap, UNITS), order=500, delta=1e-6) <= epsilon
    assert cap == 0 or renyi_epsilon(Fraction(cap + 1, UNITS), order=500, delta=1e-6) > epsilon


def test_a_fire_costs_a_unit_more_than_its_formula_rounded_up() -> None:
    for epsilon, sensitivity, order in (
        (Fraction(1, 53), 1, 22),
        (Fraction(1, 200), 2, 63),
        (Fraction(1, 3), 1, 2),
    ):
        step, x = math.exp(sensitivity * epsilon) - 1, order - 1
        exact = (-sensitivity * float(epsilon) * x - math.log1p(-x * step)) / x
        assert (
            fire_units(epsilon=epsilon, sensitivity=sensitivity, order=order) == math.ceil(exact * UNITS) + 1
        )


def test_a_cost_that_no_double_holds_is_converted_from_the_next_one_above() -> None:
    """1/3 + 2⁻⁶⁰ is nearest to a double below it."""
    cost = Fraction(float(Fraction(1, 3))) + Fraction(1, 1 << 60)
    assert float(cost) < cost
    above = math.nextafter(float(cost), math.inf)
    assert advanced_composition(cost, 1, delta=1e-6) == advanced_composition(above, 1, delta=1e-6)
    assert renyi_epsilon(cost, order=2, delta=0.4) == renyi_epsilon(above, order=2, delta=0.4)


def test_ln_2_is_bounded_from_above() -> None:
    assert Fraction(math.log(2)) < LN2_ABOVE < Fraction(math.log(2)) * (1 + Fraction(1, 10**15))
    series = sum(Fraction(1, k * 2**k) for k in range(1, 80))  # Σ 2⁻ᵏ/k, from below
    assert series + Fraction(1, 2**79) < LN2_ABOVE


# ── Many events of one budget ───────────────────────────────────────────────────────────────────────────────────


def test_a_rate_never_exceeds_what_was_asked_for() -> None:
    rng = np.random.default_rng(0)
    for nats in rng.uniform(1e-6, 3, 200):
        for largest in (1, 10**3, 10**9):
            rate = Rate.below(float(nats), largest)
            assert Fraction(nats) * (1 - Fraction(1, 10**6)) < rate.nats <= Fraction(nats)


@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.ZCDP])
@pytest.mark.parametrize("events", [1, 3, 7, 999_983])
@pytest.mark.parametrize("share", [Fraction(1), Fraction(2, 3)])
def test_equal_prices_together_cost_no_more_than_their_share(
    accounting: Accounting, events: int, share: Fraction
) -> None:
    held = budget(0.7, accounting=accounting)
    price = equal_prices(held, events, share)
    total = decimal(0.7) if accounting is Accounting.PURE else rho_of(epsilon=0.7, delta=1e-6)
    each = price.pure if accounting is Accounting.PURE else price.rho
    assert each is not None
    assert share * total - 2 * events * UNIT <= events * each <= share * total
    assert events * units(each) <= share * total * UNITS


def test_a_price_below_a_unit_is_refused() -> None:
    with pytest.raises(BudgetError, match="too small"):
        equal_prices(budget(1e-9, accounting=Accounting.PURE), 1000)


@pytest.mark.parametrize(
    "price", [Price(Fraction(1, 7), None), Price(None, Fraction(1, 300))], ids=["pure", "rho"]
)
def test_what_a_price_buys_costs_no_more_than_the_price(price: Price) -> None:
    def cost(event: Concentrated) -> Fraction:
        return event.rho if price.pure is None else event.pure  # type: ignore[union-attr]

    limit = price.rho if price.pure is None else price.pure
    assert limit is not None
    for moved in (Sensitivity(6, 6), Sensitivity(3, 9), Sensitivity(12, 40)):
        assert cost(price.noise(moved).event(moved)) == limit
    for relation in RELATIONS:
        for score in (
            SignedErrors.unheard(WORKLOAD, 1000),
            TableErrors(Tables(DOMAIN, ((0,), (1,))), 1000, np.zeros(2)),
        ):
            rate = rate_within(price, score, relation)
            event = selection_event(score, relation, rate=rate, draws=1)
            assert event is not None
            assert event.range == score.range(relation) * rate.nats + SLACK
            assert limit * (1 - Fraction(1, 10**8)) < cost(event) <= limit


# ── The ledger's last unit ──────────────────────────────────────────────────────────────────────────────────────


def costing(accounting: Accounting, cost: int, order: int = 0) -> Concentrated:
    """An event of exactly so many units."""
    if accounting is Accounting.PURE:
        return LaplaceMeasurement(Fraction(1), Fraction(UNITS, cost))
    if accounting is Accounting.RENYI:
        return GaussianMeasurement(Fraction(1), Fraction(order * UNITS, 2 * cost))
    return GaussianMeasurement(Fraction(1), Fraction(UNITS, 2 * cost))


@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.ZCDP, Accounting.RENYI])
def test_a_ledger_pays_to_the_last_unit_and_not_one_more(accounting: Accounting) -> None:
    held = budget(accounting=accounting)
    order = Ledger(held).order if accounting is Accounting.RENYI else 0
    limit = {
        Accounting.PURE: UNITS,
        Accounting.ZCDP: rho_units_of(epsilon=1.0, delta=1e-6),
        Accounting.RENYI: renyi_cap(epsilon=1.0, delta=1e-6, order=order) if order else 0,
    }[accounting]
    exact = Ledger(held)
    exact.charge(costing(accounting, limit - 5, order))
    assert exact.affords(costing(accounting, 5, order))
    assert not exact.affords(costing(accounting, 6, order))
    exact.charge(costing(accounting, 5, order))
    with pytest.raises(BudgetError, match="does not pay"):
        exact.charge(costing(accounting, 1, order))
    assert len(exact.events) == 2


def test_advanced_composition_counts_every_draw() -> None:
    step = Fraction(1, 100)
    epsilon = advanced_composition(step, 21, delta=1e-6)
    for given, pays in ((epsilon, True), (math.nextafter(epsilon, 0), False)):
        ledger = Ledger(budget(given, accounting=Accounting.THEOREM_4_3))
        for _ in range(2):
            ledger.charge(Selection(step, 7))
        assert ledger.affords(Selection(step, 7)) is pays


def test_several_events_are_paid_all_or_none() -> None:
    ledger = Ledger(budget(accounting=Accounting.PURE))
    half, more = costing(Accounting.PURE, UNITS // 2), costing(Accounting.PURE, UNITS // 2 + 1)
    with pytest.raises(BudgetError, match="then discrete Laplace"):
        ledger.charge(half, more)
    assert ledger.events == ()
    ledger.charge(half, half)
    assert ledger.events == (half, half)


# ── DualQuery in closed form ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
def test_the_closed_forms_are_sums_over_the_scores_of_the_rounds(relation: Neighbours) -> None:
    """Round t has a score of t − 1 repeats, a range of which the learning rate over n makes log-weights."""
    learning_rate, samples, rounds, rows = 0.3, 5, 11, 400
    widths = [
        SignedErrors(WORKLOAD, rows, t - 1, rows, np.zeros(2, np.int64)).range(relation)
        for t in range(1, rounds + 1)
    ]
    events = [Selection(width * decimal(learning_rate) / rows, samples) for width in widths]
    setting = Learning(learning_rate, samples, rounds), rows, relation
    assert dual_query_rho(*setting) == sum(event.rho for event in events)
    assert dual_query_pure(*setting) == sum(event.pure for event in events)
    assert dual_query_advanced(*setting, delta=1e-6) == advanced_composition(
        max(event.range for event in events), samples * (rounds - 1), delta=1e-6
    )


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda relation: relation.value)
@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.ZCDP, Accounting.THEOREM_4_3])
def test_the_ledger_pays_for_the_largest_number_of_rounds(
    accounting: Accounting, relation: Neighbours
) -> None:
    """Also where every charge is a small part of a unit, so that the ledger rounds each up to a whole one."""
    for learning_rate, samples, rows, epsilon in (
        (0.5, 3, 200, 1.0),
        (1e-9, 1, 1000, 2e-8),
        (2e-7, 1, 10, 1e-7),
    ):
        held = budget(epsilon, neighbours=relation, accounting=accounting)
        rounds = largest_rounds(held, learning_rate=learning_rate, samples=samples, rows=rows, slack=SLACK)
        if rounds > 20_000:
            continue
        ledger = Ledger(held)
        step = (1 if relation is Neighbours.ADD_REMOVE else 2) * decimal(learning_rate) / rows
        for t in range(2, rounds + 1):
            ledger.charge(Selection((t - 1) * step + SLACK, samples))
        further = 1.01 * rounds + 10
        far = [Selection((t - 1) * step + SLACK, samples) for t in range(rounds + 1, math.ceil(further) + 1)]
        assert not ledger.affords(*far)
