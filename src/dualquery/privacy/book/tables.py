"""The two tables, as queries see them. Their constraints and triggers stand in sqlite.sql and postgresql.sql.

The definitions are texts, not made by a library: a file that holds anything but these texts is not ours, or was
changed, and is refused before anything in it is believed.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import sqlalchemy as sql

from dualquery.errors import LedgerError

METADATA = sql.MetaData()

BOOKS = sql.Table(
    "dualquery_books",
    METADATA,
    sql.Column("id", sql.BigInteger, primary_key=True),
    sql.Column("format", sql.BigInteger),
    sql.Column("name", sql.Text),
    sql.Column("nonce", sql.Text),
    sql.Column("neighbours", sql.Text),
    sql.Column("currency", sql.Text),
    sql.Column("epsilon", sql.Text),
    sql.Column("delta", sql.Text),
    sql.Column("cap", sql.BigInteger),
    sql.Column("created", sql.Text),
    sql.Column("origin", sql.Text),
    sql.Column("spent", sql.BigInteger),
)

CHARGES = sql.Table(
    "dualquery_charges",
    METADATA,
    sql.Column("id", sql.BigInteger, primary_key=True),
    sql.Column("book", sql.BigInteger),
    sql.Column("sequence", sql.BigInteger),
    sql.Column("day", sql.Text),
    sql.Column("release", sql.Text),
    sql.Column("what", sql.Text),
    sql.Column("units", sql.BigInteger),
    sql.Column("spent_after", sql.BigInteger),
    sql.Column("previous", sql.Text),
    sql.Column("hash", sql.Text),
)


@cache
def definitions(dialect: str) -> tuple[str, ...]:
    """The statements that make the tables, one by one."""
    text = (files("dualquery.privacy.book") / f"{dialect}.sql").read_text(encoding="utf-8")
    return tuple(statement.strip() for statement in text.split("\n\n"))


def exist(connection: sql.Connection) -> bool:
    """Whether there is a ledger; LedgerError where there is something else, or one that was tampered with."""
    found = (
        _found_in_file(connection) if connection.dialect.name == "sqlite" else _found_in_server(connection)
    )
    wanted = _wanted(connection.dialect.name)
    if not found:
        return False
    if found != wanted:
        raise LedgerError(
            "this is not a ledger that dualquery wrote, or its tables, constraints or triggers were changed; name "
            "another ledger, or restore a copy"
        )
    return True


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
