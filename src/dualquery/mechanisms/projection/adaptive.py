"""Adaptive projection: both players best-respond, and the query player pays for it.

One-way tables are measured first. Then, round after round, a table on which the rows are wrong is chosen by
the exponential mechanism (its summed absolute error, less the noise that measuring it would bring), measured,
and the rows answer the residual of everything measured so far. The fit is that of `projection`.
Fewer tables are measured, each with less noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from dualquery.counting.counter import Integers
from dualquery.errors import BudgetError, DualQueryError
from dualquery.game.best_response_query_player import BestResponseQueryPlayer
from dualquery.game.moves import Heard
from dualquery.game.play import play
from dualquery.game.residual import Chains, Set
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.mechanism import (
    Mechanism,
    Outcome,
    Plan,
    Progress,
    Step,
    Task,
    hidden,
)
from dualquery.mechanisms.projection.allocation import TablePlan, closure, one_way_plan
from dualquery.mechanisms.projection.by_tables import MAX_ERROR, MEAN_ERROR
from dualquery.mechanisms.projection.fit import product_start
from dualquery.mechanisms.projection.pace import Pace
from dualquery.mechanisms.projection.refitting import (
    SCOUT,
    SCOUT_PASSES,
    SCOUT_ROWS,
    Known,
    RefittingDataPlayer,
)
from dualquery.mechanisms.projection.shorter import with_fewer_rows
from dualquery.mechanisms.replicas import replica_bytes
from dualquery.mechanisms.wishes import AdaptiveProjectionWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.noise import Noise
from dualquery.privacy.prices import equal_prices
from dualquery.privacy.scores import MOST_PUBLIC_ROWS, TableErrors, rate_within, selection_event
from dualquery.privacy.selection import Rate, Selected
from dualquery.privacy.statistics import TableCells
from dualquery.queries.tables import Tables
from dualquery.table.records import Records

SHARE_OF_ONES = Fraction(1, 5)
MOST_CELLS = 1_000_000  # of a table that may be chosen
MOST_CELLS_IN_ALL = 20_000_000


@dataclass(frozen=True)
class AdaptiveParameters:
    """What a run of adaptive projection goes by."""

    candidates: int
    measurements: int
    cell_noise: float
    pace: Pace
    tables: Tables = hidden()
    ones: TablePlan = hidden()
    rate: Rate = hidden()  # of each choice
    noise: Noise = hidden()  # of each chosen table

    def shorter(self) -> AdaptiveParameters:
        return replace(self, pace=self.pace.shorter(self.cell_noise))


def candidates_of(task: Task) -> Tables:
    """The tables that may be chosen: all sets of two and more attributes of the workload that are not too large."""
    sizes = task.domain.sizes.astype(np.int64)
    orders = closure(task.workload.scope)
    sets = [
        members
        for order in sorted(orders)
        if order > 1
        for members in orders[order]
        if all(sizes[j] > 1 for j in members) and math.prod(int(sizes[j]) for j in members) <= MOST_CELLS
    ]
    sets.sort(key=lambda members: (len(members), math.prod(int(sizes[j]) for j in members), members))
    total = np.cumsum([math.prod(int(sizes[j]) for j in members) for members in sets])
    kept = sets[: int(np.searchsorted(total, MOST_CELLS_IN_ALL, side="right"))]
    if not kept:
        raise DualQueryError(
            "the workload asks about no two attributes together; use the mechanism 'projection'"
        )
    return Tables(task.domain, tuple(kept))


def rounds_for(task: Task, candidates: int) -> int:
    """A public rule: more rounds where more data and budget make a measurement precise, at most two an attribute."""
    rho = float(rho_of(epsilon=task.budget.epsilon, delta=task.budget.delta))
    precise = task.rows * math.sqrt(rho) / (task.budget.neighbours.records_per_person or 1)
    return max(1, min(candidates, 2 * task.domain.width, round(precise ** (2 / 3) / 8)))


def errors_of(tables: Tables, rows: int, noise: Noise) -> TableErrors:
    """The score of a choice: what is wrong, less what noise would add."""
    return TableErrors(tables, rows, noise.mean_size * np.diff(tables.starts))


def parameters_of(task: Task, wanted: AdaptiveProjectionWishes) -> AdaptiveParameters:
    """Every choice of a run."""
    tables, neighbours = candidates_of(task), task.budget.neighbours
    candidates = len(tables.sets)
    rounds = wanted.rounds or rounds_for(task, candidates)
    if rounds < 1 or rounds > candidates:
        raise DualQueryError(
            f"--rounds must lie between 1 and {candidates}, the number of tables to choose from"
        )
    price = equal_prices(task.budget, 2 * rounds, 1 - SHARE_OF_ONES)
    noise = price.noise(TableCells(tables, 0).sensitivity(neighbours))
    rate = rate_within(price, errors_of(tables, task.rows, noise), neighbours)
    pace, cell_noise = Pace.of(wanted.synthetic_rows), noise.deviation / task.rows
    ones = one_way_plan(task, SHARE_OF_ONES)
    return AdaptiveParameters(candidates, rounds, cell_noise, pace, tables, ones, rate, noise)


def plan(task: Task, wanted: AdaptiveProjectionWishes) -> Plan[AdaptiveParameters]:
    """The number of rounds and what they cost; which tables are chosen depends on the data."""
    if task.budget.accounting is not Accounting.ZCDP:
        raise BudgetError("adaptive projection is paid for by zcdp accounting; choose that")
    chosen = parameters_of(task, wanted)
    tables, neighbours, rounds = chosen.tables, task.budget.neighbours, chosen.measurements
    errors = errors_of(tables, task.rows, chosen.noise)
    selection = selection_event(errors, neighbours, rate=chosen.rate, draws=1)
    assert selection is not None, "errors can move"
    measurement = chosen.noise.event(TableCells(tables, 0).sensitivity(neighbours))
    visits = float(rounds * 3 * (8 + task.domain.sizes.mean()))
    scouting = SCOUT_ROWS * SCOUT_PASSES * visits * 2.5e-9 + chosen.candidates * SCOUT_ROWS * 2e-9
    cells = tables.size / chosen.candidates
    return Plan(
        mechanism="adaptive-projection",
        task=task,
        reason=f"{rounds} of {chosen.candidates:,} tables are chosen where the rows are most wrong, and measured, "
        "one a round",
        parameters=chosen,
        steps=(
            chosen.ones.step(task),
            Step("choose a table on which the rows are wrong", selection, rounds),
            Step("measure it", measurement, rounds),
        ),
        mean_error=min(3 * MEAN_ERROR * chosen.cell_noise, 0.5),
        max_error=min(4 * MAX_ERROR * chosen.cell_noise, 1.0),
        seconds=chosen.pace.seconds(visits, chosen.cell_noise)
        + rounds * scouting
        + task.rows * chosen.candidates * 2e-9,
        bytes=chosen.pace.bytes(task.domain.width, rounds * 3 * cells)
        + 24 * tables.size
        + replica_bytes(task),
    )


class RowTables:
    """Tables that rows may get wrong; each is measured at most once."""

    def __init__(self, errors: TableErrors, start: Chains) -> None:
        self._errors = errors
        self._tables = errors.tables
        self._start = start
        self._left = np.arange(len(errors.tables.sets), dtype=np.int64)

    def score(self, reply: Chains | None) -> TableErrors:
        rows = Records.from_rows(self._tables.domain, (self._start if reply is None else reply)[0])
        return self._errors.told(self._tables.counts(rows) / rows.rows, self._left)

    def statistic(self, chosen: Selected) -> TableCells:
        return TableCells(self._tables, self._table(chosen))

    def heard(self, chosen: Selected, noisy: Integers) -> Heard:
        table = self._table(chosen)
        self._left = self._left[self._left != table]
        value = (noisy / self._errors.public_rows).reshape(self._tables.shape_of(table))
        return Heard(self._tables.sets[table], None, value)

    def _table(self, chosen: Selected) -> int:
        return int(self._left[chosen.queries[0]])


def run(
    plan: Plan[AdaptiveParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Choose, measure, fit, repeat; then fit at full length."""
    chosen, task = plan.parameters, plan.task
    measured = chosen.ones.measure(curator, task)
    rows = min(max(1, round(measured.total)), MOST_PUBLIC_ROWS)
    known = Known(measured, chosen.noise.deviation / rows)
    scouts = product_start(task.domain, known.ones, SCOUT, rng)
    questions = RowTables(errors_of(chosen.tables, rows, chosen.noise), scouts)
    query_player: BestResponseQueryPlayer[Heard, Chains]
    query_player = BestResponseQueryPlayer(curator, questions, rate=chosen.rate, noise=chosen.noise)
    transcript = play(
        query_player,
        RefittingDataPlayer(known, scouts, rng),
        rounds=chosen.measurements,
        remembers=1,
        progress=lambda done, total: progress("choosing tables", done, total),
    )
    noisy: dict[Set, np.ndarray] = {each.members: each.value for each in transcript.challenges}
    released = known.fitted(
        noisy, chosen.pace, rng, lambda done, total: progress("fitting rows", done, total)
    )
    return Outcome(artefact=SyntheticRecords(released))


WORDS = (
    "chooses the tables on which its rows are most wrong, one a round, measures them and fits the rows again"
)
ADAPTIVE_PROJECTION = Mechanism(
    "adaptive-projection",
    WORDS,
    AdaptiveProjectionWishes,
    plan,
    run,
    paid_by=(Accounting.ZCDP,),
    replica=with_fewer_rows,
)
