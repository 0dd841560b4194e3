"""Killed or interrupted at any moment: nothing half-written stands under the final name, and leftovers are swept."""

from __future__ import annotations

import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.csv
import pytest

import dualquery
from dualquery import Release, ReleaseError, example
from dualquery.releases import folder as folders

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and locks")

Make = Callable[..., Release]
SOURCE = str(Path(dualquery.__file__).resolve().parents[1])
POINTS = (
    *("mkdir", "lock", "parquet", "csv", "digests", "page", "seal"),
    *("file to disk", "folder to disk", "rename", "remove"),
)


class WarmProcess:
    """The other end of `warm_process.py`."""

    def __init__(self, place: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("warm_process.py")), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SOURCE},
        )
        assert self._line() == "ready"
        shutil.rmtree(place / "warm")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def start(self, *what: Any) -> int:
        """Fork a child that does this; its process number."""
        self._tell(json.dumps(what))
        return int(self._line())

    def _tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def ended(self) -> int:
        """How the last child ended: minus a signal, or an exit code."""
        self._tell("")
        return int(self._line())

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


@pytest.fixture
def warm(place: Path) -> Iterator[WarmProcess]:
    process = WarmProcess(place)
    yield process
    process.close()


def partial(place: Path) -> list[Path]:
    return sorted(place.glob(".*.partial"))


def whole_or_nothing(place: Path) -> int:
    """Every release in a place loads, with all its digests; how many there were, all removed."""
    releases = [path for path in place.iterdir() if path not in partial(place)]
    for path in releases:
        assert path.name == "out" or path.name.startswith("done-")
        assert Release.load(path).records is not None
        shutil.rmtree(path)
    return len(releases)


def kill(warm: WarmProcess, chance: random.Random, number: int) -> None:
    """At a named point, or at a random moment."""
    moments: list[tuple[Any, ...]] = [("die", point, before) for point in POINTS for before in (True, False)]
    moments += [("half",)] + [("loop",)] * (len(moments) // 2)
    moment = moments[number % len(moments)]
    if moment[0] == "die":
        moment = ("die", moment[1], chance.randint(1, 2), moment[2])
    process = warm.start(*moment)
    if moment[0] == "loop":
        time.sleep(chance.uniform(0, 0.4))
        os.kill(process, signal.SIGKILL)
    assert warm.ended() == -signal.SIGKILL


def killed(warm: WarmProcess, make: Make, place: Path, kills: int) -> tuple[int, int]:
    """How many kills left something aside, and how many releases were finished; the rest is asserted."""
    chance = random.Random(kills)
    left = finished = 0
    for number in range(kills):
        kill(warm, chance, number)
        finished += whole_or_nothing(place)
        found = partial(place)
        assert len(found) <= 1, "the next release sweeps what the last one left"
        left += len(found)
    make().save(place / "out")
    assert [path.name for path in place.iterdir()] == ["out"]
    return left, finished


def test_fifteen_kills(warm: WarmProcess, make: Make, place: Path) -> None:
    left, _ = killed(warm, make, place, kills=15)
    assert left > 3


@pytest.mark.long
def test_three_hundred_kills(warm: WarmProcess, make: Make, place: Path) -> None:
    left, finished = killed(warm, make, place, kills=300)
    print(f"300 kills: {left} left something aside, {finished} releases were finished and are whole")
    assert left > 100


def test_a_living_release_is_not_swept(warm: WarmProcess, make: Make, place: Path) -> None:
    """One stops in the middle, another of the same name overtakes it; the first finds the place taken."""
    process = warm.start("stop")
    deadline = time.monotonic() + 60
    while not any(path.name == "synthetic.parquet" for each in partial(place) for path in each.iterdir()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    (mine,) = partial(place)
    old = time.time() - 10 * folders.OLD
    os.utime(mine, (old, old))
    make().save(place / "out")
    assert partial(place) == [mine], "its owner lives, however old it is"
    assert (mine / "synthetic.parquet").exists()
    whole = (place / "out" / "certificate.json").read_text()
    os.kill(process, signal.SIGCONT)
    assert warm.ended() == 2
    assert [path.name for path in place.iterdir()] == ["out"]
    assert (place / "out" / "certificate.json").read_text() == whole


def test_only_leftovers_of_the_same_name_are_swept(make: Make, place: Path) -> None:
    kept = [
        place / ".other.0123456789abcdef.partial",
        place / ".out.more.0123456789abcdef.partial",
        place / ".out.notes.partial",
        place / "out.0123456789abcdef.partial",
    ]
    dead = place / ".out.0123456789abcdef.partial"
    for folder in (*kept, dead):
        folder.mkdir()
        (folder / "file").write_text("left")
    link = place / ".out.aaaaaaaaaaaaaaaa.partial"
    link.symlink_to(kept[0])
    make().save(place / "out")
    assert not dead.exists()
    assert all((folder / "file").exists() for folder in kept)
    assert link.is_symlink()


def test_without_locks_age_decides(make: Make, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some network drives have no locks: there a leftover is swept after a day."""
    monkeypatch.setattr(folders, "locked", lambda handle: None)
    young, old = place / ".out.0123456789abcdef.partial", place / ".out.fedcba9876543210.partial"
    for folder in (young, old):
        folder.mkdir()
    os.utime(old, (0, time.time() - folders.OLD - 60))
    make().save(place / "out")
    assert young.exists()
    assert not old.exists()


def test_a_sweeper_that_is_quicker_than_the_lock(
    make: Make, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between making a folder and locking it, another release may sweep it: then a new one is made."""
    original, calls = folders.locked, 0

    def late(handle: int | None) -> bool | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            for folder in partial(place):
                folder.rmdir()
        return False if calls == 2 else original(handle)

    monkeypatch.setattr(folders, "locked", late)
    make().save(place / "out")
    assert calls >= 4
    assert [path.name for path in place.iterdir()] == ["out"]


def test_two_at_once_leave_one_whole(make: Make, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The place is taken between the first look and the rename."""
    first, second = make(), make(seed=8)
    rename = os.rename

    def overtaken(source: Any, target: Any) -> None:
        monkeypatch.setattr(os, "rename", rename)
        second.save(place / "out")
        rename(source, target)

    monkeypatch.setattr(os, "rename", overtaken)
    with pytest.raises(ReleaseError, match="something else was written there meanwhile"):
        first.save(place / "out")
    assert [path.name for path in place.iterdir()] == ["out"]
    assert Release.load(place / "out").to_arrow().equals(second.to_arrow())


def survey(place: Path) -> list[str]:
    """A table and a schema, and the command that releases them into `place / "out"`."""
    beside = place.parent
    pyarrow.csv.write_csv(example.survey(60), beside / "survey.csv")
    (beside / "schema.toml").write_text(example.SCHEMA, encoding="utf-8")
    return [
        *("release", str(beside / "survey.csv"), "--schema", str(beside / "schema.toml"), "--csv"),
        *(
            "--queries",
            "marginals:1",
            "--epsilon",
            "1",
            "--mechanism",
            "uniform",
            "--out",
            str(place / "out"),
        ),
    ]


def clean(place: Path, code: int, errors: str) -> bool:
    """After Ctrl-C: one line, and nothing, or a release that was whole before; whether it was interrupted at all."""
    if code != 0:
        assert (code, errors.split("\n")) == (130, ["Interrupted.", ""])
    finished = whole_or_nothing(place)
    assert finished == 1 or code != 0
    assert list(place.iterdir()) == []
    return code != 0


def last_line(text: str) -> str:
    """Standard output and error share a file here, so a summary may stand before the line."""
    return "".join(text.splitlines(keepends=True)[-1:])


def test_interrupts_at_random_moments(warm: WarmProcess, place: Path) -> None:
    chance = random.Random(20)
    arguments = survey(place)
    output = place.parent / "output.txt"
    usual = math.inf  # the least of three: the first may compile, and a late signal interrupts nothing
    for _ in range(3):
        began = time.monotonic()
        warm.start("command", str(output), *arguments)
        assert warm.ended() == 0, output.read_text()
        usual = min(usual, time.monotonic() - began)
        shutil.rmtree(place / "out")
    interrupted = 0
    for _ in range(20):
        process = warm.start("command", str(output), *arguments)
        time.sleep(chance.uniform(0.02, usual))
        os.kill(process, signal.SIGINT)
        interrupted += clean(place, warm.ended(), last_line(output.read_text()))
    assert interrupted >= 5


def test_interrupts_of_a_process_that_starts(place: Path) -> None:
    """Also while modules are still loading."""
    chance = random.Random(21)
    script = "import dualquery.cli as cli; print('started', flush=True); cli.main()"
    for _ in range(4):
        process = subprocess.Popen(
            [sys.executable, "-c", script, *survey(place), "--quiet"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": SOURCE},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        time.sleep(chance.uniform(0, 2))
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        clean(place, process.returncode, errors)
