"""MWEM: time of a round, the factored form, and accuracy beside the SVD bound, Hadamard and Laplace.

python -m benchmarks.mwem                    # everything
python -m benchmarks.mwem round ranges       # some of it
Sections: round factored ranges rho contingency nltcs cuboids rounds figure5
"""

from __future__ import annotations

import csv
import gzip
import math
import resource
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from benchmarks.biased import biased_records
from benchmarks.harness import Figure, data_folder, in_fresh_process, records_of, show
from dualquery.distributions.factored import Evaluation, Factored
from dualquery.distributions.products import Products
from dualquery.game.histogram_players import BestResponseQueryPlayer
from dualquery.game.learner import ONCE, LearningDataPlayer
from dualquery.game.moves import Transcript
from dualquery.mechanisms.baselines import hadamard
from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.mechanisms.measured import Measured, measured_workload
from dualquery.mechanisms.mwem import MWEM, Settings, automatic_rounds, mwem
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Shape, silent
from dualquery.mechanisms.svd_bound import svd_bound
from dualquery.privacy.accounting import Ledger
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.query_selection import ChoosingCurator
from dualquery.queries.counting import true_counts
from dualquery.queries.families import from_spec, marginals, parities, random_conjunctions, ranges
from dualquery.queries.query import Tables
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy, SystemEntropy
from dualquery.table.domain import Categorical, Domain, Items, Numeric
from dualquery.table.records import Records

FEW, MANY = 5, 20  # runs


# Runs


def budget_of(epsilon: float, delta: float = 0.0) -> Budget:
    accounting = Accounting.ZCDP if delta else Accounting.PURE
    return Budget(epsilon=epsilon, delta=delta, neighbours=Neighbours.ADD_REMOVE, accounting=accounting)


def learned(
    records: Records, workload: Workload, epsilon: float, seed: int, delta: float = 0.0, **options: Any
) -> Factored:
    """The distribution that MWEM ends with."""
    shape = Shape(workload=workload, rows=records.rows, budget=budget_of(epsilon, delta))
    settings = Settings.of(shape, Options(**options))
    curator = ChoosingCurator(records, settings.workload, Ledger(shape.budget), SeededEntropy(seed))
    distribution = Factored(shape.domain, part_cells=settings.part_cells)
    return mwem(curator, distribution, settings, public_rows=records.rows, watch=silent)


def outcome_of(
    mechanism: Mechanism, records: Records, workload: Workload, epsilon: float, seed: int, **options: Any
) -> Outcome:
    """A whole run of a mechanism, as a release makes it."""
    shape = Shape(workload=workload, rows=records.rows, budget=budget_of(epsilon))
    plan = mechanism.checked_plan(shape, Options(**options))
    entropy = SeededEntropy(seed)
    curator = Curator(records, workload, Ledger(shape.budget), entropy)
    return mechanism.run(plan, shape, curator, entropy.public_generator(), silent)


def fractions(workload: Workload, records: Records) -> np.ndarray:
    return np.concatenate([true_counts(group, records) for group in workload.groups]) / records.rows


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


# Data


def lines_of(name: str) -> list[list[str]]:
    path = data_folder() / name
    with gzip.open(path, "rt") if name.endswith("gz") else open(path) as file:
        return list(csv.reader(file))


def integers(name: str, low: int, high: int) -> Numeric:
    return Numeric(name, tuple(float(x) for x in range(low, high + 2)), integer=True)


def numbers(file: str, columns: dict[str, tuple[int, int]]) -> Records:
    """Some integer columns, every integer between public limits a value of its own; rows with ? left out."""
    header, *rows = lines_of(file)
    places = [header.index(name) for name in columns]
    codes = [[int(row[place]) for place in places] for row in rows if "?" not in row]
    domain = Domain(tuple(integers(name, *limits) for name, limits in columns.items()))
    return Records.from_rows(domain, np.array(codes) - [low for low, _ in columns.values()])


def contingency(file: str) -> Records:
    """A table of counts over binary attributes as records."""
    header, *rows = lines_of(file)
    width = len(header) - 1
    levels = [sorted({row[j] for row in rows}) for j in range(width)]
    codes = [[levels[j].index(row[j]) for j in range(width)] for row in rows]
    counts = [int(row[width]) for row in rows]
    return Records.from_rows(Domain((Items("x", width),)), np.repeat(np.array(codes), counts, axis=0))


def binary_adult(width: int = 27, more: int = 0) -> Records:
    """The paper's binarised Adult, its first attributes or with independent ones beside it."""
    _, *rows = lines_of("adult_mwem_binary.csv.gz")
    codes = np.array([[int(bit) for bit in pattern] for pattern, _ in rows])[:, :width]
    codes = np.repeat(codes, [int(count) for _, count in rows], axis=0)
    rng = np.random.default_rng(0)
    added = rng.random((len(codes), more)) < rng.random(more)
    return Records.from_rows(Domain((Items("x", width + more),)), np.hstack([codes, added]))


def categorical_adult() -> Records:
    names = [
        "workclass",
        "education",
        "marital-status",
        "occupation",
        "relationship",
        "race",
        "sex",
        "native-country",
    ]
    header, *rows = lines_of("adult.csv.gz")
    rows = [row for row in rows if "?" not in row]
    places = [header.index(name) for name in names]
    values = [tuple(sorted({row[place] for row in rows})) for place in places]
    codes = [[values[k].index(row[place]) for k, place in enumerate(places)] for row in rows]
    columns = tuple(Categorical(name, listed) for name, listed in zip(names, values, strict=True))
    return Records.from_rows(Domain(columns), np.array(codes))


# Time


def one_round(width: int) -> tuple[float, float, float]:
    """Seconds of a round, of reading and writing the array, and peak memory of the rounds in arrays."""
    rng = np.random.default_rng(1)
    records = Records.from_rows(Domain((Items("x", width),)), rng.random((10_000, width)) < rng.random(width))
    workload = measured_workload(marginals(records.domain, 3), Measured.PARITIES)
    shape = Shape(workload=workload, rows=records.rows, budget=budget_of(1.0))
    settings = Settings.of(shape, Options(rounds=60))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    curator = ChoosingCurator(records, workload, Ledger(shape.budget), SystemEntropy())
    curator.count()
    distribution = Factored.explicit(records.domain)
    hypothesis = Evaluation(Products.of(workload), distribution)
    query_player = BestResponseQueryPlayer(
        curator, hypothesis, prices=settings.prices, public_rows=records.rows
    )
    data_player = LearningDataPlayer(distribution, schedule=ONCE, floor=1e-5)
    array = np.ones(1 << width)
    rounds, passes = [], []
    for _ in range(60):
        started = time.perf_counter()
        data_player.reply(Transcript(), query_player.challenge(Transcript()))
        rounds.append(time.perf_counter() - started)
        started = time.perf_counter()
        np.multiply(array, 1.0000001, out=array)
        passes.append(time.perf_counter() - started)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    # One array is the benchmark's own; a quarter of the rounds warm up; the least time is the least disturbed.
    memory = grown * 1024 / (8 << width) - 1
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

    narrow, wide = binary_adult(), binary_adult(more=50)
    small = parities(narrow.domain, 3)
    seconds(narrow, small, rounds=2)  # compiles
    rounds = automatic_rounds(Shape(workload=small, rows=narrow.rows, budget=budget_of(1.0)))
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

RANGES: dict[str, tuple[str, dict[str, tuple[int, int]]]] = {
    "capital-loss": ("adult.csv.gz", {"capital-loss": (0, 4356)}),
    "age × hours": ("adult.csv.gz", {"age": (17, 90), "hours-per-week": (1, 99)}),
    "recency × frequency": (
        "blood_transfusion.csv.gz",
        {"recency_months": (0, 74), "frequency_times": (1, 50)},
    ),
}


@cache
def range_case(name: str) -> tuple[Records, Workload, np.ndarray, float]:
    """Records, 2,000 ranges, their fractions, and the SVD bound at ε = 1."""
    records = numbers(*RANGES[name])
    workload = ranges(records.domain, list(RANGES[name][1]), 2000, 7)
    return (
        records,
        workload,
        fractions(workload, records),
        svd_bound(workload, epsilon=1, delta=1 / records.rows),
    )


def squared_error(name: str, distribution: Factored) -> float:
    """Mean squared error of the ranges, in squared records."""
    records, workload, truth, _ = range_case(name)
    answers = Evaluation(Products.of(workload), distribution).answers()
    return float(np.mean((records.rows * (answers - truth)) ** 2))


def range_error(name: str, epsilon: float, runs: int, delta: float = 0.0, **options: Any) -> float:
    records, workload, _, _ = range_case(name)
    return mean(
        squared_error(name, learned(records, workload, epsilon, seed, delta, **options))
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
        records, _, _, bound = range_case(name)
        guess = squared_error(name, Factored(records.domain, part_cells=1))
        for epsilon, factor in targets.items():
            error = range_error(name, epsilon, MANY)
            what = f"{name}, ε = {epsilon:g}"
            figures.append(
                Figure(f"{what}: SVD bound / error", bound / epsilon**2 / error, factor, "×", True)
            )
            required = 1.0 if name == "recency × frequency" else None
            figures.append(Figure(f"{what}: uniform guess / error", guess / error, required, "×", True))
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


def joint(distribution: Factored) -> np.ndarray:
    return distribution.marginal(tuple(range(distribution.domain.width)))


def relative_entropy(records: Records, probabilities: np.ndarray) -> float:
    truth = np.zeros(records.domain.sizes)
    np.add.at(truth, tuple(records.to_rows().T.astype(int)), 1 / records.rows)
    seen = truth > 0
    return float((truth[seen] * np.log(truth[seen] / probabilities[seen])).sum())


def hadamard_entropy(records: Records, workload: Workload, epsilon: float, seed: int) -> float:
    shape = Shape(workload=workload, rows=records.rows, budget=budget_of(epsilon))
    curator = Curator(records, workload, Ledger(shape.budget), SeededEntropy(seed))
    return relative_entropy(records, joint(hadamard(curator, shape, silent)))


def entropies(records: Records, epsilon: float, runs: int, runs_hadamard: int) -> tuple[float, float]:
    workload = marginals(records.domain, 3)
    ours = mean(
        relative_entropy(records, joint(learned(records, workload, epsilon, seed))) for seed in range(runs)
    )
    theirs = mean(hadamard_entropy(records, workload, epsilon, seed) for seed in range(runs_hadamard))
    return ours, theirs


def bench_contingency() -> list[Figure]:
    seen = {"rochdale.csv": {0.1: 1.26, 0.3: 0.76, 0.5: 0.61}}
    figures = []
    for file in ("mildew.csv", "rochdale.csv", "czech_autoworkers.csv"):
        records = contingency(file)
        for epsilon in (0.1, 0.3, 0.5, 0.7):
            ours, theirs = entropies(records, epsilon, 2 * MANY, MANY)
            name = f"{file.split('_')[0].removesuffix('.csv')}, ε = {epsilon:g}"
            figures.append(Figure(f"{name}: relative entropy", ours, seen.get(file, {}).get(epsilon)))
            figures.append(Figure(f"{name}: Hadamard / ours", theirs / ours, 1.0, "×", True))
    return figures


def bench_nltcs() -> list[Figure]:
    records = records_of("nltcs")
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


def cuboid_errors(difference: np.ndarray) -> float:
    """The mean over all cuboids of the mean absolute error of a cell; marginals of a difference are differences."""
    means: list[float] = []

    def descend(table: np.ndarray, axis: int) -> None:
        means.append(float(np.abs(table).mean()))
        for dropped in range(axis, table.ndim):
            descend(table.sum(axis=dropped), dropped)

    descend(difference, 0)
    return mean(means)


def clipped_laplace(truth: np.ndarray, scale: float) -> float:
    """The same error where every cell of every cuboid gets Laplace noise, clipped at zero: its expectation.

    E|max(0, c + X) − c| = b (1 − e^(−c/b) / 2).
    """
    means: list[float] = []

    def descend(table: np.ndarray, axis: int) -> None:
        means.append(float((scale * (1 - np.exp(-table / scale) / 2)).mean()))
        for dropped in range(axis, table.ndim):
            descend(table.sum(axis=dropped), dropped)

    descend(truth, 0)
    return mean(means)


def bench_cuboids() -> list[Figure]:
    records = categorical_adult()
    domain, width = records.domain, records.domain.width
    sets = tuple(members for k in range(1, width + 1) for members in combinations(range(width), k))
    workload = Workload(domain, (Tables(domain, sets),), "all cuboids")
    truth = np.zeros(domain.sizes)
    np.add.at(truth, tuple(records.to_rows().T.astype(int)), 1.0)
    figures = []
    for epsilon, seen in ((0.1, 37.5), (1.0, 10.7)):
        started = time.perf_counter()
        errors = [
            cuboid_errors(records.rows * joint(learned(records, workload, epsilon, seed)) - truth)
            for seed in range(FEW)
        ]
        laplace = clipped_laplace(truth, 2**width / epsilon)
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
                records, workload, _, _ = range_case(name)
                shape = Shape(workload=workload, rows=records.rows, budget=budget_of(epsilon, delta))

                def error(t: int | None, n: str = name, e: float = epsilon, d: float = delta) -> float:
                    return math.sqrt(range_error(n, e, MANY, d, rounds=t))

                label = f"{name}, ε = {epsilon:g}{', ρ' if delta else ''}"
                settings.append((label, error, automatic_rounds(shape)))
    for file in ("mildew.csv", "rochdale.csv", "czech_autoworkers.csv"):
        for epsilon in (0.1, 0.3, 0.7):
            table = contingency(file)
            tables = marginals(table.domain, 3)
            shape = Shape(workload=tables, rows=table.rows, budget=budget_of(epsilon))

            def entropy(t: int | None, r: Records = table, w: Workload = tables, e: float = epsilon) -> float:
                return mean(
                    relative_entropy(r, joint(learned(r, w, e, seed, rounds=t))) for seed in range(2 * MANY)
                )

            settings.append((f"{file}, ε = {epsilon:g}", entropy, automatic_rounds(shape)))
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
    records = binary_adult(17)
    workload = random_conjunctions(records.domain, 3, 10_000, 0)
    truth = fractions(workload, records)

    def error(mechanism: Mechanism, epsilon: float, seed: int, **options: Any) -> float:
        outcome = outcome_of(mechanism, records, workload, epsilon, seed, **options)
        assert outcome.records is not None
        return float(np.abs(fractions(workload, outcome.records) - truth).mean())

    figures = []
    for epsilon in (1.0, 2.0, 3.0, 4.0, 5.0):
        ours = mean(error(MWEM, epsilon, seed) for seed in range(FEW))
        theirs = mean(error(DUAL_QUERY, epsilon, seed) for seed in range(FEW))
        figures.append(Figure(f"ε = {epsilon:g}: MWEM, mean error", ours, 0.009 if epsilon == 1 else None))
        figures.append(Figure(f"ε = {epsilon:g}: DualQuery, mean error", theirs))
        figures.append(Figure(f"ε = {epsilon:g}: DualQuery / MWEM", theirs / ours, 2.0, "×", True))
    literal = mean(
        error(MWEM, 1.0, seed, iterate="average", updates="once", rounds=15) for seed in range(FEW)
    )
    uniform = Evaluation(Products.of(workload), Factored(records.domain, part_cells=1)).answers()
    figures.append(Figure("ε = 1: Figure 1 to the letter, T = 15, mean error", literal))
    figures.append(Figure("the uniform guess", float(np.abs(uniform - truth).mean())))
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
        started = time.perf_counter()
        figures = SECTIONS[name]()
        show(f"mwem, {name} ({time.perf_counter() - started:.0f} s)", figures)


if __name__ == "__main__":
    main()
