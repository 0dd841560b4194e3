"""What one run of DualQuery costs by each theorem, and what the rounds that each affords are worth at equal ε."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from dualquery.mechanisms.dual_query import DUAL_QUERY
from dualquery.privacy.budget import Accounting, Neighbours
from experiments.data import Data
from experiments.drawing import BLUE, GREEN, ORANGE, VERMILION, Look, curve, legend_below, plain_ticks
from experiments.harness import (
    Experiment,
    Point,
    Rows,
    Setting,
    Value,
    distinct,
    main,
    mean_by,
    times,
    where,
)
from experiments.runs import (
    ADD_REMOVE,
    answers_of,
    asked_at_random,
    budget_of,
    dual_query_epsilons,
    errors_of,
    of_an_older_rule,
    papers_rounds,
    run_of,
)
from experiments.spread import samples_by

DELTA = 1e-3
COST, ERROR = "cost of T rounds", "error at ε"  # the two kinds of rows, and what is given
PURE, PRINTED, ADVANCED, RHO = "Theorem 4.2", "Theorem 4.3 as printed", "Theorem 4.3", "ρ"
THEOREMS = {
    PURE: Accounting.PURE,
    PRINTED: Accounting.THEOREM_4_3,
    ADVANCED: Accounting.THEOREM_4_3,
    RHO: Accounting.ZCDP,
}
LOOKS = {
    PURE: Look(VERMILION, "x"),
    PRINTED: Look(GREEN, "v"),
    ADVANCED: Look(ORANGE, "^"),
    RHO: Look(BLUE, "o"),
}
PAPERS, OWN = "the paper's η and s", "the program's own η and s"


@dataclass(frozen=True)
class Game:
    """Parameters of the paper that leave only the rounds open, and the number of records they were used on."""

    name: str
    rows: int
    learning_rate: float
    samples: int


ADULT = Game("Adult: η = 2, s = 1000", 30_162, 2.0, 1000)
KDD99 = Game("KDD99: η = 1.2, s = 1750", 494_021, 1.2, 1750)


def cost(game: Game, theorem: str, rounds: int) -> float:
    """The ε of so many rounds by a theorem."""
    by = dual_query_epsilons(
        learning_rate=game.learning_rate,
        samples=game.samples,
        rounds=rounds,
        rows=game.rows,
        delta=DELTA,
        neighbours=Neighbours.REPLACE if theorem == PRINTED else ADD_REMOVE,
    )
    return by[THEOREMS[theorem]]


def price(game: Game, theorem: str, rounds: int) -> dict[str, Value]:
    return {"rounds": rounds, "epsilon": cost(game, theorem, rounds)}


def measure(
    data: Data, queries: int, theorem: str, epsilon: float, samples: int | None, seed: int
) -> dict[str, Value]:
    """A run with as many rounds as a theorem affords; where no samples are given η and s are the program's own."""
    asked = asked_at_random(data, "adult", queries)
    accounting = THEOREMS[theorem]
    budget = budget_of(epsilon, 0.0 if accounting is Accounting.PURE else DELTA, accounting, ADD_REMOVE)
    papers: dict[str, Any] = {
        "learning_rate": ADULT.learning_rate,
        "samples": samples,
        "recall": 1,
        "free": "zeros",
    }
    options = {} if samples is None else papers
    if theorem == PRINTED:  # as in the papers' Figure 2, of which this is the same run
        options["rounds"] = papers_rounds(asked.records, asked.workload, epsilon, DELTA, **options)
    run = run_of(DUAL_QUERY, asked.records, asked.workload, budget, seed, **options)
    errors = errors_of(answers_of(run.outcome, asked.workload), asked.truth)
    return {
        "rounds": run.parameters["rounds"],
        "epsilon": run.spent.epsilon,
        "mean_error": errors.mean,
        "max_error": errors.max,
    }


def points(setting: Setting) -> list[Point]:
    lengths = setting.choose(
        toy=(5, 20, 200), quick=(5, 10, 20, 50, 100, 200, 500), full=(5, 10, 20, 50, 100, 200, 500)
    )
    epsilons = setting.choose(toy=(0.1, 8.0), quick=(0.25, 1.0, 5.0), full=(0.25, 0.5, 1.0, 2.0, 5.0))
    queries = setting.choose(toy=500, quick=50_000, full=500_000)
    samples = {PAPERS: setting.choose(toy=20, quick=ADULT.samples, full=ADULT.samples), OWN: None}
    costs = [
        Point(
            {
                "what": COST,
                "parameters": game.name,
                "theorem": theorem,
                "given": rounds,
                "neighbours": ADD_REMOVE.value,
                "run": 0,
            },
            partial(price, game, theorem, rounds),
            cost=0.001,
        )
        for game in (ADULT, KDD99)
        for theorem in THEOREMS
        for rounds in lengths
    ]
    errors = [
        Point(
            {
                "what": ERROR,
                "parameters": parameters,
                "theorem": theorem,
                "given": epsilon,
                "neighbours": ADD_REMOVE.value,
                "run": seed,
            },
            partial(measure, setting.data, queries, theorem, epsilon, samples[parameters], seed),
            cost=epsilon ** (1 / 3),  # as the rounds
        )
        for parameters in samples
        for theorem in THEOREMS
        for epsilon in epsilons
        for seed in setting.seeds(full=5 if theorem == PRINTED else 3)
        if theorem != PRINTED or parameters == PAPERS  # whose own parameters are no paper's
    ]
    return costs + errors


def draw(rows: Rows) -> Figure:
    picture = Figure(figsize=(11, 4.2), layout="constrained")
    costs, means, maxima = picture.subplots(1, 3)
    priced, bought = where(rows, what=COST), where(rows, what=ERROR)
    for theorem, look in LOOKS.items():
        for game, dash in ((ADULT, "-"), (KDD99, "--")):
            mine = where(priced, theorem=theorem, parameters=game.name)
            curve(
                costs, mine, "rounds", "epsilon", replace(look, dash=dash), theorem if game is ADULT else None
            )
        for parameters, dash in ((PAPERS, "-"), (OWN, "--")):
            mine = where(bought, theorem=theorem, parameters=parameters)
            for panel, column in ((means, "mean_error"), (maxima, "max_error")):
                curve(panel, mine, "given", column, replace(look, dash=dash))
    costs.axhline(1, color="grey", linewidth=0.8)
    # Nearly nothing is spent in the first rounds, and by ρ rounded to nothing.
    costs.set(xscale="log", yscale="log", xlabel="rounds T", ylabel="ε (δ = 0.001)", ylim=(1e-3, None))
    costs.set_title(f"cost of T rounds\nsolid: {ADULT.name}\ndashed: {KDD99.name}", fontsize=9)
    for panel, column in ((means, "mean error"), (maxima, "max error")):
        panel.set(xscale="log", yscale="log", xlabel="ε", ylabel=column)
        plain_ticks(panel, distinct(bought, "given"))
        panel.set_title(f"{column} at equal ε, Adult\nsolid: {PAPERS}\ndashed: {OWN}", fontsize=9)
    legend_below(picture, costs, 4)
    return picture


def find(rows: Rows) -> str:
    priced, bought = where(rows, what=COST), where(rows, what=ERROR)
    sentences = [
        "A record added or removed. Both theorems carry a factor 2, that of the exponential mechanism, which is what "
        "a replaced record needs; where the line does not say *as printed* it is left out. Theorem 4.3 stands here "
        "in both ways, Theorem 4.2 without it: as printed it costs twice as much.",
        *of_an_older_rule(where(bought, parameters=OWN)),
    ]
    for game in distinct(priced, "parameters"):
        by_theorem = mean_by(where(priced, parameters=game), ("given", "theorem"), "epsilon")
        rounds = min(distinct(priced, "given"), key=lambda given: abs(given - 100))
        told = ", ".join(f"{by_theorem[rounds, theorem]:.3g} by {theorem}" for theorem in THEOREMS)
        sentences.append(f"{rounds} rounds on {game} cost ε = {told}.")
    if not bought:
        return " ".join(sentences)
    epsilon = min(distinct(bought, "given"), key=lambda given: abs(given - 1))
    for parameters in (PAPERS, OWN):
        mine = where(bought, parameters=parameters, given=epsilon)
        played = mean_by(mine, ("theorem",), "rounds")
        mean, most = (samples_by(mine, ("theorem",), column) for column in ("mean_error", "max_error"))
        told = "; ".join(
            f"{theorem} {played[(theorem,)]:.0f} rounds, {mean[(theorem,)].mean:.4f} and {most[(theorem,)]:.3f}"
            for (theorem,) in mean
        )
        sentences.append(f"Rounds, mean and max error at ε = {epsilon:g} with {parameters}: {told}.")
        if mean[RHO,].clearly_below(mean[ADVANCED,]):
            ratio = mean[RHO,].mean / mean[ADVANCED,].mean
            sentences.append(f"The mean error by ρ is {times(ratio)} than by Theorem 4.3.")
    return " ".join([*sentences, *_shortfalls(bought)])


def _shortfalls(bought: Rows) -> list[str]:
    """Where another theorem clearly beats ρ, the paper's parameters ours, or more budget buys a larger error."""
    means = samples_by(bought, ("parameters", "theorem", "given"), "mean_error")
    sentences = []
    for (parameters, theorem, epsilon), mean in means.items():
        rho, papers = means[parameters, RHO, epsilon], means[PAPERS, theorem, epsilon]
        if mean.clearly_below(rho):
            sentences.append(
                f"At ε = {epsilon:g} ρ with {parameters} is behind {theorem} ({rho.mean:.4f}, {mean.mean:.4f})."
            )
        if papers.clearly_below(mean):
            sentences.append(
                f"Our own η and s are worse than the paper's by {theorem} at ε = {epsilon:g} ({mean.mean:.4f}, "
                f"{papers.mean:.4f}): to keep a good number of rounds our rule goes down to too few samples a round."
            )
    for parameters in (PAPERS, OWN):
        for theorem in THEOREMS:
            mine = {key[2]: mean for key, mean in means.items() if key[:2] == (parameters, theorem)}
            risen = [f"{b:g}" for a, b in pairwise(sorted(mine)) if mine[a].clearly_below(mine[b])]
            if risen:
                likely = ": what is added goes to samples more than to rounds" if parameters == OWN else ""
                sentences.append(
                    f"By {theorem} with {parameters} the mean error rises on the way to "
                    f"ε = {', '.join(risen)}{likely}."
                )
    return sentences


EXPERIMENT = Experiment(
    name="accounting",
    title="Accounting: the cost of a run by three theorems, and the errors they buy",
    paper="Theorem 4.2 adds up pure ε, which grows as T²; Theorem 4.3 is advanced composition, by which the paper "
    "chose its rounds at δ = 0.001. ρ came later: a draw has bounded range, and zero-concentrated privacy adds up.",
    points=points,
    draw=draw,
    find=find,
    by=("what", "parameters", "theorem", "given"),
    shown=("rounds", "epsilon", "mean_error", "max_error"),
)

if __name__ == "__main__":
    main(EXPERIMENT)
