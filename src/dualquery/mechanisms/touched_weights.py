"""Sparse queries as the paper has them: multiplicative weights over touched cells (Blum and Roth 2013).

MWEM's game over a universe of 2^64 cells: the query player finds and measures the list that is answered worst;
the data player keeps a weight for each cell that some measured list accepts and one for all others
(`beliefs.universes`).

    error ≲ (log|X|)^{1/4} · √(log|Q|) / √(nε), as for queries of any kind, in time ~ S a query instead of |X|.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from dualquery.beliefs.universes import TouchedLists, TouchedWeights
from dualquery.errors import DualQueryError
from dualquery.mechanisms.mechanism import Outcome, Plan, Task
from dualquery.mechanisms.noisy_cells import CellFractions, lists_of
from dualquery.mechanisms.outcomes import last
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced
from dualquery.mechanisms.wishes import RoundsWishes
from dualquery.privacy.curator import Curator
from dualquery.queries.lists import Catalogue
from dualquery.types import Progress

MOST_ROUNDS = 200  # by default; n ε / 200 where that is less


@dataclass(frozen=True, kw_only=True)
class TouchedParameters(MeasuredRounds):
    """What a run goes by."""

    universe: float  # log₂ of the number of cells


def plan(task: Task, wanted: RoundsWishes) -> Plan[TouchedParameters]:
    """As MWEM: half a round's price to choose, half to measure."""
    lists = lists_of(task.workload)
    share = task.budget.neighbours.records_per_person or 1
    usual = min(MOST_ROUNDS, max(1, round(task.rows * task.budget.epsilon / share / 200)))
    rounds = usual if wanted.rounds is None else wanted.rounds
    if rounds < 1:
        raise DualQueryError(f"at least one round is played, and --rounds is {rounds}")
    chosen = TouchedParameters(**vars(priced(task, rounds)), universe=min(64.0, task.domain.log2_size))
    return Plan(
        mechanism="touched-weights",
        task=task,
        reason=f"{rounds} rounds over 2^{chosen.universe:.0f} cells, of which lists touch few",
        parameters=chosen,
        steps=chosen.steps(task, "choose the list that is answered worst"),
        mean_error=min(0.5, chosen.noise / task.rows + 0.02 / math.sqrt(rounds)),
        max_error=min(1.0, 3 * chosen.noise / task.rows + chosen.found(task) + 0.3 / math.sqrt(rounds)),
        seconds=2.0 + rounds * len(lists.cells) * 2e-8,
        bytes=64 * len(lists.cells) + 64 * lists.size,
    )


def _belief(plan: Plan[TouchedParameters], curator: Curator) -> TouchedLists:
    weights = TouchedWeights(2.0**plan.parameters.universe)
    return TouchedLists(lists_of(plan.task.workload), weights, floor=0.5 / plan.task.rows)


def _outcome(
    plan: Plan[TouchedParameters],
    replied: Iterator[TouchedLists],
    rng: np.random.Generator,
    progress: Progress,
) -> Outcome:
    held, workload = last(replied), plan.task.workload
    lists, named = held.lists, np.unique(held.lists.cells)
    fractions = held.weights.answers(np.arange(len(named) + 1), named)
    place = np.searchsorted(lists.catalogue.cells, named)
    deviation = np.full(len(named), max(plan.mean_error, 1 / plan.task.rows))  # a guess
    catalogue = Catalogue(named, lists.catalogue.texts[place])
    artefact = CellFractions(lists.domain, catalogue, fractions, deviation)
    return Outcome(artefact=artefact, answers=np.clip(held.answers(workload), 0.0, 1.0))


WORDS = (
    "multiplicative weights over the cells that lists touch, and one weight for all others (Blum, Roth 2013)"
)
TOUCHED_WEIGHTS = learner("touched-weights", WORDS, RoundsWishes, plan, _belief, _outcome, plays=("codes",))
