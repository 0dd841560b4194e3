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
from dualquery.loops import njit, plain_algebra
from dualquery.queries.tables import Tables, centred
from dualquery.table.records import Records
from dualquery.types import Cells, Reals, Set

GUESS = 4.0  # observations that the guess of a covariance counts as
LEAST_STRENGTH = 0.1  # of a_S at first, in units of the noise. Doubled: adult +1.9%


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
    """Fitted to interactions of pairs (in fractions of the table), their noise variance, and one-way tables."""

    def __init__(
        self,
        interactions: Mapping[Set, Cells],
        variance: Mapping[Set, float],
        ones: Mapping[int, Cells],
        steps: int = FEW_STEPS,
    ) -> None:
        self._basis = {j: contrasts(len(ones[j])) for members in interactions for j in members}
        shapes = list(dict.fromkeys(cells.shape for cells in interactions.values()))
        self._pairs = sorted(
            interactions, key=lambda s: shapes.index(interactions[s].shape)
        )  # alike side by side
        self._noise = np.array([variance[s] for s in self._pairs])
        self._seen: dict[Set, Reals] = {
            (i, j): self._basis[i].T
            @ (interactions[i, j] - centred(np.multiply.outer(ones[i], ones[j])))
            @ self._basis[j]
            for i, j in self._pairs
        }
        guess = {
            j: basis.T @ (np.maximum(ones[j], LEAST)[:, None] * basis) for j, basis in self._basis.items()
        }
        self._covariance = dict(guess)
        self._strength = self._first_strength(guess)
        with plain_algebra():
            if self._pairs:
                self._improved(guess, steps)
            self._values, self._vectors = _eigen(self._covariance)
        self._turned = {j: self._basis[j] @ self._vectors[j] for j in self._basis}

    def _first_strength(self, guess: Mapping[int, Reals]) -> NDArray[np.float64]:
        """a_S by moments: what is seen beyond the noise, in units of the guess."""
        size = np.array([self._seen[s].size for s in self._pairs])
        seen = np.array([(self._seen[s] ** 2).sum() for s in self._pairs]) - size * self._noise
        scale = np.array([np.trace(guess[i]) * np.trace(guess[j]) for i, j in self._pairs])
        strength: NDArray[np.float64] = np.maximum(seen, LEAST_STRENGTH * size * self._noise) / scale
        return strength

    def _improved(self, guess: Mapping[int, Reals], steps: int) -> None:
        """Steps of: the posterior of every pair, then a_S and Σ_i that make it most likely."""
        place = {j: number for number, j in enumerate(self._basis)}
        length = np.array([basis.shape[1] for basis in self._basis.values()], np.int64)
        widest = int(length.max(initial=0))
        first, second = (np.array([place[s[side]] for s in self._pairs], np.int64) for side in (0, 1))
        seen = np.zeros((len(self._pairs), widest, widest))
        for n, members in enumerate(self._pairs):
            table = self._seen[members]
            seen[n, : table.shape[0], : table.shape[1]] = table
        weight = np.full(len(place), GUESS)
        np.add.at(weight, first, length[second])
        np.add.at(weight, second, length[first])
        values, vectors = np.ones((len(place), widest)), np.zeros((len(place), widest, widest))
        moments = np.zeros_like(vectors)
        for _ in range(steps):
            found, turned = _eigen(self._covariance)
            for j, n in place.items():
                values[n, : length[n]], vectors[n, : length[n], : length[n]] = found[j], turned[j]
            improve(first, second, length, seen, self._noise, values, vectors, self._strength, moments)
            for j, n in place.items():
                mine = turned[j] @ moments[n, : length[n], : length[n]] @ turned[j].T
                self._covariance[j] = (GUESS * guess[j] + mine) / weight[n]

    def posteriors(self) -> dict[Set, PairPosterior]:
        """Of every pair, cell by cell."""
        out: dict[Set, PairPosterior] = {}
        for (i, j), strength, noise in zip(self._pairs, self._strength, self._noise, strict=True):
            left, right = self._turned[i], self._turned[j]
            seen = self._vectors[i].T @ self._seen[i, j] @ self._vectors[j]
            prior = strength * np.multiply.outer(self._values[i], self._values[j])
            mean, spread = seen * prior / (prior + noise), prior * noise / (prior + noise)
            out[i, j] = PairPosterior(
                left @ mean @ right.T, left**2 @ spread @ (right**2).T, left**2 @ prior @ (right**2).T
            )
        return out

    def expected_errors(
        self, precisions: Mapping[Set, NDArray[np.float64]]
    ) -> dict[Set, NDArray[np.float64]]:
        """Σ_cells of the posterior deviation of each pair, measured with so much more precision (1/variance)."""
        out: dict[Set, NDArray[np.float64]] = {}
        for (i, j), strength, known in zip(self._pairs, self._strength, self._noise, strict=True):
            prior = strength * np.multiply.outer(self._values[i], self._values[j])
            noise = 1.0 / (1.0 / known + precisions[i, j])[:, None, None]
            spread = self._turned[i] ** 2 @ (prior * noise / (prior + noise)) @ (self._turned[j] ** 2).T
            out[i, j] = np.sqrt(np.maximum(spread, 0.0)).sum(axis=(1, 2))
        return out


def _eigen(covariance: Mapping[int, Reals]) -> tuple[dict[int, Reals], dict[int, Reals]]:
    values, vectors = {}, {}
    for j, each in covariance.items():
        found, vectors[j] = np.linalg.eigh((each + each.T) / 2)
        values[j] = np.maximum(found, LEAST * max(float(found.max()), np.finfo(np.float64).tiny))
    return values, vectors


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
def improve(first, second, length, seen, noise, values, vectors, strength, moments):  # type: ignore[no-untyped-def]
    """One pass over all pairs: `strength` is renewed, and Σ_pairs E[θ Λ⁻¹ θᵀ]/a of each attribute lies in `moments`.

    Pair n is (first[n], second[n]); attribute j has length[j] contrasts, values[j] and vectors[j] (columns).
    """
    widest = values.shape[1]
    half = np.empty((widest, widest))
    mean = np.empty((widest, widest))
    spread = np.empty((widest, widest))
    moments[:] = 0.0
    for n in range(first.shape[0]):
        i, j = first[n], second[n]
        p, q = length[i], length[j]
        left, right, table = vectors[i], vectors[j], seen[n]
        for a in range(p):
            for b in range(q):
                half[a, b] = 0.0
            for c in range(p):
                turn = left[c, a]
                for b in range(q):
                    half[a, b] += turn * table[c, b]
        strong, fresh = strength[n], 0.0
        for a in range(p):
            for b in range(q):
                total = 0.0
                for c in range(q):
                    total += half[a, c] * right[c, b]
                scale = values[i, a] * values[j, b]
                prior = strong * scale
                shrunk = prior / (prior + noise[n])
                mean[a, b] = total * shrunk
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
    return SeparablePrior(
        {members: measured.interactions[members] / measured.total for members in pairs},
        {members: measured.variance[members] / measured.total**2 for members in pairs},
        ones,
        steps,
    )


def likely_pairs(
    measured: MeasuredTables, ones: Mapping[int, Cells], rng: np.random.Generator
) -> dict[Set, Cells]:
    """The posterior of every measured pair's table: the separable prior says what its cells tell about each
    other, then every cell is shrunk towards independence on its own (`relative_posterior`).
    """
    pairs = measured.of_order(2)
    if not pairs:
        return {}
    posteriors = separable_prior(measured, ones).posteriors()
    means = [np.multiply.outer(ones[i], ones[j]) for i, j in pairs]
    residuals, deviations = [], []
    for members, mean in zip(pairs, means, strict=True):
        if members in posteriors:
            residual, variance = effective(posteriors[members])
            residuals.append(residual)
            deviations.append(np.sqrt(variance))
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
