"""Conjunctions of predicates, q(x) = Π_j f_j(x_j), or the complement of one, 1 − Π_j f_j(x_j).

With at most one predicate f_j an attribute. `= v`, ranges and sets are predicates, their negation is a flag of the
literal, and a disjunction is the complement of a product of negated literals.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import threads
from dualquery.queries.bit_columns import bits_in_place, few, predicate_bits, slabs
from dualquery.queries.digest import Digest, canonical_rows, numbering_of
from dualquery.queries.group import Integers, Listed, ProductRows, Progress
from dualquery.queries.incidence import Incidence, incidence_of
from dualquery.queries.kernels import add_truth, column_sums, count_blocked, count_direct, list_members
from dualquery.queries.language.texts import texts_of
from dualquery.queries.predicates import NONE, Predicates, literal_truth
from dualquery.table.domain import Domain
from dualquery.table.records import Records, pack_bits

BLOCK_BYTES = 1 << 20  # a block of all columns and negations: stays in the second-level cache
BLOCK_WORDS_MOST = 128
BLOCK_WORDS_LEAST = 8


@dataclass(frozen=True)
class Conjunctions(Listed):
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

    def add_counts(self, records: Records, counts: Integers, progress: Progress) -> None:
        order, literals, predicates = self._sorted
        sorted_counts = np.zeros(self.size, np.int64)
        in_place = bits_in_place(predicates, records)
        if in_place is not None:
            _count_slab(*in_place, records.rows, literals, sorted_counts)
        else:
            for first, rows in slabs(predicates, records):
                bits = predicate_bits(predicates, records, first, rows)
                _count_slab(bits, np.arange(len(predicates)), rows, literals, sorted_counts)
                progress(first + rows, records.rows)
        if self.complement is not None:
            flipped = self.complement[order]
            sorted_counts[flipped] = records.rows - sorted_counts[flipped]
        counts[order] += sorted_counts

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], NDArray[np.int32], Predicates]:
        """An order of the queries, their literals in it, and the predicates that they use: for all blocks of records.

        Neighbouring queries share columns, so that the processor finds them in its caches.
        """
        literals, predicates = _used(self)
        order = _sorting(literals)
        return order, np.ascontiguousarray(literals[order]), predicates

    def add_answers(self, record: NDArray[np.int32], answers: NDArray[np.int32]) -> None:
        truth = literal_truth(self.predicates, record)
        complement = np.zeros(0, np.uint8) if self.complement is None else self.complement.view(np.uint8)
        add_truth(truth, self.literals, complement, answers)

    def most_satisfied(self) -> int:
        return self._incidence.satisfied

    def most_differing(self) -> int:
        return self._incidence.differing

    @cached_property
    def _incidence(self) -> Incidence:
        return incidence_of(self.domain, self.predicates, self.literals, self.complement)

    def attribute_rows(self) -> NDArray[np.int32]:
        # The padding of the literals, -1, is predicate -1: the last entry.
        return np.append(self.predicates.attribute, np.int32(NONE))[self.literals >> 1]

    def take(self, indices: NDArray[np.int64]) -> Conjunctions:
        complement = None if self.complement is None else self.complement[indices]
        return Conjunctions(self.domain, self.predicates, self.literals[indices], complement)

    def describe(self, digest: Digest) -> None:
        numbering = numbering_of(self.predicates, self.literals, self.domain)
        literals, complement = canonical_rows(self.literals, self.complement, numbering)
        digest.add_integers("predicates of one value", numbering.short)
        digest.add_text("predicates of more values", numbering.long_text())
        digest.add_integers("conjunctions", literals)
        digest.add("complement", np.packbits(complement).tobytes(), complement.shape)

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        return texts_of(self.domain, self.products(indices))

    def products(self, indices: NDArray[np.int64]) -> ProductRows:
        flags = None if self.complement is None else self.complement[indices]
        return ProductRows.of_products(self.predicates, self.literals[indices], flags)


def _count_slab(
    bits: NDArray[np.uint64],
    column: NDArray[np.int64],
    rows: int,
    literals: NDArray[np.int32],
    counts: Integers,
) -> None:
    if few(literals.size, rows):
        everyone = pack_bits(np.ones((1, rows), np.bool_))[0]
        for number, row in enumerate(literals):
            held = everyone.copy()
            for literal in row[row >= 0]:
                held &= ~bits[column[literal >> 1]] if literal & 1 else bits[column[literal >> 1]]
            counts[number] += int(np.bitwise_count(held).sum())
        return
    block_words = min(BLOCK_WORDS_MOST, BLOCK_BYTES // (16 * len(column)) // 8 * 8)
    if block_words >= BLOCK_WORDS_LEAST:
        count_blocked(bits, rows, literals, block_words, threads(), counts)
        return
    sums = column_sums(bits, column)
    limit = bits.shape[1] // 2  # walking a list of more members is slower than reading the column
    lengths = np.where(sums <= limit, sums, 0)
    start = np.concatenate([[0], np.cumsum(lengths)])
    members = np.empty(int(start[-1]), np.int32)
    list_members(bits, column, sums, limit, start, members)
    count_direct(bits, column, rows, sums, limit, start, members, literals, counts)


def _used(group: Conjunctions) -> tuple[NDArray[np.int32], Predicates]:
    """The literals over only those predicates that some query uses."""
    predicates = group.predicates
    wanted = np.zeros(len(predicates) + 1, np.bool_)  # the last entry takes the padding
    wanted[group.literals >> 1] = True
    used = np.flatnonzero(wanted[:-1])
    number = np.full(len(predicates), NONE, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    literals = np.where(
        group.literals >= 0, 2 * number[group.literals >> 1] + (group.literals & 1), np.int32(NONE)
    ).astype(np.int32)
    lengths = predicates.start[used + 1] - predicates.start[used]
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.repeat(predicates.start[used] - start[:-1], lengths) + np.arange(start[-1])
    return literals, Predicates(predicates.attribute[used], start, predicates.values[positions])


def _sorting(literals: NDArray[np.int32]) -> NDArray[np.intp]:
    """An order of the queries by their leading literals, through one packed 64-bit key."""
    leading = np.sort(literals, axis=1)[:, ::-1][:, :2].astype(np.int64)
    key = leading[:, 0] << 32
    if leading.shape[1] > 1:
        key |= leading[:, 1] & 0xFFFFFFFF
    return np.argsort(key)
