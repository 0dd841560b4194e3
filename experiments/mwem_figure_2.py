"""MWEM, Figure 2: random ranges beside the SVD bound, on four data sets."""

from __future__ import annotations

from functools import partial

from matplotlib.figure import Figure

from dualquery.privacy.budget import Accounting
from experiments import drawing
from experiments.data import Data
from experiments.drawing import BLACK, Look, curve, legend_below
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    listed,
    main,
    mean_by,
    times,
    where,
)
from experiments.mwem_runs import RANGES, averaged, learned, range_case
from experiments.spread import Sample, samples_by

PURE, RHO = Accounting.PURE.value, Accounting.ZCDP.value
DELTA = {PURE: 0.0, RHO: 1e-6}
LINES = {PURE: (drawing.MWEM, "MWEM, pure ε"), RHO: (drawing.MWEM_AGAIN, "MWEM, ρ at δ = 10⁻⁶")}
COST = {"capital-loss": 2.0, "age × hours": 2.0, "recency × frequency": 1.0, "monetary": 4.0}


def measure(
    data: Data, name: str, accounting: str, epsilon: float, queries: int, seed: int
) -> dict[str, Value]:
    case = range_case(data, name, queries)
    distribution = learned(case.records, case.workload, epsilon, seed, DELTA[accounting])
    return {
        "squared_error": case.squared_error(distribution),
        "svd_bound": case.bound / epsilon**2,
        "uniform_guess": case.uniform_guess,
    }


def points(setting: Setting) -> list[Point]:
    queries = setting.choose(toy=50, quick=2000, full=2000)
    epsilons = setting.choose(toy=(0.01, 1.0), quick=(0.0125, 0.1), full=(0.0125, 0.025, 0.05, 0.1, 0.2, 0.4))
    return [
        Point(
            {"data": name, "accounting": accounting, "epsilon": epsilon, "queries": queries, "run": seed},
            partial(measure, setting.data, name, accounting, epsilon, queries, seed),
            cost=COST[name],
        )
        for name in RANGES
        for accounting in DELTA
        for epsilon in epsilons
        for seed in setting.seeds(full=5)
    ]


def draw(rows: Rows) -> Figure:
    names = distinct(rows, "data")
    picture = Figure(figsize=(2.9 * len(names), 3.4), layout="constrained")
    panels = picture.subplots(1, len(names), squeeze=False)[0]
    for panel, name in zip(panels, names, strict=True):
        mine = where(rows, data=name)
        for accounting, (look, label) in LINES.items():
            curve(panel, where(mine, accounting=accounting), "epsilon", "squared_error", look, label)
        curve(panel, mine, "epsilon", "svd_bound", Look(BLACK, "", "-."), "SVD bound, δ = 1/n")
        curve(panel, mine, "epsilon", "uniform_guess", drawing.UNIFORM, "uniform guess")
        panel.set(xscale="log", yscale="log")
        epsilons = sorted(distinct(mine, "epsilon"))
        panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons], rotation=45)
        panel.minorticks_off()
        panel.set(title=name, xlabel="ε")
    panels[0].set_ylabel("mean squared error (records²)")
    legend_below(picture, panels[0], 4)
    return picture


def find(rows: Rows) -> str:
    names = distinct(rows, "data")
    domains = ", ".join(
        f"{column} {low:,} to {high:,}" for name in names for column, low, high in RANGES[name][1]
    )
    opening = (
        f"{averaged(rows)}, {rows[0]['queries']:,} random ranges, T by the program's rule. "
        f"Every integer is a value: {domains}."
    )
    return " ".join([opening, *(_found(where(rows, data=name), name) for name in names)])


def _found(rows: Rows, name: str) -> str:
    """What one panel says: beside the bound at both ends, where the bound or a guess is clearly better, and ρ."""
    errors = samples_by(rows, ("accounting", "epsilon"), "squared_error")
    bound, guess = (
        {key[0]: Sample.exact(value) for key, value in mean_by(rows, ("epsilon",), column).items()}
        for column in ("svd_bound", "uniform_guess")
    )
    epsilons = sorted(distinct(rows, "epsilon"))
    low, high = epsilons[0], epsilons[-1]
    gains = [errors[PURE, epsilon].mean / errors[RHO, epsilon].mean for epsilon in epsilons]
    widest = max((errors[PURE, e].high / errors[PURE, e].low, e) for e in epsilons)
    sentences = [
        f"**{name}**: the squared error is {times(errors[PURE, low].mean / bound[low].mean)} than the bound at ε = "
        f"{low:g}, {times(errors[PURE, high].mean / bound[high].mean)} at ε = {high:g}; ρ divides it by "
        f"{min(gains):.1f} to {max(gains):.1f}. Runs differ by up to {widest[0]:.1f} times (ε = {widest[1]:g})."
    ]
    above = [e for e in epsilons if bound[e].clearly_below(errors[PURE, e])]
    if above:
        sentences.append(
            f"It is clearly above the bound at ε = {listed(above)}: with so much budget for so many ranges, choosing "
            "what to measure no longer pays."
        )
    worse = [e for e in epsilons if guess[e].clearly_below(errors[PURE, e])]
    if worse:
        sentences.append(
            f"It is clearly worse than the uniform guess at ε = {listed(worse)}: so few records are drowned by the "
            "noise of even one measurement."
        )
    dearer = [e for e in epsilons if errors[PURE, e].clearly_below(errors[RHO, e])]
    if dearer:
        sentences.append(
            f"ρ is clearly worse at ε = {listed(dearer)}: over so few rounds it saves less than so small a δ costs."
        )
    return " ".join(sentences)


EXPERIMENT = Experiment(
    name="mwem_figure_2",
    title="MWEM, Figure 2: random ranges beside the SVD bound",
    paper="On random ranges MWEM's squared error is below what any matrix mechanism can reach (the SVD bound at "
    "δ = 1/n, which even allows a δ), most clearly at small ε; the advantage shrinks as ε grows.",
    points=points,
    draw=draw,
    find=find,
    by=("data", "accounting", "epsilon"),
    shown=("squared_error", "svd_bound", "uniform_guess"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
