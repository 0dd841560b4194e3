"""The way of projection under pure ε: signed tables with Laplace noise."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.by_tables import MAX_ERROR, of_tables
from dualquery.mechanisms.projection.fitting import Fitting, too_noisy
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.signed_allocation import SignedPlan, plan_signed
from dualquery.mechanisms.projection.signed_prediction import (
    bytes_of,
    cell_noise,
    mean_error,
    reason_of,
    seconds_of,
    steps_of,
)
from dualquery.mechanisms.projection.signed_rounds import measure as measure_signed
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator


@dataclass(frozen=True, kw_only=True)
class BySignedTables:
    """Signed tables with Laplace noise, where the budget is pure ε."""

    measured: str = "signed tables"
    sets: int
    rounds: int
    cell_noise: float
    tables: SignedPlan = hidden()
    pace: Pace

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        return of_tables(measure_signed(self.tables, curator, task, rng), at_once=True)

    def shorter(self) -> BySignedTables:
        return replace(self, pace=self.pace.shorter(self.cell_noise))


def plan_by_signed_tables(task: Task, wanted: ProjectionWishes, pace: Pace) -> Plan[BySignedTables]:
    """Signed tables at once, or one after another where few can be afforded."""
    if wanted.items_per_record is not None:
        raise DualQueryError(
            "--items-per-record needs Gaussian noise; leave it out, or ask for zcdp accounting"
        )
    planned = plan_signed(task)
    need = bytes_of(planned, task, pace)
    if wanted.memory is not None and need > wanted.memory:
        raise DualQueryError(
            f"the tables of this workload need {need / 1e6:,.0f} MB, more than --memory allows; ask about fewer "
            "attributes at once, or allow more"
        )
    noise, rounds = cell_noise(planned, task), planned.rounds
    return Plan(
        mechanism="projection",
        task=task,
        reason=reason_of(planned),
        parameters=BySignedTables(
            sets=len(planned.first.sets),
            rounds=0 if rounds is None else rounds.number,
            cell_noise=noise,
            tables=planned,
            pace=pace,
        ),
        steps=steps_of(planned, task),
        mean_error=mean_error(planned, task, noise),
        max_error=min(MAX_ERROR * noise, 1.0),
        seconds=seconds_of(planned, task, pace),
        bytes=need,
        notes=too_noisy(noise),
    )
