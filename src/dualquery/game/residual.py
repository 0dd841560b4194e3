"""The residual of noisy tables: what rows are still asked for, and where each of its cells lies.

The query player's weights are the residual of the noisy tables, which is public; the data player keeps a few
independent sets of rows (*chains*) and best-responds row by row. A round is one pass over all rows, inside
one compiled call, so the residual is brought up to date after every move and not only after every round.

With temperature T > 0 a row is drawn with probability ∝ lean(x) · exp(Σ w·G / T), where lean is a product of
one-way distributions: where the chains come to rest, they are samples of the log-linear distribution with
parameters w·G/T, that is, of the projection  min_p Σ_c w_c ‖y_c − p_c‖²/2 + (T/N)·KL(p ‖ lean), which keeps
to independence where the measurements do not object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.game.moves import Cells, Replied, Residual, Transcript

Set = tuple[int, ...]
Chains = NDArray[np.unsignedinteger]  # chain, row, attribute

RAREST = 1e-5  # fractions below this lean no harder: a measured cell must still be able to call for them


@dataclass(frozen=True)
class Targets:
    """What the rows should answer: pull[S] is the weighted target w·y of the table over S, weight[S] is w.

    The rows lower Σ_S weight[S] · ‖N·y_S − counts_S‖². Only the whole sum must be a square: weights of single
    tables may be negative (see `add_interaction`).
    """

    sizes: NDArray[np.int64]
    pull: Mapping[Set, Cells]
    weight: Mapping[Set, float]


class TargetsMaker:
    """Collects tables and interactions into `Targets`."""

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self._sizes = sizes
        self._pull: dict[Set, Cells] = {}
        self._weight: dict[Set, float] = {}

    def add_table(self, members: Set, target: Cells, weight: float) -> None:
        """Add weight · ‖N·target − counts‖² over a table."""
        self._add(members, weight * target, weight)

    def add_interaction(self, members: Set, target: Cells, weight: float) -> None:
        """Add weight · ‖C(N·target − counts)‖², C the centring of a table along each of its attributes.

        Centring is a signed sum of margins, C = Σ_{B ⊆ S} (−1)^|S∖B| Π_{j ∉ B} 1/k_j · margin_B, and a
        projection, so the gain of a row is again a sum over tables: those of the subsets B, with these
        signs. `target` must be centred itself.
        """
        self._add(members, weight * target, weight)
        for order in range(1, len(members)):
            for subset in combinations(members, order):
                left_out = prod(int(self._sizes[j]) for j in members if j not in subset)
                sign = -1.0 if (len(members) - order) % 2 else 1.0
                self._add(subset, 0.0, sign * weight / left_out)

    def add_lean(self, members: Set, logarithms: Cells, temperature: float) -> None:
        """Let rows lean to exp(logarithms) over a table: at this temperature (in fractions), without any
        pull.

        The gain of a row is compared with temperature · N times logarithms, so that a constant pull is a
        factor of the distribution from which rows are drawn.
        """
        self._add(members, temperature * logarithms, 0.0)

    def _add(self, members: Set, pull: Cells | float, weight: float) -> None:
        if members not in self._pull:
            self._pull[members] = np.zeros(tuple(int(self._sizes[j]) for j in members))
            self._weight[members] = 0.0
        if isinstance(pull, np.ndarray):
            self._pull[members] = self._pull[members] + pull
        self._weight[members] += weight

    def targets(self) -> Targets:
        return Targets(self._sizes, self._pull, self._weight)


class RowLayout:
    """Where each cell of each view lies.

    Views are numbered by their moving attribute, which is their last member: those of attribute j are
    first_view[j] to first_view[j + 1]. View v belongs to table[v]; the views of table t are
    copy[first_copy[t] : first_copy[t + 1]], in the order of its attributes.
    """

    def __init__(self, sizes: NDArray[np.int64], sets: Sequence[Set]) -> None:
        self.sets = tuple(sets)
        self.size = np.ascontiguousarray(sizes, np.int64)
        moving = np.array([j for members in self.sets for j in members], np.int64)
        table = np.repeat(np.arange(len(self.sets)), [len(members) for members in self.sets])
        order = np.argsort(moving, kind="stable")
        self.table = table[order]
        self.copy = np.empty(len(order), np.int64)
        self.copy[order] = np.arange(len(order))
        self.first_copy = np.concatenate([[0], np.cumsum([len(s) for s in self.sets])]).astype(np.int64)
        self.first_view = np.searchsorted(moving[order], np.arange(len(sizes) + 1)).astype(np.int64)
        width = max(len(members) for members in self.sets)
        self.member = np.full((len(order), width), -1, np.int64)
        self.stride = np.zeros((len(order), width), np.int64)
        self.other = np.zeros((len(order), max(1, width - 1)), np.int64)
        self.other_stride = np.zeros((len(order), max(1, width - 1)), np.int64)
        self.offset = np.empty(len(order), np.int64)
        place = 0
        for view, entry in enumerate(order.tolist()):
            last = int(moving[entry])
            members = [j for j in self.sets[int(table[entry])] if j != last] + [last]
            step = 1
            for m in range(len(members) - 1, -1, -1):
                self.member[view, m], self.stride[view, m] = members[m], step
                step *= int(sizes[members[m]])
            others = len(members) - 1
            self.other[view, :others] = members[:-1]
            self.other_stride[view, :others] = self.stride[view, :others]
            self.offset[view] = place
            place += step
        self.cells = place

    def spread(self, tables: Mapping[Set, Cells]) -> NDArray[np.float32]:
        """Every table written into each of its views."""
        out = np.empty(self.cells, np.float32)
        for t, members in enumerate(self.sets):
            cells = tables[members].reshape([int(self.size[j]) for j in members])
            for axis in range(len(members)):
                start = self.offset[self.copy[self.first_copy[t] + axis]]
                out[start : start + cells.size] = np.moveaxis(cells, axis, -1).ravel()
        return out


def leaning(
    sizes: NDArray[np.int64], lean: Mapping[int, Cells]
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The logarithms of the one-way fractions in a row, and where each attribute's begin; 0 where unknown."""
    first_value = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    out = np.zeros(int(first_value[-1]), np.float32)
    for j, fractions in lean.items():
        out[first_value[j] : first_value[j + 1]] = np.log(np.maximum(fractions, RAREST))
    return out, first_value


class ResidualQueryPlayer:
    """Learns the residual of a measurement: targets less what the rows answer, which is public.

    The data player's own moves keep it up to date, row by row; what is left to say is how hard to pull.
    """

    def __init__(self, temperatures: Sequence[float]) -> None:
        self._temperatures = tuple(temperatures)

    def challenge(self, transcript: Transcript[Residual, Replied]) -> Residual:
        return Residual(self._temperatures[transcript.rounds])
