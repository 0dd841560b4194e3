"""What a graphics card brings: counts, fits and whole releases beside those of the processor, and the card's limits.

python -m benchmarks.gpu                     # all parts, to benchmarks/results/gpu.csv
python -m benchmarks.gpu counts fits         # some of: counts, made, tables, fits, wide, game, releases

Every count of the card is compared with the processor's. Each part stands alone: one that fails says so, and the
others go on. Seconds are the least of the runs, with the most beside them. Beside counts stand the least times that
the card could need: for the ones that it counts (16 words of 32 bits a cycle and multiprocessor), and for the words
that it reads from shared memory (128 bytes a cycle and multiprocessor).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

import dualquery
from dualquery.beliefs.cuda import CardHistograms
from dualquery.beliefs.factored import Factored
from dualquery.beliefs.histogram import Histogram, believing_with
from dualquery.card import card, kernels, name, on_card
from dualquery.counting import MemoryCounter
from dualquery.counting.cuda import Cuda, join
from dualquery.fitting import cuda as on_the_card
from dualquery.fitting.cpu import COMPILED
from dualquery.fitting.cuda import CudaFitter
from dualquery.fitting.fitter import Targets, fitting_with
from dualquery.game import BestResponseDataPlayer, Challenge, Record, Transcript
from dualquery.game.query_players import LearningQueryPlayer
from dualquery.loops import cores
from dualquery.mechanisms.dual_query import search_oracle, uniform
from dualquery.mechanisms.dual_query.parameters import rate_of
from dualquery.privacy.cuda import CardWeights
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.selection import Candidates, Scored, Weights, draw, weighing_with
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.random_families import random_literals
from dualquery.queries.tables import Tables
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records
from experiments.data import Data
from experiments.runs import ENOUGH, budget_of

QUERIES, DRAWS = 2_000_000, 1750
ROWS, ATTRIBUTES, MADE_QUERIES = 1_000_000_000, 40, 100_000
ROWS_FOUND: list[dict[str, Any]] = []


def note(part: str, what: str, value: float | str, unit: str = "", **more: Any) -> None:
    row = {"part": part, "what": what, "value": value, "unit": unit, **more}
    ROWS_FOUND.append(row)
    print(
        "  ".join(f"{value:.5g}" if isinstance(value, float) else str(value) for value in row.values()),
        flush=True,
    )


def timed(run: Callable[[], Any], runs: int = 5) -> tuple[float, float]:
    """The least and the most seconds of some runs, after one that warms up."""
    run()
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - started)
    return min(seconds), max(seconds)


def kernel_seconds(cupy: Any, launch: Callable[[], Any], runs: int = 5) -> tuple[float, float]:
    """The same of what the card does, by its own clock."""
    launch()
    seconds = []
    for _ in range(runs):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        launch()
        end.record()
        end.synchronize()
        seconds.append(cupy.cuda.get_elapsed_time(start, end) / 1000)
    return min(seconds), max(seconds)


def limits(cupy: Any, words: float) -> tuple[float, float]:
    """Seconds for the ones of so many words of 64 bits, and for reading three such words each from shared memory."""
    known = cupy.cuda.Device().attributes
    a_second = known["MultiProcessorCount"] * known["ClockRate"] * 1000.0
    return 2 * words / (16 * a_second), 3 * 8 * words / (128 * a_second)


def records_of(data: str) -> Records:
    return Data(Data.default_folder()).records(data)


def counts() -> None:
    """2 million 3-way counts on KDD99."""
    records = records_of("kddcup99")
    group = random_literals(records.domain, 3, QUERIES, seed=1).groups[0]
    assert isinstance(group, Conjunctions)
    engine = Cuda()
    began = time.perf_counter()
    found = engine.counts(group, records)
    note("counts", "first call, kernels compiled and columns sent", time.perf_counter() - began, "s")
    least, most = timed(lambda: engine.counts(group, records))
    note("counts", "2 million 3-way counts on KDD99, whole call", least, "s", most=most, runs=5, wanted=0.02)
    expected = group.counts(records)
    least, most = timed(partial(group.counts, records), 2)
    note("counts", f"the same, processor, {cores()} cores", least, "s", most=most, runs=2)
    note("counts", "counts that differ from the processor's", int((found != expected).sum()), wanted=0)
    from dualquery.queries.conjunctions import used_literals

    literals, predicates = used_literals(group)
    with on_card() as cupy:
        bits = engine._bits(cupy, predicates, records, 0, records.rows)
        asked = cupy.asarray(np.ascontiguousarray(literals.T))
        out = cupy.zeros(QUERIES, cupy.uint64)
        least, most = kernel_seconds(cupy, lambda: join(cupy, bits, asked, out))
        note("counts", "the same, kernel alone", least, "s", most=most, runs=5, wanted=0.02)
        ones, shared = limits(cupy, QUERIES * bits.shape[1])
        note("counts", "limit by ones counted", ones, "s")
        note("counts", "limit by shared memory", shared, "s")
        least, most = kernel_seconds(cupy, lambda: engine._bits(cupy, predicates, records, 0, records.rows))
        note("counts", f"{len(predicates)} bit columns made", least, "s", most=most, runs=5)
    small, wrong = records_of("adult"), 0
    for width in (1, 2, 3, 4, 5):
        some = random_literals(small.domain, width, 20_000, seed=width).groups[0]
        wrong += int((engine.counts(some, small) != some.counts(small)).sum())
    note("counts", "of 100,000 counts of one to five literals on Adult, different", wrong, wanted=0)
    note("counts", "what the engine said", "; ".join(engine.said) or "nothing")


def made() -> None:
    """10⁵ counts over 10⁹ rows × 40 binary attributes, made on the card."""
    rng = np.random.default_rng(0)
    triples = np.stack([rng.choice(ATTRIBUTES, 3, replace=False) for _ in range(MADE_QUERIES)])
    literals = (2 * triples + rng.integers(0, 2, triples.shape)).astype(np.int32)
    with on_card() as cupy:
        words = ROWS // 64
        bits = cupy.empty((ATTRIBUTES + 1, words), cupy.uint64)
        for j in range(ATTRIBUTES):
            half = cupy.random.randint(0, 1 << 32, words, dtype=cupy.uint64)
            bits[j] = (half << 32) | cupy.random.randint(0, 1 << 32, words, dtype=cupy.uint64)
        bits[ATTRIBUTES] = 0xFFFFFFFFFFFFFFFF
        asked = cupy.asarray(np.ascontiguousarray(literals.T))
        out = cupy.zeros(MADE_QUERIES, cupy.uint64)
        join(cupy, bits, asked, out)
        found, wrong = out.get(), 0
        flip = cupy.uint64(0xFFFFFFFFFFFFFFFF)
        ones = cupy.ElementwiseKernel("uint64 x", "int64 y", "y = __popcll(x)", "ones")
        for q in range(0, MADE_QUERIES, MADE_QUERIES // 20):
            joint = bits[ATTRIBUTES].copy()
            for literal in literals[q].tolist():
                joint &= bits[literal // 2] ^ flip if literal % 2 else bits[literal // 2]
            wrong += int(ones(joint).sum()) != int(found[q])
        note("made", "of 20 counts looked at, wrong", wrong, wanted=0)
        least, most = kernel_seconds(cupy, lambda: join(cupy, bits, asked, out), 3)
        note("made", "10⁵ counts over 10⁹ rows × 40", least, "s", most=most, runs=3, wanted=3)
        ones_limit, shared = limits(cupy, MADE_QUERIES * words)
        note("made", "limit by ones counted", ones_limit, "s")
        note("made", "limit by shared memory", shared, "s")


def tables() -> None:
    """All pairs, and all triples, of KDD99 and Adult."""
    for data, order in (("kddcup99", 2), ("adult", 3)):
        records = records_of(data)
        what = Tables(records.domain, tuple(combinations(range(records.domain.width), order)))
        engine = Cuda()
        found = engine.counts(what, records)
        least, most = timed(partial(engine.counts, what, records), 3)
        note("tables", f"{data}, {len(what.sets)} tables of order {order}", least, "s", most=most, runs=3)
        expected = what.counts(records)
        least, most = timed(partial(what.counts, records), 3)
        note("tables", f"the same, processor, {cores()} cores", least, "s", most=most, runs=3)
        note("tables", "counts that differ", int((found != expected).sum()), wanted=0)


class Watched:
    """A fitter that keeps what it was asked."""

    def __init__(self, fitter: Any) -> None:
        self.fitter, self.asked = fitter, []

    def fit(self, targets: Any, start: Any, heat: Any, seeds: Any) -> Iterator[Any]:
        self.asked.append((targets, start, list(heat), seeds))
        return iter(list(self.fitter.fit(targets, start, heat, seeds)))


def residual(targets: Targets, rows: np.ndarray[Any, Any]) -> float:
    """Σ weight · ‖y − p‖² over (at most 2,000) tables with a weight above zero, of all rows together."""
    total, width = 0.0, rows.shape[-1]
    flat = rows.reshape(-1, width).astype(np.int64)
    for members, weight in list(targets.weight.items())[:: max(1, len(targets.weight) // 1_000)]:
        if weight > 0:
            shape = [int(targets.sizes[j]) for j in members]
            cells = np.ravel_multi_index([flat[:, j] for j in members], shape)
            share = np.bincount(cells, minlength=int(np.prod(shape))) / len(flat)
            total += weight * float(((targets.pull[members].ravel() / weight - share) ** 2).sum())
    return total


def fits() -> None:
    """The main fit of a release, by the processor and by the card with more and fewer rows in flight."""
    for data, wanted in (("adult", 0.01), ("kddcup99", 0.3), ("nltcs", 0.01)):
        watched = Watched(COMPILED)
        with fitting_with(watched):
            release_of(records_of(data), "local", replicas=False)
        parts = watched.asked
        least, most = timed(
            partial(_all_fits, COMPILED, parts), 2
        )  # the loops are compiled and loaded by now
        note("fits", f"{data}, processor, two chains", least, "s", most=most, runs=2)
        for targets, start, heat, seeds in parts[-1:]:
            *_, rows = COMPILED.fit(targets, start, heat, seeds)
            note("fits", f"{data}, processor, squared residual after the last part", residual(targets, rows))
        for flight in (64, 16, 8, 4):
            on_the_card.IN_FLIGHT = flight
            fitter = CudaFitter()
            least, most = timed(partial(_all_fits, fitter, parts), 3)
            more = {"wanted": wanted, "rows_in_flight": f"1 of {flight}"}
            whole = {"most": most, "runs": 3, **more}
            note("fits", f"{data}, card, whole fit with its preparations", least, "s", **whole)
            with on_card() as cupy:
                note("fits", f"{data}, card, kernels alone", _passes_alone(cupy, parts), "s", runs=1, **more)
            *_, rows = fitter.fit(*parts[-1])
            note(
                "fits",
                f"{data}, card, squared residual after the last part",
                residual(parts[-1][0], rows),
                runs=1,
                rows_in_flight=f"1 of {flight}",
            )
        on_the_card.IN_FLIGHT = 16


def _all_fits(fitter: Any, parts: list[Any]) -> None:
    for part in parts:
        list(fitter.fit(*part))


def _passes_alone(cupy: Any, parts: list[Any]) -> float:
    """Seconds of the card alone: events around the launches of `answer`."""
    total = 0.0
    source = kernels(on_the_card.SOURCE)

    class Clocked:
        def get_function(self, kernel: str) -> Any:
            function = source.get_function(kernel)

            def run(*given: Any, **named: Any) -> None:
                nonlocal total
                start, end = cupy.cuda.Event(), cupy.cuda.Event()
                start.record()
                function(*given, **named)
                end.record()
                end.synchronize()
                total += cupy.cuda.get_elapsed_time(start, end) / 1000

            run.max_dynamic_shared_size_bytes = 0  # type: ignore[attr-defined]
            return run

    before = on_the_card.kernels
    on_the_card.kernels = lambda text: Clocked()  # type: ignore[assignment]
    try:
        for part in parts:
            on_the_card.warp_passes(*part)
    finally:
        on_the_card.kernels = before
    return total


def wide() -> None:
    """300 attributes of 8 values, all pairs: 5.7 million cells in two views."""
    rng, width, size = np.random.default_rng(0), 300, 8
    targets = Targets(np.full(width, size))
    chance = rng.dirichlet(np.ones(size), (4, width))
    for i, j in combinations(range(width), 2):
        pair = np.einsum("ca,cb->ab", chance[:, i], chance[:, j]) / 4
        targets.add_table((i, j), pair, 1.0)
    start = rng.integers(0, size, (2, 20_000, width)).astype(np.uint8)
    heat, seeds = [20_000 * 1e-3 * x for x in (4, 2, 1, 1, 1, 1)], np.array([1, 2], np.uint64)
    fitter = CudaFitter()
    least, most = timed(lambda: list(fitter.fit(targets, start, heat, seeds)), 1)
    note("wide", "300 attributes × 8 values, with preparations", least, "s", most=most, runs=1)
    with on_card() as cupy:
        note(
            "wide",
            "the same, kernels alone",
            _passes_alone(cupy, [(targets, start, heat, seeds)]),
            "s",
            wanted=1,
        )
    *_, rows = fitter.fit(targets, start, heat, seeds)
    note("wide", "squared residual", residual(targets, rows))
    note("wide", "squared residual of the rows it began with", residual(targets, start))


@contextmanager
def without_replicas() -> Iterator[None]:
    from dualquery.releases import make

    before = make.made_replicas
    make.made_replicas = lambda *given: ()
    try:
        yield
    finally:
        make.made_replicas = before


def release_of(records: Records, engine: str, *, seed: int = 1, replicas: bool = True) -> Any:
    def run() -> Any:
        budget = dualquery.Budget(1, 1e-6)
        return dualquery.release(records, workload="marginals:3", budget=budget, seed=seed, engine=engine)

    if replicas:
        return run()
    with without_replicas():
        return run()


def releases() -> None:
    """Whole releases, file to folder, and their errors over all triples."""
    import tempfile

    from benchmarks.cores import table
    from experiments.data import SCHEMAS

    for data in ("adult", "nltcs", "kddcup99"):
        records, source = records_of(data), table(data)
        triples = list(combinations(range(records.domain.width), 3))
        some = np.random.default_rng(0).permutation(len(triples))[:500]
        what = Tables(records.domain, tuple(triples[i] for i in sorted(some.tolist())))
        truth = what.counts(records) / records.rows
        for engine in ("local", "cuda"):
            seconds, errors = [], []
            for seed in range(4):
                with tempfile.TemporaryDirectory() as place:
                    began = time.perf_counter()
                    made_now = dualquery.release(
                        source, schema=str(SCHEMAS / f"{data}.toml"), workload="marginals:3",
                        budget=dualquery.Budget(1, 1e-6), seed=seed, engine=engine,
                    )  # fmt: skip
                    made_now.save(Path(place) / "released")
                    seconds.append(time.perf_counter() - began)
                rows = made_now.artefact.records
                error = np.abs(what.counts(rows) / rows.rows - truth)
                errors.append(float(np.add.reduceat(error, what.starts[:-1]).mean()))
            warm = seconds[1:]
            wanted = {"wanted": 3} if (data, engine) == ("adult", "cuda") else {}
            note(
                "releases",
                f"{data}, {engine}, file to folder",
                min(warm),
                "s",
                most=max(warm),
                runs=3,
                **wanted,
            )
            note(
                "releases",
                f"{data}, {engine}, L1 of triples",
                float(np.mean(errors)),
                most=max(errors),
                runs=4,
            )


def game() -> None:
    """Rounds of DualQuery over 2 million queries of KDD99, 4 million weights, on the processor and on the card."""
    records = records_of("kddcup99")
    workload = random_literals(records.domain, 3, QUERIES, seed=1)
    rate, oracle = rate_of(1.2, 170, records.rows), search_oracle(workload)
    said: list[str] = []
    for who in ("processor", "card"):
        on_the_card = CardWeights() if who == "card" else None
        curator = Curator(MemoryCounter(records), Ledger(budget_of(ENOUGH, 1e-3)), SeededEntropy(0))
        player = LearningQueryPlayer(
            curator, workload, rate=rate, samples=DRAWS, public_rows=records.rows, recall=1
        )
        answering = BestResponseDataPlayer(oracle, uniform(records.domain), np.random.default_rng(0))
        transcript: Transcript[Challenge, Record] = Transcript()
        seconds, drawn = [], []
        with weighing_with(on_the_card or Weights()):
            for _ in range(20):
                began = time.perf_counter()
                challenge = player.challenge(transcript)
                seconds.append(time.perf_counter() - began)
                drawn.append(challenge.queries.tobytes())
                transcript = transcript.append(challenge, answering.reply(transcript, challenge))
        late = sorted(seconds[5:])
        what = f"a round's update, weights and {DRAWS:,} draws, {who}"
        note("game", what, late[len(late) // 2], "s", most=late[-1], runs=len(late), wanted=0.002)
        said.append(hashlib.sha256(b"".join(drawn)).hexdigest())
    note("game", "draws of 20 rounds that differ", int(said[0] != said[1]), wanted=0)
    weights = CardWeights()
    rng = np.random.default_rng(0)
    scored = Scored(
        workload.counts(records), 20, records.rows, rng.integers(0, 20, QUERIES).astype(np.int32), 0,
        Candidates.SIGNED,
    )  # fmt: skip
    seen: dict[str, tuple[float, float]] = {}

    def watched(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any) -> Any:
            seen[step] = timed(partial(function, *given))
            return function(*given)

        return run

    for step in ("extremes", "sums", "found"):
        setattr(weights, step, watched(step, getattr(weights, step)))
    with weighing_with(weights):
        draw(scored, rate=rate, draws=DRAWS, entropy=SeededEntropy(1))
    for step, (least, most) in seen.items():
        note("game", f"of which, offsets sent before: {step}", least, "s", most=most, runs=5)
    note("game", "what the card said", "; ".join(weights.said) or "nothing")
    cells, factors = Domain((Items("x", 22),)), np.array([[1.1, 0.9], [0.8, 1.2]])
    for who, make in (("processor", Histogram), ("card", CardHistograms())):
        with believing_with(make):
            belief = Factored.explicit(cells)
        for what, act in (
            ("multiplied", lambda held: held.multiply((3, 17), factors, mass=1.0)),
            ("a table of two attributes", lambda held: held.marginal((3, 17))),
            ("probabilities of all triples", lambda held: held.part(0).survival(3)),
        ):
            least, most = timed(partial(act, belief))
            note("game", f"MWEM's histogram of 2^22 cells, {what}, {who}", least, "s", most=most, runs=5)


PARTS = {
    "counts": counts, "made": made, "tables": tables, "fits": fits, "wide": wide, "game": game,
    "releases": releases,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("parts", nargs="*", help=", ".join(PARTS))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    cupy = card()
    versions = {
        "python": sys.version.split()[0],
        "numpy": np.__version__,
        "cupy": cupy.__version__,
        "card": name(),
    }
    versions["driver"] = str(cupy.cuda.runtime.driverGetVersion())
    for what, version in versions.items():
        note("versions", what, version)
    for part in given.parts or PARTS:
        began = time.perf_counter()
        try:
            PARTS[part]()
        except Exception:
            traceback.print_exc()
            note(part, "failed", traceback.format_exc().splitlines()[-1])
        note(part, "this part took", time.perf_counter() - began, "s")
        write(given.out)


def write(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    columns = list(dict.fromkeys(key for row in ROWS_FOUND for key in row))
    with (folder / "gpu.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(ROWS_FOUND)


if __name__ == "__main__":
    main()
