"""The exponential mechanism over millions of candidates, drawn exactly.

Precondition   integer scores c_i, clamped to a public bound; a public rate M / 2^S (bits of log-weight per
               unit of score), 11 ≤ S ≤ 60.
Pseudocode     x_i = c_i · M / 2^S exactly; y_i = max(x_i, max_j x_j − B), B bits public;
               weight_i = ⌊2^40 · 2^(y_i − ⌊y_i⌋)⌋ · 2^⌊y_i⌋, an integer multiple of a power of two;
               draw a uniform integer below the sum of all weights.
Postcondition  candidate i is drawn with probability exactly weight_i / Σ weight, ln weight_i is within
               κ = 2⁻³⁸ of y_i · ln 2, and the y_i move within the range in which the x_i move.
Proof          docs/privacy.md, "Selection".

Nothing underflows: weights of equal integer exponent ⌊y⌋ form a *band*, each band is summed in 64-bit
integers, and the bands are joined as big integers. There are at most B + 1 bands, whatever the data, so that
memory and time are bounded by public numbers. The fractional power of two is evaluated by a table
and a short polynomial in IEEE double arithmetic (no library function), so it is one and the same function
of the score on every machine; its rounding is part of κ. It is the one place for doubles (`mantissa`): scores, bounds
and weights are integers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import BudgetError
from dualquery.loops import in_shares, njit
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy
from dualquery.types import Flags, Integers, Ints, Reals, Words

TABLE_BITS = 11
CHUNK = 2048  # candidates summed, and later searched, together
LEAST_CHUNKS = 8  # that are worth sharing

LN2 = 0.6931471805599453


def powers_of_two() -> Reals:
    """2^(i / 2048) for each i, from integer square roots alone, so that every machine has the same table."""
    precision = 256
    root = 2 << precision
    for _ in range(TABLE_BITS):
        root = math.isqrt(root << precision)
    powers, power = [], 1 << precision
    for _ in range(1 << TABLE_BITS):
        powers.append(math.ldexp(power >> (precision - 52), -52))
        power = (power * root) >> precision
    return np.array(powers)


@njit(cache=True, inline="always")
def mantissa(x, shift, powers):  # type: ignore[no-untyped-def]
    """⌊2^40 · 2^f⌋ for the fractional part f of x / 2^shift, up to a relative 2^-49 before the floor.

    Unsigned, because the compiler then need not ask whether an index is negative.
    """
    below = np.uint64(shift - TABLE_BITS)
    fraction = np.uint64(x) & ((np.uint64(1) << np.uint64(shift)) - np.uint64(1))
    rest = np.int64(fraction & ((np.uint64(1) << below) - np.uint64(1)))
    r = np.float64(rest) * (LN2 / np.float64(np.int64(1) << shift))
    power = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0)))
    return np.uint64(np.int64(powers[fraction >> below] * power * 1099511627776.0))


@njit(cache=True, inline="always")
def _band(x, shift, low):  # type: ignore[no-untyped-def]
    return np.uint64((x >> shift) - low)


@njit(cache=True, inline="always")
def _within(score, largest):  # type: ignore[no-untyped-def]
    return min(max(score, -largest), largest)


@njit(cache=True, inline="always")
def _raised(score, rate, largest, lowest):  # type: ignore[no-untyped-def]
    """y · 2^shift of a score: its log-weight, raised to the lowest that counts."""
    return max(_within(score, largest) * rate, lowest)


@njit(cache=True, inline="always")
def _score(counts, offsets, repeats, scale, signed, q):  # type: ignore[no-untyped-def]
    score = repeats * counts[q] - scale * np.int64(offsets[q])
    if not signed and score < 0:
        score = -score
    return score


@njit(cache=True)
def extreme_scores(lower, upper, counts, offsets, repeats, scale, signed, low, high):  # type: ignore[no-untyped-def]
    """low[chunk] and high[chunk] become the least and the greatest score of the chunk's candidates."""
    for chunk in range(lower, upper):
        least = np.int64(1) << 62
        most = -least
        for q in range(chunk * CHUNK, min(chunk * CHUNK + CHUNK, counts.shape[0])):
            score = _score(counts, offsets, repeats, scale, signed, q)
            least = min(least, score)
            most = max(most, score)
        low[chunk] = least
        high[chunk] = most


@njit(cache=True)
def sum_bands(  # type: ignore[no-untyped-def]
    lower,
    upper,
    counts,
    offsets,
    repeats,
    scale,
    surplus,
    signed,
    rate,
    shift,
    largest,
    lowest,
    powers,
    low,
    sums,
):
    """sums[chunk, band] = the sum of the mantissas of the chunk's candidates with exponent low + band."""
    for chunk in range(lower, upper):
        mine = sums[chunk]
        for q in range(chunk * CHUNK, min(chunk * CHUNK + CHUNK, counts.shape[0])):
            score = _score(counts, offsets, repeats, scale, signed, q)
            x = _raised(score, rate, largest, lowest)
            mine[_band(x, shift, low)] += mantissa(x, shift, powers)
            if signed:
                x = _raised(surplus - score, rate, largest, lowest)
                mine[_band(x, shift, low)] += mantissa(x, shift, powers)


@njit(cache=True)
def find_candidates(  # type: ignore[no-untyped-def]
    lower, upper, counts, offsets, repeats, scale, surplus, signed, rate, shift, largest, lowest, powers, low,
    bands, first, band, residue, found,
):  # fmt: skip
    """found[i] becomes the candidate (2·query + negated) of draw i; draws are sorted by chunk, band and residue.

    The draws of chunk k are first[k] : first[k + 1]. One walk over a chunk serves all of its draws.
    """
    for chunk in range(lower, upper):
        begin, end = first[chunk], first[chunk + 1]
        if begin == end:
            continue
        running = np.zeros(bands, np.uint64)
        pending = np.full(bands, -1, np.int64)  # the next draw of each band
        for i in range(end - 1, begin - 1, -1):
            pending[band[i]] = i
        for q in range(chunk * CHUNK, min(chunk * CHUNK + CHUNK, counts.shape[0])):
            score = _score(counts, offsets, repeats, scale, signed, q)
            for side in range(2 if signed else 1):
                x = _raised(surplus - score if side else score, rate, largest, lowest)
                b = _band(x, shift, low)
                i = pending[b]
                if i >= 0:
                    running[b] += mantissa(x, shift, powers)
                    while i >= 0 and residue[i] < running[b]:
                        found[i] = 2 * q + side
                        i = i + 1 if i + 1 < end and np.uint64(band[i + 1]) == b else -1
                    pending[b] = i


FINEST_SHIFT = 52 + TABLE_BITS - 3  # S: the remainder of a table look-up then has 49 bits, exact as a double
SPREAD_BITS = 64  # a candidate whose weight is raised is drawn with a chance of at most 2^-64, all together
SCORE_BITS = 62  # |c · M| stays below 2^62
SLACK = Fraction(1, 1 << 36)  # 4κ: what the rounding of log-weights can add to their range
LN2_ABOVE = Fraction(6931471805599454, 10**16)  # ln 2 = 0.69314718055994530…

TOO_FAST = (
    "the log-weights of a selection would leave the range that can be drawn from exactly; "
    "use a lower learning rate, fewer rounds or a smaller budget"
)


POWERS = powers_of_two()


class Candidates(Enum):
    """Which candidates a score c stands for."""

    SIGNED = "the query, weighted by c, and its negation, weighted by -c"
    ABSOLUTE = "the query, weighted by |c|"


@dataclass(frozen=True)
class Rate:
    """A public rate of M / 2^S bits of log-weight per unit of score."""

    multiplier: int
    shift: int

    def __post_init__(self) -> None:
        fits = 0 <= self.multiplier < 1 << SCORE_BITS and TABLE_BITS <= self.shift <= FINEST_SHIFT
        if not fits:
            raise BudgetError(TOO_FAST)

    @staticmethod
    def below(nats: float, largest_score: int) -> Rate:
        """The finest rate of at most `nats` (natural log-weight per unit) that keeps c · M below 2^62.

        Precondition: nats · largest_score / ln 2, the log-weight in bits, is at most 2^50; then S ≥ 11.
        """
        if not 0 <= nats < math.inf:
            raise BudgetError(TOO_FAST)
        bits = Fraction(nats) / LN2_ABOVE
        spread = bits * max(1, largest_score)
        if spread > 1 << SCORE_BITS - 1 - TABLE_BITS:
            raise BudgetError(TOO_FAST)
        shift = SCORE_BITS - 1 - max(0, math.ceil(math.log2(spread)) if spread > 0 else 0)
        shift = min(shift, FINEST_SHIFT)
        return Rate(math.floor(bits * (1 << shift)), shift)

    @property
    def largest(self) -> int:
        """The largest |c| with |c · M| < 2^62. Scores beyond it count as if they were at it."""
        return ((1 << SCORE_BITS) - 1) // max(1, self.multiplier)

    @property
    def nats(self) -> Fraction:
        """An upper bound of the natural log-weight per unit of score."""
        return Fraction(self.multiplier, 1 << self.shift) * LN2_ABOVE


@dataclass(frozen=True)
class Scored:
    """The score of candidate q is c_q = repeats · counts_q − scale · offsets_q; all but the counts is public.

    `surplus` is added to the score of every negation: the difference between the private and the public
    number of records, times the repeats; zero where the number of records is public.
    """

    counts: Integers
    repeats: int
    scale: int
    offsets: Ints | Integers | Answers
    surplus: int
    candidates: Candidates

    @property
    def signed(self) -> bool:
        return self.candidates is Candidates.SIGNED

    @property
    def chunks(self) -> int:
        return -(-len(self.counts) // CHUNK)


@dataclass(frozen=True)
class Selected:
    """Drawn queries, in the order of the draws; `negated` marks those drawn as their negation."""

    queries: Integers
    negated: Flags


def most_bits(candidates: int) -> int:
    """B: how many bits a log-weight may lie below the largest, of so many candidates. Public.

    Weights farther below are raised to it. All of them together then weigh at most N · 2^-B < 2^-64 of the largest.
    """
    return SPREAD_BITS + candidates.bit_length()


class Weighing(NamedTuple):
    """How a score becomes a weight: rate / 2^shift bits a unit, scores within ± largest, log-weights (· 2^shift) from
    lowest on; so many bands, and the exponent of the first.
    """

    rate: int
    shift: int
    largest: int
    lowest: int
    low: int
    bands: int


class Answers:
    """How many of the replies that were heard satisfy each query. Public."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._numbers = np.zeros(workload.size, np.int32)

    def add(self, reply: Ints) -> None:
        for group, start in zip(self._workload.groups, self._workload.starts, strict=False):
            group.add_answers(reply, self._numbers[start : start + group.size])

    def of(self, queries: Integers) -> Ints:
        return self._numbers[queries]

    def __array__(self, *given: Any, **named: Any) -> NDArray[Any]:
        return np.asarray(self._numbers)


class Weights:
    """Who adds up weights, of private scores: the loops of this module, or a card with the same numbers."""

    def answers(self, workload: Workload) -> Answers:
        """Of no replies yet."""
        return Answers(workload)

    def extremes(self, scored: Scored) -> tuple[int, int]:
        """The least and the greatest score of all queries."""
        chunks = scored.chunks
        lows, highs = np.empty(chunks, np.int64), np.empty(chunks, np.int64)
        offsets = np.asarray(scored.offsets)
        scores = (scored.counts, offsets, scored.repeats, scored.scale, scored.signed, lows, highs)
        in_shares(extreme_scores, chunks, *scores, least=LEAST_CHUNKS)
        return int(lows.min()), int(highs.max())

    def sums(self, scored: Scored, law: Weighing) -> Words:
        """[chunk, band]: the mantissas of the chunk's candidates in the band, added up."""
        sums = np.zeros((scored.chunks, law.bands), np.uint64)
        in_shares(sum_bands, scored.chunks, *self._given(scored, law), sums, least=LEAST_CHUNKS)
        return sums

    def found(
        self, scored: Scored, law: Weighing, chunk: Integers, band: Integers, residue: Words
    ) -> Integers:
        """The candidate (2·query + negated) of each draw: where mantissas of its chunk and band exceed it."""
        order = np.lexsort((residue, band, chunk))
        found, in_order = np.empty(len(order), np.int64), np.empty(len(order), np.int64)
        first = np.searchsorted(chunk[order], np.arange(scored.chunks + 1))
        wanted = (law.bands, first, band[order], residue[order], in_order)
        given = self._given(scored, law)
        in_shares(find_candidates, scored.chunks, *given, *wanted, least=LEAST_CHUNKS)
        found[order] = in_order
        return found

    @staticmethod
    def _given(scored: Scored, law: Weighing) -> tuple[Any, ...]:
        offsets = np.asarray(scored.offsets)
        scores = (scored.counts, offsets, scored.repeats, scored.scale, scored.surplus, scored.signed)
        return (*scores, law.rate, law.shift, law.largest, np.int64(law.lowest), POWERS, law.low)


_LOOPS = Weights()
_USUAL: ContextVar[Weights] = ContextVar("weights", default=_LOOPS)


@contextmanager
def weighing_with(weights: Weights) -> Iterator[None]:
    """Draws inside have their weights added up by these."""
    before = _USUAL.set(weights)
    try:
        yield
    finally:
        _USUAL.reset(before)


def unheard(workload: Workload) -> Answers:
    """Answers that whoever weighs keeps where weights are added up."""
    return _USUAL.get().answers(workload)


def draw(scored: Scored, *, rate: Rate, draws: int, entropy: Entropy) -> Selected:
    """Draw independently, each candidate with probability proportional to its weight."""
    weights = _USUAL.get()
    least, greatest = _clamped(*weights.extremes(scored), scored, rate.largest)
    highest = greatest * rate.multiplier
    reach = most_bits(len(scored.counts) * (1 + scored.signed)) << rate.shift
    lowest = max(least * rate.multiplier, highest - reach)
    low, high = lowest >> rate.shift, highest >> rate.shift
    law = Weighing(rate.multiplier, rate.shift, rate.largest, lowest, low, high - low + 1)
    sums = weights.sums(scored, law)
    bands, positions = _draw_bands(sums, draws, entropy)
    chunk, residue = _find_chunks(sums, bands, positions)
    found = weights.found(scored, law, chunk, bands, residue)
    return Selected(found >> 1, (found & 1).astype(np.bool_))


def _clamped(low: int, high: int, scored: Scored, largest: int) -> tuple[int, int]:
    """The least and the greatest score of all candidates, within the bound."""
    if scored.signed:
        low, high = min(low, scored.surplus - high), max(high, scored.surplus - low)
    return max(-largest, min(low, largest)), max(-largest, min(high, largest))


def _draw_bands(sums: Words, draws: int, entropy: Entropy) -> tuple[Integers, Words]:
    """For each draw its band, and its position within the sum of that band."""
    half = np.uint64(0xFFFFFFFF)
    totals = [
        (int(high) << 32) + int(low)
        for high, low in zip((sums >> np.uint64(32)).sum(axis=0), (sums & half).sum(axis=0), strict=True)
    ]
    joined = [0]
    for band, total in enumerate(totals):
        joined.append(joined[-1] + (total << band))
    points = entropy.below(joined[-1], draws)
    bands = [bisect_right(joined, point) - 1 for point in points]
    positions = [(point - joined[band]) >> band for point, band in zip(points, bands, strict=True)]
    kind = np.uint64 if max(totals) < 1 << 64 else object
    return np.array(bands, np.int64), np.array(positions, kind)


def _find_chunks(sums: Words, bands: Integers, positions: Words) -> tuple[Integers, Words]:
    """The chunk of each draw, and what is left of its position there.

    Beyond 2^22 candidates positions may be Python integers: then an addition a chunk and drawn band, of which there
    are at most min(draws, B + 1), hence fewer than one for every ten candidates.
    """
    chunk = np.empty(len(bands), np.int64)
    residue = np.empty(len(bands), np.uint64)
    for band in np.unique(bands):
        mine = bands == band
        ends = np.cumsum(sums[:, band].astype(positions.dtype))
        at = np.searchsorted(ends, positions[mine], side="right")
        chunk[mine] = at
        residue[mine] = positions[mine] - (ends[at] - sums[at, band].astype(positions.dtype))
    return chunk, residue
