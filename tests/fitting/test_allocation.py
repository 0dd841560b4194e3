"""The measurement plan: from public quantities alone, within the budget to the last unit, and never beyond."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.fitter import Effort
from dualquery.mechanisms import shares as sharing
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection.tables import cells_within, expectation, plan_tables
from dualquery.mechanisms.shares import closure, squared_sensitivity
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours, PersonAddRemove, PersonReplace
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_texts, marginals, parities
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from tests.house import curator_of
from tests.mechanisms.test_staged import measured

PACE = Effort.of(600)


def domain(*sizes):
    return Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))


def task(workload, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE, rows=20_000, accounting=Accounting.ZCDP):
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    budget = Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)
    return Task(workload, rows, budget)


ACCOUNTINGS = [Accounting.ZCDP, Accounting.GAUSSIAN]


@pytest.mark.parametrize("neighbours", [*RELATIONS, PersonAddRemove(3), PersonReplace(2)], ids=str)
@pytest.mark.parametrize("accounting", ACCOUNTINGS)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 100.0])
def test_the_stages_spend_the_budget_and_a_ledger_accepts_them(neighbours, accounting, epsilon):
    made = task(marginals(domain(2, 3, 4, 20), 3), epsilon, neighbours=neighbours, accounting=accounting)
    stages = plan_tables(made).stages
    ledger = Ledger(made.budget)
    ledger.charge(*(stage.event for stage in stages))
    assert ledger.spent().epsilon == pytest.approx(epsilon, rel=1e-4)
    assert sum(stage.share for stage in stages) == pytest.approx(1)
    with pytest.raises(BudgetError):
        ledger.charge(stages[-1].event)


def test_each_stage_costs_its_share():
    made = task(marginals(domain(2, 5, 3), 3), epsilon=20.0, rows=10**6)
    rho = rho_of(epsilon=20.0, delta=1e-6)
    for stage in plan_tables(made).stages:
        assert float(stage.event.rho / rho) == pytest.approx(stage.share, rel=1e-3)


@pytest.mark.parametrize("neighbours", [*RELATIONS, PersonReplace(2)], ids=str)
def test_what_is_chosen_stays_within_its_stage_and_keeps_the_proportions(neighbours):
    made = task(marginals(domain(2, 3, 4, 20), 3), neighbours=neighbours)
    stage = plan_tables(made).stages[1]
    rng = np.random.default_rng(0)
    sets = [(0, 1), (0, 2), (1, 3), (0, 1, 2), (1, 2, 3)]
    for shares in rng.dirichlet(np.ones(5), 20):
        what = stage.chosen(dict(zip(sets, shares.tolist(), strict=True)), made.domain, neighbours)
        assert neighbours.sensitivity(what.bound()).l2_squared <= stage.squared
        for members, multiplier in zip(what.sets, what.multipliers, strict=True):
            part = multiplier**2 * squared_sensitivity(members, made.domain, neighbours) / stage.squared
            assert part == pytest.approx(shares[sets.index(members)], rel=0.01, abs=1e-5)
    assert stage.chosen({(0, 1): 1.0, (0, 2): 0.0}, made.domain, neighbours).sets == ((0, 1),)


def test_variances_are_those_of_the_shares_by_hand():
    made = task(marginals(domain(2, 5), 2))
    planned = plan_tables(made)
    what = planned.first.chosen(planned.ones, made.domain, made.budget.neighbours)
    variances = planned.first.variances(what)
    rho = float(rho_of(epsilon=1.0, delta=1e-6))
    ones = 0.5 / variances[0,] + 0.8 / variances[1,]
    assert 1 / (2 * variances[()] * rho) == pytest.approx(0.01, rel=0.01)
    assert ones / (2 * rho) == pytest.approx(planned.first.share - 0.01, rel=0.01)


def test_under_replacement_the_total_is_not_bought():
    planned = plan_tables(task(marginals(domain(2, 3), 2), neighbours=Neighbours.REPLACE))
    assert set(planned.ones) == {(0,), (1,)}
    assert () in plan_tables(task(marginals(domain(2, 3), 2))).ones


def test_a_total_that_was_measured_before_is_not_bought_again():
    workload = marginals(domain(2, 3), 2)
    table = Records.from_rows(workload.domain, np.zeros((300, 2), int))
    before = replace(task(workload), rows_variance=12.5)
    assert () not in plan_tables(before).ones
    curator = curator_of(table, before.budget)
    found, _ = measured(plan_tables(before), curator, before, PACE)
    assert found.total == 20_000
    assert found.variance[()] == 12.5


def test_constant_attributes_are_left_out():
    planned = plan_tables(task(marginals(domain(2, 1, 3), 2)))
    assert set(planned.ones) == {(), (0,), (2,)}
    assert planned.sets == ((0, 2),)
    assert planned.tables == ((0, 2),)
    with pytest.raises(DualQueryError, match="constant"):
        plan_tables(task(marginals(domain(1, 1), 2), neighbours=Neighbours.REPLACE))


def expected_of_order_three(made):
    return expectation(made, plan_tables(made)).count(3)


def test_more_budget_and_more_records_expect_no_less():
    workload = marginals(domain(2, 3, 4, 5, 6), 3)
    counts = [expected_of_order_three(task(workload, epsilon=e)) for e in (0.01, 0.1, 1, 10, 100)]
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] == 10
    counts = [expected_of_order_three(task(workload, rows=n)) for n in (100, 10_000, 1_000_000)]
    assert counts == sorted(counts)


def test_noise_halves_with_four_times_the_rho():
    workload = marginals(domain(4, 5, 6), 2)
    made = [task(workload, epsilon=e, rows=2000) for e in (0.1, 0.3)]
    one, two = (expectation(each, plan_tables(each)).cell_noise for each in made)
    rho = [float(rho_of(epsilon=e, delta=1e-6)) for e in (0.1, 0.3)]
    assert one / two == pytest.approx((rho[1] / rho[0]) ** 0.5, rel=0.03)


def test_scores_are_asked_for_where_they_are_clear_and_something_is_left_out():
    mixed = marginals(domain(8, 9, 12, 16, 16, 20), 3)
    stages = {e: len(plan_tables(task(mixed, epsilon=e, rows=30_000)).stages) for e in (1.0, 3.0, 30.0)}
    assert stages == {1.0: 3, 3.0: 5, 30.0: 3}  # too noisy, worth it, nothing left out
    assert len(plan_tables(task(mixed, epsilon=3.0, rows=300)).stages) == 3
    small = marginals(domain(2, 2, 2, 2), 3)
    assert len(plan_tables(task(small, epsilon=10.0, rows=30_000)).stages) == 3
    alone = marginals(domain(4, 5), 1)
    assert len(plan_tables(task(alone)).stages) == 1


def test_memory_limits_the_larger_sets():
    made = task(marginals(domain(4, 4, 4, 4, 4), 3))
    assert len(plan_tables(made).larger) == 10
    assert len(plan_tables(made, most_cells=130).larger) == 2
    assert not plan_tables(made, most_cells=130).complete
    assert cells_within(made, PACE, None) > cells_within(made, PACE, PACE.bytes(5, 0) + 5000) > 0
    assert cells_within(made, PACE, 1000) == 0


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
    monkeypatch.setattr(sharing, "MOST_SETS", 3)
    with pytest.raises(DualQueryError, match="different sets"):
        plan_tables(task(marginals(domain(2, 2, 2, 2), 2)))


def test_pure_accounting_is_refused():
    with pytest.raises(BudgetError, match="zcdp"):
        plan_tables(task(marginals(domain(2, 2), 2), accounting=Accounting.PURE))
