"""How many samples, how fast, how long: DualQuery's parameters from public quantities alone.

Three ways. From the theory: a target (α, β) fixes all of them (Algorithm 2). From the user: any of learning rate,
samples and rounds given, the rest fitted to the budget. From a rule.

The rule. ρ is as s η² T³, the largest error as 1 / (η T). By the theory s is in proportion to T (of Algorithm 2
both have 1 / α²), and so it is here, where the draws that count are those of all rounds that are recalled: together
half as many as rounds. Where free values follow a density, draws only have to correct it; where they do not, there
must be one for every decision. Constants are from runs on Adult, KDD99, Kosarak and biased data from ε = 0.05 to 5;
around its best the error is flat (docs/learners.md, `python -m experiments.dualquery_parameters`).

*What it costs*, in closed form (Gaboardi et al. 2014, Theorems 4.2 and 4.3, and ρ): in round t the log-weights of
the queries move within a range of w η (t − 1)/n between neighbours, where w = 2 if a record may be replaced (a count
rises or falls by one), and w = 1 if one may be added or removed (no count falls, if the negation of a query counts
the records that do not satisfy it, and n is a public constant), and K times that where a person's K records move
together. Round 1 is free: all weights are equal.

Where values come from that no sampled query decides: `density`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from dualquery.bisection import first_whole, halved
from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.dual_query.density import Density, Free
from dualquery.mechanisms.mechanism import Step, Task, affordable, hidden
from dualquery.mechanisms.wishes import DualQueryWishes
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, advanced_composition, rho_units_of
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.noise import Noise
from dualquery.privacy.scores import SignedErrors, selection_event, signed_range
from dualquery.privacy.selection import SLACK, Rate

NO_SLACK = Fraction(0)


class Learning(NamedTuple):
    """η, s and T of Algorithm 2."""

    learning_rate: float
    samples: int
    rounds: int


def dual_query_pure(
    learning: Learning, rows: int, neighbours: Neighbours, slack: Fraction = NO_SLACK
) -> Fraction:
    """Pure ε = w η T (T − 1) s / (2n). With w = 2: Theorem 4.2. `slack` is added to the range of all later draws."""
    step, rounds = _step(learning, rows, neighbours), learning.rounds
    return learning.samples * (step * _first_powers(rounds) + slack * (rounds - 1))


def dual_query_advanced(
    learning: Learning, rows: int, neighbours: Neighbours, slack: Fraction = NO_SLACK, *, delta: float
) -> float:
    """ε = ε' (√(2k ln(1/δ)) + k (e^ε' − 1)), ε' = w η (T − 1)/n, k = s (T − 1). With w = 2: Theorem 4.3."""
    step, later = _step(learning, rows, neighbours), learning.rounds - 1
    return advanced_composition(step * later + slack, learning.samples * later, delta=delta)


def dual_query_rho(
    learning: Learning, rows: int, neighbours: Neighbours, slack: Fraction = NO_SLACK
) -> Fraction:
    """ρ = Σ_t s (w η (t − 1)/n)² / 8. With w = 2: s η² T (T − 1)(2T − 1) / (12 n²)."""
    step, rounds = _step(learning, rows, neighbours), learning.rounds
    squares = step**2 * _second_powers(rounds) + 2 * step * slack * _first_powers(rounds)
    return learning.samples * (squares + slack**2 * (rounds - 1)) / 8


def pays_for(budget: Budget, learning: Learning, rows: int, slack: Fraction) -> bool:
    """Whether its rounds fit. The ledger rounds each of them up to a unit; two units a round leave room."""
    setting, room = (learning, rows, budget.neighbours, slack), 2 * learning.rounds
    if budget.accounting is Accounting.THEOREM_4_3:
        return dual_query_advanced(*setting, delta=budget.delta) * (1 + 1e-12) <= budget.epsilon
    if budget.accounting is Accounting.ZCDP:
        limit = rho_units_of(epsilon=budget.epsilon, delta=budget.delta)
        return dual_query_rho(*setting) * UNITS + room <= limit
    if budget.accounting is Accounting.PURE:
        return dual_query_pure(*setting) * UNITS + room <= decimal(budget.epsilon) * UNITS
    raise BudgetError("Gaussian accounting pays for Gaussian noise only; DualQuery draws, so use zcdp.")


def _largest(fits: Callable[[int], bool], enough: int, too_many: int) -> int:
    """The largest number that fits, between one that does and one that does not."""
    return first_whole(enough, too_many, lambda each: not fits(each)) - 1


def _step(learning: Learning, rows: int, neighbours: Neighbours) -> Fraction:
    """How much the range of the log-weights grows a round: w η / n."""
    if not learning.learning_rate > 0 or learning.samples < 1 or rows < 1:
        raise BudgetError("The learning rate, the samples and the number of records must be positive.")
    return signed_range(neighbours, 1) * decimal(learning.learning_rate) / rows


def _first_powers(rounds: int) -> int:
    """Σ_{t ≤ T} (t − 1)."""
    return rounds * (rounds - 1) // 2


def _second_powers(rounds: int) -> int:
    """Σ_{t ≤ T} (t − 1)²."""
    return rounds * (rounds - 1) * (2 * rounds - 1) // 6


LEARNING_RATE = 0.5
RATE_MOST = 1.0  # where rounds end before the budget
RECALL = 64
SAMPLES_A_ROUND = 0.5  # those of all rounds that are recalled together, in parts of the rounds
SAMPLES_A_DECISION = 3  # at most, in a round; without a density all that are recalled make one at least
SAMPLES_MOST = 50_000
ROUNDS_MOST = 4000  # a row each, and minutes
CELLS_MOST = 2 * 10**8  # of all rows: in wide tables rounds end earlier


@dataclass(frozen=True, kw_only=True)
class DualQueryParameters:
    """What a run of DualQuery goes by."""

    learning_rate: float
    samples: int
    rounds: int
    recall: int
    free: Free
    density_share: float
    oracle: str
    time_limit: float | None  # seconds a round, of an oracle other than the search
    density: Density = hidden()
    density_noise: Noise | None = hidden()
    rate: Rate = hidden()  # η / n, exactly


def from_theory(task: Task, *, alpha: float, beta: float) -> Learning:
    """T = 16 ln|Q| / α², η = α/4, s = 48 ln(2|X|T/β) / α² (Algorithm 2), for error α but with chance β."""
    if not 0 < alpha < 1 or not 0 < beta < 1:
        raise DualQueryError("--alpha and --beta must lie strictly between 0 and 1")
    closed = 2 * task.workload.size  # with the negations
    rounds = math.ceil(16 * math.log(closed) / alpha**2)
    log_universe = task.domain.log2_size * math.log(2)
    samples = math.ceil(48 * (log_universe + math.log(2 * rounds / beta)) / alpha**2)
    learning = Learning(alpha / 4, samples, rounds)
    # The closed form settles it in no time; what passes is listed step by step, and the ledger decides.
    if not pays_for(task.budget, learning, task.rows, SLACK):
        raise too_dear(task, learning, alpha)
    return learning


def too_dear(task: Task, learning: Learning, alpha: float) -> DualQueryError:
    return DualQueryError(
        f"error {alpha:g} by the theory needs {learning.rounds} rounds of {learning.samples} samples, more than "
        f"epsilon = {task.budget.epsilon:g} pays for on {task.rows} records; raise --alpha or epsilon"
    )


def from_budget(task: Task, wanted: DualQueryWishes, reserved: tuple[Step, ...]) -> Learning:
    """The given ones kept, the others by the rule; `reserved` steps are paid from the same budget.

    As many rounds as the budget pays for, if their samples grow with them. Where rounds end before the budget does,
    what is left buys a higher learning rate, and then samples.
    """
    if wanted.rounds is not None and wanted.rounds < 1:
        raise DualQueryError("--rounds must be at least 1")
    if wanted.samples is not None and wanted.samples < 1:
        raise DualQueryError("--samples must be at least 1")
    if wanted.recall is not None and wanted.recall < 1:
        raise DualQueryError("--recall must be at least 1")
    if wanted.learning_rate is not None and not 0 < wanted.learning_rate < math.inf:
        raise DualQueryError("--learning-rate must be a positive number")
    rate = wanted.learning_rate or LEARNING_RATE
    most = max(1, min(SAMPLES_MOST, SAMPLES_A_DECISION * task.workload.decisions))
    last = last_round(task)

    def usual(rounds: int) -> int:
        """Samples in proportion to the rounds; without a density those recalled must decide everything."""
        least = 0 if reserved else task.workload.decisions
        return min(most, math.ceil(max(SAMPLES_A_ROUND * rounds, least) / recalled(wanted)))

    def fits(rate: float, samples: int, rounds: int) -> bool:
        asked = Learning(rate, samples, rounds)
        # The closed form settles most of it in no time; the ledger, with what is reserved, the rest.
        return pays_for(task.budget, asked, task.rows, SLACK) and affordable(
            task.budget, (*reserved, *round_steps(task, asked))
        )

    def most_rounds(samples: Callable[[int], int], least: int) -> int:
        return _largest(lambda each: fits(rate, samples(each), each), least, last + 1)

    rounds = wanted.rounds or (1 if wanted.samples else most_rounds(usual, 1))
    samples = wanted.samples or usual(rounds)
    if wanted.rounds is None:  # whole samples leave a rest, which pays for some rounds more
        rounds = most_rounds(lambda _: samples, rounds)
    if wanted.rounds is None and rounds < 2:
        raise BudgetError(
            f"a budget of epsilon = {task.budget.epsilon:g} pays for no round of DualQuery beyond the free "
            f"first one with {samples} samples at learning rate {rate:g} on {task.rows} records; "
            "raise epsilon, or lower --samples or --learning-rate"
        )
    if wanted.learning_rate is None and rounds in (wanted.rounds, last):
        rate = _largest_rate(lambda each: fits(each, samples, rounds)) or rate
    if wanted.samples is None:
        samples = _largest(lambda each: fits(rate, each, rounds), 1, most + 1)
    if fits(rate, samples, rounds):
        return Learning(rate, samples, rounds)
    raise BudgetError(
        f"{rounds} rounds of {samples} samples at learning rate {rate:g} cost more than epsilon = "
        f"{task.budget.epsilon:g}; lower --rounds, --samples or --learning-rate, or raise epsilon"
    )


def last_round(task: Task) -> int:
    """Where rounds end by themselves."""
    return min(ROUNDS_MOST, max(2, CELLS_MOST // task.domain.width))


def recalled(wanted: DualQueryWishes) -> int:
    """How many rounds' draws a record answers."""
    return wanted.recall or RECALL


def _largest_rate(fits: Callable[[float], bool]) -> float:
    """The largest learning rate that fits, up to a public limit; 0 where none does."""
    if fits(RATE_MOST):
        return RATE_MOST
    return halved(0.0, RATE_MOST, 20, lambda rate: not fits(rate))[0]


def rate_of(learning_rate: float, rounds: int, rows: int) -> Rate:
    """η / n as an exact rate, rounded down. Scores reach (T − 1) · n; four times that leaves room for add-remove."""
    return Rate.below(learning_rate / rows, 4 * rounds * rows)


def round_steps(task: Task, learning: Learning) -> list[Step]:
    """What the rounds will ask of the curator; the first is free, since nothing has been heard."""
    rate = rate_of(learning.learning_rate, learning.rounds, task.rows)
    steps = []
    for heard in range(1, learning.rounds):
        score = SignedErrors(task.workload, task.rows, heard, task.rows, np.empty(0, np.int32))
        event = selection_event(score, task.budget.neighbours, rate=rate, draws=learning.samples)
        assert event is not None, "scores that were heard once can move"
        steps.append(Step("draw queries that the records so far get wrong", event))
    return steps
