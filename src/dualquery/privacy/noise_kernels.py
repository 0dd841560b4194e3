"""The compiled part of the noise: every word that its own bits decide, decided. Integers only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.privacy.noise_law import BLOCK_BITS, Law, enclose

GUIDE_BITS = 12


@dataclass(frozen=True)
class Thresholds:
    """A law rounded to the bits of a word, always on the safe side: an undecided word is told apart.

    `floor[j] / 2^32 ≤ F(j) ≤ ceiling[j] / 2^32`, and `guide` says where to start looking for j. The exponent
    γ = unit · s, s = i · (slope·j + bend·i + flat), is enclosed by s and the unit in fixed point.
    """

    floor: NDArray[np.int64]
    ceiling: NDArray[np.int64]
    guide: NDArray[np.int64]
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


def decide(
    law: Law,
    words: NDArray[np.uint64],
    cells: NDArray[np.int64],
    out: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Write what each word is worth into its cell; return which words are dropped and which are undecided."""
    dropped, undecided = np.empty(len(words), np.int64), np.empty(len(words), np.int64)
    t = thresholds(law)
    drops, doubts = _decide(
        words, cells, out, dropped, undecided,
        t.floor, t.ceiling, t.guide, t.place_bits, t.slope, t.bend, t.flat, t.drop, t.rate, t.shift,
    )  # fmt: skip
    return dropped[:drops], undecided[:doubts]


@njit(cache=True, nogil=True)
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
