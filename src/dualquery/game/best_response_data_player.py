"""Data players that best-respond. They hear challenges, not data: nothing here may import the privacy package."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from dualquery.game.moves import Challenge, Record, Transcript

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
