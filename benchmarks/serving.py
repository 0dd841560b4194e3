"""Questions a second over HTTP, with the disk's syncs and without them, from many connections at once.

The table has 100,000 invented records. The server is a process of its own; this one asks. Servers with and without
syncs take turns, and the best turn of each counts: on a machine with other work a rate says how much of it was left.
Beside the rate stands the time of a processor that a question takes in the server, which says more then.

    python -m benchmarks.serving [SECONDS]
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np
import psutil

from benchmarks.harness import Figure, show
from dualquery import example
from dualquery.ledger.journal import Storage
from dualquery.service import tokens
from dualquery.service.run import begin
from dualquery.service.settings import read_settings

ROWS = 100_000
CONNECTIONS = 32
TURNS = 3


def questions(count: int) -> list[str]:
    """Conjunctions of two and three conditions on the invented survey."""
    chance = np.random.default_rng(5)
    values = {"sex": ["female", "male"], "region": ["north", "east", "south", "west", "capital"],
              "education": ["school", "vocational", "college", "university"]}  # fmt: skip
    made = []
    for _ in range(count):
        names = chance.choice(list(values), size=chance.integers(1, 4), replace=False)
        parts = [f"{name} = {chance.choice(values[name])}" for name in names]
        low = int(chance.choice([25, 35, 45, 55, 65, 75]))
        made.append(" & ".join([f"age >= {low}", *parts]))
    return made


def serve(service: str, port: int, synced: bool) -> None:
    """The server; without syncs, the same server with SQLite told not to wait."""
    from sqlalchemy import event

    from dualquery.service.run import serve as run

    if not synced:
        real = Storage.__init__

        def unsynced(self: Storage, *arguments: object, **options: object) -> None:
            real(self, *arguments, **options)  # type: ignore[arg-type]
            event.listen(
                self.engine, "connect", lambda connection, _: connection.execute("PRAGMA synchronous = OFF")
            )

        Storage.__init__ = unsynced  # type: ignore[method-assign, assignment]
    settings = read_settings(service)
    run(replace(settings, http=replace(settings.http, port=port, requests_a_second=1e6)))


async def asked(port: int, token: str, dataset: str, texts: list[str], seconds: float) -> int:
    """How many answers many connections got together."""
    until, done = time.monotonic() + seconds, 0

    async def one(number: int) -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        i = number
        while time.monotonic() < until:
            body = json.dumps({"question": texts[i % len(texts)]}).encode()
            head = (
                f"POST /v1/datasets/{dataset}/ask HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
                f"Content-Type: application/json\r\nIdempotency-Key: {number}-{i}-{until}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            writer.write(head.encode() + body)
            header = await reader.readuntil(b"\r\n\r\n")
            assert header.startswith(b"HTTP/1.1 200"), header
            length = next(
                line for line in header.lower().split(b"\r\n") if line.startswith(b"content-length")
            )
            await reader.readexactly(int(length.split(b":")[1]))
            done += 1
            i += CONNECTIONS
        writer.close()

    await asyncio.gather(*(one(number) for number in range(CONNECTIONS)))
    return done


def measured(service: Path, token: str, seconds: float, *, synced: bool) -> tuple[float, float]:
    """Answers a second, and milliseconds of a processor for each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [
        sys.executable,
        "-m",
        "benchmarks.serving",
        "--server",
        str(service),
        str(port),
        str(int(synced)),
    ]
    process = subprocess.Popen(command)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        dataset, texts = read_settings(service).dataset, questions(20_000)
        asyncio.run(asked(port, token, dataset, texts, 2))  # kernels are loaded by the first
        about = psutil.Process(process.pid)
        before, began = sum(about.cpu_times()[:2]), time.monotonic()
        done = asyncio.run(asked(port, token, dataset, texts, seconds))
        took = time.monotonic() - began
        return done / took, 1000 * (sum(about.cpu_times()[:2]) - before) / done
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()


def main(seconds: float) -> None:
    import pyarrow.csv

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "schema.toml").write_text(example.SCHEMA)
        pyarrow.csv.write_csv(example.survey(ROWS), folder / "people.csv")
        settings = begin(
            folder / "people.csv",
            schema=folder / "schema.toml",
            epsilon=1,
            out=folder / "service.toml",
            questions=10**6,  # hardly a false fire
        )
        token = tokens.add(Storage(settings.place), "bench", quota=1.0)
        turns = [
            [measured(folder / "service.toml", token, seconds, synced=synced) for synced in (True, False)]
            for _ in range(TURNS)
        ]
    (with_sync, _), (without, _) = (max(each) for each in zip(*turns, strict=True))
    cost = min(one[1] for one, _ in turns)
    ratio = median(one[0] / other[0] for one, other in turns)
    show(
        f"Questions over HTTP, {ROWS:,} records, {CONNECTIONS} connections",
        [
            Figure("questions a second", with_sync, 300, at_least=True),
            Figure("the same without syncs", without),
            Figure("with over without, median of the turns", ratio, 0.5, at_least=True),
            Figure("processor time a question", cost, unit=" ms"),
            Figure("load of the machine, of cores", os.getloadavg()[0] / (os.cpu_count() or 1)),
        ],
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--server"]:
        serve(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "1")
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 5.0)
