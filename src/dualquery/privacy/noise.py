"""Integer noise for integer counts: discrete Laplace and discrete Gaussian, exact.

Every output has exactly the probability of its law (`noise_law`), at one 64-bit word a draw. What a word is worth
is settled in big integers where words are few, and by compiled loops where they are many, with the same result.
The words are drawn in order by the caller's thread and each cell has its own, so a seed gives the same noise on
any number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise_kernels import decide
from dualquery.privacy.noise_law import Law, settle
from dualquery.randomness import Entropy

FEW = 16  # words that big integers settle sooner than the tables of the compiled loops are built
_BATCH = 1 << 17  # words at a time: they stay in the cache


class Noise(Protocol):
    """A law of noise, what it costs and how to draw it."""

    def event(self, sensitivity: Sensitivity) -> GaussianMeasurement | LaplaceMeasurement:
        """What adding it to whole numbers of this sensitivity costs."""

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]: ...

    @property
    def deviation(self) -> float:
        """The standard deviation, to the accuracy that a prediction needs."""

    @property
    def mean_size(self) -> float:
        """E|noise|, likewise."""

    def size_within(self, level: float) -> float:
        """How large it is at most, with this probability."""

    def size_of_largest(self, count: int) -> float:
        """About the largest of so many draws."""


@dataclass(frozen=True)
class Gaussian:
    """Discrete Gaussian noise of this variance parameter (σ²)."""

    variance: Fraction

    def event(self, sensitivity: Sensitivity) -> GaussianMeasurement:
        return GaussianMeasurement(Fraction(sensitivity.l2_squared), self.variance)

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        return discrete_gaussian(count, variance=self.variance, entropy=entropy)

    @property
    def deviation(self) -> float:
        return math.sqrt(self.variance)

    @property
    def mean_size(self) -> float:
        return math.sqrt(2 / math.pi * self.variance)

    def size_within(self, level: float) -> float:
        return self.deviation * NormalDist().inv_cdf((1 + level) / 2)

    def size_of_largest(self, count: int) -> float:
        return self.deviation * math.sqrt(2 * math.log(2 * count))


@dataclass(frozen=True)
class Laplace:
    """Discrete Laplace noise of this scale (b)."""

    scale: Fraction

    def event(self, sensitivity: Sensitivity) -> LaplaceMeasurement:
        return LaplaceMeasurement(Fraction(sensitivity.l1), self.scale)

    def draw(self, count: int, entropy: Entropy) -> NDArray[np.int64]:
        return discrete_laplace(count, scale=self.scale, entropy=entropy)

    @property
    def deviation(self) -> float:
        return math.sqrt(2) * float(self.scale)

    @property
    def mean_size(self) -> float:
        return float(self.scale)

    def size_within(self, level: float) -> float:
        return -float(self.scale) * math.log(1 - level)

    def size_of_largest(self, count: int) -> float:
        return float(self.scale) * math.log(2 * count)


def discrete_laplace(count: int, *, scale: Fraction, entropy: Entropy) -> NDArray[np.int64]:
    """`count` independent integers, P(x) ∝ exp(−|x|/b)."""
    return _draw(Law.laplace(scale), count, entropy)


def discrete_gaussian(count: int, *, variance: Fraction, entropy: Entropy) -> NDArray[np.int64]:
    """`count` independent integers, P(x) ∝ exp(−x²/(2σ²))."""
    return _draw(Law.gaussian(variance), count, entropy)


def _draw(law: Law, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Precondition: a law. Postcondition: `count` independent draws. Proof: docs/privacy.md, "Noise"."""
    out = np.empty(count, np.int64)
    for start in range(0, count, _BATCH):
        batch = out[start : start + _BATCH]
        cells = np.arange(len(batch))
        while len(cells) > 0:
            words = entropy.words(len(cells))
            again, undecided = np.empty(0, np.int64), np.arange(len(words))
            if len(words) > FEW:
                again, undecided = decide(law, words, cells, batch)
            for position in undecided:
                settled = settle(law, int(words[position]), entropy)
                if settled is None:
                    again = np.append(again, position)
                else:
                    batch[cells[position]] = settled
            cells = cells[again]
    return out
