"""Parities: [an even number of x_j, j ∈ S, are 1]."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.bit_columns import few, predicate_bits, slabs
from dualquery.queries.digest import PAD, Digest, sorted_rows
from dualquery.queries.group import NO_PREDICATES, Integers, Listed, ProductRows, Progress
from dualquery.queries.kernels import count_parities
from dualquery.queries.language.texts import texts_of
from dualquery.queries.predicates import NONE, Predicates
from dualquery.table.domain import Domain
from dualquery.table.records import Records


@dataclass(frozen=True)
class Parities(Listed):
    """One row of binary attributes (padded with -1) a query; it holds where an even number of them is 1."""

    domain: Domain
    attributes: NDArray[np.int32]

    predicates = NO_PREDICATES

    @property
    def size(self) -> int:
        return len(self.attributes)

    def add_counts(self, records: Records, counts: Integers, progress: Progress) -> None:
        used = np.unique(self.attributes[self.attributes >= 0])
        ones = Predicates(
            used.astype(np.int32), np.arange(len(used) + 1, dtype=np.int64), np.ones(len(used), np.int32)
        )
        columns = np.where(self.attributes >= 0, np.searchsorted(used, self.attributes), NONE)
        for first, rows in slabs(ones, records):
            bits = predicate_bits(ones, records, first, rows)
            if few(self.attributes.size, rows):
                odd = [np.bitwise_xor.reduce(bits[row[row >= 0]], axis=0) for row in columns]
                counts += rows - np.array([int(np.bitwise_count(words).sum()) for words in odd])
            else:
                count_parities(bits, rows, columns, counts)
            progress(first + rows, records.rows)

    def add_answers(self, record: NDArray[np.int32], answers: NDArray[np.int32]) -> None:
        padded = np.append(record, 0)  # padding -1 meets this zero
        answers += (padded[self.attributes].sum(axis=1) & 1) == 0

    def attribute_rows(self) -> NDArray[np.int32]:
        return self.attributes

    def take(self, indices: NDArray[np.int64]) -> Parities:
        return Parities(self.domain, self.attributes[indices])

    def describe(self, digest: Digest) -> None:
        rows = np.where(self.attributes == NONE, PAD, self.attributes)
        digest.add_integers("parities", sorted_rows(rows))

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        return texts_of(self.domain, self.products(indices))

    def products(self, indices: NDArray[np.int64]) -> ProductRows:
        return ProductRows.of_parities(self.attributes[indices])
