"""The order of numbers inside their bins, so that columns hang together there as they do from bin to bin.

A Gaussian copula: every ordered column j has a hidden normal z_j, which lies in the interval of normal scores of its
bin, and all of them together have correlations R. R is what the bins of each pair say: with s_j = E[z_j | bin],

    E[s_i s_j] = Σ_k A_ik A_jk R_ij^k,     A_jk = E[s_j h_k(z_j)],   h_k the normalised Hermite polynomials,

(Mehler), which increases with R_ij and is solved for it by bisection. Then some sweeps of a Gibbs sampler draw the z
of all rows, each given the others and within its bin. A missing value is tied to no interval. Only released codes are
looked at, so this is free, and no code changes by it.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.cpu import STEP, word_of
from dualquery.loops import four_sums, in_shares, njit
from dualquery.table.domain import Categorical, Column, Items
from dualquery.table.numbers import Numeric
from dualquery.table.records import Records, has_places
from dualquery.types import Reals

SWEEPS = 8
MOST_COLUMNS = 50
TERMS = 24  # of the series
STRONGEST = 0.995  # a correlation that bins can tell
LEAST_EIGENVALUE = 1e-3
IN_TURN = 4  # rows
LEAST_ROWS = 1_000  # of a share: fewer are drawn before another thread has begun
FARTHEST = 9.0  # a normal lies nearer
FINE = 128  # places a unit at which its distribution is kept: off by one part in a thousand between them


def hidden_normals(records: Records, rng: np.random.Generator) -> dict[int, Reals]:
    """z of every column that has places, by its place in the domain; none where nothing is there to be tied to."""
    columns = records.domain.columns
    placed = [i for i, column in enumerate(columns) if has_places(column)]
    others = [i for i, column in enumerate(columns) if i not in placed and is_ordered(column)]
    if not placed or not records.rows:
        return {}
    ranked = {i: _ranks(columns[i], np.asarray(records.columns[i])) for i in placed + others}
    several = [i for i, ranks in ranked.items() if ranks.max() > 0]  # one value is tied to nothing
    used = several[:MOST_COLUMNS]
    if len(used) < 2 or not set(used) & set(placed):
        return {}
    ranks = np.stack([ranked[i] for i in used], axis=1)
    cuts = [_cuts(ranks[:, j]) for j in range(len(used))]
    precision = np.linalg.inv(_correlations(ranks, cuts))
    ends = np.full((len(used), max(map(len, cuts)) + 1), FARTHEST)  # first those of a missing value
    for j, scores in enumerate(cuts):
        ends[j, : len(scores) + 1] = np.clip([-FARTHEST, *scores], -FARTHEST, FARTHEST)
    normal = np.array([_ndtr(k / FINE - FARTHEST) for k in range(round(2 * FARTHEST * FINE) + 2)])
    deviation = 1 / np.sqrt(np.diag(precision))
    others_pull = -precision * deviation[:, None] ** 2
    np.fill_diagonal(others_pull, 0.0)
    z, seed = np.zeros(ranks.shape), rng.integers(0, 1 << 63, dtype=np.uint64)
    given = (z, ranks, ends, others_pull, deviation, normal, seed)
    in_shares(_draw, len(z), *given, least=LEAST_ROWS)
    return {i: z[:, j] for j, i in enumerate(used) if i in placed}


def is_ordered(column: Column) -> bool:
    """Whether the values of a column have an order, or are two."""
    if isinstance(column, Items):
        return False
    if isinstance(column, Categorical):
        return column.ordered or len(column.values) - (column.missing_code is not None) == 2
    return isinstance(column, Numeric)


def _ranks(column: Column, codes: NDArray[np.unsignedinteger]) -> NDArray[np.int32]:
    """The rank of each value that occurs, −1 of a missing one."""
    assert not isinstance(column, Items)
    absent = -1 if column.missing_code is None else column.missing_code
    held = np.bincount(codes, minlength=len(column.labels)) > 0
    if absent >= 0:
        held[absent] = False
    ranks: NDArray[np.int32] = np.where(held, np.cumsum(held) - 1, -1).astype(np.int32)[codes]
    return ranks


def _cuts(ranks: NDArray[np.int32]) -> Reals:
    """The normal scores between which each rank lies, from −∞ to ∞."""
    counts = np.bincount(ranks[ranks >= 0], minlength=1)
    shares = np.cumsum(counts) / max(1, counts.sum())
    return np.array([-np.inf, *(_ndtri(float(share)) for share in shares[:-1]), np.inf])


def _correlations(ranks: NDArray[np.int32], cuts: list[Reals]) -> Reals:
    """R, made positive definite."""
    known = ranks >= 0
    series = [_hermite(each) for each in cuts]  # E[h_k; bin], k from 1
    scores = []
    for j, part in enumerate(series):
        share = np.maximum(np.diff([_ndtr(x) for x in cuts[j]]), 1e-300)
        scores.append(part[0] / share)
    spread = np.stack([np.where(known[:, j], scores[j][ranks[:, j]], 0.0) for j in range(len(cuts))], axis=1)
    both = known.astype(np.float64).T @ known
    seen = (spread.T @ spread) / np.maximum(1.0, both)
    expansions = np.array([part @ score for part, score in zip(series, scores, strict=True)])
    found = _solved(expansions[:, None] * expansions, seen)
    np.fill_diagonal(found, 1.0)
    values, vectors = np.linalg.eigh(found)
    raised = (vectors * np.maximum(values, LEAST_EIGENVALUE)) @ vectors.T
    scale = 1 / np.sqrt(np.diag(raised))
    correlations: Reals = raised * np.outer(scale, scale)
    return correlations


def _hermite(cuts: Reals) -> Reals:
    """∫ h_k φ over each interval, for k from 1: −[h_{k−1} φ]/√k between its ends."""
    inner = cuts[1:-1]
    density = np.exp(-(inner**2) / 2) / math.sqrt(2 * math.pi)
    before, here = np.zeros(len(inner)), np.ones(len(inner))  # h_{k−2}, h_{k−1}
    found = []
    for k in range(1, TERMS + 1):
        ends = np.concatenate([[0.0], here * density, [0.0]])
        found.append(-np.diff(ends) / math.sqrt(k))
        before, here = here, (inner * here - math.sqrt(k - 1) * before) / math.sqrt(k)
    return np.array(found)


def _solved(products: Reals, seen: Reals) -> Reals:
    """The r of each pair with Σ_k products_k r^k = seen."""
    low, high = np.full(seen.shape, -STRONGEST), np.full(seen.shape, STRONGEST)
    for _ in range(40):
        middle = (low + high) / 2
        sums = np.zeros(seen.shape)
        for k in range(TERMS - 1, -1, -1):  # Horner's
            sums = (sums + products[..., k]) * middle
        low, high = np.where(sums < seen, middle, low), np.where(sums < seen, high, middle)
    solved: Reals = (low + high) / 2
    return solved


@njit(cache=True)
def _draw(first, last, z, ranks, ends, pull, deviation, normal, seed):  # type: ignore[no-untyped-def]
    """z of these rows, all sweeps: each z_j given the other z of its row and the ends of its interval.

    A row has a generator of its own (splitmix64), so that rows may be shared out. Some rows take turns: what one
    waits for, the processor works out meanwhile for another.
    """
    width = z.shape[1]
    counters = np.empty(IN_TURN, np.uint64)
    for begin in range(first, last, IN_TURN):
        some = min(IN_TURN, last - begin)
        for turn in range(some):
            counters[turn] = word_of(seed + np.uint64(begin + turn) * STEP)
        for sweep in range(SWEEPS + 1):
            for j in range(width):
                for turn in range(some):
                    row = begin + turn
                    mine = z[row]
                    mean, spread = 0.0, 1.0  # at first each by itself
                    if sweep > 0:
                        one, two, three, four = four_sums(pull[j], mine, width // 4)
                        for k in range(width - width % 4, width):
                            one += pull[j, k] * mine[k]
                        mean, spread = (one + two) + (three + four), deviation[j]
                    rank = ranks[row, j]
                    a, b = (ends[j, rank + 1] - mean) / spread, (ends[j, rank + 2] - mean) / spread
                    if rank < 0:
                        a, b = -FARTHEST, FARTHEST
                    flipped = a > 0.0  # far above, where shares are all near one
                    if flipped:
                        a, b = -b, -a
                    counters[turn] += STEP
                    uniform = (word_of(counters[turn]) >> np.uint64(11)) * 2.0**-53
                    below = _share(a, normal)
                    x = _ndtri(below + (_share(b, normal) - below) * uniform)
                    x = min(max(x, a), b)
                    x = mean + spread * (-x if flipped else x)
                    mine[j] = min(max(x, -FARTHEST), FARTHEST)


@njit(cache=True, inline="always")
def _share(x, normal):  # type: ignore[no-untyped-def]
    """The share of a normal below x, between the places at which it is kept."""
    place = (min(max(x, -FARTHEST), FARTHEST) + FARTHEST) * FINE
    k = int(place)
    return normal[k] + (place - k) * (normal[k + 1] - normal[k])


@njit(cache=True)
def _ndtr(x):  # type: ignore[no-untyped-def]
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@njit(cache=True)
def _ndtri(p):  # type: ignore[no-untyped-def]
    """The normal quantile to seven figures (Wichura 1988, AS 241)."""
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        above = ((59.10937472 * r + 159.29113202) * r + 50.434271938) * r + 3.3871327179
        return q * above / (((67.1875636 * r + 78.757757664) * r + 17.895169469) * r + 1.0)
    r = math.sqrt(-math.log(max(min(p, 1.0 - p), 1e-300)))
    if r <= 5.0:
        r -= 1.6
        above = ((0.17023821103 * r + 1.3067284816) * r + 2.75681539) * r + 1.4234372777
        x = above / ((0.12021132975 * r + 0.7370016425) * r + 1.0)
    else:
        r -= 5.0
        above = ((0.017337203997 * r + 0.42868294337) * r + 3.081226386) * r + 6.657905115
        x = above / ((0.012258202635 * r + 0.24197894225) * r + 1.0)
    return -x if q < 0.0 else x
