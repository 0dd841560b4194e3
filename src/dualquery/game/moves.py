"""What the players of the query release game say to each other, and the record of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.types import Cells, Set

Record = NDArray[np.int32]  # one value an attribute
What = TypeVar("What")  # a number, or a TableQuery


@dataclass(frozen=True)
class Challenge:
    """Queries with integer weights: the data player is asked for a record x that maximises Σ w_q q(x).

    A negated query is 1 − q, so drawing it is drawing q with weight −1 (up to a constant).
    """

    queries: NDArray[np.int64]
    weights: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TableQuery:
    """A query by its value (0 to 1) on each cell of the table over `members`; None asks for all of the cells."""

    members: Set
    cells: Cells | None

    @property
    def key(self) -> tuple[Set, bytes]:
        """Equal where the same is asked."""
        return self.members, b"" if self.cells is None else self.cells.tobytes()


@dataclass(frozen=True, eq=False)
class Heard(Generic[What]):
    """A noisy answer, in fractions: to a query of the workload by its number, or to a `TableQuery`."""

    what: What
    value: Any  # a number, or the cells of a whole table


Said = TypeVar("Said")  # what a query player says: a Challenge, something Heard, a TableQuery
Gives = TypeVar("Gives", covariant=True)
Takes = TypeVar("Takes", contravariant=True)
Replied = TypeVar("Replied")  # what a data player says: a Record, rows, or a snapshot of a belief


@dataclass(frozen=True)
class Transcript(Generic[Said, Replied]):
    """The moves so far. Everything in it is public. Of replies the last `remembers` are kept (None: all)."""

    challenges: tuple[Said, ...] = ()
    replies: tuple[Replied, ...] = ()
    remembers: int | None = None

    @property
    def rounds(self) -> int:
        return len(self.challenges)

    def append(self, challenge: Said, reply: Replied) -> Transcript[Said, Replied]:
        replies = (*self.replies, reply)
        if self.remembers is not None:
            replies = replies[-self.remembers :]
        return Transcript((*self.challenges, challenge), replies, self.remembers)

    def average_reply(self: Transcript[Challenge, Record]) -> NDArray[np.int32]:
        """The uniform distribution over the replies, as a matrix with a row per reply: synthetic data."""
        return np.stack(self.replies)

    def last_reply(self) -> Replied:
        return self.replies[-1]
