"""Mean distances to points: curves that are measured once, and a learner.

*Distance curves*: the kernel |x − y| factored once, measured in one Gaussian event, and every point is answered.

The mean L1 distance is a sum of one-dimensional functions, one a column. Each column is measured through the factor
R of its kernel (below), all columns together in whole numbers. One record moves each column by at most s·max ‖R_k‖,
so that the squared sensitivity grows with the number d of columns, and so does the noise of a single curve. But the
answer averages d curves, and their noise is independent: √d / √d, whatever d, and whatever the number of points.

The kernel |x − y| of one column is a product of two matrices, one measured, one applied afterwards. With positions
as fractions of the width, on knots x and y from 0 to 1, the kernel is centred at the middle of its range, which the
number of records alone decides:

    |x − y| = c(y) + W(y, x),   c(y) = (max_x |x − y| + min_x |x − y|) / 2 = max(y, 1 − y) / 2.

W = U S Vᵀ is split evenly: R = √S Vᵀ is rounded to whole numbers and measured, and L = W R⁺ turns what was measured
into distances, exactly, whatever the rounding was. With noise of deviation σ·√(max_k ‖R_k‖²) the answer at y has
deviation σ·‖L_y‖·max_k ‖R_k‖: 0.55 σ on average over y and 0.61 σ at most, with 257 knots as with 33. (The trivial
factorisation R = Id has 3.5 σ and more, and so has a histogram that one adds up by hand.)

*Coordinate-wise* (Huang, Roth 2014): MWEM's game (`rounds`), the learner keeping columns one by one, by
multiplicative weights over d · 257 places instead of a universe of 257^d cells (`beliefs.universes`). Time per round
is linear in the number of columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.beliefs.universes import Columns, CoordinateWeights, along_curves, knots
from dualquery.errors import QueryError
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Step, Task, hidden, joined_rows, last
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced
from dualquery.mechanisms.wishes import NoWishes, RoundsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import least_gaussian
from dualquery.privacy.noise import Gaussian
from dualquery.queries.distances import UNIT, Distances, Factor, Knots
from dualquery.queries.group import Group
from dualquery.table.points import KNOTS, STEPS, Metric, Points
from dualquery.types import Fractions, Progress, Reals

FILE = "distance_curves.parquet"
# One row per column of the table, one column per knot; NaN where it was not measured.
KnotValues = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class DistanceCurves:
    """The mean distance at every knot of every column, and its deviation, as fractions of the column's width.

    Between knots it is interpolated. The answer for a point is the sum over columns, in proportion to their widths.
    """

    domain: Points
    distance: KnotValues
    deviation: KnotValues

    rows = None

    def fractions(self, group: Group) -> Fractions:
        return self._summed(group, self.distance, 1)

    def bars(self, group: Group) -> Fractions:
        return BAR * np.sqrt(self._summed(group, self.deviation**2, 2))

    def _summed(self, group: Group, curves: KnotValues, power: int) -> Fractions:
        if not isinstance(group, Distances):
            raise QueryError("this release holds distance curves, which answer distances and nothing else")
        for j in group.asked.tolist():
            if np.isnan(curves[j, 0]):
                raise QueryError(
                    f"the column '{self.domain.axes.names[j]}' was not measured for this release; "
                    "ask about the others"
                )
        return along_curves(group, curves, power)

    @property
    def words(self) -> str:
        number = int((~np.isnan(self.distance[:, 0])).sum())
        along = "column" if self.domain.metric is Metric.L1 else "direction"
        return f"Distance curves of {number:,} {along}{'s' if number > 1 else ''}"

    def to_arrow(self) -> pa.Table:
        """One row per knot: the column, the place, the mean distance to it, its deviation, in the column's unit."""
        measured = np.flatnonzero(~np.isnan(self.distance[:, 0]))
        axes = self.domain.axes
        widths, low = axes.widths[measured][:, None], axes.low[measured][:, None]
        names = [axes.names[j] for j in measured.tolist()]
        return pa.table(
            {
                "column": pa.array(np.repeat(names, KNOTS + 1).tolist(), pa.string()).dictionary_encode(),
                "at": (low + widths * knots()).ravel(),
                "mean_distance": (widths * self.distance[measured]).ravel(),
                "deviation": (widths * self.deviation[measured]).ravel(),
            }
        )

    def files(self) -> dict[str, pa.Table]:
        return {FILE: self.to_arrow()}

    @staticmethod
    def of_files(domain: Points, tables: dict[str, pa.Table]) -> DistanceCurves:
        table = tables[FILE]
        names = np.array(table["column"].to_pylist())
        axes = domain.axes
        distance = np.full((len(axes.names), KNOTS + 1), np.nan)
        deviation = distance.copy()
        for j, (name, width) in enumerate(zip(axes.names, axes.widths.tolist(), strict=True)):
            held = names == name
            if held.any():
                distance[j] = table["mean_distance"].to_numpy()[held] / width
                deviation[j] = table["deviation"].to_numpy()[held] / width
        return DistanceCurves(domain, distance, deviation)


FINEST, COARSEST = 4096, 64  # the largest whole number in R: of the widest column, and at least


@dataclass(frozen=True, eq=False)
class KernelFactors:
    """R in whole numbers and L in fractions, W = L R."""

    right: Factor
    left: Reals


def middle() -> Reals:
    """c(y) at the knots."""
    y = knots()
    return np.maximum(y, 1 - y) / 2


@lru_cache(maxsize=64)
def factored(scale: int) -> KernelFactors:
    """The factors of the centred kernel, whole numbers of R up to `scale`."""
    y = knots()
    kernel = np.abs(y[:, None] - y[None, :]) - middle()[:, None]
    _, strength, axes = np.linalg.svd(kernel)
    strong = strength > 1e-9 * strength[0]
    root = np.sqrt(strength[strong])[:, None] * axes[strong]
    right = np.rint(scale * root / np.abs(root).max()).astype(np.int64)
    return KernelFactors(right, kernel @ np.linalg.pinv(right.astype(np.float64)))


def scales(importance: Reals) -> list[int]:
    """The scale of each column, by the root of how much its distances count: the least noise in the sum.

    Σ_j (a_j σ/m_j)² is least, at a given Σ_j m_j², where m_j² ∝ a_j. Few different scales are made, a quarter apart.
    """
    ideal = FINEST * np.sqrt(importance / importance.max())
    steps = np.rint(4 * np.log2(FINEST / np.maximum(ideal, COARSEST)))
    return [round(FINEST / 2 ** (float(each) / 4)) for each in steps]


FOR_ROWS = 0.04  # of the squared sensitivity, for the number of records where it is not public
TYPICAL = 0.8  # E|x| of a normal x of deviation 1


@dataclass(frozen=True, kw_only=True)
class CurveParameters:
    """Which columns are measured, and how finely."""

    columns: int
    knots: int
    noise: float  # the deviation of an answer, in records
    asked: Knots = hidden()
    scales: tuple[int, ...] = hidden()
    law: Gaussian = hidden()


def plan(task: Task, wanted: NoWishes) -> Plan[CurveParameters]:
    importance = _importance(task)
    columns = tuple(np.flatnonzero(importance).tolist())
    chosen = tuple(scales(importance[list(columns)]))
    domain = task.domain
    assert isinstance(domain, Points)
    asked = Knots(columns, tuple(factored(scale).right for scale in chosen), STEPS, axes=domain.axes)
    neighbours = task.budget.neighbours
    if task.rows_variance is not None:
        squared = neighbours.sensitivity(asked.bound()).l2_squared
        asked = replace(asked, total=max(1, round((FOR_ROWS * squared) ** 0.5)))
    moved = neighbours.sensitivity(asked.bound())
    law = least_gaussian(task.budget, [moved])
    deviations = [_deviations(scale, law) for scale in chosen]
    shares = importance[list(columns)]
    noise = float(
        np.sqrt(np.sum([(a * np.mean(each)) ** 2 for a, each in zip(shares, deviations, strict=True)]))
    )
    largest = noise * float(np.max(deviations[0]) / np.mean(deviations[0]))
    spread = np.sqrt(2 * np.log(2 * task.workload.size))
    return Plan(
        task=task,
        reason="every column is measured once, and then every point is answered",
        parameters=CurveParameters(
            columns=len(columns), knots=KNOTS + 1, noise=noise, asked=asked, scales=chosen, law=law
        ),
        steps=(Step("measure the distance curves", law.event(moved)),),
        mean_error=min(1.0, TYPICAL * noise / task.rows),
        max_error=min(1.0, float(spread) * largest / task.rows),
        seconds=1.0 + 4e-9 * len(columns) * task.rows + 2e-7 * asked.size,
        bytes=64 * asked.size + 16 * len(columns) * KNOTS + 4 * task.rows * task.domain.width,
        notes=_notes(task),
    )


def _notes(task: Task) -> tuple[str, ...]:
    """What answers are fractions of, where that is not the sum of the widths of the columns."""
    domain = task.domain
    assert isinstance(domain, Points)
    if domain.metric is Metric.L1:
        return ()
    unit = " kilometres" if domain.metric is Metric.GREAT_CIRCLE else ""
    return (f"{domain.metric.value} distances are told as fractions of {domain.axes.diameter:.6g}{unit}",)


def _importance(task: Task) -> NDArray[np.float64]:
    """How much each axis counts in a query, as the root of a mean of squares."""
    groups = task.workload.all_of(Distances)
    squares = [np.bincount(g.which, minlength=len(g.shares)) @ (g.shares / UNIT) ** 2 for g in groups]
    return np.sqrt(np.sum(squares, axis=0) / task.workload.size)


def _deviations(scale: int, law: Gaussian) -> NDArray[np.float64]:
    """Of the sum of distances at each knot, as a multiple of the column's width."""
    return law.deviation * np.sqrt((factored(scale).left ** 2).sum(axis=1)) / STEPS


def run(
    plan: Plan[CurveParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    chosen, task = plan.parameters, plan.task
    domain = task.domain
    assert isinstance(domain, Points)
    noisy = curator.measure(chosen.asked, noise=chosen.law)
    times = chosen.asked.total
    again = float(noisy[-1]) / times if times else None
    rows, variance = joined_rows(task, again, float(chosen.law.variance) / max(1, times) ** 2)
    distance = np.full((len(domain.axes.names), KNOTS + 1), np.nan)
    deviation = distance.copy()
    begin = 0
    for j, scale in zip(chosen.asked.columns, chosen.scales, strict=True):
        factor = factored(scale)
        part = noisy[begin : begin + len(factor.right)]
        begin += len(part)
        centred = factor.left @ part / (STEPS * rows)
        distance[j] = np.clip(middle() + centred, 0.0, np.maximum(knots(), 1 - knots()))
        divided = np.abs(centred) * math.sqrt(variance) / rows
        deviation[j] = np.hypot(_deviations(scale, chosen.law) / rows, divided)
    return Outcome(artefact=DistanceCurves(domain, distance, deviation))


WORDS = "each column's kernel of distances, factored and measured once: every point at the price of about one"
DISTANCE_CURVES = Mechanism(
    "distance-curves",
    WORDS,
    NoWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP),
    plays=("points",),
)


PASSES = 3
MOST_ROUNDS = 60


def _plan_learner(task: Task, wanted: RoundsWishes) -> Plan[MeasuredRounds]:
    """Half of the budget selects, half measures, in equal rounds."""
    rounds = wanted.rounds or _usual_rounds(task)
    chosen = priced(task, rounds)
    noise, found, axes = chosen.noise, chosen.found(task), len(_importance(task))
    return Plan(
        task=task,
        reason=f"{rounds} rounds {'as asked' if wanted.rounds else 'from the number of records'}",
        parameters=chosen,
        steps=chosen.steps(task, "choose a distance that is answered badly"),
        mean_error=min(1.0, 0.5 * (noise / task.rows + found)),
        max_error=min(1.0, 3 * noise / task.rows + 2 * found),
        seconds=2.0 + rounds**2 * PASSES * axes * 3e-6,
        bytes=64 * task.workload.size * axes,
        notes=_notes(task),
    )


def _usual_rounds(task: Task) -> int:
    """A few, and more where there are more records for the noise: n ε to the power ⅓."""
    return max(4, min(MOST_ROUNDS, round((task.rows * min(1.0, task.budget.epsilon)) ** (1 / 3))))


def _outcome(
    plan: Plan[MeasuredRounds], replied: Iterator[Columns], rng: np.random.Generator, progress: Progress
) -> Outcome:
    domain, held = plan.task.domain, last(replied)
    assert isinstance(domain, Points)
    # A bar from the mean error that was predicted, shared by all columns; they are not independent here.
    axes = len(domain.axes.names)
    deviation = np.full((axes, KNOTS + 1), plan.mean_error * math.sqrt(math.pi / 2))
    spread = math.sqrt(axes)
    return Outcome(artefact=DistanceCurves(domain, held.curves(), deviation * spread), belief=held)


COORDINATE_WISE = learner(
    "coordinate-wise",
    "multiplicative weights over each column's places, corrected by the worst-answered points (Huang, Roth 2014)",
    RoundsWishes,
    _plan_learner,
    lambda plan, curator: CoordinateWeights(plan.task.workload, passes=PASSES),
    _outcome,
    plays=("points",),
)
