"""Algorithm 2's own T, η and s beside the practical ones, and what Theorem 4.6 promises for them."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from matplotlib.figure import Figure

from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.mechanisms.dual_query.parameters import Learning
from dualquery.privacy.budget import Accounting
from experiments import drawing
from experiments.data import Data
from experiments.drawing import BLACK, GREY, Look, dots, legend_below, name_lines
from experiments.dualquery_figure_2 import DELTA, PAPERS_RATE, SAMPLES, TITLES
from experiments.harness import Experiment, Point, Rows, Setting, Value, main, mean_by, where
from experiments.runs import (
    ADD_REMOVE,
    Asked,
    answers_of,
    asked_at_random,
    budget_of,
    dual_query_epsilons,
    errors_of,
    papers_rounds,
    run_of,
)
from experiments.spread import samples_by

BETA = 0.05
OWN, PRACTICAL = "Algorithm 2", "the paper's practice"
LOOKS = {OWN: Look(BLACK, "X", "-."), PRACTICAL: drawing.PAPERS_DUAL_QUERY}
BOUND = Look(BLACK, "*", "--")


def algorithm_2(asked: Asked, alpha: float) -> Learning:
    """T = 16 ln|Q| / α², η = α/4, s = 48 ln(2|X|T/β) / α², the queries with their negations."""
    rounds = max(2, math.ceil(16 * math.log(2 * asked.workload.size) / alpha**2))
    universe = asked.records.domain.log2_size * math.log(2)
    samples = math.ceil(48 * (universe + math.log(2 * rounds / BETA)) / alpha**2)
    return Learning(alpha / 4, samples, rounds)


def cost(learning: Learning, rows: int) -> float:
    """ε by Theorem 4.3 as printed."""
    return dual_query_epsilons(**learning._asdict(), rows=rows, delta=DELTA)[Accounting.THEOREM_4_3]


def smallest_alpha(asked: Asked, epsilon: float) -> float:
    """The error that Theorem 4.6 promises for a budget: the least α whose parameters it pays for.

    Above 1 nothing is promised, and the formula alone goes on.
    """
    low, high = 1e-3, 1e3
    for _ in range(100):
        middle = math.sqrt(low * high)
        paid = cost(algorithm_2(asked, middle), asked.records.rows) <= epsilon
        low, high = (low, middle) if paid else (middle, high)
    return high


def measure(data: Data, name: str, method: str, epsilon: float, queries: int, seed: int) -> dict[str, Value]:
    asked = asked_at_random(data, name, queries)
    if method == OWN:
        alpha: Value = smallest_alpha(asked, epsilon)
        options: dict[str, Any] = algorithm_2(asked, float(alpha))._asdict()
    else:
        alpha = ""
        options = {"learning_rate": PAPERS_RATE, "samples": SAMPLES[name]}
        options["rounds"] = papers_rounds(asked.records, asked.workload, epsilon, DELTA, **options)
    pays = budget_of(epsilon, DELTA, Accounting.THEOREM_4_3, ADD_REMOVE)
    run = run_of(DUAL_QUERY, asked.records, asked.workload, pays, seed, **options, recall=1, free="zeros")
    errors = errors_of(answers_of(run.outcome, asked.workload), asked.truth)
    return {**options, "promised": alpha, "max_error": errors.max, "mean_error": errors.mean}


def points(setting: Setting) -> list[Point]:
    names = setting.choose(toy=("adult",), quick=("adult",), full=("adult", "kddcup99"))
    epsilons = setting.choose(toy=(50.0,), quick=(1.0, 5.0), full=(0.25, 1.0, 5.0))
    queries = setting.choose(toy=500, quick=50_000, full=500_000)
    return [
        Point(
            {
                "data": name,
                "method": method,
                "epsilon": epsilon,
                "queries": queries,
                "neighbours": ADD_REMOVE.value,
                "run": seed,
            },
            partial(measure, setting.data, name, method, epsilon, queries, seed),
            cost=4 if name == "kddcup99" else 1,
        )
        for name in names
        for method in LOOKS
        for epsilon in (epsilons if name == "adult" else (1.0,))
        for seed in setting.seeds(full=5 if method == PRACTICAL else 3)
    ]


def draw(rows: Rows) -> Figure:
    cases = list(dict.fromkeys((row["data"], row["epsilon"]) for row in rows))
    picture = Figure(figsize=(8, 0.45 * len(cases) + 1.2), layout="constrained")
    panel = picture.subplots()
    lines = range(len(cases))
    for method, look in LOOKS.items():
        runs = [where(rows, data=name, epsilon=epsilon, method=method) for name, epsilon in cases]
        dots(panel, lines, runs, "max_error", look, f"max error, {method}")
    promises = [where(rows, data=name, epsilon=epsilon, method=OWN) for name, epsilon in cases]
    dots(panel, lines, promises, "promised", BOUND, "α of Theorem 4.6")
    panel.axvline(1, color=GREY, lw=0.8)
    name_lines(panel, [f"{TITLES[name]}, ε = {epsilon:g}" for name, epsilon in cases])
    panel.set(xscale="log", xlabel="error, δ = 0.001 (to the right of 1 nothing is promised)")
    legend_below(picture, panel, 3)
    return picture


def find(rows: Rows) -> str:
    lines = [
        f"{rows[0]['queries']:,} queries, β = {BETA:g}, Theorem 4.3 as printed. Algorithm 2 has T = 16 ln|Q|/α², "
        "η = α/4 and s = 48 ln(2|X|T/β)/α²; α is the least that ε pays for, and Theorem 4.6's promise.",
        "",
    ]
    most = samples_by(rows, ("data", "method", "epsilon"), "max_error")
    chosen = {name: mean_by(rows, ("data", "method", "epsilon"), name) for name in Learning._fields}
    promised = mean_by(rows, ("data", "method", "epsilon"), "promised")
    for name, epsilon in dict.fromkeys((row["data"], row["epsilon"]) for row in rows):

        def told(method: str, name: str = name, epsilon: float = epsilon) -> str:
            rate, samples, rounds = (chosen[field][name, method, epsilon] for field in Learning._fields)
            return (
                f"T = {rounds:,.0f}, η = {rate:.3g}, s = {samples:,.0f}, max error "
                f"{most[name, method, epsilon]:.3f}"
            )

        alpha = promised[name, OWN, epsilon]
        says = "which promises nothing" if alpha >= 1 else "the promise"
        lines.append(
            f"- {TITLES[name]}, ε = {epsilon:g}: {OWN} has α = {alpha:.2f}, {says}: {told(OWN)}; "
            f"{PRACTICAL} has {told(PRACTICAL)}."
        )
    return "\n".join(lines)


EXPERIMENT = Experiment(
    name="dualquery_theory",
    title="DualQuery, Algorithm 2: its own T, η and s, and the bound of Theorem 4.6",
    paper="'Rather than set the parameters as in Algorithm 2, we experiment with a range of parameters … the "
    "accuracy guarantee (Theorem 4.6) need not hold for our parameters. However, we find that our algorithm gives "
    "good error, often much better than predicted' (section 7).",
    points=points,
    draw=draw,
    find=find,
    by=("data", "method", "epsilon"),
    shown=("promised", "learning_rate", "samples", "rounds", "max_error", "mean_error"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
