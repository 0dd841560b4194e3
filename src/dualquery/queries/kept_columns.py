"""Records that are asked one question at a time: their bit columns are kept, so that a question is a few ANDs.

What is kept depends on which questions were asked, never on what the records hold. Every loop runs over all words,
whatever they hold, and none runs in parallel: the time of a count does not depend on what is counted, and several
threads may count at once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable

import numpy as np
from numpy.typing import NDArray

from dualquery.loops import njit
from dualquery.queries.bit_columns import predicate_bits
from dualquery.queries.group import NONE, Group, NotProducts, Predicates, ProductRows
from dualquery.queries.question import CellMeans
from dualquery.queries.tables import Tables
from dualquery.table.records import BitItems, Records, SparseItems, pack_bits, unpack_bits
from dualquery.types import Integers, Ints, Words

MOST_BYTES = 256 << 20  # kept at once
MOST_ROWS = 1 << 22  # whose cells are kept; of more they are worked out some at a time

_ONE = np.ones(1, np.int32)


class KeptColumns:
    """Some records, and the bit columns and cells that questions about them have needed. Not for several threads."""

    def __init__(
        self,
        records: Records,
        *,
        most_bytes: int = MOST_BYTES,
        stored: Callable[[NDArray[np.integer]], NDArray[np.integer]] = lambda column: column,
    ) -> None:
        """`stored` puts a column where it is kept, for records that do not fit into memory."""
        self.records = records
        self._most_bytes = most_bytes
        self._stored = stored
        self._kept: OrderedDict[Hashable, NDArray[np.integer]] = OrderedDict()
        self._bytes = 0

    def counts(self, group: Group) -> Integers:
        """The count of each query of a group: what `group.counts` gives, sooner where the group is small."""
        if isinstance(group, Tables) and len(group.sets) == 1:
            return self.cell_counts(group)
        rows = group.products(np.arange(group.size, dtype=np.int64))
        counts = np.zeros(group.size, np.int64)
        for place, _, count in self._masks(rows):
            counts[place] = count
        return counts

    def mask(self, group: Group) -> Words:
        """The records that the only query of a group holds for, one bit each."""
        ((_, mask, _),) = self._masks(group.products(np.zeros(1, np.int64)))
        return mask

    def mass(self, group: Group, weights: Integers) -> Integers:
        """The weight of the records that each query holds for; a table's whole, or a single query's."""
        if isinstance(group, Tables):
            sums = np.zeros(group.size, np.int64)
            add_weights(self.cells(group), weights, sums)
            return sums
        return np.array([weights @ self.given(group)], np.int64)

    def given(self, group: Group) -> Integers:
        """What the only query of a group gives each record, 0 to its unit."""
        if isinstance(group, CellMeans):
            return group.numbers[self.cells(group.table)]
        if isinstance(group, NotProducts):
            return group.given(self.records)
        bits = self.mask(group).view(np.uint8)
        return np.unpackbits(bits, count=self.records.rows, bitorder="little").astype(np.int64)

    def cell_counts(self, table: Tables) -> Integers:
        if self.records.rows <= MOST_ROWS:
            return np.bincount(self.cells(table), minlength=table.size)
        (members,), sums = table.sets, np.zeros(table.size, np.int64)
        for first in range(0, self.records.rows, MOST_ROWS):
            last = min(first + MOST_ROWS, self.records.rows)
            sums += np.bincount(self._joint_codes(members, first, last), minlength=table.size)
        return sums

    def cells(self, table: Tables) -> NDArray[np.integer]:
        (members,) = table.sets
        return self._keep(("cells", members), lambda: self._joint_codes(members, 0, self.records.rows))

    def _joint_codes(self, members: tuple[int, ...], first: int, last: int) -> NDArray[np.integer]:
        cells = np.zeros(last - first, np.int64)
        for j in members:
            cells = cells * int(self.records.domain.sizes[j]) + self._codes(j, first, last)
        return cells.astype(np.int32)

    def _codes(self, attribute: int, first: int, last: int) -> NDArray[np.integer]:
        """The codes of some records, the first a multiple of 64."""
        codes = self.records.columns[self.records.domain.column_of(attribute)[0]]
        if isinstance(codes, SparseItems | BitItems):
            bits = self._column(attribute, _ONE)
            return unpack_bits(bits[None, first // 64 : -(-last // 64)], last - first)[0]
        return codes[first:last]

    def _masks(self, rows: ProductRows) -> list[tuple[int, Words, int]]:
        everyone = self._everyone()
        masks: list[tuple[int, Words]] = []
        for place, literals, complement in zip(
            rows.positions.tolist(), rows.literals.tolist(), rows.complement.tolist(), strict=True
        ):
            mask = everyone.copy()
            for literal in literals:
                if literal != NONE:
                    p = literal >> 1
                    column = self._column(int(rows.predicates.attribute[p]), rows.predicates.accepted(p))
                    mask &= ~column if literal & 1 else column
            masks.append((place, everyone ^ mask if complement else mask))
        for place, attributes in zip(rows.parity_positions.tolist(), rows.parities.tolist(), strict=True):
            mask = everyone.copy()
            for j in attributes:
                if j != NONE:
                    mask ^= self._column(j, _ONE)
            masks.append((place, mask))
        return [(place, mask, int(np.bitwise_count(mask).sum())) for place, mask in masks]

    def _everyone(self) -> Words:
        return self._keep("all", lambda: pack_bits(np.ones((1, self.records.rows), np.bool_))[0]).view(
            np.uint64
        )

    def _column(self, attribute: int, accepted: Ints) -> Words:
        values = tuple(accepted.tolist())
        return self._keep((attribute, values), lambda: self._bits(attribute, values)).view(np.uint64)

    def _bits(self, attribute: int, values: tuple[int, ...]) -> Words:
        codes, rows = self.records.columns[self.records.domain.column_of(attribute)[0]], self.records.rows
        if isinstance(codes, SparseItems | BitItems):
            return predicate_bits(Predicates.of([(attribute, values)]), self.records, 0, rows)[0]
        accepted = np.zeros(int(self.records.domain.sizes[attribute]), np.bool_)
        accepted[list(values)] = True
        return pack_bits(accepted[codes][None])[0]

    def _keep(self, key: Hashable, make: Callable[[], NDArray[np.integer]]) -> NDArray[np.integer]:
        known = self._kept.get(key)
        if known is not None:
            self._kept.move_to_end(key)
            return known
        made = self._kept[key] = self._stored(make())
        self._bytes += made.nbytes
        while self._bytes > self._most_bytes and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return made


@njit(cache=True)
def add_weights(cells, weights, sums):  # type: ignore[no-untyped-def]
    """sums[cell of row r] += weight of row r."""
    for r in range(cells.shape[0]):
        sums[cells[r]] += weights[r]
