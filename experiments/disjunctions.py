"""Disjunctions: parities by order, weights over signed monomials, projection, and independent noise."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.queries.families import attributes_of_disjunctions, disjunctions
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from experiments.data import Data
from experiments.drawing import legend_below, mean_and_max_dots
from experiments.harness import Experiment, Point, Rows, Setting, Size, Value, main, mean_by, where
from experiments.runs import answers_of, errors_of, run_of
from experiments.special_cases import (
    EPSILON,
    independent,
    options_of,
    popular_items,
    runs_of,
    special_budget,
    sweep,
    swept_words,
    unit_noise,
)

NOISE, BY_HAND = "independent noise", "by hand"
LEARNER, BLOCKS = "monomials", "monomials, 25 blocks"
ROUNDS = (1000, 2000, 6000)  # of the sweep
NARROW, WIDE = "all of 50 items", "20,000 of 1,000 items"
WORDS = {
    "projection": "projection (chosen for 50 items)",
    "parities": "parities (chosen for 1,000 items)",
    LEARNER: "weights over monomials",
    BLOCKS: "the same, 25 blocks",
    NOISE: "independent noise (2c − n)",
    BY_HAND: "one-way counts, as if independent",
}


@lru_cache(maxsize=1)
def asked(data: Data, case: str) -> tuple[Records, Workload, NDArray[np.float64]]:
    records = popular_items(data, 50 if case == NARROW else 1000)
    workload = disjunctions(records.domain, 3, None if case == NARROW else 20_000, seed=1)
    return records, workload, workload.fractions(records)


def by_hand(records: Records, workload: Workload, seed: int) -> NDArray[np.float64]:
    """Balances of all items with the whole budget, and 1 − Π (1 − p)."""
    width, rows = records.domain.width, records.rows
    p = records.to_rows().mean(axis=0)
    noise = np.random.default_rng(seed).normal(0, unit_noise(special_budget()) * width**0.5 / 2 / rows, width)
    return 1 - (1 - np.clip(p + noise, 0, 1))[attributes_of_disjunctions(workload)].prod(axis=1)


def measure(data: Data, case: str, method: str, seed: int) -> dict[str, Value]:
    records, workload, truth = asked(data, case)
    seconds: Value = ""
    rounds: Value = ""
    if method == NOISE:
        answers = independent(workload, truth, records.rows, special_budget(), seed, incidence=False)
    elif method == BY_HAND:
        answers = by_hand(records, workload, seed)
    else:
        name, options = ("monomials", {"blocks": 25}) if method == BLOCKS else options_of(method)
        run = run_of(MECHANISMS[name], records, workload, special_budget(), seed, **options)
        answers, seconds = answers_of(run.outcome, workload), run.seconds
        rounds = run.parameters.get("rounds", "")
    errors = errors_of(answers, truth)
    return {
        "queries": workload.size,
        "rounds": rounds,
        "mean_error": errors.mean,
        "max_error": errors.max,
        "seconds": seconds,
    }


def points(setting: Setting) -> list[Point]:
    cases = setting.choose(toy=(NARROW,), quick=(NARROW, WIDE), full=(NARROW, WIDE))
    methods = {
        NARROW: [*WORDS, *sweep(LEARNER, ROUNDS)],
        WIDE: ["parities", NOISE, BY_HAND, "projection"],
    }
    toy = ("parities", *sweep(LEARNER, (5, 20)), NOISE, BY_HAND)
    return [
        Point(
            {"case": case, "method": method, "run": seed},
            partial(measure, setting.data, case, method, seed),
            cost=100 if method == "projection" else 10,
        )
        for case in cases
        for method in setting.choose(toy=toy, quick=methods[case], full=methods[case])
        if setting.size is not Size.QUICK or (case, method) != (WIDE, "projection")  # which takes minutes
        for seed in setting.seeds(
            full=1 if (case, method) == (WIDE, "projection") else runs_of(method, LEARNER)
        )
    ]


def draw(rows: Rows) -> Figure:
    cases = [case for case in (NARROW, WIDE) if where(rows, case=case)]
    picture = Figure(figsize=(8.5, 2.2 * len(cases) + 0.3), layout="constrained")
    for panel, case in zip(np.ravel(picture.subplots(len(cases), 1)), cases, strict=True):
        mean_and_max_dots(panel, where(rows, case=case), WORDS, ("mean_error", "max_error"))
        panel.set(title=f"disjunctions of 3, {case}", xlabel="error, as a fraction of the table")
    legend_below(picture, panel, 2)
    return picture


def find(rows: Rows) -> str:
    told = [f"ε = {EPSILON:g}, δ = 10⁻⁶, add-remove, Kosarak's most popular items, n = 100,000.", ""]
    for case in (NARROW, WIDE):
        mine = where(rows, case=case)
        mean, largest = (mean_by(mine, ("method",), c) for c in ("mean_error", "max_error"))
        said = [f"{WORDS[m]} {mean[m,]:.5f} / {largest[m,]:.4f}" for m in WORDS if (m,) in mean]
        if said:
            told.append(f"- {case}, mean / max: {'; '.join(said)}.")
    swept = swept_words(where(rows, case=NARROW), LEARNER, "mean_error", ".5f")
    told += [
        f"- Weights over monomials, mean error with {swept}.",
        "",
        "Weights over monomials spend their rounds on finding what is wrong; parities measure everything once, each "
        "order with the noise that suits it, and projection measures the same and lets rows speak for what "
        "noise hides. Of wide baskets parities measure items, pairs and a few triples.",
    ]
    return "\n".join(told)


EXPERIMENT = Experiment(
    name="disjunctions",
    title="Disjunctions: monomials, parities, projection",
    paper="Thaler, Ullman, Vadhan 2012: about d^(C√k) monomials instead of 2^d records, of a weight about as large. "
    "Chandrasekaran, Thaler, Ullman, Wan 2014: with blocks of attributes the weight falls to about d^0.01, and the "
    "degree rises to about d^(1 − 1/(C√k)). They measure nothing.",
    points=points,
    draw=draw,
    find=find,
    by=("case", "method"),
    shown=("queries", "rounds", "mean_error", "max_error", "seconds"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
