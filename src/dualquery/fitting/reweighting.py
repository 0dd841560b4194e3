"""Weights of given rows by least relative entropy, so that their tables come near to noisy ones.

Of rows x with weights q, interactions y_S and penalties v_S (in squared fractions),

    min_w  KL(w ‖ q) + Σ_S ‖y_S − C w_S‖² / (2 v_S),

where w_S is the table of w over S, and C takes away what smaller sets say. Its dual is smooth and has one number a
cell, whatever the number of rows:

    min_θ  log Σ_r q_r exp(Σ_S (Cθ_S)[x_r]) − θ·y + ½ Σ_S v_S ‖θ_S‖².

It is solved by L-BFGS (Nocedal 1980), in θ scaled by 1/√v. One evaluation is a gather and a scatter over rows × sets,
the same bytes by any number of threads: rows add up what sets say of them, and sets what rows do, each in its order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dualquery.loops import in_shares, njit
from dualquery.queries.tables import Tables, centred
from dualquery.types import Cells, Integers, Reals, Set

MEMORY = 20  # steps that L-BFGS remembers
LEAST_PENALTY = 1e-12  # keeps scales finite
ENOUGH = 1e-4  # of what the slope promises, that a step must gain (Armijo 1966)
HALVINGS = 30  # of a step before it is given up
CONVERGED = 1e-9  # of a slope: nothing is to be gained any more
BLOCK = 4_096  # rows that a thread works through at once


@dataclass(frozen=True, eq=False)
class WeighedRows:
    """Rows of which tables are made again and again: their codes, a column in one row, and the tables."""

    codes: NDArray[np.int32]  # attribute, row
    tables: Tables

    @staticmethod
    def of(rows: NDArray[np.integer], tables: Tables) -> WeighedRows:
        return WeighedRows(np.ascontiguousarray(rows.T, np.int32), tables)

    @cached_property
    def _strides(self) -> tuple[Integers, Integers]:
        """Of each set its attributes, −1 where it has fewer, and what a step along each is worth."""
        sets, sizes = self.tables.sets, self.tables.domain.sizes
        widest = max(map(len, sets), default=1)
        members, strides = np.full((len(sets), widest), -1, np.int64), np.zeros((len(sets), widest), np.int64)
        for number, each in enumerate(sets):
            step = 1
            for place in range(len(each) - 1, -1, -1):
                members[number, place], strides[number, place] = each[place], step
                step *= int(sizes[each[place]])
        return members, strides

    def answers(self, weights: Reals) -> list[Cells]:
        """The tables of weighted rows."""
        return self.tables.split(self.totals(weights))

    def totals(self, weights: Reals) -> Reals:
        """The same, one behind the other."""
        out = np.zeros(self.tables.size)
        in_shares(
            scatter, len(self.tables.sets), self.codes, *self._strides, self.tables.starts, weights, out
        )
        return out

    def said(self, numbers: Reals) -> Reals:
        """Of each row the sum of the numbers in its cells."""
        out = np.zeros(self.codes.shape[1])
        blocks = -(-len(out) // BLOCK)
        in_shares(gather, blocks, self.codes, *self._strides, self.tables.starts, numbers, out)
        return out

    def rounded(self, wanted: Reals, order: Integers) -> Integers:
        """A whole number of each row, next to the wanted one on either side, such that tables hardly change.

        Rows are rounded one after the other in the given order, up where that leaves the smaller sum of squares over
        its cells of what was dealt out too much: of the mean m over them and the fraction f, where m < f − ½.
        """
        out = np.zeros(len(wanted), np.int64)
        deal(self.codes, *self._strides, self.tables.starts, wanted, order, np.zeros(self.tables.size), out)
        return out

    def centred(self, numbers: Reals) -> Reals:
        """Each table without what smaller sets say."""
        return joined([centred(each) for each in self.tables.split(numbers)])

    def at(self, members: Set) -> int:
        """The number of a set."""
        return self.tables.sets.index(members)


def joined(tables: Sequence[Cells]) -> Reals:
    """Tables one behind the other."""
    return np.concatenate([each.ravel() for each in tables]) if tables else np.empty(0)


@njit(cache=True)
def gather(lower, upper, codes, members, strides, starts, numbers, out):  # type: ignore[no-untyped-def]
    """out[r] = Σ_S numbers[the cell of row r in S]."""
    rows = out.shape[0]
    for block in range(lower, upper):
        first, last = block * BLOCK, min(rows, (block + 1) * BLOCK)
        for s in range(members.shape[0]):
            for r in range(first, last):
                cell = starts[s]
                for m in range(members.shape[1]):
                    if members[s, m] >= 0:
                        cell += codes[members[s, m], r] * strides[s, m]
                out[r] += numbers[cell]


@njit(cache=True)
def scatter(lower, upper, codes, members, strides, starts, weights, out):  # type: ignore[no-untyped-def]
    """out[c] = Σ_r weights[r] over the rows in cell c."""
    for s in range(lower, upper):
        for r in range(weights.shape[0]):
            cell = starts[s]
            for m in range(members.shape[1]):
                if members[s, m] >= 0:
                    cell += codes[members[s, m], r] * strides[s, m]
            out[cell] += weights[r]


@njit(cache=True)
def deal(codes, members, strides, starts, wanted, order, over, out):  # type: ignore[no-untyped-def]
    """out[r] = ⌊wanted[r]⌋ or one more; `over` is what each cell has been dealt beyond what was wanted."""
    cells = np.empty(members.shape[0], np.int64)
    for r in order:
        whole = int(np.floor(wanted[r]))
        part, total = wanted[r] - whole, 0.0
        for s in range(members.shape[0]):
            cells[s] = starts[s]
            for m in range(members.shape[1]):
                if members[s, m] >= 0:
                    cells[s] += codes[members[s, m], r] * strides[s, m]
            total += over[cells[s]]
        up = 1 if total < members.shape[0] * (part - 0.5) else 0
        for cell in cells:
            over[cell] += up - part
        out[r] = whole + up


class Weighed(Protocol):
    """Rows, or units (`fitting.public_units`), of which tables are made again and again."""

    def totals(self, weights: Reals, /) -> Reals: ...

    def said(self, numbers: Reals, /) -> Reals: ...

    def centred(self, numbers: Reals, /) -> Reals: ...


def reweighted(rows: Weighed, prior: Reals, target: Reals, penalty: Reals, steps: int) -> Reals:
    """The weights w that are least far from the prior's, where tables come near to the target; they sum to one."""
    logarithm = np.log(np.maximum(prior / prior.sum(), np.finfo(np.float64).tiny))
    scale = 1 / np.sqrt(penalty + LEAST_PENALTY)

    def weights(scaled: Reals) -> tuple[Reals, float]:
        exponent = rows.said(rows.centred(scaled * scale)) + logarithm
        top = float(exponent.max())
        grown = np.exp(exponent - top)
        total = float(grown.sum())
        return grown / total, top + math.log(total)

    def dual(scaled: Reals) -> tuple[float, Reals]:
        theta = scaled * scale
        held, value = weights(scaled)
        slope = rows.centred(rows.totals(held)) - target + penalty * theta
        return value - float(theta @ target) + 0.5 * float((penalty * theta) @ theta), slope * scale

    return weights(least(dual, np.zeros(len(target)), steps))[0]


def least(function: Callable[[Reals], tuple[float, Reals]], start: Reals, steps: int) -> Reals:
    """Where a smooth convex function is least, after so many steps of L-BFGS at most."""
    here, (value, slope) = start, function(start)
    moved: list[tuple[Reals, Reals]] = []  # of earlier steps: how far, and by how much the slope changed
    for _ in range(steps):
        way = -_curved(slope, moved)
        promise = float(slope @ way)
        if promise > -CONVERGED:
            break
        step = 1.0 if moved else min(1.0, 1 / math.sqrt(-promise))
        for _ in range(HALVINGS):
            there = here + step * way
            reached, new_slope = function(there)
            if reached <= value + ENOUGH * step * promise:
                break
            step /= 2
        else:
            break
        moved = [*moved, (there - here, new_slope - slope)][-MEMORY:]
        here, value, slope = there, reached, new_slope
    return here


def _curved(slope: Reals, moved: Sequence[tuple[Reals, Reals]]) -> Reals:
    """The slope times the inverse curvature that earlier steps have shown (Nocedal's two loops)."""
    out, kept = slope.copy(), []
    for far, change in reversed(moved):
        curve = 1 / max(float(far @ change), np.finfo(np.float64).tiny)
        part = curve * float(far @ out)
        out -= part * change
        kept.append((far, change, curve, part))
    if moved:
        far, change = moved[-1]
        out *= float(far @ change) / max(float(change @ change), np.finfo(np.float64).tiny)
    for far, change, curve, part in reversed(kept):
        out += (part - curve * float(change @ out)) * far
    return out
