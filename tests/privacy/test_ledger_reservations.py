"""Rényi accounting: reservations are paid before the test and returned by silence, and the cap is what is stated."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.conversion import UNITS, renyi_cap, units
from dualquery.privacy.events import Epoch, Event, Fire, GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.ledger import Ledger, Reservation, smallest_gaussian_scale
from dualquery.privacy.neighbours import Neighbours

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
    for pay in (other.charge, other.reserve):
        with pytest.raises(BudgetError, match=f"{accounting.value} accounting cannot add up; use renyi"):
            pay(FIRE)
    assert other.events == ()


def test_a_fire_of_another_order_is_refused() -> None:
    with pytest.raises(BudgetError, match="order 63"):
        ledger(epsilon=0.3).reserve(FIRE)


def test_silence_returns_everything_and_a_fire_keeps_it() -> None:
    kept = ledger()
    assert left(kept) == CAP
    reservation = kept.reserve(FIRE, MEASURED)
    assert (reservation.fire, reservation.follow_up) == (FIRE, (MEASURED,))
    assert left(kept) == CAP - cost(FIRE, MEASURED)
    assert kept.events == ()
    reservation.settle(fired=False)
    assert (left(kept), kept.events) == (CAP, ())
    kept.reserve(FIRE, MEASURED).settle(fired=True)
    assert (left(kept), kept.events) == (CAP - cost(FIRE, MEASURED), (FIRE, MEASURED))


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (False, False)])
def test_a_reservation_is_settled_once(first: bool, second: bool) -> None:
    once = ledger()
    reservation = once.reserve(FIRE, MEASURED)
    reservation.settle(fired=first)
    after = (left(once), once.events)
    with pytest.raises(BudgetError, match="settled"):
        reservation.settle(fired=second)
    assert (left(once), once.events) == after


def test_only_a_fire_can_be_returned() -> None:
    one = ledger()
    for event in (
        MEASURED,
        Epoch(Fraction(1, 9)),
        Selection(Fraction(1, 9), 1),
        LaplaceMeasurement(Fraction(1), Fraction(9)),
    ):
        with pytest.raises(BudgetError, match="Only the fire"):
            one.reserve(event)  # type: ignore[arg-type]
    assert left(one) == CAP


def test_ten_in_flight_need_ten_times_the_budget() -> None:
    price = cost(FIRE, MEASURED)
    one = filled_up_to(price)
    one.reserve(FIRE, MEASURED)
    for _ in range(9):
        with pytest.raises(BudgetError, match="does not pay"):
            one.reserve(FIRE, MEASURED)
    ten = filled_up_to(10 * price)
    flying = [ten.reserve(FIRE, MEASURED) for _ in range(10)]
    assert not ten.affords(FIRE)
    for reservation in flying:
        reservation.settle(fired=True)
    assert left(ten) == 0
    assert ten.events[1:] == (FIRE, MEASURED) * 10


def test_a_refused_reservation_changes_nothing() -> None:
    poor = filled_up_to(cost(FIRE, MEASURED) - 1)
    before = (left(poor), poor.events)
    with pytest.raises(BudgetError, match=r"one fire of a hazard test.*then discrete Gaussian"):
        poor.reserve(FIRE, MEASURED)
    assert (left(poor), poor.events) == before
    assert poor.affords(FIRE)
    assert not poor.affords(FIRE, MEASURED)


def test_what_is_never_settled_stays_paid() -> None:
    crashed = ledger()
    crashed.reserve(FIRE, MEASURED)
    assert left(crashed) == CAP - cost(FIRE, MEASURED)


def test_the_cap_is_stated_and_never_the_charge() -> None:
    stated = ledger()
    before = stated.spent()
    assert (before.epsilon, before.delta, before.rho_units) == (1.0, 1e-6, None)
    stated.reserve(FIRE, MEASURED).settle(fired=True)
    stated.charge(MEASURED)
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


steps = st.sampled_from(["reserve", "fire", "silence", "charge", "leave"])


@settings(max_examples=40, deadline=None)
@given(st.lists(steps, max_size=60), st.integers(0, 2))
def test_whatever_happens_the_cap_is_never_exceeded(plan: list[str], size: int) -> None:
    """A model beside the ledger: units in flight and units kept, against the cap."""
    fire = (FIRE, Fire(Fraction(1, 32), 1, 22), Fire(Fraction(1, 25), 1, 22))[size]
    real, kept, flying, abandoned = ledger(), 0, [], 0
    happened: list[Event] = []
    for step in plan:
        total = kept + abandoned + len(flying) * cost(fire, MEASURED)
        assert total <= CAP
        if step == "reserve":
            fits = total + cost(fire, MEASURED) <= CAP
            assert real.affords(fire, MEASURED) == fits
            if fits:
                flying.append(real.reserve(fire, MEASURED))
        elif step == "charge" and real.affords(MEASURED):
            real.charge(MEASURED)
            kept += cost(MEASURED)
            happened.append(MEASURED)
        elif step in {"fire", "silence", "leave"} and flying:
            reservation = flying.pop(0)
            if step == "leave":
                abandoned += cost(fire, MEASURED)
                continue
            reservation.settle(fired=step == "fire")
            if step == "fire":
                kept += cost(fire, MEASURED)
                happened += [fire, MEASURED]
    assert left(real) == CAP - kept - abandoned - len(flying) * cost(fire, MEASURED)
    assert real.events == tuple(happened)


def test_threads_do_not_reserve_the_same_units() -> None:
    price = cost(FIRE)
    shared = filled_up_to(20 * price)

    def attempt(_: int) -> Reservation | None:
        try:
            return shared.reserve(FIRE)
        except BudgetError:
            return None

    with ThreadPoolExecutor(8) as pool:
        granted = [r for r in pool.map(attempt, range(200)) if r is not None]
    assert len(granted) == 20
    assert left(shared) == 0
