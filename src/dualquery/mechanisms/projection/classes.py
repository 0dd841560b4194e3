"""Wide tables of binary attributes: find structure on few of them, then measure all within the classes found.

One-way counts of d attributes cost Δ² = d/4, and of centred, clipped vectors about Σ p(1 − p): a sum within classes,
which partition the records, costs no more. So 400 public random attributes say, through their noisy second moments,
along which axes records spread and around which centres they lie; every attribute is then summed up within the
classes, once to centre it there and once more around those centres, where vectors are shorter. Where records spread
without classes, each attribute's covariances with the axes are measured instead; where nothing stands out, its total.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError
from dualquery.fitting.measured import Measured
from dualquery.fitting.mixture import Mixture, latent_places, matched, shrunk_by_axis
from dualquery.fitting.structure import (
    TAIL,
    Around,
    Centres,
    CentreTotals,
    NoisySums,
    Spectrum,
    consistent,
    length_edges,
    on_grid,
    settled,
    shrunk_towards,
    spectrum_of,
    upper_quantile,
)
from dualquery.mechanisms.shares import TOO_SMALL, Purse
from dualquery.privacy.statistics import Statistic
from dualquery.privacy.wide_statistics import (
    ClippedCentreSums,
    ClippedClassSums,
    ClippedCrossSums,
    ClippedMoments,
    LengthCounts,
    OneWayBalances,
)
from dualquery.queries.binary import (
    GRID,
    Balances,
    Binary,
    Centred,
    CentreSums,
    Classes,
    ClassSums,
    Clip,
    CrossSums,
    Lengths,
    SecondMoments,
)

Numbers = NDArray[np.float64]

FEW = 400  # public random attributes on which structure is looked for
ROUNDS = 8  # of noisy k-means
LATE = 4  # of them, at the end, are averaged
LEAST_CENTRES = 16
MOST_WEIGHT = 64  # F, where the room allows it
PURE = 1.3  # of the attributes' own chance: up to there, what is left within classes is nothing else
COUNT_PART = 0.3  # length of a class's count beside its vector, in k-means
CLASS_COUNT_PART = 0.12  # and where all attributes are summed up
LATENT_CLASSES = 1024  # draws of a place, where there are no classes
LATENT_CELLS = 1 << 26  # chances held at once

CENTRES = tuple(f"centres {i + 1}" for i in range(ROUNDS))
PARTS = {
    "ones": 0.05,
    "some lengths": 0.002,
    "moments": 0.06,
    **dict.fromkeys(CENTRES, 0.006),
    "lengths": 0.0015,
    "first sums": 0.07,
    "class lengths": 0.0015,
    "totals": 0.19,
    "sums": 0.567,
}
WORDS = {
    "ones": "measure every attribute",
    "some lengths": f"measure how long records are over {FEW} attributes",
    "moments": "measure their second moments",
    **{name: f"measure sums around centres, round {i + 1}" for i, name in enumerate(CENTRES)},
    "lengths": "measure how long records are",
    "first sums": "measure every attribute within classes",
    "class lengths": "measure how far records lie from their class",
    "totals": "measure every attribute around its class",
    "sums": "measure every attribute within classes, around them",
}


@dataclass(frozen=True)
class Measuring:
    """One run through the shares of a budget."""

    purse: Purse
    binary: Binary
    total: float
    rng: np.random.Generator

    def mixture(self) -> Mixture:
        """What was found, as classes of rows."""
        ones = self._ones()
        likely = settled(ones)
        places = np.sort(self.rng.choice(self.binary.width, min(FEW, self.binary.width), replace=False))
        few = Binary(self.binary.domain, self.binary.attributes[places])
        spectrum = self._spectrum(few, likely[places])
        if spectrum is None or spectrum.axes == 0:
            return self._independent(ones)
        around = Around(few, places, likely[places], spectrum)
        centres, within = self._centres(around)
        kept = centres.merged(around.length, around.own)
        if len(kept) and within <= PURE * around.own.sum():
            return self._by_classes(ones, Classes(around.axes, on_grid(centres.places[kept])))
        return self._by_axes(ones, around, centres)

    def _ones(self) -> Measured:
        noisy = self.purse.measure(OneWayBalances(Balances(self.binary)), "ones")
        variance = np.asarray((noisy.deviation / (2 * self.total)) ** 2)
        return Measured("ones", (noisy.values / self.total + 1) / 2, variance)

    def _longest(self, centred: Centred, fractions: Numbers, name: str) -> int:
        """B²: squared lengths that all but about 2% of the records stay below."""
        steps = centred.centre.mean(axis=0)
        squares = (centred.centre.astype(np.float64) ** 2).mean(axis=0)
        expected = float((GRID**2 * fractions - 2 * GRID * fractions * steps + squares).sum())
        edges = length_edges(expected, centred.longest)
        noisy = self.purse.measure(LengthCounts(Lengths(centred, edges)), name)
        found = upper_quantile(noisy.values, noisy.deviation, edges, self.total, TAIL)
        return centred.longest if found is None else found

    def _fitting(self, make: Callable[[int], Statistic]) -> tuple[Statistic, int]:
        """A statistic with the largest weights that there is room for."""
        weight = MOST_WEIGHT
        while weight:
            statistic = make(weight)
            if self.purse.fits(statistic):
                return statistic, weight
            weight //= 2
        raise BudgetError(TOO_SMALL)

    def _spectrum(self, few: Binary, fractions: Numbers) -> Spectrum | None:
        """Axes of the second moments; None where the neighbours leave no room to measure them."""
        centre = on_grid(fractions)
        centred = Centred(few, centre[None])
        longest = self._longest(centred, fractions, "some lengths")
        try:
            statistic, most = self._fitting(
                lambda most: ClippedMoments(SecondMoments(centred, Clip(most, longest)))
            )
        except BudgetError:
            return None
        noisy = self.purse.measure(statistic, "moments")
        unit = (most * GRID) ** 2 * self.total
        off = fractions - centre / GRID
        above = np.triu_indices(few.width, 1)
        covariances = noisy.values / unit - off[above[0]] * off[above[1]]
        return spectrum_of(covariances, noisy.deviation / unit, fractions * (1 - fractions), self.total)

    def _centres(self, around: Around) -> tuple[Centres, float]:
        """Noisy k-means (Lloyd's rounds on noisy sums), and the mean square within the classes.

        At first centres without records are moved; the rounds after that are averaged.
        """
        spread = np.sqrt(around.variances)
        number = max(LEAST_CENTRES, 4 * (len(spread) + 1))
        places = self.rng.standard_normal((number, len(spread))) * spread
        late: list[CentreTotals] = []
        for i, name in enumerate(CENTRES):
            late = [*late, self._round(around, Classes(around.axes, on_grid(places)), name)]
            late = late[-1:] if i <= ROUNDS - LATE else late
            centres = CentreTotals.averaged(late).centres(places, around.length)
            searching = i < ROUNDS - LATE
            places = centres.reseeded(around.length, spread, self.rng) if searching else centres.places
        return centres, CentreTotals.averaged(late).squares / self.total - centres.between(around.length)

    def _round(self, around: Around, classes: Classes, name: str) -> CentreTotals:
        count_factor = max(1, round(COUNT_PART * math.sqrt(around.longest)))

        def sums(most: int) -> CentreSums:
            divisor = max(1, math.ceil(most * math.sqrt(around.longest) / COUNT_PART))
            return CentreSums(classes, Clip(most, around.longest), count_factor, divisor)

        statistic, most = self._fitting(lambda most: ClippedCentreSums(sums(most)))
        noisy = self.purse.measure(statistic, name)
        table = noisy.values[:-1].reshape(classes.number, -1)
        return CentreTotals(
            table[:, 0] / (most * count_factor),
            table[:, 1:] / (most * GRID),
            float(noisy.values[-1]) * sums(most).divisor / (most * GRID) ** 2,
            noisy.deviation / (most * count_factor),
            noisy.deviation / (most * GRID),
        )

    def _sums(self, centred: Centred, longest: int, *names: str, together: bool = False) -> NoisySums:
        """Every attribute, summed up around the centres."""
        factor = 0 if together else max(1, round(CLASS_COUNT_PART * math.sqrt(longest)))
        statistic, most = self._fitting(
            lambda most: ClippedClassSums(ClassSums(centred, Clip(most, longest), factor, together))
        )
        noisy = self.purse.measure(statistic, *names)
        classes = 1 if together else len(centred.centre)
        return NoisySums.of(noisy.values, noisy.deviation, classes, most, factor)

    def _totals(self, ones: Measured, *names: str) -> Measured:
        """One-way fractions, measured again around what they seem to be."""
        likely = settled(ones)
        centre = on_grid(likely)
        centred = Centred(self.binary, centre[None])
        longest = self._longest(centred, likely, "lengths")
        sums = self._sums(centred, longest, *names, together=True)
        again = sums.means(centre[None] / GRID, np.array([self.total]))
        return ones.joined(Measured("totals", again.values[0], again.variance[0]))

    def _independent(self, ones: Measured) -> Mixture:
        spare = ("first sums", "class lengths", "totals", "sums", *CENTRES)
        totals = self._totals(ones, *spare)
        return self._made(np.ones(1), settled(totals)[:, None], np.sqrt(totals.variance)[None])

    def _by_classes(self, ones: Measured, classes: Classes) -> Mixture:
        likely = settled(ones)
        centre = np.repeat(on_grid(likely)[None], classes.number, axis=0)
        longest = self._longest(Centred(self.binary, centre[:1]), likely, "lengths")
        first = self._sums(Centred(self.binary, centre, classes), longest, "first sums").means(centre / GRID)
        near = np.clip(likely + shrunk_towards(likely, first), 0.0, 1.0)
        centred = Centred(self.binary, on_grid(near), classes)
        longest = self._longest(centred, likely, "class lengths")
        sums = self._sums(centred, longest, "sums")
        shares = sums.weights / sums.weights.sum()
        totals = self._sums(centred, longest, "totals", together=True).means(
            (shares @ (centred.centre / GRID))[None], sums.weights.sum(keepdims=True)
        )
        others = ones.joined(Measured("totals", totals.values[0], totals.variance[0]))
        means = first.joined(sums.means(centred.centre / GRID))
        return self._made(shares, consistent(shares, means, others).T, np.sqrt(means.variance))

    def _by_axes(self, ones: Measured, around: Around, centres: Centres) -> Mixture:
        totals = self._totals(ones, "first sums", "class lengths", "totals")
        likely, fractions = settled(ones), settled(totals)
        centre = on_grid(likely)
        centred = Centred(self.binary, centre[None])
        # within the clip of the totals a vector may be as long as independent attributes make it, and a fifth more
        longest = int(1.2 * GRID**2 * (likely * (1 - likely) + 1 / (4 * GRID**2)).sum()) + 1
        statistic, most = self._fitting(
            lambda most: ClippedCrossSums(
                CrossSums(centred, Clip(most, longest), around.axes, Clip(max(1, most // 4), around.longest))
            )
        )
        noisy = self.purse.measure(statistic, "sums")
        unit = most * max(1, most // 4) * GRID**2 * self.total
        covariances = noisy.values.reshape(self.binary.width, -1) / unit
        covariances -= (fractions - centre / GRID)[:, None] * around.mean
        own = fractions[around.places] * (1 - fractions[around.places])
        covariances[around.places] -= around.spectrum.scaled * own[:, None]
        covariances = shrunk_by_axis(covariances, noisy.deviation / unit)
        number = int(np.clip(LATENT_CELLS // self.binary.width, 128, LATENT_CLASSES))
        t = latent_places(around.spectrum, centres, number, self.rng)
        noise = np.full(number, math.sqrt(totals.variance))
        return self._made(np.full(number, 1 / number), matched(fractions, covariances, t), noise)

    def _made(self, shares: Numbers, means: NDArray[np.floating], noise: Numbers) -> Mixture:
        return Mixture(
            self.binary.attributes, shares, np.ascontiguousarray(means, np.float32), noise.astype(np.float32)
        )
