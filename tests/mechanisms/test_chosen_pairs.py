"""Small tables and many columns: the rule, the stages, the gate and the choice."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.fitter import Effort
from dualquery.fitting.measured import MeasuredTables
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.shrink import points, shrunk
from dualquery.mechanisms.mechanism import Task, shown
from dualquery.mechanisms.projection import PROJECTION
from dualquery.mechanisms.projection.small import (
    FAINT,
    SHARE_OF_TEST,
    ByChosenPairs,
    Misfit,
    PairRule,
    best_pairs,
    cautious,
    denoised,
    error_of_ones,
    expected_counts,
    gain_of_pairs,
    null_misfit,
    plan_chosen_pairs,
)
from dualquery.mechanisms.projection.tables import ByTables
from dualquery.mechanisms.shares import known_at_first, relative_sensitivity, unit_variance
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours, person_relations
from dualquery.privacy.ledger import Ledger
from dualquery.queries.derived import Misfits, misfit_bound
from dualquery.queries.families import from_texts, marginals
from dualquery.queries.tables import Tables, centred
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from dualquery.types import silent
from tests.house import curator_of

KINDS = (*RELATIONS, *person_relations(2))


def domain(*sizes: int) -> Domain:
    return Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))


def budget_of(
    epsilon: float = 1.0,
    neighbours: Neighbours = Neighbours.ADD_REMOVE,
    accounting: Accounting = Accounting.GAUSSIAN,
) -> Budget:
    return Budget(epsilon=epsilon, delta=1e-6, neighbours=neighbours, accounting=accounting)


def task_of(sizes: tuple[int, ...], rows: int, budget: Budget | None = None, order: int = 2) -> Task:
    return Task(marginals(domain(*sizes), order), rows, budget or budget_of())


def independent(columns: int, values: int, rows: int, seed: int) -> Records:
    rng = np.random.default_rng(seed)
    laws = rng.dirichlet(np.ones(values), columns)
    return Records.from_rows(
        domain(*[values] * columns), np.column_stack([rng.choice(values, rows, p=law) for law in laws])
    )


def in_twos(columns: int, values: int, rows: int, seed: int) -> Records:
    """Columns 0 and 1 say the same, and so do 2 and 3, and so on, nine times out of ten."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, values, (rows, columns))
    same = rng.random((rows, columns)) < 0.9
    drawn[:, 1::2] = np.where(same[:, 1::2], drawn[:, 0::2], drawn[:, 1::2])
    return Records.from_rows(domain(*[values] * columns), drawn)


def classes(columns: int, values: int, rows: int, seed: int, number: int = 4) -> Records:
    """Columns that follow a hidden class, so that all depend on each other."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, number, rows)
    laws = rng.dirichlet(np.full(values, 0.4), (columns, number))
    edges = np.cumsum(laws, axis=2)[:, hidden]
    drawn = (rng.random((columns, rows, 1)) > edges).sum(axis=2).T
    return Records.from_rows(domain(*[values] * columns), np.minimum(drawn, values - 1))


def mean_l1(records: Records, released: Records, order: int = 2) -> float:
    sets = tuple(combinations(range(records.domain.width), order))
    tables = Tables(records.domain, sets)
    error = np.abs(tables.counts(released) / released.rows - tables.counts(records) / records.rows)
    return float(np.add.reduceat(error, tables.starts[:-1]).mean())


def play(records: Records, *, seed: int = 0, rows: int = 12_000, order: int = 2, **budget):
    task = Task(marginals(records.domain, order), records.rows, budget_of(**budget))
    plan = PROJECTION.plan_for(task, {"synthetic_rows": rows})
    ledger = Ledger(task.budget)
    curator = curator_of(records, ledger, seed=seed)
    outcome = PROJECTION.run(plan, curator, np.random.default_rng(seed), silent)
    return plan, outcome.artefact.records, ledger


# ── The rule ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_rule_by_hand():
    task = task_of((5,) * 12, 1000)
    rule = PairRule.of(task)
    v = unit_variance(task.budget)
    precision = 1000 / math.sqrt(v * 12) * 115 / 16
    assert rule.precision == pytest.approx(precision)
    assert rule.chosen == round(12 * (precision / 100) ** 0.75)
    assert rule.shares() == pytest.approx((1 / (1 + precision / 400), 0.07))


@pytest.mark.parametrize(
    ("sizes", "rows", "some"),
    [
        ((2,) * 16, 500, False),  # few cells: all pairs are known well
        ((8,) * 15, 100_000, False),  # many records
        ((8,) * 15, 1000, True),
        ((2, 3, 5, 8) * 20, 3000, True),
        ((300, 200), 100, True),
        ((7, 5), 3000, False),
    ],
)
def test_some_pairs_are_chosen_where_records_are_few(sizes, rows, some):
    task = task_of(sizes, rows)
    assert PairRule.of(task).applies is some
    plan = PROJECTION.plan_for(task, {})
    assert isinstance(plan.parameters, ByChosenPairs if some else ByTables)


def test_all_pairs_are_measured_however_few_the_records_where_that_is_asked_for():
    task = task_of((8,) * 15, 1000)
    plan = PROJECTION.plan_for(task, {"shares": "pairs"})
    assert isinstance(plan.parameters, ByTables)
    assert plan.parameters.sets == 15 + 105


def test_with_a_prior_the_stage_of_misfits_has_room_for_pairs():
    """And misfits, multiplied, stay within what was paid for; they are told as exactly as without a prior."""
    rows = PublicRows.of(np.zeros((50, 4), np.int32))
    plain, task = (replace(task_of((3, 20, 7, 9), 200), prior=prior) for prior in (None, rows))
    rule = PairRule.of(task)
    ways = planned(plain, rule), planned(task, rule)
    moved = task.budget.neighbours.sensitivity(misfit_bound([1] * len(rule.pairs))).l2_squared
    deviations = []
    for way, each in zip(ways, (plain, task), strict=True):
        second = way.stages[1]
        times = way._times(each, second)
        assert times**2 * moved <= second.squared
        deviations.append(second.noise.deviation / times)
    assert ways[0]._times(plain, ways[0].stages[1]) == 1
    assert deviations[1] == pytest.approx(deviations[0] / math.sqrt(1 - SHARE_OF_TEST), rel=0.01)
    every = dict.fromkeys(rule.pairs, 1.0)
    what = ways[1].stages[1].chosen(every, task.domain, task.budget.neighbours)
    assert set(what.sets) == set(rule.pairs)


def test_workloads_without_pairs_have_nothing_to_choose():
    assert not PairRule.of(task_of((50,) * 30, 100, order=1)).applies


def test_only_pairs_of_the_workload_are_candidates():
    workload = from_texts(domain(9, 9, 9, 9), ["a0 = 1 & a1 = 2", "a1 = 3 & a3 = 1 & a0 = 2"])
    assert PairRule.of(Task(workload, 50, budget_of())).pairs == [(0, 1), (0, 3), (1, 3)]


def test_who_protects_more_measures_more_of_the_one_way_tables():
    shares = [PairRule.of(task_of((6,) * 10, 2000, budget_of(neighbours=n))).shares()[0] for n in KINDS]
    replaced, added, person_added, _ = shares
    assert added < replaced < person_added


def test_an_accounting_without_gaussian_noise_is_refused():
    pure = Budget(epsilon=1, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE)
    with pytest.raises(BudgetError, match="Gaussian"):
        PairRule.of(task_of((8,) * 15, 1000, pure))


def planned(task: Task, rule: PairRule) -> ByChosenPairs:
    """The way, as it is planned."""
    return plan_chosen_pairs(task, rule, ProjectionWishes(), Effort.of(600)).parameters


# ── The stages ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("neighbours", KINDS, ids=str)
@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN])
def test_the_stages_spend_the_budget_and_a_ledger_accepts_them(neighbours, accounting):
    task = task_of((3, 20, 7, 9), 200, budget_of(neighbours=neighbours, accounting=accounting))
    rule = PairRule.of(task)
    events = [stage.event for stage in planned(task, rule).stages]
    ledger = Ledger(task.budget)
    ledger.charge(*events)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-3)
    with pytest.raises(BudgetError):
        ledger.charge(events[1])
    prices = [float(event.sensitivity_squared / event.variance) for event in events]
    ones, misfits = rule.shares()
    wanted = np.array([ones, misfits, 1 - ones - misfits])
    assert np.array(prices) / sum(prices) == pytest.approx(wanted, rel=1e-2)


@pytest.mark.parametrize("neighbours", KINDS, ids=str)
def test_whatever_is_chosen_stays_within_what_was_paid_for(neighbours):
    task = task_of((3, 20, 7, 9, 16), 200, budget_of(neighbours=neighbours))
    rule = PairRule.of(task)
    way = planned(task, rule)
    _, second, last = way.stages
    rng = np.random.default_rng(0)
    sets = [*rule.ones, *rule.pairs]
    for _ in range(200):
        some = [sets[i] for i in rng.choice(len(sets), rng.integers(1, len(sets)), replace=False)]
        parts = rng.dirichlet(np.full(len(some), 0.3))
        what = last.chosen(dict(zip(some, parts.tolist(), strict=True)), task.domain, neighbours)
        assert neighbours.sensitivity(what.bound()).l2_squared <= last.squared
    equal = {s: relative_sensitivity(s, task.domain, neighbours) for s in rule.pairs}
    used = neighbours.sensitivity(last.chosen(equal, task.domain, neighbours).bound()).l2_squared
    assert used > 0.97 * last.squared
    none = np.zeros(way.candidates.size, np.int64)
    asked = Misfits(way.candidates, none, np.zeros(len(rule.pairs), np.int64))
    assert neighbours.sensitivity(asked.bound()).l2_squared == second.squared


def test_tiny_budgets_have_coarse_shares_and_hopeless_ones_are_refused():
    task = task_of((8,) * 15, 1000, budget_of(epsilon=1e-5, accounting=Accounting.ZCDP))
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 50})
    assert "budget is so small" in plan.notes[0]
    with pytest.raises(BudgetError):
        PROJECTION.plan_for(task_of((8,) * 15, 1000, budget_of(epsilon=1e-9, accounting=Accounting.ZCDP)), {})


def test_the_number_of_records_is_taken_a_little_lower_than_measured():
    assert cautious(MeasuredTables(domain(2), {(): np.array(100.0)}, {(): 16.0}, 100.0)).total == 98.0
    assert cautious(MeasuredTables(domain(2), {(): np.array(-7.0)}, {(): 16.0}, 100.0)).total == 1.0


# ── What the noisy numbers say ──────────────────────────────────────────────────────────────────────────────────


def test_posterior_means_are_nearer_to_the_truth():
    rng = np.random.default_rng(0)
    truth = np.where(rng.random(600) < 0.9, 0.0, 8.0)
    noisy = truth + rng.normal(size=600)
    better = shrunk(noisy, 1.0, points(np.linspace(-4, 12, 100)), steps=10)
    assert np.abs(better - truth).mean() < 0.5 * np.abs(noisy - truth).mean()


def test_one_way_tables_of_rare_values_are_denoised_together():
    rng = np.random.default_rng(1)
    sizes, rows, spread = (10,) * 30, 1000.0, 30.0
    interactions, variance, truth = {(): np.array(rows)}, {(): 0.0}, []
    for j, size in enumerate(sizes):
        fractions = np.zeros(size)
        fractions[j % size] = 1.0
        truth.append(fractions)
        interactions[(j,)] = centred(rows * fractions + rng.normal(0, spread, size))
        variance[(j,)] = spread**2
    measured = MeasuredTables(domain(*sizes), interactions, variance, rows)
    better = denoised(measured)
    errors = [
        np.mean([np.abs(each.ones()[j] - truth[j]).sum() for j in range(len(sizes))])
        for each in (measured, better)
    ]
    assert errors[1] < 0.6 * errors[0]
    for table in better.ones().values():
        assert table.sum() == pytest.approx(1)
        assert table.min() >= 0
    assert better.total == measured.total


def test_a_misfit_is_what_exceeds_chance():
    ones = {0: np.array([0.5, 0.5]), 1: np.array([0.25, 0.75])}
    expected = expected_counts(ones, [(0, 1)], 80.0)
    assert expected == pytest.approx([10, 30, 10, 30])
    chance = 0.8 * 2 * (math.sqrt(10) + math.sqrt(30))
    assert null_misfit(ones, {0: 0.0, 1: 0.0}, [(0, 1)], 80.0) == pytest.approx([chance])
    assert null_misfit(ones, {0: 0.1, 1: 0.1}, [(0, 1)], 80.0)[0] > chance
    assert error_of_ones(ones, {0: 0.02, 1: 0.02}) > error_of_ones(ones, {0: 0.01, 1: 0.01})


def test_the_gate_weighs_gain_against_cost():
    noisy, noise = np.array([900.0, 800.0, *[0.0] * 28]), np.full(30, 100.0)
    misfit = Misfit.of(noisy, np.zeros(30), 50.0, 1000.0)
    best = best_pairs(misfit, 2, noise)
    assert best.tolist() == [0, 1]
    assert 0.04 < gain_of_pairs(misfit, best, noise, 1000.0) < 1700 / 30 / 1000
    assert gain_of_pairs(misfit, best, 30 * noise, 1000.0) <= 0.01
    assert gain_of_pairs(misfit, np.array([7, 8]), noise, 1000.0) <= 0.01


def test_a_misfit_is_likely_what_its_law_says():
    """The posterior mean by hand, on a grid a hundred times finer."""
    excess, deviation, total = np.array([500.0, 90.0, 40.0, 10.0]), 60.0, 1000.0
    tau = excess.mean() - deviation / 2
    levels = np.linspace(0, 1200, 40_001)
    law = 0.9 * np.exp(-levels / tau) / np.exp(-levels / tau).sum() + 0.1 / len(levels)
    weight = law * np.exp(-0.5 * ((excess[:, None] - levels) / deviation) ** 2)
    by_hand = (weight * levels).sum(axis=1) / weight.sum(axis=1)
    assert Misfit.of(excess, np.zeros(4), deviation, total).likely == pytest.approx(by_hand, abs=2)


def test_noise_as_large_as_the_table_opens_no_gate():
    """Misfits of independent attributes, with noise of a third of the records: the old law followed it."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        misfit = Misfit.of(rng.normal(0, 300, 28), np.zeros(28), 300.0, 1000.0)
        assert misfit.likely.mean() < 120


def test_where_all_pairs_would_be_noise_few_are_measured():
    """Large tables of few columns: by the number of pairs all would be measured, whatever the noise."""
    sizes, faint = (16, 2, 20, 11), budget_of(0.1)
    rule, clear = PairRule.of(task_of(sizes, 20_000, faint)), PairRule.of(task_of(sizes, 2_000_000, faint))
    assert rule.applies
    assert rule.drowned > FAINT > clear.drowned
    assert not clear.applies
    assert rule.shares()[0] >= 0.35
    unit, cells, free = unit_variance(faint), [32, 320, 176, 40, 22, 220], [15, 285, 150, 19, 10, 190]
    made = domain(*sizes)
    moved = sum(relative_sensitivity(s, made, faint.neighbours) for s in combinations(range(4), 2))
    by_hand = 0.8 * np.mean(np.sqrt(unit * moved / 0.81 * np.array(cells) * np.array(free))) / 20_000
    assert rule.drowned == pytest.approx(by_hand)


def test_a_pair_that_would_be_noisy_is_passed_over():
    misfit = Misfit.of(np.array([500.0, 480.0, 10.0]), np.zeros(3), 1.0, 1000.0)
    assert best_pairs(misfit, 1, np.array([900.0, 10.0, 10.0])).tolist() == [1]


# ── The way, end to end ─────────────────────────────────────────────────────────────────────────────────────────


def decided(records: Records, monkeypatch: pytest.MonkeyPatch, **options) -> dict[tuple[int, ...], float]:
    """What was wanted after the first two stages."""
    seen: list[dict[tuple[int, ...], float]] = []
    wanted = ByChosenPairs.wanted
    monkeypatch.setattr(
        ByChosenPairs, "wanted", lambda *arguments: seen.append(wanted(*arguments)) or seen[-1]
    )
    play(records, rows=300, **options)
    return seen[0]  # others are of replicas


@pytest.mark.parametrize("seed", range(3))
def test_independent_attributes_are_left_alone(seed, monkeypatch):
    chosen = decided(independent(12, 6, 800, seed), monkeypatch, seed=seed)
    assert {len(members) for members in chosen} <= {0, 1}


@pytest.mark.parametrize("seed", range(3))
def test_pairs_that_depend_on_each_other_are_found(seed, monkeypatch):
    chosen = decided(in_twos(12, 6, 800, seed), monkeypatch, seed=seed)
    assert {len(members) for members in chosen} == {2}
    assert sum((j, j + 1) in chosen for j in range(0, 12, 2)) >= 5
    assert sum(chosen.values()) == pytest.approx(1)


@pytest.mark.parametrize("neighbours", KINDS, ids=str)
def test_the_ledger_has_what_the_plan_said(neighbours):
    plan, released, ledger = play(in_twos(8, 6, 500, 1), rows=700, neighbours=neighbours)
    assert isinstance(plan.parameters, ByChosenPairs)
    assert ledger.events == tuple(step.event for step in plan.steps)
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-3)
    assert released.rows == 700


def test_it_is_better_than_one_way_tables_where_some_pairs_matter():
    records = in_twos(12, 6, 1000, 2)
    plan, released, _ = play(records)
    _, alone, _ = play(records, order=1)
    assert mean_l1(records, released) < 0.85 * mean_l1(records, alone)
    tables = marginals(records.domain, 2)
    error = np.abs(tables.fractions(released) - tables.fractions(records))
    assert error.mean() < 2.5 * plan.mean_error


@pytest.mark.parametrize("order", [2, 3])
def test_it_is_no_worse_than_one_way_tables_where_none_do(order):
    records = independent(12, 6, 500, 4)
    ratios = []
    for seed in range(3):
        _, released, _ = play(records, seed=seed, order=order)
        _, alone, _ = play(records, seed=seed, order=1)
        ratios.append(mean_l1(records, released) / mean_l1(records, alone))
    assert np.mean(ratios) < 1.08


def test_the_same_seed_gives_the_same_rows():
    records = in_twos(8, 6, 500, 1)
    first, again, other = (play(records, seed=s, rows=600)[1].to_rows() for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_the_plan_says_which_way_it_goes_and_why():
    plan = PROJECTION.plan_for(task_of((8,) * 15, 1000), {})
    assert "1,000 records are few for 105 pairs of attributes" in plan.reason
    assert "the strongest are measured with the rest" in plan.reason
    assert shown(plan.parameters)["measured"] == "one-way tables, then chosen pairs"
    assert [step.words.split()[0] for step in plan.steps] == ["measure"] * 3
    assert 0 < plan.mean_error < plan.max_error <= 1
    wide = PROJECTION.plan_for(task_of((2, 3, 5, 8) * 20, 3000), {})
    assert wide.seconds < 60


def test_what_does_not_fit_is_said():
    with pytest.raises(DualQueryError, match="a0 × a1"):
        PROJECTION.plan_for(task_of((300, 200, 2), 100), {"memory": 1_000_000})


def test_a_total_that_was_measured_before_is_joined_with_another():
    records = in_twos(8, 6, 500, 1)
    task = Task(marginals(records.domain, 2), 480, budget_of(), rows_variance=400.0)
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 100})
    ledger = Ledger(task.budget)
    way = plan.parameters
    curator = curator_of(records, ledger)
    first = way.stages[0]
    what = first.chosen(way.ones, task.domain, task.budget.neighbours)
    known = cautious(known_at_first(task, first.measured(curator, curator.allow(first.event)[0], what)))
    assert known.variance[()] < 400.0
    assert 400 < known.total < 560
