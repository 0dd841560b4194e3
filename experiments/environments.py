"""An environment of its own for a package of others, made from the package index."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

MOST_WORDS = 150  # letters of a complaint that are kept


def python_in(environment: Path) -> Path:
    return environment / "bin" / "python"


@cache
def environment_problem(
    name: str, requirements: tuple[str, ...], folder: Path, torch: str | None
) -> str | None:
    """Make an environment in a folder; the sentence that says why there is none. Tried once a run."""
    home = folder / name
    wanted = [*([] if torch is None else [torch]), *requirements]
    ready = home / "ready.txt"  # written last: what was installed
    if ready.is_file() and ready.read_text().splitlines() == wanted:
        return None
    print(f"making an environment for {name} ({', '.join(wanted)})", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    try:
        run_quietly([sys.executable, "-m", "venv", str(home)])
        if torch is not None:
            install(home, [torch], no_gpu=True)
        install(home, requirements, no_gpu=torch is not None)
    except InstallError as problem:
        running = ".".join(map(str, sys.version_info[:2]))
        return f"{name} cannot be installed for Python {running} ({problem}), so it is not compared"
    ready.write_text("\n".join(wanted) + "\n")
    return None


class InstallError(Exception):
    """Why a package could not be installed."""


def install(home: Path, requirements: Sequence[str], *, no_gpu: bool) -> None:
    """Install from the package index; the first, the peer itself, only as a wheel.

    Where GPU packages might come along, pip is first asked what it would install.
    """
    name = requirements[0].partition("=")[0].partition("[")[0]
    pip = [str(python_in(home)), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    command = [*pip, "--only-binary", name, *requirements]
    if no_gpu and "nvidia-" in run_quietly([*command, "--dry-run"]):
        raise InstallError(f"{name} would bring GPU packages; name a CPU build of PyTorch with --torch")
    run_quietly(command)


def run_quietly(command: Sequence[str]) -> str:
    """What a command says; its last complaint if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(last_words(done.stderr or done.stdout) or f"exit code {done.returncode}")
    return done.stdout


def last_words(text: str) -> str:
    """The last line that has a letter in it, where complaints end; too long a line is cut."""
    lines = [line.strip() for line in text.splitlines() if any(letter.isalpha() for letter in line)]
    words = lines[-1].removeprefix("ERROR: ").rstrip(".") if lines else ""
    return words if len(words) <= MOST_WORDS else words[:MOST_WORDS] + "…"
