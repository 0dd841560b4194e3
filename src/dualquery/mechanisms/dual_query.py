"""DualQuery: the query player learns, the data player best-responds (Gaboardi et al. 2014, Algorithm 2)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import numpy as np

from dualquery.errors import DualQueryError
from dualquery.game.data_players import BestResponseDataPlayer, Fallback, Oracle
from dualquery.game.moves import Challenge, Record, Transcript
from dualquery.game.play import play
from dualquery.game.query_players import LearningQueryPlayer
from dualquery.mechanisms.free_values import (
    Free,
    density_events,
    density_noise,
    measured_density,
    noise_deviation,
    uniform,
    zeros,
)
from dualquery.mechanisms.parameters import (
    DualQueryParameters,
    affordable,
    density_share,
    from_budget,
    from_theory,
)
from dualquery.mechanisms.plan import Mechanism, Options, Outcome, Plan, Progress, Shape
from dualquery.mechanisms.rehearsal import rehearse
from dualquery.oracles.clauses import Clauses
from dualquery.oracles.exact import exact_response
from dualquery.oracles.local_search import best_response
from dualquery.privacy.budget import Accounting
from dualquery.privacy.curator import Curator
from dualquery.privacy.events import Event
from dualquery.queries.workload import Workload
from dualquery.table.records import Records

BLUR_MOST = 0.1  # a density blurred by more than this share of the table guides nobody
EXACT_SECONDS = 5.0  # per round
COUNTING_SECONDS = 4e-12  # per query and record, two cores
WEIGHT_SECONDS = 1.5e-8  # per query and round
BYTES_A_QUERY = 8 + 4 + 12 + 8  # count, answers, three literals, and the sorted copy while counting


def dual_query(
    curator: Curator,
    workload: Workload,
    *,
    learning_rate: float,
    samples: int,
    rounds: int,
    public_rows: int,
    oracle: Oracle,
    fallback: Fallback,
    rng: np.random.Generator,
    progress: Callable[[int, int], None],
) -> Transcript[Challenge, Record]:
    """The game of Algorithm 2; its average reply is the synthetic data."""
    query_player = LearningQueryPlayer(
        curator,
        workload,
        learning_rate=learning_rate,
        samples=samples,
        rounds=rounds,
        public_rows=public_rows,
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


def search_oracle(workload: Workload) -> Oracle:
    """Presolve, components, enumeration and tabu search: milliseconds, nearly always optimal."""

    def respond(challenge: Challenge, fallback: Record, rng: np.random.Generator) -> Record:
        return best_response(clauses_of(workload, challenge), fallback, rng=rng).record

    return respond


def exact_oracle(workload: Workload) -> Oracle:
    """CP-SAT, started from the search's answer, within a time limit a round."""

    def respond(challenge: Challenge, fallback: Record, rng: np.random.Generator) -> Record:
        clauses = clauses_of(workload, challenge)
        hint = best_response(clauses, fallback, rng=rng).record
        return exact_response(clauses, fallback, time_limit=EXACT_SECONDS, hint=hint).record

    return respond


ORACLES: dict[str, Callable[[Workload], Oracle]] = {"search": search_oracle, "exact": exact_oracle}


def plan(shape: Shape, options: Options) -> Plan:
    """All parameters from the shape and the options; see `parameters` for the rule."""
    free = _free(options.free, shape)
    if options.oracle is not None and options.oracle not in ORACLES:
        raise DualQueryError(f"--oracle must be one of {', '.join(ORACLES)}")
    reserved: list[Event] = []
    share, deviation = 0.0, 0.0
    if free is Free.DENSITY:
        share = density_share(shape.budget.accounting)
        reserved.extend(density_events(shape.domain, shape.budget, share))
        deviation = noise_deviation(density_noise(shape.domain, shape.budget, share))
    parameters, source = _parameters(shape, options, reserved)
    expected = rehearse(shape, parameters, free=free, deviation=deviation, oracle_of=search_oracle)
    size = shape.workload.size
    counting = size * shape.rows * COUNTING_SECONDS
    playing = parameters.rounds * (expected.round_seconds + size * WEIGHT_SECONDS)
    return Plan(
        mechanism="dualquery",
        reason=f"DualQuery keeps one weight a query and none a possible record; {source}",
        parameters={
            **asdict(parameters),
            "free": free.value,
            "density_share": share,
            "oracle": options.oracle or "search",
        },
        mean_error=expected.mean_error,
        max_error=expected.max_error,
        seconds=counting + playing,
        bytes=BYTES_A_QUERY * size + 4 * shape.domain.width * (parameters.rounds + 8),
        notes=(f"the synthetic table has one row a round: {parameters.rounds}",),
    )


def run(plan: Plan, shape: Shape, curator: Curator, rng: np.random.Generator, progress: Progress) -> Outcome:
    """Play the planned game against the curator."""
    chosen = plan.parameters
    free = Free(chosen["free"])
    if free is Free.DENSITY:
        share = float(chosen["density_share"])
        fallback = measured_density(curator, shape.domain, shape.budget, share, shape.rows)
    else:
        fallback = zeros(shape.domain) if free is Free.ZEROS else uniform(shape.domain)
    transcript = dual_query(
        curator,
        shape.workload,
        learning_rate=float(chosen["learning_rate"]),
        samples=int(chosen["samples"]),
        rounds=int(chosen["rounds"]),
        public_rows=shape.rows,
        oracle=ORACLES[str(chosen["oracle"])](shape.workload),
        fallback=fallback,
        rng=rng,
        progress=lambda done, total: progress("playing rounds", done, total),
    )
    return Outcome(records=Records.from_rows(shape.domain, transcript.average_reply()))


DUAL_QUERY = Mechanism(
    name="dualquery",
    words="the query player learns by multiplicative weights, an optimisation oracle answers with records",
    accepts=frozenset({"learning_rate", "samples", "rounds", "alpha", "beta", "free", "oracle"}),
    plan=plan,
    run=run,
)


def _parameters(shape: Shape, options: Options, reserved: list[Event]) -> tuple[DualQueryParameters, str]:
    """The parameters, and where they come from in half a sentence."""
    named = [name for name in ("learning_rate", "samples", "rounds") if name in options.given()]
    if options.alpha is None and options.beta is None:
        given = f"{', '.join(named)} as given, the rest" if named else "parameters"
        return from_budget(shape, options, reserved), f"{given} by the public rule for this shape and budget."
    if named:
        raise DualQueryError(
            "--alpha and --beta fix all parameters; leave out learning rate, samples and rounds"
        )
    if options.alpha is None:
        raise DualQueryError("--beta goes with --alpha")
    beta = 0.05 if options.beta is None else options.beta
    parameters = from_theory(shape, alpha=options.alpha, beta=beta)
    if not affordable(shape, parameters, reserved):
        raise DualQueryError(
            f"error {options.alpha:g} by the theory needs {parameters.rounds} rounds of {parameters.samples} "
            f"samples, more than epsilon = {shape.budget.epsilon:g} pays for on {shape.rows} records; "
            "raise --alpha or epsilon"
        )
    return parameters, f"parameters from the theory for error {options.alpha:g} but with chance {beta:g}."


def _free(name: str | None, shape: Shape) -> Free:
    """The given policy; by default a density where its noise is small against the table, else random."""
    if name is None:
        if shape.budget.accounting is Accounting.THEOREM_4_3:
            return Free.RANDOM
        noise = density_noise(shape.domain, shape.budget, density_share(shape.budget.accounting))
        return Free.DENSITY if noise_deviation(noise) <= BLUR_MOST * shape.rows else Free.RANDOM
    try:
        free = Free(name)
    except ValueError:
        raise DualQueryError(f"--free must be one of {', '.join(f.value for f in Free)}") from None
    if free is Free.DENSITY and shape.budget.accounting is Accounting.THEOREM_4_3:
        raise DualQueryError(
            "--free density cannot be paid for under theorem-4.3; use zcdp or pure accounting"
        )
    return free
