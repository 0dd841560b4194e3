"""A small survey, and a mechanism so simple that these tests need no other: noisy one-way tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import dualquery
from dualquery import Accounting, Budget, Neighbours, Records, Schema, example
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Step, Task, hidden
from dualquery.mechanisms.wishes import MECHANISMS, NoWishes, RowsWishes
from dualquery.privacy.budget import decimal
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Gaussian, Laplace, Noise
from dualquery.queries.group import Group
from dualquery.queries.tables import Tables
from dualquery.table.schema import parse_schema
from dualquery.types import Progress

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


@dataclass(frozen=True)
class Parameters:
    synthetic_rows: int
    statistics: tuple[Group, ...] = hidden()
    noises: tuple[Noise, ...] = hidden()
    rate: float = 0.25


def _planned(task: Task, rows: int, statistics: tuple[Group, ...], share: Fraction) -> Plan[Parameters]:
    """Each statistic for an equal part of this share of the budget."""
    noises: list[Noise] = []
    for statistic in statistics:
        moved = task.budget.neighbours.sensitivity(statistic.bound())
        if task.budget.accounting is Accounting.PURE:
            each = decimal(task.budget.epsilon) / len(statistics) * share
            noises.append(Laplace(scale=moved.l1 / each))
        else:
            rho = rho_of(epsilon=task.budget.epsilon, delta=task.budget.delta)
            noises.append(Gaussian(variance=moved.l2_squared / (2 * rho / len(statistics) * share)))
    return Plan(
        mechanism="independent",
        task=task,
        reason="The test asked for it.",
        parameters=Parameters(synthetic_rows=rows, statistics=statistics, noises=tuple(noises)),
        steps=tuple(
            Step("measure a table", noise.event(task.budget.neighbours.sensitivity(statistic.bound())))
            for statistic, noise in zip(statistics, noises, strict=True)
        ),
        mean_error=0.0125,
        max_error=0.05,
        seconds=0.1,
        bytes=1000,
        notes=("planned",),
    )


def _plan(task: Task, wanted: RowsWishes) -> Plan[Parameters]:
    """One-way tables, each for an equal share of the whole budget, and rows drawn from their product."""
    tables = tuple(Tables(task.domain, ((j,),)) for j in range(task.domain.width))
    return _planned(task, wanted.synthetic_rows or 200, tables, Fraction(999, 1000))


def _run(plan: Plan[Parameters], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    domain, chosen = plan.task.domain, plan.parameters
    codes = np.zeros((chosen.synthetic_rows, domain.width), np.int64)
    for j, (statistic, noise) in enumerate(zip(chosen.statistics, chosen.noises, strict=True)):
        noisy = np.clip(curator.measure(statistic, noise=noise), 0, None) + 1e-9
        codes[:, j] = rng.choice(len(noisy), size=chosen.synthetic_rows, p=noisy / noisy.sum())
        progress("measuring", j + 1, domain.width)
    return Outcome(artefact=SyntheticRecords(Records.from_rows(domain, codes)), notes=("run",))


def _bare_plan(task: Task, wanted: NoWishes) -> Plan[Parameters]:
    """Answers without records: every query measured with the whole budget."""
    (group,) = task.workload.groups
    return _planned(task, 200, (group,), Fraction(1))


def _bare_run(
    plan: Plan[Parameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    (statistic,), (noise,) = plan.parameters.statistics, plan.parameters.noises
    answers = curator.measure(statistic, noise=noise) / plan.task.rows
    texts = list(plan.task.workload.texts())
    return Outcome(artefact=BareAnswers(texts, answers, np.full(len(texts), 0.01)), answers=answers)


INDEPENDENT = Mechanism(
    name="independent",
    words="one-way tables with noise, and records from their product",
    wishes=RowsWishes,
    plan=_plan,
    run=_run,
    paid_by=(Accounting.ZCDP, Accounting.PURE),
)
REPLICATED = replace(INDEPENDENT, name="replicated", replica=lambda plan: plan)
BARE = Mechanism(
    name="bare",
    words="noisy answers",
    wishes=NoWishes,
    plan=_bare_plan,
    run=_bare_run,
    paid_by=INDEPENDENT.paid_by,
)


@pytest.fixture(autouse=True)
def _mechanisms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MECHANISMS, "independent", INDEPENDENT)
    monkeypatch.setitem(MECHANISMS, "replicated", REPLICATED)
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
