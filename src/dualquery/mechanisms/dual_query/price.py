"""What DualQuery costs, in closed form (Gaboardi et al. 2014, Theorems 4.2 and 4.3, and ρ).

In round t the log-weights of the queries move within a range of w η (t − 1)/n between neighbours, where
w = 2 if a record may be replaced (a count rises or falls by one), and w = 1 if one may be added or removed
(no count falls, if the negation of a query counts the records that do not satisfy it, and n is a public
constant), and K times that where a person's K records move together. Round 1 is free: all weights are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

from dualquery.errors import BudgetError
from dualquery.privacy.budget import Accounting, Budget, decimal
from dualquery.privacy.conversion import UNITS, advanced_composition, rho_units_of
from dualquery.privacy.neighbours import Neighbours
from dualquery.privacy.scores import signed_range


def dual_query_pure(
    *, learning_rate: float, samples: int, rounds: int, rows: int, neighbours: Neighbours
) -> Fraction:
    """Pure ε = w η T (T − 1) s / (2n). With w = 2: Theorem 4.2."""
    step = _step(learning_rate, samples, rows, neighbours)
    return samples * step * _first_powers(rounds)


def dual_query_advanced(
    *, learning_rate: float, samples: int, rounds: int, rows: int, neighbours: Neighbours, delta: float
) -> float:
    """ε = ε' (√(2k ln(1/δ)) + k (e^ε' − 1)), ε' = w η (T − 1)/n, k = s (T − 1). With w = 2: Theorem 4.3."""
    step = _step(learning_rate, samples, rows, neighbours)
    return advanced_composition(step * (rounds - 1), samples * (rounds - 1), delta=delta)


def dual_query_rho(
    *, learning_rate: float, samples: int, rounds: int, rows: int, neighbours: Neighbours
) -> Fraction:
    """ρ = Σ_t s (w η (t − 1)/n)² / 8. With w = 2: s η² T (T − 1)(2T − 1) / (12 n²)."""
    step = _step(learning_rate, samples, rows, neighbours)
    return samples * step**2 * _second_powers(rounds) / 8


def largest_rounds(
    budget: Budget, *, learning_rate: float, samples: int, rows: int, slack: Fraction = Fraction(0)
) -> int:
    """The largest number of rounds T that the budget pays for; at least 1, because round 1 is free.

    `slack` is what the sampler adds to the range of every draw after round 1. A ledger of this budget
    accepts every charge of the T rounds, its roundings included.
    """
    affordable = pays_for(budget, learning_rate=learning_rate, samples=samples, rows=rows, slack=slack)
    enough, too_many = 1, 2
    while affordable(too_many):
        enough, too_many = too_many, 2 * too_many
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if affordable(middle) else (enough, middle)
    return enough


def pays_for(
    budget: Budget, *, learning_rate: float, samples: int, rows: int, slack: Fraction = Fraction(0)
) -> Callable[[int], bool]:
    """Whether T rounds fit. The ledger rounds each round up to a unit; two units a round leave room."""
    step = _step(learning_rate, samples, rows, budget.neighbours)
    if budget.accounting is Accounting.ZCDP:
        limit = rho_units_of(epsilon=budget.epsilon, delta=budget.delta)

        def by_rho(rounds: int) -> bool:
            squares = step**2 * _second_powers(rounds) + 2 * step * slack * _first_powers(rounds)
            rho = samples * (squares + slack**2 * (rounds - 1)) / 8
            return rho * UNITS + 2 * rounds <= limit

        return by_rho
    if budget.accounting is Accounting.PURE:

        def by_sum(rounds: int) -> bool:
            pure = samples * (step * _first_powers(rounds) + slack * (rounds - 1))
            return pure * UNITS + 2 * rounds <= decimal(budget.epsilon) * UNITS

        return by_sum
    if budget.accounting is Accounting.THEOREM_4_3:

        def by_theorem(rounds: int) -> bool:
            each, draws = step * (rounds - 1) + slack, samples * (rounds - 1)
            return advanced_composition(each, draws, delta=budget.delta) * (1 + 1e-12) <= budget.epsilon

        return by_theorem
    raise BudgetError("Gaussian accounting pays for Gaussian noise only; DualQuery draws, so use zcdp.")


def _step(learning_rate: float, samples: int, rows: int, neighbours: Neighbours) -> Fraction:
    """How much the range of the log-weights grows a round: w η / n."""
    if not learning_rate > 0 or samples < 1 or rows < 1:
        raise BudgetError("The learning rate, the samples and the number of records must be positive.")
    return signed_range(neighbours, 1) * decimal(learning_rate) / rows


def _first_powers(rounds: int) -> int:
    """Σ_{t ≤ T} (t − 1)."""
    return rounds * (rounds - 1) // 2


def _second_powers(rounds: int) -> int:
    """Σ_{t ≤ T} (t − 1)²."""
    return rounds * (rounds - 1) * (2 * rounds - 1) // 6
