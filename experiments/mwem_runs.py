"""What the experiments and the benchmark of MWEM share: runs that end in a distribution, and its errors.

Neighbours add or remove a record, as in the paper, and the number of records is declared.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from numpy.typing import NDArray

from dualquery.beliefs.factored import Factored, Products, RunningAnswers
from dualquery.counting import MemoryCounter
from dualquery.mechanisms.baselines import HADAMARD, hadamard
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.mwem import MWEM, belief_of, starting
from dualquery.mechanisms.projection import PROJECTION
from dualquery.mechanisms.rounds import replies
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.random_families import ranges
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import silent
from experiments.data import Data
from experiments.harness import Rows, distinct
from experiments.runs import budget_of
from experiments.svd_bound import svd_bound

Array = NDArray[np.float64]
Columns = tuple[tuple[str, int, int], ...]  # name, lowest and highest value

# Every integer between the limits is a value, and the limits are taken as public. A donation is 250 cc, but the
# domain of monetary_cc does not know that.
RANGES: dict[str, tuple[str, Columns]] = {
    "capital-loss": ("adult.csv.gz", (("capital-loss", 0, 4356),)),
    "age × hours": ("adult.csv.gz", (("age", 17, 90), ("hours-per-week", 1, 99))),
    "recency × frequency": (
        "blood_transfusion.csv.gz",
        (("recency_months", 0, 74), ("frequency_times", 1, 50)),
    ),
    "monetary": ("blood_transfusion.csv.gz", (("monetary_cc", 0, 12_500),)),
}


# Runs


def paid(epsilon: float, delta: float = 0.0) -> Budget:
    """Pure ε as in the paper; by ρ where a δ is allowed."""
    accounting = Accounting.ZCDP if delta else Accounting.PURE
    return budget_of(epsilon, delta, accounting, Neighbours.ADD_REMOVE)


def curator_of(records: Records, budget: Budget, seed: int) -> Curator:
    return Curator(MemoryCounter(records), Ledger(budget), SeededEntropy(seed))


def learned(
    records: Records,
    workload: Workload,
    epsilon: float,
    seed: int,
    delta: float = 0.0,
    hears: Callable[[Factored], None] = lambda distribution: None,
    **options: Any,
) -> Factored:
    """The distribution that MWEM ends with; `hears` is told of it after every round."""
    task = Task(workload, records.rows, paid(epsilon, delta))
    plan = MWEM.plan_for(task, options)
    curator = curator_of(records, task.budget, seed)
    chosen, start = plan.parameters, starting(plan, curator)
    for reply in replies(chosen, belief_of(chosen, start, task.rows), curator, silent):
        hears(reply)
    return reply


def figure_1(records: Records, workload: Workload, epsilon: float, seed: int, **options: Any) -> Array:
    """The joint table that Figure 1 of the paper releases: the average of A₀ … A_{T−1}."""
    heard = [joint(uniform(records.domain))]
    learned(
        records,
        workload,
        epsilon,
        seed,
        hears=lambda distribution: heard.append(joint(distribution)),
        updates="figure-1",
        **options,
    )
    return np.asarray(np.mean(heard[:-1], axis=0))


def hadamard_joint(records: Records, workload: Workload, epsilon: float, seed: int) -> Array:
    """The joint table that multiplicative weights make of all parities (Barak et al., as the paper modified it)."""
    task = Task(workload, records.rows, paid(epsilon))
    return joint(hadamard(HADAMARD.plan_for(task, {}), curator_of(records, task.budget, seed), silent)[0])


def projected_joint(
    records: Records, workload: Workload, epsilon: float, seed: int, rows: int = 20_000
) -> Array:
    """The joint table of the rows of projection, half a row more in every cell: rows alone leave cells empty."""
    plan = PROJECTION.plan_for(Task(workload, records.rows, paid(epsilon)), {"synthetic_rows": rows})
    fitted = plan.parameters.measure(
        curator_of(records, paid(epsilon), seed), plan.task, np.random.default_rng(seed)
    )
    rng = np.random.default_rng(seed + 1)
    released = fitted.records(fitted.fit(plan.parameters.effort, rng, lambda done, total: None), rng)
    counts = cell_counts(released) + 0.5
    return counts / counts.sum()


def uniform(domain: Domain) -> Factored:
    return Factored(domain, part_cells=1)


def joint(distribution: Factored) -> Array:
    """The probability of every cell of the universe, one axis an attribute."""
    return distribution.marginal(tuple(range(distribution.domain.width)))


# Ranges


@dataclass(frozen=True)
class RangeCase:
    """Records, random ranges and their true fractions."""

    records: Records
    workload: Workload
    products: Products  # the ranges again, as a distribution answers them
    truth: Array
    bound: float  # the SVD bound at ε = 1 and δ = 1/n, in squared records; it falls as 1/ε²

    def squared_error(self, distribution: Factored) -> float:
        """Mean squared error of a range, in squared records."""
        answers = RunningAnswers(self.products).answers(distribution)
        return float(np.mean((self.records.rows * (answers - self.truth)) ** 2))

    @cached_property
    def uniform_guess(self) -> float:
        return self.squared_error(uniform(self.records.domain))


@lru_cache(maxsize=len(RANGES))
def range_case(data: Data, name: str, queries: int) -> RangeCase:
    file, columns = RANGES[name]
    records = data.numbers(file, columns)
    workload = ranges(records.domain, [column for column, _, _ in columns], queries, seed=7)
    bound = svd_bound(workload, epsilon=1, delta=1 / records.rows)
    return RangeCase(records, workload, Products.of(workload), workload.fractions(records), bound)


# Tables


def cell_counts(records: Records) -> Array:
    """How many records lie in every cell of the universe, one axis an attribute."""
    counts = np.zeros(records.domain.sizes)
    np.add.at(counts, tuple(records.to_rows().T.astype(int)), 1.0)
    return counts


# Relative entropy


def relative_entropy(records: Records, probabilities: Array) -> float:
    """RE(records, probabilities) in nats.

    Multiplicative weights never reach zero, but floating-point numbers do. A zero counts as the smallest of
    these, so that what is told is at most the true value.
    """
    truth = cell_counts(records) / records.rows
    seen = truth > 0
    known = np.maximum(probabilities[seen], np.finfo(np.float64).tiny)
    return float((truth[seen] * (np.log(truth[seen]) - np.log(known))).sum())


def fitted_exactly(records: Records, degree: int, sweeps: int = 2000) -> Array:
    """The joint table of largest entropy with all true tables of a degree: fitted in proportion until it stands.

    It is the log-linear model that has every interaction of so many attributes, fitted without privacy: the best
    that a mechanism which knows these tables alone can come to in relative entropy.
    """
    truth = cell_counts(records) / records.rows
    fit = np.full(truth.shape, 1 / truth.size)
    axes = range(truth.ndim)
    for _ in range(sweeps):
        before = fit
        for kept in combinations(axes, degree):
            others = tuple(axis for axis in axes if axis not in kept)
            wanted, have = truth.sum(axis=others, keepdims=True), fit.sum(axis=others, keepdims=True)
            fit = fit * np.divide(wanted, have, out=np.zeros_like(wanted), where=have > 0)
        if np.abs(fit - before).max() < 1e-12:
            break
    return fit


# Cuboids


def cuboids(domain: Domain) -> Workload:
    """Every table over some of the attributes, but the one over none."""
    everything = range(domain.width)
    sets = tuple(members for k in everything for members in combinations(everything, k + 1))
    return Workload(domain, (Tables(domain, sets),), "all cuboids")


def cuboid_means(table: Array, of_cells: Callable[[Array], Array]) -> Array:
    """For each cuboid of a table, the one over no attributes included, the mean of a function of its cells."""
    means: list[float] = []

    def descend(cuboid: Array, axis: int) -> None:
        means.append(float(of_cells(cuboid).mean()))
        for dropped in range(axis, cuboid.ndim):
            descend(cuboid.sum(axis=dropped), dropped)

    descend(table, 0)
    return np.array(means)


def cuboid_errors(difference: Array) -> Array:
    """The mean absolute error of a cell of each cuboid; cuboids of a difference are differences."""
    return cuboid_means(difference, np.abs)


def clipped_laplace(truth: Array, scale: float) -> Array:
    """The same where every cell of every cuboid gets Laplace noise, clipped at zero: its expectation.

    E|max(0, c + X) − c| = b (1 − e^(−c/b) / 2).
    """
    return cuboid_means(truth, lambda counts: scale * (1 - np.exp(-counts / scale) / 2))


# Words and pictures


def averaged(rows: Rows) -> str:
    """How many runs stand behind a number."""
    runs = len(distinct(rows, "run"))
    return f"Means of {runs} runs" if runs > 1 else "One run"


def plain_log_ticks(panel: Axes) -> None:
    """1, 2, 5, 10, 20 … up a logarithmic axis, in plain digits: powers of ten alone are too few for small ranges."""
    panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    panel.yaxis.set_minor_locator(NullLocator())
    panel.yaxis.set_major_formatter("{x:,g}")
