"""Budgets: what is accepted, what is refused and in which words."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.privacy.budget import (
    RELATIONS,
    Accounting,
    Budget,
    Neighbours,
    budget_warnings,
    decimal,
    default_delta,
)
from tests.house import budget


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, -math.inf, math.nan, 1e10])
def test_epsilon_must_be_positive_and_finite(epsilon: float) -> None:
    with pytest.raises(BudgetError, match="epsilon"):
        budget(epsilon)


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 1.5, math.inf, math.nan])
def test_delta_must_lie_between_zero_and_one(delta: float) -> None:
    with pytest.raises(BudgetError, match="delta"):
        budget(delta=delta)


@pytest.mark.parametrize("accounting", Accounting)
def test_delta_zero_needs_pure_accounting(accounting: Accounting) -> None:
    if accounting is Accounting.PURE:
        assert budget(delta=0.0, accounting=accounting).delta == 0
    else:
        with pytest.raises(BudgetError, match="pure accounting"):
            budget(delta=0.0, accounting=accounting)


def test_defaults_are_those_of_the_command_line() -> None:
    """A record is replaced, by the tightest theorem; δ is never assumed, but where pure accounting needs none."""
    assert Budget(1, 1e-6) == Budget(
        epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.TIGHTEST
    )
    assert Budget(1, 1e-6, "add-remove", "zcdp") == Budget(
        1, 1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP
    )
    assert Budget(1, accounting="pure").delta == 0
    with pytest.raises(BudgetError, match="say delta too"):
        Budget(1.0)


def test_errors_are_one_sentence() -> None:
    with pytest.raises(BudgetError) as raised:
        budget(-1)
    assert str(raised.value).count(". ") == 0
    assert str(raised.value).endswith(".")


def test_words_name_the_relation_and_the_theorem() -> None:
    for neighbours in RELATIONS:
        for accounting in Accounting:
            words = Budget(epsilon=0.5, delta=1e-9, neighbours=neighbours, accounting=accounting).words()
            assert neighbours.words() in words
            assert accounting.words() in words
            assert "0.5" in words
            assert "1e-09" in words


@given(st.integers(0, 10**12))
def test_default_delta_raises_no_warning(rows: int) -> None:
    """Of two records 1/n² would be a quarter."""
    assert default_delta(rows) == pytest.approx(min(max(rows, 1) ** -2, 1e-6))
    assert budget_warnings(budget(delta=default_delta(rows)), rows) == []


def test_warning_starts_above_one_over_n_and_names_no_count() -> None:
    assert budget_warnings(budget(), 1_000_000) == []
    (warning,) = budget_warnings(budget(delta=1.01e-6), 1_000_000)
    assert "one over the number of records" in warning
    assert "1000000" not in warning
    assert "1,000,000" not in warning


def test_large_promises_are_warned_about() -> None:
    assert budget_warnings(budget(5.0, delta=1e-5), 100) == []
    (weak,) = budget_warnings(budget(delta=1.01e-5), 100)
    assert "use at most 1e-05" in weak
    (large,) = budget_warnings(budget(5.01), 100)
    assert "150 times as likely" in large
    assert len(budget_warnings(budget(1e9, delta=0.1), 100)) == 2


@given(st.floats(1e-300, 1e300))
def test_decimal_is_what_is_printed(value: float) -> None:
    assert float(decimal(value)) == value
    assert decimal(0.3) == Fraction(3, 10)
