"""Replicas: the whole release again, on tables drawn from its own rows, so that its errors can be seen.

The released rows are public. As many of them as the private table has records, drawn without replacement where there
are enough, are a table that could have been the private one: as uneven as a table of that size is. (All rows together
would be too smooth.) It is released as the private table was, by the same mechanism and plan, through a curator of
its own who knows public rows only, a fresh ledger of the same budget, and seeded noise; what the release has chosen
to measure is measured again, and only the rows are fewer. Its
errors are there to be seen, and they are about as large as those of the release (a parametric bootstrap). Nothing is
read but what was released, so replicas cost no privacy.

A replica shows the noise, the sampling of the table and the sampling of the rows. It cannot show what the release has
missed altogether. But its rows are few, and their sampling error is large exactly where nothing that was measured
holds an answer in place, which is where something can be missed: what is too much on the one side stands for what is
missing on the other (docs/how_it_works.md has the figures).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.pace import REPLICAS
from dualquery.mechanisms.artefact import Artefact, SyntheticRecords
from dualquery.mechanisms.error_bars import Replica
from dualquery.queries.random_families import Stream
from dualquery.table.domain import Domain
from dualquery.table.records import Records

if TYPE_CHECKING:  # a release that is read again needs the tables, and no mechanism
    from dualquery.counting.counter import Countable, Integers
    from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Progress, Task

MOST_DRAWN = 1_000_000  # rows, and bytes; of a larger table each row drawn stands for several records
MOST_BYTES = 100_000_000
MOST_SEEDS = 2**53  # whole numbers that every reader of JSON keeps


@dataclass(frozen=True)
class Draw:
    """How the tables of replicas are drawn from released rows: so many rows each, by public chance."""

    records: int
    seed: int

    @staticmethod
    def of(artefact: Artefact, records: int, seed: int) -> Draw:
        """For a table of so many records, as far as memory allows."""
        if isinstance(artefact, SyntheticRecords):
            allowed = MOST_BYTES * artefact.records.rows // max(1, artefact.records.bytes)
            records = min(records, MOST_DRAWN, max(1, allowed))
        return Draw(records, seed)


class Repeated:
    """A counter of rows that each stand for so many records."""

    def __init__(self, rows: Records, times: int) -> None:
        from dualquery.counting.counter import MemoryCounter

        self._counter = MemoryCounter(rows)
        self._times = times

    @property
    def domain(self) -> Domain:
        return self._counter.domain

    @property
    def records_per_person(self) -> None:
        """Rows of a release are nobody's."""
        return

    @property
    def true_rows(self) -> int:
        return self._times * self._counter.true_rows

    def true_counts(self, countable: Countable, *, kept: bool = False) -> Integers:
        return self._times * self._counter.true_counts(countable, kept=kept)


def made_replicas(
    mechanism: Mechanism[Any, Any], plan: Plan[Any], outcome: Outcome, draw: Draw, progress: Progress
) -> tuple[Replica, ...]:
    """The replicas of a release; none of a mechanism whose errors they would not show."""
    released = outcome.artefact
    if mechanism.replica is None or not isinstance(released, SyntheticRecords):
        return ()
    shorter = mechanism.replica(outcome.settled or plan)
    out = []
    for number, table in enumerate(tables_drawn(released.records, draw)):
        progress("estimating errors", number, REPLICAS)
        out.append(Replica.of(table, _released_again(mechanism, shorter, table, draw.seed + number)))
    progress("estimating errors", REPLICAS, REPLICAS)
    return tuple(out)


def replica_bytes(task: Task) -> int:
    """What the tables drawn take in memory, at a byte a value."""
    return REPLICAS * min(MOST_BYTES, task.rows * task.domain.width)


def tables_drawn(released: Records, draw: Draw) -> Iterator[Records]:
    """The tables of the replicas: the same ones from the same rows and seed, on every machine."""
    for number in range(REPLICAS):
        yield released.take(_drawn(released.rows, draw.records, Stream(draw.seed + number)))


def _drawn(rows: int, wanted: int, stream: Stream) -> NDArray[np.int64]:
    """So many of the rows, in order: without replacement where there are enough."""
    if wanted > rows:
        return np.sort(stream.below(np.full(wanted, rows)))
    tickets = (stream.below(np.full(rows, 1 << 31)) << 31) + np.arange(rows)  # no two alike
    return np.sort(np.argpartition(tickets, wanted - 1)[:wanted])


def _released_again(mechanism: Mechanism[Any, Any], plan: Plan[Any], table: Records, seed: int) -> Records:
    """What the mechanism makes of a table drawn; its number of records is told as that of the private one was."""
    from dualquery.mechanisms.mechanism import silent
    from dualquery.privacy.curator import Curator
    from dualquery.privacy.ledger import Ledger
    from dualquery.privacy.scores import MOST_PUBLIC_ROWS
    from dualquery.queries.rules import obeyed
    from dualquery.randomness import SeededEntropy

    rng, task = np.random.default_rng([seed, REPLICAS]), plan.task  # another stream than the draw's
    times = -(-task.rows // table.rows)
    told = times * table.rows
    if task.rows_variance is not None:
        told = max(1, min(MOST_PUBLIC_ROWS, round(told + rng.normal(0.0, math.sqrt(task.rows_variance)))))
    curator = Curator(Repeated(table, times), Ledger(task.budget), SeededEntropy(seed))
    outcome = mechanism.run(replace(plan, task=replace(task, rows=told)), curator, rng, silent)
    assert isinstance(outcome.artefact, SyntheticRecords), "a mechanism that has replicas releases records"
    return obeyed(outcome.artefact.records, rng)
