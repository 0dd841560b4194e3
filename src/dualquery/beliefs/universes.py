"""Learners whose experts are not records: signed monomials, the cells of lists that queries touch, places in columns.

Multiplicative weights need a universe and queries that are linear over it. Where the records are too many, another
universe answers the same queries. Nothing here knows of privacy.
"""

from __future__ import annotations

import math
from copy import copy
from dataclasses import dataclass

import numpy as np

from dualquery.beliefs.multiplicative_weights import Schedule
from dualquery.game import Heard
from dualquery.loops import njit
from dualquery.queries.distances import UNIT, Distances
from dualquery.queries.lists import Lists
from dualquery.queries.workload import Workload
from dualquery.table.points import GRID, KNOTS
from dualquery.types import Flags, Integers, Reals, Words


@dataclass(frozen=True, eq=False)
class BasisIncidence:
    """Which basis functions are 1 on each query: functions[start[q] : start[q + 1]], out of `number`."""

    number: int
    start: Integers
    functions: Integers


class SignedMonomials:
    """Multiplicative weights over signed basis functions: a learner whose experts are monomials and not records.

    A table is a map from queries to fractions. If every such map is near a combination of basis functions φ_f of
    total weight W (`mechanisms.monomials`), it is W times the mean of ±φ_f under some distribution over the 2F signed
    functions, which multiplicative weights learn as they would learn one over records:

        answer(q) = W · Σ_f (w⁺_f − w⁻_f) φ_f(q),           w± ∝ w± · exp(±η φ_f(q)).

    Of monomials only those within a query are 1 on it, so that a round touches few of them. η is chosen so that the
    answer becomes what was measured: with a, b the mass of w⁺ and w⁻ on the functions that are 1 on q, and c the
    rest, W (a z − b/z) = m (a z + b/z + c) at z = e^η. Weights are kept in logarithms: w± ∝ e^{±θ}.
    """

    def __init__(self, incidence: BasisIncidence, *, weight: float, schedule: Schedule) -> None:
        self._incidence = incidence
        self._weight = weight
        self._schedule = schedule
        self._log = np.zeros(incidence.number)
        self._heard: dict[int, list[float]] = {}

    def hear(self, challenge: Heard[int]) -> None:
        """Take in an answer; then go over all of them until they agree."""
        self._heard.setdefault(challenge.what, []).append(challenge.value)
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

    def snapshot(self) -> SignedMonomials:
        held = SignedMonomials(self._incidence, weight=self._weight, schedule=self._schedule)
        held._log = self._log.copy()
        return held

    def answers(self, workload: Workload) -> Reals:
        """The fraction of each query of the workload that the incidence is of."""
        start, functions = self._incidence.start, self._incidence.functions
        assert workload.size == len(start) - 1, "monomials answer the queries that they learn from"
        mass = float(2 * np.cosh(self._log).sum())
        signed = np.append(self._weight * 2 * np.sinh(self._log) / mass, 0.0)[functions]
        totals = np.concatenate([[0.0], np.cumsum(signed)])
        answers: Reals = totals[start[1:]] - totals[start[:-1]]
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


FIRST_PLACES = 1 << 10
FULL = 0.6  # of the places of the table may be taken


class TouchedWeights:
    """Multiplicative weights over a universe of 2^64 cells and more: the touched ones, and one weight for all others.

    A query that accepts S cells touches S weights (Blum and Roth, *Fast Private Data Release Algorithms for Sparse
    Queries*, 2013): those that no query has touched are all alike, and one number stands for them. Weights are
    kept relative to it, in an open hash table of 64-bit cells,

        v(x) = w(x) / default,        total = N − touched + Σ v,        answer(q) = Σ_{x ∈ q} v(x) / total,

    so that answering and learning take time in proportion to what a query accepts. From a mass of S/2^64 small
    steps never arrive; a step makes the answer what was measured: v(x) is multiplied by m/(1 − m) · (1 − a)/a on
    the cells of the query, a its answer before.
    """

    def __init__(self, universe: float) -> None:
        self._universe = universe
        self._keys: Words = np.zeros(FIRST_PLACES, np.uint64)
        self._taken: Flags = np.zeros(FIRST_PLACES, np.bool_)
        self._values: Reals = np.ones(FIRST_PLACES)
        self._touched = 0
        self._surplus = 0.0  # Σ (v − 1): what the touched ones have above the default

    @property
    def touched(self) -> int:
        return self._touched

    @property
    def bytes(self) -> int:
        return self._keys.nbytes + self._taken.nbytes + self._values.nbytes

    def answers(self, start: Integers, cells: Words) -> Reals:
        """The fraction of each of several queries: query q accepts cells[start[q] : start[q + 1]], each once."""
        return self.of(start, cells) / self.total

    def of(self, start: Integers, cells: Words) -> Reals:
        """The weight of each of several queries, a multiple of what a cell has that nobody touched."""
        masses: Reals = _masses(self._keys, self._taken, self._values, start, cells)
        return masses

    @property
    def total(self) -> float:
        return self._universe + self._surplus

    def hear(self, cells: Words, value: float, floor: float) -> float:
        """Make the answer to a query what was measured, kept away from 0 and 1; how far off it was."""
        while self._touched + len(cells) > FULL * len(self._keys):
            self._grow()
        mass = float(self.of(np.array([0, len(cells)]), cells)[0])
        before = mass / self.total
        told = min(max(value, floor), 1 - floor)
        factor = told / (1 - told) * (1 - before) / before
        self._touched += _multiply(self._keys, self._taken, self._values, cells, factor)
        self._surplus += (factor - 1) * mass
        return abs(value - before)

    def copy(self) -> TouchedWeights:
        other = copy(self)
        other._keys, other._taken = self._keys.copy(), self._taken.copy()
        other._values = self._values.copy()
        return other

    def _grow(self) -> None:
        keys, taken, values = self._keys, self._taken, self._values
        size = 4 * len(keys) if len(keys) < 1 << 20 else 2 * len(keys)
        self._keys, self._taken, self._values = (
            np.zeros(size, np.uint64),
            np.zeros(size, np.bool_),
            np.ones(size),
        )
        _put_all(self._keys, self._taken, self._values, keys, taken, values)
        # The running sum is taken anew, so that rounding does not add up.
        self._surplus = math.fsum((values[taken] - 1).tolist())


class TouchedLists:
    """Weights over the cells that lists accept; it hears lists by their numbers.

    What all lists hold is kept, and moves with the cells of the list that is heard: a round costs as many sums as
    these cells lie in lists, whatever the number and the length of all others.
    """

    def __init__(self, lists: Lists, weights: TouchedWeights, *, floor: float) -> None:
        self.lists = lists
        self.weights = weights
        self._floor = floor
        named, self._which = np.unique(lists.cells, return_inverse=True)
        order = np.argsort(self._which, kind="stable")
        self._begins = np.searchsorted(self._which[order], np.arange(len(named) + 1))
        self._owners = np.repeat(np.arange(lists.size), np.diff(lists.start))[order]
        self._masses = weights.of(lists.start, lists.cells)

    def hear(self, challenge: Heard[int]) -> None:
        first, last = self.lists.start[challenge.what : challenge.what + 2]
        cells, each = self.lists.cells[first:last], np.arange(last - first + 1)
        before = self.weights.of(each, cells)
        self.weights.hear(cells, challenge.value, self._floor)
        moved = self.weights.of(each, cells) - before
        _spread(self._masses, self._begins, self._owners, self._which[first:last], moved)

    def snapshot(self) -> TouchedLists:
        other = copy(self)
        other.weights, other._masses = self.weights.copy(), self._masses.copy()
        return other

    def answers(self, workload: Workload) -> Reals:
        """The fraction of each list of the workload that it learns from."""
        assert workload.size == self.lists.size, "weights answer the lists that they learn from"
        return np.maximum(self._masses, 0.0) / self.weights.total


@njit(cache=True)
def _spread(masses, begins, owners, which, moved):  # type: ignore[no-untyped-def]
    """Add what each of some cells has moved by to all lists that it lies in."""
    for i in range(which.shape[0]):
        for place in range(begins[which[i]], begins[which[i] + 1]):
            masses[owners[place]] += moved[i]


@njit(cache=True, inline="always")
def _place(keys, taken, cell):  # type: ignore[no-untyped-def]
    """Where a cell is, or where it would be put: linear probing from a mixed start."""
    mask = np.uint64(keys.shape[0] - 1)
    place = ((cell ^ (cell >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & mask
    while taken[place] and keys[place] != cell:
        place = (place + np.uint64(1)) & mask
    return place


@njit(cache=True)
def _masses(keys, taken, values, start, cells):  # type: ignore[no-untyped-def]
    out = np.empty(start.shape[0] - 1)
    for q in range(start.shape[0] - 1):
        mass = 0.0
        for i in range(start[q], start[q + 1]):
            place = _place(keys, taken, cells[i])
            mass += values[place] if taken[place] else 1.0
        out[q] = mass
    return out


@njit(cache=True)
def _multiply(keys, taken, values, cells, factor):  # type: ignore[no-untyped-def]
    """Multiply the weights of some cells; how many were touched for the first time."""
    fresh = 0
    for i in range(cells.shape[0]):
        place = _place(keys, taken, cells[i])
        if not taken[place]:
            taken[place] = True
            keys[place] = cells[i]
            values[place] = 1.0
            fresh += 1
        values[place] *= factor
    return fresh


@njit(cache=True)
def _put_all(keys, taken, values, old_keys, old_taken, old_values):  # type: ignore[no-untyped-def]
    for i in range(old_keys.shape[0]):
        if old_taken[i]:
            place = _place(keys, taken, old_keys[i])
            taken[place] = True
            keys[place] = old_keys[i]
            values[place] = old_values[i]


LONGEST = 6.0  # |λ| of one update at most


@dataclass(frozen=True, eq=False)
class Columns:
    """A distribution over the knots of each column: one row per column."""

    weights: Reals

    def curves(self) -> Reals:
        """The mean distance to every knot of every column, as a fraction of its width."""
        places = knots()
        return self.weights @ np.abs(places[:, None] - places[None, :])

    def answers(self, workload: Workload) -> Reals:
        curves = self.curves()
        return np.concatenate([along_curves(group, curves) for group in workload.all_of(Distances)])


def along_curves(group: Distances, curves: Reals, power: int = 1) -> Reals:
    """Σ_j share_j^power · curve_j(y_j) of each point y; between knots curves are interpolated."""
    out, places = np.zeros(group.size), np.arange(KNOTS + 1) * (GRID // KNOTS)
    for j in group.asked.tolist():
        share = (group.shares[group.which, j] / UNIT) ** power
        out += share * np.interp(group.places(j), places, curves[j])
    return out


class CoordinateWeights:
    """One distribution a column, and the learner that moves all of them by one measured distance.

    The mean L1 distance to a point y is Σ_j share_j E_{x ~ p_j} |x − y_j|: it depends on the columns one by one, so
    the universe has as many elements as there are places in all columns together, and not their product (Huang, Roth
    2014). Draw a column by its share, then a place in it: over this universe the update is that of multiplicative
    weights,

        p_j(x) ∝ p_j(x) · exp(λ |x − y_j|),

    the same λ for all columns, here the Newton step after which the answer is about what was measured.
    It goes over all it has heard a few times.
    """

    def __init__(self, workload: Workload, *, passes: int) -> None:
        self._workload = workload
        (axes,) = {group.shares.shape[1] for group in workload.all_of(Distances)}
        self._weights = np.full((axes, KNOTS + 1), 1 / (KNOTS + 1))
        self._heard: list[tuple[Reals, Reals, float]] = []  # a point, the shares of its columns, the distance
        self._passes = passes

    def hear(self, challenge: Heard[int]) -> None:
        group, place = self._workload.place_of(challenge.what)
        assert isinstance(group, Distances), "a learner of distances is asked nothing else"
        one, shares = group.take(np.array([place])), group.shares[group.which[place]] / UNIT
        point = np.array([one.places(j)[0] for j in range(len(shares))]) / GRID
        self._heard.append((point, shares, min(1.0, max(0.0, challenge.value))))
        for _ in range(self._passes):
            for each in reversed(self._heard):
                self._update(*each)

    def snapshot(self) -> Columns:
        return Columns(self._weights.copy())

    def _update(self, point: Reals, shares: Reals, value: float) -> None:
        asked = np.flatnonzero(shares)
        weights, shares = self._weights[asked], shares[asked]
        apart = np.abs(knots()[None, :] - point[asked, None])
        mean = (weights * apart).sum(axis=1)
        spread = shares @ ((weights * apart**2).sum(axis=1) - mean**2)
        step = np.clip((value - shares @ mean) / max(spread, 1e-9), -LONGEST, LONGEST)
        weights = weights * np.exp(step * apart)
        self._weights[asked] = weights / weights.sum(axis=1, keepdims=True)


def knots() -> Reals:
    """The knots, as fractions of the width."""
    return np.arange(KNOTS + 1) / KNOTS
