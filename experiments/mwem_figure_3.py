"""MWEM, Figure 3: relative entropy of three small contingency tables, from all their 3-way tables.

The paper draws an unoptimised and an optimised MWEM, and speaks of both with and without a noisy count of every
cell to begin with. Here these are three lines: Figure 1 to the letter, the program's defaults, and the defaults
with a noisy start.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from math import inf
from statistics import fmean, pstdev

import numpy as np
from matplotlib.axes import Axes
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
    where,
)
from experiments.mwem_runs import (
    Array,
    figure_1,
    fitted_exactly,
    hadamard_joint,
    joint,
    learned,
    plain_log_ticks,
    projected_joint,
    relative_entropy,
    uniform,
)
from experiments.spread import Sample, Samples, compared

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
EXACT_WORDS = {method: f"the exact {degree}-way tables" for method, degree in EXACT.items()}
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
    """Above what the paper has, on a scale of its own; below projection as well, on a logarithmic one."""
    names = distinct(rows, "data")
    picture = Figure(figsize=(3.6 * len(names), 6.8), layout="constrained")
    panels = picture.subplots(2, len(names), squeeze=False)
    for (paper, wide), name in zip(panels.T, names, strict=True):
        mine = where(rows, data=name)
        _draw_lines(paper, mine, [method for method in LOOKS if method != PROJECTED])
        _draw_lines(wide, mine, list(LOOKS))
        paper.set(title=name, ylim=(0, None))
        wide.set(xlabel="ε", yscale="log")
        plain_log_ticks(wide)
    panels[0, 0].set_ylabel("relative entropy (nats), without projection")
    panels[1, 0].set_ylabel("relative entropy (nats), all lines")
    legend_below(picture, panels[1, 0], 4)
    return picture


def _draw_lines(panel: Axes, rows: Rows, methods: Sequence[str]) -> None:
    for method in methods:
        look, mine = LOOKS[method], where(rows, method=method)
        epsilons, means = line(mine, "epsilon", "relative_entropy")
        _, deviations = line(mine, "epsilon", "standard_deviation")
        panel.plot(epsilons, means, label=method, **look.style)
        band(panel, epsilons, list(np.subtract(means, deviations)), list(np.add(means, deviations)), look)
    panel.plot(*line(rows, "epsilon", "uniform_guess"), label="uniform guess", **drawing.UNIFORM.style)


def find(rows: Rows) -> str:
    opening = (
        f"{max(row['runs'] for row in rows)} runs ({FEWER} times fewer of projection, whose rows get half a row more "
        "in every cell), the band one standard deviation each way; T by the program's rule. The upper pictures leave "
        "projection out, as the paper does; the lower ones have it, on a logarithmic scale. The paper's black line, "
        "the values of Fienberg et al. without privacy, is given there as a picture only; in its place stand the "
        "log-linear models that have all 3-way or all 2-way tables exactly, without privacy: no mechanism that "
        "learns these tables alone can be expected to go below the former. The paper says that in many cases MWEM "
        "approaches the values without privacy; how far from them we are at the largest ε is told for each table."
    )
    names = distinct(rows, "data")
    return "\n".join([opening, "", *(f"- {_found(where(rows, data=name), name)}" for name in names)])


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
    """What one panel says: the other lines and a guess beside ours at both ends, and what is clearly better."""
    samples = _samples(rows)
    guess = Sample.exact(rows[0]["uniform_guess"])
    epsilons = sorted(distinct(rows, "epsilon"))

    def beside(epsilon: float) -> str:
        mine = samples[DEFAULT, epsilon]
        others = {"Hadamard": samples[HADAMARD, epsilon], "the uniform guess": guess}
        others["Figure 1 to the letter"] = samples[LETTER, epsilon]
        told = (f"{compared(mine, other)} {words} ({other.mean:.3g})" for words, other in others.items())
        return f"{mine.mean:.3g} at ε = {epsilon:g}, {', '.join(told)}"

    sentences = [f"**{name}**: {beside(epsilons[0])}; {beside(epsilons[-1])}.", _left(samples, epsilons[-1])]
    reasons = {
        HADAMARD: "there is budget enough to measure every parity",
        LETTER: "of so few records a gentle step, which hardly leaves the uniform guess, is the safest",
        NOISY: "with so much budget a count of every cell says more than the measurements it replaces",
        PROJECTED: "with so many records times ε all pairs can be measured",
    }
    for method, reason in reasons.items():
        better = [e for e in epsilons if samples[method, e].clearly_below(samples[DEFAULT, e])]
        if better:
            sentences.append(
                f"Clearly better than the default at ε = {listed(better)}: {method} (likely because {reason})."
            )
    lost = [epsilon for epsilon in epsilons if not samples[DEFAULT, epsilon].clearly_below(guess)]
    if lost:
        sentences.append(f"At ε = {listed(lost)} the default is not clearly better than the uniform guess.")
    return " ".join(sentences)


def _left(samples: Samples, epsilon: float) -> str:
    """How far from the values without privacy, which the paper 'approaches', the largest ε leaves us."""
    mine = samples[DEFAULT, epsilon].mean
    told = " and ".join(
        f"{mine / samples[method, epsilon].mean:.1f} times the {samples[method, epsilon].mean:.3g} of {words}"
        for method, words in EXACT_WORDS.items()
    )
    return f"At ε = {epsilon:g} it is still {told}."


EXPERIMENT = Experiment(
    name="mwem_figure_3",
    title="MWEM, Figure 3: relative entropy of small contingency tables",
    paper="On mildew, rochdale and czech, measuring only informative queries has a substantially lower relative "
    "entropy than measuring all of them (Barak et al., joined by multiplicative weights), for every ε drawn; in many "
    "cases MWEM approaches the values of Fienberg et al. without privacy.",
    points=points,
    draw=draw,
    find=find,
    by=("data", "method", "epsilon"),
    shown=("relative_entropy", "standard_deviation", "uniform_guess"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
