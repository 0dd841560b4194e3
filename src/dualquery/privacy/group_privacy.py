"""From neighbours to tables that differ in several records, where only a Rényi cap is known."""

from __future__ import annotations

import math
from fractions import Fraction

from dualquery.errors import BudgetError
from dualquery.privacy.conversion import renyi_epsilon

_ROUNDING = 2.0**-46
_STEPS = 200  # more halvings than a double has bits
_DEEPEST = 700.0  # e^-700 is about the least δ that a double holds


def renyi_group_epsilon(cost: Fraction | float, *, order: int, records: int, delta: float) -> float:
    """The ε at δ between tables k records apart that D_α ≤ C between neighbours implies; infinite from k = α on.

    For every δ' < δ, C gives ε' = `renyi_epsilon` at δ' between neighbours; P ≤ e^ε' P' + δ', k times over, gives

        (k ε', δ' Σ_{i<k} e^{iε'})        (Vadhan 2017, Lemma 2.2).

    The least k ε' for which the second is at most δ; it falls with δ' like δ'^(1 − (k − 1)/(α − 1)).
    """
    if records < 1:
        raise BudgetError("Tables differ in a whole number of records, at least one.")
    allowed = -math.log(delta)

    def each(depth: float) -> float:
        return renyi_epsilon(cost, order=order, delta=math.exp(-depth))

    def fits(depth: float) -> bool:
        """δ' Σ e^{iε'} ≤ δ at δ' = e^−depth; the sum is e^{(k−1)ε'} times one between 1 and k."""
        epsilon = each(depth)
        grown = (records - 1) * epsilon + math.log(math.fsum(math.exp(-i * epsilon) for i in range(records)))
        return grown + allowed - depth + _ROUNDING * (grown + allowed + depth) <= 0

    if records >= order or not fits(_DEEPEST):
        return math.inf
    low, high = allowed, _DEEPEST
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if fits(middle) else (middle, high)
    return records * each(high) * (1 + _ROUNDING)
