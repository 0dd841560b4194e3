"""Rounds that choose the query that is answered worst, and measure its balance: what learners of every class pay."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from dualquery.mechanisms.mechanism import Step, Task, hidden
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement, Selection
from dualquery.privacy.noise import Noise
from dualquery.privacy.prices import equal_prices
from dualquery.privacy.scores import SignedErrors, rate_within, selection_event
from dualquery.privacy.selection import Rate
from dualquery.privacy.statistics import Balance


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
        moved = Balance(task.workload, 0).sensitivity(neighbours)
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
