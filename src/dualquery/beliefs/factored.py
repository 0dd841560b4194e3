"""A distribution as a product of parts: each a small histogram over attributes of its own.

As long as no measured query crosses two parts, the distribution that multiplicative weights makes is their
product (Hardt, Ligett, McSherry 2012, section 4). Parts are merged only when a query forces it, and a query
that would make a part larger than `part_cells` is not measured at all. The explicit form is the special
case of one part.

*Queries* are products of one-attribute functions, each stored by its jumps.

A function of one ordered attribute is a sum of steps, f(x) = Σ_v (f(v) − f(v − 1)) · [x ≥ v] with
f(−1) = 0, so that the expectation of a product is a short sum of survival probabilities (Abel summation):

    E Π_k f_k(x_k) = Σ_v Π_k (f_k(v_k) − f_k(v_k − 1)) · P[x_1 ≥ v_1, x_2 ≥ v_2, …].

A range has two jumps however long it is, an equality two, a sign (−1)^x two. One table of survival
probabilities therefore answers ranges, cells, sets, negations and parities alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.histogram import Histogram, uniform
from dualquery.loops import in_shares, njit
from dualquery.queries.group import NONE, Predicates
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain
from dualquery.types import Cells, Integers, Ints, Reals


@dataclass(frozen=True)
class Products:
    """q(x) = offset[q] + slope[q] · Π_k f(x), over the functions numbered in factors[q] (padded with -1).

    Function f is about attribute[f] and jumps by jump[i] at digit[i], start[f] ≤ i < start[f + 1].
    """

    domain: Domain
    factors: Ints
    offset: Reals
    slope: Reals
    attribute: Ints
    start: Integers
    digit: Integers
    jump: Reals

    @staticmethod
    def of(workload: Workload) -> Products:
        """Every query of a workload, in its order; cells of tables are written out."""
        rows = workload.product_rows(np.arange(workload.size, dtype=np.int64))
        signs = np.unique(rows.parities[rows.parities != NONE])
        literals = 2 * len(rows.predicates)
        width = max(rows.literals.shape[1], rows.parities.shape[1], 1)
        factors = np.full((workload.size, width), NONE, np.int32)
        factors[rows.positions[:, None], np.arange(rows.literals.shape[1])] = rows.literals
        numbered = np.where(rows.parities == NONE, NONE, literals + np.searchsorted(signs, rows.parities))
        factors[rows.parity_positions[:, None], np.arange(rows.parities.shape[1])] = numbered

        offset, slope = np.zeros(workload.size), np.ones(workload.size)
        offset[rows.positions[rows.complement]] = 1.0
        slope[rows.positions[rows.complement]] = -1.0
        offset[rows.parity_positions] = slope[rows.parity_positions] = 0.5

        jumps = [_jumps(values) for values in _literal_values(rows.predicates, workload.domain.sizes)]
        jumps += [_jumps(np.array([1.0, -1.0]))] * len(signs)
        return Products(
            workload.domain,
            factors,
            offset,
            slope,
            np.concatenate([np.repeat(rows.predicates.attribute, 2), signs]).astype(np.int32),
            np.concatenate([[0], np.cumsum([len(digits) for digits, _ in jumps])]).astype(np.int64),
            np.concatenate([np.empty(0), *(digits for digits, _ in jumps)]).astype(np.int64),
            np.concatenate([np.empty(0), *(sizes for _, sizes in jumps)]),
        )

    @property
    def size(self) -> int:
        return len(self.factors)

    @property
    def order(self) -> int:
        """The largest number of attributes in one query."""
        return self.factors.shape[1]

    def attributes_of(self, query: int) -> tuple[int, ...]:
        row = self.factors[query]
        return tuple(sorted(self.attribute[row[row != NONE]].tolist()))

    def table_of(self, query: int) -> Reals:
        """The query's value on every cell of the table over its attributes, one axis an attribute."""
        row = self.factors[query]
        functions = sorted(row[row != NONE].tolist(), key=lambda f: int(self.attribute[f]))
        product = np.ones(())
        for f in functions:
            product = np.multiply.outer(product, self.values_of(f))
        return np.asarray(self.offset[query] + self.slope[query] * product)

    def values_of(self, function: int) -> Reals:
        mine = slice(self.start[function], self.start[function + 1])
        steps = np.zeros(int(self.domain.sizes[self.attribute[function]]))
        steps[self.digit[mine]] = self.jump[mine]
        return np.cumsum(steps)


def _jumps(values: Reals) -> tuple[NDArray[np.intp], Reals]:
    """Where a function jumps, and by how much. One that is zero everywhere keeps a jump of nothing."""
    steps = np.diff(values, prepend=0.0)
    digits = np.flatnonzero(steps)
    if len(digits) == 0:
        digits = np.zeros(1, np.intp)
    return digits, steps[digits]


def _literal_values(predicates: Predicates, sizes: Ints) -> Iterator[Reals]:
    """Of each predicate the indicator over its attribute's values, then that of its negation."""
    for predicate in range(len(predicates)):
        values = np.zeros(int(sizes[predicates.attribute[predicate]]))
        values[predicates.accepted(predicate)] = 1.0
        yield values
        yield 1.0 - values


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
        whole._parts[0] = uniform(tuple(range(domain.width)), sizes)
        return whole

    @staticmethod
    def of_weights(domain: Domain, weights: Cells, changes: int) -> Factored:
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
        if number not in self._parts:
            self._parts[number] = Histogram((number,), (int(self.domain.sizes[number]),))
        return self._parts[number]

    def fitting(self, products: Products) -> Integers:
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

    def marginal(self, members: tuple[int, ...]) -> Cells:
        """The probabilities of the table over some attributes (increasing), one axis an attribute."""
        return self._joined(members, Histogram.marginal)

    def glimpse(self, members: tuple[int, ...]) -> Cells:
        """`marginal` to within 10⁻¹⁵, and often sooner."""
        return self._joined(members, Histogram.glimpse)

    def _joined(self, members: tuple[int, ...], look: Callable[[Histogram, tuple[int, ...]], Cells]) -> Cells:
        """The product of what the parts say about their share of some attributes."""
        table = np.ones(())
        axes: list[int] = []
        for number in sorted({int(self.owner[j]) for j in members}):
            mine = tuple(j for j in members if self.owner[j] == number)
            table = np.multiply.outer(table, look(self.part(number), mine))
            axes += mine
        return np.transpose(table, np.argsort(axes))

    def multiply(self, members: tuple[int, ...], factors: Cells, *, mass: float) -> None:
        """Multiply by a function of some attributes (increasing), whose expectation is `mass`."""
        part = self.part_with(members)
        number = int(self.owner[part.attributes[0]])
        if number in self._lent:
            self._parts[number] = part.multiplied(members, factors, mass=mass)
            self._lent.discard(number)
        else:
            part.multiply(members, factors, mass=mass)
        self.changes[number] += 1

    def answers(self, workload: Workload) -> Reals:
        return RunningAnswers(Products.of(workload)).answers(self)

    def sample(self, count: int, rng: np.random.Generator) -> Ints:
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
        # Padding -1 meets the one at the end.
        self._fragments = np.where(products.factors == NONE, 1.0, np.append(means, 1.0)[products.factors])
        self._values = self._fragments.prod(axis=1)

    @property
    def products(self) -> Products:
        return self._products

    def answers(self, distribution: Factored) -> Reals:
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
        in_shares(evaluate_products, products.size, *arguments, least=SERIAL_QUERIES)


def _product(first: Histogram, second: Histogram) -> Histogram:
    """The product of two independent distributions, its attributes in order."""
    attributes = first.attributes + second.attributes
    order = np.argsort(attributes)
    weights = np.multiply.outer(first.probabilities(), second.probabilities())
    return Histogram.of(tuple(sorted(attributes)), np.transpose(weights, order))


@njit(cache=True)
def evaluate_products(  # type: ignore[no-untyped-def]
    first, last, factors, attribute, start, digit, jump, place, row_length, column, table, fragments, answers
):
    """The part of each product that lies in one distribution, and with it the product.

    Factor f is Σ_i jump[i] · [x ≥ digit[i]] (i from start[f]); place[j] is the stride of attribute j in the
    distribution, or 0 where it belongs elsewhere. A product's factors in the distribution are expanded
    over their jumps, each term being one entry of the survival table. fragments[q, k] holds that sum at the
    product's first factor here and 1 at the others; answers[q] is the product of the row.
    """
    width = factors.shape[1]
    mine = np.empty(width, np.int64)
    term = np.empty(width, np.int64)
    for q in range(first, last):
        count = 0
        for k in range(width):
            f = factors[q, k]
            if f >= 0 and place[attribute[f]] > 0:
                mine[count] = k
                term[count] = start[f]
                fragments[q, k] = 1.0
                count += 1
        if count == 0:
            continue
        value = 0.0
        running = True
        while running:
            at = np.int64(0)
            weight = 1.0
            for m in range(count):
                i = term[m]
                at += digit[i] * place[attribute[factors[q, mine[m]]]]
                weight *= jump[i]
            value += weight * table[at // row_length, column[at % row_length]]
            running = False
            for m in range(count):
                f = factors[q, mine[m]]
                term[m] += 1
                if term[m] < start[f + 1]:
                    running = True
                    break
                term[m] = start[f]
        fragments[q, mine[0]] = value
        product = 1.0
        for k in range(width):
            product *= fragments[q, k]
        answers[q] = product


@njit(cache=True)
def fitting_products(factors, attribute, owner, part_bits, limit_bits):  # type: ignore[no-untyped-def]
    """Which products fit one part: the log₂ cells of the parts that they touch add up to at most the limit."""
    queries, width = factors.shape
    fits = np.empty(queries, np.bool_)
    for q in range(queries):
        bits = 0.0
        for k in range(width):
            f = factors[q, k]
            if f < 0:
                continue
            part = owner[attribute[f]]
            counted = False
            for i in range(k):
                g = factors[q, i]
                counted |= g >= 0 and owner[attribute[g]] == part
            if not counted:
                bits += part_bits[part]
        fits[q] = bits <= limit_bits
    return fits
