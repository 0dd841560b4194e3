"""What was measured: numbers with noise of a known size, and tables put together from interactions.

Under pure ε signed tables are measured. The signed table of S, summed along some of its longer attributes and centred
along the others, is the interaction of B ⊆ S up to the factor ½ of each binary attribute, for every B that holds the
binary attributes of S. White noise falls apart into these parts without correlation, so that least squares over
everything measured is the mean by inverse variance, interaction by interaction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.table.domain import Domain
from dualquery.types import Cells, Set

SCORES, PRODUCTS = HEARD = "scores", "products"
LEAST = 1e-12  # of a fraction: what is smaller is as good as none, and must not be divided by
HALF_NORMAL = 0.8  # E|z| of a standard normal


@dataclass(frozen=True)
class Numbers:
    """What was measured and is no interaction: a word for it, the attributes that it is about, and which of these.

    `within` are means inside bins: one number a bin, Σ ((x − low)/width − ½) over its records. `products` are
    Σ s_i s_j of every two of some attributes, of public `scores` of their values. `totals` are the records that hold
    each of several binary attributes, `query` and `queries` the records that satisfy each, `table` the cells of a
    table, `misfits` how much farther each of some pairs lies from independence than chance brings (the attributes
    of one pair after those of the other); all in records.
    """

    kind: str
    attributes: Set = ()
    text: str = ""


@dataclass(frozen=True, eq=False)
class CellSums:
    """What was counted of one attribute before: for each number, the cells whose records it adds up."""

    attribute: int
    cells: NDArray[np.bool_]  # one row a number

    def informed(self, prior: Cells, variance: float, known: Measured) -> tuple[Cells, float]:
        """A one-way table of noise v, given numbers y of noise D too: the mean of both, and the variance as of one.

        x = Λ⁻¹(t/v + AᵀD⁻¹y) with Λ = I/v + AᵀD⁻¹A, moved along Λ⁻¹1 to the sum that t has. What is left of its
        noise differs from cell to cell; what is said is the variance of white noise that has as much.
        """
        weighed = self.cells.T / np.asarray(known.variance)
        covariance = np.linalg.inv(np.eye(len(prior)) / variance + weighed @ self.cells)
        along = covariance.sum(axis=1)
        mean = covariance @ (prior / variance + weighed @ known.values)
        mean += along * ((prior.sum() - mean.sum()) / along.sum())
        left = float(np.trace(covariance) - along @ along / along.sum())
        return mean, left / (len(prior) - 1)


@dataclass(frozen=True, eq=False)
class Measured:
    """Of what, the numbers, and the variance of their noise: one for all, or one a row.

    What a release keeps is of one variance: of an interaction, by its set (that of no attributes is the number of
    records, with variance 0 where it is public; variances are those of a cell before centring), or other `Numbers`.
    """

    what: Any
    values: Cells
    variance: Any

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)

    def joined(self, *others: Measured) -> Measured:
        """With other measurements of the same, weighed by inverse variance."""
        parts = [(each.values, np.asarray(each.variance)) for each in (self, *others)]
        precision = sum((1 / variance for _, variance in parts), np.zeros(()))
        values = sum((value / _column(variance) for value, variance in parts), np.zeros(()))
        return Measured(self.what, values / _column(precision), 1 / precision)


def _column(variance: Cells) -> Cells:
    return variance[:, None] if variance.ndim else variance


@dataclass(frozen=True)
class MeasuredTables:
    """What came back: interactions in records, the variance of their noise, and the number of records."""

    domain: Domain
    interactions: Mapping[Set, Cells]
    variance: Mapping[Set, float]
    total: float
    inside: tuple[Measured, ...] = ()  # means inside bins and products, which no table needs

    @staticmethod
    def nothing(domain: Domain) -> MeasuredTables:
        return MeasuredTables(domain, {}, {}, 1.0)

    @staticmethod
    def rows(domain: Domain, number: float, variance: float) -> MeasuredTables:
        """The number of records alone, with variance 0 where it is public."""
        return MeasuredTables(domain, {(): np.array(number)}, {(): variance}, max(1.0, number))

    @staticmethod
    def of(domain: Domain, measured: Iterable[Measured]) -> MeasuredTables:
        """The tables again, from what a release has kept of them."""
        measured = list(measured)
        told = [each for each in measured if isinstance(each.what, tuple)]
        heard = [each for each in measured if isinstance(each.what, Numbers) and each.what.kind in HEARD]
        return replace(MeasuredTables.nothing(domain).joined(told).counted(), inside=tuple(heard))

    @property
    def kept(self) -> tuple[Measured, ...]:
        """What a release keeps."""
        cells, spread = self.interactions, self.variance
        return (*(Measured(members, cells[members], spread[members]) for members in cells), *self.inside)

    def counted(self) -> MeasuredTables:
        """The same, with the number of records as it was measured."""
        return replace(self, total=max(1.0, float(self.interactions[()])))

    def joined(self, told: Iterable[Measured]) -> MeasuredTables:
        """With what was measured later; what was measured twice is weighed by inverse variance."""
        cells, spread = dict(self.interactions), dict(self.variance)
        for each in told:
            members: Set = each.what
            if members in cells:
                part = spread[members] / (spread[members] + each.variance)
                cells[members] = part * each.values + (1 - part) * cells[members]
                spread[members] = part * each.variance
            else:
                cells[members], spread[members] = each.values, each.variance
        return replace(self, interactions=cells, variance=spread)

    def informed(self, earlier: Iterable[Measured]) -> MeasuredTables:
        """With what was counted before (`CellSums`) of attributes whose one-way tables were measured."""
        cells, spread = dict(self.interactions), dict(self.variance)
        for each in earlier:
            one: Set = (each.what.attribute,)
            if one in cells:
                table = cells[one] + self.total / len(cells[one])
                told, spread[one] = each.what.informed(table, spread[one], each)
                cells[one] = told - told.mean()
        return replace(self, interactions=cells, variance=spread)

    def of_order(self, order: int) -> list[Set]:
        """The sets of so many attributes that were measured."""
        return [members for members in self.interactions if len(members) == order]

    def larger(self) -> list[Set]:
        """The measured sets of three and more."""
        return [members for members in self.interactions if len(members) > 2]

    def table(self, members: Set) -> Cells:
        """The table over a set as fractions, with all its noise."""
        return reconstructed(members, self.interactions, self.domain.sizes) / self.total

    def deviation(self, members: Set) -> float:
        """The standard deviation of a cell of that table."""
        if members not in self._deviations:
            variance = cell_variance(members, self.variance, self.domain.sizes)
            self._deviations[members] = math.sqrt(variance) / self.total
        return self._deviations[members]

    @cached_property
    def _deviations(self) -> dict[Set, float]:
        return {}

    def ones(self) -> dict[int, Cells]:
        """The one-way tables as distributions."""
        return {members[0]: onto_simplex(self.table(members), 1.0) for members in self.of_order(1)}


def reconstructed(members: Set, interactions: Mapping[Set, Cells], sizes: NDArray[np.integer]) -> Cells:
    """The table over a set from the interactions of all its subsets (that of the empty set is the total).

    table_S = Σ_{B ⊆ S} interaction_B / Π_{j ∈ S∖B} k_j, each spread evenly over the attributes it lacks.
    """
    total: Cells = np.zeros([int(sizes[j]) for j in members])
    for order in range(len(members) + 1):
        for subset in combinations(members, order):
            evenly = math.prod([float(sizes[j]) for j in members if j not in subset])
            spread = tuple([slice(None) if j in subset else None for j in members])
            total = total + interactions[subset][spread] / evenly
    return total


def cell_variance(members: Set, variance: Mapping[Set, float], sizes: NDArray[np.integer]) -> float:
    """The variance of one cell of a reconstructed table, given that of each interaction's noise.

    Noise of variance v, centred along the attributes of B, leaves v · Π_{j ∈ B} (k_j − 1)/k_j in a cell.
    """
    total = 0.0
    for order in range(len(members) + 1):
        for subset in combinations(members, order):
            share = variance[subset]
            for j in members:
                k = float(sizes[j])
                share *= (k - 1) / k if j in subset else 1 / k**2
            total += share
    return total


def onto_simplex(values: Cells, total: float) -> Cells:
    """The nearest vector of non-negative numbers with this sum."""
    falling = np.sort(values)[::-1]
    excess = (np.cumsum(falling) - total) / np.arange(1, len(values) + 1)
    last = int(np.flatnonzero(falling > excess)[-1])
    nearest: Cells = np.maximum(values - excess[last], 0.0)
    return nearest


def determined(members: Set, domain: Domain) -> list[Set]:
    """The sets whose interactions a signed table tells: its binary attributes with any of its longer ones."""
    binary = [j for j in members if domain.sizes[j] == 2]
    longer = [j for j in members if domain.sizes[j] != 2]
    return [
        tuple(sorted((*binary, *some)))
        for order in range(len(longer) + 1)
        for some in combinations(longer, order)
    ]


def variance_told(members: Set, subset: Set, variance: float, domain: Domain) -> float:
    """The variance, a cell and before centring, with which a signed table tells the interaction of a subset.

    Summing along an attribute adds up its noise. Halving along a binary one leaves v/4 in each of two opposite
    cells, as white noise of variance v/2 would after centring.
    """
    summed = np.prod([float(domain.sizes[j]) for j in members if j not in subset])
    binary = sum(int(domain.sizes[j]) == 2 for j in subset)
    return float(variance * summed / 2**binary)


def interactions_told(signed: Measured, domain: Domain) -> list[Measured]:
    """All interactions that a signed table determines, in records.

    Its entries have one axis an attribute; that of a binary one has the length one.
    """
    out = []
    for subset in determined(signed.what, domain):
        cells: Cells = signed.values.sum(axis=tuple(a for a, j in enumerate(signed.what) if j not in subset))
        for axis, j in enumerate(subset):
            if domain.sizes[j] == 2:
                cells = np.concatenate([cells, -cells], axis=axis) / 2
            else:
                cells = cells - cells.mean(axis=axis, keepdims=True)
        out.append(Measured(subset, cells, variance_told(signed.what, subset, signed.variance, domain)))
    return out
