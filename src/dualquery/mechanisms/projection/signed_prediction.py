"""What a plan of signed tables costs and how good it should be, from public quantities alone."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np

from dualquery.game.residual import Set
from dualquery.mechanisms.mechanism import Step, Task
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.refitting import SCOUT_PASSES, SCOUT_ROWS
from dualquery.mechanisms.projection.shrinkage import cell_variance
from dualquery.mechanisms.projection.signed_allocation import SignedPlan, errors_of
from dualquery.mechanisms.projection.signed_interactions import determined, variance_told
from dualquery.privacy.scores import selection_event

SAMPLE = 2_000  # sets whose noise is worked out; of more, as many evenly spread ones
MEAN_ERROR = 0.72  # of a cell of a table of four, in units of its noise; larger tables are mostly empty
EMPTINESS = 0.35
COUNT_SECONDS = 2e-9  # per record and table, two cores


def steps_of(plan: SignedPlan, task: Task) -> tuple[Step, ...]:
    """What is asked of the curator."""
    neighbours = task.budget.neighbours
    words = f"measure {len(plan.first.sets):,} signed tables at once"
    first = Step(words, plan.noise.event(plan.first.sensitivity(neighbours)))
    if plan.rounds is None:
        return (first,)
    rounds = plan.rounds
    selection = selection_event(
        errors_of(rounds.candidates, task.rows), neighbours, rate=rounds.rate, draws=1
    )
    assert selection is not None, "errors can move"
    return (
        first,
        Step("choose a signed table on which the rows are wrong", selection, rounds.number),
        Step("measure it", rounds.noise.event(rounds.statistic.sensitivity(neighbours)), rounds.number),
    )


def reason_of(plan: SignedPlan) -> str:
    """Which tables, in words."""
    counts: dict[int, int] = {}
    for members in plan.first.sets:
        if members:
            counts[len(members)] = counts.get(len(members), 0) + 1
    first = ", ".join(f"{count:,} of order {order}" for order, count in sorted(counts.items()))
    chosen = ""
    if plan.rounds is not None:
        order = len(plan.rounds.candidates.sets[0])
        chosen = (
            f", then {plan.rounds.number:,} of {len(plan.rounds.candidates.sets):,} of order {order} where the "
            "rows are most wrong"
        )
    return (
        f"the workload falls into tables of few attributes, so their signed tables are measured with Laplace noise "
        f"({first}){chosen}, and rows are fitted to them"
    )


def mean_error(plan: SignedPlan, task: Task, noise: float) -> float:
    """Of a query, given the noise of a cell: in a table of many cells most are small, and shrunk."""
    sets = [*plan.first.sets, *(plan.rounds.candidates.sets if plan.rounds is not None else ())]
    sizes = task.domain.sizes.tolist()
    order = min(2, max(map(len, sets)))
    cells = float(np.mean([math.prod(sizes[j] for j in s) for s in sets if len(s) == order]))
    return min(MEAN_ERROR * noise * min(1.0, 4 / cells) ** EMPTINESS, 0.5)


def cell_noise(plan: SignedPlan, task: Task) -> float:
    """The standard deviation of a cell of a measured pair's table (of a one-way table where there are no pairs)."""
    domain, told = task.domain, dict(plan.variances())
    if plan.rounds is not None:
        told.update(dict.fromkeys(plan.rounds.candidates.sets, plan.rounds.noise.deviation**2))
    order = 2 if any(len(members) == 2 for members in told) else 1
    base = [members for members in told if len(members) == order]
    base = [base[i] for i in np.linspace(0, len(base) - 1, min(SAMPLE, len(base))).astype(int)]
    precisions = []
    for members in base:
        known: dict[Set, float] = {}
        for size in range(order + 1):
            for subset in combinations(members, size):
                if subset in told:
                    for each in determined(subset, domain):
                        precision = 1 / variance_told(subset, each, told[subset], domain)
                        known[each] = known.get(each, 0.0) + precision
        variance = {each: 1 / precision for each, precision in known.items()} | {(): 0.0}
        precisions.append(1 / cell_variance(members, variance, domain.sizes))
    return 1 / math.sqrt(float(np.mean(precisions))) / task.rows


def bytes_of(plan: SignedPlan, task: Task, pace: Pace) -> int:
    """Of the fit, and of the cells that are counted for choosing."""
    sizes = task.domain.sizes.tolist()
    cells = sum(len(members) * math.prod(sizes[j] for j in members) for members in plan.first.sets)
    counted = 0
    if plan.rounds is not None:
        counted = plan.rounds.candidates.size
        per_table = counted / len(plan.rounds.candidates.sets)
        cells += plan.rounds.number * len(plan.rounds.candidates.sets[0]) * per_table
    return pace.bytes(task.domain.width, cells) + 32 * counted


def seconds_of(plan: SignedPlan, task: Task, pace: Pace) -> float:
    """Of the fit, its rehearsal, the counting and the rounds."""
    sizes = task.domain.sizes.tolist()
    visits = float(sum(8 * len(s) + sum(sizes[j] for j in s) for s in plan.first.sets))
    counting = task.rows * len(plan.first.sets) * COUNT_SECONDS
    choosing = 0.0
    if plan.rounds is not None:
        number, tables = plan.rounds.number, plan.rounds.candidates
        order = len(tables.sets[0])
        visits += number * order * (8 + float(np.mean(sizes)))
        refit = SCOUT_ROWS * SCOUT_PASSES * (visits * 2.5e-9 + 2e-6) + 0.1
        choosing = number * (refit + len(tables.sets) * (SCOUT_ROWS * COUNT_SECONDS + 3e-5))
        counting += task.rows * len(tables.sets) * COUNT_SECONDS
    return pace.seconds(visits, cell_noise(plan, task)) + counting + choosing
