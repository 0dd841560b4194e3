"""A mixture of records: the point of their convex hull nearest to given answers, by Frank-Wolfe.

Every record x answers a workload by a vector a_x of zeros and ones, and every table by a point of their hull K. The
nearest point of K to ỹ minimises f(y) = ½‖y − ỹ‖². Frank and Wolfe (1956) ask, round after round, for the record that
the residual ỹ − y likes best,

    x = argmax_x ⟨ỹ − y, a_x⟩,

which is what an oracle answers, and move towards it. Here all weights are found anew after each, the least squares
over the records so far, by exchanging weight between two at a time, from the one that f would most like to have less
of to the one that it would most like to have more of. How far from the nearest point y* the mixture may be is the gap

    ‖y − y*‖² ≤ ⟨ỹ − y, a_x − y⟩,      x the best record of all.

Nothing here sees private data.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.errors import DualQueryError
from dualquery.game.play import Record
from dualquery.queries.workload import Workload
from dualquery.types import Fractions, Ints, Reals

EXCHANGES = 20  # of weight, for each record and round, at most
PRECISION = 0.05  # of the last gap: when nothing gains more by an exchange, the next record is asked for


class RecordMixture:
    """Records with weights that sum to one, and what they answer together."""

    def __init__(self, workload: Workload, wanted: Fractions) -> None:
        self._workload = workload
        self._wanted = wanted
        self._records: list[Record] = []
        self._bits: list[NDArray[np.uint8]] = []  # what each record answers
        self._products = np.empty((0, 0))  # ⟨a_x, a_z⟩
        self._liked = np.empty(0)  # ⟨ỹ, a_x⟩
        self.weights: Reals = np.empty(0)
        self._held: Fractions = np.zeros(workload.size)
        self.gap = np.inf  # as the last record showed it

    @property
    def residual(self) -> Fractions:
        """ỹ − y: what the next record should answer."""
        return self._wanted - self._held

    def nearest(self, fallback: Record) -> Record:
        """The record, of those there are, that the residual likes best: where a search begins."""
        if not self._records:
            return fallback
        likes = self._liked - self._products @ self.weights
        return self._records[int(np.argmax(likes))]

    def add(self, record: Record) -> None:
        """Take in a record, find all weights anew; what is told as the gap is that before it."""
        answers = np.zeros(self._workload.size, np.int32)
        for group, start in zip(self._workload.groups, self._workload.starts, strict=False):
            group.add_answers(record, answers[start : start + group.size])
        bits = answers.astype(np.uint8)
        residual = self.residual
        if self._records:
            self.gap = max(0.0, float(residual @ bits - residual @ self._held))
        self._records.append(record)
        self._bits.append(bits)
        size = len(self._records)
        column = np.array([np.count_nonzero(each & bits) for each in self._bits], float)
        products = np.empty((size, size))
        products[:-1, :-1] = self._products
        products[-1] = products[:, -1] = column
        self._products = products
        self._liked = np.append(self._liked, bits @ self._wanted)
        self.weights = np.append(self.weights, 1.0 if size == 1 else 0.0)
        precision = PRECISION * min(self.gap, self._workload.size)
        settle(products, self._liked, self.weights, EXCHANGES * size, precision)
        self._keep(np.flatnonzero(self.weights))
        held = np.zeros(self._workload.size)
        for weight, each in zip(self.weights.tolist(), self._bits, strict=True):
            add_weighted(held, each, weight)
        self._held = held

    def _keep(self, chosen: NDArray[np.int64]) -> None:
        self._records, self._bits = [self._records[i] for i in chosen], [self._bits[i] for i in chosen]
        self._products = self._products[np.ix_(chosen, chosen)]
        self._liked, self.weights = self._liked[chosen], self.weights[chosen]

    def answers(self, workload: Workload) -> Fractions:
        if workload is not self._workload and workload.digest() != self._workload.digest():
            raise DualQueryError("a mixture answers the workload that it was made for")
        return self._held

    def rows(self, number: int) -> Ints:
        """So many rows in which every record stands as often as its weight says, to the nearest whole number."""
        ends = np.rint(number * np.cumsum(self.weights / self.weights.sum())).astype(np.int64)
        return np.repeat(np.stack(self._records), np.diff(ends, prepend=0), axis=0)


@njit(cache=True)
def settle(products: Reals, liked: Reals, weights: Reals, exchanges: int, precision: float) -> None:
    """Minimise ½ wᵀGw − bᵀw over weights that sum to one, in place, by exchanging weight between two at a time."""
    size = len(weights)
    gradient = -liked.copy()
    for i in range(size):
        if weights[i] > 0:
            for k in range(size):
                gradient[k] += weights[i] * products[i, k]
    for _ in range(exchanges):
        more, less = 0, -1
        for k in range(size):
            if gradient[k] < gradient[more]:
                more = k
            if weights[k] > 0 and (less < 0 or gradient[k] > gradient[less]):
                less = k
        gain = gradient[less] - gradient[more]
        if gain <= precision:
            return
        curved = products[more, more] + products[less, less] - 2 * products[more, less]
        step = weights[less]
        if curved > 0 and gain < step * curved:
            step = gain / curved
        weights[more] += step
        weights[less] = weights[less] - step if step < weights[less] else 0.0
        for k in range(size):
            gradient[k] += step * (products[more, k] - products[less, k])


@njit(cache=True)
def add_weighted(held: Fractions, bits: NDArray[np.uint8], weight: float) -> None:
    for q in range(len(held)):
        held[q] += weight * bits[q]
