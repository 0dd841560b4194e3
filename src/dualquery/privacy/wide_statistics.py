"""Statistics of wide binary tables: one-way balances, lengths, clipped moments, and sums within classes.

A record contributes whole numbers that are functions of that record and of public numbers (`queries.binary`). Its
weighted vectors z = w·y are at most F·B long by construction, which bounds every sum below; which class it falls into
is public but for the record itself, so that classes partition the records. Two vectors of length at most R lie at
most 2R apart, and at most √2·R where they fall into different classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from dualquery.counting.counter import Counter
from dualquery.privacy.neighbours import Neighbours, Sensitivity
from dualquery.queries.binary import (
    Balances,
    CentreSums,
    ClassSums,
    CrossSums,
    HeldLengths,
    Lengths,
    SecondMoments,
)
from dualquery.types import Integers


def _l1(squared: int, numbers: int) -> int:
    """The largest L1 length of so many whole numbers of this squared L2 length: √(numbers · squared)."""
    return isqrt(numbers * squared)


@dataclass(frozen=True)
class OneWayBalances:
    """2·count − n of each of d attributes: a record moves every one by 1, two that differ everywhere by 2."""

    balances: Balances

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.balances)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        d = self.balances.binary.width
        return neighbours.sensitivity(alone=Sensitivity(d, d), apart=Sensitivity(2 * d, 4 * d))


@dataclass(frozen=True)
class LengthCounts:
    """How many records are how long: a record lies in one cell, and two records in two."""

    lengths: Lengths | HeldLengths

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.lengths)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        return neighbours.sensitivity(alone=Sensitivity(1, 1), apart=Sensitivity(2, 2))


@dataclass(frozen=True)
class ClippedMoments:
    """Σ z zᵀ above the diagonal, |z|² ≤ R = F²B².

    Alone Σ_{i<j} z_i²z_j² = (|z|⁴ − Σ z_i⁴)/2 ≤ R²/2; two: at most (|z|⁴ + |z'|⁴ − 2(z·z')²)/2 ≤ R². In L1
    Σ_{i<j} |z_i z_j| = (‖z‖₁² − |z|²)/2 ≤ (d − 1)R/2.
    """

    moments: SecondMoments

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.moments)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        longest, d = self.moments.clip.longest, self.moments.centred.binary.width
        l1 = (d - 1) * longest // 2
        return neighbours.sensitivity(
            alone=Sensitivity(l1, longest**2 // 2), apart=Sensitivity(2 * l1, longest**2)
        )


@dataclass(frozen=True)
class ClippedClassSums:
    """(s·Σ w, Σ z) of each class, |z|² ≤ R = F²B², w ≤ F.

    Alone s²F² + R. Two in one class: s²F² + 4R, since weights do not fall below 0; in two classes the sum of both.
    """

    sums: ClassSums

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.sums, kept=True)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        clip, d = self.sums.clip, self.sums.centred.binary.width
        return _of_vectors(clip.longest, d, self.sums.count_factor * clip.most, 0, neighbours)


@dataclass(frozen=True)
class ClippedCentreSums:
    """As `ClippedClassSums`, of places along axes, and one number of all records, from 0 to ⌊R/divisor⌋."""

    sums: CentreSums

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.sums)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        clip, axes = self.sums.clip, self.sums.classes.axes.number
        squares = clip.longest // self.sums.divisor
        return _of_vectors(clip.longest, axes, self.sums.count_factor * clip.most, squares, neighbours)


def _of_vectors(longest: int, numbers: int, count: int, squares: int, neighbours: Neighbours) -> Sensitivity:
    """Of (count up to `count`, vector of squared length up to `longest`) in one of several places, and a number."""
    l1, l2 = count + _l1(longest, numbers), count**2 + longest
    in_one = Sensitivity(count + 2 * _l1(longest, numbers), count**2 + 4 * longest)
    return neighbours.sensitivity(
        alone=Sensitivity(l1 + squares, l2 + squares**2),
        apart=Sensitivity(max(in_one.l1, 2 * l1) + squares, max(in_one.l2_squared, 2 * l2) + squares**2),
    )


@dataclass(frozen=True)
class ClippedCrossSums:
    """Σ z vᵀ with |z|² ≤ R and |v|² ≤ R': alone R·R', and two records at most twice as far."""

    sums: CrossSums

    def of(self, counter: Counter) -> Integers:
        return counter.true_counts(self.sums)

    def sensitivity(self, neighbours: Neighbours) -> Sensitivity:
        longest = self.sums.clip.longest * self.sums.axes_clip.longest
        l1 = _l1(longest, self.sums.centred.binary.width * self.sums.axes.number)
        return neighbours.sensitivity(alone=Sensitivity(l1, longest), apart=Sensitivity(2 * l1, 4 * longest))
