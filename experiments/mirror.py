"""Mirror descent: which map is best on histograms, and the implicit Euclidean learner where none can be held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.mechanisms.wishes import MECHANISMS
from dualquery.queries.families import from_spec
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain, Items, Numeric
from dualquery.table.records import Records
from experiments.data import Data, kept
from experiments.drawing import SEQUENCE, dots, mean_and_max_dots, name_lines
from experiments.harness import Experiment, Point, Rows, Setting, Value, main, mean_by, where
from experiments.runs import answers_of, errors_of, run_of
from experiments.special_cases import EPSILON, independent, popular_items, special_budget, unit_noise
from experiments.spread import Samples, samples_by

WIDE = "60 items of Kosarak"
WIDE_ROUNDS, ROUNDS = 150, 20
MAPS: dict[str, dict[str, Any]] = {
    "entropy": {"mirror_map": "entropy"},
    "p = 1.2": {"mirror_map": "p-norm", "norm": 1.2},
    "p = 1.5": {"mirror_map": "p-norm", "norm": 1.5},
    "euclidean": {"mirror_map": "euclidean"},
}
COMPARED = ("entropy", "euclidean")  # whose difference is small, and of which the tutorial speaks
NOISE, BY_HAND = "independent noise", "by hand"
IMPLICIT = {
    "euclidean": "implicit Euclidean",
    "mwem": "factored MWEM",
    "projection": "projection (chosen)",
    NOISE: "independent noise (2c − n)",
    BY_HAND: "product of one-way counts",
}
EVEN, LINE_CELLS = "an even table, every cell", 256
EVENLY = 1.1  # bounds that are nearer than this say nothing
# Tables small enough to hold, with a workload each: marginals, then queries that accept few cells.
CASES = {
    "Czech workers, 3-way": ("czech_autoworkers.csv", 6, "marginals:3"),
    "Rochdale, 3-way": ("rochdale.csv", 8, "marginals:3"),
    "NLTCS, 8 attributes, 3-way": ("nltcs", 8, "marginals:3"),
    "Adult, 8 binary attributes, 3-way": ("adult", 8, "marginals:3"),
    "Czech workers, every cell": ("czech_autoworkers.csv", 6, "marginals:6"),
    "NLTCS, 8 attributes, every cell": ("nltcs", 8, "marginals:8"),
    EVEN: ("even", 8, "marginals:8"),
    "an even line, ranges": ("line", 1, "ranges:place:200:1"),
}


def table(data: Data, name: str, width: int) -> Records:
    if name == "even":
        rows = np.random.default_rng(0).integers(0, 2, (5000, width))
        return Records.from_rows(Domain((Items("item", width),)), rows)
    if name == "line":
        line = Domain((Numeric("place", tuple(float(x) for x in range(LINE_CELLS + 1)), integer=True),))
        return Records.from_rows(line, np.random.default_rng(0).integers(0, LINE_CELLS, (5000, 1)))
    if name == "adult":
        return data.binary_adult(width)
    records = kept(data, "nltcs") if name == "nltcs" else data.contingency(name)
    rows = records.to_rows()[:, :width].astype(np.int64)
    return Records.from_rows(Domain((Items("item", width),)), rows)


@lru_cache(maxsize=1)
def asked(data: Data, case: str) -> tuple[Records, Workload, NDArray[np.float64]]:
    if case == WIDE:
        records = popular_items(data, 60)
        workload = random_conjunctions(records.domain, 3, 20_000, seed=1)
    else:
        name, width, spec = CASES[case]
        records = table(data, name, width)
        workload = from_spec(records.domain, spec)
    return records, workload, workload.fractions(records)


def by_hand(records: Records, workload: Workload, seed: int) -> NDArray[np.float64]:
    """Every item counted with the whole budget, and a query as the product of what they say."""
    width, rows = records.domain.width, records.rows
    p = records.to_rows().mean(axis=0)
    noise = np.random.default_rng(seed).normal(0, unit_noise(special_budget()) * width**0.5 / 2 / rows, width)
    p = np.clip(p + noise, 0, 1)
    product = workload.product_rows(np.arange(workload.size, dtype=np.int64))
    held = p[product.predicates.attribute[product.literals >> 1]]
    return np.asarray(np.where(product.literals & 1 == 1, 1 - held, held).prod(axis=1))


def measure(data: Data, case: str, method: str, seed: int) -> dict[str, Value]:
    records, workload, truth = asked(data, case)
    budget, seconds = special_budget(), 0.0
    if method == NOISE:
        answers = independent(workload, truth, records.rows, budget, seed, incidence=False)
    elif method == BY_HAND:
        answers = by_hand(records, workload, seed)
    else:
        options: dict[str, Any] = {} if method == "projection" else {"rounds": WIDE_ROUNDS}
        name = method
        if case != WIDE:
            name, options = "mirror", {"rounds": ROUNDS, "measured": "queries", **MAPS[method]}
        run = run_of(MECHANISMS[name], records, workload, budget, seed, **options)
        answers, seconds = answers_of(run.outcome, workload), run.seconds
    errors = errors_of(answers, truth)
    return {"queries": workload.size, "mean_error": errors.mean, "max_error": errors.max, "seconds": seconds}


def points(setting: Setting) -> list[Point]:
    small = [(case, method) for case in CASES for method in MAPS]
    wide = [(WIDE, method) for method in IMPLICIT]
    quick = [(case, method) for case, method in small + wide if method != "projection"]  # which takes minutes
    chosen = setting.choose(toy=small[4:8], quick=quick, full=small + wide)
    return [
        Point(
            {"case": case, "method": method, "run": seed},
            partial(measure, setting.data, case, method, seed),
            cost=100 if method == "projection" else 20 if case == WIDE else 3,
        )
        for case, method in chosen
        for seed in setting.seeds()
    ]


def draw(rows: Rows) -> Figure:
    picture = Figure(figsize=(8.5, 6), layout="constrained")
    panels = picture.subplots(2, 1, height_ratios=(2, 1))
    small = [case for case in CASES if where(rows, case=case)]
    mean = mean_by(rows, ("case", "method"), "mean_error")
    for place, (method, look) in enumerate(zip(MAPS, SEQUENCE, strict=False)):
        runs = [
            [
                {"share": row["mean_error"] / mean[case, "entropy"]}
                for row in where(rows, case=case, method=method)
            ]
            for case in small
        ]
        dots(panels[0], [at + 0.18 * (place - 1.5) for at in range(len(small))], runs, "share", look, method)
    name_lines(panels[0], small)
    panels[0].axvline(1, color="black", lw=0.8)
    panels[0].set(xlabel="mean error, as a multiple of that of entropy (left of the line: better)")
    # Beside the dots there is no room: lines of their spread reach to the edge.
    panels[0].legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(MAPS))
    wide = where(rows, case=WIDE)
    if wide:
        mean_and_max_dots(panels[1], wide, IMPLICIT, ("mean_error", "max_error"))
        panels[1].legend(frameon=False)
    panels[1].set(xlabel=f"error on {WIDE}, 20,000 random 3-way queries")
    return picture


def find(rows: Rows) -> str:
    mean = samples_by(rows, ("case", "method"), "mean_error")
    told = [
        f"ε = {EPSILON:g}, δ = 10⁻⁶, add-remove; {ROUNDS} rounds on histograms. Clear is a difference of more than "
        "three standard errors.",
        "",
    ]
    small = [case for case in CASES if (case, "entropy") in mean]
    for case in small:
        said = ", ".join(f"{method} {mean[case, method].mean:.4f}" for method in MAPS)
        told.append(f"- *{case}*, mean error: {said}; {_clearly(mean, case)}.")
    told += ["", _predicted(mean, small)]
    if where(rows, case=WIDE):
        largest = mean_by(where(rows, case=WIDE), ("method",), "max_error")
        said = "; ".join(
            f"{IMPLICIT[m]} {mean[WIDE, m].mean:.5f} / {largest[m,]:.4f}" for m in IMPLICIT if (m,) in largest
        )
        told += ["", f"{WIDE}, 20,000 random 3-way queries, {WIDE_ROUNDS} rounds, mean / max: {said}."]
    return "\n".join(told)


def _clearly(mean: Samples, case: str) -> str:
    """Which maps are clearly worse than the one of the least mean."""
    least = min(MAPS, key=lambda method: mean[case, method].mean)
    worse = [method for method in MAPS if mean[case, least].clearly_below(mean[case, method])]
    return f"clearly above {least}: {', '.join(worse)}" if worse else "none is clearly above the least"


def bounds(case: str) -> dict[str, float]:
    """R · max ‖q‖ of the theorem (docs/learners.md): √ln|X| of entropy, √(½ · cells that q accepts) of Euclid."""
    _, width, spec = CASES[case]
    kind, _, order = spec.partition(":")
    if kind == "ranges":
        cells = accepted = LINE_CELLS
    else:
        cells, accepted = 2**width, 2 ** (width - int(order))
    return {"entropy": math.log(cells) ** 0.5, "euclidean": (accepted / 2) ** 0.5}


def _predicted(mean: Samples, cases: Sequence[str]) -> str:
    """What the theorem's bound says of entropy and Euclid, and on which tables that shows."""
    predicted: dict[str, list[str]] = {method: [] for method in COMPARED}
    shows: list[str] = []
    hidden: list[str] = []
    turned: list[str] = []
    for case in cases:
        bound = bounds(case)
        wins, loses = sorted(COMPARED, key=lambda method: bound[method])
        if bound[loses] < EVENLY * bound[wins]:
            continue
        predicted[wins].append(f"*{case}* ({bound[wins]:.2g} against {bound[loses]:.2g})")
        if mean[case, wins].clearly_below(mean[case, loses]):
            shows.append(case)
        else:
            (turned if mean[case, loses].clearly_below(mean[case, wins]) else hidden).append(case)
    said = "; ".join(f"{method} on {', '.join(each)}" for method, each in predicted.items() if each)
    sentences = [
        f"By the theorem's bound, R · max ‖q‖, these should win: {said}.",
        f"That shows clearly on {_cases(shows)}; the runs do not tell the two apart on {_cases(hidden)}; it is "
        f"clearly the other way on {_cases(turned)}.",
    ]
    if EVEN in hidden or EVEN in turned:
        sentences.append(
            f"On *{EVEN}* the queries accept the fewest cells and the table is spread over the most, so that Euclid "
            "has its best chance; no gain shows even there."
        )
    return " ".join(sentences)


def _cases(cases: Sequence[str]) -> str:
    return ", ".join(f"*{case}*" for case in cases) or "none"


EXPERIMENT = Experiment(
    name="mirror",
    title="Mirror descent: maps, and a learner without a histogram",
    paper="Jain and Thakurta 2012: mirror descent lowers the number of records that are needed where the L_p norm "
    "of the table and the L_q norm of the queries allow it. They measure nothing.",
    points=points,
    draw=draw,
    find=find,
    by=("case", "method"),
    shown=("queries", "mean_error", "max_error", "seconds"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
