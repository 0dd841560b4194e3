"""The least error of unbiased linear answers to all tables of some order, in closed form.

ResidualPlanner (Xiao, He, Zhang and Kifer 2023) is the optimal matrix mechanism for marginals: for each set A of
attributes it measures what the table of A says beyond its subsets, d_A = Π_{i∈A} (n_i − 1) numbers, n_i the values of
attribute i, with noise σ_A²·Σ_A. Of a privacy cost and of the squared error summed over all cells these are shares

    p_A = Π_{i∈A} (n_i − 1)/n_i,        v_A = d_A · Σ_{S⊇A} Π_{i∈S∖A} 1/n_i        (S over the tables asked for),

so that Σ p_A/σ_A² = μ² and the least Σ v_A σ_A² is (Σ_A √(v_A p_A))²/μ². It equals the bound by singular values
(`svd_bound`), without a matrix. No unbiased answer that is linear in noisy counts can be better in the mean; what is
fitted to a distribution can.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from experiments.svd_bound import exact_variance


@lru_cache(maxsize=64)
def least_rms(sizes: tuple[int, ...], order: int, *, epsilon: float, delta: float) -> float:
    """The root of the mean squared error of a cell, in records, under exact Gaussian accounting.

    A record is in one cell of each table; one is added or removed.
    """
    beyond: defaultdict[tuple[int, ...], float] = defaultdict(float)  # v_A / d_A
    cells = 0
    for table in combinations(range(len(sizes)), order):
        cells += size_of(sizes, table)
        for few in range(order + 1):
            for subset in combinations(table, few):
                beyond[subset] += size_of(sizes, subset) / size_of(sizes, table)
    total = 0.0
    for subset, share in beyond.items():
        freedom = math.prod(sizes[i] - 1 for i in subset)
        total += freedom * math.sqrt(share / size_of(sizes, subset))
    return math.sqrt(total**2 * exact_variance(epsilon, delta) / cells)


def size_of(sizes: Sequence[int], attributes: Sequence[int]) -> int:
    return math.prod(sizes[i] for i in attributes)
