"""Integer noise for integer counts: discrete Laplace and discrete Gaussian, exact.

Few draws from the system's entropy are made by OpenDP's samplers; many, and all seeded ones, by our own,
whose every output has exactly the probability of its law (`noise_law`), at one 64-bit word a draw. The words
are drawn in order by the caller's thread and each cell has its own, so a seed gives the same noise on any
number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise_kernels import decide
from dualquery.privacy.noise_law import Law, settle
from dualquery.randomness import Entropy, SystemEntropy

FEW = 1000  # up to here OpenDP is about as fast as building our tables
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
    """`count` independent integers, P(x) ∝ exp(−|x|/b). (OpenDP rounds b up to a double.)"""
    law = Law.laplace(scale)
    if _few(count, entropy):
        return _from_opendp(count, "laplace", _double_above(scale, power=1))
    return _draw(law, count, entropy)


def discrete_gaussian(count: int, *, variance: Fraction, entropy: Entropy) -> NDArray[np.int64]:
    """`count` independent integers, P(x) ∝ exp(−x²/(2σ²)). (OpenDP rounds σ up to a double.)"""
    law = Law.gaussian(variance)
    if _few(count, entropy):
        return _from_opendp(count, "gaussian", _double_above(variance, power=2))
    return _draw(law, count, entropy)


def _few(count: int, entropy: Entropy) -> bool:
    # OpenDP brings its own entropy, the system's; a seed must never be ignored
    return count <= FEW and isinstance(entropy, SystemEntropy)


def _draw(law: Law, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Precondition: a law. Postcondition: `count` independent draws. Proof: docs/privacy.md, "Noise"."""
    out = np.empty(count, np.int64)
    for start in range(0, count, _BATCH):
        batch = out[start : start + _BATCH]
        cells = np.arange(len(batch))
        while len(cells) > 0:
            words = entropy.words(len(cells))
            dropped, undecided = decide(law, words, cells, batch)
            again = [dropped]
            for position in undecided:
                settled = settle(law, int(words[position]), entropy)
                if settled is None:
                    again.append(np.array([position]))
                else:
                    batch[cells[position]] = settled
            cells = cells[np.concatenate(again)]
    return out


@lru_cache(maxsize=16)
def _opendp_measurement(name: str, scale: float) -> Any:
    import opendp.prelude as dp  # late: half a second that most runs do not need

    dp.enable_features("contrib")
    integers = dp.vector_domain(dp.atom_domain(T="i64"))
    if name == "laplace":
        return dp.m.make_laplace(integers, dp.l1_distance(T="i64"), scale=scale)
    return dp.m.make_gaussian(integers, dp.l2_distance(T="i64"), scale=scale)


def _from_opendp(count: int, name: str, scale: float) -> NDArray[np.int64]:
    if count == 0:
        return np.empty(0, np.int64)
    return np.array(_opendp_measurement(name, scale)([0] * count), np.int64)


def _double_above(value: Fraction, *, power: int) -> float:
    """The smallest double x, or the next, with x^power ≥ value: noise is never less than was paid for."""
    nearest = float(value) if power == 1 else math.sqrt(value)
    while Fraction(nearest) ** power < value:
        nearest = math.nextafter(nearest, math.inf)
    return nearest
