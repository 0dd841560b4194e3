"""From beliefs to what is released: which iterate, as rows and as answers.

What every mechanism hands out keeps the rules of the schema: rows that break one are mended (`queries.rules`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.factored import Factored, Products, RunningAnswers
from dualquery.errors import DualQueryError
from dualquery.game.moves import Asked
from dualquery.game.play import DataPlayer, QueryPlayer, play
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import Outcome, Task
from dualquery.queries.rules import obeyed
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy
from dualquery.table.records import Records
from dualquery.types import Progress

FEWEST_ROWS = 20_000  # of synthetic data
MOST_ROWS = 10**7  # by default; more may be asked for


class Iterate(Enum):
    """Which distribution is released."""

    LAST = "last"
    AVERAGE = "average"


class Iterates(Protocol):
    """What the parameters of a mechanism with a learning data player say about its iterates."""

    @property
    def rounds(self) -> int: ...

    @property
    def iterate(self) -> Iterate: ...

    @property
    def synthetic_rows(self) -> int: ...


class Average:
    """The average of all iterates: of their answers, and as rows drawn from each in turn."""

    def __init__(self, workload: Workload, rounds: int, rows: int, rng: np.random.Generator) -> None:
        self._workload = workload
        self._running: RunningAnswers | None = None  # made when the first reply is heard
        self._rows_each = -(-rows // rounds)
        self._rng = rng
        self._answers: NDArray[np.float64] = np.zeros(workload.size)
        self._rows: list[NDArray[np.int32]] = []

    def hear(self, reply: Factored) -> None:
        """Take in the reply of a round."""
        if self._running is None:
            self._running = RunningAnswers(Products.of(self._workload))
        self._answers += self._running.answers(reply)
        self._rows.append(reply.sample(self._rows_each, self._rng))

    def outcome(self) -> Outcome:
        records = Records.from_rows(self._workload.domain, np.concatenate(self._rows))
        belief = AverageBelief(self._workload, self._answers / len(self._rows))
        return Outcome(artefact=SyntheticRecords(records), belief=belief)


class AverageBelief:
    """The mean of the answers that were given, which is all that is left of the iterates."""

    def __init__(self, workload: Workload, answers: NDArray[np.float64]) -> None:
        self._workload = workload
        self._answers = answers

    def answers(self, workload: Workload) -> NDArray[np.float64]:
        if workload is not self._workload and workload.digest() != self._workload.digest():
            raise DualQueryError("an average of iterates answers the workload that it was made for")
        return self._answers


def play_iterates(
    query_player: QueryPlayer[Asked, Factored],
    data_player: DataPlayer[Asked, Factored],
    task: Task,
    iterates: Iterates,
    rng: np.random.Generator,
    progress: Progress,
) -> Outcome:
    """Play, and release the last reply of a learning data player or the average of all of them."""
    average = Average(task.workload, iterates.rounds, iterates.synthetic_rows, rng)
    averaged = iterates.iterate is Iterate.AVERAGE
    transcript = play(
        query_player,
        data_player,
        rounds=iterates.rounds,
        remembers=1,
        hears=average.hear if averaged else lambda reply: None,
        progress=lambda done, total: progress("playing", done, total),
    )
    return average.outcome() if averaged else released(transcript.last_reply(), iterates.synthetic_rows, rng)


def released(distribution: Factored, rows: int, rng: np.random.Generator) -> Outcome:
    """A distribution as synthetic records."""
    records = Records.from_rows(distribution.domain, distribution.sample(rows, rng))
    return Outcome(artefact=SyntheticRecords(records), belief=distribution)


def synthetic_rows(task: Task, wanted: int | None) -> int:
    """As many rows as asked for; by default as the table has, within bounds that a computer can hold."""
    if wanted is not None and wanted < 1:
        raise DualQueryError("a synthetic table has at least one row")
    return wanted or min(max(FEWEST_ROWS, task.rows), MOST_ROWS)


def obeying(outcome: Outcome, entropy: Entropy) -> Outcome:
    """The outcome with records that keep all rules; nothing else is drawn where there are none."""
    artefact = outcome.artefact
    if not isinstance(artefact, SyntheticRecords) or not artefact.records.domain.rules:
        return outcome
    return replace(outcome, artefact=SyntheticRecords(obeyed(artefact.records, entropy.public_generator())))
