"""Online private multiplicative weights: the tutorial's threshold algorithm, in the seats of the game.

    D₁ uniform.  FOR each question q_k:   IF |q_k(D_t) − q_k(D)| ≤ α  THEN answer q_k(D_t)
                                          ELSE answer q_k(D) with noise,  D_{t+1} = MWU(D_t, q_k)

The test is the sparse vector in epochs (`privacy/sparse_vector.py`), one epoch an update; after B of them the last
distribution answers. The query player is whoever asks, the data player learns. What it promises is weak on real
tables, because every surprise moves a distribution over all records a little; it is here to be understood and
compared. What the program does by default is in `asking/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.distributions.factored import Factored
from dualquery.distributions.multiplicative_weights import ExpertWeights, exponential
from dualquery.distributions.products import Products
from dualquery.distributions.raking import RakedWeights
from dualquery.game.learning_data_player import LearningDataPlayer
from dualquery.game.moves import Heard, Loss
from dualquery.game.play import played
from dualquery.game.streaming_query_player import StreamEnded, StreamingQueryPlayer
from dualquery.mechanisms.online_pmw.parameters import OnlinePmwParameters, Update
from dualquery.privacy.curator import Curator, Surprise
from dualquery.privacy.sparse_vector import Epochs
from dualquery.privacy.statistics import GroupCounts
from dualquery.queries.language.canonical import Query
from dualquery.queries.language.grouping import to_groups
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain


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

    def statistic(self) -> GroupCounts:
        return GroupCounts(self._group)

    def believed(self, reply: Factored) -> float:
        return self._rows * float((self._table * reply.glimpse(self._members)).sum())

    def heard(self, reply: Factored, surprise: Surprise) -> Heard | Loss:
        """The measurement; or, to the letter of the tutorial, the query or its negation as a loss."""
        if self._update is Update.RAKE:
            return Heard(self._members, self._table, np.array(surprise.noisy / self._rows))
        too_high = surprise.noisy < self.believed(reply)
        return Loss(self._members, self._table if too_high else 1.0 - self._table)

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
        RakedWeights(start, floor=0.5 / rows)
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

    query_player: StreamingQueryPlayer[Heard | Loss, Factored] = StreamingQueryPlayer(
        curator, held(), start=reply, law=Epochs(chosen.law), noise=chosen.noise, told=told
    )
    data_player: LearningDataPlayer[Heard | Loss, Factored] = LearningDataPlayer(belief)  # type: ignore[arg-type]
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
