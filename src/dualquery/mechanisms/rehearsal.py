"""A rehearsal: the planned game played on public random data of the same shape, to know what to expect.

The random table is a mixture of eight product distributions with uneven values, drawn from a fixed public
seed; the workload is random conjunctions as wide as the real one's. A workload with more decisions than
`DECISIONS_MOST` is rehearsed at a smaller scale, with attributes, queries and samples shrunk together: each
attribute then meets as many samples a round as in the real game, so the errors compare.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.game.data_players import BestResponseDataPlayer, Fallback, Oracle
from dualquery.game.moves import Challenge, Record, Transcript
from dualquery.game.play import play
from dualquery.game.query_players import learning_rate_per_count, net_weights
from dualquery.mechanisms.free_values import Free, density, one_way_groups, uniform, zeros
from dualquery.mechanisms.parameters import DualQueryParameters
from dualquery.mechanisms.plan import Shape
from dualquery.privacy.selection import Candidates, PublicScores, draw
from dualquery.queries.counting import add_answers, true_counts
from dualquery.queries.decisions import decisions
from dualquery.queries.families import random_conjunctions
from dualquery.queries.query import Conjunctions, Parities, Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records

DECISIONS_MOST = 2000
QUERIES_MOST = 20_000
ROWS_MOST = 20_000
MIXTURE = 8


@dataclass(frozen=True)
class Rehearsed:
    """Errors as fractions of the table, and seconds a round."""

    mean_error: float
    max_error: float
    round_seconds: float


class RehearsingQueryPlayer:
    """The learning query player against counts that are public, so that nothing is charged."""

    def __init__(
        self, workload: Workload, counts: NDArray[np.int64], parameters: DualQueryParameters, rows: int
    ) -> None:
        self._group = workload.groups[0]
        self._counts = counts
        self._parameters = parameters
        self._rows = rows
        self._rate = learning_rate_per_count(parameters.learning_rate, parameters.rounds, rows)
        self._entropy = SeededEntropy(0)
        self.answers = np.zeros(workload.size, np.int32)
        self._heard = 0

    def challenge(self, transcript: Transcript[Challenge, Record]) -> Challenge:
        self.hear(transcript)
        scores = PublicScores(self._heard, self._rows, self.answers, Candidates.SIGNED)
        return net_weights(
            draw(
                self._counts,
                scores,
                rate=self._rate,
                surplus=0,
                draws=self._parameters.samples,
                entropy=self._entropy,
            )
        )

    def hear(self, transcript: Transcript[Challenge, Record]) -> None:
        for reply in transcript.replies[self._heard :]:
            add_answers(self._group, reply, self.answers)
        self._heard = len(transcript.replies)


def rehearse(
    shape: Shape,
    parameters: DualQueryParameters,
    *,
    free: Free,
    deviation: float,
    oracle_of: Callable[[Workload], Oracle],
) -> Rehearsed:
    """Play the planned game once on public random data, with noise of this deviation on a density's counts."""
    scale = min(1.0, DECISIONS_MOST / decisions(shape.workload))
    domain = shape.domain if scale == 1 else Domain((Items("item", DECISIONS_MOST),))
    width = min(query_width(shape.workload), domain.width)
    queries = max(100, min(QUERIES_MOST, round(scale * shape.workload.size)))
    samples = max(1, round(scale * parameters.samples))
    smaller = DualQueryParameters(parameters.learning_rate, samples, parameters.rounds)
    workload = random_conjunctions(domain, width, queries)
    rng = np.random.default_rng(0)
    rows = min(shape.rows, ROWS_MOST)
    table = random_table(domain, rows, rng)
    shares = true_counts(workload.groups[0], table) / rows
    counts = np.round(shares * shape.rows).astype(np.int64)

    query_player = RehearsingQueryPlayer(workload, counts, smaller, shape.rows)
    fallback = _rehearsed_fallback(free, table, shape.rows, deviation, rng)
    data_player = BestResponseDataPlayer(oracle_of(workload), fallback, rng)
    started = time.perf_counter()
    transcript = play(query_player, data_player, rounds=parameters.rounds)
    seconds = time.perf_counter() - started
    query_player.hear(transcript)
    errors = np.abs(query_player.answers / parameters.rounds - shares)
    return Rehearsed(float(errors.mean()), float(errors.max()), seconds / parameters.rounds / scale)


def _rehearsed_fallback(
    free: Free, table: Records, rows: int, deviation: float, rng: np.random.Generator
) -> Fallback:
    if free is not Free.DENSITY:
        return zeros(table.domain) if free is Free.ZEROS else uniform(table.domain)
    counts = [true_counts(group, table) * (rows / table.rows) for group in one_way_groups(table.domain)]
    noisy = [part + rng.normal(0, deviation, len(part)) for part in counts]
    return density(table.domain, noisy, rows=rows, deviation=deviation)


def random_table(domain: Domain, rows: int, rng: np.random.Generator) -> Records:
    """A mixture of product distributions whose values are unevenly likely."""
    shares = rng.dirichlet(np.ones(MIXTURE))
    member = rng.choice(MIXTURE, rows, p=shares)
    codes = np.zeros(
        (domain.width, rows), np.uint16
    )  # an attribute's codes side by side, as they are written
    for attribute, size in enumerate(domain.sizes):
        ends = np.cumsum(rng.dirichlet(np.full(size, 0.5), MIXTURE), axis=1)
        drawn = rng.random(rows)
        for value in range(size - 1):
            codes[attribute] += drawn > ends[member, value]
    return Records.from_rows(domain, codes.T)


def query_width(workload: Workload) -> int:
    """The number of literals of the workload's widest queries."""
    widths = [1]
    for group in workload.groups:
        if isinstance(group, Conjunctions):
            widths.append(group.literals.shape[1])
        elif isinstance(group, Parities):
            widths.append(group.attributes.shape[1])
        elif isinstance(group, Tables):
            widths.append(max(len(members) for members in group.sets))
    return max(widths)
