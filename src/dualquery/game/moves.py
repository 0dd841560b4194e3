"""What the players of the query release game say to each other, and the record of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.types import Cells

Record = NDArray[np.int32]  # one value an attribute


@dataclass(frozen=True)
class Challenge:
    """Queries with integer weights: the data player is asked for a record x that maximises Σ w_q q(x).

    A negated query is 1 − q, so drawing it is drawing q with weight −1 (up to a constant).
    """

    queries: NDArray[np.int64]
    weights: NDArray[np.int64]


@dataclass(frozen=True)
class Heard:
    """A noisy answer about the table over `members`, in fractions.

    `query` is a query's value on each cell and `value` its answer; where `query` is None, `value` is the whole
    table.
    """

    members: tuple[int, ...]
    query: Cells | None
    value: Cells

    @property
    def key(self) -> tuple[tuple[int, ...], bytes]:
        """Equal where the same was asked."""
        return self.members, b"" if self.query is None else self.query.tobytes()


@dataclass(frozen=True)
class HeardQuery:
    """A noisy answer, in fractions, to a query of the workload by its number."""

    query: int
    value: float


@dataclass(frozen=True)
class Loss:
    """A query that is answered too high, by its value (0 to 1) on each cell over `members`."""

    members: tuple[int, ...]
    query: Cells


@dataclass(frozen=True)
class Residual:
    """Answer what is left of the targets, row by row, at this temperature (in rows)."""

    temperature: float


Asked = TypeVar("Asked")  # what a query player says: a Challenge, something Heard, a Loss, a Residual
Gives = TypeVar("Gives", covariant=True)
Takes = TypeVar("Takes", contravariant=True)
Replied = TypeVar("Replied")  # what a data player says: a Record, rows, or a snapshot of a belief


@dataclass(frozen=True)
class Transcript(Generic[Asked, Replied]):
    """The moves so far. Everything in it is public. Of replies the last `remembers` are kept (None: all)."""

    challenges: tuple[Asked, ...] = ()
    replies: tuple[Replied, ...] = ()
    remembers: int | None = None

    @property
    def rounds(self) -> int:
        return len(self.challenges)

    def append(self, challenge: Asked, reply: Replied) -> Transcript[Asked, Replied]:
        replies = (*self.replies, reply)
        if self.remembers is not None:
            replies = replies[-self.remembers :]
        return Transcript((*self.challenges, challenge), replies, self.remembers)

    def average_reply(self: Transcript[Challenge, Record]) -> NDArray[np.int32]:
        """The uniform distribution over the replies, as a matrix with a row per reply: synthetic data."""
        return np.stack(self.replies)

    def last_reply(self) -> Replied:
        return self.replies[-1]
