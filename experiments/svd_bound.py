"""The lower bound that the singular values of a workload set to every matrix mechanism.

Li and Miklau: with (ε, δ)-differential privacy the mean squared error of a query is, in squared records, at
least

    (Σ_i σ_i(W))² / (N · m) · 2 ln(2/δ) / ε²

for the m × N matrix W of the queries over N cells, whatever strategy the mechanism measures. MWEM is no
matrix mechanism: it looks at the data before it measures, and may stay below.

The last factor is the variance that the classical analysis asks of Gaussian noise. The exact analysis (Balle and
Wang 2018) asks for less, and a matrix mechanism that uses it can go below the bound by as much.
"""

from __future__ import annotations

import math
from math import prod

import numpy as np

from dualquery.beliefs.factored import Products
from dualquery.beliefs.histogram import check_cells
from dualquery.privacy.conversion import gaussian_epsilon
from dualquery.queries.workload import Workload


def svd_bound(workload: Workload, *, epsilon: float, delta: float) -> float:
    """The least mean squared error of a query, in squared records, of a matrix mechanism."""
    products = Products.of(workload)
    everything = tuple(range(workload.domain.width))
    cells = prod(workload.domain.sizes.tolist())
    check_cells(cells * min(workload.size, cells))
    matrix = np.empty((workload.size, cells))
    for query in range(workload.size):
        members = products.attributes_of(query)
        shape = [int(workload.domain.sizes[j]) if j in members else 1 for j in everything]
        table = products.table_of(query).reshape(shape)
        matrix[query] = np.broadcast_to(table, workload.domain.sizes).ravel()
    # The singular values of W are the roots of the eigenvalues of the smaller of W Wᵀ and Wᵀ W.
    gram = matrix @ matrix.T if workload.size <= cells else matrix.T @ matrix
    nuclear = float(np.sqrt(np.maximum(np.linalg.eigvalsh(gram), 0.0)).sum())
    return nuclear**2 / (cells * workload.size) * classical_variance(epsilon, delta)


def classical_variance(epsilon: float, delta: float) -> float:
    """The variance of Gaussian noise, at sensitivity 1, that Li and Miklau count with."""
    return 2 * math.log(2 / delta) / epsilon**2


def exact_variance(epsilon: float, delta: float) -> float:
    """The least variance of Gaussian noise that is (ε, δ)-differentially private at sensitivity 1."""
    low, high = 0.0, classical_variance(epsilon, delta)
    while gaussian_epsilon(1 / high, delta=delta) > epsilon:  # the classical constant holds for small ε only
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if gaussian_epsilon(1 / middle, delta=delta) <= epsilon else (middle, high)
    return high


def slack(epsilon: float, delta: float) -> float:
    """How many times lower the bound would be with exact noise."""
    return classical_variance(epsilon, delta) / exact_variance(epsilon, delta)
