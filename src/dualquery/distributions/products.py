"""Queries as a distribution sees them: products of one-attribute functions, each stored by its jumps.

A function of one ordered attribute is a sum of steps, f(x) = Σ_v (f(v) − f(v − 1)) · [x ≥ v] with
f(−1) = 0, so that the expectation of a product is a short sum of survival probabilities (Abel summation):

    E Π_k f_k(x_k) = Σ_v Π_k (f_k(v_k) − f_k(v_k − 1)) · P[x_1 ≥ v_1, x_2 ≥ v_2, …].

A range has two jumps however long it is, an equality two, a sign (−1)^x two. One table of survival
probabilities therefore answers ranges, cells, sets, negations and parities alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.group import NONE, Predicates
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain


@dataclass(frozen=True)
class Products:
    """q(x) = offset[q] + slope[q] · Π_k f(x), over the functions numbered in factors[q] (padded with -1).

    Function f is about attribute[f] and jumps by jump[i] at digit[i], start[f] ≤ i < start[f + 1].
    """

    domain: Domain
    factors: NDArray[np.int32]
    offset: NDArray[np.float64]
    slope: NDArray[np.float64]
    attribute: NDArray[np.int32]
    start: NDArray[np.int64]
    digit: NDArray[np.int64]
    jump: NDArray[np.float64]

    @staticmethod
    def of(workload: Workload) -> Products:
        """Every query of a workload, in its order; cells of tables are written out."""
        rows = workload.product_rows(np.arange(workload.size, dtype=np.int64))
        signs = np.unique(rows.parities[rows.parities != NONE])
        literals = 2 * len(rows.predicates)
        width = max(rows.literals.shape[1], rows.parities.shape[1], 1)
        factors = np.full((workload.size, width), NONE, np.int32)
        factors[rows.positions[:, None], np.arange(rows.literals.shape[1])] = rows.literals
        numbered = np.where(rows.parities == NONE, NONE, literals + np.searchsorted(signs, rows.parities))
        factors[rows.parity_positions[:, None], np.arange(rows.parities.shape[1])] = numbered

        offset, slope = np.zeros(workload.size), np.ones(workload.size)
        offset[rows.positions[rows.complement]] = 1.0
        slope[rows.positions[rows.complement]] = -1.0
        offset[rows.parity_positions] = slope[rows.parity_positions] = 0.5

        jumps = [_jumps(values) for values in _literal_values(rows.predicates, workload.domain.sizes)]
        jumps += [_jumps(np.array([1.0, -1.0]))] * len(signs)
        return Products(
            workload.domain,
            factors,
            offset,
            slope,
            np.concatenate([np.repeat(rows.predicates.attribute, 2), signs]).astype(np.int32),
            np.concatenate([[0], np.cumsum([len(digits) for digits, _ in jumps])]).astype(np.int64),
            np.concatenate([np.empty(0), *(digits for digits, _ in jumps)]).astype(np.int64),
            np.concatenate([np.empty(0), *(sizes for _, sizes in jumps)]),
        )

    @property
    def size(self) -> int:
        return len(self.factors)

    @property
    def order(self) -> int:
        """The largest number of attributes in one query."""
        return self.factors.shape[1]

    def attributes_of(self, query: int) -> tuple[int, ...]:
        """The attributes that a query asks about, increasing."""
        row = self.factors[query]
        return tuple(sorted(self.attribute[row[row != NONE]].tolist()))

    def table_of(self, query: int) -> NDArray[np.float64]:
        """The query's value on every cell of the table over its attributes, one axis an attribute."""
        row = self.factors[query]
        functions = sorted(row[row != NONE].tolist(), key=lambda f: int(self.attribute[f]))
        product = np.ones(())
        for f in functions:
            product = np.multiply.outer(product, self.values_of(f))
        return np.asarray(self.offset[query] + self.slope[query] * product)

    def values_of(self, function: int) -> NDArray[np.float64]:
        """The function's value at every value of its attribute."""
        mine = slice(self.start[function], self.start[function + 1])
        steps = np.zeros(int(self.domain.sizes[self.attribute[function]]))
        steps[self.digit[mine]] = self.jump[mine]
        return np.cumsum(steps)


def _jumps(values: NDArray[np.float64]) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Where a function jumps, and by how much. One that is zero everywhere keeps a jump of nothing."""
    steps = np.diff(values, prepend=0.0)
    digits = np.flatnonzero(steps)
    if len(digits) == 0:
        digits = np.zeros(1, np.intp)
    return digits, steps[digits]


def _literal_values(predicates: Predicates, sizes: NDArray[np.int32]) -> Iterator[NDArray[np.float64]]:
    """Of each predicate the indicator over its attribute's values, then that of its negation."""
    for predicate in range(len(predicates)):
        values = np.zeros(int(sizes[predicates.attribute[predicate]]))
        values[predicates.accepted(predicate)] = 1.0
        yield values
        yield 1.0 - values
