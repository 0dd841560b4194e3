"""Small tables and many columns: one-way tables first, then the pairs that matter, if any do.

To measure all pairs is wrong where records are few for the number of pairs: noise then hides what independence
would have told. Here one-way tables are measured first, then the *misfit* of every pair, its distance from the
product of the one-way tables, which costs little because a record moves it by one. What follows is chosen from these
public numbers (`choosing`): a gate says whether pairs would gain more than they cost; then the rest of the budget
goes to the K pairs of largest misfit, or back to the one-way tables. docs/small-tables.md has the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.game.residual import Set
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.allocation import available_rho, closure
from dualquery.mechanisms.projection.choosing import (
    Gate,
    Misfit,
    best_pairs,
    error_of_ones,
    expected_counts,
    null_misfit,
)
from dualquery.mechanisms.projection.fit import fit, product_start
from dualquery.mechanisms.projection.fitting import Fitting, Progress, Rows, too_noisy
from dualquery.mechanisms.projection.measuring import relative_sensitivity, unit_variance
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.posterior import denoised
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.mechanisms.projection.three_stages import Shares, ThreeStages, cautious, shares_of_first
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.table.records import Records

SHARE_OF_MISFITS = 0.07
MOST_CHOSEN = 0.7  # of the pairs: where more would be chosen, all are measured (docs/small-tables.md)
MOST_CHOSEN_BESIDE = 0.4  # where larger sets are asked for as well
LEAST_OF_MISFITS = (
    0.02  # of many columns whose single misfits would drown all the same; their mean is still told
)
DROWNED = 0.3  # noise of a misfit, as a fraction of the records
MOST_OF_ONES, LEAST_OF_ONES = 0.80, 0.19
LIKELY = 1.0  # of a pair's target: of many that were chosen in vain, what was measured is noise
# Of a random conjunction, in units of the noise of a one-way cell (benchmarks/small_tables.py):
MEAN_ERROR, MAX_ERROR = 0.35, 6.5
MANY_COLUMNS = 40  # where the share of the one-way tables falls more steeply with the number of records
COUNT_SECONDS = 2e-9  # per record and table, two cores
PAIR_SECONDS = 3e-4  # whatever its size: to choose, to measure, to put together


@dataclass(frozen=True)
class Rule:
    """How many pairs to choose, and the share of the one-way tables: from public quantities alone."""

    ones: list[Set]
    pairs: list[Set]
    precision: float  # r: records over the noise of a one-way count, by the freedom of a pair
    number: float  # K, before it is made a whole number
    larger: bool  # whether sets of three and more are asked for
    unclear: float  # the noise of a misfit, as a fraction of the records

    @staticmethod
    def of(task: Task) -> Rule:
        """r = n/√(v d) · 115/q, K = d (r/100)^¾, with q the mean over pairs of (k_i − 1)(k_j − 1)."""
        sizes = task.domain.sizes
        orders = closure(task.workload.scope)
        ones, pairs = (
            [members for members in orders.get(order, []) if all(sizes[j] > 1 for j in members)]
            for order in (1, 2)
        )
        larger = max(orders, default=1) > 2
        available_rho(task)  # refuses an accounting that cannot pay for Gaussian noise
        if not pairs:
            return Rule(ones, pairs, math.inf, math.inf, larger, 0.0)
        freedom = float(np.mean([(int(sizes[i]) - 1) * (int(sizes[j]) - 1) for i, j in pairs]))
        neighbours, unit = task.budget.neighbours, unit_variance(task.budget)
        noise = math.sqrt(unit * neighbours.largest_squared(alone=1, apart=2) * len(ones))
        precision = task.rows / noise * 115 / freedom
        moved = neighbours.largest_squared(alone=len(pairs), apart=4 * len(pairs))
        unclear = math.sqrt(unit * moved / SHARE_OF_MISFITS) / task.rows
        return Rule(ones, pairs, precision, len(ones) * (precision / 100) ** 0.75, larger, unclear)

    @property
    def applies(self) -> bool:
        """Whether some pairs are better than all."""
        most = MOST_CHOSEN_BESIDE if self.larger else MOST_CHOSEN
        return self.number < most * len(self.pairs)

    @property
    def chosen(self) -> int:
        return max(1, round(self.number))

    def shares(self) -> Shares:
        """Fewer records, more for the one-way tables: 1/(1 + r/400), within bounds; steeper for many columns."""
        wide = len(self.ones) >= MANY_COLUMNS
        ones = 1 / (1 + (self.precision / 400) ** (1.5 if wide else 1.0))
        misfits = LEAST_OF_MISFITS if wide and self.unclear > DROWNED else SHARE_OF_MISFITS
        return Shares(min(MOST_OF_ONES, max(LEAST_OF_ONES, ones)), misfits)


class Last(Enum):
    """What the rest of the budget is spent on."""

    ONES = "the one-way tables again"
    CHOSEN = "the chosen pairs"


@dataclass(frozen=True)
class Wanted:
    """What to measure last, and with which shares of what is left."""

    last: Last
    shares: Mapping[Set, float]


@dataclass(frozen=True, kw_only=True)
class ByChosenPairs:
    """One-way tables, then the pairs that matter most."""

    measured: str = "one-way tables, then chosen pairs"
    pairs: int
    chosen: int
    cell_noise: float
    pace: Pace
    stages: ThreeStages = hidden()

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        """All three stages are paid for at once; what the last one measures is chosen after the first two."""
        stages = self.stages
        first, second, last = curator.allow(*stages.events)
        raw = stages.measure_ones(curator, task, first)
        known = denoised(raw)
        ones, sets = known.ones(), stages.candidates.sets
        expected = expected_counts(ones, sets, known.total)
        noisy = stages.measure_misfits(curator, np.rint(expected).astype(np.int64), second)
        null = null_misfit(ones, {j: known.deviation((j,)) for j in ones}, sets, known.total)
        wanted = self.wanted(task, known, Misfit.of(noisy, null, stages.second.noise.deviation))
        rest = stages.last.measured(curator, last, stages.within(wanted.shares, task))
        return self._fitting(wanted.last, cautious(raw.joined(*rest)), task)

    def wanted(self, task: Task, known: MeasuredTables, misfit: Misfit) -> Wanted:
        """The gate and the choice: from public numbers."""
        stages, neighbours, sets = self.stages, task.budget.neighbours, self.stages.candidates.sets
        again = shares_of_first([s for s in stages.ones if s], task.domain, neighbours)
        moved = np.array([relative_sensitivity(s, task.domain, neighbours) for s in sets])
        cells = np.diff(stages.candidates.starts)
        noise = moved * stages.unit * np.sqrt(self.chosen * cells)
        best = best_pairs(misfit, self.chosen, noise)
        gate = Gate.of(misfit, best, noise, total=known.total, cost=self._cost(task, known, again))
        if not gate.opens:
            return Wanted(Last.ONES, again)
        parts = np.sqrt(moved[best] * cells[best])
        parts /= parts.sum()
        return Wanted(Last.CHOSEN, {sets[p]: float(x) for p, x in zip(best.tolist(), parts, strict=True)})

    def _cost(self, task: Task, known: MeasuredTables, again: Mapping[Set, float]) -> float:
        """How much better one-way tables would be, had they the rest as well."""
        more = self.stages.last.variances(self.stages.within(again, task))
        now = {s[0]: known.deviation(s) for s in known.interactions if len(s) == 1}
        alone = {
            j: x / math.sqrt(1 + known.variance[(j,)] / more.get((j,), math.inf)) for j, x in now.items()
        }
        ones = known.ones()
        return error_of_ones(ones, now) - error_of_ones(ones, alone)

    def _fitting(self, last: Last, measured: MeasuredTables, task: Task) -> Fitting:
        def fitted(pace: Pace, rng: np.random.Generator, progress: Progress) -> Rows:
            known = denoised(measured)
            if last is Last.CHOSEN and known.of_order(2):
                return fit(known, pace, rng, progress, at_once=False, likely=LIKELY)
            return independent_rows(known, pace, rng, progress)

        return Fitting(fitted, lambda rows, rng: Records.from_rows(task.domain, rows))

    def shorter(self) -> ByChosenPairs:
        return replace(self, pace=self.pace.shorter(self.cell_noise))


def independent_rows(
    measured: MeasuredTables, pace: Pace, rng: np.random.Generator, progress: Progress
) -> Rows:
    """Rows whose attributes are independent."""
    rows = product_start(measured.domain, measured.ones(), replace(pace, chains=1, chain_rows=pace.rows), rng)
    progress(1, 1)
    return rows[0]


def plan_chosen_pairs(task: Task, rule: Rule, wanted: ProjectionWishes) -> Plan[Any]:
    """Everything but what is measured last."""
    shares, pace = rule.shares(), Pace.of(wanted.synthetic_rows)
    stages = ThreeStages.of(task, rule.ones, rule.pairs, shares)
    noisy = stages.first.variances(stages.first.chosen(stages.ones, task.domain, task.budget.neighbours))
    noise = math.sqrt(float(np.mean([v for s, v in noisy.items() if s]))) / task.rows
    number = len(rule.pairs)
    sizes = task.domain.sizes.astype(np.int64)
    cells = stages.candidates.size
    visits = rule.chosen * (16 + 2 * float(sizes.mean()))
    need = pace.bytes(task.domain.width, 2 * visits * float(sizes.mean())) + 40 * cells
    if wanted.memory is not None and need > wanted.memory:
        i, j = max(rule.pairs, key=lambda members: int(sizes[members[0]]) * int(sizes[members[1]]))
        raise DualQueryError(
            f"the tables of this workload need {need / 1e6:,.0f} MB, more than --memory allows (the largest is "
            f"{task.domain.name(i)} × {task.domain.name(j)}); ask about fewer attributes at once, or allow more"
        )
    return Plan(
        mechanism="projection",
        task=task,
        reason=(
            f"{task.rows:,} records are few for {number:,} pairs of attributes, so one-way tables are measured first "
            f"({shares.ones:.0%} of the budget), then how far each pair lies from independence "
            f"({shares.misfits:.0%}); if pairs pay, the {rule.chosen:,} that matter most get the rest, else "
            "the one-way tables do, and rows are fitted to them"
        ),
        parameters=ByChosenPairs(
            pairs=number, chosen=rule.chosen, cell_noise=noise, pace=pace, stages=stages
        ),
        steps=tuple(stage.step() for stage in stages.stages),
        mean_error=min(MEAN_ERROR * noise, 0.5),
        max_error=min(MAX_ERROR * noise, 1.0),
        seconds=pace.seconds(visits, noise) + number * (task.rows * COUNT_SECONDS + PAIR_SECONDS),
        bytes=need,
        notes=(
            *too_noisy(noise),
            "where no pairs pay, only one-way tables are known, and answers about two attributes that depend on each "
            "other are as wrong as independence is",
        ),
    )
