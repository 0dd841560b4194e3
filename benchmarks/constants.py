"""Which constants of projection matter: each is halved and doubled, and the error of small releases looked at.

python -m benchmarks.constants                       # all of them, an hour or two on one core
python -m benchmarks.constants small.PENALTY fit     # some, or those of a module
python -m benchmarks.constants --seeds 0 1 2 3       # more seeds, smaller standard errors

A constant is a name in capitals that is given a number at the top of a module of mechanisms/projection/, fitting/ or
mechanisms/shares.py. Its module is read with the number changed, in a process of its own, and every release is made
with the same seeds as without the change. Shown is by how much the mean error of the workload's questions changes,
with the standard error over the seeds; `=` says that the released rows are the same, bit by bit. The rule: a constant
stays that moves some row by more than ½%, and by more than two standard errors. (What only shifts the stream of
noise, as shares.ROOM does, already shows 1 or 2% with two seeds.) Limits of memory and time, what only predicts an
error or words it, and what compiled loops hold are left out. docs/benchmarks/constants.csv keeps the last run: of
some constants, among them those that went because of it.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import math
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from types import ModuleType
from typing import Any

import numpy as np

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dualquery"
KEPT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks" / "constants.csv"
ROWS = 12_000  # synthetic ones
FACTORS = (0.5, 2.0)

# Which releases a module can move
ROOMS: Mapping[str, tuple[str, ...]] = {
    "mechanisms/shares": ("adult", "nltcs"),
    "mechanisms/projection/tables": ("adult", "nltcs", "adult ε = 8"),
    "mechanisms/projection/small": ("adult 1,000", "survey 2,000"),
    "mechanisms/projection/pure": ("nltcs pure", "nltcs triples pure", "adult 1,000 pure"),
    "mechanisms/projection/wide": ("classes", "factors"),
    "mechanisms/projection/baskets": ("kosarak",),
    "fitting/allocation": ("adult", "nltcs"),
    "fitting/fit": ("adult", "nltcs", "adult 1,000"),
    "fitting/fitter": ("adult", "nltcs", "adult 1,000"),
    "fitting/measured": ("adult", "nltcs"),
    "fitting/posteriors": ("adult", "adult 1,000"),
    "fitting/shrink": ("adult", "adult 1,000"),
    "fitting/wide": ("classes", "factors", "kosarak"),
}
UNMOVED = {  # limits of memory and time, predictions and words, and what is compiled
    "SECONDS",
    "BYTES",
    "ERROR",
    "CELLS",
    "WORDS",
    "CENTRES",
    "BISECTIONS",
    "PULL",
}


def constants() -> dict[str, Path]:
    """module.NAME, and where."""
    found = {}
    for room in ROOMS:
        path = SOURCE / f"{room}.py"
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            name = node.targets[0].id
            numbers = [part for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            if (
                name.isupper()
                and name.split("_")[-1] not in UNMOVED
                and any(isinstance(part.value, int | float) for part in numbers)
            ):
                found[f"{room.split('/', 1)[-1].replace('/', '.')}.{name}"] = path
    return found


def scaled(value: Any, factor: float) -> Any:
    """Half or twice a number, or every number of several; whole numbers stay whole, and at least one."""
    if isinstance(value, int):
        return max(1, round(value * factor))
    if isinstance(value, tuple):
        return tuple(scaled(each, factor) for each in value)
    if isinstance(value, dict):
        return {key: scaled(each, factor) for key, each in value.items()}
    return type(value)(value * factor) if isinstance(value, float) else value * factor


class Changed(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports one module with one of its constants changed."""

    def __init__(self, path: Path, name: str, factor: float) -> None:
        self.path, self.name, self.factor = path, name, factor
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        self.module = ".".join(parts)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self.module:
            return None
        return importlib.machinery.ModuleSpec(name, self, origin=str(self.path))

    def exec_module(self, module: ModuleType) -> None:
        tree = ast.parse(self.path.read_text(encoding="utf-8"))
        for node in tree.body:
            if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == self.name:
                arguments: list[ast.expr] = [node.value, ast.Constant(self.factor)]
                node.value = ast.Call(ast.Name("_scaled", ast.Load()), arguments, [])
        module.__file__ = str(self.path)
        module.__dict__["_scaled"] = scaled
        exec(compile(ast.fix_missing_locations(tree), str(self.path), "exec"), module.__dict__)


# Releases. Nothing of dualquery is imported before a constant is changed.


def release(case: str, seed: int) -> tuple[float, str]:
    """The mean error of the workload's questions, and a digest of what the rows answer."""
    from dualquery.counting import MemoryCounter
    from dualquery.mechanisms.mechanism import Task
    from dualquery.mechanisms.projection import PROJECTION
    from dualquery.mechanisms.wishes import ProjectionWishes
    from dualquery.privacy.curator import Curator
    from dualquery.privacy.ledger import Ledger
    from dualquery.randomness import SeededEntropy
    from dualquery.types import silent

    records, workload, budget = CASES[case]()
    task = Task(workload, records.rows, budget)
    plan = PROJECTION.plan(task, ProjectionWishes(synthetic_rows=ROWS))
    curator = Curator(MemoryCounter(records), Ledger(budget), SeededEntropy(seed))
    rows = PROJECTION.run(plan, curator, np.random.default_rng(seed), silent).artefact.records
    error, size, digest = 0.0, 0, hashlib.sha256()
    for group in workload.groups:
        counts, true = group.counts(rows), group.counts(records) / (group.unit * records.rows)
        error += float(np.abs(counts / (group.unit * rows.rows) - true).sum())
        size += group.size
        digest.update(np.ascontiguousarray(counts).tobytes())
    return error / size, digest.hexdigest()


def _budget(epsilon: float = 1.0, *, pure: bool = False) -> Any:
    from dualquery import Accounting, Budget, Neighbours

    delta, accounting = (0.0, Accounting.PURE) if pure else (1e-6, Accounting.GAUSSIAN)
    return Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.REPLACE, accounting=accounting)


def _public(name: str, rows: int | None, order: int, **budget: Any) -> Any:
    from benchmarks.harness import records_of
    from dualquery.queries.families import marginals

    records = records_of(name)
    if rows is not None:
        records = records.take(np.random.default_rng(7).permutation(records.rows)[:rows])
    return records, marginals(records.domain, order), _budget(**budget)


def _survey(rows: int) -> Any:
    from dualquery import example
    from dualquery.queries.families import marginals
    from dualquery.table.encoding import encode
    from dualquery.table.schema import parse_schema

    records = encode(example.survey(rows), parse_schema(example.SCHEMA, origin="the example"))
    return records, marginals(records.domain, 2), _budget()


def _binary(factors: bool) -> Any:
    """Of 300 attributes, 20,000 records: in six classes, or logistic in two normal factors."""
    from dualquery.queries.random_families import random_literals
    from dualquery.table.domain import Domain, Items
    from dualquery.table.records import BitItems, Records, pack_bits

    rng, rows, width = np.random.default_rng(0), 20_000, 300
    if factors:
        places = rng.standard_normal((rows, 2)) @ (0.9 * rng.standard_normal((2, width)))
        chance = 1 / (1 + np.exp(-places - rng.standard_normal(width)))
    else:
        chance = rng.random((6, width))[rng.integers(0, 6, rows)]
    bits = pack_bits(np.ascontiguousarray((rng.random((rows, width)) < chance).T))
    domain = Domain((Items("item", width),))
    return Records(domain, rows, (BitItems(bits),)), random_literals(domain, 3, 30_000, seed=1), _budget()


def _kosarak() -> Any:
    from benchmarks.harness import records_of
    from dualquery.queries.random_families import weighted_conjunctions

    records = records_of("kosarak")
    records = records.take(np.arange(20_000))
    popularity = np.bincount(records.columns[0].ids, minlength=records.domain.width)
    return records, weighted_conjunctions(records.domain, 2, 20_000, 1, popularity), _budget()


CASES: Mapping[str, Callable[[], Any]] = {
    "adult": lambda: _public("adult", None, 3),
    "adult ε = 8": lambda: _public("adult", None, 3, epsilon=8.0),
    "nltcs": lambda: _public("nltcs", None, 3),
    "adult 1,000": lambda: _public("adult", 1_000, 2),
    "survey 2,000": lambda: _survey(2_000),
    "nltcs pure": lambda: _public("nltcs", None, 2, pure=True),
    "nltcs triples pure": lambda: _public("nltcs", None, 3, epsilon=6.0, pure=True),
    "adult 1,000 pure": lambda: _public("adult", 1_000, 2, pure=True),
    "classes": lambda: _binary(factors=False),
    "factors": lambda: _binary(factors=True),
    "kosarak": _kosarak,
}


def errors(change: tuple[Path, str, float] | None, cases: Sequence[str], seeds: Sequence[int]) -> Any:
    """By case, the error and the rows of each seed, in a process of its own."""

    def work(pipe: Any) -> None:
        if change is not None:
            sys.meta_path.insert(0, Changed(*change))
        found: dict[str, Any] = {}
        for case in cases:
            try:
                found[case] = [release(case, seed) for seed in seeds]
            except Exception as error:  # a plan may refuse what a changed constant makes of it
                found[case] = type(error).__name__
        pipe.send(found)

    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=work, args=(there,))
    process.start()
    found = here.recv()
    process.join()
    return found


def compared(plain: Sequence[tuple[float, str]], changed: Any) -> tuple[str, bool]:
    """The change in percent, with its standard error, as it is shown; and whether it is one."""
    if isinstance(changed, str):
        return changed, True
    if [rows for _, rows in plain] == [rows for _, rows in changed]:
        return "=", False
    changes = [100 * (there / here - 1) for (here, _), (there, _) in zip(plain, changed, strict=True)]
    spread = stdev(changes) / math.sqrt(len(changes)) if len(changes) > 1 else math.nan
    return f"{fmean(changes):+.1f} ± {spread:.1f}", abs(fmean(changes)) > max(0.5, 2 * spread)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="of constants, or of modules")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--out", type=Path, default=KEPT)
    options = parser.parse_args()
    importlib.import_module("numba")  # once, for all processes
    every = constants()
    some = [
        name
        for name in every
        if not options.names or any(f".{wanted}." in f".{name}." for wanted in options.names)
    ]
    plain = errors(None, list(CASES), options.seeds)
    for case, found in plain.items():
        print(f"{case:<18}{fmean(error for error, _ in found):.5f}", flush=True)
    with options.out.open("w", newline="", encoding="utf-8") as file:
        kept = csv.writer(file)
        kept.writerow(["constant", "row", "halved, %", "doubled, %", "moves", "seeds"])
        for name in some:
            path = every[name]
            room = path.relative_to(SOURCE).with_suffix("").as_posix()
            found = [
                errors((path, name.split(".")[-1], factor), ROOMS[room], options.seeds) for factor in FACTORS
            ]
            for case in ROOMS[room]:
                shown = [compared(plain[case], each[case]) for each in found]
                moves = "yes" if any(moved for _, moved in shown) else "no"
                kept.writerow([name, case, *(words for words, _ in shown), moves, len(options.seeds)])
                print(f"{name:<44}{case:<18}{shown[0][0]:>16}{shown[1][0]:>16}  {moves}", flush=True)
            file.flush()


if __name__ == "__main__":
    main()
