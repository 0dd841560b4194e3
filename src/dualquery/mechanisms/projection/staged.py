"""The way of tables: one-way tables first, then pairs in two halves and larger sets where they pay, then,
where the budget is large, those on which fitted rows are still wrong.

The number of stages, their shares, sensitivities and variances follow from public things and are paid for before
anything is drawn. Noisy one-way tables decide how pairs and larger sets share the next two stages
(`fitting.allocation`), the first half of the pairs how the second is shared (`fitting.separable`), and noisy
scores of rows that were fitted to all of it what the last one measures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.allocation import Allocation, Curves, Floats, Workloads, allocate, predicted_curves
from dualquery.fitting.fit import fit
from dualquery.fitting.likely import MOST_VALUES, separable_prior
from dualquery.fitting.measured import HALF_NORMAL, Measured, MeasuredTables
from dualquery.fitting.pace import Pace
from dualquery.fitting.separable import sets_of_at_most
from dualquery.game.moves import Cells, Set
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.shares import Stage, known_at_first, quarter_powers, relative_sensitivity, unit_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance
from dualquery.privacy.misfits import Misfits
from dualquery.queries.tables import Tables
from dualquery.table.records import Records

LEAST_GAIN = 0.02  # of the predicted error: for less, larger sets are left to what pairs imply
ROUGH_STEPS = 4  # of expectation and maximisation, where only shares follow from it
SMALL_TABLE = 64  # cells: tables of so many that are all measured are fitted at once
MOST_CHOSEN = 32  # sets that the last stage measures
CLEAR = 1.5  # deviations of its noise that a score must exceed, and those of a chosen set that an error must
SCOUT_ROWS = 40_000  # fitted before the scores are asked for
MOST_WORK = 60_000.0  # of all larger sets: some ten seconds on two cores
Shares = Mapping[Set, float]  # of the budget

_FURTHER = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 49)])  # shares of a second half


@dataclass(frozen=True)
class StagedTables:
    """What may be measured, and the stages. All of it is public."""

    ones: Mapping[
        Set, float
    ]  # shares of one-way tables, and of the number of records where it is to be measured
    sets: tuple[Set, ...]  # pairs, and the larger sets that may be measured
    tables: tuple[Set, ...]  # of the workload
    complete: bool  # whether `sets` holds every larger set of the workload
    unit: float  # the variance that the whole budget affords at sensitivity one
    work: NDArray[np.float64]  # how many values a row looks at for each of `sets` in a pass
    first: Stage
    halves: tuple[Stage, Stage] | None  # None where the workload asks about single attributes only
    last: (
        tuple[Stage, Stage] | None
    )  # scores of larger sets, and those that they choose, where they are asked for
    settled: Mapping[int, Shares] | None = None  # of later stages, by number, where a release has chosen them

    @property
    def stages(self) -> tuple[Stage, ...]:
        return (self.first, *(self.halves or ()), *(self.last or ()))

    @cached_property
    def larger(self) -> tuple[Set, ...]:
        return tuple(members for members in self.sets if len(members) > 2)

    @cached_property
    def workload(self) -> Workloads:
        return Workloads(self.sets, self.tables)

    def curves(self, task: Task, ones: Mapping[int, Cells], rows: float) -> Curves:
        """What every set would be wrong by, given one-way tables."""
        units = [unit_of(s, task.domain, task.budget.neighbours, self.unit) for s in self.sets]
        return predicted_curves(self.sets, ones, rows, np.array(units))

    def allocation(self, curves: Curves) -> Allocation:
        """Shares of both halves together; pairs alone where larger sets would gain next to nothing."""
        assert self.halves is not None
        budget = sum(stage.share for stage in self.halves)
        best = allocate(curves, self.workload, budget)
        pairs = np.array([len(members) == 2 for members in self.sets])
        if not best.shares[~pairs].any():
            return best
        alone = allocate(curves, self.workload, budget, allowed=pairs)
        if best.tables.mean() >= (1 - LEAST_GAIN) * alone.tables.mean():
            return alone
        worked = self._within_work(curves, best)
        return best if worked.all() else allocate(curves, self.workload, budget, allowed=pairs | worked)

    def _within_work(self, curves: Curves, best: Allocation) -> NDArray[np.bool_]:
        """The sets that gain most for the time that fitting them takes: as many as a fit has time for."""
        gains = self.workload.weights(best.errors) * (curves.errors[:, 0] - best.errors)
        work = np.where([len(members) > 2 for members in self.sets], self.work, 0.0)
        order = np.argsort(-gains / np.maximum(work, 1.0), kind="stable")
        within = np.empty(len(order), np.bool_)
        within[order] = np.cumsum(np.where(best.shares > 0, work, 0.0)[order]) <= MOST_WORK
        return within

    def measure(
        self, curator: Curator, task: Task, pace: Pace, rng: np.random.Generator
    ) -> tuple[MeasuredTables, bool, StagedTables]:
        """All stages. Also: whether rows should be fitted to everything at once, and these stages as they settled.

        `pace` is that of the fit to come.
        """
        stages = self.stages
        allowances = curator.allow(*(stage.event for stage in stages))

        def measured(number: int, shares: Shares) -> list[Measured]:
            what = stages[number].chosen(shares, task.domain, task.budget.neighbours)
            return stages[number].measured(curator, allowances[number], what)

        known = known_at_first(task, measured(0, self.ones))
        if self.halves is None:
            return known, True, self
        if self.settled is not None:
            for number, shares in self.settled.items():
                known = known.joined(measured(number, shares))
            return known, self._at_once(task, known), self
        ones = known.ones()
        curves = self.curves(task, ones, known.total)
        wanted = self.allocation(curves)
        half = self._first_half(wanted)
        settled = {1: self._shares(half)}
        known = known.joined(measured(1, settled[1]))
        settled[2] = self._shares(self._second_half(task, known, ones, curves, wanted, half))
        known = known.joined(measured(2, settled[2]))
        if self.last is not None:
            scout = Pace.of(min(SCOUT_ROWS, max(1, pace.rows // 3)))
            picked = self._picked(curator, task, known, allowances[3], scout, rng)
            settled[4] = picked or self._shares(wanted.shares)
            known = known.joined(measured(4, settled[4]))
        return known, self._at_once(task, known), replace(self, settled=settled)

    def _shares(self, of_sets: Floats) -> Shares:
        return dict(zip(self.sets, of_sets.tolist(), strict=True))

    def _first_half(self, wanted: Allocation) -> Floats:
        """Pairs first; larger sets where all pairs fit in."""
        assert self.halves is not None
        room, total = self.halves[0].share, sum(stage.share for stage in self.halves)
        pairs = np.array([len(members) == 2 for members in self.sets])
        of_pairs = float(wanted.shares[pairs].sum())
        if of_pairs >= room:
            return np.where(pairs, wanted.shares * room / of_pairs, 0.0)
        return np.where(pairs, 1.0, (room - of_pairs) / (total - of_pairs)) * wanted.shares

    def _second_half(
        self,
        task: Task,
        known: MeasuredTables,
        ones: Mapping[int, Cells],
        curves: Curves,
        wanted: Allocation,
        spent: Floats,
    ) -> Floats:
        """By what is still unknown of each pair, now that the first half has told how pairs depend."""
        assert self.halves is not None
        pairs = sets_of_at_most(known.of_order(2), task.domain.sizes, MOST_VALUES)
        neighbours = task.budget.neighbours
        precisions = {
            s: _FURTHER * known.total**2 / (relative_sensitivity(s, task.domain, neighbours) * self.unit)
            for s in pairs
        }
        errors = separable_prior(known, ones, ROUGH_STEPS).expected_errors(precisions)
        after = curves.after(spent).replaced({s: (_FURTHER, HALF_NORMAL * errors[s]) for s in pairs})
        allowed = np.array([len(s) == 2 for s in self.sets]) | (wanted.shares > 0)
        return allocate(
            after, self.workload, self.halves[1].share, allowed=allowed, unmeasured=curves.errors[:, 0]
        ).shares

    def _picked(
        self,
        curator: Curator,
        task: Task,
        known: MeasuredTables,
        within: Allowance,
        scout: Pace,
        rng: np.random.Generator,
    ) -> dict[Set, float]:
        """The larger sets on which scouting rows are most wrong, by noisy scores, and their shares."""
        assert self.last is not None
        scores, chosen = self.last
        rows = fit(known, scout, rng, lambda done, total: None, at_once=False)
        scouts, tables = Records.from_rows(task.domain, rows), Tables(task.domain, self.larger)
        expected = np.rint(tables.counts(scouts) * (known.total / scouts.rows)).astype(np.int64)
        neighbours, each = task.budget.neighbours, chosen.share / MOST_CHOSEN
        units = np.array([unit_of(s, task.domain, neighbours, self.unit) for s in self.larger])
        slack = np.rint(CLEAR * np.sqrt(units / each)).astype(np.int64)
        noisy = curator.measure(Misfits(tables, expected, slack), noise=scores.noise, within=within)
        best = np.argsort(-noisy, kind="stable")[:MOST_CHOSEN]
        clear = [int(t) for t in best if noisy[t] > CLEAR * scores.noise.deviation]
        return quarter_powers([self.larger[t] for t in clear], task.domain, neighbours)

    def _at_once(self, task: Task, known: MeasuredTables) -> bool:
        """Whether every larger set of the workload was measured, and none of their tables is large."""
        small = all(math.prod(task.domain.sizes[list(s)].tolist()) <= SMALL_TABLE for s in self.larger)
        return self.complete and small and all(s in known.interactions for s in self.larger)
