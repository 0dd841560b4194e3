"""Query players. Privacy concerns them alone, and there only what they ask of the curator."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Challenge, Record, Transcript
from dualquery.privacy.curator import Curator
from dualquery.privacy.selection import Candidates, PublicScores, Rate, Selected
from dualquery.queries.counting import add_answers
from dualquery.queries.workload import Workload


class LearningQueryPlayer:
    """Multiplicative weights over queries and their negations, seen only through samples.

    After replies x_1 … x_{t−1} the weight of q is exp(η Σ_i (q(D) − q(x_i))), as integer score
    c_q = (t − 1) · count(q) − n · Σ_i q(x_i) and rate η / n (Gaboardi et al. 2014, Algorithm 2). The
    sum over replies is public and kept here; the counts stay with the curator.
    """

    def __init__(
        self,
        curator: Curator,
        workload: Workload,
        *,
        learning_rate: float,
        samples: int,
        rounds: int,
        public_rows: int,
    ) -> None:
        self._curator = curator
        self._workload = workload
        self._samples = samples
        self._public_rows = public_rows
        self._rate = learning_rate_per_count(learning_rate, rounds, public_rows)
        self._answers: NDArray[np.int32] = np.zeros(workload.size, np.int32)
        self._heard = 0

    def challenge(self, transcript: Transcript[Challenge, Record]) -> Challenge:
        for reply in transcript.replies[self._heard :]:
            for group, start in zip(self._workload.groups, self._workload.starts, strict=False):
                add_answers(group, reply, self._answers[start : start + group.size])
        self._heard = len(transcript.replies)
        scores = PublicScores(
            repeats=self._heard, scale=self._public_rows, offsets=self._answers, candidates=Candidates.SIGNED
        )
        drawn = self._curator.select(
            scores, rate=self._rate, public_rows=self._public_rows, draws=self._samples
        )
        return net_weights(drawn)


def learning_rate_per_count(learning_rate: float, rounds: int, public_rows: int) -> Rate:
    """η / n as an exact rate, rounded down. Scores reach (T − 1) · n; twice that leaves room for add-remove."""
    return Rate.below(learning_rate / public_rows, 4 * rounds * public_rows)


def net_weights(drawn: Selected) -> Challenge:
    """Each drawn query once, weighted by how often it was drawn less how often its negation was."""
    queries, inverse = np.unique(drawn.queries, return_inverse=True)
    weights = np.bincount(inverse, weights=np.where(drawn.negated, -1.0, 1.0)).astype(np.int64)
    kept = weights != 0
    return Challenge(queries[kept], weights[kept])
