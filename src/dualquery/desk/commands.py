"""What each button of the desk asks for, the command that it is, and what it says while it runs beside the desk.

Two windows may ask for the same: a request has a key, and a key that was seen before is the job that it began. While
one command runs no other begins, so that two windows cannot charge one wish twice. The curve of ε against the error
that a release would have is of plans, which need no data but the public number of records.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock, Thread
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dualquery.errors import DualQueryError
from dualquery.privacy.budget import Budget, Neighbours, default_delta
from dualquery.queries.families import from_spec
from dualquery.releases.plan import settled_plan
from dualquery.service.settings import ProblemError
from dualquery.table.draft import certificate_beside
from dualquery.table.reading import BUILT_IN, read_table
from dualquery.table.reading.postgresql import is_database
from dualquery.table.reading.source import COMPRESSION, WantedColumns
from dualquery.table.schema import read_schema
from dualquery.table.toml_text import figure

Name = Annotated[str, Field(min_length=1, max_length=300)]
Epsilon = Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)]
Delta = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=10**12)]
Share = Annotated[float, Field(gt=0, le=2, allow_inf_nan=False)]
Relation = Literal["replace", "add-remove", "person-replace", "person-add-remove"]
MOST_FILES = 500
NO_FILE_NAME = r"[^\w.-]"
# The files that go with a table, by their endings.
SCHEMA, LEDGER, ACCEPT = "schema.toml", "ledger", "accept.toml"
KNOWN = "known.toml"  # what is stated to a private draft
READ_OFF = "read-off.toml"  # the unpaid draft, once a private one takes its place


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class WantedTable(Strict):
    """A table: a file of the desk's folder, a path, or a database with the name of a table in it."""

    table: Name
    named: Name | None = None

    def arguments(self) -> list[str]:
        return [safe(self.table)]

    def of_database(self) -> list[str]:
        return [] if self.named is None else ["--table", self.named]

    def file(self, ending: str) -> str:
        """One of the files that go with the table, in the folder of the desk whatever the table is called."""
        name = Path(self.table.partition("#")[0]).name.lstrip("-.")
        for packed in COMPRESSION:
            name = name.removesuffix(packed)
        stem = (self.named or "database") if is_database(self.table) else Path(name).stem
        return f"{re.sub(NO_FILE_NAME, '_', stem.lstrip('-.')) or 'table'}.{ending}"


class WantedLedger(WantedTable):
    dataset: Name
    epsilon: Epsilon
    delta: Delta
    neighbours: Relation = "replace"
    records_per_person: Count | None = None


class WantedDraft(WantedTable):
    encoding: Name | None = None


class WantedPrivateDraft(WantedTable):
    """What is undecided of a schema, to be found privately; what is marked public is stated."""

    known: bool  # whether anything is
    epsilon: Epsilon
    delta: Delta | None = None
    neighbours: Relation = "replace"
    records_per_person: Count | None = None


class Released(WantedTable):
    """A release, as `dualquery plan` and `dualquery release` are asked for it."""

    queries: Annotated[list[Name], Field(min_length=1, max_length=50)]
    epsilon: Epsilon
    delta: Delta | None = None
    neighbours: Relation = "replace"
    records_per_person: Count | None = None
    expected: Count | None = None  # about how many records, where that is private; for plans alone
    limit: Share | None = None  # the largest mean error of a table of two attributes that is good enough
    ledger: bool = False
    draft: bool = False  # whether the counts of the private draft are used again
    sign: bool = False
    registry: bool = False


def safe(name: str) -> str:
    """A name that no command takes for one of its flags."""
    return f"./{name}" if name.startswith("-") else name


KEY = "steward.key"


def tables_in(folder: Path) -> list[str]:
    """The files of a folder that could be tables, by name; ours are none."""
    found = []
    for each in sorted(folder.iterdir(), key=lambda path: path.name.lower()):
        ours = (
            each.name.startswith(".")
            or each.is_dir()
            or each.name.endswith((".toml", ".ledger", ".key", ".pub", ".certificate.json"))
        )
        if not ours and any(source.handles(str(each)) for source in BUILT_IN):
            found.append(each.name)
    return found[:MOST_FILES]


def draft(asked: WantedDraft) -> list[str]:
    encoding = [] if asked.encoding is None else ["--encoding", asked.encoding]
    return [
        "schema",
        "draft",
        *asked.arguments(),
        *asked.of_database(),
        *encoding,
        "--out",
        asked.file(SCHEMA),
        "--quiet",
    ]


def private_draft(asked: WantedPrivateDraft, *, unit: str | None, encoding: str | None) -> list[str]:
    return [
        *("schema", "draft", *asked.arguments(), *asked.of_database(), "--epsilon", figure(asked.epsilon)),
        *(() if asked.delta is None else ("--delta", figure(asked.delta))),
        *_relation(asked.neighbours, asked.records_per_person),
        *("--ledger", asked.file(LEDGER)),
        *(("--known", asked.file(KNOWN)) if asked.known else ()),
        *(() if unit is None else (f"--unit={unit}",)),
        *(() if encoding is None else ("--encoding", encoding)),
        *("--out", asked.file(SCHEMA)),
    ]


def check(asked: WantedTable) -> list[str]:
    return ["schema", "check", asked.file(SCHEMA), *asked.arguments(), *asked.of_database()]


def ledger(asked: WantedLedger) -> list[str]:
    return [
        *("ledger", "create", asked.file(LEDGER), "--dataset", safe(asked.dataset)),
        *("--epsilon", figure(asked.epsilon), "--delta", figure(asked.delta)),
        *_relation(asked.neighbours, asked.records_per_person),
        "--json",
    ]


def key() -> list[str]:
    return ["key", "create", KEY]


def release(asked: Released, out: str) -> list[str]:
    return [
        *("release", *asked.arguments(), *asked.of_database(), "--schema", asked.file(SCHEMA)),
        *(part for spec in asked.queries for part in ("--queries", spec)),
        *("--epsilon", figure(asked.epsilon)),
        *(() if asked.delta is None else ("--delta", figure(asked.delta))),
        *_relation(asked.neighbours, asked.records_per_person),
        *(() if asked.limit is None else ("--accept", asked.file(ACCEPT))),
        *(("--ledger", asked.file(LEDGER)) if asked.ledger else ()),
        *(("--draft", str(certificate_beside(Path(asked.file(SCHEMA))))) if asked.draft else ()),
        *(("--sign", KEY) if asked.sign else ()),
        *(("--registry",) if asked.registry else ()),
        *("--out", out, "--json"),
    ]


def acceptance(limit: float) -> str:
    """What good enough means, as --accept reads it."""
    return f"[[criterion]]\ntables = 2\nmean = {limit!r}\n"


def _relation(neighbours: str, most: int | None) -> list[str]:
    wanted = [] if neighbours == "replace" else ["--neighbours", neighbours]
    return [*wanted, *([] if most is None else ["--records-per-person", str(most)])]


MOST_KEPT = 200  # jobs, the oldest of which are forgotten
MOST_WORDS = 1_000_000  # characters of output that are kept
LINES = {"DUALQUERY_PROGRESS": "lines"}  # has a command say its progress in lines (`cli.output`)


def written(arguments: Sequence[str]) -> str:
    """A command as a person would type it."""
    return shlex.join(["dualquery", *arguments])


@dataclass
class DeskJob:
    """One command: what it is, how far it has come, and what it said."""

    key: str
    arguments: tuple[str, ...]
    stage: str = "starting"
    done: int = 0
    total: int = 0
    code: int | None = None  # its exit code, once it has ended
    output: str = ""
    said: list[str] = field(default_factory=list)  # on the standard error, without the progress

    def to_json(self) -> dict[str, Any]:
        problem = next((line[7:] for line in reversed(self.said) if line.startswith("Error: ")), None)
        if self.code not in (None, 0, 3) and problem is None:
            problem = "the command ended without saying why; run it in a terminal to see more"
        return {
            "key": self.key,
            "command": written(self.arguments),
            "running": self.code is None,
            "stage": self.stage,
            "done": self.done,
            "total": self.total,
            "code": self.code,
            "output": self.output,
            "warnings": [line[9:] for line in self.said if line.startswith("Warning: ")],
            "problem": problem,
        }


class Jobs:
    """All jobs of a desk; its folder is where they run."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()
        self._known: dict[str, DeskJob] = {}
        self._process: subprocess.Popen[str] | None = None
        self._thread: Thread | None = None

    def start(
        self,
        key: str,
        arguments: Sequence[str],
        before: Callable[[], object] = lambda: None,
        failed: Callable[[], object] = lambda: None,
    ) -> DeskJob:
        """The job of this key: begun now, unless it was before; refused while another one runs.

        What it reads is written `before`, so that no other window changes it under a job that runs; what was moved
        out of its way is put back where it has `failed`.
        """
        with self._lock:
            if (known := self._known.get(key)) is not None:
                return known
            if (busy := next((each for each in self._known.values() if each.code is None), None)) is not None:
                raise ProblemError(
                    409,
                    "busy",
                    f"something else is running, perhaps in another window; wait for: {written(busy.arguments)}",
                )
            before()
            job = self._known[key] = DeskJob(key, tuple(arguments))
            for old in list(self._known)[:-MOST_KEPT]:
                del self._known[old]
        self._thread = Thread(target=self._run, args=(job, failed), daemon=True)
        self._thread.start()
        return job

    def of(self, key: str) -> DeskJob:
        if key not in self._known:
            raise ProblemError(404, "not_found", "there is no such job; load the page again")
        return self._known[key]

    def stop(self) -> None:
        """End what still runs, with the desk, and put back what was moved out of its way."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
        if self._thread is not None:
            self._thread.join(10)  # seconds

    def _run(self, job: DeskJob, failed: Callable[[], object]) -> None:
        command = [sys.executable, "-m", "dualquery", *job.arguments]
        try:
            self._process = process = subprocess.Popen(
                command,
                cwd=self._folder,
                env={**os.environ, **LINES, "NO_COLOR": "1"},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
            assert process.stdout is not None
            assert process.stderr is not None
            reading = Thread(target=self._listen, args=(job, process.stderr), daemon=True)
            reading.start()
            job.output = process.stdout.read(MOST_WORDS)
            process.stdout.close()
            reading.join()
            code = process.wait()
        except OSError as error:
            job.said.append(f"Error: the command cannot be started: {error.strerror}")
            code = 2
        if code:
            failed()
        job.code = code  # last: whoever sees it finds everything in its place

    @staticmethod
    def _listen(job: DeskJob, lines: Any) -> None:
        for line in lines:
            try:
                told = json.loads(line)
                job.stage, job.done, job.total = told["stage"], int(told["done"]), int(told["total"])
            except (ValueError, TypeError, KeyError):
                job.said.append(line.rstrip("\n"))


POINTS = tuple(float(x) for x in (0.1, 0.2, 0.5, 1, 2, 5, 10))


def curve_of(asked: Released, folder: Path) -> dict[str, Any]:
    """For each ε of a row of them the errors that a plan predicts, and the command that says the same of one.

    Between neighbours that share the number of records it is public, and read off the table; otherwise the curator
    says about how many there are.
    """
    schema = read_schema(folder / asked.file(SCHEMA))
    neighbours = Neighbours.named(asked.neighbours, asked.records_per_person)
    rows = asked.expected or _rows(asked, folder) if neighbours.size_is_public else asked.expected
    if rows is None:
        raise DualQueryError(
            "say about how many records the table has: their number is private between these neighbours"
        )
    workload = from_spec(schema.domain, asked.queries)
    records, about = (rows, None) if neighbours.size_is_public else (None, rows)
    delta = asked.delta if asked.delta is not None else default_delta(rows)
    points = []
    for epsilon in sorted({*POINTS, asked.epsilon}):
        try:
            settled = settled_plan(schema, workload, Budget(epsilon, delta, neighbours), about, records)
        except DualQueryError as refusal:
            points.append({"epsilon": epsilon, "refused": str(refusal)})
            continue
        made = settled.plan
        points.append(
            {
                "epsilon": epsilon,
                "mean": made.mean_error,
                "max": made.max_error,
                "mechanism": made.mechanism,
                "seconds": made.seconds,
                "check": settled.check_words,
            }
        )
    flag = ["--records" if neighbours.size_is_public else "--expected-records", str(rows)]
    specs = [part for spec in asked.queries for part in ("--queries", spec)]
    command = ["plan", "--schema", asked.file(SCHEMA), *flag, *specs, "--epsilon", figure(asked.epsilon)]
    command += [] if asked.delta is None else ["--delta", figure(asked.delta)]
    return {
        "points": points,
        "rows": rows,
        "delta": delta,
        "queries": workload.size,
        "spec": workload.spec,
        "command": written(command),
    }


def _rows(asked: Released, folder: Path) -> int | None:
    """The number of rows of a file; of a table of persons, or of a database, the curator says it."""
    schema = read_schema(folder / asked.file(SCHEMA))
    if asked.named is not None or schema.unit is not None:
        return None
    first = schema.domain.columns[0].name
    return int(read_table(folder / asked.table, WantedColumns([first], encoding=schema.encoding)).num_rows)
