"""Wide binary tables: accuracy, time and memory beside what was asked.

python -m benchmarks.wide                       # everything; the 512,000 attributes need 7 GB of disk
python -m benchmarks.wide mixture kosarak       # some sections
python -m benchmarks.wide chain --seeds 0       # with one seed
Sections: mixture independent widest kosarak chain others
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from benchmarks.harness import Figure, in_fresh_process, records_of, show
from dualquery.counting import MemoryCounter
from dualquery.mechanisms.error_bars import STUDENT, Draw, Replica, learned_curves, made_replicas, narrowest
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.projection import PROJECTION
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.random_families import Stream, random_literals, weighted_conjunctions
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Domain, Items
from dualquery.table.records import BitItems, Records, SparseItems
from dualquery.types import silent
from experiments.runs import records_of as synthetic_of

ROWS = 100_000
QUERIES = 100_000
HELD_OUT = 50_000  # questions of each order that no release was made for
SEEDS = (0, 1, 2)
BUDGET = Budget(epsilon=1.0, delta=1e-3, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)


@dataclass(frozen=True)
class Wanted:
    """A row of the table of requirements: mean and largest error, seconds and GB of the process."""

    data: str
    attributes: int
    mean: float | None = None
    largest: float | None = None
    seconds: float | None = None
    gigabytes: float | None = None


WANTED = {
    "mixture": (
        Wanted("mixture of 8", 500, 0.0008, 0.012),
        Wanted("mixture of 8", 2_000, 0.001, 0.012),
        Wanted("mixture of 8", 8_000, 0.0016, 0.012, 90.0, 3.0),
    ),
    "independent": (Wanted("independent", 500, 0.0008), Wanted("independent", 8_000, 0.001)),
    "widest": (Wanted("independent", 512_000, 0.004),),
    "kosarak": (
        Wanted("kosarak by popularity", 23_496, 0.00043),
        Wanted("kosarak uniform", 23_496, 0.00008),
    ),
    "chain": (Wanted("chain", 2_000),),
    "others": (Wanted("mixture of 64", 500), Wanted("six factors", 500), Wanted("mixture of 8", 20_000)),
}
HELD_OUT_RATIO = 1.3


@dataclass(frozen=True)
class Result:
    """Of one release. Errors are fractions of the table."""

    data: str
    attributes: int
    seed: int
    mean: float
    largest: float
    held_out_1: float
    held_out_2: float
    held_out_3: float
    own_1: float  # the same questions of one and two attributes, asked of releases that were made for them;
    own_2: float  # Kosarak only, else 0
    said_mean: float  # by the plan
    said_rms: float  # by the error bars
    true_rms: float
    covered: float  # the part of the workload whose truth lies within its 95% bar
    synthetic_rows: int
    rows_seconds: float  # until there are rows; replicas follow
    seconds: float
    processor_seconds: float
    said_seconds: float
    said_gigabytes: float


# ── Invented tables ─────────────────────────────────────────────────────────────────────────────────────────────


@njit(cache=True, parallel=True)
def draw_bits(chances, group, seed, words):  # type: ignore[no-untyped-def]
    """Independent bits: attribute j of record r with the chance chances[j, group[r]]."""
    for j in prange(words.shape[0]):
        state = np.uint64(seed) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(j) * np.uint64(0xD1342543DE82EF95)
        for r in range(group.shape[0]):
            state += np.uint64(0x9E3779B97F4A7C15)
            z = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            if (z >> np.uint64(40)) * 2.0**-24 < chances[j, group[r]]:
                words[j, r >> 6] |= np.uint64(1) << np.uint64(r & 63)


def empty_words(attributes: int, folder: Path) -> NDArray[np.uint64]:
    """In memory; on disk where the bits of the table alone would be gigabytes."""
    shape = (attributes, -(-ROWS // 64))
    if attributes <= 20_000:
        return np.zeros(shape, np.uint64)
    return np.memmap(folder / "words", np.uint64, "w+", shape=shape)


def mixture(attributes: int, classes: int, seed: int, folder: Path) -> Records:
    """Classes with shares from a Dirichlet(3, …) law, and in each every chance uniform between 0 and 1."""
    rng = np.random.default_rng(seed)
    group = rng.choice(classes, ROWS, p=rng.dirichlet(np.full(classes, 3.0)))
    words = empty_words(attributes, folder)
    draw_bits(rng.random((attributes, classes)), group, rng.integers(1 << 62), words)
    return Records(Domain((Items("item", attributes),)), ROWS, (BitItems(words),))


def from_columns(columns: Iterator[NDArray[np.bool_]], attributes: int) -> Records:
    words = np.zeros((attributes, -(-ROWS // 64)), np.uint64)
    padded = np.zeros(64 * words.shape[1], np.bool_)
    for j, column in enumerate(columns):
        padded[:ROWS] = column
        words[j] = np.packbits(padded, bitorder="little").view(np.uint64)
    return Records(Domain((Items("item", attributes),)), ROWS, (BitItems(words),))


def chain(attributes: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """A Markov chain: an attribute is that before it with chance 0.8, else a coin of its own."""
    rng = np.random.default_rng(seed)
    before = rng.random(ROWS) < 0.5
    for chance in rng.uniform(0.2, 0.8, attributes):
        before = np.where(rng.random(ROWS) < 0.8, before, rng.random(ROWS) < chance)
        yield before


def factors(attributes: int, number: int, seed: int) -> Iterator[NDArray[np.bool_]]:
    """Logistic in a few normal factors."""
    rng = np.random.default_rng(seed)
    places = rng.standard_normal((ROWS, number))
    for _ in range(attributes):
        odds = rng.standard_normal() + places @ (0.7 * rng.standard_normal(number))
        yield rng.random(ROWS) < 1 / (1 + np.exp(-odds))


@contextmanager
def load(data: str, attributes: int, seed: int) -> Iterator[tuple[Records, Workload, list[Workload]]]:
    """A table, its workload, and the held-out questions of one, two and three attributes."""
    with tempfile.TemporaryDirectory() as folder:
        if data.startswith("kosarak"):
            records = records_of("kosarak")
            workload, held_out = _kosarak(records, by_popularity=data.endswith("popularity"))
        else:
            if data == "chain":
                records = from_columns(chain(attributes, seed), attributes)
            elif data == "six factors":
                records = from_columns(factors(attributes, 6, seed), attributes)
            else:
                classes = int(data.split()[-1]) if data.startswith("mixture") else 1
                records = mixture(attributes, classes, seed, Path(folder))
            workload = random_literals(records.domain, 3, QUERIES, seed=1)
            held_out = [random_literals(records.domain, k, HELD_OUT, seed=10 + k) for k in (1, 2, 3)]
        yield records, workload, held_out


def _kosarak(records: Records, *, by_popularity: bool) -> tuple[Workload, list[Workload]]:
    """500,000 questions, as the projection's own benchmark asks them."""
    domain, block = records.domain, records.columns[0]
    assert isinstance(block, SparseItems)
    popularity = np.bincount(block.ids, minlength=domain.width)

    def drawn(k: int, number: int, seed: int) -> Workload:
        if by_popularity:
            return weighted_conjunctions(domain, k, number, seed, popularity)
        return random_literals(domain, k, number, seed=seed)

    return drawn(3, 500_000, 1), [drawn(k, HELD_OUT, 10 + k) for k in (1, 2, 3)]


# ── Runs ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Made:
    """A release as `dualquery release` makes it, replicas included; what it took, and what the plan said."""

    records: Records
    replicas: tuple[Replica, ...]
    taken: dict[str, float]

    def bars(self, workload: Workload, rows: int) -> NDArray[np.float64]:
        """The 95% bar of every query."""
        curves = learned_curves(self.records, rows, self.replicas, Stream(0))
        seen = [
            np.concatenate([each.seen(group).errors for group in workload.groups]) for each in self.replicas
        ]
        answers = workload.fractions(self.records)
        widths = curves.bars(answers, np.full(len(answers), workload.order), seen)
        return np.maximum(widths, narrowest(rows, self.records.rows))


def release(records: Records, workload: Workload, seed: int, *, with_replicas: bool = True) -> Made:
    started = time.perf_counter(), time.process_time()
    plan = PROJECTION.plan_for(Task(workload, records.rows, BUDGET), {})
    curator = Curator(MemoryCounter(records), Ledger(BUDGET), SeededEntropy(seed))
    outcome = PROJECTION.run(plan, curator, np.random.default_rng(seed), silent)
    rows_seconds = time.perf_counter() - started[0]
    draw = Draw.of(outcome.artefact, records.rows, seed)
    replicas = made_replicas(PROJECTION, plan, outcome, draw, silent) if with_replicas else ()
    taken = {
        "rows_seconds": rows_seconds,
        "seconds": time.perf_counter() - started[0],
        "processor_seconds": time.process_time() - started[1],
        "said_mean": plan.mean_error,
        "said_seconds": plan.seconds,
        "said_gigabytes": plan.bytes / 1e9,
    }
    return Made(synthetic_of(outcome), replicas, taken)


def warm_up() -> None:
    """Compiles, or reads the cache."""
    rng = np.random.default_rng(0)
    for density in (0.5, 0.02):
        rows = rng.random((2_000, 300)) < density * rng.uniform(0.5, 1.5, (2_000, 1))
        records = Records.from_rows(Domain((Items("item", 300),)), rows)
        release(records, random_literals(records.domain, 3, 30_000, seed=2), 0)


def measure(data: str, attributes: int, seeds: Sequence[int]) -> list[Result]:
    """A table and a release for each seed."""
    warm_up()
    return [_measure(data, attributes, seed) for seed in seeds]


def _measure(data: str, attributes: int, seed: int) -> Result:
    with load(data, attributes, seed) as (records, workload, held_out):
        released = release(records, workload, seed)
        made, bars = released.records, released.bars(workload, records.rows)
        error = np.abs(workload.fractions(made) - workload.fractions(records))
        outside = [_mean_error(each, made, records) for each in held_out]
        for_them = [0.0, 0.0]
        if data.startswith("kosarak"):
            for_them = [
                _mean_error(each, release(records, each, seed, with_replicas=False).records, records)
                for each in held_out[:2]
            ]
    return Result(
        data=data,
        attributes=attributes,
        seed=seed,
        mean=float(error.mean()),
        largest=float(error.max()),
        held_out_1=outside[0],
        held_out_2=outside[1],
        held_out_3=outside[2],
        own_1=for_them[0],
        own_2=for_them[1],
        said_rms=float(np.sqrt(np.mean(bars**2))) / STUDENT,
        true_rms=float(np.sqrt(np.mean(error**2))),
        covered=float((error <= bars).mean()),
        synthetic_rows=made.rows,
        **released.taken,
    )


def _mean_error(workload: Workload, made: Records, records: Records) -> float:
    return float(np.abs(workload.fractions(made) - workload.fractions(records)).mean())


def only_released(data: str, attributes: int) -> dict[str, float]:
    """A release and nothing else, for its memory."""
    with load(data, attributes, 0) as (records, workload, _):
        return release(records, workload, 0).taken


def requirements(wanted: Wanted, seeds: Sequence[int]) -> None:
    results: list[Result] = in_fresh_process(measure, wanted.data, wanted.attributes, seeds)[0]
    _, peak = in_fresh_process(only_released, wanted.data, wanted.attributes)

    def values(name: str) -> list[float]:
        return [float(getattr(result, name)) for result in results]

    def ratios(over: str, under: str) -> list[float]:
        return [a / b for a, b in zip(values(over), values(under), strict=True)]

    figures = [
        Figure.mean("mean error", values("mean"), wanted.mean),
        Figure.mean("largest error", values("largest"), wanted.largest),
        *(
            Figure.mean(
                f"held-out, {k}-way, over the workload's", ratios(f"held_out_{k}", "mean"), _ratio(wanted)
            )
            for k in (1, 2, 3)
        ),
        Figure.mean("mean error, as planned", values("said_mean")),
        *(
            Figure.mean(
                f"held-out, {k}-way, over a release for them",
                ratios(f"held_out_{k}", f"own_{k}"),
                HELD_OUT_RATIO,
            )
            for k in (1, 2)
            if min(values(f"own_{k}")) > 0
        ),
        Figure.mean("rms error, by the error bars", values("said_rms")),
        Figure.mean("rms error, true", values("true_rms")),
        Figure.mean("truth within its bar", values("covered")),
        Figure.mean("synthetic records", values("synthetic_rows")),
        Figure.mean("seconds", values("seconds"), wanted.seconds),
        Figure.mean("seconds until there are rows", values("rows_seconds")),
        Figure.mean("processor seconds of all cores", values("processor_seconds")),
        Figure.mean("seconds, as planned", values("said_seconds")),
        Figure("GB of the process, the table included", peak, wanted.gigabytes),
        Figure.mean("GB, as planned", values("said_gigabytes")),
    ]
    show(f"{wanted.data}, {wanted.attributes:,} attributes", figures)


def _ratio(wanted: Wanted) -> float | None:
    return HELD_OUT_RATIO if wanted.data.startswith("mixture") and wanted.mean is not None else None


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.wide", description="Wide binary tables.")
    parser.add_argument(
        "sections", nargs="*", choices=[[], *WANTED], metavar="SECTION", help=", ".join(WANTED)
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    arguments = parser.parse_args()
    for section in arguments.sections or WANTED:
        for wanted in WANTED[section]:
            requirements(wanted, arguments.seeds)


if __name__ == "__main__":
    main()
