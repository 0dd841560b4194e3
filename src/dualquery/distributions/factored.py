"""A distribution as a product of parts: each a small histogram over attributes of its own.

As long as no measured query crosses two parts, the distribution that multiplicative weights makes is their
product (Hardt, Ligett, McSherry 2012, section 4). Parts are merged only when a query forces it, and a query
that would make a part larger than `part_cells` is not measured at all. The explicit form is the special
case of one part.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import threads
from dualquery.distributions.histogram import Histogram, Table
from dualquery.distributions.kernels import evaluate_products, evaluate_products_threaded, fitting_products
from dualquery.distributions.products import Products
from dualquery.queries.group import NONE
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain

SERIAL_QUERIES = 20_000  # fewer than this are not worth a second thread


class Factored:
    """The uniform distribution over a domain, until told otherwise."""

    def __init__(self, domain: Domain, *, part_cells: int) -> None:
        self.domain = domain
        self.part_cells = part_cells
        self.owner = np.arange(domain.width)  # the part of each attribute
        self.changes = np.zeros(domain.width, np.int64)  # how often each part was changed
        self._parts: dict[int, Histogram] = {}  # attributes without one are uniform and alone
        self._lent: set[int] = set()  # parts that a snapshot holds too: replaced, not changed

    @staticmethod
    def explicit(domain: Domain) -> Factored:
        """One part that holds every attribute."""
        sizes = tuple(domain.sizes.tolist())
        whole = Factored(domain, part_cells=prod(sizes))
        whole.owner[:] = 0
        whole._parts[0] = Histogram(tuple(range(domain.width)), sizes)
        return whole

    @staticmethod
    def of_weights(domain: Domain, weights: Table, changes: int) -> Factored:
        """One part with these weights, one axis an attribute, that was changed so many times."""
        whole = Factored(domain, part_cells=weights.size)
        whole.owner[:] = 0
        whole._parts[0] = Histogram.of(tuple(range(domain.width)), weights)
        whole.changes[0] = changes
        return whole

    def snapshot(self) -> Factored:
        """The distribution as it stands. Parts are shared until one of the two changes them."""
        copy = Factored(self.domain, part_cells=self.part_cells)
        copy.owner, copy.changes = self.owner.copy(), self.changes.copy()
        copy._parts = dict(self._parts)
        self._lent, copy._lent = set(self._parts), set(self._parts)
        return copy

    def part(self, number: int) -> Histogram:
        """A part by its number."""
        if number not in self._parts:
            self._parts[number] = Histogram((number,), (int(self.domain.sizes[number]),))
        return self._parts[number]

    def cells_with(self, members: tuple[int, ...]) -> int:
        """How many cells a part would have that holds these attributes."""
        numbers = {int(self.owner[j]) for j in members}
        return prod(self._parts[p].cells if p in self._parts else int(self.domain.sizes[p]) for p in numbers)

    def fitting(self, products: Products) -> NDArray[np.int64]:
        """The queries that could be measured without a part larger than the limit."""
        if prod(self.domain.sizes.tolist()) <= self.part_cells:
            return np.arange(products.size)
        bits = np.log2(self.domain.sizes)
        for number, part in self._parts.items():
            bits[number] = np.log2(part.cells)
        limit = np.log2(self.part_cells) + 1e-9
        return np.flatnonzero(fitting_products(products.factors, products.attribute, self.owner, bits, limit))

    def part_with(self, members: tuple[int, ...]) -> Histogram:
        """The part that holds all of these attributes, merged from several where it must be."""
        numbers = sorted({int(self.owner[j]) for j in members})
        merged = self.part(numbers[0]) if numbers else self.part(0)
        for number in numbers[1:]:
            merged = _product(merged, self.part(number))
        if len(numbers) > 1:
            for number in numbers:
                del self._parts[number]
                self._lent.discard(number)
            self.owner[list(merged.attributes)] = numbers[0]
            self._parts[numbers[0]] = merged
            self.changes[numbers[0]] += 1
        return merged

    def marginal(self, members: tuple[int, ...]) -> Table:
        """The probabilities of the table over some attributes (increasing), one axis an attribute."""
        return self._joined(members, Histogram.marginal)

    def glimpse(self, members: tuple[int, ...]) -> Table:
        """`marginal` to within 10⁻¹⁵, and often sooner."""
        return self._joined(members, Histogram.glimpse)

    def _joined(self, members: tuple[int, ...], look: Callable[[Histogram, tuple[int, ...]], Table]) -> Table:
        """The product of what the parts say about their share of some attributes."""
        table = np.ones(())
        axes: list[int] = []
        for number in sorted({int(self.owner[j]) for j in members}):
            mine = tuple(j for j in members if self.owner[j] == number)
            table = np.multiply.outer(table, look(self.part(number), mine))
            axes += mine
        return np.transpose(table, np.argsort(axes))

    def multiply(self, members: tuple[int, ...], factors: Table, *, mass: float) -> None:
        """Multiply by a function of some attributes (increasing), whose expectation is `mass`."""
        part = self.part_with(members)
        number = int(self.owner[part.attributes[0]])
        if number in self._lent:
            self._parts[number] = part.multiplied(members, factors, mass=mass)
            self._lent.discard(number)
        else:
            part.multiply(members, factors, mass=mass)
        self.changes[number] += 1

    def answers(self, workload: Workload) -> NDArray[np.float64]:
        """The fraction that each query has."""
        return RunningAnswers(Products.of(workload)).answers(self)

    def sample(self, count: int, rng: np.random.Generator) -> NDArray[np.int32]:
        """`count` records, a row each: every part sampled systematically, and the parts shuffled together."""
        rows = np.empty((count, self.domain.width), np.int32)
        for number in np.unique(self.owner).tolist():
            part = self.part(number)
            digits = np.unravel_index(rng.permutation(part.sample(count, rng)), part.sizes)
            rows[:, list(part.attributes)] = np.column_stack(digits)
        return rows


class RunningAnswers:
    """The answers of one distribution after another to the same queries, kept up to date part by part.

    The answer to a product is the product over parts of what the part answers to its share of the factors
    (`fragments`), so that only the queries which touch a changed part are worked out again. The distributions must
    be snapshots of one that changes, oldest first.
    """

    def __init__(self, products: Products) -> None:
        self._products = products
        self._seen = np.zeros(products.domain.width, np.int64)
        means = np.array([products.values_of(f).mean() for f in range(len(products.attribute))])
        self._fragments = np.where(
            products.factors == NONE, 1.0, np.append(means, 1.0)[products.factors]
        )  # padding -1 meets the one at the end
        self._values = self._fragments.prod(axis=1)

    @property
    def products(self) -> Products:
        return self._products

    def answers(self, distribution: Factored) -> NDArray[np.float64]:
        """The fraction that each query has under the distribution."""
        changes = distribution.changes
        for number in np.flatnonzero(changes != self._seen).tolist():
            if distribution.owner[number] == number:  # else it was merged into another
                self._refresh(distribution.part(number))
        self._seen = changes.copy()
        return self._products.offset + self._products.slope * self._values

    def _refresh(self, part: Histogram) -> None:
        products = self._products
        survival = part.survival(products.order)
        place = np.zeros(products.domain.width, np.int64)
        place[list(part.attributes)] = part.strides
        arguments = (
            products.factors,
            products.attribute,
            products.start,
            products.digit,
            products.jump,
            place,
            survival.row_length,
            survival.column,
            survival.table,
            self._fragments,
            self._values,
        )
        if products.size < SERIAL_QUERIES:
            evaluate_products(*arguments, 0, products.size)
        else:
            evaluate_products_threaded(*arguments, threads())


def _product(first: Histogram, second: Histogram) -> Histogram:
    """The product of two independent distributions, its attributes in order."""
    attributes = first.attributes + second.attributes
    order = np.argsort(attributes)
    weights = np.multiply.outer(first.probabilities(), second.probabilities())
    return Histogram.of(tuple(sorted(attributes)), np.transpose(weights, order))
