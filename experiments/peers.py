"""Peers side by side: the same encoded table, workload, budget and neighbours for other libraries and for ours.

    python -m experiments.peers --data DIR --out DIR --only adult [--full] [--runs N] [--limit SECONDS]

Each peer gets an environment of its own from the package index (`.peers`, made once). A release is one process: a
program of `peer_programs` inside that environment, which knows nothing of ours; ours is run the same way. All are
held to the same number of cores and the same memory, and stopped at the time limit. Peers keep their defaults;
those that take a workload are given ours.

`seconds` is the wall time of fitting and generating, without imports and files; `processor_seconds` are of the whole
process, imports included, and tell how busy the machine was with other things. Peak memory is that of the process
alone, which is all of it where a peer works in one process, as all of these do on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import combinations
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from experiments.data import Data, Unavailable, kept
from experiments.environments import environment_problem, python_in
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Size,
    Value,
    distinct,
    main,
    mean_by,
    parser,
    where,
)
from experiments.processes import DONE, run_within

PROGRAMS = Path(__file__).parent / "peer_programs"
ENVIRONMENTS = Path(__file__).parent.parent / ".peers"
TORCH = "torch==2.13.0"  # a CPU build of it must be what pip finds, or be named by --torch
FULL_LIMIT, QUICK_LIMIT = 1800.0, 75.0  # seconds
MEMORY = 16.0  # GB of address space
TREATMENT = (
    "All know the domain; AIM and MWEM are told the order of the tables. The number of rows is measured by us and by "
    "opendp, given to dpmm and smartnoise-synth. MWEM spends no δ, and takes the range of each attribute from the "
    'rows; "in splits" it sees three attributes at a time. "MST sampled" draws its rows at random; by default opendp '
    "rounds them, which couples attributes that have only a neighbour in the tree in common (mbi 1.1.0). Gaussian "
    "noise is left as it is, negative counts included."
)


@dataclass(frozen=True)
class Peer:
    """A package, the program that calls it, and what it offers."""

    name: str
    program: str
    requirements: tuple[str, ...]  # none: it runs where we run
    methods: tuple[str, ...]
    quick: tuple[str, ...] = ()  # those of its methods that the quick size can afford
    needs_torch: bool = False


OURS = Peer("dualquery", "run_dualquery.py", (), ("release",), quick=("release",))
OPENDP = Peer(
    "opendp",
    "run_opendp.py",
    ("opendp[mbi]==0.16.0", "pandas>=2.2"),  # mbi makes its rows with pandas, and does not ask for it
    ("Gaussian noise", "MST", "MST sampled", "AIM"),
    quick=("Gaussian noise", "MST"),
)
DPMM = Peer("dpmm", "run_dpmm.py", ("dpmm==0.1.9",), ("MST", "PrivBayes", "AIM"))
QUOTED = "AIM as quoted"  # dpmm's AIM with the settings of the figure quoted below
SMARTNOISE = Peer(
    "smartnoise-synth",
    "run_smartnoise.py",
    ("smartnoise-synth==1.0.8",),
    ("MWEM", "MWEM in splits", "AIM"),
    needs_torch=True,
)
PEERS = (OURS, OPENDP, DPMM, SMARTNOISE)


@dataclass(frozen=True)
class Case:
    """A data set and all its tables of some order; δ is that of the figures quoted elsewhere."""

    data: str
    order: int
    delta: float

    @property
    def tables(self) -> str:
        return f"all {self.order}-way"


NLTCS = Case("nltcs", 3, 1e-6)
ADULT_PAIRS, ADULT = Case("adult", 2, 1e-3), Case("adult", 3, 1e-3)
KDD = Case("kddcup99", 3, 1e-3)
EPSILONS = (1.0, 0.1, 10.0)  # the one of most figures first


@dataclass(frozen=True)
class Release:
    """What one process is asked for."""

    case: Case
    peer: Peer
    method: str
    epsilon: float
    seed: int

    @property
    def key(self) -> dict[str, Value]:
        return {
            "data": self.case.data,
            "tables": self.case.tables,
            "epsilon": self.epsilon,
            "peer": self.peer.name,
            "method": self.method,
            "run": self.seed,
        }


@dataclass(frozen=True)
class Terms:
    """What the flags decide, the same for everybody."""

    data: tuple[str, ...] = (NLTCS.data, ADULT.data, KDD.data)
    limit: float | None = None  # seconds; without it the size's
    cores: int = 1
    memory: float = MEMORY
    environments: Path = ENVIRONMENTS
    torch: str = TORCH

    def limit_of(self, size: Size) -> float:
        return self.limit or (FULL_LIMIT if size is Size.FULL else QUICK_LIMIT)


# Environments


def python_of(peer: Peer, terms: Terms) -> Path:
    """The interpreter of a peer's environment, which is made where there is none."""
    if not peer.requirements:
        return Path(sys.executable)
    torch = terms.torch if peer.needs_torch else None
    problem = environment_problem(peer.name, peer.requirements, terms.environments, torch)
    if problem is not None:
        raise Unavailable(problem)
    return python_in(terms.environments / peer.name)


# Measuring


def measure(data: Data, wanted: Release, terms: Terms, limit: float) -> dict[str, Value]:
    """A row: errors and costs of one release, or why there is none."""
    python = python_of(wanted.peer, terms)
    records = kept(data, wanted.case.data)
    if wanted.peer is OURS:
        compile_ours(terms)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_task(folder, wanted, records, terms.cores)
        ran = run_within(command_of(wanted.peer, python, folder), limit, terms.cores, terms.memory)
        outcome, found = ran.outcome, {}
        if outcome == DONE:
            tables = tables_of(records, wanted.case)
            try:
                answer, seconds = read_answer(folder, tables)
                found = {**errors_of(answer, tables, truth_of(data, wanted.case)), "seconds": seconds}
            except BadAnswer as problem:
                outcome = f"failed: {problem}"
    return {
        "outcome": outcome,
        **found,
        "process_seconds": ran.process_seconds,
        "processor_seconds": ran.processor_seconds,
        "peak_gb": ran.peak_gb,
        "delta": wanted.case.delta,
        "limit": limit,
        "cores": terms.cores,
    }


def command_of(peer: Peer, python: Path, folder: Path) -> list[str]:
    # Variables and packages of whoever runs this must not leak into a peer's environment.
    flags = ["-E", "-s"] if peer.requirements else []
    return [str(python), *flags, str(PROGRAMS / peer.program), str(folder)]


def tables_of(records: Records, case: Case) -> Tables:
    return Tables(records.domain, tuple(combinations(range(records.domain.width), case.order)))


@lru_cache(maxsize=1)
def truth_of(data: Data, case: Case) -> NDArray[np.float64]:
    """The true fraction of every cell, kept for the points that follow."""
    records = kept(data, case.data)
    return tables_of(records, case).counts(records) / records.rows


def write_task(folder: Path, wanted: Release, records: Records, cores: int) -> None:
    """Write what a program reads (`peer_programs/protocol.py`)."""
    domain = records.domain
    task = {
        "names": [domain.name(j) for j in range(domain.width)],
        "sizes": domain.sizes.tolist(),
        "tables": tables_of(records, wanted.case).sets,
        "epsilon": wanted.epsilon,
        "delta": wanted.case.delta,
        "method": wanted.method,
        "seed": wanted.seed,
        "cores": cores,
    }
    (folder / "task.json").write_text(json.dumps(task))
    np.save(folder / "rows.npy", records.to_rows())


@cache
def compile_ours(terms: Terms) -> None:
    """Compile our kernels, which numba keeps on disk: a cost of the first release ever, not of each."""
    domain = Domain(tuple(Categorical(f"a{j}", ("0", "1", "2")) for j in range(4)))
    records = Records.from_rows(domain, np.random.default_rng(0).integers(0, 3, (500, 4)))
    with TemporaryDirectory() as name:
        folder = Path(name)
        # Tables of three attributes need every loop that those of two do.
        write_task(folder, Release(ADULT, OURS, OURS.methods[0], 1.0, 0), records, terms.cores)
        command = command_of(OURS, Path(sys.executable), folder)
        run_within(command, FULL_LIMIT, terms.cores, terms.memory)


class BadAnswer(Exception):
    """What is wrong with an answer."""


def read_answer(folder: Path, tables: Tables) -> tuple[NDArray[np.generic], float]:
    """What a program left: rows of codes or a count for every cell, and the seconds that they took."""
    try:
        answer = np.load(folder / "answer.npy")
        seconds = float((folder / "seconds.txt").read_text())
    except (OSError, ValueError) as problem:
        raise BadAnswer("no answer that can be read") from problem
    if answer.dtype.kind not in "iuf" or not np.isfinite(answer).all():
        raise BadAnswer("the answer holds something else than numbers")
    if answer.ndim == 1:
        if len(answer) != tables.size:
            raise BadAnswer(f"{len(answer):,} counts for {tables.size:,} cells")
        return answer, seconds
    if answer.shape[1:] != (tables.domain.width,) or not len(answer):
        raise BadAnswer(f"an answer of shape {answer.shape}")
    if (answer < 0).any() or (answer >= tables.domain.sizes).any():
        raise BadAnswer("rows with values that are not in the domain")
    return answer, seconds


def errors_of(answer: NDArray[np.generic], tables: Tables, truth: NDArray[np.float64]) -> dict[str, Value]:
    """Errors over all tables, as fractions: mean L1, the worst table's, and the worst cell's.

    Rows are divided by their number. Counts are divided by what they themselves say the number of records is, the
    mean total of the tables, since between these neighbours the true number is private; they are not clipped.
    """
    starts = tables.starts[:-1]
    if answer.ndim == 1:
        found = answer / np.add.reduceat(answer, starts).mean()
    else:
        found = tables.counts(Records.from_rows(tables.domain, answer.astype(np.int64))) / len(answer)
    error = np.abs(found - truth)
    l1 = np.add.reduceat(error, starts)
    return {"l1": float(l1.mean()), "worst_table": float(l1.max()), "max_cell": float(error.max())}


# The experiment


def points(terms: Terms, peers: Sequence[Peer], setting: Setting) -> list[Point]:
    """ε = 1 of everything first; KDD99, which few can hold, last."""
    cases = setting.choose(
        toy=(Case(NLTCS.data, 2, 1e-6),),
        quick=(NLTCS, ADULT_PAIRS),
        full=(NLTCS, ADULT_PAIRS, ADULT, KDD),
    )
    epsilons = setting.choose(toy=(1.0,), quick=(1.0,), full=EPSILONS)
    limit = terms.limit_of(setting.size)
    wanted = [
        Release(case, peer, method, epsilon, seed)
        for large in (False, True)
        for epsilon in epsilons
        for case in cases
        if case.data in terms.data and (case is KDD) is large
        for peer in peers
        for method in methods_of(peer, setting.size, case, epsilon)
        for seed in setting.seeds(full=1)
    ]
    return [
        Point(release.key, partial(measure, setting.data, release, terms, limit), cost=cost_of(release))
        for release in wanted
    ]


def methods_of(peer: Peer, size: Size, case: Case, epsilon: float) -> tuple[str, ...]:
    """What a peer is asked to try; at toy size nothing is installed."""
    if size is Size.TOY and peer.requirements:
        return ()
    if size is not Size.FULL:
        return peer.quick
    quoted = peer is DPMM and case is ADULT and epsilon == 1
    return (*peer.methods, QUOTED) if quoted else peer.methods


def cost_of(wanted: Release) -> float:
    """A guess, for the time left: AIM fits a model after each of many measurements."""
    return 60.0 if wanted.method.startswith("AIM") else 2.0 if wanted.method in wanted.peer.quick else 20.0


# Drawing and words


def named(rows: Rows) -> Rows:
    """The rows with a column that names peer and method together."""
    return [
        {**row, "name": row["peer"] if row["peer"] == OURS.name else f"{row['peer']} {row['method']}"}
        for row in rows
    ]


def draw(rows: Rows) -> Figure:
    """Error against time: a panel a workload, a colour a method, a marker an ε."""
    done = [row for row in named(rows) if row["outcome"] == DONE]
    panels = list(dict.fromkeys((row["data"], row["tables"]) for row in done)) or [("", "")]
    colours = {name: f"C{i}" for i, name in enumerate(distinct(done, "name"))}
    markers = dict(zip(sorted(distinct(done, "epsilon")), "vo^sD", strict=False))
    picture = Figure(figsize=(3 + 2.8 * len(panels), 3.4), layout="constrained")
    grid = picture.subplots(1, len(panels), squeeze=False, sharex=True, sharey=True)
    for axes, (data, tables) in zip(grid[0], panels, strict=True):
        mine, keys = where(done, data=data, tables=tables), ("name", "epsilon")
        seconds, errors = mean_by(mine, keys, "seconds"), mean_by(mine, keys, "l1")
        for (name, epsilon), error in errors.items():
            axes.loglog(seconds[name, epsilon], error, markers[epsilon], color=colours[name])
        axes.set(title=f"{data}, {tables}", xlabel="seconds")
    picture.axes[0].set_ylabel("L1 error of a table, mean")
    entries = [(name, "o", colour) for name, colour in colours.items()]
    entries += [(f"ε = {epsilon:g}", marker, "grey") for epsilon, marker in markers.items()]
    for name, marker, colour in entries:
        picture.axes[0].plot([], [], marker, color=colour, label=name)
    if entries:
        picture.legend(loc="outside right center", frameon=False)
    return picture


def find(rows: Rows) -> str:
    """The terms, who errs less than we do, and who gave nothing; every number from the rows."""
    workloads = dict.fromkeys((row["data"], row["tables"], row["epsilon"]) for row in rows)
    lines = [*(compared(rows, *workload) for workload in workloads), *without_answer(rows)]
    return "\n".join([terms_of(rows), "", *(f"- {line}" for line in lines)])


def terms_of(rows: Rows) -> str:
    deltas = {row["data"]: f"{row['delta']:g} for {row['data']}" for row in rows}
    share = median(row["processor_seconds"] / (row["process_seconds"] * row["cores"]) for row in rows)
    cores, runs = " or ".join(map(str, distinct(rows, "cores"))), len(distinct(rows, "run"))
    return (
        f"Each release is a process of its own (cores: {cores}; runs of a point: {runs}), which in the median was "
        f"let run {share:.0%} of the time, the rest going to other work. Neighbours are add-remove; δ is "
        f"{', '.join(deltas.values())}. Errors are L1 distances between tables of fractions, in the mean over all "
        f"tables of the workload; seconds are wall time of fitting and generating. {TREATMENT}"
    )


def compared(rows: Rows, data: str, tables: str, epsilon: float) -> str:
    """Ours beside those that err less, or beside the best of the others."""
    here = named(where(rows, data=data, tables=tables, epsilon=epsilon))
    errors, seconds = mean_by(here, ("name",), "l1"), mean_by(here, ("name",), "seconds")
    words = {key: f"{key[0]} {error:.3g} in {seconds[key]:,.1f} s" for key, error in errors.items()}
    start, ours = f"{data}, {tables}, ε = {epsilon:g}: ", (OURS.name,)
    others = sorted((key for key in errors if key != ours), key=lambda key: errors[key])
    if ours not in errors:
        return start + ("; ".join(words[key] for key in others) or "nobody gave an answer") + "."
    better = [words[key] for key in others if errors[key] < errors[ours]]
    if better:
        told = f"**lower errors:** {'; '.join(better)}"
    elif others:
        told = f"of {len(others)} that answered beside us the best is {words[others[0]]}"
    else:
        told = "nobody else gave an answer"
    return f"{start}{words[ours]}; {told}.{lower_at_worst(here)}"


def lower_at_worst(here: Rows) -> str:
    """Who errs less than we do in the worst table or the worst cell, whatever the mean says."""
    told = ""
    for column, what in (("worst_table", "worst table"), ("max_cell", "worst cell")):
        worst = mean_by(here, ("name",), column)
        ours = worst[OURS.name,]
        lower = [f"{name} {error:.3g}" for (name,), error in worst.items() if error < ours]
        if lower:
            told += f" **Lower in the {what}** (ours {ours:.3g}): {', '.join(lower)}."
    return told


def without_answer(rows: Rows) -> list[str]:
    """For each outcome other than an answer, who had it where."""
    found: dict[tuple[str, ...], dict[str, None]] = {}
    for row in named(rows):
        if row["outcome"] != DONE:
            which = tuple(row[name] for name in ("name", "outcome", "data", "tables"))
            found.setdefault(which, {})[f"{row['epsilon']:g}"] = None
    return [
        f"{name} {outcome} ({data}, {tables}, ε = {', '.join(epsilons)})."
        for (name, outcome, data, tables), epsilons in found.items()
    ]


def experiment(terms: Terms, peers: Sequence[Peer] = PEERS) -> Experiment:
    return Experiment(
        name="peers",
        title="Peers side by side: error against time",
        paper="dpmm's AIM with degree 3, a model of 8 MB and 500 iterations was seen to take 1857 s on one core on "
        "Adult, all 3-way tables, ε = 1, δ = 10⁻³, add-remove, for a mean L1 error of 0.0755, a worst table of 0.219 "
        'and a worst cell of 0.0112 (here the method "AIM as quoted").',
        points=partial(points, terms, peers),
        draw=draw,
        find=find,
        by=("data", "tables", "epsilon", "peer", "method"),
        shown=("l1", "worst_table", "max_cell", "seconds", "processor_seconds", "peak_gb", "outcome"),
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
        help=f"time limit of one release (default {QUICK_LIMIT:g}, with --full {FULL_LIMIT:g})",
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
    )


if __name__ == "__main__":
    given = arguments_of()
    main(experiment(terms_given(given)), given)
