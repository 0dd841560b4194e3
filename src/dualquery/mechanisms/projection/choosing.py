"""Which pairs are worth measuring, from noisy one-way tables and noisy misfits: the gate and the choice.

Nothing here knows of privacy: everything is public by now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Cells
from dualquery.game.residual import Set
from dualquery.mechanisms.projection.posterior import posterior_means

HALF_NORMAL = 0.8  # E|x| of a standard normal x
OF_EXPECTED = 2.0  # a cell of which n·M records are expected misfits by at most so many times that
PAIR_OF_ONES = 1.4  # the error of a product of two tables, in errors of one
LEVELS = 100  # that a misfit may have
HALF_LOST = 1.3  # squared misfit, in squared noise, of which a measurement takes away half
WORTH = 0.8  # of the cost: pairs mend the worst tables, which the mean hardly shows
PENALTY = 0.4  # for the noise that measuring a pair brings


@dataclass(frozen=True)
class Misfit:
    """How far the pairs lie from independence, in records: noisy, and as a posterior says."""

    noisy: Cells
    likely: Cells

    @staticmethod
    def of(noisy: NDArray[np.int64] | Cells, null: Cells, deviation: float) -> Misfit:
        """Less what chance alone brings; the posterior mean under a law learned from all pairs."""
        excess = noisy - null
        scaled = excess / deviation
        likely = posterior_means(scaled, np.linspace(scaled.min() - 1e-9, scaled.max() + 1e-9, LEVELS))
        return Misfit(excess, deviation * likely)


def expected_counts(ones: Mapping[int, Cells], pairs: Sequence[Set], total: float) -> Cells:
    """n·M: the counts of all cells of the pairs, were the attributes independent."""
    return total * np.concatenate([np.outer(ones[i], ones[j]).ravel() for i, j in pairs])


def null_misfit(
    ones: Mapping[int, Cells], deviations: Mapping[int, float], pairs: Sequence[Set], total: float
) -> Cells:
    """The misfit of each table that sampling and the noise of one-way tables bring by themselves.

    Σ_c .8 √(n M_c + n² (s_i² p_j² + s_j² p_i²)), but at most 2 n M_c a cell.
    """
    squares = {j: p**2 for j, p in ones.items()}
    spread = {j: np.full(len(p), (total * deviations[j]) ** 2) for j, p in ones.items()}
    misfits = []
    for i, j in pairs:
        expected = total * np.outer(ones[i], ones[j])
        noise = np.outer(spread[i], squares[j]) + np.outer(squares[i], spread[j])
        cells = np.minimum(HALF_NORMAL * np.sqrt(expected + noise), OF_EXPECTED * expected)
        misfits.append(float(cells.sum()))
    return np.array(misfits)


def error_of_ones(ones: Mapping[int, Cells], deviations: Mapping[int, float]) -> float:
    """The L1 error of a pair's table that the noise of one-way tables brings; deviations are fractions.

    Clipped at zero, a cell of fraction p far below the noise s has an error of .8 · .35 s rather than .8 s.
    """
    errors = [
        float((HALF_NORMAL * deviations[j] * np.minimum(1.0, 0.35 + p / deviations[j])).sum())
        for j, p in ones.items()
    ]
    return PAIR_OF_ONES * float(np.mean(errors))


@dataclass(frozen=True)
class Gate:
    """What measuring pairs gains, and what the share of the one-way tables that it needs costs, both in L1."""

    gain: float
    cost: float

    @property
    def opens(self) -> bool:
        return self.gain > WORTH * self.cost

    @staticmethod
    def of(misfit: Misfit, best: NDArray[np.int64], noise: Cells, *, total: float, cost: float) -> Gate:
        """A pair of misfit m, measured with noise ν, loses m · m²/(m² + 1.3 ν²) of it."""
        found = np.maximum(misfit.likely[best], 0.0)
        lost = found**3 / np.maximum(found**2 + HALF_LOST * (HALF_NORMAL * noise[best]) ** 2, 1e-300)
        return Gate(float(lost.sum()) / (len(misfit.likely) * total), cost)


def best_pairs(misfit: Misfit, chosen: int, noise: Cells) -> NDArray[np.int64]:
    """The pairs of largest misfit, less part of what the noise of measuring them brings, both in records."""
    order = np.argsort(-(misfit.noisy - PENALTY * noise), kind="stable")
    return np.sort(order[:chosen])
