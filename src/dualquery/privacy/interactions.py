"""Measuring the interactions of attribute sets in whole numbers.

The interaction of a set S is its table of counts, centred along each attribute: what the tables of smaller
sets do not say (the residual of Xiao et al., *ResidualPlanner*, 2023). Centring along the *short* attributes
alone, those of at most `SHORT` values, and multiplying by the product of their sizes gives integers,

    I_S = ⊗_{j short} (k_j·Id − 𝟙𝟙ᵀ) ⊗_{j long} Id · counts_S,

so discrete Gaussian noise can be added to them exactly; dividing again, and centring along the long
attributes, is post-processing. (Along a long attribute centring would hardly lower the sensitivity.)

Sensitivity. One record at cell x adds ⊗ (k_j·e_{x_j} − 𝟙) ⊗ e_{x_j}. Its squared length is Π_short (k_j² − k_j),
and the inner product of those of two records that differ exactly in the attributes D has a factor k_j² − k_j
for each short and 1 for each long attribute outside D, −k_j for each short and 0 for each long one in D.
Adding or removing a record therefore moves I_S by exactly Π_short k_j (k_j − 1), squared; replacing one by at
most the largest of 2 Π_short (k_j² − k_j) − 2 ⟨·,·⟩ over all D ≠ ∅. Noise of variance v, in records, costs
Π_short ((k_j − 1)/k_j) / (2v) under add-remove, less than the 1/(2v) of the table.

The squared sensitivity of several interactions side by side is at most the sum of theirs. Each may be
multiplied by an integer of its own, so that one noise level serves all and the multipliers share the budget.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianNoise
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import discrete_gaussian
from dualquery.queries.counting import true_counts
from dualquery.queries.query import Tables

SHORT = 16  # values; of longer attributes the counts themselves are measured


def interaction_scale(sizes: Sequence[int]) -> int:
    """By how much the integer interaction is larger than the interaction in records: Π_short k_j."""
    return prod(k for k in sizes if k <= SHORT)


def interaction_sensitivity(sizes: Sequence[int], neighbours: Neighbours) -> int:
    """The largest squared L2 distance between the integer interactions of two neighbours."""
    length = prod(k * (k - 1) for k in sizes if k <= SHORT)
    if neighbours is Neighbours.ADD_REMOVE:
        return length

    def factor(k: int, changed: bool) -> int:
        if k > SHORT:
            return 0 if changed else 1
        return -k if changed else k * (k - 1)

    inner = [
        prod(factor(k, i in changed) for i, k in enumerate(sizes))
        for order in range(1, len(sizes) + 1)
        for changed in map(set, combinations([i for i, k in enumerate(sizes) if k > 1], order))
    ]
    return max((2 * length - 2 * value for value in inner), default=0)


@dataclass(frozen=True)
class InteractionPlan:
    """Which interactions to measure: multiplier · I_S of every set, all with noise of one variance.

    The multipliers share the budget: set S has noise of variance V / (multiplier · Π_short k_j)² a cell, in records,
    before centring, and costs Δ_S² · multiplier² / (2V).
    """

    sets: tuple[tuple[int, ...], ...]
    multipliers: tuple[int, ...]
    variance: Fraction

    def event(self, sizes: NDArray[np.integer], neighbours: Neighbours) -> GaussianNoise:
        """All of them as the one measurement that they are."""
        squared = sum(
            multiplier**2 * interaction_sensitivity([int(sizes[j]) for j in members], neighbours)
            for members, multiplier in zip(self.sets, self.multipliers, strict=True)
        )
        return GaussianNoise(sensitivity_squared=Fraction(squared), variance=self.variance)

    def noise(self, sizes: NDArray[np.integer]) -> dict[tuple[int, ...], float]:
        """The variance of each interaction's noise, in records, before centring."""
        return {
            members: float(
                self.variance / (multiplier * interaction_scale([int(sizes[j]) for j in members])) ** 2
            )
            for members, multiplier in zip(self.sets, self.multipliers, strict=True)
        }


def integer_interaction(table: NDArray[np.int64]) -> NDArray[np.int64]:
    """I_S of a table of counts."""
    for axis, size in enumerate(table.shape):
        if size <= SHORT:
            table = size * table - table.sum(axis=axis, keepdims=True)
    return table


def measure_interactions(
    curator: Curator, plan: InteractionPlan
) -> dict[tuple[int, ...], NDArray[np.float64]]:
    """The interaction of every set of a plan, with its centred noise, in records.

    A verb of the curator: it charges for all of them as one event, then counts and draws.
    """
    domain = curator._workload.domain
    curator._ledger.charge(plan.event(domain.sizes, curator.neighbours))
    tables = Tables(domain, plan.sets)
    counts = true_counts(tables, curator._records, curator._progress)
    fresh = discrete_gaussian(tables.size, variance=plan.variance, entropy=curator._entropy)
    out = {}
    for t, (members, multiplier) in enumerate(zip(plan.sets, plan.multipliers, strict=True)):
        here = slice(tables.starts[t], tables.starts[t + 1])
        shape = [int(domain.sizes[j]) for j in members]
        noisy = multiplier * integer_interaction(counts[here].reshape(shape)) + fresh[here].reshape(shape)
        out[members] = _centred(noisy / (multiplier * interaction_scale(shape)))
    return out


def _centred(table: NDArray[np.float64]) -> NDArray[np.float64]:
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table
