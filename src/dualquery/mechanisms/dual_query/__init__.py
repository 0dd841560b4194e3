"""DualQuery: the query player learns, the data player best-responds (Gaboardi et al. 2014).

DualQuery: the query player learns, the data player best-responds (Gaboardi et al. 2014, Algorithm 2).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.game import BestResponseDataPlayer, Challenge, Fallback, Oracle, Record, Transcript, play
from dualquery.game.query_players import LearningQueryPlayer
from dualquery.mechanisms.artefact import SyntheticRecords
from dualquery.mechanisms.dual_query.parameters import (
    Density,
    DualQueryParameters,
    Free,
    Learning,
    density_share,
    from_budget,
    from_theory,
    last_round,
    rate_of,
    recalled,
    round_steps,
    too_dear,
    uniform,
    zeros,
)
from dualquery.mechanisms.dual_query.rehearsal import rehearse
from dualquery.mechanisms.mechanism import Mechanism, Outcome, Plan, Step, Task, affordable, choice
from dualquery.mechanisms.wishes import DualQueryWishes
from dualquery.oracles import Clauses
from dualquery.oracles.local_search import best_response
from dualquery.oracles.program import SEARCH, Solver, solver_of
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import Noise
from dualquery.privacy.selection import Rate
from dualquery.queries.workload import Workload
from dualquery.table.records import Records
from dualquery.types import Progress

UNTOLD = 0.05  # of ε: who leaves more says why
EXACT_SECONDS = 5.0  # per round; the paper has 20
COUNTING_SECONDS = 4e-12  # per query and record, two cores
WEIGHT_SECONDS = 1.5e-8  # per query and round
BYTES_A_QUERY = 8 + 4 + 12 + 8  # count, answers, three literals, and the sorted copy while counting


def dual_query(
    curator: Curator,
    workload: Workload,
    *,
    rate: Rate,
    samples: int,
    rounds: int,
    recall: int,
    public_rows: int,
    oracle: Oracle,
    fallback: Fallback,
    rng: np.random.Generator,
    progress: Callable[[int, int], None],
) -> Transcript[Challenge, Record]:
    """The game of Algorithm 2, if `recall` is 1; its average reply is the synthetic data."""
    query_player = LearningQueryPlayer(
        curator, workload, rate=rate, samples=samples, public_rows=public_rows, recall=recall
    )
    data_player = BestResponseDataPlayer(oracle, fallback, rng)
    return play(query_player, data_player, rounds=rounds, progress=progress)


def clauses_of(workload: Workload, challenge: Challenge) -> Clauses:
    """A challenge as weighted clauses; of a complemented query 1 − Π the product carries the weight −w."""
    rows = workload.product_rows(challenge.queries)
    weights = challenge.weights[rows.positions]
    return Clauses(
        workload.domain.sizes,
        rows.predicates,
        rows.literals,
        np.where(rows.complement, -weights, weights),
        rows.parities,
        challenge.weights[rows.parity_positions],
    )


def search_oracle(workload: Workload, solver: Solver = SEARCH, seconds: float = 0.0) -> Oracle:
    """Presolve, components, enumeration and tabu search: milliseconds, nearly always optimal; then the solver."""

    def respond(challenge: Challenge, fallback: Record, rng: np.random.Generator) -> Record:
        clauses = clauses_of(workload, challenge)
        return solver.best(clauses, best_response(clauses, fallback, rng=rng).record, seconds)

    return respond


def _solver(wanted: DualQueryWishes) -> tuple[Solver, float | None]:
    """Who answers, and within how many seconds a round; the search takes none."""
    solver = solver_of(wanted.oracle or SEARCH.name)
    if solver is not SEARCH:
        return solver, EXACT_SECONDS if wanted.time_limit is None else wanted.time_limit
    if wanted.time_limit is not None:
        raise DualQueryError("--time-limit is for another --oracle than search, such as exact; leave it out")
    return solver, None


def plan(task: Task, wanted: DualQueryWishes) -> Plan[DualQueryParameters]:
    """All parameters from the task and the wishes; see `parameters` for the rule."""
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what an oracle could not read
    if task.workload.decisions == 0:
        raise DualQueryError(
            "every attribute that the workload asks about is constant: there is nothing to learn"
        )
    solver, seconds = _solver(wanted)
    density, share = Density.of(task.domain), density_share(task.budget.accounting)
    free, noise = _free(wanted.free, task, density, share)
    reserved = tuple(
        Step("measure one-way counts", noise.event(task.budget.neighbours.sensitivity(each.bound())))
        for each in density.statistics
        if noise is not None
    )
    learning, source = _learning(task, wanted, reserved)
    deviation = 0.0 if noise is None else noise.deviation
    recall = 1 if wanted.alpha is not None else recalled(wanted)
    expected = rehearse(
        task, learning, recall=recall, free=free, deviation=deviation, oracle_of=search_oracle
    )
    size, rounds, steps = task.workload.size, learning.rounds, (*reserved, *round_steps(task, learning))
    return Plan(
        task=task,
        reason=f"DualQuery keeps one weight per query and none per possible record; {source}",
        parameters=DualQueryParameters(
            **learning._asdict(),
            recall=recall,
            free=free,
            density_share=0.0 if noise is None else share,
            oracle=solver.name,
            time_limit=seconds,
            density=density,
            density_noise=noise,
            rate=rate_of(learning.learning_rate, rounds, task.rows),
        ),
        steps=steps,
        mean_error=expected.mean_error,
        max_error=expected.max_error,
        seconds=size * task.rows * COUNTING_SECONDS
        + rounds * (expected.round_seconds + size * WEIGHT_SECONDS + (seconds or 0.0)),
        bytes=BYTES_A_QUERY * size + 4 * task.domain.width * (rounds + 8),
        notes=(f"the synthetic table has one row per round: {rounds}", *_unspent(task, steps, learning)),
    )


def run(
    plan: Plan[DualQueryParameters], curator: Curator, rng: np.random.Generator, progress: Progress
) -> Outcome:
    """Play the planned game against the curator."""
    chosen, task = plan.parameters, plan.task
    fallback = zeros(task.domain) if chosen.free is Free.ZEROS else uniform(task.domain)
    if chosen.density_noise is not None:
        noise = chosen.density_noise
        noisy = [curator.measure(each, noise=noise) for each in chosen.density.statistics]
        fallback = chosen.density.fallback([*noisy], rows=task.rows, deviation=noise.deviation)
    transcript = dual_query(
        curator,
        task.workload,
        rate=chosen.rate,
        samples=chosen.samples,
        rounds=chosen.rounds,
        recall=chosen.recall,
        public_rows=task.rows,
        oracle=search_oracle(task.workload, solver_of(chosen.oracle), chosen.time_limit or 0.0),
        fallback=fallback,
        rng=rng,
        progress=lambda done, total: progress("playing rounds", done, total),
    )
    return Outcome(artefact=SyntheticRecords(Records.from_rows(task.domain, transcript.average_reply())))


WORDS = "the query player learns by multiplicative weights, an optimisation oracle answers with records"
DUAL_QUERY = Mechanism(
    "dualquery",
    WORDS,
    DualQueryWishes,
    plan,
    run,
    paid_by=(Accounting.ZCDP, Accounting.THEOREM_4_3, Accounting.PURE),
)


def _learning(task: Task, wanted: DualQueryWishes, reserved: tuple[Step, ...]) -> tuple[Learning, str]:
    """η, s and T, and where they come from in half a sentence."""
    named = [
        name for name in ("learning_rate", "samples", "rounds", "recall") if getattr(wanted, name) is not None
    ]
    if wanted.alpha is None and wanted.beta is None:
        given = f"{', '.join(named)} as given, the rest" if named else "parameters"
        return from_budget(task, wanted, reserved), f"{given} by the public rule for this shape and budget."
    if named:
        raise DualQueryError(
            "--alpha and --beta fix all parameters; leave out learning rate, samples, rounds and recall"
        )
    if wanted.alpha is None:
        raise DualQueryError("--beta goes with --alpha")
    beta = 0.05 if wanted.beta is None else wanted.beta
    learning = from_theory(task, alpha=wanted.alpha, beta=beta)
    if not affordable(task.budget, (*reserved, *round_steps(task, learning))):
        raise too_dear(task, learning, wanted.alpha)
    return learning, f"parameters from the theory for error {wanted.alpha:g} but with chance {beta:g}."


def _unspent(task: Task, steps: Iterable[Step], learning: Learning) -> Iterator[str]:
    """Why a run leaves more than a twentieth of ε, if it does."""
    ledger = Ledger(task.budget)
    for step in steps:
        ledger.charge(step.event)
    spent, budget = ledger.spent().epsilon, task.budget.epsilon
    if spent < (1 - UNTOLD) * budget:
        why = "the rule stops there" if learning.rounds == last_round(task) else "that is what was asked for"
        yield (
            f"{learning.rounds} rounds of {learning.samples} samples spend {spent:.2g} of epsilon = {budget:g}: "
            f"{why}; --rounds buys more"
        )


def _free(name: str | None, task: Task, density: Density, share: float) -> tuple[Free, Noise | None]:
    """The given policy, and the noise of a density; by default a density where its noise leaves any, else random."""
    priced = task.budget.accounting is not Accounting.THEOREM_4_3
    noise = density.noise(task.budget, share) if priced else None
    clear = noise is not None and density.guides(noise.deviation, task.rows)
    free = choice(Free, name, Free.DENSITY if clear else Free.RANDOM, "--free")
    if free is not Free.DENSITY:
        return free, None
    if noise is None:
        raise DualQueryError(
            "--free density cannot be paid for under theorem-4.3; use zcdp or pure accounting"
        )
    return free, noise
