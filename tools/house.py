"""How large the house is, in numbers: `python tools/house.py` prints one row per measure.

Lines and files of src; the files that a cell of a CSV file passes on its way to a release, and how deep their calls
stand; small modules with one importer; class names that stand for two things; numeric constants of projection.
"""

from __future__ import annotations

import ast
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from types import FrameType

SOURCE = Path(__file__).resolve().parents[1] / "src"
SMALL = 120  # lines of a module that might as well stand in its only importer


def modules() -> dict[str, Path]:
    named = {}
    for path in sorted((SOURCE / "dualquery").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        named[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return named


def importers(named: dict[str, Path]) -> dict[str, set[str]]:
    """Who imports each module, by a statement anywhere in it."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, path in named.items():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found[full if full in named else node.module].add(name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.name].add(name)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in named:
                found[node.value].add(name)
    return found


def lonely(named: dict[str, Path]) -> list[str]:
    """Modules under `SMALL` lines that one other module imports."""
    who = importers(named)
    lines = {name: path.read_text(encoding="utf-8").count("\n") for name, path in named.items()}
    return [n for n, p in named.items() if p.name != "__init__.py" and lines[n] < SMALL and len(who[n]) == 1]


def double_names(named: dict[str, Path]) -> dict[str, list[str]]:
    homes: dict[str, list[str]] = defaultdict(list)
    for name, path in named.items():
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return {name: where for name, where in homes.items() if len(where) > 1}


def constants(room: Path) -> list[str]:
    """Names in capitals that are given numbers at the top of a module."""
    found = []
    for path in sorted(room.rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            numbers = any(
                isinstance(part, ast.Constant)
                and isinstance(part.value, int | float)
                and not isinstance(part.value, bool)
                for part in ast.walk(node.value)
            )
            found += [
                f"{path.stem}.{target.id}"
                for target in targets
                if isinstance(target, ast.Name) and target.id.strip("_").isupper() and numbers
            ]
    return found


def passed_by_a_cell() -> tuple[set[str], int]:
    """The files whose functions run while a CSV file becomes a release, and the deepest stack of them."""
    from pyarrow import csv

    import dualquery
    from dualquery.example import SCHEMA, survey

    files: set[str] = set()
    depth = deepest = importing = 0
    inside = str(SOURCE)

    def watch(frame: FrameType, event: str, _: object) -> None:
        nonlocal depth, deepest, importing
        path = frame.f_code.co_filename
        if not path.startswith(inside) or event not in ("call", "return"):
            return
        # No cell passes what an import runs, such as the body of a class.
        if frame.f_code.co_name == "<module>":
            importing += 1 if event == "call" else -1
        elif importing:
            return
        elif event == "call":
            depth += 1
            deepest = max(deepest, depth)
            files.add(path)
        else:
            depth -= 1

    with tempfile.TemporaryDirectory() as folder:
        table, schema = Path(folder) / "survey.csv", Path(folder) / "schema.toml"
        csv.write_csv(survey(), table)
        schema.write_text(SCHEMA, encoding="utf-8")
        sys.setprofile(watch)
        try:
            made = dualquery.release(
                table, schema=schema, workload="marginals:2", budget=dualquery.Budget(1, 1e-6), seed=1
            )
            made.save(Path(folder) / "release")
        finally:
            sys.setprofile(None)
    return files, deepest


def main() -> None:
    named = modules()
    lines = sum(path.read_text(encoding="utf-8").count("\n") for path in named.values())
    print(f"lines, files of src: {lines:,}, {len(named)}")
    alone = lonely(named)
    print(f"modules with one importer and under {SMALL} lines: {len(alone)}")
    doubles = double_names(named)
    print(f"class names that stand for two things: {len(doubles)}  {', '.join(sorted(doubles))}")
    print(
        f"numeric constants in projection: {len(constants(SOURCE / 'dualquery' / 'mechanisms' / 'projection'))}"
    )
    if "--cell" in sys.argv:
        files, deepest = passed_by_a_cell()
        print(f"files that a CSV cell passes; depth: {len(files)}, {deepest}")
    if "--names" in sys.argv:
        print(*alone, sep="\n")
        for name, where in sorted(doubles.items()):
            print(name, *where)


if __name__ == "__main__":
    main()
