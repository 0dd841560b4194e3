"""A stage for the means of numbers inside their bins.

One sum a bin and column (`queries.statistics`), all of them with one noise, for `SHARE` of the budget. So few numbers
move so little that this buys them well: of K columns the noise is √K/(μ √SHARE) records between neighbours that
replace a record, half of it where one is added or removed. Where even so it would exceed the records of a bin,
nothing is measured. All of this follows from public things.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.fitting.inside import WITHIN
from dualquery.fitting.measured import Measured, Numbers
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.shares import MOST_VARIANCE, Stage, Wanted, unit_variance
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance
from dualquery.queries.statistics import BinSums
from dualquery.table.records import MOST

SHARE = 0.02  # of the budget
MOST_SHARE = 0.5


@dataclass(frozen=True)
class Means:
    """The sums that will be measured, and their share of the budget."""

    sums: BinSums
    share: float

    def wanted(self, task: Task) -> Wanted:
        """The stage, among those that a budget is shared between."""
        number, moved = len(self.sums.columns), task.budget.neighbours.sensitivity(self.sums.bound())
        columns = "a column" if number == 1 else f"{number:,} columns"
        return f"measure means inside the bins of {columns}", self.share, moved.l2_squared

    def measured(self, curator: Curator, stage: Stage, within: Allowance) -> tuple[Measured, ...]:
        """Σ ((x − low)/width − ½) of each bin, in records: one measurement per column."""
        noisy = curator.measure(self.sums, noise=stage.noise, within=within) / MOST
        variance = float(stage.noise.variance) / MOST**2
        parts = zip(self.sums.attributes, self.sums.split(noisy), strict=True)
        return tuple(Measured(Numbers(WITHIN, (attribute,)), sums, variance) for attribute, sums in parts)


def means_for(task: Task, share: float | None) -> Means | None:
    """What to measure: nothing where it is not wanted, where there is nothing, or where it would drown in noise."""
    share = SHARE if share is None else share
    if not 0 <= share <= MOST_SHARE:
        raise DualQueryError(
            f"--means is the share of the budget for means inside bins, from 0 to {MOST_SHARE}, and {share:g} is not"
        )
    if share == 0 or not task.places:
        return None
    sums = BinSums.of(task.domain)
    if not sums.columns:
        return None
    moved = task.budget.neighbours.sensitivity(sums.bound()).l2_squared
    variance = unit_variance(task.budget) * moved / share
    drowned = math.sqrt(variance) / MOST * float(np.mean(sums.bins)) > task.rows
    return None if drowned or variance > MOST_VARIANCE / 4 else Means(sums, share)
