"""A release that starts from public rows: with good, few, biased and junk ones, beside the default and PMW^Pub."""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import combinations

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.mechanisms.artefact import SyntheticUnits
from dualquery.mechanisms.error_bars import MOST_ATTRIBUTES
from dualquery.privacy.budget import Budget, Neighbours
from dualquery.privacy.conversion import rho_of
from dualquery.queries.random_families import Stream, mixed_questions
from dualquery.queries.tables import Tables, attribute_codes
from dualquery.releases.make import release
from dualquery.table.encoding import decode
from dualquery.table.records import Records
from dualquery.table.units import Units, units_of
from experiments.data import Data, kept
from experiments.drawing import BLUE, GREEN, GREY, ORANGE, VERMILION, Look, curve, legend_below
from experiments.harness import Experiment, Point, Rows, Setting, Value, main, where
from experiments.linked import bars, eusilc, judged
from experiments.spread import samples_by

DELTA = 1e-6
NONE, GOOD, FEW, ONE_SEX, SHUFFLED, UNIFORM = (
    "none",
    "test part",
    "500 of it",
    "women of it",
    "shuffled",
    "uniform",
)
PMW = "PMW^Pub"
HOUSEHOLDS, OTHER_HALF, SOME_REGIONS = "3,000 households", "the other half", "five regions of it"
LOOKS = {
    NONE: Look(GREY, "o", "--"),
    GOOD: Look(BLUE, "s"),
    PMW: Look(VERMILION, "D", ":"),
    FEW: Look(GREEN, "^", "-."),
    ONE_SEX: Look(ORANGE, "v", "-."),
}
QUESTIONS = 400  # of each number of attributes, for the bars
ROUNDS = 30  # of PMW^Pub
STEPS = 25  # of multiplicative weights after each of its measurements


@lru_cache(maxsize=8)
def table_of(data: Data, rows: int, seed: int) -> Records:
    """So many records of Adult's training part, drawn for this run; all of them for 0."""
    whole = kept(data, "adult")
    return (
        whole if not rows else whole.take(np.sort(np.random.default_rng(seed).permutation(whole.rows)[:rows]))
    )


def prior_of(data: Data, name: str, seed: int) -> Records:
    """Public rows of one kind."""
    test, rng = kept(data, "adult_test"), np.random.default_rng([seed, 1])
    if name == FEW:
        return test.take(np.sort(rng.permutation(test.rows)[:500]))
    if name == ONE_SEX:
        place = [column.name for column in test.domain.columns].index("sex")
        return test.take(np.flatnonzero(np.asarray(test.columns[place]) == 0))
    if name in (SHUFFLED, UNIFORM):
        codes = codes_of(test)
        sizes = test.domain.sizes.tolist()
        columns = [
            rng.permutation(codes[:, j]) if name == SHUFFLED else rng.integers(0, k, test.rows)
            for j, k in enumerate(sizes)
        ]
        return Records.from_rows(test.domain, np.stack(columns, axis=1).astype(np.int32))
    return test


def codes_of(records: Records) -> NDArray[np.int32]:
    return attribute_codes(records, list(range(records.domain.width))).T.astype(np.int32)


def tables_wrong(
    truth: Records, rows: Records, weights: NDArray[np.float64] | None, order: int
) -> dict[str, float]:
    """L1 of the tables over so many attributes: their mean, and the worst."""
    tables = Tables(truth.domain, tuple(combinations(range(truth.domain.width), order)))
    known = tables.split(tables.counts(truth) / truth.rows)
    if weights is None:
        found = tables.split(tables.counts(rows) / rows.rows)
    else:
        found = weighted(tables, codes_of(rows), weights)
    off = [float(np.abs(a - b).sum()) for a, b in zip(known, found, strict=True)]
    return {"mean": float(np.mean(off)), "worst": max(off)}


def weighted(
    tables: Tables, codes: NDArray[np.int32], weights: NDArray[np.float64]
) -> list[NDArray[np.float64]]:
    out = []
    for number, members in enumerate(tables.sets):
        shape = tables.shape_of(number)
        cell = np.ravel_multi_index(tuple(codes[:, j] for j in members), shape)
        out.append(
            np.bincount(cell, weights, minlength=int(np.prod(shape))).astype(np.float64).reshape(shape)
        )
    return out


def measure(data: Data, rows: int, name: str, epsilon: float, seed: int) -> dict[str, Value]:
    """A release as anybody makes it, with the number of records measured; how often its bars hold."""
    truth = table_of(data, rows, seed)
    budget = Budget(epsilon, DELTA, Neighbours.ADD_REMOVE)
    public = None if name == NONE else decode(prior_of(data, name, seed))
    made = release(
        truth,
        budget=budget,
        workload="marginals:2",
        seed=seed,
        prior=public,
        prior_origin=None if public is None else name,
    )
    assert made.records is not None, "projection releases records"
    orders = np.repeat(np.arange(1, min(4, MOST_ATTRIBUTES)), QUESTIONS)
    group = mixed_questions(truth.domain, np.arange(truth.domain.width), orders, Stream(seed + 77))
    answers, held = group.counts(truth) / (group.unit * truth.rows), made.answers_of(group)
    off = np.abs([each.value - known for each, known in zip(held, answers, strict=True)])
    inside = off <= [each.error or 0.0 for each in held]
    pairs = tables_wrong(truth, made.records, None, 2)
    trust = made.certificate.get("trust") or {"share": 0.0}
    return {
        "pairs": pairs["mean"],
        "worst": pairs["worst"],
        "triples": tables_wrong(truth, made.records, None, 3)["mean"],
        "held": float(np.mean(inside)),
        "share": trust["share"],
    }


@lru_cache(maxsize=4)
def halves(data: Data, seed: int) -> tuple[Units, Units]:
    """The households of EU-SILC, one half private and one public."""
    units = eusilc(data)
    order = np.random.default_rng([seed, 3]).permutation(units.rows)
    one, other = np.array_split(order, 2)
    return units.take(np.sort(one)), units.take(np.sort(other))


def shuffled(units: Units, seed: int) -> Units:
    """Every column of households and of persons dealt out anew."""
    rng, (members,) = np.random.default_rng([seed, 4]), units.members
    roots = len(units.database.root.columns)
    own, rows = units.to_rows()[:, :roots].astype(np.int64), members.records.to_rows().astype(np.int64)
    return units_of(units.database, rng.permuted(own, axis=0), [(members.sizes, rng.permuted(rows, axis=0))])


def measure_households(data: Data, name: str, epsilon: float, seed: int) -> dict[str, Value]:
    """A release of half of the households, with the others, or what was made of them, as public."""
    truth, other = halves(data, seed)
    if name == SOME_REGIONS:
        other = other.take(np.flatnonzero(np.asarray(other.columns[0]) < 5))
    public = (
        None if name == NONE else SyntheticUnits(shuffled(other, seed) if name == SHUFFLED else other).tables
    )
    origin = None if public is None else name
    budget = Budget(epsilon, DELTA, Neighbours.ADD_REMOVE)
    made = release(truth, budget=budget, workload="marginals:2", seed=seed, prior=public, prior_origin=origin)
    assert isinstance(made.records, Units), "a database is released as units"
    off, held = judged(truth, made.records), bars(truth, made, seed)
    return {
        "pairs": off["joined 2"],
        "triples": off["joined 3"],
        "siblings": off["siblings"],
        "any": off["any"],
        "held": float(np.mean(list(held.values()))),
        "share": (made.certificate.get("trust") or {"share": 0.0})["share"],
    }


def measure_pmw(data: Data, rows: int, epsilon: float, seed: int) -> dict[str, Value]:
    """PMW^Pub (Liu, Vietri, Steinke, Ullman and Wu 2021): multiplicative weights on the public rows alone.

    As a comparison, with float noise: half of ρ selects, by the exponential mechanism, the table of two attributes
    that weighted rows are most wrong about, half measures it, in `ROUNDS` rounds; the weights of the last one.
    """
    truth, rng = table_of(data, rows, seed), np.random.default_rng([seed, 2])
    codes = codes_of(prior_of(data, GOOD, seed))
    tables = Tables(truth.domain, tuple(combinations(range(truth.domain.width), 2)))
    known = tables.split(tables.counts(truth).astype(np.float64))
    rho = float(rho_of(epsilon=epsilon, delta=DELTA))
    each, number = rho / (2 * ROUNDS), truth.rows
    weights, heard = np.full(len(codes), 1 / len(codes)), {}
    for _ in range(ROUNDS):
        guess = weighted(tables, codes, weights)
        scores = np.array([np.abs(a - number * b).sum() for a, b in zip(known, guess, strict=True)])
        scores -= [cells.size * np.sqrt(1 / each / np.pi) for cells in known]
        drawn = int(np.argmax(np.sqrt(8 * each) * scores / 2 + rng.gumbel(size=len(scores))))
        heard[drawn] = known[drawn] + rng.normal(0, np.sqrt(1 / (2 * each)), known[drawn].shape)
        for _ in range(STEPS):
            for table, noisy in heard.items():
                members, shape = tables.sets[table], tables.shape_of(table)
                cell = np.ravel_multi_index(tuple(codes[:, j] for j in members), shape)
                now = np.bincount(cell, weights, minlength=noisy.size)
                weights = weights * np.exp((noisy.ravel() / number - now)[cell] / 2)
                weights /= weights.sum()
    public = prior_of(data, GOOD, seed)
    pairs = tables_wrong(truth, public, weights, 2)
    triples = tables_wrong(truth, public, weights, 3)["mean"]
    return {"pairs": pairs["mean"], "worst": pairs["worst"], "triples": triples}


def points(setting: Setting) -> list[Point]:
    wanted = [(0, name, e) for e in (0.03, 0.1, 1.0) for name in (NONE, GOOD, PMW)]
    wanted += [(n, name, 1.0) for n in (1_000, 3_000) for name in (NONE, GOOD)]
    wanted += [(0, name, e) for e in (0.1, 1.0) for name in (FEW, ONE_SEX, SHUFFLED, UNIFORM)]
    wanted += [
        (1_000, NONE, 0.1),
        *((1_000, n, e) for e in (0.1, 1.0) for n in (FEW, ONE_SEX, SHUFFLED, UNIFORM)),
    ]
    linked = [(name, e) for e in (0.3, 1.0, 3.2) for name in (NONE, OTHER_HALF, SHUFFLED)]
    linked.append((SOME_REGIONS, 1.0))
    if setting.choose(toy=True, quick=False, full=False):
        wanted, linked = [(500, name, 1.0) for name in (NONE, GOOD)], []
    return [
        Point(
            {"records": rows, "prior": name, "epsilon": epsilon, "neighbours": "add-remove", "run": seed},
            partial(measure_pmw, setting.data, rows, epsilon, seed)
            if name == PMW
            else partial(measure, setting.data, rows, name, epsilon, seed),
            cost=2.0,
            turn=seed,
        )
        for rows, name, epsilon in wanted
        for seed in setting.seeds(full=3)
    ] + [
        Point(
            {
                "records": HOUSEHOLDS,
                "prior": name,
                "epsilon": epsilon,
                "neighbours": "add-remove",
                "run": seed,
            },
            partial(measure_households, setting.data, name, epsilon, seed),
            cost=20.0,
            turn=seed,
        )
        for name, epsilon in linked
        for seed in setting.seeds(full=3)
    ]


def draw(rows: Rows) -> Figure:
    picture = Figure(figsize=(9, 4), layout="constrained")
    panels = picture.subplots(1, 2)
    for panel, (column, words) in zip(panels, {"pairs": "pairs", "triples": "triples"}.items(), strict=True):
        for name, look in LOOKS.items():
            mine = where(rows, records=0, prior=name)
            if mine:
                curve(panel, mine, "epsilon", column, look, name if name != NONE else "no prior")
        panel.set(xscale="log", yscale="log", xlabel="ε (add-remove)", ylabel=f"mean L1 error of {words}")
    legend_below(picture, panels[0], 5)
    return picture


def find(rows: Rows) -> str:
    errors = samples_by(rows, ("records", "prior", "epsilon"), "pairs")
    sentences = []
    for (number, name, epsilon), error in errors.items():
        alone = errors.get((number, NONE, epsilon))
        if name in (NONE, PMW) or alone is None:
            continue
        who = number if isinstance(number, str) else f"{number:,} records" if number else "all records"
        sentences.append(f"{who}, ε = {epsilon:g}, {name}: {error.mean / alone.mean:.2f}")
    return "The mean error of pairs, in errors of the release without a prior: " + "; ".join(sentences) + "."


EXPERIMENT = Experiment(
    name="priors",
    title="A release that starts from public rows",
    paper="Our own: Adult's training part is private, its test part (15,060 rows) or rows made of it are public. The "
    "comparison is private multiplicative weights on the public rows alone (Liu et al. 2021). Of the households of "
    "EU-SILC one half is private, the other public; pairs and triples are those of persons with their household.",
    before="Public rows are believed as far as the noisy measurements bear them out; a prior that is wrong should "
    "cost nothing",
    points=points,
    draw=draw,
    find=find,
    by=("records", "prior", "epsilon"),
    shown=("pairs", "worst", "triples", "siblings", "any", "held", "share"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
