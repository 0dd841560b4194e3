"""Regressions on weighted rows: linear, logistic and Poisson, by Newton's method.

The log-likelihood of weight w_i, linear predictor η_i = x_iᵀβ and response y_i is Σ w_i (y_i η_i − A(η_i)) with A(η)
= η²/2, log(1 + e^η) or e^η. Its slope is Xᵀ W (y − A'(η)), its curvature Xᵀ W A''(η) X. The variance of β̂ in tables
of n records is that of White (1980), H⁻¹ (Σ w_i s_i s_iᵀ) H⁻¹ / n with the slopes s_i of single records: it holds
where the model does not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.fitting.smooth import number_codes
from dualquery.queries.models import Factor, ModelFormula
from dualquery.table.domain import Categorical, Column, Domain, Numeric
from dualquery.types import Reals

STEPS = 40
CLOSE = 1e-8  # a step that is smaller, in standard units, is the last
LARGEST = 30.0  # |η| in the logistic and Poisson model
INTERCEPT = "(intercept)"


class Family(Enum):
    """Which law the response has."""

    LINEAR = "linear"
    LOGISTIC = "logistic"
    POISSON = "poisson"

    @staticmethod
    def named(name: object) -> Family:
        try:
            return Family(name)
        except ValueError:
            raise QueryError(f"family must be linear, logistic or poisson, got {name!r}") from None


class Design(NamedTuple):
    """The response and the columns of a model, with their names; `known` says which rows miss nothing."""

    names: list[str]
    columns: Reals
    response: Reals
    known: NDArray[np.bool_]


def check(domain: Domain, formula: ModelFormula, family: Family) -> None:
    """Refuse a response that the family cannot explain."""
    factor = formula.response
    name, column = domain.name(factor.attribute), domain.column_of(factor.attribute)[1]
    numeric = number_codes(column) is not None
    if family is Family.LOGISTIC and numeric:
        raise QueryError(
            f"'{name}' is a number, and a logistic model explains one of two values; use family linear"
        )
    if family is Family.POISSON and not _counts(column):
        raise QueryError(f"a Poisson model explains counts, and '{name}' is not a number from 0 on")
    if not numeric and factor.code is None and len(_present(domain, factor.attribute)) > 2:
        label = domain.labels(factor.attribute)[-1]
        raise QueryError(
            f"'{name}' has more than two values; say which one is explained, '{name}' = '{label}' ~ …"
        )
    if factor.code is None and not numeric and len(_present(domain, factor.attribute)) < 2:
        raise QueryError(f"'{name}' has one value only, so there is nothing to explain")


def _counts(column: Column) -> bool:
    """Whether its values are numbers from 0 on."""
    if isinstance(column, Categorical) and column.numeric:
        return bool(np.nanmin(column.numbers) >= 0)
    return isinstance(column, Numeric) and bool(column.bounds()[0][0] >= 0)


def _present(domain: Domain, attribute: int) -> list[int]:
    """The codes of an attribute that are no missing ones."""
    absent = getattr(domain.column_of(attribute)[1], "missing_code", None)
    return [code for code in range(int(domain.sizes[attribute])) if code != absent]


def designed(
    domain: Domain,
    formula: ModelFormula,
    codes: Mapping[int, NDArray[np.int64]],
    numbers: Mapping[int, Reals],
) -> Design:
    """The model of some rows, from their codes, and the numbers of numeric attributes."""
    rows = len(codes[formula.response.attribute])
    known = np.ones(rows, np.bool_)
    for j in formula.attributes:
        absent = getattr(domain.column_of(j)[1], "missing_code", None)
        if absent is not None:
            known &= codes[j] != absent
    names, columns = [INTERCEPT], [np.ones(rows)]
    for term in formula.terms:
        sides = [_coded(domain, factor, codes, numbers) for factor in term]
        for place in np.ndindex(*map(len, sides)):
            picked = [side[number] for side, number in zip(sides, place, strict=True)]
            names.append(":".join(name for name, _ in picked))
            columns.append(np.prod([values for _, values in picked], axis=0))
    return Design(
        names, np.stack(columns, axis=1), _explained(domain, formula.response, codes, numbers), known
    )


def _coded(
    domain: Domain, factor: Factor, codes: Mapping[int, NDArray[np.int64]], numbers: Mapping[int, Reals]
) -> list[tuple[str, Reals]]:
    """A number as it is; of another attribute, whether it has each value but the first."""
    name, labels = domain.name(factor.attribute), domain.labels(factor.attribute)
    mine = codes[factor.attribute]
    if factor.code is not None:
        return [(f"{name}[{labels[factor.code]}]", (mine == factor.code).astype(np.float64))]
    if number_codes(domain.column_of(factor.attribute)[1]) is not None:
        return [(name, numbers[factor.attribute])]
    others = _present(domain, factor.attribute)[1:]
    return [(f"{name}[{labels[code]}]", (mine == code).astype(np.float64)) for code in others]


def _explained(
    domain: Domain, factor: Factor, codes: Mapping[int, NDArray[np.int64]], numbers: Mapping[int, Reals]
) -> Reals:
    if factor.code is None and number_codes(domain.column_of(factor.attribute)[1]) is not None:
        return numbers[factor.attribute]
    code = _present(domain, factor.attribute)[-1] if factor.code is None else factor.code
    found: Reals = (codes[factor.attribute] == code).astype(np.float64)
    return found


_LAWS: dict[Family, Callable[[Reals], tuple[Reals, Reals, Reals]]] = {
    Family.LINEAR: lambda eta: (eta**2 / 2, eta, np.ones(len(eta))),
    Family.LOGISTIC: lambda eta: _logistic(np.clip(eta, -LARGEST, LARGEST)),
    Family.POISSON: lambda eta: (lambda mean: (mean, mean, mean))(np.exp(np.minimum(eta, LARGEST))),
}  # A, A' and A''


def _logistic(eta: Reals) -> tuple[Reals, Reals, Reals]:
    mean = 1 / (1 + np.exp(-eta))
    return np.log1p(np.exp(-np.abs(eta))) + np.maximum(eta, 0), mean, mean * (1 - mean)


class Coefficients(NamedTuple):
    """Coefficients, and their variance in tables of one record: to be divided by n."""

    coefficients: Reals
    variance: Reals


def fitted(design: Design, weights: Reals, family: Family, *, sampling: bool = False) -> Coefficients:
    """The most likely coefficients, with weights that need not sum to one; NaN for columns that do not vary."""
    weights = np.where(design.known, weights, 0.0)
    total = float(weights.sum())
    if total <= 0:
        raise QueryError("every row misses one of the numbers of the model")
    kept = np.flatnonzero(weights > 0)
    weights, x, y = weights[kept] / total, design.columns[kept], design.response[kept]
    centre = weights @ x
    spread = np.sqrt(np.maximum(weights @ (x - centre) ** 2, 0.0))
    varied = spread > 1e-9 * np.maximum(1.0, np.abs(centre))
    # In standard units, with the intercept first: β is turned back at the end.
    z = np.column_stack([np.ones(len(x)), (x[:, varied] - centre[varied]) / spread[varied]])
    law = _LAWS[family]
    beta = np.zeros(z.shape[1])
    if family is Family.POISSON:
        beta[0] = np.log(max(float(weights @ y), 1e-9))
    for _ in range(STEPS):
        cost, mean, curve = law(z @ beta)
        value = float(weights @ (cost - y * (z @ beta)))
        step = np.linalg.solve(_curvature(z, weights * curve), (weights * (y - mean)) @ z)
        length = 1.0
        while length > 1e-4:
            eta = z @ (beta + length * step)
            if float(weights @ (law(eta)[0] - y * eta)) <= value + 1e-12:
                break
            length /= 2
        beta = beta + length * step
        if family is Family.LINEAR or float(np.abs(length * step).max()) < CLOSE:
            break
    back = np.zeros((x.shape[1], z.shape[1]))  # β of the columns from that of standard units
    places = np.flatnonzero(varied)
    back[places, np.arange(1, len(places) + 1)] = 1 / spread[varied]
    back[0, 1:] = -centre[varied] / spread[varied]
    back[0, 0] = 1.0
    out = np.full(x.shape[1], np.nan)
    told = np.append(0, places)
    out[told] = (back @ beta)[told]
    variance = np.full(x.shape[1], np.nan)
    if sampling:
        _, mean, curve = law(z @ beta)
        bread = np.linalg.inv(_curvature(z, weights * curve))
        slopes = z * (y - mean)[:, None]
        meat = (slopes * weights[:, None]).T @ slopes
        variance[told] = np.einsum("ij,jk,ik->i", back, bread @ meat @ bread, back)[told]
    return Coefficients(out, variance)


def _curvature(z: Reals, weights: Reals) -> Reals:
    found: Reals = (z * weights[:, None]).T @ z
    found[np.diag_indices(len(found))] += 1e-9 * max(1.0, float(np.trace(found)) / len(found))
    return found
