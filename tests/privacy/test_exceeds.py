"""The curator's third verb: paid before it looks, free while it is silent, and a fresh number when it is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import pytest

from dualquery.errors import BudgetError
from dualquery.loops import limited
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.conversion import UNITS, renyi_cap, rho_units_of, units
from dualquery.privacy.curator import Curator, Surprise
from dualquery.privacy.events import Epoch, Fire, GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.privacy.thresholds import FarSide, HazardTest, SparseVector
from dualquery.queries.derived import Balance
from dualquery.queries.families import from_texts
from dualquery.queries.tables import Tables
from dualquery.randomness import Entropy, SystemEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from tests.privacy.watched import Asking, Diary, WatchedCounter, WatchedEntropy, WatchedLedger, in_order

DOMAIN = Domain((Categorical("a", ("0", "1")), Categorical("b", ("x", "y", "z"))))
WORKLOAD = from_texts(DOMAIN, ["a = 1"])
QUESTION = WORKLOAD.groups[0]  # moves by one
BALANCE = Balance(WORKLOAD, 0)  # moves by two where a record is replaced, by one where it is added
ROWS = 1000
COUNT = 600  # records with a = 1
RECORDS = Records.from_rows(DOMAIN, np.array([[int(i < COUNT), i % 3] for i in range(ROWS)]))
ORDER = Ledger(
    Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.RENYI)
).order
CAP = renyi_cap(epsilon=1, delta=1e-6, order=ORDER)
HAZARD = HazardTest(Fraction(1, 40), 300, ORDER)
NOISE = Gaussian(Fraction(2000))
MEASURED = GaussianMeasurement(Fraction(1), Fraction(2000))
SPARSE = SparseVector(Fraction(1, 4), 200)
FAR, NEAR = COUNT - 599, COUNT  # hypotheses: 599 records away, and none


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """A thousand records are counted faster by one thread than by two."""
    with limited(1):
        yield


class House:
    """A curator whose every step is noted."""

    def __init__(
        self,
        accounting: Accounting,
        *,
        epsilon: float = 1.0,
        neighbours: Neighbours = Neighbours.REPLACE,
        entropy: Callable[[Diary], Entropy] = WatchedEntropy,
    ) -> None:
        self.diary: Diary = []
        delta = 0.0 if accounting is Accounting.PURE else 1e-6
        budget = Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)
        self.ledger = WatchedLedger(budget, self.diary)
        counter = WatchedCounter(RECORDS, self.diary)
        self.curator = Curator(counter, self.ledger, entropy(self.diary))
        self.asks = Asking(self.curator)


def left(ledger: Ledger, most: int = CAP) -> int:
    """The units that a Rényi ledger would still pay, by bisection over what it affords."""
    low, high = 0, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        noise = GaussianMeasurement(Fraction(1), Fraction(ORDER * UNITS, 2 * middle))
        low, high = (middle, high) if ledger.affords(noise) else (low, middle)
    return low


def renyi_cost() -> int:
    return units(HAZARD.event.renyi(ORDER)) + units(MEASURED.renyi(ORDER))


def filled(house: House, remaining: int) -> House:
    """With so many units left, and nothing in the diary."""
    spent = CAP - remaining
    house.ledger.charge(GaussianMeasurement(Fraction(1), Fraction(ORDER * UNITS, 2 * spent)))
    assert left(house.ledger) == remaining
    house.diary.clear()
    return house


# ── The hazard test ─────────────────────────────────────────────────────────────────────────────────────────────


def test_the_question_is_about_the_truth() -> None:
    assert QUESTION.counts(RECORDS).tolist() == [COUNT]
    assert BALANCE.counts(RECORDS).tolist() == [2 * COUNT - ROWS]


@pytest.mark.parametrize(
    ("hypothesis", "side"),
    [(FAR, FarSide.TOO_LOW), (COUNT + 599, FarSide.TOO_HIGH)],
    ids=["too low", "too high"],
)
def test_a_fire_leaves_itself_and_its_measurement(hypothesis: int, side: FarSide) -> None:
    house = House(Accounting.RENYI)
    surprise = house.asks(QUESTION, hypothesis, HAZARD, NOISE)
    assert isinstance(surprise, Surprise)
    assert surprise.found.side is side
    assert abs(surprise.noisy[0] - COUNT) < 8 * 45
    assert house.ledger.events == (Fire(HAZARD.epsilon, 1, ORDER), MEASURED)
    assert left(house.ledger) == CAP - renyi_cost()


@pytest.mark.parametrize("hypothesis", [FAR, NEAR], ids=["fire", "silence"])
def test_a_hazard_test_is_paid_for_before_anything_is_read(hypothesis: int) -> None:
    house = House(Accounting.RENYI)
    house.asks(QUESTION, hypothesis, HAZARD, NOISE)
    assert in_order(house.diary) == ["pay", "read", "draw"]


@pytest.mark.parametrize("hypothesis", [FAR, NEAR], ids=["fire", "silence"])
def test_a_slot_that_cannot_be_paid_reads_nothing(hypothesis: int) -> None:
    """One unit too few, even where nothing would have fired; with that unit it is asked."""
    poor = filled(House(Accounting.RENYI), renyi_cost() - 1)
    before = poor.ledger.events
    with pytest.raises(BudgetError, match="one fire of a hazard test"):
        poor.asks(QUESTION, hypothesis, HAZARD, NOISE)
    assert poor.diary == []
    assert poor.ledger.events == before
    assert left(poor.ledger) == renyi_cost() - 1
    enough = filled(House(Accounting.RENYI), renyi_cost())
    enough.asks(QUESTION, hypothesis, HAZARD, NOISE)
    assert left(enough.ledger) == 0


@pytest.mark.parametrize("accounting", [Accounting.GAUSSIAN, Accounting.THEOREM_4_3])
def test_accountings_of_fixed_sizes_pay_for_no_slot(accounting: Accounting) -> None:
    house = House(accounting, epsilon=3.0)
    with pytest.raises(BudgetError, match="renyi, zcdp or pure"):
        house.asks(QUESTION, FAR, SPARSE, NOISE)
    assert house.diary == []


def test_the_measurement_after_the_last_fire_is_paid_for() -> None:
    """Fires go on until the money ends, and the ledger never says that it holds less than nothing."""
    house = House(Accounting.RENYI)
    fires = CAP // renyi_cost()
    for _ in range(fires):
        assert house.asks(QUESTION, FAR, HAZARD, NOISE) is not None
    with pytest.raises(BudgetError, match="does not pay"):
        house.asks(QUESTION, FAR, HAZARD, NOISE)
    assert house.ledger.events == (HAZARD.event, MEASURED) * fires


def test_zcdp_accounting_does_not_know_a_fire() -> None:
    house = House(Accounting.ZCDP, epsilon=3.0)
    with pytest.raises(BudgetError, match="use renyi"):
        house.asks(QUESTION, FAR, HAZARD, NOISE)
    assert house.diary == []


def test_far_questions_fire_and_near_ones_do_not() -> None:
    """With the system's entropy. P(silence, far) < e⁻⁶⁴ and P(fire, near) < 2⁻⁹ by the law's own table."""
    house = House(Accounting.RENYI, epsilon=1.0, entropy=lambda diary: SystemEntropy())
    low, high = HAZARD.probabilities(0)
    assert 0 < low + high < Fraction(1, 500)
    assert sum(HAZARD.probabilities(COUNT - FAR)) > 1 - Fraction(1, 10**27)
    near = [house.asks(QUESTION, NEAR, HAZARD, NOISE) for _ in range(400)]
    assert sum(surprise is not None for surprise in near) < 25
    house = House(Accounting.RENYI, entropy=lambda diary: SystemEntropy())
    for _ in range(CAP // renyi_cost()):
        surprise = house.asks(QUESTION, FAR, HAZARD, NOISE)
        assert surprise is not None
        assert surprise.found.side is FarSide.TOO_LOW


@pytest.mark.parametrize("entropy", [WatchedEntropy, lambda diary: SystemEntropy()], ids=["seed", "system"])
def test_the_measured_number_is_fresh(entropy: Callable[[Diary], Entropy]) -> None:
    house = House(Accounting.RENYI, epsilon=20.0, entropy=entropy)
    law = HazardTest(Fraction(1, 40), 300, house.ledger.order)
    noise = Gaussian(Fraction(10**6))
    seen = [house.asks(QUESTION, FAR, law, noise) for _ in range(20)]
    numbers = {int(surprise.noisy[0]) for surprise in seen if surprise is not None}
    assert len(numbers) > 15
    assert max(abs(number - COUNT) for number in numbers) > 100  # and noisy: all closer has probability 10⁻²²


# ── What may be asked ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("law", [HAZARD, SPARSE], ids=["hazard", "epochs"])
def test_a_question_that_moves_too_far_is_refused(law) -> None:
    accounting, epsilon = (Accounting.RENYI, 1.0) if law is HAZARD else (Accounting.ZCDP, 3.0)
    house = House(accounting, epsilon=epsilon)
    with pytest.raises(BudgetError, match="moves farther between neighbours"):
        house.asks(BALANCE, 0, law, NOISE)
    assert house.diary == ["pay"]  # for the slot; nothing is read
    added = House(accounting, epsilon=epsilon, neighbours=Neighbours.ADD_REMOVE)
    added.asks(BALANCE, 2 * COUNT - ROWS, law, NOISE)
    assert in_order(added.diary)[0] == "pay"


def test_a_law_for_two_records_hears_the_balance_and_charges_for_two() -> None:
    house = House(Accounting.RENYI)
    law = HazardTest(Fraction(1, 60), 300, ORDER, sensitivity=2)
    surprise = house.asks(BALANCE, -2000, law, NOISE)
    assert surprise is not None
    assert house.ledger.events == (
        Fire(Fraction(1, 60), 2, ORDER),
        GaussianMeasurement(Fraction(4), Fraction(2000)),
    )


def test_a_table_has_a_hypothesis_for_each_cell() -> None:
    house = House(Accounting.RENYI, neighbours=Neighbours.ADD_REMOVE)
    with pytest.raises(ValueError, match="one hypothesis for each number"):
        house.asks(Tables(DOMAIN, ((1,),)), 0, HAZARD, NOISE)
    assert "draw" not in house.diary


# ── Epochs of the sparse vector ─────────────────────────────────────────────────────────────────────────────────


def test_an_epoch_and_its_measurement_are_charged_once_for_many_silent_tests() -> None:
    house, law = House(Accounting.ZCDP, epsilon=3.0), SPARSE
    for _ in range(50):
        assert house.asks(QUESTION, NEAR, law, NOISE) is None
    assert sorted(house.ledger.events, key=str) == sorted((SPARSE.event, MEASURED), key=str)
    assert house.diary.count("pay") == 1
    assert house.diary[0] == "pay"


def test_a_new_epoch_opens_after_an_above() -> None:
    house, law = House(Accounting.ZCDP, epsilon=5.0), SPARSE
    for epochs in range(1, 5):
        assert house.asks(QUESTION, NEAR, law, NOISE) is None
        surprise = house.asks(QUESTION, FAR, law, NOISE)
        assert surprise is not None
        assert surprise.found.side is FarSide.FAR
        assert house.ledger.events.count(SPARSE.event) == epochs
        assert house.ledger.events.count(MEASURED) == epochs
        assert len(house.ledger.events) == 2 * epochs


def test_an_epoch_is_paid_for_before_anything_is_read() -> None:
    house, law = House(Accounting.ZCDP, epsilon=3.0), SPARSE
    for hypothesis in (NEAR, FAR, FAR):
        house.asks(QUESTION, hypothesis, law, NOISE)
    # the second test ends the epoch, and the third pays for another
    assert in_order(house.diary) == ["pay", "read", "draw", "read", "draw", "pay", "read", "draw"]


@pytest.mark.parametrize("hypothesis", [FAR, NEAR], ids=["above", "below"])
def test_an_epoch_that_cannot_be_paid_with_its_measurement_charges_and_reads_nothing(hypothesis: int) -> None:
    limit = rho_units_of(epsilon=3.0, delta=1e-6)
    price = units(SPARSE.event.rho) + units(MEASURED.rho)
    for missing in (1, 0):
        house, law = House(Accounting.ZCDP, epsilon=3.0), SPARSE
        spent = limit - price + missing
        house.ledger.charge(GaussianMeasurement(Fraction(1), Fraction(UNITS, 2 * spent)))
        house.diary.clear()
        if missing:
            with pytest.raises(BudgetError, match="one epoch of the sparse vector"):
                house.asks(QUESTION, hypothesis, law, NOISE)
            assert house.diary == []
            assert len(house.ledger.events) == 1
            assert house.ledger.affords(SPARSE.event)  # nothing was taken for a measurement that never was
        else:
            house.asks(QUESTION, hypothesis, law, NOISE)
            assert house.ledger.spent().rho_units == limit


def test_far_questions_end_epochs_and_near_ones_do_not() -> None:
    """With the system's entropy: threshold noise of scale 8 and test noise of scale 16, at 200 and at 400 records."""
    house, law = House(Accounting.ZCDP, epsilon=20.0, entropy=lambda diary: SystemEntropy()), SPARSE
    near = [house.asks(QUESTION, NEAR, law, NOISE) for _ in range(300)]
    assert sum(surprise is not None for surprise in near) < 10
    far = [house.asks(QUESTION, FAR, law, Gaussian(Fraction(10**6))) for _ in range(20)]
    assert all(surprise is not None for surprise in far)
    assert len({int(surprise.noisy[0]) for surprise in far if surprise is not None}) > 15


def test_epochs_under_pure_accounting() -> None:
    house, law = House(Accounting.PURE, epsilon=3.0), SPARSE
    assert house.asks(QUESTION, FAR, law, Laplace(Fraction(40))) is not None
    assert set(house.ledger.events) == {Epoch(Fraction(1, 4)), LaplaceMeasurement(Fraction(1), Fraction(40))}


def test_an_epoch_that_was_paid_by_pure_epsilon_is_followed_by_laplace_noise() -> None:
    house = House(Accounting.PURE, epsilon=3.0)
    assert house.asks(QUESTION, NEAR, SPARSE, Laplace(Fraction(40))) is None
    house.diary.clear()
    with pytest.raises(BudgetError, match="cheaper measurement"):
        house.asks(QUESTION, FAR, SPARSE, Gaussian(Fraction(10**6)))
    assert house.diary == []


def test_the_scales_of_an_epoch() -> None:
    """2Δ/ε of its threshold, 4Δ/ε of each test: half as much is half the privacy."""
    law = SparseVector(Fraction(1, 4), 200, 3)
    assert (law.threshold_scale, law.query_scale) == (24, 48)
