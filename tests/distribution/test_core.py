"""What the program needs, and what only tests and development do."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def names(requirements: list[str]) -> set[str]:
    """The packages that are asked for, by name."""
    return {re.split(r"[^\w-]", each)[0].lower().replace("-", "_") for each in requirements} - {"dualquery"}


def test_the_core_is_small() -> None:
    core = {"numpy", "numba", "pyarrow", "typer", "rich", "sqlalchemy", "threadpoolctl"}
    assert names(PROJECT["dependencies"]) == core


def test_the_program_imports_nothing_that_only_tests_have() -> None:
    extras = PROJECT["optional-dependencies"]
    for_users = names(PROJECT["dependencies"]).union(
        *(names(extras[name]) for name in extras if name != "test")
    )
    # frames and memory: used where a user has them, and told so in a sentence where not
    only_tests = names(extras["test"]) - for_users - {"pandas", "polars", "psutil"}
    assert "opendp" in only_tests
    for path in (HOME / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                found = [str(node.module)]
            assert not {name.split(".")[0] for name in found} & only_tests, f"{path}: {found}"


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_the_demonstration_installs_the_core_alone(tmp_path: Path) -> None:
    def installed(target: str) -> list[str]:
        told = subprocess.run(
            ["make", "-n", target, f"VENV={tmp_path / 'none'}"],
            cwd=HOME,
            capture_output=True,
            text=True,
            check=True,
        )
        return re.findall(r"pip install .*-e '?(\.[^' ]*)'?$", told.stdout, re.MULTILINE)

    assert installed("demo") == ["."]
    assert installed("test") == [".", ".[test]"]
