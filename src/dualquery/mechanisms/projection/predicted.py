"""How wrong the answers of a workload will be on average, from the noise of the interactions that are measured.

Measured with noise of variance v the interaction of B is wrong by E_B(v) in L1, with one-way tables as they mostly
are (`fitting.allocation`), and a dependence θ that follows an exponential law, for most pairs depend little and a
few much. Its mean is θ_S = ½ √Π_{j ∈ S} (1 − 1/k_j) of a pair, for few values cannot tell much, and twice that of
two numbers in bins. A triple that is not measured is wrong by what sampling makes of it, by a little more, and by
what its pairs would imply if they were known: r_ab r_ac for any two, of which with errors e in r

    θ_ab² θ_ac² − (θ_ab² − e_ab²)(θ_ac² − e_ac²)

is missing. A query that accepts m_j of the k_j values of each attribute j of a set T is off
by about

    √ Σ_{B ⊆ T} (E_B / Π_{j ∈ B} k_j)² · Π_{j ∈ B} m_j (k_j − m_j)/(k_j − 1) · Π_{j ∈ T∖B} (m_j/k_j)²,

so that a cell is off by √(Σ E_B²) over the cells of its table. The mean goes over the queries of the workload, or
over some of them that everybody can draw again. What the prediction is worth: docs/cli.md, "Choose ε".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.fitting.allocation import DEPENDENCE, predicted_curves
from dualquery.fitting.measured import HALF_NORMAL
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.shares import MOST_VARIANCE
from dualquery.queries.group import NONE, ProductRows
from dualquery.table.domain import Categorical, Column, Domain, Numeric
from dualquery.types import Cells, Reals, Set

MOST_QUERIES = 5_000  # that are looked at
MOST_ORDER = 4  # of interactions that are looked at
NAMES, LONGER = 1.75, 0.5  # shares of k values fall as rank^−(1.75 + .5 ln(k/4)): of many names most are rare
NUMBERS = 1.2  # where numbers have bins of different widths, as drafts give them, or one for each of a few
EVEN = (
    1.5  # times the narrowest: bins that differ by less are of equal width, and long tails leave most empty
)
BINS = 2.0  # times as much as others: two columns that are numbers in bins
LARGER = 0.02  # θ of sets of three and more, beyond what their pairs imply
LAW = ((0.4158, 0.7111), (2.2943, 0.2785), (6.2899, 0.0104))  # points and weights of the exponential law
MOST_DEPENDENCE = 2.0  # no table lies farther from independence, in L1
UNSURE = 1.11  # so that few real tables are wrong by more (benchmarks/planning.py, on which all of these were chosen)


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
    """E_B of the attributes in each row, which is padded with −1; 0 where all of it is padding, or constant."""
    sizes = task.domain.sizes.tolist()
    sets, place = np.unique(np.sort(attributes, axis=1), axis=0, return_inverse=True)
    members = [tuple([j for j in row if j != NONE]) for row in sets.tolist()]
    known = [number for number, s in enumerate(members) if s and all(sizes[j] > 1 for j in s)]
    found = np.zeros(len(members))
    if known:
        found[known] = _errors_of_sets(task, variances, [members[number] for number in known])
    errors: Reals = found[np.ravel(place)]
    return errors


def _errors_of_sets(task: Task, variances: Mapping[Set, float], sets: Sequence[Set]) -> Reals:
    """Centring takes a part of what a table beyond its pairs holds: √Π (k_j − 1)/k_j is left."""
    sizes = task.domain.sizes.tolist()
    kept = np.array([math.prod([1 - 1 / sizes[j] for j in s]) for s in sets])
    units = np.minimum(kept * [variances.get(s, math.inf) for s in sets], MOST_VARIANCE)
    ones, thetas = likely_ones(task.domain), _dependence(task.domain, sets)
    measured, none = np.zeros(len(sets)), np.zeros(len(sets))
    for times, weight in LAW:
        some = np.where([len(s) == 2 for s in sets], np.minimum(times * thetas, MOST_DEPENDENCE), thetas)
        curves = predicted_curves(sets, ones, task.rows, units, some)
        measured += weight * curves.at(np.ones(len(sets)))
        none += weight * curves.errors[:, 0]
    triples = [place for place, s in enumerate(sets) if len(s) == 3]
    if triples:
        pairs = sorted({pair for place in triples for pair in combinations(sets[place], 2)})
        depend = _dependence(task.domain, pairs)
        wrong = np.minimum(_errors_of_sets(task, variances, pairs) / HALF_NORMAL, depend)
        held = dict(zip(pairs, zip(depend**2, wrong**2, strict=True), strict=True))
        for place in triples:
            both = combinations([held[pair] for pair in combinations(sets[place], 2)], 2)
            implied = sum(s * t - (s - d) * (t - e) for (s, d), (t, e) in both)
            none[place] = math.hypot(none[place], HALF_NORMAL * math.sqrt(implied))
    larger = np.array([len(s) > 2 for s in sets])
    unmeasured = np.where(larger, np.sqrt(kept), 1.0) * none
    errors: Reals = np.minimum(np.where(larger & (units == MOST_VARIANCE), math.inf, measured), unmeasured)
    return errors


def _dependence(domain: Domain, sets: Sequence[Set]) -> Reals:
    """θ of each set; nothing is known of a one-way table beforehand."""
    numbers = {domain.starts[n] for n, column in enumerate(domain.columns) if isinstance(column, Numeric)}
    tell, theta = (1 - 1 / domain.sizes).tolist(), {1: 1.0, 2: DEPENDENCE}
    found = np.array([theta.get(len(s), LARGER) for s in sets])
    for place, s in enumerate(sets):
        if len(s) == 2:
            found[place] *= math.sqrt(tell[s[0]] * tell[s[1]]) * (BINS if numbers.issuperset(s) else 1.0)
    return found
