"""Query players. Privacy concerns them in what they ask of the curator, and there alone."""

from __future__ import annotations

from typing import Generic, Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Asked, Challenge, Gives, Record, Replied, Takes, Transcript
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import Score, SignedErrors
from dualquery.privacy.selection import Rate, Selected
from dualquery.queries.countable import Countable
from dualquery.queries.workload import Workload
from dualquery.types import Integers


class Questions(Protocol[Gives, Takes]):
    """What may be asked, and how a reply is judged by it. Public, all of it."""

    def score(self, reply: Takes | None) -> Score:
        """How wrong a reply is on each question; None is the public start."""

    def statistic(self, chosen: Selected) -> Countable:
        """What is measured where this was chosen."""

    def heard(self, chosen: Selected, noisy: Integers) -> Gives:
        """What the data player is told; no numbers come where nothing is measured."""


class BestResponseQueryPlayer(Generic[Asked, Replied]):
    """Finds by the exponential mechanism what the last reply gets wrong, and has that measured (MWEM, Figure 1).

    Without noise nothing is measured: PMW tells no more than which query, or negation, is answered too high.
    """

    def __init__(
        self, curator: Curator, questions: Questions[Asked, Replied], *, rate: Rate, noise: Noise | None
    ) -> None:
        self._curator = curator
        self._questions = questions
        self._rate = rate
        self._noise = noise

    def challenge(self, transcript: Transcript[Asked, Replied]) -> Asked:
        reply = transcript.last_reply() if transcript.rounds else None
        chosen = self._curator.select(self._questions.score(reply), rate=self._rate)
        if self._noise is None:
            return self._questions.heard(chosen, np.empty(0, np.int64))
        noisy = self._curator.measure(self._questions.statistic(chosen), noise=self._noise)
        return self._questions.heard(chosen, noisy)


class Selecting(Protocol):
    """Whoever draws by a score: the curator, or in a rehearsal somebody with public numbers."""

    def select(self, score: Score, *, rate: Rate, draws: int = 1) -> Selected: ...


class LearningQueryPlayer:
    """Multiplicative weights over queries and their negations, seen only through samples.

    After replies x_1 … x_{t−1} the weight of q is exp(η Σ_i (q(D) − q(x_i))), as integer score
    c_q = (t − 1) · count(q) − n · Σ_i q(x_i) and rate η / n (Gaboardi et al. 2014, Algorithm 2). The
    sum over replies is public and kept here; the counts stay with the curator.
    """

    def __init__(
        self, curator: Selecting, workload: Workload, *, rate: Rate, samples: int, public_rows: int
    ) -> None:
        self._curator = curator
        self._workload = workload
        self._rate = rate
        self._samples = samples
        self._public_rows = public_rows
        self._answers: NDArray[np.int32] = np.zeros(workload.size, np.int32)
        self._heard = 0

    def challenge(self, transcript: Transcript[Challenge, Record]) -> Challenge:
        self.hear(transcript)
        score = SignedErrors(
            self._workload,
            self._public_rows,
            repeats=self._heard,
            scale=self._public_rows,
            offsets=self._answers,
        )
        return net_weights(self._curator.select(score, rate=self._rate, draws=self._samples))

    def hear(self, transcript: Transcript[Challenge, Record]) -> NDArray[np.int32]:
        """Take in the replies that are new; how many of all replies satisfy each query."""
        for reply in transcript.replies[self._heard :]:
            for group, start in zip(self._workload.groups, self._workload.starts, strict=False):
                group.add_answers(reply, self._answers[start : start + group.size])
        self._heard = len(transcript.replies)
        return self._answers


def net_weights(drawn: Selected) -> Challenge:
    """Each drawn query once, weighted by how often it was drawn less how often its negation was."""
    queries, inverse = np.unique(drawn.queries, return_inverse=True)
    weights = np.bincount(inverse, weights=np.where(drawn.negated, -1.0, 1.0)).astype(np.int64)
    kept = weights != 0
    return Challenge(queries[kept], weights[kept])
