"""Peers side by side: the same encoded table, workload, budget and neighbours for other libraries and for ours.

    python -m experiments.peers --data DIR --out DIR --only adult [--full] [--runs N] [--limit SECONDS]

Each peer gets an environment of its own from the package index (`.peers`, made once). A release is one process: a
program of `peer_programs` inside that environment, which knows nothing of ours; ours is run the same way. All are
held to the same number of cores and the same memory, and stopped when they have used the processor seconds of the
limit. Peers keep their defaults, except where a method's name says otherwise; those that take a workload are given
ours.

A row that was stopped is tried again under a longer limit, one that was not started at any time; nothing else is
measured twice. `--not-started WHY` measures nothing and writes a row that says so for everything that is missing.

`processor_seconds` are of the whole process, imports included; `seconds` is the wall time of fitting and generating
alone. Peak memory is that of the process alone, which is all of it where a peer works in one process, as all of
these do on one core.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from experiments.harness import Experiment, Point, Setting, Size, main, parser
from experiments.peer_methods import (
    CASES,
    NLTCS,
    PEERS,
    SMALLEST,
    Case,
    Method,
    Peer,
    Release,
    guess,
    runs_of,
)
from experiments.peer_page import draw, find
from experiments.peer_runs import (
    ENVIRONMENTS,
    FULL_LIMIT,
    MEMORY,
    QUICK_LIMIT,
    TORCH,
    Terms,
    measure,
    worth_another_try,
)


def points(terms: Terms, peers: Sequence[Peer], setting: Setting) -> list[Point]:
    """Case by case; measured are the cheap ones first, ε = 1 before the others, first runs before second ones."""
    cases = setting.choose(toy=(Case(NLTCS.source, 2),), quick=(NLTCS, SMALLEST), full=CASES)
    limit = terms.limit_of(setting.size)
    return [
        Point(
            release.key,
            partial(measure, setting.data, release, terms, limit),
            cost=min(guess(method, case), limit),
            turn=guess(method, case) * (1 if epsilon == 1 else 3) * (8 if seed else 1),
            again=partial(worth_another_try, terms=terms, limit=limit),
        )
        for case in cases
        if case.source in terms.data
        for epsilon in (case.epsilons if setting.size is Size.FULL else (1.0,))
        for peer in peers
        for method in methods_of(peer, setting.size, case)
        for seed in setting.seeds(full=runs_of(method, case))
        for release in [Release(case, peer, method.name, epsilon, seed)]
    ]


def methods_of(peer: Peer, size: Size, case: Case) -> tuple[Method, ...]:
    """What a peer is asked to try; at toy size nothing is installed, at quick size little."""
    if size is Size.TOY and peer.requirements:
        return ()
    known = peer not in PEERS or peer in case.peers
    return tuple(
        method for method in peer.methods if known and (size is Size.FULL or method.name in peer.quick)
    )


def experiment(terms: Terms, peers: Sequence[Peer] = PEERS) -> Experiment:
    return Experiment(
        name="peers",
        title="Peers side by side: error against time",
        paper="Libraries that release tables for the same kind of workload: AIM, MST, PrivBayes and MWEM as opendp, "
        "dpmm and smartnoise-synth have them, and independent noise.",
        points=partial(points, terms, peers),
        draw=draw,
        find=find,
        by=("data", "tables", "epsilon", "peer", "method"),
        shown=("l1", "worst_table", "max_cell", "processor_seconds", "peak_gb", "outcome"),
    )


EXPERIMENT = experiment(Terms())


def arguments_of(texts: Sequence[str] | None = None) -> argparse.Namespace:
    made = parser(__doc__ or "", name="peers")
    names = Terms().data
    made.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="DATA", help=", ".join(names)
    )
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
        "--not-started", metavar="WHY", help="measure nothing; a row with this reason for whatever is missing"
    )
    return made.parse_args(texts)


def positive(text: str) -> float:
    with suppress(ValueError):
        if float(text) > 0:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no positive number")


def terms_given(arguments: argparse.Namespace) -> Terms:
    return Terms(
        data=tuple(arguments.only),
        limit=arguments.limit,
        cores=arguments.cores,
        memory=arguments.memory,
        environments=arguments.environments.resolve(),
        torch=arguments.torch,
        skip=arguments.not_started,
    )


if __name__ == "__main__":
    given = arguments_of()
    main(experiment(terms_given(given)), given)
