"""From codes to readable cells, chosen so that they encode to the same codes again.

A category is its listed value, a number or a date one inside its bin (`table.spread`), a missing value null whatever
the column is, a block of items the list of those present.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Column, Items, Numeric
from dualquery.table.records import Codes, ColumnCodes, Records, SparseItems, as_lists
from dualquery.table.spread import spread_numbers, spread_units

PRECISION = 18  # decimal figures that fit into 64 bits


def decode(records: Records) -> pa.Table:
    """The records as readable columns; `encode` gives the same records back."""
    decoded = {
        column.name: _decoded(column, codes, records.rows)
        for column, codes in zip(records.domain.columns, records.columns, strict=True)
    }
    return pa.table(decoded)


def _decoded(column: Column, codes: ColumnCodes, rows: int) -> pa.Array:
    if isinstance(column, Items):
        assert not isinstance(codes, np.ndarray)
        sparse = codes if isinstance(codes, SparseItems) else as_lists(codes, rows)
        long = int(sparse.start[-1]) > np.iinfo(np.int32).max
        lists, offset = (pa.LargeListArray, np.int64) if long else (pa.ListArray, np.int32)
        return lists.from_arrays(sparse.start.astype(offset), pa.array(sparse.ids + np.int32(column.first)))
    assert isinstance(codes, np.ndarray)
    return _categories(column, codes) if isinstance(column, Categorical) else _numbers(column, codes)


def _categories(column: Categorical, codes: Codes) -> pa.Array:
    """A missing value is null and no category; an order is told only where every category has a rank."""
    values, absent = list(column.values), column.missing_code
    missing = codes == -1 if absent is None else codes == absent
    places = codes.astype(np.int64)
    if absent is not None:
        del values[absent]
        places -= places > absent
        places[missing] = 0
    kind = next(t for t in (np.int8, np.int16, np.int32) if len(values) <= np.iinfo(t).max + 1)
    ranked = column.ordered and column.unknown in (None, column.missing)
    return pa.DictionaryArray.from_arrays(
        pa.array(places.astype(kind), mask=missing), pa.array(values, pa.string()), ordered=ranked
    )


def _numbers(column: Numeric, codes: Codes) -> pa.Array:
    missing = codes == column.bins
    known = codes[~missing].astype(np.int64)
    if not column.integer and column.decimals is None:
        numbers = np.zeros(len(codes))
        numbers[~missing] = spread_numbers(column, known)
        return pa.array(numbers, mask=missing)
    units = np.zeros(len(codes), np.int64)
    units[~missing] = spread_units(column, known)
    if isinstance(column, Dates):
        return column.readable(units, missing)
    if column.exact:
        return _exact(units, missing, column.decimals or 0)
    if column.integer:
        return pa.array(units, mask=missing)
    return pa.array(units / 10 ** (column.decimals or 0), mask=missing)


def _exact(units: NDArray[np.int64], missing: NDArray[np.bool_], decimals: int) -> pa.Array:
    """Decimals of Arrow: 128 bits a number, the upper half the sign."""
    words = np.stack([units, units >> 63], axis=1).tobytes()
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.decimal128(PRECISION, decimals), len(units), [valid, pa.py_buffer(words)])
