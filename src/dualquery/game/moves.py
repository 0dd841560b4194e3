"""What the players of the query release game say to each other, and the record of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Record = NDArray[np.int32]  # one value a attribute


@dataclass(frozen=True)
class Challenge:
    """Queries with integer weights: the data player is asked for a record x that maximises Σ w_q q(x).

    A negated query is 1 − q, so drawing it is drawing q with weight −1 (up to a constant).
    """

    queries: NDArray[np.int64]
    weights: NDArray[np.int64]


Asked = TypeVar("Asked")  # what a query player says: a Challenge, or a measurement
Replied = TypeVar("Replied")  # what a data player says: a Record, or a distribution over records


@dataclass(frozen=True)
class Transcript(Generic[Asked, Replied]):
    """All moves so far. Everything in it is public."""

    challenges: tuple[Asked, ...] = ()
    replies: tuple[Replied, ...] = ()

    def append(self, challenge: Asked, reply: Replied) -> Transcript[Asked, Replied]:
        return Transcript((*self.challenges, challenge), (*self.replies, reply))

    def average_reply(self: Transcript[Challenge, Record]) -> NDArray[np.int32]:
        """The uniform distribution over the replies, as a matrix with a row per reply: synthetic data."""
        return np.stack(self.replies)

    def last_reply(self) -> Replied:
        return self.replies[-1]
