"""An environment of its own for a package of others, made from the package index and from named source folders."""

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
    name: str,
    requirements: tuple[str, ...],
    folder: Path,
    torch: str | None,
    python: str = sys.executable,
    sources: tuple[Path, ...] = (),
) -> str | None:
    """Make an environment in a folder; the sentence that says why there is none. Tried once a run.

    `sources` are folders to import from: what is on no index is used as it lies there.
    """
    home = folder / name
    wanted = [*([] if torch is None else [torch]), *requirements, *map(str, sources)]
    ready = home / "ready.txt"  # written last: what was installed
    if ready.is_file() and ready.read_text().splitlines() == wanted:
        return None
    print(f"making an environment for {name} ({', '.join(wanted)})", file=sys.stderr, flush=True)
    shutil.rmtree(home, ignore_errors=True)
    try:
        run_quietly([python, "-m", "venv", str(home)])
        if torch is not None:
            install(home, [torch], no_gpu=True)
        install(home, requirements, no_gpu=torch is not None)
        import_from(home, sources)
    except InstallError as problem:
        running = version_of(python)
        return f"{name} cannot be installed for Python {running} ({problem}), so it is not compared"
    ready.write_text("\n".join(wanted) + "\n")
    return None


def version_of(python: str) -> str:
    """Of a Python, as people say it; what it was called where it does not tell."""
    try:
        return run_quietly([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]).strip()
    except InstallError:
        return python


def import_from(home: Path, sources: Sequence[Path]) -> None:
    """Let an environment import what lies in these folders."""
    if sources:
        packages = run_quietly(
            [str(python_in(home)), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        )
        lines = [str(source) for source in sources]
        (Path(packages.strip()) / "sources.pth").write_text("\n".join(lines) + "\n")


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
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as problem:
        raise InstallError(f"{command[0]} cannot be run: {problem.strerror}") from problem
    if done.returncode:
        raise InstallError(last_words(done.stderr or done.stdout) or f"exit code {done.returncode}")
    return done.stdout


def last_words(text: str) -> str:
    """The last line that has a letter in it, where complaints end; too long a line is cut."""
    lines = [line.strip() for line in text.splitlines() if any(letter.isalpha() for letter in line)]
    words = lines[-1].removeprefix("ERROR: ").rstrip(".") if lines else ""
    return words if len(words) <= MOST_WORDS else words[:MOST_WORDS] + "…"
