"""Mutants of the privacy code: small faults, one at a time, each of which some test should notice.

    python tools/mutate.py                      200 mutants of src/dualquery/privacy, seed 0
    python tools/mutate.py --only selection     of one module
    python tools/mutate.py --list               what would be run
    python tools/mutate.py --again FILE         the survivors of an earlier run
    python tools/mutate.py --all                with all of tests/privacy, and not only the tests that know a module

Every comparison, operation, number, boolean, condition and return of the package is a place for a fault. A fixed seed
samples from all of them. Each mutant is written into a copy of the source; the tests that know its module
run until one fails. (Own code, because mutmut and cosmic-ray start an interpreter for each
mutant and know nothing of numba's caches.) What survives is judged in docs/privacy.md, "Mutants".
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path("src", "dualquery", "privacy")
TESTS = Path("tests", "privacy")
# A mutant that computes longer is killed by the clock; the tests of one module take ten or twenty seconds.
CPU_SECONDS = 45

# The tests that know a module. Others may kill a mutant, too (--all): this counts too few, not too many.
FIRST = {
    "budget": (
        "test_neighbours",
        "test_edges",
        "test_rounding",
        "test_budget",
        "test_persons",
        "test_statistics",
        "test_ledger",
    ),
    "conversion": ("test_edges", "test_rounding", "test_proofs", "test_ledger", "test_several_records"),
    "curator": ("test_curator", "test_exceeds"),
    "events": ("test_rounding", "test_several_records", "test_ledger", "test_edges"),
    "accounting": (
        "../ledger/test_book",
        "test_gaussian_filter",
        "test_rounding",
        "test_several_records",
        "test_fires",
        "test_ledger",
        "test_edges",
    ),
    "ledger": (
        "test_allowance",
        "test_exceeds",
        "test_rounding",
        "test_fires",
        "test_several_records",
        "test_prices",
        "test_ledger",
        "test_edges",
    ),
    "noise": ("test_edges", "test_rounding", "test_noise"),
    "scores": ("test_selection_bounds", "test_rounding", "test_proofs", "test_statistics"),
    "selection": ("test_edges", "test_selection_bounds", "test_selection", "test_rounding"),
    "thresholds": ("test_edges", "test_exceeds", "test_sparse_vector", "test_whole_tables", "test_hazard"),
}

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATIONS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
CALLS = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "any": "all", "all": "any"}


@dataclass(frozen=True)
class Mutant:
    """In this module, at this place (a number of the walk), this fault."""

    module: str
    place: int
    variant: int
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line}: {self.words}"


Fault = tuple[str, Callable[[ast.AST], ast.AST]]


def faults(node: ast.AST) -> Iterator[Fault]:
    """The faults that can be put into one node: words, and what makes the faulty node."""
    before = ast.unparse(node) if isinstance(node, ast.expr) else ""

    def made(words: str, change: Callable[[ast.AST], ast.AST]) -> Fault:
        return words, change

    if isinstance(node, ast.Compare) and len(node.ops) >= 1:
        for i, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                yield made(
                    f"{before}  [{i}] → {other.__name__}", lambda n, i=i, o=other: _set(n, "ops", i, o())
                )
    elif isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS and not _is_text(node):
        other_op = OPERATIONS[type(node.op)]
        yield made(f"{before}  → {other_op.__name__}", lambda n: _with(n, op=other_op()))
    elif isinstance(node, ast.AugAssign) and type(node.op) in OPERATIONS:
        other_op = OPERATIONS[type(node.op)]
        yield made(f"{ast.unparse(node)}  → {other_op.__name__}", lambda n: _with(n, op=other_op()))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield made(f"{before}  → {not node.value}", lambda n: ast.Constant(not n.value))  # type: ignore[attr-defined]
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        for step in (1, -1):
            yield made(f"{before}  → {node.value + step}", lambda n, s=step: ast.Constant(n.value + s))  # type: ignore[attr-defined]
    elif isinstance(node, ast.BoolOp):
        swapped = ast.Or if isinstance(node.op, ast.And) else ast.And
        yield made(f"{before}  → {swapped.__name__}", lambda n: _with(n, op=swapped()))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield made(f"{before}  → operand alone", lambda n: n.operand)  # type: ignore[attr-defined]
    elif isinstance(node, ast.IfExp):
        yield made(
            f"{before}  → branches swapped",
            lambda n: _with(n, body=n.orelse, orelse=n.body),  # type: ignore[attr-defined]
        )
    elif isinstance(node, ast.If | ast.While):
        yield made(
            f"if {ast.unparse(node.test)}  → negated",
            lambda n: _with(n, test=ast.UnaryOp(ast.Not(), n.test)),  # type: ignore[attr-defined]
        )
    elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
        yield made(f"return {ast.unparse(node.value)}  → None", lambda n: ast.Return(ast.Constant(None)))
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in CALLS:
            yield made(f"{before}  → {CALLS[name]}", lambda n, m=CALLS[name]: _renamed(n, m))


def _with(node: ast.AST, **changes: object) -> ast.AST:
    for name, value in changes.items():
        setattr(node, name, value)
    return node


def _set(node: ast.AST, field: str, place: int, value: object) -> ast.AST:
    getattr(node, field)[place] = value
    return node


def _renamed(node: ast.AST, name: str) -> ast.AST:
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Attribute):
        node.func.attr = name
    else:
        node.func = ast.Name(name, ast.Load())
    return node


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(isinstance(each, ast.Constant) and isinstance(each.value, str) for each in sides) or any(
        isinstance(each, ast.JoinedStr) for each in sides
    )


def places(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that a fault may go into: no annotations, decorators, messages, nor how an event is worded."""

    def walk(node: ast.AST) -> Iterator[ast.AST]:
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.FunctionDef) and node.name == "words"):
            return
        yield node
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from walk(child)

    return walk(tree)


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    for place, node in enumerate(places(ast.parse(source))):
        for variant, (words, _) in enumerate(faults(node)):
            yield Mutant(module, place, variant, getattr(node, "lineno", 0), " ".join(words.split()))


def faulty(source: str, mutant: Mutant) -> str:
    """The source with its fault."""
    tree = ast.parse(source)
    target = list(places(tree))[mutant.place]
    change = list(faults(target))[mutant.variant][1]

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return change(copy.copy(node)) if node is target else super().generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


def sampled(number: int, seed: int, only: str | None) -> list[Mutant]:
    every = [
        mutant
        for path in sorted((ROOT / PACKAGE).glob("*.py"))
        if only is None or path.stem == only
        for mutant in mutants_of(path.stem, path.read_text(encoding="utf-8"))
    ]
    return sorted(
        random.Random(seed).sample(every, min(number, len(every))), key=lambda m: (m.module, m.place)
    )


def tests_for(module: str, home: Path, everything: bool) -> list[list[str]]:
    """The tests that know a module, and in a second run all others."""
    found = [*(home / TESTS).glob("test_*.py"), home / "tests" / "ledger" / "test_book.py"]
    others = sorted(str(path.relative_to(home)) for path in found)
    known = [
        path for name in FIRST.get(module, ()) if (path := os.path.normpath(TESTS / f"{name}.py")) in others
    ]
    rest = [path for path in others if path not in known] + ["tests/golden"]
    return [known, rest] if everything and known else [known or rest]


def run_tests(home: Path, paths: list[str], log: Path, cpu_seconds: int = CPU_SECONDS) -> int:
    """Exit code of pytest in a child that inherits every third-party import of ours."""
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))
        out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.chdir(home)
        sys.path.insert(0, str(home / "src"))
        code: int = 70
        try:
            import pytest

            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *paths]))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def new_home(where: Path) -> Path:
    ignored = shutil.ignore_patterns("*.nbc", "*.nbi", "results")
    for part in ("src", "tests", "docs"):
        shutil.copytree(ROOT / part, where / part, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", where)
    return where


def judge(home: Path, mutant: Mutant, everything: bool) -> str | None:
    """What killed it, or None."""
    path = home / PACKAGE / f"{mutant.module}.py"
    source, stamp = path.read_text(encoding="utf-8"), path.stat()
    log = home / "log"
    path.write_text(faulty(source, mutant), encoding="utf-8")
    try:
        for paths in tests_for(mutant.module, home, everything):
            log.unlink(missing_ok=True)
            code = run_tests(home, paths, log)
            if code < 0:
                return "took too long, or crashed"
            if code != 0:
                lines = log.read_text(errors="replace").splitlines()
                return next((x for x in lines if x.startswith(("FAILED", "ERROR"))), f"exit code {code}")
        return None
    finally:
        path.write_text(source, encoding="utf-8")
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))  # so that compiled caches stay valid


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--number", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="how many at once")
    parser.add_argument("--only", help="one module, such as selection")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--again", type=Path, help="only what survived in this earlier --out")
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    chosen = parser.parse_args()
    mutants = sampled(chosen.number, chosen.seed, chosen.only)
    if chosen.again is not None:
        survived = set(json.loads(chosen.again.read_text(encoding="utf-8"))["survived"])
        mutants = [mutant for mutant in mutants if str(mutant) in survived]
    if chosen.list:
        print(*mutants, sep="\n")
        return 0
    import dp_accounting  # noqa: F401  heavy imports, once for all children
    import hypothesis  # noqa: F401
    import numba  # noqa: F401
    import opendp.prelude  # noqa: F401
    import pyarrow  # noqa: F401
    import pytest  # noqa: F401
    import scipy.stats  # noqa: F401

    result: dict[str, list[str]] = {"killed": [], "survived": []}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        homes: SimpleQueue[Path] = SimpleQueue()
        for job in range(chosen.jobs):
            homes.put(new_home(Path(folder, str(job))))
        home = homes.get()
        for paths in tests_for("", home, everything=True):
            if run_tests(home, paths, home / "log", cpu_seconds=600) != 0:
                print(
                    (home / "log").read_text()[-2000:], "\nthe tests fail without any fault; mend them first"
                )
                return 2
        homes.put(home)

        def judged(mutant: Mutant) -> tuple[Mutant, str | None]:
            mine = homes.get()
            try:
                return mutant, judge(mine, mutant, chosen.all)
            finally:
                homes.put(mine)

        with ThreadPoolExecutor(chosen.jobs) as pool:
            for i, (mutant, killer) in enumerate(pool.map(judged, mutants), 1):
                result["killed" if killer else "survived"].append(str(mutant))
                verdict = "killed" if killer else "SURVIVED"
                print(f"{i}/{len(mutants)} {verdict}: {mutant}   {killer or ''}", flush=True)
                chosen.out.write_text(json.dumps(result, indent=1, ensure_ascii=False), encoding="utf-8")
    killed = len(result["killed"])
    print(f"{killed} of {len(mutants)} killed, {killed / max(1, len(mutants)):.1%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
