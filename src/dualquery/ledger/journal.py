"""Nothing waits for ever for a database: a network may swallow everything and say nothing.

Keepalives notice a machine that is gone, and the limits of a session a server that is slow; neither notices
somebody in between who confirms every packet and passes none on. So whoever works with connections does it under a
watch, which hangs up on them when time is over: whoever waits there hears of a connection that is broken.

The tables of a ledger of a service, as queries see them; sqlite.sql and postgresql.sql hold rules and triggers.

The lines of a service's ledger in a file (SQLite) or a database (PostgreSQL), opened by one server at a time.

A commit is one transaction: `UPDATE … SET head = new WHERE head = old`, append the lines, sync. The chain is verified
as a whole when the ledger is opened; after that the comparison with the head in memory stands for all of it, because
lines are never changed. Whoever opened the ledger elsewhere has moved the head, and is noticed by the next commit.
"""

from __future__ import annotations

import fcntl
import os
import re
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, fields
from functools import cache
from importlib.resources import files
from threading import Lock, Timer
from typing import Any
from urllib.parse import unquote, urlsplit

import sqlalchemy as sql
from sqlalchemy import event, exc

from dualquery.errors import LedgerError
from dualquery.ledger.book import Place
from dualquery.ledger.chain import FORMAT, Head, Line, Promise, check, origin_of
from dualquery.ledger.storage import engine_of, sentence_of

LONGEST = 10.0  # seconds that anything may take


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
def watched(engine: sql.Engine, connection: sql.Connection | None = None) -> Iterator[None]:
    """Whatever is done here with this connection, or with new ones, is over in time. A file needs none of this."""
    if engine.dialect.name == "sqlite":
        yield
        return
    watch = SilenceWatch()
    timer = Timer(LONGEST, watch.hang_up)
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


def watch_new(engine: sql.Engine) -> None:
    """New connections come under the watch before anything is asked through them."""

    def made(connection: object, _record: object) -> None:
        watch = _WATCH.get()
        if watch is not None:
            watch.add(connection)

    event.listen(engine, "connect", made, insert=True)


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
    text = (files("dualquery.ledger") / f"journal_{dialect}.sql").read_text(encoding="utf-8")
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


_NOBODY_ELSE = 0x6475616C  # the advisory lock of the one server, in each database
_PART = 5000  # lines that are read at once
_FEW = 4  # replies that are read at once, of history: each may have millions of bytes
_FIELDS = [field.name for field in fields(Line)]


class AwayError(LedgerError):
    """The ledger cannot be written now. Nothing was written; try again later."""


class TakenError(LedgerError):
    """Another server has this ledger open."""


class FencedError(LedgerError):
    """Somebody else has written to the ledger since: this server must not go on."""


class Storage:
    """One ledger. Reading opens a connection of its own; writing keeps one, from one thread at a time."""

    def __init__(self, place: Place, *, new: bool = False) -> None:
        self._engine = engine_of(place, new=new)
        self._writer: sql.Connection | None = None
        self._lock: int | None = None
        self._session: tuple[int, str] | None = None  # of the writer, as the server knows it
        if self._engine.dialect.name == "postgresql":
            event.listen(self._engine, "do_connect", _settings_of_a_connection)
            watch_new(self._engine)

    @property
    def engine(self) -> sql.Engine:
        return self._engine

    @property
    def empty(self) -> bool:
        """Whether nothing was made here yet."""
        with self.reading() as connection:
            return not found(connection)

    def create(self, promise: Promise) -> None:
        """Make the tables and the first row, in a place that has no ledger of a service."""
        start = {"length": 0, "head": promise.origin, "spent": 0}
        with self._writing() as connection:
            if found(connection):
                raise LedgerError("there is a ledger of a service already")
            for statement in definitions(connection.dialect.name):
                connection.exec_driver_sql(statement)
            connection.execute(sql.insert(LEDGERS).values(id=1, **asdict(promise), **start))

    def promise(self) -> Promise:
        """The first row; LedgerError where the file is damaged or the tables are not ours."""
        with self.reading() as connection:
            if connection.dialect.name == "sqlite" and self._damaged(connection):
                raise LedgerError("the file of this ledger is damaged; restore a copy")
            if found(connection) != wanted(connection.dialect.name):
                raise LedgerError(
                    "this is not the ledger of a service as this version makes them, or its tables, constraints or "
                    "triggers were changed; name another ledger, or restore a copy"
                )
            row = connection.execute(sql.select(LEDGERS)).mappings().one_or_none()
        if row is None:
            raise LedgerError("this ledger was emptied; restore the newest copy")
        promise = Promise(**{field.name: row[field.name] for field in fields(Promise)})
        if promise.format != FORMAT or origin_of(promise) != promise.origin:
            raise LedgerError("the first row of this ledger is not as it was written; restore a copy")
        return promise

    @staticmethod
    def _damaged(connection: sql.Connection) -> bool:
        return connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar() != "ok"

    def verified(self, promise: Promise) -> Iterator[Line]:
        """All lines up to the head, each found to follow from the one before; they must add up to the head.

        Read in parts, so that a server that is running waits for none of them: what stands there stays.
        """
        with self.reading() as connection:
            last = head_of(connection)
        before = Head(length=0, hash=promise.origin, spent=0)
        while before.length < last.length:
            wanted = sql.select(LINES).where(
                LINES.c.sequence > before.length, LINES.c.sequence <= last.length
            )
            with self.reading() as connection:
                rows = connection.execute(wanted.order_by(LINES.c.sequence).limit(_PART)).mappings().all()
            if not rows:
                break
            for row in rows:
                line = Line(**{name: row[name] for name in _FIELDS})
                check(line, before, promise)
                before = line.head
                yield line
        if before != last:
            raise LedgerError(
                "the ledger of this service is not as it was written: lines are missing at its end. Restore the last "
                "copy that agrees with the replies that were given"
            )

    # Wishes: what is to be written by the server that has the ledger open.

    def wishes(self) -> dict[str, str]:
        """What others ask the server to write into the chain, each under its number."""
        with self.reading() as connection:
            return {row.id: row.body for row in connection.execute(sql.select(WISHES))}

    def wish(self, number: str, body: str) -> None:
        with self._changing() as connection:
            connection.execute(sql.insert(WISHES).values(id=number, body=body))

    def unwish(self, numbers: Sequence[str]) -> int:
        """Take wishes back, or off the list; how many were still there."""
        with self._changing() as connection:
            return connection.execute(sql.delete(WISHES).where(WISHES.c.id.in_(numbers))).rowcount

    def head(self) -> Head:
        """Where the ledger stands on disk, as the writer sees it."""
        with self._writing() as connection:
            return head_of(connection)

    def replied(self, requests: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Line]:
        """The lines that hold the replies to requests, each by its analyst and key; those that there are."""
        wanted = sql.select(LINES).where(sql.tuple_(LINES.c.analyst, LINES.c.key).in_(requests))
        with self._writing() as connection:
            rows = connection.execute(wanted).mappings()
            return {
                (row["analyst"], row["key"]): Line(**{name: row[name] for name in _FIELDS}) for row in rows
            }

    def told(self, analyst: str | None, *, before: int, most: int, size: int) -> tuple[list[Line], bool]:
        """The last replies to one analyst, or to all, newest first, and whether there are older ones.

        So many of them, or so many bytes, but one at the least.
        """
        wanted = LINES.c.reply != ""
        if analyst is not None:
            wanted = sql.and_(wanted, LINES.c.analyst == analyst)
        found: list[Line] = []
        with self._newest(wanted, before, most + 1, without=("body",)) as lines:
            for line in lines:
                size -= len(line.reply)
                if found and (size < 0 or len(found) == most):
                    return found, True
                found.append(line)
        return found, False

    def charges(self, kinds: Sequence[str] = (), *, before: int, most: int) -> list[Line]:
        """The last lines that charged something, or are of these kinds, newest first; nothing of what was told."""
        used = sql.or_(LINES.c.units > 0, LINES.c.kind.in_(kinds))
        with self._newest(used, before, most, without=("body", "reply")) as lines:
            return list(lines)

    @contextmanager
    def _newest(
        self, wanted: sql.ColumnElement[bool], before: int, most: int, *, without: Sequence[str]
    ) -> Iterator[Iterator[Line]]:
        """Lines, newest first, a few at a time; long texts that nobody needs stay where they are."""
        columns = (sql.literal("").label(name) if name in without else LINES.c[name] for name in _FIELDS)
        chosen = sql.select(*columns).where(wanted, LINES.c.sequence < before)
        with self.reading() as connection:
            rows = connection.execution_options(yield_per=_FEW).execute(
                chosen.order_by(LINES.c.sequence.desc()).limit(most)
            )
            try:
                yield (Line(**dict(row)) for row in rows.mappings())
            finally:
                rows.close()

    def commit(self, base: Head, lines: Sequence[Line]) -> None:
        """Append lines behind a head, all or none, on disk when this returns."""
        last = lines[-1]
        here = sql.and_(LEDGERS.c.id == 1, LEDGERS.c.length == base.length, LEDGERS.c.head == base.hash)
        with self._writing() as connection:
            moved = connection.execute(
                sql.update(LEDGERS)
                .where(here)
                .values(length=last.sequence, head=last.hash, spent=last.spent_after)
            )
            if moved.rowcount != 1:
                raise FencedError(
                    "another server has written to this ledger; stop this one: a ledger has one server"
                )
            connection.execute(
                sql.insert(LINES), [{name: getattr(line, name) for name in _FIELDS} for line in lines]
            )

    def probe(self) -> None:
        """AwayError where nothing could be written now: file or server gone, disk full, right revoked.

        Writes nothing. In a file a table is made and taken back, which needs room for the rollback journal; a server
        checks rights, and whether it may write at all, even where no row is meant. It is the writer's connection that
        tries, so that one that broke meanwhile is found out, and made anew, before somebody asks.
        """
        nothing = sql.select(*(LINES.c[name] for name in _FIELDS)).where(sql.false())
        try:
            with self._writing() as connection:
                if connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("CREATE TABLE dualquery_service_probe (number INTEGER)")
                else:
                    connection.execute(sql.update(LEDGERS).where(sql.false()).values(spent=LEDGERS.c.spent))
                    connection.execute(sql.insert(LINES).from_select(_FIELDS, nothing))
                connection.rollback()
        except LedgerError as problem:  # a lock that is not ours yet may be, when it is asked for again
            raise AwayError(str(problem)) from None

    # One server at a time.

    def hold(self) -> None:
        """Be the only server of this ledger until `release`, or until the process ends, however it ends."""
        if self._lock is not None:
            return
        if self._engine.dialect.name == "sqlite":
            path = unquote(urlsplit(str(self._engine.url.database)).path)
            try:
                self._lock = os.open(f"{path}.lock", os.O_CREAT | os.O_RDWR, 0o600)
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.release()
                raise TakenError(_TAKEN) from None
            except OSError as error:
                self.release()
                raise AwayError(
                    f"'{path}.lock' cannot be written: {error.strerror}; look at its folder"
                ) from None
            return
        with self._writing():
            pass  # a connection that writes holds the lock

    def release(self) -> None:
        """Let the next server in."""
        if self._writer is not None and self._engine.dialect.name != "sqlite":
            # A closed connection would give the lock back too, but only when its process at the other end notices.
            with (
                suppress(exc.SQLAlchemyError),
                watched(self._engine, self._writer),
                self._writer.begin(),
            ):
                self._writer.execute(sql.select(sql.func.pg_advisory_unlock(_NOBODY_ELSE)))
        self._drop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Connections

    @contextmanager
    def reading(self) -> Iterator[sql.Connection]:
        """A short look, of one moment."""
        with self._in_words(), self._engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def _changing(self) -> Iterator[sql.Connection]:
        """A short change of what is not the chain, beside a server that may be running."""
        with self._in_words(), self._engine.connect() as connection:
            connection = connection.execution_options(dualquery_begin="BEGIN IMMEDIATE")
            with connection.begin():
                yield connection

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        with self._in_words(self._writer):
            try:
                connection = self._writer or self._connected()
                with connection.begin():
                    yield connection
            except BaseException:
                self._drop()
                raise

    @contextmanager
    def _in_words(self, connection: sql.Connection | None = None) -> Iterator[None]:
        """Whatever the database refuses, or leaves unanswered, is a sentence."""
        try:
            with watched(self._engine, connection):
                yield
        except exc.DBAPIError as error:
            raise AwayError(sentence_of(error, self._engine.dialect.name)) from None
        except (exc.SQLAlchemyError, UnicodeError, OverflowError):
            raise LedgerError("the ledger of this service is damaged; restore a copy") from None

    def _connected(self) -> sql.Connection:
        connection = self._engine.connect()
        if connection.dialect.name == "sqlite":
            connection = connection.execution_options(dualquery_begin="BEGIN IMMEDIATE")
        else:
            with connection.begin():
                if connection.exec_driver_sql("SHOW fsync").scalar() != "on":
                    raise LedgerError("this PostgreSQL server does not wait for its disk; switch fsync on")
                if self._session is not None:  # which may not have noticed that it was hung up on
                    connection.execute(_END, {"pid": self._session[0], "began": self._session[1]})
                if not _locked(connection):
                    connection.close()
                    raise TakenError(_TAKEN)
                pid, began = connection.execute(_OWN).one()
                self._session = (pid, began)
        self._writer = connection
        return connection

    def _drop(self) -> None:
        """Forget a connection that may be broken; the next one asks where the ledger stands."""
        writer, self._writer = self._writer, None
        if writer is not None:
            with suppress(exc.SQLAlchemyError):
                writer.close()


def _locked(connection: sql.Connection) -> bool:
    """Whether this connection is the only one that writes; one whose process was just killed has a moment to go."""
    deadline = time.monotonic() + _MOMENT
    while not connection.scalar(sql.select(sql.func.pg_try_advisory_lock(_NOBODY_ELSE))):
        if time.monotonic() > deadline:
            return False
        time.sleep(_MOMENT / 20)
    return True


_MOMENT = 2.0  # seconds
_TAKEN = "another server has this ledger open; a ledger has one server at a time"


_OWN = sql.text("SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()")
_END = sql.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid AND backend_start::text = :began"
)
# The server gives up before we do, so that it says why; and it lets go of somebody who is gone.
_SESSION = {
    "synchronous_commit": "on",
    "lock_timeout": "5s",
    "statement_timeout": "8s",
    "idle_in_transaction_session_timeout": "30s",
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
    "tcp_user_timeout": "20s",
}
_LINE = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": int(1000 * LONGEST),
}


def _settings_of_a_connection(_dialect: object, _record: object, _arguments: object, options: Any) -> None:
    """With the first packet: nothing is asked through a connection before its limits hold."""
    given = options.get("options", "")
    options.update(
        _LINE, options=" ".join([given, *(f"-c {name}={value}" for name, value in _SESSION.items())])
    )


def head_of(connection: sql.Connection) -> Head:
    row = connection.execute(sql.select(LEDGERS.c.length, LEDGERS.c.head, LEDGERS.c.spent)).one_or_none()
    if row is None:
        raise LedgerError("this ledger is empty")
    return Head(length=row[0], hash=row[1], spent=row[2])
