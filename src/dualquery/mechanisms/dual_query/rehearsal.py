"""A rehearsal: the planned game played on public random data of the same shape, to know what to expect.

The random table is a mixture of eight product distributions with uneven values, drawn from a fixed public
seed; the workload is random conjunctions as wide as the real one's. A workload with more decisions than
`DECISIONS_MOST` is rehearsed at a smaller scale, with attributes, queries and samples shrunk together: each
attribute then meets as many samples a round as in the real game, so the errors compare. Of a long game the first
`ROUNDS_REHEARSED` rounds are played, and the errors go on falling as they fell in the second half of them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dualquery.counting import Counter
from dualquery.game import BestResponseDataPlayer, Fallback, Oracle, play
from dualquery.game.query_players import LearningQueryPlayer
from dualquery.mechanisms.dual_query.parameters import Density, Free, Learning, rate_of, uniform, zeros
from dualquery.mechanisms.mechanism import Task
from dualquery.privacy.scores import Score
from dualquery.privacy.selection import Rate, Selected, draw
from dualquery.queries.random_families import random_literals
from dualquery.queries.statistics import Countable
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records
from dualquery.types import Integers

DECISIONS_MOST = 2000
QUERIES_MOST = 20_000
ROWS_MOST = 20_000
ROUNDS_REHEARSED = 400
MIXTURE = 8


class Rehearsed(NamedTuple):
    """Errors as fractions of the table, and seconds a round."""

    mean_error: float
    max_error: float
    round_seconds: float


class PublicNumbers(Counter):
    """A counter of a workload whose counts are public: there are no records behind it."""

    def __init__(self, domain: Domain, rows: int, numbers: Integers) -> None:
        super().__init__(domain)
        self._rows, self._numbers = rows, numbers

    @property
    def true_rows(self) -> int:
        return self._rows

    def _counted(self, what: Countable) -> Integers:
        return self._numbers


class PublicChooser:
    """Draws as the curator does, from numbers that are public: there is nothing to charge."""

    def __init__(self, numbers: PublicNumbers) -> None:
        self._numbers = numbers
        self._entropy = SeededEntropy(0)

    def select(self, score: Score, *, rate: Rate, draws: int = 1) -> Selected:
        return draw(score.of(self._numbers), rate=rate, draws=draws, entropy=self._entropy)


def rehearse(
    task: Task,
    learning: Learning,
    *,
    recall: int,
    free: Free,
    deviation: float,
    oracle_of: Callable[[Workload], Oracle],
) -> Rehearsed:
    """Play the planned game once on public random data, with noise of this deviation on a density's counts."""
    scale = min(1.0, DECISIONS_MOST / task.workload.decisions)
    domain = task.domain if scale == 1 else Domain((Items("item", DECISIONS_MOST),))
    width = min(task.workload.order, domain.width)
    queries = max(100, min(QUERIES_MOST, round(scale * task.workload.size)))
    samples = max(1, round(scale * learning.samples))
    workload = random_literals(domain, width, queries)
    rng = np.random.default_rng(0)
    table = random_table(domain, min(task.rows, ROWS_MOST), rng)
    shares = workload.fractions(table)
    counts = np.round(shares * task.rows).astype(np.int64)

    query_player = LearningQueryPlayer(
        PublicChooser(PublicNumbers(domain, task.rows, counts)),
        workload,
        rate=rate_of(learning.learning_rate, learning.rounds, task.rows),
        samples=samples,
        public_rows=task.rows,
        recall=recall,
    )
    fallback = _rehearsed_fallback(free, table, task.rows, deviation, rng)
    data_player = BestResponseDataPlayer(oracle_of(workload), fallback, rng)
    rounds = min(learning.rounds, ROUNDS_REHEARSED)
    started = time.perf_counter()
    rows = play(query_player, data_player, rounds=rounds).average_reply()
    seconds = time.perf_counter() - started
    half, whole = (
        np.abs(workload.fractions(Records.from_rows(domain, part)) - shares)
        for part in (rows[: max(1, rounds // 2)], rows)
    )
    mean, largest = (
        _after(learning.rounds / rounds, float(before), float(now))
        for before, now in ((half.mean(), whole.mean()), (half.max(), whole.max()))
    )
    return Rehearsed(mean, largest, seconds / rounds / scale)


def _after(longer: float, half: float, whole: float) -> float:
    """An error after `longer` times as many rounds, by its power law: between 1/√T, as of drawn rows, and 1/T."""
    power = min(1.0, max(0.5, math.log2(half / whole))) if whole > 0 else 1.0
    return whole * longer**-power


def _rehearsed_fallback(
    free: Free, table: Records, rows: int, deviation: float, rng: np.random.Generator
) -> Fallback:
    if free is not Free.DENSITY:
        return zeros(table.domain) if free is Free.ZEROS else uniform(table.domain)
    density = Density.of(table.domain)
    counts = [each.counts(table) * (rows / table.rows) for each in density.statistics]
    noisy = [part + rng.normal(0, deviation, len(part)) for part in counts]
    return density.fallback([*noisy], rows=rows, deviation=deviation)


def random_table(domain: Domain, rows: int, rng: np.random.Generator) -> Records:
    """A mixture of product distributions whose values are unevenly likely."""
    shares = rng.dirichlet(np.ones(MIXTURE))
    member = rng.choice(MIXTURE, rows, p=shares)
    # An attribute's codes side by side, as they are written.
    codes = np.zeros((domain.width, rows), np.uint16)
    for attribute, size in enumerate(domain.sizes):
        ends = np.cumsum(rng.dirichlet(np.full(size, 0.5), MIXTURE), axis=1)
        drawn = rng.random(rows)
        for value in range(size - 1):
            codes[attribute] += drawn > ends[member, value]
    return Records.from_rows(domain, codes.T)
