"""Tables (marginals): every cell over some attributes, kept as the set of attributes alone.

The cells partition the records: a record lies in exactly one of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.queries import binary_tables
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.digest import Digest
from dualquery.queries.group import Group, Integers, ProductRows, Progress, Sample, no_progress, padded
from dualquery.queries.kernels import count_tables
from dualquery.queries.language.texts import texts_of
from dualquery.queries.predicates import NONE, Predicates, equalities, equality_literal
from dualquery.table.domain import Domain
from dualquery.table.records import BitItems, Records, SparseItems, unpack_bits


@dataclass(frozen=True)
class Tables:
    """Every cell of the tables over the given sets of attributes (each set increasing).

    Cells of a table are numbered with its last attribute varying fastest; tables follow one another.
    """

    domain: Domain
    sets: tuple[tuple[int, ...], ...]

    unit = 1

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The number of each table's first cell, and at the end the number of all cells."""
        sizes = self.domain.sizes.tolist()  # Python integers: exact, however large
        cells = (prod(sizes[j] for j in members) for members in self.sets)
        return np.array([*accumulate(cells, initial=0)], dtype=np.int64)

    @property
    def size(self) -> int:
        return int(self.starts[-1])

    def cells_of(self, table: int) -> slice:
        """Where the cells of a table stand."""
        return slice(int(self.starts[table]), int(self.starts[table + 1]))

    def shape_of(self, table: int) -> tuple[int, ...]:
        """The number of values along each attribute of a table."""
        return tuple(int(self.domain.sizes[j]) for j in self.sets[table])

    def counts(self, records: Records, progress: Progress = no_progress) -> Integers:
        counts = np.zeros(self.size, np.int64)
        used = sorted({j for members in self.sets for j in members})
        if not used:
            counts[:] = records.rows
            return counts
        where = {j: i for i, j in enumerate(used)}
        members = padded([tuple(where[j] for j in members) for members in self.sets])
        if binary_tables.fits(self.domain.sizes[used], members):
            bits = binary_tables.bit_rows(attribute_codes(records, used))
            binary_tables.count_binary_tables(bits, records.rows, members, self.starts, counts)
            progress(len(members), len(members))
            return counts
        codes, weights = distinct_rows(attribute_codes(records, used))
        step = max(1, len(members) // 20)
        for first in range(0, len(members), step):
            part = slice(first, first + step)
            starts = self.starts[first : first + len(members[part]) + 1]
            count_tables(codes, weights, self.domain.sizes[used], members[part], starts, counts)
            progress(min(first + step, len(members)), len(members))
        return counts

    def add_answers(self, record: NDArray[np.int32], answers: NDArray[np.int32]) -> None:
        sizes = self.domain.sizes
        for members, start in zip(self.sets, self.starts[:-1], strict=True):
            cell = 0
            for j in members:
                cell = cell * int(sizes[j]) + int(record[j])
            answers[start + cell] += 1

    def scope(self) -> NDArray[np.int32]:
        return padded([*dict.fromkeys(sorted(self.sets))])

    def table_starts(self) -> NDArray[np.int64]:
        return self.starts

    def most_satisfied(self) -> int:
        """One cell of each table."""
        return len(self.sets)

    def most_differing(self) -> int:
        """Two cells of each table that has two."""
        return 2 * int((np.diff(self.starts) > 1).sum())

    def take(self, indices: NDArray[np.int64]) -> Conjunctions:
        return Conjunctions(self.domain, self.predicates, self._literals(indices))

    def sampled(self, rng: np.random.Generator, *, queries: int, cells: int) -> Sample:
        order = rng.permutation(len(self.sets))
        kept = order[np.cumsum(np.diff(self.starts)[order]) <= cells]
        chosen = sorted((kept if len(kept) else order[:1]).tolist())
        runs = [np.arange(self.starts[t], self.starts[t + 1]) for t in chosen]
        return Sample(np.concatenate(runs), Tables(self.domain, tuple(self.sets[t] for t in chosen)))

    def in_parts(self, cells: int) -> Iterator[Group]:
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

    def texts(self, indices: NDArray[np.int64]) -> list[str]:
        return texts_of(self.domain, self.products(indices))

    def products(self, indices: NDArray[np.int64]) -> ProductRows:
        return ProductRows.of_products(self.predicates, self._literals(indices))

    @cached_property
    def _equalities(self) -> tuple[Predicates, NDArray[np.int64]]:
        """`attribute = value` for the attributes that occur, and the number of each attribute's first."""
        attributes = np.unique([j for members in self.sets for j in members]).astype(np.int32)
        predicates, numbers = equalities(self.domain, attributes)
        first = np.zeros(self.domain.width, np.int64)
        first[attributes] = numbers
        return predicates, first

    @cached_property
    def _members(self) -> NDArray[np.int32]:
        return padded(list(self.sets))

    def _literals(self, cells: NDArray[np.int64]) -> NDArray[np.int32]:
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


def attribute_codes(records: Records, attributes: list[int]) -> NDArray[np.uint16 | np.uint32]:
    """The codes of some attributes, one row an attribute."""
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
    key = np.zeros(rows, np.uint64)
    for column in codes:
        key = (key ^ column.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        key ^= key >> np.uint64(29)
    _, index, inverse, weights = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
    if len(index) > rows // 2 or any(np.any(column[index][inverse] != column) for column in codes):
        return codes, np.ones(rows, np.int64)
    return np.ascontiguousarray(codes[:, index]), weights.astype(np.int64)


def centred(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """A table less its means along each attribute."""
    for axis in range(table.ndim):
        table = table - table.mean(axis=axis, keepdims=True)
    return table
