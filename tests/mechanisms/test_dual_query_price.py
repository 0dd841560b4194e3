"""DualQuery's price in closed form: the formulas, sums over its events, and rounds that a ledger accepts."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.mechanisms.dual_query.parameters import (
    Learning,
    dual_query_advanced,
    dual_query_pure,
    dual_query_rho,
)
from dualquery.privacy.budget import RELATIONS, Accounting, Neighbours
from dualquery.privacy.conversion import epsilon_of
from dualquery.privacy.events import Event, Selection
from dualquery.privacy.ledger import Ledger
from tests import house
from tests.house import largest_rounds

ADD_REMOVE, REPLACE = Neighbours.ADD_REMOVE, Neighbours.REPLACE
DRAWING = [Accounting.ZCDP, Accounting.THEOREM_4_3, Accounting.PURE]


budget = partial(house.budget, delta=1e-3)


def accepted(ledger: Ledger, event: Event) -> bool:
    try:
        ledger.charge(event)
    except BudgetError:
        return False
    return True


def rounds_of(
    *, learning_rate: Fraction, samples: int, rounds: int, rows: int, width: int
) -> list[Selection]:
    return [Selection(width * learning_rate * (t - 1) / rows, samples) for t in range(1, rounds + 1)]


KDD99 = (Learning(1.2, 1750, 170), 494_021)
ADULT = {"learning_rate": 2.0, "samples": 1000, "rows": 30_162}


def test_the_papers_own_settings() -> None:
    assert dual_query_advanced(*KDD99, REPLACE, delta=1e-3) == pytest.approx(1.859, abs=5e-4)
    assert epsilon_of(dual_query_rho(*KDD99, REPLACE), delta=1e-3) == pytest.approx(0.320, abs=5e-4)
    assert largest_rounds(budget(accounting=Accounting.THEOREM_4_3), **ADULT) == 16
    assert largest_rounds(budget(), **ADULT) == 43


def test_closed_forms_are_the_formulas_of_the_design() -> None:
    eta, s, t, n = Fraction(12, 10), 1750, 170, 494_021
    assert dual_query_pure(*KDD99, REPLACE) == eta * t * (t - 1) * s / n
    assert dual_query_rho(*KDD99, REPLACE) == s * eta**2 * t * (t - 1) * (2 * t - 1) / (12 * n**2)
    assert dual_query_rho(*KDD99, ADD_REMOVE) == dual_query_rho(*KDD99, REPLACE) / 4
    each, k = float(2 * eta * (t - 1) / n), s * (t - 1)
    theorem = each * (math.sqrt(2 * k * math.log(1e3)) + k * math.expm1(each))
    assert dual_query_advanced(*KDD99, REPLACE, delta=1e-3) == pytest.approx(theorem, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.01, 5),
    st.integers(1, 2000),
    st.integers(1, 40),
    st.integers(1000, 10**6),
    st.sampled_from(RELATIONS),
)
def test_closed_forms_are_sums_over_events(
    learning_rate: float, samples: int, rounds: int, rows: int, neighbours: Neighbours
) -> None:
    setting = (Learning(learning_rate, samples, rounds), rows, neighbours)
    width = 2 if neighbours is REPLACE else 1
    eta = Fraction(repr(learning_rate))
    events = rounds_of(learning_rate=eta, samples=samples, rounds=rounds, rows=rows, width=width)
    assert dual_query_rho(*setting) == sum(event.rho for event in events)
    assert dual_query_pure(*setting) == sum(event.pure for event in events)
    closed = dual_query_advanced(*setting, delta=1e-3)
    if 0 < closed < 1e4:
        ledger = Ledger(budget(2e4, accounting=Accounting.THEOREM_4_3))
        for event in events:
            ledger.charge(event)
        assert ledger.spent().epsilon == closed


@settings(max_examples=30, deadline=None)
@given(
    st.floats(0.01, 10),
    st.sampled_from(DRAWING),
    st.floats(0.1, 4),
    st.integers(1, 300),
    st.integers(500, 10**5),
    st.sampled_from([Fraction(0), Fraction(1, 1 << 36), Fraction(1, 1000)]),
)
def test_a_ledger_accepts_the_largest_number_of_rounds(
    epsilon: float, accounting: Accounting, learning_rate: float, samples: int, rows: int, slack: Fraction
) -> None:
    the_budget = budget(epsilon, delta=1e-6, accounting=accounting)
    most = largest_rounds(the_budget, learning_rate=learning_rate, samples=samples, rows=rows, slack=slack)
    assert most >= 1
    eta = Fraction(repr(learning_rate))
    events = rounds_of(learning_rate=eta, samples=samples, rounds=most + 2, rows=rows, width=2)
    events[1:] = [Selection(event.range + slack, samples) for event in events[1:]]
    ledger = Ledger(the_budget)
    for event in events[:most]:
        ledger.charge(event)
    # one round more fits at most where the roundings of the ledger decide
    assert not all(accepted(ledger, event) for event in events[most:])


def test_more_budget_never_buys_fewer_rounds() -> None:
    for accounting in DRAWING:
        rounds = [largest_rounds(budget(e, accounting=accounting), **ADULT) for e in (0.01, 0.1, 1, 10, 100)]
        assert all(less <= more for less, more in pairwise(rounds))
        assert rounds[0] < rounds[-1]


def test_dual_query_needs_an_accounting_of_draws() -> None:
    with pytest.raises(BudgetError, match="Gaussian"):
        largest_rounds(budget(accounting=Accounting.GAUSSIAN), **ADULT)
    with pytest.raises(BudgetError, match="positive"):
        largest_rounds(budget(), learning_rate=0.0, samples=1, rows=10)
