"""Audits of the whole way, from a file to the folder of a release.

Two files that one record tells apart are written, released as `dualquery release` does it, saved, and the folder is
read like any reader would: every field of the certificate, every sentence of the report, the shape of the data. Runs
are few, so the claim is small: what is looked for is a field that gives the record away. A refusal is an outcome,
too, except where one of the files is malformed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualquery.audits.bounds import Claim
from dualquery.audits.case import Case, Refusal, Sampled, Sampler, Tell
from dualquery.errors import DualQueryError
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.neighbours import Neighbours
from dualquery.randomness import Entropy, SystemEntropy
from dualquery.releases import make
from dualquery.table.schema import parse_schema

SCHEMA = """
[[attribute]]
name = "job"
values = ["none", "clerk", "king"]
unknown = "none"
missing = "none"

[[attribute]]
name = "income"
edges = [0, 10, 20, 30]
clamp = true
missing = "missing"
"""
DROPPING = '[table]\ndrop_rows_containing = "?"\n' + SCHEMA
HEADER = "job,income\n"
CROWD = "clerk,12\n" * 12
PUBLIC_NOISE = ("created", "files")  # a clock, and digests of what is compared anyway


@dataclass(frozen=True)
class FilePair:
    """Two files, how they are released, and what may be refused."""

    words: str
    neighbours: Neighbours
    texts: tuple[str, str]
    accounting: Accounting = Accounting.PURE
    mechanism: str | None = "laplace"
    options: Mapping[str, Any] = field(default_factory=dict)
    schema: str = SCHEMA
    public_rows: int | None = None
    refuses: Refusal = Refusal.NEVER

    @property
    def budget(self) -> Budget:
        delta = 0.0 if self.accounting is Accounting.PURE else 0.01
        return Budget(epsilon=0.5, delta=delta, neighbours=self.neighbours, accounting=self.accounting)

    def case(self, quick: int, long: int) -> Case:
        name = f"file to folder: {self.mechanism or 'chosen by the program'}"
        return Case(name, self.words, folders_of(self), quick=quick, long=long, refuses=self.refuses)


def folders_of(pair: FilePair) -> Sampler:
    """Release a file as often as asked, and read every folder."""

    def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
        found = []
        with tempfile.TemporaryDirectory() as place:
            table = Path(place) / "table.csv"
            table.write_text(HEADER + pair.texts[side], encoding="utf-8")
            for run in range(runs):
                seed = None if isinstance(entropy, SystemEntropy) else entropy.below(1 << 60, 1)[0]
                found.append(_shown(pair, table, Path(place) / str(run), seed))
                tell(1)
        names = sorted({name for each in found for name in each})
        seen = {name: np.array([each.get(name, "") for each in found]) for name in names}
        refused = all("refusal" in each for each in found)
        claim = Claim(pair.budget.epsilon, pair.budget.delta)
        return Sampled(seen, claim, found[0]["refusal"] if refused else None)

    return sample


def _shown(pair: FilePair, table: Path, folder: Path, seed: int | None) -> dict[str, str]:
    """Everything that the folder of one release shows, as texts; or the kind of refusal."""
    try:
        release = make.release(
            table,
            schema=parse_schema(pair.schema, origin="the audit"),
            workload="marginals:1",
            budget=pair.budget,
            mechanism=pair.mechanism,
            records=pair.public_rows,
            seed=seed,
            **pair.options,
        )
        release.save(folder)
    except DualQueryError as problem:
        return {"refusal": f"{type(problem).__name__}: {problem}"}
    certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    shown = dict(_fields({name: certificate[name] for name in certificate if name not in PUBLIC_NOISE}))
    shown["entropy.statement"] = "a seed" if seed is not None else shown["entropy.statement"]
    shown["warnings"] = str(len(certificate["warnings"]))
    shown["names of files"] = " ".join(sorted(each.name for each in folder.iterdir()))
    data = release.to_arrow()
    shown["rows of the data"] = str(data.num_rows)
    if "answer" in data.column_names:
        for i, answer in enumerate(data["answer"].to_pylist()):
            shown[f"answer {i}"] = f"{answer:.2f}"
    else:
        for name in data.column_names:
            for value, times in _times(data[name].to_pylist()).items():
                shown[f"{name} {value}"] = f"{times / data.num_rows:.1f}"
    return shown


def _times(values: list[Any]) -> dict[str, int]:
    return {str(value): values.count(value) for value in sorted(set(values), key=str)}


def _fields(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Every leaf of a certificate, by its path."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from _fields(value, f"{path}.{name}" if path else name)
    elif isinstance(data, list):
        yield f"number of {path}", str(len(data))
        yield path, hashlib.sha256(json.dumps(data).encode()).hexdigest()[:12]
    else:
        yield path, f"{data:.3g}" if isinstance(data, float) else str(data)


REPLACE, ADD_REMOVE, TIGHTEST = Neighbours.REPLACE, Neighbours.ADD_REMOVE, Accounting.TIGHTEST

OPPOSITE = FilePair("the one king replaced by a clerk", REPLACE, (CROWD + "king,29\n", CROWD + "clerk,12\n"))
EXTREME = FilePair(
    "an income of 12 replaced by one of 1e300",
    REPLACE,
    (CROWD + "clerk,12\n", CROWD + "clerk,1e300\n"),
    TIGHTEST,
    "projection",
    {"synthetic_rows": 50},
)
ONE_OR_NONE = FilePair(
    "one row against none", ADD_REMOVE, ("", "king,29\n"), TIGHTEST, None, {"synthetic_rows": 50}
)
DUPLICATE = FilePair(
    "a duplicate more, the number of records declared",
    ADD_REMOVE,
    (CROWD, CROWD + "clerk,12\n"),
    Accounting.PURE,
    "mwem",
    {"rounds": 1, "synthetic_rows": 50},
    public_rows=12,
)
DROPPED = FilePair("a row that the schema drops", ADD_REMOVE, (CROWD, CROWD + "?,12\n"), schema=DROPPING)
DROPPED_IN_PUBLIC = FilePair(
    "a record replaced by one that the schema drops",
    REPLACE,
    (CROWD + "clerk,12\n", CROWD + "?,12\n"),
    schema=DROPPING,
    refuses=Refusal.ALWAYS,
)
UNCLOSED = FilePair(
    "a record replaced by an unclosed quote",
    REPLACE,
    ("clerk,12\n" + CROWD, '"clerk,12\n' + CROWD),
    refuses=Refusal.MALFORMED,
)


def cases() -> list[Case]:
    """Every pair of files."""
    usual, slow = (120, 2000), (60, 1000)
    return [
        OPPOSITE.case(*usual),
        replace(OPPOSITE, mechanism="dualquery", options={"rounds": 2, "samples": 2}).case(*slow),
        EXTREME.case(*slow),
        ONE_OR_NONE.case(*slow),
        DUPLICATE.case(*slow),
        DROPPED.case(*slow),
        DROPPED_IN_PUBLIC.case(*slow),
        UNCLOSED.case(*slow),
    ]
