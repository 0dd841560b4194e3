"""From a table to a release: what is public, what is charged, and what the certificate says about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pandas
import polars
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dualquery
from dualquery import (
    Accounting,
    Budget,
    BudgetError,
    DataError,
    DualQueryError,
    Neighbours,
    Records,
    Release,
    Schema,
)
from dualquery.mechanisms.mechanism import shown
from dualquery.privacy.budget import Sensitivity, decimal
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Gaussian, Laplace
from dualquery.releases.plan import price_of_rows

Make = Callable[..., Release]


def test_pandas_polars_arrow_and_files_give_the_same_release(
    make: Make, survey: Any, schema: Schema, tmp_path: Any
) -> None:
    path = tmp_path / "survey.csv"
    survey.to_pandas().to_csv(path, index=False)
    tables = [survey, survey.to_pandas(), polars.from_arrow(survey), path, str(path)]
    releases = [make(table=table, schema=schema) for table in tables]
    for release in releases[1:]:
        assert release.to_arrow().equals(releases[0].to_arrow())
    assert isinstance(releases[0].to_pandas(), pandas.DataFrame)
    assert isinstance(releases[0].to_polars(), polars.DataFrame)


def test_certificate_tells_what_the_ledger_paid(
    make: Make, budget: Callable[..., Budget], records: Records
) -> None:
    release = make(seed=None)
    certificate = release.certificate
    assert certificate.private
    assert certificate["entropy"]["statement"] == "system entropy"
    assert certificate["mechanism"] == "independent"
    assert certificate["records"]["rows"] == records.rows
    (event,) = certificate["events"]  # twelve equal ones, written once
    assert event["times"] == len(records.domain.columns)
    rho = rho_of(epsilon=1.0, delta=1e-6)
    assert float(certificate["spent"]["rho"]) == pytest.approx(0.999 * float(rho), rel=1e-6)
    assert 0.99 < certificate["spent"]["epsilon"] <= 1
    assert certificate["workload"]["digest"] == dualquery.marginals(records.domain, 1).digest()
    assert set(certificate["notes"]) == {"planned", "run"}
    with pytest.raises(TypeError):
        certificate["budget"]["epsilon"] = 0.1


def test_a_seed_repeats_the_release_and_forfeits_the_promise(make: Make) -> None:
    one, other, different = make(seed=3), make(seed=3), make(seed=4)
    assert one.to_arrow().equals(other.to_arrow())
    assert not one.to_arrow().equals(different.to_arrow())
    assert not one.certificate.private
    assert "not private" in one.certificate["entropy"]["statement"]
    assert any("not private" in warning for warning in one.certificate["warnings"])


def test_system_entropy_is_the_default(make: Make) -> None:
    assert not make(seed=None).to_arrow().equals(make(seed=None).to_arrow())


def test_delta_above_one_over_n_is_a_warning(make: Make, budget: Callable[..., Budget]) -> None:
    assert any("delta" in warning for warning in make(budget=budget(delta=0.01)).certificate["warnings"])


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.PURE])
def test_private_number_of_records_is_measured_and_paid_for(
    make: Make, budget: Callable[..., Budget], records: Records, accounting: Accounting
) -> None:
    delta = 0 if accounting is Accounting.PURE else 1e-6
    limits = budget(delta=delta, neighbours=Neighbours.ADD_REMOVE, accounting=accounting)
    certificate = make(budget=limits).certificate
    first = certificate["events"][0]
    assert first["times"] == 1
    kind = "laplace noise" if accounting is Accounting.PURE else "gaussian noise"
    assert first["event"] == kind
    assert certificate["records"]["from"].startswith("measured")
    assert certificate["spent"]["epsilon"] <= 1
    assert abs(certificate["records"]["rows"] - records.rows) < 5000


@pytest.mark.parametrize(
    ("mechanism", "options", "times"),
    [
        ("independent", {}, 12),
        ("projection", {"synthetic_rows": 100}, 4),  # means inside bins, too
        ("dualquery", {"rounds": 4, "samples": 3, "free": "random"}, 3),
        ("gaussian", {}, 1),
        ("zeros", {}, 0),
    ],
)
def test_a_private_number_of_records_is_measured_once(
    make: Make, budget: Callable[..., Budget], mechanism: str, options: dict[str, Any], times: int
) -> None:
    """One event before those of the mechanism, and none of them is that one again."""
    limits = budget(neighbours=Neighbours.ADD_REMOVE)
    asked = {"mechanism": mechanism, "workload": "marginals:2", "check": 0, **options}
    certificate = make(budget=limits, **asked).certificate
    noise = price_of_rows(replace(limits, adaptive=True)).noise
    first = noise.event(Sensitivity(1, 1)).to_json()
    first_written, *others = certificate["events"]
    assert first_written == {**first, "times": 1}
    assert all({**each, "times": 1} != first_written for each in others)
    assert sum(each["times"] for each in others) == times


@pytest.mark.parametrize(
    ("mechanism", "options"),
    [
        ("independent", {}),
        ("projection", {"synthetic_rows": 100}),
        ("dualquery", {"rounds": 4, "samples": 3}),
        ("gaussian", {}),
        ("zeros", {}),
    ],
)
def test_the_certificate_lists_what_the_plan_announced(
    make: Make,
    schema: Schema,
    records: Records,
    budget: Callable[..., Budget],
    mechanism: str,
    options: dict[str, Any],
) -> None:
    asked = {"workload": "marginals:2", "budget": budget(), "mechanism": mechanism, **options}
    plan = dualquery.plan(schema, rows=records.rows, **asked)
    certificate = make(**asked).certificate
    announced: Counter[str] = Counter()
    for step in plan.steps:
        announced[str(step.event.to_json())] += step.times
    written: Counter[str] = Counter()
    for event in certificate["events"]:
        written[str({key: event[key] for key in event if key != "times"})] += event["times"]
    assert written == announced
    assert certificate["parameters"] == shown(plan.parameters)


def test_declared_number_of_records_costs_nothing(make: Make, budget: Callable[..., Budget]) -> None:
    limits = budget(neighbours=Neighbours.ADD_REMOVE)
    certificate = make(budget=limits, public_rows=450).certificate
    assert certificate["records"]["rows"] == 450
    assert certificate["records"]["from"].startswith("declared")
    assert len(certificate["events"]) == 1


def test_accounting_that_cannot_split_a_budget_asks_for_the_number(make: Make) -> None:
    """Theorem 4.3 wants sizes fixed beforehand, and they would follow the number that was measured."""
    limits = Budget(
        epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.THEOREM_4_3
    )
    with pytest.raises(BudgetError, match="declared"):
        make(budget=limits)
    with pytest.raises(BudgetError, match="declared"):
        replace(limits, adaptive=True)


@pytest.mark.parametrize("accounting", [Accounting.ZCDP, Accounting.GAUSSIAN, Accounting.PURE])
def test_a_budget_that_does_not_say_so_measures_no_rows(accounting: Accounting) -> None:
    limits = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=accounting)
    with pytest.raises(BudgetError, match="adaptive"):
        price_of_rows(limits)


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(0.01, 20), exponent=st.floats(-12, -2))
def test_measuring_rows_and_the_rest_fit_one_budget(epsilon: float, exponent: float) -> None:
    """A ledger of the whole budget pays for the measurement and for all that the rest can buy."""
    whole = Budget(
        epsilon=epsilon,
        delta=10.0**exponent,
        neighbours=Neighbours.ADD_REMOVE,
        accounting=Accounting.ZCDP,
        adaptive=True,
    )
    priced = price_of_rows(whole)
    noise, left = priced.noise, priced.left
    assert priced.times == 1
    assert isinstance(noise, Gaussian)
    ledger = Ledger(whole)
    ledger.charge(GaussianMeasurement(sensitivity_squared=Fraction(1), variance=noise.variance))
    rest = rho_of(epsilon=left.epsilon, delta=left.delta)
    ledger.charge(GaussianMeasurement(sensitivity_squared=Fraction(1), variance=1 / (2 * rest)))
    assert rest > Fraction(98, 100) * rho_of(epsilon=whole.epsilon, delta=whole.delta)


@settings(max_examples=40, deadline=None)
@given(epsilon=st.floats(1e-6, 50))
def test_pure_budget_splits_without_overshoot(epsilon: float) -> None:
    whole = Budget(
        epsilon=epsilon,
        delta=0,
        neighbours=Neighbours.ADD_REMOVE,
        accounting=Accounting.PURE,
        adaptive=True,
    )
    priced = price_of_rows(whole)
    noise, left = priced.noise, priced.left
    ledger = Ledger(whole)
    assert isinstance(noise, Laplace)
    ledger.charge(LaplaceMeasurement(sensitivity=Fraction(1), scale=noise.scale))
    ledger.charge(LaplaceMeasurement(sensitivity=Fraction(1), scale=1 / decimal(left.epsilon)))
    assert left.epsilon > 0.98 * epsilon


def test_options_by_name(make: Make) -> None:
    assert make(synthetic_rows=50).artefact.rows == 50
    assert make(**{"synthetic_rows": 60, "rounds": None}).artefact.rows == 60  # None is as good as not given


def test_plan_needs_no_data(schema: Schema, budget: Callable[..., Budget]) -> None:
    plan = dualquery.plan(
        schema, rows=100, workload="marginals:1", budget=budget(), mechanism="independent", synthetic_rows=9
    )
    assert shown(plan.parameters) == {"synthetic_rows": 9, "rate": 0.25}
    with pytest.raises(DualQueryError):
        dualquery.plan(schema, rows=0, workload="marginals:1", budget=budget(), mechanism="independent")


def test_progress_is_told_in_stages(make: Make, survey: Any, schema: Schema) -> None:
    stages: list[str] = []
    make(table=survey, schema=schema, progress=lambda stage, done, total: stages.append(stage))
    assert list(dict.fromkeys(stages))[:2] == ["reading the table", "planning"]
    assert "measuring" in stages


def test_what_the_caller_got_wrong(
    make: Make, survey: Any, schema: Schema, budget: Callable[..., Budget]
) -> None:
    other = dualquery.Domain((dualquery.Categorical("a", ("x", "y")),))
    with pytest.raises(DualQueryError, match="one of domain and schema"):
        make(table=survey)
    with pytest.raises(DualQueryError, match="one of domain and schema"):
        make(table=survey, schema=schema, domain=schema.domain)
    with pytest.raises(DualQueryError, match="another schema"):
        make(schema=other)
    with pytest.raises(DualQueryError, match="another schema"):
        make(workload=dualquery.marginals(other, 1))
    with pytest.raises(DualQueryError, match="no mechanism 'nonsense'"):
        make(mechanism="nonsense")
    with pytest.raises(DualQueryError, match="--rounds"):
        make(rounds=3)
    with pytest.raises(DualQueryError, match=r"no argument 'round'; the options of mechanisms are .*rounds"):
        make(round=3)
    with pytest.raises(DualQueryError, match="no argument 'options'"):
        make(options={"rounds": 3})
    with pytest.raises(DataError, match="declared number"):
        make(public_rows=4)
    with pytest.raises(BudgetError, match="at least 1"):
        make(public_rows=0, budget=budget(neighbours=Neighbours.ADD_REMOVE))
