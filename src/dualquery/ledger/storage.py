"""The two tables, as queries see them. Their constraints and triggers stand in sqlite.sql and postgresql.sql.

The definitions are texts, not made by a library: a file that holds anything but these texts is not ours, or was
changed, and is refused before anything in it is believed.

Where books are kept: a file (SQLite), or a URL (PostgreSQL); opened so that what is committed is on disk.

SQLite: one file; `BEGIN IMMEDIATE`, so that of two writers one waits; a rollback journal, and `synchronous = EXTRA`:
the file is flushed before the commit and the folder after the journal is gone, so that no loss of power brings it
back. PostgreSQL: `synchronous_commit = on` in every transaction, and a server with `fsync = off` is refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import sqlalchemy as sql
from sqlalchemy import event, exc

from dualquery.errors import LedgerError
from dualquery.ledger.book import Place

METADATA = sql.MetaData()


def _table(name: str, columns: str) -> sql.Table:
    """A table of these columns, each `name` a text or `name#` a whole number; the first is its key."""
    first, *others = columns.split()
    return sql.Table(
        name,
        METADATA,
        sql.Column(first.rstrip("#"), sql.BigInteger, primary_key=True),
        *(sql.Column(each.rstrip("#"), sql.BigInteger if "#" in each else sql.Text) for each in others),
    )


BOOKS = _table(
    "dualquery_books",
    "id# format# name nonce neighbours currency epsilon delta cap# created origin spent#",
)
CHARGES = _table(
    "dualquery_charges", "id# book# sequence# day release what units# spent_after# previous hash"
)


@cache
def definitions(dialect: str) -> tuple[str, ...]:
    """The statements that make the tables, one by one."""
    text = (files("dualquery.ledger") / f"book_{dialect}.sql").read_text(encoding="utf-8")
    return tuple(statement.strip() for statement in text.split("\n\n"))


def exist(connection: sql.Connection) -> bool:
    """Whether there is a ledger; LedgerError where there is something else, or one that was tampered with."""
    found = (
        _found_in_file(connection) if connection.dialect.name == "sqlite" else _found_in_server(connection)
    )
    wanted = _wanted(connection.dialect.name)
    if not found:
        return False
    if found not in (wanted, _before_questions(wanted)):
        raise LedgerError(
            "this is not a ledger that dualquery wrote, or its tables, constraints or triggers were changed; name "
            "another ledger, or restore a copy"
        )
    return True


def _before_questions(wanted: frozenset[str]) -> frozenset[str]:
    """The same texts as they were before there were books for questions: such a ledger is as good as ever."""
    return frozenset(text.replace(", 'renyi')", ")") for text in wanted)


def make(connection: sql.Connection) -> None:
    """Make the tables, in the transaction of whoever calls."""
    for statement in definitions(connection.dialect.name):
        connection.exec_driver_sql(statement)


@cache
def _wanted(dialect: str) -> frozenset[str]:
    statements = definitions(dialect)
    if dialect == "sqlite":
        return frozenset(statements)
    names = set()
    for statement in statements:
        names |= set(re.findall(r"(?:CONSTRAINT|TRIGGER|TABLE) (dualquery_\w+)", statement))
    return frozenset(names)


def _found_in_file(connection: sql.Connection) -> frozenset[str]:
    """Everything that a file defines; indices that constraints imply have no text."""
    rows = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return frozenset(str(text) for (text,) in rows)


def _found_in_server(connection: sql.Connection) -> frozenset[str]:
    """Tables, named constraints that have been checked, and triggers that are switched on."""
    rows = connection.exec_driver_sql(
        """
        SELECT relname FROM pg_class WHERE oid IN (to_regclass('dualquery_books'), to_regclass('dualquery_charges'))
        UNION ALL SELECT conname FROM pg_constraint WHERE conname LIKE 'dualquery\\_%%' AND convalidated
            AND contype IN ('c', 'u') AND conname NOT LIKE '%%\\_not\\_null'
            AND conrelid IN (to_regclass('dualquery_books'), to_regclass('dualquery_charges'))
        UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
            AND tgrelid IN (to_regclass('dualquery_books'), to_regclass('dualquery_charges'))
        """
    )
    return frozenset(str(name) for (name,) in rows)


PATIENCE = 60  # seconds that a charge waits for others
_BEGIN = "dualquery_begin"  # the option of a connection that says how to begin
_KINDS = "a ledger is a file, or postgresql://user@host/database"


def engine_of(place: Place, *, new: bool = False) -> sql.Engine:
    """An engine for a file or a URL. A file that does not exist is made only where it is to be `new`."""
    text = os.fspath(place)
    if "://" not in text:
        return _file_engine(Path(text), new=new)
    try:
        url = sql.make_url(text)
    except (exc.ArgumentError, ValueError):
        raise LedgerError(f"the URL of the ledger cannot be understood; {_KINDS}") from None
    if url.get_backend_name() == "sqlite" and url.database:
        return _file_engine(Path(url.database), new=new)
    if url.get_backend_name() not in ("postgresql", "postgres"):
        raise LedgerError(f"a ledger cannot be kept there; {_KINDS}")
    return _server_engine(url.set(drivername="postgresql+psycopg"))


def _file_engine(path: Path, *, new: bool) -> sql.Engine:
    if path.is_dir():
        raise LedgerError(f"'{path}' is a folder; {_KINDS}")
    if not new and not path.exists():
        raise LedgerError(f"there is no ledger '{path}'; make one with `dualquery ledger create`")
    engine = sql.create_engine(
        sql.URL.create("sqlite+pysqlite", query={"uri": "true"}, database=_file_uri(path, new=new)),
        connect_args={"timeout": PATIENCE, "isolation_level": None},
        poolclass=sql.NullPool,
    )
    event.listen(engine, "connect", _settings_of_a_file)
    event.listen(engine, "begin", _begin)
    return engine


def _file_uri(path: Path, *, new: bool) -> str:
    return f"{path.resolve().as_uri()}?mode={'rwc' if new else 'rw'}"


def _settings_of_a_file(connection: Any, _record: object) -> None:
    for setting in (
        "trusted_schema = OFF",
        "cell_size_check = ON",
        "foreign_keys = ON",
        "journal_mode = DELETE",
        "synchronous = EXTRA",
    ):
        connection.execute(f"PRAGMA {setting}").fetchall()


def _begin(connection: sql.Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get(_BEGIN, "BEGIN"))


def _server_engine(url: sql.URL) -> sql.Engine:
    try:
        return sql.create_engine(url, connect_args={"connect_timeout": PATIENCE}, poolclass=sql.NullPool)
    except ModuleNotFoundError:
        raise LedgerError(
            "a ledger in PostgreSQL needs the extra `postgres`: pip install 'dualquery[postgres]'"
        ) from None


@contextmanager
def transaction(engine: sql.Engine, *, writes: bool) -> Iterator[sql.Connection]:
    """A transaction that is durable when it ends well; whatever the database refuses is a sentence."""
    try:
        with engine.connect() as connection:
            # A reader sees one moment; a writer locks first, and then sees what others have committed.
            if engine.dialect.name == "sqlite":
                connection = connection.execution_options(
                    **{_BEGIN: "BEGIN IMMEDIATE" if writes else "BEGIN"}
                )
            else:
                level = "READ COMMITTED" if writes else "REPEATABLE READ"
                connection = connection.execution_options(isolation_level=level)
            with connection.begin():
                _check(connection)
                yield connection
    except exc.DBAPIError as error:
        raise LedgerError(sentence_of(error, engine.dialect.name)) from None
    except (exc.SQLAlchemyError, UnicodeError, OverflowError, OSError):
        raise LedgerError(_DAMAGED) from None


def _check(connection: sql.Connection) -> None:
    """What must hold before anything that is read is believed, or anything that is written is called durable."""
    if connection.dialect.name == "sqlite":
        if connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok":
            raise LedgerError(_DAMAGED)
        return
    connection.exec_driver_sql("SET LOCAL synchronous_commit = on")
    connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE}s'")
    if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
        raise LedgerError(
            "this PostgreSQL server does not wait for its disk (fsync = off), so that a charge could be forgotten; "
            "switch fsync on"
        )


_DAMAGED = (
    "this ledger is damaged, or not a ledger at all; charge nothing to it, and restore the last copy whose audit "
    "against all certificates passes"
)


def sentence_of(error: exc.DBAPIError, dialect: str) -> str:
    """What the database said, in our words: its own may name hosts, users and rows."""
    said = str(error.orig).lower()
    if any(words in said for words in ("locked", "lock timeout", "busy")):
        return "another release is being charged to this ledger and did not finish in time; try again"
    if any(words in said for words in ("readonly", "read-only", "permission denied")):
        return "this ledger may not be written; ask for the permission to write it, and to its folder"
    if any(words in said for words in ("unable to open", "disk i/o", "disk is full", "no space left")):
        return (
            "this ledger cannot be opened or written: look at its folder, its permissions, and the space left"
        )
    if isinstance(error, exc.IntegrityError):
        return "the ledger refused this, because it would break its own rules; nothing was written"
    if dialect == "sqlite":
        return _DAMAGED
    if isinstance(error, exc.OperationalError):
        return (
            "the database of the ledger cannot be reached, or hung up; look at its address, user and password"
        )
    return "the database of the ledger refused; its user needs to read and write the tables dualquery_*"
