"""MWEM, Figure 5: all cuboids of the categorical attributes of Adult, beside independent Laplace noise."""

from __future__ import annotations

import time
from functools import lru_cache, partial
from itertools import pairwise

from matplotlib.figure import Figure

from dualquery.table.records import Records
from experiments import drawing
from experiments.data import CUBE, Data, only_columns
from experiments.data_cubes import least_average, least_largest, noise_from
from experiments.drawing import curve, legend_below
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
)
from experiments.mwem_runs import (
    Array,
    averaged,
    cell_counts,
    clipped_laplace,
    cuboid_errors,
    cuboids,
    joint,
    learned,
    plain_log_ticks,
)
from experiments.spread import Sample, compared, samples_by

LINES = {
    "mwem": (drawing.MWEM, "MWEM"),
    "ding": (drawing.SEQUENCE[4], "cuboids chosen by Ding et al."),
    "laplace": (drawing.NOISE, "independent Laplace noise, clipped"),
    "uniform": (drawing.UNIFORM, "uniform guess"),
}


@lru_cache(maxsize=1)
def cube(data: Data, attributes: int) -> tuple[Records, Array]:
    """The records and the count of every cell."""
    records = only_columns(data.adult_cube(), range(attributes))
    return records, cell_counts(records)


def told(method: str, errors: Array) -> dict[str, Value]:
    """The average and the largest, over all cuboids, of a cuboid's average error."""
    return {f"{method}_average": float(errors.mean()), f"{method}_max": float(errors.max())}


@lru_cache(maxsize=1)
def laplace(data: Data, attributes: int, epsilon: float) -> dict[str, Value]:
    """A record lies in one cell of each cuboid, so noise of this scale in every cell pays for them all.

    Each cuboid's error is its expectation; the largest expectation is at most the expected largest.
    """
    _, counts = cube(data, attributes)
    return told("laplace", clipped_laplace(counts, 2**attributes / epsilon))


@lru_cache(maxsize=1)
def _cubes(sizes: tuple[int, ...]) -> tuple[float, float]:
    noise = noise_from(sizes)
    return least_average(noise), least_largest(noise)


def ding(sizes: tuple[int, ...], epsilon: float) -> dict[str, Value]:
    """The methods of Ding et al., one for the average and one for the largest; both exact, and without any data."""
    average, largest = _cubes(sizes)
    return {"ding_average": average / epsilon, "ding_max": largest / epsilon}


@lru_cache(maxsize=1)
def uniform_guess(data: Data, attributes: int) -> dict[str, Value]:
    records, counts = cube(data, attributes)
    return told("uniform", cuboid_errors(records.rows / counts.size - counts))


def measure(data: Data, attributes: int, epsilon: float, seed: int) -> dict[str, Value]:
    records, counts = cube(data, attributes)
    started = time.perf_counter()
    distribution = learned(records, cuboids(records.domain), epsilon, seed)
    seconds = time.perf_counter() - started
    return {
        **told("mwem", cuboid_errors(records.rows * joint(distribution) - counts)),
        **laplace(data, attributes, epsilon),
        **uniform_guess(data, attributes),
        **ding(tuple(records.domain.sizes.tolist()), epsilon),
        "cuboids": 2**attributes,
        "cells": counts.size,
        "seconds": seconds,
    }


def points(setting: Setting) -> list[Point]:
    attributes = setting.choose(toy=3, quick=len(CUBE), full=len(CUBE))
    epsilons = setting.choose(toy=(0.01, 10.0), quick=(0.1, 1.0), full=(0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 2.0))
    return [
        Point(
            {"attributes": attributes, "epsilon": epsilon, "run": seed},
            partial(measure, setting.data, attributes, epsilon, seed),
        )
        for epsilon in epsilons
        for seed in setting.seeds(full=5)
    ]


def draw(rows: Rows) -> Figure:
    picture = Figure(figsize=(8.5, 3.6), layout="constrained")
    panels = picture.subplots(1, 2)
    for panel, over in zip(panels, ("average", "max"), strict=True):
        for method, (look, label) in LINES.items():
            curve(panel, rows, "epsilon", f"{method}_{over}", look, label)
        panel.set(xscale="log", yscale="log", title=f"{over} over the cuboids", xlabel="ε")
        epsilons = sorted(distinct(rows, "epsilon"))
        panel.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        panel.minorticks_off()
        plain_log_ticks(panel)
    panels[0].set_ylabel("mean absolute error of a cell (records)")
    legend_below(picture, panels[0], 3)
    return picture


def find(rows: Rows) -> str:
    first = rows[0]
    opening = (
        f"{averaged(rows)}; {first['cuboids']} cuboids of {first['attributes']} attributes, the largest with "
        f"{first['cells']:,} cells. Beside us stand the two methods of Ding et al., with which the paper compares "
        "(each measures the cuboids that are best for its error and adds up the others from them; without their step "
        "of consistency, and not clipped at zero, which would at most halve it), independent Laplace noise in every "
        "cell of every cuboid, clipped at "
        "zero, and the uniform guess."
    )
    return " ".join([opening, _found(rows, "average"), _found(rows, "max")])


def _records(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _found(rows: Rows, over: str) -> str:
    """What one panel says: beside Laplace at both ends, and where a guess or the noise is clearly better."""
    mwem = {key[0]: sample for key, sample in samples_by(rows, ("epsilon",), f"mwem_{over}").items()}
    noise, cubes, guess = (
        {
            key[0]: Sample.exact(value)
            for key, value in mean_by(rows, ("epsilon",), f"{method}_{over}").items()
        }
        for method in ("laplace", "ding", "uniform")
    )
    epsilons = sorted(mwem)
    low, high = epsilons[0], epsilons[-1]

    def beside(epsilon: float) -> str:
        others = {
            "Ding et al.": cubes[epsilon],
            "Laplace noise": noise[epsilon],
            "the uniform guess": guess[epsilon],
        }
        told = (
            f"{compared(mwem[epsilon], other)} {words} ({_records(other.mean)})"
            for words, other in others.items()
        )
        return f"{_records(mwem[epsilon].mean)} at ε = {epsilon:g}, {', '.join(told)}"

    widest = max(epsilons, key=lambda e: mwem[e].high / mwem[e].low)
    sentences = [
        f"The **{over}** over cuboids of the average error, in records, is {beside(low)}; {beside(high)}. Runs "
        f"differ most at ε = {widest:g}, from {mwem[widest].low:.3g} to {mwem[widest].high:.3g}."
    ]
    empty = [epsilon for epsilon in epsilons if guess[epsilon].clearly_below(noise[epsilon])]
    if empty:
        sentences.append(
            f"At ε = {listed(empty)} Laplace noise is worse than the uniform guess, so that a factor over it says "
            "little there."
        )
    rises = [f"{a:g} to {b:g}" for a, b in pairwise(epsilons) if mwem[a].clearly_below(mwem[b])]
    if rises:
        sentences.append(
            f"It rises from ε = {', '.join(rises)}, likely because more budget lets larger tables be measured, and a "
            "small cuboid that is not measured itself adds up their noise."
        )
    behind = [epsilon for epsilon in epsilons if cubes[epsilon].clearly_below(mwem[epsilon])]
    if behind:
        sentences.append(f"Ding et al. are clearly better at ε = {listed(behind)}.")
    beaten = [epsilon for epsilon in epsilons if noise[epsilon].clearly_below(mwem[epsilon])]
    if beaten:
        sentences.append(
            f"Laplace noise is clearly better at ε = {listed(beaten)}, likely because it measures the small cuboids, "
            "whose cells are the largest, as well as any other, while MWEM knows some of them only as sums of "
            "larger, noisy tables."
        )
    lost = [epsilon for epsilon in epsilons if guess[epsilon].clearly_below(mwem[epsilon])]
    if lost:
        sentences.append(f"The uniform guess is clearly better at ε = {listed(lost)}.")
    return " ".join(sentences)


EXPERIMENT = Experiment(
    name="mwem_figure_5",
    title="MWEM, Figure 5: all cuboids of Adult",
    paper="Over all 256 cuboids of Adult's eight categorical attributes, the average of the average error of a cell "
    "is about four times lower than with the methods of Ding et al.; for the maximum the picture is less clear.",
    points=points,
    draw=draw,
    find=find,
    by=("attributes", "epsilon"),
    shown=(
        "mwem_average",
        "ding_average",
        "laplace_average",
        "uniform_average",
        "mwem_max",
        "ding_max",
        "laplace_max",
        "uniform_max",
        "seconds",
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
