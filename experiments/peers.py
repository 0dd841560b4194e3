"""Peers side by side: the same encoded table, workload, budget and neighbours for other libraries and for ours.

    python -m experiments.peers --data DIR --out DIR --only adult [--full] [--runs N] [--limit SECONDS]

Each peer gets an environment of its own from the package index (`.peers`, made once). dpsynth is on no index: name
where its sources lie with `--source dpsynth=DIR --source mbi=DIR`, and a Python that it runs on with `--python`.
A release is one process: a
program of `peer_programs` inside that environment, which knows nothing of ours; ours is run the same way. All are
held to the same number of cores and the same memory, and stopped when they have used the processor seconds of the
limit. Peers keep their defaults, except where a method's name says otherwise; those that take a workload are given
ours.

A row that was stopped is tried again under a longer limit, one that was not started at any time; nothing else is
measured twice. `--not-started WHY` measures nothing and writes a row that says so for everything that is missing.

A peer that wants a graphics card may be asked on another machine, with nothing of ours: `--peers dpsynth
--elsewhere DIR` writes a folder for each release to DIR. There, `python run_dpsynth.py FOLDER` answers each, where
dpsynth and mbi can be imported; back here, the same command again judges what lies in the folders. Such rows have
`card_seconds`, of fitting and generating by the clock, in the place of processor seconds, and no seconds at all where
several ran side by side: write 0 to `seconds.txt`. Where one was stopped, write after how long to `stopped.txt`.

`processor_seconds` are of the whole process, imports included; `seconds` is the wall time of fitting and generating
alone. Peak memory is that of the process alone, which is all of it where a peer works in one process, as all of
these do on one core.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from experiments.harness import Experiment, Point, Setting, Size, main, parser
from experiments.peer_flags import add_flags, terms_of_flags
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
from experiments.peer_runs import Terms, measure, worth_another_try


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
        for accounting in method.accountings
        for seed in setting.seeds(full=runs_of(method, case))
        for release in [Release(case, peer, method.name, epsilon, seed, accounting)]
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
        "dpmm and smartnoise-synth have them, SWIFT, AIM-GDP and MST of dpsynth, and independent noise.",
        points=partial(points, terms, peers),
        draw=draw,
        find=find,
        by=("data", "tables", "epsilon", "peer", "method", "accounting"),
        shown=("l1", "worst_table", "max_cell", "processor_seconds", "peak_gb", "outcome"),
    )


EXPERIMENT = experiment(Terms())


def arguments_of(texts: Sequence[str] | None = None) -> argparse.Namespace:
    made = parser(__doc__ or "", name="peers")
    names = Terms().data
    made.add_argument(
        "--only", nargs="+", choices=names, default=names, metavar="DATA", help=", ".join(names)
    )
    known = [peer.name for peer in PEERS]
    made.add_argument(
        "--peers", nargs="+", choices=known, default=known, metavar="NAME", help=", ".join(known)
    )
    add_flags(made)
    return made.parse_args(texts)


def terms_given(arguments: argparse.Namespace) -> Terms:
    return replace(terms_of_flags(arguments), data=tuple(arguments.only))


if __name__ == "__main__":
    given = arguments_of()
    asked = [peer for peer in PEERS if peer.name in given.peers]
    main(experiment(terms_given(given), asked), given)
