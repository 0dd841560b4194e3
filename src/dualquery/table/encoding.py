"""From readable cells to codes.

Encoding goes by the distinct cells of a column: each is looked up once, then all rows at once. A
number v gets the code b with edges[b] ≤ v < edges[b + 1], the last bin closed, found by bisection of
the edges. For bins of equal width this is min(bins − 1, ⌊(v − low) / width⌋) in exact arithmetic; a
division of floats would put 0.3 below the edge 3/10.

A missing cell is one thing, whatever the column is (`columns`): null, blanks, NaN, a text that the schema
lists as `empty`, or the label of missing cells itself. `decoding` is the way back.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.table.cells import (
    TYPED,
    as_numpy,
    by_kind,
    distinct,
    floats_of,
    has_padding,
    is_list,
    is_mixed,
    is_numeric,
    near_numbers,
    number_in,
    numbers_of,
    plain,
    spellings,
    texts_of,
    without_padding,
)
from dualquery.table.codes import OpenText, WholeRange, open_codes
from dualquery.table.dates import Dates, is_dated
from dualquery.table.domain import Categorical, Column, Domain, Items, Numeric
from dualquery.table.lookup import bins_of, looked_up
from dualquery.table.notation import numbers_written
from dualquery.table.persons import baskets, kept_rows, owners_of
from dualquery.table.points import Coordinate
from dualquery.table.records import (
    Codes,
    ColumnCodes,
    Records,
    SparseItems,
    smallest_type,
    taken,
)
from dualquery.table.schema import Schema
from dualquery.table.source import Source, is_transaction_file, read_table
from dualquery.table.transactions import read_transactions, transactions
from dualquery.table.unplaced import Unplaced, advice


def encode(source: Source, schema: Schema | Domain, *, records_per_person: int | None = None) -> Records:
    """The records of a table; a cell without a place in the schema is an error that says how to make one.

    A table without rows has zero records. Rows that the schema drops are no records: the number of rows
    then depends on their cells (`Schema.drops_rows`). With `records_per_person` everybody keeps at most so
    many, whoever the schema's unit says they belong to (`persons`); without it all are kept.
    """
    schema = Schema.of(schema)
    check_persons(schema, records_per_person)
    table = _read(source, schema, owned=schema.long or records_per_person is not None)
    return encoded(table, schema, records_per_person=records_per_person)


def encoded(table: pa.Table, schema: Schema, *, records_per_person: int | None = None) -> Records:
    """The records of a table as `read_table` and `batches` give it: its columns those wanted, and sound."""
    domain, columns = schema.domain, schema.domain.columns
    table = pa.table([plain(column) for column in table.columns], names=table.column_names)
    if schema.drop_rows_containing is not None:
        dropped = _rows_containing(schema.drop_rows_containing, table.select(range(len(columns))), columns)
        table = table.filter(pa.array(~dropped))
    codes = tuple(_encoded(column, table.column(i)) for i, column in enumerate(columns))
    if schema.unit is None or not (schema.long or records_per_person is not None):
        return Records(domain, table.num_rows, codes)
    owners = owners_of(table.column(_place_of_unit(schema)), schema.unit)
    if records_per_person is None:
        assert isinstance(codes[0], SparseItems), "a long table is one block of items"
        whole = baskets(owners, codes[0], domain.width)
        return Records(domain, len(whole.start) - 1, (whole,))
    rows = kept_rows(owners, codes, records_per_person)
    return Records(domain, len(rows), taken(codes, rows), records_per_person)


def check_persons(schema: Schema, records_per_person: int | None) -> None:
    """Refuse to limit the records of a person where the schema names no person."""
    if records_per_person is not None and (schema.unit is None or schema.long):
        raise DataError(
            'records per person need a schema that says whose record a row is: unit = "..." in [table], '
            "and not long"
        )


@dataclass(frozen=True)
class WantedColumns:
    """What is read of a source: these columns in this order, the unit last where it is needed and none of them."""

    names: list[str]
    lists: set[str]
    transactions: bool  # a line of ids a record

    @staticmethod
    def of(source: Source, schema: Schema, *, owned: bool) -> WantedColumns:
        columns = schema.domain.columns
        names = [column.name for column in columns]
        lists = {column.name for column in columns if isinstance(column, Items)}
        block = len(columns) == 1 and isinstance(columns[0], Items)
        lines = block and schema.unit is None and is_transaction_file(source)
        if owned and schema.unit is not None and schema.unit not in names:
            names.append(schema.unit)
        return WantedColumns(names, lists, lines)


def _place_of_unit(schema: Schema) -> int:
    """The column of a table as `Wanted` has it that says whose a row is: behind the others, or one of them."""
    names = [column.name for column in schema.domain.columns]
    return names.index(schema.unit) if schema.unit in names else len(names)


def _read(source: Source, schema: Schema, *, owned: bool) -> pa.Table:
    """The columns of the schema, in its order, and at the end the unit where it is needed."""
    wanted = WantedColumns.of(source, schema, owned=owned)
    if wanted.transactions:
        assert isinstance(source, str | os.PathLike), "only a file can hold lines"
        return read_transactions(source, wanted.names[0])
    return read_table(source, wanted.names, lists=wanted.lists, encoding=schema.encoding)


def _rows_containing(marker: str, table: pa.Table, columns: tuple[Column, ...]) -> NDArray[np.bool_]:
    """Which rows hold the marker in some column; lists of items hold no text."""
    found = np.zeros(table.num_rows, np.bool_)
    for column, cells in zip(columns, table.columns, strict=True):
        if not isinstance(column, Items):
            found |= _containing(marker, cells, column.name)
    return found


def _containing(marker: str, cells: pa.ChunkedArray, name: str) -> NDArray[np.bool_]:
    """Which cells hold the marker: as this number, or as this text."""
    if is_mixed(cells.type):
        found = np.zeros(len(cells), np.bool_)
        for _, rows, part in by_kind(cells):
            found[rows] = _containing(marker, part, name)
        return found
    if is_numeric(cells.type) and not pa.types.is_boolean(cells.type):
        number = number_in(marker)
        return floats_of(cells) == (np.nan if number is None else number)
    held = distinct(cells, name)
    hits = [text is not None and text.strip() == marker.strip() for text in texts_of(held.values, name)]
    return np.array([*hits, False])[held.index]


def _encoded(column: Column, cells: pa.ChunkedArray, *, typed: bool = False) -> ColumnCodes:
    """The codes of a column; with `typed` its texts write numbers and dates that are in no notation of texts."""
    if isinstance(column, Items):
        return _encoded_items(column, cells)
    if is_mixed(cells.type):
        codes = np.zeros(len(cells), smallest_type(len(column.labels)))
        for kind, rows, part in by_kind(cells):
            codes[rows] = _encoded(column, part, typed=kind == TYPED)
        return codes
    if isinstance(column, OpenText | WholeRange):
        return open_codes(column, cells)
    near = near_numbers(cells)
    if isinstance(column, Dates) and is_dated(cells.type):
        numbers, junk = column.typed_numbers(cells)
        codes = _numeric_codes(column, numbers)
        codes[junk] = Unplaced.NOT_A_NUMBER
    elif (
        near is None
        and isinstance(column, Numeric)
        and not isinstance(column, Dates)
        and is_numeric(cells.type)
    ):
        codes = _numeric_codes(column, floats_of(cells))
    else:
        held = near or distinct(cells, column.name)
        texts = _without_empty(column, texts_of(held.values, column.name))
        if isinstance(column, Numeric):
            code_of, empty = _numeric_code_of(column, held.values, texts, typed=typed)
        else:
            code_of, empty = _categorical_code_of(column, texts, padded=has_padding(held.values.type))
        codes = looked_up(np.append(code_of, empty), held.index)
    return _placed(column, codes)


def _without_empty(column: Categorical | Numeric, texts: list[str | None]) -> list[str | None]:
    """The texts of distinct cells; None where the schema says that such a cell is empty."""
    if not column.empty:
        return texts
    return [None if text is not None and text.strip() in column.empty else text for text in texts]


def _placed(column: Categorical | Numeric, codes: NDArray[np.signedinteger]) -> Codes:
    """The codes in the smallest type, once every cell has one."""
    worst = int(codes.min(initial=0))
    if worst < 0:
        raise DataError(advice(column, Unplaced(worst)))
    return codes.astype(smallest_type(len(column.labels)), copy=False)


def _categorical_code_of(
    column: Categorical, texts: list[str | None], *, padded: bool
) -> tuple[NDArray[np.int64], int]:
    """The code of each distinct cell, and that of an empty one."""
    place = {value: number for number, value in enumerate(column.values)}
    if padded:
        place = {without_padding(value): number for value, number in reversed(place.items())} | place
    unknown = int(Unplaced.OUTSIDE) if column.unknown is None else place[column.unknown]
    absent = column.missing_code
    empty = int(Unplaced.EMPTY) if absent is None else absent

    def code(text: str | None) -> int:
        if text is None:
            return empty
        for spelling in spellings(text):
            if spelling in place:
                return place[spelling]
        return unknown if text.strip() else empty

    return np.fromiter(map(code, texts), np.int64, len(texts)), empty


def _numeric_code_of(
    column: Numeric, values: pa.Array, texts: list[str | None], *, typed: bool
) -> tuple[NDArray[np.signedinteger], int]:
    if isinstance(column, Dates) and is_dated(values.type):
        numbers, junk = column.typed_numbers(values)
    elif isinstance(column, Dates):
        numbers, junk = column.numbers_of(texts, typed=typed)
    elif is_numeric(values.type):
        numbers, junk = numbers_of(values, column.name)
    elif typed:
        numbers, junk = numbers_of(pa.array(texts, pa.large_string()), column.name)
    else:
        numbers, junk = numbers_written(column, texts)
    if column.missing is not None and junk.any():
        label = column.missing.strip()
        junk &= np.array([text is None or text.strip() != label for text in texts])
    codes = _numeric_codes(column, numbers)
    codes[junk] = Unplaced.NOT_A_NUMBER
    return codes, int(Unplaced.EMPTY) if column.missing is None else column.bins


def _numeric_codes(column: Numeric, numbers: NDArray[np.float64]) -> NDArray[np.signedinteger]:
    """The bin of each number; NaN is an empty cell, and so is a number that is the label for one."""
    edges = np.array(column.edges)
    codes = column.positions(numbers) if isinstance(column, Coordinate) else bins_of(edges, numbers)
    least, most = numbers.min(initial=edges[0]), numbers.max(initial=edges[-1])  # NaN where there is one
    if column.missing is None and least == edges[0] and most == edges[-1]:
        return codes
    if not column.clamp:
        codes[(numbers < edges[0]) | (numbers > edges[-1])] = Unplaced.OUTSIDE
    empty = np.isnan(numbers)
    if column.missing is None:
        codes[empty] = Unplaced.EMPTY
    else:
        markers = [] if isinstance(column, Dates) else [column.missing, *column.empty]
        for number in map(number_in, markers):
            empty |= numbers == (np.nan if number is None else number)
        codes[empty] = column.bins
    return codes


def _encoded_items(column: Items, cells: pa.ChunkedArray) -> SparseItems:
    """Each record's items, from lists of ids or texts of ids between blanks; an empty cell holds none."""
    where = f"column '{column.name}'"
    if not is_list(cells.type):
        held = distinct(cells, column.name)
        breaks = str.maketrans("\r\n", "  ")
        lines = [(text or "").translate(breaks) for text in texts_of(held.values, column.name)] + [""]
        text = "".join([f"{lines[i]}\n" for i in held.index])
        cells = pa.chunked_array([transactions(text.encode(), where=where)])
    lengths = as_numpy(pc.list_value_length(cells).fill_null(0)).astype(np.int64)
    flat = pc.list_flatten(cells)
    if flat.null_count:
        raise DataError(f"{where} has a list of items with an empty place in it")
    try:
        ids = as_numpy(flat.cast(pa.int64())) - column.first
    except pa.ArrowException:
        raise DataError(f"{where} holds something other than item ids, which are whole numbers") from None
    if len(ids) and not (ids.min() >= 0 and ids.max() < column.count):
        last = column.first + column.count - 1
        raise DataError(
            f"{where} holds item ids outside {column.first} to {last}; set first and count in the schema "
            "so that every id has a place"
        )
    rows = len(lengths)
    key = np.repeat(np.arange(rows), lengths) * column.count + ids
    if np.any(key[1:] <= key[:-1]):
        key.sort()
        key = key[np.append(True, key[1:] != key[:-1])]
    start = np.searchsorted(key, np.arange(rows + 1) * column.count)
    return SparseItems(start.astype(np.int64), (key % column.count).astype(np.int32))
