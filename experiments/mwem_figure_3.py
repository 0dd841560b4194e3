"""MWEM, Figure 3: relative entropy of three small contingency tables, from all their 3-way tables.

The paper draws an unoptimised and an optimised MWEM, and speaks of both with and without a noisy count of every
cell to begin with. Here these are three lines: Figure 1 to the letter, the program's defaults, and the defaults
with a noisy start.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from math import inf
from statistics import fmean, pstdev

import numpy as np
from matplotlib.figure import Figure

from dualquery.queries.families import marginals
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from experiments import drawing
from experiments.data import Data
from experiments.drawing import BLACK, ORANGE, Look, band, legend_below
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    line,
    listed,
    main,
    mean_by,
    times,
    where,
)
from experiments.mwem_runs import (
    Array,
    figure_1,
    fitted_exactly,
    hadamard_joint,
    joint,
    learned,
    projected_joint,
    relative_entropy,
    uniform,
)
from experiments.spread import Sample, Samples

FILES = {"mildew": "mildew.csv", "rochdale": "rochdale.csv", "czech": "czech_autoworkers.csv"}
HADAMARD, LETTER, NOISY, DEFAULT = "Hadamard", "MWEM, Figure 1 to the letter", "MWEM, noisy start", "MWEM"
PROJECTED = "projection"
METHODS: dict[str, Callable[[Records, Workload, float, int], Array]] = {
    HADAMARD: hadamard_joint,
    LETTER: figure_1,
    NOISY: lambda *arguments: joint(learned(*arguments, start="noisy")),
    DEFAULT: lambda *arguments: joint(learned(*arguments)),
    PROJECTED: projected_joint,
}
EXACT = {"all 3-way tables, exactly": 3, "all 2-way tables, exactly": 2}
LOOKS = {
    HADAMARD: Look(ORANGE, "d", "-."),
    LETTER: drawing.MWEM_LETTER,
    NOISY: drawing.MWEM_AGAIN,
    DEFAULT: drawing.MWEM,
    PROJECTED: drawing.PROJECTION,
    "all 3-way tables, exactly": Look(BLACK),
    "all 2-way tables, exactly": Look(BLACK, "", "--"),
}
FEWER = 10  # times fewer runs of projection, which fits rows anew each time
COST = {"mildew": 1.0, "rochdale": 3.0, "czech": 1.5}


@lru_cache(maxsize=len(FILES))
def table(data: Data, name: str) -> Records:
    return data.contingency(FILES[name])


def measure(data: Data, name: str, method: str, epsilon: float, runs: int) -> dict[str, Value]:
    records = table(data, name)
    guess = relative_entropy(records, joint(uniform(records.domain)))
    if method in EXACT:
        fitted = relative_entropy(records, fitted_exactly(records, EXACT[method]))
        return {"relative_entropy": fitted, "standard_deviation": 0, "uniform_guess": guess}
    workload = marginals(records.domain, 3)
    entropies = [
        relative_entropy(records, METHODS[method](records, workload, epsilon, seed)) for seed in range(runs)
    ]
    return {
        "relative_entropy": fmean(entropies),
        "standard_deviation": pstdev(entropies),
        "uniform_guess": guess,
    }


def points(setting: Setting) -> list[Point]:
    epsilons = setting.choose(
        toy=(0.05, 3.0),
        quick=(0.1, 0.3, 1.0),
        full=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    )
    runs = len(setting.seeds(toy=2, quick=10, full=100))  # a row for all of them: they take milliseconds each
    return [
        Point(
            {"data": name, "method": method, "epsilon": epsilon, "runs": runs_of(method, runs)},
            partial(measure, setting.data, name, method, epsilon, runs_of(method, runs)),
            cost=COST[name] * (3.0 if method == HADAMARD else 1.0),
        )
        for name in FILES
        for method in (*METHODS, *EXACT)
        for epsilon in (epsilons if method in METHODS else (epsilons[0], epsilons[-1]))
    ]


def runs_of(method: str, runs: int) -> int:
    if method in EXACT:
        return 0  # nothing is drawn
    return max(1, runs // FEWER) if method == PROJECTED else runs


def draw(rows: Rows) -> Figure:
    names = distinct(rows, "data")
    picture = Figure(figsize=(3.6 * len(names), 4.2), layout="constrained")
    panels = picture.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        mine = where(rows, data=name)
        for method, look in LOOKS.items():
            epsilons, means = line(where(mine, method=method), "epsilon", "relative_entropy")
            _, deviations = line(where(mine, method=method), "epsilon", "standard_deviation")
            panel.plot(epsilons, means, label=method, **look.style)
            band(panel, epsilons, list(np.subtract(means, deviations)), list(np.add(means, deviations)), look)
        panel.plot(*line(mine, "epsilon", "uniform_guess"), label="uniform guess", **drawing.UNIFORM.style)
        panel.set(title=name, xlabel="ε", ylim=(0, None))
    panels[0].set_ylabel("relative entropy (nats)")
    legend_below(picture, panels[0], 4)
    return picture


def find(rows: Rows) -> str:
    opening = (
        f"{max(row['runs'] for row in rows)} runs ({FEWER} times fewer of projection, whose rows get half a row more "
        "in every cell), the band one standard deviation each way; T by the program's rule. The paper's black line, "
        "the values of Fienberg et al. without privacy, is given there as a picture only; in its place stand the "
        "log-linear models that have all 3-way or all 2-way tables exactly, without privacy: no mechanism that "
        "learns these tables alone can be expected to go below the former."
    )
    return " ".join([opening, *(_found(where(rows, data=name), name) for name in distinct(rows, "data"))])


def _samples(rows: Rows) -> Samples:
    """The rows are means already."""
    return Samples(
        {
            (row["method"], row["epsilon"]): Sample(
                row["relative_entropy"],
                row["standard_deviation"],
                row["runs"] or inf,
                row["relative_entropy"],
                row["relative_entropy"],
            )
            for row in rows
        }
    )


def _found(rows: Rows, name: str) -> str:
    """What one panel says: beside Hadamard and Figure 1 at both ends, and where another line is clearly better."""
    samples = _samples(rows)
    means = mean_by(rows, ("method", "epsilon"), "relative_entropy")
    guess = Sample.exact(rows[0]["uniform_guess"])
    epsilons = sorted(distinct(rows, "epsilon"))
    low, high = epsilons[0], epsilons[-1]
    exactly = ", ".join(f"{means[method, high]:.3g} with {method}" for method in EXACT)
    sentences = [
        f"**{name}**: {means[DEFAULT, low]:.3g} at ε = {low:g} and {means[DEFAULT, high]:.3g} at ε = {high:g}, "
        f"{times(means[DEFAULT, low] / means[HADAMARD, low])} than Hadamard at the one and "
        f"{times(means[DEFAULT, high] / means[HADAMARD, high])} at the other; Figure 1 to the letter goes from "
        f"{means[LETTER, low]:.3g} to {means[LETTER, high]:.3g}. Without privacy: {exactly}."
    ]
    reasons = {
        HADAMARD: "there is budget enough to measure every parity",
        LETTER: "so few records that a gentle step, which hardly leaves the uniform guess, is the safest",
        NOISY: "with so much budget a count of every cell says more than the measurements it replaces",
        PROJECTED: "with so many records times ε all pairs can be measured",
    }
    for method, reason in reasons.items():
        better = [e for e in epsilons if samples[method, e].clearly_below(samples[DEFAULT, e])]
        if better:
            sentences.append(f"Clearly better than the default at ε = {listed(better)}: {method} ({reason}).")
    lost = [epsilon for epsilon in epsilons if guess.clearly_below(samples[DEFAULT, epsilon])]
    if lost:
        sentences.append(f"At ε = {listed(lost)} even the uniform guess is better than the default.")
    return " ".join(sentences)


EXPERIMENT = Experiment(
    name="mwem_figure_3",
    title="MWEM, Figure 3: relative entropy of small contingency tables",
    paper="On mildew, rochdale and czech, measuring only informative queries has a substantially lower relative "
    "entropy than measuring all of them (Barak et al., joined by multiplicative weights), for every ε drawn; the "
    "optimised MWEM often comes near the values of Fienberg et al. without privacy.",
    points=points,
    draw=draw,
    find=find,
    by=("data", "method", "epsilon"),
    shown=("relative_entropy", "standard_deviation", "uniform_guess"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
