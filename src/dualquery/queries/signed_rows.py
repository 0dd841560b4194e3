"""Queries over binary attributes as products of signed literals, and their answers from parities.

With χ_S(x) = Π_{j ∈ S} (−1)^{x_j}, +1 where an even number of the attributes in S is 1, a product of k literals is

    Π = 2^{−k} Σ_{S ⊆ its attributes} Π_{j ∈ S} s_j · χ_S,       s_j = −1 for x_j, +1 for ¬x_j

(Barak et al. 2007; Theorem A.2 of the 2014 version of Dual Query, whose convention hides the signs). The absolute
values of the coefficients sum to 1: parities within α, on the scale of −1 to 1, are products within α.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np

from dualquery.errors import QueryError
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload
from dualquery.types import Flags, Integers, Reals


@dataclass(frozen=True, eq=False)
class SignedRows:
    """Each query as offset + slope · Π_j (a literal of attribute j), or (1 + χ_S)/2 where it is a parity.

    Rows of attributes, padded with -1, and the sign s_j of each.
    """

    width: int
    attributes: Integers
    signs: Reals
    offset: Reals
    slope: Reals
    parity: Flags

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

    def sets(self, order: int) -> Integers:
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
        counts = np.array([comb(h, order) for h in range(self.order + 1)], float)
        return float(counts[held].mean())

    def answers(self, measured: Mapping[int, MeasuredParities]) -> Reals:
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
            counts = np.array([comb(h, order) for h in range(self.order + 1)], float)[held]
            of_parity = np.where(held == order, 4.0 ** (held - 1), 0.0)
            total += np.where(self.parity, of_parity, counts) * told.noise**2
        spread: Reals = total / 4.0**held
        return spread


@dataclass(frozen=True, eq=False)
class MeasuredParities:
    """The parities of all sets of one order that matter, as fractions from −1 to 1, by increasing key."""

    sets: Integers
    chi: Reals
    noise: float

    def at(self, wanted: Integers, width: int) -> Reals:
        return self.chi[np.searchsorted(key_of(self.sets, width), key_of(wanted, width))]


def key_of(sets: Integers, width: int) -> Integers:
    key = np.zeros(len(sets), np.int64)
    for column in sets.T:
        key = key * width + column
    return key
