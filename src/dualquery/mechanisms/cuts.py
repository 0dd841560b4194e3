"""Cuts of graphs: coarsenings that are measured once, and a learner.

*Coarsenings*: degrees, blocks and pairs over public coarsenings of the vertices, measured once each and raked
together.

First what leaves and what enters each vertex. From these, the questions and the public attributes come the classes
of vertices (`graphs`) and the likely pairs; then the table between classes and the table of these pairs. An edge
lies in one cell of each of the four tables, so that the squared sensitivity is the sum of four squares, whatever the
number of cuts. The noise of both steps is paid for before the first; what the second asks follows the first, how
much it costs does not.

*Frieze-Kannan* (Gupta, Roth, Ullman 2012): MWEM's game (`rounds`), with rectangles for weights. The data player
learns by the cut decomposition (`beliefs.graphs`): it begins with the empty graph, and each measured cut adds one
rectangle. A round costs two counts of bits a cut, whatever the number of pairs of vertices. The last graph has the
whole noise of the last measurements; released is the mean of those of the second half of the rounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.beliefs.graphs import CutMatrix, Fitted, MeasuredGraph, Pairs, Rectangles, fit, product_model
from dualquery.fitting.shrink import learned, posterior
from dualquery.mechanisms.graphs import RectangleGraph, WeightedGraph, classes_of
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Step, Task, hidden, last
from dualquery.mechanisms.rounds import MeasuredRounds, learner, priced, usual_rounds
from dualquery.mechanisms.wishes import NoWishes, RoundsWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import least_gaussian
from dualquery.privacy.noise import Gaussian
from dualquery.queries.cuts import Cuts
from dualquery.queries.statistics import Blocks, CoarseEdges, LikelyPairs, degrees, likely_pairs
from dualquery.table.graph import Graph
from dualquery.types import Progress, Reals

FINE = 64  # by which the smallest multiplier is multiplied, so that shares are met and noise is fine
# Of the squared sensitivity; degrees twice half of theirs.
SHARES = {"degrees": 0.45, "blocks": 0.3, "pairs": 0.25}
MOST_PAIRS = 2_000_000  # of vertices that are measured, those with the largest product of degrees
MOST_CLASSES = 40
PARTS = 8  # of the pairs, by what is expected of them, each with a prior of its own
AGAIN = 3  # times that extras and the block model are fitted to each other
LEAST_EXTRA = 0.3  # deviations of a pair: below, it is left to the block model


@dataclass(frozen=True, kw_only=True)
class CoarseningParameters:
    """How many classes and likely pairs there are, and the noise of each table, in edges."""

    classes: int
    pairs: int
    degree_noise: float
    block_noise: float
    pair_noise: float
    times: tuple[int, int, int] = hidden()  # degrees, blocks, pairs
    law: Gaussian = hidden()


def plan(task: Task, wanted: NoWishes) -> Plan[CoarseningParameters]:
    """Shares of one budget; the number of classes from the public number of edges."""
    domain = task.domain
    assert isinstance(domain, Graph)
    number = len(domain.vertices)
    pairs = min(number**2, MOST_PAIRS)
    classes = max(2, min(MOST_CLASSES, number, round(math.sqrt(task.rows) / 8)))
    times = (
        round(FINE * math.sqrt(SHARES["degrees"] / 2)),
        round(FINE * math.sqrt(SHARES["blocks"])),
        round(FINE * math.sqrt(SHARES["pairs"])),
    )
    nothing = np.zeros(number, np.int64)
    first, second = _statistics(domain, times, nothing, 1, LikelyPairs(nothing, np.arange(number)))
    neighbours = task.budget.neighbours
    moved = [neighbours.sensitivity(each.bound()) for each in (first, second)]
    law = least_gaussian(task.budget, moved)
    noises = [law.deviation / each for each in times]
    inside = noises[1] * classes / 4 + 0.25 * math.sqrt(task.rows) / 4 + noises[0] * math.sqrt(number) / 16
    return Plan(
        task=task,
        reason=f"degrees, {classes} × {classes} blocks and {pairs:,} pairs, raked together",
        parameters=CoarseningParameters(
            classes=classes,
            pairs=pairs,
            degree_noise=noises[0],
            block_noise=noises[1],
            pair_noise=noises[2],
            times=times,
            law=law,
        ),
        steps=(
            Step("measure what leaves and what enters each vertex", law.event(moved[0])),
            Step("measure blocks and heavy pairs", law.event(moved[1])),
        ),
        mean_error=min(1.0, inside / (domain.heaviest * task.rows)),
        max_error=min(1.0, 4 * inside / (domain.heaviest * task.rows)),
        seconds=2.0 + 4e-9 * task.workload.size * number * 48 + 1e-6 * pairs,
        bytes=100 * pairs + 200 * number + 2 * task.workload.size * number // 8,
    )


def _statistics(
    domain: Graph, times: tuple[int, int, int], classes: NDArray[np.int64], many: int, pairs: LikelyPairs
) -> tuple[CoarseEdges, CoarseEdges]:
    first = CoarseEdges(domain, degrees(len(domain.vertices)), (times[0], times[0]))
    second = CoarseEdges(domain, (Blocks(classes, many), pairs), times[1:])
    return first, second


def run(
    plan: Plan[CoarseningParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    task, chosen = plan.task, plan.parameters
    domain = task.domain
    assert isinstance(domain, Graph)
    number, law = len(domain.vertices), chosen.law
    allowed = curator.allow(*(step.event for step in plan.steps))  # type: ignore[arg-type]
    nothing = np.zeros(number, np.int64)
    first, _ = _statistics(domain, chosen.times, nothing, 1, LikelyPairs(nothing, nothing))
    out, into = first.split(curator.measure(first, noise=law, within=allowed[0]))
    out, into = (_plausible(each.ravel(), chosen.degree_noise) for each in (out, into))
    progress("raking", 1, 4)
    likely = likely_pairs(out, into, chosen.pairs)
    classes = classes_of(domain, task.workload, out + into, chosen.classes, rng)
    many = int(classes.max()) + 1
    _, second = _statistics(domain, chosen.times, classes, many, likely)
    between, pairs = second.split(curator.measure(second, noise=law, within=allowed[1]))
    progress("raking", 2, 4)
    total, total_variance = _total(task, between, chosen.block_noise)
    known = MeasuredGraph(
        leaving=out,
        entering=into,
        blocks=between[:-1].reshape(many, many),
        loops=float(between[-1]),
        total=total,
        degree_variance=chosen.degree_noise**2,
        block_variance=chosen.block_noise**2,
        total_variance=total_variance,
        pair_variance=chosen.pair_noise**2,
    )
    fitted = fit(known, product_model(known, classes), Pairs.none())
    progress("raking", 3, 4)
    for _ in range(AGAIN):  # what the model says of a pair moves with the extras of others
        extra = _extras(fitted, likely, pairs[:-1], chosen.pair_noise)
        fitted = fit(known, fitted, extra)
    progress("raking", 4, 4)
    spread = math.sqrt(1 / (1 / chosen.degree_noise**2 + 1 / max(1.0, float(np.var(out)))))
    return Outcome(artefact=WeightedGraph(domain, fitted, float(task.rows), chosen.block_noise, spread))


def _plausible(noisy: Reals, deviation: float) -> Reals:
    """Degrees drawn towards their mean, and not negative."""
    mean = np.full(len(noisy), max(0.0, float(noisy.mean())))
    return np.maximum(mean + excess(noisy, mean, deviation), 0.0)


def _total(task: Task, between: Reals, deviation: float) -> tuple[float, float]:
    """The weight of all edges, and its variance: their number where none has a weight, else the sum of the blocks."""
    domain = task.domain
    assert isinstance(domain, Graph)
    if domain.heaviest > 1 or len(domain.columns) > 2:
        return max(1.0, float(between.sum())), deviation**2 * between.size
    return float(task.rows), task.rows_variance or 0.0


def _extras(fitted: Fitted, likely: LikelyPairs, noisy: Reals, deviation: float) -> Pairs:
    """The pairs that were seen to differ from the block model, by how much; alike are those of like expectation."""
    source, target = likely.pairs()
    mean = fitted.between(source, target)
    found = np.zeros(len(mean))
    for some in np.array_split(np.argsort(mean, kind="stable"), max(1, min(PARTS, len(mean) // 20_000))):
        found[some] = excess(noisy[some], mean[some], deviation)
    found = np.maximum(found, -mean)
    kept = np.abs(found) > LEAST_EXTRA * deviation
    return Pairs(source[kept], target[kept], found[kept])


WORDS = "degrees, blocks and heavy pairs over public coarsenings of the vertices, measured once and raked together"
COARSENINGS = Mechanism(
    "coarsenings",
    WORDS,
    NoWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP),
    plays=("graph",),
)


BINS = 1500  # of alike numbers, each worked out once
WIDTH = 0.3  # of a component, as a part of where it lies


def excess(noisy: Reals, mean: Reals, deviation: float) -> Reals:
    """What noisy numbers are likely to be beyond a public mean: the posterior mean of θ (`fitting.shrink`).

    Components lie at zero and around ± a geometric grid, the wider the farther out. Most pairs of vertices have no
    edge and are drawn to their mean; the few heavy ones stand far outside the noise, and stay.
    """
    seen = (noisy - mean).ravel() / deviation
    place = np.arcsinh(seen)
    edges = np.linspace(place.min() - 1e-9, place.max() + 1e-9, BINS + 1)
    which = np.clip(np.searchsorted(edges, place, side="right") - 1, 0, BINS - 1)
    held = np.bincount(which, minlength=BINS)
    centre = np.sinh((edges[:-1] + edges[1:]) / 2)[held > 0]
    grid = 0.25 * 1.3 ** np.arange(int(np.log(4 * max(1.0, np.abs(seen).max())) / np.log(1.3)) + 2)
    support = np.concatenate([[0.0], -grid[::-1], grid])
    same = np.ones(len(centre))

    def prior(some: object) -> tuple[Reals, Reals]:
        return support, WIDTH**2 * support**2

    law = learned(centre, same, prior, first=0.9, weight=held[held > 0].astype(float))
    found = seen + np.interp(seen, centre, posterior(centre, same, prior, law) - centre)
    return deviation * found.reshape(np.shape(noisy))


MOST_ROUNDS = 20_000
WRONG = 30.0  # n/T edges of a cut are wrong after T rounds, and the mean of many replies has little of their noise
WRONG_PURE = 3.0  # of noise that grows as T, not as its root, the mean has more


def _plan_learner(task: Task, wanted: RoundsWishes) -> Plan[MeasuredRounds]:
    """Half of the budget selects, half measures, in equal rounds."""
    domain = task.domain
    assert isinstance(domain, Graph)
    rounds = wanted.rounds
    if rounds is None:
        wrong = WRONG_PURE if task.budget.accounting is Accounting.PURE else WRONG
        rounds = usual_rounds(task, wrong=wrong, typical=_pairs_of_a_cut(task), most=MOST_ROUNDS)
    chosen = priced(task, rounds)
    noise, learned = chosen.noise / task.rows, 1 / rounds
    return Plan(
        task=task,
        reason=f"{rounds} rounds {'as asked' if wanted.rounds else 'from the number of edges'}",
        parameters=chosen,
        steps=chosen.steps(task, "choose a cut that is answered badly"),
        mean_error=min(1.0, 0.5 * noise + learned),
        max_error=min(1.0, 3 * noise + 6 * learned),
        seconds=2.0 + rounds * task.workload.size * len(domain.vertices) * 2e-10,
        bytes=task.workload.size * len(domain.vertices) // 4 + 64 * task.workload.size,
    )


def _pairs_of_a_cut(task: Task) -> float:
    """Which part of all pairs of vertices a cut is about, on average."""
    domain = task.domain
    assert isinstance(domain, Graph)
    sizes = [
        from_.sum(axis=1) * to.sum(axis=1)
        for group in task.workload.all_of(Cuts)
        for _, from_, to in group.unpacked()
    ]
    both_ways = 1 if domain.directed else 2
    return min(1.0, both_ways * float(np.concatenate(sizes).mean()) / len(domain.vertices) ** 2)


def _outcome(
    plan: Plan[MeasuredRounds], replied: Iterator[Rectangles], rng: np.random.Generator, progress: Progress
) -> Outcome:
    domain, held = plan.task.domain, last(replied).mean_of_second_half()
    assert isinstance(domain, Graph)
    return Outcome(artefact=RectangleGraph(domain, held, float(plan.task.rows), plan.mean_error), belief=held)


FRIEZE_KANNAN = learner(
    "frieze-kannan",
    "rectangles of a cut decomposition, corrected by the worst-answered cuts (Frieze, Kannan; Gupta et al. 2012)",
    RoundsWishes,
    _plan_learner,
    lambda plan, curator: CutMatrix(plan.task.workload),
    _outcome,
    plays=("graph",),
)
