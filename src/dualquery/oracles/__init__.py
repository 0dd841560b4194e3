"""Best responses to weighted clauses.

The question that a best response answers: weighted clauses over one record.

Sampling a query q gives a clause of weight +1, sampling its negation 1 − q one of weight −1 (the constant does not
move the maximum), so a round of samples becomes integer weights w_c = #q − #(not q) and the data player looks for

    max_x  Σ_c w_c · q_c(x)        over records x with one value per attribute,

with q_c a product of literals or a parity. This is the best response of Gaboardi, Gallego Arias, Hsu,
Roth and Wu, "Dual Query" (2014), written over values instead of bits, so that every answer is a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.loops import njit
from dualquery.queries.group import NONE, Predicates
from dualquery.types import Integers, Ints

Scalar = TypeVar("Scalar", np.int32, np.int64)


@dataclass(frozen=True)
class Response:
    """What an oracle says: a record, what it scores, and a bound that no record exceeds."""

    record: Ints
    value: int
    bound: int

    @property
    def optimal(self) -> bool:
        """Whether it is known that nothing is better."""
        return self.value == self.bound


@dataclass(frozen=True)
class Clauses:
    """Conjunctions and parities with integer weights, over attributes with `sizes` values.

    `literals` has a row of 2·predicate + negated a clause, `parities` a row of attributes a clause that
    holds where an even number of them has code 1. Rows are padded with -1 and name an attribute once.
    """

    sizes: Ints
    predicates: Predicates
    literals: Ints
    weights: Integers
    parities: Ints
    parity_weights: Integers

    def __post_init__(self) -> None:
        if self.literals.ndim != 2 or self.parities.ndim != 2:
            raise ValueError("literals and parities are matrices with one row per clause")
        if (
            self.weights.shape != self.literals.shape[:1]
            or self.parity_weights.shape != self.parities.shape[:1]
        ):
            raise ValueError("every clause needs one weight")

    @property
    def ceiling(self) -> int:
        """What a record would score that satisfied every clause it likes and no other: Σ_c max(0, w_c)."""
        return int(self.weights[self.weights > 0].sum() + self.parity_weights[self.parity_weights > 0].sum())

    def arrays(self) -> tuple[Ints, Integers, Ints, Ints, Integers, Ints, Integers]:
        """Predicates, then products and their weights, then parities and theirs, as compiled code takes them."""
        return (
            frozen(self.predicates.attribute, np.int32),
            frozen(self.predicates.start, np.int64),
            frozen(self.predicates.values, np.int32),
            frozen(self.literals, np.int32),
            frozen(self.weights, np.int64),
            frozen(self.parities, np.int32),
            frozen(self.parity_weights, np.int64),
        )


def merge(clauses: Clauses) -> Clauses:
    """The same objective with equal clauses joined into one, rows sorted, weights of zero left out."""
    literals, weights = _merged(frozen(clauses.literals, np.int32), frozen(clauses.weights, np.int64))
    parities, parity_weights = _merged(
        frozen(clauses.parities, np.int32), frozen(clauses.parity_weights, np.int64)
    )
    return Clauses(clauses.sizes, clauses.predicates, literals, weights, parities, parity_weights)


def value(clauses: Clauses, record: Ints) -> int:
    """Σ_c w_c · q_c(record), clause by clause from the definition."""
    predicates, literals, parities = clauses.predicates, clauses.literals, clauses.parities
    owner = np.repeat(np.arange(len(predicates.attribute)), np.diff(predicates.start))
    hits = predicates.values == record[predicates.attribute[owner]]
    accepts = np.append(np.bincount(owner, hits, minlength=len(predicates.attribute)) > 0, True)
    holds = ((accepts[literals >> 1] != (literals & 1)) | (literals == NONE)).all(axis=1)
    odd = ((record[parities] == 1) & (parities != NONE)).sum(axis=1) % 2
    return int(clauses.weights @ holds + clauses.parity_weights @ (1 - odd))


def frozen(array: NDArray[np.generic], dtype: type[Scalar]) -> NDArray[Scalar]:
    """A read-only contiguous view: one signature for every kernel, whatever the caller's flags are."""
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


@njit(cache=True)
def _merged(rows: Ints, weights: Integers) -> tuple[Ints, Integers]:
    """Rows with equal entries joined, in order of first appearance, by an open-addressed table."""
    count, width = rows.shape
    kept = np.empty((count, width), np.int32)
    sums = np.empty(count, np.int64)
    size = 4
    while size < 2 * count:
        size *= 2
    table = np.zeros(size, np.int32)  # place of a kept row, plus 1
    found = 0
    for c in range(count):
        if weights[c] == 0:
            continue
        row = kept[found]  # written here, and overwritten if it turns out to be known
        length = 0
        for k in range(width):
            entry = rows[c, k]
            if entry == NONE:
                continue
            at = length
            while at > 0 and row[at - 1] > entry:
                row[at] = row[at - 1]
                at -= 1
            row[at] = entry
            length += 1
        mix = np.uint64(length)
        for k in range(length):
            mix = (mix ^ np.uint64(row[k])) * np.uint64(0x9E3779B97F4A7C15)
            mix ^= mix >> np.uint64(29)
        for k in range(length, width):
            row[k] = NONE
        slot = np.int64(mix & np.uint64(size - 1))
        while True:
            if table[slot] == 0:
                found += 1
                table[slot] = found
                sums[found - 1] = weights[c]
                break
            known = table[slot] - 1
            same = True
            for k in range(width):
                if kept[known, k] != row[k]:
                    same = False
                    break
            if same:
                sums[known] += weights[c]
                break
            slot = (slot + 1) & (size - 1)
    final = 0
    for c in range(found):
        if sums[c] != 0:
            for k in range(width):
                kept[final, k] = kept[c, k]
            sums[final] = sums[c]
            final += 1
    return kept[:final], sums[:final]
