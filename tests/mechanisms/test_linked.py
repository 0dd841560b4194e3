"""Linked tables end to end: what is charged, what is answered, and databases that are odd."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from dualquery.fitting.measured import Numbers
from dualquery.fitting.views import mass_of, rows_in_full, size_law
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.floors import HANGING, LEFT, hanging_more
from dualquery.mechanisms.linked import LINKED
from dualquery.mechanisms.mechanism import Outcome, Plan, Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.queries.language.units import groups_of
from dualquery.queries.tables import Tables
from dualquery.queries.views import OverUnits, View, ViewTables
from dualquery.queries.workload import Workload
from dualquery.table.database import Linked, database_of
from dualquery.table.domain import Categorical
from dualquery.table.units import Units, units_of
from dualquery.types import silent
from tests.fitting.test_units import random_units, town
from tests.house import curator_of


def play(
    units: Units,
    epsilon: float,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    seed: int = 0,
    rows: int = 3000,
) -> tuple[Plan, Outcome, Ledger]:
    budget = Budget(epsilon=epsilon, delta=1e-6, neighbours=neighbours, accounting=Accounting.GAUSSIAN)
    workload = Workload(units.domain, (Tables(units.domain, ((0,),)),), "one table")
    plan = LINKED.plan_for(Task(workload, max(1, units.rows), budget), {"synthetic_rows": rows})
    ledger = Ledger(budget)
    rng = np.random.default_rng(seed)
    return plan, LINKED.run(plan, curator_of(units, ledger, seed=seed), rng, silent), ledger


def distance(one: Units, two: Units, slots: int) -> float:
    """The mean L1 distance of the tables of two attributes of a view, each as a distribution."""
    found = []
    for child in one.database.children:
        view = View(one.database, child.name, slots, 100)
        width, own = one.database.width, child.domain.width
        pairs = (
            combinations(range(width + own), 2)
            if slots == 1
            else ((width + a, width + own + a) for a in range(own))
        )
        for members in pairs:
            tables = [ViewTables(view, (tuple(members),)).counts(each) for each in (one, two)]
            found.append(np.abs(np.subtract(*(each / each.sum() for each in tables))).sum())
    return float(np.mean(found))


@pytest.mark.parametrize("neighbours", RELATIONS, ids=str)
def test_all_is_charged_before_and_spent(neighbours: Neighbours) -> None:
    units = random_units(town(), 500, np.random.default_rng(0), alike=0.8)
    plan, outcome, ledger = play(units, 1.0, neighbours, rows=50)
    assert ledger.events == tuple(step.event for step in plan.steps)
    assert all(isinstance(event, GaussianMeasurement) for event in ledger.events)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-3)
    released = outcome.artefact.records
    assert isinstance(released, Units)
    assert released.rows == 50


@pytest.mark.parametrize(
    ("units", "fitted", "again"),
    [(30, 4_000, 2_000), (6_000, 12_000, 6_000), (100_000, 100_000, 10_000), (300_000, 200_000, 10_000)],
)
def test_as_many_units_are_fitted_as_the_public_number_of_them_asks_for(
    units: int, fitted: int, again: int
) -> None:
    domain = town()
    budget = Budget(1.0, 1e-6, Neighbours.ADD_REMOVE, Accounting.GAUSSIAN)
    workload = Workload(domain, (Tables(domain, ((0,),)),), "one table")
    planned = LINKED.plan_for(Task(workload, units, budget), {})
    assert planned.parameters.synthetic_rows == fitted
    assert LINKED.replica is not None
    assert LINKED.replica(planned).parameters.synthetic_rows == again


def test_units_answer_what_was_measured() -> None:
    """With next to no noise rows, pairs of rows and numbers of rows are what they were; with much they are not."""
    units = random_units(town(), 2000, np.random.default_rng(1), alike=0.9)
    good, bad = (play(units, epsilon)[1].artefact.records for epsilon in (200.0, 0.2))
    for slots, most in ((1, 0.05), (2, 0.06)):
        assert distance(units, good, slots) < most < distance(units, bad, slots)
    alike = [
        float(np.mean(each.members[0].records.columns[0] == each.columns[0][each.members[0].owner]))
        for each in (units, good)
    ]
    assert alike[1] == pytest.approx(alike[0], abs=0.03)


def attribute(name: str, size: int) -> Categorical:
    return Categorical(name, tuple(map(str, range(size))))


ODD = {
    "no attributes of the unit": ((), (attribute("age", 3),), 0, 3),
    "one row each": ((attribute("region", 2),), (attribute("age", 3), attribute("sex", 2)), 1, 1),
    "always two rows": ((attribute("region", 2),), (attribute("age", 3),), 2, 2),
    "nothing but constants and one attribute": (
        (attribute("one", 1),),
        (attribute("age", 3), attribute("one", 1)),
        2,
        2,
    ),
    "very many rows": ((attribute("region", 2),), (attribute("age", 3),), 0, 60),
}


@pytest.mark.parametrize("neighbours", RELATIONS, ids=str)
@pytest.mark.parametrize("kind", ODD)
def test_odd_databases(kind: str, neighbours: Neighbours) -> None:
    roots, own, least, most = ODD[kind]
    child = Linked("visit", own, parent="patient", link="p", at_most=most, at_least=least)
    database = database_of([Linked("patient", roots, key="p"), child], "patient")
    units = random_units(database, 300, np.random.default_rng(2))
    _, outcome, _ = play(units, 2.0, neighbours, rows=40)
    assert outcome.artefact.records.rows == 40


def test_where_each_unit_has_one_row_the_release_is_that_of_one_table() -> None:
    """The same rows, bit for bit, as of the table of persons with their households, with the same noise."""
    child = Linked(
        "person", (attribute("age", 3), attribute("sex", 2)), parent="h", link="h", at_most=1, at_least=1
    )
    database = database_of([Linked("h", (attribute("region", 4),), key="h"), child], "h")
    units = random_units(database, 400, np.random.default_rng(5), alike=0.8)
    plan, outcome, ledger = play(units, 3.0, rows=600)
    flat = units.joined("person")
    workload = Workload(flat.domain, (Tables(flat.domain, ((0, 2), (0, 3), (2, 3))),), "pairs")
    alone = PROJECTION.plan_for(Task(workload, 400, plan.task.budget), {"synthetic_rows": 600, "means": 0.0})
    paying = Ledger(plan.task.budget)
    made = PROJECTION.run(alone, curator_of(flat, paying), np.random.default_rng(0), silent).artefact.records
    released = outcome.artefact.records
    assert (released.joined("person").to_rows() == made.to_rows()).all()
    assert ledger.events == paying.events == tuple(step.event for step in plan.steps)
    assert all(max(each.what, default=0) < database.width for each in outcome.measured)
    assert outcome.settled is not None
    assert LINKED.replica(outcome.settled).task.domain == database


def test_two_rows_of_a_unit_are_never_counted_as_one_record() -> None:
    units = random_units(town(), 10, np.random.default_rng(0))
    curator = curator_of(units, Ledger(Budget(1.0, 1e-6, accounting=Accounting.ZCDP)))
    with pytest.raises(AssertionError, match="one row each"):
        curator.of_rows(View(town(), "person", 1, 1))


def test_a_table_without_units_gives_units() -> None:
    """Nobody can tell it from one with a unit."""
    database = town()
    empty = units_of(
        database,
        np.zeros((0, 2), np.int64),
        [(np.zeros(0, np.int64), np.zeros((0, k), np.int64)) for k in (2, 1)],
    )
    _, outcome, _ = play(empty, 1.0, rows=20)
    assert outcome.artefact.records.rows == 20


def test_how_many_rows_count_in_full() -> None:
    database = town(4)
    table = database.child("person")
    assert rows_in_full(table, np.array([0.0, 1.0, 0.0, 0.0, 0.0])) == 1
    # Of 2 rows a unit on average, 1.5 and 1.75 are covered by two and by three.
    even = np.array([0.25, 0.25, 0.0, 0.25, 0.25])
    kept = [float(even @ np.minimum(range(5), c)) / 2 for c in (1, 2, 3)]
    assert kept == [0.375, 0.625, 0.875]
    assert rows_in_full(table, even) == 3
    assert mass_of(View(database, "person", 1, 2)) == pytest.approx([0, 0.5, 1, 0.999, 1])


def test_what_a_run_has_chosen_is_settled() -> None:
    units = random_units(town(), 400, np.random.default_rng(3))
    plan, outcome, _ = play(units, 5.0, rows=20)
    assert outcome.settled is not None
    assert set(outcome.settled.parameters.full) == {"person", "job"}
    again = LINKED.replica(outcome.settled)
    assert again.parameters.full == outcome.settled.parameters.full
    assert replace(again.parameters, full=None, synthetic_rows=20) == replace(plan.parameters, full=None)


def test_sizes_of_a_class_are_likely_to_be_small() -> None:
    table = Linked("visit", (attribute("a", 2),), parent="p", link="p", at_most=40, at_least=0)
    law = size_law(table)
    assert law.shape == (9, 41)
    assert law.sum(axis=1) == pytest.approx(1)
    assert [np.flatnonzero(row).tolist()[0] for row in law] == [0, 1, 2, 3, 4, 5, 7, 10, 15]


@pytest.mark.parametrize("even", [False, True])
def test_bars_know_what_tallies_had_to_mend(even: bool) -> None:
    """Four coins of a unit, and four of which an even number shows heads: pairs of rows cannot tell them apart."""
    rng, number = np.random.default_rng(6), 1500
    child = Linked("coin", (attribute("side", 2),), parent="bag", link="b", at_most=4, at_least=4)
    database = database_of([Linked("bag", (attribute("colour", 2),), key="b"), child], "bag")
    heads = rng.choice([0, 2, 4], number, p=[1 / 8, 3 / 4, 1 / 8]) if even else rng.binomial(4, 0.5, number)
    rows = (np.arange(4)[None, :] < heads[:, None]).astype(np.int64).reshape(-1, 1)
    units = units_of(database, rng.integers(0, 2, (number, 1)), [(np.full(number, 4), rows)])
    _, outcome, _ = play(units, 100.0)
    (told,) = [
        each for each in outcome.measured if isinstance(each.what, Numbers) and each.what.kind == HANGING
    ]
    assert (told.values > 0.12) == even
    assert (told.values < 0.06) != even
    asked = {
        "any(side = 1)": 0.5,
        "all(side = 1)": 0.5,
        "any(side = 1 & colour = 1)": 1.0,
        "count(coin where side = 1) >= 2": 0.25,
        "any(side = 1) & count(coin where side = 1 & colour = 1) <= 2": 0.5,
    }
    (group,) = groups_of(database, [*asked], [*asked])
    assert isinstance(group, OverUnits)
    answers = np.array([0.0, 0.5, 0.5, 0.5, 0.5])
    more = hanging_more(group, answers, outcome.measured)
    assert more == pytest.approx(
        BAR * LEFT * told.values[0] * np.sqrt(answers * (1 - answers)) * np.array([*asked.values()])
    )
    assert not hanging_more(group, answers, ()).any()
    released = outcome.artefact.records
    owner, codes = released.members[0].owner, released.members[0].records.columns[0]
    many = np.bincount(owner[codes == 1], minlength=released.rows)
    assert np.mean(many > 0) == pytest.approx(np.mean(heads > 0), abs=0.03)


@pytest.mark.parametrize("order", [None, "time"])
def test_rows_in_an_order_follow_each_other(order: str | None) -> None:
    """Each visit is to the next of five doctors, nearly always: two visits in any order say little of it."""
    rng, number = np.random.default_rng(7), 3000
    child = Linked("visit", (attribute("doctor", 5), attribute("time", 6)), None, "p", "p", 6, 1, order)
    database = database_of([Linked("p", (attribute("sex", 2),), key="p"), child], "p")
    sizes = rng.integers(2, 7, number)
    place = np.concatenate([np.arange(m) for m in sizes])
    steps = np.where(rng.random(len(place)) < 0.9, 1, rng.integers(0, 5, len(place)))
    doctor = (np.cumsum(steps) + np.repeat(rng.integers(0, 5, number), sizes)) % 5
    rows = np.stack([doctor, place], axis=1)
    units = units_of(database, rng.integers(0, 2, (number, 1)), [(sizes, rows)])
    made = play(units, 5.0)[1].artefact.records.members[0]
    one, two = (each.records.to_rows().astype(int) for each in (units.members[0], made))
    told = []
    for codes, of in ((one, units.members[0].owner), (two, made.owner)):
        within = of[1:] == of[:-1]
        told.append(np.mean((np.diff(codes[:, 0])[within] % 5) == 1))
        if order is not None:
            assert (np.diff(codes[:, 1])[within] >= 0).all()
    assert told[0] > 0.9
    assert (abs(told[1] - told[0]) < 0.15) == (order is not None)
