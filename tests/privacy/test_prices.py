"""Prices: what an equal share of a budget buys, spent to the last unit and never beyond."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.privacy.budget import RELATIONS, Accounting, Neighbours, Sensitivity
from dualquery.privacy.conversion import UNITS, rho_of
from dualquery.privacy.events import Selection
from dualquery.privacy.ledger import Ledger, Price, equal_prices
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.privacy.scores import SignedErrors, TableErrors, rate_within, selection_event
from dualquery.queries.families import from_texts
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain
from tests.house import budget

DOMAIN = Domain((Categorical("a", ("0", "1", "2")), Categorical("b", ("0", "1"))))
PRICED = [Accounting.ZCDP, Accounting.PURE]


@settings(max_examples=40, deadline=None)
@given(
    st.floats(0.01, 20),
    st.sampled_from(PRICED),
    st.integers(1, 60),
    st.sampled_from([Fraction(1), Fraction(1, 2), Fraction(3, 10)]),
)
def test_a_ledger_accepts_all_events_of_equal_price_and_not_many_more(
    epsilon: float, accounting: Accounting, events: int, share: Fraction
) -> None:
    pays = budget(epsilon, accounting=accounting)
    price = equal_prices(pays, events, share)
    moved = Sensitivity(3, 5)
    step = price.noise(moved).event(moved)
    for event in (step, Selection(price.selection_range(), 1)):
        ledger = Ledger(pays)
        for _ in range(events):
            ledger.charge(event)
        most = 2 * int(events / share) + 2
        assert not ledger.affords(*[event] * most)


@pytest.mark.parametrize("accounting", PRICED)
def test_the_share_is_that_of_the_budget_by_hand(accounting: Accounting) -> None:
    price = equal_prices(budget(0.8, accounting=accounting), 10, Fraction(1, 4))
    moved = Sensitivity(3, 5)
    if accounting is Accounting.PURE:
        assert price.rho is None
        assert price.pure == pytest.approx(0.02, abs=2 / UNITS)
        assert price.selection_range() == price.pure
        assert price.noise(moved) == Laplace(3 / price.pure)
        assert price.noise(moved).event(moved).pure == price.pure
    else:
        whole = rho_of(epsilon=0.8, delta=1e-6)
        assert price.pure is None
        assert price.rho is not None
        assert price.rho <= whole / 40 <= price.rho + Fraction(2, UNITS)
        assert price.selection_range() ** 2 <= 8 * price.rho
        assert float(price.selection_range()) == pytest.approx((8 * price.rho) ** 0.5, rel=1e-9)
        assert price.noise(moved) == Gaussian(5 / (2 * price.rho))
        assert price.noise(moved).event(moved).rho == price.rho


@pytest.mark.parametrize("neighbours", RELATIONS, ids=lambda relation: relation.value)
def test_the_rate_within_a_price_is_the_finest_that_it_pays_for(neighbours: Neighbours) -> None:
    signed = SignedErrors.unheard(from_texts(DOMAIN, ["a = 1", "b = 1"]), 1000)
    tables = TableErrors(Tables(DOMAIN, ((0,), (0, 1))), 1000, np.array([0.0, 2.0]))
    for score in (signed, tables):
        for price in (Price(Fraction(1, 10), None), Price(None, Fraction(1, 200))):
            rate = rate_within(price, score, neighbours)
            event = selection_event(score, neighbours, rate=rate, draws=1)
            assert event is not None
            assert event.range <= price.selection_range()
            assert float(event.range) == pytest.approx(float(price.selection_range()), rel=1e-6)
            assert score.largest <= rate.largest


def test_what_is_too_small_or_cannot_be_priced_is_refused_in_a_sentence() -> None:
    with pytest.raises(BudgetError, match="too small for this many rounds"):
        equal_prices(budget(1e-6, accounting=Accounting.PURE), 10**7)
    with pytest.raises(BudgetError, match="too small for this many rounds"):
        rate_within(
            Price(Fraction(1, 10**12), None),
            SignedErrors.unheard(from_texts(DOMAIN, ["a = 1"]), 1000),
            Neighbours.REPLACE,
        )
    for accounting in set(Accounting) - set(PRICED):
        with pytest.raises(BudgetError, match=f"not by {accounting.value}"):
            equal_prices(budget(accounting=accounting), 3)
