"""The coordinate-wise learner (Huang, Roth 2014): the blueprint of MWEM, the learner keeping columns one by one.

The query player best-responds: the exponential mechanism finds a point whose distance is answered badly, and it is
measured. The data player learns by multiplicative weights over d · 257 places instead of a universe of 257^d cells
(`beliefs.universes`). Time per round is linear in the number of columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dualquery.beliefs.universes import Columns, CoordinateWeights
from dualquery.mechanisms.distance_curves import DistanceCurves
from dualquery.mechanisms.mechanism import Outcome, Plan, Task
from dualquery.mechanisms.outcomes import last
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced
from dualquery.mechanisms.wishes import RoundsWishes
from dualquery.privacy.curator import Curator
from dualquery.table.points import KNOTS, Points
from dualquery.types import Progress

PASSES = 3
MOST_ROUNDS = 60


def plan(task: Task, wanted: RoundsWishes) -> Plan[MeasuredRounds]:
    """Half of the budget selects, half measures, in equal rounds."""
    rounds = wanted.rounds or _usual_rounds(task)
    chosen = priced(task, rounds)
    noise, found = chosen.noise, chosen.found(task)
    return Plan(
        mechanism="coordinate-wise",
        task=task,
        reason=f"{rounds} rounds {'as asked' if wanted.rounds else 'from the number of records'}",
        parameters=chosen,
        steps=chosen.steps(task, "choose a distance that is answered badly"),
        mean_error=min(1.0, 0.5 * (noise / task.rows + found)),
        max_error=min(1.0, 3 * noise / task.rows + 2 * found),
        seconds=2.0 + rounds**2 * PASSES * task.domain.width * 3e-6,
        bytes=64 * task.workload.size * task.domain.width,
    )


def _usual_rounds(task: Task) -> int:
    """A few, and more where there are more records for the noise: n ε to the power ⅓."""
    return max(4, min(MOST_ROUNDS, round((task.rows * min(1.0, task.budget.epsilon)) ** (1 / 3))))


def _belief(plan: Plan[MeasuredRounds], curator: Curator) -> CoordinateWeights:
    return CoordinateWeights(plan.task.workload, passes=PASSES)


def _outcome(
    plan: Plan[MeasuredRounds], replied: Iterator[Columns], rng: np.random.Generator, progress: Progress
) -> Outcome:
    domain, held = plan.task.domain, last(replied)
    assert isinstance(domain, Points)
    # A bar from the mean error that was predicted, shared by all columns; they are not independent here.
    deviation = np.full((domain.width, KNOTS + 1), plan.mean_error * math.sqrt(math.pi / 2))
    spread = math.sqrt(domain.width)
    return Outcome(artefact=DistanceCurves(domain, held.curves(), deviation * spread), belief=held)


WORDS = "multiplicative weights over each column's places, corrected by the worst-answered points (Huang, Roth 2014)"
COORDINATE_WISE = learner("coordinate-wise", WORDS, RoundsWishes, plan, _belief, _outcome, plays=("points",))
