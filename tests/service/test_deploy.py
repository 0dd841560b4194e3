"""The container image and the systemd unit, as far as they can be tried without an engine: what they run, runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest

import dualquery

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
UNIT = ROOT / "deploy" / "dualquery.service"
SOURCE = str(Path(dualquery.__file__).resolve().parents[1])


@pytest.fixture(autouse=True)
def _cheap_fires() -> None:
    """The server is a process of its own, with the real rule."""


def instructions() -> list[tuple[str, str]]:
    """Every instruction of the Dockerfile with what stands behind it; continued lines are joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    return [
        (name, rest.strip()) for name, _, rest in (line.partition(" ") for line in whole.splitlines() if line)
    ]


def the_last(name: str) -> str:
    return [rest for each, rest in instructions() if each == name][-1]


def unit() -> RawConfigParser:
    """Keys may stand twice in a unit: the last one counts here."""
    found = RawConfigParser(strict=False, comment_prefixes="#", delimiters="=", interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(UNIT)
    return found


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def probe(port: int) -> int:
    """The health check of the image, against another port."""
    words = json.loads(re.sub(r"^.*?CMD ", "", the_last("HEALTHCHECK")))
    assert words[0] == "python"
    return subprocess.run(
        [sys.executable, *(each.replace(":8642/", f":{port}/") for each in words[1:])], capture_output=True
    ).returncode


def started(words: list[str], *, place: str, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """A command of the image or the unit, with this folder for its own, on a free port."""
    program, *arguments = words
    assert Path(program).name == "dualquery"
    assert f"{place}/service.toml" in arguments
    arguments = [each.replace(place, str(folder)) for each in arguments]
    return subprocess.Popen(
        [sys.executable, "-m", "dualquery", *arguments, "--port", str(port)],
        env={**os.environ, "PYTHONPATH": SOURCE},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def test_the_image_runs_as_nobody_special_and_copies_what_there_is() -> None:
    assert the_last("USER") not in ("root", "0")
    names = [name for name, _ in instructions()]
    assert names.index("USER") > max(i for i, name in enumerate(names) if name == "RUN")
    assert names[-1] == "CMD"
    for copied in (rest for name, rest in instructions() if name == "COPY" and "--from" not in rest):
        for source in copied.split()[:-1]:
            assert (ROOT / source).exists()
            kept = (ROOT / "deploy" / "Dockerfile.dockerignore").read_text().splitlines()
            assert f"!{source}" in kept
    assert "/v1/ready" in DOCKERFILE.read_text()
    assert "--start-period" in the_last("HEALTHCHECK")
    assert the_last("STOPSIGNAL") == "SIGTERM"


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (json.loads(the_last("CMD")), "/data"),
        (shlex.split(unit()["Service"]["ExecStart"]), "/var/lib/dualquery"),
    ],
    ids=["image", "unit"],
)
def test_what_is_started_answers_the_health_check_and_stops_cleanly(
    make: Any, words: list[str], place: str
) -> None:
    settings, port = make(), free_port()
    assert probe(port) != 0, "nobody is there yet"
    server = started(words, place=place, folder=settings.folder, port=port)
    try:
        until = time.monotonic() + 120
        while probe(port) != 0 and server.poll() is None and time.monotonic() < until:
            time.sleep(0.2)
        assert server.poll() is None
        assert probe(port) == 0
    finally:
        server.send_signal(signal.SIGTERM)
        _, err = server.communicate(timeout=60)
    assert server.returncode == 0, err
    assert probe(port) != 0


def test_the_unit_is_understood_and_hardened(tmp_path: Path) -> None:
    service = unit()["Service"]
    assert service["User"] not in ("root", "0", "")
    assert service["LimitCORE"] == "0", "a core dump holds the table"
    assert "MemoryDenyWriteExecute" not in service, "kernels are compiled while it runs"
    assert unit()["Unit"]["StartLimitBurst"], "each crash may cost a paid check"
    tool = shutil.which("systemd-analyze")
    if tool is None:
        pytest.skip("no systemd-analyze: apt-get install systemd")
    # The program is not installed where the unit says: any program that exists will do.
    program = shlex.split(service["ExecStart"])[0]
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace(program, sys.executable))
    found = subprocess.run([tool, "verify", "--man=no", str(copy)], capture_output=True, text=True)
    assert (found.returncode, found.stderr) == (0, "")
    found = subprocess.run(
        [tool, "security", "--offline=true", "--no-pager", "--threshold=20", str(copy)],
        capture_output=True,
        text=True,
    )
    assert found.returncode == 0, found.stdout[-2000:]
