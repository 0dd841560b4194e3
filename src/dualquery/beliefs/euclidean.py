"""Learners in the Euclidean norm, where the universe cannot be held.

*Implicit*: mirror descent through a Gram matrix. Mirror descent with the map ½‖·‖² moves a density along the queries
that were measured, so that it stays a base plus a combination of them. Measured in the norm of L²(P), P a product of
one-way distributions, the density is

    w(x) = P(x) · (1 + Σ_t c_t (q_t(x) − E_P q_t)),        q(w) = E_P q + Σ_t c_t Cov_P(q_t, q),

and only the covariances of measured queries with those that are asked are ever needed (`Covariances`): a column of
numbers a round. Full steps over all measurements, as often as one likes, end in the ridge regression

    c = (s² G + v·Id)⁻¹ s² (z − E_P q),         G_tt′ = Cov_P(q_t, q_t′),

z the measured answers and v the variance of their noise; how far the truth lies from the base, s², is the value
that makes the measurements likeliest (they are N(E_P q, s² G + v·Id) under a Gaussian prior), with a lean to one. The
same prior says how far off an answer may be. A density of this kind may be negative somewhere: it answers
queries, and rows are fitted to its answers where rows are wanted.

*Mixture*: the point of the convex hull of records nearest to given answers, by Frank-Wolfe. Every record x answers a
workload by a vector a_x of zeros and ones, and every table by a point of their hull K. The nearest point of K to ỹ
minimises f(y) = ½‖y − ỹ‖². Frank and Wolfe (1956) ask, round after round, for the record that the residual ỹ − y
likes best,

    x = argmax_x ⟨ỹ − y, a_x⟩,

which is what an oracle answers, and move towards it. Here all weights are found anew after each, the least squares
over the records so far, by exchanging weight between two at a time, from the one that f would most like to have less
of to the one that it would most like to have more of. How far from the nearest point y* the mixture may be is the gap

    ‖y − y*‖² ≤ ⟨ỹ − y, a_x − y⟩,      x the best record of all.

Nothing here sees private data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.factored import Products
from dualquery.errors import DualQueryError
from dualquery.game import Heard, Record
from dualquery.loops import njit
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload
from dualquery.types import Fractions, Integers, Ints, Reals


@dataclass(frozen=True)
class ProductBase:
    """The probabilities of each attribute's values; an attribute that is not named is uniform."""

    ones: Mapping[int, Reals]

    def of(self, attribute: int, size: int) -> Reals:
        return self.ones[attribute] if attribute in self.ones else np.full(size, 1 / size)


@dataclass(frozen=True, eq=False)
class Covariances:
    """Some queries under a product base, and how they vary together.

    Of queries q = offset + slope · Π f_k, products of functions of one attribute each (`Products`), the covariance
    under a product distribution P is in closed form: with Π_j over the attributes of either query,

        Cov_P(q, q′) = slope · slope′ · ( Π_j E[f_j f′_j] − Π_j E[f_j] · Π_j E[f′_j] ),

    a missing function being 1. Nothing is ever summed over the universe, however large it is.
    """

    base: ProductBase
    products: Products

    @cached_property
    def _values(self) -> list[Reals]:
        return [self.products.values_of(f) for f in range(len(self.products.attribute))]

    @cached_property
    def _weights(self) -> dict[int, Reals]:
        sizes = self.products.domain.sizes
        return {j: self.base.of(j, int(sizes[j])) for j in np.unique(self.products.attribute).tolist()}

    @cached_property
    def _functions_of(self) -> dict[int, NDArray[np.intp]]:
        return {j: np.flatnonzero(self.products.attribute == j) for j in self._weights}

    @cached_property
    def _means(self) -> Reals:
        """E f of every function, and at the end a one, for the padding."""
        attribute = self.products.attribute.tolist()
        means = [float(self._weights[j] @ values) for j, values in zip(attribute, self._values, strict=True)]
        return np.array([*means, 1.0])

    @cached_property
    def product_means(self) -> Reals:
        """E Π f of every query."""
        means: Reals = self._means[self.products.factors].prod(axis=1)
        return means

    @cached_property
    def means(self) -> Reals:
        """E q of every query: what the base answers."""
        return self.products.offset + self.products.slope * self.product_means

    @cached_property
    def variances(self) -> Reals:
        attribute = self.products.attribute.tolist()
        squares = [float(self._weights[j] @ v**2) for j, v in zip(attribute, self._values, strict=True)]
        second = np.array([*squares, 1.0])[self.products.factors].prod(axis=1)
        spread: Reals = self.products.slope**2 * np.maximum(second - self.product_means**2, 0.0)
        return spread

    def with_query(self, query: int) -> Reals:
        products = self.products
        mine = products.factors[query]
        mine = mine[mine != NONE]
        slot = np.full(products.domain.width, NONE, np.int64)
        crossed = np.zeros(len(products.attribute))
        for place, f in enumerate(mine.tolist()):
            j = int(products.attribute[f])
            slot[j] = place
            weighted = self._weights[j] * self._values[f]
            for g in self._functions_of[j].tolist():
                crossed[g] = float(weighted @ self._values[g])
        second = np.empty(products.size)
        _second_moments(
            products.factors, products.attribute, slot, self._means, crossed, self._means[mine], second
        )
        both = second - self.product_means[query] * self.product_means
        return float(products.slope[query]) * products.slope * both


@njit(cache=True)
def _second_moments(factors, attribute, slot, means, crossed, own, second):  # type: ignore[no-untyped-def]
    """E[Π f · Π f′] of one query, whose functions have the means `own`, with every query."""
    alone = np.empty(own.shape[0], np.bool_)
    for q in range(factors.shape[0]):
        alone[:] = True
        value = 1.0
        for k in range(factors.shape[1]):
            g = factors[q, k]
            if g >= 0:
                place = slot[attribute[g]]
                if place >= 0:
                    value *= crossed[g]
                    alone[place] = False
                else:
                    value *= means[g]
        for place in range(own.shape[0]):
            if alone[place]:
                value *= own[place]
        second[q] = value


SPREADS = np.geomspace(1e-3, 10.0, 41)  # s², in units of how far a product distribution lets a query vary
LEAN = 0.1  # how much a spread of ten times more or less than one must gain, in log-likelihood


class ImplicitEuclidean:
    """A density over a product base that hears queries of one workload, by their numbers."""

    def __init__(self, workload: Workload, base: ProductBase, *, variance: float) -> None:
        self._workload = workload
        self._base = base
        self._covariances = Covariances(base, Products.of(workload))
        self._variance = variance  # of the noise of one measurement, in fractions squared
        self._queries: list[int] = []
        self._values: list[float] = []
        self._columns: list[Reals] = []  # Cov(q_t, ·) of each query that was measured

    def hear(self, challenge: Heard[int]) -> None:
        query = challenge.what
        known = query in self._queries
        column = self._columns[self._queries.index(query)] if known else self._covariances.with_query(query)
        self._queries.append(query)
        self._values.append(challenge.value)
        self._columns.append(column)

    def snapshot(self) -> SignedDensity:
        return SignedDensity(
            self._workload,
            self._base,
            self._covariances,
            np.array(self._queries, np.int64),
            np.array(self._values),
            tuple(self._columns),
            self._variance,
        )


@dataclass(frozen=True, eq=False)
class SignedDensity:
    """A base and what was measured: an answer to every query, and how far off it may be."""

    workload: Workload
    base: ProductBase
    covariances: Covariances
    queries: Integers
    values: Reals
    columns: tuple[Reals, ...]
    variance: float

    def variances(self) -> Reals:
        """How far off the answers to its own workload may be, squared, by the prior and the noise."""
        spread = self._spread()
        prior = spread * self.covariances.variances
        if not self.columns:
            return prior
        columns = np.stack(self.columns)
        explained = np.linalg.solve(self._noisy_gram(spread), spread * columns)
        left: Reals = np.maximum(prior - spread * (columns * explained).sum(axis=0), 0.0)
        return left

    def answers(self, workload: Workload) -> Reals:
        """The fraction of each query of any workload over the same domain."""
        if workload is self.workload:
            own = self.covariances.means
            return own + self._weights() @ np.stack(self.columns) if self.columns else own.copy()
        groups = [*workload.groups]
        for g, group in enumerate(self.workload.groups):
            mine = np.unique(self.queries[(self.queries >= self.workload.starts[g])])
            mine = mine[mine < self.workload.starts[g + 1]]
            if len(mine):
                groups.append(group.take(mine - self.workload.starts[g]))
        joined = Covariances(self.base, Products.of(Workload(workload.domain, tuple(groups), "both")))
        answers = joined.means[: workload.size].copy()
        if self.columns:
            weights = self._weights()
            for place, query in enumerate(np.unique(self.queries).tolist()):
                covariance = joined.with_query(workload.size + place)
                answers += weights[self.queries == query].sum() * covariance[: workload.size]
        return answers

    def _gram(self) -> Reals:
        return np.stack(self.columns)[:, self.queries]

    def _gaps(self) -> Reals:
        gaps: Reals = self.values - self.covariances.means[self.queries]
        return gaps

    def _noisy_gram(self, spread: float) -> Reals:
        noisy: Reals = spread * self._gram() + self.variance * np.eye(len(self.queries))
        return noisy

    def _weights(self) -> Reals:
        spread = self._spread()
        return np.asarray(spread * np.linalg.solve(self._noisy_gram(spread), self._gaps()), np.float64)

    def _spread(self) -> float:
        """s² by the likelihood of what was measured: gaps ~ N(0, s² G + v·Id)."""
        if not self.columns:
            return 1.0
        roots, axes = np.linalg.eigh(self._gram())
        along = (axes.T @ self._gaps()) ** 2
        spread = np.outer(SPREADS, np.maximum(roots, 0.0)) + self.variance
        likelihood = -0.5 * (np.log(spread) + along / spread).sum(axis=1) - LEAN * np.log10(SPREADS) ** 2
        return float(SPREADS[int(np.argmax(likelihood))])


EXCHANGES = 20  # of weight, for each record and round, at most
PRECISION = 0.05  # of the last gap: when nothing gains more by an exchange, the next record is asked for


class RecordMixture:
    """Records with weights that sum to one, and what they answer together."""

    def __init__(self, workload: Workload, wanted: Fractions) -> None:
        self._workload = workload
        self._wanted = wanted
        self._records: list[Record] = []
        self._bits: list[NDArray[np.uint8]] = []  # what each record answers
        self._products = np.empty((0, 0))  # ⟨a_x, a_z⟩
        self._liked = np.empty(0)  # ⟨ỹ, a_x⟩
        self.weights: Reals = np.empty(0)
        self._held: Fractions = np.zeros(workload.size)
        self.gap = np.inf  # as the last record showed it

    @property
    def residual(self) -> Fractions:
        """ỹ − y: what the next record should answer."""
        return self._wanted - self._held

    def nearest(self, fallback: Record) -> Record:
        """The record, of those there are, that the residual likes best: where a search begins."""
        if not self._records:
            return fallback
        likes = self._liked - self._products @ self.weights
        return self._records[int(np.argmax(likes))]

    def add(self, record: Record) -> None:
        """Take in a record, find all weights anew; what is told as the gap is that before it."""
        answers = np.zeros(self._workload.size, np.int32)
        for group, start in zip(self._workload.groups, self._workload.starts, strict=False):
            group.add_answers(record, answers[start : start + group.size])
        bits = answers.astype(np.uint8)
        residual = self.residual
        if self._records:
            self.gap = max(0.0, float(residual @ bits - residual @ self._held))
        self._records.append(record)
        self._bits.append(bits)
        size = len(self._records)
        column = np.array([np.count_nonzero(each & bits) for each in self._bits], float)
        products = np.empty((size, size))
        products[:-1, :-1] = self._products
        products[-1] = products[:, -1] = column
        self._products = products
        self._liked = np.append(self._liked, bits @ self._wanted)
        self.weights = np.append(self.weights, 1.0 if size == 1 else 0.0)
        precision = PRECISION * min(self.gap, self._workload.size)
        settle(products, self._liked, self.weights, EXCHANGES * size, precision)
        self._keep(np.flatnonzero(self.weights))
        held = np.zeros(self._workload.size)
        for weight, each in zip(self.weights.tolist(), self._bits, strict=True):
            held += weight * each
        self._held = held

    def _keep(self, chosen: Integers) -> None:
        self._records, self._bits = [self._records[i] for i in chosen], [self._bits[i] for i in chosen]
        self._products = self._products[np.ix_(chosen, chosen)]
        self._liked, self.weights = self._liked[chosen], self.weights[chosen]

    def answers(self, workload: Workload) -> Fractions:
        if workload is not self._workload and workload.digest() != self._workload.digest():
            raise DualQueryError("a mixture answers the workload that it was made for")
        return self._held

    def rows(self, number: int) -> Ints:
        """So many rows in which every record stands as often as its weight says, to the nearest whole number."""
        ends = np.rint(number * np.cumsum(self.weights / self.weights.sum())).astype(np.int64)
        return np.repeat(np.stack(self._records), np.diff(ends, prepend=0), axis=0)


@njit(cache=True)
def settle(products: Reals, liked: Reals, weights: Reals, exchanges: int, precision: float) -> None:
    """Minimise ½ wᵀGw − bᵀw over weights that sum to one, in place, by exchanging weight between two at a time."""
    size = len(weights)
    gradient = -liked.copy()
    for i in range(size):
        if weights[i] > 0:
            for k in range(size):
                gradient[k] += weights[i] * products[i, k]
    for _ in range(exchanges):
        more, less = 0, -1
        for k in range(size):
            if gradient[k] < gradient[more]:
                more = k
            if weights[k] > 0 and (less < 0 or gradient[k] > gradient[less]):
                less = k
        gain = gradient[less] - gradient[more]
        if gain <= precision:
            return
        curved = products[more, more] + products[less, less] - 2 * products[more, less]
        step = weights[less]
        if curved > 0 and gain < step * curved:
            step = gain / curved
        weights[more] += step
        weights[less] = weights[less] - step if step < weights[less] else 0.0
        for k in range(size):
            gradient[k] += step * (products[more, k] - products[less, k])
