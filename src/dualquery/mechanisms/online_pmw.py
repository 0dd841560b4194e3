"""Online private multiplicative weights: the tutorial's threshold algorithm, in the seats of the game.

    D₁ uniform.  FOR each question q_k:   IF |q_k(D_t) − q_k(D)| ≤ α  THEN answer q_k(D_t)
                                          ELSE answer q_k(D) with noise,  D_{t+1} = MWU(D_t, q_k)

The test is the sparse vector in epochs (`privacy/thresholds.py`), one epoch an update; after B of them the last
distribution answers. The query player is whoever asks, the data player learns. What it promises is weak on real
tables, because every surprise moves a distribution over all records a little; it is here to be understood and
compared. What the program does by default is in `interactive/`.

*Parameters* follow from public quantities: the theorem's step, or a rule for raking.

Let every noise of a test stay below αn/4, and that of a measurement below αn/2, but for a chance of β.

    a test      fires at ¾αn: silent means a gap of at most αn, a fire means a gap of at least αn/2
    its side    the measurement has the sign of the gap, and is itself within αn
    a step      A(x) ∝ A(x) exp(−ηq(x)) with η = 2α lowers KL(D, A) by at least η·α/2 − η²/8 = α²/2 (Hoeffding)
    so          KL(D, uniform) ≤ ln|X| allows for B = 2 ln|X|/α² fires, and every answer is within α
    budget      each epoch and each measurement costs a 2B-th of it

and α is the smallest that meets all of it. A step of 1 − ηq with η = α/4 does not: there B would be 16 ln|X|/α².
Raked, a surprise is worth much more than the theorem knows; there B is 2 log₂|X|, and θ is where the noise of k tests
ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.factored import Factored, Products
from dualquery.beliefs.multiplicative_weights import (
    RAKED,
    ExpertWeights,
    MultiplicativeWeights,
    exponential,
)
from dualquery.errors import BudgetError, DualQueryError
from dualquery.game.data_players import LearningDataPlayer
from dualquery.game.moves import Heard, TableQuery
from dualquery.game.play import played
from dualquery.game.query_players import StreamEnded, StreamingQueryPlayer
from dualquery.privacy.budget import Budget
from dualquery.privacy.curator import Curator, Surprise
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Noise
from dualquery.privacy.prices import Price, equal_prices
from dualquery.privacy.thresholds import Epochs, SparseVector
from dualquery.queries.group import Group
from dualquery.queries.language.canonical import Query
from dualquery.queries.language.reader import to_groups
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain

FAILURE = 0.05  # β
MOST_UPDATES = 20_000
ROUNDED = 1.5  # records: hypothesis and threshold are whole numbers


class Update(Enum):
    """How the distribution hears a surprise."""

    STEP = "step"  # A(x) ∝ A(x) exp(−η q(x)), for which the theorem holds
    RAKE = "rake"  # scaled to the measured answer


@dataclass(frozen=True, kw_only=True)
class OnlinePmwParameters:
    """What a run goes by."""

    updates: int  # B: after so many the last distribution answers everything
    update: Update
    learning_rate: float  # η of a step
    law: SparseVector
    noise: Noise
    promised_error: float  # α; 1 where nothing is promised
    part_cells: int  # of the distribution; the whole universe where it is explicit


def parameters_of(
    domain: Domain,
    *,
    rows: int,
    budget: Budget,
    questions: int,
    update: Update = Update.STEP,
    updates: int | None = None,
    part_cells: int,
) -> OnlinePmwParameters:
    """Every choice of a run, from public quantities."""
    if rows < 1 or questions < 1:
        raise DualQueryError("online PMW needs at least one record and one question")
    size = domain.log2_size * math.log(2)
    alpha = 1.0
    if updates is None and update is Update.STEP:
        alpha = _smallest_error(size, rows, budget, questions)
        updates = _most_updates(size, alpha)
    elif updates is None:
        updates = max(1, round(2 * domain.log2_size))
    if not 1 <= updates <= MOST_UPDATES:
        raise DualQueryError(f"updates must lie between 1 and {MOST_UPDATES:,}, got {updates:,}")
    price = equal_prices(budget, 2 * updates)
    moved = budget.neighbours.largest(alone=1, apart=1)
    epsilon = _epsilon(price)
    quiet = math.ceil(_test_noise(epsilon, questions) * moved)
    threshold = math.floor(3 / 4 * alpha * rows) if alpha < 1 else quiet
    return OnlinePmwParameters(
        updates=updates,
        update=update,
        learning_rate=2 * alpha,
        law=SparseVector(epsilon, threshold, moved),
        noise=price.noise(Sensitivity(moved, moved**2)),
        promised_error=alpha,
        part_cells=part_cells,
    )


def _most_updates(size: float, alpha: float) -> int:
    """B = 2 ln|X|/α²."""
    return math.ceil(2 * size / alpha**2)


def _smallest_error(size: float, rows: int, budget: Budget, questions: int) -> float:
    """The smallest α of a geometric grid at which tests and measurements of B epochs are quiet enough, or 1."""
    found = 1.0
    moved = budget.neighbours.largest(alone=1, apart=1)
    for step in range(1, 200):
        alpha = 0.97**step
        updates = _most_updates(size, alpha)
        if updates > MOST_UPDATES:
            break
        try:
            price = equal_prices(budget, 2 * updates)
        except BudgetError:
            break
        measured = price.noise(Sensitivity(moved, moved**2)).size_within(1 - FAILURE / (2 * updates))
        tested = _test_noise(_epsilon(price), questions) * moved + ROUNDED
        if tested <= alpha * rows / 4 and measured <= alpha * rows / 2:
            found = alpha
    return found


def _epsilon(price: Price) -> Fraction:
    """ε₀ of an epoch: pure, or of ρ = ε₀²/2."""
    if price.pure is not None:
        return price.pure
    assert price.rho is not None
    return Fraction(math.floor(math.sqrt(2 * price.rho) * 10**9 * (1 - 1e-12)), 10**9)


def _test_noise(epsilon: Fraction, questions: int) -> float:
    """Both noises of a test stay below this in so many questions, but for β/2: (2 + 4)/ε₀ · ln(4k/β)."""
    return 6 / float(epsilon) * math.log(4 * questions / FAILURE)


@dataclass(frozen=True)
class Answers:
    """Fractions in the order of the stream, and which of them were measured."""

    values: NDArray[np.float64]
    measured: NDArray[np.bool_]


class ProductQuestion:
    """One query of a stream as the game sees it: a function of the cells over its attributes."""

    def __init__(self, domain: Domain, query: Query, rows: int, update: Update) -> None:
        (self._group,) = to_groups(domain, [query])
        products = Products.of(Workload(domain, (self._group,), "one question"))
        self._members, self._table = products.attributes_of(0), products.table_of(0)
        self._rows = rows
        self._update = update

    def statistic(self) -> Group:
        return self._group

    def believed(self, reply: Factored) -> float:
        return self._rows * float((self._table * reply.glimpse(self._members)).sum())

    def heard(self, reply: Factored, surprise: Surprise) -> Heard[TableQuery] | TableQuery:
        """The measurement; or, to the letter of the tutorial, the query or its negation as a loss."""
        if self._update is Update.RAKE:
            return Heard(TableQuery(self._members, self._table), surprise.noisy[0] / self._rows)
        too_high = surprise.noisy[0] < self.believed(reply)
        return TableQuery(self._members, self._table if too_high else 1.0 - self._table)

    def fits(self, reply: Factored) -> bool:
        """Whether the distribution could hear of it."""
        return reply.cells_with(self._members) <= reply.part_cells


def online_pmw(
    curator: Curator,
    stream: Iterable[Query],
    *,
    domain: Domain,
    rows: int,
    parameters: OnlinePmwParameters,
) -> Answers:
    """The answers to a stream, in its order. A question that no part of the distribution could hold is not tested."""
    chosen = parameters
    explicit = prod(domain.sizes.tolist()) <= chosen.part_cells
    start = Factored.explicit(domain) if explicit else Factored(domain, part_cells=chosen.part_cells)
    values: list[float] = []
    measured: list[bool] = []

    def told(records: float, fired: bool) -> None:
        values.append(min(max(records / rows, 0.0), 1.0))
        measured.append(fired)

    reply = start.snapshot()
    questions = (ProductQuestion(domain, query, rows, chosen.update) for query in stream)
    belief = (
        MultiplicativeWeights(start, schedule=RAKED, floor=0.5 / rows)
        if chosen.update is Update.RAKE
        else ExpertWeights(start, learning_rate=chosen.learning_rate, factor=exponential)
    )
    replies = [reply]

    def held() -> Iterator[ProductQuestion]:
        """Those that can be tested; the rest are answered on the way."""
        for question in questions:
            if question.fits(replies[0]):
                yield question
            else:
                told(question.believed(replies[0]), False)

    query_player: StreamingQueryPlayer[Heard[TableQuery] | TableQuery, Factored] = StreamingQueryPlayer(
        curator, held(), start=reply, law=Epochs(chosen.law), noise=chosen.noise, told=told
    )
    data_player: LearningDataPlayer[Heard[TableQuery] | TableQuery, Factored] = LearningDataPlayer(belief)  # type: ignore[arg-type]
    try:
        for transcript in played(query_player, data_player, remembers=1):
            replies[0] = transcript.last_reply()
            if transcript.rounds == chosen.updates:
                break
    except StreamEnded:
        return Answers(np.array(values), np.array(measured))
    for question in questions:
        told(question.believed(replies[0]), False)
    return Answers(np.array(values), np.array(measured))
