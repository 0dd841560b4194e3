"""Queries as products of one-attribute predicates, stored by the million.

A query asks which fraction of the records satisfies a property, and every property here is

    q(x) = Π_j f_j(x_j)          (a conjunction)      or     1 − Π_j f_j(x_j)      (its complement)
    q(x) = [an even number of x_j, j ∈ S, are 1]      (a parity)

with at most one predicate f_j an attribute. `= v`, ranges and sets are predicates; their negation
is a flag of the literal; a disjunction is the complement of a product of negated literals. A
*table* is the group of all cells over a set of attributes: the cells partition the records, so the
group is kept as the set of attributes and its cells are never written out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.table.domain import Domain

NONE = -1  # pads the rows of literals and attributes


@dataclass(frozen=True)
class Predicates:
    """Distinct one-attribute predicates: number p accepts values[start[p] : start[p + 1]] of attribute[p].

    Canonical where it comes from the language or a family: values sorted, and of a predicate and its
    negation the one with fewer values (if equal, the one without code 0), so that equal queries are
    equal arrays.
    """

    attribute: NDArray[np.int32]
    start: NDArray[np.int64]
    values: NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.attribute)

    def accepted(self, predicate: int) -> NDArray[np.int32]:
        return self.values[self.start[predicate] : self.start[predicate + 1]]

    @staticmethod
    def of(pairs: Sequence[tuple[int, Sequence[int]]]) -> Predicates:
        """From (attribute, accepted values) pairs."""
        lengths = [len(values) for _, values in pairs]
        return Predicates(
            np.array([attribute for attribute, _ in pairs], np.int32),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array([v for _, values in pairs for v in values], np.int32),
        )

    @staticmethod
    def equalities(domain: Domain) -> Predicates:
        """`attribute = value` for every attribute and value, in the order of `first_value(domain)`."""
        sizes = domain.sizes
        total = int(sizes.sum())
        attribute = np.repeat(np.arange(domain.width, dtype=np.int32), sizes)
        values = (np.arange(total) - np.repeat(first_value(domain), sizes)).astype(np.int32)
        return Predicates(attribute, np.arange(total + 1, dtype=np.int64), values)


def first_value(domain: Domain) -> NDArray[np.int64]:
    """The number of each attribute's first value when all values of all attributes are numbered in a row."""
    return np.concatenate([[0], np.cumsum(domain.sizes[:-1], dtype=np.int64)])


def positive(predicate: int) -> int:
    """The literal that asks for a predicate."""
    return 2 * predicate


def negative(predicate: int) -> int:
    """The literal that asks for its negation."""
    return 2 * predicate + 1


@dataclass(frozen=True)
class Conjunctions:
    """One row of literals (2·predicate + negated, padded with -1) a query, on distinct attributes.

    `complement[q]` turns the product into 1 − product; None means that no query is complemented.
    """

    domain: Domain
    predicates: Predicates
    literals: NDArray[np.int32]
    complement: NDArray[np.bool_] | None = None

    @property
    def size(self) -> int:
        return len(self.literals)


@dataclass(frozen=True)
class Parities:
    """One row of binary attributes (padded with -1) a query; it holds where an even number of them is 1."""

    domain: Domain
    attributes: NDArray[np.int32]

    @property
    def size(self) -> int:
        return len(self.attributes)


@dataclass(frozen=True)
class Tables:
    """Every cell of the tables over the given sets of attributes (each set increasing).

    Cells of a table are numbered with its last attribute varying fastest; tables follow one another.
    """

    domain: Domain
    sets: tuple[tuple[int, ...], ...]

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The number of each table's first cell, and at the end the number of all cells."""
        sizes = self.domain.sizes.tolist()  # Python integers: exact, however large
        cells = (prod(sizes[j] for j in members) for members in self.sets)
        return np.array([*accumulate(cells, initial=0)], dtype=np.int64)

    @property
    def size(self) -> int:
        return int(self.starts[-1])


Group = Conjunctions | Parities | Tables
