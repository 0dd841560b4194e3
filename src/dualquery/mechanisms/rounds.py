"""Select, measure, learn: the rounds that every learner plays, written once.

Each round the exponential mechanism finds a question that the data player's last reply gets wrong, it is measured,
and the data player takes the measurement in. The learners of the papers differ in what they believe (`beliefs/`), in
what is asked (single queries and their negations, whole tables, parities), and in what is released at the end. A
learner is a plan, a belief and an outcome; `learner` makes them a mechanism.

    MWEM               a distribution over records, by multiplicative weights
    PMW                the same; nothing is measured, the query that is answered too high is a loss
    mirror             the same, moved by a mirror map
    euclidean          a density over a product base, by its Gram matrix
    monomials          weights over signed monomials
    touched-weights    weights over the cells that lists touch
    coordinate-wise    a distribution for each column of points
    frieze-kannan      a graph as a sum of rectangles
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from itertools import combinations, islice
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.factored import Factored, Products, RunningAnswers
from dualquery.errors import BudgetError, DualQueryError, QueryError
from dualquery.fitting.measured import Measured, Numbers
from dualquery.game import Belief, Heard, LearningDataPlayer, Snapshot, TableQuery, played
from dualquery.game.query_players import BestResponseQueryPlayer, Questions
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Step, Task, Wishes, hidden
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Selection
from dualquery.privacy.ledger import equal_prices
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import AbsoluteErrors, SignedErrors, TableErrors, rate_within, selection_event
from dualquery.privacy.selection import Rate, Selected
from dualquery.queries.conjunctions import Parities
from dualquery.queries.derived import Balance, QueryCount, TableCells
from dualquery.queries.group import NONE, padded
from dualquery.queries.statistics import Countable
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.types import Cells, Fractions, Integers, Progress, Set

HALF = Fraction(1, 2)
Held = TypeVar("Held", bound=Snapshot)  # what a belief is when it is seen


@dataclass(frozen=True, kw_only=True)
class RoundParameters:
    """What a game of equal rounds goes by."""

    rounds: int
    asked: Asked = hidden()
    rate: Rate = hidden()  # of each selection
    law: Noise | None = hidden()  # of each measurement; None: nothing is measured

    def selection(self, task: Task) -> Selection:
        event = selection_event(self.asked.score, task.budget.neighbours, rate=self.rate, draws=1)
        assert event is not None, "errors can move"
        return event

    def found(self, task: Task) -> float:
        """How far, as a fraction, the question chosen may lie behind the worst: ln(2 |Q|) / (range · n)."""
        return math.log(2 * self.asked.size) / (float(self.selection(task).range) * task.rows)

    def steps(self, task: Task, choosing: str) -> tuple[Step, ...]:
        """As a plan shows them."""
        chosen = Step(choosing, self.selection(task), self.rounds)
        if self.law is None:
            return (chosen,)
        moved = task.budget.neighbours.sensitivity(self.asked.statistic.bound())
        return chosen, Step("measure it", self.law.event(moved), self.rounds)


RoundsT = TypeVar("RoundsT", bound=RoundParameters)


@dataclass(frozen=True, kw_only=True)
class MeasuredRounds(RoundParameters):
    """Rounds that measure what they choose."""

    noise: float  # expected absolute noise of one measured number, in records


def priced(
    task: Task,
    rounds: int,
    asked: Asked | None = None,
    *,
    share: Fraction = Fraction(1),
    selecting: Fraction = HALF,
) -> MeasuredRounds:
    """Equal rounds for a share of the budget, of which `selecting` finds questions and the rest measures them.

    The queries of the task are asked, unless something else is given.
    """
    if rounds < 1:
        raise DualQueryError(f"at least one round is played, and --rounds is {rounds}")
    asked = asked or AskedQueries(task.workload, task.rows)
    neighbours = task.budget.neighbours
    selection = equal_prices(task.budget, rounds, share * selecting)
    measurement = equal_prices(task.budget, rounds, share * (1 - selecting))
    law = measurement.noise(neighbours.sensitivity(asked.statistic.bound()))
    noise = asked.noise_in_records(law)
    asked = asked.worthwhile(noise)
    rate = rate_within(selection, asked.score, neighbours)
    return MeasuredRounds(rounds=rounds, noise=noise, asked=asked, rate=rate, law=law)


LEARNED = 10.0  # n/T of these are wrong after T rounds, where a learner has no better number of its own


def usual_rounds(
    task: Task,
    *,
    wrong: float = LEARNED,
    typical: float = 1.0,
    power: float = 1.0,
    most: int,
    asked: Asked | None = None,
) -> int:
    """T from public numbers: rounds go on while the noise of one measurement is below the gap still expected.

    After T rounds a query is expected to be off by min(typical, wrong/T^power) · n records; `typical` is the fraction
    of the table that one is about, so that any of them pays up to there. Where queries are about less than the noise
    of a single measurement, only those pay that the selection finds, by ln(2|Q|)/range (`found`): by Zipf's law the
    T-th largest of them holds n/(T ln 2|Q|). `wrong` and `power` were measured (docs/experiments: cuts, disjunctions,
    sparse, mwem_rounds); noise grows and gaps fall with T, so that the last T that pays is found by halving.
    """

    def too_many(rounds: int) -> bool:
        try:
            game = priced(task, rounds, asked)
        except BudgetError:
            return True
        gap, largest = wrong / rounds**power, 1 / (rounds * math.log(2 * game.asked.size))
        if game.noise <= task.rows * min(typical, gap):
            return False
        return gap < typical or game.found(task) > largest

    return max(1, bisect_left(range(1, most + 1), True, key=too_many))


def replies(
    game: RoundParameters,
    belief: Belief[Any, Held],
    curator: Curator,
    progress: Progress,
    questions: Questions[Any, Any] | None = None,
) -> Iterator[Held]:
    """What the data player replies, round after round."""
    asked: Questions[Any, Any] = questions or game.asked.questions(belief.snapshot())
    query_player = BestResponseQueryPlayer(curator, asked, rate=game.rate, noise=game.law)
    for transcript in islice(played(query_player, LearningDataPlayer(belief), remembers=1), game.rounds):
        yield transcript.last_reply()
        progress("playing", transcript.rounds, game.rounds)


def learner(
    name: str,
    words: str,
    wishes: type[Wishes],
    plan: Callable[[Task, Wishes], Plan[RoundsT]],
    belief: Callable[[Plan[RoundsT], Curator], Belief[Any, Held]],
    outcome: Callable[[Plan[RoundsT], Iterator[Held], np.random.Generator, Progress], Outcome],
    *,
    paid_by: tuple[Accounting, ...] = (Accounting.ZCDP, Accounting.PURE),
    plays: tuple[str, ...] = ("records",),
) -> Mechanism[Wishes, RoundsT]:
    """The mechanism of a learner: where its belief begins, and what is released of its replies."""

    def run(plan: Plan[RoundsT], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
        game, believed = plan.parameters, belief(plan, curator)
        questions = game.asked.questions(believed.snapshot())
        made = outcome(plan, replies(game, believed, curator, progress, questions), rng, progress)
        kept = () if game.law is None else questions.kept(game.law)
        return replace(made, measured=(*made.measured, *kept))

    return Mechanism(name, words, wishes, plan, run, paid_by=paid_by, plays=plays)


# What is asked


MOST_SETS = 2_000_000  # of attributes, all subsets counted


class QuestionKind(Enum):
    """What one round of MWEM selects and measures."""

    QUERIES = "queries"
    TABLES = "tables"
    PARITIES = "parities"
    QUERIES_AND_PARITIES = "queries-and-parities"


def usual_kind(workload: Workload) -> QuestionKind:
    """Queries where the workload lists queries; of tables whole ones, or cells and parities where all is binary.

    A parity speaks of all cells of its table at once, a large cell of itself; which of them is more wrong
    depends on the data, and is for the selection to find out.
    """
    if all(group.table_starts() is None for group in workload.groups):
        return QuestionKind.QUERIES
    binary = bool(np.all(workload.domain.sizes[workload.attributes] == 2))
    return QuestionKind.QUERIES_AND_PARITIES if binary else QuestionKind.TABLES


def _parities(domain: Domain, sets: list[Set]) -> Parities:
    """The parity of each set of attributes, all of which must be binary."""
    for j in sorted({j for members in sets for j in members}):
        if domain.sizes[j] != 2:
            raise QueryError(
                f"parities need binary attributes, and '{domain.name(j)}' is not; measure tables or queries"
            )
    return Parities(domain, padded(sets))


def _sets(workload: Workload) -> Iterator[Set]:
    for row in workload.scope.tolist():
        yield tuple(j for j in row if j != NONE)


def _subsets(workload: Workload) -> set[Set]:
    """All sets of attributes that queries ask about, and all of their subsets but the empty one."""
    if sum(1 << len(members) for members in _sets(workload)) > MOST_SETS:
        raise QueryError(
            f"the workload has more than {MOST_SETS:,} tables and smaller tables within; "
            "measure its queries instead, or ask about fewer attributes"
        )
    return {
        part
        for members in _sets(workload)
        for size in range(1, len(members) + 1)
        for part in combinations(members, size)
    }


@dataclass(frozen=True)
class AskedQueries:
    """Each query of a workload is a question of its own, and so is its negation."""

    workload: Workload
    public_rows: int

    @property
    def size(self) -> int:
        return self.workload.size

    @property
    def fewest_cells(self) -> int:
        """The size of the smallest table that holds a whole query."""
        # Padding -1 meets the one at the end.
        sizes = np.append(self.workload.domain.sizes, 1).astype(np.float64)
        return int(min(sizes[self.workload.scope].prod(axis=1).min(), 2.0**62))

    @property
    def score(self) -> SignedErrors:
        """What every selection goes by, as far as its price is concerned."""
        return SignedErrors.unheard(self.workload, self.public_rows)

    def score_of(self, answers: Fractions, among: NDArray[np.int64]) -> SignedErrors:
        """How wrong these answers are, for a choice among some queries."""
        return SignedErrors.of_answers(self.workload, self.public_rows, answers, among)

    @property
    def statistic(self) -> Countable:
        """What every round measures, as far as its price is concerned."""
        return self.measured(0)

    def measured(self, query: int) -> Countable:
        return Balance(self.workload, query)

    def fraction(self, noisy: int) -> float:
        """The answer by what was measured."""
        rows = self.workload.unit * self.public_rows
        return (rows + noisy) / (2 * rows)

    @property
    def per_record(self) -> int:
        """By how much what is measured is larger than a count in records: a balance is twice as large."""
        return 2 * self.workload.unit

    def noise_in_records(self, noise: Noise) -> float:
        """E|noise| of the count of a query."""
        return noise.mean_size / self.per_record

    def kept(self, told: Iterable[tuple[int, Any]], noise: Noise) -> tuple[Measured, ...]:
        """Noisy answers as a release keeps them: in records."""
        variance = (noise.deviation / self.per_record) ** 2
        return tuple(
            Measured(Numbers("query", text=self.workload.text(i)), np.array([x * self.public_rows]), variance)
            for i, x in told
        )

    def worthwhile(self, noise: float) -> AskedQueries:
        """The queries that noise does not drown by public reasons: all of them."""
        return self

    def questions(self, start: Snapshot) -> SingleQueries:
        return SingleQueries(self, start)


class AskedAsPrinted(AskedQueries):
    """The queries as Figure 1 of MWEM asks them: no negations, chosen by |error|, the count itself measured."""

    @property
    def score(self) -> AbsoluteErrors:
        return AbsoluteErrors.unheard(self.workload, self.public_rows)

    def score_of(self, answers: Fractions, among: NDArray[np.int64]) -> AbsoluteErrors:
        return AbsoluteErrors.of_answers(self.workload, self.public_rows, answers, among)

    def measured(self, query: int) -> Countable:
        return QueryCount(self.workload, query)

    def fraction(self, noisy: int) -> float:
        return noisy / (self.workload.unit * self.public_rows)

    @property
    def per_record(self) -> int:
        return self.workload.unit


@dataclass(frozen=True)
class AskedTables:
    """Each table is a question: its summed absolute error, less what noise would add to it.

    The paper subtracts the number of cells; noise adds cells × its scale.
    """

    tables: Tables
    public_rows: int
    noise_per_cell: float = 0.0

    @property
    def size(self) -> int:
        return self.tables.size

    @property
    def fewest_cells(self) -> int:
        return int(np.diff(self.tables.starts).min())

    @property
    def score(self) -> TableErrors:
        penalties = self.noise_per_cell * np.diff(self.tables.starts)
        return TableErrors(self.tables, self.public_rows, penalties)

    @property
    def statistic(self) -> TableCells:
        return TableCells(self.tables, 0)

    def noise_in_records(self, noise: Noise) -> float:
        return noise.mean_size

    def kept(self, told: Iterable[tuple[int, Any]], noise: Noise) -> tuple[Measured, ...]:
        """Noisy tables as a release keeps them: in records."""
        sets = self.tables.sets
        return tuple(
            Measured(Numbers("table", sets[t]), cells.ravel() * self.public_rows, noise.deviation**2)
            for t, cells in told
        )

    def worthwhile(self, noise_per_cell: float) -> AskedTables:
        """The tables with so few cells that noise does not drown them; at least the smallest one.

        A table's summed error is at most twice the number of records. Where noise alone adds more, its score
        can never be positive, whatever the data: a public reason to leave it out.
        """
        cells = np.diff(self.tables.starts)
        kept = np.flatnonzero(cells <= max(2 * self.public_rows / noise_per_cell, cells.min()))
        tables = Tables(self.tables.domain, tuple(self.tables.sets[t] for t in kept))
        return AskedTables(tables, self.public_rows, noise_per_cell)

    def questions(self, start: Snapshot) -> WholeTables:
        assert isinstance(start, Factored), "whole tables are asked of a distribution over records"
        return WholeTables(self, start)


Asked = AskedQueries | AskedTables


def asked_of(workload: Workload, kind: QuestionKind, public_rows: int) -> Asked:
    """What to choose from, to answer a workload."""
    if kind is QuestionKind.QUERIES:
        return AskedQueries(workload, public_rows)
    domain = workload.domain
    sets = sorted(_subsets(workload), key=lambda members: (len(members), members))
    if kind is QuestionKind.TABLES:
        return AskedTables(Tables(domain, tuple(sets)), public_rows)
    own = workload.groups if kind is QuestionKind.QUERIES_AND_PARITIES else ()
    groups = (*own, _parities(domain, sets))
    return AskedQueries(Workload(domain, groups, f"{kind.value} of {workload.spec}"), public_rows)


class SingleQueries:
    """The queries, put to one belief after another. A distribution over records hears them as functions of cells."""

    def __init__(self, asked: AskedQueries, start: Snapshot) -> None:
        self._asked = asked
        self._running = RunningAnswers(Products.of(asked.workload)) if isinstance(start, Factored) else None
        self._belief = start  # the last one; the start is let go with the first reply, being as large
        self._among = np.arange(asked.size, dtype=np.int64)  # what the last belief has room for
        self._told: list[tuple[int, float]] = []

    def kept(self, noise: Noise) -> tuple[Measured, ...]:
        """All that was measured, round after round."""
        return self._asked.kept(self._told, noise)

    def score(self, reply: Snapshot | None) -> SignedErrors:
        belief = self._belief = self._belief if reply is None else reply
        if self._running is None:
            answers = belief.answers(self._asked.workload)
        else:
            assert isinstance(belief, Factored)
            answers = self._running.answers(belief)
            self._among = belief.fitting(self._running.products)
        return self._asked.score_of(answers, self._among)

    def statistic(self, chosen: Selected) -> Countable:
        return self._asked.measured(self._query(chosen))

    def heard(self, chosen: Selected, noisy: Integers) -> Heard[Any] | TableQuery:
        """The answer by what was measured. Not measured, a query is a loss where its negation was drawn.

        (That is likely where its answer is too high.)
        """
        what = self._what(self._query(chosen))
        if not len(noisy):
            assert isinstance(what, TableQuery), "losses are functions of cells"
            assert what.cells is not None
            return what if chosen.negated[0] else TableQuery(what.members, 1.0 - what.cells)
        fraction = self._asked.fraction(int(noisy[0]))
        self._told.append((self._query(chosen), fraction))
        return Heard(what, fraction)

    def _query(self, chosen: Selected) -> int:
        return int(self._among[chosen.queries[0]])

    def _what(self, query: int) -> int | TableQuery:
        if self._running is None:
            return query
        products = self._running.products
        return TableQuery(products.attributes_of(query), products.table_of(query))


class WholeTables:
    """The tables, put to one belief after another."""

    def __init__(self, asked: AskedTables, start: Factored) -> None:
        self._asked = asked
        self._told: list[tuple[int, Cells]] = []
        self._errors = asked.score
        self._tables = asked.tables
        self._evaluation = RunningAnswers(
            Products.of(Workload(asked.tables.domain, (asked.tables,), "tables"))
        )
        self._belief = start  # the last one; the start is let go with the first reply, being as large
        self._among: NDArray[np.int64] = np.empty(0, np.int64)  # what the last belief has room for

    def kept(self, noise: Noise) -> tuple[Measured, ...]:
        """All that was measured, round after round."""
        return self._asked.kept(self._told, noise)

    def score(self, reply: Factored | None) -> TableErrors:
        belief = self._belief = self._belief if reply is None else reply
        answers = self._evaluation.answers(belief)
        fitting = belief.fitting(self._evaluation.products)
        self._among = np.flatnonzero(np.isin(self._tables.starts[:-1], fitting))
        return self._errors.told(answers, self._among)

    def statistic(self, chosen: Selected) -> TableCells:
        return TableCells(self._tables, self._table(chosen))

    def heard(self, chosen: Selected, noisy: Integers) -> Heard[TableQuery]:
        table = self._table(chosen)
        value = (noisy / self._errors.public_rows).reshape(self._tables.shape_of(table))
        self._told.append((table, value))
        return Heard(TableQuery(self._tables.sets[table], None), value)

    def _table(self, chosen: Selected) -> int:
        return int(self._among[chosen.queries[0]])
