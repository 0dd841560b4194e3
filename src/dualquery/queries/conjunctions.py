"""Conjunctions and parities, and how many of them one record can satisfy.

*Conjunctions*: q(x) = Π_j f_j(x_j), or the complement 1 − Π_j f_j(x_j), with at most one predicate f_j per attribute.
`= v`, ranges and sets are predicates, their negation is a flag of the literal, and a disjunction is the complement of
a product of negated literals.

*Parities*: [an even number of x_j, j ∈ S, are 1].

*Incidence*: a group is charged the most queries that one record satisfies, not its size.

Queries over the same attributes are held against each other exactly: each accepts some cells of the table over these
attributes, and a record lies in one cell, so that it satisfies at most r = max_cell #{queries that accept it}. Of
queries over different attributes a record may satisfy r of each, and these add up: exact where one set of attributes
is asked about, an upper bound otherwise. Two records differ, set by set, on at most min(queries, 2r). Sets whose
queries accept too many cells to list are charged all their queries. All of it is public.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np
from numpy.typing import NDArray

from dualquery.loops import in_shares, njit, threads
from dualquery.queries.bit_columns import (
    add_truth,
    bits_in_place,
    column_sums,
    count_blocked,
    count_direct,
    count_parities,
    few,
    list_members,
    predicate_bits,
    slabs,
)
from dualquery.queries.group import (
    NO_PREDICATES,
    NONE,
    PAD,
    Digest,
    Group,
    Predicates,
    ProductRows,
    canonical_rows,
    distinct_sets,
    increasing_sets,
    literal_truth,
    numbering_of,
    sorted_rows,
)
from dualquery.queries.language.formula import texts_of
from dualquery.table.domain import Domain
from dualquery.table.records import Records, pack_bits
from dualquery.types import Flags, Integers, Ints, Words

BLOCK_BYTES = 1 << 20  # a block of all columns and negations: stays in the second-level cache
BLOCK_WORDS_MOST = 128
BLOCK_WORDS_LEAST = 8
LEAST_QUERIES = 256  # of whole columns, that are worth sharing


class Listed(Group):
    """Queries that are listed one by one."""

    def counts(self, records: Records) -> Integers:
        counts = np.zeros(self.size, np.int64)
        if self.size:
            self.add_counts(records, counts)
        return counts

    @abstractmethod
    def add_counts(self, records: Records, counts: Integers) -> None:
        """counts[q] += the sum of query q over some records; there is at least one query."""

    def scope(self) -> Ints:
        return distinct_sets(increasing_sets(self.attribute_rows()))

    @abstractmethod
    def attribute_rows(self) -> Ints:
        """The attributes of each query, in any order, padded with -1."""

    def texts(self, indices: Integers) -> list[str]:
        return texts_of(self.domain, self.products(indices))


@dataclass(frozen=True)
class Conjunctions(Listed):
    """One row of literals (2·predicate + negated, padded with -1) a query, on distinct attributes.

    `complement[q]` turns the product into 1 − product; None means that no query is complemented.
    """

    domain: Domain
    predicates: Predicates
    literals: Ints
    complement: Flags | None = None

    @property
    def size(self) -> int:
        return len(self.literals)

    def add_counts(self, records: Records, counts: Integers) -> None:
        order, literals, predicates = self._sorted
        sorted_counts = np.zeros(self.size, np.int64)
        in_place = bits_in_place(predicates, records)
        if in_place is not None:
            _count_slab(*in_place, records.rows, literals, sorted_counts)
        else:
            for first, rows in slabs(predicates, records):
                bits = predicate_bits(predicates, records, first, rows)
                _count_slab(bits, np.arange(len(predicates)), rows, literals, sorted_counts)
        if self.complement is not None:
            flipped = self.complement[order]
            sorted_counts[flipped] = records.rows - sorted_counts[flipped]
        counts[order] += sorted_counts

    @cached_property
    def _sorted(self) -> tuple[NDArray[np.intp], Ints, Predicates]:
        """An order of the queries, their literals in it, and the predicates that they use: for all blocks of records.

        Neighbouring queries share columns, so that the processor finds them in its caches.
        """
        literals, predicates = used_literals(self)
        order = _sorting(literals)
        return order, np.ascontiguousarray(literals[order]), predicates

    def add_answers(self, record: Ints, answers: Ints) -> None:
        truth = literal_truth(self.predicates, record)
        complement = np.zeros(0, np.uint8) if self.complement is None else self.complement.view(np.uint8)
        in_shares(add_truth, len(self.literals), truth, self.literals, complement, answers, least=1 << 15)

    def most_satisfied(self) -> int:
        return self._incidence.satisfied

    def most_differing(self) -> int:
        return self._incidence.differing

    @cached_property
    def _incidence(self) -> Incidence:
        return incidence_of(self.domain, self.predicates, self.literals, self.complement)

    def attribute_rows(self) -> Ints:
        # The padding of the literals, -1, is predicate -1: the last entry.
        return np.append(self.predicates.attribute, np.int32(NONE))[self.literals >> 1]

    def take(self, indices: Integers) -> Conjunctions:
        complement = None if self.complement is None else self.complement[indices]
        return Conjunctions(self.domain, self.predicates, self.literals[indices], complement)

    def describe(self, digest: Digest) -> None:
        numbering = numbering_of(self.predicates, self.literals, self.domain)
        literals, complement = canonical_rows(self.literals, self.complement, numbering)
        digest.add_integers("predicates of one value", numbering.short)
        digest.add_text("predicates of more values", numbering.long_text())
        digest.add_integers("conjunctions", literals)
        digest.add("complement", np.packbits(complement).tobytes(), complement.shape)

    def products(self, indices: Integers) -> ProductRows:
        flags = None if self.complement is None else self.complement[indices]
        return ProductRows.of_products(self.predicates, self.literals[indices], flags)


def _count_slab(bits: Words, column: Integers, rows: int, literals: Ints, counts: Integers) -> None:
    if few(literals.size, rows):
        everyone = pack_bits(np.ones((1, rows), np.bool_))
        held = np.repeat(everyone, len(literals), axis=0)
        for place in range(literals.shape[1]):
            mine = np.flatnonzero(literals[:, place] >= 0)
            literal = literals[mine, place]
            flipped = np.where(literal & 1, ~np.uint64(0), np.uint64(0))
            held[mine] &= bits[column[literal >> 1]] ^ flipped[:, None]
        counts += np.bitwise_count(held).sum(axis=1, dtype=np.int64)
        return
    block_words = min(BLOCK_WORDS_MOST, BLOCK_BYTES // (16 * len(column)) // 8 * 8)
    if block_words >= BLOCK_WORDS_LEAST:
        parts = min(threads(), max(1, bits.shape[1] // block_words))
        partial = np.zeros((parts, len(literals)), np.int32)
        in_shares(count_blocked, parts, parts, bits, rows, literals, block_words, partial)
        counts += partial.sum(axis=0, dtype=np.int64)
        return
    sums = np.empty(len(column), np.int64)
    in_shares(column_sums, len(column), bits, column, sums)
    limit = bits.shape[1] // 2  # walking a list of more members is slower than reading the column
    lengths = np.where(sums <= limit, sums, 0)
    start = np.concatenate([[0], np.cumsum(lengths)])
    members = np.empty(int(start[-1]), np.int32)
    in_shares(list_members, len(column), bits, column, sums, limit, start, members)
    walked = (bits, column, rows, sums, limit, start, members, literals, counts)
    in_shares(count_direct, len(literals), *walked, least=LEAST_QUERIES)


def used_literals(group: Conjunctions) -> tuple[Ints, Predicates]:
    """The literals over only those predicates that some query uses."""
    wanted = np.zeros(len(group.predicates) + 1, np.bool_)  # the last entry takes the padding
    wanted[group.literals >> 1] = True
    number, predicates = used_predicates(group.predicates, wanted[:-1])
    literals = np.where(
        group.literals >= 0, 2 * number[group.literals >> 1] + (group.literals & 1), np.int32(NONE)
    ).astype(np.int32)
    return literals, predicates


def used_predicates(predicates: Predicates, wanted: Flags) -> tuple[Ints, Predicates]:
    """The number of each predicate among those that are wanted, and these."""
    used = np.flatnonzero(wanted)
    number = np.full(len(predicates), NONE, np.int32)
    number[used] = np.arange(len(used), dtype=np.int32)
    lengths = predicates.start[used + 1] - predicates.start[used]
    start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    positions = np.repeat(predicates.start[used] - start[:-1], lengths) + np.arange(start[-1])
    return number, Predicates(predicates.attribute[used], start, predicates.values[positions])


def _sorting(literals: Ints) -> NDArray[np.intp]:
    """An order of the queries by their leading literals, through one packed 64-bit key."""
    leading = np.sort(literals, axis=1)[:, ::-1][:, :2].astype(np.int64)
    key = leading[:, 0] << 32
    if leading.shape[1] > 1:
        key |= leading[:, 1] & 0xFFFFFFFF
    return np.argsort(key)


@dataclass(frozen=True)
class Parities(Listed):
    """One row of binary attributes (padded with -1) a query; it holds where an even number of them is 1."""

    domain: Domain
    attributes: Ints

    predicates = NO_PREDICATES

    @property
    def size(self) -> int:
        return len(self.attributes)

    def add_counts(self, records: Records, counts: Integers) -> None:
        used = np.unique(self.attributes[self.attributes >= 0])
        ones = Predicates(
            used.astype(np.int32), np.arange(len(used) + 1, dtype=np.int64), np.ones(len(used), np.int32)
        )
        columns = np.where(self.attributes >= 0, np.searchsorted(used, self.attributes), NONE)
        for first, rows in slabs(ones, records):
            bits = predicate_bits(ones, records, first, rows)
            if few(self.attributes.size, rows):
                odd = np.zeros((self.size, bits.shape[1]), np.uint64)
                for place in range(columns.shape[1]):
                    mine = np.flatnonzero(columns[:, place] >= 0)
                    odd[mine] ^= bits[columns[mine, place]]
                counts += rows - np.bitwise_count(odd).sum(axis=1, dtype=np.int64)
            else:
                in_shares(count_parities, len(columns), bits, rows, columns, counts, least=LEAST_QUERIES)

    def add_answers(self, record: Ints, answers: Ints) -> None:
        padded = np.append(record, 0)  # padding -1 meets this zero
        answers += (padded[self.attributes].sum(axis=1) & 1) == 0

    def attribute_rows(self) -> Ints:
        return self.attributes

    def most_differing(self) -> int:
        """Two records that differ in the attributes A differ on S where |S ∩ A| is odd.

        Where the sets are all those of one order r out of u attributes, that are at most

            max_a Σ_{i odd} C(a, i) · C(u − a, r − i)

        of them, else all are charged.
        """
        rows = np.sort(self.attributes, axis=1)
        orders = np.unique((rows != NONE).sum(axis=1))
        used = len(np.unique(rows[rows != NONE]))
        order = int(orders[0]) if len(orders) == 1 else 0
        twice = np.any((rows[:, 1:] == rows[:, :-1]) & (rows[:, 1:] != NONE))
        distinct = len(np.unique(rows, axis=0)) == len(rows) and not twice
        if not order or comb(used, order) != len(rows) or not distinct:
            return len(rows)
        return max(
            sum(comb(a, i) * comb(used - a, order - i) for i in range(1, order + 1, 2))
            for a in range(used + 1)
        )

    def take(self, indices: Integers) -> Parities:
        return Parities(self.domain, self.attributes[indices])

    def describe(self, digest: Digest) -> None:
        rows = np.where(self.attributes == NONE, PAD, self.attributes)
        digest.add_integers("parities", sorted_rows(rows))

    def products(self, indices: Integers) -> ProductRows:
        return ProductRows.of_parities(self.attributes[indices])


MOST_LISTED = 4_000_000  # accepted cells, of all queries together
MOST_CODES = 1 << 62


@dataclass(frozen=True)
class Incidence:
    """The most queries that one record satisfies, and the most on which two records differ, or bounds of them."""

    satisfied: int
    differing: int


def incidence_of(
    domain: Domain, predicates: Predicates, literals: Ints, complement: Flags | None
) -> Incidence:
    """Of conjunctions as rows of literals, padded; a complemented one counts as satisfied by everybody."""
    plain = np.ones(len(literals), np.bool_) if complement is None else ~complement
    always = int((~plain).sum())
    rows = literals[plain]
    if not len(rows):
        return Incidence(always, always)
    attributes = np.append(predicates.attribute, np.int32(NONE))[rows >> 1]
    sets, which = np.unique(increasing_sets(attributes), axis=0, return_inverse=True)
    which = which.ravel()
    number = np.bincount(which)
    listed = _listed_sets(domain, predicates, rows, which)
    satisfied = number.copy()  # of a set that one query asks about, and of those not listed
    order, ends = np.argsort(which, kind="stable"), np.cumsum(number)
    for s in np.flatnonzero(listed & (number > 1)).tolist():
        queries = rows[order[ends[s] - number[s] : ends[s]]]
        satisfied[s] = _most_in_a_cell(domain, predicates, queries, sets[s])
    return Incidence(always + int(satisfied.sum()), always + int(np.minimum(number, 2 * satisfied).sum()))


def _listed_sets(domain: Domain, predicates: Predicates, rows: Ints, which: NDArray[np.intp]) -> Flags:
    """The sets whose accepted cells are few enough to be listed, those with the fewest first."""
    lengths = np.diff(predicates.start).astype(np.float64)
    sizes = domain.sizes[predicates.attribute].astype(np.float64)
    of_literal = np.append(np.stack([lengths, sizes - lengths], axis=1).ravel(), 1.0)  # padding meets the one
    of_size = np.append(np.repeat(sizes, 2), 1.0)
    cells = np.bincount(which, weights=of_literal[rows].prod(axis=1))
    codes = np.zeros(len(cells))
    np.maximum.at(codes, which, of_size[rows].prod(axis=1))
    order = np.argsort(cells, kind="stable")
    listed = np.zeros(len(cells), np.bool_)
    listed[order] = np.cumsum(cells[order]) <= MOST_LISTED
    return listed & (codes < MOST_CODES)


def _most_in_a_cell(domain: Domain, predicates: Predicates, queries: Ints, members: Ints) -> int:
    """The most queries over one set of attributes that accept the same cell."""
    members = members[members != NONE]
    sizes = domain.sizes[members].astype(np.int64)
    stride = np.zeros(domain.width + 1, np.int64)
    stride[members] = np.concatenate([np.cumprod(sizes[::-1])[::-1][1:], [1]])
    used = np.unique(queries[queries != NONE])
    steps = stride[predicates.attribute[used >> 1]]
    values = [_accepted(domain, predicates, int(each)) * step for each, step in zip(used, steps, strict=True)]
    start = np.concatenate([[0], np.cumsum([len(each) for each in values])]).astype(np.int64)
    place = np.full(2 * len(predicates) + 1, NONE, np.int64)
    place[used] = np.arange(len(used))
    rows = np.where(queries == NONE, NONE, place[queries])
    flat = np.concatenate(values).astype(np.int64) if len(used) else np.empty(0, np.int64)
    codes = np.sort(_cells(rows, start, flat))
    if not len(codes):
        return 0
    ends = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
    return int(np.diff(ends, prepend=-1).max())


def _accepted(domain: Domain, predicates: Predicates, literal: int) -> Integers:
    held = np.unique(predicates.accepted(literal >> 1)).astype(np.int64)
    if literal & 1:
        size = int(domain.sizes[predicates.attribute[literal >> 1]])
        return np.setdiff1d(np.arange(size, dtype=np.int64), held)
    return held


@njit(cache=True)
def _cells(rows, start, values):  # type: ignore[no-untyped-def]
    """The code of every cell that every query accepts, one query behind the other."""
    total = 0
    for q in range(rows.shape[0]):
        cells = 1
        for k in range(rows.shape[1]):
            if rows[q, k] >= 0:
                cells *= start[rows[q, k] + 1] - start[rows[q, k]]
        total += cells
    out = np.empty(total, np.int64)
    begin = 0
    for q in range(rows.shape[0]):
        if begin == total:
            break  # those that are left accept nothing
        out[begin] = 0
        cells = 1
        for k in range(rows.shape[1]):
            literal = rows[q, k]
            if literal < 0:
                continue
            number = start[literal + 1] - start[literal]
            for i in range(number - 1, -1, -1):
                for c in range(cells):
                    out[begin + i * cells + c] = out[begin + c] + values[start[literal] + i]
            cells *= number
            if cells == 0:
                break
        begin += cells
    return out
