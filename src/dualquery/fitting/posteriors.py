"""What measured tables are likely to be: pairs around independence, larger sets around what fitted rows say.

Attributes whose values go together in one pair (neighbouring ages, states of one region) do so in the others. So the
deviation of a pair's table from independence, in orthonormal contrasts y_S = B_iᵀ (I_S/n − C(p_i p_jᵀ)) B_j, is taken
to be a draw from N(0, a_S Σ_i ⊗ Σ_j), seen through noise of variance t_S: the covariance Σ_i of an attribute, learned
from all its pairs, says which values go together, a_S how strongly a pair depends at all. Both are found by
expectation and maximisation; Ψ_i = B_iᵀ diag(p_i) B_i, what sampling alone would give, is the first guess of Σ_i and
counts as `GUESS` observations. Every cell is then shrunk on its own (`shrink.relative_posterior`).

Also the tree of pairs that rows lean to where the measurements do not object. Among all distributions that know of
some pairs only, a tree of pairs has a closed form, Π_j p_j · Π_{(i,j) in the tree} P_ij/(p_i p_j), which is nearest
to the table where the tree's mutual information is largest (Chow and Liu 1968).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fitter import RAREST
from dualquery.fitting.measured import LEAST, MeasuredTables, onto_simplex
from dualquery.fitting.shrink import CLEAR, FEW_STEPS, points, relative_posterior, shrunk
from dualquery.loops import in_shares, njit, plain_algebra
from dualquery.queries.tables import Tables, centred
from dualquery.table.records import Records
from dualquery.types import Cells, Integers, Reals, Set

GUESS = 4.0  # observations that the guess of a covariance counts as
LEAST_STRENGTH = 0.1  # of a_S at first, in units of the noise. Doubled: adult +1.9%
LEAST_PAIRS = 32  # that are worth a second thread


@lru_cache(maxsize=256)
def contrasts(size: int) -> Reals:
    """Helmert's: size − 1 orthonormal columns, each orthogonal to the constant."""
    out = np.zeros((size, size - 1))
    for j in range(1, size):
        out[:j, j - 1] = 1.0 / math.sqrt(j * (j + 1))
        out[j, j - 1] = -j / math.sqrt(j * (j + 1))
    out.flags.writeable = False
    return out


@dataclass(frozen=True)
class PairPosterior:
    """Of a pair's cells, given the separable prior: deviation from independence, its variance, and the prior's."""

    deviation: Cells
    variance: Cells
    prior: Cells


class SeparablePrior:
    """Fitted to interactions of pairs and their noise variance, of so many records, and one-way tables (fractions).

    Attributes are numbered as they occur; what is kept of each has the room of the longest. Cells and contrasts of
    all pairs lie one after another.
    """

    def __init__(
        self,
        interactions: Mapping[Set, Cells],
        variance: Mapping[Set, float],
        ones: Mapping[int, Cells],
        steps: int = FEW_STEPS,
        total: float = 1.0,
    ) -> None:
        self._pairs = list(interactions)
        self._noise = np.array([variance[s] for s in self._pairs]) / total**2
        place = {j: n for n, j in enumerate(dict.fromkeys(j for s in self._pairs for j in s))}
        size = np.array([len(ones[j]) for j in place], np.int64)
        self._sides = np.array([[place[i], place[j]] for i, j in self._pairs], np.int64).reshape(-1, 2)
        self._length, widest = size - 1, int(size.max(initial=1))
        self._starts = np.concatenate([[0], np.cumsum(self._length[self._sides].prod(axis=1))])
        self._cells = np.concatenate([[0], np.cumsum(size[self._sides].prod(axis=1))])
        shares = np.zeros((len(place), widest))
        for j, n in place.items():
            shares[n, : size[n]] = ones[j]
        self._seen, self._strength = np.empty(self._starts[-1]), np.empty(0)
        self._values, self._turned = np.ones((len(place), widest)), np.zeros((len(place), widest, widest))
        self._vectors = np.zeros_like(self._turned)
        if self._pairs:
            cells = np.concatenate([interactions[s].ravel() for s in self._pairs]) / total
            given = (self._sides, size, cells, self._cells, shares, self._seen, self._starts)
            in_shares(contrast_pairs, len(self._pairs), *given, least=LEAST_PAIRS)
            with plain_algebra():
                self._improve([np.flatnonzero(size == k) for k in np.unique(size)], size, shares, steps)

    def _improve(self, alike: list[Integers], size: Integers, shares: Reals, steps: int) -> None:
        """Steps of: the posterior of every pair, then a_S and Σ_i that make it most likely; alike: of one size."""
        basis = [contrasts(int(size[which[0]])) for which in alike]
        guess = [
            each.T @ (np.maximum(shares[which, : len(each)], LEAST)[:, :, None] * each)
            for which, each in zip(alike, basis, strict=True)
        ]
        covariance, traces, weight = list(guess), np.empty(len(size)), np.full(len(size), GUESS)
        for which, each in zip(alike, guess, strict=True):
            traces[which] = np.trace(each, axis1=1, axis2=2)
        # a_S by moments: what is seen beyond the noise, in units of the guess
        numbers, (first, second) = np.diff(self._starts), self._sides.T
        seen = np.bincount(np.repeat(np.arange(len(numbers)), numbers), self._seen**2, len(numbers))
        noise = numbers * self._noise
        self._strength = np.maximum(seen - noise, LEAST_STRENGTH * noise) / (traces[first] * traces[second])
        np.add.at(weight, first, self._length[second])
        np.add.at(weight, second, self._length[first])
        moments, known = np.zeros_like(self._vectors), (self._values, self._vectors, self._strength)
        for _ in range(steps):
            self._look_along(alike, covariance)
            improve(self._sides, self._length, self._seen, self._starts, self._noise, *known, moments)
            for n, which in enumerate(alike):
                inner = slice(0, covariance[n].shape[1])
                turned = self._vectors[which, inner, inner]
                mine = turned @ moments[which, inner, inner] @ turned.transpose(0, 2, 1)
                covariance[n] = (GUESS * guess[n] + mine) / weight[which, None, None]
        self._look_along(alike, covariance)
        for which, each in zip(alike, basis, strict=True):
            inner, outer = slice(0, each.shape[1]), slice(0, each.shape[0])
            self._turned[which, inner, outer] = (each @ self._vectors[which, inner, inner]).transpose(0, 2, 1)

    def _look_along(self, alike: list[Integers], covariance: list[Reals]) -> None:
        """The eigenvalues and eigenvectors of each attribute's covariance."""
        for which, each in zip(alike, covariance, strict=True):
            found, vectors = np.linalg.eigh((each + each.transpose(0, 2, 1)) / 2)
            inner = slice(0, found.shape[1])
            least = LEAST * np.maximum(found.max(axis=1, keepdims=True), np.finfo(np.float64).tiny)
            self._values[which, inner] = np.maximum(found, least)
            self._vectors[which, inner, inner] = vectors

    @property
    def pairs(self) -> list[Set]:
        return self._pairs

    def posterior(self) -> PairPosterior:
        """Of all cells of all pairs, one after another."""
        out = PairPosterior(*(np.empty(self._cells[-1]) for _ in range(3)))
        given = (self._sides, self._length, self._seen, self._starts, self._noise, self._strength)
        known = (self._values, self._vectors, self._turned, self._turned**2, self._cells)
        told = (out.deviation, out.variance, out.prior)
        in_shares(tell_pairs, len(self._pairs), *given, *known, *told, least=LEAST_PAIRS)
        return out

    def split(self, cells: Cells) -> list[Cells]:
        """Those of each pair, as a table."""
        shapes, ends = (self._length[self._sides] + 1).tolist(), self._cells.tolist()
        return [cells[a:b].reshape(s) for s, a, b in zip(shapes, ends, ends[1:], strict=False)]

    def posteriors(self) -> dict[Set, PairPosterior]:
        """Of every pair, cell by cell."""
        whole = self.posterior()
        parts = map(self.split, (whole.deviation, whole.variance, whole.prior))
        return {s: PairPosterior(*each) for s, *each in zip(self._pairs, *parts, strict=True)}

    def expected_errors(self, precisions: Mapping[Set, Reals]) -> dict[Set, Reals]:
        """Σ_cells of the posterior deviation of each pair, measured with so much more precision (1/variance)."""
        if not self._pairs:
            return {}
        more = np.array([precisions[s] for s in self._pairs])
        errors = np.empty(more.shape)
        known = (self._sides, self._length, self._noise, self._strength, self._values, self._turned**2)
        in_shares(expect_errors, len(errors), *known, more, errors)
        return dict(zip(self._pairs, errors, strict=True))


def effective(posterior: PairPosterior) -> tuple[Cells, Cells]:
    """The cell-wise measurement that says as much about a cell as all cells together did: its residual and variance.

    With prior N(0, t) a measurement r of variance e gives the posterior variance v, 1/v = 1/t + 1/e, and mean r·v/e.
    """
    spread = posterior.variance
    variance = 1.0 / np.maximum(1.0 / spread - 1.0 / posterior.prior, 1e-3 / spread)
    return posterior.deviation * variance / spread, variance


def sets_of_at_most(sets: Sequence[Set], sizes: NDArray[np.integer], most: int) -> list[Set]:
    """Those whose attributes all have at most so many values."""
    return [members for members in sets if all(int(sizes[j]) <= most for j in members)]


@njit(cache=True)
def contrast_pairs(lower, upper, sides, size, cells, begin, shares, seen, starts):  # type: ignore[no-untyped-def]
    """seen = Bᵢᵀ (I − p_i p_jᵀ) B_j of these pairs. Constants, which centring takes away, are nothing to a contrast,
    and Helmert's are sums of what comes before a value less so many times the value.
    """
    widest = shares.shape[1]
    half, before = np.empty((widest, widest)), np.empty(widest)
    for n in range(lower, upper):
        i, j = sides[n]
        table = cells[begin[n] : begin[n + 1]].reshape((size[i], size[j]))
        out = seen[starts[n] : starts[n + 1]].reshape((size[i] - 1, size[j] - 1))
        for b in range(size[j]):
            before[b] = table[0, b] - shares[i, 0] * shares[j, b]
        for c in range(1, size[i]):
            scale = 1.0 / math.sqrt(c * (c + 1))
            for b in range(size[j]):
                here = table[c, b] - shares[i, c] * shares[j, b]
                half[c - 1, b] = (before[b] - c * here) * scale
                before[b] += here
        for a in range(size[i] - 1):
            total = half[a, 0]
            for c in range(1, size[j]):
                out[a, c - 1] = (total - c * half[a, c]) / math.sqrt(c * (c + 1))
                total += half[a, c]


@njit(cache=True)
def turn_into(table, left, right, shape, half, out):  # type: ignore[no-untyped-def]
    """out = leftᵀ · table · right, of which (k, m, p, q): table k × m, left k × p, right m × q."""
    k, m, p, q = shape
    for a in range(p):
        for b in range(m):
            half[a, b] = 0.0
        for c in range(k):
            turn = left[c, a]
            for b in range(m):
                half[a, b] += turn * table[c, b]
        for b in range(q):
            out[a, b] = 0.0
        for c in range(m):
            turn = half[a, c]
            for b in range(q):
                out[a, b] += turn * right[c, b]


@njit(cache=True)
def tell_pairs(  # type: ignore[no-untyped-def]
    lower, upper, sides, length, seen, starts, noise, strength, values, vectors, turned, squared, begin,
    deviation, variance, prior,
):  # fmt: skip
    """Mean, variance and prior variance of these pairs' cells: what each contrast has, turned back into cells."""
    widest = values.shape[1]
    mean, spread, first, half = np.empty((4, widest, widest))
    for n in range(lower, upper):
        i, j = sides[n]
        p, q = length[i], length[j]
        inner, outer, cells = (p, q, p, q), (p, q, p + 1, q + 1), slice(begin[n], begin[n + 1])
        turn_into(seen[starts[n] : starts[n + 1]].reshape((p, q)), vectors[i], vectors[j], inner, half, mean)
        for a in range(p):
            for b in range(q):
                first[a, b] = strength[n] * (values[i, a] * values[j, b])
                mean[a, b] = mean[a, b] * first[a, b] / (first[a, b] + noise[n])
                spread[a, b] = first[a, b] * noise[n] / (first[a, b] + noise[n])
        turn_into(mean, turned[i], turned[j], outer, half, deviation[cells].reshape((p + 1, q + 1)))
        turn_into(spread, squared[i], squared[j], outer, half, variance[cells].reshape((p + 1, q + 1)))
        turn_into(first, squared[i], squared[j], outer, half, prior[cells].reshape((p + 1, q + 1)))


@njit(cache=True)
def expect_errors(lower, upper, sides, length, noise, strength, values, squared, more, errors):  # type: ignore[no-untyped-def]
    """errors[n, t] = Σ √variance of the cells of pair n, with more[n, t] of precision beyond what it has."""
    widest = values.shape[1]
    spread, half, cells = np.empty((3, widest, widest))
    for n in range(lower, upper):
        i, j = sides[n]
        p, q = length[i], length[j]
        for t in range(more.shape[1]):
            left = 1.0 / (1.0 / noise[n] + more[n, t])
            for a in range(p):
                for b in range(q):
                    first = strength[n] * (values[i, a] * values[j, b])
                    spread[a, b] = first * left / (first + left)
            turn_into(spread, squared[i], squared[j], (p, q, p + 1, q + 1), half, cells)
            errors[n, t] = 0.0
            for a in range(p + 1):
                for b in range(q + 1):
                    errors[n, t] += math.sqrt(max(cells[a, b], 0.0))


@njit(cache=True)
def improve(sides, length, seen, starts, noise, values, vectors, strength, moments):  # type: ignore[no-untyped-def]
    """One pass over all pairs: `strength` is renewed, and Σ_pairs E[θ Λ⁻¹ θᵀ]/a of each attribute lies in `moments`.

    Pair n is of the attributes sides[n]; attribute j has length[j] contrasts, values[j] and vectors[j] (columns).
    """
    widest = values.shape[1]
    half = np.empty((widest, widest))
    mean = np.empty((widest, widest))
    spread = np.empty((widest, widest))
    moments[:] = 0.0
    for n in range(sides.shape[0]):
        i, j = sides[n]
        p, q = length[i], length[j]
        table = seen[starts[n] : starts[n + 1]].reshape((p, q))
        turn_into(table, vectors[i], vectors[j], (p, q, p, q), half, mean)
        strong, fresh = strength[n], 0.0
        for a in range(p):
            for b in range(q):
                scale = values[i, a] * values[j, b]
                prior = strong * scale
                shrunk = prior / (prior + noise[n])
                mean[a, b] *= shrunk
                spread[a, b] = noise[n] * shrunk
                fresh += (mean[a, b] ** 2 + spread[a, b]) / scale
        strength[n] = fresh / (p * q)  # first: the scale of a pair is then told once
        _add_moments(mean, spread, p, q, values[j], strength[n], moments[i], False)
        _add_moments(mean, spread, q, p, values[i], strength[n], moments[j], True)


@njit(cache=True)
def _add_moments(mean, spread, rows, columns, other, strong, moments, turned):  # type: ignore[no-untyped-def]
    """moments += (mean Λ⁻¹ meanᵀ + diag(spread Λ⁻¹ 1)) / a, of the transposed matrices where `turned`."""
    for c in range(columns):
        weight = 1.0 / (other[c] * strong)
        for a in range(rows):
            here = mean[c, a] if turned else mean[a, c]
            moments[a, a] += (spread[c, a] if turned else spread[a, c]) * weight
            for b in range(rows):
                moments[a, b] += here * weight * (mean[c, b] if turned else mean[b, c])


SMALL_CELLS = np.concatenate([[0.0], np.linspace(0.1, 10.0, 100)])  # what cells may be, in deviations


def denoised(measured: MeasuredTables) -> MeasuredTables:
    """The same measurement with better one-way tables: small cells of all of them are shrunk together.

    Where most values of most attributes are rare, noise would spread records over all of them; the cells
    themselves say so.
    """
    sets = measured.of_order(1)
    if not sets:
        return measured
    tables = [measured.table(members) for members in sets]
    sizes = [table.size for table in tables]
    deviation = np.repeat([max(1e-12, measured.deviation(members)) for members in sets], sizes)
    cells = np.concatenate(tables)
    small = cells < CLEAR * deviation
    if small.any():
        likely = shrunk(cells[small] / deviation[small], 1.0, points(SMALL_CELLS), steps=FEW_STEPS)
        cells[small] = likely * deviation[small]
    parts = np.split(cells, np.cumsum(sizes)[:-1])
    better = {
        members: measured.total * (onto_simplex(part, 1.0) - 1 / part.size)
        for members, part in zip(sets, parts, strict=True)
    }
    return replace(measured, interactions={**measured.interactions, **better})


SOFTENING = 0.02  # of the noise: cells that nobody has seen may still be called for
MOST_LOGARITHM = 8.0
MOST_VALUES = 128  # of an attribute whose covariance is learned: a matrix of so many rows


def separable_prior(
    measured: MeasuredTables, ones: Mapping[int, Cells], steps: int = FEW_STEPS
) -> SeparablePrior:
    """Learned from the measured pairs of attributes that are not too long."""
    pairs = sets_of_at_most(measured.of_order(2), measured.domain.sizes, MOST_VALUES)
    interactions = {members: measured.interactions[members] for members in pairs}
    return SeparablePrior(interactions, measured.variance, ones, steps, measured.total)


def likely_pairs(
    measured: MeasuredTables, ones: Mapping[int, Cells], rng: np.random.Generator
) -> dict[Set, Cells]:
    """The posterior of every measured pair's table: the separable prior says what its cells tell about each
    other, then every cell is shrunk towards independence on its own (`relative_posterior`).
    """
    pairs = measured.of_order(2)
    if not pairs:
        return {}
    prior = separable_prior(measured, ones)
    residual, variance = effective(prior.posterior())
    told = prior.split(residual), prior.split(np.sqrt(variance))
    known = {members: each for members, *each in zip(prior.pairs, *told, strict=True)}
    means = [np.multiply.outer(ones[i], ones[j]) for i, j in pairs]
    residuals, deviations = [], []
    for members, mean in zip(pairs, means, strict=True):
        if members in known:
            residuals.append(known[members][0])
            deviations.append(known[members][1])
        else:
            residuals.append(measured.interactions[members] / measured.total - centred(mean))
            deviations.append(np.full(mean.shape, cell_deviation(measured, members)))
    return _shrunk(pairs, means, residuals, deviations, rng)


def likely_larger(measured: MeasuredTables, rows: Records, rng: np.random.Generator) -> dict[Set, Cells]:
    """The posterior of every measured set of three and more, around its table in rows fitted to the pairs."""
    sets = measured.larger()
    tables = Tables(measured.domain, tuple(sets))
    fractions = tables.counts(rows) / rows.rows
    means = [fractions[tables.cells_of(t)].reshape(tables.shape_of(t)) for t in range(len(sets))]
    residuals = [
        measured.interactions[members] / measured.total - centred(mean)
        for members, mean in zip(sets, means, strict=True)
    ]
    deviations = [
        np.full(mean.shape, cell_deviation(measured, s)) for s, mean in zip(sets, means, strict=True)
    ]
    return _shrunk(sets, means, residuals, deviations, rng)


def cell_deviation(measured: MeasuredTables, members: Set) -> float:
    """The deviation of the noise in a cell of the interaction, as a fraction: centring takes some of it away."""
    kept = math.prod((int(k) - 1) / int(k) for k in measured.domain.sizes[list(members)])
    return math.sqrt(kept * measured.variance[members]) / measured.total


def _shrunk(
    sets: Sequence[Set],
    means: Sequence[Cells],
    residuals: Sequence[Cells],
    deviations: Sequence[Cells],
    rng: np.random.Generator,
) -> dict[Set, Cells]:
    """All cells of all tables at once, and each table again."""
    mean, residual, deviation = (
        np.concatenate([each.ravel() for each in tables]) for tables in (means, residuals, deviations)
    )
    cells = relative_posterior(mean, residual, deviation, rng)
    parts = np.split(cells, np.cumsum([each.size for each in means])[:-1])
    return {members: part.reshape(each.shape) for members, part, each in zip(sets, parts, means, strict=True)}


# The tree of pairs that rows lean to where the measurements do not object


def mutual_information(table: Cells, rows: Cells, columns: Cells) -> float:
    """Σ P log(P/(p q)) of a table that is scaled to sum to one."""
    scaled = np.maximum(table, 0.0) / max(float(np.maximum(table, 0.0).sum()), np.finfo(np.float64).tiny)
    expected = np.maximum(np.multiply.outer(rows, columns), np.finfo(np.float64).tiny)
    present = scaled > 0
    return float((scaled[present] * np.log(scaled[present] / expected[present])).sum())


def spanning_tree(strength: Mapping[Set, float]) -> list[Set]:
    """The edges of a maximum spanning tree (or forest), strongest first (Kruskal 1956)."""
    root: dict[int, int] = {}

    def find(j: int) -> int:
        while root.setdefault(j, j) != j:
            j = root[j]
        return j

    edges: list[Set] = []
    for i, j in sorted(strength, key=lambda pair: (-strength[pair], pair)):
        if find(i) != find(j):
            root[find(i)] = find(j)
            edges.append((i, j))
    return edges


def tree_of(pairs: Mapping[Set, Cells], ones: Mapping[int, Cells]) -> list[Set]:
    """The pairs that say most, as a tree."""
    return spanning_tree(
        {(i, j): mutual_information(table, ones[i], ones[j]) for (i, j), table in pairs.items()}
    )


def tree_lean(table: Cells, rows: Cells, columns: Cells, noise: float) -> Cells:
    """log (P/(p q)) of an edge, softened where the noise is larger than the cell."""
    expected = np.multiply.outer(np.maximum(rows, RAREST), np.maximum(columns, RAREST))
    soft = SOFTENING * noise * expected / (expected + noise)
    logarithms: Cells = np.log((np.maximum(table, 0.0) + soft) / (expected + soft))
    return np.clip(logarithms, -MOST_LOGARITHM, MOST_LOGARITHM)
