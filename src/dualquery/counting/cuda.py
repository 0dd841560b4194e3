"""Counting on a graphics card: bit columns made there, joined and their ones counted; tables as histograms.

What is counted are whole numbers: the same as the processor's, in whatever order the threads of a card add them up.
Conjunctions and parities over columns of codes or bits, and tables over columns of codes, are counted there; anything
else (items in lists, sums within classes, cuts, distances) by the loops of its kind. So is everything as soon as the
card fails: `Cuda.said` then has a sentence for whoever sits before the screen.

A block of threads takes some words of all bit columns into its shared memory and lets all queries run over them, a
thread a query. Thread t begins at word t and goes around: whatever columns neighbouring threads ask for, they read
from different banks. A table that is larger than the card's memory passes through it in slabs.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.card import CardError, Workplace, free_bytes, kernels
from dualquery.queries.conjunctions import Conjunctions, Parities, used_predicates
from dualquery.queries.group import NONE, Predicates, padded
from dualquery.queries.statistics import Countable
from dualquery.queries.tables import Tables
from dualquery.table.records import BitItems, Records
from dualquery.types import Integers

SOURCE = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")
BLOCK = 256  # threads
SHARED = 200 << 10  # bytes of shared memory that a block may use, where the card has so many
TILES = (512, 256, 128, 64, 32, 16)  # words of all columns at once; the more, the less often queries are read
MOST_ROWS = 1 << 31  # at once: counts of a block of threads are 32 bits
MOST_TABLES = 60_000  # of a launch
PART = 0.4  # of the card's free memory, for a slab


class Cuda(Workplace):
    """An engine. What the card does not count, or no longer, is counted by the loops of its kind."""

    instead = "this was counted on the processor"

    def __init__(self) -> None:
        super().__init__()
        self._held: tuple[Any, dict[int, Any]] = (lambda: None, {})  # the last block, and its columns there

    def counts(self, what: Countable, block: Records) -> Integers:
        def otherwise() -> Integers:
            self._held = (lambda: None, {})
            return what.counts(block)

        if block.rows and counted_here(what, block):
            return self.tried(lambda cupy: self._counted(cupy, what, block), otherwise)
        return what.counts(block)

    def _counted(self, cupy: Any, what: Countable, block: Records) -> Integers:
        if isinstance(what, Tables):
            return self._tables(cupy, what, block)
        if isinstance(what, Parities):
            return self._parities(cupy, what, block)
        assert isinstance(what, Conjunctions)
        return self._conjunctions(cupy, what, block)

    def _conjunctions(self, cupy: Any, what: Conjunctions, block: Records) -> Integers:
        asked, predicates = self._asked(cupy, what)
        columns = len(predicates) + 1
        counts = cupy.zeros(what.size, cupy.uint64)
        for first, rows in slabs(block.rows, columns // 8 + 4 * len(block.columns) + 1):
            bits = self._bits(cupy, predicates, block, first, rows)
            join(cupy, bits, asked, counts)
        out: Integers = counts.get().view(np.int64)
        if what.complement is not None:
            out[what.complement] = block.rows - out[what.complement]
        return out

    def _asked(self, cupy: Any, what: Conjunctions) -> tuple[Any, Predicates]:
        """`used_literals` on the card, a column a query."""
        queries, width = what.literals.shape
        source, given = kernels(SOURCE), cupy.asarray(np.ascontiguousarray(what.literals))
        wanted = cupy.zeros(len(what.predicates) + 1, cupy.uint8)  # the first entry takes the padding
        grid = (-(-max(1, queries * width) // BLOCK),)
        source.get_function("mark_used")(grid, (BLOCK,), (given, np.int64(queries * width), wanted))
        number, predicates = used_predicates(what.predicates, wanted.get()[1:] > 0)
        asked = cupy.empty((width, queries), cupy.int32)
        shape = (np.int64(queries), np.int32(width))
        source.get_function("number_literals")(grid, (BLOCK,), (given, *shape, cupy.asarray(number), asked))
        return asked, predicates

    def _parities(self, cupy: Any, what: Parities, block: Records) -> Integers:
        used = np.unique(what.attributes[what.attributes >= 0])
        starts = np.arange(len(used) + 1, dtype=np.int64)
        ones = Predicates(used.astype(np.int32), starts, np.ones(len(used), np.int32))
        places = np.where(what.attributes >= 0, np.searchsorted(used, what.attributes), NONE).astype(np.int32)
        asked = cupy.asarray(np.ascontiguousarray(places.T))
        odd = cupy.zeros(what.size, cupy.uint64)
        kernel, (queries, width) = kernels(SOURCE).get_function("odd_ones"), places.shape
        for first, rows in slabs(block.rows, len(used) // 8 + 4 * len(block.columns) + 1):
            bits = self._bits(cupy, ones, block, first, rows)
            given = (bits, np.int64(bits.shape[1]), asked, np.int32(width), np.int64(queries), odd)
            kernel((-(-32 * queries // BLOCK),), (BLOCK,), given)
        return block.rows - np.asarray(odd.get()).view(np.int64)

    def _tables(self, cupy: Any, what: Tables, block: Records) -> Integers:
        used = sorted({j for members in what.sets for j in members})
        where = {j: i for i, j in enumerate(used)}
        sizes = cupy.asarray(block.domain.sizes[used].astype(np.int32))
        counts = cupy.zeros(what.size, cupy.uint64)
        kernel = kernels(SOURCE).get_function("histograms")
        kernel.max_dynamic_shared_size_bytes = SHARED // 4
        members = padded([tuple(where[j] for j in each) for each in what.sets]).astype(np.int32)
        for first, rows in slabs(block.rows, 8 * len(used)):
            codes = cupy.empty((len(used), rows), cupy.uint32)
            for i, j in enumerate(used):
                codes[i] = self._column(cupy, block, block.domain.column_of(j)[0])[first : first + rows]
            for begin in range(0, len(members), MOST_TABLES):
                some = cupy.asarray(np.ascontiguousarray(members[begin : begin + MOST_TABLES]))
                starts = cupy.asarray(what.starts[begin : begin + len(some) + 1])
                parts = max(1, min(-(-rows // (16 * BLOCK)), 4096 // len(some)))
                given = (codes, np.int64(rows), some, sizes, np.int32(members.shape[1]), starts)
                room = (np.int32(SHARED // 16), counts)
                kernel((parts, len(some)), (BLOCK,), (*given, *room), shared_mem=SHARED // 4)
        return np.asarray(counts.get()).view(np.int64)

    def _bits(self, cupy: Any, predicates: Predicates, block: Records, first: int, rows: int) -> Any:
        """A bit column for each predicate on the card, and last the one of all records that there are."""
        bits = cupy.zeros((len(predicates) + 1, -(-rows // 64)), cupy.uint64)
        starts = np.array(block.domain.starts)
        owner = np.searchsorted(starts, predicates.attribute, side="right") - 1
        for position in np.unique(owner).tolist():
            mine = np.flatnonzero(owner == position)
            codes = block.columns[position]
            if isinstance(codes, BitItems):
                self._copied(cupy, predicates, mine, codes, int(starts[position]), first, rows, bits)
                continue
            size = int(block.domain.sizes[starts[position]])
            column = self._column(cupy, block, position)[first : first + rows]
            self._accepted(cupy, column, accepted_codes(predicates, mine, size), mine, bits)
        everyone = cupy.zeros(rows, cupy.uint8)
        self._accepted(cupy, everyone, np.ones((1, 1), np.uint8), np.array([len(predicates)]), bits)
        return bits

    def _accepted(
        self, cupy: Any, column: Any, accepts: NDArray[np.uint8], places: NDArray[np.integer], bits: Any
    ) -> None:
        kernel = kernels(SOURCE).get_function(f"accept_{column.dtype.itemsize}")
        words = 2 * bits.shape[1]
        given = (column, np.int64(len(column)), cupy.asarray(accepts), np.int32(accepts.shape[1]))
        where = (cupy.asarray(places.astype(np.int32)), np.int32(len(places)), bits, np.int64(words))
        kernel((-(-32 * words // BLOCK),), (BLOCK,), (*given, *where))

    def _copied(
        self,
        cupy: Any,
        predicates: Predicates,
        mine: NDArray[np.intp],
        codes: BitItems,
        attribute: int,
        first: int,
        rows: int,
        bits: Any,
    ) -> None:
        """Items that are bits already; `= 0` occurs in cells of tables."""
        items = predicates.attribute[mine] - attribute
        words = codes.words[items, first // 64 : first // 64 + bits.shape[1]].copy()
        zero = predicates.values[predicates.start[mine]] == 0
        words[zero] = ~words[zero]
        if rows % 64:
            words[:, -1] &= np.uint64((1 << (rows % 64)) - 1)
        bits[cupy.asarray(mine)] = cupy.asarray(words)

    def _column(self, cupy: Any, block: Records, position: int) -> Any:
        """A column of codes on the card; those of the last block stay there, as long as there is room."""
        held, columns = self._held
        if held() is not block:
            columns = {}
            self._held = (weakref.ref(block), columns)
        if position not in columns:
            codes = np.ascontiguousarray(block.columns[position])
            if codes.nbytes > free_bytes() * PART:
                return _Passing(cupy, codes)
            columns[position] = cupy.asarray(codes)
        return columns[position]


class _Passing:
    """A column that is too large to stay: what is asked for is sent to the card."""

    def __init__(self, cupy: Any, codes: NDArray[Any]) -> None:
        self._cupy, self._codes = cupy, codes

    def __getitem__(self, part: slice) -> Any:
        return self._cupy.asarray(self._codes[part])


def join(cupy: Any, bits: Any, literals: Any, counts: Any) -> None:
    """counts[q] += records for which every literal of query q (a column here) holds; all of it lies on the card."""
    (columns, words), (width, queries) = bits.shape, literals.shape
    shape, number = (np.int64(words), np.int32(columns)), (np.int32(width), np.int64(queries))
    tile = tile_for(columns, cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"])
    if tile:
        kernel, shared = kernels(SOURCE).get_function("conjunctions"), 8 * columns * tile
        kernel.max_dynamic_shared_size_bytes = shared
        tiles = -(-words // tile)
        across = max(1, min(-(-queries // (4 * BLOCK)), 4096 // tiles))
        given = (bits, *shape, literals, *number, np.int32(tile), counts)
        kernel((tiles, across), (4 * BLOCK,), given, shared_mem=shared)
    else:
        kernel = kernels(SOURCE).get_function("conjunctions_direct")
        kernel((-(-32 * queries // BLOCK),), (BLOCK,), (bits, *shape, literals, *number, counts))


def counted_here(what: Countable, block: Records) -> bool:
    """Whether the card has a kernel for it: every column that is asked about lies there in codes, or in bits."""
    if isinstance(what, Conjunctions):
        asked = what.predicates.attribute
    elif isinstance(what, Parities):
        asked = what.attributes[what.attributes >= 0]
    elif isinstance(what, Tables):
        asked = np.array([j for members in what.sets for j in members], np.int64)
    else:
        return False
    positions = {block.domain.column_of(int(j))[0] for j in np.unique(asked)}
    kinds = np.ndarray if isinstance(what, Tables) else np.ndarray | BitItems
    return bool(positions) and all(isinstance(block.columns[position], kinds) for position in positions)


def accepted_codes(predicates: Predicates, mine: NDArray[np.intp], size: int) -> NDArray[np.uint8]:
    """[p, code]: whether a predicate accepts a code."""
    out = np.zeros((len(mine), size), np.uint8)
    for row, p in enumerate(mine):
        out[row, predicates.accepted(int(p))] = 1
    return out


def tile_for(columns: int, shared: int) -> int:
    """How many words of all columns fit into shared memory; 0 where too few do."""
    fitting = [tile for tile in TILES if 8 * columns * tile <= min(SHARED, shared)]
    return fitting[0] if fitting else 0


def slabs(rows: int, bytes_a_record: int) -> Iterator[tuple[int, int]]:
    """The first record and the number of records of each slab: as many as the card has room for, 64 at least."""
    step = min(MOST_ROWS, int(free_bytes() * PART) // bytes_a_record) // 64 * 64
    if step < 64:
        raise CardError("the GPU has too little memory free for this")
    for first in range(0, rows, step):
        yield first, min(step, rows - first)
