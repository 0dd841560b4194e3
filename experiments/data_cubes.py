"""Data cubes by Ding, Winslett, Han and Li (*Differentially Private Data Cubes*, 2011): MWEM's comparator.

Some cuboids are measured with Laplace noise, s of them with scale s/ε, and every other one adds up the cells of a
measured one that has all its attributes. Adding up m of them gives a cell the error

    E|Σ_{i ≤ m} Lap(b)| = 2 b Γ(m + ½) / (√π Γ(m)),

so that the choice is public: no data decides it, and no noise has to be drawn to know what it costs. For the largest
error they look for the least limit at which few cuboids cover all (BMAX: a greedy cover for each limit). For the
average we add, one at a time, the cuboid that lowers it most, in the place of their count of precise cuboids. Their
last step, consistency, is left out.
"""

from __future__ import annotations

from itertools import combinations
from math import prod, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from dualquery.types import Set


def added_up(cells: NDArray[np.float64]) -> NDArray[np.float64]:
    """E|Σ Lap(1)| over so many independent ones."""
    return np.asarray(2 / sqrt(np.pi) * np.exp(gammaln(cells + 0.5) - gammaln(cells)))


def noise_from(sizes: tuple[int, ...]) -> NDArray[np.float64]:
    """Row D, column C: the error of a cell of C added up from D, in units of the scale; infinite unless C ⊆ D."""
    sets: list[Set] = [
        members for order in range(len(sizes) + 1) for members in combinations(range(len(sizes)), order)
    ]
    cells = np.array([prod(sizes[j] for j in members) for members in sets], float)
    held = np.array([[set(small) <= set(large) for small in sets] for large in sets])
    return np.where(held, added_up(np.maximum(1.0, cells[:, None] / cells[None, :])), np.inf)


def least_average(noise: NDArray[np.float64]) -> float:
    """The average error of all cuboids, in units of 1/ε, with the best number of cuboids, added one by one."""
    best = noise[-1]  # the whole cube, without which it could not be told
    averages = [float(best.mean())]
    for measured in range(2, len(noise) + 1):
        best = np.minimum(best, noise[int(np.argmin(np.minimum(noise, best).mean(axis=1)))])
        averages.append(measured * float(best.mean()))
    return min(averages)


def least_largest(noise: NDArray[np.float64]) -> float:
    """The largest error of any cuboid, in units of 1/ε: the least limit · (size of a greedy cover) there is."""
    found = []
    for limit in np.unique(noise[np.isfinite(noise)]):
        covers, left, measured = noise <= limit, np.ones(len(noise), bool), 0
        while left.any():
            left &= ~covers[int(np.argmax((covers & left).sum(axis=1)))]
            measured += 1
        found.append(measured * float(limit))
    return min(found)
