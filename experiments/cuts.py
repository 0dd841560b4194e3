"""Cuts of graphs: coarsenings raked together, the learner of Frieze and Kannan, noise on each cut, by hand."""

from __future__ import annotations

import gzip
import time
from collections.abc import Mapping
from fractions import Fraction
from functools import lru_cache, partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from dualquery.beliefs.graphs import met_by
from dualquery.privacy.budget import Accounting, Budget, Neighbours, Sensitivity
from dualquery.privacy.ledger import smallest_gaussian_scale
from dualquery.privacy.noise import Gaussian
from dualquery.queries.cuts import Cuts, cuts_of
from dualquery.queries.families import from_spec
from dualquery.queries.workload import Workload
from dualquery.releases.make import release
from dualquery.table.graph import Graph, graph_of
from dualquery.table.records import Records
from experiments.data import Data
from experiments.drawing import BLUE, Look, dots, name_lines
from experiments.harness import Experiment, Point, Rows, Setting, Value, distinct, main, mean_by, times, where
from experiments.special_cases import options_of, runs_of, sweep, swept_words
from experiments.spread import samples_by

COARSENINGS, LEARNER, INDEPENDENT, MATRIX = "coarsenings", "frieze-kannan", "gaussian", "noisy matrix by hand"
PURELY, LAPLACE = "frieze-kannan, pure ε", "laplace, pure ε"  # the default there, and noise on each
METHODS = (COARSENINGS, LEARNER, INDEPENDENT, MATRIX)
WORDS = {
    COARSENINGS: "coarsenings",
    LEARNER: "Frieze and Kannan",
    INDEPENDENT: "independent noise",
    MATRIX: "noisy matrix",
}
BLOCKS, FRAYED = "blocks", "blocks, one vertex of ten moved"
CLICKS, EVERY_CLICK = "clicks, ranges", "all clicks, ranges"
BUDGET = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE)
PURE = Budget(epsilon=1.0, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.PURE)
COMMUNITIES = 20
ROOM = 3.0  # times the axis, for the number beside the longest bar
EVERY = 10**9
MEASURED = ("rounds", "mean_error", "max_error", "half_error", "seconds", "round_ms", "explicit_ms")
ROUNDS = (200, 800, 3200, 12800)  # of the sweep
PURE_ROUNDS = (25, 50, 100, 200, 400, 800, 1600)


class Case(NamedTuple):
    records: Records
    workload: Workload
    truth: NDArray[np.int64]
    halves: Cuts
    half_truth: NDArray[np.int64]


@lru_cache(maxsize=1)
def case_of(name: str, vertices: int, edges: int, cuts: int, data: str) -> Case:
    domain = graph_of(tuple(map(str, range(vertices))))
    rng = np.random.default_rng(5)
    if name in (CLICKS, EVERY_CLICK):
        records = Records.from_rows(domain, clicks(data, vertices, edges))
        workload = from_spec(domain, f"cuts:ranges:{cuts}")
    else:
        community = rng.integers(COMMUNITIES, size=vertices)
        records = Records.from_rows(domain, block_graph(rng, community, edges))
        sides = [(rng.random((cuts, COMMUNITIES)) < 0.5)[:, community] for _ in range(2)]
        if name == FRAYED:
            sides = [side ^ (rng.random(side.shape) < 0.1) for side in sides]
        workload = Workload(domain, (cuts_of(domain, *sides),), name)
    halves = from_spec(domain, "cuts:random:200:7").groups[0]
    assert isinstance(halves, Cuts)
    return Case(records, workload, workload.counts(records), halves, halves.counts(records))


def block_graph(rng: np.random.Generator, community: NDArray[np.int64], edges: int) -> NDArray[np.int64]:
    """Edges between communities that like some better than others, from vertices of different activity."""
    number = len(community)
    between = rng.gamma(0.5, size=(COMMUNITIES, COMMUNITIES)) + np.diag(rng.gamma(2, 2, size=COMMUNITIES))
    active, popular = rng.gamma(2, size=number), rng.gamma(2, size=number)
    chance = np.outer(active, popular) * between[np.ix_(community, community)]
    drawn = rng.choice(number**2, size=edges, p=(chance / chance.sum()).ravel())
    return np.stack([drawn // number, drawn % number], axis=1)


def clicks(data: str, pages: int, most: int) -> NDArray[np.int64]:
    """One page after the other in Kosarak's sessions, among the first pages: the first so many steps."""
    found: list[tuple[int, int]] = []
    with gzip.open(data, "rt") as lines:
        for session in lines:
            seen = [int(page) - 1 for page in session.split()]
            found += [step for step in pairwise(seen) if max(step) < pages]
            if len(found) >= most:
                break
    return np.array(found[:most])


def measure(case: partial[Case], method: str, seed: int) -> Mapping[str, Value]:
    held = case()
    rows, group = held.records.rows, held.workload.groups[0]
    assert isinstance(group, Cuts)
    began = time.process_time()
    half_error: Value = ""  # where nothing answers other cuts
    rounds: Value = ""
    named, options = options_of(method)
    mechanism = named.partition(",")[0]
    if method == MATRIX:
        answers = by_hand(held, seed)
    else:
        made = release(
            held.records,
            schema=held.records.domain,
            workload=held.workload,
            budget=PURE if named in (PURELY, LAPLACE) else BUDGET,
            mechanism=mechanism,
            seed=seed,
            **options,
        )
        rounds = made.certificate["parameters"].get("rounds", "")
        answers = made.artefact.fractions(group) * rows
        if method not in (INDEPENDENT, LAPLACE):
            half_error = float(
                np.abs(made.artefact.fractions(held.halves) * rows - held.half_truth).mean() / rows
            )
    seconds = time.process_time() - began
    errors = np.abs(answers - held.truth)
    return {
        "rounds": rounds,
        "mean_error": float(errors.mean()),
        "max_error": float(errors.max()),
        "half_error": half_error,
        "seconds": seconds,
        **(cost_of_a_round(group) if method == LEARNER else {"round_ms": "", "explicit_ms": ""}),
    }


def by_hand(held: Case, seed: int) -> NDArray[np.float64]:
    """Noise on every pair of vertices, and the pairs of a cut added up: √(|S||T|) times the noise of one."""
    budget = Budget(epsilon=1.0, delta=1e-6, neighbours=Neighbours.ADD_REMOVE, accounting=Accounting.GAUSSIAN)
    noise = float(smallest_gaussian_scale(budget, [Gaussian(Fraction(1)).event(Sensitivity(1, 1))])) ** 0.5
    domain = held.records.domain
    assert isinstance(domain, Graph)
    number = len(domain.vertices)
    added = np.random.default_rng(seed).normal(0, noise, (number, number)).astype(np.float32)
    group = held.workload.groups[0]
    assert isinstance(group, Cuts)
    parts = []
    for _, from_, to in group.unpacked():
        parts.append(((from_.astype(np.float32) @ added) * to).sum(axis=1))
    return np.asarray(held.truth + np.concatenate(parts))


def cost_of_a_round(cuts: Cuts) -> dict[str, Value]:
    """What all answers take after one update: by counts of bits, and by weights of all pairs, written out."""
    directed = cuts.domain.directed
    met_by(cuts.sources[0], cuts.targets[0], cuts.sources, cuts.targets, directed)
    began = time.process_time()
    for _ in range(20):
        met_by(cuts.sources[0], cuts.targets[0], cuts.sources, cuts.targets, directed)
    bits = (time.process_time() - began) / 20
    number = len(cuts.domain.vertices)
    weights = np.ones((number, number), np.float32)
    began, some = time.process_time(), cuts.take(np.arange(min(500, cuts.size)))
    for _, from_, to in some.unpacked():
        np.einsum("qv,qv->q", from_.astype(np.float32) @ weights, to.astype(np.float32))
    explicit = (time.process_time() - began) * cuts.size / some.size
    return {"round_ms": 1000 * bits, "explicit_ms": 1000 * explicit}


def case_in(data: Data, name: str, vertices: int, edges: int, cuts: int) -> Case:
    """The same, clicks read from the folder of the data sets."""
    clicked = name in (CLICKS, EVERY_CLICK)
    return case_of(name, vertices, edges, cuts, str(data.path("kosarak_first100k.txt.gz")) if clicked else "")


def points(setting: Setting) -> list[Point]:
    vertices, edges, cuts = setting.choose(
        toy=(60, 500, 30), quick=(1000, 50_000, 2000), full=(1000, 50_000, 5000)
    )
    found = []
    for name in (BLOCKS, FRAYED, CLICKS, EVERY_CLICK):
        most = setting.choose(toy=1000, quick=EVERY, full=EVERY) if name == EVERY_CLICK else edges
        case = partial(case_in, setting.data, name, vertices, most, cuts)
        found += [
            Point(
                {"graph": name, "cuts": cuts, "method": method, "run": seed},
                partial(measure, case, method, seed),
            )
            for method in (
                *METHODS,
                *sweep(LEARNER, setting.choose(toy=(5, 20), quick=ROUNDS[:2], full=ROUNDS)),
                LAPLACE,
                PURELY,
                *sweep(PURELY, setting.choose(toy=(5,), quick=PURE_ROUNDS[1:4], full=PURE_ROUNDS)),
            )
            for seed in setting.seeds(
                quick=1,
                full=1
                if method == LAPLACE
                else min(3 if name == EVERY_CLICK else 5, runs_of(method, LEARNER)),
            )
        ]
    return found


def draw(rows: Rows) -> Figure:
    rows = [row for row in rows if row["method"] in METHODS]
    picture = Figure(figsize=(9, 4.4), layout="constrained")
    graphs, methods = distinct(rows, "graph"), distinct(rows, "method")
    panels = picture.subplots(-(-len(graphs) // 2), 2, squeeze=False, sharex=True, sharey=True)
    for panel, name in zip(panels.flat, graphs, strict=False):
        runs = [where(rows, graph=name, method=method) for method in methods]
        dots(panel, range(len(methods)), runs, "mean_error", Look(BLUE, "o"))
        name_lines(panel, [WORDS[method] for method in methods])
        for place, found in enumerate(runs):
            for sample in samples_by(found, (), "mean_error").values():
                panel.text(1.2 * sample.high, place, f"{sample.mean:.0f}", va="center")
        panel.set(title=name, xscale="log")
    for panel in panels[-1]:
        panel.set_xlabel("mean error (edges)")
    panels[0, 0].set_xlim(right=ROOM * panels[0, 0].get_xlim()[1])
    return picture


def find(rows: Rows) -> str:
    sentences = []
    for name in distinct(rows, "graph"):
        means = {value: mean_by(rows, ("graph", "method"), value) for value in MEASURED}
        mine = means["mean_error"][name, COARSENINGS]
        sentences.append(
            f"- {name}: coarsenings err by {mine:.0f} edges, {means['max_error'][name, COARSENINGS]:.0f} at most, "
            f"{times(mine / means['mean_error'][name, INDEPENDENT])} than {WORDS[INDEPENDENT]}, "
            f"{times(mine / means['mean_error'][name, LEARNER])} than {WORDS[LEARNER]}, "
            f"{times(mine / means['mean_error'][name, MATRIX])} than a {WORDS[MATRIX]}; a random half by "
            f"{100 * means['half_error'][name, COARSENINGS]:.2f}% of the edges. A round of the learner takes "
            f"{means['round_ms'][name, LEARNER]:.2f} ms, with weights written out "
            f"{means['explicit_ms'][name, LEARNER]:.0f} ms; its mean error with "
            f"{swept_words(where(rows, graph=name), LEARNER, 'mean_error', '.0f')}. Under pure ε, where it is the "
            f"default, with {swept_words(where(rows, graph=name), PURELY, 'mean_error', '.0f')}; independent noise "
            f"errs by {means['mean_error'][name, LAPLACE]:.0f} there."
        )
    return "\n".join(
        [
            "1,000 vertices, 50,000 edges (all clicks: 260,397), ε = 1, δ = 10⁻⁶, add-remove. A random half "
            "is what goes from a random half of the vertices to the other half. In the "
            f"table independent noise is `{INDEPENDENT}`, as on the command line.\n",
            *sentences,
        ]
    )


EXPERIMENT = Experiment(
    name="cuts",
    title="Cuts of graphs: every cut from one measurement",
    paper="Gupta, Roth and Ullman (2012) release cuts by the decomposition of Frieze and Kannan, one "
    "rectangle after the other.",
    points=points,
    draw=draw,
    find=find,
    by=("graph", "method"),
    shown=MEASURED,
)

if __name__ == "__main__":
    main(EXPERIMENT)
