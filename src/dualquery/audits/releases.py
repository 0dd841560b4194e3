"""Audits of what is published: of every mechanism, and of the whole way from a file to the folder of a release.

*Mechanisms.* Their own plan and their own run, on tables of a few records. The adversary sees what a release
publishes: how many synthetic records lie in each cell of the universe, or the answers; and the events on the
certificate.

*Folders.* Two files that one record tells apart are written, released as `dualquery release` does it, saved, and the
folder is read like any reader would: every field of the certificate, every sentence of the report, the shape of the
data. Runs are few, so the claim is small: what is looked for is a field that gives the record away. A refusal is an
outcome, too, except where one of the files is malformed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from dualquery.audits.case import (
    ALONE,
    BITS,
    DUPLICATES,
    MANY,
    REPLACED,
    Case,
    Claim,
    Pair,
    Refusal,
    Sampled,
    Sampler,
    Shown,
    Tell,
    columns,
    repeated,
)
from dualquery.audits.curator import CUTS, EDGE, FAR, HOUSE_TABLES, HOUSEHOLD, LISTED, LOOK_UPS, PLACES
from dualquery.counting import MemoryCounter
from dualquery.errors import DualQueryError
from dualquery.mechanisms.artefact import Artefact
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_texts
from dualquery.queries.tables import Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import Entropy, SystemEntropy
from dualquery.releases import make
from dualquery.releases.private_draft import private_draft
from dualquery.table.schema import parse_schema
from dualquery.types import silent

ALL_CELLS = Workload(BITS, (Tables(BITS, ((0, 1),)),), "all cells")
ONE_TABLE = Workload(BITS, (Tables(BITS, ((0,),)),), "one table")
ONE_ATTRIBUTE = from_texts(BITS, ["a = 1"])  # the other one is free
EITHER = from_texts(BITS, ["a = 1 | b = 1"])


def runs_of(
    name: str,
    pair: Pair,
    accounting: Accounting = Accounting.PURE,
    options: Mapping[str, object] | None = None,
    workload: Workload = ALL_CELLS,
) -> Sampler:
    """A mechanism with options that let few runs tell much: planned once, as the public would, and run each time."""
    delta = 0.0 if accounting is Accounting.PURE else 0.05
    budget = Budget(epsilon=2.0, delta=delta, neighbours=pair.neighbours, accounting=accounting)

    def begin(side: int, entropy: Entropy) -> Callable[[Ledger], Shown]:
        mechanism = MECHANISMS[name]
        plan = mechanism.plan_for(Task(workload, pair.public_rows, budget), options or {})
        counter = MemoryCounter(pair.tables[side])

        def run(ledger: Ledger) -> Shown:
            curator = Curator(counter, ledger, entropy)
            artefact = mechanism.run(plan, curator, entropy.public_generator(), silent).artefact
            return {**published(artefact, workload), "events": float(len(ledger.events))}

        return run

    return repeated(budget, begin)


def published(artefact: Artefact, workload: Workload) -> Shown:
    if artefact.rows is None or workload.domain is not BITS:
        answers = np.concatenate([artefact.fractions(group) for group in workload.groups])
        return {f"answer {i}": float(each) for i, each in enumerate(answers)}
    cells = np.rint(artefact.rows * artefact.fractions(ALL_CELLS.groups[0]))
    seen: dict[str, float | str] = {f"cell {i}": float(each) for i, each in enumerate(cells)}
    return seen | {"cells": " ".join(f"{each:.0f}" for each in cells)}


def mechanisms() -> list[Case]:
    """For whoever looks at data one pair that spends all on one attribute, and one that spreads it over all cells."""
    pure, zcdp, gaussian = Accounting.PURE, Accounting.ZCDP, Accounting.GAUSSIAN
    many, few, slow, late, fast = (500, 20_000), (240, 4000), (400, 10_000), (0, 4000), (1000, 40_000)
    rows = {"synthetic_rows": 2000}
    once, twice, first = {"rounds": 1, **rows}, {"rounds": 2, **rows}, {"rounds": 1}
    dual_query = {"rounds": 2, "samples": 1, "recall": 1, "free": "zeros"}
    density, spread = {**dual_query, "free": "density"}, {**dual_query, "rounds": 3, "learning_rate": 5.0}

    def case(runs: tuple[int, int], name: str, pair: Pair, *setting: Any, words: str = "") -> Case:
        return Case(name, pair.words + words, runs_of(name, pair, *setting), quick=runs[0], long=runs[1])

    return [
        case(many, "dualquery", REPLACED, pure, dual_query, ONE_ATTRIBUTE),
        case(many, "dualquery", MANY, pure, spread),
        case(many, "dualquery", REPLACED, pure, density, ONE_ATTRIBUTE, words=", one attribute free"),
        case(many, "mwem", DUPLICATES, pure, once, ONE_ATTRIBUTE),
        case(many, "mwem", MANY, pure, twice),
        case(late, "mwem", DUPLICATES, zcdp, {**once, "start": "noisy"}, words=", noisy start"),
        case(late, "mwem", DUPLICATES, pure, {**twice, "updates": "figure-1"}, words=", Figure 1"),
        case(many, "pmw", DUPLICATES, pure, {**once, "iterate": "last"}, ONE_ATTRIBUTE),
        case(many, "pmw", MANY, pure, {**twice, "iterate": "last"}),
        case(many, "mirror", DUPLICATES, pure, once, ONE_ATTRIBUTE),
        case(many, "mirror", MANY, pure, {**twice, "mirror_map": "euclidean"}),
        case(slow, "euclidean", DUPLICATES, zcdp, once, ONE_ATTRIBUTE),
        case(slow, "monomials", DUPLICATES, zcdp, first, EITHER),
        case(slow, "parities", DUPLICATES, zcdp, {}, EITHER),
        case(few, "projection", DUPLICATES, gaussian, rows, ONE_TABLE),
        case(late, "projection", MANY, gaussian, rows),
        case(few, "least-squares", DUPLICATES, gaussian, rows, ONE_ATTRIBUTE),
        case(fast, "laplace", DUPLICATES),
        case(fast, "laplace", ALONE),
        case(slow, "gaussian", DUPLICATES, gaussian),
        case((0, 10_000), "gaussian", MANY, gaussian),
        case(many, "hadamard", DUPLICATES, pure, rows, ONE_TABLE),
        case(many, "hadamard", MANY, pure, rows),
        case(many, "uniform", DUPLICATES, pure, rows),
        case(many, "zeros", DUPLICATES, pure, rows),
        case((0, 1000), "coarsenings", EDGE, zcdp, {}, CUTS),
        case(few, "frieze-kannan", EDGE, zcdp, first, CUTS),
        case(few, "distance-curves", FAR, zcdp, {}, PLACES),
        case(few, "coordinate-wise", FAR, zcdp, first, PLACES),
        case(few, "noisy-cells", LISTED, zcdp, {}, LOOK_UPS),
        case(few, "touched-weights", LISTED, zcdp, first, LOOK_UPS),
        case((60, 4000), "linked", HOUSEHOLD, gaussian, {"synthetic_rows": 20}, HOUSE_TABLES),
    ]


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
GOOD_ENOUGH = {"criterion": [{"tables": 1, "mean": 0.7}, {"mean_of": "income", "by": ["job"], "error": 20.0}]}
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
    draft: Budget | None = (
        None  # of a private draft that comes first, and whose counts the release uses again
    )

    @property
    def claim(self) -> Claim:
        """Of all that is published."""
        parts = [self.budget, *([] if self.draft is None else [self.draft])]
        return Claim(sum(each.epsilon for each in parts), sum(each.delta for each in parts))

    @property
    def budget(self) -> Budget:
        delta = 0.0 if self.accounting is Accounting.PURE else 0.01
        return Budget(epsilon=0.5, delta=delta, neighbours=self.neighbours, accounting=self.accounting)

    def case(self, quick: int, long: int) -> Case:
        name = f"file to folder: {self.mechanism or 'chosen by the program'}"
        return Case(name, self.words, folders_of(self), quick=quick, long=long, refuses=self.refuses)


def folders_of(pair: FilePair) -> Sampler:
    def sample(side: int, runs: int, entropy: Entropy, tell: Tell) -> Sampled:
        found: list[Shown] = []
        with tempfile.TemporaryDirectory() as place:
            table = Path(place) / "table.csv"
            table.write_text(HEADER + pair.texts[side], encoding="utf-8")
            for run in range(runs):
                seed = None if isinstance(entropy, SystemEntropy) else entropy.below(1 << 60, 1)[0]
                found.append(_shown(pair, table, Path(place) / str(run), seed))
                tell(1)
        refused = all("refusal" in each for each in found)
        return Sampled(columns(found), pair.claim, str(found[0]["refusal"]) if refused else None)

    return sample


def _shown(pair: FilePair, table: Path, folder: Path, seed: int | None) -> dict[str, str]:
    """Everything that the folder of one release shows, as texts; or the kind of refusal."""
    shown: dict[str, str] = {}
    options = dict(pair.options)
    try:
        schema = parse_schema(pair.schema, origin="the audit")
        if pair.draft is not None:
            draft = private_draft(table, budget=pair.draft, force=True, seed=seed)
            schema, options["draft"] = draft.schema, draft
            said = {f"draft.{name}": value for name, value in (draft.certificate or {}).items()}
            shown |= dict(_fields(said)) | {"draft": str(draft.schema), "draft.entropy": ""}
        release = make.release(
            table,
            schema=schema,
            workload="marginals:1",
            budget=pair.budget,
            mechanism=pair.mechanism,
            records=pair.public_rows,
            seed=seed,
            **options,
        )
        release.save(folder)
    except DualQueryError as problem:
        return shown | {"refusal": f"{type(problem).__name__}: {problem}"}
    certificate = json.loads((folder / "certificate.json").read_text(encoding="utf-8"))
    shown |= dict(_fields({name: certificate[name] for name in certificate if name not in PUBLIC_NOISE}))
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
            for value, times in Counter(data[name].to_pylist()).items():
                shown[f"{name} {value}"] = f"{times / data.num_rows:.1f}"
    return shown


def _fields(data: Any, path: str = "") -> Iterator[tuple[str, str]]:
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
JUDGED = FilePair(
    "the one king replaced by a clerk, the release checked and judged",
    REPLACE,
    (80 * CROWD + "king,29\n", 80 * CROWD + "clerk,12\n"),
    Accounting.ZCDP,
    "mwem",
    {"rounds": 1, "synthetic_rows": 50, "check": 0.5, "accept": GOOD_ENOUGH},
)
DRAFTED = FilePair(
    "the one king replaced by a clerk, the schema found privately and its counts used again",
    REPLACE,
    (80 * CROWD + "king,29\n", 80 * CROWD + "clerk,12\n"),
    TIGHTEST,
    "projection",
    {"synthetic_rows": 50, "check": 0},
    draft=Budget(epsilon=1.0, delta=0.05, neighbours=REPLACE),
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
    usual, slow = (120, 2000), (60, 1000)
    return [
        *mechanisms(),
        OPPOSITE.case(*usual),
        replace(OPPOSITE, mechanism="dualquery", options={"rounds": 2, "samples": 2, "recall": 1}).case(
            *slow
        ),
        EXTREME.case(*slow),
        ONE_OR_NONE.case(*slow),
        JUDGED.case(*slow),
        DRAFTED.case(*slow),
        DUPLICATE.case(*slow),
        DROPPED.case(*slow),
        DROPPED_IN_PUBLIC.case(*slow),
        UNCLOSED.case(*slow),
    ]
