"""Measurements that are paid for first and chosen later: what was paid for, once, by whoever paid."""

from fractions import Fraction

import numpy as np
import pytest

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, Neighbours, PersonAddRemove, Sensitivity
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.queries.derived import Interactions, number_of_records
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from tests.house import curator_of

DOMAIN = Domain(
    (Categorical("a", ("0", "1")), Categorical("b", ("0", "1")), Categorical("c", ("x", "y", "z")))
)
NOISE = Gaussian(Fraction(40))


def curator(neighbours=Neighbours.ADD_REMOVE, epsilon=1.0, accounting=Accounting.GAUSSIAN):
    rows = np.random.default_rng(0).integers(0, 2, (50, 3))
    budget = Budget(epsilon=epsilon, delta=1e-3, neighbours=neighbours, accounting=accounting)
    return curator_of(Records.from_rows(DOMAIN, rows), budget, seed=1)


def tables(*sets):
    return Tables(DOMAIN, sets)


def paid(squared, variance=40):
    return Gaussian(Fraction(variance)).event(Sensitivity(squared, squared))


def test_allowances_are_paid_for_all_at_once_or_not_at_all():
    asker = curator()
    first, second = asker.allow(paid(1), paid(2, 60))
    assert [first.event, second.event] == list(asker.ledger.events) == [paid(1), paid(2, 60)]
    with pytest.raises(BudgetError, match="does not pay"):
        asker.allow(paid(1), paid(100))
    assert len(asker.ledger.events) == 2


def test_what_is_measured_within_an_allowance_costs_nothing_more():
    asker = curator()
    first, second = asker.allow(paid(1), paid(2))
    spent = asker.ledger.spent()
    total = asker.measure(number_of_records(DOMAIN), noise=NOISE, within=first)
    chosen = ((0,), (2,)) if total[0] > 0 else ((1,), (2,))  # content may depend on what came before
    assert len(asker.measure(tables(*chosen), noise=NOISE, within=second)) == 5
    assert asker.ledger.spent() == spent
    assert len(asker.ledger.events) == 2


def test_less_than_was_paid_for_may_be_measured():
    asker = curator()
    (whole,) = asker.allow(paid(3))
    assert len(asker.measure(tables((0,)), noise=NOISE, within=whole)) == 2


def test_a_larger_sensitivity_is_refused():
    asker = curator()
    (small,) = asker.allow(paid(2))
    with pytest.raises(BudgetError, match="measure less"):
        asker.measure(tables((0,), (1,), (2,)), noise=NOISE, within=small)
    assert len(asker.measure(tables((0,), (1,)), noise=NOISE, within=small)) == 4  # a refusal uses nothing up


@pytest.mark.parametrize("times", [2, 3, 100])
def test_another_variance_is_refused_even_at_the_same_ratio(times):
    asker = curator()
    scaled = Interactions(DOMAIN, ((0,),), (times,))
    (large,) = asker.allow(
        Gaussian(40 * Fraction(times) ** 2).event(Neighbours.ADD_REMOVE.sensitivity(scaled.bound()))
    )
    single = Interactions(DOMAIN, ((0,),), (1,))
    assert NOISE.event(Neighbours.ADD_REMOVE.sensitivity(single.bound())).rho == large.event.rho
    with pytest.raises(BudgetError, match="that law"):
        asker.measure(single, noise=NOISE, within=large)
    for more_noise in (Gaussian(NOISE.variance + 1), Laplace(Fraction(1000))):
        with pytest.raises(BudgetError, match="that law"):
            asker.measure(single, noise=more_noise, within=large)


def test_an_allowance_is_used_once():
    asker = curator()
    first, second = asker.allow(paid(1), paid(1))
    asker.measure(tables((0,)), noise=NOISE, within=first)
    with pytest.raises(BudgetError, match="has been used"):
        asker.measure(tables((0,)), noise=NOISE, within=first)
    asker.measure(tables((0,)), noise=NOISE, within=second)


def test_an_allowance_serves_whoever_paid_for_it():
    payer, other = curator(), curator()
    (own,) = payer.allow(paid(1))
    with pytest.raises(BudgetError, match="no other"):
        other.measure(tables((0,)), noise=NOISE, within=own)
    payer.measure(tables((0,)), noise=NOISE, within=own)


def test_of_persons_an_allowance_pays_for_all_records_of_one():
    asker = curator(PersonAddRemove(3), epsilon=10.0)
    nine, eight = asker.allow(paid(9), paid(8))
    asker.measure(number_of_records(DOMAIN), noise=NOISE, within=nine)
    with pytest.raises(BudgetError, match="measure less"):
        asker.measure(number_of_records(DOMAIN), noise=NOISE, within=eight)
