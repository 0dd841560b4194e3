"""The learner of Frieze and Kannan (Gupta, Roth, Ullman 2012): MWEM's game, with rectangles for weights.

The query player best-responds: the exponential mechanism finds a cut that is answered badly, and it is measured.
The data player learns by the cut decomposition (`beliefs.graphs`), to the letter: it begins with the
empty graph, and each measured cut adds one rectangle. A round costs two counts of bits a cut, whatever the number
of pairs of vertices.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from dualquery.beliefs.graphs import CutMatrix, Rectangles
from dualquery.mechanisms.graphs import RectangleGraph
from dualquery.mechanisms.mechanism import Outcome, Plan, Task
from dualquery.mechanisms.outcomes import last
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced
from dualquery.mechanisms.wishes import RoundsWishes
from dualquery.privacy.curator import Curator
from dualquery.table.graph import Graph
from dualquery.types import Progress

MOST_ROUNDS = 200


def plan(task: Task, wanted: RoundsWishes) -> Plan[MeasuredRounds]:
    """Half of the budget selects, half measures, in equal rounds."""
    domain = task.domain
    assert isinstance(domain, Graph)
    rounds = wanted.rounds or _usual_rounds(task)
    chosen = priced(task, rounds)
    noise, learned = chosen.noise, 0.02 / math.sqrt(rounds)
    return Plan(
        mechanism="frieze-kannan",
        task=task,
        reason=f"{rounds} rounds {'as asked' if wanted.rounds else 'from the number of edges'}",
        parameters=chosen,
        steps=chosen.steps(task, "choose a cut that is answered badly"),
        mean_error=min(1.0, noise / task.rows + learned),
        max_error=min(1.0, 3 * noise / task.rows + 6 * learned),
        seconds=2.0 + rounds * task.workload.size * len(domain.vertices) * 5e-11,
        bytes=task.workload.size * len(domain.vertices) // 4 + 64 * task.workload.size,
    )


def _usual_rounds(task: Task) -> int:
    """n ε to the power ⅔, an eighth of it."""
    return max(8, min(MOST_ROUNDS, round((task.rows * min(1.0, task.budget.epsilon) / 5) ** (2 / 3) / 8)))


def _belief(plan: Plan[MeasuredRounds], curator: Curator) -> CutMatrix:
    return CutMatrix(plan.task.workload)


def _outcome(
    plan: Plan[MeasuredRounds], replied: Iterator[Rectangles], rng: np.random.Generator, progress: Progress
) -> Outcome:
    """The sum of rectangles."""
    domain, held = plan.task.domain, last(replied)
    assert isinstance(domain, Graph)
    return Outcome(artefact=RectangleGraph(domain, held, float(plan.task.rows), plan.mean_error), belief=held)


WORDS = "rectangles of a cut decomposition, corrected by the worst-answered cuts (Frieze, Kannan; Gupta et al. 2012)"
FRIEZE_KANNAN = learner("frieze-kannan", WORDS, RoundsWishes, plan, _belief, _outcome, plays=("graph",))
