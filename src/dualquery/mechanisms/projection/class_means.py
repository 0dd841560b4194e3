"""Noisy sums within classes, put together into the chance of every attribute in every class.

Everything here is post-processing of released numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.binary import GRID

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """Numbers with the variance of their noise, one for all or one a row."""

    value: Numbers
    variance: Numbers

    @staticmethod
    def joined(*parts: Estimate) -> Estimate:
        """Weighed by inverse variance."""
        precision = sum((1 / part.variance for part in parts), np.zeros(()))
        value = sum((part.value / _column(part.variance) for part in parts), np.zeros(()))
        return Estimate(value / _column(precision), 1 / precision)


def settled(ones: Estimate) -> Numbers:
    """Fractions drawn together by how much of what sets them apart is noise, and within 0 and 1."""
    middle = float(ones.value.mean())
    seen = float(ones.value.var())
    kept = max(0.0, 1 - float(ones.variance) / max(seen, 1e-300))
    within: Numbers = np.clip(middle + kept * (ones.value - middle), 0.0, 1.0)
    return within


def _column(variance: Numbers) -> Numbers:
    return variance[:, None] if variance.ndim else variance


@dataclass(frozen=True)
class NoisySums:
    """What came back of `ClassSums`: weights and sums of each class, in records, and the noise of a sum."""

    weights: Numbers
    sums: Numbers  # classes × attributes
    deviation: float

    @staticmethod
    def of(numbers: Numbers, deviation: float, classes: int, most: int, count_factor: int) -> NoisySums:
        """From the numbers as they were counted, the weights of records being up to `most`."""
        table = numbers.reshape(classes, -1)
        weights = np.maximum(table[:, 0] / (most * max(1, count_factor)), 1.0)
        return NoisySums(weights, table[:, 1:] / (most * GRID), deviation / (most * GRID))

    def means(self, centre: Numbers, weights: Numbers | None = None) -> Estimate:
        """The mean of x in each class, given the centre that was taken off."""
        held = self.weights if weights is None else weights
        return Estimate(centre + self.sums / held[:, None], (self.deviation / held) ** 2)


def shrunk_towards(middle: Numbers, means: Estimate) -> Numbers:
    """Each class's deviations from the middle, shrunk by how much of what is seen of them is noise."""
    deviations = means.value - middle
    seen = (deviations**2).mean(axis=1)
    kept = np.maximum(0.0, 1 - means.variance / np.maximum(seen, 1e-300))
    shrunk: Numbers = deviations * kept[:, None]
    return shrunk


def consistent(shares: Numbers, means: Estimate, others: Estimate) -> Numbers:
    """Means of classes whose average is the total, both by their noise.

    `others` is the total as measured otherwise. The classes' own average tC has variance Σ π²v; the joined total
    moves class c by its part πv/Σ π²v of the difference. What then deviates from the total is shrunk, and centred.
    """
    own = Estimate(shares @ means.value, np.asarray((shares**2) @ means.variance))
    joined = Estimate.joined(own, others)
    total = settled(joined)
    part = shares * means.variance / own.variance
    moved = Estimate(means.value + part[:, None] * (total - own.value), means.variance)
    deviations = shrunk_towards(total, moved)
    deviations -= shares @ deviations
    within: Numbers = np.clip(total + deviations, 0.0, 1.0)
    return within
