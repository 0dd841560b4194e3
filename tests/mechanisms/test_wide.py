"""Wide binary tables: structure is found and used, nothing is cut silently, and plans know what they do."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.measured import Measured
from dualquery.fitting.wide import (
    Centres,
    Mixture,
    Spectrum,
    consistent,
    latent_places,
    length_edges,
    matched,
    mixture_records,
    settled,
    spectrum_of,
    upper_quantile,
)
from dualquery.mechanisms.mechanism import Task, affordable
from dualquery.mechanisms.projection import PROJECTION
from dualquery.mechanisms.projection.baskets import LONG, ByItems, asks_about_pairs
from dualquery.mechanisms.projection.tables import ByTables
from dualquery.mechanisms.projection.wide import NOT_TOGETHER, UNASKED, ByClasses
from dualquery.mechanisms.shares import LEAST_SHARED_ROOM, shares_of
from dualquery.privacy.budget import Accounting, Budget, Neighbours, PersonAddRemove, PersonReplace
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_texts, marginals
from dualquery.queries.random_families import random_conjunctions, weighted_conjunctions
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent
from tests import house
from tests.house import curator_of

ADD_REMOVE = Neighbours.ADD_REMOVE
WIDTH, ROWS = 260, 4000


budget = partial(house.budget, delta=1e-4, neighbours=ADD_REMOVE)


def classes_of_rows(classes: int, width: int = WIDTH, rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(7)
    chances = rng.random((classes, width))
    return (rng.random((rows, width)) < chances[rng.integers(0, classes, rows)]).astype(np.uint8)


def factors_of_rows() -> np.ndarray:
    rng = np.random.default_rng(8)
    odds = rng.standard_normal(WIDTH) + rng.standard_normal((ROWS, 2)) @ rng.standard_normal((2, WIDTH))
    return (rng.random((ROWS, WIDTH)) < 1 / (1 + np.exp(-odds))).astype(np.uint8)


def block(width: int = WIDTH) -> Domain:
    return Domain((Items("item", width),))


def asked(domain: Domain, queries: int = 25_000) -> Workload:
    return random_conjunctions(domain, 3, queries, seed=1)


def play(rows: np.ndarray, limits: Budget, *, domain: Domain | None = None, workload=None, seed=0, **options):
    domain = block(rows.shape[1]) if domain is None else domain
    records = Records.from_rows(domain, rows)
    workload = asked(domain) if workload is None else workload
    options.setdefault("synthetic_rows", 6000)
    plan = PROJECTION.plan_for(Task(workload, len(rows), limits), options)
    ledger = Ledger(limits)
    curator = curator_of(records, ledger, seed=seed)
    outcome = PROJECTION.run(plan, curator, np.random.default_rng(seed), silent)
    error = np.abs(workload.fractions(outcome.artefact.records) - workload.fractions(records))
    return plan, outcome.artefact.records, ledger, error


def of_the_product(rows: np.ndarray) -> float:
    """The mean error of independent attributes with the true fractions."""
    domain = block(rows.shape[1])
    alone = Mixture(
        np.arange(rows.shape[1]),
        np.ones(1),
        rows.mean(axis=0, keepdims=True).T.astype(np.float32),
    )
    made = mixture_records(domain, alone, alone.rows(6000, np.random.default_rng(0)))
    workload = asked(domain)
    return float(
        np.abs(workload.fractions(made) - workload.fractions(Records.from_rows(domain, rows))).mean()
    )


# ── Releases ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_classes_are_found_and_every_attribute_follows_them() -> None:
    rows = classes_of_rows(3)
    plan, made, ledger, error = play(rows, budget(3.0, accounting=Accounting.GAUSSIAN))
    assert isinstance(plan.parameters, ByClasses)
    assert error.mean() < of_the_product(rows) / 4
    assert plan.mean_error / 2.5 < error.mean() < plan.mean_error * 2.5
    assert error.max() < plan.max_error * 2
    assert ledger.spent().epsilon == pytest.approx(3.0, rel=1e-3)
    assert made.rows == 6000
    # and questions that were not asked are answered as well
    outside = Workload(made.domain, marginals(made.domain, 1).groups, "held out")
    truth = Records.from_rows(made.domain, rows)
    assert np.abs(outside.fractions(made) - outside.fractions(truth)).mean() < 1.3 * error.mean()


def test_attributes_that_follow_factors_are_matched_to_them() -> None:
    rows = factors_of_rows()
    _, _, _, error = play(rows, budget(6.0))
    assert error.mean() < of_the_product(rows) / 4


def test_independent_attributes_cost_no_more_than_their_totals() -> None:
    rows = classes_of_rows(1)
    _, _, _, error = play(rows, budget(3.0))
    assert error.mean() < 1.5 * of_the_product(rows)


def test_a_dense_block_is_never_cut() -> None:
    """The fault that was: any wide block was taken for baskets, and a record cut at 20 items."""
    rows = classes_of_rows(2)
    _, made, _, _ = play(rows, budget())
    assert made.to_rows().sum(axis=1).mean() == pytest.approx(rows.sum(axis=1).mean(), rel=0.03)


def sparse_rows(width: int = 400, rows: int = ROWS) -> np.ndarray:
    rng = np.random.default_rng(9)
    held = rng.random((rows, width)) < np.minimum(0.5, 2 / np.arange(2, width + 2))
    held[:, 1] = np.where(rng.random(rows) < 0.9, held[:, 0], held[:, 1])
    return held.astype(np.uint8)


def test_a_sparse_block_is_found_to_be_one() -> None:
    rows = sparse_rows()
    workload = weighted_conjunctions(block(400), 3, 25_000, 1, rows.sum(axis=0))
    plan, made, ledger, error = play(rows, budget(2.0), workload=workload)
    assert any("0.5% of the budget" in note for note in plan.notes)
    held = made.to_rows()
    assert held[:, :2].all(axis=1).mean() == pytest.approx(rows[:, :2].all(axis=1).mean(), abs=0.05)
    assert error.mean() < 0.006
    assert ledger.spent().epsilon == pytest.approx(2.0, rel=1e-3)
    assert affordable(plan.task.budget, plan.steps)


def test_declared_baskets_are_taken_as_declared() -> None:
    rows = sparse_rows()
    plan, _, ledger, _ = play(rows, budget(2.0), items_per_record=12)
    assert isinstance(plan.parameters, ByItems)
    assert plan.parameters.items_per_record == 12
    assert len(ledger.events) == len(plan.steps) == 4


def test_rare_items_asked_one_by_one_are_counted_alone() -> None:
    domain = block(9000)
    rng = np.random.default_rng(1)
    uniform = random_conjunctions(domain, 3, 25_000, seed=1)
    popular = weighted_conjunctions(domain, 3, 25_000, 1, 1 / np.arange(1, 9001) ** 1.5)
    assert not asks_about_pairs(uniform)
    assert asks_about_pairs(popular)
    rows = (rng.random((2000, 9000)) < 0.0007).astype(np.uint8)
    plan, _, ledger, error = play(rows, budget(), workload=uniform, items_per_record=20)
    assert plan.parameters.measured == "items"
    assert "alone" in plan.reason
    assert len(ledger.events) == 2
    assert error.mean() < 0.003


@pytest.mark.parametrize(
    ("neighbours", "epsilon"),
    [(Neighbours.REPLACE, 2.0), (PersonAddRemove(40), 0.01), (PersonReplace(2), 2.0), (ADD_REMOVE, 0.01)],
    ids=str,
)
def test_every_relation_and_small_budgets_get_through(neighbours: Neighbours, epsilon: float) -> None:
    rows = classes_of_rows(3, rows=600)
    plan, made, ledger, _ = play(rows, budget(epsilon, neighbours=neighbours), synthetic_rows=500)
    assert made.rows == 500
    assert ledger.spent().epsilon <= epsilon
    assert len(ledger.events) == len(plan.steps)


def test_two_values_in_columns_are_as_good_as_a_block() -> None:
    columns = tuple(Categorical(f"c{j}", ("no", "yes")) for j in range(WIDTH - 100))
    domain = Domain((*columns, Items("item", 100)))
    rows = classes_of_rows(3)
    plan, made, _, error = play(rows, budget(3.0), domain=domain)
    assert "held" not in plan.parameters.shares.stages
    assert made.domain == domain
    assert error.mean() < of_the_product(rows) / 4


@pytest.mark.parametrize("width", [WIDTH, 600])
def test_where_few_attributes_are_asked_about_only_these_are_measured(width: int) -> None:
    rows = classes_of_rows(2, width)
    workload = from_texts(block(width), list(asked(block(210)).texts()))
    plan, made, _, error = play(rows, budget(3.0), workload=workload)
    few = width > 2 * 210
    assert (UNASKED in plan.notes) is few
    assert plan.parameters.attributes == (210 if few else width)
    assert made.to_rows()[:, :210].any(axis=0).all()
    assert made.to_rows()[:, 210:].any() == (not few)
    assert error.mean() < 0.02


def test_the_same_seed_gives_the_same_rows() -> None:
    rows = classes_of_rows(3, rows=1000)
    one, two = (play(rows, budget(), seed=4)[1].to_rows() for _ in range(2))
    assert (one == two).all()


# ── Plans ───────────────────────────────────────────────────────────────────────────────────────────────────────


def planned(domain: Domain, workload: Workload, limits: Budget, rows: int = 100_000, **options):
    return PROJECTION.plan_for(Task(workload, rows, limits), options)


def test_few_sets_are_measured_as_tables() -> None:
    domain = block(300)
    few = from_texts(domain, [f"item[{j}]=1 & item[{j + 1}]=1" for j in range(1, 40)])
    assert isinstance(planned(domain, few, budget()).parameters, ByTables)
    assert isinstance(planned(domain, asked(domain), budget()).parameters, ByClasses)
    with pytest.raises(DualQueryError, match="items-per-record"):
        planned(
            Domain((*block(300).columns, Categorical("a", ("x", "y")))),
            few_of(300),
            budget(),
            items_per_record=3,
        )


def few_of(width: int) -> Workload:
    domain = Domain((*block(width).columns, Categorical("a", ("x", "y"))))
    return random_conjunctions(domain, 3, 25_000, seed=0)


def test_a_plan_says_where_plain_noise_would_do_better() -> None:
    domain = block(30_000)
    few = random_conjunctions(domain, 3, 50, seed=0)
    plan = planned(domain, few, budget())
    assert any("--mechanism gaussian" in note for note in plan.notes)
    assert not any(
        "--mechanism gaussian" in note for note in planned(block(), asked(block()), budget()).notes
    )


def test_plans_for_baskets_say_what_else_would_do() -> None:
    domain = block(5000)
    few, many = (random_conjunctions(domain, 3, number, seed=0) for number in (100, 30_000))
    declared = [planned(domain, workload, budget(), items_per_record=20).notes for workload in (few, many)]
    assert [any("--mechanism gaussian" in note for note in notes) for notes in declared] == [True, False]
    popular = weighted_conjunctions(domain, 3, 30_000, 1, 1 / np.arange(1, 5001) ** 1.5)
    for workload, words in ((many, NOT_TOGETHER), (popular, "items and their pairs are measured")):
        (note,) = (note for note in planned(domain, workload, budget()).notes if "--items-per-record" in note)
        assert words in note


def test_the_widest_tables_are_planned_within_memory() -> None:
    domain = block(512_000)
    plan = planned(domain, random_conjunctions(domain, 3, 100_000, seed=1), budget())
    assert plan.parameters.attributes < 240_000
    assert plan.parameters.effort.rows < 40_000
    assert any("--synthetic-rows" in note for note in plan.notes)
    with pytest.raises(DualQueryError, match="--memory"):
        planned(block(), asked(block()), budget(), memory=10_000_000)


NAMED = {name: f"measure {name}" for name in ("all", "little", "one", "two")}


def test_a_tiny_budget_is_refused() -> None:
    with pytest.raises(BudgetError, match="too small"):
        shares_of(budget(1e-7), {"all": 1.0, "little": 0.001}, NAMED)


def test_shares_meet_the_budget_and_leave_room() -> None:
    limits = budget()
    shares = shares_of(limits, {"one": 0.25, "two": 0.75}, NAMED)
    one, two = (float(shares.stages[name].noise.variance) for name in ("one", "two"))
    assert one == pytest.approx(3 * two)
    assert affordable(limits, shares.steps())
    assert shares.deviation(4.0, "one") == pytest.approx(2 * shares.deviation(1.0, "one"))
    assert shares_of(budget(0.003), {"all": 1.0}, NAMED).room >= LEAST_SHARED_ROOM


# ── What noisy moments say ──────────────────────────────────────────────────────────────────────────────────────


def test_the_tail_of_lengths_is_found_from_above() -> None:
    edges = np.array([10, 20, 30, 40])
    assert upper_quantile(np.array([50.0, 40.0, 9.0, 1.0, 0.0]), 0.0, edges, 100, 0.02) == 30
    assert upper_quantile(np.array([50.0, 40.0, 9.0, 1.0, 0.0]), 0.0, edges, 100, 0.5) == 10
    assert upper_quantile(np.array([0.0, 0.0, 0.0, 0.0, 100.0]), 0.0, edges, 100, 0.02) is None
    # noise alone is not believed
    assert upper_quantile(np.array([90.0, 0.0, 3.0, 2.0, 4.0]), 10.0, edges, 90, 0.02) == 10
    # nor where the walk of its sums comes back above its deviation, far beyond the longest record
    assert upper_quantile(np.array([90.0, 0.0, -9.0, 6.0, 12.0]), 10.0, edges, 90, 0.02) == 10
    assert length_edges(3.0, 2).tolist() == [1]
    assert (np.diff(length_edges(1000.0, 10**6)) > 0).all()


def test_a_spectrum_is_what_stands_out_of_the_noise() -> None:
    rng = np.random.default_rng(0)
    m, n = 120, 20_000
    direction = rng.standard_normal((m, 2))
    direction = np.linalg.qr(direction)[0]
    truth = 4 * np.outer(direction[:, 0], direction[:, 0]) + 2 * np.outer(direction[:, 1], direction[:, 1])
    above = np.triu_indices(m, 1)
    noisy = truth[above] + 0.02 * rng.standard_normal(len(above[0]))
    found = spectrum_of(noisy, 0.02, np.full(m, 0.2), n)
    assert found.axes == 2
    assert found.strengths == pytest.approx([4, 2], rel=0.15)
    assert abs(found.directions[:, 0] @ direction[:, 0]) > 0.97
    assert spectrum_of(0.02 * rng.standard_normal(len(above[0])), 0.02, np.full(m, 0.2), n).axes == 0


def test_centres_that_noise_alone_sets_apart_are_one() -> None:
    places = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0], [9.0, 9.0]])
    centres = Centres(
        places, np.array([500.0, 400.0, 450.0, 3.0]), 0.0, count_noise=5.0, sum_noise=30.0, square_noise=0.0
    )
    assert sorted(centres.merged(4.0, np.array([0.01, 0.01])).tolist()) == [0, 2]
    again = centres.reseeded(4.0, np.ones(2), np.random.default_rng(0))
    assert (again[:3] == places[:3]).all()
    assert (again[3] != places[3]).any()


def test_class_means_agree_with_the_totals() -> None:
    rng = np.random.default_rng(0)
    shares = np.array([0.2, 0.3, 0.5])
    truth = rng.random((3, 4000))
    noise = np.array([0.1, 0.08, 0.05])
    means = Measured("means", truth + noise[:, None] * rng.standard_normal(truth.shape), noise**2)
    total = Measured("total", shares @ truth + 0.001 * rng.standard_normal(4000), np.asarray(1e-6))
    made = consistent(shares, means, total)
    assert np.sqrt(np.mean((shares @ made - shares @ truth) ** 2)) < 0.006  # clipping at 0 and 1 aside
    assert np.mean((made - truth) ** 2) < np.mean((means.values - truth) ** 2)
    drowned = settled(Measured("ones", 0.4 + 3 * rng.standard_normal(500), np.asarray(9.0)))
    assert drowned.std() < 1.0


def test_attributes_are_matched_to_means_and_covariances() -> None:
    rng = np.random.default_rng(0)
    spectrum = Spectrum(np.array([4.0, 1.0]), np.eye(5)[:, :2])
    centres = Centres(rng.standard_normal((6, 2)), np.full(6, 100.0), 0.0, 1.0, 1.0, 0.0)
    t = latent_places(spectrum, centres, 500, rng)
    assert t.mean(axis=0) == pytest.approx([0, 0], abs=1e-9)
    assert t.T @ t / 500 == pytest.approx(np.diag([2.0, 1.0]), abs=1e-9)
    odds = rng.standard_normal((30, 1)) + rng.standard_normal((30, 2)) @ t.T
    truth = 1 / (1 + np.exp(-odds))
    found = matched(truth.mean(axis=1), truth @ t / 500, t)
    assert np.abs(found - truth).max() < 0.02


def test_rows_of_a_mixture_meet_its_totals_and_no_attribute_copies_another() -> None:
    rng = np.random.default_rng(0)
    shares, means = np.array([0.25, 0.75]), rng.random((220, 2)).astype(np.float32)
    mixture = Mixture(np.arange(220), shares, means)
    made = mixture_records(block(220), mixture, mixture.rows(10_001, rng))
    assert made.rows == 10_001
    held = made.to_rows().astype(float)
    assert np.abs(held.mean(axis=0) - means @ shares).max() < 0.003
    within = means - (means @ shares)[:, None]
    covariance = (within * shares) @ within.T
    found = np.cov(held.T)
    off = ~np.eye(220, dtype=bool)
    assert np.abs((found - covariance)[off]).max() < 6 * 0.25 / np.sqrt(10_001)


def test_lengths_decide_between_baskets_and_classes() -> None:
    rng = np.random.default_rng(0)
    for items, sparse in ((LONG - 15, True), (LONG + 15, False)):
        rows = (rng.random((3000, 500)) < items / 500).astype(np.uint8)
        _, made, _, _ = play(rows, budget(2.0), workload=asked(block(500)))
        is_lists = type(made.columns[0]).__name__ == "SparseItems"
        assert is_lists is sparse
