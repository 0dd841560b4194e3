"""A product of one-way distributions, and how queries vary together under it.

Of queries q = offset + slope · Π f_k, products of functions of one attribute each (`products`), the covariance
under a product distribution P is in closed form: with Π_j over the attributes of either query,

    Cov_P(q, q′) = slope · slope′ · ( Π_j E[f_j f′_j] − Π_j E[f_j] · Π_j E[f′_j] ),

a missing function being 1. Nothing is ever summed over the universe, however large it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.distributions.products import Products
from dualquery.queries.group import NONE

Reals = NDArray[np.float64]


@dataclass(frozen=True)
class ProductBase:
    """The probabilities of each attribute's values; an attribute that is not named is uniform."""

    ones: Mapping[int, Reals]

    def of(self, attribute: int, size: int) -> Reals:
        return self.ones[attribute] if attribute in self.ones else np.full(size, 1 / size)


@dataclass(frozen=True, eq=False)
class Covariances:
    """Some queries under a product base."""

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
        """Var q of every query."""
        attribute = self.products.attribute.tolist()
        squares = [float(self._weights[j] @ v**2) for j, v in zip(attribute, self._values, strict=True)]
        second = np.array([*squares, 1.0])[self.products.factors].prod(axis=1)
        spread: Reals = self.products.slope**2 * np.maximum(second - self.product_means**2, 0.0)
        return spread

    def with_query(self, query: int) -> Reals:
        """Cov(q, ·) of one query with all of them."""
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
