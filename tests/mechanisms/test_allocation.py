"""The measurement plan: from public quantities alone, within the budget to the last unit, and never beyond."""

from dataclasses import replace
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dualquery.counting.memory import MemoryCounter
from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import allocation
from dualquery.mechanisms.projection.allocation import closure, one_way_plan, plan_tables
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import RELATIONS, Neighbours
from dualquery.queries.families import from_texts, marginals, parities, random_conjunctions
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records


def domain(*sizes):
    return Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))


def task(workload, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE, rows=20_000, accounting=Accounting.ZCDP):
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)
    return Task(workload, rows, budget)


@pytest.mark.parametrize("neighbours", RELATIONS)
@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN])
def test_the_plan_spends_the_budget_and_a_ledger_accepts_it(neighbours, accounting):
    made = task(marginals(domain(2, 3, 4, 20), 3), neighbours=neighbours, accounting=accounting)
    plan = plan_tables(made)
    event = plan.step(made).event
    ledger = Ledger(made.budget)
    ledger.charge(event)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-4)
    with pytest.raises(BudgetError):
        ledger.charge(event)


def test_the_price_is_that_of_the_shares_by_hand():
    made = task(marginals(domain(2, 5), 2))
    plan = plan_tables(made)
    rho = rho_of(epsilon=1.0, delta=1e-6)
    variances = plan.variances()
    shares = {members: Fraction(1) / (2 * Fraction(v)) / rho for members, v in variances.items()}
    assert float(shares[()]) == pytest.approx(0.01, rel=0.01)
    ones = float(shares[(0,)] * Fraction(1, 2) + shares[(1,)] * Fraction(4, 5))
    assert ones == pytest.approx(0.19, rel=0.01)
    assert float(shares[(0, 1)] * Fraction(1, 2) * Fraction(4, 5)) == pytest.approx(0.8, rel=0.01)


def test_under_replacement_the_total_is_not_bought():
    plan = plan_tables(task(marginals(domain(2, 3), 2), neighbours=Neighbours.REPLACE))
    assert () not in plan.interactions.sets
    assert set(plan.interactions.sets) == {(0,), (1,), (0, 1)}


def test_a_total_that_was_measured_before_is_not_bought_again():
    workload = marginals(domain(2, 3), 2)
    table = Records.from_rows(workload.domain, np.zeros((300, 2), int))
    for plan in (plan_tables, lambda made: one_way_plan(made, Fraction(1, 5))):
        assert () in plan(task(workload)).interactions.sets
        before = plan(replace(task(workload), rows_variance=12.5))
        assert () not in before.interactions.sets
        measured = before.measure(
            Curator(MemoryCounter(table), Ledger(task(workload).budget), SeededEntropy(0)),
            replace(task(workload), rows_variance=12.5),
        )
        assert measured.total == 20_000
        assert measured.variance[()] == 12.5


def test_constant_attributes_are_left_out():
    plan = plan_tables(task(marginals(domain(2, 1, 3), 2)))
    assert set(plan.interactions.sets) == {(), (0,), (2,), (0, 2)}
    with pytest.raises(DualQueryError, match="constant"):
        plan_tables(task(marginals(domain(1, 1), 2), neighbours=Neighbours.REPLACE))


def test_larger_sets_are_measured_where_their_noise_is_low():
    binary, mixed = marginals(domain(*[2] * 6), 3), marginals(domain(2, 2, 2, 30, 30, 30), 3)
    assert plan_tables(task(binary)).orders == (6, 15, 20)
    assert plan_tables(task(binary, epsilon=0.001)).orders == (6, 15, 0)
    some = plan_tables(task(mixed, epsilon=3.0)).interactions.sets
    assert (0, 1, 2) in some
    assert (3, 4, 5) not in some


def test_more_budget_and_more_records_never_measure_less():
    workload = marginals(domain(2, 3, 4, 5, 6), 3)
    counts = [plan_tables(task(workload, epsilon=e)).orders[2] for e in (0.01, 0.1, 1, 10, 100)]
    assert counts == sorted(counts)
    counts = [plan_tables(task(workload, rows=n)).orders[2] for n in (100, 10_000, 1_000_000)]
    assert counts == sorted(counts)


def test_noise_halves_with_four_times_the_rho():
    workload = marginals(domain(4, 5, 6), 2)
    one, two = (plan_tables(task(workload, epsilon=e)) for e in (1.0, 100.0))
    rho = [float(rho_of(epsilon=e, delta=1e-6)) for e in (1.0, 100.0)]
    ratio = one.cell_noise(task(workload)) / two.cell_noise(task(workload))
    assert ratio == pytest.approx((rho[1] / rho[0]) ** 0.5, rel=0.01)


def test_sets_of_every_kind_of_query():
    shop = domain(2, 2, 2, 5)
    texts = from_texts(shop, ["a0 = 1 & a3 = 2", "a3 = 4 & a0 = 0", "a1 = 1"])
    assert sorted(map(tuple, texts.scope.tolist())) == [(0, 3), (1, -1)]
    cells = Workload(shop, (Tables(shop, ((1, 3), (0,))),), "tables")
    assert sorted(map(tuple, cells.scope.tolist())) == [(0, -1), (1, 3)]
    even = parities(domain(2, 2, 2), 2)
    assert len(even.scope) == 6
    both = Workload(shop, (*texts.groups, *cells.groups), "both")
    assert len(both.scope) == 4


def test_closure_holds_every_subset_once():
    found = closure(np.array([[0, 1, 2], [1, 2, 4], [3, -1, -1]], np.int32))
    assert found[1] == [(0,), (1,), (2,), (3,), (4,)]
    assert found[2] == [(0, 1), (0, 2), (1, 2), (1, 4), (2, 4)]
    assert found[3] == [(0, 1, 2), (1, 2, 4)]
    everything = closure(random_conjunctions(domain(*[3] * 6), 3, 5000, seed=1).scope)
    assert everything[3] == list(combinations(range(6), 3))


def test_too_many_sets_are_refused_in_a_sentence(monkeypatch):
    monkeypatch.setattr(allocation, "MOST_SETS", 3)
    with pytest.raises(DualQueryError, match="different sets"):
        plan_tables(task(marginals(domain(2, 2, 2, 2), 2)))


def test_pure_accounting_is_refused():
    with pytest.raises(BudgetError, match="zcdp"):
        plan_tables(task(marginals(domain(2, 2), 2), accounting=Accounting.PURE))


def test_one_way_plan_costs_its_share():
    made = task(marginals(domain(4, 5, 6), 2))
    event = one_way_plan(made, Fraction(1, 5)).step(made).event
    assert float(event.rho) == pytest.approx(float(rho_of(epsilon=1.0, delta=1e-6)) / 5, rel=1e-9)
