"""The game. The data player moves records, the query player moves queries, the payoff is q(D) − q(x).

Every mechanism is a choice of who learns and who best-responds (docs/how_it_works.md). The value of the game is
zero, so the average move of a data player without regret answers every query approximately.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count, islice
from typing import Protocol

from dualquery.game.moves import Replied, Said, Transcript


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
