"""How wrong the answers of a workload will be on average, from the noise of the interactions that are measured.

Measured with noise of variance v the interaction of B is wrong by E_B(v) in L1, with one-way tables as they mostly
are (`fitting.allocation`); what is not measured is wrong by what pairs are taken to depend, and for larger sets by
what sampling alone makes of them. A query that accepts m_j of the k_j values of each attribute j of a set T is off
by about

    √ Σ_{B ⊆ T} (E_B / Π_{j ∈ B} k_j)² · Π_{j ∈ B} m_j (k_j − m_j)/(k_j − 1) · Π_{j ∈ T∖B} (m_j/k_j)²,

so that a cell is off by √(Σ E_B²) over the cells of its table. The mean goes over the queries of the workload, or
over some of them that everybody can draw again. What the prediction is worth: docs/cli.md, "Choose ε".
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.fitting.allocation import predicted_curves
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.shares import MOST_VARIANCE
from dualquery.queries.group import NONE, ProductRows
from dualquery.table.domain import Categorical, Column, Domain, Numeric
from dualquery.types import Cells, Reals, Set

MOST_QUERIES = 5_000  # that are looked at
MOST_ORDER = 4  # of interactions that are looked at
NAMES, LONGER = 1.75, 0.5  # shares of k values fall as rank^−(1.75 + .5 ln(k/4)): of many names most are rare
NUMBERS = 1.25  # where numbers have bins of different widths, as drafts give them, or one for each of a few
EVEN = (
    1.5  # times the narrowest: bins that differ by less are of equal width, and long tails leave most empty
)
UNSURE = 1.15  # so that few real tables are wrong by more (benchmarks/planning.py, on which all of these were chosen)


def likely_ones(domain: Domain) -> dict[int, Cells]:
    """One-way tables as they are in most tables, by what the schema says of a column."""
    out = {}
    for number, column in enumerate(domain.columns):
        for attribute in range(domain.starts[number], domain.starts[number + 1]):
            size = int(domain.sizes[attribute])
            steep = NUMBERS if _spread_out(column) else NAMES + LONGER * max(0.0, math.log(size / 4))
            falling = np.arange(1.0, size + 1) ** -steep
            out[attribute] = falling / falling.sum()
    return out


def _spread_out(column: Column) -> bool:
    """Whether the bins of a column were made so that none is all but empty, or full."""
    if isinstance(column, Numeric):
        widths = np.diff(column.edges)
        return bool(widths.max() > EVEN * widths.min())
    return isinstance(column, Categorical) and column.numeric


def predicted_errors(
    task: Task, variances: Mapping[Set, float], mean: float, most: float
) -> tuple[float, float]:
    """The mean error, and the largest; where queries are no products of conditions, the mean that is given."""
    size = task.workload.size
    drawn = np.arange(size, dtype=np.int64)
    if size > MOST_QUERIES:  # evenly spread
        places = np.arange(MOST_QUERIES) + np.random.default_rng(0).random(MOST_QUERIES)
        drawn = (places * (size / MOST_QUERIES)).astype(np.int64)
    try:
        rows = task.workload.product_rows(drawn)
    except QueryError:
        return mean, max(mean, most)
    errors = [_of_products(task, variances, rows), _of_parities(task, variances, rows.parities)]
    mean = UNSURE * float(np.concatenate(errors).mean())
    return mean, max(mean, most)


def _of_products(task: Task, variances: Mapping[Set, float], rows: ProductRows) -> Reals:
    """Query by query; B runs over the subsets of its attributes."""
    predicates, sizes = rows.predicates, task.domain.sizes.astype(np.float64)
    asked = rows.literals >> 1
    if not asked.size:
        return np.zeros(len(asked))
    used = asked >= 0
    attribute = np.where(used, predicates.attribute[asked], -1)
    values = np.where(used, sizes[attribute], 1.0)
    accepted = np.diff(predicates.start)[asked]
    accepted = np.where(used, np.where(rows.literals & 1 == 1, values - accepted, accepted), 1.0)
    inside = accepted * (values - accepted) / np.maximum(values - 1, 1) / values**2
    beside = (accepted / values) ** 2
    squares = np.zeros(len(asked))
    for order in range(1, 1 + min(MOST_ORDER, asked.shape[1])):
        for places in combinations(range(asked.shape[1]), order):
            others = [place for place in range(asked.shape[1]) if place not in places]
            factor = inside[:, places].prod(axis=1) * beside[:, others].prod(axis=1)
            squares += factor * _errors_of(task, variances, attribute[:, places]) ** 2
    return np.sqrt(squares)


def _of_parities(task: Task, variances: Mapping[Set, float], parities: NDArray[np.int32]) -> Reals:
    """Of a parity over S all cells of the interaction of S are wrong alike, half of them on either side."""
    return _errors_of(task, variances, parities) / 2 if parities.size else np.zeros(len(parities))


def _errors_of(task: Task, variances: Mapping[Set, float], attributes: NDArray[np.int32]) -> Reals:
    """E_B of the set of attributes in each row, which is padded with −1; 0 where all of it is padding, or constant.

    Centring takes a part of what sampling makes of a cell: √Π (k_j − 1)/k_j is left.
    """
    sizes = task.domain.sizes.tolist()
    sets, place = np.unique(np.sort(attributes, axis=1), axis=0, return_inverse=True)
    members = [tuple([j for j in row if j != NONE]) for row in sets.tolist()]
    known = [number for number, s in enumerate(members) if s and all(sizes[j] > 1 for j in s)]
    kept = {s: math.prod([1 - 1 / sizes[j] for j in s]) for s in (members[number] for number in known)}
    found = np.zeros(len(members))
    if kept:
        units = np.array([part * variances.get(s, math.inf) for s, part in kept.items()])
        curves = predicted_curves(
            list(kept), likely_ones(task.domain), task.rows, np.minimum(units, MOST_VARIANCE)
        )
        left = np.array([math.sqrt(part) if len(s) > 2 else 1.0 for s, part in kept.items()])
        found[known] = np.minimum(curves.at(np.ones(len(kept))), left * curves.errors[:, 0])
    errors: Reals = found[np.ravel(place)]
    return errors
