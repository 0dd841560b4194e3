"""A small survey, and a mechanism so simple that these tests need no other: noisy one-way tables."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dualquery
from dualquery import Accounting, Budget, Neighbours, Records, Schema, example
from dualquery.mechanisms.choose import MECHANISMS
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.privacy.budget import decimal
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator, Gaussian, Laplace
from dualquery.queries.query import Tables
from dualquery.table.schema import parse_schema

PEOPLE = 500


@pytest.fixture(scope="session")
def schema() -> Schema:
    return parse_schema(example.SCHEMA, origin="the example")


@pytest.fixture(scope="session")
def survey() -> Any:
    return example.survey(PEOPLE)


@pytest.fixture(scope="session")
def records(survey: Any, schema: Schema) -> Records:
    return dualquery.encode(survey, schema)


def budget(
    epsilon: float = 1.0,
    delta: float = 1e-6,
    neighbours: Neighbours = Neighbours.REPLACE,
    accounting: Accounting = Accounting.ZCDP,
) -> Budget:
    return Budget(epsilon=epsilon, delta=delta, neighbours=neighbours, accounting=accounting)


@pytest.fixture(name="budget", scope="session")
def budget_fixture() -> Callable[..., Budget]:
    return budget


def _plan(shape: Shape, options: Options) -> Plan:
    rows = options.synthetic_rows or 200
    return Plan(
        mechanism="independent",
        reason="The test asked for it.",
        parameters={"synthetic_rows": rows, "rate": 0.25},
        mean_error=0.0125,
        max_error=0.05,
        seconds=0.1,
        bytes=1000,
        notes=("planned",),
    )


def _run(plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """One-way tables, each for an equal share of the whole budget, and rows drawn from their product."""
    domain = shape.domain
    rows = int(plan.parameters["synthetic_rows"])
    codes = np.zeros((rows, domain.width), np.int64)
    moved = shape.budget.neighbours.cells_moved
    for j in range(domain.width):
        noise: Gaussian | Laplace
        if shape.budget.accounting is Accounting.PURE:
            share = decimal(shape.budget.epsilon) / domain.width * Fraction(999, 1000)
            noise = Laplace(scale=moved / share)
        else:
            rho = rho_of(epsilon=shape.budget.epsilon, delta=shape.budget.delta)
            share = rho / domain.width * Fraction(999, 1000)
            noise = Gaussian(variance=moved / (2 * share))
        noisy = np.clip(curator.measure(Tables(domain, ((j,),)), noise=noise), 0, None) + 1e-9
        codes[:, j] = rng.choice(len(noisy), size=rows, p=noisy / noisy.sum())
        progress("measuring", j + 1, domain.width)
    return Outcome(records=Records.from_rows(domain, codes), notes=("run",))


def _bare_run(
    plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Answers without records: every query measured with the whole budget."""
    rho = rho_of(epsilon=shape.budget.epsilon, delta=shape.budget.delta)
    moved = sum(len(group.sets) for group in shape.workload.groups) * shape.budget.neighbours.cells_moved
    (group,) = shape.workload.groups
    noisy = curator.measure(group, noise=Gaussian(variance=moved / (2 * rho)))
    answers = noisy / shape.rows
    return Outcome(records=None, answers=answers, error_bars=np.full(shape.workload.size, 0.01))


INDEPENDENT = Mechanism(
    name="independent",
    words="one-way tables with noise, and records from their product",
    accepts=frozenset({"synthetic_rows"}),
    plan=_plan,
    run=_run,
)
BARE = Mechanism(name="bare", words="noisy answers", accepts=frozenset(), plan=_plan, run=_bare_run)


@pytest.fixture(autouse=True)
def _mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "independent", INDEPENDENT)
    monkeypatch.setitem(MECHANISMS, "bare", BARE)


@pytest.fixture
def make(records: Records) -> Callable[..., dualquery.Release]:
    """A release of the small survey, repeatable unless told otherwise."""

    def made(**changes: Any) -> dualquery.Release:
        arguments: dict[str, Any] = {
            "workload": "marginals:1",
            "budget": budget(),
            "mechanism": "independent",
            "seed": 7,
        }
        arguments.update(changes)
        table = arguments.pop("table", records)
        return dualquery.release(table, **arguments)

    return made
