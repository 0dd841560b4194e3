"""Compiled row-wise best responses to the residual of noisy tables.

The residual G_c = N·y_c − counts_c(X), times the weight of its table, is kept once per member attribute of
the table, each time with that attribute varying fastest: the gains of all values that an attribute could
take then lie side by side. Such a copy is a *view*. Chains share nothing but the layout, so the same seed
gives the same rows on any number of threads.

A table over binary attributes says as much as the signed counts of its subsets: with s_j = 1 − 2·value and
χ_B(x) = Π_{j ∈ B} s_j, the gain of a row is Σ_B g_B χ_B(x), one number g_B a set instead of 2^|S| a table and
view. What attribute j earns is then a quadratic form in the other signs,

    h_j = g_j + Σ_k g_jk s_k + Σ_{k<l} g_jkl s_k s_l,

which runs along contiguous memory: fifty attributes and all their 19,600 triples cost a row some ten
microseconds.
"""

from __future__ import annotations

import numpy as np

from dualquery.compiled import njit, prange

_BITS = 12
_MASK = np.uint64((1 << _BITS) - 1)
_DRAWS_PER_WORD = 64 // _BITS
_STEP = np.uint64(0x9E3779B97F4A7C15)
_levels = (np.arange(1 << _BITS) + 0.5) / (1 << _BITS)
GUMBEL = (-np.log(-np.log(_levels))).astype(np.float32)  # quantiles: a draw is a uniform index
LOGISTIC = np.log(_levels / (1 - _levels)).astype(np.float32)  # the difference of two Gumbels


@njit(cache=True, inline="always")
def _word(counter):  # type: ignore[no-untyped-def]
    """The counter's word of the splitmix64 generator (Steele, Lea, Flood 2014)."""
    z = counter
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, inline="always")
def _below(counter, bound):  # type: ignore[no-untyped-def]
    """An index below a bound < 2³² by multiplication; its bias of 2⁻³² is of no consequence here."""
    return np.int64(((_word(counter) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit(cache=True)
def _shuffle(order, counter):  # type: ignore[no-untyped-def]
    for i in range(order.shape[0] - 1, 0, -1):
        counter += _STEP
        k = _below(counter, i + 1)
        order[i], order[k] = order[k], order[i]
    return counter


@njit(cache=True, parallel=True)
def withdraw_rows(rows, residual, member, stride, offset, table, weight):  # type: ignore[no-untyped-def]
    """Subtract the weighted counts of every chain's rows from its residual, in every view."""
    for chain in prange(rows.shape[0]):
        for view in range(offset.shape[0]):
            w = weight[table[view]]
            for r in range(rows.shape[1]):
                place = offset[view]
                for m in range(member.shape[1]):
                    if member[view, m] < 0:
                        break
                    place += rows[chain, r, member[view, m]] * stride[view, m]
                residual[chain, place] -= w


@njit(cache=True)
def _move(row, j, old, new, views, table, first_copy, copy, member, stride, offset, weight, residual):  # type: ignore[no-untyped-def]
    """Move a row from value `old` to `new` of attribute j, in every view of every table that contains j."""
    for view_of_j in range(views[0], views[1]):
        t = table[view_of_j]
        w = weight[t]
        for c in range(first_copy[t], first_copy[t + 1]):
            view = copy[c]
            place = offset[view]
            step = np.int64(0)
            for m in range(member.shape[1]):
                i = member[view, m]
                if i < 0:
                    break
                if i == j:
                    step = stride[view, m]
                else:
                    place += row[i] * stride[view, m]
            residual[np.uint64(place + old * step)] += w
            residual[np.uint64(place + new * step)] -= w


@njit(cache=True, parallel=True)
def answer_rows(  # type: ignore[no-untyped-def]
    rows,
    residual,
    size,
    first_view,
    table,
    first_copy,
    copy,
    member,
    stride,
    other,
    other_stride,
    offset,
    weight,
    lean,
    first_value,
    temperature,
    counters,
):
    """Once over the rows of every chain, in random order: each row best-responds to the residual.

    rows[c] (N × d) and residual[c] (all views) belong to chain c and are changed in place, and so is its
    generator counters[c]. The attributes of a row move in random order. The gain of value v of attribute j
    is Σ over tables containing j of w·G at the row's cell with j := v, plus Σ w at the present value (which
    takes the row itself out of the counts); the value of greatest gain + temperature · (lean + Gumbel) is taken,
    where lean (at first_value[j] + v) is the logarithm of the fraction that rows should have without any pull.

    The views in which j moves are those from first_view[j] to first_view[j + 1]; `other` and `other_stride`
    hold their members but j, padded by strides of zero.
    """
    chains, count, width = rows.shape
    widest = size.max()
    others = other.shape[1]
    for chain in prange(chains):
        mine = residual[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(width)
        gain = np.empty(widest, np.float32)
        itself = np.zeros(width, np.float32)
        for j in range(width):
            for view in range(first_view[j], first_view[j + 1]):
                itself[j] += weight[table[view]]
        counter = _shuffle(row_order, counter)
        for r in row_order:
            row = rows[chain, r]
            counter = _shuffle(order, counter)
            for j in order:
                values = size[j]
                views = first_view[j], first_view[j + 1]
                if values < 2 or views[0] == views[1]:
                    continue
                old = row[j]
                for v in range(values):
                    gain[v] = 0
                for view in range(views[0], views[1]):
                    place = offset[view]
                    for m in range(others):
                        place += row[other[view, m]] * other_stride[view, m]
                    here = mine[
                        place : place + values
                    ]  # a slice, so that the loop becomes vector instructions
                    for v in range(values):
                        gain[v] += here[v]
                gain[old] += itself[j]
                if temperature > 0:
                    leaning = lean[first_value[j] : first_value[j] + values]
                    left = 0
                    word = np.uint64(0)
                    for v in range(values):
                        if left == 0:
                            counter += _STEP
                            word = _word(counter)
                            left = _DRAWS_PER_WORD
                        gain[v] += temperature * (leaning[v] + GUMBEL[word & _MASK])
                        word >>= np.uint64(_BITS)
                        left -= 1
                best = old
                for v in range(values):
                    if gain[v] > gain[best]:
                        best = v
                if best != old:
                    _move(
                        row,
                        j,
                        old,
                        best,
                        views,
                        table,
                        first_copy,
                        copy,
                        member,
                        stride,
                        offset,
                        weight,
                        mine,
                    )
                    row[j] = best
        counters[chain] = counter


@njit(cache=True, parallel=True)
def withdraw_items(rows, single, pair, weight_single, weight_pair):  # type: ignore[no-untyped-def]
    """Subtract the weighted counts of items and of pairs of items of every chain's rows from its residual."""
    items = rows.shape[2]
    for chain in prange(rows.shape[0]):
        held = np.empty(items, np.int64)
        for r in range(rows.shape[1]):
            number = 0
            for j in range(items):
                if rows[chain, r, j]:
                    held[number] = j
                    number += 1
            for a in range(number):
                single[chain, held[a]] -= weight_single
                for b in range(number):
                    if a != b:
                        pair[chain, held[a], held[b]] -= weight_pair


@njit(cache=True, parallel=True)
def answer_item_rows(  # type: ignore[no-untyped-def]
    rows, single, pair, weight_single, weight_pair, lean, temperature, counters
):
    """As `answer_rows` for binary attributes whose measured cells are 'has i' and 'has i and j' alone.

    Taking item j in earns single[j] + Σ over the other items i of the row of pair[i, j], so that a row costs
    its items times all items, however many tables there are; lean[j] is the log-odds of j without any pull.
    pair[c] is symmetric with zeros on its diagonal.
    """
    chains, count, items = rows.shape
    for chain in prange(chains):
        one = single[chain]
        two = pair[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(items)
        gain = np.empty(items, np.float32)
        held = np.empty(items, np.int64)
        counter = _shuffle(row_order, counter)
        counter = _shuffle(order, counter)
        for r in row_order:
            row = rows[chain, r]
            gain[:] = one
            number = 0
            for i in range(items):
                if row[i]:
                    held[number] = i
                    number += 1
                    near = two[i]
                    for j in range(items):
                        gain[j] += near[j]
            left = 0
            word = np.uint64(0)
            for j in order:
                if left == 0:
                    counter += _STEP
                    word = _word(counter)
                    left = _DRAWS_PER_WORD
                noise = temperature * (lean[j] + LOGISTIC[word & _MASK])
                word >>= np.uint64(_BITS)
                left -= 1
                old = row[j]
                # With the row taken out, putting j in lowers the squared error by 2·Σ w·(G − ½).
                others = number - 1 if old else number
                half = np.float32(0.5) * (weight_single + weight_pair * others)
                new = np.uint8(gain[j] + noise > (-half if old else half))
                if new == old:
                    continue
                near = two[j]
                if new:
                    one[j] -= weight_single
                    for a in range(number):
                        near[held[a]] -= weight_pair
                        two[held[a], j] -= weight_pair
                    held[number] = j
                    number += 1
                    for i in range(items):
                        gain[i] += near[i]
                else:
                    for i in range(items):
                        gain[i] -= near[i]
                    for a in range(number):
                        if held[a] == j:
                            held[a] = held[number - 1]
                            number -= 1
                            break
                    one[j] += weight_single
                    for a in range(number):
                        near[held[a]] += weight_pair
                        two[held[a], j] += weight_pair
                row[j] = new
        counters[chain] = counter


@njit(cache=True, parallel=True)
def signed_sums(signs, has_triples):  # type: ignore[no-untyped-def]
    """Σ over a chain's rows of χ_B, for sets of one, two and three attributes; the larger ones symmetric."""
    chains, count, width = signs.shape
    one = np.zeros((chains, width), np.float32)
    two = np.zeros((chains, width, width), np.float32)
    deep = width if has_triples else 0
    three = np.zeros((chains, deep, deep, deep), np.float32)
    for chain in prange(chains):
        for r in range(count):
            row = signs[chain, r]
            for j in range(width):
                one[chain, j] += row[j]
                for k in range(width):
                    both = row[j] * row[k]
                    two[chain, j, k] += both
                    if has_triples and j < k:
                        here = three[chain, j, k]
                        for m in range(k + 1, width):
                            here[m] += both * row[m]
        if has_triples:
            for j in range(width):
                for k in range(j + 1, width):
                    for m in range(k + 1, width):
                        value = three[chain, j, k, m]
                        three[chain, j, m, k] = value
                        three[chain, k, j, m] = value
                        three[chain, k, m, j] = value
                        three[chain, m, j, k] = value
                        three[chain, m, k, j] = value
    return one, two, three


@njit(cache=True)
def _flip(row, j, one, two, three, weight_one, weight_two, weight_three):  # type: ignore[no-untyped-def]
    """Turn the sign of attribute j: χ_B falls by 2 s_j χ_{B∖j} for every B that contains j.

    In the form of attribute k the residual of {j, k, m} is three[k, j, m] + three[k, m, j]: one of the two is
    brought up to date, the one that lies in a row.
    """
    width = row.shape[0]
    sign = row[j]
    one[j] += np.float32(2) * sign * weight_one[j]
    for k in range(width):
        change = np.float32(2) * sign * weight_two[j, k]
        two[j, k] += change * row[k]
        two[k, j] += change * row[k]
    if three.shape[0] > 0:
        for k in range(width):
            half = sign * row[k]
            mine, weights = three[j, k], weight_three[j, k]
            for m in range(width):
                mine[m] += half * weights[m] * row[m]
            theirs, weights = three[k, j], weight_three[k, j]
            for m in range(width):
                theirs[m] += np.float32(2) * half * weights[m] * row[m]
    row[j] = -sign


@njit(cache=True, parallel=True)
def answer_binary_rows(  # type: ignore[no-untyped-def]
    signs, one, two, three, weight_one, weight_two, weight_three, moves, lean, temperature, counters
):
    """As `answer_rows`: once over the rows of every chain, in random order, each best-responding.

    signs (chain, row, attribute; ±1) and the residuals of every chain are changed in place, and so are the
    generators. three[c, j, k, m] + three[c, j, m, k] is the residual of {j, k, m}; weights are zero where a
    set is not asked for and where attributes repeat. lean[j] is the log-odds of value 0 without any pull,
    moves[j] whether j moves at all.
    """
    chains, count, width = signs.shape
    for chain in prange(chains):
        own_one, own_two, own_three = one[chain], two[chain], three[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(width)
        form = np.empty(width, np.float32)
        itself = np.zeros(width, np.float32)
        for j in range(width):
            itself[j] = weight_one[j] + weight_two[j].sum()
            if own_three.shape[0] > 0:
                itself[j] += np.float32(0.5) * weight_three[j].sum()
        counter = _shuffle(row_order, counter)
        for r in row_order:
            row = signs[chain, r]
            counter = _shuffle(order, counter)
            left = 0
            word = np.uint64(0)
            for j in order:
                if not moves[j]:
                    continue
                for m in range(width):
                    form[m] = own_two[j, m]
                if own_three.shape[0] > 0:
                    for k in range(width):
                        sign = row[k]
                        here = own_three[j, k]
                        for m in range(width):
                            form[m] += sign * here[m]
                gain = own_one[j] + row[j] * itself[j]
                for m in range(width):
                    gain += form[m] * row[m]
                gain *= np.float32(2)
                if temperature > 0:
                    if left == 0:
                        counter += _STEP
                        word = _word(counter)
                        left = _DRAWS_PER_WORD
                    gain += temperature * (lean[j] + LOGISTIC[word & _MASK])
                    word >>= np.uint64(_BITS)
                    left -= 1
                if (gain < 0) == (row[j] > 0) and gain != 0:
                    _flip(row, j, own_one, own_two, own_three, weight_one, weight_two, weight_three)
        counters[chain] = counter
