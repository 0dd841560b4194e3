"""From readable tables to records, and back: `decode` gives cells that encode to the same codes again.

A column encodes and decodes its own cells (`columns`, `numbers`, `dates`); here are whole tables, blocks of items,
and what goes by several columns: rows that the schema drops, persons, and of decoded numbers those that a rule of
the schema adds up, which add up, and those that depend on other attributes, which are the same wherever these are.

*Tables that do not fit into memory.* A row is encoded by itself, so the records of a table are those of its
batches. Where the schema names a unit, what is kept of a person (`persons`) depends on that person's rows alone:
rows go into bins by a hash of the id, a person's rows all into the same bin, and each bin is encoded as if it were
a table. So do the rows of all tables of a database, by the key of their unit. The bins are files without a name in
the folder for temporary files: nobody else can open them, and nothing of them is left when the process ends,
however it ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.loops import together
from dualquery.table.cells import (
    as_numpy,
    by_kind,
    distinct,
    floats_of,
    from_numpy,
    is_list,
    is_mixed,
    is_numeric,
    number_in,
    plain,
    texts_of,
)
from dualquery.table.database import Database
from dualquery.table.domain import Categorical, Column, Dependency, Domain, Items, Numeric, Sum
from dualquery.table.persons import baskets, hashes_of, kept, kept_rows, owners_of
from dualquery.table.reading import AnyTable, batches, is_transaction_file, one_table, read_table
from dualquery.table.reading.delimited import transactions
from dualquery.table.reading.source import WantedColumns
from dualquery.table.records import (
    ColumnCodes,
    Places,
    Records,
    SparseItems,
    as_lists,
    encode_with_places,
    has_places,
    numbers_at,
    smallest_type,
    taken,
    taken_places,
)
from dualquery.table.schema import Schema
from dualquery.table.units import AnyDatabase, tables_of, units_in, wanted_of

BINS = 64  # of persons: each is encoded at once


def encode(
    source: AnyTable | AnyDatabase, schema: Schema | Domain, *, records_per_person: int | None = None
) -> Records:
    """The records of a table; a cell without a place in the schema is an error that says how to make one.

    A table without rows has zero records. Rows that the schema drops are no records: the number of rows
    then depends on their cells (`Schema.drops_rows`). With `records_per_person` everybody keeps at most so
    many, whoever the schema's unit says they belong to (`persons`); without it all are kept. Of a database the
    records are units, and what is no part of one is dropped (`linking`).
    """
    schema = Schema.of(schema)
    if isinstance(schema.domain, Database):
        return units_in(source, schema.domain, schema.encoding)
    source = one_table(source)
    table = read_table(source, wanted_columns(source, schema, records_per_person))
    return encoded(table, schema, records_per_person=records_per_person)


def encoded(table: pa.Table, schema: Schema, *, records_per_person: int | None = None) -> Records:
    """The records of a table as it was read: its columns those wanted, and sound."""
    domain, columns = schema.domain, schema.domain.columns
    table = pa.table([plain(column) for column in table.columns], names=table.column_names)
    if schema.within is not None:  # before anything else is looked at
        names = [column.name for column in columns]
        stamped = schema.within.calendar.column
        stamps = table.column(names.index(stamped) if stamped in names else table.num_columns - 1)
        table = table.filter(pa.array(kept(stamps, schema.within, columns)))
    if schema.drop_rows_containing is not None:
        dropped = _rows_containing(schema.drop_rows_containing, table.select(range(len(columns))), columns)
        table = table.filter(pa.array(~dropped))
    both = together(partial(_encoded, table, columns), range(len(columns)))
    codes, places = tuple(each for each, _ in both), tuple(each for _, each in both)
    if all(each is None for each in places):
        places = ()
    if schema.unit is None or not by_person(schema, records_per_person):
        return Records(domain, table.num_rows, codes, places=places)
    names = [column.name for column in columns]
    place = names.index(schema.unit) if schema.unit in names else len(names)
    owners = owners_of(table.column(place), schema.unit)
    if records_per_person is None:
        assert isinstance(codes[0], SparseItems), "a long table is one block of items"
        whole = baskets(owners, codes[0], domain.width)
        return Records(domain, len(whole.start) - 1, (whole,))
    known = tuple(each for each in places if each is not None)  # equal records are equal in these, too
    rows = kept_rows(owners, (*codes, *known), records_per_person)
    return Records(domain, len(rows), taken(codes, rows), records_per_person, taken_places(places, rows))


def by_person(schema: Schema, records_per_person: int | None) -> bool:
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
    if schema.within is not None and schema.within.calendar.column not in names:
        names.append(schema.within.calendar.column)
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


def _encoded(table: pa.Table, columns: Sequence[Column], number: int) -> tuple[ColumnCodes, Places | None]:
    column, cells = columns[number], table.column(number)
    if isinstance(column, Items):
        return _encoded_items(column, cells), None
    if has_places(column):
        codes, places = encode_with_places(column, cells)
        return codes.astype(smallest_type(len(column.labels))), places
    return column.encode(cells).astype(smallest_type(len(column.labels)), copy=False), None


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


def record_blocks(
    source: AnyTable | AnyDatabase,
    schema: Schema,
    *,
    rows: int,
    records_per_person: int | None = None,
    tell: Callable[[int, int], None] = lambda done, size: None,
) -> Iterator[Records]:
    """What `encode` would give, in blocks of about so many records. Nothing may be counted before the last one."""
    if isinstance(schema.domain, Database):
        yield from _unit_blocks(source, schema.domain, schema.encoding, rows, tell)
        return
    source = one_table(source)
    wanted = replace(wanted_columns(source, schema, records_per_person, rows=rows), tell=tell)
    read = batches(source, wanted)
    if schema.unit is not None and by_person(schema, records_per_person):
        read = _person_by_person(read, schema.unit)
    for batch in read:
        yield encoded(batch, schema, records_per_person=records_per_person)


def _unit_blocks(
    source: AnyTable | AnyDatabase,
    database: Database,
    encoding: str | None,
    rows: int,
    tell: Callable[[int, int], None],
) -> Iterator[Records]:
    """The units of a database, those of some keys at a time; public tables are read at once."""
    tables, wanted = tables_of(source, database), wanted_of(database)
    public = {name: table for name, table in tables.items() if name not in wanted}
    with ExitStack() as open_files:
        bins = {name: [open_files.enter_context(closing(_Bin())) for _ in range(BINS)] for name in wanted}
        for name, (columns, key) in wanted.items():
            reading = WantedColumns(columns, encoding=encoding, rows=rows, tell=tell)
            for batch in batches(tables[name], reading):
                _sort_into(bins[name], batch.rename_columns(columns), key)
        nothing = {name: pa.table({n: pa.array([], pa.string()) for n in wanted[name][0]}) for name in wanted}
        for number in range(BINS):
            own = {name: next(bins[name][number].table(), nothing[name]) for name in wanted}
            yield units_in({**public, **own}, database, encoding)


def _sort_into(bins: Sequence[_Bin], batch: pa.Table, key: str | None) -> None:
    """The rows of a table to the bins of their keys."""
    assert key is not None, "checked with the schema"
    place = bin_of(batch.column(key), key, len(bins))
    for number in np.unique(place).tolist():
        bins[number].append(batch.take(pa.array(np.flatnonzero(place == number))))


def _person_by_person(read: Iterator[pa.Table], unit: str) -> Iterator[pa.Table]:
    """The same rows in other tables, those of a person all in one."""
    bins = [_Bin() for _ in range(BINS)]
    try:
        for batch in read:
            _sort_into(bins, batch, unit)
        for each in bins:
            yield from each.table()
    finally:
        for each in bins:
            each.close()


def bin_of(ids: pa.ChunkedArray, unit: str, bins: int) -> NDArray[np.int64]:
    """A bin for each row, by a hash of its person: the same in any batch, on any machine. Blank ids go first."""
    owners = owners_of(ids, unit)
    known = np.append(hashes_of(owners.ids, b"bin of a person") % np.uint64(bins), np.uint64(0))
    return known[np.minimum(owners.of, len(owners.ids))].astype(np.int64)


class _Bin:
    """Tables of one schema, one behind the other in a file without a name."""

    def __init__(self) -> None:
        self._file: Any = None
        self._writer: Any = None

    def append(self, table: pa.Table) -> None:
        # Dictionaries differ from batch to batch, and a stream of Arrow has one of each.
        plain = [c.cast(c.type.value_type) if pa.types.is_dictionary(c.type) else c for c in table.columns]
        table = pa.table(plain, names=table.column_names)
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open)
            self._writer, self._schema = pa.ipc.new_stream(self._file, table.schema), table.schema
        if table.schema != self._schema:  # a column without a cell in one part
            raise DataError("the parts of the table hold columns of different types; write all with the same")
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


def decode(records: Records) -> pa.Table:
    """The records as readable columns; `encode` gives the same records back."""
    domain = records.domain
    codes = dict(zip((column.name for column in domain.columns), records.columns, strict=True))
    columns = {column.name: column for column in domain.columns}
    places = records.places or (None,) * len(columns)
    every = zip(domain.columns, records.columns, places, strict=True)
    numeric = [each for each in every if isinstance(each[0], Numeric)]
    spread = together(lambda each: _spread_out(*each), numeric)
    numbers = {column.name: placed for (column, *_), placed in zip(numeric, spread, strict=True)}
    for rule in domain.rules:
        if isinstance(rule, Sum):
            names = (rule.total, *rule.parts)
            _add_up([columns[name] for name in names], [codes[n] for n in names], [numbers[n] for n in names])
    made = together(
        lambda pair: _decoded(*pair, numbers.get(pair[0].name), records.rows),
        list(zip(domain.columns, records.columns, strict=True)),
    )
    decoded = dict(zip(columns, made, strict=True))
    for rule in domain.rules:
        if isinstance(rule, Dependency) and isinstance(columns[rule.attribute], Numeric):
            # Records that agree on what it depends on agree on the number, too.
            on = np.stack([np.asarray(codes[name]) for name in rule.on], axis=1)
            _, first, group = np.unique(on, axis=0, return_index=True, return_inverse=True)
            decoded[rule.attribute] = decoded[rule.attribute].take(from_numpy(first[group.ravel()]))
    return pa.table(decoded)


def _spread_out(column: Any, codes: Any, places: Places | None) -> NDArray[np.float64]:
    """The numbers of a column: at their places inside bins where these are known, else spread over the bins."""
    return column.spread_out(codes) if places is None else numbers_at(column, codes, places)


def _add_up(
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
        low, high = column.bounds()
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


def _decoded(column: Column, codes: ColumnCodes, numbers: NDArray[np.float64] | None, rows: int) -> pa.Array:
    if isinstance(column, Items):
        assert not isinstance(codes, np.ndarray)
        sparse = codes if isinstance(codes, SparseItems) else as_lists(codes, rows)
        long = int(sparse.start[-1]) > np.iinfo(np.int32).max
        lists, offset = (pa.LargeListArray, np.int64) if long else (pa.ListArray, np.int32)
        start, ids = sparse.start.astype(offset), sparse.ids + np.int32(column.first)
        return lists.from_arrays(from_numpy(start), from_numpy(ids))
    assert isinstance(codes, np.ndarray)
    if isinstance(column, Categorical):
        return column.decode(codes)
    assert numbers is not None
    return column.decode(numbers, codes == column.bins)
