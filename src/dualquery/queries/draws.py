"""Public chance for workloads: the same draws on every machine.

The raw stream of PCG64 is one that numpy promises to keep, unlike the methods of its generators, so a
SPEC and its seed mean the same queries, and the same digest, with every version.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError

_LONGEST_LOOKUP = 1 << 22


class Stream:
    """Public chance that is the same on every machine and with every version of numpy."""

    def __init__(self, seed: int) -> None:
        if seed < 0:
            raise QueryError(f"the seed of a workload must not be negative, and {seed} is")
        self._bits = np.random.PCG64(seed)

    def below(self, bounds: NDArray[np.integer]) -> NDArray[np.int64]:
        """Integers in [0, bound), uniform up to bound / 2^53."""
        raw: NDArray[np.uint64] = self._bits.random_raw(bounds.size).reshape(bounds.shape)
        return ((raw >> np.uint64(11)) * 2.0**-53 * bounds).astype(np.int64)

    def coins(self, shape: tuple[int, ...]) -> NDArray[np.bool_]:
        words = -(-int(np.prod(shape)) // 64)
        raw: NDArray[np.uint64] = self._bits.random_raw(words).astype("<u8")
        return np.unpackbits(raw.view(np.uint8), count=int(np.prod(shape))).reshape(shape).view(np.bool_)


def range_pairs(
    stream: Stream, steps: int, count: int, *, whole: bool
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Uniform pairs first <= last below `steps`: the distinct firsts and lasts, and the place of each draw.

    Without `whole`, the pair (0, steps − 1) is not drawn.
    """
    # Pair (first, last) has the number last·(last + 1)/2 + first.
    begins = np.arange(steps) * np.arange(1, steps + 1) // 2
    longest = int(begins[-1])
    pair = stream.below(np.full(count, longest + steps - (not whole)))
    if not whole:
        pair += pair >= longest
    distinct, which = np.unique(pair, return_inverse=True)
    last = np.searchsorted(begins, distinct, side="right") - 1
    return distinct - begins[last], last, which


class Urn:
    """Attributes drawn in proportion to integer weights, without replacement and without rejection.

    Attribute j owns `weight` integers in a row. A later draw is a number below what is left; it is
    pushed past the integers of each attribute already drawn that it has reached.
    """

    def __init__(self, weights: NDArray[np.int64]) -> None:
        self._weights = weights
        self._ends = np.cumsum(weights)
        self._owner = (
            np.repeat(np.arange(len(weights), dtype=np.int32), weights)
            if self._ends[-1] <= _LONGEST_LOOKUP
            else None
        )

    def draw(self, stream: Stream, k: int, count: int) -> NDArray[np.int64]:
        """k attributes for each of `count` queries, increasing: one column a query."""
        drawn = np.empty((k, count), np.int64)
        left = np.full(count, self._ends[-1])
        for i in range(k):
            ball = stream.below(left)
            for earlier in drawn[:i]:
                weight = self._weights[earlier]
                ball += np.where(ball >= self._ends[earlier] - weight, weight, 0)
            drawn[i] = (
                self._owner[ball] if self._owner is not None else np.searchsorted(self._ends, ball, "right")
            )
            left -= self._weights[drawn[i]]
            for j in range(i):  # keep the attributes sorted
                drawn[j], drawn[i] = np.minimum(drawn[j], drawn[i]), np.maximum(drawn[j], drawn[i])
        return drawn
