"""MWEM, Figure 4: relative entropy on NLTCS, from all 2-way and all 3-way tables, for several T."""

from __future__ import annotations

from functools import lru_cache, partial

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.mwem.parameters import automatic_rounds
from dualquery.mechanisms.mwem.questions import Kind, asked_of
from dualquery.queries.families import marginals
from dualquery.table.records import Records
from experiments.data import Data, only_columns
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
    averaged,
    hadamard_joint,
    joint,
    learned,
    paid,
    plain_log_ticks,
    projected_joint,
    relative_entropy,
    uniform,
)

HADAMARD, RULE, PROJECTED = "Hadamard", "MWEM, T by the rule", "projection"
FIXED = {"MWEM, T = 20": 20, "MWEM, T = 30": 30, "MWEM, T = 40": 40}
STYLES = {
    HADAMARD: {"color": "C3", "ls": "--"},
    **{
        method: {"color": colour}
        for method, colour in zip(FIXED, ("#9ecae1", "#4292c6", "#084594"), strict=True)
    },
    RULE: {"color": "C1"},
    PROJECTED: {"color": "C4"},
}
PROJECTED_ROWS = 120_000
SPLIT = 0.1  # degree 2 is drawn apart below and above this ε, as in the paper


@lru_cache(maxsize=1)
def survey(data: Data, width: int) -> Records:
    return only_columns(data.records("nltcs"), range(width))


def measure(data: Data, width: int, degree: int, method: str, epsilon: float, seed: int) -> dict[str, Value]:
    records = survey(data, width)
    workload = marginals(records.domain, degree)
    if method == HADAMARD:
        rounds = asked_of(workload, Kind.PARITIES, records.rows).size  # all of them are measured
        probabilities = hadamard_joint(records, workload, epsilon, seed)
    elif method == PROJECTED:
        rounds = 0  # of choosing and measuring
        probabilities = projected_joint(records, workload, epsilon, seed, PROJECTED_ROWS)
    else:
        rounds = FIXED.get(method) or automatic_rounds(Task(workload, records.rows, paid(epsilon)))
        probabilities = joint(learned(records, workload, epsilon, seed, rounds=rounds))
    return {
        "relative_entropy": relative_entropy(records, probabilities),
        "rounds": rounds,
        "uniform_guess": relative_entropy(records, joint(uniform(records.domain))),
    }


def points(setting: Setting) -> list[Point]:
    width = setting.choose(toy=4, quick=16, full=16)
    high = setting.choose(toy=(0.1, 3.0), quick=(0.1, 1.0), full=(0.1, 0.2, 0.3, 0.5, 0.7, 1.0))
    low = setting.choose(toy=(), quick=(0.03,), full=(0.01, 0.02, 0.03, 0.05, 0.07))
    return [
        Point(
            {"attributes": width, "degree": degree, "method": method, "epsilon": epsilon, "run": seed},
            partial(measure, setting.data, width, degree, method, epsilon, seed),
        )
        for degree, epsilons in ((2, (*low, *high)), (3, high))
        for method in STYLES
        for epsilon in epsilons
        for seed in setting.seeds(full=3 if method == PROJECTED else 10)
    ]


def draw(rows: Rows) -> Figure:
    parts = {
        f"2-way tables, ε ≤ {SPLIT:g}": [row for row in where(rows, degree=2) if row["epsilon"] <= SPLIT],
        f"2-way tables, ε ≥ {SPLIT:g}": [row for row in where(rows, degree=2) if row["epsilon"] >= SPLIT],
        "3-way tables": where(rows, degree=3),
    }
    picture = Figure(figsize=(10.5, 3.8), layout="constrained")
    panels = picture.subplots(1, len(parts))
    for panel, (title, part) in zip(panels, parts.items(), strict=True):
        _draw_lines(panel, part)
        panel.set(title=title, xlabel="ε")
    panels[0].set_ylabel("relative entropy (nats)")
    picture.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False)
    return picture


def _draw_lines(panel: Axes, rows: Rows) -> None:
    """A line through the means, in a band from the lowest to the highest of the runs."""
    for method, style in STYLES.items():
        mine = where(rows, method=method)
        epsilons, means = line(mine, "epsilon", "relative_entropy")
        runs = [[row["relative_entropy"] for row in where(mine, epsilon=epsilon)] for epsilon in epsilons]
        panel.semilogy(epsilons, means, **style, marker="o", ms=3, label=method)
        lowest, highest = [min(each) for each in runs], [max(each) for each in runs]
        panel.fill_between(epsilons, lowest, highest, color=style["color"], alpha=0.12, lw=0)
    panel.semilogy(*line(rows, "epsilon", "uniform_guess"), color="grey", lw=1, label="uniform guess")
    plain_log_ticks(panel)


def find(rows: Rows) -> str:
    opening = f"{averaged(rows)}, the band from the lowest to the highest; a logarithmic scale."
    degrees = (_found(where(rows, degree=degree), degree) for degree in distinct(rows, "degree"))
    return " ".join([opening, *degrees])


def _found(rows: Rows, degree: int) -> str:
    """What is said of one degree: the rule beside Hadamard, and what fixed numbers of rounds do."""
    means = mean_by(rows, ("method", "epsilon"), "relative_entropy")
    epsilons = sorted(distinct(rows, "epsilon"))
    low, high = epsilons[0], epsilons[-1]
    best = {epsilon: min(FIXED, key=lambda method: means[method, epsilon]) for epsilon in (low, high)}
    sentences = [
        f"**{degree}-way tables**: with T by the rule {means[RULE, low]:.3g} at ε = {low:g} and "
        f"{means[RULE, high]:.3g} at ε = {high:g}, {times(means[RULE, low] / means[HADAMARD, low])} than Hadamard "
        f"at the one and {times(means[RULE, high] / means[HADAMARD, high])} at the other. Of the fixed T, "
        f"{FIXED[best[low]]} is best at ε = {low:g} and {FIXED[best[high]]} at ε = {high:g}."
    ]
    return " ".join([*sentences, *_beaten(rows), *_projected(rows), *_lost(rows)])


def _projected(rows: Rows) -> list[str]:
    """Projection beside MWEM: it fits tables, and relative entropy also asks for what no table says."""
    means = mean_by(rows, ("method", "epsilon"), "relative_entropy")
    epsilons = sorted({epsilon for method, epsilon in means if method == PROJECTED})
    ratios = ", ".join(f"{times(means[PROJECTED, e] / means[RULE, e])} at ε = {e:g}" for e in epsilons)
    return [
        f"The rows of projection, half a row more in every cell, beside MWEM: {ratios}. (Its tables are closer to "
        "the truth, see `choosing`; a distribution that is never far from uniform is the "
        "safer one in relative entropy.)"
    ]


def _beaten(rows: Rows) -> list[str]:
    """Where Hadamard is better, and where the paper did not see that."""
    means = mean_by(rows, ("method", "epsilon"), "relative_entropy")
    epsilons = sorted(distinct(rows, "epsilon"))
    beaten = [epsilon for epsilon in epsilons if means[HADAMARD, epsilon] < means[RULE, epsilon]]
    if not beaten:
        return []
    parities = where(rows, method=HADAMARD)[0]["rounds"]
    sentences = [
        f"Hadamard is better at ε = {listed(beaten)}: each of its {parities} parities is informative, so that "
        "measuring few of them more accurately tells less, as the paper says of degree 2."
    ]
    if beaten[0] < SPLIT:
        sentences.append(
            f"**The paper saw that from ε = {SPLIT:g} on only.** Our Hadamard is the stronger one: it stops once the "
            "measurements are fitted as well as their noise deserves on average, which MWEM's rounds do not."
        )
    return sentences


def _lost(rows: Rows) -> list[str]:
    """Where a fixed number of rounds is worse than knowing nothing."""
    means = mean_by(rows, ("method", "epsilon"), "relative_entropy")
    guess = mean_by(rows, ("epsilon",), "uniform_guess")
    lost = {
        method: [
            epsilon
            for epsilon in sorted(distinct(rows, "epsilon"))
            if means[method, epsilon] > guess[epsilon,]
        ]
        for method in FIXED
    }
    cases = [
        f"T = {FIXED[method]} at ε = {listed(epsilons)}" for method, epsilons in lost.items() if epsilons
    ]
    if not cases:
        return []
    worst = max(means[method, epsilon] for method, epsilons in lost.items() for epsilon in epsilons)
    return [
        f"**Worse than the paper, and than the uniform guess**: {'; '.join(cases)} (up to {worst:.3g}). With so many "
        "rounds the measurements are so noisy that they contradict each other, and our repeated full steps follow "
        "them further than the paper's gentle ones. The rule for T keeps away from there."
    ]


EXPERIMENT = Experiment(
    name="mwem_figure_4",
    title="MWEM, Figure 4: relative entropy on NLTCS",
    paper="Maintaining all 3-way tables, MWEM with 20, 30 or 40 rounds is substantially better than measuring every "
    "parity (Barak et al.); for 2-way tables that is much more competitive, and from ε = 0.1 on the better one. More "
    "rounds are better, and the axes end at 2.",
    points=points,
    draw=draw,
    find=find,
    by=("degree", "method", "epsilon"),
    shown=("relative_entropy", "rounds", "uniform_guess"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
