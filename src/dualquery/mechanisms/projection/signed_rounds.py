"""Measuring by a plan of signed tables: some at once, and then, round after round, where the rows are wrong.

In each round the exponential mechanism chooses the set whose signed table the rows get most wrong, less half of the
noise that measuring it would bring; it is measured, and the rows answer the residual of everything heard so far.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.counting.counter import Integers
from dualquery.game.best_response_query_player import BestResponseQueryPlayer
from dualquery.game.moves import Cells
from dualquery.game.play import play
from dualquery.game.residual import Chains
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection.signed_allocation import Rounds, SignedPlan, errors_of
from dualquery.mechanisms.projection.signed_interactions import Combination, SignedTable
from dualquery.mechanisms.projection.signed_refitting import SignedRefittingDataPlayer, scouts_of
from dualquery.mechanisms.projection.tables import MeasuredTables
from dualquery.privacy.curator import Curator
from dualquery.privacy.scores import MOST_PUBLIC_ROWS
from dualquery.privacy.selection import Selected
from dualquery.privacy.signed_tables import SignedTableErrors, SignedTables
from dualquery.table.records import Records

ROUGHLY = 0.05  # the relative deviation of a declared number of records


def measure(plan: SignedPlan, curator: Curator, task: Task, rng: np.random.Generator) -> MeasuredTables:
    """Everything that the plan asks of the curator, as interactions."""
    combination = Combination(task.domain, task.rows, _variance_of_rows(task))
    noisy = plan.first.in_records(curator.measure(plan.first, noise=plan.noise))
    variances = plan.variances()
    combination.hear(*(SignedTable(s, entries, variances[s]) for s, entries in noisy.items()))
    if plan.rounds is not None:
        _play(plan.rounds, combination, curator, rng)
    return combination.measured()


def _variance_of_rows(task: Task) -> float:
    """How well the number of records is known: exactly, as it was measured, or as somebody declared it, roughly."""
    if task.budget.neighbours.size_is_public:
        return 0.0
    return task.rows_variance or (ROUGHLY * task.rows) ** 2


def _play(rounds: Rounds, combination: Combination, curator: Curator, rng: np.random.Generator) -> None:
    """Choose, measure, refit, repeat; the combination hears of every table."""
    before = combination.measured()
    rows = min(max(1, round(before.total)), MOST_PUBLIC_ROWS)
    scouts = scouts_of(before.domain, before.ones(), rng)
    questions = SignedQuestions(rounds, rows, before.ones(), scouts)
    query_player: BestResponseQueryPlayer[SignedTable, Chains]
    query_player = BestResponseQueryPlayer(curator, questions, rate=rounds.rate, noise=rounds.noise)
    play(query_player, SignedRefittingDataPlayer(combination, scouts, rng), rounds=rounds.number, remembers=1)


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

    def heard(self, chosen: Selected, noisy: Integers) -> SignedTable:
        ((members, entries),) = self.statistic(chosen).in_records(noisy).items()
        self._left = self._left[self._left != self._left[chosen.queries[0]]]
        return SignedTable(members, entries, self._noise.deviation**2)

    def _members(self, chosen: Selected) -> tuple[int, ...]:
        return self._tables.sets[int(self._left[chosen.queries[0]])]
