"""Mirror descent: MWEM with the learner swapped (Jain and Thakurta, *Mirror Descent Based Database Privacy*, 2012).

*On a histogram*: the data player moves it by a mirror map; questions and price are as in MWEM. `--mirror-map
entropy` is multiplicative weights again.

Their theorem: with a map that is strongly convex in a norm ‖·‖ and grows by at most R² over the simplex, T rounds
answer within about R · max_q ‖q‖_* · √(1/T) and the noise of a round, √T/(nε). Entropy has R² = ln|X| and ‖q‖_∞ = 1;
the squared norm R² = 1/2 and ‖q‖₂, the root of the number of cells that a query accepts: better where queries accept
few cells, and the table is spread over many (docs/learners.md has the picture).

`--updates once` plays the theorem: one step of η = (R/L) √(2/T) a round, L = max_q ‖q‖_*, up or down by the sign of
the measured gap, and the average of w₀ … w_{T−1}. Its regret is at most R L √(2T), whatever is asked; a draw misses
the worst query by ln(4|Q|T/β)/rate, and a noise ν that turns a sign hides a gap of at most |ν| twice, so that all
queries are answered within R L √(2/T) and both, except with probability β. The default goes over all measurements
again and again, by Newton's steps, and releases the last.

*Implicit Euclidean*, on universes that cannot be held: a fifth of the budget measures one-way tables, whose product
is where the data player begins. Then, as in MWEM, each round finds the query that is answered worst, measures it,
and the data player takes it in; its density is a base plus a combination of the measured queries
(`beliefs.euclidean`), so that a round costs a column of the Gram matrix and no cell of the universe.

Jain and Thakurta ask for the squared norm as a mirror map where the L2 norm of the queries is small; the product
base and the ridge are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from itertools import combinations
from math import prod
from typing import Any, cast

import numpy as np

from dualquery.beliefs.euclidean import ImplicitEuclidean, ProductBase, SignedDensity
from dualquery.beliefs.factored import Factored
from dualquery.beliefs.multiplicative_weights import (
    ONCE,
    Euclidean,
    MirrorDescent,
    MirrorMap,
    NegativeEntropy,
    PNorm,
    Schedule,
    StepSize,
    nearest_probabilities,
)
from dualquery.errors import BudgetError, DualQueryError, QueryError
from dualquery.fitting.fit import passes, product_start, told
from dualquery.fitting.fitter import Effort, Targets
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.error_bars import BAR
from dualquery.mechanisms.mechanism import (
    NO_RECORDS,
    Iterate,
    Outcome,
    Plan,
    Step,
    Task,
    answers_only,
    choice,
    hidden,
    last,
)
from dualquery.mechanisms.mwem import PASSES, MwemParameters, Updates, automatic_rounds, released_as_proven
from dualquery.mechanisms.mwem import plan as plan_of_mwem
from dualquery.mechanisms.rounds import (
    AskedQueries,
    MeasuredRounds,
    QuestionKind,
    learner,
    priced,
    usual_kind,
)
from dualquery.mechanisms.wishes import MirrorWishes, MwemWishes, RowsAndRoundsWishes
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import equal_prices
from dualquery.privacy.noise import Noise
from dualquery.queries.derived import SHORT, Interactions
from dualquery.queries.group import NONE
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from dualquery.types import Integers, Progress, Set

MOST_CELLS = 1 << 20  # of the universe: every step looks at every cell
USUAL_NORM = 1.5
FAILURE = 0.05  # β: the theorem holds except with this probability


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
    learning_rate: float | None  # η of the theorem

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
    updates = choice(Updates, wanted.updates, Updates.REPEATED, "--updates")
    if updates is Updates.FIGURE_1:
        raise DualQueryError("figure-1 is MWEM's; mirror descent has --updates repeated or once")
    once = updates is Updates.ONCE
    if once and wanted.iterate not in (None, Iterate.AVERAGE.value):
        raise DualQueryError("the theorem of --updates once speaks of the average; leave out --iterate")
    kind = choice(QuestionKind, wanted.measured, _usual(task), "--measured")
    if kind is QuestionKind.TABLES:
        raise QueryError(
            "mirror descent plays single queries and not whole tables; measure queries or parities"
        )
    like = plan_of_mwem(
        task,
        MwemWishes(
            rounds=wanted.rounds,
            iterate=Iterate.AVERAGE.value if once else wanted.iterate,
            updates=updates.value,
            measured=kind.value,
            synthetic_rows=wanted.synthetic_rows,
            part_cells=max(2, universe),
        ),
    )
    chosen = MirrorParameters(**vars(like.parameters), mirror_map=mirror_map, norm=norm, learning_rate=None)
    _ = chosen.mirror  # refuses a norm out of range
    if once:
        chosen = _by_the_theorem(task, chosen)
    slower = 30 if mirror_map is Map.P_NORM else 3
    learning = slower * PASSES * chosen.rounds**2 * universe * 5e-9
    return replace(
        cast("Plan[Any]", like),
        reason=f"{like.reason}, moved by the {mirror_map.value} map",
        parameters=chosen,
        max_error=min(1.0, chosen.promised_error or like.max_error),
        seconds=2.0 + learning + chosen.rounds * chosen.asked.size * 2e-8,
        bytes=80 * universe + 64 * chosen.asked.size,
    )


def _by_the_theorem(task: Task, chosen: MirrorParameters) -> MirrorParameters:
    """η, and the promise that comes with it."""
    asked, law, rounds = chosen.asked, chosen.law, chosen.rounds
    assert isinstance(asked, AskedQueries), "whole tables are refused"
    assert law is not None, "what is chosen is measured"
    cells = float(prod(task.domain.sizes.tolist()))
    accepted = cells * float(Factored(task.domain, part_cells=1).answers(asked.workload).max())
    radius, longest = chosen.mirror.reach(max(2.0, cells), accepted)
    unit = asked.workload.unit
    per_record = float(chosen.rate.nats) * asked.score.repeats * unit
    missed = math.log(4 * asked.size * rounds / FAILURE) / per_record
    # Of a balance, which is twice that of a count.
    turned = law.size_within(1 - FAILURE / (2 * rounds)) / unit
    return replace(
        chosen,
        learning_rate=radius / longest * math.sqrt(2 / rounds),
        promised_error=radius * longest * math.sqrt(2 / rounds) + (missed + turned) / task.rows,
    )


def _usual(task: Task) -> QuestionKind:
    kind = usual_kind(task.workload)
    return QuestionKind.QUERIES if kind is QuestionKind.TABLES else kind


def _belief(plan: Plan[MirrorParameters], curator: Curator) -> MirrorDescent:
    chosen, task = plan.parameters, plan.task
    rate = chosen.learning_rate
    schedule = ONCE if rate is not None else Schedule(StepSize.FULL, PASSES, chosen.noise / task.rows)
    return MirrorDescent(task.domain, chosen.mirror, schedule=schedule, floor=0.5 / task.rows, rate=rate)


WORDS = "MWEM with a mirror map of choice: entropy, Euclidean or p-norm (Jain, Thakurta 2012)"
MIRROR = learner("mirror", WORDS, MirrorWishes, plan, _belief, released_as_proven)


FINE = 1 << 12  # multipliers are whole numbers about as large as this


@dataclass(frozen=True)
class OneWayTables:
    """The interactions of single attributes, in shares that grow with the eighth root of their values.

    (Of a binary attribute the interaction is the balance 2·count − n, twice.)
    """

    interactions: Interactions
    rows: int

    @staticmethod
    def of(task: Task) -> OneWayTables:
        sets = tuple((int(j),) for j in task.workload.attributes if task.domain.sizes[j] > 1)
        multipliers = []
        for (j,) in sets:
            k = int(task.domain.sizes[j])
            length = k * (k - 1) if k <= SHORT else 1
            multipliers.append(max(1, round(FINE * (k - 1) ** 0.125 / length**0.5)))
        return OneWayTables(Interactions(task.domain, sets, tuple(multipliers)), task.rows)

    def base(self, noisy: Integers, floor: float) -> ProductBase:
        """The probabilities nearest to what was measured, none below the floor."""
        ones = {}
        for (j,), cells in self.interactions.in_records(noisy).items():
            size = len(cells)
            values = nearest_probabilities(cells / self.rows + 1 / size)
            ones[j] = (1 - size * min(floor, 0.5 / size)) * values + min(floor, 0.5 / size)
            ones[j] = np.asarray(ones[j] / ones[j].sum())
        return ProductBase(ones)


MOST_FITTED_CELLS = 4_000_000  # of the tables that rows are fitted to
COLD = 1e-4  # temperature of the fit, as a fraction of the rows


def tables_of(workload: Workload) -> list[Set]:
    """The sets that queries ask about and the pairs and single attributes within."""
    asked = [tuple(j for j in row if j != NONE) for row in workload.scope.tolist()]
    parts = {part for members in asked for order in (1, 2) for part in combinations(members, order)}
    return sorted(parts | set(asked) - {()}, key=lambda members: (len(members), members))


def check_rows(workload: Workload) -> None:
    """Refuse where the tables that rows would be fitted to are too many."""
    sizes = workload.domain.sizes
    cells = sum(int(np.prod(sizes[list(members)].astype(float))) for members in tables_of(workload))
    if cells > MOST_FITTED_CELLS:
        raise QueryError(
            f"rows would be fitted to {cells:,} cells, more than {MOST_FITTED_CELLS:,}; leave out --synthetic-rows "
            "for answers alone, or ask about fewer attributes"
        )


def rows_of(
    density: SignedDensity, workload: Workload, rows: int, rng: np.random.Generator, progress: Progress
) -> Records:
    domain, sets = workload.domain, tables_of(workload)
    tables = Tables(domain, tuple(sets))
    answers = density.answers(Workload(domain, (tables,), "tables"))
    ones, effort = density.base.ones, Effort.of(rows)
    targets = Targets(domain.sizes, ones)
    for t, members in enumerate(sets):
        targets.add_table(members, answers[tables.cells_of(t)].reshape(tables.shape_of(t)), 1.0)
    start, heat = product_start(domain, ones, effort, rng), effort.temperatures(COLD, 1.0)
    tick = told(lambda done, total: progress("fitting rows", done, total), effort.rounds)
    fitted = passes(None, targets, start, heat, rng, tick)
    return Records.from_rows(domain, effort.released(fitted))


BASE_SHARE = Fraction(1, 5)
MOST_ROUNDS = 2_000  # the Gram matrix is solved in every one
MOST_BYTES = 4 << 30  # of its columns


@dataclass(frozen=True, kw_only=True)
class EuclideanParameters(MeasuredRounds):
    """What a run of the implicit learner goes by."""

    synthetic_rows: int | None
    base: OneWayTables = hidden()
    base_noise: Noise = hidden()


def _plan_implicit(task: Task, wanted: RowsAndRoundsWishes) -> Plan[EuclideanParameters]:
    """A fifth for the base; each round half for its selection, half for its measurement."""
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what a product base could not answer
    rounds = _rounds(task, wanted)
    if wanted.synthetic_rows is not None:
        check_rows(task.workload)
    neighbours = task.budget.neighbours
    base = OneWayTables.of(task)
    base_noise = equal_prices(task.budget, 1, BASE_SHARE).noise(
        neighbours.sensitivity(base.interactions.bound())
    )
    game = priced(task, rounds, share=1 - BASE_SHARE)
    noise = game.noise / task.rows
    return Plan(
        task=task,
        reason=f"{rounds} rounds over a product base" + (", as asked" if wanted.rounds else ""),
        parameters=EuclideanParameters(
            **vars(game), synthetic_rows=wanted.synthetic_rows, base=base, base_noise=base_noise
        ),
        steps=(
            Step(
                "measure one-way tables", base_noise.event(neighbours.sensitivity(base.interactions.bound()))
            ),
            *game.steps(task, "choose what the density gets wrong"),
        ),
        mean_error=min(0.5, noise + 0.01 / math.sqrt(rounds)),
        max_error=min(1.0, 3 * game.noise / task.rows + 2 * game.found(task)),
        seconds=2.0 + rounds * (task.workload.size * 3e-8 * (1 + rounds / 20) + rounds**2 * 2e-7),
        bytes=_bytes(task, rounds),
        notes=() if wanted.synthetic_rows else (NO_RECORDS,),
        records=wanted.synthetic_rows is not None,
    )


def _rounds(task: Task, wanted: RowsAndRoundsWishes) -> int:
    rounds = automatic_rounds(task) if wanted.rounds is None else wanted.rounds
    if wanted.rounds is None:
        rounds = min(rounds, MOST_ROUNDS, max(1, MOST_BYTES // (16 * task.workload.size)))
    if not 1 <= rounds <= MOST_ROUNDS:
        raise DualQueryError(
            f"the implicit learner plays 1 to {MOST_ROUNDS:,} rounds, and --rounds is {rounds}"
        )
    if _bytes(task, rounds) > MOST_BYTES:
        raise BudgetError(
            f"{rounds:,} rounds over {task.workload.size:,} queries need a Gram matrix of {_bytes(task, rounds):,} "
            "bytes; play fewer rounds, or ask fewer queries"
        )
    return rounds


def _bytes(task: Task, rounds: int) -> int:
    return 16 * rounds * task.workload.size + 64 * task.workload.size


def _base_belief(plan: Plan[EuclideanParameters], curator: Curator) -> ImplicitEuclidean:
    chosen, task = plan.parameters, plan.task
    noisy = curator.measure(chosen.base.interactions, noise=chosen.base_noise)
    assert chosen.law is not None
    variance = (chosen.law.deviation / (2 * task.rows)) ** 2  # of an answer: half of a balance
    return ImplicitEuclidean(task.workload, chosen.base.base(noisy, floor=0.5 / task.rows), variance=variance)


def _outcome(
    plan: Plan[EuclideanParameters],
    replied: Iterator[SignedDensity],
    rng: np.random.Generator,
    progress: Progress,
) -> Outcome:
    """The answers and how far off they may be, or rows that are fitted to the answers."""
    density, workload, rows = last(replied), plan.task.workload, plan.parameters.synthetic_rows
    if rows is not None:
        fitted = rows_of(density, workload, rows, rng, progress)
        return Outcome(artefact=SyntheticRecords(fitted), belief=density)
    bars = BAR * np.sqrt(density.variances())
    return answers_only(workload, density.answers(workload), np.maximum(bars, 1 / plan.task.rows))


EUCLIDEAN = learner(
    "euclidean",
    "mirror descent with the squared norm, through a Gram matrix over a product base (Jain, Thakurta 2012)",
    RowsAndRoundsWishes,
    _plan_implicit,
    _base_belief,
    _outcome,
)
