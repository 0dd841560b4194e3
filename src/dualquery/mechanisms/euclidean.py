"""The implicit Euclidean learner: mirror descent on universes that cannot be held.

A fifth of the budget measures one-way tables, whose product is where the data player begins. Then, as in MWEM, each
round finds the query that is answered worst, measures it, and the data player takes it in; its density is a base
plus a combination of the measured queries (`beliefs.euclidean`), so that a round costs a column of the
Gram matrix and no cell of the universe.

The learner is of Jain and Thakurta (*Mirror Descent Based Database Privacy*, 2012), who ask for the squared norm as a
mirror map where the L2 norm of the queries is small; the product base and the ridge are ours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from statistics import NormalDist

import numpy as np

from dualquery.beliefs.euclidean import ImplicitEuclidean, ProductBase, SignedDensity
from dualquery.beliefs.multiplicative_weights import nearest_probabilities
from dualquery.errors import BudgetError, DualQueryError, QueryError
from dualquery.fitting.cpu import CPU
from dualquery.fitting.fit import passes, product_start, told
from dualquery.fitting.fitter import Effort, Targets
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.error_bars import LEVEL
from dualquery.mechanisms.mechanism import Outcome, Plan, Step, Task, hidden
from dualquery.mechanisms.mwem import automatic_rounds
from dualquery.mechanisms.outcomes import NO_RECORDS, answers_only, last
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced
from dualquery.mechanisms.wishes import EuclideanWishes
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Noise
from dualquery.privacy.prices import equal_prices
from dualquery.queries.derived import SHORT, Interactions
from dualquery.queries.group import NONE
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from dualquery.types import Integers, Progress, Set

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


MOST_CELLS = 4_000_000  # of the tables that rows are fitted to
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
    if cells > MOST_CELLS:
        raise QueryError(
            f"rows would be fitted to {cells:,} cells, more than {MOST_CELLS:,}; leave out --synthetic-rows for "
            "answers alone, or ask about fewer attributes"
        )


def rows_of(
    density: SignedDensity, workload: Workload, rows: int, rng: np.random.Generator, progress: Progress
) -> Records:
    """Rows fitted to every table that the workload asks about."""
    domain, sets = workload.domain, tables_of(workload)
    tables = Tables(domain, tuple(sets))
    answers = density.answers(Workload(domain, (tables,), "tables"))
    ones, effort = density.base.ones, Effort.of(rows)
    targets = Targets(domain.sizes, ones)
    for t, members in enumerate(sets):
        targets.add_table(members, answers[tables.cells_of(t)].reshape(tables.shape_of(t)), 1.0)
    start, heat = product_start(domain, ones, effort, rng), effort.temperatures(COLD, 1.0)
    tick = told(lambda done, total: progress("fitting rows", done, total), effort.rounds)
    fitted = passes(CPU, targets, start, heat, rng, tick)
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


def plan(task: Task, wanted: EuclideanWishes) -> Plan[EuclideanParameters]:
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
        mechanism="euclidean",
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
    )


def _rounds(task: Task, wanted: EuclideanWishes) -> int:
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


def _belief(plan: Plan[EuclideanParameters], curator: Curator) -> ImplicitEuclidean:
    """Measure the base."""
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
    bars = NormalDist().inv_cdf(0.5 + LEVEL / 2) * np.sqrt(density.variances())
    return answers_only(workload, density.answers(workload), np.maximum(bars, 1 / plan.task.rows))


WORDS = (
    "mirror descent with the squared norm, through a Gram matrix over a product base (Jain, Thakurta 2012)"
)
EUCLIDEAN = learner("euclidean", WORDS, EuclideanWishes, plan, _belief, _outcome)
