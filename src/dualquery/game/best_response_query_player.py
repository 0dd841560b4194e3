"""The query player that best-responds: find what the last reply gets wrong, and have that measured."""

from __future__ import annotations

from typing import Generic, Protocol

from dualquery.counting.counter import Integers
from dualquery.game.moves import Asked, Gives, Replied, Takes, Transcript
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import Score
from dualquery.privacy.selection import Rate, Selected
from dualquery.privacy.statistics import Statistic


class Questions(Protocol[Gives, Takes]):
    """What may be asked, and how a reply is judged by it. Public, all of it."""

    def score(self, reply: Takes | None) -> Score:
        """How wrong a reply is on each question; None is the public start."""

    def statistic(self, chosen: Selected) -> Statistic:
        """What is measured where this was chosen."""

    def heard(self, chosen: Selected, noisy: Integers) -> Gives:
        """What the data player is told."""


class Complaints(Protocol[Gives, Takes]):
    """Questions that are put to the data player without a measurement."""

    def score(self, reply: Takes | None) -> Score:
        """How wrong a reply is on each question; None is the public start."""

    def complaint(self, chosen: Selected) -> Gives:
        """What the data player is told."""


class BestResponseQueryPlayer(Generic[Asked, Replied]):
    """Chooses one question by the exponential mechanism and has it measured (MWEM, Figure 1, steps 1 and 2)."""

    def __init__(
        self, curator: Curator, questions: Questions[Asked, Replied], *, rate: Rate, noise: Noise
    ) -> None:
        self._curator = curator
        self._questions = questions
        self._rate = rate
        self._noise = noise

    def challenge(self, transcript: Transcript[Asked, Replied]) -> Asked:
        reply = transcript.last_reply() if transcript.rounds else None
        chosen = self._curator.select(self._questions.score(reply), rate=self._rate)
        noisy = self._curator.measure(self._questions.statistic(chosen), noise=self._noise)
        return self._questions.heard(chosen, noisy)


class ComplainingQueryPlayer(Generic[Asked, Replied]):
    """Chooses likewise a query or a negation that is answered too high, and says no more: PMW measures nothing."""

    def __init__(self, curator: Curator, complaints: Complaints[Asked, Replied], *, rate: Rate) -> None:
        self._curator = curator
        self._complaints = complaints
        self._rate = rate

    def challenge(self, transcript: Transcript[Asked, Replied]) -> Asked:
        reply = transcript.last_reply() if transcript.rounds else None
        return self._complaints.complaint(
            self._curator.select(self._complaints.score(reply), rate=self._rate)
        )
