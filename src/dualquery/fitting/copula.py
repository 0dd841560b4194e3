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

from dualquery.compiled import njit
from dualquery.pool import in_shares
from dualquery.table.domain import Categorical, Column, Items
from dualquery.table.numbers import Numeric
from dualquery.table.places import has_places
from dualquery.table.records import Records
from dualquery.types import Reals

SWEEPS = 8
MOST_COLUMNS = 50
TERMS = 24  # of the series
STRONGEST = 0.995  # a correlation that bins can tell
LEAST_EIGENVALUE = 1e-3
LEAST_ROWS = 4_000  # of a share: fewer are drawn before another thread has begun


def hidden_normals(records: Records, rng: np.random.Generator) -> dict[int, Reals]:
    """z of every column that has places, by its place in the domain; none where nothing is there to be tied to."""
    columns = records.domain.columns
    placed = [i for i, column in enumerate(columns) if has_places(column)]
    others = [i for i, column in enumerate(columns) if i not in placed and is_ordered(column)]
    used = (placed + others)[:MOST_COLUMNS]
    if not placed or len(used) < 2 or not records.rows:
        return {}
    codes = np.stack([_ranks(columns[i], np.asarray(records.columns[i])) for i in used], axis=1)
    cuts = [_cuts(codes[:, j]) for j in range(len(used))]
    correlations = _correlations(codes, cuts)
    precision = np.linalg.inv(correlations)
    low, high = (np.empty(codes.shape) for _ in range(2))
    for j, scores in enumerate(cuts):
        known = codes[:, j] >= 0
        low[:, j] = np.where(known, scores[codes[:, j]], -np.inf)
        high[:, j] = np.where(known, scores[codes[:, j] + 1], np.inf)
    z = np.zeros(codes.shape)
    for sweep in range(SWEEPS + 1):
        given = precision if sweep else np.eye(len(used))  # at first each by itself
        for j in range(len(used)):
            in_shares(_draw, len(z), z, low, high, given, j, rng.random(len(z)), least=LEAST_ROWS)
    return {i: z[:, j] for j, i in enumerate(used) if i in placed}


def is_ordered(column: Column) -> bool:
    """Whether the values of a column have an order, or are two."""
    if isinstance(column, Items):
        return False
    if isinstance(column, Categorical):
        return column.ordered or len(column.values) - (column.missing_code is not None) == 2
    return isinstance(column, Numeric)


def _ranks(column: Column, codes: NDArray[np.unsignedinteger]) -> NDArray[np.int64]:
    """The rank of each value that occurs, −1 of a missing one."""
    assert not isinstance(column, Items)
    absent = -1 if column.missing_code is None else column.missing_code
    found = codes.astype(np.int64)
    ranks = np.full(len(column.labels), -1)
    present = np.setdiff1d(np.unique(found), [absent])
    ranks[present] = np.arange(len(present))
    placed: NDArray[np.int64] = ranks[found]
    return placed


def _cuts(ranks: NDArray[np.int64]) -> Reals:
    """The normal scores between which each rank lies, from −∞ to ∞."""
    counts = np.bincount(ranks[ranks >= 0], minlength=1)
    shares = np.cumsum(counts) / max(1, counts.sum())
    return np.array([-np.inf, *(_ndtri(float(share)) for share in shares[:-1]), np.inf])


def _correlations(ranks: NDArray[np.int64], cuts: list[Reals]) -> Reals:
    """R, made positive definite."""
    known = ranks >= 0
    series = [_hermite(each) for each in cuts]  # E[h_k; bin], k from 1
    scores = []
    for j, part in enumerate(series):
        share = np.maximum(np.diff([_ndtr(x) for x in cuts[j]]), 1e-300)
        scores.append(part[0] / share)
    found = np.eye(len(cuts))
    spread = np.stack([np.where(known[:, j], scores[j][ranks[:, j]], 0.0) for j in range(len(cuts))], axis=1)
    together = spread.T @ spread
    both = known.astype(np.float64).T @ known
    expansions = [part @ score for part, score in zip(series, scores, strict=True)]
    for i in range(len(cuts)):
        for j in range(i):
            seen = together[i, j] / max(1.0, both[i, j])
            found[i, j] = found[j, i] = _solved(expansions[i] * expansions[j], seen)
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


def _solved(products: Reals, seen: float) -> float:
    """The r with Σ_k products_k r^k = seen."""
    low, high = -STRONGEST, STRONGEST
    powers = np.arange(1, TERMS + 1)
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if float(products @ middle**powers) < seen else (low, middle)
    return (low + high) / 2


@njit(cache=True)
def _draw(first, last, z, low, high, precision, j, uniform):  # type: ignore[no-untyped-def]
    """z_j of these rows, each given its other z and the ends of its interval."""
    deviation = 1.0 / math.sqrt(precision[j, j])
    for row in range(first, last):
        mean = 0.0
        for k in range(z.shape[1]):
            if k != j:
                mean -= precision[j, k] * z[row, k]
        mean /= precision[j, j]
        a, b = (low[row, j] - mean) / deviation, (high[row, j] - mean) / deviation
        flipped = a > 0.0  # far above, where shares are all near one
        if flipped:
            a, b = -b, -a
        below, above = _ndtr(a), _ndtr(b)
        x = _ndtri(below + (above - below) * uniform[row])
        x = min(max(x, a), b)
        z[row, j] = min(max(mean + deviation * (-x if flipped else x), -9.0), 9.0)


@njit(cache=True)
def _ndtr(x):  # type: ignore[no-untyped-def]
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


@njit(cache=True)
def _ndtri(p):  # type: ignore[no-untyped-def]
    """The normal quantile: rational starting values in the tails, then Newton's steps."""
    if p <= 1e-300:
        return -37.0
    if p >= 1.0 - 1e-16:
        return 8.2
    q = min(p, 1.0 - p)
    t = math.sqrt(-2.0 * math.log(q))
    # Abramowitz and Stegun 26.2.23, to 4.5e-4
    x = t - (2.515517 + 0.802853 * t + 0.010328 * t * t) / (
        1.0 + 1.432788 * t + 0.189269 * t * t + 0.001308 * t * t * t
    )
    for _ in range(2):  # Halley's, on the upper tail
        error = 0.5 * math.erfc(x / math.sqrt(2.0)) - q
        step = error * math.sqrt(2.0 * math.pi) * math.exp(x * x / 2.0)
        x += step / (1.0 - x * step / 2.0) if abs(x * step) < 1.0 else step
    return -x if p < 0.5 else x
