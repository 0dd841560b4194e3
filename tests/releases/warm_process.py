"""A process that has everything loaded and forks on demand, so that hundreds of kills take no hundreds of starts.

Run as a script with the folder to release into. Each line of its standard input is a JSON list: what to do, and
arguments. For each it forks and prints the child's number; at an empty line it waits for it, and prints how it ended
(minus a signal, or an exit code). The moments at which children die are patched in here: the product knows nothing of
them.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.csv
import pyarrow.parquet

import dualquery
from dualquery import Accounting, Budget, Neighbours, ReleaseError, example
from dualquery.releases import folder, report
from dualquery.table.schema import parse_schema

POINTS: dict[str, tuple[Any, str]] = {
    "mkdir": (os, "mkdir"),
    "lock": (folder, "locked"),
    "parquet": (pyarrow.parquet, "write_table"),
    "csv": (pyarrow.csv, "write_csv"),
    "digests": (folder, "digests"),
    "page": (report, "report_html"),
    "seal": (folder, "sealed"),
    "file to disk": (folder, "_to_disk"),
    "folder to disk": (folder, "_folder_to_disk"),
    "rename": (os, "rename"),
    "remove": (folder, "_remove"),
}
BUDGET = Budget(epsilon=1, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.ZCDP)


def made() -> dualquery.Release:
    return dualquery.release(
        RECORDS, schema=SCHEMA, workload="marginals:1", budget=BUDGET, mechanism="uniform", synthetic_rows=50
    )


def release_for_ever(place: Path) -> None:
    """Releases into `out`, each of them renamed to a name of its own when it stands there."""
    number = 0
    while True:
        made().save(place / "out", csv=True)
        os.rename(place / "out", place / f"done-{os.getpid()}-{number}")
        number += 1


def at_point(name: str, call: int, before: bool, act: Callable[[], None]) -> None:
    """Patch a function so that its n-th call, or the next that returns, does something before or after it."""
    owner, attribute = POINTS[name]
    original, calls = getattr(owner, attribute), 0

    def patched(*arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if before and calls >= call:
            act()
        value = original(*arguments, **named)
        if not before and calls >= call:
            act()
        return value

    setattr(owner, attribute, patched)


def half_written() -> None:
    """Die in the middle of writing a text file."""
    write = Path.write_text

    def half(self: Path, text: str, **named: Any) -> int:
        write(self, text[: len(text) // 2], **named)
        die()
        return 0

    Path.write_text = half  # type: ignore[method-assign, assignment]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def child(place: Path, what: str, *arguments: Any) -> int:
    if what == "loop":
        release_for_ever(place)
    elif what == "die":
        point, call, before = arguments
        at_point(point, call, before, die)
        release_for_ever(place)
    elif what == "half":
        half_written()
        release_for_ever(place)
    elif what == "stop":
        at_point("page", 1, True, stop)
        try:
            made().save(place / "out")
        except ReleaseError as error:
            print(error, file=sys.stderr)
            return 2
    elif what == "command":
        errors, *rest = arguments
        handle = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 2)
        os.dup2(handle, 1)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.argv = ["dualquery", *rest]
        from dualquery.cli import main

        main()
    return 0


def serve(place: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while line := sys.stdin.readline():
        sys.stdout.flush()
        process = os.fork()
        if process == 0:
            code = 1
            try:
                code = child(place, *json.loads(line))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            finally:
                sys.stderr.flush()
                os._exit(code)
        print(process, flush=True)
        sys.stdin.readline()  # until then the child keeps its number, alive or dead
        _, status = os.waitpid(process, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    SCHEMA = parse_schema(example.SCHEMA, origin="the example")
    RECORDS = dualquery.encode(example.survey(60), SCHEMA)
    made().save(Path(sys.argv[1]) / "warm")
    dualquery.Release.load(Path(sys.argv[1]) / "warm")
    print("ready", flush=True)
    serve(Path(sys.argv[1]))
