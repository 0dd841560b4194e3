"""The way of projection under pure ε: signed tables with Laplace noise, at once, and then where the rows are wrong.

In each round the exponential mechanism chooses the set whose signed table the rows get most wrong, less half of the
noise that measuring it would bring; it is measured, and the rows answer the residual of everything heard so far
(`pure_shares` has the rule). What it costs and how good it should be follow from public quantities alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Integers
from dualquery.errors import DualQueryError
from dualquery.fitting.fit import RefittingDataPlayer
from dualquery.fitting.measured import (
    Measured,
    MeasuredTables,
    cell_variance,
    determined,
    interactions_told,
    variance_told,
)
from dualquery.fitting.pace import COUNT_SECONDS, SCOUT, VISIT_SECONDS, Chains, Fitting, Pace
from dualquery.fitting.rows import product_start
from dualquery.game.moves import Cells, Set
from dualquery.game.play import play
from dualquery.game.query_players import BestResponseQueryPlayer
from dualquery.mechanisms.mechanism import Plan, Step, Task, hidden
from dualquery.mechanisms.projection.plans import MAX_ERROR, built
from dualquery.mechanisms.projection.pure_shares import Rounds, SignedPlan, errors_of, events_of, plan_signed
from dualquery.mechanisms.projection.tables import of_tables
from dualquery.mechanisms.wishes import ProjectionWishes
from dualquery.privacy.curator import Curator
from dualquery.privacy.scores import MOST_PUBLIC_ROWS
from dualquery.privacy.selection import Selected
from dualquery.privacy.signed_tables import SignedTableErrors, SignedTables
from dualquery.table.records import Records

ROUGHLY = 0.05  # the relative deviation of a declared number of records
SAMPLE = 2_000  # sets whose noise is worked out; of more, as many evenly spread ones
MEAN_ERROR = 0.72  # of a cell of a table of four, in units of its noise; larger tables are mostly empty
EMPTINESS = 0.35


@dataclass(frozen=True, kw_only=True)
class BySignedTables:
    """Signed tables with Laplace noise, where the budget is pure ε."""

    measured: str = "signed tables"
    sets: int
    rounds: int
    cell_noise: float
    tables: SignedPlan = hidden()
    pace: Pace

    def measure(self, curator: Curator, task: Task, rng: np.random.Generator) -> Fitting:
        return of_tables(measure(self.tables, curator, task, rng), at_once=True)


def plan_by_signed_tables(task: Task, wanted: ProjectionWishes, pace: Pace) -> Plan[BySignedTables]:
    """Signed tables at once, or one after another where few can be afforded."""
    if wanted.items_per_record is not None:
        raise DualQueryError(
            "--items-per-record needs Gaussian noise; leave it out, or ask for zcdp accounting"
        )
    planned = plan_signed(task)
    noise, rounds = cell_noise(planned, task), planned.rounds
    words = f"measure {len(planned.first.sets):,} signed tables at once"
    steps = [Step(words, planned.noise.event(planned.first.sensitivity(task.budget.neighbours)))]
    if rounds is not None:
        choice, measurement = events_of(rounds, task)
        steps += [
            Step("choose a signed table on which the rows are wrong", choice, rounds.number),
            Step("measure it", measurement, rounds.number),
        ]
    return built(
        task,
        BySignedTables(
            sets=len(planned.first.sets),
            rounds=0 if rounds is None else rounds.number,
            cell_noise=noise,
            tables=planned,
            pace=pace,
        ),
        reason=reason_of(planned),
        steps=tuple(steps),
        errors=(mean_error(planned, task, noise), MAX_ERROR * noise),
        seconds=seconds_of(planned, task, pace, noise),
        need=bytes_of(planned, task, pace),
        memory=wanted.memory,
    )


def measure(plan: SignedPlan, curator: Curator, task: Task, rng: np.random.Generator) -> MeasuredTables:
    """Everything that the plan asks of the curator, as interactions."""
    known = MeasuredTables.rows(task.domain, float(task.rows), _variance_of_rows(task))
    noisy = plan.first.in_records(curator.measure(plan.first, noise=plan.noise))
    variances = plan.variances()
    heard = (Measured(members, entries, variances[members]) for members, entries in noisy.items())
    known = known.joined(told for each in heard for told in interactions_told(each, task.domain)).counted()
    return known if plan.rounds is None else _play(plan.rounds, known, curator, rng)


def _variance_of_rows(task: Task) -> float:
    """How well the number of records is known: exactly, as it was measured, or as somebody declared it, roughly."""
    if task.budget.neighbours.size_is_public:
        return 0.0
    return task.rows_variance or (ROUGHLY * task.rows) ** 2


def _play(
    rounds: Rounds, before: MeasuredTables, curator: Curator, rng: np.random.Generator
) -> MeasuredTables:
    """Choose, measure, refit, repeat; the data player hears of every table."""
    rows = min(max(1, round(before.total)), MOST_PUBLIC_ROWS)
    scouts = product_start(before.domain, before.ones(), SCOUT, rng)
    questions = SignedQuestions(rounds, rows, before.ones(), scouts)
    query_player: BestResponseQueryPlayer[Measured, Chains]
    query_player = BestResponseQueryPlayer(curator, questions, rate=rounds.rate, noise=rounds.noise)
    data_player = RefittingDataPlayer(before, scouts, rng)
    play(query_player, data_player, rounds=rounds.number, remembers=1)
    return data_player.known


def penalties_of(rounds: Rounds, rows: int, ones: dict[int, Cells]) -> NDArray[np.float64]:
    """½ Σ_cells min(b / 2^binary, n Π p_j): half of the noise of a table, but no more than half of its cells hold.

    Where a cell is smaller than its noise, the fit keeps to what independence says.
    """
    sizes, scale = rounds.candidates.domain.sizes, rounds.noise.mean_size
    out = []
    for members in rounds.candidates.sets:
        expected: Cells = np.array(float(rows))
        for j in members:
            expected = np.multiply.outer(expected, ones[j])
        binary = sum(int(sizes[j]) == 2 for j in members)
        out.append(0.5 * float(np.minimum(scale / 2**binary, expected).sum()))
    return np.array(out)


class SignedQuestions:
    """Signed tables that rows may get wrong; each is measured at most once."""

    def __init__(self, rounds: Rounds, rows: int, ones: dict[int, Cells], start: Chains) -> None:
        self._tables = rounds.candidates
        self._noise = rounds.noise
        self._errors = errors_of(rounds.candidates, rows, penalties_of(rounds, rows, ones))
        self._start = start
        self._left = np.arange(len(self._tables.sets), dtype=np.int64)

    def score(self, reply: Chains | None) -> SignedTableErrors:
        rows = Records.from_rows(self._tables.domain, (self._start if reply is None else reply)[0])
        answers = self._tables.counts(rows) / rows.rows
        return self._errors.told(answers, self._left)  # type: ignore[return-value]

    def statistic(self, chosen: Selected) -> SignedTables:
        return SignedTables(self._tables.domain, (self._members(chosen),), (1,))

    def heard(self, chosen: Selected, noisy: Integers) -> Measured:
        ((members, entries),) = self.statistic(chosen).in_records(noisy).items()
        self._left = self._left[self._left != self._left[chosen.queries[0]]]
        return Measured(members, entries, self._noise.deviation**2)

    def _members(self, chosen: Selected) -> tuple[int, ...]:
        return self._tables.sets[int(self._left[chosen.queries[0]])]


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


def seconds_of(plan: SignedPlan, task: Task, pace: Pace, noise: float) -> float:
    """Of the fit, its rehearsal, the counting and the rounds."""
    sizes = task.domain.sizes.tolist()
    visits = float(sum(8 * len(s) + sum(sizes[j] for j in s) for s in plan.first.sets))
    counting = task.rows * len(plan.first.sets) * COUNT_SECONDS
    choosing = 0.0
    if plan.rounds is not None:
        number, tables = plan.rounds.number, plan.rounds.candidates
        order = len(tables.sets[0])
        visits += number * order * (8 + float(np.mean(sizes)))
        refit = SCOUT.work * (visits * VISIT_SECONDS + 2e-6) + 0.1
        choosing = number * (refit + len(tables.sets) * (SCOUT.rows * COUNT_SECONDS + 3e-5))
        counting += task.rows * len(tables.sets) * COUNT_SECONDS
    return pace.seconds(visits, noise) + counting + choosing
