"""The least budget whose plan predicts the error that is wanted, and what other budgets would give.

A plan needs no data, so that it may be asked for as many budgets as one likes. What it predicts falls with ε, but for
steps where another way of measuring takes over; the bisection ends at an ε that is enough, next to one that is not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from dualquery.errors import BudgetError, DualQueryError
from dualquery.mechanisms.mechanism import Plan
from dualquery.privacy.budget import Budget
from dualquery.releases.acceptance import GivenAcceptance
from dualquery.releases.arguments import (
    GivenBudget,
    GivenSchema,
    GivenWorkload,
    budget_from,
    for_callers,
    schema_from,
    workload_from,
)
from dualquery.releases.check import SHARE
from dualquery.releases.plan import Settled, settled_plan
from dualquery.table.domain import Domain
from dualquery.types import halved

LEAST, MOST = 0.001, 50.0  # ε
AIM = (
    0.91  # of the wish: predictions are right within about a tenth, and true errors shall seldom lie above it
)
STEPS = 12  # of the bisection: to a few thousandths of ε
AROUND = (1 / 8, 1 / 4, 1 / 2, 1.0, 2.0, 4.0, 8.0)  # times the ε that was found
Planned = Callable[[Budget], Settled]


@dataclass(frozen=True)
class Enough:
    """A plan that is good enough, and the predicted mean error by ε around it."""

    settled: Settled
    wanted: float
    curve: tuple[tuple[float, float], ...]

    @property
    def epsilon(self) -> float:
        return self.settled.budget.epsilon

    @property
    def plan(self) -> Plan[Any]:
        return self.settled.plan


@for_callers
def choose_epsilon(
    schema: GivenSchema,
    *,
    workload: GivenWorkload,
    error: float,
    budget: GivenBudget | None = None,
    expected_records: int | None = None,
    records: int | None = None,
    mechanism: str | None = None,
    check: float = SHARE,
    accept: GivenAcceptance | None = None,
    **options: object,
) -> Enough:
    """The least ε whose plan predicts a mean error safely below `error`, a fraction of the table; needs no data.

    `budget` is the most that may be spent, with its δ and neighbours; all else is as for `dualquery.plan`. What comes
    back has the `epsilon`, its `plan`, and the `curve`: pairs of ε and the mean error that it would give.
    """
    most = budget_from(MOST if budget is None else budget, lambda: expected_records or records or 2)
    described = schema_from(schema)
    asked = workload_from(described.domain, workload)
    kept: GivenSchema = schema if isinstance(schema, Domain) else described
    given = (expected_records, records, mechanism, options, check, accept)
    return enough_for(error, most, lambda tried: settled_plan(kept, asked, tried, *given))


def enough_for(error: float, most: Budget, planned: Planned) -> Enough:
    """The least ε up to a budget's that predicts a mean error of at most AIM · `error`, in three figures, upwards."""
    if isinstance(error, bool) or not isinstance(error, Real) or not 0 < error < 1:
        raise BudgetError("the error wanted is a fraction of the table between 0 and 1, such as 0.01")
    largest = planned(most)
    reached = largest.plan.mean_error
    if reached > error:
        raise BudgetError(
            f"epsilon = {most.epsilon:g} would give a mean error of about {reached:.2g}, more than the {error:g} "
            "wanted; ask for fewer attributes at once, allow a larger error, or have more records"
        )

    aim = max(AIM * error, reached)  # of the most that may be spent it is enough that it predicts the wish

    def predicted(epsilon: float) -> float:
        try:
            return planned(replace(most, epsilon=epsilon)).plan.mean_error
        except DualQueryError:  # so little pays for nothing
            return math.inf

    low, high = math.log(min(LEAST, most.epsilon)), math.log(most.epsilon)
    if predicted(math.exp(low)) <= aim:
        high = low
    steps = STEPS if high > low else 0
    _, high = halved(low, high, steps, lambda each: predicted(math.exp(each)) <= aim)
    epsilon = min(_upwards(math.exp(high)), most.epsilon)
    found = planned(replace(most, epsilon=epsilon))
    around = [_upwards(epsilon * times) for times in AROUND if times != 1.0]
    curve = [(each, predicted(each)) for each in around if LEAST <= each <= MOST]
    curve.append((epsilon, found.plan.mean_error))
    return Enough(found, float(error), tuple(sorted(each for each in curve if math.isfinite(each[1]))))


def _upwards(epsilon: float) -> float:
    power = math.floor(math.log10(epsilon)) - 2
    return float(f"{math.ceil(epsilon / 10.0**power - 1e-9) * 10.0**power:.3g}")
