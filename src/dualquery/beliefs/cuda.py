"""A distribution over records on a graphics card: sums over its cells are made there, and cells multiplied.

The processor sees tables, and the few survival probabilities of each row. Sums are doubles, added up in one order:
the same on every run, and those of the processor but for their last digits. What the cells were multiplied by is
kept, it is small: should the card fail, the processor does it all again.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from dualquery.beliefs.histogram import ROW_CELLS, SERIAL_CELLS, CellClasses, Histogram, Pruned
from dualquery.card import Worked, Workplace, kernels
from dualquery.types import Cells, Set

SOURCE = Path(__file__).with_name("kernels.cu").read_text(encoding="utf-8")
THREADS, PARTS = 256, 64
MOST_SUMS = 4096  # classes of rows, times parts


class CardHistograms(Workplace):
    """Makes histograms: on the card where they are large."""

    instead = "a distribution was kept by the processor"

    def __call__(self, attributes: Set, sizes: Set) -> Histogram:
        return (
            CardHistogram(attributes, sizes, self)
            if prod(sizes) > SERIAL_CELLS
            else Histogram(attributes, sizes)
        )


class CardHistogram(Histogram):
    """A histogram whose weights lie on the card, as long as that works."""

    _weights: Any

    def __init__(self, attributes: Set, sizes: Set, made_by: CardHistograms) -> None:
        super().__init__(attributes, sizes)
        self._made_by, self._past = made_by, tuple[tuple[Set, Cells, float], ...]()
        self._shape, self._there = self._weights.shape, self._weights.shape[1] <= ROW_CELLS
        self._weights = self._on(lambda cupy: cupy.asarray(self._weights), lambda: self._weights)

    def _on(self, work: Callable[[Any], Worked], otherwise: Callable[[], Worked]) -> Worked:
        def again() -> Worked:
            self._there, self._weights, self.total = False, np.ones(self._shape), float(self.cells)
            for members, factors, mass in self._past:
                Histogram._scale(self, self, members, factors, mass)
            return otherwise()

        return self._made_by.tried(work, again) if self._there else otherwise()

    def _scale(self, source: Histogram, members: Set, factors: Cells, mass: float) -> None:
        super()._scale(source, members, factors, mass)
        self._past = (*self._past, (members, factors, mass))

    def _told(self) -> Cells:
        return self._on(lambda cupy: np.asarray(self._weights.get()), lambda: self._weights)

    def _divide(self) -> None:
        def on(cupy: Any) -> None:
            self._weights /= self.total

        self._on(on, super()._divide)

    def _row_sums(self, classes: CellClasses) -> Cells:
        def on(cupy: Any) -> Cells:
            rows, columns = self._shape
            parts = max(1, min(PARTS, MOST_SUMS // classes.rows))
            of_parts = cupy.zeros((parts, classes.rows, columns))
            grid, given = (-(-columns // THREADS), parts), (self._weights, np.int32(rows), np.int32(columns))
            _kernel("add_rows")(
                grid, (THREADS,), (*given, cupy.asarray(classes.of_row), np.int32(classes.rows), of_parts)
            )
            sums = cupy.empty((classes.rows, columns))
            cells = classes.rows * columns
            _kernel("add_parts")(
                (-(-cells // THREADS),), (THREADS,), (of_parts, np.int32(parts), np.int64(cells), sums)
            )
            return np.asarray(sums.get())

        return self._on(on, lambda: Histogram._row_sums(self, classes))

    def _scale_rows(self, source: Histogram, classes: CellClasses, rows: Cells) -> None:
        def on(cupy: Any) -> None:
            weights = source._weights
            if source is not self:
                self._weights = cupy.empty(self._shape)
            given = (weights, self._weights, np.int64(self.cells), np.int32(self._shape[1]))
            known = (cupy.asarray(classes.of_row), cupy.asarray(np.ascontiguousarray(rows)))
            _kernel("scale")((-(-self.cells // THREADS),), (THREADS,), (*given, *known))

        def otherwise() -> None:
            Histogram._scale_rows(
                self, source if isinstance(source._weights, np.ndarray) else self, classes, rows
            )

        self._on(on, otherwise)

    def _tails(self, steps: Pruned) -> Cells:
        def on(cupy: Any) -> Cells:
            tail, (rows, columns) = steps.tail, self._shape
            out = cupy.empty((rows, len(steps.wanted)))
            places = [
                cupy.asarray(each) for each in (tail.node, tail.size, tail.stride, tail.leaf.view(np.uint8))
            ]
            known = (
                *places,
                np.int32(len(tail.node)),
                cupy.asarray(steps.wanted),
                np.int32(len(steps.wanted)),
            )
            shared = 8 * (columns + THREADS)
            given = (self._weights, np.int32(columns), *known, out)
            _kernel("tails")((rows,), (THREADS,), given, shared_mem=shared)
            return np.asarray(out.get())

        return self._on(on, lambda: Histogram._tails(self, steps))


def _kernel(name: str) -> Any:
    return kernels(SOURCE).get_function(name)
