"""Some rows of a table as a matrix, and a table with some rows more."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.table.records import BitItems, Codes, ColumnCodes, Records, SparseItems, pack_bits, unpack_bits

Rows = NDArray[np.uint32]


def rows_at(records: Records, places: NDArray[np.int64]) -> Rows:
    """The records at these places: a row each, a column an attribute."""
    domain = records.domain
    out = np.zeros((len(places), domain.width), np.uint32)
    for position, codes in enumerate(records.columns):
        first, last = domain.starts[position], domain.starts[position + 1]
        if isinstance(codes, SparseItems):
            for i, place in enumerate(places.tolist()):
                out[i, first + codes.ids[codes.start[place] : codes.start[place + 1]].astype(np.int64)] = 1
        elif isinstance(codes, BitItems):
            words = codes.words[:, places >> 6]
            bits = (words >> (places & 63).astype(np.uint64)) & np.uint64(1)
            out[:, first:last] = bits.T
        else:
            out[:, first] = codes[places]
    return out


def with_more(records: Records, rows: Rows) -> Records:
    """The records, and behind them these rows."""
    more = Records.from_rows(records.domain, rows)
    columns = tuple(
        _behind(first, records.rows, second, more.rows)
        for first, second in zip(records.columns, more.columns, strict=True)
    )
    return Records(records.domain, records.rows + more.rows, columns)


def _behind(first: ColumnCodes, rows: int, second: ColumnCodes, more: int) -> ColumnCodes:
    if isinstance(second, BitItems):
        bits = unpack_bits(second.words, more)
        if isinstance(first, SparseItems):
            owner, ids = np.nonzero(bits.T)
            start = np.cumsum(np.bincount(owner, minlength=more)) + first.start[-1]
            return SparseItems(
                np.concatenate([first.start, start]), np.concatenate([first.ids, ids.astype(first.ids.dtype)])
            )
        assert isinstance(first, BitItems)
        whole = np.concatenate([unpack_bits(first.words, rows), bits], axis=1)
        return BitItems(pack_bits(whole != 0))
    assert isinstance(first, np.ndarray)
    assert isinstance(second, np.ndarray)
    joined: Codes = np.concatenate([first, second])
    return joined
