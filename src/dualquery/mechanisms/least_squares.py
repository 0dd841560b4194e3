"""The least squares mechanism: noisy answers, and the mixture of records nearest to them.

Nikolov, Talwar and Zhang (*The Geometry of Differential Privacy*, 2013) add Gaussian noise to every query and
project the noisy answers ỹ = y + w in L2 onto the hull K of what records can answer; Dwork, Nikolov and Talwar
(*Efficient Algorithms for Privately Releasing Marginals via Convex Relaxations*, 2014) do it by Frank-Wolfe, with a
relaxation of K where its maximum is hard to find. Here an oracle finds it, as in DualQuery, and K is K itself
(`beliefs.euclidean`).

    ‖ŷ − y‖² ≤ ⟨w, ŷ − y⟩ ≤ max_x ⟨w, a_x − c⟩ − ⟨w, y − c⟩          (y lies in K; any fixed c)
    E‖ŷ − y‖² ≤ σ √(2 ln|X| · min(r, |Q|/4))                      (c = 0 or ½: ‖a_x − c‖² ≤ r or = |Q|/4)

with r the most queries that one record satisfies, and ‖ŷ − y‖ ≤ ‖w‖ besides. So the mean squared error is at most
min(σ², σ √(2 r ln|X|)/|Q|), which is the promise. What gap Frank-Wolfe ends with comes on top of ‖ŷ − y‖².
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dualquery.beliefs.euclidean import RecordMixture
from dualquery.game.play import Challenge
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.baselines import IndependentParameters, independent_plan, noisy_answers
from dualquery.mechanisms.dual_query.game import clauses_of
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Task
from dualquery.mechanisms.outcomes import synthetic_rows
from dualquery.mechanisms.wishes import RowsAndRoundsWishes
from dualquery.oracles.local_search import best_response
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.table.records import Records
from dualquery.types import Progress

MOST_ROUNDS = 1000
FLIPS = 300  # of a search, which begins at a record that is good already
CONTENT = 0.1  # Frank-Wolfe ends where its gap is below this share of what noise does
FINE = 40  # bits of the sum of all weights of a challenge
MOST_CELLS = 1 << 28  # of the rows that are released by default


@dataclass(frozen=True, kw_only=True)
class LeastSquaresParameters(IndependentParameters):
    """What a run goes by: independent noise, and how it is projected."""

    rounds: int  # of Frank-Wolfe, at most
    synthetic_rows: int
    promised_error: float  # the root of the mean squared error that is expected, at most


def squared_error(task: Task, chosen: IndependentParameters) -> tuple[float, float]:
    """Of all answers together: E‖w‖², and E max_x ⟨w, a_x − c⟩ by its bound."""
    groups = zip(task.workload.groups, chosen.balanced, strict=True)
    sigmas = [
        (chosen.law.deviation / (chosen.per_record(group, half) * task.rows), group.size)
        for group, half in groups
    ]
    universe = float(np.log(task.domain.sizes[task.workload.attributes]).sum())
    longest = min(_most_satisfied(task), task.workload.size / 4)
    noise = sum(sigma**2 * size for sigma, size in sigmas)
    return noise, max(sigma for sigma, _ in sigmas) * math.sqrt(2 * universe * longest)


def _most_satisfied(task: Task) -> int:
    """r: the most queries that one record satisfies."""
    return task.workload.bound().alone[0]


def plan(task: Task, wanted: RowsAndRoundsWishes) -> Plan[LeastSquaresParameters]:
    """The plan of independent noise, and a number of rounds after which Frank-Wolfe's own error is below its."""
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what an oracle could not read
    measured = independent_plan("gaussian", task)
    noise, hull = squared_error(task, measured.parameters)
    size, width = task.workload.size, task.domain.width
    rounds = wanted.rounds or min(MOST_ROUNDS, max(10, math.ceil(_most_satisfied(task) / hull)))
    rows = synthetic_rows(task, wanted.synthetic_rows)
    if wanted.synthetic_rows is None:
        rows = min(rows, max(rounds, MOST_CELLS // width))
    promised = math.sqrt(min(noise, hull) / size)
    return Plan(
        task=task,
        reason=f"every query is measured, and at most {rounds} records are mixed to answer alike",
        parameters=LeastSquaresParameters(
            **vars(measured.parameters), rounds=rounds, synthetic_rows=rows, promised_error=promised
        ),
        steps=measured.steps,
        mean_error=min(measured.mean_error, promised),
        max_error=measured.max_error,
        seconds=measured.seconds + rounds * size * (3e-6 + rounds * 1e-9),
        bytes=measured.bytes + rounds * (size + 4 * width) + 4 * rows * width,
        notes=(
            f"Nikolov, Talwar and Zhang: the root of the mean squared error is expected to be at most {promised:.2g}",
        ),
    )


def run(
    plan: Plan[LeastSquaresParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Measure, then mix records until no other would come much nearer; all after the measurement is public."""
    task, chosen = plan.task, plan.parameters
    noisy = noisy_answers(task, chosen, curator)
    mixture = RecordMixture(task.workload, noisy.answers)
    enough = CONTENT * min(squared_error(task, chosen))
    queries = np.arange(task.workload.size)
    played = 0
    while played < chosen.rounds and mixture.gap > enough:
        residual = mixture.residual
        size = np.abs(residual).sum() or 1.0  # nothing is left where all answers are met
        weights = np.rint(residual * (2.0**FINE / size)).astype(np.int64)
        clauses = clauses_of(task.workload, Challenge(queries, weights))
        begin = mixture.nearest(np.zeros(task.domain.width, np.int32))
        mixture.add(best_response(clauses, begin, rng=rng, flips=FLIPS).record)
        played += 1
        progress("mixing records", played, chosen.rounds)
    off = math.sqrt(mixture.gap / task.workload.size)
    return Outcome(
        artefact=SyntheticRecords(Records.from_rows(task.domain, mixture.rows(chosen.synthetic_rows))),
        belief=mixture,
        measured=noisy.measured,
        notes=(
            f"{len(mixture.weights)} records were mixed; as far as the search sees, the nearest mixture "
            f"lies within {off:.2g} of theirs (root of the mean square)",
        ),
    )


LEAST_SQUARES = Mechanism(
    "least-squares",
    "Gaussian answers to all queries, projected onto mixtures of records by Frank-Wolfe (Nikolov et al. 2013)",
    RowsAndRoundsWishes,
    plan,
    run,
    paid_by=(Accounting.GAUSSIAN, Accounting.ZCDP),
)
