"""One release by a peer: a task written out, a process that is watched, an answer that is read and judged."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.privacy.accounting import mu_squared_units
from dualquery.privacy.conversion import UNITS
from dualquery.queries.tables import Tables
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from experiments.data import Data
from experiments.environments import environment_problem, python_in
from experiments.harness import Size, Value
from experiments.peer_methods import DELTA, EXACT, OURS, SOURCES, Case, Peer, Release
from experiments.processes import DONE, STOPPED, Ran, run_within
from experiments.residual_planner import least_rms

PROGRAMS = Path(__file__).parent / "peer_programs"
ENVIRONMENTS = Path(__file__).parent.parent / ".peers"
TORCH = "torch==2.13.0"  # a CPU build of it must be what pip finds, or be named by --torch
FULL_LIMIT, QUICK_LIMIT = 1200.0, 120.0  # processor seconds
MEMORY = 16.0  # GB of address space
NOT_STARTED = "not started:"
STOPPED_FILE = "stopped.txt"  # after how long another machine stopped a release, in words


@dataclass(frozen=True)
class Terms:
    """What the flags decide, the same for everybody."""

    data: tuple[str, ...] = SOURCES
    limit: float | None = None  # processor seconds; without it the size's
    cores: int = 1
    memory: float = MEMORY
    environments: Path = ENVIRONMENTS
    torch: str = TORCH
    python: str = sys.executable  # makes the environments
    sources: tuple[tuple[str, Path], ...] = ()  # where the packages lie that are on no index
    skip: str | None = None  # why what is missing is not started, but written down as such
    elsewhere: Path | None = None  # where tasks of peers wait for another machine, and its answers lie

    def limit_of(self, size: Size) -> float:
        return self.limit or (FULL_LIMIT if size is Size.FULL else QUICK_LIMIT)


def measure(data: Data, wanted: Release, terms: Terms, limit: float) -> dict[str, Value]:
    """A row: errors and costs of one release, or why there is none."""
    given: dict[str, Value] = {"delta": DELTA, "limit": limit, "cores": terms.cores}
    problem = terms.skip or starting_problem(data, wanted, terms)
    if problem is not None:
        return {"outcome": f"{NOT_STARTED} {problem}", **given}
    # Blind methods come by with tables of one order after the other, and make the same rows for each.
    made = (
        made_once(data, pairs_of(wanted), terms, limit) if wanted.blind else make(data, wanted, terms, limit)
    )
    outcome, found = made.ran.outcome, {}
    if outcome == DONE:
        records = wanted.case.records(data)
        tables = tables_of(records, wanted.case)
        sizes = tuple(records.domain.sizes.tolist())
        least = least_rms(sizes, wanted.case.order, epsilon=wanted.epsilon, delta=DELTA) / records.rows
        try:
            answer = checked(made.answer, tables)
            errors = errors_of(answer, tables, truth_of(data, wanted.case))
            found = {**errors, "optimal_rms": least, **made.timed("seconds")}
        except BadAnswer as bad:
            outcome = f"failed: {bad}"
    return {"outcome": outcome, **found, **made.costs, **given}


@dataclass(frozen=True)
class Made:
    """What became of a process, what it left, and the seconds that it says it took (none where it left nothing)."""

    ran: Ran
    answer: NDArray[Any] | None
    seconds: float  # 0 where it had not the machine to itself
    elsewhere: bool = False
    card: str = ""  # the graphics card of another machine where it had one

    @property
    def costs(self) -> dict[str, Value]:
        """Processor seconds and memory, or seconds of a card: nobody watched the other machine's processor."""
        if self.elsewhere:
            return {"card": self.card, **self.timed("card_seconds")}
        return {
            "process_seconds": self.ran.process_seconds,
            "processor_seconds": self.ran.processor_seconds,
            "peak_gb": self.ran.peak_gb,
        }

    def timed(self, name: str) -> dict[str, Value]:
        return {name: self.seconds} if self.seconds else {}


def make(data: Data, wanted: Release, terms: Terms, limit: float) -> Made:
    """Run a peer's program on a task of its own, or read what another machine left of it."""
    if (place := place_elsewhere(wanted, terms)) is not None:
        answer, seconds = left_in(place)
        outcome = DONE if answer is not None else f"{STOPPED} {(place / STOPPED_FILE).read_text().strip()}"
        card = (place / "card.txt").read_text().strip()
        return Made(Ran(outcome, seconds, 0.0, 0.0), answer, seconds, elsewhere=True, card=card)
    if not wanted.peer.requirements:
        compile_ours(terms)
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_task(folder, wanted, wanted.case.records(data), terms.cores)
        command = command_of(wanted.peer, python_of(wanted.peer, terms), folder)
        return Made(run_within(command, limit, terms.cores, terms.memory), *left_in(folder))


made_once = lru_cache(maxsize=2)(make)


def pairs_of(wanted: Release) -> Release:
    """The same release with pairs for a workload, which a blind method does not look at."""
    return replace(wanted, case=replace(wanted.case, order=2))


def worth_another_try(row: Mapping[str, str], terms: Terms, limit: float) -> bool:
    """Whether a kept row came to nothing for want of time or of a package, and there is more of it now."""
    if terms.skip is not None:
        return False
    outcome = row["outcome"]
    return outcome.startswith(NOT_STARTED) or (outcome.startswith(STOPPED) and float(row["limit"]) < limit)


# Environments, and other machines


def starting_problem(data: Data, wanted: Release, terms: Terms) -> str | None:
    """Why a release cannot be made now: nothing can be installed, or its task waits for another machine."""
    place = place_elsewhere(wanted, terms)
    if place is None:
        return installing_problem(wanted.peer, terms)
    if (place / "answer.npy").is_file() or (place / STOPPED_FILE).is_file():
        return None
    place.mkdir(parents=True, exist_ok=True)
    write_task(place, wanted, wanted.case.records(data), terms.cores)
    return f"its task waits for another machine, which runs {wanted.peer.program} on it"


def place_elsewhere(wanted: Release, terms: Terms) -> Path | None:
    """The folder of a peer's release that another machine makes."""
    if terms.elsewhere is None or not wanted.peer.requirements:
        return None
    return terms.elsewhere / "-".join(
        "".join(letter for letter in str(each) if letter.isalnum() or letter == ".")
        for each in wanted.key.values()
    )


def installing_problem(peer: Peer, terms: Terms) -> str | None:
    """Make a peer's environment where there is none; the sentence that says why that fails."""
    if not peer.requirements:
        return None
    torch, named = terms.torch if peer.needs_torch else None, dict(terms.sources)
    if missing := [name for name in peer.sources if name not in named]:
        flags = " ".join(f"--source {name}=DIR" for name in missing)
        return f"{peer.name} is on no package index; name where its sources lie with {flags}"
    sources = tuple(named[name] for name in peer.sources)
    return environment_problem(peer.name, peer.requirements, terms.environments, torch, terms.python, sources)


def python_of(peer: Peer, terms: Terms) -> Path:
    return python_in(terms.environments / peer.name) if peer.requirements else Path(sys.executable)


def command_of(peer: Peer, python: Path, folder: Path) -> list[str]:
    # Variables and packages of whoever runs this must not leak into a peer's environment.
    flags = ["-E", "-s"] if peer.requirements else []
    return [str(python), *flags, str(PROGRAMS / peer.program), str(folder)]


@cache
def compile_ours(terms: Terms) -> None:
    """Compile our kernels, which numba keeps on disk: a cost of the first release ever, not of each."""
    domain = Domain(tuple(Categorical(f"a{j}", ("0", "1", "2")) for j in range(4)))
    records = Records.from_rows(domain, np.random.default_rng(0).integers(0, 3, (500, 4)))
    with TemporaryDirectory() as name:
        folder = Path(name)
        # Tables of three attributes need every loop that those of two do.
        write_task(folder, Release(Case("", 3), OURS, OURS.methods[0].name, 1.0, 0), records, terms.cores)
        command = command_of(OURS, Path(sys.executable), folder)
        run_within(command, FULL_LIMIT, terms.cores, terms.memory)


# Tasks and answers


def write_task(folder: Path, wanted: Release, records: Records, cores: int) -> None:
    """Write what a program reads (`peer_programs/protocol.py`)."""
    domain = records.domain
    task = {
        "names": [domain.name(j) for j in range(domain.width)],
        "sizes": domain.sizes.tolist(),
        "tables": tables_of(records, wanted.case).sets,
        "epsilon": wanted.epsilon,
        "delta": DELTA,
        "rho": exact_rho(wanted.epsilon) if wanted.accounting == EXACT else None,
        "method": wanted.method,
        "seed": wanted.seed,
        "cores": cores,
    }
    (folder / "task.json").write_text(json.dumps(task))
    np.save(folder / "rows.npy", records.to_rows())


@cache
def exact_rho(epsilon: float) -> float:
    """The ρ = μ²/2 of all the Gaussian noise that (ε, δ) allows, by the exact privacy of real Gaussian noise.

    A mechanism that only measures loses nothing by it. One that also selects by the exponential mechanism has no
    theorem that grants it so much: it is given more than it may have, so that accounting cannot be what decides.
    """
    return mu_squared_units(epsilon=epsilon, delta=DELTA) / UNITS / 2


def tables_of(records: Records, case: Case) -> Tables:
    return Tables(records.domain, tuple(combinations(range(records.domain.width), case.order)))


@lru_cache(maxsize=1)
def truth_of(data: Data, case: Case) -> NDArray[np.float64]:
    """The true fraction of every cell, kept for the points that follow."""
    records = case.records(data)
    return tables_of(records, case).counts(records) / records.rows


class BadAnswer(Exception):
    """What is wrong with an answer."""


def left_in(folder: Path) -> tuple[NDArray[Any] | None, float]:
    """What a program left, if it can be read: rows of codes or the fraction of every cell, and its seconds."""
    try:
        return np.load(folder / "answer.npy"), float((folder / "seconds.txt").read_text())
    except (OSError, ValueError):
        return None, 0.0


def checked(answer: NDArray[Any] | None, tables: Tables) -> NDArray[Any]:
    """An answer that can be judged."""
    if answer is None:
        raise BadAnswer("no answer that can be read")
    if answer.dtype.kind not in "iuf" or not np.isfinite(answer).all():
        raise BadAnswer("the answer holds something else than numbers")
    if answer.ndim == 1:
        if len(answer) != tables.size:
            raise BadAnswer(f"{len(answer):,} fractions for {tables.size:,} cells")
        return answer
    if answer.shape[1:] != (tables.domain.width,) or not len(answer):
        raise BadAnswer(f"an answer of shape {answer.shape}")
    if (answer < 0).any() or (answer >= tables.domain.sizes).any():
        raise BadAnswer("rows with values that are not in the domain")
    return answer


def errors_of(answer: NDArray[Any], tables: Tables, truth: NDArray[np.float64]) -> dict[str, Value]:
    """Errors over all tables, as fractions: mean L1, the worst table's, the worst cell's, and a cell's rms.

    Rows are divided by their own number: between these neighbours the true one is private.
    """
    found: NDArray[np.float64] = answer.astype(np.float64)
    if answer.ndim == 2:
        found = tables.counts(Records.from_rows(tables.domain, answer.astype(np.int64))) / len(answer)
    error = np.abs(found - truth)
    l1 = np.add.reduceat(error, tables.starts[:-1])
    rms = float(np.sqrt(np.square(error).mean()))
    return {
        "l1": float(l1.mean()),
        "worst_table": float(l1.max()),
        "max_cell": float(error.max()),
        "rms": rms,
    }
