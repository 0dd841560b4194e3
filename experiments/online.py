"""Questions one at a time: streams of them against a release, a test that fires, and independent noise.

Beside it online private multiplicative weights from a uniform start (`test="sparse-vector"`), with its promise, on
natural questions and against an adversary.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from statistics import median

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

import dualquery
from dualquery import Accounting, Budget, Neighbours, Release
from dualquery.counting import MemoryCounter
from dualquery.counting.opening import ColumnCounter
from dualquery.interactive.answers import Badge, OnlineAnswer
from dualquery.interactive.opening import first_release
from dualquery.interactive.rule import OnlineRule
from dualquery.privacy.conversion import rho_of
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import GaussianMeasurement
from dualquery.privacy.ledger import Ledger, smallest_gaussian_scale
from dualquery.privacy.noise import discrete_gaussian
from dualquery.privacy.thresholds import HazardTest, Slot
from dualquery.queries.families import from_texts
from dualquery.queries.question import QuestionReader
from dualquery.randomness import SeededEntropy
from dualquery.table.domain import Categorical, Domain
from dualquery.table.records import Records
from experiments import drawing
from experiments.data import Data, kept, only_columns
from experiments.drawing import BLACK, SKY, Look
from experiments.harness import Experiment, Point, Rows, Setting, Value, distinct, main, where
from experiments.online_streams import ALL_EQUAL, STREAMS, slowest_lesson
from experiments.spread import samples_by

BUDGET = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.REPLACE, accounting=Accounting.RENYI)
EIGHT = (
    "workclass",
    "education",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income",
)
ADULT_8, ADULT_15, NLTCS = "Adult, 8 attributes", "Adult, all 15", "NLTCS"
STALE = "natural, stale release"
STALE_SHARE = 0.6  # of the budget: what is left pays for 20 fires
RICHER, OLDER = (
    0.3,
    0.15,
)  # log-weights of the stale table: of a high income, and of a standard deviation of age
PLANTED = "an error at the bound"
PROMISED = "natural, online PMW"
ADVERSARY = "adversary, online PMW"
EQUAL = {rows: f"{rows:,} equal records" for rows in (30_162, 200_000)}


@lru_cache(maxsize=4)
def table(data: Data, name: str) -> Records:
    if name == NLTCS:
        return kept(data, "nltcs")
    adult = kept(data, "adult")
    if name == ADULT_15:
        return adult
    names = [column.name for column in adult.domain.columns]
    return only_columns(adult, [names.index(each) for each in EIGHT])


@lru_cache(maxsize=2)
def release_of(data: Data, name: str, share: float, seed: int, workload: str | None) -> Release:
    records = table(data, name)
    return first_release(
        records, schema=records.domain, budget=BUDGET, share=share, seed=seed, workload=workload
    )


@lru_cache(maxsize=2)
def stale_release(data: Data, seed: int) -> Release:
    """A release of an older table, drawn from today's with a lean towards high incomes and age."""
    records = table(data, ADULT_15)
    names = [column.name for column in records.domain.columns]
    rows = records.to_rows()
    age = rows[:, names.index("age")].astype(np.float64)
    rich = rows[:, names.index("income")] == records.domain.columns[names.index("income")].labels.index(
        ">50K"
    )
    weights = np.exp(RICHER * rich + OLDER * (age - age.mean()) / age.std())
    chosen = np.random.default_rng(1000 + seed).choice(records.rows, records.rows, p=weights / weights.sum())
    older = Records.from_rows(records.domain, rows[chosen])
    return first_release(older, schema=records.domain, budget=BUDGET, share=STALE_SHARE, seed=seed)


def asked(
    online: dualquery.Online, stream: str, questions: int, seed: int
) -> tuple[list[str], list[OnlineAnswer]]:
    """The stream and its answers."""
    answers: list[OnlineAnswer] = []

    def answer(text: str) -> float:
        answers.append(online.ask(text))
        return answers[-1].value

    rng = np.random.default_rng(7919 * (seed + 1))
    return list(STREAMS[stream](online.domain, questions, rng, answer)), answers


def errors(
    records: Records, texts: Sequence[str], answers: Mapping[str, NDArray[np.float64]]
) -> dict[str, Value]:
    """Mean and max error of several ways to answer the same questions."""
    truth = from_texts(records.domain, texts).counts(records) / records.rows
    found: dict[str, Value] = {}
    for name, values in answers.items():
        wrong = np.abs(values - truth)
        found |= {f"{name}_mean": float(wrong.mean()), f"{name}_max": float(wrong.max())}
    return found


def independent(records: Records, texts: Sequence[str], seed: int) -> NDArray[np.float64]:
    """Gaussian noise on every answer, their number known, by the accounting that is tight for it; clamped."""
    once = GaussianMeasurement(Fraction(len(texts)), Fraction(1))
    budget = Budget(
        epsilon=BUDGET.epsilon,
        delta=BUDGET.delta,
        neighbours=BUDGET.neighbours,
        accounting=Accounting.GAUSSIAN,
    )
    variance = smallest_gaussian_scale(budget, [once])
    noise = discrete_gaussian(len(texts), variance=variance, entropy=SeededEntropy(seed))
    counts = from_texts(records.domain, texts).counts(records)
    return np.clip((counts + noise) / records.rows, 0.0, 1.0)


def measure_stream(
    data: Data, name: str, stream: str, questions: int, seed: int, workload: str | None
) -> dict[str, Value]:
    stale = stream == STALE
    records = table(data, name)
    release = stale_release(data, seed) if stale else release_of(data, name, 0.9, seed, workload)
    online = dualquery.online(records, schema=records.domain, budget=BUDGET, release=release, seed=seed)
    started = time.process_time()
    texts, answers = asked(online, "natural" if stale else stream, questions, seed)
    spent = time.process_time() - started
    values = np.array([answer.value for answer in answers])
    queries = from_texts(records.domain, texts)
    assert release.records is not None
    ways = {
        "online": values,
        "release": queries.fractions(release.records),
        "gaussian": independent(records, texts, seed),
    }
    if not stale:
        full = release_of(data, name, 0.9999, seed, workload).records
        assert full is not None
        ways["full"] = queries.fractions(full)
    truth = queries.counts(records) / records.rows
    verified = np.array([answer.badge is Badge.NOT_CONTRADICTED for answer in answers])
    bounds = np.array([answer.bound or 1.0 for answer in answers])
    above = (np.abs(values - truth) > bounds) & verified
    return errors(records, texts, ways) | {
        "fires": online.status().updates,
        "verified": int(verified.sum()),
        "unverified": sum(answer.badge is Badge.NOT_CHECKED for answer in answers),
        "above_bound": int(above.sum()),
        "milliseconds": 1000 * spent / questions,
    }


def promising(records: Records, questions: int, seed: int) -> dualquery.Online:
    return dualquery.online(
        records, schema=records.domain, budget=BUDGET, test="sparse-vector", questions=questions, seed=seed
    )


def kept_promise(online: dualquery.Online) -> dict[str, Value]:
    promise, status = online.rule.accuracy, online.status()
    assert promise is not None
    return {"promised": promise.error, "most_updates": promise.updates, "fires": status.updates}


def measure_promised(data: Data, name: str, questions: int, seed: int) -> dict[str, Value]:
    records = table(data, name)
    online = promising(records, questions, seed)
    texts, answers = asked(online, "natural", questions, seed)
    values = np.array([answer.value for answer in answers])
    return errors(records, texts, {"online": values}) | kept_promise(online)


def measure_adversary(rows: int, questions: int, seed: int) -> dict[str, Value]:
    online = promising(Records.from_rows(ALL_EQUAL, np.zeros((rows, 1), np.int64)), questions, seed)
    wrong = np.array(list(slowest_lesson(online, questions)))
    return {"online_mean": float(wrong.mean()), "online_max": float(wrong.max())} | kept_promise(online)


def measure_planted(times: int, seed: int) -> dict[str, Value]:
    """A count that is off by exactly the bound, tested over and over: how often nothing is noticed."""
    rows = 30_162
    domain = Domain((Categorical("a", ("no", "yes")),))
    rule = OnlineRule.of(BUDGET, rows=rows)
    off = int(np.ceil(rule.bound(rule.test) * rows))
    records = Records.from_rows(domain, (np.arange(rows) < 5000 + off)[:, None].astype(np.int64))
    question = QuestionReader(domain).read("a = yes")
    counter, entropy, silent = ColumnCounter(MemoryCounter(records)), SeededEntropy(seed), 0
    for _ in range(times):
        ledger = Ledger(BUDGET)
        slot = Slot(ledger, rule.test.event, rule.measured)
        surprise = Curator(counter, ledger, entropy).exceeds(
            question.group, np.array([5000]), test=rule.test, slot=slot, noise=rule.noise(question)
        )
        silent += surprise is None
    assert isinstance(rule.test, HazardTest), "the test that a rule takes by default"
    expected = 1 - float(sum(rule.test.probabilities(off)))
    return {"verified": times, "above_bound": silent, "unnoticed": expected}


def points(setting: Setting) -> list[Point]:
    few = setting.choose(toy=60, quick=500, full=2000)
    many = setting.choose(toy=(60,), quick=(500,), full=(2000, 20_000))
    names = setting.choose(toy=(NLTCS,), quick=(ADULT_8, NLTCS), full=(ADULT_8, ADULT_15, NLTCS))
    workload = setting.choose(toy="marginals:1", quick=None, full=None)  # None: the program's own
    seeds = setting.seeds(full=5)
    wanted = [(name, "natural", number) for name in names for number in many]
    wanted += [(ADULT_8, "random", number) for number in many if ADULT_8 in names]
    wanted += [(names[0], stream, few) for stream in ("drill", "broad")]
    if ADULT_15 in names:
        wanted += [(ADULT_15, "drill", few), (ADULT_15, "broad", few), (ADULT_15, STALE, few)]
    streams = [
        Point(
            {"table": name, "stream": stream, "questions": number, "run": seed},
            partial(measure_stream, setting.data, name, stream, number, seed, workload),
            cost=10 + number / 500,
        )
        for seed in seeds
        for name, stream, number in sorted(wanted, key=lambda each: each[0])
    ]
    promised = [
        Point(
            {"table": name, "stream": PROMISED, "questions": few, "run": seed},
            partial(measure_promised, setting.data, name, few, seed),
            cost=10,
        )
        for seed in seeds
        for name in setting.choose(toy=(), quick=names, full=names)  # of few records nothing can be promised
        if name != ADULT_15  # whose universe nobody can hold
    ]
    lessons = setting.choose(toy=60, quick=200, full=700)
    attacks = [
        Point(
            {"table": EQUAL[rows], "stream": ADVERSARY, "questions": lessons, "run": seed},
            partial(measure_adversary, rows, lessons, seed),
            cost=5,
        )
        for seed in setting.seeds(full=20)
        for rows in setting.choose(toy=(30_162,), quick=(30_162,), full=tuple(EQUAL))
    ]
    planted = [
        Point(
            {"table": "planted", "stream": PLANTED, "questions": few, "run": seed},
            partial(measure_planted, few, seed),
        )
        for seed in seeds
    ]
    return streams + promised + attacks + planted


def middle(rows: Rows, column: str) -> float:
    """The median over runs."""
    found = [row[column] for row in rows if isinstance(row.get(column), int | float)]
    return median(found) if found else float("nan")


def draw(rows: Rows) -> Figure:
    bars = [row for row in rows if row["stream"] != PLANTED]
    keys = list(dict.fromkeys((row["table"], row["stream"], row["questions"]) for row in bars))
    picture = Figure(figsize=(10, 0.55 * len(keys) + 1.6), layout="constrained")
    panels = picture.subplots(1, 2, sharey=True)
    styles = {
        "gaussian": (drawing.NOISE, "independent Gaussian noise"),
        "release": (Look(SKY, "v"), "the release alone"),
        "full": (drawing.PROJECTION, "a release with all of the budget"),
        "online": (drawing.MWEM, "online"),
    }
    for panel, size in zip(panels, ("mean", "max"), strict=True):
        for place, (way, (look, label)) in enumerate(styles.items()):
            values = [middle(_of(bars, key), f"{way}_{size}") for key in keys]
            heights = np.arange(len(keys)) + 0.2 * (place - 1.5)
            panel.scatter(values, heights, color=look.colour, marker=look.marker, s=20, label=label, zorder=3)
            for height, key in zip(heights, keys, strict=True):
                for sample in samples_by(_of(bars, key), (), f"{way}_{size}").values():
                    panel.hlines(height, sample.low, sample.high, color=look.colour, lw=1.4)
        if size == "max":
            promises = [middle(_of(bars, key), "promised") for key in keys]
            panel.scatter(
                promises, range(len(keys)), color=BLACK, marker="|", s=120, label="what is promised"
            )
        panel.set_xscale("log")
        panel.set(xlabel=f"{size} error (fraction of the table)")
    panels[0].invert_yaxis()  # of both: they share it
    panels[0].set_yticks(range(len(keys)), [f"{name}: {stream}, {number:,}" for name, stream, number in keys])
    picture.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return picture


def _of(rows: Rows, key: tuple[str, str, int]) -> Rows:
    return where(rows, table=key[0], stream=key[1], questions=key[2])


def find(rows: Rows) -> str:
    runs = len(distinct(where(rows, stream="natural"), "run"))
    rho = float(rho_of(epsilon=BUDGET.epsilon, delta=BUDGET.delta))
    lines = [
        f"(ε, δ) = (1, 10⁻⁶), ρ = {rho:.4f}, replace-one, medians of {runs} runs unless said. The release has 90% of "
        "the budget, "
        "a fire 2% with its measurement. Errors are those of the answers as given, in the order of the stream."
    ]
    for key in dict.fromkeys((row["table"], row["stream"], row["questions"]) for row in rows):
        mine = _of(rows, key)
        name, stream, number = key
        if stream == PLANTED:
            share = sum(row["above_bound"] for row in mine) / sum(row["verified"] for row in mine)
            lines.append(
                f"- **An error planted exactly at the bound** stays unnoticed in {share:.2%} of the tests; by the "
                f"law it is {middle(mine, 'unnoticed'):.3%}."
            )
        elif stream in (PROMISED, ADVERSARY):
            kept = sum(row["online_max"] <= row["promised"] for row in mine)
            most, worst = max(row["fires"] for row in mine), max(row["online_max"] for row in mine)
            lines.append(
                f"- **{name}, {stream}**, {number:,} questions: mean {middle(mine, 'online_mean'):.3g}, max "
                f"{middle(mine, 'online_max'):.3g} (at worst {worst:.3g}), where {mine[0]['promised']:.3g} is "
                f"promised, and was kept in {kept} of {len(mine)} runs; {middle(mine, 'fires'):.0f} updates (at most "
                f"{most}) of the {mine[0]['most_updates']} that the theorem allows."
            )
        else:
            lines.append(_found(mine, key))
    return "\n".join([lines[0], "", *lines[1:]])


def _found(mine: Rows, key: tuple[str, str, int]) -> str:
    name, stream, number = key
    online, alone = middle(mine, "online_mean"), middle(mine, "release_mean")
    verified = sum(row["verified"] for row in mine)
    above = sum(row["above_bound"] for row in mine) / max(1, verified)
    words = (
        f"- **{name}, {stream}**, {number:,} questions: mean {online:.2g}, max {middle(mine, 'online_max'):.2g}; "
        f"independent noise {middle(mine, 'gaussian_mean'):.2g}, "
        f"{middle(mine, 'gaussian_mean') / online:.1f} times that"
    )
    if stream == STALE:
        words += (
            f"; unrepaired {alone:.2g} and {middle(mine, 'release_max'):.2g}, {alone / online:.1f} and "
            f"{middle(mine, 'release_max') / middle(mine, 'online_max'):.1f} times that"
        )
    else:
        full = middle(mine, "full_mean")
        words += f"; a release with all of the budget {full:.2g}, of which this is {online / full:.2f}"
    fires = round(middle(mine, "fires"))
    return (
        f"{words}; {fires} fire{'' if fires == 1 else 's'}, {above:.2%} of the verified answers above their bound, "
        f"{middle(mine, 'milliseconds'):.2f} ms of CPU a question."
    )


EXPERIMENT = Experiment(
    name="online",
    title="Questions one at a time: streams against a release, a test that fires and independent noise",
    paper="Online private multiplicative weights from a uniform start answers any stream of counting queries "
    "within α once n ≳ √d log|Q|/(α²ε) (Ullman's tutorial of 2013, after Hardt and Rothblum 2010).",
    points=points,
    draw=draw,
    find=find,
    by=("table", "stream", "questions"),
    shown=(
        "online_mean",
        "online_max",
        "release_mean",
        "release_max",
        "full_mean",
        "full_max",
        "gaussian_mean",
        "gaussian_max",
        "promised",
        "fires",
        "most_updates",
        "verified",
        "unverified",
        "above_bound",
        "milliseconds",
    ),
)

if __name__ == "__main__":
    main(EXPERIMENT)
