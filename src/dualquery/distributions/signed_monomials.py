"""Multiplicative weights over signed basis functions: a learner whose experts are monomials and not records.

A table is a map from queries to fractions. If every such map is near a combination of basis functions φ_f of total
weight W (`mechanisms.disjunctions.polynomials`), it is W times the mean of ±φ_f under some distribution over the 2F
signed functions, which multiplicative weights learn as they would learn one over records:

    answer(q) = W · Σ_f (w⁺_f − w⁻_f) φ_f(q),           w± ∝ w± · exp(±η φ_f(q)).

Of monomials only those within a query are 1 on it, so that a round touches few of them. η is chosen so that the
answer becomes what was measured: with a, b the mass of w⁺ and w⁻ on the functions that are 1 on q, and c the rest,
W (a z − b/z) = m (a z + b/z + c) at z = e^η. Nothing here knows of privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.distributions.multiplicative_weights import Schedule
from dualquery.game.moves import HeardQuery

Reals = NDArray[np.float64]
Places = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BasisIncidence:
    """Which basis functions are 1 on each query: functions[start[q] : start[q + 1]], out of `number`."""

    number: int
    start: Places
    functions: Places


class SignedMonomials:
    """Weights over signed functions, in logarithms: w± ∝ e^{±θ}."""

    def __init__(self, incidence: BasisIncidence, *, weight: float, schedule: Schedule) -> None:
        self._incidence = incidence
        self._weight = weight
        self._schedule = schedule
        self._log = np.zeros(incidence.number)
        self._heard: dict[int, list[float]] = {}

    def hear(self, challenge: HeardQuery) -> None:
        """Take in an answer; then go over all of them until they agree."""
        self._heard.setdefault(challenge.query, []).append(challenge.value)
        queries = np.array(list(self._heard), np.int64)
        values = np.array([math.fsum(told) / len(told) for told in self._heard.values()])
        _settle(
            self._incidence.start,
            self._incidence.functions,
            self._log,
            queries,
            np.clip(values, 0.0, 1.0),
            self._weight,
            self._schedule.passes,
            self._schedule.tolerance,
        )

    def snapshot(self) -> MonomialBelief:
        return MonomialBelief(self._incidence, self._weight, self._log.copy())


@dataclass(frozen=True, eq=False)
class MonomialBelief:
    """The weights as they stand."""

    incidence: BasisIncidence
    weight: float
    log: Reals

    def own_answers(self) -> Reals:
        """The fraction of each query."""
        mass = float(2 * np.cosh(self.log).sum())
        signed = np.append(self.weight * 2 * np.sinh(self.log) / mass, 0.0)[self.incidence.functions]
        totals = np.concatenate([[0.0], np.cumsum(signed)])
        answers: Reals = totals[self.incidence.start[1:]] - totals[self.incidence.start[:-1]]
        return answers


@njit(cache=True)
def _settle(start, functions, log, queries, values, weight, passes, tolerance):  # type: ignore[no-untyped-def]
    """Passes over all measurements; each step makes one of them true."""
    mass = 0.0
    for f in range(log.shape[0]):
        mass += 2.0 * math.cosh(log[f])
    for _ in range(passes):
        largest = 0.0
        for i in range(queries.shape[0]):
            first, last = start[queries[i]], start[queries[i] + 1]
            plus, minus = 0.0, 0.0
            for place in range(first, last):
                plus += math.exp(log[functions[place]])
                minus += math.exp(-log[functions[place]])
            rest = max(mass - plus - minus, 0.0)
            gap = values[i] - weight * (plus - minus) / mass
            largest = max(largest, abs(gap))
            linear = values[i] * rest
            root = math.sqrt(linear * linear + 4 * (weight - values[i]) * (weight + values[i]) * plus * minus)
            step = math.log((linear + root) / (2 * (weight - values[i]) * plus))
            for place in range(first, last):
                log[functions[place]] += step
            mass = rest + plus * math.exp(step) + minus * math.exp(-step)
        if largest <= tolerance:
            return
