"""Projection end to end: better with budget, honest about its error, at home in awkward domains."""

import numpy as np
import pytest

from dualquery.errors import DualQueryError
from dualquery.fitting import fitter
from dualquery.fitting.fitter import Effort
from dualquery.fitting.measured import cell_variance, onto_simplex
from dualquery.fitting.shrink import multiples
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.mechanisms.projection.baskets import plan_baskets
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import marginals
from dualquery.queries.random_families import random_conjunctions
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records, SparseItems
from dualquery.types import silent
from tests.house import curator_of


def domain(*sizes):
    return Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))


def related_table(sizes, rows, seed):
    """A hidden class of three, and attributes that follow it more or less."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 3, rows)
    columns = []
    for k in sizes:
        laws = rng.dirichlet(np.full(k, 0.5), 3)
        edges = np.cumsum(laws, axis=1)[hidden]
        columns.append(np.minimum((rng.random(rows)[:, None] > edges).sum(axis=1), k - 1))
    return Records.from_rows(domain(*sizes), np.column_stack(columns))


def play(
    records,
    workload,
    *,
    epsilon=1.0,
    neighbours=Neighbours.ADD_REMOVE,
    seed=0,
    mechanism=PROJECTION,
    **options,
):
    budget = Budget(epsilon=epsilon, delta=1e-6, neighbours=neighbours, accounting=Accounting.ZCDP)
    options.setdefault("synthetic_rows", 6000)
    plan = mechanism.plan_for(Task(workload, records.rows, budget), options)
    ledger = Ledger(budget)
    curator = curator_of(records, ledger, seed=seed)
    outcome = mechanism.run(plan, curator, np.random.default_rng(seed), silent)
    return plan, outcome, ledger


def errors(records, outcome, workload):
    return workload.fractions(outcome.artefact.records) - workload.fractions(records)


SIZES = (4, 6, 2, 9, 3, 2)
TABLE = related_table(SIZES, 20_000, 5)
QUERIES = random_conjunctions(TABLE.domain, 3, 4000, seed=1)


@pytest.mark.parametrize("neighbours", RELATIONS)
def test_it_answers_well_and_spends_what_it_has(neighbours):
    plan, outcome, ledger = play(TABLE, QUERIES, neighbours=neighbours, synthetic_rows=60_000)
    error = np.abs(errors(TABLE, outcome, QUERIES))
    assert error.mean() < 0.003
    assert ledger.spent().epsilon == pytest.approx(1.0, rel=1e-3)
    assert ledger.spent().rho_units <= rho_of(epsilon=1.0, delta=1e-6) * 10**12
    assert outcome.artefact.records.rows == 60_000
    # Of what triples know and pairs do not, the plan cannot know.
    assert plan.mean_error / 4 < error.mean() < plan.mean_error * 5


def test_more_budget_gives_less_error():
    mean = [
        np.abs(errors(TABLE, play(TABLE, QUERIES, epsilon=e)[1], QUERIES)).mean() for e in (0.03, 0.3, 3.0)
    ]
    assert mean[0] > 2 * mean[1] > 4 * mean[2]


def test_the_same_seed_gives_the_same_rows():
    first, second = (play(TABLE, QUERIES, seed=3)[1].artefact.records.to_rows() for _ in range(2))
    assert np.array_equal(first, second)
    assert not np.array_equal(first, play(TABLE, QUERIES, seed=4)[1].artefact.records.to_rows())


@pytest.mark.parametrize(
    ("sizes", "order"),
    [((3, 4), 2), ((1, 3, 4), 2), ((1200, 5), 2), ((2, 3, 2, 3, 2), 4), ((7, 5), 1)],
)
def test_awkward_domains(sizes, order):
    records = related_table(sizes, 3000, 2)
    workload = marginals(records.domain, order)
    _, outcome, _ = play(records, workload, synthetic_rows=1001)
    rows = outcome.artefact.records.to_rows()
    assert rows.shape == (1001, len(sizes))
    assert np.all(rows.max(axis=0) < sizes)


def test_an_attribute_that_nobody_asks_about_is_uniform():
    records = related_table((3, 4, 5), 3000, 2)
    workload = random_conjunctions(domain(3, 4, 5), 1, 5, seed=0)
    _, outcome, _ = play(records, workload)
    assert outcome.artefact.records.to_rows().shape[1] == 3


def test_a_hopeless_budget_is_warned_about_and_runs():
    records = related_table((3, 4), 50, 2)
    plan, outcome, _ = play(records, marginals(records.domain, 2), epsilon=0.001, synthetic_rows=100)
    assert "budget is so small" in plan.notes[0]
    assert outcome.artefact.records.rows == 100


def test_what_does_not_fit_is_said():
    records = related_table((300, 200, 2), 100, 0)
    with pytest.raises(DualQueryError, match="a0 × a1"):
        play(records, marginals(records.domain, 2), memory=1_000_000)
    with pytest.raises(DualQueryError, match="--synthetic-rows"):
        play(TABLE, QUERIES, synthetic_rows=0)
    with pytest.raises(DualQueryError, match="items"):
        play(TABLE, QUERIES, items_per_record=3)


def baskets(rows, items, seed):
    """Popular and rare items; items 0 and 1 come together."""
    rng = np.random.default_rng(seed)
    popularity = np.minimum(0.5, 1.5 / np.arange(2, items + 2))
    held = rng.random((rows, items)) < popularity
    held[:, 1] = np.where(rng.random(rows) < 0.9, held[:, 0], held[:, 1])
    owner, item = np.nonzero(held)
    start = np.searchsorted(owner, np.arange(rows + 1)).astype(np.int64)
    block = Domain((Items("item", items),))
    return Records(block, rows, (SparseItems(start, item.astype(np.int32)),)), popularity


def test_transactions_are_measured_by_items_and_pairs():
    records, _ = baskets(20_000, 300, 0)
    workload = random_conjunctions(records.domain, 3, 3000, seed=1)
    plan, outcome, ledger = play(records, workload, epsilon=2.0, items_per_record=15)
    assert plan.parameters.measured == "items and pairs"
    assert np.abs(errors(records, outcome, workload)).mean() < 0.004
    assert ledger.spent().epsilon == pytest.approx(2.0, rel=1e-3)
    made = outcome.artefact.records.columns[0]
    held = [
        set(made.ids[made.start[r] : made.start[r + 1]].tolist())
        for r in range(outcome.artefact.records.rows)
    ]
    together = np.mean([{0, 1} <= basket for basket in held])
    assert together == pytest.approx(0.47, abs=0.05)
    assert plan.parameters.items_per_record == 15


def test_item_plan_shares_by_hand():
    records, _ = baskets(1000, 300, 0)
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP)
    task = Task(random_conjunctions(records.domain, 2, 100, seed=0), 1000, budget)
    way = plan_baskets(task, ProjectionWishes(), 20).parameters
    rho = float(rho_of(epsilon=1.0, delta=1e-6))
    share = {name: float(stage.event.rho) / rho for name, stage in way.shares.stages.items()}
    assert share == pytest.approx({"total": 0.01, "order": 0.06, "items": 0.40, "pairs": 0.53}, rel=1e-6)
    assert way.cell_noise == pytest.approx(np.sqrt(190 / (2 * 0.53 * rho)) / 1000)


def test_rows_are_as_many_as_asked_and_equal_parts_of_every_chain():
    for rows in (1, 2, 999, 20_000, 40_001, 120_000, 1_000_000):
        made = Effort.of(rows)
        assert made.chains * made.chain_rows * made.snapshots >= rows
        assert made.rows == rows
    assert Effort.of(None).rows >= 20_000
    assert fitter.TEMPERATURE > 0


def test_shrinkage_empties_empty_cells_and_leaves_large_ones():
    rng = np.random.default_rng(0)
    truth = np.concatenate([np.zeros(3000), np.full(50, 500.0)])
    mean = np.concatenate([np.full(3000, 5.0), np.full(50, 400.0)])
    noisy = truth + rng.normal(0, 20, 3050)
    better = multiples(noisy, mean, 20.0, rng)
    assert np.abs(better[:3000]).mean() < 0.1 * np.abs(noisy[:3000]).mean()
    assert np.array_equal(better[3000:], noisy[3000:])


def test_onto_simplex_is_the_nearest_distribution():
    rng = np.random.default_rng(0)
    for _ in range(20):
        z = rng.normal(0.2, 0.3, 5)
        nearest = onto_simplex(z, 1.0)
        assert nearest.sum() == pytest.approx(1)
        assert nearest.min() >= 0
        others = rng.dirichlet(np.ones(5), 200)
        assert np.all(np.sum((others - z) ** 2, axis=1) >= np.sum((nearest - z) ** 2) - 1e-12)


def test_cell_variance_against_simulation():
    rng = np.random.default_rng(0)
    sizes = np.array([3, 4])
    variance = {(): 2.0, (0,): 3.0, (1,): 5.0, (0, 1): 7.0}
    cells = []
    for _ in range(4000):
        row = rng.normal(0, np.sqrt(3), 3)
        column = rng.normal(0, np.sqrt(5), 4)
        both = rng.normal(0, np.sqrt(7), (3, 4))
        both = both - both.mean(axis=0, keepdims=True)
        both = both - both.mean(axis=1, keepdims=True)
        total = rng.normal(0, np.sqrt(2)) / 12
        cells.append(total + ((row - row.mean()) / 4)[:, None] + ((column - column.mean()) / 3) + both)
    assert np.var(cells) == pytest.approx(cell_variance((0, 1), variance, sizes), rel=0.05)
