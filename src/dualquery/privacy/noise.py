"""Integer noise for integer counts: discrete Laplace and discrete Gaussian, exact, at one 64-bit word a draw.

Both laws are P(x) ∝ exp(−linear·|x| − square·x²) over the integers. To draw, |x| = j·m + i is split into a
block j and a place i < m = 2^h, so that 64 to 128 blocks span the law's width, and a word of 64 random bits
is read as

    block bits (32) | chance bits (31 − h) | place bits (h) | sign bit (1)

    j  is found by inversion: the 32 bits begin a uniform U in [0, 1), and F(j − 1) ≤ U < F(j),
       F(j) = Σ_{l ≤ j} v(l) / Σ v(l),   v(l) = exp(−linear·lm − square·(lm)²)
    i  is uniform
    kept with probability exp(−γ),  γ = linear·i + square·(2jm·i + i²): the 31 − h bits begin a uniform V,
       and the word is dropped if V < 1 − exp(−γ)
    −0 is dropped

A kept word is x with probability proportional to v(j)·exp(−γ) = exp(−linear·|x| − square·x²): the law.
The bits in the word nearly always decide, in big integers where words are few, and in compiled loops (integers too)
where they are many, with the same result. Where they do not, more bits are drawn and the functions F and exp are
enclosed more narrowly, by interval arithmetic on integers, until they do. Nothing is approximated.

The words are drawn in order by the caller's thread and each cell has its own, so a seed gives the same noise on any
number of threads. Proof: docs/privacy.md, "Noise".
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate
from statistics import NormalDist
from typing import Protocol

import numpy as np

from dualquery.errors import BudgetError
from dualquery.loops import njit
from dualquery.privacy.budget import Sensitivity
from dualquery.privacy.conversion import exp_minus
from dualquery.privacy.events import GaussianMeasurement, LaplaceMeasurement
from dualquery.randomness import Entropy
from dualquery.types import Integers, Words

BLOCK_BITS = 32  # of each word, for the choice of the block
_CHUNK = 64  # bits drawn at a time when a word does not decide
_LARGEST_PLACE_BITS = 24


@dataclass(frozen=True)
class Law:
    """P(x) ∝ exp(−linear·|x| − square·x²), one of the two being zero."""

    linear: Fraction
    square: Fraction

    def __post_init__(self) -> None:
        _ = self.place_bits  # refuses what 64-bit counts could not carry, before anything is drawn

    @staticmethod
    def laplace(scale: Fraction) -> Law:
        """Discrete Laplace noise: P(x) ∝ exp(−|x|/b)."""
        if scale <= 0:
            raise BudgetError("The scale of Laplace noise must be positive.")
        return Law(1 / Fraction(scale), Fraction(0))

    @staticmethod
    def gaussian(variance: Fraction) -> Law:
        """Discrete Gaussian noise: P(x) ∝ exp(−x²/(2σ²))."""
        if variance <= 0:
            raise BudgetError("The variance of Gaussian noise must be positive.")
        return Law(Fraction(0), 1 / (2 * Fraction(variance)))

    @cached_property
    def place_bits(self) -> int:
        """The smallest h for which the scale b, or σ, is at most 128 blocks of m = 2^h."""
        for bits in range(_LARGEST_PLACE_BITS + 1):
            width = 128 << bits
            if self.linear * width >= 1 or 2 * self.square * width**2 >= 1:
                return bits
        raise BudgetError("Noise of this size drowns any count; use a larger budget or measure less.")

    def gamma(self, block: int, place: int) -> Fraction:
        return self.linear * place + self.square * (2 * (block << self.place_bits) + place) * place


@dataclass(frozen=True)
class Enclosure:
    """F(j) between lower[j] / above and upper[j] / below, for each block j that matters at this precision."""

    lower: list[int]
    upper: list[int]
    below: int
    above: int

    def block(self, chance: int, bits: int) -> int | None:
        """The j with F(j − 1) ≤ U < F(j) for every U in [chance, chance + 1) / 2^bits, if there is one."""
        enough = -(-(chance + 1) * self.above >> bits)  # F(j) ≥ (chance + 1) / 2^bits
        block = bisect_left(self.lower, enough)
        if block == len(self.lower):
            return None
        if block > 0 and self.upper[block - 1] << bits > chance * self.below:
            return None
        return block


@lru_cache(maxsize=256)
def enclose(law: Law, precision: int) -> Enclosure:
    """The cumulative weights of the blocks in fixed point, each number rounded both ways.

    v(j + 1) = v(j)·r(j) and r(j + 1) = r(j)·q with r(0) = exp(−linear·m − square·m²), q = exp(−2·square·m²).
    Since r decreases, the weights after the last add up to at most v·r/(1 − r).
    """
    one, width = 1 << precision, 1 << law.place_bits
    ratio_low, ratio_high = exp_minus(law.linear * width + law.square * width**2, precision)
    bend_low, bend_high = exp_minus(2 * law.square * width**2, precision)
    low = high = one
    lows, highs = [low], [high]
    while high >= 1 << 16:  # what is left out is small beside the weights but large beside their roundings
        low, high = low * ratio_low >> precision, -(-high * ratio_high >> precision)
        lows.append(low)
        highs.append(high)
        ratio_low, ratio_high = ratio_low * bend_low >> precision, -(-ratio_high * bend_high >> precision)
    lower, upper = list(accumulate(lows)), list(accumulate(highs))
    rest = -(-high * ratio_high // (one - ratio_high))
    return Enclosure(lower, upper, below=lower[-1], above=upper[-1] + rest)


def settle(law: Law, word: int, entropy: Entropy) -> int | None:
    """What a word is worth: an integer, or None if it is dropped. Draws more bits while they matter."""
    places = law.place_bits
    block = _settle_block(law, word >> 64 - BLOCK_BITS, entropy)
    place = (word >> 1) & ((1 << places) - 1)
    chance_bits = 63 - BLOCK_BITS - places
    chance = (word >> 1 + places) & ((1 << chance_bits) - 1)
    negative = bool(word & 1)
    magnitude = (block << places) + place
    if (negative and magnitude == 0) or _dropped(law.gamma(block, place), chance, chance_bits, entropy):
        return None
    return -magnitude if negative else magnitude


def _settle_block(law: Law, chance: int, entropy: Entropy) -> int:
    bits = BLOCK_BITS
    while True:
        block = enclose(law, bits + _CHUNK).block(chance, bits)
        if block is not None:
            return block
        chance, bits = (chance << _CHUNK) | entropy.below(1 << _CHUNK, 1)[0], bits + _CHUNK


def _dropped(gamma: Fraction, chance: int, bits: int, entropy: Entropy) -> bool:
    """Whether V < 1 − exp(−γ), for a uniform V that begins with these bits."""
    while gamma > 0:
        low, high = exp_minus(gamma, bits + _CHUNK)
        one = 1 << bits + _CHUNK
        if (chance + 1) << _CHUNK <= one - high:
            return True
        if chance << _CHUNK >= one - low:
            return False
        chance, bits = (chance << _CHUNK) | entropy.below(1 << _CHUNK, 1)[0], bits + _CHUNK
    return False


GUIDE_BITS = 12


@dataclass(frozen=True)
class Thresholds:
    """A law rounded to the bits of a word, always on the safe side: an undecided word is told apart.

    `floor[j] / 2^32 ≤ F(j) ≤ ceiling[j] / 2^32`, and `guide` says where to start looking for j. The exponent
    γ = unit · s, s = i · (slope·j + bend·i + flat), is enclosed by s and the unit in fixed point.
    """

    floor: Integers
    ceiling: Integers
    guide: Integers
    place_bits: int
    slope: int
    bend: int
    flat: int
    drop: int  # unit · 2^32 lies between rate and rate + 1, divided by 2^(drop + shift)
    rate: int
    shift: int


@lru_cache(maxsize=128)
def thresholds(law: Law) -> Thresholds:
    """The tables of a law; a few milliseconds, once."""
    enclosure = enclose(law, BLOCK_BITS + 64)
    floor, ceiling = [], []
    for lower, upper in zip(enclosure.lower, enclosure.upper, strict=True):
        floor.append((lower << BLOCK_BITS) // enclosure.above)
        ceiling.append(-((-upper << BLOCK_BITS) // enclosure.below))
        if floor[-1] == (1 << BLOCK_BITS) - 1:  # no later block can be reached by 32 bits alone
            break
    starts = np.arange(1 << GUIDE_BITS, dtype=np.int64) << BLOCK_BITS - GUIDE_BITS
    table = np.array(floor, np.int64)
    guide = np.searchsorted(table, starts, side="right").astype(np.int64)

    width = 1 << law.place_bits
    slope, bend, flat = (2 * width, 1, 0) if law.square else (0, 0, 1)
    largest = (width - 1) * (slope * (len(floor) - 1) + bend * (width - 1) + flat)
    drop = max(0, largest.bit_length() - 30)
    unit = law.square or law.linear
    shift = max(0, (unit.denominator // unit.numerator).bit_length() - 1 - drop)
    rate = (unit.numerator << 32 + drop + shift) // unit.denominator if width > 1 else 0
    return Thresholds(
        table, np.array(ceiling, np.int64), guide, law.place_bits, slope, bend, flat, drop, rate, shift
    )


def decide(law: Law, words: Words, cells: Integers, out: Integers) -> tuple[Integers, Integers]:
    """Write what each word is worth into its cell; return which words are dropped and which are undecided."""
    dropped, undecided = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    t = thresholds(law)
    drops, doubts = _decide(
        words, cells, out, dropped, undecided,
        t.floor, t.ceiling, t.guide, t.place_bits, t.slope, t.bend, t.flat, t.drop, t.rate, t.shift,
    )  # fmt: skip
    return dropped[:drops], undecided[:doubts]


@njit(cache=True)
def _decide(  # type: ignore[no-untyped-def]
    words, cells, out, dropped, undecided,
    floor, ceiling, guide, place_bits, slope, bend, flat, drop, rate, shift,
):  # fmt: skip
    drops = doubts = 0
    last = floor[-1]
    coarse = BLOCK_BITS - GUIDE_BITS
    for p in range(len(words)):
        chance = np.int64(words[p] >> np.uint64(32))
        rest = np.int64(words[p] & np.uint64(0xFFFFFFFF))
        if chance >= last:
            undecided[doubts] = p
            doubts += 1
            continue
        block = guide[chance >> coarse]
        while floor[block] <= chance:
            block += 1
        if block > 0 and ceiling[block - 1] > chance:
            undecided[doubts] = p
            doubts += 1
            continue
        place = (rest >> 1) & ((1 << place_bits) - 1)
        magnitude = (block << place_bits) + place
        negative = rest & 1
        if magnitude == 0 and negative:
            dropped[drops] = p
            drops += 1
            continue
        if place > 0:
            keep_bits = (rest >> (1 + place_bits)) << (1 + place_bits)
            s = (place * (slope * block + bend * place + flat)) >> drop
            low = (s * rate) >> shift
            high = ((s + (drop > 0)) * (rate + 1) >> shift) + 1
            if keep_bits < high:  # not surely kept, since 1 − exp(−γ) ≤ γ
                if keep_bits + (2 << place_bits) <= low - ((high * high) >> 33) - 1:  # γ − γ²/2 ≤ 1 − exp(−γ)
                    dropped[drops] = p
                    drops += 1
                else:
                    undecided[doubts] = p
                    doubts += 1
                continue
        out[cells[p]] = -magnitude if negative else magnitude
    return drops, doubts


FEW = 16  # words that big integers settle sooner than the tables of the compiled loops are built
_BATCH = 1 << 17  # words at a time: they stay in the cache


class Noise(Protocol):
    """A law of noise, what it costs and how to draw it."""

    def event(self, sensitivity: Sensitivity) -> GaussianMeasurement | LaplaceMeasurement:
        """What adding it to whole numbers of this sensitivity costs."""

    def draw(self, count: int, entropy: Entropy) -> Integers: ...

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

    def draw(self, count: int, entropy: Entropy) -> Integers:
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

    def draw(self, count: int, entropy: Entropy) -> Integers:
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


def discrete_laplace(count: int, *, scale: Fraction, entropy: Entropy) -> Integers:
    """`count` independent integers, P(x) ∝ exp(−|x|/b)."""
    return _draw(Law.laplace(scale), count, entropy)


def discrete_gaussian(count: int, *, variance: Fraction, entropy: Entropy) -> Integers:
    """`count` independent integers, P(x) ∝ exp(−x²/(2σ²))."""
    return _draw(Law.gaussian(variance), count, entropy)


def _draw(law: Law, count: int, entropy: Entropy) -> Integers:
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
