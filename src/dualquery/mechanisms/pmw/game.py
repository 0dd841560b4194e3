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

from math import prod

import numpy as np

from dualquery.distributions.factored import Factored
from dualquery.distributions.multiplicative_weights import ExpertWeights
from dualquery.game.best_response_query_player import ComplainingQueryPlayer
from dualquery.game.learning_data_player import LearningDataPlayer
from dualquery.game.moves import Loss
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Progress, Step, Task
from dualquery.mechanisms.mwem.questions import AskedQueries
from dualquery.mechanisms.outcomes import play_iterates
from dualquery.mechanisms.pmw.parameters import PmwParameters, parameters_of
from dualquery.mechanisms.wishes import PmwWishes
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.scores import selection_event


def plan(task: Task, wanted: PmwWishes) -> Plan[PmwParameters]:
    """All parameters from the task and the wishes; see `parameters` for the rule."""
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what a distribution could not answer
    chosen = parameters_of(task, wanted)
    cells = prod(task.domain.sizes.tolist())
    score = AskedQueries(task.workload, task.rows).score
    event = selection_event(score, task.budget.neighbours, rate=chosen.rate, draws=1)
    assert event is not None, "errors can move"
    return Plan(
        mechanism="pmw",
        task=task,
        reason=f"{chosen.rounds} rounds {'as asked' if wanted.rounds is not None else 'by the theorem'}",
        parameters=chosen,
        steps=(Step("draw a query that is answered too high", event, chosen.rounds),),
        mean_error=min(0.5, chosen.promised_error / 4),
        max_error=min(1.0, chosen.promised_error),
        seconds=2.0 + chosen.rounds * (cells * 2e-8 + task.workload.size * 1e-7),
        bytes=32 * cells + 64 * task.workload.size,
    )


def run(plan: Plan[PmwParameters], curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """Play the planned game against the curator."""
    chosen, task = plan.parameters, plan.task
    start = Factored.explicit(task.domain)
    questions = AskedQueries(task.workload, task.rows).questions(start.snapshot())
    query_player: ComplainingQueryPlayer[Loss, Factored]
    query_player = ComplainingQueryPlayer(curator, questions, rate=chosen.rate)
    data_player = LearningDataPlayer(ExpertWeights(start, learning_rate=chosen.learning_rate))
    return play_iterates(query_player, data_player, task, chosen, rng, progress)


WORDS = "offline private multiplicative weights: one draw a round, nothing measured (Hardt, Rothblum 2010)"
PMW = Mechanism(
    "pmw", WORDS, PmwWishes, plan, run, paid_by=(Accounting.ZCDP, Accounting.THEOREM_4_3, Accounting.PURE)
)
