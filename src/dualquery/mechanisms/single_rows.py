"""A database in which every unit has exactly one row is one table: projection plays it, and its rows are units."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np

from dualquery.fitting.measured import Measured
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.public_units import PublicUnits
from dualquery.mechanisms.artefact import SyntheticUnits
from dualquery.mechanisms.mechanism import Outcome, Plan, Task
from dualquery.mechanisms.projection.game import PROJECTION
from dualquery.mechanisms.wishes import ProjectionWishes, RowsWishes
from dualquery.privacy.curator import Curator
from dualquery.queries.tables import Tables
from dualquery.queries.views import View
from dualquery.queries.workload import Workload
from dualquery.table.database import Database
from dualquery.table.records import Records
from dualquery.table.units import Members, Units, with_sizes
from dualquery.types import Progress


def one_row_each(database: Database) -> bool:
    return [(each.at_least, each.at_most) for each in database.children] == [(1, 1)]


def _view(task: Task) -> View:
    assert isinstance(task.domain, Database)
    return View(task.domain, task.domain.children[0].name, 1, 1)


def _flat(task: Task) -> Task:
    """All pairs of attributes of a unit and its row."""
    view, prior = _view(task), task.prior
    pairs = Tables(view.domain, tuple(combinations(range(view.domain.width), 2)))
    if isinstance(prior, PublicUnits):
        rows = PublicRows.of(prior.units.joined(view.child).to_rows())
        prior = replace(rows, number=prior.number, share=prior.share)
    return replace(task, workload=Workload(view.domain, (pairs,), "all pairs"), prior=prior)


def plan(task: Task, wanted: RowsWishes) -> Plan[Any]:
    flat = PROJECTION.plan(_flat(task), ProjectionWishes(synthetic_rows=wanted.synthetic_rows, means=0.0))
    return replace(flat, task=task, reason="every unit has one row, so that units are records of one table")


def run(plan: Plan[Any], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    task = plan.task
    made = PROJECTION.run(replace(plan, task=_flat(task)), curator.of_rows(_view(task)), rng, progress)
    assert made.settled is not None
    if task.prior is not None and made.trust is not None:
        task = replace(task, prior=replace(task.prior, share=made.trust.share))
    return replace(
        made,
        artefact=SyntheticUnits(_units(task, made.artefact.records)),  # type: ignore[attr-defined]
        measured=tuple(each for each in made.measured if _about_units(each, task.domain.width)),
        settled=replace(made.settled, task=task),
    )


def _about_units(measured: Measured, width: int) -> bool:
    return isinstance(measured.what, tuple) and all(int(j) < width for j in measured.what)


def _units(task: Task, rows: Records) -> Units:
    database, start = task.domain, np.arange(rows.rows + 1)
    assert isinstance(database, Database)
    own, child = len(database.root.columns), database.children[0]
    hanging = Members(start, Records(child.domain, rows.rows, rows.columns[database.width :]))
    return with_sizes(database, rows.rows, rows.columns[:own], (hanging,))
