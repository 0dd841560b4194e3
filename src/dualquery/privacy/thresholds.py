"""Threshold tests: whether a count is far from a hypothesis, at no cost unless it says so.

*The hazard test.* For a question q with hypothesis h let x = count(q) − round(n h), an integer that a neighbour moves
by at most K. Two clocks with rates

    a = e^{ε(x − θ)}   "the hypothesis is too low"        b = e^{ε(−x − θ)}   "it is too high",

each clipped to [2⁻⁴⁰, 64], run for one unit of time. The test *fires* with probability 1 − e^−(a+b), and the
side is a's with probability a/(a + b). There is no threshold noise and no state; only fires cost (`Fire`).

The law is a table of 128-bit thresholds, one row for each |x| up to where both clocks are clipped, so that a draw
is one look-up and two comparisons with 128 fresh bits. No float takes part. A table is used only after the
inequality that its price rests on has been checked, in integers, for every pair of rows a neighbour can join.

*A slot* pays for a fire, and for what is measured after it, before the first test is drawn, and serves one test after
another until one fires: silence costs nothing. What matters is what is never done: two tests at a time against one
slot, and a test after its fire.

*The sparse vector technique of the textbook*, AboveThreshold (Dwork and Roth 2014, Algorithm 1) for integers. An
*epoch* draws its threshold noise once, tests with fresh noise each, and closes after the first "above"; it costs ε
whether it closes or not. A slot holds one epoch. The noise of a test is never its answer: whoever wants a number
measures afresh. It costs several times as much as the hazard test, and pure ε and ρ add it up, too.

Proofs: docs/privacy.md, "Threshold tests".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from functools import cached_property, lru_cache
from threading import Lock
from typing import TypeAlias

import numpy as np

from dualquery.errors import BudgetError, require
from dualquery.privacy.budget import Accounting
from dualquery.privacy.conversion import UNITS, exp_minus
from dualquery.privacy.events import Concentrated, Epoch, Fire
from dualquery.privacy.ledger import Ledger
from dualquery.privacy.noise import discrete_laplace
from dualquery.randomness import Entropy
from dualquery.types import Flags, Integers, Words

_BITS = 128  # of a threshold, and of a draw
_PRECISION = 256  # bits after the point while a table is made and checked
_LONGEST = 1 << 19  # rows of a table: half a minute's work
_SLOWEST, _FASTEST = 40, 6  # rates are clipped to [2⁻⁴⁰, 2⁶]
_LN_2 = Fraction(6932, 10_000)  # a little more than ln 2


class FarSide(Enum):
    """What a fire says about the hypothesis."""

    TOO_LOW = "too low"
    TOO_HIGH = "too high"
    FAR = "too low or too high"  # a law that does not tell


@dataclass(frozen=True)
class Found:
    """Which of several numbers a fire is about, and what it says."""

    cell: int
    side: FarSide


@dataclass(frozen=True)
class HazardTest:
    """A test of public parameters: ε and θ of the rates, α of the ledger, and how far a neighbour moves x."""

    epsilon: Fraction
    threshold: int  # θ, in records
    order: int  # α, whole
    sensitivity: int = 1  # K

    def __post_init__(self) -> None:
        require(self.threshold >= 0, "The threshold of a test cannot be negative.")
        _ = self.event  # refuses what has no finite price
        require(
            self.rows <= _LONGEST,
            f"A test this fine needs a table of {self.rows} rows; use a larger epsilon.",
        )

    @staticmethod
    def for_bound(bound: int, *, beta: float, questions: int, order: int, sensitivity: int = 1) -> HazardTest:
        """About the cheapest test whose `bound(beta)` is at most this bound; one false fire in so many questions.

        A hypothesis without error fires with probability 2e^−εθ: θ = ln(2k)/ε, ε = (ln 2k + ln ln(1/β))/(τ − ½).
        θ is rounded down to whole records, and ε up to make up for it. (A table of c cells is c questions.)
        """
        require(questions >= 1, "A test is for one question or more.")
        require(beta <= 0.3, "A bound that is missed more often than 3 times in 10 bounds nothing.")
        quiet, sure, room = math.log(2 * questions), _log_log(beta), bound - 0.5
        threshold = math.floor(room * quiet / (quiet + sure))
        require(threshold >= 1, "A bound of so few records leaves no room for a threshold.")
        epsilon = max(quiet / threshold, sure / (room - threshold))
        billionths = math.ceil(epsilon * 10**9) + 1  # parameters are public: floats may plan them
        return HazardTest(Fraction(billionths, 10**9), threshold, order, sensitivity)

    @property
    def sharpness(self) -> Fraction:
        """How fast the chance of a false fire falls: by e for every 1/sharpness records of the threshold."""
        return self.epsilon

    @property
    def event(self) -> Fire:
        """What a fire costs; silence costs nothing, but the fire must be reserved before the draw."""
        return Fire(self.epsilon, self.sensitivity, self.order)

    def prepare(self) -> None:
        """Make and check the table now rather than at the first draw, whose time somebody may measure."""
        _ = _checked(self).columns

    @property
    def rows(self) -> int:
        """Of the table: what it takes to make it."""
        return last_row(self.epsilon, self.threshold) + 1

    def draw(self, x: Integers, entropy: Entropy) -> Found | None:
        """One draw at each x = count(q) − round(n h), and of those that fired the first; None is silence of all.

        Asked one after the other until one fires, the numbers are a table's cells at the price of one fire. All are
        drawn, whatever fires, so that the time tells nothing.
        """
        table = _checked(self)
        rows = np.minimum(np.abs(x), table.last)
        high, low = entropy.words(2 * len(x)).reshape(2, -1)
        fires = _below(high, low, *(column[rows] for column in table.columns[0]))
        nearer = _below(high, low, *(column[rows] for column in table.columns[1]))
        if not fires.any():
            return None
        cell = int(fires.argmax())
        return Found(cell, FarSide.TOO_LOW if bool(nearer[cell]) == (x[cell] >= 0) else FarSide.TOO_HIGH)

    def probabilities(self, x: int) -> tuple[Fraction, Fraction]:
        _, low, high = _checked(self).outcomes(x)
        return Fraction(low, 1 << _BITS), Fraction(high, 1 << _BITS)

    def bound(self, beta: float) -> float:
        """For each question: P(silence) ≤ β if |count − n h| exceeds θ + ½ + ln ln(1/β)/ε, for β ≥ e⁻⁶⁴.

        |x| is then above θ + ln ln(1/β)/ε, one rate above ln(1/β) or clipped at 64, and silence below β.
        """
        slack = _log_log(beta) / float(self.epsilon)
        return (self.threshold + 0.5 + slack) + 2.0**-48 * (self.threshold + 0.5 + abs(slack))


@dataclass(frozen=True)
class Table:
    """The law at |x| = 0, 1, …, as cumulative thresholds in units of 2⁻¹²⁸; from the last row on it is the same."""

    nearer: tuple[int, ...]  # the side that x points to, "too low" for x ≥ 0
    fires: tuple[int, ...]  # either side

    @property
    def last(self) -> int:
        return len(self.fires) - 1

    @cached_property
    def columns(self) -> tuple[tuple[Words, Words], tuple[Words, Words]]:
        """`fires` and `nearer`, each as the upper and the lower 64 bits."""
        return _halves(self.fires), _halves(self.nearer)

    def outcomes(self, x: int) -> tuple[int, int, int]:
        """The chances of silence, "too low" and "too high" in units of 2⁻¹²⁸; they add up to 2¹²⁸."""
        row = min(abs(x), self.last)
        fires, nearer = self.fires[row], self.nearer[row]
        silence, farther = (1 << _BITS) - fires, fires - nearer
        return (silence, nearer, farther) if x >= 0 else (silence, farther, nearer)


def _halves(thresholds: tuple[int, ...]) -> tuple[Words, Words]:
    """Thresholds below 2¹²⁸ (silence is never impossible) as two words each."""
    upper, lower = zip(*(divmod(threshold, 1 << 64) for threshold in thresholds), strict=True)
    return np.array(upper, np.uint64), np.array(lower, np.uint64)


def _below(high: Words, low: Words, upper: Words, lower: Words) -> Flags:
    below: Flags = (high < upper) | ((high == upper) & (low < lower))
    return below


def last_row(epsilon: Fraction, threshold: int, *, slowest: int = _SLOWEST, fastest: int = _FASTEST) -> int:
    """An |x| from which on both clocks are clipped: ε(|x| − θ) ≥ ln 64 and ε(|x| + θ) ≥ 40 ln 2."""
    faster = threshold + math.ceil(fastest * _LN_2 / epsilon)
    return max(faster, math.ceil(slowest * _LN_2 / epsilon) - threshold)


def tabulate(epsilon: Fraction, threshold: int, *, slowest: int = _SLOWEST, fastest: int = _FASTEST) -> Table:
    """The table of the law. Silence is rounded down, so that `bound` holds for the table as it is.

    At x = 0 the sides are exactly as likely, so that −x mirrors x in every row.
    """
    last = last_row(epsilon, threshold, slowest=slowest, fastest=fastest)
    decay = _powers(epsilon, last + threshold)
    one = 1 << _PRECISION

    def rate(records: int) -> int:
        """e^{ε·records}, clipped, too low by at most 8·last + 1 units of 2⁻²⁵⁶."""
        free = decay[-records] if records <= 0 else one * one // max(1, decay[records])
        return min(max(free, one >> slowest), one << fastest)

    nearer, fires = [], []
    for x in range(last + 1):
        up, down = rate(x - threshold), rate(-x - threshold)
        total = up + down + 32 * last  # at least the exact rate of both clocks
        silence = exp_minus(Fraction(total, one), _BITS + 32)[0] >> 32
        either = (1 << _BITS) - silence
        nearer.append(either * up // (up + down))
        fires.append(either)
    nearer[0] = -(-fires[0] // 2)
    fires[0] = 2 * nearer[0]
    return Table(tuple(nearer), tuple(fires))


def price_holds(table: Table, *, order: int, sensitivity: int, units: int) -> bool:
    """Whether (∗) silence^α silence′^{1−α} + e^−(α−1)D Σ_fires p^α p′^{1−α} ≤ 1 for every two rows at most
    `sensitivity` apart, both ways, D being so many units. Every rounding is upward: True is a proof.

    Rows of −x mirror those of x, so pairs with x ≥ |y| suffice; beyond the last row nothing changes.
    """
    discount = exp_minus(Fraction((order - 1) * units, UNITS), _PRECISION)[1]
    return all(
        moment <= 1 << _BITS + 2 * _PRECISION
        for x in range(table.last + 1)
        for y in range(max(x - sensitivity, -x), x)
        for moment in _moments(table.outcomes(x), table.outcomes(y), order, discount)
    )


def _moments(
    one: tuple[int, int, int], other: tuple[int, int, int], order: int, discount: int
) -> Iterator[int]:
    """The left side of (∗) both ways, rounded up, in units of 2^−(128 + 2·256)."""
    for p, q in ((one, other), (other, one)):
        silence, low, high = (_term(*pair, order) for pair in zip(p, q, strict=True))
        yield (silence << _PRECISION) + discount * (low + high)


def _term(p: int, q: int, order: int) -> int:
    """p (p/q)^{α−1}, rounded up, in units of 2^−(128 + 256); where q cannot happen and p can, too much."""
    if p == q or p == 0:
        return p << _PRECISION
    if q == 0:
        return 1 << _BITS + 2 * _PRECISION
    ratio, power = -(-(p << _PRECISION) // q), 1 << _PRECISION
    for bit in bin(order - 1)[2:]:
        power = -(-power * power >> _PRECISION)
        if bit == "1":
            power = -(-power * ratio >> _PRECISION)
    return p * power


def _powers(epsilon: Fraction, largest: int) -> list[int]:
    """e^−εk for k = 0 … largest in units of 2⁻²⁵⁶, too low by at most 4k: 3 by the step, 1 by the floor, each."""
    step = exp_minus(epsilon, _PRECISION)[0]
    powers = [1 << _PRECISION]
    for _ in range(largest):
        powers.append(powers[-1] * step >> _PRECISION)
    return powers


@lru_cache(maxsize=64)
def _checked(test: HazardTest) -> Table:
    """The table of a test, once (∗) holds for every pair of its rows at the price of its event."""
    table = tabulate(test.epsilon, test.threshold)
    units = int(test.event.cost * UNITS)
    holds = price_holds(table, order=test.order, sensitivity=test.sensitivity, units=units)
    require(holds, "The table of this test is not covered by its price; choose a smaller epsilon.")
    return table


def _log_log(beta: float) -> float:
    require(math.exp(-64) <= beta < 1, "beta must lie between e^-64 and 1.")
    return math.log(-math.log(beta))


class Slot:
    """Paid for when it is made; closed by the first fire, or by whoever cannot tell whether one happened.

    Silence costs nothing by the inequality (∗) of docs/privacy.md, "Threshold tests". No accounting with fixed sizes
    pays for a slot: what follows its fire is measured with any noise that costs no more.
    """

    def __init__(self, ledger: Ledger, fire: Fire | Epoch, follow_up: Concentrated) -> None:
        """BudgetError where it is too much: then there is no slot."""
        fixed = ledger.budget.accounting in {Accounting.GAUSSIAN, Accounting.THEOREM_4_3}
        require(not fixed, "Threshold tests are paid for by renyi, zcdp or pure accounting.")
        ledger.charge(fire, follow_up)
        self._ledger, self._fire, self._follow_up = ledger, fire, follow_up
        self._closed = False
        self._noise: int | None = None  # of the threshold of an epoch, drawn once
        self._moved: int | None = None  # how far neighbours move the numbers that it tests
        self._busy = Lock()  # held by the test in flight

    @property
    def closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Count the fire as happened. It stays paid."""
        self._closed = True

    def begin(
        self, test: Test, ledger: Ledger, follow_up: Concentrated
    ) -> Callable[[Integers, Entropy], Found | None]:
        """The one test in flight, or BudgetError where this slot does not pay for it."""
        require(ledger is self._ledger, "This slot was paid for by another ledger.")
        require(test.event == self._fire, "This slot was paid for another test.")
        cheaper = type(follow_up) is type(self._follow_up) and follow_up.rho <= self._follow_up.rho
        require(cheaper, "This slot pays for a cheaper measurement only.")
        require(self._busy.acquire(blocking=False), "A test of this slot is under way; one slot, one test.")
        try:  # what tests change is looked at while none is under way
            require(not self._closed, "The test of this slot has fired; pay for another slot.")
            # An epoch draws the noise of its threshold once, by how far the numbers of its first test move.
            moved = test.sensitivity if self._moved is None else self._moved
            require(test.sensitivity == moved, "The tests of a slot are of numbers that move equally far.")
            self._moved = moved
        except BudgetError:
            self._busy.release()
            raise

        def drawn(x: Integers, entropy: Entropy) -> Found | None:
            if isinstance(test, HazardTest):
                found = test.draw(x, entropy)
            else:
                if self._noise is None:
                    self._noise = test.threshold_noise(entropy)
                found = test.draw(x, entropy, self._noise)
            if found is not None:
                self.close()
            self._busy.release()
            return found

        return drawn


@dataclass(frozen=True)
class SparseVector:
    """The public parameters of epochs: ε of each, θ in records, and how far a neighbour moves x."""

    epsilon: Fraction
    threshold: int  # θ
    sensitivity: int = 1  # Δ

    def __post_init__(self) -> None:
        _ = self.event
        if self.sensitivity < 1:
            raise BudgetError("The sensitivity of a test is a whole number of at least 1.")

    @property
    def event(self) -> Epoch:
        return Epoch(self.epsilon)

    @property
    def sharpness(self) -> Fraction:
        """How fast the chance of a false fire falls: by e for every 1/sharpness records of the threshold."""
        return 1 / self.query_scale

    rows = 0  # it needs no table

    def prepare(self) -> None:
        """Nothing is to be made before the first draw."""

    def bound(self, beta: float) -> float:
        """For each question: P(silence) ≤ β if |count − n h| exceeds θ + ½ + (2Δ + 4Δ)/ε · ln(2/β)."""
        return self.threshold + 0.5 + 6 * self.sensitivity / float(self.epsilon) * math.log(2 / beta)

    def threshold_noise(self, entropy: Entropy) -> int:
        return int(discrete_laplace(1, scale=self.threshold_scale, entropy=entropy)[0])

    def draw(self, x: Integers, entropy: Entropy, noise: int) -> Found | None:
        """The first number whose size with fresh noise reaches the threshold of the epoch, which ends with it.

        The numbers are the cells of a table, asked one after the other; all are drawn, whatever fires.
        """
        fresh = discrete_laplace(len(x), scale=self.query_scale, entropy=entropy)
        above = np.abs(x) + fresh >= self.threshold + noise
        return Found(int(above.argmax()), FarSide.FAR) if above.any() else None

    @property
    def threshold_scale(self) -> Fraction:
        """2Δ/ε, of the noise that an epoch draws once."""
        return 2 * self.sensitivity / self.epsilon

    @property
    def query_scale(self) -> Fraction:
        """4Δ/ε, of the noise that every test draws."""
        return 4 * self.sensitivity / self.epsilon


Test: TypeAlias = HazardTest | SparseVector
