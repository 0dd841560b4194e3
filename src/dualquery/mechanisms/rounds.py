"""Rounds that choose the query that is answered worst, and measure its balance: what learners of every class pay.

Queries by their numbers, put to beliefs that answer one workload: what several learners are asked.

What MWEM asks to answer a workload: its queries one by one, whole tables, parities, or a choice of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from itertools import combinations
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.factored import Factored, Products, RunningAnswers
from dualquery.errors import QueryError
from dualquery.game.moves import Heard, HeardQuery, Loss
from dualquery.mechanisms.mechanism import Step, Task, hidden
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.noise import Noise
from dualquery.privacy.prices import equal_prices
from dualquery.privacy.scores import SignedErrors, TableErrors, rate_within, selection_event
from dualquery.privacy.selection import Rate, Selected
from dualquery.queries.conjunctions import Parities
from dualquery.queries.derived import Balance, TableCells
from dualquery.queries.group import NONE, padded
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.types import Integers, Set


@dataclass(frozen=True, kw_only=True)
class RoundParameters:
    """What a game of such rounds goes by."""

    rounds: int
    noise: float  # of a measured count, in records
    rate: Rate = hidden()
    law: Noise = hidden()


@dataclass(frozen=True)
class PricedRounds:
    """Equal rounds, half of the price of each for its selection and half for its measurement."""

    rounds: int
    rate: Rate
    law: Noise  # of a balance, 2c − n
    selection: Selection
    measurement: GaussianMeasurement | LaplaceMeasurement
    noise: float  # of a measured count, in records
    found: float  # how far, as a fraction, the query chosen may lie behind the worst

    @staticmethod
    def of(task: Task, rounds: int, score: SignedErrors, share: Fraction = Fraction(1)) -> PricedRounds:
        """For a share of the budget; `score` is what queries are chosen by."""
        neighbours = task.budget.neighbours
        price = equal_prices(task.budget, 2 * rounds, share)
        moved = neighbours.sensitivity(Balance(task.workload, 0).bound())
        rate, law = rate_within(price, score, neighbours), price.noise(moved)
        selection = selection_event(score, neighbours, rate=rate, draws=1)
        assert selection is not None, "errors can move"
        return PricedRounds(
            rounds,
            rate,
            law,
            selection,
            law.event(moved),
            law.mean_size / (2 * task.workload.unit),
            math.log(2 * task.workload.size) / (float(selection.range) * task.rows),
        )

    def steps(self, choosing: str) -> tuple[Step, Step]:
        """As a plan shows them."""
        return Step(choosing, self.selection, self.rounds), Step("measure it", self.measurement, self.rounds)


class Answering(Protocol):
    """A belief as it stands, about the workload that it was made for."""

    def own_answers(self) -> NDArray[np.float64]:
        """The fraction of each query."""


class NumberedQueries:
    """The queries of a workload, put to one belief after another."""

    def __init__(self, workload: Workload, public_rows: int, start: Answering) -> None:
        self._workload = workload
        self._public_rows = public_rows
        self._start = start
        self._all = np.arange(workload.size, dtype=np.int64)

    def score(self, reply: Answering | None) -> SignedErrors:
        answers = (self._start if reply is None else reply).own_answers()
        return SignedErrors.of_answers(self._workload, self._public_rows, answers, self._all)

    def statistic(self, chosen: Selected) -> Balance:
        return Balance(self._workload, int(chosen.queries[0]))

    def heard(self, chosen: Selected, noisy: Integers) -> HeardQuery:
        rows = self._workload.unit * self._public_rows
        return HeardQuery(int(chosen.queries[0]), (rows + int(noisy[0])) / (2 * rows))


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
        sizes = np.append(self.workload.domain.sizes, 1).astype(
            np.float64
        )  # padding -1 meets the one at the end
        return int(min(sizes[self.workload.scope].prod(axis=1).min(), 2.0**62))

    @property
    def score(self) -> SignedErrors:
        """What every selection goes by, as far as its price is concerned."""
        return SignedErrors.unheard(self.workload, self.public_rows)

    @property
    def statistic(self) -> Balance:
        """What every round measures, as far as its price is concerned."""
        return Balance(self.workload, 0)

    def noise_in_records(self, noise: Noise) -> float:
        """E|noise| of the count of a query, given the noise of its balance, which is twice as large."""
        return noise.mean_size / (2 * self.workload.unit)

    def questions(self, start: Factored) -> SingleQueries:
        return SingleQueries(self, start)


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

    def worthwhile(self, noise_per_cell: float) -> AskedTables:
        """The tables with so few cells that noise does not drown them; at least the smallest one.

        A table's summed error is at most twice the number of records. Where noise alone adds more, its score
        can never be positive, whatever the data: a public reason to leave it out.
        """
        cells = np.diff(self.tables.starts)
        kept = np.flatnonzero(cells <= max(2 * self.public_rows / noise_per_cell, cells.min()))
        tables = Tables(self.tables.domain, tuple(self.tables.sets[t] for t in kept))
        return AskedTables(tables, self.public_rows, noise_per_cell)

    def questions(self, start: Factored) -> WholeTables:
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
    """The queries, put to one belief after another."""

    def __init__(self, asked: AskedQueries, start: Factored) -> None:
        self._workload = asked.workload
        self._public_rows = asked.public_rows
        self._evaluation = RunningAnswers(Products.of(asked.workload))
        self._belief = start  # the last one; the start is let go with the first reply, being as large
        self._among: NDArray[np.int64] = np.empty(0, np.int64)  # what the last belief has room for

    def score(self, reply: Factored | None) -> SignedErrors:
        belief = self._belief = self._belief if reply is None else reply
        answers = self._evaluation.answers(belief)
        self._among = belief.fitting(self._evaluation.products)
        return SignedErrors.of_answers(self._workload, self._public_rows, answers, self._among)

    def statistic(self, chosen: Selected) -> Balance:
        return Balance(self._workload, self._query(chosen))

    def heard(self, chosen: Selected, noisy: Integers) -> Heard:
        rows = self._workload.unit * self._public_rows
        value = (rows + int(noisy[0])) / (2 * rows)
        return Heard(*self._question(chosen), np.array(value))

    def complaint(self, chosen: Selected) -> Loss:
        """The query is a loss where its negation was drawn, which is likely where its answer is too high."""
        members, table = self._question(chosen)
        return Loss(members, table if chosen.negated[0] else 1.0 - table)

    def _query(self, chosen: Selected) -> int:
        return int(self._among[chosen.queries[0]])

    def _question(self, chosen: Selected) -> tuple[Set, NDArray[np.float64]]:
        products, query = self._evaluation.products, self._query(chosen)
        return products.attributes_of(query), products.table_of(query)


class WholeTables:
    """The tables, put to one belief after another."""

    def __init__(self, asked: AskedTables, start: Factored) -> None:
        self._errors = asked.score
        self._tables = asked.tables
        self._evaluation = RunningAnswers(
            Products.of(Workload(asked.tables.domain, (asked.tables,), "tables"))
        )
        self._belief = start  # the last one; the start is let go with the first reply, being as large
        self._among: NDArray[np.int64] = np.empty(0, np.int64)  # what the last belief has room for

    def score(self, reply: Factored | None) -> TableErrors:
        belief = self._belief = self._belief if reply is None else reply
        answers = self._evaluation.answers(belief)
        fitting = belief.fitting(self._evaluation.products)
        self._among = np.flatnonzero(np.isin(self._tables.starts[:-1], fitting))
        return self._errors.told(answers, self._among)

    def statistic(self, chosen: Selected) -> TableCells:
        return TableCells(self._tables, self._table(chosen))

    def heard(self, chosen: Selected, noisy: Integers) -> Heard:
        table = self._table(chosen)
        value = (noisy / self._errors.public_rows).reshape(self._tables.shape_of(table))
        return Heard(self._tables.sets[table], None, value)

    def _table(self, chosen: Selected) -> int:
        return int(self._among[chosen.queries[0]])
