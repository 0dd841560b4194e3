"""Data players: they hear challenges, not data. Nothing here may import the privacy package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.game.play import Challenge, Gives, Record, Replied, Said, Takes, Transcript
from dualquery.queries.workload import Workload

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


class Belief(Protocol[Takes, Gives]):
    """What a learning data player holds: something that answers queries, and changes by what it hears.

    A distribution over records that is written out or factored is the first kind; rows with weights, cells that
    were touched, or a graph may be others.
    """

    def hear(self, challenge: Takes) -> None:
        """Move towards what was heard."""

    def snapshot(self) -> Gives:
        """The belief as it stands; what is heard later does not change it."""


class Snapshot(Protocol):
    """What leaves a belief."""

    def answers(self, workload: Workload) -> NDArray[np.float64]:
        """The fraction of each query."""


class LearningDataPlayer(Generic[Said, Replied]):
    """Hears every challenge, and replies with its belief as it stands."""

    def __init__(self, belief: Belief[Said, Replied]) -> None:
        self._belief = belief

    def reply(self, transcript: Transcript[Said, Replied], challenge: Said) -> Replied:
        self._belief.hear(challenge)
        return self._belief.snapshot()
