"""Golden releases: the same seeds give the same releases, byte by byte, before a change and after it.

    python tools/golden.py --out before.json              make them all, and write what they are
    python tools/golden.py --compare before.json          make them again, and say what differs
    python tools/golden.py --only adult pure --compare …  those whose name begins so
    python tools/golden.py --list                         their names

A case is a seeded release of a public or invented table. Kept are digests of what was released (rows, answers), of
the plan and of the error bars, and some plain numbers beside them: the mean error on the workload, and processor
seconds. Run it from the root of the checkout; DUALQUERY_DATA names the folder of the public data sets. Seeded
releases are not private: this is for whoever changes the code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: idle threads spin, and their time counts

import numpy as np
import pyarrow as pa
import pyarrow.csv

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import dualquery
from dualquery import Accounting, Budget, Neighbours, example
from dualquery.queries.random_families import random_literals, weighted_conjunctions
from dualquery.releases.evaluate import evaluate
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.encoding import encode
from dualquery.table.records import Records, SparseItems
from dualquery.table.schema import parse_schema, read_schema
from experiments.data import Data, only_columns

Found = dict[str, Any]
REPLACE = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.REPLACE)
ADD_REMOVE = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
PURE = Budget(epsilon=1.0, delta=0.0, neighbours=Neighbours.REPLACE, accounting=Accounting.PURE)
TWO = replace(ADD_REMOVE, epsilon=2.0)
FEW = 12_000  # synthetic rows, where the fit is not what a case is about


def digest(*arrays: Any) -> str:
    found = hashlib.sha256()
    for each in arrays:
        array = np.ascontiguousarray(each)
        found.update(f"{array.dtype}{array.shape}".encode())
        found.update(array.tobytes())
    return found.hexdigest()[:16]


def text_digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:16]


@cache
def data(name: str) -> Records:
    return Data(Data.default_folder()).records(name)


@cache
def survey(rows: int) -> Records:
    return encode(example.survey(rows), parse_schema(example.SCHEMA, origin="the example"))


def first(records: Records, rows: int) -> Records:
    return records.take(np.arange(rows, dtype=np.int64))


def made(records: Records, workload: Any, budget: Budget, **options: Any) -> Found:
    """A release of encoded records, and what is kept of it."""
    made_now = dualquery.release(records, workload=workload, budget=budget, seed=7, **options)
    return described(made_now, records, workload)


def described(release: dualquery.Release, records: Records, workload: Any = None) -> Found:
    said = json.loads(release.certificate.to_json())
    return {
        "mechanism": said["mechanism"],
        "released": digest_of(release.artefact.to_arrow()),
        "plan": text_digest([said[name] for name in ("parameters", "budget", "spent", "events", "records")]),
        "words": text_digest([said["reason"], said["notes"]]),
        "bars": text_digest(said["predicted_error"]),
        "predicted": said["predicted_error"]["mean"],
        "mean error": evaluate(release, records, workload=workload).mean_error,
    }


def digest_of(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table.combine_chunks())
    return hashlib.sha256(sink.getvalue().to_pybytes()).hexdigest()[:16]


def wide_binary(attributes: int, rows: int = 6_000, classes: int = 4) -> Records:
    """A mixture of classes over binary columns."""
    rng = np.random.default_rng(3)
    chances = (
        rng.beta(0.6, 0.6, (classes, attributes)) if classes else np.tile(rng.beta(1, 1, attributes), (1, 1))
    )
    group = rng.integers(0, max(1, classes), rows)
    bits = (rng.random((rows, attributes)) < chances[group]).astype(np.uint8)
    domain = Domain(tuple(Categorical(f"a{j}", ("0", "1")) for j in range(attributes)))
    return Records.from_rows(domain, bits)


def continuous_binary(attributes: int, rows: int = 6_000) -> Records:
    """Binary columns that follow two hidden numbers, and no classes."""
    rng = np.random.default_rng(4)
    slope = rng.normal(size=(2, attributes)) * 1.2
    chance = 1 / (1 + np.exp(-(rng.normal(size=(rows, 2)) @ slope)))
    domain = Domain(tuple(Categorical(f"a{j}", ("0", "1")) for j in range(attributes)))
    return Records.from_rows(domain, (rng.random((rows, attributes)) < chance).astype(np.uint8))


def kosarak(declared: int | None) -> Found:
    records = data("kosarak")
    block = records.columns[0]
    assert isinstance(block, SparseItems)
    popularity = np.bincount(block.ids, minlength=records.domain.width)
    workload = weighted_conjunctions(records.domain, 3, 20_000, 1, popularity)
    options = {} if declared is None else {"items_per_record": declared}
    return made(records, workload, replace(ADD_REMOVE, epsilon=2.0), synthetic_rows=FEW, **options)


def kdd() -> Found:
    records = first(data("kddcup99"), 100_000)
    return made(records, random_literals(records.domain, 3, 2_000, seed=1), ADD_REMOVE, synthetic_rows=FEW)


def kdd_pairs() -> Found:
    records = first(data("kddcup99"), 3_000)
    return made(records, "marginals:2", ADD_REMOVE, synthetic_rows=FEW)


def persons() -> Found:
    people, waves = 4_000, 3
    table = example.survey(people).append_column("person", pa.array(np.arange(people)))
    schema = replace(parse_schema(example.SCHEMA, origin="the example"), unit="person")
    records = encode(pa.concat_tables([table] * waves), schema, records_per_person=waves)
    budget = replace(ADD_REMOVE, neighbours=Neighbours.named("person-add-remove", waves))
    release = dualquery.release(records, workload="marginals:2", budget=budget, seed=7, synthetic_rows=FEW)
    return described(release, records)


def special(make: Callable[[Path], example.Example], budget: Budget = TWO, **options: Any) -> Found:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        case = make(folder)
        for name, contents in case.files.items():
            if isinstance(contents, str):
                (folder / name).write_text(contents, encoding="utf-8")
            else:
                pyarrow.csv.write_csv(contents, folder / name)
        schema = read_schema(folder / "schema.toml")
        records = encode(folder / case.table, schema)
        release = dualquery.release(
            records, schema=schema, workload=case.queries, budget=budget, seed=7, **options
        )
        return described(release, records)


def stream() -> Found:
    """Questions one after another, of a table with a stale release."""
    from dualquery.interactive.opening import first_release

    records = survey(20_000)
    budget = Budget(1.0, 1e-6, Neighbours.REPLACE, accounting=Accounting.RENYI)
    before = first_release(
        first(records, 5_000),
        schema=records.domain,
        budget=budget,
        share=0.8,
        workload="marginals:2",
        seed=1,
    )
    table = encode(
        example.survey(20_000, seed=example.SEED + 1), parse_schema(example.SCHEMA, origin="the example")
    )
    online = dualquery.online(table, schema=records.domain, release=before, budget=budget, seed=5)
    names = [column.name for column in records.domain.columns]
    told = []
    for a, b in pairwise(names):
        answer = online.ask(f"{a} by {b}")
        told.append([answer.badge.value, [float(v) for v in answer.values], answer.cost.units])
    return {"answers": text_digest(told), "badges": "".join(each[0][0] for each in told)}


def disjunctions(mechanism: str, width: int = 60) -> Found:
    rng = np.random.default_rng(5)
    domain = Domain((Items("basket", width),))
    records = Records.from_rows(
        domain, (rng.random((10_000, width)) < 1 / np.arange(3, width + 3)).astype(np.uint8)
    )
    budget = replace(ADD_REMOVE, epsilon=2.0)
    return made(records, random_disjunctions(domain, 3, 300), budget, mechanism=mechanism)


def random_disjunctions(domain: Domain, attributes: int, number: int) -> list[str]:
    rng = np.random.default_rng(6)
    names = [domain.name(j) for j in range(domain.width)]
    return [" | ".join(names[j] for j in rng.choice(len(names), attributes, False)) for _ in range(number)]


def few_columns(number: int) -> Records:
    return only_columns(survey(8_000), range(number))


def pmw() -> Found:
    return made(few_columns(4), "marginals:2", REPLACE, mechanism="pmw", rounds=8, synthetic_rows=FEW)


CASES: dict[str, Callable[[], Found]] = {
    "survey demo": lambda: made(survey(20_000), "marginals:3", REPLACE),
    "survey add-remove": lambda: made(survey(20_000), "marginals:3", ADD_REMOVE, synthetic_rows=FEW),
    "survey ones": lambda: made(survey(20_000), "marginals:1", ADD_REMOVE, synthetic_rows=FEW),
    "survey large budget": lambda: made(
        survey(20_000), "marginals:3", replace(ADD_REMOVE, epsilon=20.0), synthetic_rows=FEW
    ),
    "survey small": lambda: made(first(survey(20_000), 400), "marginals:2", ADD_REMOVE, synthetic_rows=FEW),
    "survey tiny budget": lambda: made(
        survey(20_000), "marginals:2", replace(REPLACE, epsilon=1e-4, delta=1e-9), synthetic_rows=FEW
    ),
    "adult triples": lambda: made(
        data("adult"), "marginals:3", replace(ADD_REMOVE, delta=1e-3), synthetic_rows=FEW
    ),
    "adult pairs zcdp": lambda: made(
        data("adult"), "marginals:2", replace(REPLACE, accounting=Accounting.ZCDP), synthetic_rows=FEW
    ),
    "adult small": lambda: made(first(data("adult"), 1_500), "marginals:3", ADD_REMOVE, synthetic_rows=FEW),
    "adult large budget": lambda: made(
        data("adult"), "marginals:3", replace(ADD_REMOVE, epsilon=10.0, delta=1e-3), synthetic_rows=FEW
    ),
    "nltcs": lambda: made(data("nltcs"), "marginals:3", ADD_REMOVE),
    "nltcs replace": lambda: made(
        data("nltcs"), "marginals:3", replace(REPLACE, epsilon=0.3), synthetic_rows=FEW
    ),
    "kdd": kdd,
    "kdd pairs": kdd_pairs,
    "persons": persons,
    "kosarak declared": lambda: kosarak(10),
    "kosarak measured": lambda: kosarak(None),
    "wide classes": lambda: made(
        (table := wide_binary(300)),
        random_literals(table.domain, 3, 30_000, seed=1),
        ADD_REMOVE,
        synthetic_rows=FEW,
    ),
    "wide axes": lambda: made(
        (table := continuous_binary(300)),
        random_literals(table.domain, 3, 30_000, seed=1),
        ADD_REMOVE,
        synthetic_rows=FEW,
    ),
    "wide independent": lambda: made(
        (table := wide_binary(400, classes=0)),
        random_literals(table.domain, 3, 30_000, seed=1),
        REPLACE,
        synthetic_rows=FEW,
    ),
    "wide few sets": lambda: made(
        (table := wide_binary(300)),
        random_literals(table.domain, 2, 300, seed=1),
        ADD_REMOVE,
        synthetic_rows=FEW,
    ),
    "pure survey": lambda: made(survey(20_000), "marginals:3", PURE, synthetic_rows=FEW),
    "pure adult": lambda: made(
        data("adult"),
        "marginals:2",
        replace(PURE, neighbours=Neighbours.ADD_REMOVE),
        synthetic_rows=FEW,
        mechanism="projection",
    ),
    "pure nltcs": lambda: made(data("nltcs"), "marginals:3", PURE, synthetic_rows=FEW),
    "pure small": lambda: made(
        first(survey(20_000), 1_500),
        "marginals:2",
        replace(PURE, neighbours=Neighbours.ADD_REMOVE),
        synthetic_rows=FEW,
        mechanism="projection",
    ),
    "dualquery": lambda: made(few_columns(6), "marginals:2", REPLACE, mechanism="dualquery", rounds=60),
    "mwem": lambda: made(few_columns(5), "marginals:2", REPLACE, mechanism="mwem", synthetic_rows=FEW),
    "mwem pure": lambda: made(few_columns(5), "marginals:2", PURE, mechanism="mwem", synthetic_rows=FEW),
    "pmw": pmw,
    "mirror": lambda: made(
        few_columns(4), "marginals:2", REPLACE, mechanism="mirror", rounds=8, synthetic_rows=FEW
    ),
    "euclidean": lambda: made(
        few_columns(4), "marginals:2", REPLACE, mechanism="euclidean", rounds=8, synthetic_rows=FEW
    ),
    "gaussian": lambda: made(few_columns(6), "marginals:2", ADD_REMOVE, mechanism="gaussian"),
    "laplace": lambda: made(few_columns(6), "marginals:2", PURE, mechanism="laplace"),
    "hadamard": lambda: made(
        only_columns(data("nltcs"), range(8)),
        "marginals:2",
        REPLACE,
        mechanism="hadamard",
        synthetic_rows=FEW,
    ),
    "monomials": lambda: disjunctions("monomials"),
    "parities": lambda: disjunctions("parities"),
    "parities of a wide basket": lambda: disjunctions("parities", 300),
    "graph": lambda: special(example.payments),
    "graph frieze-kannan": lambda: special(example.payments, mechanism="frieze-kannan"),
    "points": lambda: special(example.customers),
    "codes": lambda: special(example.patients, REPLACE),
    "codes touched": lambda: special(example.patients, REPLACE, mechanism="touched-weights"),
    "stream": stream,
}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="+", default=[""], help="names begin so")
    asked.add_argument("--out", type=Path)
    asked.add_argument("--compare", type=Path)
    asked.add_argument("--list", action="store_true")
    wanted = asked.parse_args()
    names = [name for name in CASES if any(name.startswith(begin) for begin in wanted.only)]
    if wanted.list:
        print(*names, sep="\n")
        return
    before = json.loads(wanted.compare.read_text()) if wanted.compare else {}
    found: dict[str, Found] = json.loads(wanted.out.read_text()) if wanted.out and wanted.out.exists() else {}
    different = 0
    for name in names:
        started = time.process_time()
        try:
            found[name] = CASES[name]()
        except Exception as problem:  # the other cases do not depend on this one
            found[name] = {"problem": f"{type(problem).__name__}: {problem}"}
        found[name]["seconds"] = round(time.process_time() - started, 2)
        different += told(name, found[name], before.get(name))
        if wanted.out:
            wanted.out.write_text(json.dumps(found, indent=1, sort_keys=True))
    print(f"{len(names)} cases, {different} differ" if wanted.compare else f"{len(names)} cases")
    sys.exit(1 if different else 0)


def told(name: str, now: Found, before: Found | None) -> bool:
    """Print a case; whether it differs from before in anything but its time."""
    if before is None:
        print(f"{name}: {now}", flush=True)
        return False
    apart = {
        key: (before.get(key), now.get(key))
        for key in now
        if key != "seconds" and before.get(key) != now.get(key)
    }
    words = "; ".join(f"{key} {old} -> {new}" for key, (old, new) in apart.items()) or "the same"
    print(f"{name}: {words} ({before['seconds']} s -> {now['seconds']} s)", flush=True)
    return bool(apart)


if __name__ == "__main__":
    main()
