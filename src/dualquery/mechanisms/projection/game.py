"""Projection by best responses: measure once, then let rows answer the residual one after another.

The query player asks the curator a single question, all planned tables with Gaussian noise, and from then on
plays the public residual; the data player best-responds row by row (`fit`). Everything after the
measurement is post-processing. The projection mechanism is of Nikolov, Talwar and Zhang (2013) and Dwork,
Nikolov and Talwar (2014); playing it row by row gives the synthetic data as well.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import (
    Mechanism,
    Outcome,
    Plan,
    Progress,
    Task,
    hidden,
)
from dualquery.mechanisms.projection import item_rows
from dualquery.mechanisms.projection.allocation import TablePlan, plan_tables
from dualquery.mechanisms.projection.error_bars import predicted_errors
from dualquery.mechanisms.projection.fit import fit
from dualquery.mechanisms.projection.fitting import Fitting, too_noisy
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.tables import MeasuredTables, replica
from dualquery.mechanisms.projection.wide import ByClasses, ByItems, plan_wide, rather
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.table.records import Records

MEAN_ERROR = 0.45  # of a random conjunction, in units of the noise of a cell (benchmarks/projection.py)
MAX_ERROR = 8.0
COUNT_SECONDS = 2e-9  # per record and table, two cores


def of_tables(measured: MeasuredTables) -> Fitting:
    return Fitting(
        lambda pace, rng, tell: pace.released(fit(measured, pace, rng, tell)),
        lambda rows, rng: Records.from_rows(measured.domain, rows),
        lambda rows, released, rng: of_tables(replica(released, measured, rng)),
    )


@dataclass(frozen=True, kw_only=True)
class ByTables:
    """Tables of few attributes, through their interactions."""

    measured: str = "tables"
    sets: int
    cell_noise: float
    tables: TablePlan = hidden()
    pace: Pace

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        return of_tables(self.tables.measure(curator, task))


Way = ByTables | ByItems | ByClasses


def plan(task: Task, wanted: ProjectionWishes) -> Plan[Way]:
    """Tables where the workload asks about few sets of attributes; classes, or items, of wide binary tables."""
    wide = plan_wide(task, wanted)
    if wide is not None:
        return rather(wide, lambda: _plan_for_tables(task, wanted))
    if wanted.items_per_record is not None:
        raise DualQueryError("--items-per-record is for tables of one wide block of items; leave it out")
    return _plan_for_tables(task, wanted)


def _plan_for_tables(task: Task, wanted: ProjectionWishes) -> Plan[Way]:
    pace = Pace.of(wanted.synthetic_rows)
    planned = plan_tables(task)
    need = pace.bytes(task.domain.width, planned.cells())
    if wanted.memory is not None and need > wanted.memory:
        sizes_of = planned.interactions.sizes_of
        largest = max(planned.interactions.sets, key=lambda members: math.prod(sizes_of(members)))
        names = " × ".join(task.domain.name(j) for j in largest)
        raise DualQueryError(
            f"the tables of this workload need {need / 1e6:,.0f} MB, more than --memory allows (the largest is "
            f"{names}); ask about fewer attributes at once, or allow more"
        )
    noise, sets = planned.cell_noise(task), len(planned.interactions.sets)
    counts = ", ".join(
        f"{count:,} of order {order}" for order, count in enumerate(planned.orders, 1) if count
    )
    return Plan(
        mechanism="projection",
        task=task,
        reason=(
            f"the workload falls into tables of few attributes, so their interactions are measured once ({counts}) "
            "and rows are fitted to them"
        ),
        parameters=ByTables(sets=sets, cell_noise=noise, pace=pace, tables=planned),
        steps=(planned.step(task),),
        mean_error=min(MEAN_ERROR * noise, 0.5),
        max_error=min(MAX_ERROR * noise, 1.0),
        seconds=pace.seconds(planned.visits()) + task.rows * sets * COUNT_SECONDS,
        bytes=need,
        notes=too_noisy(noise),
    )


def run(plan: Plan[Way], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """Measure as planned, fit, release; then fit a replica, made from what is released, for the error bars."""
    pace, shorter = plan.parameters.pace, plan.parameters.pace.shorter()
    first = plan.parameters.measure(curator, plan.task, rng)
    rows = first.fit(pace, rng, _as("fitting rows", progress))
    released = first.records(rows, rng)
    second = first.replica(rows, released, rng)
    again = second.records(second.fit(shorter, rng, _as("estimating errors", progress)), rng)
    answers, bars = predicted_errors(plan.task.workload, released, again, rng)
    return Outcome(artefact=SyntheticRecords(released), answers=answers, error_bars=bars)


def _as(stage: str, progress: Progress) -> item_rows.Progress:
    return lambda done, total: progress(stage, done, total)


WORDS = "measures the tables of the workload once and lets rows answer the residual, one after another"
PROJECTION = Mechanism(
    "projection", WORDS, ProjectionWishes, plan, run, paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP)
)
