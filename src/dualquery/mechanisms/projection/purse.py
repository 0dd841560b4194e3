"""A budget in shares: Gaussian measurements of one common size, paid for before it is known what they measure.

Every share is an allowance with the same squared sensitivity, its *room*, and a variance in inverse proportion to the
share. Whatever is measured within it is multiplied by the largest whole number that still fits the room, so that what
a statistic turns out to be (how many classes, how long the vectors) changes neither sensitivity nor variance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError
from dualquery.mechanisms.mechanism import Step
from dualquery.mechanisms.projection.allocation import MOST_VARIANCE
from dualquery.privacy.allowance import Allowance
from dualquery.privacy.budget import Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian
from dualquery.privacy.statistics import Multiplied, Statistic

TOO_SMALL = "the budget is too small to measure so wide a table at all; use a larger epsilon"
MOST_ROOM = 1 << 46
LEAST_ROOM = 1 << 30

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Noisy:
    """Numbers of a statistic, in its own unit, with the standard deviation of their noise."""

    numbers: Numbers
    deviation: float


@dataclass(frozen=True)
class Shares:
    """What each share of a budget pays for: noise of its variance on numbers of squared sensitivity `room`."""

    room: int
    variance: Mapping[str, Fraction]

    def event(self, name: str) -> GaussianMeasurement:
        return GaussianMeasurement(Fraction(self.room), self.variance[name])

    def steps(self, words: Mapping[str, str]) -> tuple[Step, ...]:
        """As the plan lists them."""
        return tuple(Step(words[name], self.event(name)) for name in self.variance)

    def deviation(self, sensitivity_squared: float, *names: str) -> float:
        """Of the noise on numbers of this squared sensitivity, measured within all of these shares."""
        precision = sum(self.room / float(self.variance[name]) for name in names)
        return math.sqrt(sensitivity_squared / precision)

    def purse(self, curator: Curator) -> Purse:
        """Pay for all of them."""
        allowances = curator.allow(*(self.event(name) for name in self.variance))
        return Purse(curator, self, dict(zip(self.variance, allowances, strict=True)))


@dataclass(frozen=True)
class Purse:
    """Shares that are paid for; each pays for one measurement."""

    curator: Curator
    shares: Shares
    allowances: Mapping[str, Allowance]

    def fits(self, statistic: Statistic) -> bool:
        """Whether a statistic moves no farther than there is room for."""
        return statistic.sensitivity(self.curator.neighbours).l2_squared <= self.shares.room

    def measure(self, statistic: Statistic, *names: str) -> Noisy:
        """The numbers of a statistic, once within each of these shares, weighed by inverse variance."""
        moved = statistic.sensitivity(self.curator.neighbours).l2_squared
        times = max(1, math.isqrt(self.shares.room // max(1, moved)))
        multiplied = Multiplied(statistic, times)
        total, precision = np.zeros(()), 0.0
        for name in names:
            noise = Gaussian(self.shares.variance[name])
            noisy = self.curator.measure(multiplied, noise=noise, within=self.allowances[name])
            total = total + noisy / (times * float(noise.variance))
            precision += 1 / float(noise.variance)
        return Noisy(total / precision, 1 / (times * math.sqrt(precision)))


def shares_of(budget: Budget, parts: Mapping[str, float]) -> Shares:
    """The smallest variances that the budget affords, in inverse proportion to the parts."""
    room = MOST_ROOM
    while True:
        wanted = {name: room / Fraction(part).limit_denominator(100_000) for name, part in parts.items()}
        events = [GaussianMeasurement(Fraction(room), variance) for variance in wanted.values()]
        factor = smallest_gaussian_scale(budget, events)
        if max(wanted.values()) * factor < MOST_VARIANCE:
            return Shares(room, {name: variance * factor for name, variance in wanted.items()})
        if room == LEAST_ROOM:
            raise BudgetError(TOO_SMALL)
        room //= 4
