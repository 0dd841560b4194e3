"""Offline private multiplicative weights (Ullman's tutorial of 2013; Hardt and Rothblum 2010).

The workload is closed under negation. Each round the exponential mechanism draws a query that the
distribution answers too high, with probability ∝ exp(ε₀ n (q(A_t) − q(D))), and the distribution pays:
A(x) ∝ A(x) · (1 − η q(x)). Nothing is measured: a round costs one draw.

    regret     Σ_t (q_t(A_t) − q_t(D)) ≤ η T + ln|X|/η = 2 √(T ln|X|)   at   η = √(ln|X|/T)
    draw       misses the worst query by at most 2 ln(2|Q|/β)/(ε₀ n), ε₀ being the range of its log-weights
    hence      the average of A_1 … A_T, each as it was before its draw, answers within α when   T = 16 ln|X|/α²
               and the draws lose α/2.

ε₀ is √(8ρ/T) by ρ, the largest that advanced composition allows by its theorem, ε/T where pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from dualquery.beliefs.factored import Factored
from dualquery.beliefs.histogram import check_cells
from dualquery.beliefs.multiplicative_weights import ExpertWeights
from dualquery.bisection import halved
from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.mechanism import Outcome, Plan, Task, choice
from dualquery.mechanisms.outcomes import Iterate, iterates_before, released_iterate, synthetic_rows
from dualquery.mechanisms.rounds import AskedQueries, RoundParameters, learner
from dualquery.mechanisms.wishes import PmwWishes
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.conversion import advanced_composition
from dualquery.privacy.prices import Price, equal_prices
from dualquery.privacy.scores import rate_within
from dualquery.types import Progress

FAILURE = 0.05  # β: all draws are as good as the theorem says, except with this probability
MOST_ROUNDS = 20_000


@dataclass(frozen=True, kw_only=True)
class PmwParameters(RoundParameters):
    """What a run of PMW goes by."""

    learning_rate: float
    iterate: Iterate
    synthetic_rows: int
    epsilon_of_a_draw: float
    promised_error: float  # α of the theorem


def parameters_of(task: Task, wanted: PmwWishes) -> PmwParameters:
    universe = prod(task.domain.sizes.tolist())
    check_cells(universe)
    rounds = wanted.rounds
    if rounds is None:
        rounds = best_rounds(task) if wanted.alpha is None else rounds_for(task, wanted.alpha)
    if rounds < 1:
        raise DualQueryError(f"pmw plays at least one round, and --rounds is {rounds}")
    learning_rate = wanted.learning_rate
    if learning_rate is None:
        learning_rate = min(0.5, math.sqrt(math.log(max(2, universe)) / rounds))
    if not 0 < learning_rate < 1:
        raise DualQueryError(f"pmw needs a learning rate between 0 and 1, and {learning_rate:g} is not")
    price = draw_price(task.budget, rounds)
    asked = AskedQueries(task.workload, task.rows)
    return PmwParameters(
        rounds=rounds,
        asked=asked,
        rate=rate_within(price, asked.score, task.budget.neighbours),
        law=None,
        learning_rate=learning_rate,
        iterate=choice(Iterate, wanted.iterate, Iterate.AVERAGE, "--iterate"),
        synthetic_rows=synthetic_rows(task, wanted.synthetic_rows),
        epsilon_of_a_draw=float(price.selection_range()),
        promised_error=promised_error(task, rounds),
    )


def draw_price(budget: Budget, rounds: int) -> Price:
    """ε₀ of each of T draws that together cost the budget."""
    if budget.accounting is not Accounting.THEOREM_4_3:
        return equal_prices(budget, rounds)

    def too_much(epsilon: float) -> bool:
        return advanced_composition(epsilon, rounds, delta=budget.delta) > budget.epsilon

    most, _ = halved(0.0, budget.epsilon, 100, too_much)
    return Price(Fraction(most) * (1 - Fraction(1, 10**9)), None)


def promised_error(task: Task, rounds: int) -> float:
    """α = 2 √(ln|X|/T) + 2 K ln(2|Q|T/β)/(ε₀ n), K = 1 unless a person's K records move together."""
    learning = 2 * math.sqrt(task.domain.log2_size * math.log(2) / rounds)
    drawing = math.log(2 * task.workload.size * rounds / FAILURE)
    together = task.budget.neighbours.records_per_person or 1
    return learning + 2 * together * drawing / (
        float(draw_price(task.budget, rounds).selection_range()) * task.rows
    )


def rounds_for(task: Task, alpha: float) -> int:
    """T = 16 ln|X|/α²."""
    if not 0 < alpha < 1:
        raise DualQueryError(f"alpha is an error between 0 and 1, and {alpha:g} is not")
    rounds = math.ceil(16 * task.domain.log2_size * math.log(2) / alpha**2)
    if rounds > MOST_ROUNDS:
        raise DualQueryError(
            f"an error of {alpha:g} takes {rounds:,} rounds by the theorem, and at most {MOST_ROUNDS:,} are "
            "played; ask for a larger alpha, or for a number of rounds"
        )
    return max(1, rounds)


def best_rounds(task: Task) -> int:
    """The T whose promise is best, among the powers of √2."""
    candidates = sorted({round(2 ** (k / 2)) for k in range(2 * int(math.log2(MOST_ROUNDS)) + 1)})
    promises = {}
    for rounds in candidates:
        try:
            promises[rounds] = promised_error(task, rounds)
        except BudgetError:  # too many for the budget, and so is every larger number
            break
    if not promises:
        raise BudgetError("the budget is too small for one round; use a larger epsilon")
    return min(promises, key=lambda rounds: promises[rounds])


def plan(task: Task, wanted: PmwWishes) -> Plan[PmwParameters]:
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what a distribution could not answer
    chosen = parameters_of(task, wanted)
    cells = prod(task.domain.sizes.tolist())
    return Plan(
        task=task,
        reason=f"{chosen.rounds} rounds {'as asked' if wanted.rounds is not None else 'by the theorem'}",
        parameters=chosen,
        steps=chosen.steps(task, "draw a query that is answered too high"),
        mean_error=min(0.5, chosen.promised_error / 4),
        max_error=min(1.0, chosen.promised_error),
        seconds=2.0 + chosen.rounds * (cells * 2e-8 + task.workload.size * 1e-7),
        bytes=32 * cells + 64 * task.workload.size,
    )


def outcome(
    plan: Plan[PmwParameters], replied: Iterator[Factored], rng: np.random.Generator, progress: Progress
) -> Outcome:
    """The last reply, or the average of which the theorem speaks: that of what each query was drawn against."""
    if plan.parameters.iterate is Iterate.AVERAGE:
        replied = iterates_before(Factored(plan.task.domain, part_cells=1), replied)
    return released_iterate(plan, replied, rng, progress)


PMW = learner(
    "pmw",
    "offline private multiplicative weights: one draw a round, nothing measured (Hardt, Rothblum 2010)",
    PmwWishes,
    plan,
    lambda plan, curator: ExpertWeights(
        Factored.explicit(plan.task.domain), learning_rate=plan.parameters.learning_rate
    ),
    outcome,
    paid_by=(Accounting.ZCDP, Accounting.THEOREM_4_3, Accounting.PURE),
)
