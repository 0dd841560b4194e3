"""The learner of Frieze and Kannan (Gupta, Roth, Ullman 2012): MWEM's game, with rectangles for weights.

The query player best-responds: the exponential mechanism finds a cut that is answered badly, and it is measured.
The data player learns by the cut decomposition (`beliefs.graphs`), to the letter: it begins with the
empty graph, and each measured cut adds one rectangle. A round costs two counts of bits a cut, whatever the number
of pairs of vertices.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualquery.beliefs.graphs import CutMatrix, HeardCut, Rectangles
from dualquery.game.data_players import LearningDataPlayer
from dualquery.game.moves import Transcript
from dualquery.game.play import play
from dualquery.game.query_players import BestResponseQueryPlayer
from dualquery.mechanisms.graphs import RectangleGraph
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Task
from dualquery.mechanisms.rounds import PricedRounds, RoundParameters
from dualquery.mechanisms.wishes import RoundsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.scores import SignedErrors
from dualquery.privacy.selection import Selected
from dualquery.queries.cuts import Cuts
from dualquery.queries.derived import Balance
from dualquery.queries.workload import Workload
from dualquery.table.graph import Graph
from dualquery.types import Integers, Progress

MOST_ROUNDS = 200


@dataclass(frozen=True)
class CutQuestions:
    """Which cut is answered worst; its count is measured as a balance, 2c − n."""

    workload: Workload
    public_rows: int

    def score(self, reply: Rectangles | None) -> SignedErrors:
        answers = np.zeros(self.workload.size) if reply is None else reply.told
        return SignedErrors.of_answers(
            self.workload, self.public_rows, answers, np.arange(self.workload.size)
        )

    def statistic(self, chosen: Selected) -> Balance:
        return Balance(self.workload, int(chosen.queries[0]))

    def heard(self, chosen: Selected, noisy: Integers) -> HeardCut:
        whole = self.workload.unit * self.public_rows
        value = (whole + int(noisy[0])) / (2 * whole)
        return HeardCut(int(chosen.queries[0]), min(1.0, max(0.0, value)))


def plan(task: Task, wanted: RoundsWishes) -> Plan[RoundParameters]:
    """Half of the budget selects, half measures, in equal rounds."""
    domain = task.domain
    assert isinstance(domain, Graph)
    rounds = wanted.rounds or _usual_rounds(task)
    paid = PricedRounds.of(task, rounds, SignedErrors.unheard(task.workload, task.rows))
    noise = paid.noise
    learned = 0.02 / math.sqrt(rounds)
    return Plan(
        mechanism="frieze-kannan",
        task=task,
        reason=f"{rounds} rounds {'as asked' if wanted.rounds else 'from the number of edges'}",
        parameters=RoundParameters(rounds=rounds, noise=noise, rate=paid.rate, law=paid.law),
        steps=paid.steps("choose a cut that is answered badly"),
        mean_error=min(1.0, noise / task.rows + learned),
        max_error=min(1.0, 3 * noise / task.rows + 6 * learned),
        seconds=2.0 + rounds * task.workload.size * len(domain.vertices) * 5e-11,
        bytes=task.workload.size * len(domain.vertices) // 4 + 64 * task.workload.size,
    )


def _usual_rounds(task: Task) -> int:
    """n ε to the power ⅔, an eighth of it."""
    return max(8, min(MOST_ROUNDS, round((task.rows * min(1.0, task.budget.epsilon) / 5) ** (2 / 3) / 8)))


def run(
    plan: Plan[RoundParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Play, and release the sum of rectangles."""
    task, chosen = plan.task, plan.parameters
    assert isinstance(task.domain, Graph)
    belief = CutMatrix(_as_one(task))
    transcript: Transcript[HeardCut, Rectangles] = play(
        BestResponseQueryPlayer(
            curator, CutQuestions(task.workload, task.rows), rate=chosen.rate, noise=chosen.law
        ),
        LearningDataPlayer(belief),
        rounds=chosen.rounds,
        remembers=1,
        progress=lambda done, total: progress("playing", done, total),
    )
    held = transcript.last_reply()
    return Outcome(artefact=RectangleGraph(task.domain, held, float(task.rows), plan.mean_error), belief=held)


def _as_one(task: Task) -> Cuts:
    """All cuts of the workload in one group."""
    groups = [group for group in task.workload.groups if isinstance(group, Cuts)]
    assert isinstance(task.domain, Graph)
    assert len(groups) == len(task.workload.groups), "of graphs only cuts can be asked"
    sources, targets = (
        np.concatenate(each) for each in zip(*((g.sources, g.targets) for g in groups), strict=True)
    )
    return Cuts(task.domain, sources, targets)


WORDS = "rectangles of a cut decomposition, corrected by the worst-answered cuts (Frieze, Kannan; Gupta et al. 2012)"
FRIEZE_KANNAN = Mechanism(
    "frieze-kannan",
    WORDS,
    RoundsWishes,
    plan,
    run,
    paid_by=(Accounting.ZCDP, Accounting.PURE),
    plays=("graph",),
)
