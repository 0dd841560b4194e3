"""The curator: the only one who knows the counts. Every verb charges the ledger, then draws, then speaks.

The privacy of any mechanism is then one sentence: these calls, adaptive composition, post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from dualquery.counting.counter import Counter
from dualquery.errors import BudgetError
from dualquery.privacy.events import Concentrated, GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.ledger import Allowance, Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import Score, selection_event
from dualquery.privacy.selection import Rate, Selected, draw
from dualquery.privacy.statistics import Statistic
from dualquery.privacy.thresholds import Found
from dualquery.randomness import Entropy
from dualquery.types import Integers


class ThresholdLaw(Protocol):
    """How thresholds are tested: the hazard test, paid for alone or by a slot, or the textbook's sparse vector."""

    @property
    def sensitivity(self) -> int:
        """How far a neighbour may move each of the numbers that are tested."""

    def pay(
        self, ledger: Ledger, entropy: Entropy, follow_up: Concentrated
    ) -> Callable[[Integers], Found | None]:
        """Pay for a test and for the measurement that may follow it; then the test, of any number of numbers."""


@runtime_checkable
class MovesEach(Protocol):
    """Numbers that say how far each of them can move; of others it is at most as far as all together (L1)."""

    def each(self, neighbours: Neighbours) -> int: ...


@dataclass(frozen=True)
class Surprise:
    """Which number lies on which side of its hypothesis, and all of them with fresh noise of their own."""

    found: Found
    noisy: Integers


class Curator:
    """Holds the counter of the private records; speaks through `select`, `measure` and `exceeds`."""

    def __init__(self, counter: Counter, ledger: Ledger, entropy: Entropy) -> None:
        self._counter = counter
        self._ledger = ledger
        self._entropy = entropy

    @property
    def ledger(self) -> Ledger:
        return self._ledger

    @property
    def neighbours(self) -> Neighbours:
        return self._ledger.budget.neighbours

    def select(self, score: Score, *, rate: Rate, draws: int = 1) -> Selected:
        """Draw candidates by the exponential mechanism, each with probability ∝ exp(rate · score)."""
        event = selection_event(score, self.neighbours, rate=rate, draws=draws)
        if event is not None:
            self._ledger.charge(event)
            self._ledger.begin()
        return draw(score.of(self._counter), rate=rate, draws=draws, entropy=self._entropy)

    def allow(self, *events: GaussianMeasurement | LaplaceMeasurement) -> tuple[Allowance, ...]:
        """Pay at once for measurements whose content is chosen later: one allowance for each.

        Their sensitivities and variances are fixed here, by public things; what is measured within them may depend on
        what was measured before.
        """
        self._ledger.charge(*events)
        return tuple(Allowance(event, self) for event in events)

    def measure(self, statistic: Statistic, *, noise: Noise, within: Allowance | None = None) -> Integers:
        """The numbers of a statistic with fresh integer noise on each; paid for now, or `within` an allowance."""
        self._pay(noise.event(statistic.sensitivity(self.neighbours)), within)
        self._ledger.begin()
        truth = statistic.of(self._counter)
        return truth + noise.draw(len(truth), self._entropy)

    def exceeds(
        self, questions: Statistic, hypotheses: Integers | int, *, law: ThresholdLaw, noise: Noise
    ) -> Surprise | None:
        """Whether a number lies farther from its public hypothesis than a threshold; if so all numbers, with noise.

        The test and the measurement that follows it are paid for before the numbers are read. Silence is free where
        the law says so (the hazard test), or as long as an epoch lasts (the sparse vector). One fire serves all
        numbers: what it costs depends on how far each of them moves, not on how many there are (docs/privacy.md,
        "Threshold tests").
        """
        moved = questions.sensitivity(self.neighbours)
        each = questions.each(self.neighbours) if isinstance(questions, MovesEach) else moved.l1
        if each > law.sensitivity:
            raise BudgetError(
                "this question moves farther between neighbours than the threshold test allows for"
            )
        test = law.pay(self._ledger, self._entropy, noise.event(moved))
        self._ledger.begin()
        numbers = questions.of(self._counter)
        believed = np.atleast_1d(np.asarray(hypotheses, np.int64))
        if believed.shape != numbers.shape:
            raise ValueError("give one hypothesis for each number")
        found = test(numbers - believed)
        if found is None:
            return None
        return Surprise(found, numbers + noise.draw(len(numbers), self._entropy))

    def _pay(self, measurement: GaussianMeasurement | LaplaceMeasurement, within: Allowance | None) -> None:
        if within is None:
            self._ledger.charge(measurement)
        else:
            within.use(measurement, self)


def measured_at_once(curator: Curator, statistics: Sequence[Statistic], noise: Noise) -> Iterator[Integers]:
    """Several statistics, each with noise of this law, all of them paid for before the first is drawn."""
    moved = [statistic.sensitivity(curator.neighbours) for statistic in statistics]
    allowances = curator.allow(*(noise.event(each) for each in moved))
    for statistic, allowance in zip(statistics, allowances, strict=True):
        yield curator.measure(statistic, noise=noise, within=allowance)
