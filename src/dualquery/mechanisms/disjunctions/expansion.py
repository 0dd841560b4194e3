"""Queries over binary attributes as sums of parities, and what measured parities answer to them.

With χ_j = (−1)^{x_j}, x_j = (1 − χ_j)/2 and ¬x_j = (1 + χ_j)/2, so that a product of k literals is

    Π = 2^{−k} Σ_{S ⊆ its attributes} Π_{j ∈ S} s_j · χ_S,       s_j = −1 for x_j, +1 for ¬x_j,

and a disjunction 1 − Π of negated ones. Every coefficient is 2^{−k}: noise in parities averages out.

Around the product of means μ_j = E χ_j, E χ_S = Σ_{B ⊆ S} Π_{S∖B} μ_j · κ_B with κ_B = E Π_B (χ_j − μ_j). Most
κ of two and more attributes are small, and those that were measured are shrunk towards what the smaller sets
say (`shrinking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.fitting.shrink import shrunk as shrunk_by
from dualquery.fitting.shrink import spreads
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload

Reals = NDArray[np.float64]
Rows = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class SignedRows:
    """Each query as offset + slope · Π_j (a literal of attribute j), or (1 + χ_S)/2 where it is a parity.

    Rows of attributes, padded with -1, and the sign s_j of each.
    """

    width: int
    attributes: Rows
    signs: Reals
    offset: Reals
    slope: Reals
    parity: NDArray[np.bool_]

    @staticmethod
    def of(workload: Workload) -> SignedRows:
        """Of products of literals over binary attributes; a QueryError where an attribute is not binary."""
        for j in workload.attributes.tolist():
            if workload.domain.sizes[j] != 2:
                raise QueryError(
                    f"parities need binary attributes, and '{workload.domain.name(j)}' is not; "
                    "use another mechanism, or leave --mechanism out"
                )
        rows = workload.product_rows(np.arange(workload.size, dtype=np.int64))
        size = workload.size
        width = max(1, rows.literals.shape[1], rows.parities.shape[1])
        attributes = np.full((size, width), NONE, np.int64)
        signs = np.ones((size, width))
        predicate = np.where(rows.literals == NONE, NONE, rows.literals >> 1)
        of_one = np.array([1 in rows.predicates.accepted(p) for p in range(len(rows.predicates))] + [True])
        mine = np.append(rows.predicates.attribute.astype(np.int64), NONE)[predicate]
        holds_at_one = of_one[predicate] ^ (rows.literals & 1 == 1)
        attributes[rows.positions, : mine.shape[1]] = np.where(rows.literals == NONE, NONE, mine)
        signs[rows.positions, : mine.shape[1]] = np.where(holds_at_one, -1.0, 1.0)
        attributes[rows.parity_positions, : rows.parities.shape[1]] = rows.parities
        parity = np.zeros(size, np.bool_)
        parity[rows.parity_positions] = True
        offset, slope = np.zeros(size), np.ones(size)
        offset[rows.positions[rows.complement]], slope[rows.positions[rows.complement]] = 1.0, -1.0
        return SignedRows(workload.domain.width, attributes, signs, offset, slope, parity)

    @property
    def order(self) -> int:
        return self.attributes.shape[1]

    def sets(self, order: int) -> Rows:
        """The distinct sets of so many attributes within the queries, increasing."""
        parts = []
        for columns in combinations(range(self.order), order):
            mine = self.attributes[:, columns]
            parts.append(np.sort(mine[(mine != NONE).all(axis=1)], axis=1))
        found = np.concatenate(parts) if parts else np.empty((0, order), np.int64)
        _, first = np.unique(key_of(found, self.width), return_index=True)
        return found[first]

    def subsets_a_query(self, order: int) -> float:
        """How many sets of an order a query needs, on average over those that are no parities themselves."""
        held = (self.attributes != NONE).sum(axis=1)
        counts = np.array([_choose(int(h), order) for h in range(self.order + 1)], float)
        return float(counts[held].mean())

    def answers(self, measured: Mapping[int, MeasuredParities]) -> Reals:
        """Of every query, from the parities of all its subsets."""
        held = self.attributes != NONE
        total = np.where(self.parity, 0.0, 1.0)
        whole = np.zeros(len(total))
        for order, told in measured.items():
            for columns in combinations(range(self.order), order):
                mine = self.attributes[:, columns]
                rows = np.flatnonzero((mine != NONE).all(axis=1))
                if not len(rows):
                    continue
                chi = told.at(np.sort(mine[rows], axis=1), self.width)
                sign = self.signs[rows][:, columns].prod(axis=1)
                total[rows] += np.where(self.parity[rows], 0.0, sign * chi)
                all_of_it = held[rows].sum(axis=1) == order
                whole[rows] = np.where(all_of_it, chi, whole[rows])
        product = total / 2.0 ** held.sum(axis=1)
        return np.where(self.parity, (1 + whole) / 2, self.offset + self.slope * product)

    def variances(self, measured: Mapping[int, MeasuredParities]) -> Reals:
        """Of the noise in those answers, before anything is shrunk."""
        held = (self.attributes != NONE).sum(axis=1)
        total = np.zeros(len(held))
        for order, told in measured.items():
            counts = np.array([_choose(h, order) for h in range(self.order + 1)], float)[held]
            of_parity = np.where(held == order, 4.0 ** (held - 1), 0.0)
            total += np.where(self.parity, of_parity, counts) * told.noise**2
        spread: Reals = total / 4.0**held
        return spread


@dataclass(frozen=True, eq=False)
class MeasuredParities:
    """The parities of all sets of one order that matter, as fractions from −1 to 1, by increasing key."""

    sets: Rows
    chi: Reals
    noise: float

    def at(self, wanted: Rows, width: int) -> Reals:
        """Of some of the sets, increasing."""
        return self.chi[np.searchsorted(key_of(self.sets, width), key_of(wanted, width))]


def key_of(sets: Rows, width: int) -> NDArray[np.int64]:
    """One number a set."""
    key = np.zeros(len(sets), np.int64)
    for column in sets.T:
        key = key * width + column
    return key


def shrunk(measured: Mapping[int, MeasuredParities], width: int) -> dict[int, MeasuredParities]:
    """Each order shrunk towards what the smaller ones say of it, the smallest first."""
    means = measured[1].chi
    place = np.full(width, NONE)
    place[measured[1].sets[:, 0]] = np.arange(len(means))
    told = {1: MeasuredParities(measured[1].sets, np.clip(means, -1, 1), measured[1].noise)}
    moments: dict[int, MeasuredParities] = {}  # κ of the orders from two on
    for order in sorted(set(measured) - {1}):
        mine = measured[order]
        mu = told[1].chi[place[mine.sets]]
        guess = mu.prod(axis=1)
        for lower, kappa in moments.items():
            for columns in combinations(range(order), lower):
                rest = [c for c in range(order) if c not in columns]
                guess = guess + mu[:, rest].prod(axis=1) * kappa.at(mine.sets[:, columns], width)
        residual = towards_zero(mine.chi - guess, mine.noise)
        moments[order] = MeasuredParities(mine.sets, residual, mine.noise)
        told[order] = MeasuredParities(mine.sets, np.clip(guess + residual, -1, 1), mine.noise)
    return told


def _choose(n: int, k: int) -> int:
    return 0 if k > n else int(np.prod([float(n - i) / (i + 1) for i in range(k)]) + 0.5)


SPREADS = np.array([0.0, 0.3, 0.7, 1.5, 3.0, 6.0, 12.0, 30.0])  # of residuals, in units of the noise


def towards_zero(noisy: Reals, noise: float) -> Reals:
    """What residuals that are mostly small are likely to be, from noisy ones; what is clear is kept."""
    z = noisy / noise
    widest = max(100.0, float(np.abs(z).max(initial=0.0)))
    return noise * shrunk_by(z, 1.0, spreads(np.append(SPREADS, widest)), most=50_000)
