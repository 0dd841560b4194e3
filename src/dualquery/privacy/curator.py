"""The curator: the only one who knows the counts. Every verb charges the ledger, then draws, then speaks.

The privacy of any mechanism is then one sentence: these calls, adaptive composition, post-processing.
"""

from __future__ import annotations

from dualquery.counting.counter import Counter, Integers
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import Score, selection_event
from dualquery.privacy.selection import Rate, Selected, draw
from dualquery.privacy.statistics import Statistic
from dualquery.randomness import Entropy


class Curator:
    """Holds the counter of the private records; speaks only through `select`, `measure` and `exceeds`."""

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
        return draw(score.of(self._counter), rate=rate, draws=draws, entropy=self._entropy)

    def measure(self, statistic: Statistic, *, noise: Noise) -> Integers:
        """The numbers of a statistic with fresh integer noise on each."""
        self._ledger.charge(noise.event(statistic.sensitivity(self.neighbours)))
        truth = statistic.of(self._counter)
        return truth + noise.draw(len(truth), self._entropy)
