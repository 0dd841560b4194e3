"""The parameters of online PMW from public quantities: the theorem's for its step, a rule for raking.

    regret      B ≤ 4 ln|X|/α² surprises, each a gap of at least α/2, exhaust multiplicative weights at η = α/4
    budget      each epoch and each measurement costs a 2B-th of it
    threshold   the noise of a test stays below α n/4 in k questions when (8 Δ/ε₀) ln(4k/β) ≤ α n/4

so α is the smallest that meets all three. Raked, a surprise is worth much more than the theorem knows; there B is
2 log₂|X| and θ is where the noise of k tests ends.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction

from dualquery.errors import BudgetError, DualQueryError
from dualquery.privacy.budget import Budget
from dualquery.privacy.neighbours import Sensitivity
from dualquery.privacy.noise import Noise
from dualquery.privacy.prices import Price, equal_prices
from dualquery.privacy.sparse_vector import SparseVector
from dualquery.table.domain import Domain

FAILURE = 0.05  # β
MOST_UPDATES = 20_000


class Update(Enum):
    """How the distribution hears a surprise."""

    STEP = "step"  # A(x) ∝ A(x)(1 − η q(x)), as the tutorial has it
    RAKE = "rake"  # scaled to the measured answer


@dataclass(frozen=True, kw_only=True)
class OnlinePmwParameters:
    """What a run goes by."""

    updates: int  # B: after so many the last distribution answers everything
    update: Update
    learning_rate: float  # η of a step
    law: SparseVector
    noise: Noise
    promised_error: float  # α; 1 where nothing is promised
    part_cells: int  # of the distribution; the whole universe where it is explicit


def parameters_of(
    domain: Domain,
    *,
    rows: int,
    budget: Budget,
    questions: int,
    update: Update = Update.STEP,
    updates: int | None = None,
    part_cells: int,
) -> OnlinePmwParameters:
    """Every choice of a run, from public quantities."""
    if rows < 1 or questions < 1:
        raise DualQueryError("online PMW needs at least one record and one question")
    size = domain.log2_size * math.log(2)
    alpha = 1.0
    if updates is None and update is Update.STEP:
        alpha = _smallest_error(size, rows, budget, questions)
        updates = math.ceil(4 * size / alpha**2)
    elif updates is None:
        updates = max(1, round(2 * domain.log2_size))
    if not 1 <= updates <= MOST_UPDATES:
        raise DualQueryError(
            f"online PMW makes from 1 to {MOST_UPDATES:,} updates, and {updates:,} is none of them"
        )
    price = equal_prices(budget, 2 * updates)
    moved = budget.neighbours.largest(alone=1, apart=1)
    epsilon = _epsilon(price)
    quiet = math.ceil(_test_noise(epsilon, questions) * moved)
    threshold = max(quiet, math.ceil(alpha / 2 * rows)) if alpha < 1 else quiet
    return OnlinePmwParameters(
        updates=updates,
        update=update,
        learning_rate=min(0.5, alpha / 4),
        law=SparseVector(epsilon, threshold, moved),
        noise=price.noise(Sensitivity(moved, moved**2)),
        promised_error=alpha,
        part_cells=part_cells,
    )


def _smallest_error(size: float, rows: int, budget: Budget, questions: int) -> float:
    """The smallest α of a geometric grid at which the tests of B = 4 ln|X|/α² epochs are quiet enough, or 1."""
    found = 1.0
    for step in range(1, 200):
        alpha = 0.97**step
        updates = math.ceil(4 * size / alpha**2)
        if updates > MOST_UPDATES:
            break
        try:
            epsilon = _epsilon(equal_prices(budget, 2 * updates))
        except BudgetError:
            break
        if _test_noise(epsilon, questions) * budget.neighbours.largest(alone=1, apart=1) <= alpha * rows / 4:
            found = alpha
    return found


def _epsilon(price: Price) -> Fraction:
    """ε₀ of an epoch: pure, or of ρ = ε₀²/2."""
    if price.pure is not None:
        return price.pure
    assert price.rho is not None
    return Fraction(math.floor(math.sqrt(2 * price.rho) * 10**9 * (1 - 1e-12)), 10**9)


def _test_noise(epsilon: Fraction, questions: int) -> float:
    """Both noises of a test stay below this in so many questions, but for β: (2 + 4)/ε₀ · ln(2k/β)."""
    return 6 / float(epsilon) * math.log(2 * questions / FAILURE)
