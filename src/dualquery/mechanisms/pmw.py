"""Offline private multiplicative weights (Ullman's tutorial of 2013; Hardt and Rothblum 2010).

The workload is closed under negation. Each round the exponential mechanism draws a query that the
distribution answers too high, with probability ∝ exp(ε₀ n (q(A_t) − q(D))), and the distribution pays:
A(x) ∝ A(x) · (1 − η q(x)). Nothing is measured: a round costs one draw.

    regret     Σ_t (q_t(A_t) − q_t(D)) ≤ η T + ln|X|/η = 2 √(T ln|X|)   at   η = √(ln|X|/T)
    draw       misses the worst query by at most 2 ln(2|Q|/β)/(ε₀ n), ε₀ being the range of its log-weights
    hence      the average of A_1 … A_T answers within α when   T = 16 ln|X|/α²   and the draws lose α/2.

ε₀ is √(8ρ/T) by ρ, the largest that advanced composition allows by its theorem, ε/T where pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from dualquery.distributions.factored import Evaluation, Factored
from dualquery.distributions.histogram import check_cells
from dualquery.distributions.products import Products
from dualquery.errors import BudgetError, DualQueryError
from dualquery.game.histogram_players import BestResponseLossPlayer
from dualquery.game.learner import LossDataPlayer
from dualquery.game.play import play
from dualquery.mechanisms.outcomes import Average, Iterate, choice, released, synthetic_rows
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.conversion import advanced_composition
from dualquery.privacy.curator import Curator
from dualquery.privacy.query_selection import ChoosingCurator, Price, equal_prices

FAILURE = 0.05  # β: all draws are as good as the theorem says, except with this probability
MOST_ROUNDS = 20_000


@dataclass(frozen=True)
class Settings:
    """Every choice of a run, from public quantities alone."""

    rounds: int
    learning_rate: float
    iterate: Iterate
    synthetic_rows: int
    price: Price  # of each draw
    alpha: float  # what the theorem promises

    @staticmethod
    def of(shape: Shape, options: Options) -> Settings:
        universe = prod(shape.domain.sizes.tolist())
        check_cells(universe)
        rounds = options.rounds
        if rounds is None:
            rounds = best_rounds(shape) if options.alpha is None else rounds_for(shape, options.alpha)
        if rounds < 1:
            raise DualQueryError(f"pmw plays at least one round, and --rounds is {rounds}")
        rate = options.learning_rate
        if rate is None:
            rate = min(0.5, math.sqrt(math.log(max(2, universe)) / rounds))
        if not 0 < rate < 1:
            raise DualQueryError(f"pmw needs a learning rate between 0 and 1, and {rate:g} is not")
        return Settings(
            rounds=rounds,
            learning_rate=rate,
            iterate=choice(Iterate, options.iterate, Iterate.AVERAGE, "--iterate"),
            synthetic_rows=synthetic_rows(shape, options),
            price=draw_price(shape.budget, rounds),
            alpha=promised_error(shape, rounds),
        )


def draw_price(budget: Budget, rounds: int) -> Price:
    """ε₀ of each of T draws that together cost the budget."""
    if budget.accounting is not Accounting.THEOREM_4_3:
        return equal_prices(budget, rounds)
    low, high = 0.0, budget.epsilon
    for _ in range(100):
        middle = (low + high) / 2
        fits = advanced_composition(middle, rounds, delta=budget.delta) <= budget.epsilon
        low, high = (middle, high) if fits else (low, middle)
    return Price(Fraction(low) * (1 - Fraction(1, 10**9)), None)


def promised_error(shape: Shape, rounds: int) -> float:
    """α = 2 √(ln|X|/T) + 2 ln(2|Q|T/β)/(ε₀ n)."""
    learning = 2 * math.sqrt(shape.domain.log2_size * math.log(2) / rounds)
    drawing = math.log(2 * shape.workload.size * rounds / FAILURE)
    return learning + 2 * drawing / (float(draw_price(shape.budget, rounds).selection_range()) * shape.rows)


def rounds_for(shape: Shape, alpha: float) -> int:
    """T = 16 ln|X|/α²."""
    if not 0 < alpha < 1:
        raise DualQueryError(f"alpha is an error between 0 and 1, and {alpha:g} is not")
    rounds = math.ceil(16 * shape.domain.log2_size * math.log(2) / alpha**2)
    if rounds > MOST_ROUNDS:
        raise DualQueryError(
            f"an error of {alpha:g} takes {rounds:,} rounds by the theorem, and at most {MOST_ROUNDS:,} are "
            "played; ask for a larger alpha, or for a number of rounds"
        )
    return max(1, rounds)


def best_rounds(shape: Shape) -> int:
    """The T whose promise is best, among the powers of √2."""
    candidates = sorted({round(2 ** (k / 2)) for k in range(2 * int(math.log2(MOST_ROUNDS)) + 1)})
    promises = {}
    for rounds in candidates:
        try:
            promises[rounds] = promised_error(shape, rounds)
        except BudgetError:  # too many for the budget, and so is every larger number
            break
    if not promises:
        raise BudgetError("the budget is too small for one round; use a larger epsilon")
    return min(promises, key=lambda rounds: promises[rounds])


def _plan(shape: Shape, options: Options) -> Plan:
    settings = Settings.of(shape, options)
    cells = prod(shape.domain.sizes.tolist())
    return Plan(
        mechanism="pmw",
        reason=f"{settings.rounds} rounds"
        + (" as asked" if options.rounds is not None else " by the theorem"),
        parameters={
            "rounds": settings.rounds,
            "learning_rate": settings.learning_rate,
            "iterate": settings.iterate.value,
            "synthetic_rows": settings.synthetic_rows,
            "epsilon_of_a_draw": float(settings.price.selection_range()),
            "promised_error": settings.alpha,
        },
        mean_error=min(0.5, settings.alpha / 4),
        max_error=min(1.0, settings.alpha),
        seconds=2.0 + settings.rounds * (cells * 2e-8 + shape.workload.size * 1e-7),
        bytes=24 * cells + 64 * shape.workload.size,
    )


def _run(plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    given = {name: plan.parameters[name] for name in ("rounds", "learning_rate", "iterate", "synthetic_rows")}
    settings = Settings.of(shape, Options(**given))  # type: ignore[arg-type]
    distribution = Factored.explicit(shape.domain)
    average = None
    if settings.iterate is Iterate.AVERAGE:
        average = Average(distribution, shape.workload, settings.rounds, settings.synthetic_rows, rng)

    def watch(done: int, total: int) -> None:
        if average is not None:
            average.hear()
        progress("playing", done, total)

    query_player = BestResponseLossPlayer(
        ChoosingCurator.of(curator, shape.workload),
        Evaluation(Products.of(shape.workload), distribution),
        price=settings.price,
        public_rows=shape.rows,
    )
    data_player = LossDataPlayer(distribution, learning_rate=settings.learning_rate)
    play(query_player, data_player, rounds=settings.rounds, progress=watch)
    if average is not None:
        return average.outcome()
    return released(distribution, shape.workload, settings.synthetic_rows, rng)


PMW = Mechanism(
    name="pmw",
    words="offline private multiplicative weights: one draw a round, nothing measured (Hardt, Rothblum 2010)",
    accepts=frozenset({"rounds", "learning_rate", "alpha", "iterate", "synthetic_rows"}),
    plan=_plan,
    run=_run,
)
