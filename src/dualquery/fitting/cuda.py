"""Rows fitted on a graphics card: a warp a row, its lanes over the values, residuals brought up to date atomically.

The game is that of `cpu.answer_rows`, but that many rows answer at once: each sees a residual that lacks the moves
of those that are under way. A row at temperature T (in rows) hardly heeds differences far below T rows; as many rows
of a chain are under way as a multiple of T says, which follows the number of rows and the noise (`in_flight`). Which
of two rows moves first is the card's business, and floats add up in that order: the same seed does not give the same
rows twice.

The views are those of `cpu`. A lane takes a value; where an attribute has few, the lanes that are left take other
views, and add up. A moved row changes the cells of all views of its tables: the *places* of an attribute list them.
Items of which rows hold few (`ItemTargets`) are fitted by the processor, and so is everything as soon as the card
fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.card import CardError, card, kernels, on_card
from dualquery.fitting.cpu import COMPILED, Views, leaning, spread, views_of
from dualquery.fitting.fitter import Chains, ItemTargets, Seeds, Targets
from dualquery.types import Integers

SOURCE = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")
IN_FLIGHT = 16.0  # rows of a chain that answer at a time, for each row of the temperature ...
FEWEST, MOST = 256, 8  # ... but of so many rows at least one, and of so many at most one
WARPS = 4  # of a block
MOST_WIDTH = 5_000  # attributes, whose rows lie in shared memory


class Places(NamedTuple):
    """Where the cells lie that change when attribute j moves: entries first[j] to first[j + 1].

    At offset + Σ row[other]·stride, and from there `step` times the value; `weight` is that of the table.
    """

    first: Integers
    offset: Integers
    step: Integers
    weight: NDArray[np.float32]
    other: Integers
    stride: Integers


def places_of(views: Views, weight: NDArray[np.float32]) -> Places:
    """The views of all tables that hold an attribute, that attribute's stride taken out."""
    others = views.other.shape[1]
    moving = np.searchsorted(views.first_view, np.arange(len(views.table)), side="right") - 1
    number = np.diff(views.first_copy)[views.table]
    owner = np.repeat(np.arange(len(views.table)), number)  # the view by which an entry's table is one of j
    within = np.arange(len(owner)) - np.repeat(np.cumsum(number) - number, number)
    table = views.table[owner]
    view = views.copy[views.first_copy[table] + within]
    member, stride = views.member[view], views.stride[view]
    mine = member == moving[owner][:, None]
    beside = (member >= 0) & ~mine
    kept = np.argsort(~beside, axis=1, kind="stable")[:, :others]
    return Places(
        np.searchsorted(moving[owner], np.arange(len(views.size) + 1)).astype(np.int64),
        views.offset[view],
        np.where(mine, stride, 0).sum(axis=1),
        weight[table],
        np.take_along_axis(np.where(beside, member, 0), kept, axis=1),
        np.take_along_axis(np.where(beside, stride, 0), kept, axis=1),
    )


def in_flight(count: int, temperature: float) -> int:
    """How many of a chain's rows answer at a time: F = 16 T.

    Rows under way that do not see each other answer the same difference, one after another too far. At temperature T
    a row takes a value with a chance that changes by 1/T for every row of difference, so that F rows overshoot by
    about F/T of it. Measured on an H200 the squared residual grew by .1% or less up to F = 32 T for KDD99 and 5 T for
    Adult, by .6% at 21 T (docs/cli.md).
    """
    return max(1, round(min(max(IN_FLIGHT * temperature, count / FEWEST), count / MOST)))


class CudaFitter:
    """A fitter. What the card does not fit, or no longer, is fitted by the processor."""

    def __init__(self) -> None:
        card()  # or why not
        self.said: list[str] = []

    def fit(
        self, targets: Targets | ItemTargets, start: Chains, heat: Sequence[float], seeds: Seeds
    ) -> Iterator[Chains]:
        if isinstance(targets, ItemTargets) or start.shape[2] > MOST_WIDTH:
            return COMPILED.fit(targets, start, heat, seeds)
        try:
            return iter(warp_passes(targets, start, heat, seeds))
        except CardError as problem:
            sentence = f"{problem}; rows were fitted on the processor"
            if sentence not in self.said:
                self.said.append(sentence)
            return COMPILED.fit(targets, start, heat, seeds)


def warp_passes(targets: Targets, start: Chains, heat: Sequence[float], seeds: Seeds) -> list[Chains]:
    """The rows after each pass."""
    chains, count, width = start.shape
    sets = sorted(targets.pull, key=lambda s: (len(s), s))
    views = views_of(targets.sizes, sets)
    weight = np.array([targets.weight[members] for members in sets], np.float32)
    lean, first_value = leaning(targets.sizes, targets.lean)
    pull = spread(views, [targets.pull[members] for members in sets], count)
    places, cells = places_of(views, weight), int(views.offset[-1])
    of_view = weight[views.table]
    itself = np.array(
        [of_view[a:b].sum() for a, b in zip(views.first_view, views.first_view[1:], strict=False)],
        np.float32,
    )
    out = []
    with on_card() as cupy:

        def ints(numbers: Any) -> Any:
            return cupy.asarray(np.ascontiguousarray(numbers, np.int32))

        def longs(numbers: Any) -> Any:
            return cupy.asarray(np.ascontiguousarray(numbers, np.int64))

        rows = ints(start)
        residual = cupy.tile(cupy.asarray(pull), (chains, 1))
        offset = longs(views.offset)
        shape = (np.int64(chains * count), np.int32(count), np.int32(width))
        source = kernels(SOURCE)
        grid = (-(-chains * count // WARPS),)
        of_members = (ints(views.member), ints(views.stride), np.int32(views.member.shape[1]), offset)
        known = (cupy.asarray(of_view), np.int32(len(of_view)), np.int64(cells), residual)
        source.get_function("withdraw")(grid, (32 * WARPS,), (rows, *shape, *of_members, *known))
        others = (ints(views.other), ints(views.other_stride), np.int32(views.other.shape[1]))
        of_places = (ints(places.first), longs(places.offset), ints(places.step), cupy.asarray(places.weight))
        fixed = (
            *(ints(views.size), ints(views.first_view), *others, offset, cupy.asarray(itself)),
            *(*of_places, ints(places.other), ints(places.stride), cupy.asarray(lean), ints(first_value)),
        )
        answer, words = source.get_function("answer"), cupy.asarray(seeds)
        shared = WARPS * 2 * width * 4
        answer.max_dynamic_shared_size_bytes = max(shared, 1 << 10)
        orders = np.random.default_rng([int(seed) for seed in seeds])
        for number, temperature in enumerate(heat):
            sequence = cupy.asarray(orders.permutation(chains * count))
            now = (np.int64(cells), np.float32(temperature), words, np.uint64(number), residual)
            flying = -(-chains * in_flight(count, temperature) // WARPS)
            answer((flying,), (32 * WARPS,), (rows, *shape, sequence, *fixed, *now), shared_mem=shared)
            out.append(rows.get().astype(start.dtype))
    return out
