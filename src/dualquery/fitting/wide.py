"""What noisy numbers say of a wide binary table, and the rows that follow: classes, or items and their pairs.

*Classes.* Moments say how long vectors are, along which axes they spread, around which centres; sums within the
classes the chance of every attribute in every class, a mixture of products from which rows are drawn. Where records
do not fall into classes, attributes follow a place t along a few axes: P(x_j = 1 | t) = 1/(1 + exp(−a_j − b_j·t)),
with t spread as the records are along the axes, less the attributes' own chance; a_j and b_j are matched to the noisy
one-way fraction of j and to its noisy covariances with the axes. Some public draws of t then are the classes.

*Items.* Rows are fitted to noisy counts of items and of the pairs of those that matter; other items are independent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fit import passes, told
from dualquery.fitting.fitter import Effort, Fitter, ItemTargets, Rows
from dualquery.fitting.measured import Measured
from dualquery.fitting.shrink import CLEAR, multiples
from dualquery.loops import in_shares, njit
from dualquery.queries.binary import GRID, SHIFT, Axes, Binary
from dualquery.table.domain import Domain, Items
from dualquery.table.records import BitItems, ColumnCodes, Records, SparseItems, pack_bits, unpack_bits
from dualquery.types import Done, Reals, Words

LENGTH_STEP = 1.02  # from one edge of a length to the next
EDGES = (-20, 90)  # steps below and above the expected length
TAIL = 0.02  # records that may be longer than the clip
ABOVE_NOISE = 1.03  # edges of the noise that an eigenvalue must exceed
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
    noisy: Reals, deviation: float, edges: NDArray[np.int64], total: float, tail: float
) -> int | None:
    """The first edge above which at most about a share `tail` of the records lie; None where there is none.

    Counted from above, where noise alone lies: with k cells summed a tail must exceed √k deviations to be believed.
    The first one that does not ends the search: of many longer ones noise alone lifts some.
    """
    above = np.cumsum(noisy[::-1])[::-1]  # above[i] lie beyond edges[i − 1]
    blur = deviation * np.sqrt(np.arange(len(noisy), 0, -1))
    place = int(np.argmax(np.append(above <= tail * total + blur, True))) - 1
    return int(edges[max(0, place)]) if place < len(edges) else None


@dataclass(frozen=True)
class Spectrum:
    """Axes along which records spread more than independent attributes would, the strongest first."""

    strengths: Reals  # λ, per record
    directions: Reals  # attributes × axes, orthonormal

    @property
    def axes(self) -> int:
        return len(self.strengths)

    @property
    def scaled(self) -> Reals:
        """λ^(−¼) U: half-way to equal spread along all axes."""
        scaled: Reals = self.directions * self.strengths**-0.25
        return scaled


def spectrum_of(upper: Reals, deviation: float, spread: Reals, total: float) -> Spectrum:
    """The eigenvalues of the covariances that stand out of their noise.

    `upper` are the covariances above the diagonal, with noise of this deviation; sampling adds p(1 − p)/√n. The
    largest eigenvalue of m × m such noise is 2√m deviations (Wigner); what lies 3% above it is structure. The
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
        axes = min(MOST_AXES, int((values > ABOVE_NOISE * edge).sum()))
        values, vectors = values[:axes], vectors[:, :axes]
        matrix[np.arange(m), np.arange(m)] = (vectors**2 * values).sum(axis=1)
    return Spectrum(values, vectors)


class CentreTotals(NamedTuple):
    """Noisy sums of a round of k-means: records and places of each centre, and the squared length of all places."""

    counts: Reals
    sums: Reals  # centres × axes
    squares: float
    count_noise: float
    sum_noise: float  # along one axis
    square_noise: float


@dataclass(frozen=True)
class Centres:
    """Where records lie along the axes: centres, how many records each has, and the noise of their sums."""

    places: Reals  # centres × axes
    counts: Reals
    squares: float
    count_noise: float
    sum_noise: float
    square_noise: float

    @staticmethod
    def of(rounds: Sequence[CentreTotals], before: Reals, spread: float) -> Centres:
        """Means over several rounds around about the same centres; those with few records stay where they were."""
        counts = np.mean([each.counts for each in rounds], axis=0)
        sums = np.mean([each.sums for each in rounds], axis=0)
        squares = np.mean([each.squares for each in rounds])
        places, root = sums / np.maximum(counts, 1.0)[:, None], np.sqrt(len(rounds))
        noise = [each / root for each in rounds[0][3:]]
        found = Centres(places, counts, float(squares), *noise)
        return replace(found, places=np.where(found.alive(spread)[:, None], places, before))

    @property
    def noise(self) -> Reals:
        """The length of the noise of each centre."""
        length: Reals = self.sum_noise * np.sqrt(self.places.shape[1]) / np.maximum(self.counts, 1.0)
        return length

    def alive(self, spread: float) -> NDArray[np.bool_]:
        """Centres with clearly some records, enough for their noise to stay below half of the spread."""
        return (self.counts > 4 * self.count_noise) & (self.noise < spread / 2)

    def between(self, spread: float) -> float:
        """The mean square of the centres, less that of their noise."""
        counts = np.maximum(self.counts, 0.0)
        squares = (self.places**2).sum(axis=1) - np.minimum(self.noise, spread) ** 2
        return float((counts * squares).sum() / max(1.0, counts.sum()))

    @property
    def unsure(self) -> float:
        """The noise of the sum of squares within: of that of all, and of n_c |m_c|² = |s_c|²/n_c of each centre."""
        lengths = (self.places**2).sum(axis=1)
        of_centres = 4 * lengths * self.sum_noise**2 + (lengths * self.count_noise) ** 2
        return math.sqrt(self.square_noise**2 + float(of_centres.sum()))

    def reseeded(self, spread: float, around: Reals, rng: np.random.Generator) -> Reals:
        """Where to look next: each centre without records moves close to one that has many, to split it."""
        places, dead = self.places.copy(), np.flatnonzero(~self.alive(spread))
        weight = np.where(self.alive(spread), np.maximum(self.counts, 0), 0)
        if len(dead) and weight.any():
            beside = rng.choice(len(weight), len(dead), p=weight / weight.sum())
            places[dead] = (
                places[beside] + BESIDE * rng.standard_normal((len(dead), places.shape[1])) * around
            )
        return places

    def merged(self, spread: float, own: Reals) -> NDArray[np.int64]:
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
    fractions: Reals
    spectrum: Spectrum

    @property
    def axes(self) -> Axes:
        directions = np.round(self.spectrum.scaled * 2**SHIFT).astype(np.int64)
        return Axes(self.few, on_grid(self.fractions), directions)

    @property
    def mean(self) -> Reals:
        """Of the places: what rounding the centre to the grid leaves."""
        mean: Reals = (self.fractions - on_grid(self.fractions) / GRID) @ self.spectrum.scaled
        return mean

    @property
    def own(self) -> Reals:
        """The variance along each scaled axis that the attributes' own chance, p(1 − p) each, brings."""
        own: Reals = (self.spectrum.scaled**2 * (self.fractions * (1 - self.fractions))[:, None]).sum(axis=0)
        return own

    @property
    def variances(self) -> Reals:
        variances: Reals = np.sqrt(self.spectrum.strengths) + self.own
        return variances

    @property
    def length(self) -> float:
        """The root of the expected squared length of a place."""
        return math.sqrt(float(self.variances.sum()))

    @property
    def longest(self) -> int:
        """B² of places on the grid: two deviations of a chi-square above the expected one."""
        return math.ceil(GRID**2 * self.length**2 * (1 + 2 * math.sqrt(2 / self.spectrum.axes)))


def on_grid(numbers: Reals) -> NDArray[np.int64]:
    return np.round(GRID * numbers).astype(np.int64)


def settled(ones: Measured) -> Reals:
    """Fractions drawn together by how much of what sets them apart is noise, and within 0 and 1."""
    middle = float(ones.values.mean())
    seen = float(ones.values.var())
    kept = max(0.0, 1 - float(ones.variance) / max(seen, 1e-300))
    within: Reals = np.clip(middle + kept * (ones.values - middle), 0.0, 1.0)
    return within


@dataclass(frozen=True)
class NoisySums:
    """What came back of `ClassSums`: weights and sums of each class, in records, and the noise of a sum."""

    weights: Reals
    sums: Reals  # classes × attributes
    deviation: float

    @staticmethod
    def of(numbers: Reals, deviation: float, classes: int, most: int, count_factor: int) -> NoisySums:
        """From the numbers as they were counted, the weights of records being up to `most`."""
        table = numbers.reshape(classes, -1)
        weights = np.maximum(table[:, 0] / (most * max(1, count_factor)), 1.0)
        return NoisySums(weights, table[:, 1:] / (most * GRID), deviation / (most * GRID))

    def means(self, centre: Reals, weights: Reals | None = None) -> Measured:
        """The mean of x in each class, given the centre that was taken off."""
        held = self.weights if weights is None else weights
        return Measured("means", centre + self.sums / held[:, None], (self.deviation / held) ** 2)


def shrunk_towards(middle: Reals, means: Measured) -> Reals:
    """Each class's deviations from the middle, shrunk by how much of what is seen of them is noise."""
    deviations = means.values - middle
    seen = (deviations**2).mean(axis=1)
    kept = np.maximum(0.0, 1 - means.variance / np.maximum(seen, 1e-300))
    shrunk: Reals = deviations * kept[:, None]
    return shrunk


def consistent(shares: Reals, means: Measured, others: Measured) -> Reals:
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
    within: Reals = np.clip(total + deviations, 0.0, 1.0)
    return within


NEWTON_STEPS = 8
LONGEST_STEP = 1.0
RIDGE = 1e-4
AT_ONCE = 1 << 22  # numbers of a batch of attributes
PULL = np.float32(
    1 / 32
)  # how strongly a row makes up for what the rows before it have too much or too little


@dataclass(frozen=True, eq=False)
class Mixture:
    """Shares of the classes, and in each the chance of every attribute."""

    attributes: NDArray[np.int64]
    shares: Reals
    means: NDArray[np.float32]  # attributes × classes

    def rows(self, number: int, rng: np.random.Generator) -> Words:
        """So many rows in bits, an attribute a row of words, and at the end one that says which rows exist.

        The classes come in exact shares, in random order.

        Within a class an attribute is drawn row by row, with a chance that leans against the excess so far: its total
        comes out within a few rows of the expectation, and rows are otherwise independent. All of this is done for
        every other row by itself, so that the two halves share nothing (`mechanisms.error_bars`).
        """
        ends = np.round(np.cumsum(self.shares) / self.shares.sum() * number).astype(np.int64)
        group = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        for half in (group[::2], group[1::2]):
            rng.shuffle(half)
        words = np.zeros((len(self.attributes) + 1, -(-number // 64)), np.uint64)
        words[-1] = pack_bits(np.ones((1, number), np.bool_))[0]
        seeds = rng.integers(0, 1 << 63, len(self.attributes), dtype=np.uint64)
        in_shares(draw_rows, len(self.attributes), group, np.clip(self.means, 0, 1), seeds, words)
        return words


@njit(cache=True)
def draw_rows(lower, upper, group, means, seeds, words):  # type: ignore[no-untyped-def]
    for j in range(lower, upper):
        state = seeds[j]
        excess = np.zeros((2, means.shape[1]), np.float32)
        for r in range(group.shape[0]):
            # SplitMix64 (Steele, Lea and Flood 2014)
            state += np.uint64(0x9E3779B97F4A7C15)
            z = state
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            chance = np.float32(np.float64(z >> np.uint64(40)) * 2.0**-24)
            half, c = r & 1, group[r]
            mean = means[j, c]
            if chance < mean - PULL * excess[half, c]:
                words[j, r >> 6] |= np.uint64(1) << np.uint64(r & 63)
                excess[half, c] += np.float32(1)
            excess[half, c] -= mean


def mixture_records(domain: Domain, mixture: Mixture, made: Words) -> Records:
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


def latent_places(spectrum: Spectrum, centres: Centres, number: int, rng: np.random.Generator) -> Reals:
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
    whitened: Reals = t @ ((vectors / np.sqrt(values)) @ vectors.T) * np.sqrt(wanted)
    return whitened


def shrunk_by_axis(covariances: Reals, deviation: float) -> Reals:
    """Covariances with the axes, each axis shrunk by how much of what is seen along it is noise."""
    seen = (covariances**2).mean(axis=0)
    shrunk: Reals = covariances * np.maximum(0.0, 1 - deviation**2 / np.maximum(seen, 1e-300))
    return shrunk


def matched(fractions: Reals, covariances: Reals, places: Reals) -> NDArray[np.float32]:
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


def _matched(theta: Reals, target: Reals, with_one: Reals, products: Reals) -> Reals:
    size = with_one.shape[1]
    for _ in range(NEWTON_STEPS):
        chance = _chance(theta, with_one)
        gap = chance @ with_one / len(with_one) - target
        curvature = ((chance * (1 - chance)) @ products).reshape(-1, size, size) + RIDGE * np.eye(size)
        step = np.linalg.solve(curvature, gap[:, :, None])[:, :, 0]
        length = np.abs(step).max(axis=1, keepdims=True)
        theta = theta - step * np.minimum(1.0, LONGEST_STEP / np.maximum(length, 1e-12))
    return _chance(theta, with_one)


def _chance(theta: Reals, with_one: Reals) -> Reals:
    chance: Reals = (1 + np.tanh(theta @ with_one.T / 2)) / 2  # the logistic, and nowhere too large
    return chance


@dataclass(frozen=True)
class MeasuredItems:
    """Items in the order of how much they matter; fractions of the records."""

    rank: NDArray[np.int64]  # of each item id
    single: NDArray[np.float64]  # of all items, by rank
    pair: NDArray[np.float64]  # of the fitted ones
    noise_of_single: float
    noise_of_pair: float
    measured: tuple[
        Measured, ...
    ] = ()  # what a release keeps: items and pairs in records, as they were measured


def shrunk_singles(noisy: NDArray[np.float64], noise: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Most of very many items are rare: their counts are shrunk towards what rare items mostly are."""
    unclear = noisy < CLEAR * noise
    mean = np.full(
        int(unclear.sum()), max(float(noisy[unclear].mean()), 0.01 * noise) if unclear.any() else noise
    )
    out: NDArray[np.float64] = noisy.copy()
    out[unclear] = multiples(noisy[unclear], mean, noise, rng)
    return out


def shrunk_pairs(
    noisy: NDArray[np.float64], single: NDArray[np.float64], noise: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """A symmetric matrix of pairs, from the noisy fractions of its upper triangle, shrunk around independence."""
    above = np.triu_indices(len(single), 1)
    out = np.zeros((len(single), len(single)))
    out[above] = multiples(noisy, np.outer(single, single)[above], noise, rng)
    return out + out.T


def fit_items(
    measured: MeasuredItems,
    effort: Effort,
    rng: np.random.Generator,
    progress: Done,
    fitter: Fitter | None = None,
) -> Rows:
    """Rows fitted to the items that matter and to their pairs."""
    fitted = len(measured.pair)
    single = measured.single[:fitted]
    start = (rng.random((effort.chains, effort.chain_rows, fitted)) < single).astype(np.uint8)
    weight = (measured.noise_of_pair / measured.noise_of_single) ** 2
    targets = ItemTargets(single, measured.pair, weight, 1.0)
    heat, tick = effort.temperatures(measured.noise_of_pair), told(progress, effort.rounds)
    return effort.released(passes(fitter, targets, start, heat, rng, tick))


def item_records(
    domain: Domain, rows: NDArray[np.unsignedinteger], measured: MeasuredItems, rng: np.random.Generator
) -> Records:
    """Fitted items as the rows hold them; each other item in as many random rows as its count says, half of them
    among every other row.
    """
    count, fitted = rows.shape
    item_of_rank = np.argsort(measured.rank)
    owner, place = np.nonzero(rows)
    owners, items = [owner], [item_of_rank[place]]
    expected = measured.single[fitted:] * count
    times = np.floor(expected + rng.random(len(expected))).astype(np.int64)
    for i in np.flatnonzero(times):
        owners.append(_dealt(count, int(min(times[i], count)), rng))
        items.append(np.full(len(owners[-1]), item_of_rank[fitted + i]))
    all_owners, all_items = np.concatenate(owners), np.concatenate(items)
    order = np.lexsort((all_items, all_owners))
    start = np.searchsorted(all_owners[order], np.arange(count + 1)).astype(np.int64)
    return Records(domain, count, (SparseItems(start, all_items[order].astype(np.int32)),))


def _dealt(rows: int, wanted: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """So many of the rows by chance, half of them even and half of them odd."""
    odd = min(rows // 2, max(wanted - -(-rows // 2), (wanted + int(rng.integers(2))) // 2))
    even = rng.choice(-(-rows // 2), wanted - odd, replace=False)
    return np.concatenate([2 * even, 2 * rng.choice(rows // 2, odd, replace=False) + 1])
