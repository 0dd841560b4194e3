"""Data players that best-respond. They hear challenges, not data: nothing here may import the privacy package."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dualquery.game.moves import Cells, Challenge, Record, Residual, Transcript
from dualquery.game.residual import RAREST, Chains, RowLayout, Targets, leaning
from dualquery.game.residual_kernels import answer_item_rows, answer_rows, withdraw_items, withdraw_rows

Oracle = Callable[[Challenge, Record, np.random.Generator], Record]
Fallback = Callable[[np.random.Generator], Record]


class BestResponseDataPlayer:
    """Answers each challenge with a record of (nearly) the greatest weight, found by an oracle.

    What no query of the challenge decides is left to `fallback`, a public choice.
    """

    def __init__(self, oracle: Oracle, fallback: Fallback, rng: np.random.Generator) -> None:
        self._oracle = oracle
        self._fallback = fallback
        self._rng = rng

    def reply(self, transcript: Transcript[Challenge, Record], challenge: Challenge) -> Record:
        return self._oracle(challenge, self._fallback(self._rng), self._rng)


class RowDataPlayer:
    """Keeps chains of rows; replies to a residual with the rows after one pass of best responses."""

    def __init__(
        self, targets: Targets, lean: Mapping[int, Cells], start: Chains, rng: np.random.Generator
    ) -> None:
        self._rows = np.ascontiguousarray(start, np.int32)
        self._layout = layout = RowLayout(targets.sizes, sorted(targets.pull, key=lambda s: (len(s), s)))
        self._weight = np.array([targets.weight[members] for members in layout.sets], np.float32)
        self._lean, self._first_value = leaning(targets.sizes, lean)
        chains, count, _ = start.shape
        pull = layout.spread(targets.pull)
        pull *= count
        self._residual = np.repeat(pull[None, :], chains, axis=0)
        withdraw_rows(
            self._rows,
            self._residual,
            layout.member,
            layout.stride,
            layout.offset,
            layout.table,
            self._weight,
        )
        self._counters = rng.integers(0, 1 << 63, chains, dtype=np.uint64)
        self._kind = start.dtype

    def reply(self, transcript: Transcript[Residual, Chains], challenge: Residual) -> Chains:
        layout = self._layout
        answer_rows(
            self._rows,
            self._residual,
            layout.size,
            layout.first_view,
            layout.table,
            layout.first_copy,
            layout.copy,
            layout.member,
            layout.stride,
            layout.other,
            layout.other_stride,
            layout.offset,
            self._weight,
            self._lean,
            self._first_value,
            np.float32(challenge.temperature),
            self._counters,
        )
        return self._rows.astype(self._kind)


class ItemRowDataPlayer:
    """As `RowDataPlayer`, for items: the targets are the fractions that hold an item, or two of them."""

    def __init__(
        self,
        single: Cells,
        pair: Cells,
        weight_single: float,
        weight_pair: float,
        start: Chains,
        rng: np.random.Generator,
    ) -> None:
        self._rows = np.ascontiguousarray(start, np.uint8)
        chains, count, _ = start.shape
        self._weights = np.float32(weight_single), np.float32(weight_pair)
        apart = pair.copy()
        np.fill_diagonal(apart, 0.0)
        self._single = np.repeat((count * weight_single * single).astype(np.float32)[None], chains, axis=0)
        self._pair = np.repeat((count * weight_pair * apart).astype(np.float32)[None], chains, axis=0)
        withdraw_items(self._rows, self._single, self._pair, *self._weights)
        self._counters = rng.integers(0, 1 << 63, chains, dtype=np.uint64)
        likely = np.clip(single, RAREST, 1 - RAREST)
        self._lean = np.log(likely / (1 - likely)).astype(np.float32)

    def reply(self, transcript: Transcript[Residual, Chains], challenge: Residual) -> Chains:
        answer_item_rows(
            self._rows,
            self._single,
            self._pair,
            *self._weights,
            self._lean,
            np.float32(challenge.temperature),
            self._counters,
        )
        return self._rows.copy()
