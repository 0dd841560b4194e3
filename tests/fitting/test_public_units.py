"""Public units as a start: what they add by definition, believed where they are borne out, and left where not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from dualquery.fitting.measured import Measured
from dualquery.fitting.public_units import PublicUnits, WeighedUnits
from dualquery.fitting.reweighting import Weighed
from dualquery.mechanisms.linked import LINKED
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.ledger import Ledger
from dualquery.queries.tables import Tables, centred
from dualquery.queries.views import WHOLE, Tallies, View, ViewTables
from dualquery.queries.workload import Workload
from dualquery.table.database import Linked, database_of
from dualquery.table.units import Units, units_of
from dualquery.types import silent
from tests.fitting.test_units import attribute, random_units, town
from tests.house import curator_of
from tests.mechanisms.test_linked import ODD, distance


def told(units: Units) -> list[Measured]:
    """Of units, of rows and of pairs of persons, and of their ages: nothing was seen, and of some shape."""
    database = units.database
    rows, pairs = View(database, "person", 1, 2), View(database, "person", 2, 2)
    sets = [(None, (0, 1)), (rows, (1, database.width)), (pairs, (database.width, database.width + 3))]
    domains = [database, rows.domain, pairs.domain]
    found = [
        Measured((of, s), np.zeros([int(domain.sizes[j]) for j in s]), 1.0)
        for (of, s), domain in zip(sets, domains, strict=True)
    ]
    tallies = Tallies(database, "person", ((0,),), (1,), 3)
    return [*found, Measured((tallies, (0,)), np.zeros(tallies.shape((0,))), 1.0)]


@pytest.mark.parametrize("order", [None, "age"])
def test_what_units_add_is_what_is_counted_of_them(order: str | None) -> None:
    units, rng = (
        random_units(town(5, order=order), 60, np.random.default_rng(1), 0.5),
        np.random.default_rng(2),
    )
    some = told(units)
    held = WeighedUnits.of(units, some)
    counted = [
        Tables(units.domain, (each.what[1],)).counts(units)
        if each.what[0] is None
        else each.what[0].counts(units) / WHOLE
        if isinstance(each.what[0], Tallies)
        else ViewTables(each.what[0], (each.what[1],)).counts(units) / WHOLE
        for each in some
    ]
    assert held.totals(np.ones(units.rows)) == pytest.approx(np.concatenate(counted))
    alone = [WeighedUnits.of(units.take(np.array([u])), some).totals(np.ones(1)) for u in range(units.rows)]
    weights, numbers = rng.random(units.rows), rng.normal(size=len(alone[0]))
    assert held.totals(weights, 2) == pytest.approx(weights @ np.square(alone))
    assert held.said(numbers) == pytest.approx(np.array(alone) @ numbers)
    cells = held.centred(numbers)
    begin = some[0].values.size
    assert cells[:begin] == pytest.approx(centred(numbers[:begin].reshape(some[0].values.shape)).ravel())
    assert cells[-some[-1].values.size :] == pytest.approx(numbers[-some[-1].values.size :])
    interface: Weighed = held
    assert interface is held


def families(number: int, seed: int) -> Units:
    """Persons of a house are often of its kind and of each other's."""
    rng = np.random.default_rng(seed)
    names = (("kind", 4), ("age", 5), ("sex", 2))
    root, *own = (attribute(name, size) for name, size in names)
    person = Linked("person", tuple(own), parent="house", link="h", at_most=4, at_least=1)
    database = database_of([Linked("house", (root,), key="h"), person], "house")
    kind, sizes = (
        rng.choice(4, number, p=[0.5, 0.3, 0.15, 0.05]),
        rng.choice(4, number, p=[0.3, 0.4, 0.2, 0.1]) + 1,
    )
    owner = np.repeat(np.arange(number), sizes)
    common = rng.choice(5, number, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    age = np.where(rng.random(len(owner)) < 0.7, (common + kind)[owner] % 5, rng.integers(0, 5, len(owner)))
    sex = (rng.random(len(owner)) < 0.3 + 0.1 * age).astype(int)
    return units_of(database, kind[:, None], [(sizes, np.stack([age, sex], axis=1))])


def shuffled(units: Units, seed: int = 0) -> Units:
    """The values of each column, dealt out anew."""
    rng, (members,) = np.random.default_rng(seed), units.members
    own = units.to_rows()[:, :1].astype(np.int64)
    rows = members.records.to_rows().astype(np.int64)
    return units_of(units.database, rng.permuted(own, axis=0), [(members.sizes, rng.permuted(rows, axis=0))])


def played(truth: Units, public: Units | None, epsilon: float, seed: int = 0) -> Outcome:
    budget = Budget(epsilon, 1e-6, Neighbours.ADD_REMOVE, Accounting.GAUSSIAN)
    workload = Workload(truth.domain, (Tables(truth.domain, ((0,),)),), "one table")
    prior = None if public is None else PublicUnits(public, float(public.rows))
    plan = LINKED.plan_for(Task(workload, max(1, truth.rows), budget, prior=prior), {"synthetic_rows": 2_000})
    ledger = Ledger(budget)
    out = LINKED.run(plan, curator_of(truth, ledger, seed=seed), np.random.default_rng(seed), silent)
    assert ledger.events == tuple(step.event for step in plan.steps), (
        "a prior costs nothing, and saves nothing"
    )
    return out


def off(truth: Units, out: Outcome) -> Sequence[float]:
    made = out.artefact.records  # type: ignore[attr-defined]
    return distance(truth, made, 1), distance(truth, made, 2)


TRUTH, SAMPLE = families(1_500, 1), families(1_500, 2)


def test_units_of_the_same_population_are_believed() -> None:
    without, out = played(TRUTH, None, 0.5), played(TRUTH, SAMPLE, 0.5)
    assert out.trust is not None
    assert out.trust.share == 1
    assert 200 < out.trust.records < 1_500
    assert out.settled is not None
    assert out.settled.task.prior.share == 1, "a replica does not look again"
    assert all(a < 0.6 * b for a, b in zip(off(TRUTH, out), off(TRUTH, without), strict=True))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["shuffled", "uniform"])
def test_junk_costs_nothing(kind: str) -> None:
    """Over three runs: what share it has is chosen such that the release is about as good as without it."""
    junk = (
        shuffled(SAMPLE)
        if kind == "shuffled"
        else random_units(TRUTH.database, 1_500, np.random.default_rng(0))
    )
    without = np.mean([off(TRUTH, played(TRUTH, None, 3.0, seed)) for seed in range(3)], axis=0)
    outs = [played(TRUTH, junk, 3.0, seed) for seed in range(3)]
    assert (np.mean([off(TRUTH, out) for out in outs], axis=0) < 1.1 * without).all()
    assert without[1] < 0.5 * distance(TRUTH, junk, 2)


def test_the_same_units_by_the_same_seed() -> None:
    one, other = (played(TRUTH, SAMPLE, 1.0, seed=3).artefact.records for _ in range(2))  # type: ignore[attr-defined]
    assert (one.to_rows() == other.to_rows()).all()
    assert (one.members[0].records.to_rows() == other.members[0].records.to_rows()).all()


@pytest.mark.parametrize("kind", [*ODD, "several tables", "an order", "one unit", "no rows at all"])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_odd_databases(kind: str, share: float) -> None:
    if kind in ODD:
        roots, own, least, most = ODD[kind]
        child = Linked("visit", own, parent="patient", link="p", at_most=most, at_least=least)
        database = database_of([Linked("patient", roots, key="p"), child], "patient")
    else:
        database = town(order="age" if kind == "an order" else None)
    truth = random_units(database, 300, np.random.default_rng(2))
    public = random_units(database, 1 if kind == "one unit" else 400, np.random.default_rng(3))
    if kind == "no rows at all":
        public = public.take(np.flatnonzero((public.to_rows()[:, -2:] == 0).all(axis=1)))
    budget = Budget(2.0, 1e-6, Neighbours.ADD_REMOVE, Accounting.GAUSSIAN)
    workload = Workload(database, (Tables(database, ((0,),)),), "one table")
    task = Task(workload, 300, budget, prior=PublicUnits(public, float(public.rows), share))
    plan = LINKED.plan_for(task, {"synthetic_rows": 41})
    out = LINKED.run(plan, curator_of(truth, Ledger(budget)), np.random.default_rng(0), silent)
    released = out.artefact.records  # type: ignore[attr-defined]
    assert released.rows == 41
    assert out.trust is not None
    again = LINKED.replica(replace(out.settled))  # type: ignore[misc, arg-type]
    assert again.task.prior.share == out.trust.share
    if kind == "an order":
        members = released.members[0]
        ages, owner = members.records.columns[0].astype(int), members.owner
        assert (np.diff(ages)[owner[1:] == owner[:-1]] >= 0).all()
