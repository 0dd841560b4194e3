"""Three measurements whose sizes are fixed before the first: one-way tables, misfits, and the rest.

What the last one measures is chosen after the first two were heard, within the sensitivity and at the variance that
were paid for (`measuring`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from dualquery.counting.counter import Integers
from dualquery.game.residual import Set
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection.measuring import Stage, known_at_first, relative_sensitivity, stages_of
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.privacy.allowance import Allowance
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.misfits import Misfits, misfit_sensitivity
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.statistics import Interactions
from dualquery.queries.tables import Tables
from dualquery.table.domain import Domain

TOTAL_OF_ONES = 0.05  # of the share of the one-way tables, for the number of records where that is private
CAUTION = (
    0.5  # standard deviations by which the number of records is taken lower than measured: too many would
)
# leave records in empty cells, while too few are mended where tables are made distributions


@dataclass(frozen=True)
class Shares:
    """Of the budget: for one-way tables (and the number of records), for misfits, and the rest."""

    ones: float
    misfits: float

    @property
    def rest(self) -> float:
        return 1.0 - self.ones - self.misfits


@dataclass(frozen=True)
class ThreeStages:
    """One-way tables, the misfits of some candidates, and whatever is chosen then."""

    ones: Mapping[Set, float]  # shares of the first
    candidates: Tables
    first: Stage
    second: Stage
    last: Stage

    @staticmethod
    def of(task: Task, ones: list[Set], candidates: list[Set], shares: Shares) -> ThreeStages:
        tables = Tables(task.domain, tuple(candidates))
        moved = misfit_sensitivity(len(candidates), task.budget.neighbours).l2_squared
        wanted: list[tuple[str, float, int | None]] = [
            (f"measure {len(ones):,} one-way tables at once", shares.ones, None),
            (f"measure how far {len(candidates):,} pairs lie from independence", shares.misfits, moved),
            ("measure the pairs that matter, or the one-way tables again", shares.rest, None),
        ]
        first, second, last = stages_of(task, wanted)
        of_ones = shares_of_first(ones, task.domain, task.budget.neighbours)
        return ThreeStages(of_ones, tables, first, second, last)

    @property
    def stages(self) -> tuple[Stage, Stage, Stage]:
        return self.first, self.second, self.last

    @property
    def events(self) -> tuple[GaussianMeasurement, ...]:
        return tuple(stage.event for stage in self.stages)

    def measure_ones(self, curator: Curator, task: Task, within: Allowance) -> MeasuredTables:
        """One-way tables; the number of records with them, joined with what is known of it, where it is private."""
        what = self.first.chosen(self.ones, task.domain, task.budget.neighbours)
        return cautious(known_at_first(task, *self.first.measured(curator, within, what)))

    def measure_misfits(self, curator: Curator, expected: Integers, within: Allowance) -> Integers:
        """How far each candidate lies from public whole numbers."""
        what = Misfits(self.candidates, expected, slack=np.zeros(len(self.candidates.sets), np.int64))
        return curator.measure(what, noise=self.second.noise, within=within)

    def within(self, shares: Mapping[Set, float], task: Task) -> Interactions:
        """What the last stage measures with these shares."""
        return self.last.chosen(shares, task.domain, task.budget.neighbours)

    @property
    def unit(self) -> float:
        """The deviation of the last stage's noise, were all of it spent on a number that moves by one; in records."""
        return self.last.noise.deviation / math.sqrt(self.last.squared)


def shares_of_first(ones: list[Set], domain: Domain, neighbours: Neighbours) -> dict[Set, float]:
    """Of one-way tables in proportion to (c_S · cells)^¼, and of the number of records; together one."""
    wanted: dict[Set, float] = {
        s: (relative_sensitivity(s, domain, neighbours) * int(domain.sizes[s[0]])) ** 0.25 for s in ones
    }
    if not neighbours.size_is_public:
        wanted[()] = TOTAL_OF_ONES * sum(wanted.values())
    total = sum(wanted.values())
    return {members: part / total for members, part in wanted.items()}


def cautious(measured: MeasuredTables) -> MeasuredTables:
    """The same measurement, of a few records less than it says."""
    rows = float(measured.interactions[()]) - CAUTION * math.sqrt(measured.variance[()])
    return replace(measured, total=max(1.0, rows))
