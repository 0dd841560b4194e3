"""The query release game: moves, players, play.

The game: what the players say to each other, the record of it, and how it is played.

The data player moves records, the query player moves queries, the payoff is q(D) − q(x). Every mechanism is a choice
of who learns and who best-responds (docs/how_it_works.md). The value of the game is zero, so the average move of a
data player without regret answers every query approximately.

Data players hear challenges, not data: nothing here may import the privacy package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from dualquery.queries.workload import Workload
from dualquery.types import Cells, Integers, Ints, Reals, Set

Record = Ints  # one value an attribute
What = TypeVar("What")  # a number, or a TableQuery


@dataclass(frozen=True)
class Challenge:
    """Queries with integer weights: the data player is asked for a record x that maximises Σ w_q q(x).

    A negated query is 1 − q, so drawing it is drawing q with weight −1 (up to a constant).
    """

    queries: Integers
    weights: Integers


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

    def average_reply(self: Transcript[Challenge, Record]) -> Ints:
        """The uniform distribution over the replies, as a matrix with a row per reply: synthetic data."""
        return np.stack(self.replies)

    def last_reply(self) -> Replied:
        return self.replies[-1]


class QueryPlayer(Protocol[Said, Replied]):
    """Wants queries on which the records played so far are wrong."""

    def challenge(self, transcript: Transcript[Said, Replied]) -> Said: ...


class DataPlayer(Protocol[Said, Replied]):
    """Wants records that answer the challenge. Never sees private data."""

    def reply(self, transcript: Transcript[Said, Replied], challenge: Said) -> Replied: ...


def played(
    query_player: QueryPlayer[Said, Replied],
    data_player: DataPlayer[Said, Replied],
    *,
    remembers: int | None = None,
) -> Iterator[Transcript[Said, Replied]]:
    """The transcript after each round, without end: whoever takes them decides, by public reasons, when to stop."""
    transcript: Transcript[Said, Replied] = Transcript(remembers=remembers)
    for _ in count():
        challenge = query_player.challenge(transcript)
        reply = data_player.reply(transcript, challenge)
        transcript = transcript.append(challenge, reply)
        yield transcript


def play(
    query_player: QueryPlayer[Said, Replied],
    data_player: DataPlayer[Said, Replied],
    *,
    rounds: int,
    remembers: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    hears: Callable[[Replied], None] = lambda reply: None,
) -> Transcript[Said, Replied]:
    """Play a fixed, public number of rounds. `hears` is told every reply, where not all are remembered."""
    transcript: Transcript[Said, Replied] = Transcript(remembers=remembers)
    for transcript in islice(played(query_player, data_player, remembers=remembers), rounds):
        hears(transcript.last_reply())
        progress(transcript.rounds, rounds)
    return transcript


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

    def answers(self, workload: Workload) -> Reals:
        """The fraction of each query."""


class LearningDataPlayer(Generic[Said, Replied]):
    """Hears every challenge, and replies with its belief as it stands."""

    def __init__(self, belief: Belief[Said, Replied]) -> None:
        self._belief = belief

    def reply(self, transcript: Transcript[Said, Replied], challenge: Said) -> Replied:
        self._belief.hear(challenge)
        return self._belief.snapshot()
