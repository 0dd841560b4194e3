"""The curator: the only one who knows the counts. Every verb charges the ledger, then draws, then speaks.

The privacy of any mechanism is then one sentence: these calls, adaptive composition, post-processing.

*The texts of a column that occur often* are a histogram of which nobody knows the cells beforehand. Noise is added
to the numbers of the texts that occur, and what does not exceed a threshold T is not shown. A text that only one of
two neighbours holds must not be shown; all others are Gaussian measurements. With K records moving, each of them one
text, the numbers c_i ≥ 1 of texts that only one table holds add up to at most K, and one of them is shown with a
probability of at most

    Σ P(N > T − c_i)  ≤  max(P(N > T − K), K P(N > T − 1))

because the tail is convex there, so that the sum is largest where one text has all K, or each of K texts one. Of
discrete Gaussian noise P(N ≥ m) ≤ P(σZ ≥ m − 1) (Canonne, Kamath, Steinke 2020, Proposition 25), so both are at most
δ_c for the whole number

    T = ⌈max(K + σΦ⁻¹(1 − δ_c), 1 + σΦ⁻¹(1 − δ_c/K))⌉.

Given that no such text is shown, noise being independent from text to text, both tables show texts that both hold:
the measurement alone. So it is δ_c-approximate ρ-zCDP (Bun and Steinke 2016, Definition 8.1), under every relation;
failures add up, and add to the δ of what all measurements cost together (docs/privacy.md, "Texts that occur often").
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist

import numpy as np

from dualquery.counting import Counter, JoinedCounter
from dualquery.errors import BudgetError, require
from dualquery.privacy.budget import Neighbours
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.ledger import Allowance, Ledger
from dualquery.privacy.noise import Gaussian, Noise
from dualquery.privacy.scores import Score, selection_event
from dualquery.privacy.selection import Rate, Selected, draw
from dualquery.privacy.thresholds import Found, Slot, Test
from dualquery.queries.derived import Multiplied
from dualquery.queries.statistics import Countable, TextCounts
from dualquery.queries.views import View
from dualquery.randomness import Entropy
from dualquery.types import Integers


@dataclass(frozen=True)
class Surprise:
    """Which number lies on which side of its hypothesis, and all of them with fresh noise of their own."""

    found: Found
    noisy: Integers


class Curator:
    """Holds the counter of the private records; speaks through `select`, `measure`, `frequent` and `exceeds`."""

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

    def of_rows(self, view: View) -> Curator:
        """The same about the rows of units that have exactly one each: they are records with the same neighbours."""
        return Curator(JoinedCounter(self._counter, view), self._ledger, self._entropy)

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

    def measure(self, what: Countable, *, noise: Noise, within: Allowance | None = None) -> Integers:
        """The numbers of a countable with fresh integer noise on each; paid for now, or `within` an allowance."""
        self._pay(noise.event(self.neighbours.sensitivity(what.bound())), within)
        self._ledger.begin()
        truth = self._counter.true_counts(what)
        return truth + noise.draw(len(truth), self._entropy)

    def frequent(self, name: str, *, noise: Gaussian, times: int, failure: Fraction) -> dict[str, int]:
        """The texts of a column whose number, counted so many times, exceeds a threshold after noise; with both.

        Texts that do not occur are not drawn for, which fails with the probability `failure` at most, charged beside
        the measurement (`privacy.curator`).
        """
        what = Multiplied(TextCounts(name), times)
        moving = self.neighbours.records_per_person or 1
        least = threshold(noise, records=moving, failure=failure, times=times)
        self._ledger.risk(failure)
        self._ledger.charge(noise.event(self.neighbours.sensitivity(what.bound())))
        self._ledger.begin()
        truth = self._counter.true_counts(what)
        occur = np.flatnonzero(truth)
        noisy = truth[occur] + noise.draw(len(occur), self._entropy)
        texts = self._counter.true_labels(name)
        return {texts[i]: int(y) for i, y in zip(occur.tolist(), noisy, strict=True) if y > least}

    def exceeds(
        self, questions: Countable, hypotheses: Integers | int, *, test: Test, slot: Slot, noise: Noise
    ) -> Surprise | None:
        """Whether a number lies farther from its public hypothesis than a threshold; if so all numbers, with noise.

        The slot has paid for the test and for the measurement that follows it. One fire serves all numbers: what it
        costs depends on how far each of them moves, not on how many there are (docs/privacy.md, "Threshold tests").
        """
        bound = questions.bound()
        if self.neighbours.each(bound) > test.sensitivity:
            raise BudgetError(
                "this question moves farther between neighbours than the threshold test allows for"
            )
        moved = self.neighbours.sensitivity(bound)
        drawn = slot.begin(test, self._ledger, noise.event(moved))
        self._ledger.begin()
        numbers = self._counter.true_counts(questions)
        believed = np.atleast_1d(np.asarray(hypotheses, np.int64))
        if believed.shape != numbers.shape:
            raise ValueError("give one hypothesis for each number")
        found = drawn(numbers - believed, self._entropy)
        if found is None:
            return None
        return Surprise(found, numbers + noise.draw(len(numbers), self._entropy))

    def _pay(self, measurement: GaussianMeasurement | LaplaceMeasurement, within: Allowance | None) -> None:
        if within is None:
            self._ledger.charge(measurement)
        else:
            within.use(measurement, self)


def measured_at_once(curator: Curator, asked: Sequence[Countable], noise: Noise) -> Iterator[Integers]:
    """Several countables, each with noise of this law, all of them paid for before the first is drawn."""
    moved = [curator.neighbours.sensitivity(what.bound()) for what in asked]
    allowances = curator.allow(*(noise.event(each) for each in moved))
    for what, allowance in zip(asked, allowances, strict=True):
        yield curator.measure(what, noise=noise, within=allowance)


_ROUNDING = 1e-9  # of quantiles in floats, which are right to about 1e-15


def threshold(noise: Gaussian, *, records: int, failure: Fraction, times: int = 1) -> int:
    """T, of numbers that count every record so many times, where neighbours differ in at most K `records`."""
    require(0 < failure < Fraction(1, 2), "The probability of a failure must lie between 0 and a half.")
    ends = ((records, failure), (1, failure / records))
    return max(
        times * held + math.ceil(noise.deviation * -NormalDist().inv_cdf(float(chance)) * (1 + _ROUNDING))
        for held, chance in ends
    )
