"""Imports run downwards, data players and oracles never meet the privacy package, the service never the truth."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "dualquery"

# What stands lower may be imported by what stands higher. Siblings on one step do not import each other.
STEPS = [
    {"errors", "randomness"},
    {"table"},
    {"queries"},
    {"privacy"},
    {"game"},
    {"oracles"},
    {"distributions"},
    {"mechanisms"},
    {"releases"},
    {"example", "engine"},
    {"service"},
    {"cli"},
    {"__main__"},
]
HEIGHT = {name: height for height, step in enumerate(STEPS) for name in step}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imported(path: Path) -> set[str]:
    """The modules of this package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} uses a relative import"
            for alias in node.names:  # `from package import module` imports the module
                full = f"{node.module}.{alias.name}"
                found.add(full if full in MODULES else str(node.module))
    return {name for name in found if name.split(".")[0] == "dualquery"}


GRAPH = {name: imported(path) for name, path in MODULES.items()}


def everything_below(name: str) -> set[str]:
    seen: set[str] = set()
    left = [name]
    while left:
        for each in GRAPH.get(left.pop(), set()):
            if each not in seen:
                seen.add(each)
                left.append(each)
    return seen


def part(name: str) -> str:
    return name.split(".")[1] if "." in name else ""


@pytest.mark.parametrize("name", [name for name in MODULES if part(name)])
def test_imports_run_downwards(name: str) -> None:
    assert part(name) in HEIGHT, f"give {part(name)} a step"
    for other in GRAPH[name]:
        if part(other) and part(other) != part(name):
            assert HEIGHT[part(other)] < HEIGHT[part(name)], f"{name} imports {other}"


@pytest.mark.parametrize(
    "name",
    [n for n in MODULES if part(n) in ("oracles", "distributions") or n == "dualquery.game.data_players"],
)
def test_who_never_sees_data_never_imports_privacy(name: str) -> None:
    assert not {other for other in everything_below(name) if part(other) == "privacy"}


def test_the_service_cannot_reach_the_truth() -> None:
    for name in MODULES:
        if part(name) == "service":
            assert "dualquery.releases.evaluation" not in everything_below(name)


def test_no_module_is_imported_in_a_circle() -> None:
    """Imports inside functions may look back; those at the top of a module may not."""
    top = {}
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text(encoding="utf-8"))
        tree.body = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        found = set()
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    full = f"{node.module}.{alias.name}"
                    found.add(full if full in MODULES else str(node.module))
        top[name] = {each for each in found if part(each)}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " → ".join((*trail, name))
        if name not in done:
            for other in top.get(name, set()):
                visit(other, (*trail, name))
            done.add(name)

    for name in MODULES:
        visit(name, ())
