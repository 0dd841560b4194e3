"""Bounds without samples: the code is a function of one uniform integer, whose steps are found by bisection.

`select` reads a single integer below a bound, and every candidate owns one stretch of them. So asking the code itself
at a few hundred places tells the probability of every candidate, as a fraction; the loss is the largest
|ln p/p′| over candidates. A hazard test reads 128 bits, likewise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from dualquery.audits.bounds import Claim
from dualquery.audits.case import Computed
from dualquery.audits.pairs import Pair
from dualquery.counting.counter import MemoryCounter
from dualquery.privacy.budget import Accounting, Budget
from dualquery.privacy.curator import Curator
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.prices import Price
from dualquery.privacy.scores import Score, rate_within
from dualquery.privacy.thresholds import HazardTest
from dualquery.randomness import SeededEntropy
from dualquery.types import Words


class FixedChance(SeededEntropy):
    """Chance that says what it is told to, and remembers below which bound it was asked."""

    def __init__(self) -> None:
        super().__init__(0)
        self.value = 0
        self.bound = 1

    def below(self, bound: int, count: int) -> list[int]:
        assert count == 1, "one draw reads one integer"
        self.bound = bound
        return [self.value]

    def words(self, count: int) -> Words:
        self.bound = 1 << 64 * count
        return np.array(
            [self.value >> 64 * place & (1 << 64) - 1 for place in reversed(range(count))], np.uint64
        )


def law_of(draw: Callable[[FixedChance], str]) -> dict[str, Fraction]:
    """The probability of every outcome of a draw that reads one uniform integer, in stretches."""
    chance = FixedChance()

    def at(value: int) -> str:
        chance.value = value
        return draw(chance)

    at(0)
    bound, law, first = chance.bound, {}, 0
    last = at(bound - 1)
    while True:
        outcome = at(first)
        assert outcome not in law, "an outcome owns one stretch"
        inside, outside = first, bound  # the last known to be of the stretch, and one past it
        if outcome == last:
            law[outcome] = Fraction(bound - first, bound)
            return law
        while outside - inside > 1:
            middle = (inside + outside) // 2
            if at(middle) == outcome:
                inside = middle
            else:
                outside = middle
        law[outcome] = Fraction(outside - first, bound)
        first = outside


def largest_loss(one: dict[str, Fraction], other: dict[str, Fraction]) -> float:
    """max |ln p/p′| over outcomes; infinite where one of them cannot happen."""
    if one.keys() != other.keys():
        return math.inf
    return max(abs(_log(one[outcome] / other[outcome])) for outcome in one)


def _log(value: Fraction) -> float:
    return math.log(value.numerator) - math.log(value.denominator)


def exact_selection(pair: Pair, score: Score, epsilon: Fraction) -> Callable[[], Computed]:
    """One draw by a score, on both tables."""

    def computed() -> Computed:
        budget = Budget(
            epsilon=float(epsilon), delta=0.0, neighbours=pair.neighbours, accounting=Accounting.PURE
        )
        rate = rate_within(Price(epsilon, None), score, pair.neighbours)
        laws, claims = [], []
        for table in pair.tables:
            counter, ledger = MemoryCounter(table), Ledger(budget)
            Curator(counter, ledger, SeededEntropy(0)).select(score, rate=rate)
            claims.append(ledger.spent().epsilon)

            def draw(chance: FixedChance, counter: MemoryCounter = counter) -> str:
                found = Curator(counter, Ledger(budget), chance).select(score, rate=rate)
                return f"{found.queries[0]} {found.negated[0]}"

            laws.append(law_of(draw))
        return Computed(largest_loss(laws[0], laws[1]), Claim(max(claims)))

    return computed


def exact_hazard(test: HazardTest) -> Callable[[], Computed]:
    """The least price of a fire with which (∗) of docs/privacy.md holds between neighbours, beside the price paid.

    ln(Σ_fires p^α p′^{1−α} / (1 − p₀^α p′₀^{1−α})) / (α − 1), the largest over x and x′ at most K apart.
    """

    def computed() -> Computed:
        order, reach = test.order, 2 * test.threshold + math.ceil(8 / test.epsilon)
        laws = {
            x: law_of(lambda chance, x=x: str(test.draw(np.array([x]), chance)))  # type: ignore[misc]
            for x in range(-reach, reach + 1)
        }
        worst = max(
            least_price(laws[x], laws[y], order)
            for x in laws
            for y in range(max(-reach, x - test.sensitivity), min(reach, x + test.sensitivity) + 1)
            if x != y
        )
        return Computed(worst, Claim(float(test.event.cost)), f"exact, Rényi order {order}")

    return computed


def least_price(one: dict[str, Fraction], other: dict[str, Fraction], order: int) -> float:
    """The D with which silence^α silence′^{1−α} + e^{−(α−1)D} Σ_fires p^α p′^{1−α} = 1.

    Infinite where something can happen on one side only.
    """
    if one.keys() != other.keys():
        return math.inf

    def moment(outcome: str) -> Fraction:
        p, q = one[outcome], other[outcome]
        return p * (p / q) ** (order - 1)

    silence = moment(str(None)) if str(None) in one else Fraction(0)
    fires = sum((moment(outcome) for outcome in one if outcome != str(None)), Fraction(0))
    if silence >= 1:
        return math.inf if fires else 0.0
    return _log(fires / (1 - silence)) / (order - 1)
