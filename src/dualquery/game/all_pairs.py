"""The residual of all pairs at once, and rows that answer it (`all_pairs_kernels`)."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dualquery.game.all_pairs_kernels import answer_all_pairs, withdraw_pairs
from dualquery.game.moves import Cells, Residual, Transcript
from dualquery.game.residual import RAREST, Chains


class AllPairsDataPlayer:
    """As `RowDataPlayer`, where every pair of attributes has a target: keeps rows, replies after a pass over them.

    `ones` holds the one-way fractions of all attributes one after another, `pairs` the tables of all pairs in one
    symmetric matrix over the same values; attribute j has those from first_value[j] to first_value[j + 1].
    """

    def __init__(
        self,
        first_value: NDArray[np.int64],
        ones: Cells,
        pairs: Cells,
        weight_of_ones: float,
        start: Chains,
        rng: np.random.Generator,
    ) -> None:
        self._rows = np.ascontiguousarray(start, np.int32)
        self._first_value = first_value
        chains, count, _ = start.shape
        self._weight = np.float32(weight_of_ones)
        apart = (count * pairs).astype(np.float32)
        for first, last in pairwise(first_value):
            apart[first:last, first:last] = 0.0
        self._pairs = np.repeat(apart[None], chains, axis=0)
        self._ones = np.repeat((count * weight_of_ones * ones).astype(np.float32)[None], chains, axis=0)
        withdraw_pairs(self._rows, first_value, self._ones, self._pairs, self._weight)
        self._counters = rng.integers(0, 1 << 63, chains, dtype=np.uint64)
        self._lean = np.log(np.maximum(ones, RAREST)).astype(np.float32)
        self._kind = start.dtype

    def reply(self, transcript: Transcript[Residual, Chains], challenge: Residual) -> Chains:
        answer_all_pairs(
            self._rows,
            self._first_value,
            self._ones,
            self._pairs,
            self._weight,
            self._lean,
            np.float32(challenge.temperature),
            self._counters,
        )
        return self._rows.astype(self._kind)
