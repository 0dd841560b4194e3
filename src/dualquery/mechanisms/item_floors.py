"""How far off questions about several items of baskets may be, from what was counted: all of it is public.

Noise is larger than what most pairs of rare items have in common. So rows take such items as independent, and
replicas, of those rows, err little where the rows err most. As for pairs of tables (`mechanisms.floors`) the prior of
what two items have in common beyond chance is D_ij ~ N(0, τ² v_i v_j), v_i = p_i(1 − p_i), and τ is learned from all
pairs that were counted: with noise σ, d² − σ² has the mean τ² v_i v_j, and weighs as maximum likelihood has it,

    τ² = Σ w (d² − σ²)/(v_i v_j) / Σ w,    w = (τ² v_i v_j / (σ² + τ² v_i v_j))²,

so that a thousand middling pairs count more than the few of the most frequent items. Before anything is seen τ = .2,
which counts as one pair. A counted pair then has the variance τ² v_i v_j σ²/(τ² v_i v_j + σ²), another τ² v_i v_j.

Three items may have more in common than their pairs tell, by N(0, τ² v_i v_j v_k): where a kind of baskets, a share π
of all, holds three items more often, two of them have a correlation c, and three c^(3/2)/√π in the same units, which
is about c where kinds are as rare as their items are tied.

The error of a question is that of each of its items, of each two and three, times what it accepts of the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.measured import HALF_NORMAL, LEAST, Measured, Numbers
from dualquery.queries.group import NONE, Predicates
from dualquery.types import Reals

ITEMS, PAIRS = "items", "pairs of items"
UNSEEN = 0.2  # τ where nothing was counted
STEPS = 30  # of the weights that follow from τ, and τ from them


@dataclass(frozen=True)
class Baskets:
    """What was counted of items, in shares of the records."""

    shares: Reals  # of each item: at least what its noise may hide
    alone: Reals  # the deviation of its error in the rows
    rank: NDArray[np.int64]  # of each item; pairs of the first `paired` were counted
    paired: int
    noise: float  # of a pair
    tau: float

    @staticmethod
    def of(measured: Sequence[Measured], alone: Reals, records: int) -> Baskets:
        """Where items were counted, and perhaps pairs of them."""
        by_kind = {each.what.kind: each for each in measured if isinstance(each.what, Numbers)}
        counted, pairs = by_kind[ITEMS], by_kind.get(PAIRS)
        ranked = list(counted.what.attributes)
        rank = np.empty(len(alone), np.int64)
        rank[ranked] = np.arange(len(ranked))
        shares = np.empty(len(alone))
        shares[ranked] = np.clip(counted.values / records, HALF_NORMAL * counted.deviation / records, 1.0)
        if pairs is None:
            return Baskets(shares, alone, rank, 0, 0.0, UNSEEN)
        paired, noise = len(pairs.what.attributes), pairs.deviation / records
        first = shares[list(pairs.what.attributes)]
        above = np.triu_indices(paired, 1)
        apart = pairs.values / records - np.outer(first, first)[above]
        spread = first * (1 - first)
        return Baskets(
            shares, alone, rank, paired, noise, _tau(apart, np.outer(spread, spread)[above], noise)
        )

    def errors(self, predicates: Predicates, literals: NDArray[np.int32]) -> Reals:
        """The deviation of these products."""
        item = np.append(predicates.attribute, 0)[literals >> 1]
        there = literals != NONE
        held = self.shares[item]
        spread = np.where(there, held * (1 - held), 0.0)
        accepted = np.where(there, np.where(literals & 1 == 1, 1 - held, held), 1.0)
        alone = np.where(there, self.alone[item], 0.0)
        number = literals.shape[1]

        def others(*members: int) -> Reals:
            found: Reals = np.delete(accepted, members, axis=1).prod(axis=1)
            return found

        squares = np.zeros(len(literals))
        for a in range(number):
            squares += (alone[:, a] * others(a)) ** 2
        for a, b in combinations(range(number), 2):
            prior = self.tau**2 * spread[:, a] * spread[:, b]
            told = (self.rank[item[:, [a, b]]] < self.paired).all(axis=1)
            known = prior * self.noise**2 / np.maximum(prior + self.noise**2, LEAST**2)
            squares += np.where(told, known, prior) * others(a, b) ** 2
        for a, b, c in combinations(range(number), 3):
            squares += self.tau**2 * spread[:, [a, b, c]].prod(axis=1) * others(a, b, c) ** 2
        return np.sqrt(squares)


def _tau(apart: Reals, spread: Reals, noise: float) -> float:
    """τ of pairs that lie so far from chance, seen with so much noise."""
    square, spread = UNSEEN**2, np.maximum(spread, LEAST)
    seen = (apart**2 - noise**2) / spread
    for _ in range(STEPS):
        weight = (square * spread / (noise**2 + square * spread)) ** 2
        square = max(LEAST, float(weight @ seen + UNSEEN**2) / float(weight.sum() + 1))
    return float(np.sqrt(square))
