"""From codes to readable cells, chosen so that they encode to the same codes again.

A category is its listed value, a number or a date one inside its bin (`table.spread`), a missing value null whatever
the column is, a block of items the list of those present. Numbers that a rule of the schema adds up add up, and those
that depend on other attributes are the same wherever these are.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.table.cells import from_numpy, from_texts
from dualquery.table.dates import Dates
from dualquery.table.domain import Categorical, Column, Dependency, Items, Numeric, Sum
from dualquery.table.records import Codes, ColumnCodes, Records, SparseItems, as_lists
from dualquery.table.spread import bounds_of, in_units, spread

PRECISION = 18  # decimal figures that fit into 64 bits


def decode(records: Records) -> pa.Table:
    """The records as readable columns; `encode` gives the same records back."""
    domain = records.domain
    codes = dict(zip((column.name for column in domain.columns), records.columns, strict=True))
    numbers = {
        column.name: _spread(column, each)
        for column, each in zip(domain.columns, records.columns, strict=True)
        if isinstance(column, Numeric) and isinstance(each, np.ndarray)
    }
    columns = {column.name: column for column in domain.columns}
    for rule in domain.rules:
        if isinstance(rule, Sum):
            names = (rule.total, *rule.parts)
            added_up(
                [columns[name] for name in names], [codes[n] for n in names], [numbers[n] for n in names]
            )
    decoded = {
        column.name: _decoded(column, each, records.rows, numbers.get(column.name))
        for column, each in zip(domain.columns, records.columns, strict=True)
    }
    for rule in domain.rules:
        if isinstance(rule, Dependency) and isinstance(columns[rule.attribute], Numeric):
            # Records that agree on what it depends on agree on the number, too.
            on = np.stack([np.asarray(codes[name]) for name in rule.on], axis=1)
            _, first, group = np.unique(on, axis=0, return_index=True, return_inverse=True)
            decoded[rule.attribute] = decoded[rule.attribute].take(from_numpy(first[group.ravel()]))
    return pa.table(decoded)


def _spread(column: Numeric, codes: Codes) -> NDArray[np.float64]:
    """A number for each record; 0 where it is missing."""
    known = codes < column.bins
    numbers = np.zeros(len(codes))
    numbers[known] = spread(column, codes[known].astype(np.int64))
    return numbers


def added_up(
    columns: Sequence[Column], codes: Sequence[ColumnCodes], numbers: Sequence[NDArray[np.float64]]
) -> None:
    """Move the parts inside their bins, one after another, until their sum lies in the bin of the total.

    Where that cannot be (the rule is broken) or a number is missing, everything stays as it is.
    """
    bounds, known = [], np.ones(len(numbers[0]), np.bool_)
    for column, each in zip(columns, codes, strict=True):
        assert isinstance(column, Numeric)
        assert isinstance(each, np.ndarray)
        known &= each < column.bins
        place = np.minimum(each, column.bins - 1).astype(np.int64)
        low, high = bounds_of(column)
        bounds.append((low[place], high[place]))
    total, *parts = numbers
    low, high = bounds[0]
    for part, (least, most) in zip(parts, bounds[1:], strict=True):
        found = np.sum(parts, axis=0)
        moved = np.clip(part + np.clip(found, low, high) - found, least, most)
        part[known] = moved[known]
    found = np.sum(parts, axis=0)
    fits = known & (found >= low) & (found <= high)
    total[fits] = found[fits]


def _decoded(column: Column, codes: ColumnCodes, rows: int, numbers: NDArray[np.float64] | None) -> pa.Array:
    if isinstance(column, Items):
        assert not isinstance(codes, np.ndarray)
        sparse = codes if isinstance(codes, SparseItems) else as_lists(codes, rows)
        long = int(sparse.start[-1]) > np.iinfo(np.int32).max
        lists, offset = (pa.LargeListArray, np.int64) if long else (pa.ListArray, np.int32)
        start, ids = sparse.start.astype(offset), sparse.ids + np.int32(column.first)
        return lists.from_arrays(from_numpy(start), from_numpy(ids))
    assert isinstance(codes, np.ndarray)
    if isinstance(column, Categorical):
        return _categories(column, codes)
    assert numbers is not None
    return _numbers(column, numbers, codes == column.bins)


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
        from_numpy(places.astype(kind), missing), from_texts(values), ordered=ranked
    )


def _numbers(column: Numeric, numbers: NDArray[np.float64], missing: NDArray[np.bool_]) -> pa.Array:
    """Numbers in the type that was declared."""
    if not in_units(column):
        return from_numpy(numbers, missing)
    units = numbers.astype(np.int64)
    if isinstance(column, Dates):
        return column.readable(units, missing)
    if column.exact:
        return _exact(units, missing, column.decimals or 0)
    if column.integer:
        return from_numpy(units, missing)
    return from_numpy(units / 10 ** (column.decimals or 0), missing)


def _exact(units: NDArray[np.int64], missing: NDArray[np.bool_], decimals: int) -> pa.Array:
    """Decimals of Arrow: 128 bits a number, the upper half the sign."""
    words = np.stack([units, units >> 63], axis=1).tobytes()
    valid = pa.py_buffer(np.packbits(~missing, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.decimal128(PRECISION, decimals), len(units), [valid, pa.py_buffer(words)])
