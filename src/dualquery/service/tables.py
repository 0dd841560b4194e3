"""The tables of a ledger of a service, as queries see them; sqlite.sql and postgresql.sql hold rules and triggers."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

import sqlalchemy as sql

METADATA = sql.MetaData()
LEDGERS = sql.Table(
    "dualquery_service",
    METADATA,
    *(sql.Column(each, sql.BigInteger, primary_key=each == "id") for each in ("id", "format", "cap")),
    *(sql.Column(each, sql.BigInteger) for each in ("length", "spent")),
    *(sql.Column(each, sql.Text) for each in ("dataset", "nonce", "promise", "created", "origin", "head")),
)
LINES = sql.Table(
    "dualquery_service_lines",
    METADATA,
    sql.Column("sequence", sql.BigInteger, primary_key=True, autoincrement=False),
    *(sql.Column(each, sql.Text) for each in ("kind", "analyst", "key", "request", "body", "reply")),
    *(sql.Column(each, sql.BigInteger) for each in ("units", "spent_after")),
    *(sql.Column(each, sql.Text) for each in ("previous", "hash")),
)
# What a running server is asked to write into the chain by whoever gives tokens beside it.
WISHES = sql.Table(
    "dualquery_service_wishes",
    METADATA,
    sql.Column("id", sql.Text, primary_key=True),
    sql.Column("body", sql.Text),
)


@cache
def definitions(dialect: str) -> tuple[str, ...]:
    """The statements that make the tables, one by one."""
    text = (files("dualquery.service") / f"{dialect}.sql").read_text(encoding="utf-8")
    return tuple(statement.strip() for statement in text.split("\n\n"))


def wanted(dialect: str) -> frozenset[str]:
    """What makes the tables ours: in a file every text, in a server the names of tables, constraints, triggers."""
    texts = definitions(dialect)
    if dialect == "sqlite":
        return frozenset(texts)
    names = re.findall(r"(?:CONSTRAINT|TRIGGER|TABLE) (dualquery_\w+)", "\n".join(texts))
    return frozenset(names)


def found(connection: sql.Connection) -> frozenset[str]:
    if connection.dialect.name == "sqlite":
        rows = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    else:
        rows = connection.exec_driver_sql(
            """
            SELECT relname::text FROM pg_class WHERE relname LIKE 'dualquery\\_service%%' AND relkind = 'r'
            UNION ALL SELECT conname::text FROM pg_constraint WHERE conname LIKE 'dualquery\\_service%%'
                AND convalidated AND contype IN ('c', 'u') AND conname NOT LIKE '%%\\_not\\_null'
            UNION ALL SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
                AND tgname LIKE 'dualquery\\_service%%'
            """
        )
    return frozenset(str(text) for (text,) in rows)
