"""What each button of the desk asks for, and the command that it is. Nothing here runs anything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dualquery.table.draft import certificate_beside
from dualquery.table.reading import BUILT_IN
from dualquery.table.reading.postgresql import is_database
from dualquery.table.reading.source import COMPRESSION
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
