"""From beliefs to what is released: which iterate, as rows and as answers.

What every mechanism hands out keeps the rules of the schema: rows that break one are mended (`queries.rules`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from dualquery.beliefs.factored import Factored, Products, RunningAnswers
from dualquery.errors import DualQueryError
from dualquery.fitting.inside import placed
from dualquery.fitting.measured import Measured
from dualquery.fitting.totals import Totals
from dualquery.mechanisms.artefact import BareAnswers, SyntheticRecords, synthetic, usual_rows
from dualquery.mechanisms.mechanism import Outcome, Plan, Task
from dualquery.queries.rules import obeyed
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy
from dualquery.table.places import has_places
from dualquery.table.records import Records
from dualquery.types import Fractions, Progress

NO_RECORDS = "this mechanism answers the workload and makes no synthetic records"

Reply = TypeVar("Reply")


class Iterate(Enum):
    """Which distribution is released."""

    LAST = "last"
    AVERAGE = "average"


class AverageBelief:
    """The mean of the answers that were given, which is all that is left of the iterates."""

    def __init__(self, workload: Workload, answers: Fractions) -> None:
        self._workload = workload
        self._answers = answers

    def answers(self, workload: Workload) -> Fractions:
        if workload is not self._workload and workload.digest() != self._workload.digest():
            raise DualQueryError("an average of iterates answers the workload that it was made for")
        return self._answers


def released_iterate(
    plan: Plan[Any], replied: Iterator[Factored], rng: np.random.Generator, progress: Progress
) -> Outcome:
    """The last reply of a learning data player as records, or the average of all: rows drawn from each in turn."""
    chosen, workload = plan.parameters, plan.task.workload
    if chosen.iterate is Iterate.LAST:
        return released(last(replied), chosen.synthetic_rows, rng)
    running, answers, rows = RunningAnswers(Products.of(workload)), np.zeros(workload.size), []
    for reply in replied:
        answers += running.answers(reply)
        rows.append(reply.sample(-(-chosen.synthetic_rows // chosen.rounds), rng))
    records = Records.from_rows(workload.domain, np.concatenate(rows))
    return Outcome(
        artefact=SyntheticRecords(records), belief=AverageBelief(workload, answers / chosen.rounds)
    )


def iterates_before(start: Factored, replied: Iterable[Factored]) -> Iterator[Factored]:
    """A₀ … A_{T−1}, what each round's query was chosen against; the last reply is played for and left out."""
    before = start
    for reply in replied:
        yield before
        before = reply


def last(replied: Iterator[Reply]) -> Reply:
    """The last of all replies."""
    return deque(replied, maxlen=1).pop()


def released(distribution: Factored, rows: int, rng: np.random.Generator) -> Outcome:
    records = Records.from_rows(distribution.domain, distribution.sample(rows, rng))
    return Outcome(artefact=SyntheticRecords(records), belief=distribution)


def answers_only(workload: Workload, answers: Fractions, bars: Fractions) -> Outcome:
    """Answers between 0 and 1, each with how far off it may be (in 19 of 20 cases), and no records."""
    answers = np.clip(answers, 0.0, 1.0)
    artefact = BareAnswers(list(workload.texts()), answers, bars)
    return Outcome(artefact=artefact, answers=answers, notes=(NO_RECORDS,))


def joined_rows(task: Task, again: float | None, variance: float) -> tuple[float, float]:
    """The number of records and the variance of its noise: as public, or with a second measurement of it."""
    if task.rows_variance is None or again is None:
        return float(task.rows), task.rows_variance or 0.0
    weight = 1 / task.rows_variance + 1 / variance
    return max(1.0, (task.rows / task.rows_variance + again / variance) / weight), 1 / weight


def synthetic_rows(task: Task, wanted: int | None) -> int:
    """As many rows as asked for; by default as the table has, within bounds that a computer can hold."""
    if wanted is not None and wanted < 1:
        raise DualQueryError("a synthetic table has at least one row")
    return wanted or usual_rows(task.rows)


def finished(outcome: Outcome, rows: int, entropy: Entropy, totals: Totals | None = None) -> Outcome:
    """The outcome with records that keep all rules and meet totals, and whose numbers have places in their bins.

    Nothing is drawn where there are neither rules nor totals nor such numbers. `rows` is the number of records of the
    table.
    """
    artefact = outcome.artefact
    if not isinstance(artefact, SyntheticRecords):
        return outcome
    domain = artefact.records.domain
    placed_here = not domain.inner and any(map(has_places, domain.columns))
    if not (domain.rules or totals is not None or placed_here):
        return outcome
    generator = entropy.public_generator()
    records = finished_records(artefact.records, outcome.measured, rows, generator, totals)
    return replace(outcome, artefact=synthetic(records))


def finished_records(
    records: Records,
    measured: Sequence[Measured],
    rows: int,
    rng: np.random.Generator,
    totals: Totals | None = None,
) -> Records:
    """Records that keep all rules and meet totals, with places by what was measured inside bins, if anything was.

    Units meet totals alone: a database has no rules, and numbers of its tables are spread over their bins.
    """
    if records.domain.rules:
        records = obeyed(records, rng)
    if totals is not None:
        records = totals.met(records, rng)
    return records if records.domain.inner else placed(records, measured, rows, rng)
