"""The game. The data player moves records, the query player moves queries, the payoff is q(D) − q(x).

Every mechanism is a choice of who learns and who best-responds (docs/game.md). The value of the game is
zero, so the average move of a data player without regret answers every query approximately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from dualquery.game.moves import Asked, Replied, Transcript


class QueryPlayer(Protocol[Asked, Replied]):
    """Wants queries on which the records played so far are wrong."""

    def challenge(self, transcript: Transcript[Asked, Replied]) -> Asked: ...


class DataPlayer(Protocol[Asked, Replied]):
    """Wants records that answer the challenge. Never sees private data."""

    def reply(self, transcript: Transcript[Asked, Replied], challenge: Asked) -> Replied: ...


def play(
    query_player: QueryPlayer[Asked, Replied],
    data_player: DataPlayer[Asked, Replied],
    *,
    rounds: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Transcript[Asked, Replied]:
    """Play a fixed, public number of rounds."""
    transcript: Transcript[Asked, Replied] = Transcript()
    for done in range(1, rounds + 1):
        challenge = query_player.challenge(transcript)
        reply = data_player.reply(transcript, challenge)
        transcript = transcript.append(challenge, reply)
        progress(done, rounds)
    return transcript
