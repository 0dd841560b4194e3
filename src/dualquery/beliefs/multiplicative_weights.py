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
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from dualquery.beliefs.factored import Factored
from dualquery.game.play import Heard, TableQuery
from dualquery.types import Cells, Set

HeardTable = Heard[TableQuery]

TINY = 1e-300  # a probability below this is taken as this, so that no quotient overflows


class StepSize(Enum):
    PAPER = 0.5
    FULL = 4.0


@dataclass(frozen=True)
class Schedule:
    """How often a learner goes over all measurements after each new one (0: hears it once), and when it is
    content."""

    step: StepSize
    passes: int
    tolerance: float = 0.0  # in fractions of the table


ONCE = Schedule(StepSize.PAPER, 0)  # as Figure 1 has it


class Settling(ABC):
    """A learner that, after each new measurement, goes over all of them until they agree."""

    def __init__(self, schedule: Schedule, floor: float) -> None:
        self._schedule = schedule
        self._floor = floor
        self._heard: dict[tuple[Set, bytes], list[HeardTable]] = {}
        self._agreed: dict[tuple[Set, bytes], HeardTable] = {}  # the mean of what was asked several times

    def hear(self, challenge: HeardTable) -> None:
        if not self._schedule.passes:
            self._update(feasible(challenge, self._floor))
            return
        key = challenge.what.key
        repeats = self._heard.setdefault(key, [])
        repeats.append(challenge)
        mean = np.mean([each.value for each in repeats], axis=0)
        self._agreed[key] = feasible(Heard(challenge.what, mean), self._floor)
        concerned = self._concerned(list(self._agreed.values()), challenge)
        for _ in range(self._schedule.passes):
            gaps = [self._update(each) for each in concerned]
            if max(gaps) <= self._schedule.tolerance:
                return

    @abstractmethod
    def _update(self, measurement: HeardTable) -> float:
        """One step towards a measurement; how far off it was before."""

    def _concerned(self, heard: list[HeardTable], newest: HeardTable) -> list[HeardTable]:
        """Which measurements the newest has something to say about."""
        return heard


class MultiplicativeWeights(Settling):
    def __init__(self, distribution: Factored, *, schedule: Schedule, floor: float) -> None:
        super().__init__(schedule, floor)
        self._distribution = distribution

    def snapshot(self) -> Factored:
        return self._distribution.snapshot()

    def _update(self, measurement: HeardTable) -> float:
        return update(self._distribution, measurement, self._schedule.step)

    def _concerned(self, heard: list[HeardTable], newest: HeardTable) -> list[HeardTable]:
        return connected(heard, newest)


class ExpertWeights:
    """Multiplicative weights as in learning from experts, A(x) ∝ A(x) (1 − η q(x)), with the tutorial's factor:
    Σ_t (q_t(A_t) − q_t(B)) ≤ η T + ln|X| / η for any distribution B."""

    def __init__(self, distribution: Factored, *, learning_rate: float) -> None:
        self._distribution = distribution
        self._learning_rate = learning_rate

    def hear(self, challenge: TableQuery) -> None:
        assert challenge.cells is not None, "single queries are losses"
        table = self._distribution.glimpse(challenge.members)
        factors = 1.0 - self._learning_rate * challenge.cells
        self._distribution.multiply(challenge.members, factors, mass=float((table * factors).sum()))

    def snapshot(self) -> Factored:
        return self._distribution.snapshot()


def update(distribution: Factored, measurement: HeardTable, step: StepSize) -> float:
    """One step towards a measurement; how far off the distribution was (half the L1 distance)."""
    members, query, value = measurement.what.members, measurement.what.cells, measurement.value
    if query is None:
        table = distribution.marginal(members)  # a quotient needs its relative precision
        gap = 0.5 * float(np.abs(value - table).sum())
        gentle = step is StepSize.PAPER
        factors = np.exp(step.value * (value - table)) if gentle else value / np.maximum(table, TINY)
    else:
        table = distribution.glimpse(members)
        inside = float((query * table).sum())
        gap = float(value) - inside
        factors = np.exp(step.value * gap * query)
    distribution.multiply(members, np.asarray(factors), mass=float((table * factors).sum()))
    return abs(gap)


def connected(heard: Sequence[HeardTable], newest: HeardTable) -> list[HeardTable]:
    """The measurements that share attributes with the newest one, directly or through others.

    The rest speaks of attributes that are independent of these, and learns nothing from the newest.
    """
    reached = set(newest.what.members)
    found: set[int] = set()
    while True:
        near = [
            i
            for i, each in enumerate(heard)
            if i not in found
            and (not reached.isdisjoint(each.what.members) or each.what.members == newest.what.members)
        ]
        if not near:
            return [heard[i] for i in sorted(found)]
        found.update(near)
        for i in near:
            reached.update(heard[i].what.members)


def feasible(measurement: HeardTable, floor: float) -> HeardTable:
    """The measurement clamped to what a distribution can answer, and a little away from nothing and all.

    A whole table is projected to the probabilities next to it. Without the floor a noisy zero would
    exclude records for ever.
    """
    value = measurement.value
    if measurement.what.cells is None:
        return Heard(measurement.what, (1 - floor) * nearest_probabilities(value) + floor / value.size)
    return Heard(measurement.what, np.clip(value, floor, 1 - floor))


def nearest_probabilities(values: Cells) -> Cells:
    """The probabilities nearest to some numbers in squared distance: max(0, values − shift)."""
    falling = np.sort(values.ravel())[::-1]
    shifts = (np.cumsum(falling) - 1) / np.arange(1, len(falling) + 1)
    shift = shifts[np.flatnonzero(falling > shifts)[-1]]
    return np.maximum(values - shift, 0.0)
