"""MWEM: the query player best-responds, the data player learns (Hardt, Ligett, McSherry 2012, Figure 1).

Each round the exponential mechanism finds a query (or a whole table) that the distribution gets wrong, it is
measured with noise, and multiplicative weights take the measurement in. The defaults are the paper's own
improvements, the last iterate and repeated updates. Pure ε pays with Laplace noise, ρ with Gaussian noise and bounded
range, by the same code.

`--updates figure-1` is Figure 1 word for word, for pure ε: of the queries of the workload alone one is drawn with
probability ∝ exp(ε |q(A) − q(B)| / 4T), its count gets Laplace noise of scale 2T/ε, each measurement is heard once,
and the average of A₀ … A_{T−1} is released. Theorem 2.2 speaks of it.

Offline private multiplicative weights (Ullman's tutorial of 2013; Hardt and Rothblum 2010).

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
from dataclasses import dataclass, replace
from enum import Enum
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from dualquery.beliefs.factored import Factored
from dualquery.beliefs.histogram import MOST_CELLS, check_cells
from dualquery.beliefs.multiplicative_weights import (
    ONCE,
    ExpertWeights,
    MultiplicativeWeights,
    Schedule,
    StepSize,
    nearest_probabilities,
)
from dualquery.errors import BudgetError, DualQueryError, QueryError
from dualquery.mechanisms.mechanism import (
    Iterate,
    Outcome,
    Plan,
    Step,
    Task,
    choice,
    hidden,
    iterates_before,
    released_iterate,
    synthetic_rows,
)
from dualquery.mechanisms.rounds import (
    HALF,
    Asked,
    AskedAsPrinted,
    AskedQueries,
    AskedTables,
    MeasuredRounds,
    QuestionKind,
    RoundParameters,
    asked_of,
    learner,
    priced,
    usual_kind,
    usual_rounds,
)
from dualquery.mechanisms.wishes import MwemWishes, PmwWishes
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.conversion import advanced_composition
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Price, equal_prices
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import rate_within
from dualquery.queries.tables import Tables
from dualquery.types import Progress, halved

PASSES = 10  # over all measurements a round; they often agree before that
SELECTION_SHARE = Fraction(3, 5)  # of a round's budget, where parities are measured
START_SHARE = Fraction(1, 4)  # of the budget, for a noisy start
EXPLICIT_CELLS = 1 << 22  # up to here parts may grow to the whole universe
PART_CELLS = 1 << 18  # else
PART_CELLS_FOR_TABLES = 1 << 22  # of which fewer are measured


class Updates(Enum):
    """How often a measurement is heard."""

    REPEATED = "repeated"
    ONCE = "once"
    FIGURE_1 = "figure-1"  # once, and all else as printed


class Start(Enum):
    """Where the distribution begins."""

    UNIFORM = "uniform"
    NOISY = "noisy"


@dataclass(frozen=True, kw_only=True)
class MwemParameters(MeasuredRounds):
    """What a run of MWEM goes by."""

    iterate: Iterate
    updates: Updates
    start: Start
    measured: QuestionKind
    part_cells: int
    synthetic_rows: int
    promised_error: float | None  # by Theorem 2.2, of Figure 1
    start_noise: Noise | None = hidden()


def whole_table(task: Task) -> Tables:
    """Every cell of the universe: what a noisy start counts."""
    return Tables(task.domain, (tuple(range(task.domain.width)),))


def automatic_rounds(task: Task, asked: Asked | None = None) -> int:
    """T from public numbers: rounds go on while the noise of a measurement is below the gap still expected.

    At queries, T = log₂|X| · (n ε)^⅓ / 10: where noise of T/ε records, one added or removed, meets a gap of
    (log₂|X| / 10)³ / T² of the table. At most n ε / 20, so that noise stays below a twentieth of it; twice that where
    ρ pays, whose noise grows as √T. Where a person's K records move together, each of them is worth ε/K.
    A table teaches more: once each of d attributes was heard of little is left, a gap of (d/4)⁶ / T⁵.
    Sweeps: docs/experiments/mwem_rounds.md.
    """
    if isinstance(asked, AskedTables):
        wrong = (len(task.workload.attributes) / 4) ** 6
        return usual_rounds(task, wrong=wrong, power=5, most=len(asked.tables.sets), asked=asked)
    records = task.rows * task.budget.epsilon / (task.budget.neighbours.records_per_person or 1)
    rounds = min(task.domain.log2_size * records ** (1 / 3) / 10, records / 20)
    return max(1, round(2 * rounds if task.budget.accounting is Accounting.ZCDP else rounds))


def selection_share(kind: QuestionKind, updates: Updates) -> Fraction:
    """Of a round's budget: half as in the paper, or three fifths where parities are measured.

    Most parities of a table are nearly right from the start, so that more is lost by choosing one of
    these than by a noisier measurement; of ranges and tables nearly every one is worth measuring.
    """
    sparse = kind in (QuestionKind.PARITIES, QuestionKind.QUERIES_AND_PARITIES)
    return SELECTION_SHARE if sparse and updates is Updates.REPEATED else HALF


def parameters_of(task: Task, wanted: MwemWishes) -> MwemParameters:
    """Every choice of a run."""
    updates = choice(Updates, wanted.updates, Updates.REPEATED, "--updates")
    printed = updates is Updates.FIGURE_1
    wanted = _as_printed(task, wanted) if printed else wanted
    kind = choice(QuestionKind, wanted.measured, usual_kind(task.workload), "--measured")
    start = choice(Start, wanted.start, Start.UNIFORM, "--start")
    asked = AskedAsPrinted(task.workload, task.rows) if printed else asked_of(task.workload, kind, task.rows)
    part_cells = _part_cells(wanted, task, asked)
    start_noise = _start_noise(task, part_cells) if start is Start.NOISY else None
    share = Fraction(1) if start_noise is None else 1 - START_SHARE
    selecting = selection_share(kind, updates)
    rounds = automatic_rounds(task, asked) if wanted.rounds is None else wanted.rounds
    game = priced(task, rounds, asked, share=share, selecting=selecting)
    return MwemParameters(
        **vars(game),
        iterate=choice(Iterate, wanted.iterate, Iterate.LAST, "--iterate"),
        updates=updates,
        start=start,
        measured=kind,
        part_cells=part_cells,
        synthetic_rows=synthetic_rows(task, wanted.synthetic_rows),
        promised_error=promised_error(task, game.rounds) if printed and _whole(task, part_cells) else None,
        start_noise=start_noise,
    )


def _as_printed(task: Task, wanted: MwemWishes) -> MwemWishes:
    """The wishes that Figure 1 fixes; others are refused."""
    fixed: dict[str, Any] = {"iterate": "average", "start": "uniform", "measured": "queries"}
    for name, value in fixed.items():
        if getattr(wanted, name) not in (None, value):
            raise DualQueryError(f"Figure 1 has --{name} {value}; leave out --{name}, or --updates figure-1")
    if task.budget.accounting is not Accounting.PURE:
        raise BudgetError("Figure 1 is paid for by pure epsilon; add --accounting pure and leave out --delta")
    return replace(wanted, **fixed)


def promised_error(task: Task, rounds: int) -> float | None:
    """Theorem 2.2: 2 √(ln|X|/T) + 10 K T ln|Q| / (ε n), with probability 1 − 2T/|Q|; None where that is none.

    A step towards q(B) + ν lowers KL(B, A) by at least (g² − ν²)/4, g the gap, so that the mean gap is at most
    2 √(ln|X|/T) + max |ν|. ν is 2T ln|Q|/ε at most, and each draw misses the worst query by 8T ln|Q|/ε at most,
    except with probability 1/|Q| each. K = 1 unless a person's K records move together.
    """
    if 2 * rounds >= task.workload.size:
        return None
    together = task.budget.neighbours.records_per_person or 1
    lost = 10 * together * rounds * math.log(task.workload.size) / (task.budget.epsilon * task.rows)
    return 2 * math.sqrt(task.domain.log2_size * math.log(2) / rounds) + lost


def _whole(task: Task, part_cells: int) -> bool:
    """Whether one part may have every cell, so that no query is left out."""
    return prod(task.domain.sizes.tolist()) <= part_cells


def _start_noise(task: Task, part_cells: int) -> Noise:
    """The noise of a start that counts every cell of the universe."""
    universe = prod(task.domain.sizes.tolist())
    if universe > part_cells:
        raise QueryError(
            f"a noisy start counts every one of {universe:,} cells, more than a part may have; "
            "start uniform, or allow larger parts"
        )
    price = equal_prices(task.budget, 1, START_SHARE)
    return price.noise(task.budget.neighbours.sensitivity(whole_table(task).bound()))


def _part_cells(wanted: MwemWishes, task: Task, asked: Asked) -> int:
    """How large a part may become; never so small that no query could be measured."""
    universe = prod(task.domain.sizes.tolist())
    if wanted.part_cells is not None:
        check_cells(min(wanted.part_cells, universe))
        limit = wanted.part_cells
    else:
        usually = PART_CELLS_FOR_TABLES if isinstance(asked, AskedTables) else PART_CELLS
        limit = universe if universe <= EXPLICIT_CELLS else usually
        if wanted.memory is not None:
            limit = min(universe, MOST_CELLS, wanted.memory // 24)  # weights, a snapshot of them, survival
    smallest = asked.fewest_cells
    if wanted.part_cells is None and wanted.memory is None and smallest > limit:
        check_cells(smallest)
        limit = smallest
    if smallest > limit:
        raise QueryError(
            f"a part may have {limit:,} cells, and the smallest query of the workload needs {smallest:,}; "
            "allow larger parts, or ask about fewer attributes at a time"
        )
    return limit


def belief_of(chosen: MwemParameters, start: Factored, public_rows: int) -> MultiplicativeWeights:
    """A distribution that hears as planned, content where its gaps are as small as the noise."""
    repeated = Schedule(StepSize.FULL, PASSES, chosen.noise / public_rows)
    schedule = repeated if chosen.updates is Updates.REPEATED else ONCE
    # Figure 1 clamps nothing: one gentle step excludes no record.
    floor = -math.inf if chosen.updates is Updates.FIGURE_1 else 0.5 / public_rows
    return MultiplicativeWeights(start, schedule=schedule, floor=floor)


def starting(plan: Plan[MwemParameters], curator: Curator) -> Factored:
    """A₀: uniform, or half uniform and half a noisy count of every cell (section 2.3.2), so that none is excluded."""
    task, noise = plan.task, plan.parameters.start_noise
    distribution = Factored(task.domain, part_cells=plan.parameters.part_cells)
    if noise is not None:
        noisy = curator.measure(whole_table(task), noise=noise) / task.rows
        start = 0.5 * nearest_probabilities(noisy) + 0.5 / len(noisy)
        factors = len(noisy) * start.reshape(task.domain.sizes)
        distribution.multiply(tuple(range(task.domain.width)), factors, mass=float(factors.mean()))
    return distribution


def plan(task: Task, wanted: MwemWishes) -> Plan[MwemParameters]:
    """All parameters from the task and the wishes."""
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what a distribution could not answer
    chosen = parameters_of(task, wanted)
    universe = prod(task.domain.sizes.tolist())
    part = min(universe, chosen.part_cells)
    noise = chosen.noise / task.rows
    passes = PASSES if chosen.updates is Updates.REPEATED else 1
    notes = []
    if chosen.promised_error is not None:
        notes.append(
            f"Theorem 2.2: with probability {1 - 2 * chosen.rounds / task.workload.size:.3g} every query is answered "
            f"within {chosen.promised_error * task.rows:,.0f} of {task.rows:,} records"
        )
    if universe > part:
        notes.append(
            f"the universe has 2^{task.domain.log2_size:.0f} cells: the distribution is kept in parts of at "
            f"most {part:,}, and a query that would need a larger one is not measured"
        )
    mean_error = noise + 0.05 / math.sqrt(chosen.rounds)
    max_error = 3 * noise + chosen.found(task) + 0.3 / math.sqrt(chosen.rounds)
    if chosen.updates is Updates.FIGURE_1:  # whose steps are eight times shorter
        max_error = chosen.promised_error or 1.0
        mean_error = max_error / 4
    source = "as asked" if wanted.rounds is not None else "by the noise that the budget buys"
    return Plan(
        task=task,
        reason=f"{chosen.rounds} rounds {source}, measuring {chosen.measured.value}",
        parameters=chosen,
        steps=(*_start_steps(task, chosen), *chosen.steps(task, "choose what the distribution gets wrong")),
        mean_error=min(0.5, mean_error),
        max_error=min(1.0, max_error),
        seconds=2.0 + chosen.rounds**2 * passes * part * 1e-9 + chosen.rounds * chosen.asked.size * 2e-8,
        bytes=32 * part + 64 * chosen.asked.size,
        notes=tuple(notes),
    )


def _start_steps(task: Task, chosen: MwemParameters) -> tuple[Step, ...]:
    if chosen.start_noise is None:
        return ()
    moved = task.budget.neighbours.sensitivity(whole_table(task).bound())
    return (Step("measure every cell, for a start", chosen.start_noise.event(moved)),)


def released_as_proven(
    plan: Plan[Any], replied: Iterator[Factored], rng: np.random.Generator, progress: Progress
) -> Outcome:
    """What is released of the replies; where a theorem speaks of an average, it is that of A₀ … A_{T−1}."""
    if plan.parameters.promised_error is not None or plan.parameters.updates is Updates.FIGURE_1:
        replied = iterates_before(Factored(plan.task.domain, part_cells=1), replied)
    return released_iterate(plan, replied, rng, progress)


MWEM = learner(
    "mwem",
    "multiplicative weights over records, corrected by the worst-answered queries (Hardt et al. 2012)",
    MwemWishes,
    plan,
    lambda plan, curator: belief_of(plan.parameters, starting(plan, curator), plan.task.rows),
    released_as_proven,
)


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


def pmw_parameters(task: Task, wanted: PmwWishes) -> PmwParameters:
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
        promised_error=promised_by_pmw(task, rounds),
    )


def draw_price(budget: Budget, rounds: int) -> Price:
    """ε₀ of each of T draws that together cost the budget."""
    if budget.accounting is not Accounting.THEOREM_4_3:
        return equal_prices(budget, rounds)

    def too_much(epsilon: float) -> bool:
        return advanced_composition(epsilon, rounds, delta=budget.delta) > budget.epsilon

    most, _ = halved(0.0, budget.epsilon, 100, too_much)
    return Price(Fraction(most) * (1 - Fraction(1, 10**9)), None)


def promised_by_pmw(task: Task, rounds: int) -> float:
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
            promises[rounds] = promised_by_pmw(task, rounds)
        except BudgetError:  # too many for the budget, and so is every larger number
            break
    if not promises:
        raise BudgetError("the budget is too small for one round; use a larger epsilon")
    return min(promises, key=lambda rounds: promises[rounds])


def plan_pmw(task: Task, wanted: PmwWishes) -> Plan[PmwParameters]:
    task.workload.product_rows(task.workload.starts[:-1])  # refuses what a distribution could not answer
    chosen = pmw_parameters(task, wanted)
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
    plan_pmw,
    lambda plan, curator: ExpertWeights(
        Factored.explicit(plan.task.domain), learning_rate=plan.parameters.learning_rate
    ),
    outcome,
    paid_by=(Accounting.ZCDP, Accounting.THEOREM_4_3, Accounting.PURE),
)
