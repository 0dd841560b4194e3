"""A mixture of products: classes of rows, within which attributes are independent.

Where records do not fall into classes, attributes follow a place t along a few axes: P(x_j = 1 | t) =
1/(1 + exp(−a_j − b_j·t)), with t spread as the records are along the axes, less the attributes' own chance; a_j and
b_j are matched to the noisy one-way fraction of j and to its noisy covariances with the axes. Some public draws of t
then are the classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit, prange
from dualquery.fitting.structure import Centres, Spectrum
from dualquery.table.domain import Domain, Items
from dualquery.table.records import BitItems, ColumnCodes, Records, pack_bits, unpack_bits

Numbers = NDArray[np.float64]
Words = NDArray[np.uint64]

NEWTON_STEPS = 8
LONGEST_STEP = 1.0
RIDGE = 1e-4
FARTHEST = 15.0  # a log-odds beyond this is as good as certain
AT_ONCE = 1 << 22  # numbers of a batch of attributes
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


def latent_places(spectrum: Spectrum, centres: Centres, number: int, rng: np.random.Generator) -> Numbers:
    """Places t along the scaled axes: around the centres, with the covariance √λ that the spectrum says, exactly."""
    share = np.maximum(centres.counts, 1.0) / np.maximum(centres.counts, 1.0).sum()
    wanted = np.sqrt(spectrum.strengths)
    around = centres.places - share @ centres.places
    between = share @ around**2
    around = around * np.sqrt(np.minimum(1.0, wanted / np.maximum(between, 1e-12)))
    rest = np.sqrt(np.maximum(wanted - between, 0.0))
    # a little of the spread is always left to chance, so that the covariance can be mended
    t = around[rng.choice(len(share), number, p=share)]
    t = t + rng.standard_normal(t.shape) * np.maximum(rest, 0.05 * np.sqrt(wanted))
    t -= t.mean(axis=0)
    values, vectors = np.linalg.eigh(t.T @ t / number)
    whitened: Numbers = t @ ((vectors / np.sqrt(values)) @ vectors.T) * np.sqrt(wanted)
    return whitened


def shrunk_by_axis(covariances: Numbers, deviation: float) -> Numbers:
    """Covariances with the axes, each axis shrunk by how much of what is seen along it is noise."""
    seen = (covariances**2).mean(axis=0)
    shrunk: Numbers = covariances * np.maximum(0.0, 1 - deviation**2 / np.maximum(seen, 1e-300))
    return shrunk


def matched(fractions: Numbers, covariances: Numbers, places: Numbers) -> NDArray[np.float32]:
    """The chance of each attribute at each place: logistic, with these means and covariances over the places.

    Newton's method on the convex Σ_t log(1 + exp(a + b·t)) − a·mean − b·covariance, in steps of bounded length.
    """
    number, axes = places.shape
    with_one = np.column_stack([np.ones(number), places])
    likely = np.clip(fractions, 1e-3, 1 - 1e-3)
    target = np.column_stack([likely, covariances])
    cov = places.T @ places / number
    slope = np.linalg.solve(cov, covariances.T).T / (likely * (1 - likely))[:, None]
    theta = np.column_stack([np.log(likely / (1 - likely)), slope])
    out = np.empty((len(fractions), number), np.float32)
    batch = max(1, AT_ONCE // (number + (axes + 1) ** 2))
    products = (with_one[:, :, None] * with_one[:, None, :]).reshape(number, -1) / number
    for first in range(0, len(fractions), batch):
        part = slice(first, first + batch)
        out[part] = _matched(theta[part], target[part], with_one, products)
    return out


def _matched(theta: Numbers, target: Numbers, with_one: Numbers, products: Numbers) -> Numbers:
    size = with_one.shape[1]
    for _ in range(NEWTON_STEPS):
        chance = _chance(theta, with_one)
        gap = chance @ with_one / len(with_one) - target
        curvature = ((chance * (1 - chance)) @ products).reshape(-1, size, size) + RIDGE * np.eye(size)
        step = np.linalg.solve(curvature, gap[:, :, None])[:, :, 0]
        length = np.abs(step).max(axis=1, keepdims=True)
        theta = theta - step * np.minimum(1.0, LONGEST_STEP / np.maximum(length, 1e-12))
    return _chance(theta, with_one)


def _chance(theta: Numbers, with_one: Numbers) -> Numbers:
    chance: Numbers = 1 / (1 + np.exp(-np.clip(theta @ with_one.T, -FARTHEST, FARTHEST)))
    return chance
