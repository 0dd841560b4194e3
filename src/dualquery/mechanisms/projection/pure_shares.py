"""The measurement plan under pure ε: which signed tables, how precisely, at once or where the rows are wrong.

A public rule, from workload, domain, budget and n alone. For P pairs of on average q entries each,

    x = Δ · P · q / (n ε)        Δ: how far a neighbour moves a signed table (1; 2 where a record is replaced)

is the noise of all pairs, summed over an entry's table, in units of n. One-way tables get the share .5 x^.15 of ε,
within .25 and .75. Where x is small, all pairs are measured at once, ε_S ∝ entries^.35. Where it is not, T of them
are chosen by the exponential mechanism, one a round, and measured with the noise of T instead of P. Sets of three
and more are measured at once where even all of them have little noise, a few are chosen where that is nearly so,
and otherwise they are left to what the pairs imply. docs/how_it_works.md, "Pure ε", has the evidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dualquery.errors import BudgetError, DualQueryError
from dualquery.game.moves import Set
from dualquery.mechanisms.mechanism import Task
from dualquery.mechanisms.shares import (
    NOTHING,
    SHARE_OF_TOTAL,
    TOO_SMALL,
    laplace_at_once,
    measures_total,
    varied_sets,
)
from dualquery.privacy.budget import decimal
from dualquery.privacy.conversion import UNITS
from dualquery.privacy.events import LaplaceMeasurement, Selection
from dualquery.privacy.noise import Laplace, Law
from dualquery.privacy.prices import equal_prices
from dualquery.privacy.scores import MOST_PUBLIC_ROWS, rate_within, selection_event
from dualquery.privacy.selection import Rate
from dualquery.privacy.signed_tables import SignedTableErrors, SignedTables
from dualquery.queries.tables import Tables, signed_entries

SHARE_OF_LARGER = 0.5  # for all sets of three and more, where all are measured
SHARE_OF_TRIPLES = 0.12  # where a few are chosen
CHOSEN_TRIPLES = 8
LITTLE_NOISE = 0.01  # of an entry's table, summed: up to here all sets of an order are measured
SOME_NOISE = 0.05  # and up to here a few of three attributes are chosen
ONES_POWER, LARGER_POWER = 0.5, 0.35  # ε_S ∝ entries^power
PRECISE = 0.12  # x up to which all pairs are measured at once
MOST_CHOSEN = 0.55  # of the pairs: beyond it choosing does not pay
SHARE_OF_CHOOSING = Fraction(15, 100)  # of what a round costs
LEAST_RECORDS = 50  # per round, in units of Δ/ε: a chosen pair should not drown
MOST_CANDIDATES = 50_000
MOST_CANDIDATE_CELLS = 20_000_000


@dataclass(frozen=True)
class Rounds:
    """Signed tables of which one a round is chosen where the rows are most wrong, and measured."""

    number: int
    candidates: Tables
    rate: Rate
    noise: Laplace

    @property
    def statistic(self) -> SignedTables:
        """What is measured of any candidate: all move alike."""
        return SignedTables(self.candidates.domain, self.candidates.sets[:1], (1,))


@dataclass(frozen=True)
class SignedPlan:
    """Signed tables that are measured at once, all with noise of one scale, and the rounds that follow, if any."""

    first: SignedTables
    noise: Laplace
    rounds: Rounds | None

    def variances(self) -> dict[Set, float]:
        """The variance of the noise of an entry of each table that is measured at once, in records."""
        return {
            members: (self.noise.deviation / multiplier) ** 2
            for members, multiplier in zip(self.first.sets, self.first.multipliers, strict=True)
        }


@dataclass(frozen=True)
class Shape:
    """What the rule looks at."""

    orders: Mapping[int, list[Set]]  # the sets of the workload and their subsets, without constant attributes
    entries: Mapping[Set, int]
    records: float  # n ε / Δ: in these units noise of scale one is what the whole budget buys one table

    @staticmethod
    def of(task: Task) -> Shape:
        sizes, orders = task.domain.sizes.tolist(), varied_sets(task)
        if not orders.get(1):
            raise DualQueryError(NOTHING)
        entries = {
            members: signed_entries([sizes[j] for j in members])
            for sets in orders.values()
            for members in sets
        }
        moved = task.budget.neighbours.largest(alone=1, apart=2)
        return Shape(orders, entries, task.rows * task.budget.epsilon / moved)

    @property
    def pairs(self) -> list[Set]:
        return self.orders.get(2, [])

    @property
    def noise_of_pairs(self) -> float:
        """x of the module's description."""
        return sum(self.entries[members] for members in self.pairs) / self.records

    @property
    def share_of_ones(self) -> float:
        return min(max(0.5 * self.noise_of_pairs**0.15, 0.25), 0.75) if self.pairs else 1.0

    @property
    def chosen_pairs(self) -> int:
        """T, or 0 where all pairs are measured at once."""
        pairs, x = len(self.pairs), self.noise_of_pairs
        if x <= PRECISE:
            return 0
        wanted = 0.15 * pairs / math.sqrt(x)
        if max(1.0, wanted) >= MOST_CHOSEN * pairs:
            return 0
        return max(1, round(min(wanted, 2 * len(self.orders[1]), self.records / LEAST_RECORDS)))

    def larger(self) -> list[Set]:
        """The sets of three and more attributes that are measured at once: up to the order where all may be."""
        for top in range(max(self.orders), 2, -1):
            sets = [s for order in range(3, top + 1) for s in self.orders.get(order, [])]
            kept = [s for s in sets if self._noise_of(len(sets) * self.entries[s]) <= LITTLE_NOISE]
            if kept and (len(kept) == len(sets) or top == 3):
                return kept
        return []

    @property
    def chooses_triples(self) -> bool:
        triples = self.orders.get(3, [])
        noise = self._noise_of(sum(self.entries[members] for members in triples))
        return len(triples) > CHOSEN_TRIPLES and noise <= SOME_NOISE

    def _noise_of(self, entries: float) -> float:
        return entries / (SHARE_OF_LARGER * self.records)


def plan_signed(task: Task) -> SignedPlan:
    """Shares of ε by the rule, then integer multipliers and the one scale of noise that costs them."""
    shape = Shape.of(task)
    larger = shape.larger()
    share_of_rounds, rounds = Fraction(0), None
    shares: dict[Set, float] = {}
    if shape.chosen_pairs:
        share_of_rounds = 1 - Fraction(shape.share_of_ones).limit_denominator(100)
        rounds = _rounds(shape.pairs, shape.chosen_pairs, share_of_rounds, task)
        ones = 1.0
    else:
        every = len(
            [s for order in range(3, max(map(len, larger), default=2) + 1) for s in shape.orders[order]]
        )
        left = 1.0 - SHARE_OF_LARGER * len(larger) / max(1, every)
        shares.update(_split(larger, 1.0 - left, LARGER_POWER, shape))
        if not larger and shape.chooses_triples:
            share_of_rounds = Fraction(SHARE_OF_TRIPLES).limit_denominator(100)
            rounds = _rounds(shape.orders[3], CHOSEN_TRIPLES, share_of_rounds, task)
        ones = left * shape.share_of_ones
        shares.update(_split(shape.pairs, left - ones, LARGER_POWER, shape))
    shares.update(_split(shape.orders[1], ones, ONES_POWER, shape))
    if measures_total(task):
        shares = {(): SHARE_OF_TOTAL, **{s: (1 - SHARE_OF_TOTAL) * part for s, part in shares.items()}}
    epsilon = _left_for_first(rounds, task)
    return SignedPlan(*laplace_at_once(shares, epsilon, task.domain, task.budget.neighbours), rounds)


def _split(sets: list[Set], share: float, power: float, shape: Shape) -> dict[Set, float]:
    wanted = {members: shape.entries[members] ** power for members in sets}
    total = sum(wanted.values())
    return {members: share * part / total for members, part in wanted.items()}


def _rounds(sets: list[Set], number: int, share: Fraction, task: Task) -> Rounds:
    """Rounds that cost a share of ε, each the same; of very many sets the smallest may be chosen."""
    sizes, neighbours = task.domain.sizes.tolist(), task.budget.neighbours
    smallest = sorted(sets, key=lambda members: (math.prod(sizes[j] for j in members), members))
    cells = np.cumsum([math.prod(sizes[j] for j in members) for members in smallest])
    most = min(MOST_CANDIDATES, int(np.searchsorted(cells, MOST_CANDIDATE_CELLS, side="right")))
    candidates = Tables(task.domain, tuple(sorted(smallest[: max(1, most)])))
    number = min(number, len(candidates.sets))
    measuring = equal_prices(task.budget, number, share * (1 - SHARE_OF_CHOOSING))
    choosing = equal_prices(task.budget, number, share * SHARE_OF_CHOOSING)
    one = SignedTables(task.domain, candidates.sets[:1], (1,)).sensitivity(neighbours)
    noise = measuring.noise(one)
    assert isinstance(noise, Laplace), "pure accounting"
    Law.laplace(noise.scale)  # refuses what could not be drawn
    rate = rate_within(choosing, errors_of(candidates, task.rows), neighbours)
    return Rounds(number, candidates, rate, noise)


def errors_of(candidates: Tables, rows: int, penalties: np.ndarray | None = None) -> SignedTableErrors:
    """The score of a choice. Penalties are at most half of the records, which is what a plan knows of them."""
    public = min(rows, MOST_PUBLIC_ROWS)
    if penalties is None:
        penalties = np.zeros(len(candidates.sets))
        penalties[0] = public / 2
    return SignedTableErrors(candidates, public, penalties)


def events_of(rounds: Rounds, task: Task) -> tuple[Selection, LaplaceMeasurement]:
    """A choice, and the measurement of what was chosen."""
    neighbours, errors = task.budget.neighbours, errors_of(rounds.candidates, task.rows)
    selection = selection_event(errors, neighbours, rate=rounds.rate, draws=1)
    assert selection is not None, "errors can move"
    return selection, rounds.noise.event(rounds.statistic.sensitivity(neighbours))


def _left_for_first(rounds: Rounds | None, task: Task) -> Fraction:
    """ε less what the rounds cost, to the last unit."""
    left = math.floor(decimal(task.budget.epsilon) * UNITS)
    if rounds is not None:
        left -= rounds.number * sum(math.ceil(event.pure * UNITS) for event in events_of(rounds, task))
    if left < 1:
        raise BudgetError(TOO_SMALL)
    return Fraction(left, UNITS)
