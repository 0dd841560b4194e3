"""Multiplicative weights over records: the data player that learns.

A measurement is about a table over a few attributes: either one query, a function of that table's cells, or
all of the cells. The learner multiplies the distribution by a function of the same few attributes. The
measurement is public by then, and nothing here knows of privacy.

    A(x) ∝ A(x) · exp(rate · q(x) · (m − q(A)))             rate 1/2: Hardt, Ligett, McSherry 2012, Figure 1

m and q(A) are fractions. Towards any B with q(B) = m and q between 0 and 1 such a step lowers the relative
entropy KL(B, A) by rate · (m − q(A)) · m − ln E_A exp(rate · (m − q(A)) · q), by Hoeffding's lemma at least

    (rate − rate²/8) · (m − q(A))²,

which is largest, twice the squared gap, at rate 4. That is the full step. It still moves rare queries
gently, as noise deserves. Whole tables are scaled to what was measured, cell by cell: A(x) · m_c / A_c
(iterative proportional fitting), which lowers KL(B, A) by the relative entropy of the two tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Transcript

TINY = 1e-300  # a probability below this is taken as this, so that no quotient overflows

Table = NDArray[np.float64]


class Distribution(Protocol):
    """What a learner needs of a distribution over records."""

    def marginal(self, members: tuple[int, ...]) -> Table:
        """The probabilities of the table over some attributes (increasing), one axis an attribute."""

    def glimpse(self, members: tuple[int, ...]) -> Table:
        """The same to within 10⁻¹⁵, perhaps sooner."""

    def multiply(self, members: tuple[int, ...], factors: Table, *, mass: float) -> None:
        """Multiply by a function of these attributes, whose expectation is `mass`."""


class Step(Enum):
    """How far one update goes."""

    PAPER = 0.5
    FULL = 4.0


@dataclass(frozen=True)
class Measurement:
    """A noisy answer about the table over `members`.

    `query` is a query's value on each cell and `value` its fraction; where `query` is None, `value` is the
    whole table.
    """

    members: tuple[int, ...]
    query: Table | None
    value: Table

    @property
    def key(self) -> tuple[tuple[int, ...], bytes]:
        """Equal where the same was measured."""
        return self.members, b"" if self.query is None else self.query.tobytes()


@dataclass(frozen=True)
class Schedule:
    """How often the learner goes over all measurements after each new one, and when it is content.

    A Schedule of ONCE hears every measurement once, as Figure 1 has it.
    """

    step: Step
    passes: int
    tolerance: float  # in fractions of the table


ONCE = Schedule(Step.PAPER, 1, 0.0)


class LearningDataPlayer:
    """Replies with a distribution that has heard every measurement; one object, changed in place.

    Only the last reply of a transcript can therefore be read: whoever wants an average watches the rounds.
    """

    def __init__(self, distribution: Distribution, *, schedule: Schedule, floor: float) -> None:
        self._distribution = distribution
        self._schedule = schedule
        self._floor = floor
        self._heard: dict[tuple[tuple[int, ...], bytes], list[Measurement]] = {}
        self._agreed: dict[tuple[tuple[int, ...], bytes], Measurement] = {}

    def reply(
        self, transcript: Transcript[Measurement, Distribution], challenge: Measurement
    ) -> Distribution:
        if self._schedule is ONCE:
            update(self._distribution, feasible(challenge, self._floor), ONCE.step)
            return self._distribution
        key = challenge.key
        self._heard.setdefault(key, []).append(challenge)
        self._agreed[key] = feasible(_mean(self._heard[key]), self._floor)
        settle(self._distribution, connected(list(self._agreed.values()), challenge), self._schedule)
        return self._distribution


@dataclass(frozen=True)
class Loss:
    """A query that the distribution answers too high, by its value (0 to 1) on each cell over `members`."""

    members: tuple[int, ...]
    query: Table


class LossDataPlayer:
    """Multiplicative weights as in learning from experts: A(x) ∝ A(x) · (1 − η q(x)).

    For any distribution B the losses q_t satisfy Σ_t (q_t(A_t) − q_t(B)) ≤ η T + ln|X| / η.
    """

    def __init__(self, distribution: Distribution, *, learning_rate: float) -> None:
        self._distribution = distribution
        self._learning_rate = learning_rate

    def reply(self, transcript: Transcript[Loss, Distribution], challenge: Loss) -> Distribution:
        table = self._distribution.glimpse(challenge.members)
        factors = 1.0 - self._learning_rate * challenge.query
        self._distribution.multiply(challenge.members, factors, mass=float((table * factors).sum()))
        return self._distribution


def update(distribution: Distribution, measurement: Measurement, step: Step) -> float:
    """One step towards a measurement; returns how far off the distribution was (half the L1 distance)."""
    query, value = measurement.query, measurement.value
    if query is None:
        table = distribution.marginal(measurement.members)  # a quotient needs its relative precision
        gap = 0.5 * float(np.abs(value - table).sum())
        exact = step is Step.FULL
        factors = value / np.maximum(table, TINY) if exact else np.exp(step.value * (value - table))
    else:
        table = distribution.glimpse(measurement.members)
        gap = float(value) - float((query * table).sum())
        factors = np.exp(step.value * gap * query)
    distribution.multiply(measurement.members, factors, mass=float((table * factors).sum()))
    return abs(gap)


def settle(distribution: Distribution, measurements: Sequence[Measurement], schedule: Schedule) -> None:
    """Update by all measurements in turn, until all agree or the passes are over."""
    for _ in range(schedule.passes):
        gaps = [update(distribution, each, schedule.step) for each in measurements]
        if max(gaps) <= schedule.tolerance:
            return


def connected(measurements: Sequence[Measurement], newest: Measurement) -> list[Measurement]:
    """The measurements that share attributes with the newest one, directly or through others.

    The rest speaks of attributes that are independent of these, and learns nothing from the newest.
    """
    reached = set(newest.members)
    found: set[int] = set()
    while True:
        near = [
            i
            for i, each in enumerate(measurements)
            if i not in found and (not reached.isdisjoint(each.members) or each.members == newest.members)
        ]
        if not near:
            return [measurements[i] for i in sorted(found)]
        found.update(near)
        for i in near:
            reached.update(measurements[i].members)


def feasible(measurement: Measurement, floor: float) -> Measurement:
    """The measurement clamped to what a distribution can answer, and a little away from nothing and all.

    A whole table is projected to the probabilities next to it. Without the floor a noisy zero would
    exclude records for ever.
    """
    if measurement.query is None:
        value = (1 - floor) * nearest_probabilities(measurement.value) + floor / measurement.value.size
    else:
        value = np.clip(measurement.value, floor, 1 - floor)
    return replace(measurement, value=value)


def nearest_probabilities(values: Table) -> Table:
    """The probabilities nearest to some numbers in squared distance: max(0, values − shift)."""
    falling = np.sort(values.ravel())[::-1]
    shifts = (np.cumsum(falling) - 1) / np.arange(1, len(falling) + 1)
    shift = shifts[np.flatnonzero(falling > shifts)[-1]]
    return np.maximum(values - shift, 0.0)


def _mean(repeats: Sequence[Measurement]) -> Measurement:
    """What was measured several times with the same noise, as one measurement."""
    return replace(repeats[0], value=np.mean([each.value for each in repeats], axis=0))
