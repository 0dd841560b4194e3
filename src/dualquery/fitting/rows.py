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
from itertools import combinations, permutations
from math import prod

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.cpu import (
    answer_binary_rows,
    answer_item_rows,
    answer_rows,
    signed_sums,
    withdraw_items,
    withdraw_rows,
)
from dualquery.fitting.effort import Chains, Effort
from dualquery.game.moves import Replied, Residual, Transcript
from dualquery.game.play import play
from dualquery.table.domain import Domain
from dualquery.table.records import smallest_type
from dualquery.types import Cells, Done, Set

RAREST = 1e-5  # fractions below this lean no harder: a measured cell must still be able to call for them


class Targets:
    """What the rows should answer: pull[S] is the weighted target w·y of the table over S, weight[S] is w.

    The rows lower Σ_S weight[S] · ‖N·y_S − counts_S‖². Only the whole sum must be a square: weights of single
    tables may be negative (see `add_interaction`).
    """

    def __init__(self, sizes: NDArray[np.int64]) -> None:
        self.sizes = sizes
        self.pull: dict[Set, Cells] = {}
        self.weight: dict[Set, float] = {}

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
                left_out = prod(int(self.sizes[j]) for j in members if j not in subset)
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
        if members not in self.pull:
            self.pull[members] = np.zeros(tuple(int(self.sizes[j]) for j in members))
            self.weight[members] = 0.0
        if isinstance(pull, np.ndarray):
            self.pull[members] = self.pull[members] + pull
        self.weight[members] += weight


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

    @property
    def arrays(self) -> tuple[NDArray[np.int64], ...]:
        """As the kernel takes them."""
        views = (self.size, self.first_view, self.table, self.first_copy, self.copy)
        return (*views, self.member, self.stride, self.other, self.other_stride, self.offset)

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


class RowDataPlayer:
    """Keeps chains of rows; replies to a residual with the rows after one pass of best responses."""

    def __init__(
        self, targets: Targets, lean: Mapping[int, Cells], start: Chains, rng: np.random.Generator
    ) -> None:
        self._rows = np.ascontiguousarray(start, np.int32)
        self._layout = layout = RowLayout(targets.sizes, sorted(targets.pull, key=lambda s: (len(s), s)))
        self._weight = np.array([targets.weight[members] for members in layout.sets], np.float32)
        self._lean, self._first_value = leaning(targets.sizes, lean)
        chains, count, _ = start.shape
        pull = layout.spread(targets.pull)
        pull *= count
        self._residual = np.repeat(pull[None, :], chains, axis=0)
        withdraw_rows(
            self._rows,
            self._residual,
            layout.member,
            layout.stride,
            layout.offset,
            layout.table,
            self._weight,
        )
        self._counters = rng.integers(0, 1 << 63, chains, dtype=np.uint64)
        self._kind = start.dtype

    def reply(self, transcript: Transcript[Residual, Chains], challenge: Residual) -> Chains:
        answer_rows(
            self._rows,
            self._residual,
            *self._layout.arrays,
            self._weight,
            self._lean,
            self._first_value,
            np.float32(challenge.temperature),
            self._counters,
        )
        return self._rows.astype(self._kind)


class ItemRowDataPlayer:
    """As `RowDataPlayer`, for items: the targets are the fractions that hold an item, or two of them."""

    def __init__(
        self,
        single: Cells,
        pair: Cells,
        weight_single: float,
        weight_pair: float,
        start: Chains,
        rng: np.random.Generator,
    ) -> None:
        self._rows = np.ascontiguousarray(start, np.uint8)
        chains, count, _ = start.shape
        self._weights = np.float32(weight_single), np.float32(weight_pair)
        apart = pair.copy()
        np.fill_diagonal(apart, 0.0)
        self._single = np.repeat((count * weight_single * single).astype(np.float32)[None], chains, axis=0)
        self._pair = np.repeat((count * weight_pair * apart).astype(np.float32)[None], chains, axis=0)
        withdraw_items(self._rows, self._single, self._pair, *self._weights)
        self._counters = rng.integers(0, 1 << 63, chains, dtype=np.uint64)
        likely = np.clip(single, RAREST, 1 - RAREST)
        self._lean = np.log(likely / (1 - likely)).astype(np.float32)

    def reply(self, transcript: Transcript[Residual, Chains], challenge: Residual) -> Chains:
        answer_item_rows(
            self._rows,
            self._single,
            self._pair,
            *self._weights,
            self._lean,
            np.float32(challenge.temperature),
            self._counters,
        )
        return self._rows.copy()


BINARY_ATTRIBUTES = 160  # of which all triples are kept at once, in every chain: 16 MB
BINARY_ORDER = 3


def all_binary(sizes: NDArray[np.integer], order: int) -> bool:
    """Whether sets of up to this order, of attributes of these sizes, are fitted by signed counts."""
    return bool(np.all(sizes == 2)) and order <= BINARY_ORDER and len(sizes) <= BINARY_ATTRIBUTES


def row_data_player(
    targets: Targets, lean: Mapping[int, Cells], start: Chains, rng: np.random.Generator
) -> RowDataPlayer | BinaryRowDataPlayer:
    """The data player that is faster for these targets; both play the same game."""
    if all_binary(targets.sizes, max(len(members) for members in targets.pull)):
        return BinaryRowDataPlayer(targets, lean, start, rng)
    return RowDataPlayer(targets, lean, start, rng)


class SignedTargets:
    """Targets as pulls and weights of signed counts.

    ‖t‖² over the cells of S is 2^−|S| Σ_{B ⊆ S} χ_B(t)², so that a table of weight w and pull w·y adds w·2^−|S| to
    the weight of each subset B and 2^−|S| χ_B(w·y) to its pull. (That of the empty set moves no row.)
    """

    def __init__(self, targets: Targets) -> None:
        width = len(targets.sizes)
        by_order: dict[int, list[tuple[int, ...]]] = {}
        for members in targets.pull:
            by_order.setdefault(len(members), []).append(members)
        orders = range(1, (max(by_order) if max(by_order) > 2 else 2) + 1)
        self.pull = {order: np.zeros((width,) * order) for order in orders}
        self.weight = {order: np.zeros((width,) * order) for order in orders}
        for order, sets in by_order.items():
            tables = np.stack([targets.pull[members].ravel() for members in sets])
            weights = np.array([targets.weight[members] for members in sets])
            self._add(np.array(sets), tables / 2**order, weights / 2**order)

    def _add(
        self, sets: NDArray[np.int64], tables: NDArray[np.float64], weights: NDArray[np.float64]
    ) -> None:
        order = sets.shape[1]
        cells = np.indices((2,) * order).reshape(order, -1)
        for size in range(1, order + 1):
            for places in combinations(range(order), size):
                signs = (-1.0) ** cells[list(places)].sum(axis=0)
                for ordered in permutations(places):
                    where = tuple(sets[:, place] for place in ordered)
                    np.add.at(self.pull[size], where, tables @ signs)
                    np.add.at(self.weight[size], where, weights)


class BinaryRowDataPlayer:
    """Keeps chains of rows of binary attributes; replies with the rows after one pass of best responses."""

    def __init__(
        self, targets: Targets, lean: Mapping[int, Cells], start: Chains, rng: np.random.Generator
    ) -> None:
        asked = SignedTargets(targets)
        self._kind = start.dtype
        self._signs = 1.0 - 2.0 * np.ascontiguousarray(start, np.float32)
        chains, count, width = start.shape
        triples = BINARY_ORDER in asked.pull
        none = np.zeros((0, 0, 0))
        weights = (asked.weight[1], asked.weight[2], asked.weight[3] if triples else none)
        pulls = (asked.pull[1], asked.pull[2], asked.pull[3] if triples else none)
        sums = signed_sums(self._signs, triples)
        self._weights = tuple(weight.astype(np.float32) for weight in weights)
        self._residuals = tuple(
            (count * pull[None] - weight[None] * total).astype(np.float32)
            for pull, weight, total in zip(pulls, weights, sums, strict=True)
        )
        self._residuals[2][...] *= 0.5  # a triple stands in the form of an attribute twice
        self._moves = np.zeros(width, np.bool_)
        for members in targets.pull:
            self._moves[list(members)] = True
        self._lean = np.zeros(width, np.float32)
        for j, fractions in lean.items():
            likely = np.log(np.maximum(fractions, RAREST))
            self._lean[j] = likely[0] - likely[1]
        self._counters = rng.integers(0, 1 << 63, chains, dtype=np.uint64)

    def reply(self, transcript: Transcript[Residual, Chains], challenge: Residual) -> Chains:
        answer_binary_rows(
            self._signs,
            *self._residuals,
            *self._weights,
            self._moves,
            self._lean,
            np.float32(challenge.temperature),
            self._counters,
        )
        rows: Chains = (self._signs < 0).astype(self._kind)
        return rows


def product_start(
    domain: Domain, ones: Mapping[int, Cells], effort: Effort, rng: np.random.Generator
) -> Chains:
    """Rows whose attributes are independent; an attribute that was not measured is uniform."""
    kind = smallest_type(int(domain.sizes.max()))
    out = np.empty((effort.chains, effort.chain_rows, domain.width), kind)
    for j in range(domain.width):
        size = int(domain.sizes[j])
        if j in ones:
            edges = np.cumsum(ones[j])
            place = rng.random(out.shape[:2]) * edges[-1]
            out[:, :, j] = np.minimum(np.searchsorted(edges, place, side="right"), size - 1)
        else:
            out[:, :, j] = rng.integers(0, size, out.shape[:2])
    return out


def play_residual(
    targets: Targets,
    ones: Mapping[int, Cells],
    start: Chains,
    temperatures: Sequence[float],
    rng: np.random.Generator,
    progress: Done,
) -> Transcript[Residual, Chains]:
    """Play the residual of some targets against chains of rows, one round a temperature."""
    return play(
        ResidualQueryPlayer(temperatures),
        row_data_player(targets, ones, start, rng),
        rounds=len(temperatures),
        progress=progress,
    )
