"""What is added up over the records of a wide table: of binary attributes as vectors, and of items held.

A record x in {0, 1}^d counts with whole numbers of its own, each a function of that record and of public numbers:

    y = GRID·x − centre         the vector around a public centre, in steps of 1/GRID (`Centred`),
    w ∈ {0 … F}                 the largest weight with w·|y| ≤ F·B (`Clip`),
    u = ⌊(y · directions) / 2^SHIFT⌉   its place along a few public axes (`Axes`),
    c                           the nearest of some public centres in that space, the first of several (`Classes`).

Its weighted vectors z = w·y are at most F·B long by construction, R = F²B² squared, which bounds every sum below;
which class it falls into is public but for the record itself, so that classes partition the records. Two vectors of
length at most √R lie at most 2√R apart, and at most √2R where they fall into different classes.

Products of whole numbers below 2⁵³ are exact in floating point, whatever the order in which they are added: nothing
here depends on which other records lie beside a record.

Of transaction data, where a record holds few of very many items, it counts with its first `limit` items in a public
order, and the others are ignored (`Held`): a public, deterministic truncation of each record by itself, so that
neighbouring tables stay neighbours. (The order may depend on earlier noisy counts; those are public.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import isqrt

import numpy as np

from dualquery.loops import in_shares, njit, popcount
from dualquery.queries.bit_columns import LINE, add_along_attributes, add_along_records, predicate_bits
from dualquery.queries.group import Predicates
from dualquery.queries.statistics import ONE_CELL, Bound
from dualquery.table.domain import Domain
from dualquery.table.records import BitItems, Records, SparseItems, unpack_bits
from dualquery.types import Integers, Reals, Words

GRID = 16  # steps of a centre between 0 and 1
SHIFT = 10  # binary places of a direction
SLAB_BYTES = 1 << 27  # bit columns held at once
LEAST_ROWS = 1 << 9
MOST_ROWS = 1 << 17
SPREAD_ROWS = 1 << 13  # whose vectors are spread out at once


@dataclass(frozen=True, eq=False)
class Binary:
    """Some attributes of two values each: of a record the vector of zeros and ones."""

    domain: Domain
    attributes: Integers

    @property
    def width(self) -> int:
        return len(self.attributes)

    def bits(self, records: Records, first: int, rows: int) -> Words:
        """A bit column for each attribute, over `rows` records from `first` (a multiple of 64)."""
        ones = np.ones(self.width, np.int32)
        which = Predicates(self.attributes.astype(np.int32), np.arange(self.width + 1, dtype=np.int64), ones)
        return predicate_bits(which, records, first, rows)

    def matrix(self, records: Records, first: int, rows: int) -> Reals:
        """The vectors themselves, one row per record. For few attributes."""
        return unpack_bits(self.bits(records, first, rows), rows).T.astype(np.float64)

    def slabs(self, records: Records) -> Iterator[tuple[int, int]]:
        step = SLAB_BYTES * 8 // max(1, self.width) // LEAST_ROWS * LEAST_ROWS
        step = min(max(LEAST_ROWS, step), MOST_ROWS)
        for first in range(0, records.rows, step):
            yield first, min(step, records.rows - first)


@dataclass(frozen=True)
class Clip:
    """Weights that make every vector at most F·B long: w = min(F, ⌊F·B/|y|⌋)."""

    most: int  # F
    squared: int  # B²

    @property
    def longest(self) -> int:
        """F²B²: the squared length that no weighted vector exceeds."""
        return self.most**2 * self.squared

    def weights(self, squared_lengths: Integers) -> Integers:
        """The largest w ≤ F with w²·|y|² ≤ F²B², in whole numbers."""
        length = np.maximum(squared_lengths, 1)
        w = np.minimum(self.most, np.sqrt(self.longest / length).astype(np.int64) + 1)
        while (over := w * w * squared_lengths > self.longest).any():
            w = w - over
        return w


@dataclass(frozen=True, eq=False)
class Axes:
    """u = ⌊(GRID·x − centre)·directions / 2^SHIFT⌉, a few whole numbers of each record."""

    binary: Binary
    centre: Integers
    directions: Integers  # attributes × axes

    @property
    def number(self) -> int:
        return self.directions.shape[1]

    def places(self, records: Records, first: int, rows: int) -> Reals:
        """A row of whole numbers a record."""
        placed = np.empty((rows, self.number))
        along = self.directions.astype(np.float64)
        for begin in range(0, rows, SPREAD_ROWS):
            y = self.binary.matrix(records, first + begin, min(SPREAD_ROWS, rows - begin))
            y *= GRID
            y -= self.centre
            placed[begin : begin + len(y)] = np.floor(y @ along / 2**SHIFT + 0.5)
        return placed


@dataclass(frozen=True, eq=False)
class Classes:
    """The nearest of some public centres; of several the first."""

    axes: Axes
    centres: Integers  # classes × axes

    @property
    def number(self) -> int:
        return len(self.centres)

    def nearest(self, places: Reals) -> Integers:
        """argmin_c |u − c|², as |c|² − 2u·c."""
        centres = self.centres.astype(np.float64)
        distance = (centres**2).sum(axis=1) - 2 * (places @ centres.T)
        return np.argmin(distance, axis=1).astype(np.int64)

    def of(self, records: Records, first: int, rows: int) -> Integers:
        return self.nearest(self.axes.places(records, first, rows))


@dataclass(frozen=True, eq=False)
class Centred:
    """y = GRID·x − centre[class of x]; one centre for all where there are no classes."""

    binary: Binary
    centre: Integers  # classes × attributes
    classes: Classes | None = None

    def classes_of(self, records: Records, first: int, rows: int) -> Integers:
        if self.classes is None:
            return np.zeros(rows, np.int64)
        return self.classes.of(records, first, rows)

    def squared_lengths(self, bits: Words, group: Integers) -> Integers:
        """|y|² = Σ_j centre_j² + Σ_{j: x_j = 1} GRID·(GRID − 2·centre_j)."""
        sums = (self.centre**2).sum(axis=1)[group]
        values = np.ascontiguousarray((GRID * (GRID - 2 * self.centre)).T)
        lines = -(-bits.shape[1] // LINE)
        in_shares(add_along_attributes, lines, bits, group, values, sums)
        return sums

    @property
    def longest(self) -> int:
        """The squared length that no vector exceeds."""
        return int((np.maximum(self.centre, GRID - self.centre) ** 2).sum(axis=1).max())


@njit(cache=True)
def count_binary_tables(lower, upper, bits, rows, members, starts, counts):  # type: ignore[no-untyped-def]
    """counts[starts[t] : starts[t + 1]] becomes the table over members[t], the last attribute varying fastest.

    A table of fewer attributes is one of three, of which nobody has the last.
    """
    words = bits.shape[1]
    nobody = np.zeros(words, np.uint64)
    table = np.empty(8, np.int64)
    for t in range(lower, upper):
        size = starts[t + 1] - starts[t]
        a = bits[members[t, 0]] if size > 1 else nobody
        b = bits[members[t, 1]] if size > 2 else nobody
        c = bits[members[t, 2]] if size > 4 else nobody
        has_a = has_b = has_c = has_ab = has_ac = has_bc = has_abc = np.uint64(0)
        for w in range(words):
            both = a[w] & b[w]
            has_a += popcount(a[w])
            has_b += popcount(b[w])
            has_c += popcount(c[w])
            has_ab += popcount(both)
            has_ac += popcount(a[w] & c[w])
            has_bc += popcount(b[w] & c[w])
            has_abc += popcount(both & c[w])
        table[7] = np.int64(has_abc)
        table[6] = np.int64(has_ab) - table[7]
        table[5] = np.int64(has_ac) - table[7]
        table[3] = np.int64(has_bc) - table[7]
        table[4] = np.int64(has_a) - table[5] - table[6] - table[7]
        table[2] = np.int64(has_b) - table[3] - table[6] - table[7]
        table[1] = np.int64(has_c) - table[3] - table[5] - table[7]
        table[0] = rows - table[1:].sum()
        counts[starts[t] : starts[t + 1]] = table[:: 8 // size]


FEW_ATTRIBUTES = 512  # spread out at once beside a slab of records


@dataclass(frozen=True, eq=False)
class Balances:
    """Σ (2x − 1): of each attribute the records that have it, less those that have not."""

    binary: Binary

    def counts(self, records: Records) -> Integers:
        ones = np.zeros(self.binary.width, np.int64)
        for first, rows in self.binary.slabs(records):
            bits = self.binary.bits(records, first, rows)
            ones += np.bitwise_count(bits).sum(axis=1, dtype=np.int64)
        return 2 * ones - records.rows

    def bound(self) -> Bound:
        """A record moves every number by 1, two that differ everywhere by 2."""
        d = self.binary.width
        return Bound((d, d), (2 * d, 4 * d))


@dataclass(frozen=True, eq=False)
class Lengths:
    """How many records have |y|² up to the first edge, above it up to the second, …, above the last."""

    centred: Centred
    edges: Integers  # increasing

    def counts(self, records: Records) -> Integers:
        found = np.zeros(len(self.edges) + 1, np.int64)
        for first, rows in self.centred.binary.slabs(records):
            group = self.centred.classes_of(records, first, rows)
            bits = self.centred.binary.bits(records, first, rows)
            place = np.searchsorted(self.edges, self.centred.squared_lengths(bits, group))
            found += np.bincount(place, minlength=len(found))
        return found

    def bound(self) -> Bound:
        return ONE_CELL


def held_lengths(binary: Binary, edges: Integers) -> Lengths:
    """How many records hold up to so many of the attributes: lengths of x itself."""
    return Lengths(Centred(binary, np.zeros((1, binary.width), np.int64)), GRID**2 * edges)


@dataclass(frozen=True, eq=False)
class SecondMoments:
    """The upper triangle of Σ w² y yᵀ, row by row, without the diagonal. For few attributes and no classes."""

    centred: Centred
    clip: Clip

    def counts(self, records: Records) -> Integers:
        binary = self.centred.binary
        total = np.zeros((binary.width, binary.width))
        for first in range(0, records.rows, SPREAD_ROWS):
            rows = min(SPREAD_ROWS, records.rows - first)
            y = GRID * binary.matrix(records, first, rows) - self.centred.centre[0]
            w = self.clip.weights((y**2).sum(axis=1).astype(np.int64))
            y *= w[:, None]
            total += y.T @ y
        return total[np.triu_indices(binary.width, 1)].astype(np.int64)

    def bound(self) -> Bound:
        """Σ z zᵀ above the diagonal, |z|² ≤ R.

        Alone Σ_{i<j} z_i²z_j² = (|z|⁴ − Σ z_i⁴)/2 ≤ R²/2; two: at most (|z|⁴ + |z'|⁴ − 2(z·z')²)/2 ≤ R². In L1
        Σ_{i<j} |z_i z_j| = (‖z‖₁² − |z|²)/2 ≤ (d − 1)R/2.
        """
        longest, d = self.clip.longest, self.centred.binary.width
        l1 = (d - 1) * longest // 2
        return Bound((l1, longest**2 // 2), (2 * l1, longest**2))


@dataclass(frozen=True, eq=False)
class ClassSums:
    """For each class (`count_factor`·Σ w, Σ w y), over its records; `together`: one such vector over all records."""

    centred: Centred
    clip: Clip
    count_factor: int
    together: bool = False

    @property
    def number(self) -> int:
        return 1 if self.together else len(self.centred.centre)

    def counts(self, records: Records) -> Integers:
        centred, binary = self.centred, self.centred.binary
        weight = np.zeros(len(centred.centre), np.int64)
        held = np.zeros((binary.width, len(weight)), np.int64)
        for first, rows in binary.slabs(records):
            group = centred.classes_of(records, first, rows)
            bits = binary.bits(records, first, rows)
            w = self.clip.weights(centred.squared_lengths(bits, group))
            in_shares(add_along_records, len(bits), bits, group, w, held)
            np.add.at(weight, group, w)
        sums = GRID * held.T - centred.centre * weight[:, None]
        out = np.concatenate([self.count_factor * weight[:, None], sums], axis=1)
        return out.sum(axis=0) if self.together else out.ravel()

    def bound(self) -> Bound:
        """Of (s·Σ w, Σ z) in one of the classes, w ≤ F."""
        return _bound_of_vectors(self.clip, self.centred.binary.width, self.count_factor, 0)


@dataclass(frozen=True, eq=False)
class CentreSums:
    """For each class (`count_factor`·Σ w, Σ w u), and at the end Σ ⌊w²|u|²/divisor⌋ over all records."""

    classes: Classes
    clip: Clip
    count_factor: int
    divisor: int

    def counts(self, records: Records) -> Integers:
        number, axes = self.classes.number, self.classes.axes
        sums = np.zeros((number, 1 + axes.number), np.int64)
        squares = 0
        for first, rows in axes.binary.slabs(records):
            places = axes.places(records, first, rows)
            group = self.classes.nearest(places)
            length = (places**2).sum(axis=1).astype(np.int64)
            w = self.clip.weights(length)
            squares += int((w * w * length // self.divisor).sum())
            vectors = np.column_stack([self.count_factor * w, w[:, None] * places.astype(np.int64)])
            np.add.at(sums, group, vectors)
        return np.append(sums.ravel(), squares)

    def bound(self) -> Bound:
        """As of `ClassSums`, of places along axes, and one number of all records, from 0 to ⌊R/divisor⌋."""
        squares = self.clip.longest // self.divisor
        return _bound_of_vectors(self.clip, self.classes.axes.number, self.count_factor, squares)


def _l1(squared: int, numbers: int) -> int:
    """The largest L1 length of so many whole numbers of this squared L2 length: √(numbers · squared)."""
    return isqrt(numbers * squared)


def _bound_of_vectors(clip: Clip, numbers: int, count_factor: int, squares: int) -> Bound:
    """Of (count up to s·F, vector of squared length up to R) in one of several places, and a number up to `squares`.

    Alone s²F² + R. Two in one class: s²F² + 4R, since weights do not fall below 0; in two classes the sum of both.
    """
    count, longest = count_factor * clip.most, clip.longest
    l1, l2 = count + _l1(longest, numbers), count**2 + longest
    in_one = count + 2 * _l1(longest, numbers), count**2 + 4 * longest
    return Bound(
        (l1 + squares, l2 + squares**2),
        (max(in_one[0], 2 * l1) + squares, max(in_one[1], 2 * l2) + squares**2),
    )


@dataclass(frozen=True, eq=False)
class CrossSums:
    """Σ (w y)(w' u)ᵀ: how each attribute goes along with each axis. No classes."""

    centred: Centred
    clip: Clip
    axes: Axes
    axes_clip: Clip

    def counts(self, records: Records) -> Integers:
        binary = self.centred.binary
        total = np.zeros((binary.width, self.axes.number), np.int64)
        for first, rows in binary.slabs(records):
            bits = binary.bits(records, first, rows)
            w = self.clip.weights(self.centred.squared_lengths(bits, np.zeros(rows, np.int64)))
            places = self.axes.places(records, first, rows)
            both = w * self.axes_clip.weights((places**2).sum(axis=1).astype(np.int64))
            vectors = both[:, None] * places
            held = np.empty(total.shape)
            for begin in range(0, binary.width, FEW_ATTRIBUTES):
                part = unpack_bits(bits[begin : begin + FEW_ATTRIBUTES], rows)
                held[begin : begin + len(part)] = part.astype(np.float64) @ vectors
            whole = vectors.sum(axis=0).astype(np.int64)
            total += GRID * held.astype(np.int64) - self.centred.centre[0][:, None] * whole
        return total.ravel()

    def bound(self) -> Bound:
        """Σ z vᵀ with |z|² ≤ R and |v|² ≤ R': alone R·R', and two records at most twice as far."""
        longest = self.clip.longest * self.axes_clip.longest
        l1 = _l1(longest, self.centred.binary.width * self.axes.number)
        return Bound((l1, longest), (2 * l1, 4 * longest))


_SLAB = 1 << 14  # records unpacked at once


@dataclass(frozen=True, eq=False)
class Held:
    """The first `items` of a block in the order of `rank`, of which a record counts with the first `limit` it holds.

    `rank` gives the place of each item of the block.
    """

    column: int
    rank: Integers
    items: int
    limit: int

    def kept(self, records: Records) -> tuple[Integers, Integers]:
        """The ranks of what each record counts with, as a sparse block."""
        return _kept_items(records, self.column, self.rank, self.items, self.limit)


class HeldItems(Held):
    def counts(self, records: Records) -> Integers:
        _, ids = self.kept(records)
        return np.bincount(ids, minlength=self.items).astype(np.int64)

    def bound(self) -> Bound:
        """At most L items a record: L alone, 2L apart, or all there are."""
        alone = min(self.limit, self.items)
        apart = min(2 * alone, self.items)
        return Bound((alone, alone), (apart, apart), each=1)


class HeldPairs(Held):
    """How many records hold both of two items: the upper triangle, row by row."""

    def counts(self, records: Records) -> Integers:
        start, ids = self.kept(records)
        counts = np.zeros((self.items, self.items), np.int64)
        _count_pairs(start, ids, counts)
        return counts[np.triu_indices(self.items, 1)]

    def bound(self) -> Bound:
        """At most L items a record: L(L − 1)/2 pairs alone, L(L − 1) apart.

        The latter exceeds the truth where there are fewer than 2L items, so that two records must share some.
        """
        most = min(self.limit, self.items)
        alone = most * (most - 1) // 2
        return Bound((alone, alone), (2 * alone, 2 * alone), each=1)


def _kept_items(
    records: Records, column: int, rank: Integers, items: int, limit: int
) -> tuple[Integers, Integers]:
    """The ranks of each record's first `limit` items among the first `items`, as a sparse block."""
    codes = records.columns[column]
    if isinstance(codes, SparseItems):
        return _first_items(codes.start, codes.ids, rank, items, limit)
    assert isinstance(codes, BitItems), "the caller names a block of items"
    starts, kept = [np.zeros(1, np.int64)], [np.zeros(0, np.int64)]
    for first in range(0, records.rows, _SLAB):
        rows = min(_SLAB, records.rows - first)
        held = unpack_bits(codes.words[:, first // 64 : -(-(first + rows) // 64)], rows).T
        owner, ids = np.nonzero(held)
        start = np.searchsorted(owner, np.arange(rows + 1))
        part_start, part = _first_items(start, ids.astype(np.int32), rank, items, limit)
        starts.append(part_start[1:] + starts[-1][-1])
        kept.append(part)
    return np.concatenate(starts), np.concatenate(kept)


@njit(cache=True)
def _first_items(start, ids, rank, items, limit):  # type: ignore[no-untyped-def]
    rows = start.shape[0] - 1
    new_start = np.zeros(rows + 1, np.int64)
    for r in range(rows):
        number = 0
        for i in range(start[r], start[r + 1]):
            if rank[ids[i]] < items:
                number += 1
        new_start[r + 1] = new_start[r] + min(number, limit)
    kept = np.empty(new_start[rows], np.int64)
    longest = 0
    for r in range(rows):
        longest = max(longest, start[r + 1] - start[r])
    mine = np.empty(longest, np.int64)
    for r in range(rows):
        number = 0
        for i in range(start[r], start[r + 1]):
            place = rank[ids[i]]
            if place < items:
                mine[number] = place
                number += 1
        ordered = np.sort(mine[:number])
        for k in range(new_start[r + 1] - new_start[r]):
            kept[new_start[r] + k] = ordered[k]
    return new_start, kept


@njit(cache=True)
def _count_pairs(start, ids, counts):  # type: ignore[no-untyped-def]
    for r in range(start.shape[0] - 1):
        for a in range(start[r], start[r + 1]):
            for b in range(a + 1, start[r + 1]):
                counts[ids[a], ids[b]] += 1
