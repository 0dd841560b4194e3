"""The curator: the only one who knows the counts. Every verb charges the ledger, then draws, then speaks.

The privacy of any mechanism is then one sentence: these calls, adaptive composition, post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.privacy.events import GaussianNoise, LaplaceNoise, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import discrete_gaussian, discrete_laplace
from dualquery.privacy.selection import SLACK, Candidates, PublicScores, Rate, Selected, draw
from dualquery.queries.counting import Counts, Progress, no_progress, true_counts
from dualquery.queries.query import Group, Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy
from dualquery.table.records import Records


@dataclass(frozen=True)
class Gaussian:
    """Discrete Gaussian noise of this variance parameter (σ²)."""

    variance: Fraction


@dataclass(frozen=True)
class Laplace:
    """Discrete Laplace noise of this scale (b)."""

    scale: Fraction


def changed_queries(group: Group, neighbours: Neighbours) -> int:
    """How many queries of a group one neighbour can change, each by at most 1: Δ₁ and Δ₂² alike.

    A record lies in one cell of each table, so adding one moves one cell a table and replacing one
    moves two. Of queries that do not partition the records, one record may change every one.
    """
    if isinstance(group, Tables):
        return len(group.sets) * neighbours.cells_moved
    return group.size


class Curator:
    """Holds the private records; speaks only through `select` and `measure`."""

    def __init__(
        self,
        records: Records,
        workload: Workload,
        ledger: Ledger,
        entropy: Entropy,
        *,
        progress: Progress = no_progress,
    ) -> None:
        if records.rows == 0:
            raise DataError("the table has no rows")
        self._records = records
        self._workload = workload
        self._ledger = ledger
        self._entropy = entropy
        self._progress = progress
        self._true_counts: Counts | None = None

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def neighbours(self) -> Neighbours:
        return self._ledger.budget.neighbours

    def count(self) -> None:
        """Count every query of the workload now rather than at the first `select`. Says nothing."""
        if self._true_counts is None:
            parts = [true_counts(group, self._records, self._progress) for group in self._workload.groups]
            self._true_counts = np.concatenate(parts)

    def select(self, scores: PublicScores, *, rate: Rate, public_rows: int, draws: int) -> Selected:
        """Draw queries by the exponential mechanism, c_q = repeats · count_q − scale · offsets_q.

        A neighbour moves a count by at most 1, hence the log-weight of every candidate within a range of
        2 · repeats · rate. Where records are added or removed and negations are candidates too, counts of
        a query and of its negation both move the same way, and the range is half as wide.
        """
        width = 2
        if self.neighbours is Neighbours.ADD_REMOVE and scores.candidates is Candidates.SIGNED:
            width = 1
        if scores.repeats > 0:  # with no repeats the scores are public, and so is the draw
            self._ledger.charge(Selection(width * scores.repeats * rate.nats + SLACK, draws))
        self.count()
        assert self._true_counts is not None
        surplus = scores.repeats * (self._records.rows - public_rows)
        return draw(self._true_counts, scores, rate=rate, surplus=surplus, draws=draws, entropy=self._entropy)

    def measure(self, group: Group, *, noise: Gaussian | Laplace) -> NDArray[np.int64]:
        """The counts of a group with fresh integer noise on each."""
        changed = Fraction(changed_queries(group, self.neighbours))
        if isinstance(noise, Gaussian):
            self._ledger.charge(GaussianNoise(sensitivity_squared=changed, variance=noise.variance))
            fresh = discrete_gaussian(group.size, variance=noise.variance, entropy=self._entropy)
        else:
            self._ledger.charge(LaplaceNoise(sensitivity=changed, scale=noise.scale))
            fresh = discrete_laplace(group.size, scale=noise.scale, entropy=self._entropy)
        return true_counts(group, self._records, self._progress) + fresh
