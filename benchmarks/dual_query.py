"""DualQuery: time of a round, accuracy on Adult, the paper's runs on KDD99, Kosarak and biased data.

python -m benchmarks.dual_query                 # everything
python -m benchmarks.dual_query round adult     # some of it: round adult kdd99 kosarak biased linear
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import (
    RESULTS,
    Figure,
    in_fresh_process,
    records_of,
    schema_path,
    show,
    table_path,
)
from dualquery.counting import MemoryCounter
from dualquery.game import BestResponseDataPlayer, Challenge, Record, Transcript
from dualquery.game.query_players import LearningQueryPlayer
from dualquery.mechanisms.dual_query import DUAL_QUERY, search_oracle, uniform
from dualquery.mechanisms.dual_query.parameters import rate_of
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.group import literal_truth
from dualquery.queries.random_families import random_literals
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.records import Records, pack_bits
from experiments.biased import biased_records
from experiments.runs import ENOUGH, answers_of, budget_of, errors_of, run_of


def errors_of_run(
    records: Records, workload: Workload, pays: Budget, options: Mapping[str, Any], seed: int
) -> tuple[float, float, dict[str, Any]]:
    """Mean and max error over the workload of one release, and the parameters."""
    run = run_of(DUAL_QUERY, records, workload, pays, seed, **options)
    errors = errors_of(answers_of(run.outcome, workload), workload.fractions(records))
    return errors.mean, errors.max, dict(run.parameters)


def one_round() -> None:
    """A round over 2 million queries beside np.exp and np.cumsum over as many floats as there are weights."""
    records = records_of("kddcup99")
    workload = random_literals(records.domain, 3, 2_000_000)
    curator = Curator(MemoryCounter(records), Ledger(budget_of(ENOUGH, 1e-3)), SeededEntropy(0))
    rng = np.random.default_rng(0)
    query_player = LearningQueryPlayer(
        curator,
        workload,
        rate=rate_of(1.2, 170, records.rows),
        samples=1750,
        public_rows=records.rows,
        recall=1,
    )
    data_player = BestResponseDataPlayer(search_oracle(workload), uniform(records.domain), rng)
    transcript: Transcript[Challenge, Record] = Transcript()
    floats = rng.random(4_000_000)
    challenge_seconds, reply_seconds, limit_seconds = [], [], []
    for _ in range(25):
        started = time.perf_counter()
        challenge = query_player.challenge(transcript)
        between = time.perf_counter()
        reply = data_player.reply(transcript, challenge)
        challenge_seconds.append(between - started)
        after = time.perf_counter()
        np.cumsum(np.exp(floats))
        reply_seconds.append(after - between)
        limit_seconds.append(time.perf_counter() - after)
        transcript = transcript.append(challenge, reply)
    limit = float(np.median(limit_seconds[5:]))
    ours = float(np.median(challenge_seconds[5:]) + np.median(reply_seconds[5:]))
    show(
        "One DualQuery round, 2 million queries, 4 million weights, 1750 samples",
        [
            Figure("update, weights and draws", 1e3 * float(np.median(challenge_seconds[5:])), unit=" ms"),
            Figure("best response", 1e3 * float(np.median(reply_seconds[5:])), unit=" ms"),
            Figure("np.exp and np.cumsum of 4 million floats", 1e3 * limit, unit=" ms"),
            Figure("round over that", ours / limit, 3, "×"),
        ],
    )


def adult() -> None:
    """Three ways to spend epsilon = 1, delta = 10⁻³ on Adult, and the whole command by the clock."""
    records = records_of("adult")
    workload = random_literals(records.domain, 3, 500_000)
    paper = {"learning_rate": 2.0, "samples": 1000, "free": "zeros"}
    figures = []
    for what, accounting, options, required in (
        ("Theorem 4.3, the paper's η = 2, s = 1000", Accounting.THEOREM_4_3, paper, (None, None)),
        ("ρ, the paper's η = 2, s = 1000", Accounting.ZCDP, paper, (None, None)),
        ("ρ, parameters by the program", Accounting.ZCDP, {}, (0.007, 0.10)),
    ):
        runs = [
            errors_of_run(records, workload, budget_of(1, 1e-3, accounting), options, seed)
            for seed in range(5)
        ]
        chosen = runs[0][2]
        what += f" (η = {chosen['learning_rate']:.3g}, s = {chosen['samples']}, T = {chosen['rounds']})"
        figures.append(Figure(f"mean error: {what}", float(np.mean([r[0] for r in runs])), required[0]))
        figures.append(Figure(f"max error: {what}", float(np.mean([r[1] for r in runs])), required[1]))
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dualquery", "release", str(table_path("adult"))]
        command += ["--schema", str(schema_path("adult")), "--queries", "random-literals:3:500000"]
        command += ["--epsilon", "1", "--delta", "1e-3", "--mechanism", "dualquery", "--quiet"]
        command += ["--out", str(Path(folder) / "release")]
        started = time.perf_counter()
        subprocess.run(command, check=True)
        figures.append(Figure("the whole command", time.perf_counter() - started, 15, " s"))
    show("Adult, 500,000 random 3-way queries, ε = 1, δ = 10⁻³, mean of 5 runs", figures)


def plain_numpy_counting(records: Records, group: Conjunctions, *, packed: bool) -> float:
    """Seconds to count all queries in numpy, timed on a few: boolean columns, or the same packed into words."""
    columns = []
    for predicate in range(len(group.predicates)):
        codes = records.columns[int(group.predicates.attribute[predicate])]
        assert isinstance(codes, np.ndarray)
        holds = np.isin(codes, group.predicates.accepted(predicate))
        for column in (holds, ~holds):
            columns.append(pack_bits(column[None])[0] if packed else column)
    timed = group.literals[:2000].tolist()
    started = time.perf_counter()
    for a, b, c in timed:
        joint = columns[a] & columns[b] & columns[c]
        np.bitwise_count(joint).sum() if packed else np.count_nonzero(joint)
    return (time.perf_counter() - started) * group.size / len(timed)


def plain_numpy_rounds(
    records: Records, group: Conjunctions, rounds: int, samples: int, rate: float
) -> float:
    """Seconds for the rounds with float weights in numpy, timed on three. The oracle is the same."""
    rng = np.random.default_rng(0)
    payoff = np.zeros(group.size)
    truth = rng.random(group.size)
    record = np.zeros(records.domain.width, np.int32)
    oracle = search_oracle(Workload(records.domain, (group,), "plain"))
    started = time.perf_counter()
    for _ in range(3):
        weights = np.exp(rate * np.concatenate([payoff, -payoff]))
        drawn = rng.choice(len(weights), samples, p=weights / weights.sum())
        queries, inverse = np.unique(drawn % group.size, return_inverse=True)
        challenge = Challenge(
            queries, np.bincount(inverse, np.where(drawn < group.size, 1, -1)).astype(np.int64)
        )
        record = oracle(challenge, record, rng)
        holds = literal_truth(group.predicates, record)
        payoff += truth - holds[group.literals].prod(axis=1)
    return (time.perf_counter() - started) / 3 * rounds


def kdd99() -> None:
    """The paper's Figure 3 at its right end: 2 million queries, η = 1.2, T = 170, s = 1750."""
    records = records_of("kddcup99")
    workload = random_literals(records.domain, 3, 2_000_000)
    run = run_of(
        DUAL_QUERY,
        records,
        workload,
        budget_of(1, 1e-3),
        0,
        learning_rate=1.2,
        samples=1750,
        rounds=170,
        recall=1,
    )
    group = workload.groups[0]
    assert isinstance(group, Conjunctions)
    error = np.abs(workload.fractions(records) - workload.fractions(run.records))
    plain_counting = plain_numpy_counting(records, group, packed=False)
    plain_rounds = plain_numpy_rounds(records, group, 170, 1750, 1.2)
    plain = plain_counting + plain_rounds
    packed = plain_numpy_counting(records, group, packed=True) + plain_rounds
    show(
        "KDD99, 2 million queries, η = 1.2, T = 170, s = 1750",
        [
            Figure("mean error", float(error.mean()), 0.01),
            Figure("max error", float(error.max())),
            Figure("ε spent by ρ accounting at δ = 10⁻³", run.spent.epsilon),
            Figure("counting and 170 rounds", run.seconds, unit=" s"),
            Figure("the same in plain numpy (each part timed on a share)", plain, unit=" s"),
            Figure("of that counting, by boolean columns", plain_counting, unit=" s"),
            Figure("speed-up", plain / run.seconds, 10, "×", at_least=True),
            Figure("speed-up over numpy with packed bits", packed / run.seconds, unit="×"),
        ],
    )


def kosarak_run() -> tuple[float, float, float]:
    started = time.perf_counter()
    records = records_of("kosarak")
    workload = random_literals(records.domain, 3, 500_000)
    mean, most, _ = errors_of_run(records, workload, budget_of(1, 1e-6), {}, 0)
    return mean, most, time.perf_counter() - started


def kosarak() -> None:
    """23,496 items, sparse."""
    (mean, most, seconds), peak = in_fresh_process(kosarak_run)
    show(
        "Kosarak, 23,496 items, 500,000 random 3-way queries, ε = 1, δ = 10⁻⁶",
        [
            Figure("reading, counting, release and evaluation", seconds, 120, " s"),
            Figure("peak memory", peak, 2, " GB"),
            Figure("mean error", mean),
            Figure("max error", most),
        ],
    )


def biased_run(width: int, seed: int) -> tuple[float, float, float, dict[str, Any]]:
    records = biased_records(width, 100_000, seed)
    workload = random_literals(records.domain, 3, 100_000, seed)
    started = time.perf_counter()
    mean, most, chosen = errors_of_run(records, workload, budget_of(1, 1e-3), {}, seed)
    return mean, most, time.perf_counter() - started, chosen


def biased(widths: tuple[int, ...] = (50, 500, 2000, 8000, 64_000, 512_000), seeds: int = 1) -> None:
    """The paper's Figure 4: a bias per attribute, 100,000 records and queries."""
    figures = []
    for width in widths:
        runs = [in_fresh_process(biased_run, width, seed) for seed in range(seeds)]
        chosen = runs[0][0][3]
        setting = f"η = {chosen['learning_rate']:.3g}, s = {chosen['samples']}, T = {chosen['rounds']}"
        mean = float(np.mean([run[0][0] for run in runs]))
        figures.append(Figure(f"d = {width:,}: mean error ({setting}, free {chosen['free']})", mean, 0.09))
        largest = width == 512_000
        seconds = float(np.mean([run[0][2] for run in runs]))
        figures.append(
            Figure(
                f"d = {width:,}: plan, counting, rounds, evaluation", seconds, 90 if largest else None, " s"
            )
        )
        figures.append(
            Figure(f"d = {width:,}: peak memory", max(run[1] for run in runs), 8 if largest else None, " GB")
        )
    show("Biased data, n = 100,000, 100,000 queries, ε = 1, δ = 10⁻³", figures)


def linear() -> None:
    """Time against queries, rounds and records: linear, linear, constant after counting. Drawn as a picture."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    records = records_of("adult")

    def seconds(queries: int, rounds: int, copies: int) -> float:
        repeated = Records(
            records.domain, records.rows * copies, tuple(np.tile(c, copies) for c in records.columns)
        )
        workload = random_literals(records.domain, 3, queries)
        given = {"learning_rate": 1.0, "samples": 100, "rounds": rounds, "recall": 1}
        pays = budget_of(ENOUGH, 1e-3)
        return run_of(DUAL_QUERY, repeated, workload, pays, 0, count_first=True, **given).seconds

    seconds(1000, 5, 1)
    axes = {
        "queries": ([250_000, 500_000, 1_000_000, 2_000_000, 4_000_000], lambda x: seconds(x, 40, 1)),
        "rounds": ([20, 40, 80, 160], lambda x: seconds(500_000, x, 1)),
        "records (after counting)": (
            [30_162 * c for c in (1, 4, 16)],
            lambda x: seconds(500_000, 40, x // 30_162),
        ),
    }
    picture, panels = pyplot.subplots(1, 3, figsize=(12, 3.5))
    figures = []
    for panel, (name, (values, measure)) in zip(panels, axes.items(), strict=True):
        times = [min(measure(x) for _ in range(2)) for x in values]
        slope = float(np.polyfit(np.log(values), np.log(times), 1)[0])
        panel.plot(values, times, "o-")
        panel.set(
            xlabel=name, ylabel="seconds", ylim=(0, None), title=f"growth ∝ {name.split()[0]}^{slope:.2f}"
        )
        figures.append(Figure(f"exponent of growth in {name}", slope, 0.15 if "counting" in name else 1.15))
    picture.tight_layout()
    RESULTS.mkdir(exist_ok=True)
    picture.savefig(RESULTS / "dual_query_cost.svg")
    show(f"Cost of the game (picture: {RESULTS.name}/dual_query_cost.svg)", figures)


CASES = {
    "round": one_round,
    "adult": adult,
    "kdd99": kdd99,
    "kosarak": kosarak,
    "biased": biased,
    "linear": linear,
}


def main() -> None:
    for name in sys.argv[1:] or CASES:
        CASES[name]()


if __name__ == "__main__":
    main()
