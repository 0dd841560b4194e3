"""The usual way of projection: the tables of the workload through their interactions, measured in stages."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.fit import fit
from dualquery.mechanisms.projection.fitting import Fitting, too_noisy
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.planning import cells_within, cost_of, expectation, plan_tables
from dualquery.mechanisms.projection.staged import StagedTables
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.table.records import Records

MEAN_ERROR = 0.45  # of a random conjunction, in units of the noise of a cell (benchmarks/projection.py)
MAX_ERROR = 8.0


def of_tables(measured: MeasuredTables, *, at_once: bool, settled: ByTables | None = None) -> Fitting:
    return Fitting(
        lambda pace, rng, tell: fit(measured, pace, rng, tell, at_once=at_once),
        lambda rows, rng: Records.from_rows(measured.domain, rows),
        settled,
    )


@dataclass(frozen=True, kw_only=True)
class ByTables:
    """Tables of few attributes, through their interactions, in stages."""

    measured: str = "tables"
    stages: int
    sets: int  # that the plan expects to measure
    cell_noise: float
    tables: StagedTables = hidden()
    pace: Pace

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        measured, at_once, settled = self.tables.measure(curator, task, self.pace, rng)
        return of_tables(measured, at_once=at_once, settled=replace(self, tables=settled))

    def shorter(self) -> ByTables:
        return replace(self, pace=self.pace.shorter(self.cell_noise))


def plan_by_tables(task: Task, wanted: ProjectionWishes, pace: Pace) -> Plan[ByTables]:
    """Interactions of all pairs, and of larger sets where they pay."""
    planned = plan_tables(task, cells_within(task, pace, wanted.memory))
    expected = expectation(task, planned)
    cost = cost_of(task, planned, expected, pace)
    if wanted.memory is not None and cost.bytes > wanted.memory:
        names = " × ".join(task.domain.name(j) for j in cost.largest)
        raise DualQueryError(
            f"the tables of this workload need {cost.bytes / 1e6:,.0f} MB, more than --memory allows (the largest is "
            f"{names}); ask about fewer attributes at once, or allow more"
        )
    noise = expected.cell_noise
    counts = ", ".join(
        f"{expected.count(order):,} of order {order}"
        for order in range(1, 1 + max(map(len, expected.sets)))
        if expected.count(order)
    )
    return Plan(
        mechanism="projection",
        task=task,
        reason=(
            "the workload falls into tables of few attributes, so their interactions are measured "
            f"({counts}, more or less, as the one-way tables will say) and rows are fitted to them"
        ),
        parameters=ByTables(
            stages=len(planned.stages), sets=len(expected.sets), cell_noise=noise, pace=pace, tables=planned
        ),
        steps=tuple(stage.step() for stage in planned.stages),
        mean_error=min(MEAN_ERROR * noise, 0.5),
        max_error=min(MAX_ERROR * noise, 1.0),
        seconds=cost.seconds,
        bytes=cost.bytes,
        notes=too_noisy(noise),
    )
