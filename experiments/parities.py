"""3-way marginals asked directly and through parities (Theorem A.2 of the 2014 version of DualQuery)."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.mechanisms.artefact import BareAnswers
from dualquery.mechanisms.baselines import INDEPENDENT_GAUSSIAN
from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.queries.families import marginals, parities
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from experiments import drawing
from experiments.data import Data, kept
from experiments.drawing import ORANGE, Look, curve, legend_below, plain_ticks
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    main,
    mean_by,
    where,
)
from experiments.runs import answers_of, budget_of, errors_of, of_an_older_rule, run_of
from experiments.spread import samples_by

ORDER = 3
DELTA = 1e-3
DUAL_QUERY_CELLS, DUAL_QUERY_PARITIES = "DualQuery on cells", "DualQuery on parities"
NOISE_CELLS, NOISE_PARITIES = "noise on cells", "noise on parities"
LOOKS = {
    DUAL_QUERY_CELLS: drawing.OWN_DUAL_QUERY,
    DUAL_QUERY_PARITIES: drawing.RHO_DUAL_QUERY,
    NOISE_CELLS: Look(ORANGE, "s"),
    NOISE_PARITIES: Look(ORANGE, "D", "--"),
}
TITLES = {"nltcs": "NLTCS, 16 attributes", "adult": "binary Adult, 27 attributes"}


def table(data: Data, name: str) -> Records:
    return kept(data, "nltcs") if name == "nltcs" else data.binary_adult()


@lru_cache(maxsize=1)
def asked(data: Data, name: str) -> tuple[Records, Workload, NDArray[np.float64]]:
    """The records, every cell of every 3-way table, and the true answers."""
    records = table(data, name)
    cells = marginals(records.domain, ORDER)
    return records, cells, cells.fractions(records)


def cells_from_parities(
    cells: Workload, even: NDArray[np.float64], asked_parities: Workload
) -> NDArray[np.float64]:
    """Every cell of a workload of binary tables, by Theorem A.2 from the answers to parities."""
    (tables,) = cells.groups
    return BareAnswers(list(asked_parities.texts()), even, np.zeros(len(even))).fractions(tables)


def measure(data: Data, name: str, method: str, epsilon: float, seed: int) -> dict[str, Value]:
    records, cells, truth = asked(data, name)
    mechanism = DUAL_QUERY if method in (DUAL_QUERY_CELLS, DUAL_QUERY_PARITIES) else INDEPENDENT_GAUSSIAN
    through = method in (DUAL_QUERY_PARITIES, NOISE_PARITIES)
    workload = parities(records.domain, ORDER) if through else cells
    run = run_of(mechanism, records, workload, budget_of(epsilon, DELTA), seed)
    answers = answers_of(run.outcome, workload)
    if through:
        answers = cells_from_parities(cells, answers, workload)
    errors = errors_of(answers, truth)
    measured: dict[str, Value] = {
        "queries": workload.size,
        "rounds": run.parameters.get("rounds", ""),
        "mean_error": errors.mean,
        "max_error": errors.max,
        "seconds": run.seconds,
    }
    if method == DUAL_QUERY_PARITIES:
        measured["gap_to_records"] = errors_of(cells.fractions(run.records), answers).max
    return measured


def points(setting: Setting) -> list[Point]:
    names = setting.choose(toy=("nltcs",), quick=tuple(TITLES), full=tuple(TITLES))
    epsilons = setting.choose(toy=(0.05, 5.0), quick=(0.25, 1.0, 5.0), full=(0.25, 0.5, 1.0, 2.0, 3.0, 5.0))
    return [
        Point(
            {"data": name, "method": method, "epsilon": epsilon, "run": seed},
            partial(measure, setting.data, name, method, epsilon, seed),
            cost=0.5 if method in (NOISE_CELLS, NOISE_PARITIES) else 1 + epsilon,
        )
        for name in names
        for method in LOOKS
        for epsilon in epsilons
        for seed in setting.seeds()
    ]


def draw(rows: Rows) -> Figure:
    names = distinct(rows, "data")
    picture = Figure(figsize=(8.5, 3.2 * len(names)), layout="constrained")
    for panels, name in zip(picture.subplots(len(names), 2, squeeze=False), names, strict=True):
        for panel, column in zip(panels, ("mean_error", "max_error"), strict=True):
            for method, look in LOOKS.items():
                curve(panel, where(rows, data=name, method=method), "epsilon", column, look, method)
            panel.set(xscale="log", yscale="log", title=TITLES[name], xlabel="ε (δ = 0.001)")
            panel.set_ylabel(f"{column.replace('_', ' ')} of a cell")
            plain_ticks(panel, distinct(rows, "epsilon"))
    legend_below(picture, panels[0], 4)
    return picture


def find(rows: Rows) -> str:
    told = [f"- {each}" for each in of_an_older_rule(where(rows, method=DUAL_QUERY_CELLS))]
    for name in distinct(rows, "data"):
        mine = where(rows, data=name)
        mean = mean_by(mine, ("epsilon", "method"), "mean_error")
        epsilons = distinct(mine, "epsilon")
        epsilon = min(epsilons, key=lambda given: abs(given - 1))
        shown = ", ".join(f"{mean[epsilon, method]:.4f} for {method}" for method in LOOKS)
        dual_query = [mean[e, DUAL_QUERY_PARITIES] / mean[e, DUAL_QUERY_CELLS] for e in epsilons]
        noise = [mean[e, NOISE_PARITIES] / mean[e, NOISE_CELLS] for e in epsilons]
        told.append(
            f"- {TITLES[name]}, mean error of a cell at ε = {epsilon:g}: {shown}. Over all ε the detour through "
            f"parities multiplies the error of DualQuery by {min(dual_query):.2f} to {max(dual_query):.2f}, that "
            f"of independent noise by {min(noise):.2f} to {max(noise):.2f}."
        )
    return "\n".join([f"δ = {DELTA:g}, replace-one.", "", *told, "", " ".join(_reasons(rows))])


def _reasons(rows: Rows) -> list[str]:
    """Who clearly wins, and where our line is the worse one, the likely reason."""
    mean = samples_by(rows, ("data", "epsilon", "method"), "mean_error")
    cases = list(dict.fromkeys((name, epsilon) for name, epsilon, _ in mean))

    def where_worse(method: str, other: str) -> int:
        return sum(mean[(*case, other)].clearly_below(mean[(*case, method)]) for case in cases)

    sentences = []
    if lost := where_worse(DUAL_QUERY_PARITIES, DUAL_QUERY_CELLS):
        sentences.append(
            f"DualQuery loses by the detour at {lost} of {len(cases)} points, likely because the theorem carries "
            "over a bound on the worst error and no more, and the game corrects all parities alike, where asked "
            "directly it turns to the cells that are wrong."
        )
    if where_worse(NOISE_CELLS, NOISE_PARITIES) == len(cases):
        sentences.append(
            "Independent noise gains everywhere, as Barak et al. promise: the parities are fewer than the cells, and "
            "what is added to them averages out in a cell."
        )
    if lost := where_worse(DUAL_QUERY_CELLS, NOISE_PARITIES):
        sentences.append(
            f"At {lost} of {len(cases)} points noise on parities is more accurate than DualQuery asked directly: so "
            "few queries can each be measured. It gives answers only and no records."
        )
    gap = max(row["gap_to_records"] for row in where(rows, method=DUAL_QUERY_PARITIES))
    sentences.append(
        "Read off DualQuery's records or worked out by the theorem from their parities, a cell differs by at most "
        f"{gap:.1g}."
    )
    return sentences


EXPERIMENT = Experiment(
    name="parities",
    title="Parities: 3-way marginals asked directly, and through parities",
    paper="Theorem A.2 of the 2014 version: a marginal is a combination of the parities of its subsets with "
    "coefficients that sum to 1, so parities within α give marginals within α. The paper gives the integer program "
    "for parities and measures nothing.",
    points=points,
    draw=draw,
    find=find,
    by=("data", "method", "epsilon"),
    shown=("queries", "rounds", "mean_error", "max_error", "gap_to_records", "seconds"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
