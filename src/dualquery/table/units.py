"""Units: records of the protected table of a database, each with the rows that hang on it.

From the tables of a database to units: by their keys, and without the rows that belong to no unit.

A source is a folder with a file for each table (`person.csv`, `person.parquet`, …), an SQLite, DuckDB or Excel file,
the address of a PostgreSQL database, or a dict of tables by name. Keys are compared as those of persons are
(`table.persons`): 17, 17.0 and "17 " are one.

*What is dropped is dropped unit by unit*, in this order, and each time by looking at the rows of one key alone:

    a row with a value that the schema does not have (and no place for unknown ones)
    a row with a blank key
    of several rows of the protected table with one key, all but the first in the order of their codes
    a row of a child table whose key no row of the protected table has
    of more than `at_most` rows of one unit, those with the largest tickets (`table.persons`)
    a unit with fewer than `at_least` rows of some table

So whoever adds or removes all rows of one key adds or removes one unit and changes no other. Nothing is told of the
dropped rows but their number, to the steward (`Units.dropped`): it stands in no release and in no message.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.table.cells import plain
from dualquery.table.database import Database, Linked, Lookup, starts_of
from dualquery.table.domain import Column, Items
from dualquery.table.persons import Owners, by_tickets, owners_of, places_of
from dualquery.table.reading import AnyTable, read_table, source_of
from dualquery.table.reading.mixed import BOOK
from dualquery.table.reading.postgresql import PostgresTable, is_database
from dualquery.table.reading.source import WantedColumns, is_path, quoted_path
from dualquery.table.records import Codes, ColumnCodes, Records, smallest_type, taken
from dualquery.types import Integers


@dataclass(frozen=True)
class Members:
    """The rows of one child table: those of unit u are start[u] : start[u + 1]."""

    start: NDArray[np.int64]
    records: Records

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each unit has."""
        return np.diff(self.start)

    @property
    def owner(self) -> NDArray[np.int64]:
        """The unit of each row."""
        return np.repeat(np.arange(len(self.start) - 1), self.sizes)

    def take(self, units: NDArray[np.int64]) -> Members:
        """The rows of some units, in this order."""
        sizes = self.sizes[units]
        start = starts_of(sizes)
        rows = np.arange(start[-1]) + np.repeat(self.start[units] - start[:-1], sizes)
        return Members(start, self.records.take(rows))

    def in_order(self, attribute: int | None) -> Members:
        """The rows of each unit in the order of an attribute, those that agree as they stood."""
        if attribute is None:
            return self
        order = np.lexsort((self.records.columns[attribute], self.owner))  # type: ignore[arg-type]
        return Members(self.start, self.records.take(order))

    def with_more(self, more: Members) -> Members:
        start = np.concatenate([self.start, self.start[-1] + more.start[1:]])
        return Members(start, self.records.with_more(more.records))


@dataclass(frozen=True)
class Units(Records):
    """`rows` units over a `Database`; one entry of `members` per child table, in the order of the schema.

    `dropped` says how many rows of the source are in none, and why: for the steward alone.
    """

    members: tuple[Members, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        database = self.database
        if len(self.members) != len(database.children):
            raise DataError("units need the rows of every table that hangs on them")
        sizes_at = len(database.root.columns)
        for child, members, codes in zip(
            database.children, self.members, self.columns[sizes_at:], strict=True
        ):
            start = members.start
            if start.shape != (self.rows + 1,) or start[0] != 0 or start[-1] != members.records.rows:
                raise DataError(
                    f"the rows of table '{child.name}' must lie one behind the other, unit by unit"
                )
            sizes = members.sizes
            if self.rows and not child.at_least <= sizes.min() <= sizes.max() <= child.at_most:
                raise DataError(f"units have fewer or more rows of table '{child.name}' than the schema says")
            if members.records.domain != child.domain or (child.size_codes(sizes) != codes).any():
                raise DataError(f"the rows of table '{child.name}' are not what the units say of them")

    @property
    def database(self) -> Database:
        assert isinstance(self.domain, Database)
        return self.domain

    def joined(self, child: str) -> Records:
        """Every row of a child table with what is known of its unit (`Database.view_domain`)."""
        members = self.members[self.database.place(child)]
        columns = (*taken(self.columns, members.owner), *members.records.columns)
        return Records(self.database.view_domain(child), members.records.rows, columns)

    @property
    def bytes(self) -> int:
        return super().bytes + sum(each.start.nbytes + each.records.bytes for each in self.members)

    def take(self, rows: NDArray[np.int64]) -> Units:
        flat = super().take(rows)
        members = tuple(each.take(rows) for each in self.members)
        return Units(self.domain, flat.rows, flat.columns, places=flat.places, members=members)

    def with_more(self, more: Records) -> Units:
        assert isinstance(more, Units)
        flat = super().with_more(more)
        members = tuple(a.with_more(b) for a, b in zip(self.members, more.members, strict=True))
        return Units(self.domain, flat.rows, flat.columns, places=flat.places, members=members)


def units_of(database: Database, roots: Integers, tables: Sequence[tuple[Integers, Integers]]) -> Units:
    """Units from codes: one row per unit, of its own attributes; of each child table sizes, and its rows."""
    members = tuple(
        Members(starts_of(sizes), Records.from_rows(child.domain, np.asarray(rows, np.int64)))
        for child, (sizes, rows) in zip(database.children, tables, strict=True)
    )
    own = Records.from_rows(database.root.domain, roots).columns if database.root.columns else ()
    return with_sizes(database, len(roots), own, members)


def with_sizes(
    database: Database,
    rows: int,
    own: Sequence[ColumnCodes],
    members: tuple[Members, ...],
    dropped: Mapping[str, int] | None = None,
) -> Units:
    """Units from the columns of the protected table and the rows that hang on them."""
    sizes: list[Codes] = []
    for child, each in zip(database.children, members, strict=True):
        if rows and not child.at_least <= each.sizes.min() <= each.sizes.max() <= child.at_most:
            raise DataError(f"units have fewer or more rows of table '{child.name}' than the schema says")
        sizes.append(child.size_codes(each.sizes).astype(smallest_type(len(child.size.labels))))
    return Units(database, rows, (*own, *sizes), members=members, dropped=dropped or {})


def joined_units(parts: Sequence[Units]) -> Units:
    """All units one behind the other."""
    first, *others = parts
    for each in others:
        first = first.with_more(each)
    return first


AnyDatabase = str | os.PathLike[str] | Mapping[str, AnyTable]


def units_in(source: Any, database: Database, encoding: str | None = None) -> Units:
    """The units of a database, sorted by their keys, the rows of each by their tickets."""
    tables = tables_of(source, database)
    dropped: Counter[str] = Counter()
    public = {name: _public(tables[name], each, encoding) for name, each in database.lookups.items()}
    rows = {
        each.name: _read(tables[each.name], each, each.link or each.key, public, encoding, dropped)
        for each in database.tables
        if each.given
    }
    named = database.root.name
    root = _first_of_each(rows[named], dropped) if database.root.given else _named_in(rows.values())
    members = [_members(rows[each.name], each, root.ids, dropped) for each in database.children]
    sizes_fit = np.ones(len(root.of), np.bool_)
    for child, each in zip(database.children, members, strict=True):
        sizes_fit &= each.sizes >= child.at_least
    dropped["units with fewer rows than 'at_least'"] += int((~sizes_fit).sum())
    kept = np.flatnonzero(sizes_fit)
    own = taken(root.columns, kept)
    return with_sizes(database, len(kept), own, tuple(each.take(kept) for each in members), +dropped)


def wanted_of(database: Database) -> dict[str, tuple[list[str], str | None]]:
    """The columns that are read of each private table, and which of them has the key of a unit."""
    found = {}
    for each in database.tables:
        if each.given:
            key = each.link or each.key
            names = [*(column.name for column in each.own), key, *(lookup.link for lookup in each.lookups)]
            found[each.name] = [*dict.fromkeys(name for name in names if name is not None)], key
    return found


def tables_of(source: Any, database: Database) -> dict[str, AnyTable]:
    """Where each table of a database is read."""
    names = [*(each.name for each in database.tables if each.given), *database.lookups]
    if isinstance(source, Mapping):
        for name in names:
            if name not in source:
                raise DataError(f"no table '{name}' was given; give all of {', '.join(names)} by their names")
        return {name: source[name] for name in names}
    if len(names) == 1 and (
        not is_path(source) or (Path(source).is_file() and not BOOK.handles(Path(source)))
    ):
        return {names[0]: source}
    if is_path(source) and is_database(os.fspath(source)):
        return {name: PostgresTable(os.fspath(source), name) for name in names}
    if not is_path(source):
        raise DataError(
            f"a {type(source).__name__} is no database; give a folder of its tables, an SQLite file, or a dict of "
            "tables by name"
        )
    path = Path(source)
    if path.is_dir():
        return {name: _file_of(path, name) for name in names}
    if not path.exists():
        raise DataError(f"there is no folder or file {quoted_path(path)}")
    if not BOOK.handles(path):
        raise DataError(
            f"{quoted_path(path)} is one table, and the schema describes {len(names)}; give the folder that holds "
            "all of them, or an SQLite file"
        )
    return {name: f"{path}#{name}" for name in names}


def _file_of(folder: Path, name: str) -> Path:
    """The file (or folder of Parquet files) of this name, whatever stands behind its first point."""
    found = [each for each in sorted(folder.iterdir()) if each.name.partition(".")[0] == name]
    if len(found) != 1:
        count = "no" if not found else "more than one"
        raise DataError(
            f"folder {quoted_path(folder)} has {count} table '{name}'; each table of the schema is one file of its "
            f"name, like {name}.csv or {name}.parquet"
        )
    source_of(found[0])  # refuses what nobody reads
    return found[0]


@dataclass(frozen=True)
class _Rows:
    """Rows of one table with a place for every cell and with a key: row r has the key ids[of[r]]."""

    columns: tuple[Codes, ...]
    of: NDArray[np.int64]
    ids: pa.Array

    def take(self, rows: NDArray[np.int64]) -> _Rows:
        return _Rows(tuple(codes[rows] for codes in self.columns), self.of[rows], self.ids)


@dataclass(frozen=True)
class _Public:
    """A public table: of each of its keys the codes, and as the last one that of a row which is not there."""

    ids: pa.Array
    codes: tuple[NDArray[np.int64], ...]

    def of(self, cells: pa.ChunkedArray, link: str) -> list[NDArray[np.int64]]:
        """The codes of the rows that some cells name."""
        owners = owners_of(cells, link)
        place = pc.index_in(owners.ids, value_set=self.ids).fill_null(-1).to_numpy().astype(np.int64)
        named = np.append(place, -1)[np.minimum(owners.of, len(place))]
        return [codes[named] for codes in self.codes]


def _public(source: AnyTable, table: Lookup, encoding: str | None) -> _Public:
    """It protects nobody, so that whatever is wrong with it is an error."""
    names = [*(column.name for column in table.columns), table.key]
    *cells, keys = _cells(source, table.name, names, encoding)
    owners = owners_of(keys, table.key)
    if len(owners.ids) != len(keys):
        raise DataError(
            f"the public table '{table.name}' has a row without a key, or two rows with one key; each needs its own"
        )
    codes = []
    for column, each in zip(table.columns, cells, strict=True):
        found = _placed(column, each)
        if (found < 0).any():
            raise DataError(
                f"the public table '{table.name}' has a value of '{column.name}' that the schema does not list"
            )
        nothing = _placed(column, pa.chunked_array([pa.nulls(1, pa.string())]))
        by_key = np.empty(len(found) + 1, np.int64)
        by_key[owners.of] = found
        by_key[-1] = nothing[0]
        codes.append(by_key)
    return _Public(owners.ids, tuple(codes))


def _cells(source: AnyTable, name: str, columns: list[str], encoding: str | None) -> list[pa.ChunkedArray]:
    """Some columns of a table; one that is wanted twice is read once."""
    names = list(dict.fromkeys(columns))
    try:
        read = read_table(source, WantedColumns(names, encoding=encoding))
    except DataError as problem:
        where = "" if is_path(source) else f"table '{name}': "
        raise DataError(f"{where}{problem}") from None
    return [plain(read.column(names.index(each))) for each in columns]


def _read(
    source: AnyTable,
    table: Linked,
    key: str | None,
    public: Mapping[str, _Public],
    encoding: str | None,
    dropped: Counter[str],
) -> _Rows:
    assert key is not None, "checked with the schema"
    names = [*(column.name for column in table.own), key, *(each.link for each in table.lookups)]
    cells = _cells(source, table.name, names, encoding)
    own = cells[: len(table.own)]
    codes = [_placed(column, each) for column, each in zip(table.own, own, strict=True)]
    for lookup, links in zip(table.lookups, cells[len(own) + 1 :], strict=True):
        codes += public[lookup.name].of(links, lookup.link)
    owners = owners_of(cells[len(own)], key)
    fits, known = np.ones(len(owners.of), np.bool_), owners.of < len(owners.ids)
    columns = []
    for column, each in zip(table.columns, codes, strict=True):
        fits &= each >= 0
        columns.append(np.maximum(each, 0).astype(smallest_type(len(column.labels))))
    dropped[f"rows of '{table.name}' with a value that the schema does not have"] += int((~fits).sum())
    dropped[f"rows of '{table.name}' with a blank key"] += int((fits & ~known).sum())
    return _Rows(tuple(columns), owners.of, owners.ids).take(np.flatnonzero(fits & known))


def _placed(column: Column, cells: pa.ChunkedArray) -> NDArray[np.int64]:
    """The code of each cell, below 0 where it has none."""
    assert not isinstance(column, Items), "refused with the schema"
    return column.placed(cells).astype(np.int64)


def _first_of_each(rows: _Rows, dropped: Counter[str]) -> _Rows:
    """One row a key, the first in the order of codes, sorted by key; `of` then numbers the keys from 0."""
    rank = np.empty(len(rows.ids), np.int64)
    rank[np.asarray(pc.sort_indices(rows.ids))] = np.arange(len(rows.ids))
    at = rank[rows.of]
    order = np.lexsort((*rows.columns[::-1], at))
    begins = np.append(True, at[order][1:] != at[order][:-1])[: len(order)]
    dropped["further rows of the protected table with the same key"] += int((~begins).sum())
    first = rows.take(order[begins])
    return _Rows(first.columns, np.arange(len(first.of)), rows.ids.take(pa.array(first.of)))


def _named_in(tables: Iterable[_Rows]) -> _Rows:
    """A row without attributes for each key that stands in one of these tables, sorted."""
    held = [rows.ids.take(pa.array(np.unique(rows.of))) for rows in tables]
    ids = pa.chunked_array(held).unique().sort()
    return _Rows((), np.arange(len(ids)), ids)


def _members(rows: _Rows, child: Linked, units: pa.Array, dropped: Counter[str]) -> Members:
    """The rows that hang on these units, at most so many on each, sorted by unit, by `order` and by ticket."""
    unit = pc.index_in(rows.ids, value_set=units).fill_null(-1).to_numpy().astype(np.int64)
    at = unit[rows.of]
    dropped[f"rows of '{child.name}' that hang on no row of the protected table"] += int((at < 0).sum())
    there = np.flatnonzero(at >= 0)
    columns, at = tuple(codes[there] for codes in rows.columns), at[there]
    order = by_tickets(Owners(at, units), columns, np.arange(len(at)))
    order = order[places_of(at[order]) < child.at_most]
    dropped[f"rows of '{child.name}' beyond {child.at_most} of one unit"] += len(at) - len(order)
    start = starts_of(np.bincount(at[order], minlength=len(units)))
    records = Records(child.domain, len(order), tuple(codes[order] for codes in columns))
    return Members(start, records).in_order(child.ordering)
