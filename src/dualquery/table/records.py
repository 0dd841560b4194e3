"""Encoded records: integers only, column by column, sparse where the table is sparse.

A categorical or numeric column is one array of codes of the smallest unsigned type; of a number in a bin that holds
several, records also know the place inside it. A block of
items is kept either *sparse* (the ids of each record's items) or as *bits* (one row of words per
item), whichever the source had.

What is charged for a query is how far one record can move its count, so records must be what the
domain says: `Records` checks that when it is made, for all columns at once. The arrays are not copied;
nobody may write to them afterwards.

Where in its bin a number lies: what a record says of a number besides its code.

A place is a whole number from 0 to 2·HALF, at the lower end of the bin and at the upper: of x in a bin from a to b it
is the nearest to 2·HALF · (x − a)/(b − a). In units (whole numbers, or so many decimals) a and b are the first and
the last number of the bin; where they are the same there is one place, the middle. Numbers beyond the edges were
clamped to the ends before. A missing number has the middle, too.

Records have places where they were encoded from cells, for columns of numbers of whose bins one at least holds more
than one. Dates have none. A release has places as well: of code and place follows the number that is written
into it (`numbers_at`), and encoding that number gives both again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.table.columns import Signed
from dualquery.table.domain import Column, Domain, Items
from dualquery.table.numbers import Numeric, rounded_inside
from dualquery.types import Integers, Reals

Codes = NDArray[np.unsignedinteger]

_COLUMNS = 256  # of a matrix, packed at once
_SPREAD = 1 << 26  # bits spread out at once


@dataclass(frozen=True)
class SparseItems:
    """Record r holds the items ids[start[r] : start[r + 1]], counted from zero, each once, sorted."""

    start: NDArray[np.int64]
    ids: NDArray[np.int32]


@dataclass(frozen=True)
class BitItems:
    """Bit r % 64 of words[i, r // 64] says whether record r holds item i; bits past the end are zero."""

    words: NDArray[np.uint64]


ColumnCodes = Codes | SparseItems | BitItems


def item_counts(codes: ColumnCodes, count: int) -> NDArray[np.int64]:
    """How many records hold each of so many items."""
    if isinstance(codes, SparseItems):
        return np.bincount(codes.ids, minlength=count)
    assert isinstance(codes, BitItems), "a block of items is sparse or bits"
    return np.bitwise_count(codes.words).sum(axis=1, dtype=np.int64)


@dataclass(frozen=True)
class Records:
    """`rows` records over a domain, one entry of `columns` per column of the domain.

    `records_per_person` is set where nobody has more records than that (`persons.kept_rows`). `places` say where in
    its bin each number lies (`table.records`), for the columns where that can differ; it is empty where nobody knows.
    """

    domain: Domain
    rows: int
    columns: tuple[ColumnCodes, ...]
    records_per_person: int | None = None
    places: tuple[Places | None, ...] = ()

    @cached_property
    def kept(self) -> dict[str, Any]:
        """Room for what others work out of these records, and would work out again."""
        return {}

    def __post_init__(self) -> None:
        if self.rows < 0 or len(self.columns) != len(self.domain.columns):
            raise DataError("records need a number of rows, and one entry for each column of their domain")
        for column, codes in zip(self.domain.columns, self.columns, strict=True):
            _check(column, codes, self.rows)
        if self.places:
            _check_places(self.domain, self.places, self.rows)

    @staticmethod
    def from_rows(domain: Domain, codes: NDArray[np.integer]) -> Records:
        """Records from a matrix with a row per record and a column per attribute."""
        codes = np.asarray(codes)
        if codes.ndim != 2 or codes.shape[1] != domain.width or codes.dtype.kind not in "iub":
            raise DataError("a matrix of records needs whole numbers, with one column for each attribute")
        # Before they are narrowed to the smallest type, where 256 would become 0.
        if codes.size and ((codes.min(axis=0) < 0).any() or (codes.max(axis=0) >= domain.sizes).any()):
            raise DataError("a matrix of records holds a code that its attribute does not have")
        columns: list[ColumnCodes] = []
        for position, column in enumerate(domain.columns):
            first, last = domain.starts[position], domain.starts[position + 1]
            part = codes[:, first:last]
            if isinstance(column, Items):
                columns.append(BitItems(_packed_columns(part)))
            else:
                columns.append(np.ascontiguousarray(part[:, 0], dtype=smallest_type(len(column.labels))))
        return Records(domain, codes.shape[0], tuple(columns))

    def to_rows(self) -> NDArray[np.uint32]:
        """The matrix with a row per record and a column per attribute. For small tables."""
        out = np.zeros((self.rows, self.domain.width), np.uint32)
        for position, codes in enumerate(self.columns):
            first, last = self.domain.starts[position], self.domain.starts[position + 1]
            if isinstance(codes, SparseItems):
                owner = np.repeat(np.arange(self.rows), np.diff(codes.start))
                out[owner, first + codes.ids.astype(np.int64)] = 1
            elif isinstance(codes, BitItems):
                out[:, first:last] = unpack_bits(codes.words, self.rows).T
            else:
                out[:, first] = codes
        return out

    @property
    def bytes(self) -> int:
        parts: list[Any] = [each for each in self.places if each is not None]
        for codes in self.columns:
            if isinstance(codes, SparseItems):
                parts += [codes.start, codes.ids]
            else:
                parts.append(codes.words if isinstance(codes, BitItems) else codes)
        return sum(each.nbytes for each in parts)

    def take(self, rows: NDArray[np.int64]) -> Records:
        """Some records, in this order; one may be taken more than once."""
        places = taken_places(self.places, rows)
        return Records(self.domain, len(rows), taken(self.columns, rows), places=places)

    def with_more(self, more: Records) -> Records:
        """The records, and behind them others of the same domain."""
        columns = tuple(
            _joined(first, self.rows, second, more.rows)
            for first, second in zip(self.columns, more.columns, strict=True)
        )
        places: tuple[Places | None, ...] = ()
        if self.places and more.places:
            pairs = zip(self.places, more.places, strict=True)
            places = tuple(None if a is None or b is None else np.concatenate([a, b]) for a, b in pairs)
        return Records(self.domain, self.rows + more.rows, columns, places=places)


def taken_places(places: tuple[Places | None, ...], rows: NDArray[np.int64]) -> tuple[Places | None, ...]:
    return tuple(None if each is None else each[rows] for each in places)


def taken(columns: tuple[ColumnCodes, ...], rows: NDArray[np.int64]) -> tuple[ColumnCodes, ...]:
    return tuple(_taken(codes, rows) for codes in columns)


def _taken(codes: ColumnCodes, rows: NDArray[np.int64]) -> ColumnCodes:
    if isinstance(codes, SparseItems):
        lengths = codes.start[rows + 1] - codes.start[rows]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(start[-1]) + np.repeat(codes.start[rows] - start[:-1], lengths)
        return SparseItems(start, codes.ids[places])
    if isinstance(codes, BitItems):
        byte, bit = rows >> 3, np.uint8(1) << (rows & 7).astype(np.uint8)
        parts = [  # a few items at a time, so that the bits are never all spread out
            pack_bits(codes.words[first : first + 64].view(np.uint8)[:, byte] & bit != 0)
            for first in range(0, len(codes.words), 64)
        ]
        return BitItems(np.concatenate(parts))
    return codes[rows]


def _joined(first: ColumnCodes, rows: int, second: ColumnCodes, more: int) -> ColumnCodes:
    """Codes of so many rows, and behind them those of so many more."""
    if isinstance(first, SparseItems):
        lists = second if isinstance(second, SparseItems) else as_lists(cast("BitItems", second), more)
        start = np.concatenate([first.start, first.start[-1] + lists.start[1:]])
        return SparseItems(start, np.concatenate([first.ids, lists.ids]))
    if isinstance(first, BitItems):
        assert isinstance(second, BitItems)
        bits = [unpack_bits(first.words, rows), unpack_bits(second.words, more)]
        return BitItems(pack_bits(np.concatenate(bits, axis=1) != 0))
    assert isinstance(second, np.ndarray)
    joined: Codes = np.concatenate([first, second])
    return joined


def _check(column: Column, codes: ColumnCodes, rows: int) -> None:
    """Refuses what the domain does not allow: every count rests on it."""
    where = f"the records of column '{column.name}'"
    if not isinstance(column, Items):
        size = len(column.labels)
        if not isinstance(codes, np.ndarray) or codes.shape != (rows,) or codes.dtype.kind != "u":
            raise DataError(f"{where} must be one unsigned code a record")
        if size <= np.iinfo(codes.dtype).max and rows and codes.max() >= size:
            raise DataError(f"{where} hold a code that the domain does not have")
    elif isinstance(codes, SparseItems):
        _check_sparse(where, codes, rows, column.count)
    elif isinstance(codes, BitItems):
        _check_bits(where, codes.words, rows, column.count)
    else:
        raise DataError(f"{where} must be sparse items or bits")


def _check_places(domain: Domain, places: tuple[Places | None, ...], rows: int) -> None:
    """How far a record moves a sum of places rests on this."""
    if len(places) != len(domain.columns):
        raise DataError("places need one entry for each column of the domain")
    for column, each in zip(domain.columns, places, strict=True):
        where = f"the places of column '{column.name}'"
        if (each is None) == has_places(column):
            raise DataError(f"{where} must be there where its bins hold more than one number, and only there")
        if each is not None and (
            not isinstance(each, np.ndarray) or each.dtype != np.uint16 or each.shape != (rows,)
        ):
            raise DataError(f"{where} must be one number of 16 bits a record")
        if each is not None and rows and int(each.max()) > MOST:
            raise DataError(f"{where} must be at most {MOST:,}")


def _check_sparse(where: str, items: SparseItems, rows: int, count: int) -> None:
    start, ids = items.start, items.ids
    if not (_whole(start, (rows + 1,)) and _whole(ids, (len(ids),))):
        raise DataError(f"{where} must have whole item ids, and one start more than there are records")
    if start[0] != 0 or start[-1] != len(ids) or (start[1:] < start[:-1]).any():
        raise DataError(f"{where} must lie one behind the other, from the first id to the last")
    if len(ids) and (ids.min() < 0 or ids.max() >= count):
        raise DataError(f"{where} hold an item that the domain does not have")
    for first in range(0, len(ids) - 1, _SPREAD):  # some at a time: all may be more than memory holds
        last = min(first + _SPREAD, len(ids) - 1)
        falls = np.flatnonzero(ids[first + 1 : last + 1] <= ids[first:last]) + first + 1
        # Only where a record begins may an id be no larger than the one before it.
        begins = start[np.minimum(np.searchsorted(start, falls), rows)]
        if (begins != falls).any():
            raise DataError(f"{where} must list each item of a record once, in order")


def _check_bits(where: str, words: NDArray[np.uint64], rows: int, count: int) -> None:
    if (
        not isinstance(words, np.ndarray)
        or words.dtype != np.uint64
        or words.shape != (count, -(-rows // 64))
    ):
        raise DataError(f"{where} must be a row of 64-bit words for each item")
    if rows % 64 and (words[:, -1] >> np.uint64(rows % 64)).any():
        raise DataError(f"{where} have bits set past the last record")


def _whole(array: Any, shape: tuple[int, ...]) -> bool:
    return isinstance(array, np.ndarray) and array.shape == shape and array.dtype.kind in "iu"


def smallest_type(size: int) -> type[np.unsignedinteger]:
    """The smallest unsigned type that can number `size` values."""
    kinds = (np.uint8, np.uint16, np.uint32)
    return next((kind for kind in kinds if size <= np.iinfo(kind).max + 1), np.uint64)


def pack_bits(matrix: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Rows of booleans as rows of 64-bit words, the first boolean in the lowest bit."""
    rows, length = matrix.shape
    padded = np.zeros((rows, -(-length // 64) * 64), np.bool_)
    padded[:, :length] = matrix
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def unpack_bits(words: NDArray[np.uint64], length: int) -> NDArray[np.uint8]:
    return np.unpackbits(words.view(np.uint8), axis=1, count=length, bitorder="little")


def _packed_columns(codes: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A row of words for each column of a matrix, some columns at a time so that no copy of it is made."""
    rows, count = codes.shape
    words = np.empty((count, -(-rows // 64)), np.uint64)
    for first in range(0, count, _COLUMNS):
        words[first : first + _COLUMNS] = pack_bits(codes[:, first : first + _COLUMNS].T != 0)
    return words


def as_lists(bits: BitItems, rows: int) -> SparseItems:
    """Bits as lists, some records at a time so that the bits are never all spread out."""
    step = max(1, _SPREAD // (64 * max(1, len(bits.words)))) * 64
    lengths, ids = [np.zeros(1, np.int64)], [np.empty(0, np.int32)]
    for first in range(0, rows, step):
        number = min(step, rows - first)
        words = bits.words[:, first // 64 : -(-(first + number) // 64)]
        owner, held = np.nonzero(unpack_bits(words, number).T)
        lengths.append(np.bincount(owner, minlength=number))
        ids.append(held.astype(np.int32))
    return SparseItems(np.cumsum(np.concatenate(lengths)), np.concatenate(ids))


HALF = 32_767
MOST = 2 * HALF
_BITS = 16
Places = NDArray[np.uint16]


def has_places(column: Any) -> TypeGuard[Numeric]:
    """Whether numbers of this column can lie elsewhere in their bin."""
    return type(column) is Numeric and column.wide


def ends_of(column: Numeric) -> tuple[Reals, Reals]:
    """Where places 0 and 2·HALF lie in each bin, in units where there are some."""
    if column.in_units:
        return column.bounds()
    edges = np.array(column.edges)
    return edges[:-1], edges[1:]


def widths_of(column: Numeric) -> Reals:
    """How far apart they are, as cells and edges count."""
    low, high = ends_of(column)
    widths: Reals = (high - low) / 10 ** (column.decimals or 0)
    return widths


def places_of(column: Numeric, codes: Integers, numbers: Reals) -> Places:
    """The place of each number in the bin that it has been given, numbers in units where there are some."""
    low, high = ends_of(column)
    width = high - low
    with np.errstate(over="ignore"):
        per = np.divide(MOST, width, out=np.zeros(len(width)), where=width > 0)
    per[~np.isfinite(per)] = 0.0
    # one more bin, for what is missing; a bin of one number has its middle, and so has one too narrow to divide
    start, per = np.append(low, 0.0)[codes], np.append(per, 0.0)[codes]
    # no compiled loop: a question to a release must not wait for numba
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.subtract(numbers, start, dtype=np.float64)
        found *= per
        np.clip(found, 0.0, MOST, out=found)
        found[per == 0.0] = HALF
        found += 0.5
        return found.astype(np.uint16)


def numbers_at(column: Numeric, codes: NDArray[np.unsignedinteger], places: Places) -> Reals:
    """The number at each place, in units where there are some; 0 where it is missing."""
    low, high = ends_of(column)
    known = codes < column.bins
    bins = codes[known].astype(np.int64)
    share = places[known] / MOST
    found = np.zeros(len(codes))
    found[known] = rounded_inside(column, bins, low[bins] * (1 - share) + high[bins] * share)
    return found


@dataclass(frozen=True)
class _WithPlaces(Numeric):
    """The column, with codes that say the place as well: code · 2^16 + place."""

    @property
    def missing_code(self) -> int | None:
        return None if self.missing is None else (self.bins << _BITS) + HALF

    @property
    def code_type(self) -> Any:
        return np.int64

    def bin_codes(self, found: Reals) -> Signed:
        codes = super().bin_codes(found).astype(np.int64)
        with np.errstate(over="ignore"):  # of a number far beyond the edges, which lies at the end of its bin
            units = found * 10**self.decimals if self.decimals else found
        place = places_of(self, np.maximum(codes, 0), units)
        return np.where(codes < 0, codes, (codes << _BITS) + place)


def encode_with_places(column: Numeric, cells: pa.ChunkedArray) -> tuple[Signed, Places]:
    """The code of each cell, and its place in the bin."""
    own = object.__new__(_WithPlaces)
    vars(own).update(vars(column))  # and what the column has worked out already
    both = own.encode(cells).astype(np.int64, copy=False)
    return both >> _BITS, cast("Places", (both & (2**_BITS - 1)).astype(np.uint16))
