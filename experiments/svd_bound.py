"""The lower bound that the singular values of a workload set to every matrix mechanism.

Li and Miklau: with (ε, δ)-differential privacy the mean squared error of a query is, in squared records, at
least

    (Σ_i σ_i(W))² / (N · m) · 2 ln(2/δ) / ε²

for the m × N matrix W of the queries over N cells, whatever strategy the mechanism measures. MWEM is no
matrix mechanism: it looks at the data before it measures, and may stay below.
"""

from __future__ import annotations

import math
from math import prod

import numpy as np

from dualquery.distributions.histogram import check_cells
from dualquery.distributions.products import Products
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
    return nuclear**2 / (cells * workload.size) * 2 * math.log(2 / delta) / epsilon**2
