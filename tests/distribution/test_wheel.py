"""A wheel in an empty environment makes the demo, with nothing but what it depends on and without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Every socket is announced to the interpreter's auditors before it exists (PEP 578).
NO_SOCKETS = """\
import sys

def forbid(event, arguments):
    if event.startswith("socket."):
        raise RuntimeError("a socket was asked for: " + event)

sys.addaudithook(forbid)
"""


def call(*command: object, **named: object) -> str:
    kept = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "NUMBA_CACHE_DIR")
    environment = {name: value for name, value in os.environ.items() if name not in kept}
    done = subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**environment, "PYTHONUTF8": "1"},
        check=False,
        timeout=600,
        **named,  # type: ignore[call-overload]
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


def build(place: Path) -> Path:
    """The wheel, built by what is installed here: a build needs no network either."""
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--wheel-dir", place)
    call(sys.executable, "-m", "pip", "wheel", ROOT, *options)
    (wheel,) = place.glob("dualquery-*.whl")
    return wheel


def without_a_network() -> list[str]:
    """A prefix that takes the network away from programs that are not Python, too, where that is allowed."""
    wall = ["unshare", "--map-root-user", "--net"]
    if shutil.which("unshare") is None:
        return []
    return wall if subprocess.run([*wall, "true"], capture_output=True, check=False).returncode == 0 else []


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build(tmp_path)).namelist()
    assert {"dualquery/releases/page.css", "dualquery/py.typed", "dualquery/cli/__init__.py"} <= set(names)
    assert {name.split("/")[0].split("-")[0] for name in names} == {"dualquery"}
    source = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert source == {name for name in names if name.endswith(".py")}


@pytest.mark.long
def test_a_wheel_in_an_empty_environment_makes_the_demo_without_a_network(tmp_path: Path) -> None:
    began = time.monotonic()
    wheel = build(tmp_path)
    call(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv" / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel)
    packages = Path(call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip())
    installed = time.monotonic()

    (packages / "sitecustomize.py").write_text(NO_SOCKETS, encoding="utf-8")
    script = "import socket\ntry: socket.socket()\nexcept RuntimeError: print('forbidden')"
    assert call(python, "-c", script) == "forbidden\n"
    wall = without_a_network()
    program = tmp_path / "venv" / "bin" / "dualquery"
    printed = call(*wall, program, "demo", "--out", tmp_path / "demo", cwd=tmp_path)
    assert "report.html" in printed
    assert "ε = 1 of 1" in call(*wall, program, "verify", tmp_path / "demo" / "release")
    assert "±" in call(*wall, program, "answer", tmp_path / "demo" / "release", "age >= 55 & sex = female")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for name in (each.split(">=")[0] for extra in ("sign", "exact") for each in extras[extra]):
        assert not list(packages.glob(f"{name}-*")), f"{name} is an extra and was installed"
    print(
        f"built and installed in {installed - began:.0f} s, ran in {time.monotonic() - installed:.0f} s, "
        f"{'no network at all' if wall else 'no sockets of Python'}"
    )
