"""Query players. Privacy concerns them in what they ask of the curator, and there alone."""

from __future__ import annotations

from collections import deque
from typing import Generic, NamedTuple, Protocol

import numpy as np

from dualquery.game import Challenge, Gives, Record, Replied, Said, Takes, Transcript
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import Score, SignedErrors
from dualquery.privacy.selection import Answers, Rate, Selected, unheard
from dualquery.queries.statistics import Countable
from dualquery.queries.workload import Workload
from dualquery.types import Integers, Ints


class Questions(Protocol[Gives, Takes]):
    """What may be asked, and how a reply is judged by it. Public, all of it."""

    def score(self, reply: Takes | None) -> Score:
        """How wrong a reply is on each question; None is the public start."""

    def statistic(self, chosen: Selected) -> Countable:
        """What is measured where this was chosen."""

    def heard(self, chosen: Selected, noisy: Integers) -> Gives:
        """What the data player is told; no numbers come where nothing is measured."""


class BestResponseQueryPlayer(Generic[Said, Replied]):
    """Finds by the exponential mechanism what the last reply gets wrong, and has that measured (MWEM, Figure 1).

    Without noise nothing is measured: PMW tells no more than which query, or negation, is answered too high.
    """

    def __init__(
        self, curator: Curator, questions: Questions[Said, Replied], *, rate: Rate, noise: Noise | None
    ) -> None:
        self._curator = curator
        self._questions = questions
        self._rate = rate
        self._noise = noise

    def challenge(self, transcript: Transcript[Said, Replied]) -> Said:
        reply = transcript.last_reply() if transcript.rounds else None
        chosen = self._curator.select(self._questions.score(reply), rate=self._rate)
        if self._noise is None:
            return self._questions.heard(chosen, np.empty(0, np.int64))
        noisy = self._curator.measure(self._questions.statistic(chosen), noise=self._noise)
        return self._questions.heard(chosen, noisy)


class Selecting(Protocol):
    """Whoever draws by a score: the curator, or in a rehearsal somebody with public numbers."""

    def select(self, score: Score, *, rate: Rate, draws: int = 1) -> Selected: ...


class Draws(NamedTuple):
    """What a round drew: queries, +1 or −1 as the negation, and how many replies satisfied them by then."""

    queries: Integers
    signs: Integers
    answers: Ints
    heard: int


PARTS = 64  # parts of a draw, where draws of earlier rounds count for less


class LearningQueryPlayer:
    """Multiplicative weights over queries and their negations, seen only through samples.

    After replies x_1 … x_{t−1} the weight of q is exp(η Σ_i (q(D) − q(x_i))), as integer score
    c_q = (t − 1) · count(q) − n · Σ_i q(x_i) and rate η / n (Gaboardi et al. 2014, Algorithm 2). The
    sum over replies is public and kept here; the counts stay with the curator.

    A challenge holds the draws of the last `recall` rounds; 1 is Algorithm 2 to the letter. The weight of a query
    drawn k rounds ago has since gained the factor exp(±η Σ_i (q(D) − q(x_i))) over k replies x_i, so a draw that
    counts by it stands for the weights of today (importance sampling). The mean reply stands for q(D), which is not
    public, and no draw counts for more than when it was drawn. Draws and replies are public: recalling is free.
    """

    def __init__(
        self,
        curator: Selecting,
        workload: Workload,
        *,
        rate: Rate,
        samples: int,
        public_rows: int,
        recall: int,
    ) -> None:
        self._curator = curator
        self._workload = workload
        self._rate = rate
        self._samples = samples
        self._public_rows = public_rows
        self._answers = unheard(workload)
        self._heard = 0
        self._draws: deque[Draws] = deque(maxlen=recall)

    def challenge(self, transcript: Transcript[Challenge, Record]) -> Challenge:
        self.hear(transcript)
        score = SignedErrors(
            self._workload,
            self._public_rows,
            repeats=self._heard,
            scale=self._public_rows,
            offsets=self._answers,
        )
        drawn = self._curator.select(score, rate=self._rate, draws=self._samples)
        signs = np.where(drawn.negated, -1, 1)
        if self._draws.maxlen == 1:
            return net_weights(drawn.queries, signs)
        self._draws.append(Draws(drawn.queries, signs, self._answers.of(drawn.queries), self._heard))
        queries = np.concatenate([each.queries for each in self._draws])
        weights = np.concatenate([self._today(each) for each in self._draws])
        return net_weights(queries, weights)

    def _today(self, then: Draws) -> Integers:
        now, rounds = self._answers.of(then.queries), self._heard - then.heard
        gained = rounds * now / max(1, self._heard) - (now - then.answers)
        rate = float(self._rate.nats) * self._public_rows
        fades = np.exp(np.minimum(0, rate * then.signs * gained))
        return then.signs * np.round(PARTS * fades).astype(np.int64)

    def hear(self, transcript: Transcript[Challenge, Record]) -> Answers:
        """Take in the replies that are new; how many of all replies satisfy each query."""
        for reply in transcript.replies[self._heard :]:
            self._answers.add(reply)
        self._heard = len(transcript.replies)
        return self._answers


def net_weights(queries: Integers, weights: Integers) -> Challenge:
    """Each drawn query once, with what its draws and those of its negation weigh together."""
    found, inverse = np.unique(queries, return_inverse=True)
    net = np.bincount(inverse, weights=weights).astype(np.int64)
    kept = net != 0
    return Challenge(found[kept], net[kept])
