"""Projection by best responses: measure once, then let rows answer the residual one after another.

The query player asks the curator what is planned, with noise, and from then on plays the public residual; the data
player best-responds row by row (`fitting.fit`). Everything after the measurement is post-processing. The projection
mechanism is of Nikolov, Talwar and Zhang (2013) and Dwork, Nikolov and Talwar (2014); playing it row by row gives the
synthetic data as well.

What is measured depends on the shape of the table, on its size and on the budget: each *way* is a value that knows
how to `measure`, and what it measures knows how rows are fitted to it (`Fitting`).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.fitting.fitter import Effort
from dualquery.fitting.prior import NO_TRUST, fit_with_prior
from dualquery.fitting.public_rows import PublicRows
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Task, choice
from dualquery.mechanisms.projection.baskets import ByItems
from dualquery.mechanisms.projection.fixed import ByFixedShares, plan_fixed
from dualquery.mechanisms.projection.pure import BySignedTables, plan_by_signed_tables
from dualquery.mechanisms.projection.small import ByChosenPairs, PairRule, plan_chosen_pairs
from dualquery.mechanisms.projection.tables import ByTables, plan_by_tables
from dualquery.mechanisms.projection.wide import ByClasses, better_of, plan_wide
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.types import Progress

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
    wide = plan_wide(task, wanted)
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
