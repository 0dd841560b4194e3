"""Whole units best-respond: the compiled loops against the definition, and what comes of noiseless targets."""

from __future__ import annotations

import numpy as np
import pytest

from dualquery.fitting.units import TallyTarget, UnitTarget, fit_units
from dualquery.queries.views import WHOLE, Tallies, View
from dualquery.table.database import Database, Linked, database_of
from dualquery.table.domain import Categorical
from dualquery.table.units import Units, units_of
from tests.fitting.reference import reference_units


def attribute(name: str, size: int) -> Categorical:
    return Categorical(name, tuple(f"v{v}" for v in range(size)))


def town(at_most: int = 4, jobs: bool = True, order: str | None = None) -> Database:
    """Households with persons, and with jobs."""
    tables = [
        Linked("house", (attribute("region", 3), attribute("rent", 2)), key="h"),
        Linked(
            "person",
            (attribute("age", 4), attribute("sex", 2)),
            parent="house",
            link="h",
            at_most=at_most,
            at_least=0,
            order=order,
        ),
    ]
    if jobs:
        tables.append(
            Linked("job", (attribute("hours", 3),), parent="house", link="h", at_most=2, at_least=0)
        )
    return database_of(tables, "house")


def random_units(database: Database, number: int, rng: np.random.Generator, alike: float = 0.0) -> Units:
    """Rows of a unit share their first attribute, and that of the unit, so often."""
    own = rng.integers(0, database.sizes[: len(database.root.columns)], (number, len(database.root.columns)))
    tables = []
    for child in database.children:
        sizes = rng.integers(child.at_least, child.at_most + 1, number)
        rows = rng.integers(0, child.domain.sizes, (int(sizes.sum()), child.domain.width))
        owner = np.repeat(np.arange(number), sizes)
        same = rng.random(len(rows)) < alike
        if own.shape[1]:
            rows[same, 0] = own[owner[same], 0] % int(child.domain.sizes[0])
        tables.append((sizes, rows))
    return units_of(database, own, tables)


def wanted(truth: Units) -> tuple[list[UnitTarget], list[TallyTarget]]:
    """All pairs of all views, and all tallies, as the truth has them."""
    database, targets, tallies = truth.database, [], []

    def add(view: View | None, *members: int, weight: float) -> None:
        domain = database if view is None else view.domain
        shape = tuple(int(domain.sizes[j]) for j in members)
        empty = UnitTarget(view, members, np.zeros(shape), weight)
        targets.append(UnitTarget(view, members, empty.counts(truth) / truth.rows, weight, 0.01))

    add(None, 0, weight=0.5)
    add(None, 0, 1, weight=1.0)
    add(None, 1, 2, weight=2.0)
    for child in database.children:
        rows, pairs = (View(database, child.name, slots, c) for slots, c in ((1, 2), (2, 3)))
        width, own = database.width, child.domain.width
        for a in range(own):
            add(rows, 0, width + a, weight=1.5)
            add(rows, 2, width + a, weight=1.0)
            add(pairs, width + a, width + own + a, weight=0.7)
        if own > 1:
            add(rows, width, width + 1, weight=1.0)
            add(pairs, width, width + own + 1, weight=0.3)
        for members in ((0,), (1,), (0, 1)) if own > 1 else ((0,),):
            tally = Tallies(database, child.name, (members,), (1,), 2)
            counts = tally.counts(truth).reshape(tally.shape(members)) / (WHOLE * truth.rows)
            tallies.append(TallyTarget(tally, counts, 0.8))
    return targets, tallies


def far(targets: list[UnitTarget], tallies: list[TallyTarget], units: Units) -> float:
    """The mean L1 distance of tables and tallies."""
    parts = [np.abs(each.target - each.counts(units) / units.rows).sum() for each in (*targets, *tallies)]
    return float(np.mean(parts))


@pytest.mark.parametrize("temperature", [0.05, 0.7])
@pytest.mark.parametrize(("at_most", "order"), [(1, None), (4, None), (4, "age")])
def test_the_compiled_loops_do_what_the_definition_says(
    at_most: int, order: str | None, temperature: float
) -> None:
    rng = np.random.default_rng(3)
    database = town(at_most, order=order)
    targets, tallies = wanted(random_units(database, 40, rng, alike=0.7))
    start = random_units(database, 30, rng)
    fitted = [
        fit(start, targets, tallies, [2 * temperature, temperature], np.random.default_rng(8))
        for fit in (fit_units, reference_units)
    ]
    np.testing.assert_array_equal(fitted[0].to_rows(), fitted[1].to_rows())
    for one, two, before in zip(fitted[0].members, fitted[1].members, start.members, strict=True):
        np.testing.assert_array_equal(one.records.to_rows(), two.records.to_rows())
        np.testing.assert_array_equal(one.start, before.start)  # sizes stay
    assert (fitted[0].to_rows() != start.to_rows()).any()


def test_units_come_to_answer_what_is_asked_of_them() -> None:
    rng = np.random.default_rng(5)
    database = town()
    targets, tallies = wanted(random_units(database, 1500, rng, alike=0.8))
    start = random_units(database, 1500, rng)
    fitted = fit_units(start, targets, tallies, [8.0, 4.0, 2.0, 1.0, 0.5, 0.5], rng)
    assert far(targets, tallies, fitted) < 0.12 * far(targets, tallies, start)


def test_swaps_alone_bring_together_who_belongs_together() -> None:
    """Rows lie in units at random at first; which rows there are is right already."""
    rng = np.random.default_rng(9)
    database = town(2, jobs=False)
    truth = random_units(database, 800, rng, alike=1.0)
    (members,) = truth.members
    mixed = members.records.take(rng.permutation(members.records.rows))
    own = truth.to_rows()[:, :2]
    start = units_of(database, own, [(members.sizes, mixed.to_rows())])
    targets, tallies = wanted(truth)
    fitted = fit_units(start, targets, tallies, [1.0, 0.3, 0.3], rng)
    assert far(targets, tallies, fitted) < 0.2 * far(targets, tallies, start)
