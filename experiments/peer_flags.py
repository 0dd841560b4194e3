"""The flags of every experiment that runs peers, and the terms that they make."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
from pathlib import Path

from experiments.peer_methods import SOURCE_NAMES
from experiments.peer_runs import ENVIRONMENTS, FULL_LIMIT, MEMORY, QUICK_LIMIT, TORCH, Terms


def add_flags(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--limit",
        type=positive,
        metavar="SECONDS",
        help=f"processor seconds of one release (default {QUICK_LIMIT:g}, with --full {FULL_LIMIT:g})",
    )
    made.add_argument(
        "--cores",
        type=int,
        choices=range(1, 1 + (os.cpu_count() or 1)),
        default=1,
        metavar="N",
        help="cores of one release (default 1)",
    )
    made.add_argument(
        "--memory", type=positive, default=MEMORY, metavar="GB", help=f"of one release (default {MEMORY:g})"
    )
    made.add_argument(
        "--environments", type=Path, default=ENVIRONMENTS, metavar="DIR", help="of the peers (default .peers)"
    )
    made.add_argument(
        "--torch",
        default=TORCH,
        metavar="WHAT",
        help=f"a CPU build of PyTorch, as pip is to be asked for it (default {TORCH})",
    )
    made.add_argument(
        "--python",
        default=sys.executable,
        metavar="FILE",
        help="the Python that environments are made with (default: this one; dpsynth wants 3.12 or later)",
    )
    made.add_argument(
        "--source",
        type=source,
        action="append",
        default=[],
        metavar="NAME=DIR",
        help=f"where the sources of a package lie that is on no index: {', '.join(SOURCE_NAMES)}",
    )
    made.add_argument(
        "--not-started", metavar="WHY", help="measure nothing; a row with this reason for whatever is missing"
    )
    made.add_argument(
        "--elsewhere",
        type=Path,
        metavar="DIR",
        help="write each peer's tasks to folders of DIR, for another machine with a graphics card; a folder that "
        "holds the answer by now is judged",
    )


def positive(text: str) -> float:
    with suppress(ValueError):
        if float(text) > 0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no positive number")


def source(text: str) -> tuple[str, Path]:
    """NAME=DIR: a package, and the folder to import it from (DIR itself, or src in it)."""
    name, _, folder = text.partition("=")
    if name not in SOURCE_NAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=DIR with one of {', '.join(SOURCE_NAMES)}")
    for place in (Path(folder), Path(folder) / "src"):
        if folder and (place / name / "__init__.py").is_file():
            return name, place.resolve()
    raise argparse.ArgumentTypeError(
        f"{folder!r} is no source folder of {name}: it holds neither {name}/__init__.py nor src/{name}/__init__.py"
    )


def terms_of_flags(arguments: argparse.Namespace) -> Terms:
    return Terms(
        limit=arguments.limit,
        cores=arguments.cores,
        memory=arguments.memory,
        environments=arguments.environments.resolve(),
        torch=arguments.torch,
        python=arguments.python,
        sources=tuple(arguments.source),
        skip=arguments.not_started,
        elsewhere=arguments.elsewhere,
    )
