"""DualQuery's parameters: the paper's advice on η, s and free attributes, on a sparse table and on a dense one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from math import ceil, floor, inf
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from dualquery.counting import MemoryCounter
from dualquery.mechanisms.dual_query import DUAL_QUERY, dual_query, search_oracle
from dualquery.mechanisms.dual_query.parameters import Free, from_budget, rate_of, uniform, zeros
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.wishes import DualQueryWishes
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.queries.random_families import random_conjunctions
from dualquery.queries.workload import Workload
from dualquery.randomness import SeededEntropy
from dualquery.table.records import Records
from experiments.biased import biased_records
from experiments.data import Data, kept
from experiments.drawing import VERMILION
from experiments.harness import (
    Experiment,
    Point,
    Row,
    Rows,
    Setting,
    Value,
    distinct,
    main,
    mean_by,
    where,
)
from experiments.runs import ADD_REMOVE, answers_of, budget_of, errors_of, run_of
from experiments.spread import samples_by

EPSILON, DELTA = 1.0, 1e-3
ROUNDS_TRIED = 500  # at most
SPARSE, DENSE = "Adult (sparse)", "biased data (dense)"
THEOREM, RHO = "Theorem 4.3", "ρ"
ACCOUNTINGS = {THEOREM: Accounting.THEOREM_4_3, RHO: Accounting.ZCDP}
ZEROS, RANDOM, DENSITY = (free.value for free in Free)  # the paper's two, and ours
GRID, RULE, DEFAULT = (
    "grid",
    "our rule",
    "our default",
)  # who chose η and s; our default has a density as well


@dataclass(frozen=True)
class Advice:
    """What the paper recommends for a kind of data: free values, η, and s as a multiple of the attributes."""

    free: str
    rates: tuple[float, float]
    samples: tuple[float, float]


ADVICE = {
    SPARSE: Advice(ZEROS, (1.5, 2.0), (0.5, 2.0)),
    DENSE: Advice(RANDOM, (0.3, 0.5), (0.0, inf)),
}


@dataclass(frozen=True)
class Scale:
    """How much is asked, how large the dense table is, and which η and s are tried."""

    queries: int
    rows: int
    width: int
    rates: tuple[float, ...]
    samples: tuple[int, ...]


# Measuring


@lru_cache(maxsize=1)
def asked(data: Data, table: str, scale: Scale) -> tuple[Records, Workload, NDArray[np.float64]]:
    """Records, random 3-way queries and their true answers."""
    records = kept(data, "adult") if table == SPARSE else biased_records(scale.width, scale.rows, seed=1)
    workload = random_conjunctions(records.domain, 3, scale.queries, seed=1)
    return records, workload, workload.fractions(records)


def played(
    records: Records,
    workload: Workload,
    affords: Budget,
    pays: Budget,
    free: str,
    options: Mapping[str, Any],
    seed: int,
) -> tuple[Records, Mapping[str, Value]]:
    """A run and its parameters: the rounds that a budget affords, η and s from our rule where they are not given.

    Nothing is planned, because a plan's rehearsal takes as long as the run.
    """
    chosen = from_budget(
        Task(workload, records.rows, affords), DualQueryWishes(**options, recall=1), reserved=()
    )
    if options:
        chosen = chosen._replace(rounds=min(chosen.rounds, ROUNDS_TRIED))
    entropy = SeededEntropy(seed)
    transcript = dual_query(
        Curator(MemoryCounter(records), Ledger(pays), entropy),
        workload,
        rate=rate_of(chosen.learning_rate, chosen.rounds, records.rows),
        samples=chosen.samples,
        rounds=chosen.rounds,
        recall=1,
        public_rows=records.rows,
        oracle=search_oracle(workload),
        fallback=zeros(records.domain) if free == ZEROS else uniform(records.domain),
        rng=entropy.public_generator(),
        progress=lambda done, total: None,
    )
    return Records.from_rows(records.domain, transcript.average_reply()), chosen._asdict()


def measure(
    data: Data,
    scale: Scale,
    table: str,
    accounting: str,
    free: str,
    options: Mapping[str, Any],
    seed: int,
    epsilon: float = EPSILON,
) -> dict[str, Value]:
    records, workload, truth = asked(data, table, scale)
    pays = budget_of(epsilon, DELTA, ACCOUNTINGS[accounting], ADD_REMOVE)
    if free == DENSITY:
        run = run_of(DUAL_QUERY, records, workload, pays, seed)
        answers, chosen = answers_of(run.outcome, workload), run.parameters
    else:
        # The theorem as printed has the factor 2 that a replaced record needs (`runs.papers_rounds`).
        counted = Neighbours.REPLACE if accounting == THEOREM else ADD_REMOVE
        affords = budget_of(epsilon, DELTA, ACCOUNTINGS[accounting], counted)
        released, chosen = played(records, workload, affords, pays, free, options, seed)
        answers = workload.fractions(released)
    errors = errors_of(answers, truth)
    return {
        **{name: chosen[name] for name in ("learning_rate", "samples", "rounds")},
        "attributes": workload.decisions,
        "mean_error": errors.mean,
        "max_error": errors.max,
    }


def keys(scale: Scale) -> list[dict[str, Value]]:
    """Everything that is tried; where η and s are not named, they are ours."""
    made: list[dict[str, Value]] = []
    for table in ADVICE:
        for accounting, free in product(ACCOUNTINGS, (ZEROS, RANDOM)):
            panel = {"data": table, "accounting": accounting, "free": free}
            for rate, samples in product(scale.rates, scale.samples):
                made.append({**panel, "chosen": GRID, "learning_rate": rate, "samples": samples})
            made.append({**panel, "chosen": RULE})
        made.append({"data": table, "accounting": RHO, "free": DENSITY, "chosen": DEFAULT})
    return made


def points(setting: Setting) -> list[Point]:
    scale = setting.choose(
        toy=Scale(500, 2000, 40, (0.4, 1.6), (20, 160)),
        quick=Scale(20_000, 100_000, 200, (0.4, 0.8, 1.6), (50, 200, 800)),
        full=Scale(50_000, 100_000, 500, (0.2, 0.4, 0.8, 1.6, 3.2), (50, 100, 200, 400, 800, 1600)),
    )

    def point(key: Mapping[str, Value], seed: int) -> Point:
        table, accounting, free = (str(key[name]) for name in ("data", "accounting", "free"))
        named: dict[str, Any] = {name: key[name] for name in ("learning_rate", "samples") if name in key}
        return Point(
            {**key, "neighbours": ADD_REMOVE.value, "run": seed},
            partial(measure, setting.data, scale, table, accounting, free, named, seed),
            cost=(3 if table == DENSE else 1) * (3 if accounting == RHO else 1),
        )

    return [point(key, seed) for key in keys(scale) for seed in setting.seeds(full=2)]


# Drawing


def draw(rows: Rows) -> Figure:
    tables = distinct(rows, "data")
    columns = list(product(ACCOUNTINGS, (ZEROS, RANDOM)))
    picture = Figure(figsize=(11.5, 3 * len(tables)), layout="constrained")
    picture.suptitle(
        "mean error in thousandths (the darker, the larger beside the others of a table and a theorem)"
    )
    for panels, table in zip(picture.subplots(len(tables), len(columns), squeeze=False), tables, strict=True):
        for panel, (accounting, free) in zip(panels, columns, strict=True):
            compared = where(rows, data=table, accounting=accounting, chosen=GRID)
            errors = [row["mean_error"] for row in compared]
            heat_map(
                panel,
                where(rows, data=table, accounting=accounting, free=free),
                LogNorm(min(errors), max(errors)),
            )
            panel.set_title(f"{table}\n{accounting}, free values {free}", fontsize=9)
            if free == ADVICE[table].free:
                panel.add_patch(_frame(compared, ADVICE[table]))
        panels[0].set_ylabel("learning rate η")
    picture.legend(
        handles=[
            Rectangle((0, 0), 1, 1, fill=False, edgecolor=VERMILION, linewidth=2, label="best of the grid"),
            Rectangle(
                (0, 0), 1, 1, fill=False, edgecolor="black", linestyle="--", label="the paper's advice"
            ),
            Line2D(
                [],
                [],
                marker="o",
                ms=6,
                mfc="white",
                mec=VERMILION,
                linestyle="",
                label="our rule (its nearest cell)",
            ),
        ],
        loc="outside lower center",
        ncols=3,
        frameon=False,
    )
    return picture


def heat_map(panel: Axes, rows: Rows, shades: LogNorm) -> None:
    """Mean errors in thousandths over (η, s), the best cell framed, and a circle where our rule would go."""
    cells = mean_by(where(rows, chosen=GRID), ("learning_rate", "samples"), "mean_error")
    rates, samples = _axes(rows)
    errors = np.array([[cells[rate, number] for number in samples] for rate in rates])
    panel.imshow(errors, norm=shades, cmap="cividis_r", origin="lower", aspect="auto")
    for (i, j), error in np.ndenumerate(errors):
        colour = "white" if shades(error) > 0.6 else "black"
        panel.text(j, i, f"{1000 * error:.1f}", ha="center", va="center", fontsize=7, color=colour)
    i, j = np.unravel_index(errors.argmin(), errors.shape)
    panel.add_patch(
        Rectangle((j - 0.5, i - 0.5), 1, 1, fill=False, edgecolor=VERMILION, linewidth=2, zorder=3)
    )
    for row in where(rows, chosen=RULE)[:1]:
        x, y = _place(samples, row["samples"]), _place(rates, row["learning_rate"])
        corner = round(x) + 0.38, round(y) + 0.36  # of the nearest cell, beside its digits
        panel.plot(*corner, "o", ms=6, mfc="white", mec=VERMILION, mew=1.5)
    panel.set_xticks(range(len(samples)), [f"{number:g}" for number in samples])
    panel.set_yticks(range(len(rates)), [f"{rate:g}" for rate in rates])
    panel.set_xlabel("samples s")
    panel.grid(False)


def _axes(rows: Rows) -> tuple[list[float], list[float]]:
    """The η and the s of the grid."""
    grid = where(rows, chosen=GRID)
    return sorted(distinct(grid, "learning_rate")), sorted(distinct(grid, "samples"))


def _place(ticks: list[float], value: float) -> float:
    """Where a value lies among ticks that are drawn at 0, 1, 2 …; what lies outside of them is put at the edge."""
    if value < ticks[0]:
        return -0.5
    if value > ticks[-1]:
        return len(ticks) - 0.5
    return float(np.interp(np.log(value), np.log(ticks), range(len(ticks))))


def _frame(rows: Rows, advice: Advice) -> Rectangle:
    rates, samples = _axes(rows)
    attributes = rows[0]["attributes"]
    left, right = (_place(samples, factor * attributes) for factor in advice.samples)
    low, high = (_place(rates, rate) for rate in advice.rates)
    # Whole cells, so that no line runs over digits.
    left, low = (floor(edge + 0.5) - 0.5 for edge in (left, low))
    right, high = (ceil(edge - 0.5) + 0.5 for edge in (right, high))
    return Rectangle(
        (left, low), right - left, high - low, fill=False, edgecolor="black", linestyle="--", linewidth=1.5
    )


# Words


def find(rows: Rows) -> str:
    told = [
        " ".join(
            _told(where(rows, data=table, accounting=accounting), ADVICE[table], f"{table}, {accounting}")
        )
        for table, accounting in product(distinct(rows, "data"), ACCOUNTINGS)
    ]
    given = (
        f"ε = {EPSILON:g}, δ = {DELTA:g}, a record added or removed, random queries; T is the most that ρ or Theorem "
        f"4.3 as printed (with its factor 2) affords, in the grid up to {ROUNDS_TRIED}. But for our default a record "
        "answers the draws of its own round alone. The digits are means of the runs."
    )
    return "\n".join([given, "", *(f"- {words}" for words in told)])


def _told(rows: Rows, advice: Advice, name: str) -> list[str]:
    """One table and one theorem: the best cell, the paper's advice, the free values and our own choice."""
    grid = where(rows, chosen=GRID)
    errors = mean_by(grid, ("learning_rate", "samples", "free"), "mean_error")
    (rate, samples, free), best = min(errors.items(), key=lambda item: item[1])
    best_runs = samples_by(grid, ("learning_rate", "samples", "free"), "mean_error")[rate, samples, free]
    attributes = grid[0]["attributes"]
    advised = min(error for key, error in errors.items() if _follows(key, advice, attributes))
    zeros_best, random_best = (
        min(error for key, error in errors.items() if key[2] == policy) for policy in (ZEROS, RANDOM)
    )
    sentences = [
        f"**{name}**: best of the grid {best:.4f} (η = {rate:g}, s = {samples:g}, free values {free}); the best that "
        f"follows the paper's advice {advised:.4f}, {advised / best:.2f} times that.",
        f"The best with random free values is {random_best / zeros_best:.2f} times the best with zeros.",
    ]
    rule = where(rows, chosen=RULE, free=free)
    if rule:
        error = mean_by(rule, ("chosen",), "mean_error")[(RULE,)]
        clear = best_runs.clearly_below(samples_by(rule, ("chosen",), "mean_error")[RULE,])
        sentences.append(
            f"With the same free values our rule (η = {rule[0]['learning_rate']:.2g}, s = {rule[0]['samples']}) has "
            f"{error:.4f}, {error / best:.2f} times the best{_likely(rule[0], rate, samples) if clear else ''}."
        )
    for error in mean_by(where(rows, chosen=DEFAULT), ("chosen",), "mean_error").values():
        sentences.append(
            f"Our default, free values by a density, has {error:.4f}, {error / best:.2f} times the best."
        )
    return sentences


def _likely(rule: Row, rate: float, samples: float) -> str:
    """Where our rule clearly falls short, on which side of the best cell it stands."""
    of_rate = "higher" if rule["learning_rate"] > rate else "lower"
    of_samples = "more" if rule["samples"] > samples else "fewer"
    return f": it asks for a {of_rate} learning rate and {of_samples} samples than suit this table"


def _follows(key: tuple[float, float, str], advice: Advice, attributes: float) -> bool:
    rate, samples, free = key
    least, most = (factor * attributes for factor in advice.samples)
    return free == advice.free and advice.rates[0] <= rate <= advice.rates[1] and least <= samples <= most


EXPERIMENT = Experiment(
    name="dualquery_parameters",
    title="DualQuery's parameters: η, s and free attributes on sparse and on dense data",
    paper="On sparse data η from 1.5 to 2, s of the order of the number of attributes and free attributes set to 0 "
    "are good; on dense synthetic data η about 0.4 and free attributes at random (section 7, parameter tuning).",
    points=points,
    draw=draw,
    find=find,
    by=("data", "accounting", "free", "chosen", "learning_rate", "samples"),
    shown=("rounds", "mean_error", "max_error"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
