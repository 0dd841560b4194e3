"""One-attribute predicates, and the literals that ask for one or for its negation.

`= v`, ranges and sets are predicates. A literal is the number 2·predicate, or 2·predicate + 1 for the negation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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


def equalities(domain: Domain, attributes: NDArray[np.integer]) -> tuple[Predicates, NDArray[np.int64]]:
    """`attribute = value` in canonical form for the given attributes, and each one's first number.

    A binary attribute has the one predicate `= 1`, any other attribute one for each value.
    """
    sizes = domain.sizes[attributes].astype(np.int64)
    counts = np.where(sizes == 2, 1, sizes)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    total = int(first[-1])
    values = np.arange(total) - np.repeat(first[:-1], counts) + np.repeat(sizes == 2, counts)
    predicates = Predicates(
        np.repeat(attributes, counts).astype(np.int32),
        np.arange(total + 1, dtype=np.int64),
        values.astype(np.int32),
    )
    return predicates, first[:-1]


def equality_literal(
    first: NDArray[np.int64], sizes: NDArray[np.integer], codes: NDArray[np.integer]
) -> NDArray[np.int64]:
    """The literal `attribute = code` among `equalities`; of a binary attribute `= 0` is the negated `= 1`."""
    binary = sizes == 2
    literal: NDArray[np.int64] = 2 * first + np.where(binary, codes == 0, 2 * codes)
    return literal


def concatenated(tables: list[Predicates]) -> Predicates:
    """The predicates of several tables in a row."""
    if len(tables) == 1:
        return tables[0]
    ends = np.cumsum([0, *(len(table.values) for table in tables)])
    starts = [table.start[:-1] + end for table, end in zip(tables, ends[:-1], strict=True)]
    return Predicates(
        np.concatenate([table.attribute for table in tables]),
        np.concatenate([*starts, ends[-1:]]).astype(np.int64),
        np.concatenate([table.values for table in tables]),
    )


def literal_truth(predicates: Predicates, record: NDArray[np.int32]) -> NDArray[np.uint8]:
    """For each literal 2p, 2p + 1 whether it holds of the record; at the end a one, for padding."""
    truth = np.ones(2 * len(predicates) + 1, np.uint8)
    lengths = np.diff(predicates.start)
    hit = predicates.values == np.repeat(record[predicates.attribute], lengths)
    holds = np.add.reduceat(hit, predicates.start[:-1]) > 0 if len(predicates) else hit
    truth[0:-1:2] = holds
    truth[1:-1:2] = ~holds
    return truth
