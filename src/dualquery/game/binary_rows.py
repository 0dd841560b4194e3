"""Rows of binary attributes: the data player of `RowDataPlayer` in the basis of signed counts.

Nothing here knows of privacy: a challenge is a residual, which is public.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, permutations

import numpy as np
from numpy.typing import NDArray

from dualquery.game.best_response_data_player import RowDataPlayer
from dualquery.game.binary_kernels import answer_binary_rows, signed_sums
from dualquery.game.moves import Cells, Residual, Transcript
from dualquery.game.residual import RAREST, Chains, Targets

MOST_ATTRIBUTES = 160  # of which all triples are kept at once, in every chain: 16 MB
MOST_ORDER = 3


def all_binary(sizes: NDArray[np.integer], order: int) -> bool:
    """Whether sets of up to this order, of attributes of these sizes, are fitted by signed counts."""
    return bool(np.all(sizes == 2)) and order <= MOST_ORDER and len(sizes) <= MOST_ATTRIBUTES


def row_data_player(
    targets: Targets, lean: Mapping[int, Cells], start: Chains, rng: np.random.Generator
) -> RowDataPlayer | BinaryRowDataPlayer:
    """The data player that is faster for these targets; both play the same game."""
    if all_binary(targets.sizes, max(len(members) for members in targets.pull)):
        return BinaryRowDataPlayer(targets, lean, start, rng)
    return RowDataPlayer(targets, lean, start, rng)


class SignedTargets:
    """Targets as pulls and weights of signed counts.

    ‖t‖² over the cells of S is 2^−|S| Σ_{B ⊆ S} χ_B(t)², so that a table of weight w and pull w·y adds w·2^−|S| to
    the weight of each subset B and 2^−|S| χ_B(w·y) to its pull. (That of the empty set moves no row.)
    """

    def __init__(self, targets: Targets) -> None:
        width = len(targets.sizes)
        by_order: dict[int, list[tuple[int, ...]]] = {}
        for members in targets.pull:
            by_order.setdefault(len(members), []).append(members)
        orders = range(1, (max(by_order) if max(by_order) > 2 else 2) + 1)
        self.pull = {order: np.zeros((width,) * order) for order in orders}
        self.weight = {order: np.zeros((width,) * order) for order in orders}
        for order, sets in by_order.items():
            tables = np.stack([targets.pull[members].ravel() for members in sets])
            weights = np.array([targets.weight[members] for members in sets])
            self._add(np.array(sets), tables / 2**order, weights / 2**order)

    def _add(
        self, sets: NDArray[np.int64], tables: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> None:
        order = sets.shape[1]
        cells = np.indices((2,) * order).reshape(order, -1)
        for size in range(1, order + 1):
            for places in combinations(range(order), size):
                signs = (-1.0) ** cells[list(places)].sum(axis=0)
                for ordered in permutations(places):
                    where = tuple(sets[:, place] for place in ordered)
                    np.add.at(self.pull[size], where, tables @ signs)
                    np.add.at(self.weight[size], where, weights)


class BinaryRowDataPlayer:
    """Keeps chains of rows of binary attributes; replies with the rows after one pass of best responses."""

    def __init__(
        self, targets: Targets, lean: Mapping[int, Cells], start: Chains, rng: np.random.Generator
    ) -> None:
        asked = SignedTargets(targets)
        self._kind = start.dtype
        self._signs = 1.0 - 2.0 * np.ascontiguousarray(start, np.float32)
        chains, count, width = start.shape
        triples = MOST_ORDER in asked.pull
        none = np.zeros((0, 0, 0))
        weights = (asked.weight[1], asked.weight[2], asked.weight[3] if triples else none)
        pulls = (asked.pull[1], asked.pull[2], asked.pull[3] if triples else none)
        sums = signed_sums(self._signs, triples)
        self._weights = tuple(weight.astype(np.float32) for weight in weights)
        self._residuals = tuple(
            (count * pull[None] - weight[None] * total).astype(np.float32)
            for pull, weight, total in zip(pulls, weights, sums, strict=True)
        )
        self._residuals[2][...] *= 0.5  # a triple stands in the form of an attribute twice
        self._moves = np.zeros(width, np.bool_)
        for members in targets.pull:
            self._moves[list(members)] = True
        self._lean = np.zeros(width, np.float32)
        for j, fractions in lean.items():
            likely = np.log(np.maximum(fractions, RAREST))
            self._lean[j] = likely[0] - likely[1]
        self._counters = rng.integers(0, 1 << 63, chains, dtype=np.uint64)

    def reply(self, transcript: Transcript[Residual, Chains], challenge: Residual) -> Chains:
        answer_binary_rows(
            self._signs,
            *self._residuals,
            *self._weights,
            self._moves,
            self._lean,
            np.float32(challenge.temperature),
            self._counters,
        )
        rows: Chains = (self._signs < 0).astype(self._kind)
        return rows
