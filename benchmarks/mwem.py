"""MWEM: time of a round, the factored form, and accuracy beside the SVD bound, Hadamard and Laplace.

python -m benchmarks.mwem                    # everything
python -m benchmarks.mwem round ranges       # some of it
Sections: round factored ranges rho contingency nltcs cuboids rounds figure5
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.harness import Figure, data_folder, in_fresh_process, show
from dualquery.beliefs.factored import Factored
from dualquery.beliefs.multiplicative_weights import ONCE, MultiplicativeWeights
from dualquery.counting import MemoryCounter
from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.mechanisms.mechanism import AnyMechanism, Task
from dualquery.mechanisms.mwem import MWEM, automatic_rounds, parameters_of
from dualquery.mechanisms.rounds import AskedQueries, QuestionKind, asked_of, replies
from dualquery.mechanisms.wishes import MwemWishes
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.families import from_spec, marginals, parities
from dualquery.queries.random_families import random_literals
from dualquery.queries.workload import Workload
from dualquery.randomness import SystemEntropy
from dualquery.table.domain import Domain, Items
from dualquery.table.records import Records
from dualquery.types import silent
from experiments.biased import biased_records
from experiments.data import Data
from experiments.mwem_runs import (
    RangeCase,
    cell_counts,
    clipped_laplace,
    cuboid_errors,
    cuboids,
    hadamard_joint,
    joint,
    learned,
    paid,
    range_case,
    relative_entropy,
    uniform,
)
from experiments.processes import peak_bytes
from experiments.runs import errors_of, run_of

FEW, MANY = 5, 20  # runs


def data() -> Data:
    return Data(data_folder())


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


# Time


def one_round(width: int) -> tuple[float, float, float]:
    """Seconds of a round, of reading and writing the array, and peak memory of the rounds in arrays."""
    rng = np.random.default_rng(1)
    records = Records.from_rows(Domain((Items("x", width),)), rng.random((10_000, width)) < rng.random(width))
    parities_of = asked_of(marginals(records.domain, 3), QuestionKind.PARITIES, records.rows)
    assert isinstance(parities_of, AskedQueries)
    task = Task(parities_of.workload, records.rows, paid(1.0))
    chosen = parameters_of(task, MwemWishes(rounds=60))
    before = peak_bytes("self")
    counter = MemoryCounter(records)
    counter.true_counts(task.workload, kept=True)
    curator = Curator(counter, Ledger(task.budget), SystemEntropy())
    start = Factored.explicit(records.domain)
    belief = MultiplicativeWeights(start, schedule=ONCE, floor=1e-5)
    game = replies(chosen, belief, curator, silent)
    array = np.ones(1 << width)
    rounds, passes = [], []
    for _ in range(60):
        started = time.perf_counter()
        next(game)
        rounds.append(time.perf_counter() - started)
        started = time.perf_counter()
        np.multiply(array, 1.0000001, out=array)
        passes.append(time.perf_counter() - started)
    grown = peak_bytes("self") - before
    # One array is the benchmark's own; a quarter of the rounds warm up; the least time is the least disturbed.
    memory = grown / (8 << width) - 1
    return min(rounds[15:]), min(passes[15:]), memory


def bench_round() -> list[Figure]:
    figures = []
    for width in (20, 24):
        (round_seconds, pass_seconds, memory), _ = in_fresh_process(one_round, width)
        what = f"2^{width} cells, all 3-way marginals: one round"
        figures.append(Figure(f"{what}, against one pass", round_seconds / pass_seconds, 5, "×"))
        figures.append(Figure(f"{what}, milliseconds", 1e3 * round_seconds))
        if width == 24:
            figures.append(Figure(f"{what}, memory in arrays", memory, 3, "×"))
    return figures


def bench_factored() -> list[Figure]:
    def seconds(records: Records, workload: Workload, **options: Any) -> float:
        started = time.perf_counter()
        learned(records, workload, 1.0, 0, **options)
        return time.perf_counter() - started

    narrow, wide = data().binary_adult(), data().binary_adult(more=50)
    small = parities(narrow.domain, 3)
    seconds(narrow, small, rounds=2)  # compiles
    rounds = automatic_rounds(Task(small, narrow.rows, paid(1.0)))
    first = seconds(narrow, small, rounds=rounds)
    second = seconds(wide, parities(wide.domain, 3), rounds=rounds)
    thousand = biased_records(1000, 10_000, 3)
    pairs = from_spec(thousand.domain, "parities:1 + random:2:50000")
    third = seconds(thousand, pairs)
    return [
        Figure(f"binarised Adult, 27 attributes, {rounds} rounds", first, 80, " s"),
        Figure("the same with 50 more attributes, 76,153 queries", second, None, " s"),
        Figure("ratio", second / first, 1.5, "×"),
        Figure("1,000 independent attributes, 51,000 queries, T by rule", third, 20, " s"),
    ]


# Accuracy


def ranges_of(name: str) -> RangeCase:
    return range_case(data(), name, queries=2000)


def range_error(name: str, epsilon: float, runs: int, delta: float = 0.0, **options: Any) -> float:
    case = ranges_of(name)
    return mean(
        case.squared_error(learned(case.records, case.workload, epsilon, seed, delta, **options))
        for seed in range(runs)
    )


def bench_ranges() -> list[Figure]:
    figures = []
    wanted = {
        "capital-loss": {0.0125: 3.0, 0.025: 1.5, 0.05: 1.1, 0.1: None},
        "recency × frequency": {0.1: 2.5, 0.2: None},
        "age × hours": {0.0125: 1.0, 0.025: None, 0.05: None},
    }
    for name, targets in wanted.items():
        case = ranges_of(name)
        for epsilon, factor in targets.items():
            error = range_error(name, epsilon, MANY)
            what = f"{name}, ε = {epsilon:g}"
            figures.append(
                Figure(f"{what}: SVD bound / error", case.bound / epsilon**2 / error, factor, "×", True)
            )
            required = 1.0 if name == "recency × frequency" else None
            figures.append(
                Figure(f"{what}: uniform guess / error", case.uniform_guess / error, required, "×", True)
            )
    return figures


def bench_rho() -> list[Figure]:
    return [
        Figure(
            f"{name}, ε = {epsilon:g}: squared error, pure / ρ at δ = 1e-6",
            range_error(name, epsilon, MANY) / range_error(name, epsilon, MANY, delta=1e-6),
            1.5,
            "×",
            True,
        )
        for name in ("capital-loss", "age × hours")
        for epsilon in (0.025, 0.05, 0.1)
    ]


def entropies(records: Records, epsilon: float, runs: int, runs_hadamard: int) -> tuple[float, float]:
    workload = marginals(records.domain, 3)
    ours = mean(
        relative_entropy(records, joint(learned(records, workload, epsilon, seed))) for seed in range(runs)
    )
    theirs = mean(
        relative_entropy(records, hadamard_joint(records, workload, epsilon, seed))
        for seed in range(runs_hadamard)
    )
    return ours, theirs


def bench_contingency() -> list[Figure]:
    seen = {"rochdale.csv": {0.1: 1.26, 0.3: 0.76, 0.5: 0.61}}
    figures = []
    for file in ("mildew.csv", "rochdale.csv", "czech_autoworkers.csv"):
        records = data().contingency(file)
        for epsilon in (0.1, 0.3, 0.5, 0.7):
            ours, theirs = entropies(records, epsilon, 2 * MANY, MANY)
            name = f"{file.split('_')[0].removesuffix('.csv')}, ε = {epsilon:g}"
            figures.append(Figure(f"{name}: relative entropy", ours, seen.get(file, {}).get(epsilon)))
            figures.append(Figure(f"{name}: Hadamard / ours", theirs / ours, 1.0, "×", True))
    return figures


def bench_nltcs() -> list[Figure]:
    records = data().records("nltcs")
    figures = []
    for epsilon in (0.05, 0.1, 0.2, 0.5, 1.0):
        ours, theirs = entropies(records, epsilon, FEW, FEW)
        required = 2.0 if epsilon <= 0.2 else 1.0
        figures.append(
            Figure(f"nltcs, ε = {epsilon:g}: relative entropy", ours, 1.03 if epsilon == 0.1 else None)
        )
        figures.append(Figure(f"nltcs, ε = {epsilon:g}: Hadamard / ours", theirs / ours, required, "×", True))
    cells = learned(records, marginals(records.domain, 3), 0.1, 0, measured="queries")
    figures.append(Figure("nltcs, ε = 0.1: measuring single cells", relative_entropy(records, joint(cells))))
    return figures


def bench_cuboids() -> list[Figure]:
    records = data().adult_cube()
    workload, truth = cuboids(records.domain), cell_counts(records)
    figures = []
    for epsilon, seen in ((0.1, 37.5), (1.0, 10.7)):
        started = time.perf_counter()
        errors = [
            mean(cuboid_errors(records.rows * joint(learned(records, workload, epsilon, seed)) - truth))
            for seed in range(FEW)
        ]
        laplace = mean(clipped_laplace(truth, 2**truth.ndim / epsilon))
        name = f"cuboids of Adult, ε = {epsilon:g}"
        figures.append(Figure(f"{name}: mean error of a cell", mean(errors), seen))
        figures.append(Figure(f"{name}: clipped Laplace / ours", laplace / mean(errors), 4.0, "×", True))
        figures.append(Figure(f"{name}: seconds a run", (time.perf_counter() - started) / FEW))
    return figures


def bench_rounds() -> list[Figure]:
    """The automatic T beside multiples of it: how much worse than the best of them."""
    settings: list[tuple[str, Callable[[int | None], float], int]] = []
    for name, epsilons in (
        ("capital-loss", (0.0125, 0.05)),
        ("age × hours", (0.0125, 0.05)),
        ("recency × frequency", (0.1, 0.2)),
    ):
        for epsilon in epsilons:
            for delta in (0.0, 1e-6):
                case = ranges_of(name)
                task = Task(case.workload, case.records.rows, paid(epsilon, delta))

                def error(t: int | None, n: str = name, e: float = epsilon, d: float = delta) -> float:
                    return math.sqrt(range_error(n, e, MANY, d, rounds=t))

                label = f"{name}, ε = {epsilon:g}{', ρ' if delta else ''}"
                settings.append((label, error, automatic_rounds(task)))
    for file in ("mildew.csv", "rochdale.csv", "czech_autoworkers.csv"):
        for epsilon in (0.1, 0.3, 0.7):
            table = data().contingency(file)
            tables = marginals(table.domain, 3)
            task = Task(tables, table.rows, paid(epsilon))

            def entropy(t: int | None, r: Records = table, w: Workload = tables, e: float = epsilon) -> float:
                return mean(
                    relative_entropy(r, joint(learned(r, w, e, seed, rounds=t))) for seed in range(2 * MANY)
                )

            settings.append((f"{file}, ε = {epsilon:g}", entropy, automatic_rounds(task)))
    figures, ratios = [], []
    for label, error_of, automatic in settings:
        tried = sorted({max(1, round(automatic * factor)) for factor in (0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8)})
        errors = {rounds: error_of(rounds) for rounds in tried}
        ratios.append(errors[automatic] / min(errors.values()))
        best = min(errors, key=lambda rounds: errors[rounds])
        figures.append(
            Figure(f"{label}: error at T = {automatic} / at the best, {best}", ratios[-1], None, "×")
        )
    within = mean(ratio <= 1.3 for ratio in ratios)
    figures.append(Figure("share of settings within 1.3× of the best T", within, 0.85, "", True))
    figures.append(Figure("worst of all settings", max(ratios), 1.6, "×"))
    return figures


def bench_figure5() -> list[Figure]:
    records = data().binary_adult(17)
    workload = random_literals(records.domain, 3, 10_000, 0)
    truth = workload.fractions(records)

    def error(mechanism: AnyMechanism, epsilon: float, seed: int, **options: Any) -> float:
        run = run_of(mechanism, records, workload, paid(epsilon), seed, **options)
        return errors_of(workload.fractions(run.records), truth).mean

    figures = []
    for epsilon in (1.0, 2.0, 3.0, 4.0, 5.0):
        ours = mean(error(MWEM, epsilon, seed) for seed in range(FEW))
        theirs = mean(error(DUAL_QUERY, epsilon, seed) for seed in range(FEW))
        figures.append(Figure(f"ε = {epsilon:g}: MWEM, mean error", ours, 0.009 if epsilon == 1 else None))
        figures.append(Figure(f"ε = {epsilon:g}: DualQuery, mean error", theirs))
        figures.append(Figure(f"ε = {epsilon:g}: DualQuery / MWEM", theirs / ours, 2.0, "×", True))
    literal = mean(error(MWEM, 1.0, seed, updates="figure-1", rounds=15) for seed in range(FEW))
    guess = errors_of(uniform(records.domain).answers(workload), truth)
    figures.append(Figure("ε = 1: Figure 1 to the letter, T = 15, mean error", literal))
    figures.append(Figure("the uniform guess", guess.mean))
    return figures


SECTIONS: dict[str, Callable[[], list[Figure]]] = {
    "round": bench_round,
    "factored": bench_factored,
    "ranges": bench_ranges,
    "rho": bench_rho,
    "contingency": bench_contingency,
    "nltcs": bench_nltcs,
    "cuboids": bench_cuboids,
    "rounds": bench_rounds,
    "figure5": bench_figure5,
}


def main() -> None:
    for name in sys.argv[1:] or SECTIONS:
        show(f"mwem, {name}", SECTIONS[name]())


if __name__ == "__main__":
    main()
