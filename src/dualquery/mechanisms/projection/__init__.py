"""Projection by best responses: measure once, then let rows answer the residual one after another.

The query player asks the curator what is planned, with noise, and from then on plays the public residual; the data
player best-responds row by row (`fitting.fit`). Everything after the measurement is post-processing. The projection
mechanism is of Nikolov, Talwar and Zhang (2013) and Dwork, Nikolov and Talwar (2014); playing it row by row gives the
synthetic data as well.

What is measured depends on the shape of the table, on its size and on the budget: each *way* is a value that knows
how to `measure`, and what it measures knows how rows are fitted to it (`Fitting`).

A database in which every unit has exactly one row is one table: projection plays it, and its rows are units.

Here stands the way that looks at nothing first: all tables of the workload, with shares that it alone decides.

What it measures is the same of any table, and so may be added up over tables: each set of attributes has its share in
proportion to a power of c_S · cells (`mechanisms.shares.fair_shares`), one-way tables and the number of records as in
the other ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.fitting.fitter import Effort, Fitting
from dualquery.fitting.measured import Measured, cell_variance
from dualquery.fitting.prior import NO_TRUST, fit_with_prior
from dualquery.fitting.public_rows import PublicRows
from dualquery.fitting.public_units import PublicUnits
from dualquery.mechanisms.artefact import SyntheticRecords, SyntheticUnits
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Task, choice, hidden
from dualquery.mechanisms.projection.baskets import ByItems
from dualquery.mechanisms.projection.predicted import predicted_errors
from dualquery.mechanisms.projection.pure import BySignedTables, plan_by_signed_tables
from dualquery.mechanisms.projection.small import ByChosenPairs, PairRule, plan_chosen_pairs
from dualquery.mechanisms.projection.tables import ByTables, all_small, of_tables, plan_by_tables
from dualquery.mechanisms.projection.wide import ByClasses, better_of, plan_wide
from dualquery.mechanisms.shares import (
    MAX_ERROR,
    MEAN_ERROR,
    NOTHING,
    SHARE_OF_ONES,
    SHARE_OF_TOTAL,
    Stage,
    Wanted,
    built,
    cost_of_fit,
    fair_shares,
    is_wide,
    known_at_first,
    relative_sensitivity,
    room_of,
    stages_of,
    unit_variance,
    varied_sets,
)
from dualquery.mechanisms.wishes import ProjectionWishes, RowsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.queries.tables import Tables
from dualquery.queries.views import View
from dualquery.queries.workload import Workload
from dualquery.table.database import Database
from dualquery.table.records import Records
from dualquery.table.units import Members, Units, with_sizes
from dualquery.types import Progress, Set


@dataclass(frozen=True, kw_only=True)
class ByFixedShares:
    """All tables at once."""

    measured: str = "all tables of the workload, with fixed shares"
    sets: int
    cell_noise: float
    effort: Effort
    shares: Mapping[Set, float] = hidden()
    stage: Stage = hidden()

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        (paid,) = curator.allow(self.stage.event)
        what = self.stage.chosen(self.shares, task.domain, task.budget.neighbours)
        known = known_at_first(task, self.stage.measured(curator, paid, what))
        return of_tables(known, at_once=all_small(tuple(known.larger()), known))


def plan_fixed(task: Task, wanted: ProjectionWishes, effort: Effort) -> Plan[ByFixedShares]:
    """One stage that has the whole budget."""
    orders = varied_sets(task)
    if not orders.get(1):
        raise DualQueryError(NOTHING)
    ones = fair_shares(orders[1], task.domain, task.budget.neighbours)
    others = [s for order in sorted(orders) if order > 1 for s in orders[order]]
    larger = fair_shares(others, task.domain, task.budget.neighbours)
    total = 0.0 if task.budget.neighbours.size_is_public else SHARE_OF_TOTAL
    of_ones = SHARE_OF_ONES if others else 1.0 - total
    shares: dict[Set, float] = {s: of_ones * x / sum(ones.values()) for s, x in ones.items()}
    shares |= {s: (1 - total - of_ones) * x / sum(larger.values()) for s, x in larger.items()}
    if total:
        shares[()] = total
    wanted_stages: list[Wanted] = [(f"measure {len(shares):,} tables at once", 1.0, None)]
    (stage,) = stages_of(task.budget, wanted_stages, *room_of(task))
    unit = unit_variance(task.budget)
    variance: dict[Set, float] = {(): task.rows_variance or 0.0}
    for s, share in shares.items():
        variance[s] = relative_sensitivity(s, task.domain, task.budget.neighbours) * unit / share
    base = orders.get(2) or orders[1]
    precision = np.mean([1 / cell_variance(s, variance, task.domain.sizes) for s in base])
    noise = float(1 / np.sqrt(precision)) / task.rows
    effort = effort.shared_out(noise)
    return built(
        task,
        ByFixedShares(sets=len(shares), cell_noise=noise, effort=effort, shares=shares, stage=stage),
        reason="shares were to be fixed, so all tables of the workload are measured at once and rows are fitted to "
        "them",
        steps=(stage.step(),),
        errors=predicted_errors(task, variance, MEAN_ERROR * noise, MAX_ERROR * noise),
        cost=cost_of_fit(task, base, effort, noise, tuple(s for s in shares if s)),
        memory=wanted.memory,
    )


Way = ByTables | ByFixedShares | ByChosenPairs | ByItems | ByClasses | BySignedTables


class Shared(Enum):
    """How tables share the budget."""

    ADAPTIVE = "adaptive"
    PAIRS = "pairs"
    FIXED = "fixed"


def plan(task: Task, wanted: ProjectionWishes) -> Plan[Any]:
    """Tables where the workload asks about few sets of attributes; classes, or items, of wide binary tables."""
    effort = Effort.of(wanted.synthetic_rows)
    if task.budget.accounting is Accounting.PURE:
        if task.prior is not None:
            raise DualQueryError(
                "a prior is tested on Gaussian noise, and pure ε adds Laplace noise; leave one out"
            )
        if task.earlier:
            raise DualQueryError(
                "a draft measured Gaussian noise, which pure ε does not know; leave out --draft"
            )
        return plan_by_signed_tables(task, wanted, effort)
    wide = plan_wide(task, wanted) if is_wide(task.domain) else None
    if wide is not None and wanted.shares == Shared.FIXED.value:
        raise DualQueryError(
            "shares are fixed where tables of a few attributes are measured; leave --shares out"
        )
    if wide is not None and task.prior is not None:
        raise DualQueryError(
            "a prior counts where tables of a few attributes are measured; this table is so wide that items or "
            "classes are, so leave --prior out"
        )
    if wide is not None and task.earlier:
        raise DualQueryError(
            "what a draft measured counts where tables of a few attributes are measured; this table is too wide for "
            "them, so leave --draft out"
        )
    if wide is not None:
        return better_of(wide, lambda: plan_by_tables(task, wanted, effort))
    if wanted.items_per_record is not None:
        raise DualQueryError("--items-per-record is for tables of one wide block of items; leave it out")
    shared = choice(Shared, wanted.shares, Shared.ADAPTIVE, "shares")
    if shared is Shared.FIXED:
        return plan_fixed(task, wanted, effort)
    rule = PairRule.of(task)
    if rule.applies and shared is Shared.ADAPTIVE:
        return plan_chosen_pairs(task, rule, wanted, effort)
    return plan_by_tables(task, wanted, effort)


def run(plan: Plan[Way], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """Measure as planned, fit, release."""
    measured, effort = plan.parameters.measure(curator, plan.task, rng), plan.parameters.effort
    settled = plan if measured.settled is None else replace(plan, parameters=measured.settled)
    prior, trust = plan.task.prior, None
    if not isinstance(prior, PublicRows) or measured.tables is None or measured.refit is None:
        rows = measured.fit(effort, rng, partial(progress, "fitting rows"))
        trust = None if prior is None else NO_TRUST
    else:
        tell = partial(progress, "fitting rows to what was measured and is public")
        rows, trust = fit_with_prior(measured.tables, prior, effort, rng, tell, measured.refit)
        settled = replace(settled, task=replace(plan.task, prior=replace(prior, share=trust.share)))
    return Outcome(
        artefact=SyntheticRecords(measured.records(rows, rng)),
        notes=() if trust is None else (trust.words,),
        measured=measured.measured,
        settled=settled,
        trust=trust,
    )


def with_fewer_rows(plan: Plan[Any]) -> Plan[Any]:
    """The plan of a replica (`mechanisms.error_bars`): the same, but for the length of the fit."""
    way = plan.parameters
    return replace(plan, parameters=replace(way, effort=way.effort.shorter(way.cell_noise)))


WORDS = "measures the tables of the workload once and lets rows answer the residual, one after another"
PROJECTION = Mechanism(
    "projection",
    WORDS,
    ProjectionWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP, Accounting.PURE),
    replica=with_fewer_rows,
    starts_from_prior=True,
)


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


def plan_single_rows(task: Task, wanted: RowsWishes) -> Plan[Any]:
    flat = PROJECTION.plan(_flat(task), ProjectionWishes(synthetic_rows=wanted.synthetic_rows, means=0.0))
    return replace(flat, task=task, reason="every unit has one row, so that units are records of one table")


def run_single_rows(
    plan: Plan[Any], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
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
