"""The query player of a stream: an analyst asks, and only what surprises becomes a challenge.

Questions come one at a time, each chosen after the last answer. The data player's last reply answers, unless the
curator says that it is far off; then the count is measured, the measurement is the answer, and the data player
hears it. A round of the game is thus one surprise, however many questions it took.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, Protocol

from dualquery.errors import BudgetError
from dualquery.game.moves import Asked, Gives, Replied, Takes, Transcript
from dualquery.privacy.curator import Curator, Surprise, ThresholdLaw
from dualquery.privacy.noise import Noise
from dualquery.privacy.statistics import Statistic


class StreamEnded(Exception):
    """No question is left: the game is over."""


class StreamedQuestion(Protocol[Gives, Takes]):
    """One question of a stream, and how a reply answers it."""

    def statistic(self) -> Statistic:
        """The count that is asked for."""

    def believed(self, reply: Takes) -> float:
        """What a reply says, in records."""

    def heard(self, reply: Takes, surprise: Surprise) -> Gives:
        """What the data player is told of a surprise."""


class StreamingQueryPlayer(Generic[Asked, Replied]):
    """Lets the reply answer, question by question, up to the next surprise. `told` hears every answer, in records."""

    def __init__(
        self,
        curator: Curator,
        stream: Iterator[StreamedQuestion[Asked, Replied]],
        *,
        start: Replied,
        law: ThresholdLaw,
        noise: Noise,
        told: Callable[[float, bool], None],
    ) -> None:
        self._curator = curator
        self._stream = stream
        self._start = start
        self._law = law
        self._noise = noise
        self._told = told

    def challenge(self, transcript: Transcript[Asked, Replied]) -> Asked:
        reply = transcript.last_reply() if transcript.rounds else self._start
        for question in self._stream:
            believed = question.believed(reply)
            surprise = self._tested(question, round(believed))
            if surprise is None:
                self._told(believed, False)
                continue
            self._told(float(surprise.noisy), True)
            return question.heard(reply, surprise)
        raise StreamEnded

    def _tested(self, question: StreamedQuestion[Asked, Replied], hypothesis: int) -> Surprise | None:
        """What the curator says; silence where nothing is left to ask with."""
        try:
            return self._curator.exceeds(question.statistic(), hypothesis, law=self._law, noise=self._noise)
        except BudgetError:
            return None
