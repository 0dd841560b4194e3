"""What noisy moments of a wide table say: how long vectors are, along which axes they spread, around which centres,
and the chance of every attribute in every class.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.measured import Measured
from dualquery.queries.binary import GRID, SHIFT, Axes, Binary

Numbers = NDArray[np.float64]

LENGTH_STEP = 1.02  # from one edge of a length to the next
EDGES = (-20, 90)  # steps below and above the expected length
TAIL = 0.02  # records that may be longer than the clip
CLEAR = 1.15  # edges of the noise that an eigenvalue must exceed
MOST_AXES = 48
REFILLS = 5  # of the diagonal, which is not measured
MERGED = 2.5  # deviations of the noise, up to which two centres are one
BESIDE = 0.1  # spreads from a centre that is split: far from it no record would follow
WIDE = 2.0  # and deviations of a class along one axis


def length_edges(expected: float, longest: int) -> NDArray[np.int64]:
    """Edges around an expected squared length, geometric, whole and below the longest possible one."""
    steps = np.arange(EDGES[0], EDGES[1] + 1)
    edges = np.unique(np.floor(max(expected, 1.0) * LENGTH_STEP**steps).astype(np.int64))
    inside = edges[edges < longest]
    return inside if len(inside) else np.array([longest - 1], np.int64)


def upper_quantile(
    noisy: Numbers, deviation: float, edges: NDArray[np.int64], total: float, tail: float
) -> int | None:
    """The first edge above which at most about a share `tail` of the records lie; None where there is none.

    Counted from above, where noise alone lies: with k cells summed a tail must exceed √k deviations to be believed.
    """
    above = np.cumsum(noisy[::-1])[::-1]  # above[i] lie beyond edges[i − 1]
    blur = deviation * np.sqrt(np.arange(len(noisy), 0, -1))
    more = np.flatnonzero(above > tail * total + blur)
    place = int(more[-1]) if len(more) else 0
    return int(edges[place]) if place < len(edges) else None


@dataclass(frozen=True)
class Spectrum:
    """Axes along which records spread more than independent attributes would, the strongest first."""

    strengths: Numbers  # λ, per record
    directions: Numbers  # attributes × axes, orthonormal

    @property
    def axes(self) -> int:
        return len(self.strengths)

    @property
    def scaled(self) -> Numbers:
        """λ^(−¼) U: half-way to equal spread along all axes."""
        scaled: Numbers = self.directions * self.strengths**-0.25
        return scaled

    def own_noise(self, spread: Numbers) -> Numbers:
        """The variance along each scaled axis that the attributes' own chance brings, given each one's p(1 − p)."""
        own: Numbers = (self.scaled**2 * spread[:, None]).sum(axis=0)
        return own


def spectrum_of(upper: Numbers, deviation: float, spread: Numbers, total: float) -> Spectrum:
    """The eigenvalues of the covariances that stand out of their noise.

    `upper` are the covariances above the diagonal, with noise of this deviation; sampling adds p(1 − p)/√n. The
    largest eigenvalue of m × m such noise is 2√m deviations (Wigner); what lies 15% above it is structure. The
    diagonal, unmeasured, is filled with what the structure implies, a few times over.
    """
    m = len(spread)
    matrix = np.zeros((m, m))
    matrix[np.triu_indices(m, 1)] = upper
    matrix += matrix.T
    edge = 2 * np.sqrt(m) * np.sqrt(deviation**2 + spread.mean() ** 2 / total)
    for _ in range(REFILLS + 1):
        values, vectors = np.linalg.eigh(matrix)
        values, vectors = values[::-1], vectors[:, ::-1]
        axes = min(MOST_AXES, int((values > CLEAR * edge).sum()))
        values, vectors = values[:axes], vectors[:, :axes]
        matrix[np.arange(m), np.arange(m)] = (vectors**2 * values).sum(axis=1)
    return Spectrum(values, vectors)


@dataclass(frozen=True)
class CentreTotals:
    """Noisy sums of a round of k-means: records and places of each centre, and the squared length of all places."""

    counts: Numbers
    sums: Numbers  # centres × axes
    squares: float
    count_noise: float
    sum_noise: float

    @staticmethod
    def averaged(rounds: Sequence[CentreTotals]) -> CentreTotals:
        """Several rounds around about the same centres."""
        root = np.sqrt(len(rounds))
        return CentreTotals(
            np.mean([each.counts for each in rounds], axis=0),
            np.mean([each.sums for each in rounds], axis=0),
            float(np.mean([each.squares for each in rounds])),
            rounds[0].count_noise / root,
            rounds[0].sum_noise / root,
        )

    def centres(self, before: Numbers, spread: float) -> Centres:
        """Means where there are records enough for one; other centres stay where they were."""
        means = Centres(
            self.sums / np.maximum(self.counts, 1.0)[:, None], self.counts, self.count_noise, self.sum_noise
        )
        return replace(means, places=np.where(means.alive(spread)[:, None], means.places, before))


@dataclass(frozen=True)
class Centres:
    """Where records lie along the axes: centres, how many records each has, and the noise of both."""

    places: Numbers  # centres × axes
    counts: Numbers
    count_noise: float
    sum_noise: float  # of the sum over the records of a centre, along one axis

    @property
    def noise(self) -> Numbers:
        """The length of the noise of each centre."""
        length: Numbers = self.sum_noise * np.sqrt(self.places.shape[1]) / np.maximum(self.counts, 1.0)
        return length

    def alive(self, spread: float) -> NDArray[np.bool_]:
        """Centres with clearly some records, enough for their noise to stay below half of the spread."""
        return (self.counts > 4 * self.count_noise) & (self.noise < spread / 2)

    def between(self, spread: float) -> float:
        """The mean square of the centres, less that of their noise."""
        counts = np.maximum(self.counts, 0.0)
        squares = (self.places**2).sum(axis=1) - np.minimum(self.noise, spread) ** 2
        return float((counts * squares).sum() / max(1.0, counts.sum()))

    def reseeded(self, spread: float, around: Numbers, rng: np.random.Generator) -> Numbers:
        """Where to look next: each centre without records moves close to one that has many, to split it."""
        places, dead = self.places.copy(), np.flatnonzero(~self.alive(spread))
        weight = np.where(self.alive(spread), np.maximum(self.counts, 0), 0)
        if len(dead) and weight.any():
            beside = rng.choice(len(weight), len(dead), p=weight / weight.sum())
            places[dead] = (
                places[beside] + BESIDE * rng.standard_normal((len(dead), places.shape[1])) * around
            )
        return places

    def merged(self, spread: float, own: Numbers) -> NDArray[np.int64]:
        """Which centres stay: from the largest on, those that lie clearly apart from all that stay already."""
        kept: list[int] = []
        noise, near = self.noise, WIDE * float(np.sqrt(own.mean()))
        for c in np.argsort(-self.counts, kind="stable").tolist():
            if not self.alive(spread)[c]:
                continue
            apart = [
                np.linalg.norm(self.places[c] - self.places[g]) > MERGED * np.hypot(noise[c], noise[g]) + near
                for g in kept
            ]
            if all(apart):
                kept.append(c)
        return np.array(kept, np.int64)


@dataclass(frozen=True)
class Around:
    """The axes on some attributes, and what is expected of the places along them."""

    few: Binary
    places: NDArray[np.int64]  # of these attributes among all
    fractions: Numbers
    spectrum: Spectrum

    @property
    def axes(self) -> Axes:
        directions = np.round(self.spectrum.scaled * 2**SHIFT).astype(np.int64)
        return Axes(self.few, on_grid(self.fractions), directions)

    @property
    def mean(self) -> Numbers:
        """Of the places: what rounding the centre to the grid leaves."""
        mean: Numbers = (self.fractions - on_grid(self.fractions) / GRID) @ self.spectrum.scaled
        return mean

    @property
    def own(self) -> Numbers:
        """The variance along each axis that is the attributes' own chance."""
        return self.spectrum.own_noise(self.fractions * (1 - self.fractions))

    @property
    def variances(self) -> Numbers:
        variances: Numbers = np.sqrt(self.spectrum.strengths) + self.own
        return variances

    @property
    def length(self) -> float:
        """The root of the expected squared length of a place."""
        return math.sqrt(float(self.variances.sum()))

    @property
    def longest(self) -> int:
        """B² of places on the grid: two deviations of a chi-square above the expected one."""
        return math.ceil(GRID**2 * self.length**2 * (1 + 2 * math.sqrt(2 / self.spectrum.axes)))


def on_grid(numbers: Numbers) -> NDArray[np.int64]:
    return np.round(GRID * numbers).astype(np.int64)


def settled(ones: Measured) -> Numbers:
    """Fractions drawn together by how much of what sets them apart is noise, and within 0 and 1."""
    middle = float(ones.values.mean())
    seen = float(ones.values.var())
    kept = max(0.0, 1 - float(ones.variance) / max(seen, 1e-300))
    within: Numbers = np.clip(middle + kept * (ones.values - middle), 0.0, 1.0)
    return within


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

    def means(self, centre: Numbers, weights: Numbers | None = None) -> Measured:
        """The mean of x in each class, given the centre that was taken off."""
        held = self.weights if weights is None else weights
        return Measured("means", centre + self.sums / held[:, None], (self.deviation / held) ** 2)


def shrunk_towards(middle: Numbers, means: Measured) -> Numbers:
    """Each class's deviations from the middle, shrunk by how much of what is seen of them is noise."""
    deviations = means.values - middle
    seen = (deviations**2).mean(axis=1)
    kept = np.maximum(0.0, 1 - means.variance / np.maximum(seen, 1e-300))
    shrunk: Numbers = deviations * kept[:, None]
    return shrunk


def consistent(shares: Numbers, means: Measured, others: Measured) -> Numbers:
    """Means of classes whose average is the total, both by their noise.

    `others` is the total as measured otherwise. The classes' own average tC has variance Σ π²v; the joined total
    moves class c by its part πv/Σ π²v of the difference. What then deviates from the total is shrunk, and centred.
    """
    own = Measured("total", shares @ means.values, np.asarray((shares**2) @ means.variance))
    joined = own.joined(others)
    total = settled(joined)
    part = shares * means.variance / own.variance
    moved = Measured("means", means.values + part[:, None] * (total - own.values), means.variance)
    deviations = shrunk_towards(total, moved)
    deviations -= shares @ deviations
    within: Numbers = np.clip(total + deviations, 0.0, 1.0)
    return within
