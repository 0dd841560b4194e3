"""Where chains are kept: a file (SQLite), or a URL (PostgreSQL); opened so that what is committed is on disk.

SQLite: one file; `BEGIN IMMEDIATE`, so that of two writers one waits; a rollback journal, and `synchronous = EXTRA`:
the file is flushed before the commit and the folder after the journal is gone, so that no loss of power brings it
back. PostgreSQL: `synchronous_commit = on` in every session, and a server with `fsync = off` is refused.

A commit is one transaction: `UPDATE … SET head = new WHERE head = old`, append the lines. Of two writers who saw the
same head one is refused. The definitions of the tables are texts (sqlite.sql, postgresql.sql), not made by a library:
a file that holds anything but these texts is not ours, or was changed, and is refused before anything in it is
believed.

*Nothing waits for ever.* Keepalives notice a machine that is gone, and the limits of a session a server that is slow;
neither notices somebody in between who confirms every packet and passes none on. So whoever works with a server does
it under a watch, which hangs up when time is over: whoever waits there hears of a connection that is broken.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, fields
from functools import cache
from importlib.resources import files
from pathlib import Path
from threading import Lock, Timer
from typing import Any

import sqlalchemy as sql
from sqlalchemy import event, exc

from dualquery.errors import LedgerError
from dualquery.ledger import LINE, Head, Line, Promise
from dualquery.ledger.book import Place

PATIENCE = 60  # seconds that a writer waits for others
_BEGIN = "dualquery_begin"  # the option of a connection that says how to begin
_KINDS = "a ledger is a file, or postgresql://user@host/database"

METADATA = sql.MetaData()


def _table(name: str, keys: int, columns: str) -> sql.Table:
    """A table of these columns, each `name` a text or `name#` a whole number; the first are its keys."""
    return sql.Table(
        name,
        METADATA,
        *(
            sql.Column(
                each.rstrip("#"),
                sql.BigInteger if "#" in each else sql.Text,
                primary_key=number < keys,
                autoincrement="auto" if keys == 1 else False,
            )
            for number, each in enumerate(columns.split())
        ),
    )


CHAINS = _table(
    "dualquery_chains", 1, "id# format# kind name nonce promise cap# created origin length# head spent#"
)
LINES = _table(
    "dualquery_lines",
    2,
    "chain# sequence# kind analyst key request body reply units# spent_after# previous hash",
)
# What a running server is asked to write into its chain by whoever gives tokens beside it.
WISHES = _table("dualquery_wishes", 1, "id body")


class AwayError(LedgerError):
    """The ledger cannot be read or written now. Nothing was written; try again later."""


class FencedError(LedgerError):
    """Somebody else has written to the chain since: whoever believed to know its head must not go on."""


# ── Engines ─────────────────────────────────────────────────────────────────────────────────────────────────────


def engine_of(place: Place, *, new: bool = False, longest: float = 2 * PATIENCE) -> sql.Engine:
    """An engine for a file or a URL, where nothing takes longer than so many seconds.

    A file that does not exist is made only where it is to be `new`.
    """
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
    return _server_engine(url.set(drivername="postgresql+psycopg"), longest)


def _file_engine(path: Path, *, new: bool) -> sql.Engine:
    if path.is_dir():
        raise LedgerError(f"'{path}' is a folder; {_KINDS}")
    if not new and not path.exists():
        raise LedgerError(f"there is no ledger '{path}'; make one with `dualquery ledger create`")
    uri = f"{path.resolve().as_uri()}?mode={'rwc' if new else 'rw'}"
    engine = sql.create_engine(
        sql.URL.create("sqlite+pysqlite", query={"uri": "true"}, database=uri),
        connect_args={"timeout": PATIENCE, "isolation_level": None},
        poolclass=sql.NullPool,
    )
    event.listen(engine, "connect", _settings_of_a_file)
    event.listen(engine, "begin", _begin)
    return engine


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


def _server_engine(url: sql.URL, longest: float) -> sql.Engine:
    # The server gives up before we do, so that it says why; and it lets go of somebody who is gone.
    session = {
        "synchronous_commit": "on",
        "lock_timeout": f"{longest / 2:g}s",
        "statement_timeout": f"{0.8 * longest:g}s",
        "idle_in_transaction_session_timeout": f"{3 * longest:g}s",
        "tcp_keepalives_idle": "10",
        "tcp_keepalives_interval": "5",
        "tcp_keepalives_count": "3",
        "tcp_user_timeout": f"{2 * longest:g}s",
    }
    line = {
        "connect_timeout": max(1, int(longest / 2)),
        "keepalives_idle": 10,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": int(1000 * longest),
    }

    def settings(_dialect: object, _record: object, _arguments: object, options: Any) -> None:
        """With the first packet: nothing is asked through a connection before its limits hold."""
        given = options.get("options", "")
        options.update(
            line, options=" ".join([given, *(f"-c {name}={value}" for name, value in session.items())])
        )

    def watch(connection: object, _record: object) -> None:
        """New connections come under the watch before anything is asked through them."""
        if (found := _WATCH.get()) is not None:
            found.add(connection)

    try:
        engine = sql.create_engine(url, poolclass=sql.NullPool)
    except ModuleNotFoundError:
        raise LedgerError(
            "a ledger in PostgreSQL needs the extra `postgres`: pip install 'dualquery[postgres]'"
        ) from None
    event.listen(engine, "do_connect", settings)
    event.listen(engine, "connect", watch, insert=True)
    return engine


class SilenceWatch:
    """Hangs up on connections when its time is over."""

    def __init__(self) -> None:
        self._lines: list[socket.socket] = []
        self._lock, self._over = Lock(), False

    def add(self, connection: Any) -> None:
        """Watch a connection of the driver, too."""
        line = socket.socket(fileno=os.dup(connection.fileno()))  # our own number: theirs may be given away
        with self._lock:
            self._lines.append(line)
        if self._over:
            self.hang_up()

    def hang_up(self) -> None:
        self._over = True
        with self._lock, suppress(OSError):
            for line in self._lines:
                line.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        with self._lock:
            for line in self._lines:
                line.close()
            self._lines.clear()


_WATCH: ContextVar[SilenceWatch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(engine: sql.Engine, connection: sql.Connection | None, longest: float) -> Iterator[None]:
    """Whatever is done here with this connection, or with new ones, is over in time. A file needs none of this."""
    if engine.dialect.name == "sqlite":
        yield
        return
    watch = SilenceWatch()
    timer = Timer(longest, watch.hang_up)
    timer.daemon = True
    token = _WATCH.set(watch)
    timer.start()
    try:
        if connection is not None and not connection.invalidated:
            watch.add(connection.connection.driver_connection)
        yield
    finally:
        timer.cancel()
        _WATCH.reset(token)
        watch.end()


# ── Transactions ────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def in_words(engine: sql.Engine, connection: sql.Connection | None, longest: float) -> Iterator[None]:
    """Whatever the database refuses, or leaves unanswered, is a sentence."""
    try:
        with watched(engine, connection, longest):
            yield
    except exc.DBAPIError as error:
        raise AwayError(_sentence_of(error, engine.dialect.name)) from None
    except (exc.SQLAlchemyError, UnicodeError, OverflowError, OSError):
        raise LedgerError(_DAMAGED) from None


@contextmanager
def transaction(
    engine: sql.Engine, *, writes: bool, longest: float = 2 * PATIENCE
) -> Iterator[sql.Connection]:
    """A transaction of a connection of its own, durable when it ends well."""
    with in_words(engine, None, longest), engine.connect() as connection:
        if engine.dialect.name == "postgresql":
            # A reader sees one moment; a writer locks first, and then sees what others have committed.
            level = "READ COMMITTED" if writes else "REPEATABLE READ"
            connection = connection.execution_options(isolation_level=level)
        elif writes:
            connection = at_once(connection)
        with connection.begin():
            if writes:
                refuse_forgetful(connection)
            yield connection


def at_once(connection: sql.Connection) -> sql.Connection:
    """A writer of a file locks when it begins, so that what it reads stays true."""
    return connection.execution_options(**{_BEGIN: "BEGIN IMMEDIATE"})


def refuse_forgetful(connection: sql.Connection) -> None:
    """Refuse a server that calls durable what is not."""
    if connection.dialect.name == "sqlite":
        return
    if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
        raise LedgerError(
            "this PostgreSQL server does not wait for its disk (fsync = off), so that a charge could be forgotten; "
            "switch fsync on"
        )


_DAMAGED = (
    "this ledger is damaged, or not a ledger at all; write nothing to it, and restore the last copy that agrees with "
    "all certificates, or with the replies that were given"
)


def _sentence_of(error: exc.DBAPIError, dialect: str) -> str:
    """What the database said, in our words: its own may name hosts, users and rows."""
    said = str(error.orig).lower()
    if any(words in said for words in ("locked", "lock timeout", "busy")):
        return "somebody else is writing to this ledger and did not finish in time; try again"
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


# ── Tables and chains ───────────────────────────────────────────────────────────────────────────────────────────


@cache
def definitions(dialect: str) -> tuple[str, ...]:
    text = (files("dualquery.ledger") / f"{dialect}.sql").read_text(encoding="utf-8")
    return tuple(statement.strip() for statement in text.split("\n\n"))


def exist(connection: sql.Connection) -> bool:
    """Whether there is a ledger; LedgerError where there is something else, or one that was tampered with."""
    texts = definitions(connection.dialect.name)
    if connection.dialect.name == "sqlite":
        if connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok":
            raise LedgerError(_DAMAGED)
        # Everything that a file defines; indices that constraints imply have no text.
        rows = connection.exec_driver_sql("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
        wanted = set(texts)
    else:
        # Tables, named constraints that have been checked, and triggers that are switched on.
        rows = connection.exec_driver_sql(
            """
            WITH ours AS (SELECT oid, relname::text FROM pg_class WHERE oid IN (to_regclass('dualquery_chains'),
                to_regclass('dualquery_lines'), to_regclass('dualquery_wishes')))
            SELECT relname FROM ours
            UNION ALL SELECT conname::text FROM pg_constraint WHERE conname LIKE 'dualquery\\_%%' AND convalidated
                AND contype IN ('c', 'u') AND conname NOT LIKE '%%\\_not\\_null'
                AND conrelid IN (SELECT oid FROM ours)
            UNION ALL SELECT tgname::text FROM pg_trigger WHERE NOT tgisinternal AND tgenabled IN ('O', 'A')
                AND tgrelid IN (SELECT oid FROM ours)
            """
        )
        wanted = set(re.findall(r"(?:CONSTRAINT|TRIGGER|TABLE) (dualquery_\w+)", "\n".join(texts)))
    found = {str(text) for (text,) in rows}
    if found and found != wanted:
        raise LedgerError(
            "this is not a ledger as this version of dualquery makes them, or its tables, constraints or triggers "
            "were changed; open it with the version that made it, or restore a copy. Do not begin a new one instead: "
            "what was spent counts"
        )
    return bool(found)


def add_chain(connection: sql.Connection, promise: Promise) -> None:
    """A chain without lines; its kind and name are new here. Makes the tables where there are none."""
    if not exist(connection):
        for statement in definitions(connection.dialect.name):
            connection.exec_driver_sql(statement)
    start = {"length": 0, "head": promise.origin, "spent": 0}
    connection.execute(sql.insert(CHAINS).values(**asdict(promise), **start))


def chains(
    connection: sql.Connection, kind: str, name: str | None = None, *, lock: bool = False
) -> list[tuple[int, Promise, Head]]:
    """All chains of a kind, or that of a name, each with its number; locked until the transaction ends."""
    wanted = sql.select(CHAINS).where(CHAINS.c.kind == kind)
    if name is not None:
        wanted = wanted.where(CHAINS.c.name == name)
    found = []
    for row in connection.execute(wanted.with_for_update() if lock else wanted).mappings().all():
        promise = Promise(**{field.name: row[field.name] for field in fields(Promise)})
        head = Head(length=row["length"], hash=row["head"], spent=row["spent"])
        found.append((row["id"], promise, head))
    return found


def lines_of(connection: sql.Connection, chain: int, *, after: int, most: int | None = None) -> list[Line]:
    """Lines of a chain behind the first so many, in their order."""
    wanted = sql.select(LINES).where(LINES.c.chain == chain, LINES.c.sequence > after)
    rows = connection.execute(wanted.order_by(LINES.c.sequence).limit(most)).mappings()
    return [Line(**{name: row[name] for name in LINE}) for row in rows]


def append(connection: sql.Connection, chain: int, base: Head, lines: Sequence[Line]) -> None:
    """Lines behind a head, all or none; FencedError where that is not the head any more."""
    last = lines[-1]
    here = sql.and_(CHAINS.c.id == chain, CHAINS.c.length == base.length, CHAINS.c.head == base.hash)
    moved = connection.execute(
        sql.update(CHAINS).where(here).values(length=last.sequence, head=last.hash, spent=last.spent_after)
    )
    if moved.rowcount != 1:
        raise FencedError("another server has written to this ledger; stop this one: a ledger has one server")
    connection.execute(
        sql.insert(LINES),
        [{"chain": chain, **{name: getattr(line, name) for name in LINE}} for line in lines],
    )
