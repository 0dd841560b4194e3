"""A mixture of products: classes of rows, within which attributes are independent. Nothing here knows of privacy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit, prange
from dualquery.table.domain import Domain, Items
from dualquery.table.records import BitItems, ColumnCodes, Records, pack_bits, unpack_bits

Numbers = NDArray[np.float64]
Words = NDArray[np.uint64]

PULL = np.float32(
    1 / 32
)  # how strongly a row makes up for what the rows before it have too much or too little


@dataclass(frozen=True, eq=False)
class Mixture:
    """Shares of the classes, and in each the chance of every attribute."""

    attributes: NDArray[np.int64]
    shares: Numbers
    means: NDArray[np.float32]  # attributes × classes
    noise: NDArray[np.float32]  # of the means of each class

    def rows(self, number: int, rng: np.random.Generator) -> Words:
        """So many rows in bits, an attribute a row of words, and at the end one that says which rows exist.

        The classes come in exact shares, in random order.

        Within a class an attribute is drawn row by row, with a chance that leans against the excess so far: its total
        comes out within a few rows of the expectation, and rows are otherwise independent.
        """
        ends = np.round(np.cumsum(self.shares) / self.shares.sum() * number).astype(np.int64)
        group = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        words = np.zeros((len(self.attributes) + 1, -(-number // 64)), np.uint64)
        words[-1] = pack_bits(np.ones((1, number), np.bool_))[0]
        seeds = rng.integers(0, 1 << 63, len(self.attributes), dtype=np.uint64)
        draw_rows(rng.permutation(group), np.clip(self.means, 0, 1), seeds, words)
        return words

    def again(self, rng: np.random.Generator) -> Mixture:
        """The mixture as it might have come out, had it been measured with the same noise."""
        shaken = self.means + self.noise * rng.standard_normal(self.means.shape, dtype=np.float32)
        return Mixture(self.attributes, self.shares, shaken, self.noise)


@njit(cache=True, parallel=True)
def draw_rows(group, means, seeds, words):  # type: ignore[no-untyped-def]
    for j in prange(means.shape[0]):
        state = seeds[j]
        excess = np.zeros(means.shape[1], np.float32)
        for r in range(group.shape[0]):
            # SplitMix64 (Steele, Lea and Flood 2014)
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            chance = np.float32(np.float64(z >> np.uint64(40)) * 2.0**-24)
            c = group[r]
            mean = means[j, c]
            if chance < mean - PULL * excess[c]:
                words[j, r >> 6] |= np.uint64(1) << np.uint64(r & 63)
                excess[c] += np.float32(1)
            excess[c] -= mean


def to_records(domain: Domain, mixture: Mixture, made: Words) -> Records:
    """Rows as records of the whole domain; attributes that nobody asked about are 0."""
    columns: list[ColumnCodes] = []
    words, rows = made[:-1], int(np.bitwise_count(made[-1]).sum())
    place = np.full(domain.width, -1, np.int64)
    place[mixture.attributes] = np.arange(len(mixture.attributes))
    for position, column in enumerate(domain.columns):
        mine = place[domain.starts[position] : domain.starts[position + 1]]
        bits = words if np.array_equal(mine, np.arange(len(words))) else _spread(mine, words)
        columns.append(BitItems(bits) if isinstance(column, Items) else unpack_bits(bits, rows)[0])
    return Records(domain, rows, tuple(columns))


def _spread(mine: NDArray[np.int64], words: Words) -> Words:
    """The bit columns of some attributes, in order; zeros, which take no memory, where there are none."""
    out = np.zeros((len(mine), words.shape[1]), np.uint64)
    known = np.flatnonzero(mine >= 0)
    out[known] = words[mine[known]]
    return out
