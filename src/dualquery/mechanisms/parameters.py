"""How many samples, how fast, how long: DualQuery's parameters from public quantities alone.

Three ways. From the theory: a target (α, β) fixes all of them (Algorithm 2). From the user: any of
learning rate, samples and rounds given, the rest fitted to the budget. From a rule: the learning rate and
the number of samples follow from the size of the domain and the workload, the rounds from the budget.

The rule stands on a grid of settings on data of several shapes (docs/dual_query.md; it can be repeated with
`python -m experiments.dualquery_parameters`). The error is flat around its best. Where free values follow a density,
a round only has to correct it: few samples, in proportion to the square root of what a record has to decide, and a
learning rate of 1 buy the most rounds. Where they do not, a round has to decide everything itself: about one sampled
literal for every two decisions, and a smaller learning rate the more attributes are in play.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dualquery.errors import BudgetError, DualQueryError
from dualquery.game.query_players import learning_rate_per_count
from dualquery.mechanisms.plan import Options, Shape
from dualquery.privacy.budget import Accounting
from dualquery.privacy.events import Event, Selection
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.prices import largest_rounds
from dualquery.privacy.selection import SLACK
from dualquery.queries.decisions import decisions

ROUNDS_MOST = 500
ROUNDS_WANTED = 40
SAMPLES_LEAST = 60
SAMPLES_MOST = 50_000
SAMPLES_A_DECISION = 3  # the most that unspent budget buys


@dataclass(frozen=True)
class DualQueryParameters:
    """η, s and T of Algorithm 2."""

    learning_rate: float
    samples: int
    rounds: int


def from_theory(shape: Shape, *, alpha: float, beta: float) -> DualQueryParameters:
    """T = 16 ln|Q| / α², η = α/4, s = 48 ln(2|X|T/β) / α² (Algorithm 2), for error α but with chance β."""
    if not 0 < alpha < 1 or not 0 < beta < 1:
        raise DualQueryError("--alpha and --beta must lie strictly between 0 and 1")
    closed = 2 * shape.workload.size  # with the negations
    rounds = math.ceil(16 * math.log(closed) / alpha**2)
    log_universe = shape.domain.log2_size * math.log(2)
    samples = math.ceil(48 * (log_universe + math.log(2 * rounds / beta)) / alpha**2)
    return DualQueryParameters(alpha / 4, samples, rounds)


def from_budget(shape: Shape, options: Options, reserved: list[Event]) -> DualQueryParameters:
    """The given ones kept, the others fitted; `reserved` events are paid from the same budget."""
    rounds = options.rounds
    if rounds is not None and rounds < 1:
        raise DualQueryError("--rounds must be at least 1")
    if options.samples is not None and options.samples < 1:
        raise DualQueryError("--samples must be at least 1")
    if options.learning_rate is not None and not 0 < options.learning_rate < math.inf:
        raise DualQueryError("--learning-rate must be a positive number")
    guided = bool(reserved)  # free values follow a density
    learning_rate = options.learning_rate or default_learning_rate(shape, guided=guided)
    samples = options.samples or default_samples(shape, learning_rate, rounds, guided=guided)
    if rounds is None:
        parameters = _largest(shape, learning_rate, samples, reserved)
        if parameters.rounds < 2:
            raise BudgetError(
                f"a budget of epsilon = {shape.budget.epsilon:g} pays for no round of DualQuery beyond the free "
                f"first one with {samples} samples at learning rate {learning_rate:g} on {shape.rows} records; "
                "raise epsilon, or lower --samples or --learning-rate"
            )
        return parameters
    asked = DualQueryParameters(learning_rate, samples, rounds)
    if affordable(shape, asked, reserved):
        return asked
    if options.learning_rate is None:
        # The cost grows with the learning rate: take the largest that the budget pays for.
        low, high = 0.0, learning_rate
        for _ in range(40):
            middle = (low + high) / 2
            asked = DualQueryParameters(middle, samples, rounds)
            low, high = (middle, high) if affordable(shape, asked, reserved) else (low, middle)
        if low > 0:
            return DualQueryParameters(low, samples, rounds)
    raise BudgetError(
        f"{rounds} rounds of {samples} samples at learning rate {learning_rate:g} cost more than epsilon = "
        f"{shape.budget.epsilon:g}; lower --rounds, --samples or --learning-rate, or raise epsilon"
    )


def default_learning_rate(shape: Shape, *, guided: bool) -> float:
    """Near 1; down to 0.4 where there are thousands of attributes to decide and nothing to guide them."""
    if guided:
        return 1.0
    wide = math.log10(max(1, decisions(shape.workload) / 500))
    return float(min(1.4, max(0.4, 1.4 - 0.8 * max(0.0, wide))))


def default_samples(shape: Shape, learning_rate: float, rounds: int | None, *, guided: bool) -> int:
    """7 √decisions with a density, else 0.6 decisions; but no more than leave a good number of rounds.

    Where the rounds end at their limit and not with the budget, what is left buys samples, up to 3 a decision:
    on KDD99 at ε = 5 this halves the max error.
    """
    undecided = decisions(shape.workload)
    wanted = round(7 * math.sqrt(undecided) if guided else 0.6 * undecided)
    wanted = min(SAMPLES_MOST, max(SAMPLES_LEAST, wanted))
    least_rounds = rounds or ROUNDS_WANTED

    def rounds_with(samples: int) -> int:
        return largest_rounds(
            shape.budget, learning_rate=learning_rate, samples=samples, rows=shape.rows, slack=SLACK
        )

    while wanted > 1 and rounds_with(wanted) < least_rounds:
        wanted = max(1, wanted * 3 // 4)
    most = min(SAMPLES_MOST, SAMPLES_A_DECISION * undecided)
    while rounds is None and wanted < (more := wanted * 4 // 3) <= most and rounds_with(more) > ROUNDS_MOST:
        wanted = more
    return wanted


def affordable(shape: Shape, parameters: DualQueryParameters, reserved: list[Event]) -> bool:
    """Whether a fresh ledger pays for the reserved events and then for every round. The ledger itself decides."""
    ledger = Ledger(shape.budget)
    try:
        for event in [*reserved, *round_events(shape, parameters)]:
            ledger.charge(event)
    except BudgetError:
        return False
    return True


def round_events(shape: Shape, parameters: DualQueryParameters) -> list[Selection]:
    """What the rounds after the first will charge."""
    rate = learning_rate_per_count(parameters.learning_rate, parameters.rounds, shape.rows)
    width = 2 if shape.budget.neighbours is Neighbours.REPLACE else 1
    return [
        Selection(width * repeats * rate.nats + SLACK, parameters.samples)
        for repeats in range(1, parameters.rounds)
    ]


def _largest(shape: Shape, learning_rate: float, samples: int, reserved: list[Event]) -> DualQueryParameters:
    """The most rounds that the ledger accepts, up to a public limit."""
    bound = largest_rounds(
        shape.budget, learning_rate=learning_rate, samples=samples, rows=shape.rows, slack=SLACK
    )
    enough, too_many = 1, min(bound, ROUNDS_MOST) + 1
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        if affordable(shape, DualQueryParameters(learning_rate, samples, middle), reserved):
            enough = middle
        else:
            too_many = middle
    return DualQueryParameters(learning_rate, samples, enough)


def density_share(accounting: Accounting) -> float:
    """The part of the budget that goes to one-way counts where free values follow a density."""
    return 0.1 if accounting is not Accounting.PURE else 0.2
