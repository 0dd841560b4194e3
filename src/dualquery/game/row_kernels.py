"""Compiled row-wise best responses to the residual of noisy tables.

The residual G_c = N·y_c − counts_c(X), times the weight w_c of its table, is kept once per member
attribute of the table, each time with that attribute varying fastest: the gains of all values that an
attribute could take then lie side by side. A *view* is such a copy. Chains share nothing but the layout,
so the same seed gives the same rows on any number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

GUMBEL_BITS = 12
_MASK = np.uint64((1 << GUMBEL_BITS) - 1)
_GUMBELS_PER_WORD = 64 // GUMBEL_BITS
_middles = (np.arange(1 << GUMBEL_BITS) + 0.5) / (1 << GUMBEL_BITS)
GUMBEL = (-np.log(-np.log(_middles))).astype(np.float32)  # quantiles: a draw is a uniform index


@njit(cache=True, inline="always")
def _mixed(counter):  # type: ignore[no-untyped-def]
    """The counter's word of the splitmix64 generator (Steele, Lea, Flood 2014)."""
    z = counter
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, inline="always")
def _below(counter, bound):  # type: ignore[no-untyped-def]
    """A uniform index below a bound < 2³², by multiplication; its bias of 2⁻³² is of no consequence here."""
    return np.int64(((_mixed(counter) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit(cache=True)
def _cell(row, view, skipped, member, stride):  # type: ignore[no-untyped-def]
    """The place of a row in a view, as if the attribute `skipped` had value 0; and the stride of that one."""
    place = np.int64(0)
    step = np.int64(0)
    for m in range(member.shape[1]):
        j = member[view, m]
        if j < 0:
            break
        if j == skipped:
            step = stride[view, m]
        else:
            place += row[j] * stride[view, m]
    return place, step


@njit(cache=True)
def _move(row, j, old, new, views, first_view, table, first_copy, copy, offset, member, stride, weight, residual):  # type: ignore[no-untyped-def]
    """Move a row from value `old` to `new` of attribute j in every view of every table that contains j."""
    for e in range(first_view[j], first_view[j + 1]):
        t = table[views[e]]
        w = weight[t]
        for c in range(first_copy[t], first_copy[t + 1]):
            view = copy[c]
            place, step = _cell(row, view, j, member, stride)
            place += offset[view]
            residual[place + old * step] += w
            residual[place + new * step] -= w


@njit(cache=True, parallel=True)
def answer_rows(  # type: ignore[no-untyped-def]
    rows, residual, size, views, first_view, table, first_copy, copy, offset, member, stride, weight,
    temperature, passes, counters,
):
    """`passes` times over the rows of every chain, in random order: each row best-responds to the residual.

    rows[c] (N × d) and residual[c] (all views) belong to chain c and are changed in place, and so is the
    generator's counters[c]. A row's attributes move in random order. The gain of value v of attribute j is
    Σ over tables containing j of w·G at the row's cell with j := v, plus Σ w at the present value (which
    takes the row out of the counts); the value of greatest gain + temperature · Gumbel is taken.
    """
    chains, count, width = rows.shape
    widest = size.max()
    for chain in prange(chains):
        mine = residual[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(width)
        gain = np.empty(widest, np.float32)
        step = np.uint64(0x9E3779B97F4A7C15)
        present = np.zeros(width, np.float32)
        for j in range(width):
            for e in range(first_view[j], first_view[j + 1]):
                present[j] += weight[table[views[e]]]
        for _ in range(passes):
            for i in range(count - 1, 0, -1):
                counter += step
                k = _below(counter, i + 1)
                row_order[i], row_order[k] = row_order[k], row_order[i]
            for r in row_order:
                row = rows[chain, r]
                for i in range(width - 1, 0, -1):
                    counter += step
                    k = _below(counter, i + 1)
                    order[i], order[k] = order[k], order[i]
                for j in order:
                    values = size[j]
                    if values < 2 or first_view[j] == first_view[j + 1]:
                        continue
                    old = row[j]
                    gain[:values] = 0
                    for e in range(first_view[j], first_view[j + 1]):
                        view = views[e]
                        place = offset[view]
                        for m in range(member.shape[1] - 1):
                            i = member[view, m]
                            if i == j or i < 0:
                                break
                            place += row[i] * stride[view, m]
                        for v in range(values):
                            gain[v] += mine[place + v]
                    gain[old] += present[j]
                    if temperature > 0:
                        left = 0
                        word = np.uint64(0)
                        for v in range(values):
                            if left == 0:
                                counter += step
                                word = _mixed(counter)
                                left = _GUMBELS_PER_WORD
                            gain[v] += temperature * GUMBEL[word & _MASK]
                            word >>= np.uint64(GUMBEL_BITS)
                            left -= 1
                    best = old
                    for v in range(values):
                        if gain[v] > gain[best]:
                            best = v
                    if best != old:
                        _move(row, j, old, best, views, first_view, table, first_copy, copy, offset, member,
                              stride, weight, mine)
                        row[j] = best
        counters[chain] = counter
