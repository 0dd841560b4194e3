"""Mirror descent on a histogram (Jain and Thakurta, *Mirror Descent Based Database Privacy*, 2012).

MWEM with the learner swapped: the query player finds and measures what is answered worst, as there and at the same
price; the data player moves its histogram by a mirror map. `--mirror-map entropy` is multiplicative weights again.

Their theorem: with a map that is strongly convex in a norm ‖·‖ and grows by at most R² over the simplex, T rounds
answer within about R · max_q ‖q‖_* · √(1/T) and the noise of a round, √T/(nε). Entropy has R² = ln|X| and
‖q‖_∞ = 1; the squared norm R² = 1/2 and ‖q‖₂, the root of the number of cells that a query accepts: better
where queries accept few cells, and the table is spread over many (docs/learners.md has the picture).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import Any, cast

from dualquery.beliefs.mirror import Euclidean, MirrorDescent, MirrorMap, NegativeEntropy, PNorm
from dualquery.beliefs.multiplicative_weights import Schedule, StepSize
from dualquery.errors import DualQueryError, QueryError
from dualquery.mechanisms.mechanism import Plan, Task, choice
from dualquery.mechanisms.mwem import PASSES, MwemParameters
from dualquery.mechanisms.mwem import plan as plan_of_mwem
from dualquery.mechanisms.outcomes import released_iterate
from dualquery.mechanisms.rounds import QuestionKind, learner, usual_kind
from dualquery.mechanisms.wishes import MirrorWishes, MwemWishes
from dualquery.privacy.curator import Curator

MOST_CELLS = 1 << 20  # of the universe: every step looks at every cell
USUAL_NORM = 1.5


class Map(Enum):
    """The mirror maps by name."""

    ENTROPY = "entropy"
    EUCLIDEAN = "euclidean"
    P_NORM = "p-norm"


@dataclass(frozen=True, kw_only=True)
class MirrorParameters(MwemParameters):
    """What a run of mirror descent goes by: MWEM's game, and the map."""

    mirror_map: Map
    norm: float | None

    @property
    def mirror(self) -> MirrorMap:
        if self.mirror_map is Map.P_NORM:
            assert self.norm is not None
            return PNorm(self.norm)
        return Euclidean() if self.mirror_map is Map.EUCLIDEAN else NegativeEntropy()


def plan(task: Task, wanted: MirrorWishes) -> Plan[MirrorParameters]:
    """MWEM's plan for the same game, over the whole universe as one histogram."""
    mirror_map = choice(Map, wanted.mirror_map, Map.EUCLIDEAN, "--mirror-map")
    if wanted.norm is not None and mirror_map is not Map.P_NORM:
        raise DualQueryError("--norm is the p of --mirror-map p-norm; leave it out, or ask for that map")
    norm = (wanted.norm or USUAL_NORM) if mirror_map is Map.P_NORM else None
    universe = prod(task.domain.sizes.tolist())
    if universe > MOST_CELLS:
        raise QueryError(
            f"mirror descent keeps a histogram of every cell, at most {MOST_CELLS:,}, and this universe has "
            f"2^{task.domain.log2_size:.0f}; use the mechanism 'euclidean', which needs none"
        )
    kind = choice(QuestionKind, wanted.measured, _usual(task), "--measured")
    if kind is QuestionKind.TABLES:
        raise QueryError(
            "mirror descent plays single queries and not whole tables; measure queries or parities"
        )
    like = plan_of_mwem(
        task,
        MwemWishes(
            rounds=wanted.rounds,
            iterate=wanted.iterate,
            measured=kind.value,
            synthetic_rows=wanted.synthetic_rows,
            part_cells=max(2, universe),
        ),
    )
    chosen = MirrorParameters(**vars(like.parameters), mirror_map=mirror_map, norm=norm)
    _ = chosen.mirror  # refuses a norm out of range
    slower = 30 if mirror_map is Map.P_NORM else 3
    learning = slower * PASSES * chosen.rounds**2 * universe * 5e-9
    return replace(
        cast("Plan[Any]", like),
        mechanism="mirror",
        reason=f"{like.reason}, moved by the {mirror_map.value} map",
        parameters=chosen,
        seconds=2.0 + learning + chosen.rounds * chosen.asked.size * 2e-8,
        bytes=80 * universe + 64 * chosen.asked.size,
    )


def _usual(task: Task) -> QuestionKind:
    kind = usual_kind(task.workload)
    return QuestionKind.QUERIES if kind is QuestionKind.TABLES else kind


def _belief(plan: Plan[MirrorParameters], curator: Curator) -> MirrorDescent:
    chosen, task = plan.parameters, plan.task
    schedule = Schedule(StepSize.FULL, PASSES, chosen.noise / task.rows)
    return MirrorDescent(task.domain, chosen.mirror, schedule=schedule, floor=0.5 / task.rows)


WORDS = "MWEM with a mirror map of choice: entropy, Euclidean or p-norm (Jain, Thakurta 2012)"
MIRROR = learner("mirror", WORDS, MirrorWishes, plan, _belief, released_iterate)
