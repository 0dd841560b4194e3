"""A distribution over records, written out: one weight per cell of the product of some attributes.

The cells are seen as a matrix whose rows are numbered by the leading attributes and whose columns by the trailing
ones. Rows are long enough to be read at the speed of memory and short enough to stay in the nearest cache, so that
every compiled loop runs over contiguous numbers. Three operations suffice for every mechanism: the table over a few
attributes, the multiplication of all cells by a function of a few attributes, and the survival probabilities P[x_1 ≥
v_1, x_2 ≥ v_2, …] of all sets of at most `order` attributes in one pass. Of a binary universe those are its moments,
and the pass is a superset sum that leaves out the large sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod

import numpy as np

from dualquery.errors import QueryError
from dualquery.loops import in_shares, njit
from dualquery.types import Cells, Flags, Integers, Ints, Reals

MOST_CELLS = 1 << 27  # 1 GiB of float64
ROW_CELLS = 1 << 12  # a row of this size stays in the nearest cache
SERIAL_CELLS = 1 << 14  # fewer cells than this are not worth a second thread
LEAST_COLUMNS = 256  # of the rows of cells, likewise


@dataclass(frozen=True)
class Survival:
    """P[x ≥ v] for every v with at most `order` digits that are not zero.

    The entry of the cell numbered c is table[c // row_length, column[c % row_length]].
    """

    order: int
    table: Reals
    column: Integers
    row_length: int

    def at(self, cells: Integers) -> Reals:
        return self.table[cells // self.row_length, self.column[cells % self.row_length]]


class Histogram:
    """Weights over the product of `attributes` (increasing); they add up to `total`, not to 1."""

    def __init__(self, attributes: tuple[int, ...], sizes: tuple[int, ...]) -> None:
        check_cells(prod(sizes))
        self.attributes = attributes
        self.sizes = sizes
        head = _split(sizes)
        self._head, self._tail = sizes[:head], sizes[head:]
        self._weights: Cells = np.ones((prod(self._head), prod(self._tail)))
        self.total = float(self._weights.size)
        self._fresh: Survival | None = None  # of the weights as they stand

    @staticmethod
    def of(attributes: tuple[int, ...], weights: Cells) -> Histogram:
        """The distribution with these weights, one axis an attribute."""
        histogram = Histogram(attributes, weights.shape)
        histogram._weights[:] = weights.reshape(histogram._weights.shape)
        histogram.total = float(weights.sum())
        return histogram

    @property
    def cells(self) -> int:
        return prod(self.sizes)

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart the cells of neighbouring values of each attribute lie."""
        return tuple(prod(self.sizes[k + 1 :]) for k in range(len(self.sizes)))

    def probabilities(self) -> Cells:
        weights = self._told()
        return weights.reshape(self.sizes) / weights.sum()

    def _told(self) -> Cells:
        return self._weights

    def marginal(self, members: tuple[int, ...]) -> Cells:
        """The probabilities of the table over some attributes, one axis an attribute; refreshes `total`."""
        classes = _classes(self.attributes, self.sizes, members)
        if self.cells <= SERIAL_CELLS:
            sums, owners = self._weights, classes.all_cells
        else:
            sums, owners = self._row_sums(classes), classes.of_cell
        flat = np.bincount(owners.ravel(), weights=sums.ravel(), minlength=prod(classes.shape))
        self.total = float(flat.sum())
        return flat.reshape(classes.shape) / self.total

    def _row_sums(self, classes: CellClasses) -> Cells:
        """The rows of each class, added up."""
        sums = np.zeros((classes.rows, self._weights.shape[1]))
        in_shares(add_rows, sums.shape[1], self._weights, classes.of_row, sums, least=LEAST_COLUMNS)
        return sums

    def glimpse(self, members: tuple[int, ...]) -> Cells:
        """`marginal` to within 10⁻¹⁵, without a pass over the cells where `survival` has just been asked."""
        if self._fresh is None or self._fresh.order < len(members):
            return self.marginal(members)
        cells = np.zeros((), np.int64)
        for attribute, size, stride in zip(self.attributes, self.sizes, self.strides, strict=True):
            if attribute in members:
                cells = np.add.outer(cells, stride * np.arange(size))
        table = self._fresh.at(cells)
        for axis in range(table.ndim):
            table = -np.diff(table, axis=axis, append=0.0)
        return table

    def multiplied(self, members: tuple[int, ...], factors: Cells, *, mass: float) -> Histogram:
        """As `multiply`, leaving this distribution as it is."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._scale(self, members, factors, mass)
        return other

    def multiply(self, members: tuple[int, ...], factors: Cells, *, mass: float) -> None:
        """Multiply each cell by the factor of the table cell over `members` that it lies in.

        `mass` is the expectation of the factor, which every caller knows: it makes the new total without
        another pass over the cells.
        """
        self._scale(self, members, factors, mass)

    def _scale(self, source: Histogram, members: tuple[int, ...], factors: Cells, mass: float) -> None:
        """These weights become those of the source, or their own, times the factors."""
        classes = _classes(self.attributes, self.sizes, members)
        if self.cells <= SERIAL_CELLS:
            self._weights = source._weights * factors.ravel()[classes.all_cells]
        else:
            self._scale_rows(source, classes, factors.ravel()[classes.of_cell])
        self._fresh = None
        self.total *= mass
        if not 1e-100 < self.total < 1e100:
            self._divide()
            self.total = 1.0

    def _divide(self) -> None:
        self._weights /= self.total

    def _scale_rows(self, source: Histogram, classes: CellClasses, rows: Cells) -> None:
        in_place = source is self
        weights = source._weights
        if not in_place:
            self._weights = np.empty_like(weights)
        arguments = (weights, self._weights, in_place, classes.of_row, rows, np.all(rows == 1.0, axis=1))
        in_shares(scale_rows, len(weights), *arguments, least=self._serial_rows)

    def survival(self, order: int) -> Survival:
        """The survival probabilities of all sets of at most `order` attributes; refreshes `total`."""
        steps = _pruned_steps(self._head, self._tail, min(order, len(self.sizes)))
        head, table = steps.head, self._tails(steps)
        head_survival(table, head.node, head.size, head.stride, steps.columns)
        self.total = float(table[0, 0])
        table /= self.total
        self._fresh = Survival(min(order, len(self.sizes)), table, steps.column, self._weights.shape[1])
        return self._fresh

    def _tails(self, steps: Pruned) -> Cells:
        """Suffix sums along the trailing attributes, the wanted cells of each row."""
        tail = steps.tail
        table = np.empty((len(self._weights), len(steps.wanted)))
        arguments = (self._weights, tail.node, tail.size, tail.stride, tail.leaf, steps.wanted, table)
        in_shares(tail_survival, len(table), *arguments, least=self._serial_rows)
        return table

    def sample(self, count: int, rng: np.random.Generator) -> Integers:
        """The cells of `count` records by systematic sampling: each cell's share, rounded up or down."""
        points = (np.arange(count) + rng.random()) / count
        cumulated = np.cumsum(self._told().ravel())
        found = np.searchsorted(cumulated, points * cumulated[-1], side="right")
        return np.minimum(found, self.cells - 1)

    @property
    def _serial_rows(self) -> int:
        """So many are not worth sharing."""
        return max(1, SERIAL_CELLS // self._weights.shape[1])


MakeHistogram = Callable[[tuple[int, ...], tuple[int, ...]], Histogram]
_USUAL: ContextVar[MakeHistogram] = ContextVar("histograms", default=Histogram)


@contextmanager
def believing_with(make: MakeHistogram) -> Iterator[None]:
    """Uniform distributions over whole domains are made so inside."""
    before = _USUAL.set(make)
    try:
        yield
    finally:
        _USUAL.reset(before)


def uniform(attributes: tuple[int, ...], sizes: tuple[int, ...]) -> Histogram:
    """All cells alike, held by whoever was chosen."""
    return _USUAL.get()(attributes, sizes)


def check_cells(cells: int) -> None:
    """Refuse a universe that would not fit, in a sentence that says how large it is."""
    if cells > MOST_CELLS:
        raise QueryError(
            f"a distribution over {cells:,} cells would need {8 * cells:,} bytes, and at most "
            f"{8 * MOST_CELLS:,} are allowed; use the factored form with smaller parts, or fewer attributes"
        )


def _split(sizes: tuple[int, ...]) -> int:
    """How many attributes lead: the rest makes rows as long as fit, and there are rows for every thread."""
    head, cells = len(sizes), 1
    while head > 0 and cells * sizes[head - 1] <= max(ROW_CELLS, sizes[-1]):
        head -= 1
        cells *= sizes[head]
    return head


@dataclass(frozen=True)
class CellClasses:
    """Which cell of a table each cell of the matrix lies in: of_cell[of_row[h], i] for the cell (h, i)."""

    shape: tuple[int, ...]
    of_row: Ints
    rows: int
    of_cell: Integers

    @cached_property
    def all_cells(self) -> Integers:
        """The table cell of every cell of the matrix, written out."""
        return self.of_cell[self.of_row]


@lru_cache(maxsize=4096)
def _classes(attributes: tuple[int, ...], sizes: tuple[int, ...], members: tuple[int, ...]) -> CellClasses:
    head = _split(sizes)
    inside = [j in members for j in attributes]
    shape = tuple(size for size, mine in zip(sizes, inside, strict=True) if mine)
    of_row = _codes(sizes[:head], inside[:head])
    of_column = _codes(sizes[head:], inside[head:])
    rows = prod(size for size, mine in zip(sizes[:head], inside[:head], strict=True) if mine)
    width = prod(size for size, mine in zip(sizes[head:], inside[head:], strict=True) if mine)
    of_cell = np.arange(rows)[:, None] * width + of_column
    return CellClasses(shape, of_row.astype(np.int32), rows, of_cell)


def _codes(sizes: tuple[int, ...], inside: list[bool]) -> Integers:
    """For each cell over some attributes, its number when only those inside are counted."""
    codes = np.zeros(1, np.int64)
    for size, mine in zip(sizes, inside, strict=True):
        digits = np.arange(size) if mine else np.zeros(size, np.int64)
        codes = (codes[:, None] * (size if mine else 1) + digits).ravel()
    return codes


@dataclass(frozen=True)
class _Steps:
    """The steps of one half of the pass: where, how many neighbours, how far apart, whether to sum them."""

    node: Integers
    size: Integers
    stride: Integers
    digits: Integers  # how many digits of the node are not zero
    leaf: Flags


@dataclass(frozen=True)
class Pruned:
    tail: _Steps
    head: _Steps
    wanted: Integers  # cells of a row with few digits, those with the fewest first
    column: Integers  # where in `wanted` a cell of a row stands, or -1
    columns: Integers  # how many of them each step of the head needs


@lru_cache(maxsize=64)
def _pruned_steps(head: tuple[int, ...], tail: tuple[int, ...], order: int) -> Pruned:
    """The pass for a matrix of this shape. A node is a cell whose later digits are zero."""
    wanted, digits = _few_digits(tail, order)
    ranks = np.argsort(digits, kind="stable")
    wanted, digits = wanted[ranks], digits[ranks]
    column = np.full(prod(tail), -1, np.int64)
    column[wanted] = np.arange(len(wanted))
    steps = _steps(head, order)
    columns = np.searchsorted(digits, order - steps.digits, side="right")
    return Pruned(_steps(tail, order - 1, leaf_at=order - 1), steps, wanted, column, columns)


def _steps(sizes: tuple[int, ...], most_digits: int, leaf_at: int = -1) -> _Steps:
    """Every node with at most `most_digits` digits, from the slowest attribute to the fastest."""
    node, size, stride, count = [], [], [], []
    for k, s in enumerate(sizes):
        if s == 1:
            continue
        step = prod(sizes[k + 1 :])
        starts, digits = _few_digits(sizes[:k], most_digits)
        node.append(starts * s * step)
        count.append(digits)
        size.append(np.full(len(starts), s))
        stride.append(np.full(len(starts), step))
    empty = [np.empty(0, np.int64)]
    digits = np.concatenate(empty + count)
    return _Steps(
        np.concatenate(empty + node),
        np.concatenate(empty + size).astype(np.int64),
        np.concatenate(empty + stride).astype(np.int64),
        digits,
        digits == leaf_at,
    )


def _few_digits(sizes: tuple[int, ...], most: int) -> tuple[Integers, Integers]:
    """The cells of which at most `most` digits are not zero, increasing, and how many are not."""
    cells, digits = np.zeros(1, np.int64), np.zeros(1, np.int64)
    if most < 0:
        return cells[:0], digits[:0]
    for size in sizes:
        cells = (cells[:, None] * size + np.arange(size)).ravel()
        digits = (digits[:, None] + (np.arange(size) > 0)).ravel()
        few = digits <= most
        cells, digits = cells[few], digits[few]
    return cells, digits


# Compiled loops: weights[h, i] is the weight of the records whose leading attributes are number h, trailing ones i.


@njit(cache=True, fastmath={"reassoc", "contract"})
def add_rows(first, last, weights, row_class, sums):  # type: ignore[no-untyped-def]
    """sums[c, i] += Σ weights[h, i] over the rows h of class c, for columns i: each is added up in one order."""
    for h in range(weights.shape[0]):
        mine = sums[row_class[h], first:last]
        row = weights[h, first:last]
        for i in range(last - first):
            mine[i] += row[i]


@njit(cache=True)
def scale_rows(first, last, weights, out, in_place, row_class, factors, kept):  # type: ignore[no-untyped-def]
    """out[h, i] = weights[h, i] · factors[c, i] for every row h of class c; in place, rows of a kept class stay."""
    for h in range(first, last):
        c = row_class[h]
        if not (in_place and kept[c]):
            row = weights[h]
            scaled = out[h]
            factor = factors[c]
            for i in range(weights.shape[1]):
                scaled[i] = row[i] * factor[i]


@njit(cache=True, fastmath={"reassoc", "contract"})
def tail_survival(first_row, last_row, weights, node, size, stride, leaf, wanted, out):  # type: ignore[no-untyped-def]
    """Suffix sums along every trailing attribute, kept only where few digits are not zero.

    The cell with digits v becomes Σ of the cells with digits ≥ v. Step s of the pass replaces, at
    node[s], the size[s] neighbours at distance stride[s] by their suffix sums; nodes that already have as
    many digits as are wanted are not opened but summed (leaf). out[h] takes the cells `wanted` of row h.
    """
    length = weights.shape[1]
    cell = np.empty(length)
    for h in range(first_row, last_row):
        for i in range(length):
            cell[i] = weights[h, i]
        for s in range(node.shape[0]):
            # Unsigned places cannot count from the end, which lets the compiler use vectors.
            first = np.uint64(node[s])
            step = np.uint64(stride[s])
            at = first + np.uint64(size[s] - 2) * step
            while True:
                if leaf[s]:
                    total = 0.0
                    for i in range(step):
                        high = cell[at + step + i]
                        total += high
                        cell[at + i] += high
                    cell[at + step] = total
                else:
                    for i in range(step):
                        cell[at + i] += cell[at + step + i]
                if at == first:
                    break
                at -= step
        for i in range(wanted.shape[0]):
            out[h, i] = cell[wanted[i]]


@njit(cache=True)
def head_survival(table, node, size, stride, columns):  # type: ignore[no-untyped-def]
    """The same suffix sums along the leading attributes, in place, over whole rows of `table`.

    Step s needs only the first columns[s] columns: those whose own digits leave room for more.
    """
    for s in range(node.shape[0]):
        step = stride[s]
        width = columns[s]
        for v in range(size[s] - 2, -1, -1):
            at = node[s] + v * step
            for i in range(step):
                low = table[at + i]
                high = table[at + step + i]
                for c in range(width):
                    low[c] += high[c]
