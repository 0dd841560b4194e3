"""Multiplicative weights and mirror descent over records: how a distribution hears.

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

*Mirror descent*: a mirror map says what a step costs, and so which distribution is next. It moves in the dual, ∇ψ(w)
← ∇ψ(w) + η·q, and comes back by the Bregman projection to the simplex:

    w ← argmin_{w in the simplex} ψ(w) − ⟨θ, w⟩,        θ the dual point.

    entropy       ψ = Σ w ln w           w ∝ e^θ                      multiplicative weights
    Euclidean     ψ = ½ ‖w‖₂²            w = (θ − λ)₊                 projection to the simplex
    p-norm        ψ = ½ ‖w‖_p²           w ∝ (θ − λ)₊^{1/(p−1)}       1 < p < 2, between the two

(Jain and Thakurta 2012, after Nemirovski and Yudin.) λ makes the weights add up to one. With two of them, η chosen so
that q(w) is what was measured, one step is the projection in ψ's own divergence to all distributions that agree.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import numpy as np

from dualquery.beliefs.factored import Factored
from dualquery.errors import DualQueryError
from dualquery.game import Heard, TableQuery
from dualquery.table.domain import Domain
from dualquery.types import Cells, Reals, Set

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


STEPS = 100  # of false position, to find λ in an interval of length one; about ten are needed
CLOSE = 1e-13


class MirrorMap(Protocol):
    """A strictly convex function over the simplex, by its gradient and the way back."""

    def dual(self, weights: Reals) -> Reals:
        """∇ψ, up to a constant."""

    def primal(self, dual: Reals) -> Reals:
        """The distribution that a dual point stands for."""

    def slope(self, weights: Reals, query: Reals) -> float:
        """How fast the answer to a query follows a step along it, or a bound of it where that is gentler."""

    def reach(self, cells: float, accepted: float) -> tuple[float, float]:
        """R and L: ψ/μ varies by R² over so many cells, and no query that accepts `accepted` of them has ‖q‖_* > L.

        μ is how strongly convex ψ is in its norm.
        """


@dataclass(frozen=True)
class NegativeEntropy:
    """ψ = Σ w ln w."""

    def dual(self, weights: Reals) -> Reals:
        return np.log(np.maximum(weights, 1e-300))

    def primal(self, dual: Reals) -> Reals:
        grown: Reals = np.exp(dual - dual.max())
        return grown / grown.sum()

    def slope(self, weights: Reals, query: Reals) -> float:
        """A quarter of the squared range, which no variance exceeds (Hoeffding): the full step of MWEM.

        So rare queries move gently, as noise deserves.
        """
        return 0.25 * float(query.max() - query.min()) ** 2

    def reach(self, cells: float, accepted: float) -> tuple[float, float]:
        return math.sqrt(math.log(cells)), 1.0


@dataclass(frozen=True)
class Euclidean:
    """ψ = ½ ‖w‖²."""

    def dual(self, weights: Reals) -> Reals:
        return weights

    def primal(self, dual: Reals) -> Reals:
        return nearest_probabilities(dual)

    def slope(self, weights: Reals, query: Reals) -> float:
        return _spread((weights > 0).astype(np.float64), query)

    def reach(self, cells: float, accepted: float) -> tuple[float, float]:
        return math.sqrt(0.5), math.sqrt(accepted)


@dataclass(frozen=True)
class PNorm:
    """ψ = ½ ‖w‖_p², 1 < p < 2.

    With u = (θ − λ)₊ and r = 1/(p − 1) the conditions of the minimum are w = c·uʳ, c = ‖u‖_{r+1}^{−(2−p)(r+1)/p};
    Σ w falls in λ, is 0 at λ = max θ and at least 1 at max θ − 1.
    """

    p: float

    def __post_init__(self) -> None:
        if not 1.01 <= self.p <= 1.99:
            raise DualQueryError(
                f"the p of a p-norm lies between 1.01 and 1.99, and {self.p:g} does not; "
                "entropy and euclidean are the ends"
            )

    def dual(self, weights: Reals) -> Reals:
        length = float((weights**self.p).sum()) ** ((2 - self.p) / self.p)
        return length * weights ** (self.p - 1)

    def primal(self, dual: Reals) -> Reals:
        low, high = float(dual.max()) - 1, float(dual.max())
        above, below = float(self._weights(dual, low).sum()) - 1, -1.0  # of Σ w − 1, at the ends
        shift = low
        for _ in range(STEPS):
            shift = high - below * (high - low) / (below - above)
            sum_of_weights = float(self._weights(dual, shift).sum()) - 1
            if abs(sum_of_weights) <= CLOSE:
                break
            if sum_of_weights > 0:  # the end that stays counts half, so that the other one moves (Illinois)
                low, above, below = shift, sum_of_weights, below / 2
            else:
                high, below, above = shift, sum_of_weights, above / 2
        weights = self._weights(dual, shift)
        return weights / weights.sum()

    def _weights(self, dual: Reals, shift: float) -> Reals:
        power = 1 / (self.p - 1)
        above = np.maximum(dual - shift, 0.0)
        raised: Reals = above**power
        length = float((raised * above).sum())
        return raised * (length ** (-(2 - self.p) / self.p) if length > 0 else 0.0)

    def slope(self, weights: Reals, query: Reals) -> float:
        length = float((weights**self.p).sum()) ** ((self.p - 2) / self.p)
        held = weights > 0
        stiffness = np.zeros_like(weights)
        stiffness[held] = length * weights[held] ** (2 - self.p) / (self.p - 1)
        return _spread(stiffness, query)

    def reach(self, cells: float, accepted: float) -> tuple[float, float]:
        return math.sqrt(0.5 / (self.p - 1)), accepted ** (1 - 1 / self.p)


def _spread(stiffness: Reals, query: Reals) -> float:
    """Σ D (q − q̄)², D how fast each weight follows its own dual coordinate and q̄ the mean of q under it."""
    centred = query - float(stiffness @ query) / float(stiffness.sum())
    return float(stiffness @ centred**2)


HALVINGS = 20  # of a step that goes too far
NOTHING = 1e-15  # a query that the distribution could not follow at all


class MirrorDescent(Settling):
    """A distribution over every cell of a domain, moved by a mirror map.

    A step is Newton's, in the dual, for q(w) = m: η = (m − q(w)) / slope, how fast the answer follows a step by the
    map; it is halved as long as it would leave the answer farther off than it was. With a rate η it is the theorem's
    instead: η·q up where the answer is too low, and down where it is too high, however far off it is.
    """

    def __init__(
        self,
        domain: Domain,
        mirror: MirrorMap,
        *,
        schedule: Schedule,
        floor: float,
        rate: float | None = None,
    ) -> None:
        super().__init__(schedule, floor)
        self._rate, self._moves = rate, 0
        self._domain = domain
        self._sizes = tuple(domain.sizes.tolist())
        self._mirror = mirror
        self._weights: Reals = np.full(self._sizes, 1 / np.prod(domain.sizes.astype(float))).ravel()

    def snapshot(self) -> Factored:
        return Factored.of_weights(self._domain, self._weights.reshape(self._sizes), self._moves)

    def hear(self, challenge: HeardTable) -> None:
        self._moves += 1
        super().hear(challenge)

    def _update(self, measurement: HeardTable) -> float:
        value, query = float(measurement.value), self._on_cells(measurement.what)
        gap = value - float(query @ self._weights)
        if self._rate is not None:
            step = math.copysign(self._rate, gap)
            self._weights = self._mirror.primal(self._mirror.dual(self._weights) + step * query)
            return abs(gap)
        if abs(gap) <= NOTHING:
            return abs(gap)
        slope = self._mirror.slope(self._weights, query)
        if slope <= NOTHING:  # the query is the same wherever there is weight: let all cells have some
            self._weights = self._weights + NOTHING
            self._weights /= self._weights.sum()
            slope = NOTHING
        step, dual = gap / slope, self._mirror.dual(self._weights)
        for _ in range(HALVINGS):
            weights = self._mirror.primal(dual + step * query)
            if abs(value - float(query @ weights)) < abs(gap):
                self._weights = weights
                break
            step /= 2
        return abs(gap)

    def _on_cells(self, what: TableQuery) -> Reals:
        assert what.cells is not None, "whole tables are not played by mirror descent"
        shape = [size if j in what.members else 1 for j, size in enumerate(self._sizes)]
        return np.broadcast_to(what.cells.reshape(shape), self._sizes).ravel()
