"""Multiplicative weights over a universe of 2^64 cells and more: the touched ones, and one weight for all others.

A query that accepts S cells touches S weights (Blum and Roth, *Fast Private Data Release Algorithms for Sparse
Queries*, 2013): those that no query has touched are all alike, and one number stands for them. Weights are
kept relative to it, in an open hash table of 64-bit cells,

    v(x) = w(x) / default,        total = N − touched + Σ v,        answer(q) = Σ_{x ∈ q} v(x) / total,

so that answering and learning take time in proportion to what a query accepts. From a mass of S/2^64 small
steps never arrive; a step makes the answer what was measured: v(x) is multiplied by m/(1 − m) · (1 − a)/a on
the cells of the query, a its answer before. Nothing here knows of privacy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit

Cells = NDArray[np.uint64]
Reals = NDArray[np.float64]

FIRST_PLACES = 1 << 10
FULL = 0.6  # of the places of the table may be taken


class TouchedWeights:
    """A distribution over `universe` cells, uniform until told otherwise."""

    def __init__(self, universe: float) -> None:
        self._universe = universe
        self._keys: Cells = np.zeros(FIRST_PLACES, np.uint64)
        self._taken: NDArray[np.bool_] = np.zeros(FIRST_PLACES, np.bool_)
        self._values: Reals = np.ones(FIRST_PLACES)
        self._touched = 0
        self._surplus = 0.0  # Σ (v − 1): what the touched ones have above the default

    @property
    def touched(self) -> int:
        """How many cells have a weight of their own."""
        return self._touched

    @property
    def bytes(self) -> int:
        return self._keys.nbytes + self._taken.nbytes + self._values.nbytes

    def answers(self, start: NDArray[np.int64], cells: Cells) -> Reals:
        """The fraction of each of several queries: query q accepts cells[start[q] : start[q + 1]], each once."""
        total = self._universe + self._surplus
        return _masses(self._keys, self._taken, self._values, start, cells) / total

    def hear(self, cells: Cells, value: float, floor: float) -> float:
        """Make the answer to a query what was measured, kept away from 0 and 1; how far off it was."""
        while self._touched + len(cells) > FULL * len(self._keys):
            self._grow()
        mass = float(_masses(self._keys, self._taken, self._values, np.array([0, len(cells)]), cells)[0])
        before = mass / (self._universe + self._surplus)
        told = min(max(value, floor), 1 - floor)
        factor = told / (1 - told) * (1 - before) / before
        self._touched += _multiply(self._keys, self._taken, self._values, cells, factor)
        self._surplus += (factor - 1) * mass
        return abs(value - before)

    def copy(self) -> TouchedWeights:
        other = TouchedWeights.__new__(TouchedWeights)
        other.__dict__.update(self.__dict__)
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
