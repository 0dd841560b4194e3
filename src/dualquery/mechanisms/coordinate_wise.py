"""The coordinate-wise learner (Huang, Roth 2014): the blueprint of MWEM, the learner keeping columns one by one.

The query player best-responds: the exponential mechanism finds a point whose distance is answered badly, and it is
measured. The data player learns by multiplicative weights over d · 257 places instead of a universe of 257^d cells
(`beliefs.universes`). Time per round is linear in the number of columns.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualquery.beliefs.universes import Columns, CoordinateWeights, HeardDistance
from dualquery.game.data_players import LearningDataPlayer
from dualquery.game.moves import Transcript
from dualquery.game.play import play
from dualquery.game.query_players import BestResponseQueryPlayer
from dualquery.mechanisms.distance_curves import DistanceCurves
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Task
from dualquery.mechanisms.rounds import PricedRounds, RoundParameters
from dualquery.mechanisms.wishes import RoundsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.scores import SignedErrors
from dualquery.privacy.selection import Selected
from dualquery.queries.derived import Balance
from dualquery.queries.distances import UNIT, Distances
from dualquery.queries.workload import Workload
from dualquery.table.points import GRID, KNOTS, Points
from dualquery.types import Integers, Progress

PASSES = 3
MOST_ROUNDS = 60


@dataclass(frozen=True)
class DistanceQuestions:
    """Which distance is answered worst; its count is measured as a balance, 2c − n."""

    workload: Workload
    public_rows: int
    start: Columns

    def score(self, reply: Columns | None) -> SignedErrors:
        answers = (self.start if reply is None else reply).answers(self.workload)
        offsets = np.rint(UNIT * self.public_rows * np.clip(answers, 0, 1)).astype(np.int64)
        return SignedErrors(self.workload, self.public_rows, 1, 1, offsets)

    def statistic(self, chosen: Selected) -> Balance:
        return Balance(self.workload, int(chosen.queries[0]))

    def heard(self, chosen: Selected, noisy: Integers) -> HeardDistance:
        query = int(chosen.queries[0])
        g = int(np.searchsorted(self.workload.starts, query, side="right")) - 1
        group, place = self.workload.groups[g], query - int(self.workload.starts[g])
        assert isinstance(group, Distances)
        value = (UNIT * self.public_rows + int(noisy[0])) / (2 * UNIT * self.public_rows)
        shares = group.shares[group.which[place]] / UNIT
        return HeardDistance(group.positions[place] / GRID, shares, min(1.0, max(0.0, value)))


def plan(task: Task, wanted: RoundsWishes) -> Plan[RoundParameters]:
    """Half of the budget selects, half measures, in equal rounds."""
    rounds = wanted.rounds or _usual_rounds(task)
    paid = PricedRounds.of(task, rounds, SignedErrors(task.workload, task.rows, 1, 1, np.empty(0, np.int64)))
    noise, found = paid.noise, paid.found
    return Plan(
        mechanism="coordinate-wise",
        task=task,
        reason=f"{rounds} rounds {'as asked' if wanted.rounds else 'from the number of records'}",
        parameters=RoundParameters(rounds=rounds, noise=noise, rate=paid.rate, law=paid.law),
        steps=paid.steps("choose a distance that is answered badly"),
        mean_error=min(1.0, 0.5 * (noise / task.rows + found)),
        max_error=min(1.0, 3 * noise / task.rows + 2 * found),
        seconds=2.0 + rounds**2 * PASSES * task.domain.width * 3e-6,
        bytes=64 * task.workload.size * task.domain.width,
    )


def _usual_rounds(task: Task) -> int:
    """A few, and more where there are more records for the noise: n ε to the power ⅓."""
    return max(4, min(MOST_ROUNDS, round((task.rows * min(1.0, task.budget.epsilon)) ** (1 / 3))))


def run(
    plan: Plan[RoundParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Play, and release the curves of the last reply."""
    task, chosen = plan.task, plan.parameters
    assert isinstance(task.domain, Points)
    belief = CoordinateWeights(task.domain.width, passes=PASSES)
    questions = DistanceQuestions(task.workload, task.rows, belief.snapshot())
    transcript: Transcript[HeardDistance, Columns] = play(
        BestResponseQueryPlayer(curator, questions, rate=chosen.rate, noise=chosen.law),
        LearningDataPlayer(belief),
        rounds=chosen.rounds,
        remembers=1,
        progress=lambda done, total: progress("playing", done, total),
    )
    reply = transcript.last_reply()
    distance = reply.curves()
    # A bar from the mean error that was predicted, shared by all columns; they are not independent here.
    deviation = np.full((task.domain.width, KNOTS + 1), plan.mean_error * math.sqrt(math.pi / 2))
    spread = math.sqrt(task.domain.width)
    return Outcome(artefact=DistanceCurves(task.domain, distance, deviation * spread), belief=reply)


WORDS = "multiplicative weights over each column's places, corrected by the worst-answered points (Huang, Roth 2014)"
COORDINATE_WISE = Mechanism(
    "coordinate-wise",
    WORDS,
    RoundsWishes,
    plan,
    run,
    paid_by=(Accounting.ZCDP, Accounting.PURE),
    plays=("points",),
)
