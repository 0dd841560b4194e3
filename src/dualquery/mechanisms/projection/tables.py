"""The usual way of projection: the tables of the workload through their interactions, measured in stages.

One-way tables come first, then pairs in two halves and larger sets where they pay, then, where the budget is large,
those on which fitted rows are still wrong. Sets, stages, shares, sensitivities and variances follow from workload,
domain, budget and the number of records alone, and are paid for before anything is drawn. Noisy one-way tables decide
how pairs and larger sets share the next two stages (`fitting.allocation`), the first half of the pairs how the second
is shared (`fitting.posteriors`), and noisy scores of rows that were fitted to all of it what the last one measures.

How many larger sets will be measured is not known to a plan: it assumes one-way tables, p ∝ rank^−1.5, and says what
would follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError
from dualquery.fitting.allocation import Allocation, Curves, Workloads, allocate, predicted_curves
from dualquery.fitting.fit import MORE_LIKELY, fit
from dualquery.fitting.fitter import COUNT_SECONDS, SHORT, Effort, Fitting, Rows
from dualquery.fitting.measured import HALF_NORMAL, Measured, MeasuredTables, cell_variance
from dualquery.fitting.posteriors import MOST_VALUES, separable_prior, sets_of_at_most
from dualquery.fitting.smooth import ordered
from dualquery.mechanisms.means import Means, NumberPairs, means_for, products_for
from dualquery.mechanisms.mechanism import Plan, Task, hidden
from dualquery.mechanisms.projection.predicted import predicted_errors
from dualquery.mechanisms.shares import (
    MAX_ERROR,
    MEAN_ERROR,
    NOTHING,
    ONES_OF_FAINT,
    SHARE_OF_ONES,
    SHARE_OF_TOTAL,
    FitCost,
    Stage,
    built,
    cost_of_fit,
    fair_shares,
    known_at_first,
    measures_total,
    relative_sensitivity,
    room_of,
    spared,
    stages_of,
    tables_of,
    unit_variance,
    units_of,
    variance_informed,
    varied_sets,
    work_of,
)
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Allowance
from dualquery.queries.derived import Misfits, misfit_bound
from dualquery.queries.tables import Tables
from dualquery.table.records import Records
from dualquery.types import Cells, Done, Reals, Set

LEAST_GAIN = 0.02  # of the predicted error: for less, larger sets are left to what pairs imply
ROUGH_STEPS = 4  # of expectation and maximisation, where only shares follow from it
SMALL_TABLE = 64  # cells: tables of so many that are all measured are fitted at once
MOST_CHOSEN = 32  # sets that the last stage measures
CLEAR = 1.5  # deviations of its noise that a score must exceed, and those of a chosen set that an error must
MOST_WORK = 60_000.0  # of all larger sets: some ten seconds on two cores
SetShares = Mapping[Set, float]  # of the budget

_FURTHER = np.concatenate([[0.0], np.geomspace(1e-6, 1.0, 49)])  # shares of a second half


@dataclass(frozen=True)
class StagedTables:
    """What may be measured, and the stages. All of it is public."""

    ones: Mapping[Set, float]  # shares of one-way tables, and of the number of records where it is measured
    sets: tuple[Set, ...]  # pairs, and the larger sets that may be measured
    tables: tuple[Set, ...]  # of the workload
    complete: bool  # whether `sets` holds every larger set of the workload
    unit: float  # the variance that the whole budget affords at sensitivity one
    work: NDArray[np.float64]  # how many values a row looks at for each of `sets` in a pass
    first: Stage
    halves: tuple[Stage, Stage] | None  # None where the workload asks about single attributes only
    last: tuple[Stage, Stage] | None  # scores of larger sets, and those that they choose, where it pays
    settled: Mapping[int, SetShares] | None = None  # of later stages, by number, once they are chosen
    means: tuple[Means, Stage] | None = None  # inside bins, in a stage of their own
    products: tuple[NumberPairs, Stage] | None = None

    @property
    def stages(self) -> tuple[Stage, ...]:
        apart = [each[1] for each in (self.products, self.means) if each is not None]
        return (self.first, *(self.halves or ()), *(self.last or ()), *apart)

    @cached_property
    def larger(self) -> tuple[Set, ...]:
        return tuple(members for members in self.sets if len(members) > 2)

    @cached_property
    def workload(self) -> Workloads:
        return Workloads(self.sets, self.tables)

    def curves(self, task: Task, ones: Mapping[int, Cells], rows: float) -> Curves:
        """What every set would be wrong by, given one-way tables."""
        units = units_of(self.sets, task.domain, task.budget.neighbours, self.unit)
        return predicted_curves(self.sets, ones, rows, units)

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

    def shares(self, of_sets: Reals) -> SetShares:
        return dict(zip(self.sets, of_sets.tolist(), strict=True))

    def first_half(self, wanted: Allocation) -> Reals:
        """Pairs first; larger sets where all pairs fit in."""
        assert self.halves is not None
        room, total = self.halves[0].share, sum(stage.share for stage in self.halves)
        pairs = np.array([len(members) == 2 for members in self.sets])
        of_pairs = float(wanted.shares[pairs].sum())
        if of_pairs >= room:
            return np.where(pairs, wanted.shares * room / of_pairs, 0.0)
        return np.where(pairs, 1.0, (room - of_pairs) / (total - of_pairs)) * wanted.shares

    def second_half(
        self,
        task: Task,
        known: MeasuredTables,
        ones: Mapping[int, Cells],
        curves: Curves,
        wanted: Allocation,
        spent: Reals,
    ) -> Reals:
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

    def picked(
        self,
        curator: Curator,
        task: Task,
        known: MeasuredTables,
        within: Allowance,
        scout: Effort,
        rng: np.random.Generator,
    ) -> dict[Set, float]:
        """The larger sets on which scouting rows are most wrong, by noisy scores, and their shares."""
        assert self.last is not None
        scores, chosen = self.last
        rows = fit(known, scout, rng, lambda done, total: None, at_once=False, likely=MORE_LIKELY)
        scouts, tables = Records.from_rows(task.domain, rows), Tables(task.domain, self.larger)
        expected = np.rint(tables.counts(scouts) * (known.total / scouts.rows)).astype(np.int64)
        neighbours, each = task.budget.neighbours, chosen.share / MOST_CHOSEN
        units = units_of(self.larger, task.domain, neighbours, self.unit)
        slack = np.rint(CLEAR * np.sqrt(units / each)).astype(np.int64)
        noisy = curator.measure(Misfits(tables, expected, slack), noise=scores.noise, within=within)
        best = np.argsort(-noisy, kind="stable")[:MOST_CHOSEN]
        clear = [int(t) for t in best if noisy[t] > CLEAR * scores.noise.deviation]
        return fair_shares([self.larger[t] for t in clear], task.domain, neighbours)


def all_small(larger: Sequence[Set], known: MeasuredTables) -> bool:
    """Whether every one of these sets was measured, and none of their tables is large."""
    sizes = known.domain.sizes.tolist()
    small = all(math.prod([sizes[j] for j in s]) <= SMALL_TABLE for s in larger)
    return small and all(s in known.interactions for s in larger)


MOST_OF_TOTAL = 0.05
CLEAR_TOTAL = 0.01  # of the records: more of the budget is spent where the noise of their number exceeds it
PRECISE = 0.015  # one-way noise in units of √n: where it is less, the one-way tables need less of the budget
OF_MEANS = 0.01  # of its deviation: what one-way noise may move the mean of a number by
SHARE_OF_SCORES, SHARE_OF_CHOSEN = 0.02, 0.18
CLEAR_SCORES = 0.006  # of the records: scores are asked for where their noise stays below
MOST_UNIT = 3.0  # variance at sensitivity one: they are asked for from ε = 3 or so on
MOST_CELLS = 4_000_000  # of all larger sets that may be measured
STEEPNESS = 1.5  # of the one-way tables that a plan assumes


@dataclass(frozen=True)
class Expected:
    """What the plan expects to be measured, were one-way tables as it assumes."""

    allocation: Allocation | None
    sets: tuple[Set, ...]
    cell_noise: float  # of a pair's table, or of a one-way table where there are no pairs; as a fraction
    variances: Mapping[Set, float]  # of the noise of each interaction that is measured

    def count(self, order: int) -> int:
        return sum(len(members) == order for members in self.sets)


def plan_tables(task: Task, most_cells: int = MOST_CELLS, means: Means | None = None) -> StagedTables:
    """Every set that may be measured, and the stages; `most_cells` limits the larger sets."""
    sizes, orders = task.domain.sizes.tolist(), varied_sets(task)
    if not orders.get(1):
        raise DualQueryError(NOTHING)
    pairs, larger = orders.get(2, []), [s for order in sorted(orders) if order > 2 for s in orders[order]]
    cells = [math.prod([sizes[j] for j in members]) for members in larger]
    affordable = sorted(range(len(larger)), key=lambda t: (cells[t], larger[t]))
    within = [total <= most_cells for total in accumulate(cells[t] for t in affordable)]
    kept = sorted(t for t, fits in zip(affordable, within, strict=True) if fits)
    sets = (*pairs, *(larger[t] for t in kept))
    made = _staged(task, orders[1], sets, len(kept) == len(larger), means, scored=False)
    if kept and _scores_pay(task, made):
        made = _staged(task, orders[1], sets, len(kept) == len(larger), means, scored=True)
    return made


def _staged(
    task: Task,
    ones: list[Set],
    sets: tuple[Set, ...],
    complete: bool,
    means: Means | None,
    *,
    scored: bool,
) -> StagedTables:
    unit = unit_variance(task.budget)
    total = _share_of_total(task, unit)
    part = 1.0 - (SHARE_OF_SCORES + SHARE_OF_CHOSEN if scored else 0.0)
    products = products_for(task, all_pairs=True) if sets else None
    part -= sum(each.share for each in (means, products) if each is not None)
    of_ones = _share_of_ones(task, ones, unit) if sets else 1.0 - total
    powers = fair_shares(ones, task.domain, task.budget.neighbours)
    shares: dict[Set, float] = {s: part * of_ones * (x / sum(powers.values())) for s, x in powers.items()}
    if sets:
        shares = spared(task, shares, unit)
        of_ones = sum(shares.values()) / part
    half = part * (1.0 - total - of_ones) / 2
    wanted: list[tuple[str, float, int | None]] = [
        (f"measure {len(ones):,} one-way tables at once", part * (total + of_ones), None)
    ]
    if sets:
        wanted.append(("measure pairs, a first half", half, None))
        wanted.append(("measure what is still least known, larger sets where they pay", half, None))
    if scored:
        larger = tuple(members for members in sets if len(members) > 2)
        moved = task.budget.neighbours.sensitivity(misfit_bound([1] * len(larger)))
        wanted.append(
            (f"measure how wrong rows are on {len(larger):,} tables", SHARE_OF_SCORES, moved.l2_squared)
        )
        wanted.append(("measure those on which they are most wrong", SHARE_OF_CHOSEN, None))
    wanted += [each.wanted(task) for each in (products, means) if each is not None]
    first, *later = stages_of(task.budget, wanted, *room_of(task))
    if total:
        shares[()] = part * total
    return StagedTables(
        ones=shares,
        sets=sets,
        tables=tuple(t for t in tables_of(task) if len(t) > 1),
        complete=complete,
        unit=unit,
        work=work_of(task, sets),
        first=first,
        halves=(later[0], later[1]) if sets else None,
        last=(later[2], later[3]) if scored else None,
        means=None if means is None else (means, later[-1]),
        products=None if products is None else (products, later[-1 if means is None else -2]),
    )


def _share_of_total(task: Task, unit: float) -> float:
    """As much as makes the noise of the number of records clear, within bounds; less what was spent on it before.

    Everything is divided by that number: where it is 8% wrong, as it is of 500 records at ε = 1, so are all tables.
    """
    neighbours = task.budget.neighbours
    if neighbours.size_is_public:
        return 0.0
    clear = relative_sensitivity((), task.domain, neighbours) * unit / (CLEAR_TOTAL * task.rows) ** 2
    share = min(MOST_OF_TOTAL, max(SHARE_OF_TOTAL, clear))
    return share if measures_total(task) else share - SHARE_OF_TOTAL


def _share_of_ones(task: Task, ones: list[Set], unit: float) -> float:
    """The usual share; less where one-way noise is already far below what sampling does, and more where it would move
    the means of numbers: over k values of one-way variance w, a mean is off by √(w k) of their deviation or so.
    """
    noise = math.sqrt(unit * len(ones) / SHARE_OF_ONES / task.rows)
    usual = SHARE_OF_ONES * min(1.0, math.sqrt(noise / PRECISE))
    numbers = [s for s in ones if ordered(task.domain, s[0])]
    moves = [
        relative_sensitivity(s, task.domain, task.budget.neighbours) * int(task.domain.sizes[s[0]])
        for s in numbers
    ]
    wanted = unit * len(ones) * float(np.mean(moves or [0.0])) / (OF_MEANS * task.rows) ** 2
    return min(max(usual, wanted), ONES_OF_FAINT)


def _scores_pay(task: Task, made: StagedTables) -> bool:
    """Whether scores of all larger sets would be clear, and there is something left out to be found."""
    squared = task.budget.neighbours.largest_squared(alone=len(made.larger), apart=4 * len(made.larger))
    if made.unit > MOST_UNIT or math.sqrt(squared * made.unit / SHARE_OF_SCORES) > CLEAR_SCORES * task.rows:
        return False
    return sum(len(members) > 2 for members in expectation(task, made).sets) < len(made.larger)


def assumed_ones(task: Task) -> dict[int, Cells]:
    """One-way tables that fall as rank^−1.5."""
    out = {}
    for j, size in enumerate(task.domain.sizes.tolist()):
        falling = np.arange(1.0, size + 1) ** -STEEPNESS
        out[j] = falling / falling.sum()
    return out


def expectation(task: Task, made: StagedTables) -> Expected:
    """What would be measured, and how noisy a pair's cell would be, with the assumed one-way tables."""
    neighbours = task.budget.neighbours
    variance: dict[Set, float] = {(): task.rows_variance or 0.0}
    allocation = None
    sets: tuple[Set, ...] = tuple(s for s in made.ones if s)
    shares = dict(made.ones)
    if made.halves is not None:
        allocation = made.allocation(made.curves(task, assumed_ones(task), task.rows))
        measured = {s: x for s, x in zip(made.sets, allocation.shares.tolist(), strict=True) if x > 0}
        sets = (*sets, *measured)
        shares.update(measured)
    for members, share in shares.items():
        alone = relative_sensitivity(members, task.domain, neighbours) * made.unit / share
        variance[members] = variance_informed(task, members, alone)
    base: list[Set] = [s for s in sets if len(s) == 2] or list(sets)
    precision = np.mean([1 / cell_variance(s, variance, task.domain.sizes) for s in base])
    return Expected(allocation, sets, 1 / math.sqrt(float(precision)) / task.rows, variance)


def cells_within(task: Task, effort: Effort, memory: int | None) -> int:
    """How many cells of larger sets this memory has room for; a cell of three attributes has three views."""
    if memory is None:
        return MOST_CELLS
    spare = memory - effort.bytes(task.domain.width, 0)
    return max(0, min(MOST_CELLS, spare // (3 * (4 * SHORT.chains + 8) + 24)))


def cost_of(task: Task, made: StagedTables, expected: Expected, effort: Effort) -> FitCost:
    """Time as the plan expects it, memory as it could be at most."""
    pairs = [s for s in expected.sets if len(s) == 2]
    held = (*(s for s in made.ones if s), *made.sets)
    seconds, need, largest = cost_of_fit(task, pairs, effort, expected.cell_noise, held)
    if any(len(s) > 2 for s in expected.sets):
        seconds += cost_of_fit(task, expected.sets, effort, expected.cell_noise).seconds
    if made.last is not None:
        seconds += seconds / 2 + task.rows * len(made.larger) * COUNT_SECONDS
    sizes = task.domain.sizes.tolist()
    counted = 24 * sum(math.prod([sizes[j] for j in s]) for s in made.larger)
    return FitCost(seconds, need + counted, largest)


def of_tables(
    measured: MeasuredTables, *, at_once: bool, likely: float = MORE_LIKELY, settled: ByTables | None = None
) -> Fitting:
    def refit(known: MeasuredTables, effort: Effort, rng: np.random.Generator, tell: Done) -> Rows:
        return fit(known, effort, rng, tell, at_once=at_once, likely=likely)

    return Fitting.of_tables(measured, refit, settled)


@dataclass(frozen=True, kw_only=True)
class ByTables:
    """Tables of few attributes, through their interactions, in stages."""

    measured: str = "tables"
    stages: int
    sets: int  # that the plan expects to measure
    cell_noise: float
    tables: StagedTables = hidden()
    effort: Effort

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        """All stages; rows are fitted to everything at once where all of it was measured, in small tables."""
        made, stages = self.tables, self.tables.stages
        allowances = curator.allow(*(stage.event for stage in stages))

        def measured(number: int, shares: SetShares) -> list[Measured]:
            what = stages[number].chosen(shares, task.domain, task.budget.neighbours)
            return stages[number].measured(curator, allowances[number], what)

        known = known_at_first(task, measured(0, made.ones))
        if made.means is not None:
            means, stage = made.means
            known = replace(known, inside=means.measured(curator, stage, allowances[-1]))
        if made.products is not None:
            products, stage = made.products
            paid = allowances[-1 if made.means is None else -2]
            known = replace(known, inside=(*known.inside, *products.measured(curator, stage, paid, known)))
        if made.halves is None:
            return of_tables(known, at_once=True, settled=self)
        settled = dict(made.settled or {})
        for number, shares in settled.items():
            known = known.joined(measured(number, shares))
        if not settled:
            ones = known.ones()
            curves = made.curves(task, ones, known.total)
            wanted = made.allocation(curves)
            half = made.first_half(wanted)
            settled[1] = made.shares(half)
            known = known.joined(measured(1, settled[1]))
            settled[2] = made.shares(made.second_half(task, known, ones, curves, wanted, half))
            known = known.joined(measured(2, settled[2]))
            if made.last is not None:
                scout = Effort.of(max(1, self.effort.rows // 3))
                picked = made.picked(curator, task, known, allowances[3], scout, rng)
                settled[4] = picked or made.shares(wanted.shares)
                known = known.joined(measured(4, settled[4]))
        at_once = made.complete and all_small(made.larger, known)
        return of_tables(known, at_once=at_once, settled=replace(self, tables=replace(made, settled=settled)))


def plan_by_tables(task: Task, wanted: ProjectionWishes, effort: Effort) -> Plan[ByTables]:
    """Interactions of all pairs, and of larger sets where they pay."""
    planned = plan_tables(task, cells_within(task, effort, wanted.memory), means_for(task, wanted.means))
    expected = expectation(task, planned)
    noise = expected.cell_noise
    effort = effort.shared_out(noise)
    counts = ", ".join(
        f"{expected.count(order):,} of order {order}"
        for order in range(1, 1 + max(map(len, expected.sets)))
        if expected.count(order)
    )
    return built(
        task,
        ByTables(
            stages=len(planned.stages),
            sets=len(expected.sets),
            cell_noise=noise,
            effort=effort,
            tables=planned,
        ),
        reason="the workload falls into tables of few attributes, so their interactions are measured "
        f"({counts}, more or less, as the one-way tables will say) and rows are fitted to them",
        steps=tuple(stage.step() for stage in planned.stages),
        errors=predicted_errors(task, expected.variances, MEAN_ERROR * noise, MAX_ERROR * noise),
        cost=cost_of(task, planned, expected, effort),
        memory=wanted.memory,
    )
