"""Encoded records: integers only, column by column, sparse where the table is sparse.

A categorical or numeric column is one array of codes of the smallest unsigned type. A block of
items is kept either *sparse* (the ids of each record's items) or as *bits* (one row of words per
item), whichever the source had.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.table.domain import Domain, Items

Codes = NDArray[np.unsignedinteger]


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


@dataclass(frozen=True)
class Records:
    """`rows` records over a domain, one entry of `columns` per column of the domain."""

    domain: Domain
    rows: int
    columns: tuple[ColumnCodes, ...]

    @staticmethod
    def from_rows(domain: Domain, codes: NDArray[np.integer]) -> Records:
        """Records from a matrix with a row per record and a column per attribute."""
        columns: list[ColumnCodes] = []
        for position, column in enumerate(domain.columns):
            first, last = domain.starts[position], domain.starts[position + 1]
            part = codes[:, first:last]
            if isinstance(column, Items):
                columns.append(BitItems(pack_bits(np.ascontiguousarray(part.T) != 0)))
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


def smallest_type(size: int) -> type[np.unsignedinteger]:
    """The smallest unsigned type that can number `size` values."""
    for kind in (np.uint8, np.uint16):
        if size <= np.iinfo(kind).max + 1:
            return kind
    return np.uint32


def pack_bits(matrix: NDArray[np.bool_]) -> NDArray[np.uint64]:
    """Rows of booleans as rows of 64-bit words, the first boolean in the lowest bit."""
    rows, length = matrix.shape
    padded = np.zeros((rows, -(-length // 64) * 64), np.bool_)
    padded[:, :length] = matrix
    return np.packbits(padded, axis=1, bitorder="little").view(np.uint64)


def unpack_bits(words: NDArray[np.uint64], length: int) -> NDArray[np.uint8]:
    """The inverse of `pack_bits`, as zeros and ones."""
    return np.unpackbits(words.view(np.uint8), axis=1, count=length, bitorder="little")
