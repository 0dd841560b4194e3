"""Fits against closed forms and a general minimiser, weights against repetition, variances against chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize

from dualquery.errors import QueryError
from dualquery.inference.regressions import Design, Family, check, designed, fitted
from dualquery.queries.models import read_formula
from dualquery.table.domain import Categorical, Domain, Numeric

DOMAIN = Domain(
    (
        Numeric("x", (0.0, 1.0, 2.0), missing="missing"),
        Categorical("g", ("a", "b", "c")),
        Categorical("y", ("no", "yes")),
        Numeric("k", (0.0, 5.0, 10.0), integer=True),
        Numeric("z", (-1.0, 0.0, 1.0)),
        Categorical("only", ("one",)),
    )
)


def invented(rows: int, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    x = np.column_stack([np.ones(rows), rng.normal(50, 20, rows), rng.random(rows) < 0.3]).astype(float)
    return x, rng


def design(x: Any, y: Any) -> Design:
    return Design([str(i) for i in range(x.shape[1])], x, y, np.ones(len(y), np.bool_))


def test_linear_is_least_squares() -> None:
    x, rng = invented(300)
    y, weights = x @ [3.0, -0.2, 5.0] + rng.normal(0, 2, 300), rng.random(300)
    root = np.sqrt(weights)[:, None]
    expected = np.linalg.lstsq(root * x, root[:, 0] * y, rcond=None)[0]
    np.testing.assert_allclose(fitted(design(x, y), weights, Family.LINEAR).coefficients, expected, rtol=1e-6)


@pytest.mark.parametrize("family", [Family.LOGISTIC, Family.POISSON])
def test_the_most_likely_coefficients(family: Family) -> None:
    x, rng = invented(400)
    eta = x @ [-1.0, 0.02, 0.7]
    y = (rng.random(400) < 1 / (1 + np.exp(-eta))) if family is Family.LOGISTIC else rng.poisson(np.exp(eta))
    weights = rng.random(400)
    law = (lambda e: np.logaddexp(0, e)) if family is Family.LOGISTIC else np.exp
    scale = np.array([1.0, 0.02, 1.0])

    def cost(beta: Any) -> float:
        told = x @ (beta * scale)
        return float(weights @ (law(told) - y * told))

    best = optimize.minimize(cost, np.zeros(3), method="BFGS", options={"gtol": 1e-7}).x * scale
    found = fitted(design(x, y.astype(float)), weights, family).coefficients
    np.testing.assert_allclose(found, best, rtol=1e-3, atol=1e-4)


def test_two_groups_have_closed_forms() -> None:
    g = np.repeat([0.0, 1.0], [30, 70])
    y = np.concatenate([np.repeat([0.0, 1.0], [20, 10]), np.repeat([0.0, 1.0], [14, 56])])
    x = np.column_stack([np.ones(100), g])
    odds = fitted(design(x, y), np.ones(100), Family.LOGISTIC).coefficients
    np.testing.assert_allclose(odds, [np.log(10 / 20), np.log(56 / 14) - np.log(10 / 20)], rtol=1e-6)
    rates = fitted(design(x, y), np.ones(100), Family.POISSON).coefficients
    np.testing.assert_allclose(np.exp(rates), [1 / 3, (56 / 70) / (1 / 3)], rtol=1e-6)


def test_a_weight_of_two_is_a_row_twice() -> None:
    x, rng = invented(100)
    y, times = x @ [1.0, 0.1, 2.0] + rng.normal(0, 1, 100), rng.integers(0, 4, 100)
    one = fitted(design(x, y), times.astype(float), Family.LINEAR, sampling=True)
    many = fitted(
        design(np.repeat(x, times, axis=0), np.repeat(y, times)),
        np.ones(times.sum()),
        Family.LINEAR,
        sampling=True,
    )
    np.testing.assert_allclose(one.coefficients, many.coefficients)
    np.testing.assert_allclose(one.variance, many.variance)


def test_the_variance_is_that_of_tables_drawn_again() -> None:
    x, rng = invented(4000)
    y = x @ [1.0, 0.1, 2.0] + rng.normal(0, 1, 4000) * x[:, 1] / 20  # not of one variance
    told = fitted(design(x, y), np.ones(4000), Family.LINEAR, sampling=True).variance / 500
    seen = []
    for _ in range(300):
        drawn = rng.integers(0, 4000, 500)
        seen.append(fitted(design(x[drawn], y[drawn]), np.ones(500), Family.LINEAR).coefficients)
    np.testing.assert_allclose(told, np.var(seen, axis=0), rtol=0.3)


def test_a_column_that_does_not_vary_has_no_coefficient() -> None:
    x, rng = invented(50)
    x = np.column_stack([x, np.zeros(50)])
    found = fitted(design(x, rng.normal(size=50)), np.ones(50), Family.LINEAR, sampling=True)
    assert np.isnan(found.coefficients).tolist() == [False, False, False, True]
    assert np.isnan(found.variance).tolist() == [False, False, False, True]


def test_values_become_columns_and_missing_numbers_leave() -> None:
    codes = {0: np.array([0, 1, 2, 0]), 1: np.array([0, 1, 2, 1]), 2: np.array([0, 1, 1, 0])}
    numbers = {0: np.array([0.5, 1.5, 0.0, 0.1]), 1: np.zeros(4), 2: np.zeros(4)}
    made = designed(DOMAIN, read_formula(DOMAIN, "y ~ x * g"), codes, numbers)
    assert made.names == ["(intercept)", "x", "g[b]", "g[c]", "x:g[b]", "x:g[c]"]
    assert made.response.tolist() == [0.0, 1.0, 1.0, 0.0]
    assert made.known.tolist() == [True, True, False, True]
    assert made.columns[1].tolist() == [1.0, 1.5, 1.0, 0.0, 1.5, 0.0]
    assert designed(DOMAIN, read_formula(DOMAIN, "g = a ~ x"), codes, numbers).response.tolist() == [
        1,
        0,
        0,
        0,
    ]


@pytest.mark.parametrize(
    ("formula", "family", "part"),
    [
        ("x ~ g", "logistic", "use family linear"),
        ("y ~ g", "poisson", "not a number"),
        ("z ~ g", "poisson", "not a number from 0 on"),
        ("g ~ x", "linear", "more than two values"),
        ("only ~ x", "linear", "one value only"),
    ],
)
def test_responses_that_a_family_cannot_explain(formula: str, family: str, part: str) -> None:
    with pytest.raises(QueryError, match=part):
        check(DOMAIN, read_formula(DOMAIN, formula), Family.named(family))
    with pytest.raises(QueryError, match="linear, logistic or poisson"):
        Family.named("probit")
