"""A budget in shares: noise that is paid for before it is known what will be measured.

A *stage* is an `Allowance`: a squared sensitivity A, its room, and a variance in proportion to A/share, both from
public things. What is measured within it follows from what was heard before, times whole numbers that still fit the
room: of interactions each set has a number m_S of its own, Σ m_S² Δ_S² ≤ A, so that its share is m_S² Δ_S²/A; any
other statistic is multiplied as a whole. Neither sensitivity nor variance change by it. All noise is Gaussian, so
that the exact theorem for Gaussian releases adds the stages up; under pure ε what is measured is fixed beforehand,
and Laplace noise of scale Δ₁/ε costs exactly ε (`laplace_at_once`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError, DualQueryError
from dualquery.fitting.cpu import all_binary
from dualquery.fitting.fitter import COUNT_SECONDS, Effort
from dualquery.fitting.measured import HALF_NORMAL, Measured, MeasuredTables
from dualquery.mechanisms.mechanism import Plan, Step, Task
from dualquery.privacy.budget import Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import Allowance, smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian, Laplace, Law
from dualquery.queries.derived import (
    Interactions,
    Multiplied,
    SignedTables,
    interaction_distance,
    interaction_length,
    interaction_scale,
)
from dualquery.queries.group import NONE, distinct_sets
from dualquery.queries.statistics import Countable
from dualquery.table.domain import Domain
from dualquery.types import Reals, Set, halved

TOO_SMALL = "the budget is too small to measure this table at all; use a larger epsilon"
NOTHING = "every attribute that the workload asks about is constant: there is nothing to measure"
ROOM = 1 << 46  # A: multipliers of a few thousand, so that shares are met to one part in thousands
LEAST_ROOM = 1 << 16  # of interactions
LEAST_SHARED_ROOM = 1 << 30  # of shares for any statistic: some would not fit less
SHARE_OF_TOTAL = 0.01  # of the budget, where the number of records is private and was not measured before
MOST_COUNT = 1 << 58  # of what a stage adds noise to
MOST_VARIANCE = 1 << 61  # what the sampler can draw, with room to spare
NARROW = 200  # attributes that tables can deal with, whatever is asked
MOST_SETS = 200_000  # more attribute sets than this are not worth listing: the workload is wide


@dataclass(frozen=True)
class Stage:
    """Something that will be measured, the share of the budget it has, and the noise that this buys."""

    words: str
    share: float
    squared: int  # A
    noise: Gaussian

    @property
    def event(self) -> GaussianMeasurement:
        return GaussianMeasurement(Fraction(self.squared), self.noise.variance)

    def step(self) -> Step:
        share = f" ({self.share:.0%} of the budget)" if self.share >= 0.01 else ""
        return Step(f"{self.words}{share}", self.event)

    def chosen(self, shares: Mapping[Set, float], domain: Domain, neighbours: Neighbours) -> Interactions:
        """Interactions whose shares, of this stage, are in these proportions. What rounds to nothing is left out."""
        total = sum(shares.values()) * (1 + 1e-12)  # rounding must not exceed what was paid for
        multipliers = {
            members: math.isqrt(
                math.floor(self.squared * (share / total) / squared_sensitivity(members, domain, neighbours))
            )
            for members, share in shares.items()
            if share > 0
        }
        kept = {members: multiplier for members, multiplier in multipliers.items() if multiplier}
        return Interactions(domain, tuple(kept), tuple(kept.values()))

    def measured(self, curator: Curator, within: Allowance, what: Interactions) -> list[Measured]:
        if not what.sets:
            return []
        told = what.in_records(curator.measure(what, noise=self.noise, within=within))
        variances = self.variances(what)
        return [Measured(members, cells, variances[members]) for members, cells in told.items()]

    def variances(self, what: Interactions) -> dict[Set, float]:
        return {
            members: _variance(self.noise.variance, what.scale(place))
            for place, members in enumerate(what.sets)
        }


@lru_cache(maxsize=4096)
def _variance(variance: Fraction, scale: int) -> float:
    """Of a number that was divided; replicas ask for what the release asked for."""
    return float(variance / scale**2)


Wanted = tuple[str, float, int | None]  # words, share, and A where it is known


def stages_of(budget: Budget, wanted: list[Wanted], room: int, least: int) -> tuple[Stage, ...]:
    """Stages with the smallest variances that the budget affords, and as much room as the noise leaves.

    A tiny budget has room for coarse shares only.
    """
    while True:
        rooms = [room if squared is None else squared for _, _, squared in wanted]
        variances = [
            Fraction(a) / Fraction(share).limit_denominator(10_000)
            for a, (_, share, _) in zip(rooms, wanted, strict=True)
        ]
        events = [GaussianMeasurement(Fraction(a), v) for a, v in zip(rooms, variances, strict=True)]
        factor = smallest_gaussian_scale(budget, events, bits=24)
        if factor * max(variances) < MOST_VARIANCE:
            return tuple(
                Stage(words, share, a, Gaussian(factor * variance))
                for (words, share, _), a, variance in zip(wanted, rooms, variances, strict=True)
            )
        if room <= least:
            raise BudgetError(TOO_SMALL)
        room //= 4


def room_of(task: Task) -> tuple[int, int]:
    """Of interactions: what is counted, times its multiplier, stays a number that noise can be added to."""
    return min(ROOM // 4, (MOST_COUNT // (16 * task.rows)) ** 2), LEAST_ROOM


@dataclass(frozen=True)
class Shares:
    """Stages by name, of one room."""

    stages: Mapping[str, Stage]

    @property
    def room(self) -> int:
        return next(iter(self.stages.values())).squared

    def steps(self) -> tuple[Step, ...]:
        return tuple(stage.step() for stage in self.stages.values())

    def deviation(self, sensitivity_squared: float, *names: str) -> float:
        """Of the noise on numbers of this squared sensitivity, measured within these shares (or within all)."""
        parts = [self.stages[name] for name in names or self.stages]
        return math.sqrt(sensitivity_squared / sum(s.squared / float(s.noise.variance) for s in parts))

    def purse(self, curator: Curator) -> Purse:
        allowances = curator.allow(*(stage.event for stage in self.stages.values()))
        return Purse(curator, self, dict(zip(self.stages, allowances, strict=True)))


def shares_of(budget: Budget, parts: Mapping[str, float], words: Mapping[str, str]) -> Shares:
    """One share a part, by name, in proportion to the parts."""
    wanted: list[Wanted] = [(words[name], part, None) for name, part in parts.items()]
    made = stages_of(budget, wanted, ROOM, LEAST_SHARED_ROOM)
    return Shares(dict(zip(parts, made, strict=True)))


@dataclass(frozen=True)
class Purse:
    """Shares that are paid for; each pays for one measurement."""

    curator: Curator
    shares: Shares
    allowances: Mapping[str, Allowance]

    def fits(self, statistic: Countable) -> bool:
        return self.curator.neighbours.sensitivity(statistic.bound()).l2_squared <= self.shares.room

    def measure(self, statistic: Countable, *names: str) -> Measured:
        """The numbers, once within each of these shares, weighed by inverse variance."""
        moved = self.curator.neighbours.sensitivity(statistic.bound()).l2_squared
        times = max(1, math.isqrt(self.shares.room // max(1, moved)))
        multiplied = Multiplied(statistic, times, kept=len(names) > 1)
        total, precision = np.zeros(()), 0.0
        for name in names:
            noise = self.shares.stages[name].noise
            noisy = self.curator.measure(multiplied, noise=noise, within=self.allowances[name])
            total = total + noisy / (times * float(noise.variance))
            precision += 1 / float(noise.variance)
        return Measured(names, total / precision, (1 / (times * math.sqrt(precision))) ** 2)


FINENESS = 256  # the smallest multiplier, where the budget has room for it


def laplace_at_once(
    shares: Mapping[Set, float], epsilon: Fraction, domain: Domain, neighbours: Neighbours
) -> tuple[SignedTables, Laplace]:
    """Signed tables with integer multipliers in the ratio of the shares; Laplace noise of scale Δ₁/ε costs ε."""
    fineness = FINENESS
    while True:
        unit = fineness / min(shares.values())
        multipliers = tuple(max(1, round(unit * share)) for share in shares.values())
        first = SignedTables(domain, tuple(shares), multipliers)
        noise = Laplace(neighbours.sensitivity(first.bound()).l1 / epsilon)
        try:
            Law.laplace(noise.scale)
        except BudgetError:
            if fineness <= 1:
                raise BudgetError(TOO_SMALL) from None
            fineness //= 4
        else:
            return first, noise


# How far a record moves interactions, and what a budget buys of them


def squared_sensitivity(members: Set, domain: Domain, neighbours: Neighbours) -> int:
    return _squared(tuple(int(domain.sizes[j]) for j in members), neighbours)


@lru_cache(maxsize=4096)
def _squared(sizes: tuple[int, ...], neighbours: Neighbours) -> int:
    return neighbours.largest_squared(alone=interaction_length(sizes), apart=interaction_distance(sizes))


def relative_sensitivity(members: Set, domain: Domain, neighbours: Neighbours) -> float:
    """c_S: Δ₂² of the interaction, in records; Π (k_j − 1)/k_j under add-remove."""
    sizes = tuple([int(domain.sizes[j]) for j in members])
    return _squared(sizes, neighbours) / interaction_scale(sizes) ** 2


def fair_shares(sets: list[Set], domain: Domain, neighbours: Neighbours) -> dict[Set, float]:
    """Shares in proportion to (c_S · cells)^½ for one-way tables, the least squared error in all of them together; to
    its root for larger sets, most of whose cells are so small that noise is shrunk away.
    """
    return {
        s: (relative_sensitivity(s, domain, neighbours) * math.prod(int(domain.sizes[j]) for j in s))
        ** (0.5 if len(s) == 1 else 0.25)
        for s in sets
    }


def units_of(sets: Sequence[Set], domain: Domain, neighbours: Neighbours, variance: float) -> Reals:
    """The variance of a cell of each set's interaction, in records², where `variance` is that of sensitivity one."""
    sizes = domain.sizes.tolist()
    units: Reals = np.array([_unit(tuple([sizes[j] for j in s]), neighbours) for s in sets]) * variance
    return units


@lru_cache(maxsize=4096)
def _unit(sizes: tuple[int, ...], neighbours: Neighbours) -> float:
    share = _squared(sizes, neighbours) / interaction_scale(sizes) ** 2
    return math.prod((k - 1) / k for k in sizes) * share


@lru_cache(maxsize=64)
def unit_variance(budget: Budget) -> float:
    """v: the variance that the whole budget affords where one record moves one number by one, but for rounding."""
    fine = Fraction(1 << 40)
    return float(smallest_gaussian_scale(budget, [GaussianMeasurement(fine, fine)], bits=16))


# What a workload asks about, and how many records there are


def closure(sets: NDArray[np.int32]) -> dict[int, list[Set]]:
    """All non-empty subsets of the sets, by order, each order sorted; without the orders that are too many."""
    found: dict[int, list[Set]] = {}
    width = sets.shape[1]
    for order in range(1, width + 1):
        parts = [sets[:, list(columns)] for columns in combinations(range(width), order)]
        complete = [part[np.all(part != NONE, axis=1)] for part in parts]
        together = (
            distinct_sets(np.concatenate(complete)) if any(len(part) for part in complete) else parts[0][:0]
        )
        if len(together) > MOST_SETS:
            if order > 2:  # so many would each be measured too poorly to be worthwhile; their pairs still are
                break
            raise DualQueryError(
                f"the workload asks about more than {MOST_SETS:,} different sets of {order} attributes, too many "
                "to measure as tables; ask about fewer attributes, or use another mechanism"
            )
        if len(together):
            found[order] = [tuple(row) for row in together.tolist()]
    return found


def varied_sets(task: Task) -> dict[int, list[Set]]:
    """The sets of the workload and their subsets, by order, without constant attributes."""
    varied = _varied(task)
    return {
        order: [members for members in sets if varied.issuperset(members)]
        for order, sets in closure(task.workload.scope).items()
    }


def tables_of(task: Task) -> list[Set]:
    """The sets that the workload asks about, without constant attributes."""
    varied = _varied(task)
    scope = task.workload.scope.tolist()  # each increasing
    return sorted({tuple([j for j in row if j in varied]) for row in scope} - {()})


def _varied(task: Task) -> set[int]:
    return set(np.flatnonzero(task.domain.sizes > 1).tolist())


def is_wide(domain: Domain) -> bool:
    """More binary attributes than tables can deal with, and nothing else."""
    return domain.width > NARROW and bool((domain.sizes == 2).all())


def measures_total(task: Task) -> bool:
    """Whether the number of records is still to be measured: it is private, and no measurement came before."""
    return not task.budget.neighbours.size_is_public and task.rows_variance is None


def known_at_first(task: Task, told: list[Measured]) -> MeasuredTables:
    """One-way tables and the number of records: measured with them, before (or both: they are joined), or public."""
    if measures_total(task) and any(each.what == () for each in told):
        known = MeasuredTables.nothing(task.domain)
    else:
        known = MeasuredTables.rows(task.domain, float(task.rows), task.rows_variance or 0.0)
    return known.joined(told).counted().informed(task.earlier)


HALVINGS = 40  # of the search for λ
LEAST_AGAIN = 0.25  # of the share of a one-way table that was measured before


def spared(task: Task, shares: Mapping[Set, float], unit: float) -> dict[Set, float]:
    """Shares of the budget for one-way tables, of which earlier measurements have a part already.

    What they have of a table is the share that would have bought as much. With it the budget is λ times as large, and
    so is what everything should have, one-way tables or not: λ where all of it costs the budget.
    """
    had: dict[Set, float] = {}
    for one in {(each.what.attribute,) for each in task.earlier} & shares.keys():
        price = relative_sensitivity(one, task.domain, task.budget.neighbours) * unit
        had[one] = price / variance_informed(task, one, price / shares[one]) - shares[one]

    def fewer(larger: float) -> dict[Set, float]:
        return {s: max(LEAST_AGAIN * x, larger * x - had.get(s, 0.0)) for s, x in shares.items()}

    others = 1.0 - sum(shares.values())
    most = 1.0 + sum(had.values())
    return fewer(halved(1.0, most, HALVINGS, lambda x: sum(fewer(x).values()) + x * others > 1)[0])


def variance_informed(task: Task, members: Set, variance: float) -> float:
    """Of a set that is measured with noise of this variance: with what was measured of it before."""
    for each in task.earlier:
        if members == (each.what.attribute,):
            _, variance = each.what.informed(np.zeros(each.what.cells.shape[1]), variance, each)
    return variance


# What fitting costs, and the plan of a way of projection

MEAN_ERROR, MAX_ERROR = 0.45, 8.0  # of a random conjunction, in a cell's noise (benchmarks/projection.py)
SHARE_OF_ONES = 0.19  # of the budget, for one-way tables where there are enough records for pairs
ONES_OF_FAINT = 0.35  # where noise is large
LARGE_NOISE = 0.1  # of a cell, as a fraction of the table: little is left to be learned


class FitCost(NamedTuple):
    """Of a release, as its plan predicts it."""

    seconds: float
    bytes: int
    largest: Set = ()  # the set with the most cells, where tables are measured


def work_of(task: Task, sets: Sequence[Set]) -> Reals:
    """How many values a row looks at for each set in a pass; a view costs some eight, whatever its size.

    Rows of binary attributes look at a cube of the width (`fitting.cpu`), about a tenth of a value a
    cell, whatever is measured.
    """
    sizes, width = task.domain.sizes.tolist(), task.domain.width
    if all_binary(task.domain.sizes, max((len(members) for members in sets), default=1)):
        return np.full(len(sets), 0.1 * width**3 / max(1, len(sets)))
    return np.array([8.0 * len(s) + sum([sizes[j] for j in s]) for s in sets])


def cost_of_fit(
    task: Task, sets: Sequence[Set], effort: Effort, noise: float, held: Sequence[Set] | None = None
) -> FitCost:
    """To count and fit tables over these sets; every cell lies in a view of each of its attributes.

    `held` are the sets that memory must have room for, where they are others.
    """
    sizes = task.domain.sizes.tolist()
    cells = {s: math.prod([sizes[j] for j in s]) for s in (sets if held is None else held)}
    return FitCost(
        effort.seconds(float(work_of(task, sets).sum()), noise) + task.rows * len(sets) * COUNT_SECONDS,
        effort.bytes(task.domain.width, sum(len(s) * number for s, number in cells.items())),
        max(cells, key=lambda s: (cells[s], s)),
    )


def built(
    task: Task,
    way: Any,
    *,
    reason: str,
    steps: tuple[Step, ...],
    errors: tuple[float, float],
    cost: FitCost,
    memory: int | None,
    notes: tuple[str, ...] = (),
) -> Plan[Any]:
    """The plan of a way, or a refusal where it needs more memory than the user allows.

    `way` knows its effort and the noise of a cell, as a fraction.
    """
    if memory is not None and cost.bytes > memory:
        names = " × ".join(task.domain.name(j) for j in cost.largest)
        raise DualQueryError(
            f"the tables of this workload need {cost.bytes / 1e6:,.0f} MB, more than --memory allows"
            f"{f' (the largest is {names})' if names else ''}; ask for fewer attributes at once, or for fewer "
            "records (--synthetic-rows), or allow more"
        )
    noise: float = way.cell_noise
    if noise >= LARGE_NOISE:
        large = f"the budget is so small that the noise of a cell is {noise:.0%} of the table"
        notes = (f"{large}; expect little of the answers", *notes)
    mean, most = errors
    return Plan(
        task=task,
        reason=reason,
        parameters=way,
        steps=steps,
        mean_error=min(mean, 0.5),
        max_error=min(most, 1.0),
        seconds=cost.seconds,
        bytes=cost.bytes,
        notes=notes,
    )


def per_query(task: Task, shares: Shares) -> float:
    """The noise of every query on its own, as a fraction of the records, for the whole budget."""
    moved = [task.budget.neighbours.sensitivity(group.bound()) for group in task.workload.groups]
    return shares.deviation(sum(each.l2_squared for each in moved)) / task.rows


def plainer(task: Task, shares: Shares, mean: float) -> tuple[str, ...]:
    """What a plan with this mean error notes where noise on each query alone would do better."""
    plain = HALF_NORMAL * per_query(task, shares)
    if plain >= mean:
        return ()
    return (
        f"noise on each query alone would have a mean error of {plain:.2g} (--mechanism gaussian), but gives answers "
        "without synthetic records",
    )
