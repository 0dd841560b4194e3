"""A table or view of a PostgreSQL database, read in a stream.

One statement, `COPY (SELECT …) TO STDOUT`, sees the table at one moment and hands it over as text, row after row,
without keeping it. Each cell is written by its declared type alone (dates in ISO form, numbers in full, truth values
as `true` and `false`, arrays of items as ids between blanks), so a record does not depend on the others
(docs/schema.md); numbers and dates are known as such. What arrives passes the same checker as a text file.

The address may hold a password: no message repeats it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.cells import all_typed
from dualquery.table.reading.delimited import delimited_batches
from dualquery.table.reading.source import GROWTH, Declared, Source, WantedColumns, choose, slices

ADDRESSES = ("postgresql://", "postgres://")
# How a cell is written must not depend on who asks.
_MANNERS = (
    "SET TRANSACTION READ ONLY",
    "SET LOCAL datestyle = 'ISO, YMD'",
    "SET LOCAL intervalstyle = 'iso_8601'",
    "SET LOCAL timezone = 'UTC'",
    "SET LOCAL extra_float_digits = 1",
)
_SEEN = (
    "c.relkind IN ('r', 'p') AND NOT c.relispartition AND pg_table_is_visible(c.oid) AND n.nspname !~ '^pg_'"
)
_COLUMNS = f"""
SELECT c.relname, a.attname, format_type(a.atttypid, NULL),
       ARRAY(SELECT enumlabel::text FROM pg_enum WHERE enumtypid = a.atttypid ORDER BY enumsortorder),
       NOT a.attnotnull
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
WHERE {_SEEN} AND a.attnum > 0 AND NOT a.attisdropped ORDER BY c.relname, a.attnum"""
_NAMES = """ARRAY(SELECT a.attname::text FROM unnest({}) WITH ORDINALITY k(at, place)
JOIN pg_attribute a ON a.attrelid = {} AND a.attnum = k.at ORDER BY place)"""
_KEYS = f"""
SELECT c.relname, {_NAMES.format("o.conkey", "o.conrelid")}, (SELECT relname FROM pg_class WHERE oid = o.confrelid),
       {_NAMES.format("o.confkey", "o.confrelid")}
FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE {_SEEN} AND o.contype IN ('p', 'f') ORDER BY o.conname"""
UNKNOWN = 1 << 50  # bytes
# Types of cells that are in no notation of texts.
_TYPED = ("int2", "int4", "int8", "float4", "float8", "numeric", "date", "timestamp", "timestamptz")


@dataclass(frozen=True)
class PostgresTable:
    """`name` is a table or a view, with its schema before a point where it needs one."""

    url: str = field(repr=False)
    name: str

    def __post_init__(self) -> None:
        if not is_database(self.url):
            raise DataError("a database is named like postgresql://user@host/database")
        if not self.name or not all(self.name.split(".")) or self.name.count(".") > 1:
            raise DataError("name the table of the database with --table, like people or public.people")

    @property
    def where(self) -> str:
        return f"table '{self.name}' of the database"

    def memory(self) -> int:
        """What it takes while it is read at once; what the server does not know, as of a view, may be anything."""
        with self._connection() as connection:
            found = connection.execute("SELECT pg_table_size(to_regclass(%s))", [self._quoted()]).fetchone()
        return GROWTH * int(found[0]) if found and found[0] else UNKNOWN

    def batches(self, wanted: WantedColumns) -> Iterator[pa.Table]:
        """The named columns as texts, some rows at a time; `lists` hold items, as arrays or as texts."""
        with self._connection() as connection:
            statement, called, typed = self._statement(connection, wanted.names, wanted.lists)
            with connection.cursor().copy(statement) as copy:
                for batch in delimited_batches(_Rows(copy), called, self.where):
                    columns = [
                        all_typed(c) if known else c for known, c in zip(typed, batch.columns, strict=True)
                    ]
                    yield from slices(pa.table(columns, names=called), wanted.rows)

    def _statement(
        self, connection: Any, names: Sequence[str] | None, lists: Collection[str]
    ) -> tuple[Any, list[str], list[bool]]:
        """What to ask the server, the names of the columns, and whether their cells are numbers or dates."""
        from psycopg import sql

        table = sql.SQL(self._quoted())
        cursor = connection.execute(sql.SQL("SELECT * FROM {} LIMIT 0").format(table))
        found = [column.name for column in cursor.description]
        array = {column.name for column in cursor.description if _is_array(column.type_code, connection)}
        chosen = [found[i] for i in choose(names, found, self.where)]
        kinds = {connection.adapters.types[name].oid for name in _TYPED}
        typed = {column.name: column.type_code in kinds for column in cursor.description}
        called = list(names) if names is not None else chosen
        cells = []
        for here, name in zip(chosen, called, strict=True):
            way = "array_to_string({}, ' ')" if here in array and name in lists else "{}::text"
            cells.append(sql.SQL(way + " AS {}").format(sql.Identifier(here), sql.Identifier(name)))
        wanted = sql.SQL(", ").join(cells)
        return (
            sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT (FORMAT csv, HEADER true)").format(wanted, table),
            called,
            [typed[name] for name in chosen],
        )

    def _quoted(self) -> str:
        return ".".join('"' + part.replace('"', '""') + '"' for part in self.name.split("."))

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        try:
            import psycopg
        except ImportError:
            raise DataError(
                "a table of PostgreSQL needs the extra `postgres`: pip install 'dualquery[postgres]'"
            ) from None
        try:
            with psycopg.connect(
                self.url, client_encoding="utf8", application_name="dualquery"
            ) as connection:
                for manner in _MANNERS:
                    connection.execute(manner)
                yield connection
                connection.rollback()
        except psycopg.errors.UndefinedTable:
            raise DataError(f"there is no {self.where}; look at its name and its schema") from None
        except psycopg.errors.InsufficientPrivilege:
            raise DataError(f"{self.where} may not be read by this user of the database") from None
        except psycopg.errors.UntranslatableCharacter:
            raise DataError(f"{self.where} holds texts that are not UTF-8") from None
        except psycopg.OperationalError:
            raise DataError(
                f"{self.where} cannot be reached, or the connection broke; look at the address, the user, the "
                "password (PGPASSWORD or ~/.pgpass) and the server"
            ) from None
        except psycopg.Error as problem:
            raise DataError(
                f"{self.where} cannot be read: the server answered with SQLSTATE {problem.sqlstate}"
            ) from None


def declared_at(url: str) -> list[Declared]:
    """All tables of the search path with their keys, from the catalog alone."""
    with PostgresTable(url, "pg_constraint")._connection() as connection:
        columns, keys = (connection.execute(asked).fetchall() for asked in (_COLUMNS, _KEYS))
    return [
        Declared(
            name,
            {column: tuple(told) for table, column, *told in columns if table == name},
            tuple((tuple(own), to, tuple(its)) for table, own, to, its in keys if table == name and to),
            next((tuple(own) for table, own, to, _ in keys if table == name and not to), ()),
        )
        for name in dict.fromkeys(table for table, *_ in columns)
    ]


def is_database(source: object) -> bool:
    return isinstance(source, str) and source.startswith(ADDRESSES)


def _is_array(kind: int, connection: Any) -> bool:
    known = connection.adapters.types.get(kind)
    return known is not None and kind == known.array_oid


class _Rows:
    """What COPY sends, as a file that can be read."""

    def __init__(self, copy: Any) -> None:
        self._blocks = iter(copy)
        self._left = b""
        self._over = False

    def read(self, count: int) -> bytes:
        some, length = [self._left], len(self._left)
        while length < count and not self._over:
            block = bytes(next(self._blocks, b""))
            self._over = not block
            some.append(block)
            length += len(block)
        whole = b"".join(some)
        self._left = whole[count:]
        return whole[:count]


def _named(given: PostgresTable | str) -> PostgresTable:
    if isinstance(given, str):
        raise DataError("name the table of the database too: --table people, or PostgresTable(url, 'people')")
    return given


DATABASE = Source(
    lambda given: isinstance(given, PostgresTable) or is_database(given),
    lambda given, wanted: _named(given).batches(wanted),
    lambda given: _named(given).memory(),
)
