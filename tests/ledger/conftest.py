"""Places for ledgers: a new file, and a new database of a real PostgreSQL server that the tests start themselves."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))


@dataclass(frozen=True)
class Server:
    """A server on the loopback, run by somebody without rights, as PostgreSQL demands."""

    programs: Path
    folder: Path
    port: int
    password: str
    user: str | None  # None: we have no rights ourselves

    def run(self, *arguments: str) -> None:
        command = [str(self.programs / arguments[0]), *arguments[1:]]
        subprocess.run(command, check=True, user=self.user, cwd=self.folder, capture_output=True, timeout=120)

    def start(self) -> None:
        settings = f"-c listen_addresses=127.0.0.1 -c port={self.port} -c unix_socket_directories="
        log = str(self.folder / "log")
        # pg_ctl's child keeps what it inherits open: it must not be our pipe
        command = [
            str(self.programs / "pg_ctl"),
            "-D",
            str(self.folder / "data"),
            "-l",
            log,
            "-w",
            "-t",
            "300",
        ]
        subprocess.run(
            [*command, "-o", settings, "start"],
            check=True,
            user=self.user,
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=320,
        )

    def stop(self, mode: str = "immediate") -> None:
        self.run("pg_ctl", "-D", str(self.folder / "data"), "-m", mode, "-w", "stop")

    def new_database(self, template: str = "template1") -> str:
        """The URL of a new database, perhaps a copy."""
        import psycopg

        name = f"ledger_{secrets.token_hex(6)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return self.url(name)

    def url(self, database: str) -> str:
        return f"postgresql://steward:{self.password}@127.0.0.1:{self.port}/{database}"


def _memory() -> str | None:
    """A folder in memory, where there is room: databases are made by the hundred, and a disk takes a second for each.

    What a server that is killed has written is there as on a disk. (A loss of power is tried with files, not here.)
    """
    place = "/dev/shm"
    return place if os.path.isdir(place) and shutil.disk_usage(place).free > 4 << 30 else None


@contextmanager
def running() -> Iterator[Server]:
    """A PostgreSQL server that syncs to its disk; skipped where Debian's package `postgresql` is not installed."""
    if not PROGRAMS:
        missing = "no PostgreSQL server under /usr/lib/postgresql: apt-get install postgresql"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    user = "nobody" if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="dualquery-postgresql-", dir=_memory()))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    made = Server(PROGRAMS[-1].parent, folder, port, secrets.token_hex(8), user)
    secret = folder / "password"
    secret.write_text(made.password)
    if user is not None:
        owner = pwd.getpwnam(user)
        for path in (folder, secret):
            os.chown(path, owner.pw_uid, owner.pw_gid)
    try:
        made.run("initdb", "-D", str(folder / "data"), "-U", "steward", "-A", "scram-sha-256", "--no-sync",
                 f"--pwfile={secret}", "-E", "UTF8", "--locale=C", "--wal-segsize=1")  # fmt: skip
        made.start()
        yield made
        made.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One for all tests, each with a database of its own."""
    with running() as made:
        yield made


@pytest.fixture
def own_server() -> Iterator[Server]:
    """One that a test may stop and start."""
    with running() as made:
        yield made


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where there is no ledger yet."""
    if request.param == "sqlite":
        return str(tmp_path / "people.ledger")
    server: Server = request.getfixturevalue("server")
    return server.new_database()
