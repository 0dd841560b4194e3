"""The baselines: what they cost, what they answer, and the SVD bound against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dualquery.errors import BudgetError, QueryError
from dualquery.game import Heard, TableQuery
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords
from dualquery.mechanisms.baselines import (
    HADAMARD,
    INDEPENDENT_GAUSSIAN,
    INDEPENDENT_LAPLACE,
    UNIFORM,
    ZEROS,
    joined,
)
from dualquery.mechanisms.mechanism import AnyMechanism, Outcome, Task
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec
from dualquery.queries.random_families import ranges
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain, Items, equal_width
from dualquery.table.records import Records
from dualquery.types import silent
from experiments.svd_bound import svd_bound
from tests.house import curator_of

DOMAIN = Domain((Items("item", 5),))
ROWS = 5000


def records() -> Records:
    rng = np.random.default_rng(0)
    return Records.from_rows(DOMAIN, rng.random((ROWS, 5)) < np.array([0.1, 0.9, 0.5, 0.2, 0.7]))


def run(
    mechanism: AnyMechanism, workload: Workload, accounting: Accounting, epsilon: float = 1.0
) -> tuple[Outcome, Ledger]:
    delta = 0.0 if accounting is Accounting.PURE else 1e-6
    spend = Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.ADD_REMOVE, accounting=accounting)
    plan = mechanism.plan_for(Task(workload, ROWS, spend), {})
    ledger = Ledger(spend)
    curator = curator_of(records(), ledger, seed=1)
    return mechanism.run(plan, curator, np.random.default_rng(1), silent), ledger


def truth(workload: Workload) -> np.ndarray:
    return workload.counts(records()) / ROWS


@pytest.mark.parametrize(
    ("mechanism", "accounting"),
    [
        (INDEPENDENT_LAPLACE, Accounting.PURE),
        (INDEPENDENT_GAUSSIAN, Accounting.ZCDP),
        (INDEPENDENT_GAUSSIAN, Accounting.GAUSSIAN),
    ],
)
def test_independent_noise_answers_and_makes_no_records(
    mechanism: AnyMechanism, accounting: Accounting
) -> None:
    workload = from_spec(DOMAIN, "marginals:2 + random:2:20")
    outcome, ledger = run(mechanism, workload, accounting)
    assert isinstance(outcome.artefact, BareAnswers)
    assert outcome.artefact.rows is None
    assert outcome.answers is not None
    assert outcome.artefact.texts == list(workload.texts())
    assert np.array_equal(outcome.artefact.values, outcome.answers)
    assert "no synthetic records" in outcome.notes[0]
    assert 0.999 <= ledger.spent().epsilon <= 1.0
    # Sensitivity 10 tables and 20 queries: b = 30 records of 5,000.
    error = np.abs(outcome.answers - truth(workload)).mean()
    assert 0.0005 < error < 0.012
    assert outcome.answers.min() >= 0
    assert outcome.answers.max() <= 1


@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.ZCDP])
def test_hadamard_measures_every_parity(accounting: Accounting) -> None:
    workload = from_spec(DOMAIN, "marginals:2")
    outcome, ledger = run(HADAMARD, workload, accounting, epsilon=5.0)
    assert len(ledger.events) == 5 + math.comb(5, 2)
    assert 4.99 <= ledger.spent().epsilon <= 5.0
    assert outcome.belief is not None
    assert np.abs(outcome.belief.answers(workload) - truth(workload)).mean() < 0.01
    assert isinstance(outcome.artefact, SyntheticRecords)


def test_hadamard_does_not_chase_a_contradiction() -> None:
    """Seed 273 on the Czech table at ε = 0.1 ended 13 nats away: no distribution fits its noise, passes went on."""
    sign = np.array([[1.0, 0.0], [0.0, 1.0]])
    alike = {(0, 1): 0.95, (1, 2): 0.95, (0, 2): 0.05}  # 0 is as 1, 1 is as 2, and 2 is unlike 0
    heard = [Heard(TableQuery(members, sign), np.array(value)) for members, value in alike.items()]
    gentle = joined(Domain((Items("item", 3),)), heard, noise=0.05).marginal((0, 1, 2))
    assert gentle.min() > 1e-3
    fitted = joined(Domain((Items("item", 3),)), heard, noise=0.3).marginal((0, 1, 2))
    assert np.abs(gentle - fitted).max() < 0.1
    consistent = [
        Heard(TableQuery((0, 1), sign), np.array(0.95)),
        Heard(TableQuery((1, 2), sign), np.array(0.9)),
    ]
    close = joined(Domain((Items("item", 3),)), consistent, noise=0.005).marginal((0, 1))
    assert close[0, 0] + close[1, 1] == pytest.approx(0.95, abs=0.02)


def test_guesses_cost_nothing() -> None:
    workload = from_spec(DOMAIN, "marginals:2")
    for mechanism in (UNIFORM, ZEROS):
        outcome, ledger = run(mechanism, workload, Accounting.PURE)
        assert ledger.events == ()
        assert isinstance(outcome.artefact, SyntheticRecords)
        rows = outcome.artefact.records.to_rows()
        assert rows.mean() == pytest.approx(0.5 if mechanism is UNIFORM else 0.0, abs=1e-3)


def test_accounting_that_does_not_fit_is_refused() -> None:
    workload = from_spec(DOMAIN, "marginals:2")
    with pytest.raises(BudgetError, match="not paid for by zcdp accounting; use pure"):
        run(INDEPENDENT_LAPLACE, workload, Accounting.ZCDP)
    with pytest.raises(BudgetError, match="not paid for by pure accounting; use gaussian or zcdp"):
        run(INDEPENDENT_GAUSSIAN, workload, Accounting.PURE)


def test_hadamard_needs_binary_attributes() -> None:
    domain = Domain((equal_width("c", 0, 10, 10),))
    spend = Budget(epsilon=1, delta=0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE)
    task = Task(from_spec(domain, "marginals:1"), 100, spend)
    with pytest.raises(QueryError, match="'c' is not"):
        HADAMARD.plan_for(task, {})


@pytest.mark.parametrize("count", [5, 60])
def test_the_svd_bound_is_its_definition(count: int) -> None:
    domain = Domain((equal_width("c", 0, 10, 10), equal_width("d", 0, 3, 3)))
    workload = ranges(domain, ["c", "d"], count, 1)
    matrix = np.empty((count, 30))
    for cell in range(30):
        one = Records.from_rows(domain, np.array([[cell // 3, cell % 3]]))
        matrix[:, cell] = workload.counts(one)
    values = np.linalg.svd(matrix, compute_uv=False).sum()
    expected = values**2 / (30 * count) * 2 * math.log(2 / 1e-3) / 0.25
    assert svd_bound(workload, epsilon=0.5, delta=1e-3) == pytest.approx(expected, rel=1e-6)
