"""Sparse queries as the paper has them: multiplicative weights over touched cells (Blum and Roth 2013).

MWEM's game over a universe of 2^64 cells: the query player finds and measures the list that is answered worst;
the data player keeps a weight for each cell that some measured list accepts and one for all others
(`beliefs.universes`).

    error ≲ (log|X|)^{1/4} · √(log|Q|) / √(nε), as for queries of any kind, in time ~ S a query instead of |X|.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.universes import TouchedWeights
from dualquery.errors import DualQueryError
from dualquery.game.data_players import LearningDataPlayer
from dualquery.game.moves import HeardQuery
from dualquery.game.play import play
from dualquery.game.query_players import BestResponseQueryPlayer, Questions
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Task, hidden
from dualquery.mechanisms.noisy_cells import CellFractions, lists_of
from dualquery.mechanisms.rounds import NumberedQueries, PricedRounds
from dualquery.mechanisms.wishes import RoundsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import SignedErrors
from dualquery.privacy.selection import Rate
from dualquery.queries.lists import Catalogue, Lists
from dualquery.types import Progress

MOST_ROUNDS = 200  # by default; n ε / 200 where that is less


@dataclass(frozen=True, kw_only=True)
class TouchedParameters:
    """What a run goes by."""

    rounds: int
    universe: float  # log₂ of the number of cells
    noise: float  # expected absolute noise of one measured answer, in records
    rate: Rate = hidden()
    measurement: Noise = hidden()


class TouchedBelief:
    """Weights over cells that hear lists by their numbers."""

    def __init__(self, lists: Lists, weights: TouchedWeights, floor: float) -> None:
        self._lists = lists
        self._weights = weights
        self._floor = floor

    def hear(self, challenge: HeardQuery) -> None:
        first, last = self._lists.start[challenge.query : challenge.query + 2]
        self._weights.hear(self._lists.cells[first:last], challenge.value, self._floor)

    def snapshot(self) -> TouchedSnapshot:
        return TouchedSnapshot(self._lists, self._weights.copy())


@dataclass(frozen=True, eq=False)
class TouchedSnapshot:
    """The weights as they stand."""

    lists: Lists
    weights: TouchedWeights

    def own_answers(self) -> NDArray[np.float64]:
        return self.weights.answers(self.lists.start, self.lists.cells)


def plan(task: Task, wanted: RoundsWishes) -> Plan[TouchedParameters]:
    """As MWEM: half a round's price to choose, half to measure."""
    lists = lists_of(task.workload)
    share = task.budget.neighbours.records_per_person or 1
    usual = min(MOST_ROUNDS, max(1, round(task.rows * task.budget.epsilon / share / 200)))
    rounds = usual if wanted.rounds is None else wanted.rounds
    if rounds < 1:
        raise DualQueryError(f"at least one round is played, and --rounds is {rounds}")
    paid = PricedRounds.of(task, rounds, SignedErrors.unheard(task.workload, task.rows))
    noise = paid.noise
    return Plan(
        mechanism="touched-weights",
        task=task,
        reason=f"{rounds} rounds over 2^{min(64.0, task.domain.log2_size):.0f} cells, of which lists touch few",
        parameters=TouchedParameters(
            rounds=rounds,
            universe=min(64.0, task.domain.log2_size),
            noise=noise,
            rate=paid.rate,
            measurement=paid.law,
        ),
        steps=paid.steps("choose the list that is answered worst"),
        mean_error=min(0.5, noise / task.rows + 0.02 / math.sqrt(rounds)),
        max_error=min(1.0, 3 * noise / task.rows + paid.found + 0.3 / math.sqrt(rounds)),
        seconds=2.0 + rounds * len(lists.cells) * 2e-8,
        bytes=64 * len(lists.cells) + 64 * lists.size,
    )


def run(
    plan: Plan[TouchedParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Play the planned game against the curator."""
    chosen, task = plan.parameters, plan.task
    lists = lists_of(task.workload)
    belief = TouchedBelief(lists, TouchedWeights(2.0**chosen.universe), floor=0.5 / task.rows)
    questions: Questions[HeardQuery, TouchedSnapshot] = NumberedQueries(
        task.workload, task.rows, belief.snapshot()
    )
    last = play(
        BestResponseQueryPlayer(curator, questions, rate=chosen.rate, noise=chosen.measurement),
        LearningDataPlayer(belief),
        rounds=chosen.rounds,
        remembers=1,
        progress=lambda done, total: progress("playing", done, total),
    ).last_reply()
    named = np.unique(lists.cells)
    fractions = last.weights.answers(np.arange(len(named) + 1), named)
    place = np.searchsorted(lists.catalogue.cells, named)
    deviation = np.full(len(named), max(plan.mean_error, 1 / task.rows))  # a guess
    catalogue = Catalogue(named, lists.catalogue.texts[place])
    artefact = CellFractions(lists.domain, catalogue, fractions, deviation)
    return Outcome(artefact=artefact, answers=np.clip(last.own_answers(), 0.0, 1.0))


WORDS = (
    "multiplicative weights over the cells that lists touch, and one weight for all others (Blum, Roth 2013)"
)
TOUCHED_WEIGHTS = Mechanism(
    "touched-weights",
    WORDS,
    RoundsWishes,
    plan,
    run,
    paid_by=(Accounting.ZCDP, Accounting.PURE),
    plays=("codes",),
)
