"""A server that is killed at any moment: what was told is in the ledger, and what is spent never shrinks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dualquery
from tests.service.conftest import Make, token

WORKER = str(Path(__file__).with_name("killed.py"))
SOURCE = str(Path(dualquery.__file__).resolve().parents[1])


def killed(make: Make, place: str | None, count: int, seed: int, **environment: str) -> Any:
    """What the worker saw, who fails by itself where a promise is broken."""
    settings = make(place)
    process = subprocess.run(
        [sys.executable, WORKER, str(settings.folder / "service.toml"), token(settings), str(count), str(seed)],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        timeout=7200,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    seen = json.loads(process.stdout)
    assert sum(seen["died"].values()) == count
    assert seen["told"] > 0
    assert seen["fires"] > 0
    return seen


def test_eighteen_kills(make: Make, place: str | None) -> None:
    seen = killed(make, place, 18, seed=1)
    assert all(seen["died"].values()), "every point was reached"


@pytest.mark.long
def test_three_hundred_kills(make: Make, place: str | None) -> None:
    seen = killed(make, place, 300, seed=2)
    assert all(seen["died"].values())
    print("sqlite" if place is None else "postgresql", seen)
