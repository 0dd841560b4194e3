"""The laws of the noise, in big integers: what a 64-bit word is worth, settled to the last bit.

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
The bits in the word nearly always decide. Where they do not, more bits are drawn and the functions F and exp
are enclosed more narrowly, by interval arithmetic on integers, until they do. Nothing is approximated.
Proof: docs/privacy.md, "Noise".
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate

from dualquery.errors import BudgetError
from dualquery.randomness import Entropy

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
        """γ of the module's description."""
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


def exp_minus(x: Fraction, precision: int) -> tuple[int, int]:
    """Integers below and above 2^precision · exp(−x), for rational x ≥ 0, few units apart."""
    if x >= precision:
        return 0, 1
    halvings = max(0, x.numerator.bit_length() - x.denominator.bit_length() + 2)  # x / 2^halvings ≤ 1/2
    guarded = precision + halvings + 8
    y = x * (1 << guarded - halvings)
    y_low, y_high = y.numerator // y.denominator, -(-y.numerator // y.denominator)
    low = high = term_low = term_high = 1 << guarded
    order = 0
    while term_high > 1:  # the terms y^k / k! decrease and alternate, so the next one bounds the rest
        order += 1
        divisor = order << guarded
        term_low, term_high = term_low * y_low // divisor, -(-term_high * y_high // divisor)
        low, high = (low - term_high, high - term_low) if order % 2 else (low + term_low, high + term_high)
    low, high = max(0, low - term_high), high + term_high
    for _ in range(halvings):
        low, high = low * low >> guarded, -(-high * high >> guarded)
    excess = guarded - precision
    return low >> excess, min(1 << precision, -(-high >> excess))


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
