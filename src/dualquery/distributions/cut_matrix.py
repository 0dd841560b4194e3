"""The cut decomposition of Frieze and Kannan as a learner: a graph that is a sum of rectangles.

The belief is a matrix D = Σ_t d_t 1_{S_t} 1_{T_t}ᵀ. A cut (S, T) with value v moves it the shortest way (in the
Euclidean sense) to where the cut is answered right: d = (v − D(S, T)) / (|S| |T|). Nothing but sets is kept:
rectangles meet in |S ∩ S'| · |T ∩ T'| entries, so that all answers move by d times two counts of bits (Gupta, Roth,
Ullman 2012).

Without directions an entry is a pair {u, v}, loops among them, and a rectangle is S×T ∪ T×S, each pair once. With
P = S ∩ T its indicator over ordered pairs is 1_{S×T} + 1_{T×S} − 1_{P×P}. Two of them meet, by multiplying out, and
by halving what is no loop, in

    |S ∩ S'| |T ∩ T'| + |S ∩ T'| |T ∩ S'| − |S ∩ P'| |T ∩ P'| − |P ∩ S'| |P ∩ T'| + m(m + 1)/2,   m = |P ∩ P'|

pairs; with itself one meets in all of its |S||T| − |P|(|P| − 1)/2.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit, popcount
from dualquery.queries.cuts import Bits, Cuts
from dualquery.queries.workload import Workload

Array = NDArray[np.float64]


@dataclass(frozen=True)
class HeardCut:
    """The noisy value of one of the workload's cuts, as a fraction."""

    query: int
    value: float


@dataclass(frozen=True, eq=False)
class Rectangles:
    """D, and its answers to the workload that it learned from."""

    sources: Bits
    targets: Bits
    heights: Array
    told: Array

    def answers(self, workload: Workload) -> Array:
        """The fraction of each cut."""
        found = []
        for group in workload.groups:
            assert isinstance(group, Cuts), "of graphs only cuts can be asked"
            found.append(crossing(self.sources, self.targets, self.heights, group))
        return np.concatenate(found)


class CutMatrix:
    """The belief of a data player that learns rectangle by rectangle, from the empty graph on."""

    def __init__(self, cuts: Cuts) -> None:
        self._cuts = cuts
        self._answers = np.zeros(cuts.size)
        self._queries: list[int] = []
        self._heights: list[float] = []

    def hear(self, challenge: HeardCut) -> None:
        q = challenge.query
        met = met_by(
            self._cuts.sources[q],
            self._cuts.targets[q],
            self._cuts.sources,
            self._cuts.targets,
            self._cuts.domain.directed,
        )
        height = (challenge.value - self._answers[q]) / max(1.0, float(met[q]))
        self._answers += height * met
        self._queries.append(q)
        self._heights.append(height)

    def snapshot(self) -> Rectangles:
        rows = np.array(self._queries, np.int64)
        heights = np.array(self._heights)
        return Rectangles(self._cuts.sources[rows], self._cuts.targets[rows], heights, self._answers.copy())


def crossing(sources: Bits, targets: Bits, heights: Array, cuts: Cuts) -> Array:
    """What a sum of rectangles sends across each cut."""
    out = np.zeros(cuts.size)
    for source, target, height in zip(sources, targets, heights.tolist(), strict=True):
        out += height * met_by(source, target, cuts.sources, cuts.targets, cuts.domain.directed)
    return out


@njit(cache=True)
def met_by(source, target, sources, targets, directed):  # type: ignore[no-untyped-def]
    """In how many entries a rectangle meets each of some rectangles; without directions, both as S×T ∪ T×S."""
    out = np.empty(sources.shape[0])
    for q in range(sources.shape[0]):
        out[q] = _product(source, target, sources[q], targets[q])
        if not directed:
            inner, others = source & target, sources[q] & targets[q]
            both = float(_common(inner, others))
            out[q] += _product(source, target, targets[q], sources[q]) + both * (both + 1) / 2
            out[q] -= _product(source, target, others, others) + _product(
                inner, inner, sources[q], targets[q]
            )
    return out


@njit(cache=True)
def _product(a, b, c, d):  # type: ignore[no-untyped-def]
    """|A ∩ C| · |B ∩ D|."""
    return float(_common(a, c)) * float(_common(b, d))


@njit(cache=True)
def _common(a, b):  # type: ignore[no-untyped-def]
    """|A ∩ B|."""
    found = np.int64(0)
    for w in range(a.shape[0]):
        found += np.int64(popcount(a[w] & b[w]))
    return found
