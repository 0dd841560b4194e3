"""A server that is killed at any moment: what was told is in the ledger, and what is spent never shrinks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dualquery
from tests.service.conftest import Make, token

WORKER = str(Path(__file__).with_name("killed.py"))
SOURCE = str(Path(dualquery.__file__).resolve().parents[1])
# Of the long tests: fewer at a time, each time with another seed, where a machine is busy.
KILLS = int(os.environ.get("DUALQUERY_KILLS", "300"))
SEED = int(os.environ.get("DUALQUERY_SEED", "2"))


def killed(
    make: Make, place: str | None, count: int, seed: int, *, quiet: int = 0, **environment: str
) -> Any:
    """What the worker saw, who fails by itself where a promise is broken."""
    settings = make(place)
    given = token(settings)
    if "LD_PRELOAD" in environment:
        shadow = settings.folder.with_name("shadow")
        shutil.copytree(settings.folder, shadow)
        environment |= {"LOSES_FOLDER": str(settings.folder), "LOSES_SHADOW": str(shadow)}
    process = subprocess.run(
        [
            sys.executable,
            WORKER,
            str(settings.folder / "service.toml"),
            given,
            *map(str, (quiet, count, seed)),
        ],
        env={**os.environ, "PYTHONPATH": SOURCE, **environment},
        capture_output=True,
        text=True,
        timeout=300 + 15 * (quiet + count),
    )
    assert process.returncode == 0, process.stderr[-4000:]
    seen = json.loads(process.stdout)
    assert sum(seen["died"].values()) == quiet + count
    assert seen["told"] > 0
    assert seen["fires"] > 0 or count < 20, "few kills may come before the first fire"
    return seen


@pytest.mark.parametrize(("quiet", "count"), [(1, 3), pytest.param(22, 18, marks=pytest.mark.long)])
def test_forty_kills(make: Make, place: str | None, quiet: int, count: int) -> None:
    """Those while nothing was asked burn nothing at all; those in flight, at every point, one fire each at most."""
    seen = killed(make, place, count, seed=1, quiet=quiet)
    assert count < 18 or all(seen["died"].values()), "every point was reached"
    print("sqlite" if place is None else "postgresql", seen)


@pytest.mark.long
def test_three_hundred_kills(make: Make, place: str | None) -> None:
    seen = killed(make, place, KILLS, seed=SEED)
    assert KILLS < 300 or all(n for point, n in seen["died"].items() if point not in ("idle", "starting"))
    print("sqlite" if place is None else "postgresql", seen)


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that knows what is on disk; it takes a C compiler to make it."""
    compiler = shutil.which("cc")
    if compiler is None:
        missing = "no C compiler: apt-get install gcc libc6-dev"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    made = tmp_path_factory.mktemp("shim") / "power_loss.so"
    source = Path(__file__).with_name("power_loss.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"], check=True)
    return str(made)


@pytest.mark.long
def test_what_was_not_synced_is_not_missed_after_a_loss_of_power(make: Make, shim: str) -> None:
    killed(make, None, 5, seed=3, LD_PRELOAD=shim)


def test_a_server_that_never_syncs_would_be_found_out(make: Make, shim: str) -> None:
    with pytest.raises(AssertionError, match=r"told and not in|spent less|rolled back|not as it was|damaged"):
        killed(make, None, 40, seed=4, LD_PRELOAD=shim, NEVER_SYNCS="1")


@pytest.mark.long
def test_three_hundred_losses_of_power(make: Make, shim: str) -> None:
    print("power", killed(make, None, KILLS, seed=SEED + 3, LD_PRELOAD=shim))
