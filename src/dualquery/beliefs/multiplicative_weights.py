"""Multiplicative weights over records: how a distribution hears.

What is heard is about a table over a few attributes: either one query, a function of that table's cells, or
all of the cells. The learner multiplies the distribution by a function of the same few attributes. It is
public by then, and nothing here knows of privacy.

    A(x) ∝ A(x) · exp(rate · q(x) · (m − q(A)))             rate 1/2: Hardt, Ligett, McSherry 2012, Figure 1

m and q(A) are fractions. Towards any B with q(B) = m and q between 0 and 1 such a step lowers the relative
entropy KL(B, A) by rate · (m − q(A)) · m − ln E_A exp(rate · (m − q(A)) · q), by Hoeffding's lemma at least

    (rate − rate²/8) · (m − q(A))²,

which is largest, twice the squared gap, at rate 4. That is the full step. It still moves rare queries
gently, as noise deserves. Whole tables are scaled to what was measured, cell by cell: A(x) · m_c / A_c
(iterative proportional fitting), which lowers KL(B, A) by the relative entropy of the two tables.

A distribution that is scaled to what it hears: inside a query and outside, each by its own factor.

    A(x) · m/q(A) where q(x) = 1,      A(x) · (1 − m)/(1 − q(A)) where q(x) = 0

The full step of multiplicative weights for one query: it lands on the measurement, noise and all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from dualquery.beliefs.factored import Factored
from dualquery.game.moves import Heard, Loss
from dualquery.types import Cells

TINY = 1e-300  # a probability below this is taken as this, so that no quotient overflows


class StepSize(Enum):
    """How far one update goes."""

    PAPER = 0.5
    FULL = 4.0


@dataclass(frozen=True)
class Schedule:
    """How often it goes over all measurements after each new one, and when it is content.

    A Schedule of ONCE hears every measurement once, as Figure 1 has it.
    """

    step: StepSize
    passes: int
    tolerance: float  # in fractions of the table


ONCE = Schedule(StepSize.PAPER, 1, 0.0)


class MultiplicativeWeights:
    """A distribution that, after each new measurement, goes over all of them until they agree."""

    def __init__(self, distribution: Factored, *, schedule: Schedule, floor: float) -> None:
        self._distribution = distribution
        self._schedule = schedule
        self._floor = floor
        self._heard: dict[tuple[tuple[int, ...], bytes], list[Heard]] = {}
        self._agreed: dict[tuple[tuple[int, ...], bytes], Heard] = {}

    def hear(self, challenge: Heard) -> None:
        if self._schedule is ONCE:
            update(self._distribution, feasible(challenge, self._floor), ONCE.step)
            return
        key = challenge.key
        self._heard.setdefault(key, []).append(challenge)
        self._agreed[key] = feasible(_mean(self._heard[key]), self._floor)
        settle(self._distribution, connected(list(self._agreed.values()), challenge), self._schedule)

    def snapshot(self) -> Factored:
        return self._distribution.snapshot()


def linear(losses: Cells) -> Cells:
    """1 − ηq, the tutorial's factor: Σ_t (q_t(A_t) − q_t(B)) ≤ η T + ln|X| / η for any distribution B."""
    return 1.0 - losses


def exponential(losses: Cells) -> Cells:
    """exp(−ηq): by Hoeffding's lemma a gap g = q(A) − q(B) lowers KL(B, A) by at least η g − η²/8."""
    return np.exp(-losses)


class ExpertWeights:
    """Multiplicative weights as in learning from experts: A(x) ∝ A(x) · factor(η q(x))."""

    def __init__(
        self,
        distribution: Factored,
        *,
        learning_rate: float,
        factor: Callable[[Cells], Cells] = linear,
    ) -> None:
        self._distribution = distribution
        self._learning_rate = learning_rate
        self._factor = factor

    def hear(self, challenge: Loss) -> None:
        table = self._distribution.glimpse(challenge.members)
        factors = self._factor(self._learning_rate * challenge.query)
        self._distribution.multiply(challenge.members, factors, mass=float((table * factors).sum()))

    def snapshot(self) -> Factored:
        return self._distribution.snapshot()


def update(distribution: Factored, measurement: Heard, step: StepSize) -> float:
    """One step towards a measurement; returns how far off the distribution was (half the L1 distance)."""
    query, value = measurement.query, measurement.value
    if query is None:
        table = distribution.marginal(measurement.members)  # a quotient needs its relative precision
        gap = 0.5 * float(np.abs(value - table).sum())
        exact = step is StepSize.FULL
        factors = value / np.maximum(table, TINY) if exact else np.exp(step.value * (value - table))
    else:
        table = distribution.glimpse(measurement.members)
        gap = float(value) - float((query * table).sum())
        factors = np.exp(step.value * gap * query)
    distribution.multiply(measurement.members, factors, mass=float((table * factors).sum()))
    return abs(gap)


def settle(distribution: Factored, heard: Sequence[Heard], schedule: Schedule) -> None:
    """Update by all measurements in turn, until all agree or the passes are over."""
    for _ in range(schedule.passes):
        gaps = [update(distribution, each, schedule.step) for each in heard]
        if max(gaps) <= schedule.tolerance:
            return


def connected(heard: Sequence[Heard], newest: Heard) -> list[Heard]:
    """The measurements that share attributes with the newest one, directly or through others.

    The rest speaks of attributes that are independent of these, and learns nothing from the newest.
    """
    reached = set(newest.members)
    found: set[int] = set()
    while True:
        near = [
            i
            for i, each in enumerate(heard)
            if i not in found and (not reached.isdisjoint(each.members) or each.members == newest.members)
        ]
        if not near:
            return [heard[i] for i in sorted(found)]
        found.update(near)
        for i in near:
            reached.update(heard[i].members)


def feasible(measurement: Heard, floor: float) -> Heard:
    """The measurement clamped to what a distribution can answer, and a little away from nothing and all.

    A whole table is projected to the probabilities next to it. Without the floor a noisy zero would
    exclude records for ever.
    """
    if measurement.query is None:
        value = (1 - floor) * nearest_probabilities(measurement.value) + floor / measurement.value.size
    else:
        value = np.clip(measurement.value, floor, 1 - floor)
    return replace(measurement, value=value)


def nearest_probabilities(values: Cells) -> Cells:
    """The probabilities nearest to some numbers in squared distance: max(0, values − shift)."""
    falling = np.sort(values.ravel())[::-1]
    shifts = (np.cumsum(falling) - 1) / np.arange(1, len(falling) + 1)
    shift = shifts[np.flatnonzero(falling > shifts)[-1]]
    return np.maximum(values - shift, 0.0)


def _mean(repeats: Sequence[Heard]) -> Heard:
    """What was measured several times with the same noise, as one measurement."""
    return replace(repeats[0], value=np.mean([each.value for each in repeats], axis=0))


class RakedWeights:
    """Hears noisy answers to single queries, each once."""

    def __init__(self, distribution: Factored, *, floor: float) -> None:
        self._distribution = distribution
        self._floor = floor

    def hear(self, challenge: Heard) -> None:
        measured = feasible(challenge, self._floor)
        assert measured.query is not None, "single queries are raked"
        value = float(measured.value)
        table = self._distribution.glimpse(measured.members)
        inside = min(max(float((measured.query * table).sum()), TINY), 1 - 2**-53)
        factors = measured.query * (value / inside) + (1 - measured.query) * ((1 - value) / (1 - inside))
        mass = float((table * factors).sum())
        self._distribution.multiply(measured.members, np.asarray(factors), mass=mass)

    def snapshot(self) -> Factored:
        return self._distribution.snapshot()
