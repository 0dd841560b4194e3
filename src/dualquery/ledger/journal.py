"""The journal of a service: one chain, written by one server at a time, which many may read.

The chain is verified as a whole when the journal is opened; after that the comparison with the head in memory stands
for all of it, because lines are never changed. Whoever opened the journal elsewhere has moved the head, and is
noticed by the next commit.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from urllib.parse import unquote, urlsplit

import sqlalchemy as sql
from sqlalchemy import exc

from dualquery.errors import LedgerError
from dualquery.ledger import LINE, Head, Line, Promise, believed, verified
from dualquery.ledger.book import Place
from dualquery.ledger.storage import (
    CHAINS,
    LINES,
    WISHES,
    AwayError,
    add_chain,
    append,
    at_once,
    chains,
    engine_of,
    exist,
    in_words,
    lines_of,
    refuse_forgetful,
    transaction,
    watched,
)

LONGEST = 10.0  # seconds that anything may take
_JOURNAL = "journal"  # the kind of chain
_NOBODY_ELSE = 0x6475616C  # the advisory lock of the one server, in each database
_PART = 5000  # lines that are read at once
_FEW = 4  # replies that are read at once, of history: each may have millions of bytes
_MOMENT = 2.0  # seconds
_TAKEN = "another server has this ledger open; a ledger has one server at a time"

_OWN = sql.text("SELECT pid, backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid()")
_END = sql.text(
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = :pid AND backend_start::text = :began"
)


class TakenError(LedgerError):
    """Another server has this ledger open."""


class Storage:
    """One journal. Reading opens a connection of its own; writing keeps one, from one thread at a time."""

    def __init__(self, place: Place, *, new: bool = False, longest: float = LONGEST) -> None:
        self._engine = engine_of(place, new=new, longest=longest)
        self._writer: sql.Connection | None = None
        self._lock: int | None = None
        self._session: tuple[int, str] | None = None  # of the writer, as the server knows it
        self._number: int | None = None  # of the chain

    @property
    def engine(self) -> sql.Engine:
        return self._engine

    @property
    def empty(self) -> bool:
        with self.reading() as connection:
            return not (exist(connection) and chains(connection, _JOURNAL))

    def create(self, promise: Promise) -> None:
        """Make the tables and the first row, in a place that has no journal."""
        with self._writing() as connection:
            if exist(connection) and chains(connection, _JOURNAL):
                raise LedgerError("there is a ledger of a service already")
            add_chain(connection, promise)

    def promise(self) -> Promise:
        """The first row; LedgerError where the file is damaged or the tables are not ours."""
        with self.reading() as connection:
            _, promise, head = self._found(connection, exist(connection))
        believed(promise, head)
        return promise

    def _found(self, connection: sql.Connection, there: bool = True) -> tuple[int, Promise, Head]:
        found = chains(connection, _JOURNAL) if there else []
        if len(found) != 1:
            raise LedgerError(
                "this ledger has no journal of a service, or was emptied; restore the newest copy"
            )
        return found[0]

    def verified(self, promise: Promise) -> Iterator[Line]:
        """All lines up to the head, each found to follow from the one before; they must add up to the head.

        Read in parts, so that a server that is running waits for none of them: what stands there stays.
        """
        with self.reading() as connection:
            number, _, last = self._found(connection)
        return verified(promise, last, self._lines(number, last.length))

    def _lines(self, number: int, length: int) -> Iterator[Line]:
        for after in range(0, length, _PART):
            with self.reading() as connection:
                found = lines_of(connection, number, after=after, most=min(_PART, length - after))
            if not found:  # fewer than the head says: `verified` refuses
                return
            yield from found

    # Wishes: what is to be written by the server that has the ledger open.

    def wishes(self) -> dict[str, str]:
        """What others ask the server to write into the chain, each under its number."""
        with self.reading() as connection:
            return {row.id: row.body for row in connection.execute(sql.select(WISHES))}

    def wish(self, number: str, body: str) -> None:
        with transaction(self._engine, writes=True, longest=LONGEST) as connection:
            connection.execute(sql.insert(WISHES).values(id=number, body=body))

    def unwish(self, numbers: Sequence[str]) -> int:
        """Take wishes back, or off the list; how many were still there."""
        with transaction(self._engine, writes=True, longest=LONGEST) as connection:
            return connection.execute(sql.delete(WISHES).where(WISHES.c.id.in_(numbers))).rowcount

    # Lines

    def head(self) -> Head:
        """Where the ledger stands on disk, as the writer sees it."""
        with self._writing() as connection:
            return self._found(connection)[-1]

    def replied(self, requests: Sequence[tuple[str, str]]) -> dict[tuple[str, str], Line]:
        """The lines that hold the replies to requests, each by its analyst and key; those that there are."""
        asked = set(requests)
        analysts, keys = ({each[place] for each in asked} for place in (0, 1))
        # By the index: pairs would read every line.
        wanted = (LINES.c.analyst.in_(analysts), LINES.c.key.in_(keys))
        found = {}
        with self._writing() as connection:
            for row in connection.execute(sql.select(LINES).where(self._own(connection), *wanted)).mappings():
                if (pair := (row["analyst"], row["key"])) in asked:
                    found[pair] = Line(**{name: row[name] for name in LINE})
        return found

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
        columns = (sql.literal("").label(name) if name in without else LINES.c[name] for name in LINE)
        with self.reading() as connection:
            chosen = sql.select(*columns).where(self._own(connection), wanted, LINES.c.sequence < before)
            rows = connection.execution_options(yield_per=_FEW).execute(
                chosen.order_by(LINES.c.sequence.desc()).limit(most)
            )
            try:
                yield (Line(**dict(row)) for row in rows.mappings())
            finally:
                rows.close()

    def _own(self, connection: sql.Connection) -> sql.ColumnElement[bool]:
        return LINES.c.chain == self._numbered(connection)

    def _numbered(self, connection: sql.Connection) -> int:
        if self._number is None:
            self._number = self._found(connection)[0]
        return self._number

    def commit(self, base: Head, lines: Sequence[Line]) -> None:
        """Append lines behind a head, all or none, on disk when this returns."""
        with self._writing() as connection:
            append(connection, self._numbered(connection), base, lines)

    def probe(self) -> None:
        """AwayError where nothing could be written now: file or server gone, disk full, right revoked.

        Writes nothing. In a file a table is made and taken back, which needs room for the rollback journal; a server
        checks rights, and whether it may write at all, even where no row is meant. It is the writer's connection that
        tries, so that one that broke meanwhile is found out, and made anew, before somebody asks.
        """
        columns = ["chain", *LINE]
        nothing = sql.select(*(LINES.c[name] for name in columns)).where(sql.false())
        try:
            with self._writing() as connection:
                if connection.dialect.name == "sqlite":
                    connection.exec_driver_sql("CREATE TABLE dualquery_probe (number INTEGER)")
                else:
                    connection.execute(sql.update(CHAINS).where(sql.false()).values(spent=CHAINS.c.spent))
                    connection.execute(sql.insert(LINES).from_select(columns, nothing))
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
        if self._writer is not None and self._engine.dialect.name != "sqlite":
            # A closed connection would give the lock back too, but only when its process at the other end notices.
            with (
                suppress(exc.SQLAlchemyError),
                watched(self._engine, self._writer, LONGEST),
                self._writer.begin(),
            ):
                self._writer.execute(sql.select(sql.func.pg_advisory_unlock(_NOBODY_ELSE)))
        self._drop()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # Connections

    def reading(self) -> AbstractContextManager[sql.Connection]:
        return transaction(self._engine, writes=False, longest=LONGEST)

    @contextmanager
    def _writing(self) -> Iterator[sql.Connection]:
        with in_words(self._engine, self._writer, LONGEST):
            try:
                connection = self._writer or self._connected()
                with connection.begin():
                    yield connection
            except BaseException:
                self._drop()
                raise

    def _connected(self) -> sql.Connection:
        connection = self._engine.connect()
        if connection.dialect.name == "sqlite":
            connection = at_once(connection)
        else:
            with connection.begin():
                refuse_forgetful(connection)
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
