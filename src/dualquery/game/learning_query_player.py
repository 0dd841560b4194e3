"""The query player that learns. Privacy concerns it in what it asks of the curator, and there alone."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Challenge, Record, Transcript
from dualquery.privacy.scores import Score, SignedErrors
from dualquery.privacy.selection import Rate, Selected
from dualquery.queries.workload import Workload


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
