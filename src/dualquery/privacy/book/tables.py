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
