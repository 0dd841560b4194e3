"""The compiled passes over whole units; `fitting.units` says what they do, and what `layout`, `held`, `found` are."""

from __future__ import annotations

from math import sqrt

import numpy as np

from dualquery.fitting.cpu import GUMBEL, LOGISTIC, STEP, index_below, shuffle, word_of
from dualquery.loops import njit
from dualquery.queries.views import MOST_PAIRED

_BITS, _PER_WORD = np.uint64(12), 5


@njit(cache=True)
def _find(held, layout, group, u, r, a, found, n):  # type: ignore[no-untyped-def]
    """Behind the first n: the flat records, in a group of tables, of unit u (r < 0) or with its row r, whose cell an
    attribute a moves; with a < 0 all. How many there are then.

    A cell is a sum: of the table, of the unit, of the one row and of the other.
    """
    role, attribute, stride = layout.role, layout.attribute, layout.stride
    units, rows, begins = held.units, held.rows, held.begin
    cell, steps, pulls, owns = found.cell, found.step, found.pull, found.own
    places = role.shape[1]
    for q in range(layout.of[group], layout.of[group + 1]):
        t = layout.listed[q]
        kind, w, g = layout.kind[t], layout.weight[t], layout.child[t]
        base, of_unit, of_one, of_two = layout.offset[t], 0, 0, 0
        for k in range(places):
            if role[t, k] < 0:
                break
            if role[t, k] == 0:
                base += units[u, attribute[t, k]] * stride[t, k]
            if attribute[t, k] == a:
                if role[t, k] == 0:
                    of_unit = stride[t, k]
                elif role[t, k] == 1:
                    of_one = stride[t, k]
                else:
                    of_two = stride[t, k]
        if kind == 0:
            cell[n], steps[n], pulls[n], owns[n] = base, of_unit, 1.0, w
            n += 1
            continue
        begin, end = begins[g, u], begins[g, u + 1]
        own = w * layout.counts[g, kind, end - begin]
        if kind == 1:
            for i in range(begin if r < 0 else r, end if r < 0 else r + 1):
                place = base
                for k in range(places):
                    if role[t, k] == 1:
                        place += rows[i, attribute[t, k]] * stride[t, k]
                cell[n], steps[n], pulls[n], owns[n] = place, of_unit if r < 0 else of_one, 1.0, own
                n += 1
            continue
        chained = layout.chained[g]
        paired = end - begin if chained else min(end - begin, MOST_PAIRED)
        if paired < 2 or r >= begin + paired:
            continue
        pull = 1.0 / sqrt(paired - 1.0 if chained else paired * (paired - 1.0))
        for i in range(begin if r < 0 else r, begin + paired if r < 0 else r + 1):
            one, two = base, base
            for k in range(places):
                if role[t, k] == 1:
                    one += rows[i, attribute[t, k]] * stride[t, k]
                elif role[t, k] == 2:
                    two += rows[i, attribute[t, k]] * stride[t, k]
            first, last = begin, begin + paired
            if chained:
                first, last = max(first, i - 1), min(last, i + 2)
            for j in range(first, last):
                if i == j:
                    continue
                as_one, as_two = 0, 0
                for k in range(places):
                    if role[t, k] == 1:
                        as_one += rows[j, attribute[t, k]] * stride[t, k]
                    elif role[t, k] == 2:
                        as_two += rows[j, attribute[t, k]] * stride[t, k]
                if (r < 0 or a < 0 or of_one > 0) and not (chained and j < i):
                    cell[n], steps[n], pulls[n], owns[n] = (
                        one + as_two,
                        of_unit if r < 0 else of_one,
                        pull,
                        own,
                    )
                    n += 1
                if r >= 0 and (a < 0 or of_two > 0) and not (chained and j > i):
                    cell[n], steps[n], pulls[n], owns[n] = two + as_one, of_two, pull, own
                    n += 1
    return n


@njit(cache=True)
def _tally(held, layout, u, r, first, last, found, n):  # type: ignore[no-untyped-def]
    """Behind the first n: what row r, as it is, does to some tallies, which is to enter the cell of one row more, and
    to leave the one before."""
    rows = held.rows
    for q in range(first, last):
        tally = layout.tallies[q]
        g, most, many = layout.tally_child[tally], layout.tally_most[tally], 0
        begin, end = held.begin[g, u], held.begin[g, u + 1]
        one, two = layout.tally_set[tally, 0], layout.tally_set[tally, 1]
        for i in range(begin, end):
            if i != r and rows[i, one] == rows[r, one] and rows[i, two] == rows[r, two]:
                many += 1
        if many >= most:
            continue
        once = layout.tally_counts[tally, end - begin]
        own = once * layout.tally_weight[tally]
        code = rows[r, one] if one == two else rows[r, one] * layout.row_sizes[g, two] + rows[r, two]
        cell = layout.tally_offset[tally] + code * most + many
        found.cell[n], found.step[n], found.pull[n], found.own[n] = cell, 0, once, own
        n += 1
        if many:
            found.cell[n], found.step[n], found.pull[n], found.own[n] = cell - 1, 0, -once, -own
            n += 1
    return n


@njit(cache=True)
def _add_tally_gains(held, layout, u, r, first, last, a, values, residual, gain):  # type: ignore[no-untyped-def]
    """gain[v] += what the residual says of row r with each value v of attribute a in these tallies."""
    rows = held.rows
    before = rows[r, a]
    for q in range(first, last):
        tally = layout.tallies[q]
        g, most = layout.tally_child[tally], layout.tally_most[tally]
        begin, end = held.begin[g, u], held.begin[g, u + 1]
        one, two = layout.tally_set[tally, 0], layout.tally_set[tally, 1]
        once = layout.tally_counts[tally, end - begin]
        for v in range(values):
            rows[r, a] = v
            many = 0
            for i in range(begin, end):
                if i != r and rows[i, one] == rows[r, one] and rows[i, two] == rows[r, two]:
                    many += 1
            if many < most:
                code = rows[r, one] if one == two else rows[r, one] * layout.row_sizes[g, two] + rows[r, two]
                cell = layout.tally_offset[tally] + code * most + many
                gain[v] += once * (residual[cell] - (residual[cell - 1] if many else 0.0))
    rows[r, a] = before


@njit(cache=True)
def _add(found, first, last, residual, sign):  # type: ignore[no-untyped-def]
    for e in range(first, last):
        residual[found.cell[e]] += sign * found.own[e]


@njit(cache=True)
def _sum(found, first, last, residual):  # type: ignore[no-untyped-def]
    total = 0.0
    for e in range(first, last):
        total += found.pull[e] * residual[found.cell[e]]
    return total


@njit(cache=True)
def _answer(  # type: ignore[no-untyped-def]
    held, layout, g, u, r, a, residual, found, temperature, counter, gain
):
    """Attribute a of unit u, or of its row r, best-responds."""
    if r < 0:
        values, old, group = layout.unit_sizes[a], held.units[u, a], a
    else:
        values, old, group = layout.row_sizes[g, a], held.rows[r, a], layout.of_rows[g] + a
    if values < 2:
        return counter
    n = last = _find(held, layout, group, u, r, a, found, 0)
    first, end = layout.of_tallies[group], layout.of_tallies[group + 1]
    if r >= 0:
        last = _tally(held, layout, u, r, first, end, found, n)
    _add(found, 0, last, residual, 1.0)
    gain[:values] = 0.0
    for e in range(n):
        step, pull = found.step[e], found.pull[e]
        place = found.cell[e] - old * step
        for v in range(values):
            gain[v] += pull * residual[place + v * step]
    if r >= 0:
        _add_tally_gains(held, layout, u, r, first, end, a, values, residual, gain)
    left, word = 0, np.uint64(0)
    best = old
    for v in range(values):
        if left == 0:
            counter += STEP
            word = word_of(counter)
            left = _PER_WORD
        gain[v] += temperature * GUMBEL[word & np.uint64(4095)]
        word >>= _BITS
        left -= 1
    for v in range(values):
        if gain[v] > gain[best]:
            best = v
    if r < 0:
        held.units[u, a] = best
    else:
        held.rows[r, a] = best
        last = _tally(held, layout, u, r, first, end, found, n)
    for e in range(n):
        residual[found.cell[e] + (best - old) * found.step[e]] -= found.own[e]
    _add(found, n, last, residual, -1.0)
    return counter


@njit(cache=True)
def answer_units(held, layout, residual, found, temperature, counters):  # type: ignore[no-untyped-def]
    """Once over all units in random order: first their own attributes, then those of their rows. The sizes, which are
    the last attributes of a unit, stay."""
    children = len(layout.width)
    own = held.units.shape[1] - children
    order = np.arange(len(held.units))
    counter = shuffle(order, counters[0])
    gain = np.empty(max(layout.unit_sizes.max(), layout.row_sizes.max()))
    for u in order:
        for a in range(own):
            counter = _answer(held, layout, 0, u, -1, a, residual, found, temperature, counter, gain)
        for g in range(children):
            for r in range(held.begin[g, u], held.begin[g, u + 1]):
                for a in range(layout.width[g]):
                    counter = _answer(held, layout, g, u, r, a, residual, found, temperature, counter, gain)
    counters[0] = counter


@njit(cache=True)
def _find_row(held, layout, g, u, r, found, n):  # type: ignore[no-untyped-def]
    """All flat records with row r, and its tallies."""
    group = layout.of_rows[g] + layout.width[g]
    n = _find(held, layout, group, u, r, -1, found, n)
    first, last = layout.of_tallies[group], layout.of_tallies[group + 1]
    return _tally(held, layout, u, r, first, last, found, n)


@njit(cache=True)
def swap_rows(held, layout, residual, found, temperature, counters):  # type: ignore[no-untyped-def]
    """As many proposals as there are rows: two rows of different units change places."""
    counter, rows = counters[0], held.rows
    for g in range(len(layout.width)):
        width = layout.width[g]
        first, last = held.begin[g, 0], held.begin[g, -1]
        owner = np.empty(last - first, np.int64)
        for u in range(len(held.units)):
            owner[held.begin[g, u] - first : held.begin[g, u + 1] - first] = u
        for _ in range(last - first):
            counter += STEP
            r = first + index_below(counter, last - first)
            counter += STEP
            s = first + index_below(counter, last - first)
            counter += STEP
            noise = LOGISTIC[word_of(counter) & np.uint64(4095)]
            u, v = owner[r - first], owner[s - first]
            same = u == v
            if not same:
                same = True
                for a in range(width):
                    same = same and rows[r, a] == rows[s, a]
            if same:
                continue
            n = _find_row(held, layout, g, v, s, found, _find_row(held, layout, g, u, r, found, 0))
            _add(found, 0, n, residual, 1.0)
            stay = _sum(found, 0, n, residual)
            for a in range(width):
                rows[r, a], rows[s, a] = rows[s, a], rows[r, a]
            more = _find_row(held, layout, g, v, s, found, _find_row(held, layout, g, u, r, found, n))
            if _sum(found, n, more, residual) - stay + temperature * noise > 0:
                _add(found, n, more, residual, -1.0)
                continue
            for a in range(width):
                rows[r, a], rows[s, a] = rows[s, a], rows[r, a]
            _add(found, 0, n, residual, -1.0)
    counters[0] = counter
