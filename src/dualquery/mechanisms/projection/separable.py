"""What pairs of attributes have in common: one covariance an attribute, learned from all its pairs.

The deviation of a pair's table from independence, in orthonormal contrasts y_S = B_iᵀ (I_S/n − C(p_i p_jᵀ))
B_j, is taken to be a draw from N(0, a_S Σ_i ⊗ Σ_j), seen through noise of variance t_S. Attributes whose
values go together in one pair (neighbouring ages, states of one region) do so in the others: Σ_i says which,
a_S how strongly a pair depends at all. Both are found by expectation and maximisation; Ψ_i = B_iᵀ diag(p_i)
B_i, what sampling alone would give, is the first guess of Σ_i and counts as `GUESS` observations. Everything
here is post-processing of released numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Cells
from dualquery.game.residual import Set
from dualquery.queries.tables import centred

GUESS = 4.0  # observations that the guess of a covariance counts as
STEPS = 30  # of expectation and maximisation
LEAST_EIGENVALUE = 1e-12  # relative to the largest
LEAST_STRENGTH = 0.1  # of a_S at first, in units of the noise
LEAST_FRACTION = 1e-9

Matrix = NDArray[np.float64]


def contrasts(size: int) -> Matrix:
    """Helmert's: size − 1 orthonormal columns, each orthogonal to the constant."""
    out = np.zeros((size, size - 1))
    for j in range(1, size):
        out[:j, j - 1] = 1.0 / math.sqrt(j * (j + 1))
        out[j, j - 1] = -j / math.sqrt(j * (j + 1))
    return out


@dataclass(frozen=True)
class _Alike:
    """Pairs of the same shape, side by side, the shorter attribute first.

    `rows` and `columns` are where its attributes stand among those of their length; `seen` are the contrasts
    (pair, p, q) and `noise` the variance of their noise.
    """

    pairs: tuple[Set, ...]
    turned: tuple[bool, ...]  # whether the shorter attribute is the second
    lengths: tuple[int, int]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    seen: Matrix
    noise: NDArray[np.float64]


@dataclass(frozen=True)
class PairPosterior:
    """Of a pair's cells, given the separable prior: deviation from independence, its variance, and the
    prior's.
    """

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
        steps: int = STEPS,
    ) -> None:
        attributes = sorted({j for members in interactions for j in members})
        self._basis = {len(ones[j]): contrasts(len(ones[j])) for j in attributes}
        alike = {k: [j for j in attributes if len(ones[j]) == k] for k in self._basis}
        self._groups = _grouped(interactions, variance, ones, alike, self._basis)
        guess = {
            k: np.stack([basis.T @ (np.maximum(ones[j], LEAST_FRACTION)[:, None] * basis) for j in alike[k]])
            for k, basis in self._basis.items()
        }
        self._covariance = dict(guess)
        self._strength = [_first_strength(group, guess) for group in self._groups]
        for _ in range(steps):
            self._improve(guess)
        self._values, self._vectors = _eigen(self._covariance)

    def _improve(self, guess: Mapping[int, Matrix]) -> None:
        """One step: the posterior of every pair, then a_S and Σ_i that make it most likely."""
        self._values, self._vectors = _eigen(self._covariance)
        total = {k: GUESS * each for k, each in guess.items()}
        weight = {k: np.full(len(each), GUESS) for k, each in guess.items()}
        for place, group in enumerate(self._groups):
            (short, long), strength = group.lengths, self._strength[place]
            rows, columns = self._values[short][group.rows], self._values[long][group.columns]
            left, right = self._vectors[short][group.rows], self._vectors[long][group.columns]
            scale = rows[:, :, None] * columns[:, None, :]
            prior, noise = strength[:, None, None] * scale, group.noise[:, None, None]
            kept = prior / (prior + noise)
            mean, spread = left.transpose(0, 2, 1) @ group.seen @ right * kept, kept * noise
            strength = ((mean**2 + spread) / scale).mean(axis=(1, 2))  # first: the scale is then told once
            by_row = _second_moment(left, mean, spread, columns) / strength[:, None, None]
            by_column = (
                _second_moment(right, mean.transpose(0, 2, 1), spread.transpose(0, 2, 1), rows)
                / strength[:, None, None]
            )
            np.add.at(total[short], group.rows, by_row)
            np.add.at(total[long], group.columns, by_column)
            np.add.at(weight[short], group.rows, mean.shape[2])
            np.add.at(weight[long], group.columns, mean.shape[1])
            self._strength[place] = strength
        self._covariance = {k: each / weight[k][:, None, None] for k, each in total.items()}

    def _each(self) -> Iterator[tuple[Set, bool, _Alike, int, Matrix, Matrix, Matrix]]:
        """Every pair: whether it is turned, where it stands, its prior variances and its two turned bases."""
        for group, strength in zip(self._groups, self._strength, strict=True):
            short, long = group.lengths
            for n, (members, turned) in enumerate(zip(group.pairs, group.turned, strict=True)):
                i, j = group.rows[n], group.columns[n]
                prior = strength[n] * np.outer(self._values[short][i], self._values[long][j])
                left = self._basis[short] @ self._vectors[short][i]
                right = self._basis[long] @ self._vectors[long][j]
                yield members, turned, group, n, prior, left, right

    def posteriors(self) -> dict[Set, PairPosterior]:
        """Of every pair, cell by cell."""
        out: dict[Set, PairPosterior] = {}
        for members, turned, group, n, prior, left, right in self._each():
            short, long = group.lengths
            seen = (self._basis[short].T @ left).T @ group.seen[n] @ (self._basis[long].T @ right)
            kept = prior / (prior + group.noise[n])
            tables = (
                left @ (seen * kept) @ right.T,
                left**2 @ (kept * group.noise[n]) @ (right**2).T,
                left**2 @ prior @ (right**2).T,
            )
            out[members] = PairPosterior(*(table.T if turned else table for table in tables))
        return out

    def expected_errors(
        self, precisions: Mapping[Set, NDArray[np.float64]]
    ) -> dict[Set, NDArray[np.float64]]:
        """Σ_cells of the posterior deviation of each pair, with so much more precision (1/variance) measured."""
        out: dict[Set, NDArray[np.float64]] = {}
        for members, _, group, n, prior, left, right in self._each():
            noise = 1.0 / (1.0 / group.noise[n] + precisions[members])[:, None, None]
            spread = left**2 @ (prior * noise / (prior + noise)) @ (right**2).T
            out[members] = np.sqrt(np.maximum(spread, 0.0)).sum(axis=(1, 2))
        return out


def _grouped(
    interactions: Mapping[Set, Cells],
    variance: Mapping[Set, float],
    ones: Mapping[int, Cells],
    alike: Mapping[int, list[int]],
    basis: Mapping[int, Matrix],
) -> list[_Alike]:
    place = {j: n for sharing in alike.values() for n, j in enumerate(sharing)}
    shapes: dict[tuple[int, int], list[Set]] = {}
    for i, j in interactions:
        shapes.setdefault((min(len(ones[i]), len(ones[j])), max(len(ones[i]), len(ones[j]))), []).append(
            (i, j)
        )
    groups = []
    for (short, long), pairs in shapes.items():
        turned = tuple(len(ones[i]) > len(ones[j]) for i, j in pairs)
        apart = [interactions[i, j] - centred(np.outer(ones[i], ones[j])) for i, j in pairs]
        across = [each.T if turn else each for each, turn in zip(apart, turned, strict=True)]
        ordered = [(j, i) if turn else (i, j) for (i, j), turn in zip(pairs, turned, strict=True)]
        groups.append(
            _Alike(
                tuple(pairs),
                turned,
                (short, long),
                np.array([place[i] for i, _ in ordered]),
                np.array([place[j] for _, j in ordered]),
                basis[short].T @ np.stack(across) @ basis[long],
                np.array([variance[members] for members in pairs]),
            )
        )
    return groups


def _first_strength(group: _Alike, guess: Mapping[int, Matrix]) -> NDArray[np.float64]:
    """a_S by moments: what is seen beyond the noise, in units of the guess."""
    size = group.seen[0].size
    seen = (group.seen**2).sum(axis=(1, 2)) - size * group.noise
    rows, columns = (np.trace(guess[k], axis1=1, axis2=2) for k in group.lengths)
    scale = rows[group.rows] * columns[group.columns]
    strength: NDArray[np.float64] = np.maximum(seen, LEAST_STRENGTH * size * group.noise) / scale
    return strength


def _second_moment(vectors: Matrix, mean: Matrix, spread: Matrix, other: Matrix) -> Matrix:
    """E[θ Λ⁻¹ θᵀ] of each pair, turned back; Λ are the eigenvalues of the other attribute."""
    moment = (mean / other[:, None, :]) @ mean.transpose(0, 2, 1)
    diagonal = np.arange(mean.shape[1])
    moment[:, diagonal, diagonal] += (spread / other[:, None, :]).sum(axis=2)
    return vectors @ moment @ vectors.transpose(0, 2, 1)


def _eigen(covariance: Mapping[int, Matrix]) -> tuple[dict[int, Matrix], dict[int, Matrix]]:
    values, vectors = {}, {}
    for k, each in covariance.items():
        found, vectors[k] = np.linalg.eigh((each + each.transpose(0, 2, 1)) / 2)
        least = LEAST_EIGENVALUE * np.maximum(found.max(axis=1), np.finfo(np.float64).tiny)
        values[k] = np.maximum(found, least[:, None])
    return values, vectors


def effective(posterior: PairPosterior) -> tuple[Cells, Cells]:
    """The cell-wise measurement that says as much about a cell as all cells together did: its residual and
    variance.

    With prior N(0, t) a measurement r of variance e gives the posterior variance v, 1/v = 1/t + 1/e, and mean
    r·v/e.
    """
    spread = posterior.variance
    variance = 1.0 / np.maximum(1.0 / spread - 1.0 / posterior.prior, 1e-3 / spread)
    return posterior.deviation * variance / spread, variance


def sets_of_at_most(sets: Sequence[Set], sizes: NDArray[np.integer], most: int) -> list[Set]:
    """Those whose attributes all have at most so many values."""
    return [members for members in sets if all(int(sizes[j]) <= most for j in members)]
