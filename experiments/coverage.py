"""How often the bar of an answer holds the truth: natural questions, asked of default releases of five tables.

The questions are written in the query language and answered by `Release.answers`, as a user would ask them. They are
drawn by another rule than those that the curves of the bars are learned from
(`queries.random_families.mixed_questions`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import lru_cache, partial

import numpy as np
from matplotlib.figure import Figure

from dualquery.example import SCHEMA, survey
from dualquery.mechanisms.error_bars import STUDENT
from dualquery.privacy.budget import Accounting, Budget, Neighbours
from dualquery.queries.families import from_spec, from_texts
from dualquery.queries.language.formula import Literal, Query, canonical
from dualquery.queries.workload import Workload
from dualquery.releases.make import release
from dualquery.table.domain import Categorical, Domain, Numeric
from dualquery.table.encoding import encode
from dualquery.table.records import Records
from dualquery.table.schema import parse_schema
from experiments.data import Data, kept
from experiments.drawing import (
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    SKY,
    VERMILION,
    Look,
    legend_below,
    plain_ticks,
    upright,
)
from experiments.harness import (
    AIM,
    Experiment,
    Means,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    main,
    mean_by,
    parser,
    setting_of,
    where,
)

SURVEY, ADULT, TEST, NLTCS, KDD99 = "survey", "Adult", "Adult, test part", "NLTCS", "KDD99"
LOOKS = {
    SURVEY: Look(ORANGE, "s", "--"),
    ADULT: Look(BLUE, "o"),
    TEST: Look(SKY, "v", ":"),
    NLTCS: Look(GREEN, "^", "-."),
    KDD99: Look(VERMILION, "D", ":"),
}
FILES = {ADULT: "adult", TEST: "adult_test", NLTCS: "nltcs", KDD99: "kddcup99"}
ASKED = {
    KDD99: "marginals:2"
}  # three of its 41 attributes are 11,480 tables; pairs are what projection would keep
DELTA = {NLTCS: 1e-6}
USUAL, USUAL_DELTA = "marginals:3", 1e-3
MOST_ATTRIBUTES = 4
LEAST, MOST = 0.93, 0.99  # of a coverage
LOW, HIGH = 0.7, 1.5  # of a predicted mean error, in units of the true one


@lru_cache(maxsize=2)
def records_of(data: Data, name: str) -> Records:
    if name == SURVEY:
        return encode(survey(), parse_schema(SCHEMA, origin="the example"))
    return kept(data, FILES[name])


@lru_cache(maxsize=2)
def workload_of(domain: Domain, spec: str) -> Workload:
    return from_spec(domain, spec)


def natural_questions(domain: Domain, count: int, rng: np.random.Generator) -> list[Query]:
    """Questions about one to four attributes: values, ranges, sets, negations; every fourth is a disjunction."""
    varied = np.flatnonzero(domain.sizes > 1)
    out = []
    for _ in range(count):
        number = min(int(rng.integers(1, MOST_ATTRIBUTES + 1)), len(varied))
        chosen = np.sort(rng.choice(varied, number, replace=False)).tolist()
        disjunction = number > 1 and bool(rng.random() < 0.25)
        literals = []
        for attribute in chosen:
            values, negated = canonical(_accepted(domain, attribute, rng), int(domain.sizes[attribute]))
            literals.append(Literal(attribute, values, negated != disjunction))  # some f = 1 − Π ¬f
        out.append(Query(tuple(literals), complement=disjunction))
    return out


def _accepted(domain: Domain, attribute: int, rng: np.random.Generator) -> int:
    """The values that a condition accepts, as a bit set: neither none nor all."""
    size, column = int(domain.sizes[attribute]), domain.column_of(attribute)[1]
    ordered = isinstance(column, Numeric) or (isinstance(column, Categorical) and column.ordered)
    kind = str(rng.choice(["value", "range" if ordered else "set", "set", "negation"]))
    everything = (1 << size) - 1
    if kind == "range" and size > 2:
        first, last = np.sort(rng.choice(size + 1, 2, replace=False)).tolist()
        wanted = (1 << last) - (1 << first)
        return wanted if wanted != everything else wanted >> 1
    if kind == "set" and size > 2:
        chosen = rng.choice(size, int(rng.integers(2, size)), replace=False)
        return sum(1 << code for code in chosen.tolist())
    value = 1 << int(rng.integers(size))
    return everything ^ value if kind == "negation" else value


def measure(data: Data, name: str, epsilon: float, questions: int, seed: int) -> dict[str, Value]:
    """A default release, and how many of its bars hold the truth."""
    records = records_of(data, name)
    delta = DELTA.get(name, USUAL_DELTA)
    budget = Budget(
        epsilon=epsilon, delta=delta, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.ZCDP
    )
    workload = workload_of(records.domain, ASKED.get(name, USUAL))
    started = time.perf_counter()
    made = release(records, budget=budget, workload=workload, seed=seed)
    seconds = time.perf_counter() - started
    asked = natural_questions(records.domain, questions, np.random.default_rng([seed, questions]))
    texts = [query.text(records.domain) for query in asked]
    answers = made.answer_all(texts)
    truth = from_texts(records.domain, texts).counts(records) / records.rows
    off = np.abs(truth - [answer.value for answer in answers])
    bars = np.array([answer.error for answer in answers], np.float64)
    order = np.array([len(query.literals) for query in asked])
    held = off <= bars
    expected = np.sqrt(2 / np.pi) * bars / STUDENT  # E|x| of a normal error whose 95% bar this is
    return {
        "coverage": float(held.mean()),
        **{f"coverage_{k}": float(held[order == k].mean()) for k in np.unique(order).tolist()},
        "half_bars": float((off <= bars / 2).mean()),
        "mean_error": float(off.mean()),
        "predicted": float(expected.mean()),
        "ratio": float(expected.mean() / off.mean()),
        "zero_bars": int((bars <= 0).sum()),
        "seconds": seconds,
    }


def points(setting: Setting) -> list[Point]:
    names = setting.choose(toy=[SURVEY], quick=[SURVEY, NLTCS], full=[SURVEY, ADULT, NLTCS, KDD99, TEST])
    epsilons = setting.choose(toy=(1.0,), quick=(0.1, 1.0, 10.0), full=(0.1, 1.0, 10.0))
    questions = setting.choose(toy=200, quick=500, full=500)
    return [
        Point(
            {"data": name, "epsilon": epsilon, "run": seed},
            partial(measure, setting.data, name, epsilon, questions, seed),
            cost=4.0 if name == KDD99 else 1.0,
        )
        for name in names
        for epsilon in epsilons
        for seed in setting.seeds(full=5)
    ]


def draw(rows: Rows) -> Figure:
    picture = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = picture.subplots(1, 2)
    names = distinct(rows, "data")
    aside = {name: 1.22 ** (place - (len(names) - 1) / 2) for place, name in enumerate(names)}
    for panel, column, low, high, words in (
        (left, "coverage", LEAST, MOST, "share of 95% bars that hold the truth"),
        (right, "ratio", LOW, HIGH, "predicted mean error / true one"),
    ):
        panel.axhspan(low, high, color=GREY, alpha=0.12, lw=0)
        panel.set_xscale("log")
        for name in names:
            # Beside each other: five spreads over each other could not be told apart.
            mine = [{**row, "place": row["epsilon"] * aside[name]} for row in where(rows, data=name)]
            upright(panel, mine, "place", column, LOOKS[name], name)
        plain_ticks(panel, distinct(rows, "epsilon"))
        panel.set(xlabel="ε", ylabel=words)
    left.set_ylim(0.85, 1.0)
    legend_below(picture, left, 5)
    return picture


def find(rows: Rows) -> str:
    coverage = mean_by(rows, ("data", "epsilon"), "coverage")
    ratio = mean_by(rows, ("data", "epsilon"), "ratio")
    half = mean_by(rows, (), "half_bars")[()]
    by_order = {k: mean_by(rows, (), f"coverage_{k}")[()] for k in range(1, MOST_ATTRIBUTES + 1)}
    told = ", ".join(f"{value:.3f} about {k}" for k, value in by_order.items())
    return " ".join(
        [
            f"A bar of 95% holds the truth for {min(coverage.values()):.3f} to {max(coverage.values()):.3f} of the "
            f"questions, table by table and ε by ε; by the number of attributes {told}.",
            f"Bars half as wide would hold it for {half:.3f}.",
            f"The predicted mean error is {min(ratio.values()):.2f} to {max(ratio.values()):.2f} times the true one.",
            *_misses(coverage, LEAST, MOST, "Coverage"),
            *_misses(ratio, LOW, HIGH, "The ratio of the mean errors"),
        ]
    )


def _misses(found: Means, low: float, high: float, what: str) -> Sequence[str]:
    """A sentence about whatever lies outside of what was aimed at."""
    outside = [
        f"{name}, ε = {epsilon:g}: {value:.3f}"
        for (name, epsilon), value in found.items()
        if not low <= value <= high
    ]
    return [f"**{what} is outside of {low} to {high}** on {'; '.join(outside)}."] if outside else []


EXPERIMENT = Experiment(
    name="coverage",
    title="Coverage: how often a 95% bar holds the truth",
    paper=(
        "Our own: no paper draws bars. Of 500 random natural questions (one to four attributes; values, "
        "ranges, sets, negations, disjunctions; inside and outside of the workload, all 3-way tables, on KDD99 all "
        "2-way tables) between 93% and 99% have the truth within the bar, for each table and ε, and the predicted "
        "mean error is between 0.7 and 1.5 times the true one."
    ),
    before=AIM,
    points=points,
    draw=draw,
    find=find,
    by=("data", "epsilon"),
    shown=(
        "coverage",
        "coverage_1",
        "coverage_2",
        "coverage_3",
        "coverage_4",
        "half_bars",
        "mean_error",
        "predicted",
        "ratio",
        "seconds",
    ),
)


def told() -> None:
    """The command: measure, then print the page."""
    arguments = parser(f"{EXPERIMENT.title}.", name=EXPERIMENT.name).parse_args()
    try:
        main(EXPERIMENT, arguments)
    finally:
        page = setting_of(arguments)[1] / f"{EXPERIMENT.name}.md"
        if page.exists():
            print(page.read_text(encoding="utf-8"))


if __name__ == "__main__":
    told()
