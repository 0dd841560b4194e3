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
from dualquery.mechanisms.projection.allocation import available_rho
from dualquery.mechanisms.projection.chosen_pairs import ByChosenPairs, Rule, plan_chosen_pairs
from dualquery.mechanisms.projection.error_bars import predicted_errors
from dualquery.mechanisms.projection.fit import fit
from dualquery.mechanisms.projection.fitting import Fitting, too_noisy
from dualquery.mechanisms.projection.items import ItemPlan, is_transactions, plan_items
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.planning import cells_within, cost_of, expectation, plan_tables
from dualquery.mechanisms.projection.staged import StagedTables
from dualquery.mechanisms.projection.tables import MeasuredTables, replica
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.table.domain import Domain
from dualquery.table.records import Records

MOST_ITEMS_AS_TABLES = 200  # a block of more items is measured by items and pairs
MEAN_ERROR = 0.45  # of a random conjunction, in units of the noise of a cell (benchmarks/projection.py)
MAX_ERROR = 8.0


def of_tables(measured: MeasuredTables, *, at_once: bool) -> Fitting:
    return Fitting(
        lambda pace, rng, tell: fit(measured, pace, rng, tell, at_once=at_once),
        lambda rows, rng: Records.from_rows(measured.domain, rows),
        lambda rows, released, rng: of_tables(replica(released, measured, rng), at_once=at_once),
    )


def of_items(domain: Domain, measured: item_rows.MeasuredItems) -> Fitting:
    return Fitting(
        lambda pace, rng, tell: pace.released(item_rows.fit(measured, pace, rng, tell)),
        lambda rows, rng: item_rows.to_records(domain, rows, measured, rng),
        lambda rows, released, rng: of_items(domain, item_rows.replica(rows, measured, rng)),
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
        measured, at_once = self.tables.measure(curator, task, self.pace, rng)
        return of_tables(measured, at_once=at_once)


@dataclass(frozen=True, kw_only=True)
class ByItems:
    """Items and pairs of items, where a record holds few of very many."""

    measured: str = "items and pairs"
    items_per_record: int
    fitted_items: int
    pair_noise: float
    pace: Pace
    items: ItemPlan = hidden()

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        return of_items(task.domain, self.items.measure(curator, task, rng))


Way = ByTables | ByItems | ByChosenPairs


def plan(task: Task, wanted: ProjectionWishes) -> Plan[Way]:
    """Tables where the workload asks about few sets of attributes, items and their pairs for transactions."""
    pace = Pace.of(wanted.synthetic_rows)
    if is_transactions(task.domain) and task.domain.width > MOST_ITEMS_AS_TABLES:
        return _plan_for_items(task, wanted, pace)
    if wanted.items_per_record is not None:
        raise DualQueryError("--items-per-record is for tables of one wide block of items; leave it out")
    rule = Rule.of(task)
    if rule.applies:
        return plan_chosen_pairs(task, rule, wanted)
    return _plan_for_tables(task, wanted, pace)


def _plan_for_tables(task: Task, wanted: ProjectionWishes, pace: Pace) -> Plan[Way]:
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


def _plan_for_items(task: Task, wanted: ProjectionWishes, pace: Pace) -> Plan[Way]:
    rho = available_rho(task)
    planned = plan_items(task, wanted.items_per_record)
    noise = planned.in_records(planned.pairs) / task.rows
    per_query = math.sqrt(task.workload.size / (2 * rho)) / task.rows
    return Plan(
        mechanism="projection",
        task=task,
        reason=(
            f"the workload asks about very many sets of items, so all items and the pairs of the {planned.fitted} "
            f"that matter most are counted, at most {planned.limit} items a record (noise {noise:.2g}; one "
            f"by one the queries would have {per_query:.2g}), and rows are fitted to them"
        ),
        parameters=ByItems(
            items_per_record=planned.limit,
            fitted_items=planned.fitted,
            pair_noise=noise,
            pace=pace,
            items=planned,
        ),
        steps=planned.steps(task),
        mean_error=min(noise, 0.5),
        max_error=min(15 * noise, 1.0),
        seconds=pace.seconds(planned.fitted / 2) + task.rows * 2e-6 + task.domain.width * 1e-4,
        bytes=pace.bytes(planned.fitted, 2 * planned.fitted**2) + 400 * task.rows,
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
