"""Offline PMW: T and ε₀ from the theorem, and what it learns from directions alone."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest

from dualquery.errors import DualQueryError, QueryError
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.mechanisms.mwem import PMW, best_rounds, draw_price, promised_by_pmw, rounds_for
from dualquery.privacy.budget import RELATIONS, Accounting, Budget, Neighbours
from dualquery.privacy.conversion import advanced_composition, rho_of
from dualquery.privacy.events import Selection
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent
from tests import house
from tests.house import curator_of

DOMAIN = Domain((Items("item", 6),))
WORKLOAD = from_spec(DOMAIN, "marginals:2")


def records() -> Records:
    rng = np.random.default_rng(0)
    return Records.from_rows(DOMAIN, rng.random((20_000, 6)) < np.array([0.1, 0.9, 0.5, 0.2, 0.7, 0.95]))


budget = partial(house.budget, epsilon=2.0)


def run(spend: Budget, **options: object) -> tuple[Outcome, Ledger]:
    plan = PMW.plan_for(Task(WORKLOAD, 20_000, spend), options)
    ledger = Ledger(spend)
    curator = curator_of(records(), ledger, seed=1)
    return PMW.run(plan, curator, np.random.default_rng(1), silent), ledger


def largest_error(outcome: Outcome) -> float:
    assert outcome.belief is not None
    return float(np.abs(outcome.belief.answers(WORKLOAD) - WORKLOAD.fractions(records())).max())


@pytest.mark.parametrize("accounting", [Accounting.PURE, Accounting.ZCDP, Accounting.THEOREM_4_3])
@pytest.mark.parametrize("neighbours", RELATIONS)
def test_every_draw_costs_its_share(accounting: Accounting, neighbours: Neighbours) -> None:
    spend = budget(neighbours=neighbours, accounting=accounting)
    _, ledger = run(spend, rounds=20)
    assert len(ledger.events) == 20
    assert all(isinstance(event, Selection) for event in ledger.events)
    assert ledger.spent().epsilon == pytest.approx(spend.epsilon, rel=1e-5)
    assert ledger.spent().epsilon <= spend.epsilon


def test_prices_by_each_theorem() -> None:
    pure = draw_price(budget(accounting=Accounting.PURE), 10).selection_range()
    assert float(pure) == pytest.approx(0.2)
    rho = draw_price(budget(), 10).selection_range()
    assert float(rho) == pytest.approx(math.sqrt(8 * rho_of(epsilon=2.0, delta=1e-6) / 10), rel=1e-6)
    advanced = draw_price(budget(accounting=Accounting.THEOREM_4_3), 10).selection_range()
    assert advanced_composition(advanced, 10, delta=1e-6) <= 2.0
    assert advanced_composition(float(advanced) * 1.001, 10, delta=1e-6) > 2.0


def test_rounds_by_the_theorem() -> None:
    task = Task(WORKLOAD, 20_000, budget())
    assert rounds_for(task, 0.5) == math.ceil(16 * 6 * math.log(2) / 0.25)
    best = best_rounds(task)
    assert promised_by_pmw(task, best) <= min(promised_by_pmw(task, t) for t in (1, 10, 100, 1000))


@pytest.mark.parametrize("iterate", ["average", "last"])
def test_the_promise_is_kept(iterate: str) -> None:
    spend = budget()
    outcome, _ = run(spend, iterate=iterate, rounds=200)
    task = Task(WORKLOAD, 20_000, spend)
    assert largest_error(outcome) <= promised_by_pmw(task, 200)
    assert isinstance(outcome.artefact, SyntheticRecords)
    assert outcome.artefact.rows >= 20_000


def test_the_average_is_of_what_each_query_was_drawn_against() -> None:
    """A₁ … A_T begin with the uniform distribution; what the last draw taught is not among them."""
    outcome, _ = run(budget(), rounds=1)
    assert outcome.belief is not None
    assert outcome.belief.answers(WORKLOAD) == pytest.approx(np.full(WORKLOAD.size, 0.25))
    taught, _ = run(budget(), rounds=1, iterate="last")
    assert taught.belief is not None
    assert np.abs(taught.belief.answers(WORKLOAD) - 0.25).max() > 0.01


def test_an_average_answers_its_own_workload_only() -> None:
    outcome, _ = run(budget(), rounds=5)
    assert outcome.belief is not None
    own = outcome.belief.answers(WORKLOAD)
    assert np.array_equal(outcome.belief.answers(from_spec(DOMAIN, "marginals:2")), own)
    with pytest.raises(DualQueryError, match="the workload that it was made for"):
        outcome.belief.answers(from_spec(DOMAIN, f"random:2:{WORKLOAD.size}"))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"rounds": 0}, "at least one round"),
        ({"alpha": 1.5}, "alpha is an error between 0 and 1"),
        ({"alpha": 0.001}, "ask for a larger alpha"),
        ({"learning_rate": 2.0}, "learning rate between 0 and 1"),
    ],
)
def test_bad_input_is_refused_by_the_plan(options: dict[str, object], sentence: str) -> None:
    task = Task(WORKLOAD, 20_000, budget())
    with pytest.raises(DualQueryError, match=sentence):
        PMW.plan_for(task, options)


def test_a_universe_too_large_is_refused() -> None:
    wide = Domain((Items("item", 40),))
    task = Task(from_spec(wide, "marginals:1"), 20_000, budget())
    with pytest.raises(QueryError, match="bytes"):
        PMW.plan_for(task, {})
