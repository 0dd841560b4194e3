"""Tables in stages: nothing is measured beyond what was paid for, and every part earns its keep."""

from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest

from dualquery.fitting import fit
from dualquery.fitting.fitter import Effort
from dualquery.fitting.measured import Measured
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import PROJECTION, tables
from dualquery.mechanisms.projection.tables import ByTables, plan_tables
from dualquery.mechanisms.shares import Stage, known_at_first
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours, PersonReplace
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.queries.families import from_texts, marginals
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from dualquery.types import silent
from tests.house import curator_of
from tests.privacy.watched import WatchedCounter, WatchedEntropy, WatchedLedger, in_order

PACE = Effort.of(3000)


def coded(sizes, *columns):
    domain = Domain(tuple(Categorical(f"a{j}", tuple(map(str, range(k)))) for j, k in enumerate(sizes)))
    return Records.from_rows(domain, np.column_stack(columns))


def related_table(sizes, rows, seed, classes=4):
    """Attributes that follow a hidden class."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, classes, rows)
    columns = []
    for k in sizes:
        edges = np.cumsum(rng.dirichlet(np.full(k, 0.5), classes), axis=1)[hidden]
        columns.append(np.minimum((rng.random(rows)[:, None] > edges).sum(axis=1), k - 1))
    return coded(sizes, *columns)


def task_of(records, workload, epsilon=1.0, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN):
    budget = Budget(epsilon=epsilon, delta=1e-6, neighbours=neighbours, accounting=accounting)
    return Task(workload, records.rows, budget)


def measured(planned, curator, task, effort=PACE):
    """What the stages measure, and whether rows are fitted to all of it at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "of_tables", lambda known, *, at_once, settled: (known, at_once))
        way = ByTables(stages=0, sets=0, cell_noise=0.0, tables=planned, effort=effort)
        return way.measure(curator, task, np.random.default_rng(0))


TABLE = related_table((4, 6, 2, 9, 3, 12), 20_000, 5)


@pytest.mark.parametrize("accounting", [Accounting.GAUSSIAN, Accounting.ZCDP])
@pytest.mark.parametrize("neighbours", [*RELATIONS, PersonReplace(2)], ids=str)
@pytest.mark.parametrize("epsilon", [0.5, 30.0])
def test_everything_is_paid_for_at_first_and_nothing_more_is_measured(accounting, neighbours, epsilon):
    task = task_of(TABLE, marginals(TABLE.domain, 3), epsilon, neighbours, accounting)
    diary = []
    curator = Curator(WatchedCounter(TABLE, diary), WatchedLedger(task.budget, diary), WatchedEntropy(diary))
    planned = plan_tables(task)
    known, _ = measured(planned, curator, task)
    assert in_order(diary)[0] == "pay"
    assert in_order(diary).count("pay") == 1
    assert curator.ledger.events == tuple(stage.event for stage in planned.stages)
    assert all(isinstance(event, GaussianMeasurement) for event in curator.ledger.events)
    assert set(planned.sets) >= set(known.of_order(2)) != set()
    assert set(known.larger()) <= set(planned.larger)


def test_the_sizes_of_the_stages_do_not_depend_on_the_table():
    workload = marginals(TABLE.domain, 3)
    empty = Records.from_rows(TABLE.domain, np.zeros((20_000, 6), int))
    events = []
    for records in (TABLE, empty):
        task = task_of(records, workload, 30.0)
        curator = curator_of(records, task.budget)
        measured(plan_tables(task), curator, task)
        events.append(curator.ledger.events)
    assert events[0] == events[1]


@pytest.mark.parametrize(
    "workload",
    [
        marginals(TABLE.domain, 1),
        marginals(TABLE.domain, 2),
        marginals(TABLE.domain, 4),
        from_texts(TABLE.domain, ["a0 = 1 & a3 = 2", "a1 = 4 & !(a0 = 0)", "a5 in {1, 2}"]),
        Workload(TABLE.domain, (Tables(TABLE.domain, ((0, 1, 2, 4, 5), (3,))),), "chosen"),
    ],
    ids=["ones", "pairs", "four", "texts", "five"],
)
@pytest.mark.parametrize("epsilon", [0.3, 30.0])
def test_workloads_of_every_kind(workload, epsilon):
    task = task_of(TABLE, workload, epsilon)
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 3000})
    curator = curator_of(TABLE, task.budget)
    outcome = PROJECTION.run(plan, curator, np.random.default_rng(0), silent)
    error = workload.fractions(outcome.artefact.records) - workload.fractions(TABLE)
    assert np.abs(error).mean() < (0.03 if epsilon < 1 else 0.012)


def test_the_second_half_goes_where_the_first_left_most_unknown():
    """Attributes 0 and 1 depend strongly, 2 and 3 not at all: after the first half that is known."""
    rng = np.random.default_rng(0)
    first = rng.integers(0, 6, 20_000)
    second = (first + (rng.random(20_000) < 0.3)) % 6
    records = coded((6,) * 4, first, second, *rng.integers(0, 6, (2, 20_000)))
    task = task_of(records, marginals(records.domain, 2), 0.3)
    planned = plan_tables(task)
    curator = curator_of(records, task.budget)
    known, _ = measured(planned, curator, task)
    assert known.variance[0, 1] < 0.8 * known.variance[2, 3]


def test_small_tables_that_are_all_measured_are_fitted_at_once():
    binary = related_table((2,) * 5, 20_000, 1)
    for records, epsilon, once in ((binary, 1.0, True), (binary, 0.01, False), (TABLE, 1000.0, False)):
        task = task_of(records, marginals(records.domain, 3), epsilon)
        curator = curator_of(records, task.budget)
        assert measured(plan_tables(task), curator, task)[1] is once


def test_scores_find_the_table_that_pairs_cannot_tell():
    """Two attributes add up to a third, modulo 5: every pair is independent, and only the triple knows."""
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 5, (2, 30_000))
    others = rng.integers(0, 12, (4, 30_000))
    records = coded((5, 5, 5, 12, 12, 12, 12), first, second, (first + second) % 5, *others)
    task = task_of(records, marginals(records.domain, 3), 3.0)
    planned = plan_tables(task)
    assert planned.last is not None
    curator = curator_of(records, task.budget)
    picked = []
    chosen = planned.last[1]

    plain = Stage.chosen

    def remembered(self, shares, domain, neighbours):
        if self is chosen:
            picked.extend(shares)
        return plain(self, shares, domain, neighbours)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stage, "chosen", remembered)
        measured(planned, curator, task, Effort.of(30_000))
    assert (0, 1, 2) in picked
    assert len(picked) <= tables.MOST_CHOSEN


# ── Accuracy: each part is worth something ──────────────────────────────────────────────────────────────────────


def chain_table(size, width, rows, seed):
    """A Markov chain of attributes: its pairs of neighbours say everything."""
    rng = np.random.default_rng(seed)
    columns = [rng.choice(size, rows, p=rng.dirichlet(np.ones(size)))]
    for _ in range(width - 1):
        edges = np.cumsum(rng.dirichlet(np.full(size, 0.25), size), axis=1)[columns[-1]]
        columns.append(np.minimum((rng.random(rows)[:, None] > edges).sum(axis=1), size - 1))
    return coded((size,) * width, *columns)


def mean_l1(records, epsilon, seed=0):
    """Of all tables of three attributes."""
    tables = Tables(records.domain, tuple(combinations(range(records.domain.width), 3)))
    truth = tables.counts(records) / records.rows
    task = task_of(records, marginals(records.domain, 3), epsilon)
    plan = PROJECTION.plan_for(task, {"synthetic_rows": 9_000})
    curator = curator_of(records, task.budget, seed=seed)
    rng = np.random.default_rng(seed)
    fitting = plan.parameters.measure(curator, task, rng)
    released = fitting.records(fitting.fit(plan.parameters.effort, rng, lambda done, total: None), rng)
    error = np.abs(tables.counts(released) / released.rows - truth)
    return float(np.add.reduceat(error, tables.starts[:-1]).mean())


def pairs_alone(planned, curves):
    pairs = np.array([len(members) == 2 for members in planned.sets])
    budget = sum(stage.share for stage in planned.halves)
    return tables.allocate(curves, planned.workload, budget, allowed=pairs)


CHAIN = chain_table(7, 5, 6_000, 1)
REACHED = {0.3: 0.26, 1.0: 0.135, 10.0: 0.042, 100.0: 0.018}


@pytest.mark.parametrize("epsilon", REACHED)
def test_what_it_reaches_on_an_embedded_table(epsilon):
    assert mean_l1(CHAIN, epsilon) < REACHED[epsilon]


@pytest.mark.parametrize(
    ("module", "name", "value", "epsilon"),
    [
        (fit, "tree_of", lambda pairs, ones: [], 0.3),  # no tree to lean to
        (tables.StagedTables, "allocation", pairs_alone, 100.0),
    ],
    ids=["tree", "larger sets"],
)
def test_without_a_part_it_is_not_reached(module, name, value, epsilon, monkeypatch):
    monkeypatch.setattr(module, name, value)
    assert mean_l1(CHAIN, epsilon) > 1.15 * REACHED[epsilon]


def test_a_share_is_what_a_measurement_costs():
    """The squared sensitivity of a stage over its variance is its share of μ²."""
    task = task_of(TABLE, marginals(TABLE.domain, 2))
    stages = plan_tables(task).stages
    parts = [Fraction(stage.squared) / stage.noise.variance for stage in stages]
    for stage, part in zip(stages, parts, strict=True):
        assert float(part / sum(parts)) == pytest.approx(stage.share, rel=1e-3)


def test_the_number_of_few_records_gets_more_of_the_budget():
    """Of many records the usual share; of few as much as makes its noise clear; nothing where it is public."""
    workload = marginals(TABLE.domain, 2)
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)
    share = [plan_tables(Task(workload, rows, budget)).ones[()] for rows in (20_000, 2500, 300)]
    assert share == pytest.approx([0.01, share[1], 0.05])
    assert 0.01 < share[1] < 0.05
    before = plan_tables(Task(workload, 300, budget, rows_variance=1600.0))
    assert before.ones[()] == pytest.approx(0.04)
    assert () not in plan_tables(Task(workload, 20_000, budget, rows_variance=1600.0)).ones
    public = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.GAUSSIAN)
    assert () not in plan_tables(Task(workload, 300, public)).ones


def test_a_number_of_records_that_was_measured_twice_is_joined():
    budget = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)
    workload = marginals(TABLE.domain, 2)
    again = [Measured((), np.array(330.0), 400.0)]
    known = known_at_first(Task(workload, 300, budget, rows_variance=1200.0), again)
    assert known.total == pytest.approx(322.5)
    assert known.variance[()] == pytest.approx(300.0)
    assert known_at_first(Task(workload, 300, budget), again).total == 330.0
    assert known_at_first(Task(workload, 300, budget, rows_variance=1200.0), []).total == 300.0
