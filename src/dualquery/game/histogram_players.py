"""Query players that best-respond to a distribution: find what it gets wrong, and have that measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.game.learner import Distribution, Loss, Measurement
from dualquery.game.moves import Transcript
from dualquery.privacy.query_selection import ChoosingCurator, Price
from dualquery.queries.query import Tables

History = Transcript[Measurement, Distribution]


@dataclass(frozen=True)
class Prices:
    """What a round may cost: its selection and its measurement."""

    selection: Price
    measurement: Price


class Hypothesis(Protocol):
    """A distribution as the query player sees it: by its answers to the queries that may be measured."""

    def answers(self) -> NDArray[np.float64]:
        """The fraction of each query under the distribution as it stands."""

    def measurable(self) -> NDArray[np.int64]:
        """The queries that the distribution has room for, increasing."""

    def question(self, query: int) -> tuple[tuple[int, ...], NDArray[np.float64]]:
        """The attributes of a query, and its value on each cell of the table over them."""


class BestResponseQueryPlayer:
    """Chooses one query by the exponential mechanism and has it measured (Figure 1, steps 1 and 2)."""

    def __init__(
        self, curator: ChoosingCurator, hypothesis: Hypothesis, *, prices: Prices, public_rows: int
    ) -> None:
        self._curator = curator
        self._hypothesis = hypothesis
        self._prices = prices
        self._public_rows = public_rows

    def challenge(self, transcript: History) -> Measurement:
        query, _ = self._curator.choose_query(
            self._hypothesis.answers(),
            among=self._hypothesis.measurable(),
            public_rows=self._public_rows,
            price=self._prices.selection,
        )
        noisy = self._curator.measure_query(
            query, public_rows=self._public_rows, price=self._prices.measurement
        )
        members, table = self._hypothesis.question(query)
        return Measurement(members, table, np.array(noisy))


class BestResponseLossPlayer:
    """Chooses a query or a negation that is answered too high, and says no more (PMW measures nothing)."""

    def __init__(
        self, curator: ChoosingCurator, hypothesis: Hypothesis, *, price: Price, public_rows: int
    ) -> None:
        self._curator = curator
        self._hypothesis = hypothesis
        self._price = price
        self._public_rows = public_rows

    def challenge(self, transcript: Transcript[Loss, Distribution]) -> Loss:
        query, negated = self._curator.choose_query(
            self._hypothesis.answers(),
            among=self._hypothesis.measurable(),
            public_rows=self._public_rows,
            price=self._price,
        )
        members, table = self._hypothesis.question(query)
        return Loss(members, table if negated else 1.0 - table)


class BestResponseTablePlayer:
    """Chooses one table by its summed absolute error, less what noise would add to it, and measures it whole.

    The paper subtracts the number of cells; noise adds cells × its scale.
    """

    def __init__(
        self,
        curator: ChoosingCurator,
        tables: Tables,
        hypothesis: Hypothesis,
        *,
        prices: Prices,
        public_rows: int,
        noise_per_cell: float,
    ) -> None:
        self._curator = curator
        self._tables = tables
        self._hypothesis = hypothesis
        self._prices = prices
        self._public_rows = public_rows
        self._penalties = noise_per_cell * np.diff(tables.starts)

    def challenge(self, transcript: History) -> Measurement:
        among = np.flatnonzero(np.isin(self._tables.starts[:-1], self._hypothesis.measurable()))
        table = self._curator.choose_table(
            self._hypothesis.answers(),
            among=among,
            penalties=self._penalties[among],
            public_rows=self._public_rows,
            price=self._prices.selection,
        )
        noisy = self._curator.measure_table(
            table, public_rows=self._public_rows, price=self._prices.measurement
        )
        members = self._tables.sets[table]
        shape = [int(self._tables.domain.sizes[j]) for j in members]
        return Measurement(members, None, noisy.reshape(shape))
