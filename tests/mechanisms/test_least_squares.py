"""The least squares mechanism: its price, its promise, and what projection gains."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.baselines import INDEPENDENT_GAUSSIAN, LEAST_SQUARES
from dualquery.mechanisms.mechanism import AnyMechanism, Outcome, Task
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent
from tests.house import curator_of

DOMAIN = Domain((Items("item", 8),))
WORKLOAD = from_spec(DOMAIN, "random:3:2000")
ROWS = 2000


def records() -> Records:
    rng = np.random.default_rng(0)
    return Records.from_rows(DOMAIN, rng.random((ROWS, 8)) < rng.random((ROWS, 1)) ** 2)


def task(epsilon: float, accounting: Accounting = Accounting.GAUSSIAN) -> Task:
    delta = 0.0 if accounting is Accounting.PURE else 1e-3
    return Task(WORKLOAD, ROWS, Budget(epsilon, delta, Neighbours.ADD_REMOVE, accounting))


def run(mechanism: AnyMechanism, epsilon: float, seed: int, **options: object) -> tuple[Outcome, Ledger]:
    plan = mechanism.plan_for(task(epsilon), options)
    ledger = Ledger(plan.task.budget)
    outcome = mechanism.run(
        plan, curator_of(records(), ledger, seed=seed), np.random.default_rng(seed), silent
    )
    return outcome, ledger


def off(answers: np.ndarray) -> float:
    return float(np.sqrt(np.mean((answers - WORKLOAD.fractions(records())) ** 2)))


@pytest.mark.parametrize("epsilon", [0.05, 1.0])
def test_the_error_stays_below_the_promise_and_below_noise(epsilon: float) -> None:
    """With little budget by the hull's promise, which is below the noise; with much by both."""
    plan = LEAST_SQUARES.plan_for(task(epsilon), {})
    sigma = plan.parameters.law.deviation / (
        plan.parameters.per_record(WORKLOAD.groups[0], plan.parameters.balanced[0]) * ROWS
    )
    r, promised = WORKLOAD.bound().alone[0], plan.parameters.promised_error
    hull = sigma * math.sqrt(2 * 8 * math.log(2) * min(r, 500)) / 2000
    assert promised == pytest.approx(math.sqrt(min(sigma**2, hull)))
    assert (promised < 0.9 * sigma) == (epsilon == 0.05)
    found, noisy = [], []
    for seed in range(2):
        outcome, ledger = run(LEAST_SQUARES, epsilon, seed)
        assert outcome.belief is not None
        found.append(off(outcome.belief.answers(WORKLOAD)))
        noisy.append(off(run(INDEPENDENT_GAUSSIAN, epsilon, seed)[0].answers))
        assert len(ledger.events) == 1
        assert 0.999 * epsilon <= ledger.spent().epsilon <= epsilon
    assert np.mean(found) < promised
    assert np.mean(found) < np.mean(noisy) / 2


def test_rows_and_mixture_agree_and_the_gap_is_told() -> None:
    outcome, _ = run(LEAST_SQUARES, 1.0, 1, synthetic_rows=50_000, rounds=40)
    assert isinstance(outcome.artefact, SyntheticRecords)
    assert outcome.belief is not None
    made = WORKLOAD.fractions(outcome.artefact.records)
    np.testing.assert_allclose(made, outcome.belief.answers(WORKLOAD), atol=1e-3)
    assert "records were mixed" in outcome.notes[0]


def test_more_rounds_come_nearer_to_what_was_measured() -> None:
    few, many = (
        off(run(LEAST_SQUARES, 50.0, 0, rounds=rounds)[0].belief.answers(WORKLOAD)) for rounds in (5, 40)
    )
    assert many < few / 3


def test_what_cannot_be_paid_or_played_is_refused() -> None:
    with pytest.raises(BudgetError, match="gaussian or zcdp"):
        LEAST_SQUARES.plan_for(task(1.0, Accounting.PURE), {})
    with pytest.raises(DualQueryError, match="means nothing"):
        LEAST_SQUARES.plan_for(task(1.0), {"samples": 3})
