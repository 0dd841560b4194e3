"""The number of records, measured out of a Gaussian budget: priced, split, known, and announced."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dualquery
from dualquery import Accounting, Budget, BudgetError, Categorical, Domain, Neighbours, Records
from dualquery.privacy.accounting import FINE, ROUNDING, mu_squared_units
from dualquery.privacy.budget import PersonAddRemove, PersonReplace
from dualquery.privacy.conversion import UNITS, units
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import Ledger
from dualquery.releases.plan import price_of_rows

DOMAIN = Domain((Categorical("a", ("0", "1")), Categorical("b", ("x", "y", "z"))))
PRIVATE = [Neighbours.ADD_REMOVE, PersonAddRemove(7), PersonReplace(3)]


@settings(max_examples=15, deadline=None)
@given(
    epsilon=st.floats(0.01, 200),
    exponent=st.floats(-12, -2),
    relation=st.sampled_from(PRIVATE),
)
def test_gaussian_budget_splits_into_the_number_of_records_and_the_rest(
    epsilon: float, exponent: float, relation: Neighbours
) -> None:
    """1% of μ² for the number; the rest is a budget of its own, and both together pass the ledger of the whole."""
    whole = Budget(
        epsilon=epsilon,
        delta=10.0**exponent,
        neighbours=relation,
        accounting=Accounting.GAUSSIAN,
        adaptive=True,
    )
    try:
        priced = price_of_rows(whole)
    except BudgetError as refusal:  # where δ alone covers nearly all, no smaller ε stands for 99% of it
        assert "declare" in str(refusal)  # noqa: PT017
        assert mu_squared_units(epsilon=1e-12, delta=whole.delta) > 0.9 * mu_squared_units(
            epsilon=epsilon, delta=whole.delta
        )
        return
    most = relation.records_per_person or 1
    event = priced.step(DOMAIN).event
    assert isinstance(event, GaussianMeasurement)
    assert event.sensitivity_squared == (most * priced.times) ** 2
    assert event.variance >= FINE
    mu_squared = event.sensitivity_squared / (event.variance - ROUNDING)
    limit = mu_squared_units(epsilon=epsilon, delta=whole.delta)
    assert mu_squared * UNITS == pytest.approx(limit / 100, rel=1e-9, abs=2)
    ledger = Ledger(whole)
    ledger.charge(event)
    rest = mu_squared_units(epsilon=priced.left.epsilon, delta=priced.left.delta)
    assert 0.985 * limit < rest
    assert rest + units(mu_squared) <= limit
    ledger.charge(GaussianMeasurement(Fraction(rest, UNITS) * 10**6, 10**6 + ROUNDING))
    with pytest.raises(BudgetError):
        ledger.charge(GaussianMeasurement(Fraction(limit, 50 * UNITS), Fraction(10**6)))


def table(rows: int = 3000) -> Records:
    drawn = np.random.default_rng(0).integers(0, (2, 3), (rows, 2))
    return Records.from_rows(DOMAIN, drawn)


@pytest.mark.parametrize("mechanism", ["projection", "gaussian", "hadamard"])
@pytest.mark.parametrize("accounting", [Accounting.TIGHTEST, Accounting.GAUSSIAN])
def test_a_gaussian_release_measures_the_number_of_records(mechanism: str, accounting: Accounting) -> None:
    """First the number, then the mechanism within what is left; the whole budget is what is promised."""
    workload = "marginals:2" if mechanism != "hadamard" else "marginals:1"
    domain = DOMAIN if mechanism != "hadamard" else Domain((Categorical("a", ("0", "1")),))
    records = table() if mechanism != "hadamard" else Records.from_rows(domain, table().to_rows()[:, :1])
    options = {} if mechanism == "gaussian" else {"synthetic_rows": 200}
    limits = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=accounting)
    made = dualquery.release(
        records, workload=workload, budget=limits, mechanism=mechanism, seed=1, **options
    )
    certificate = made.certificate
    assert certificate["budget"]["accounting"] == "gaussian"
    assert certificate["records"]["from"].startswith("measured")
    assert abs(certificate["records"]["rows"] - 3000) < 250
    assert certificate["spent"]["epsilon"] == 1
    first = certificate["events"][0]
    cost = Fraction(first["sensitivity_squared"]) / (Fraction(first["variance"]) - ROUNDING)
    limit = Fraction(mu_squared_units(epsilon=1.0, delta=1e-6), UNITS)
    assert float(cost / limit) == pytest.approx(0.01, rel=1e-6)
    total = sum(
        each["times"] * Fraction(each["sensitivity_squared"]) / (Fraction(each["variance"]) - ROUNDING)
        for each in certificate["events"]
    )
    assert 0.99 < total / limit <= 1


@pytest.mark.parametrize("relation", PRIVATE, ids=str)
def test_a_plan_announces_the_measurement_of_the_number(relation: Neighbours) -> None:
    limits = Budget(epsilon=1, delta=1e-6, neighbours=relation)
    measured = dualquery.plan(DOMAIN, rows=3000, workload="marginals:2", budget=limits)
    declared = dualquery.plan(DOMAIN, public_rows=3000, workload="marginals:2", budget=limits)
    first, *others = measured.steps
    assert first.words == "measure the number of records"
    assert first.times == 1
    assert measured.task.rows_variance == pytest.approx(
        (relation.records_per_person or 1) ** 2 * 100 / (2 * 0.0280145), rel=1e-2
    )
    assert len(others) == len(declared.steps)
    assert measured.task.budget.adaptive
    assert not declared.task.budget.adaptive
    ledger = Ledger(
        Budget(epsilon=1, delta=1e-6, neighbours=relation, accounting=Accounting.GAUSSIAN, adaptive=True)
    )
    ledger.charge(*(step.event for step in measured.steps for _ in range(step.times)))
    with pytest.raises(BudgetError):
        ledger.charge(first.event)


def test_a_plan_is_told_the_number_once() -> None:
    limits = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
    for given_rows in ({}, {"rows": 5, "public_rows": 5}):
        with pytest.raises(dualquery.DualQueryError, match="one of records and expected_records"):
            dualquery.plan(DOMAIN, workload="marginals:2", budget=limits, **given_rows)  # type: ignore[arg-type]
