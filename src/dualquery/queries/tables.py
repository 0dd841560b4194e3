"""Tables (marginals), signed tables, and counting many of them at once.

*Tables* are kept as the set of attributes alone; their cells partition the records.

*Signed tables*: along an attribute of two values the difference of both, along a longer one the counts.

A record lies in one cell of a table, so it moves one entry of the signed table, by one, up or down. The rest of
the table is what smaller sets say: the signed table of S determines the interaction of every B ⊆ S that holds
all binary attributes of S.

*Covering*: many tables are counted through fewer, larger ones.

A table is the sum of any larger table over the attributes that it lacks. Walking over the records costs the same for
a large table as for a small one as long as its cells stay in the processor's cache, so a few sets of attributes are
counted that cover all the sets asked for: 153 tables of up to 4,096 cells hold all 780 pairs of 40 attributes of six
values. Sums of whole numbers, so nothing is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, combinations, pairwise
from math import log, prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.loops import in_shares, njit
from dualquery.queries.binary import count_binary_tables
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.group import (
    NONE,
    Digest,
    Group,
    Predicates,
    ProductRows,
    Sample,
    equalities,
    equality_literal,
    padded,
)
from dualquery.queries.language.formula import texts_of
from dualquery.table.domain import Domain
from dualquery.table.records import BitItems, Records, SparseItems, pack_bits, unpack_bits
from dualquery.types import Integers, Ints, Reals, Set, Words

WORTH_COVERING = 20_000_000  # records times tables: from here on the search for a cover pays
WORTH_MERGING = 64  # tables
_TASTE = 1 << 14  # records that are looked at before all are told apart
Numbers = TypeVar("Numbers", Integers, Reals)

MOST_COVERED = 20_000  # tables: the search for a cover of more takes too long


@dataclass(frozen=True)
class Tables(Group):
    """Every cell of the tables over the given sets of attributes (each set increasing).

    Cells of a table are numbered with its last attribute varying fastest; tables follow one another.
    """

    domain: Domain
    sets: tuple[tuple[int, ...], ...]

    @cached_property
    def starts(self) -> Integers:
        """The number of each table's first cell, and at the end the number of all cells."""
        size_of = self.domain.sizes.tolist().__getitem__  # Python integers: exact, however large
        cells = [prod(map(size_of, members)) for members in self.sets]
        return np.array([*accumulate(cells, initial=0)], dtype=np.int64)

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    def cells_of(self, table: int) -> slice:
        return slice(int(self.starts[table]), int(self.starts[table + 1]))

    def split(self, numbers: Numbers) -> list[Numbers]:
        """One number per cell, as tables."""
        sizes, ends = self._sizes, pairwise(self.starts.tolist())
        return [
            numbers[first:last].reshape([sizes[j] for j in members])
            for members, (first, last) in zip(self.sets, ends, strict=True)
        ]

    def shape_of(self, table: int) -> tuple[int, ...]:
        return tuple([self._sizes[j] for j in self.sets[table]])

    @cached_property
    def _sizes(self) -> list[int]:
        return [int(size) for size in self.domain.sizes]

    def counts(self, records: Records, weights: Integers | None = None) -> Integers:
        """The counts of records that each stand for so many; without weights for themselves."""
        counts = np.zeros(int(self.starts[-1]), np.int64)
        attributes = np.unique(self._members[self._members != NONE])
        used = attributes.tolist()
        if not used:
            counts[:] = records.rows if weights is None else weights.sum()
            return counts
        members = np.where(self._members == NONE, NONE, np.searchsorted(attributes, self._members)).astype(
            np.int32
        )
        if weights is None and fits(self.domain.sizes[used], members):
            bits = pack_bits(attribute_codes(records, used) != 0)
            by_bits = (bits, records.rows, members, self.starts, counts)
            in_shares(count_binary_tables, len(members), *by_bits, least=_worth_sharing(records.rows // 64))
            return counts
        codes, weights = (
            _distinct(records, used, len(self.sets))
            if weights is None
            else (attribute_codes(records, used), weights)
        )
        if len(self.sets) <= MOST_COVERED and len(weights) * len(self.sets) > WORTH_COVERING:
            kept = [tuple(row[: len(each)]) for row, each in zip(members.tolist(), self.sets, strict=True)]
            count_covered(codes, weights, self.domain.sizes[used], self._cover, kept, self.starts, counts)
            return counts
        counted = (codes, weights, self.domain.sizes[used], members, self.starts, counts)
        in_shares(count_tables, len(members), *counted, least=_worth_sharing(len(weights)))
        return counts

    @cached_property
    def _cover(self) -> Cover:
        """Over the attributes that occur, numbered in their order."""
        used = sorted({j for members in self.sets for j in members})
        kept = [tuple(used.index(j) for j in members) for members in self.sets]
        return cover_of(kept, [int(size) for size in self.domain.sizes[used]])

    def add_answers(self, record: Ints, answers: Ints) -> None:
        sizes = self.domain.sizes
        for members, start in zip(self.sets, self.starts[:-1], strict=True):
            cell = 0
            for j in members:
                cell = cell * int(sizes[j]) + int(record[j])
            answers[start + cell] += 1

    def scope(self) -> Ints:
        return padded([*dict.fromkeys(sorted(self.sets))])

    def table_starts(self) -> Integers:
        return self.starts

    def most_satisfied(self) -> int:
        return len(self.sets)

    def most_differing(self) -> int:
        return 2 * int((np.diff(self.starts) > 1).sum())

    def take(self, indices: Integers) -> Conjunctions:
        return Conjunctions(self.domain, self.predicates, self._literals(indices))

    def sampled(self, rng: np.random.Generator, *, queries: int, cells: int) -> Sample:
        order = rng.permutation(len(self.sets))
        kept = order[np.cumsum(np.diff(self.starts)[order]) <= cells]
        chosen = sorted((kept if len(kept) else order[:1]).tolist())
        runs = [np.arange(self.starts[t], self.starts[t + 1]) for t in chosen]
        return Sample(np.concatenate(runs), Tables(self.domain, tuple(self.sets[t] for t in chosen)))

    def in_parts(self, cells: int) -> Iterator[Tables]:
        first = 0
        while first < len(self.sets):
            last = int(np.searchsorted(self.starts, self.starts[first] + cells, side="right")) - 1
            last = max(last, first + 1)
            yield Tables(self.domain, self.sets[first:last])
            first = last

    def describe(self, digest: Digest) -> None:
        digest.add_integers("tables", np.array([len(members) for members in self.sets], np.int32))
        digest.add_integers("members", np.array([j for members in self.sets for j in members], np.int32))

    @property
    def predicates(self) -> Predicates:
        return self._equalities[0]

    def texts(self, indices: Integers) -> list[str]:
        return texts_of(self.domain, self.products(indices))

    def products(self, indices: Integers) -> ProductRows:
        return ProductRows.of_products(self.predicates, self._literals(indices))

    @cached_property
    def _equalities(self) -> tuple[Predicates, Integers]:
        """`attribute = value` for the attributes that occur, and the number of each attribute's first."""
        attributes = np.unique([j for members in self.sets for j in members]).astype(np.int32)
        predicates, numbers = equalities(self.domain, attributes)
        first = np.zeros(self.domain.width, np.int64)
        first[attributes] = numbers
        return predicates, first

    @cached_property
    def _members(self) -> Ints:
        return padded(list(self.sets))

    def _literals(self, cells: Integers) -> Ints:
        """Cells as rows of literals; the number of a cell varies fastest in the last attribute."""
        sizes = self.domain.sizes.astype(np.int64)
        table = np.searchsorted(self.starts, cells, side="right") - 1
        rest = cells - self.starts[table]
        attributes = self._members[table]
        out = np.full(attributes.shape, NONE, np.int32)
        for column in range(attributes.shape[1] - 1, -1, -1):
            attribute = attributes[:, column]
            present = attribute != NONE
            size = np.where(present, sizes[attribute], 1)
            rest, code = np.divmod(rest, size)
            literal = equality_literal(self._equalities[1][attribute], size, code)
            out[:, column] = np.where(present, literal, NONE)
        return out


MOST_ORDER = 3
LEAST_TABLES = 16  # below it the general loop is as fast


def fits(sizes: NDArray[np.integer], members: NDArray[np.integer]) -> bool:
    """Whether these tables can be counted this way, and gain by it."""
    return len(members) >= LEAST_TABLES and members.shape[1] <= MOST_ORDER and bool(np.all(sizes == 2))


def attribute_codes(records: Records, attributes: list[int]) -> NDArray[np.uint16 | np.uint32]:
    domain = records.domain
    kind = np.uint16 if domain.sizes[attributes].max() <= 1 << 16 else np.uint32
    out = np.zeros((len(attributes), records.rows), kind)
    for i, j in enumerate(attributes):
        position, _ = domain.column_of(j)
        codes = records.columns[position]
        item = j - domain.starts[position]
        if isinstance(codes, BitItems):
            out[i] = unpack_bits(codes.words[item : item + 1], records.rows)[0]
        elif isinstance(codes, SparseItems):
            owners = np.searchsorted(codes.start, np.flatnonzero(codes.ids == item), side="right") - 1
            out[i, owners] = 1
        else:
            out[i] = codes
    return out


def distinct_rows(codes: NDArray[np.unsignedinteger]) -> tuple[NDArray[np.unsignedinteger], Integers]:
    """The distinct records (columns of `codes`) with how often each occurs.

    Binned tables repeat themselves, and a table is counted once a distinct record. Records are told
    apart by a 64-bit hash; should two different ones ever share it, nothing is merged.
    """
    rows = codes.shape[1]
    if rows > _TASTE:
        other = np.count_nonzero(np.diff(np.sort(_keys(codes[:, :_TASTE]))))  # than the one before it
        if 1 + other > _TASTE - _TASTE**2 // (4 * rows):
            return codes, np.ones(rows, np.int64)  # half as many repeat as would if half of all did
    key = _keys(codes)
    _, index, inverse, weights = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    if len(index) > rows // 2 or any(np.any(column[index][inverse] != column) for column in codes):
        return codes, np.ones(rows, np.int64)
    return np.ascontiguousarray(codes[:, index]), weights.astype(np.int64)


def _distinct(records: Records, used: list[int], tables: int) -> tuple[NDArray[np.unsignedinteger], Integers]:
    """The same of some attributes of records; what was merged once is kept for all who count them again.

    Few tables are counted sooner than equal records are found.
    """
    known, codes, weights = records.kept.get("distinct", ((), None, None))
    if not set(used) <= set(known):
        if tables < WORTH_MERGING:
            return attribute_codes(records, used), np.ones(records.rows, np.int64)
        codes, weights = distinct_rows(attribute_codes(records, used))
        if len(weights) < records.rows:
            records.kept["distinct"] = used, codes, weights
    elif used != known:
        codes = codes[np.searchsorted(known, used)]
    return codes, weights


def _keys(codes: NDArray[np.unsignedinteger]) -> Words:
    """A 64-bit hash of each record."""
    key = np.zeros(codes.shape[1], np.uint64)
    for column in codes:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    return key


def centred(table: Reals, first: int = 0) -> Reals:
    """A table less its means along each attribute; the axes before the first are those of several tables."""
    for axis in range(first, table.ndim):
        # `mean`, without its preparations
        table = table - np.add.reduce(table, axis=axis, keepdims=True) / table.shape[axis]
    return table


def alike(function: Callable[[NDArray[Any]], NDArray[Any]], tables: Sequence[NDArray[Any]]) -> list[Any]:
    """The function of every table; those of one shape come to it at once, along a first axis."""
    places: dict[tuple[int, ...], list[int]] = {}
    for place, table in enumerate(tables):
        places.setdefault(table.shape, []).append(place)
    made: dict[int, NDArray[Any]] = {}
    for where in places.values():
        made.update(zip(where, function(np.stack([tables[place] for place in where])), strict=True))
    return [made[place] for place in range(len(tables))]


def signed(table: Numbers, first: int = 0) -> Numbers:
    """⊗_{k_j = 2} (1, −1) ⊗_{k_j ≠ 2} Id · table; a contracted axis keeps the length one.

    The axes before the first are those of several tables.
    """
    for axis in range(first, table.ndim):
        if table.shape[axis] == 2:
            one, other = np.split(table, 2, axis=axis)
            table = one - other
    return table


def signed_shape(sizes: Sequence[int]) -> tuple[int, ...]:
    """The shape of the signed table over attributes of these sizes."""
    return tuple(1 if size == 2 else int(size) for size in sizes)


def signed_entries(sizes: Sequence[int]) -> int:
    return prod(signed_shape(sizes))


MOST_CELLS = 1 << 13  # of a covering table: its counts stay in the cache
_SHARED = 100_000  # cells that are worked out, from which a second thread pays
_AT_ONCE = 2048  # records whose cells are worked out before they are counted


@dataclass(frozen=True)
class Cover:
    """Larger sets, and for each the places (among the sets asked for) of those that are read off it."""

    sets: tuple[Set, ...]
    read_off: tuple[tuple[int, ...], ...]


def cover_of(sets: Sequence[Set], sizes: Sequence[int]) -> Cover:
    """Greedily: from the largest set that is left, take the attribute that covers most others for its size."""
    place = {members: number for number, members in enumerate(sets)}
    if len(place) < len(sets):  # the same set twice: each is read off where the other is
        return Cover(tuple(sets), tuple((number,) for number in range(len(sets))))
    left = set(place)
    orders = sorted({len(members) for members in sets})
    attributes = sorted({j for members in sets for j in members})
    chosen: list[Set] = []
    read_off: list[tuple[int, ...]] = []
    for members in sorted(sets, key=lambda s: (-prod(sizes[j] for j in s), s)):
        if members not in left:
            continue
        grown, found = _grown(members, left, orders, attributes, sizes)
        left -= found
        chosen.append(grown)
        read_off.append(tuple(sorted(place[each] for each in found)))
    return Cover(tuple(chosen), tuple(read_off))


def _grown(
    members: Set, left: set[Set], orders: list[int], attributes: list[int], sizes: Sequence[int]
) -> tuple[Set, set[Set]]:
    """A set grown while its table stays small, and the sets that it now contains."""
    cells = prod(sizes[j] for j in members)
    found = {
        each
        for order in orders
        if order <= len(members)
        for each in combinations(members, order)
        if each in left
    }
    while True:
        best: tuple[float, int, list[Set]] = (0.0, -1, [])
        for j in attributes:
            if j in members or cells * sizes[j] > MOST_CELLS:
                continue
            more = [
                each
                for order in orders
                for others in combinations(members, order - 1)
                if (each := tuple(sorted((*others, j)))) in left
            ]
            worth = len(more) / log(sizes[j] + 1)
            if worth > best[0]:
                best = (worth, j, more)
        if not best[2]:
            return members, found
        members, cells = tuple(sorted((*members, best[1]))), cells * sizes[best[1]]
        found.update(best[2])


def _worth_sharing(rows: int) -> int:
    """The least number of tables over so many records."""
    return 1 + _SHARED // (rows + 1)


def count_covered(
    codes: NDArray[np.unsignedinteger],
    weights: Integers,
    sizes: NDArray[np.integer],
    cover: Cover,
    sets: Sequence[Set],
    starts: Integers,
    counts: Integers,
) -> None:
    """counts[starts[t] + cell] += the weight of the records in that cell of sets[t]."""
    width = max(len(members) for members in cover.sets)
    rows = np.array([(*members, *[NONE] * (width - len(members))) for members in cover.sets], np.int64)
    cells = [prod(int(sizes[j]) for j in members) for members in cover.sets]
    begins = np.concatenate([[0], np.cumsum(cells)]).astype(np.int64)
    counted = np.zeros(int(begins[-1]), np.int64)
    given = (codes, weights, np.asarray(sizes, np.int64), rows, begins, counted)
    in_shares(count_tables, len(rows), *given, least=_worth_sharing(len(weights)))
    for members, first, last, places in zip(cover.sets, begins, begins[1:], cover.read_off, strict=False):
        table = counted[first:last].reshape([int(sizes[j]) for j in members])
        for place in places:
            beside = tuple(axis for axis, j in enumerate(members) if j not in sets[place])
            counts[starts[place] : starts[place + 1]] += table.sum(axis=beside).ravel()


@njit(cache=True)
def count_tables(lower, upper, codes, weights, sizes, members, start, counts):  # type: ignore[no-untyped-def]
    """counts[start[t] + cell] += the weight of the records in that cell, for each set of columns members[t].

    The cells of some records are worked out at once, so that the loop becomes vector instructions.
    """
    width = members.shape[1]
    rows = weights.shape[0]
    for t in range(lower, upper):
        cells = counts[start[t] : start[t + 1]]
        place = np.empty(_AT_ONCE, np.int32)
        for first in range(0, rows, _AT_ONCE):
            some = min(_AT_ONCE, rows - first)
            for r in range(some):
                place[r] = 0
            for k in range(width):
                j = members[t, k]
                if j >= 0:
                    column = codes[j, first : first + some]
                    size = np.int32(sizes[j])
                    for r in range(some):
                        place[r] = place[r] * size + np.int32(column[r])
            weight = weights[first : first + some]
            for r in range(some):
                cells[place[r]] += weight[r]
