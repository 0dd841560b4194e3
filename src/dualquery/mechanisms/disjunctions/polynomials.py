"""Polynomials that are nearly OR: of which degree, and how heavy.

A disjunction of at most k attributes is OR of at most k ones. A univariate polynomial r with |r(m) − [m > 0]| ≤ α at
m = 0, …, k makes r(y_1 + … + y_d) a combination of monomials of degree at most t that is α-close to it. In the basis
of binomials, r(m) = Σ_j c_j C(m, j) with c_j = Δ^j r(0), and C(Σ y, j) is the sum of all monomials of degree
j, so the combination weighs

    W = Σ_j |c_j| · C(d, j).

*Chebyshev* (Thaler, Ullman, Vadhan 2012): r(m) = 1 − T_t((k + 1 − 2m)/(k − 1)) / T_t((k + 1)/(k − 1)) is 0 at
0 and within 1/T_t(1 + 2/(k − 1)) of 1 on all of [1, k]; degree about √k · ln(1/α)/2.

*Minimax*: the best polynomial at the k + 1 points themselves, by Remez' exchange; a degree k is exact.

*Blocks* (Chandrasekaran, Thaler, Ullman, Wan 2014): of b blocks of attributes take OR within each exactly (its basis
functions are the disjunctions of a block's subsets, weight 1) and the polynomial over the b of them: W = Σ_j
|c_j| · C(b, j) with more basis functions. One block is weight 1 and all 2^d records; d blocks are the monomials.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import acosh, comb, cosh

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from dualquery.errors import QueryError

Reals = NDArray[np.float64]

WIDEST = 64  # attributes of a disjunction for which polynomials are looked for
ENOUGH = 0.01  # the error that a degree must reach
EXCHANGES = 400


@dataclass(frozen=True)
class Approximation:
    """A polynomial that is nearly OR at 0 to k: its values there, and how far off it is."""

    k: int
    degree: int
    values: tuple[float, ...]

    @property
    def error(self) -> float:
        return float(np.abs(np.array(self.values) - _or_of(self.k)).max())

    @property
    def coefficients(self) -> tuple[float, ...]:
        """c_j = Δ^j r(0), up to the degree."""
        differences, out = np.array(self.values), []
        for _ in range(self.degree + 1):
            out.append(float(differences[0]))
            differences = np.diff(differences)
        return tuple(out)

    def weight(self, variables: int) -> float:
        """W over so many attributes or blocks."""
        return float(sum(abs(c) * comb(variables, j) for j, c in enumerate(self.coefficients)))


def check_width(k: int) -> None:
    if not 1 <= k <= WIDEST:
        raise QueryError(
            f"polynomials are made for disjunctions of 1 to {WIDEST} attributes, and {k} is not between"
        )


def chebyshev_or(k: int, degree: int) -> Approximation:
    """The polynomial of the theorem."""
    check_width(k)
    if k == 1 or degree >= k:
        return minimax_or(k, k)
    points = (k + 1 - 2 * np.arange(k + 1)) / (k - 1)
    unit = np.zeros(degree + 1)
    unit[-1] = 1.0
    values = 1 - chebyshev.chebval(points, unit) / cosh(degree * acosh(float(points[0])))
    return Approximation(k, degree, tuple(values.tolist()))


@lru_cache(maxsize=1024)
def minimax_or(k: int, degree: int) -> Approximation:
    """The best polynomial of a degree at the points 0, …, k (Remez, one point a step, on finitely many points)."""
    check_width(k)
    target = _or_of(k)
    if degree >= k:
        return Approximation(k, k, tuple(target.tolist()))
    basis = chebyshev.chebvander(2 * np.arange(k + 1) / k - 1, degree)
    reference = np.unique(np.rint((1 - np.cos(np.pi * np.arange(degree + 2) / (degree + 1))) * k / 2)).astype(
        int
    )
    spare = [m for m in range(k + 1) if m not in reference]
    reference = np.sort(np.concatenate([reference, spare[: degree + 2 - len(reference)]])).astype(int)
    values: Reals = target
    for _ in range(EXCHANGES):
        signs = (-1.0) ** np.arange(degree + 2)
        solved = np.linalg.solve(np.column_stack([basis[reference], signs]), target[reference])
        values = np.asarray(basis @ solved[:-1], np.float64)
        wrong = target - values
        worst = int(np.abs(wrong).argmax())
        if abs(wrong[worst]) <= abs(solved[-1]) * (1 + 1e-9) + 1e-13:
            break
        reference = _exchanged(reference, wrong, worst)
    return Approximation(k, degree, tuple(values.tolist()))


def _exchanged(reference: NDArray[np.int_], wrong: Reals, worst: int) -> NDArray[np.int_]:
    """The reference with the worst point in it, signs still in turn."""
    place = int(np.searchsorted(reference, worst))
    same = [
        i for i in (place - 1, place) if 0 <= i < len(reference) and wrong[reference[i]] * wrong[worst] >= 0
    ]
    new = reference.copy()
    if same:
        new[same[0]] = worst
    elif place == 0:
        new = np.concatenate([[worst], reference[:-1]])
    else:
        new = np.concatenate([reference[1:], [worst]])
    return np.sort(new)


def least_degree(k: int, error: float = ENOUGH) -> Approximation:
    """The minimax polynomial of the least degree that is within an error."""
    return next(
        found for degree in range(1, k + 1) if (found := minimax_or(k, degree)).error <= error or degree == k
    )


def chebyshev_degree(k: int, error: float = ENOUGH) -> int:
    """The degree that the theorem gives."""
    return next(degree for degree in range(1, k + 1) if degree == k or chebyshev_or(k, degree).error <= error)


def _or_of(k: int) -> Reals:
    return (np.arange(k + 1) > 0).astype(np.float64)
