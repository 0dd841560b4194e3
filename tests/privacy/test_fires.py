"""Rényi accounting: fires have a price at one order only, and the cap is what is stated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.conversion import UNITS, renyi_cap, units
from dualquery.privacy.events import Event, Fire, GaussianMeasurement
from dualquery.privacy.ledger import Ledger, smallest_gaussian_scale
from dualquery.privacy.thresholds import Slot

CAP = renyi_cap(epsilon=1, delta=1e-6, order=22)
FIRE = Fire(Fraction(1, 53), 1, 22)
MEASURED = GaussianMeasurement(Fraction(1), Fraction(2000))


def ledger(accounting: Accounting = Accounting.RENYI, epsilon: float = 1.0) -> Ledger:
    return Ledger(Budget(epsilon=epsilon, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=accounting))


def cost(*events: Event) -> int:
    return sum(units(event.renyi(22)) for event in events)


def left(of: Ledger) -> int:
    """The units that could still be charged, by bisection over what the ledger would accept."""
    low, high = 0, CAP + 1
    while high - low > 1:
        middle = (low + high) // 2
        noise = GaussianMeasurement(Fraction(1), Fraction(22 * UNITS, 2 * middle))
        low, high = (middle, high) if of.affords(noise) else (low, middle)
    return low


def filled_up_to(remaining: int) -> Ledger:
    """A ledger with exactly this number of units left."""
    full = ledger()
    full.charge(GaussianMeasurement(Fraction(1), Fraction(22 * UNITS, 2 * (CAP - remaining))))
    return full


def test_the_order_is_the_best_one_and_only_renyi_accounting_has_it() -> None:
    assert ledger().order == 22
    assert ledger(epsilon=0.3).order == 63
    with pytest.raises(BudgetError, match="renyi"):
        _ = ledger(Accounting.ZCDP).order


@pytest.mark.parametrize(
    "accounting", [a for a in Accounting if a not in (Accounting.RENYI, Accounting.TIGHTEST)]
)
def test_other_accountings_refuse_a_fire_in_a_sentence(accounting: Accounting) -> None:
    other = ledger(accounting)
    with pytest.raises(BudgetError, match=f"{accounting.value} accounting cannot add up; use renyi"):
        other.charge(FIRE)
    assert other.events == ()


def test_a_fire_of_another_order_is_refused() -> None:
    with pytest.raises(BudgetError, match="order 63"):
        ledger(epsilon=0.3).charge(FIRE)


def test_ten_slots_need_ten_times_the_budget() -> None:
    price = cost(FIRE, MEASURED)
    ten = filled_up_to(10 * price + 1)
    for _ in range(10):
        Slot(ten, FIRE, MEASURED)
    with pytest.raises(BudgetError, match="does not pay"):
        Slot(ten, FIRE, MEASURED)
    assert left(ten) == 1
    assert ten.events[1:] == (FIRE, MEASURED) * 10


def test_a_refused_slot_changes_nothing() -> None:
    poor = filled_up_to(cost(FIRE, MEASURED) - 1)
    before = (left(poor), poor.events)
    with pytest.raises(BudgetError, match=r"one fire of a hazard test.*then discrete Gaussian"):
        Slot(poor, FIRE, MEASURED)
    assert (left(poor), poor.events) == before
    assert poor.affords(FIRE)
    assert not poor.affords(FIRE, MEASURED)


def test_the_cap_is_stated_and_never_the_charge() -> None:
    stated = ledger()
    before = stated.spent()
    assert (before.epsilon, before.delta, before.rho_units) == (1.0, 1e-6, None)
    stated.charge(FIRE, MEASURED)
    assert stated.spent() == before


def test_a_gaussian_plan_fits_the_cap() -> None:
    plan = [
        GaussianMeasurement(Fraction(30), Fraction(5, 2)),
        GaussianMeasurement(Fraction(435), Fraction(7)),
    ]
    whole = ledger()
    factor = smallest_gaussian_scale(whole.budget, plan)
    for noise in plan:
        whole.charge(GaussianMeasurement(noise.sensitivity_squared, noise.variance * factor))
    assert 0 <= left(whole) < CAP / 10**10


def test_threads_do_not_spend_the_same_units() -> None:
    price = cost(FIRE)
    shared = filled_up_to(20 * price)

    def attempt(_: int) -> bool:
        try:
            shared.charge(FIRE)
        except BudgetError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(200))) == 20
    assert left(shared) == 0
