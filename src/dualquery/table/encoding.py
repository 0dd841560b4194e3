"""From readable cells to codes.

Encoding goes by the distinct cells of a column: each is looked up once, then all rows at once. A
number v gets the code b with edges[b] ≤ v < edges[b + 1], the last bin closed, found by bisection of
the edges. For bins of equal width this is min(bins − 1, ⌊(v − low) / width⌋) in exact arithmetic; a
division of floats would put 0.3 below the edge 3/10.

A missing cell is one thing, whatever the column is (`columns`): null, blanks, NaN, a text that the schema
lists as `empty`, or the label of missing cells itself. `decoding` is the way back.

*Tables that do not fit into memory.* A row is encoded by itself, so the records of a table are those of its
batches. Where the schema names a unit, what is kept of a person (`persons`) depends on that person's rows alone:
rows go into bins by a hash of the id, a person's rows all into the same bin, and each bin is encoded as if it were
a table. The bins are files without a name in the folder for temporary files: nobody else can open them, and nothing
of them is left when the process ends, however it ends.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from enum import IntEnum
from typing import Any

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
from dualquery.table.graph import Vertex
from dualquery.table.lookup import bins_of, looked_up
from dualquery.table.notation import numbers_written
from dualquery.table.persons import baskets, kept_rows, owners_of
from dualquery.table.points import Coordinate
from dualquery.table.reading import AnyTable, batches, is_transaction_file, read_table
from dualquery.table.reading.delimited import transactions
from dualquery.table.reading.source import WantedColumns
from dualquery.table.records import Codes, ColumnCodes, Records, SparseItems, smallest_type, taken
from dualquery.table.schema import Schema


class Unplaced(IntEnum):
    """Why a cell has no code."""

    EMPTY = -1
    OUTSIDE = -2
    NOT_A_NUMBER = -3


def advice(column: Categorical | Numeric, reason: Unplaced) -> str:
    """One sentence that says what to write into the schema."""
    name = column.name
    if reason is Unplaced.NOT_A_NUMBER and isinstance(column, Dates):
        written = (
            ' or say how they are written, such as format = "%d.%m.%Y",' if column.format is None else ""
        )
        return (
            f"column '{name}' holds cells that are no dates such as {column.example}, or longer than a {column.by}; "
            f'mend them,{written} or list the texts that stand for a missing date: empty = ["..."] in the schema'
        )
    if reason is Unplaced.NOT_A_NUMBER:
        return (
            f"column '{name}' holds cells that are not numbers; mend them, list the texts that stand for a "
            'missing number, empty = ["..."] in the schema, or make the attribute categorical'
        )
    if isinstance(column, Numeric):
        if reason is Unplaced.EMPTY:
            return (
                f"column '{name}' has empty cells or NaN; set missing = \"missing\" for it in the schema "
                "to give them a place"
            )
        if isinstance(column, Coordinate):
            return (
                f"column '{name}' holds numbers outside its bounds; widen the bounds in the schema, or set "
                "clamp = true in [points] to send such numbers to the nearest bound"
            )
        return (
            f"column '{name}' holds numbers beyond its bin edges; widen the edges in the schema, "
            "or set clamp = true to send such numbers to the nearest end"
        )
    if reason is Unplaced.EMPTY:
        return (
            f"column '{name}' has empty cells; set missing = \"...\" for it in the schema "
            "to the listed value that stands for them"
        )
    if isinstance(column, Vertex):
        return (
            f"column '{name}' holds vertices outside the declared set; declare them in [graph], or leave such edges "
            "out of the table by a rule that looks at each edge alone"
        )
    return (
        f"column '{name}' holds values that the schema does not list; add them to its values, "
        'or set unknown = "..." to the listed value that stands for them'
    )


def encode(source: AnyTable, schema: Schema | Domain, *, records_per_person: int | None = None) -> Records:
    """The records of a table; a cell without a place in the schema is an error that says how to make one.

    A table without rows has zero records. Rows that the schema drops are no records: the number of rows
    then depends on their cells (`Schema.drops_rows`). With `records_per_person` everybody keeps at most so
    many, whoever the schema's unit says they belong to (`persons`); without it all are kept.
    """
    schema = Schema.of(schema)
    table = read_table(source, wanted_columns(source, schema, records_per_person))
    return encoded(table, schema, records_per_person=records_per_person)


def encoded(table: pa.Table, schema: Schema, *, records_per_person: int | None = None) -> Records:
    """The records of a table as it was read: its columns those wanted, and sound."""
    domain, columns = schema.domain, schema.domain.columns
    table = pa.table([plain(column) for column in table.columns], names=table.column_names)
    if schema.drop_rows_containing is not None:
        dropped = _rows_containing(schema.drop_rows_containing, table.select(range(len(columns))), columns)
        table = table.filter(pa.array(~dropped))
    codes = tuple(_encoded(column, table.column(i)) for i, column in enumerate(columns))
    if schema.unit is None or not by_person(schema, records_per_person):
        return Records(domain, table.num_rows, codes)
    names = [column.name for column in columns]
    place = names.index(schema.unit) if schema.unit in names else len(names)
    owners = owners_of(table.column(place), schema.unit)
    if records_per_person is None:
        assert isinstance(codes[0], SparseItems), "a long table is one block of items"
        whole = baskets(owners, codes[0], domain.width)
        return Records(domain, len(whole.start) - 1, (whole,))
    rows = kept_rows(owners, codes, records_per_person)
    return Records(domain, len(rows), taken(codes, rows), records_per_person)


def by_person(schema: Schema, records_per_person: int | None) -> bool:
    """Whether the rows of a person are looked at together."""
    if records_per_person is not None and (schema.unit is None or schema.long):
        raise DataError(
            'records per person need a schema that says whose record a row is: unit = "..." in [table], '
            "and not long"
        )
    return schema.long or records_per_person is not None


def wanted_columns(
    source: AnyTable, schema: Schema, records_per_person: int | None = None, *, rows: int | None = None
) -> WantedColumns:
    """What is read of a table: the columns of the schema, the unit last where it is needed and none of them."""
    columns = schema.domain.columns
    names = [column.name for column in columns]
    lists = {column.name for column in columns if isinstance(column, Items)}
    lines = len(columns) == len(lists) == 1 and schema.unit is None and is_transaction_file(source)
    if by_person(schema, records_per_person) and schema.unit is not None and schema.unit not in names:
        names.append(schema.unit)
    return WantedColumns(names, lists, lines, schema.encoding, rows)


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


BINS = 64  # of persons: each is encoded at once


def record_blocks(
    source: AnyTable,
    schema: Schema,
    *,
    rows: int,
    records_per_person: int | None = None,
    tell: Callable[[int, int], None] = lambda done, size: None,
) -> Iterator[Records]:
    """What `encode` would give, in blocks of about so many records. Nothing may be counted before the last one."""
    wanted = replace(wanted_columns(source, schema, records_per_person, rows=rows), tell=tell)
    read = batches(source, wanted)
    if schema.unit is not None and by_person(schema, records_per_person):
        read = _person_by_person(read, schema.unit)
    for batch in read:
        yield encoded(batch, schema, records_per_person=records_per_person)


def _person_by_person(read: Iterator[pa.Table], unit: str) -> Iterator[pa.Table]:
    """The same rows in other tables, those of a person all in one."""
    bins = [_Bin() for _ in range(BINS)]
    try:
        for batch in read:
            place = bin_of(batch.column(unit), unit, BINS)
            for number in np.unique(place).tolist():
                bins[number].append(batch.take(pa.array(np.flatnonzero(place == number))))
        for each in bins:
            yield from each.table()
    finally:
        for each in bins:
            each.close()


def bin_of(ids: pa.ChunkedArray, unit: str, bins: int) -> NDArray[np.int64]:
    """A bin for each row, by a hash of its person: the same in any batch, on any machine. Blank ids go first."""
    owners = owners_of(ids, unit)
    digests = [
        int.from_bytes(
            hashlib.blake2b(text.encode(), digest_size=8, person=b"bin of a person").digest(), "big"
        )
        % bins
        for text in owners.ids.to_pylist()
    ]
    known = np.array([*digests, 0], np.int64)
    return known[np.minimum(owners.of, len(digests))]


class _Bin:
    """Tables of one schema, one behind the other in a file without a name."""

    def __init__(self) -> None:
        self._file: Any = None
        self._writer: Any = None

    def append(self, table: pa.Table) -> None:
        # Dictionaries differ from batch to batch, and a stream of Arrow has one of each.
        table = pa.table(
            [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns],
            names=table.column_names,
        )
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open)
            self._writer = pa.ipc.new_stream(self._file, table.schema)
        self._writer.write_table(table)

    def table(self) -> Iterator[pa.Table]:
        if self._writer is not None:
            self._writer.close()
            self._file.seek(0)
            yield pa.ipc.open_stream(self._file).read_all()
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
