"""The way of projection that looks at nothing first: all tables of the workload, with shares that it alone decides.

What it measures is the same of any table, and so may be added up over tables: each set of attributes has its share in
proportion to a power of c_S · cells (`mechanisms.shares.fair_shares`), one-way tables and the number of records as in
the other ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.fitting.fitter import Effort, Fitting
from dualquery.fitting.measured import cell_variance
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.predicted import predicted_errors
from dualquery.mechanisms.projection.tables import all_small, of_tables
from dualquery.mechanisms.shares import (
    MAX_ERROR,
    MEAN_ERROR,
    NOTHING,
    SHARE_OF_ONES,
    SHARE_OF_TOTAL,
    Stage,
    built,
    cost_of_fit,
    fair_shares,
    known_at_first,
    relative_sensitivity,
    table_stages,
    unit_variance,
    varied_sets,
)
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.types import Set


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
    (stage,) = table_stages(task, [(f"measure {len(shares):,} tables at once", 1.0, None)])
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
