"""A whole table for one fire: its law, the inequality for every pair of tables, and the curator's verb."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dualquery.errors import BudgetError
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours, PersonAddRemove, PersonReplace
from dualquery.privacy.conversion import exp_minus
from dualquery.privacy.events import EarlierRelease, GaussianMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.thresholds import FarSide, Found, HazardTest, Slot, SparseVector, Table, tabulate
from dualquery.queries.families import from_texts
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.table.records import Records
from tests.house import budget, curator_of
from tests.privacy.definitions import next_to
from tests.privacy.test_exceeds import COUNT, DOMAIN, MEASURED, ORDER, RECORDS, ROWS, House, left, renyi_cost
from tests.privacy.watched import in_order

ONE = 1 << 128
SMALL = HazardTest(Fraction(1, 3), 4, 3)
QUIET = HazardTest(Fraction(1, 3), 27, 3)
CELLS = Tables(DOMAIN, ((0, 1),))
NEAR = CELLS.counts(RECORDS)  # hypotheses that are the truth
HAZARD = HazardTest(Fraction(1, 40), 300, ORDER)
NOISE = Gaussian(Fraction(4000))  # Δ² = 2: the same ρ as MEASURED


# ── The law ─────────────────────────────────────────────────────────────────────────────────────────────────────


def law(table: Table, x: tuple[int, ...]) -> dict[tuple[int, str] | None, Fraction]:
    """The probability of every outcome of `draw`, in rationals: silence, or a cell and a side."""
    silent, found = Fraction(1), {}
    for cell, each in enumerate(x):
        silence, low, high = (Fraction(n, ONE) for n in table.outcomes(each))
        found[cell, "low"], found[cell, "high"] = silent * low, silent * high
        silent *= silence
    return {None: silent, **found}


def moment(
    table: Table, x: tuple[int, ...], y: tuple[int, ...], test: HazardTest, cost: Fraction
) -> Fraction:
    """The left side of (∗), in rationals but for e^−(α−1)D, which is rounded up."""
    p, q = law(table, x), law(table, y)
    terms = {outcome: p[outcome] ** test.order / q[outcome] ** (test.order - 1) for outcome in p}
    discount = Fraction(exp_minus((test.order - 1) * cost, 400)[1], 1 << 400)
    return terms.pop(None) + discount * sum(terms.values(), Fraction(0))


def test_the_inequality_holds_for_every_pair_of_tables() -> None:
    """Every x of three cells, and every neighbour by replacement: one cell down, another up, or none."""
    worst = dict.fromkeys((SMALL, QUIET), Fraction(0))
    for test in worst:
        table, theta = tabulate(test.epsilon, test.threshold), test.threshold
        for x in product((-theta - 5, -theta, 0, theta // 2, theta, theta + 7), repeat=3):
            for down, up in ((0, 1), (2, 0), (1, 1)):
                y = list(x)
                y[down] -= 1
                y[up] += 1 if up != down else 0
                for pair in ((x, tuple(y)), (tuple(y), x)):
                    worst[test] = max(worst[test], moment(table, *pair, test, test.event.cost))
        assert worst[test] <= 1
    assert worst[QUIET] > Fraction(999, 1000)


def test_many_cells_at_the_threshold_come_close_and_a_lower_price_is_too_low() -> None:
    """All clocks slow down together: the case for which the price is made, with any number of clocks."""
    test = HazardTest(QUIET.epsilon, 60, QUIET.order)
    table = tabulate(test.epsilon, test.threshold)
    x, y = (20,) * 40, (19,) * 40
    worst = max(moment(table, *pair, test, test.event.cost) for pair in ((x, y), (y, x)))
    assert worst <= 1
    assert worst > Fraction(99, 100)
    cheap = test.event.cost * Fraction(99, 100)
    assert bool(max(moment(table, *pair, test, cheap) for pair in ((x, y), (y, x))) > 1)


def test_a_table_drawn_at_a_doubled_epsilon_breaks_the_inequality() -> None:
    table = tabulate(2 * SMALL.epsilon, SMALL.threshold)
    pairs = [((4, 4, 0), (3, 5, 0)), ((3, 3, 3), (2, 4, 3)), ((5, 0, 0), (4, 1, 0)), ((3, 0, 0), (2, 1, 0))]
    assert (
        max(moment(table, a, b, SMALL, SMALL.event.cost) for x, y in pairs for a, b in ((x, y), (y, x))) > 1
    )


def test_draws_follow_the_law() -> None:
    x, draws = (3, -4, 0, 5), 20_000
    table, entropy = tabulate(SMALL.epsilon, SMALL.threshold), SeededEntropy(3)
    names = {FarSide.TOO_LOW: "low", FarSide.TOO_HIGH: "high"}
    seen: dict[tuple[int, str] | None, int] = {}
    for _ in range(draws):
        found = SMALL.draw(np.array(x), entropy)
        outcome = None if found is None else (found.cell, names[found.side])
        seen[outcome] = seen.get(outcome, 0) + 1
    expected = law(table, x)
    observed = [seen.get(outcome, 0) for outcome in expected]
    assert stats.chisquare(observed, [draws * float(p) for p in expected.values()]).pvalue > 1e-4


def test_numbers_are_drawn_as_single_questions_are() -> None:
    """The same 128 bits give the same outcome, whether a number is asked alone or beside silent ones."""

    class Told(SeededEntropy):
        def __init__(self, *values: int) -> None:
            super().__init__(0)
            self.values = values

        def words(self, count: int) -> np.ndarray:
            assert count == 2 * len(self.values)
            high, low = zip(*(divmod(value, 1 << 64) for value in self.values), strict=True)
            return np.array([*high, *low], np.uint64)

    table, silent = tabulate(SMALL.epsilon, SMALL.threshold), ONE - 1
    for x in (-30, -5, 0, 4, 12):
        row = min(abs(x), table.last)
        near, far = (FarSide.TOO_LOW, FarSide.TOO_HIGH) if x >= 0 else (FarSide.TOO_HIGH, FarSide.TOO_LOW)
        edges = (table.nearer[row], table.fires[row])
        for value in (0, silent, *(edge + step for edge in edges for step in (-1, 0, 1))):
            side = near if value < edges[0] else far if value < edges[1] else None
            alone = SMALL.draw(np.array([x]), Told(value))
            beside = SMALL.draw(np.array([0, x, 0]), Told(silent, value, silent))
            assert alone == (None if side is None else Found(0, side))
            assert beside == (None if side is None else Found(1, side))


# ── How far one number moves ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("relation", [*RELATIONS, PersonAddRemove(2), PersonReplace(2)], ids=str)
@pytest.mark.parametrize(
    "group",
    [Tables(DOMAIN, ((0, 1),)), from_texts(DOMAIN, ["a = 1", "!(a = 0 & b = x)"]).groups[0]],
    ids=("table", "queries"),
)
def test_each_is_how_far_one_count_moves(group, relation: Neighbours) -> None:
    """Against brute force over all tables of up to two records."""
    universe = list(product(range(2), range(3)))
    farthest = 0
    tables = [(), *((r,) for r in universe), *product(universe, repeat=2)]
    counted = {
        table: group.counts(Records.from_rows(DOMAIN, np.array(table, np.int64).reshape(-1, 2)))
        for table in tables
    }
    for table in tables:
        for other in next_to(relation, table, universe):
            if other in counted:
                farthest = max(farthest, int(np.abs(counted[table] - counted[other]).max()))
    assert relation.each(group.bound()) == farthest


# ── The verb ────────────────────────────────────────────────────────────────────────────────────────────────────


def slot_of(house: House) -> Slot:
    return Slot(house.ledger, HAZARD.event, MEASURED)


def asked(house: House, slot: Slot, hypotheses: np.ndarray = NEAR):
    return house.curator.exceeds(CELLS, hypotheses, test=HAZARD, slot=slot, noise=NOISE)


def far(cell: int, by: int) -> np.ndarray:
    hypotheses = NEAR.copy()
    hypotheses[cell] += by
    return hypotheses


def test_a_slot_is_paid_once_and_serves_every_silent_table() -> None:
    house = House(Accounting.RENYI)
    slot, before = slot_of(house), left(house.ledger)
    house.diary.clear()
    assert all(asked(house, slot) is None for _ in range(50))
    assert left(house.ledger) == before
    assert "pay" not in house.diary
    assert house.ledger.events == (HAZARD.event, MEASURED)


@pytest.mark.parametrize(("by", "side"), [(900, FarSide.TOO_HIGH), (-900, FarSide.TOO_LOW)])
def test_a_fire_says_where_and_gives_all_cells_with_fresh_noise(by: int, side: FarSide) -> None:
    house = House(Accounting.RENYI)
    slot = slot_of(house)
    surprise = asked(house, slot, far(3, by))
    assert surprise is not None
    assert surprise.found == Found(3, side)
    assert len(surprise.noisy) == 6
    assert 0 < np.abs(surprise.noisy - NEAR).max() < 6 * NOISE.deviation
    assert slot.closed
    assert house.ledger.events == (HAZARD.event, MEASURED)


def test_the_slot_is_paid_before_anything_is_read() -> None:
    house = House(Accounting.RENYI)
    asked(house, slot_of(house), far(0, 900))
    assert in_order(house.diary)[:3] == ["pay", "read", "draw"]


def test_a_slot_costs_what_a_fire_and_its_measurement_cost() -> None:
    house = House(Accounting.RENYI)
    before = left(house.ledger)
    slot_of(house)
    assert before - left(house.ledger) == renyi_cost()


def test_no_test_after_the_fire() -> None:
    house = House(Accounting.RENYI)
    slot = slot_of(house)
    asked(house, slot, far(0, 900))
    house.diary.clear()
    with pytest.raises(BudgetError, match="has fired"):
        asked(house, slot)
    assert house.diary == []


def test_one_slot_one_test_in_flight() -> None:
    house = House(Accounting.RENYI)
    slot = slot_of(house)
    drawn = slot.begin(HAZARD, house.ledger, MEASURED)
    with pytest.raises(BudgetError, match="under way"):
        asked(house, slot)
    assert drawn(np.array([0]), SeededEntropy(0)) is None
    assert asked(house, slot) is None


def test_a_slot_pays_for_nothing_dearer_and_nothing_else() -> None:
    house, other = House(Accounting.RENYI), House(Accounting.RENYI)
    slot = slot_of(house)
    finer = HazardTest(Fraction(1, 39), 300, ORDER)
    for test, noise, ledger, sentence in (
        (finer, NOISE, house, "another test"),
        (HAZARD, Gaussian(Fraction(3999)), house, "cheaper measurement"),
        (HAZARD, NOISE, other, "another ledger"),
    ):
        with pytest.raises(BudgetError, match=sentence):
            ledger.curator.exceeds(CELLS, NEAR, test=test, slot=slot, noise=noise)
    # θ may differ by question at no price.
    wider = HazardTest(HAZARD.epsilon, 500, ORDER)
    assert house.curator.exceeds(CELLS, NEAR, test=wider, slot=slot, noise=NOISE) is None


def test_a_question_that_moves_too_far_is_refused_before_it_is_read() -> None:
    house = House(Accounting.RENYI, neighbours=PersonReplace(2))
    slot = slot_of(house)
    house.diary.clear()
    with pytest.raises(BudgetError, match="farther"):
        asked(house, slot)
    assert house.diary == []


def test_a_slot_that_cannot_be_paid_is_none() -> None:
    house = House(Accounting.RENYI, epsilon=0.05)
    with pytest.raises(BudgetError):
        Slot(house.ledger, HazardTest(Fraction(1, 400), 300, house.ledger.order).event, MEASURED)


def test_a_closed_slot_stays_paid_and_may_be_closed_twice() -> None:
    house = House(Accounting.RENYI)
    slot, before = slot_of(house), left(house.ledger)
    slot.close()
    slot.close()
    assert left(house.ledger) == before
    assert slot.closed


def test_the_money_comes_out_of_one_cap() -> None:
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.RENYI)
    ledger, fires = Ledger(budget), 0
    curator = curator_of(RECORDS, ledger, seed=1)
    while True:
        try:
            slot = Slot(ledger, HAZARD.event, MEASURED)
        except BudgetError:
            break
        assert curator.exceeds(CELLS, far(0, 2000), test=HAZARD, slot=slot, noise=NOISE)
        fires += 1
    cap = left(Ledger(budget))
    assert fires == cap // renyi_cost()
    assert ROWS == 1000
    assert COUNT == 600


def test_an_earlier_release_costs_its_rho() -> None:
    event = EarlierRelease(Fraction(1, 50))
    assert event.renyi(22) == Fraction(22, 50)
    assert event.for_records(3).rho == Fraction(9, 50)
    assert "earlier release" in event.words()
    pure = Ledger(Budget(epsilon=1, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE))
    with pytest.raises(BudgetError, match="no pure bound"):
        pure.charge(event)
    with pytest.raises(BudgetError):
        EarlierRelease(Fraction(0))
    zcdp = Ledger(Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP))
    zcdp.charge(event, GaussianMeasurement(Fraction(1), Fraction(1000)))
    assert zcdp.spent().rho_units == 20_000_000_000 + 500_000_000


# ── Epochs of the sparse vector in a slot ───────────────────────────────────────────────────────────────────────

VECTOR = SparseVector(Fraction(1), threshold=2)


def laplace_at_least(k: Any, scale: float) -> Any:
    """P(X ≥ k) of the discrete Laplace distribution, of which P(X = x) is as e^−|x|/s."""
    q = np.exp(-1 / scale)
    k = np.asarray(k, np.float64)
    return np.where(k > 0, q ** np.maximum(k, 0) / (1 + q), 1 - q ** np.maximum(1 - k, 0) / (1 + q))


def law_of_an_epoch(asked: list[list[int]]) -> dict[tuple[int, int] | None, float]:
    """The chance of every question and cell to fire first, and of silence, summed over the noise of the threshold."""
    two, four = float(VECTOR.threshold_scale), float(VECTOR.query_scale)
    noise = np.arange(-200, 201)
    silent = laplace_at_least(noise, two) - laplace_at_least(noise + 1, two)
    found: dict[tuple[int, int] | None, float] = {}
    for question, cells in enumerate(asked):
        for cell, x in enumerate(cells):
            above = laplace_at_least(VECTOR.threshold + noise - abs(x), four)
            found[question, cell] = float((silent * above).sum())
            silent = silent * (1 - above)
    return {**found, None: float(silent.sum())}


@pytest.mark.parametrize("moved", [[1, -1], [-1, 1], [1, 1], [0, -1]])
def test_an_epoch_of_whole_tables_keeps_its_epsilon(moved: list[int]) -> None:
    """Every cell is a question of its own, up to the first "above": no outcome is likelier by more than e^ε."""
    told = [[0, 2], [1, -1], [3, 0], [2, 2]]
    neighbour = [[x + step for x, step in zip(cells, moved, strict=True)] for cells in told]
    one, other = law_of_an_epoch(told), law_of_an_epoch(neighbour)
    assert sum(one.values()) == pytest.approx(1)
    losses = [abs(math.log(one[outcome] / other[outcome])) for outcome in one]
    assert 0.2 < max(losses) <= float(VECTOR.epsilon) * (1 + 1e-9)


def test_a_slot_draws_the_law_of_an_epoch() -> None:
    """One noise of the threshold for all questions of a slot, fresh noise for every cell."""
    asked = [[0, 2], [1, -1], [3, 0]]
    law, runs, entropy = law_of_an_epoch(asked), 4000, SeededEntropy(11)
    rich = Budget(epsilon=1e6, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)
    ledger, times = Ledger(rich), dict.fromkeys(law, 0)
    for _ in range(runs):
        slot, outcome = Slot(ledger, VECTOR.event, MEASURED), None
        for question, cells in enumerate(asked):
            found = slot.begin(VECTOR, ledger, MEASURED)(np.array(cells), entropy)
            if found is not None:
                outcome = (question, found.cell)
                break
        assert slot.closed == (outcome is not None)
        times[outcome] += 1
    for outcome, chance in law.items():
        assert times[outcome] / runs == pytest.approx(chance, abs=5 * math.sqrt(chance * (1 - chance) / runs))


def test_an_epoch_tests_numbers_that_move_equally_far() -> None:
    """Its threshold noise is drawn once, for the Δ of its first test: a larger one would need more noise."""
    ledger, entropy = Ledger(budget(1e6)), SeededEntropy(1)
    slot = Slot(ledger, VECTOR.event, MEASURED)
    slot.begin(VECTOR, ledger, MEASURED)(np.zeros(1, np.int64), entropy)
    with pytest.raises(BudgetError, match="move equally far"):
        slot.begin(replace(VECTOR, sensitivity=50), ledger, MEASURED)
