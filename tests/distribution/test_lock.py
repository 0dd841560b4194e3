"""requirements-dev.lock names an exact version of everything that pyproject.toml asks for, and no place to get it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8")
LOCKED = dict(re.findall(r"^([A-Za-z0-9._-]+)==([0-9][^ ;\n]*)", LOCK, re.MULTILINE))


def numbers(version: str) -> tuple[int, ...]:
    """The parts of a version, without zeros at its end."""
    return tuple(map(int, re.sub(r"(\.0)+$", "", re.match(r"[0-9.]*[0-9]", version)[0]).split(".")))  # type: ignore[index]


def test_every_direct_dependency_is_locked_within_its_bounds() -> None:
    extras = PROJECT["optional-dependencies"]
    # what needs a card is no part of development: everything is tested without
    locked = [extra for name, extra in extras.items() if name != "cuda"]
    wanted = [*PROJECT["dependencies"], *(each for extra in locked for each in extra)]
    for each in wanted:
        if each.startswith("dualquery["):
            continue
        name, _, bound = each.partition(">=")
        name = name.partition("[")[0].lower()  # as the lock spells it
        assert bound, f"{each} has no lower bound"
        assert name in LOCKED, f"{name} is not in requirements-dev.lock; run `make lock`"
        assert numbers(LOCKED[name]) >= numbers(bound), f"{name} is locked below its bound; run `make lock`"


def test_the_lock_is_exact_and_names_no_place() -> None:
    lines = [line.partition(" #")[0].strip() for line in LOCK.splitlines() if not line.startswith("#")]
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^ ]+( ; .*)?", line) for line in lines)
    assert "://" not in LOCK
    assert "index" not in LOCK
