"""Degrees, blocks and heavy pairs raked together into one weighted graph.

    W_uv = leaves_u · enters_v · B_{class(u) class(v)} + extra_uv,

a block model with degrees, and a few pairs on top that were seen to be heavier (or lighter) than it says. Leaves,
enters and B are fitted in turn to what is left of the degrees and the blocks without the extras (iterative
proportional fitting): a sum over classes and over vertices, never over all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
ROUNDS = 25


@dataclass(frozen=True, eq=False)
class Pairs:
    """Some pairs of vertices, and what each has on top."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    extra: Array

    @staticmethod
    def none() -> Pairs:
        return Pairs(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))


@dataclass(frozen=True, eq=False)
class Fitted:
    """The parts of W."""

    classes: NDArray[np.int64]
    leaves: Array
    enters: Array
    blocks: Array
    pairs: Pairs

    def expected(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> Array:
        """The block model between all of some vertices and all of some others."""
        between = self.blocks[self.classes[source][:, None], self.classes[target][None, :]]
        return self.leaves[source][:, None] * self.enters[target][None, :] * between

    def between(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> Array:
        """The block model of some pairs."""
        return (
            self.leaves[source]
            * self.enters[target]
            * self.blocks[self.classes[source], self.classes[target]]
        )

    def not_negative(self) -> Fitted:
        """The same, where no pair has less than nothing."""
        extra = np.maximum(self.pairs.extra, -self.between(self.pairs.source, self.pairs.target))
        return replace(self, pairs=replace(self.pairs, extra=extra))


def raked(classes: NDArray[np.int64], leaving: Array, entering: Array, blocks: Array, pairs: Pairs) -> Fitted:
    """The graph whose degrees and blocks are these, as nearly as their contradictions allow; blocks come last."""
    number, many = len(classes), len(blocks)
    sums = _sums(pairs, classes, number, many)
    out, into, between = (
        np.maximum(target - sum_, 1e-9)
        for target, sum_ in zip((leaving, entering, blocks), sums, strict=True)
    )
    leaves, enters, model = out.copy(), into.copy(), np.ones((many, many)) / between.sum()
    for _ in range(ROUNDS):
        per_class = np.bincount(classes, weights=enters, minlength=many)
        leaves = out / np.maximum((model @ per_class)[classes], 1e-300)
        per_class = np.bincount(classes, weights=leaves, minlength=many)
        enters = into / np.maximum((per_class @ model)[classes], 1e-300)
        mass = np.outer(per_class, np.bincount(classes, weights=enters, minlength=many))
        model = between / np.maximum(mass, 1e-300)
    return Fitted(classes, leaves, enters, model, pairs)


def _sums(pairs: Pairs, classes: NDArray[np.int64], number: int, many: int) -> tuple[Array, Array, Array]:
    """What the extras add to degrees and blocks."""
    cell = classes[pairs.source] * many + classes[pairs.target]
    sums = (
        np.bincount(place, weights=pairs.extra, minlength=least).astype(np.float64)
        for place, least in ((pairs.source, number), (pairs.target, number), (cell, many * many))
    )
    leaving, entering, between = sums
    return leaving, entering, between.reshape(many, many)


def with_total(noisy: Array, total: float) -> Array:
    """The numbers nearest to noisy ones that are not negative and have this sum (a projection onto the simplex)."""
    flat = noisy.ravel()
    ordered = np.sort(flat)[::-1]
    over = (np.cumsum(ordered) - total) / np.arange(1, len(flat) + 1)
    shift = over[int(np.flatnonzero(ordered > over)[-1])]
    return np.maximum(noisy - shift, 0.0)
