"""The compiled fitter: row-wise best responses to the residual of noisy tables, a chain a thread.

The residual G_c = N·y_c − counts_c(X), times the weight of its table, is kept once per member attribute of
the table, each time with that attribute varying fastest: the gains of all values that an attribute could
take then lie side by side. Such a copy is a *view*. Chains share nothing but the layout, so the same seed
gives the same rows on any number of threads.

A table over binary attributes says as much as the signed counts of its subsets: with s_j = 1 − 2·value and
χ_B(x) = Π_{j ∈ B} s_j, the gain of a row is Σ_B g_B χ_B(x), one number g_B a set instead of 2^|S| a table and
view. What attribute j earns is then a quadratic form in the other signs,

    h_j = g_j + Σ_k g_jk s_k + Σ_{k<l} g_jkl s_k s_l,

which runs along contiguous memory: fifty attributes and all their 19,600 triples cost a row some ten
microseconds. ‖t‖² over the cells of S is 2^−|S| Σ_{B ⊆ S} χ_B(t)², so that a table of weight w and pull w·y adds
w·2^−|S| to the weight of each subset B and 2^−|S| χ_B(w·y) to its pull. (That of the empty set moves no row.)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.fitting.fitter import RAREST, Chains, ItemTargets, Seeds, Targets
from dualquery.loops import LANES, add_up, in_shares, njit, popcount
from dualquery.table.records import pack_bits
from dualquery.types import Cells, Integers, Set

BINARY_ATTRIBUTES = 160  # of which all triples are kept at once, in every chain: 16 MB
BINARY_ORDER = 3
LEAST_TABLES = 64  # that a thread begins with
AT_ONCE = 1024  # rows whose cells are worked out before they are counted

Floats = NDArray[np.float32]


class CompiledFitter:
    """Chooses the kernel that is fastest for the targets; all play the same game."""

    def fit(
        self, targets: Targets | ItemTargets, start: Chains, heat: Sequence[float], seeds: Seeds
    ) -> Iterator[Chains]:
        if isinstance(targets, ItemTargets):
            return item_passes(targets, start, heat, seeds)
        if all_binary(targets.sizes, max(len(members) for members in targets.pull)):
            return binary_passes(targets, start, heat, seeds)
        return table_passes(targets, start, heat, seeds)


COMPILED = CompiledFitter()


def all_binary(sizes: NDArray[np.integer], order: int) -> bool:
    """Whether sets of up to this order, of attributes of these sizes, are fitted by signed counts."""
    return bool(np.all(sizes == 2)) and order <= BINARY_ORDER and len(sizes) <= BINARY_ATTRIBUTES


# The noise of all kernels

_BITS = 12
_MASK = np.uint64((1 << _BITS) - 1)
_DRAWS_PER_WORD = 64 // _BITS
STEP = np.uint64(0x9E3779B97F4A7C15)
_levels = (np.arange(1 << _BITS) + 0.5) / (1 << _BITS)
GUMBEL = (-np.log(-np.log(_levels))).astype(np.float32)  # quantiles: a draw is a uniform index
LOGISTIC = np.log(_levels / (1 - _levels)).astype(np.float32)  # the difference of two Gumbels


@njit(cache=True, inline="always")
def word_of(counter):  # type: ignore[no-untyped-def]
    """The counter's word of the splitmix64 generator (Steele, Lea, Flood 2014)."""
    z = counter
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@njit(cache=True, inline="always")
def index_below(counter, bound):  # type: ignore[no-untyped-def]
    """An index below a bound < 2³² by multiplication; its bias of 2⁻³² is of no consequence here."""
    return np.int64(((word_of(counter) >> np.uint64(32)) * np.uint64(bound)) >> np.uint64(32))


@njit(cache=True)
def shuffle(order, counter):  # type: ignore[no-untyped-def]
    for i in range(order.shape[0] - 1, 0, -1):
        counter += STEP
        k = index_below(counter, i + 1)
        order[i], order[k] = order[k], order[i]
    return counter


# Tables, each in a view of each of its attributes


class Views(NamedTuple):
    """Where each cell of each view lies.

    Views are numbered by their moving attribute, which is their last member: those of attribute j are
    first_view[j] to first_view[j + 1]. View v belongs to table[v]; the views of table t are
    copy[first_copy[t] : first_copy[t + 1]], in the order of its attributes. Its members but the moving one are
    `other`, padded by strides of zero.
    """

    size: Integers
    first_view: Integers
    table: Integers
    first_copy: Integers
    copy: Integers
    member: Integers
    stride: Integers
    other: Integers
    other_stride: Integers
    offset: Integers  # and at the end the number of all cells


def views_of(sizes: Integers, sets: Sequence[Set]) -> Views:
    """The views of some tables."""
    size = np.ascontiguousarray(sizes, np.int64)
    orders = np.array([len(members) for members in sets], np.int64)
    first_copy = np.concatenate([[0], np.cumsum(orders)]).astype(np.int64)
    entries, width = int(first_copy[-1]), int(orders.max())
    member = np.full((entries, width), -1, np.int64)  # of each table and attribute, in their order at first
    for order in np.unique(orders).tolist():
        which = np.flatnonzero(orders == order)
        members = np.array([sets[t] for t in which.tolist()], np.int64)
        for last in range(order):
            columns = [*(m for m in range(order) if m != last), last]
            member[first_copy[which] + last, :order] = members[:, columns]
    table = np.repeat(np.arange(len(sets)), orders)
    moving = member[np.arange(entries), orders[table] - 1]
    by_attribute = np.argsort(moving, kind="stable")
    copy = np.empty(entries, np.int64)
    copy[by_attribute] = np.arange(entries)
    member, table, moving = member[by_attribute], table[by_attribute], moving[by_attribute]
    long = np.where(member >= 0, size[member], 1)
    stride = np.ones_like(member)
    for m in range(width - 2, -1, -1):
        stride[:, m] = stride[:, m + 1] * long[:, m + 1]
    others = slice(0, max(1, width - 1))
    fixed = (member[:, others] >= 0) & (member[:, others] != moving[:, None])
    return Views(
        size=size,
        first_view=np.searchsorted(moving, np.arange(len(size) + 1)).astype(np.int64),
        table=table,
        first_copy=first_copy,
        copy=copy,
        member=member,
        stride=np.where(member >= 0, stride, 0),
        other=np.where(fixed, member[:, others], 0),
        other_stride=np.where(fixed, stride[:, others], 0),
        offset=np.concatenate([[0], np.cumsum(stride[:, 0] * long[:, 0])]).astype(np.int64),
    )


def spread(views: Views, tables: Sequence[Cells], times: float = 1.0) -> Floats:
    """Every table, so many times, written into each of its views."""
    nobody = np.zeros((1, 0, len(views.size)), np.int32)
    return residuals(views, tables, times, nobody, np.zeros(len(tables), np.float32))[0, : views.offset[-1]]


def residuals(
    views: Views, tables: Sequence[Cells], times: float, rows: NDArray[np.int32], weight: Floats
) -> Floats:
    """Of every chain: every table, so many times, less the weighted counts of the chain's rows, in all its views.

    A few zeros follow, so that `add_up` may read beyond the last value.
    """
    out = np.empty((len(rows), views.offset[-1] + LANES), np.float32)
    out[:, -LANES:] = 0.0
    cells = np.concatenate([each.ravel() for each in tables])
    start = np.cumsum([0, *(each.size for each in tables)])
    codes = np.ascontiguousarray(rows.transpose(0, 2, 1))
    layout = (views.size, views.first_copy, views.copy, views.member, views.stride, views.offset)
    given = (cells, start, *layout, np.float32(times), codes, weight, out)
    in_shares(begin_tables, len(rows) * len(tables), *given, least=LEAST_TABLES)
    return out


@njit(cache=True)
def begin_tables(  # type: ignore[no-untyped-def]
    lower, upper, cells, start, size, first_copy, copy, member, stride, offset, times, codes, weight, out
):
    """Tables lower to upper, chain by chain: worked out in the last view, which is as the table is, then copied.

    A table with the attributes (before, moving, after) is the view (before, after, moving).
    """
    tables, number = len(start) - 1, codes.shape[2]
    place = np.empty(AT_ONCE, np.int64)
    for item in range(lower, upper):
        chain, t = item // tables, item % tables
        order = first_copy[t + 1] - first_copy[t]
        if order == 0:
            continue
        last = copy[first_copy[t + 1] - 1]
        total = start[t + 1] - start[t]
        mine, w = out[chain, offset[last] : offset[last] + total], weight[t]
        for c in range(total):
            mine[c] = np.float32(cells[start[t] + c]) * times
        for begin in range(0, number, AT_ONCE):
            some = min(AT_ONCE, number - begin)
            place[:some] = 0
            for m in range(order):
                column, step = codes[chain, member[last, m], begin : begin + some], stride[last, m]
                for r in range(some):
                    place[r] += column[r] * step
            for r in range(some):
                mine[np.uint64(place[r])] -= w
        before = 1
        for axis in range(order - 1):
            view = copy[first_copy[t] + axis]
            values = size[member[view, order - 1]]
            after = total // (before * values)
            there = offset[view]
            for b in range(before):
                for a in range(after):
                    here = b * values * after + a
                    for v in range(values):
                        out[chain, there + v] = mine[here + v * after]
                    there += values
            before *= values


def leaning(sizes: Integers, lean: Mapping[int, Cells]) -> tuple[Floats, Integers]:
    """The logarithms of the one-way fractions in a row, and where each attribute's begin; 0 where unknown."""
    first_value = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    out = np.zeros(int(first_value[-1]), np.float32)
    for j, fractions in lean.items():
        out[first_value[j] : first_value[j + 1]] = np.log(np.maximum(fractions, RAREST))
    return out, first_value


def table_passes(targets: Targets, start: Chains, heat: Sequence[float], seeds: Seeds) -> Iterator[Chains]:
    """The rows after each pass, of attributes of any sizes."""
    rows, counters = np.array(start, np.int32), seeds.copy()
    sets = sorted(targets.pull, key=lambda s: (len(s), s))
    views = views_of(targets.sizes, sets)
    weight = np.array([targets.weight[members] for members in sets], np.float32)
    lean, first_value = leaning(targets.sizes, targets.lean)
    tables = [targets.pull[members] for members in sets]
    residual = residuals(views, tables, start.shape[1], rows, weight)
    for temperature in heat:
        given = (views, weight, lean, first_value, np.float32(temperature), counters)
        in_shares(answer_rows, len(rows), rows, residual, *given)
        yield rows.astype(start.dtype)


@njit(cache=True)
def _move(row, j, old, new, views, weight, residual):  # type: ignore[no-untyped-def]
    """Move a row from value `old` to `new` of attribute j, in every view of every table that contains j."""
    member, stride = views.member, views.stride
    for view_of_j in range(views.first_view[j], views.first_view[j + 1]):
        t = views.table[view_of_j]
        w = weight[t]
        for c in range(views.first_copy[t], views.first_copy[t + 1]):
            view = views.copy[c]
            place = views.offset[view]
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


@njit(cache=True)
def answer_rows(lower, upper, rows, residual, views, weight, lean, first_value, temperature, counters):  # type: ignore[no-untyped-def]
    """Once over the rows of every chain, in random order: each row best-responds to the residual.

    rows[c] (N × d) and residual[c] (all views) belong to chain c and are changed in place, and so is its
    generator counters[c]. The attributes of a row move in random order. The gain of value v of attribute j
    is Σ over tables containing j of w·G at the row's cell with j := v, plus Σ w at the present value (which
    takes the row itself out of the counts); the value of greatest gain + temperature · (lean + Gumbel) is taken,
    where lean (at first_value[j] + v) is the logarithm of the fraction that rows should have without any pull.
    """
    _, count, width = rows.shape
    size, first_view, offset = views.size, views.first_view, views.offset
    other, stride = np.ascontiguousarray(views.other.T), np.ascontiguousarray(views.other_stride.T)
    places = np.empty(np.diff(first_view).max(), np.int64)
    for chain in range(lower, upper):
        mine = residual[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(width)
        gain = np.empty(size.max() + LANES, np.float32)
        itself = np.zeros(width, np.float32)
        for j in range(width):
            for view in range(first_view[j], first_view[j + 1]):
                itself[j] += weight[views.table[view]]
        counter = shuffle(row_order, counter)
        for r in row_order:
            row = rows[chain, r]
            counter = shuffle(order, counter)
            for j in order:
                values = size[j]
                if values < 2 or first_view[j] == first_view[j + 1]:
                    continue
                old = row[j]
                begin, number = np.uint64(first_view[j]), np.uint64(first_view[j + 1] - first_view[j])
                for view in range(number):  # indices without a sign: the loops become vector instructions
                    places[view] = offset[begin + view]
                for m in range(other.shape[0]):
                    for view in range(number):
                        places[view] += row[np.uint64(other[m, begin + view])] * stride[m, begin + view]
                for v in range(0, values, LANES):
                    add_up(mine, places, gain, np.int64(number), v)
                gain[old] += itself[j]
                if temperature > 0:
                    first, left = np.uint64(first_value[j]), 0
                    word = np.uint64(0)
                    for v in range(np.uint64(values)):
                        if left == 0:
                            counter += STEP
                            word = word_of(counter)
                            left = _DRAWS_PER_WORD
                        gain[v] += temperature * (lean[first + v] + GUMBEL[word & _MASK])
                        word >>= np.uint64(_BITS)
                        left -= 1
                best, most = old, gain[old]
                for v in range(values):
                    if gain[np.uint64(v)] > most:
                        best, most = v, gain[np.uint64(v)]
                if best != old:
                    _move(row, j, old, best, views, weight, mine)
                    row[j] = best
        counters[chain] = counter


# Items, of which a row holds few


def item_passes(targets: ItemTargets, start: Chains, heat: Sequence[float], seeds: Seeds) -> Iterator[Chains]:
    """The rows after each pass, where targets are the fractions that hold an item, or two of them."""
    rows, counters = np.array(start, np.uint8), seeds.copy()
    chains, count, _ = start.shape
    weights = np.float32(targets.weight_single), np.float32(targets.weight_pair)
    apart = targets.pair.copy()
    np.fill_diagonal(apart, 0.0)
    pulls = count * targets.weight_single * targets.single, count * targets.weight_pair * apart
    single, pair = (np.repeat(pull.astype(np.float32)[None], chains, axis=0) for pull in pulls)
    in_shares(withdraw_items, chains, rows, single, pair, *weights)
    likely = np.clip(targets.single, RAREST, 1 - RAREST)
    lean = np.log(likely / (1 - likely)).astype(np.float32)
    for temperature in heat:
        given = (*weights, lean, np.float32(temperature), counters)
        in_shares(answer_item_rows, chains, rows, single, pair, *given)
        yield rows.copy()


@njit(cache=True)
def withdraw_items(lower, upper, rows, single, pair, weight_single, weight_pair):  # type: ignore[no-untyped-def]
    """Subtract the weighted counts of items and of pairs of items of every chain's rows from its residual."""
    items = rows.shape[2]
    for chain in range(lower, upper):
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


@njit(cache=True)
def answer_item_rows(  # type: ignore[no-untyped-def]
    lower, upper, rows, single, pair, weight_single, weight_pair, lean, temperature, counters
):
    """As `answer_rows` for binary attributes whose measured cells are 'has i' and 'has i and j' alone.

    Taking item j in earns single[j] + Σ over the other items i of the row of pair[i, j], so that a row costs
    its items times all items, however many tables there are; lean[j] is the log-odds of j without any pull.
    pair[c] is symmetric with zeros on its diagonal.
    """
    _, count, items = rows.shape
    for chain in range(lower, upper):
        one = single[chain]
        two = pair[chain]
        counter = counters[chain]
        row_order = np.arange(count)
        order = np.arange(items)
        gain = np.empty(items, np.float32)
        held = np.empty(items, np.int64)
        counter = shuffle(row_order, counter)
        counter = shuffle(order, counter)
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
                    counter += STEP
                    word = word_of(counter)
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


# Binary attributes, by signed counts


class SignedTargets:
    """Targets as pulls and weights of signed counts, each order a symmetric array with an axis an attribute."""

    def __init__(self, targets: Targets) -> None:
        width = len(targets.sizes)
        by_order: dict[int, list[Set]] = {}
        for members in targets.pull:
            by_order.setdefault(len(members), []).append(members)
        orders = range(1, (max(by_order) if max(by_order) > 2 else 2) + 1)
        self.pull = {order: np.zeros((width,) * order) for order in orders}
        self.weight = {order: np.zeros((width,) * order) for order in orders}
        for order, sets in by_order.items():
            tables = np.stack([targets.pull[members].ravel() for members in sets])
            weights = np.array([targets.weight[members] for members in sets])
            self._add(np.array(sets), tables / 2**order, weights / 2**order)

    def _add(self, sets: Integers, tables: Cells, weights: Cells) -> None:
        order = sets.shape[1]
        cells = np.indices((2,) * order).reshape(order, -1)
        for size in range(1, order + 1):
            for places in combinations(range(order), size):
                signs = (-1.0) ** cells[list(places)].sum(axis=0)
                for ordered in permutations(places):
                    where = tuple(sets[:, place] for place in ordered)
                    np.add.at(self.pull[size], where, tables @ signs)
                    np.add.at(self.weight[size], where, weights)


def binary_passes(targets: Targets, start: Chains, heat: Sequence[float], seeds: Seeds) -> Iterator[Chains]:
    """The rows after each pass, of binary attributes."""
    asked, counters = SignedTargets(targets), seeds.copy()
    signs = 1.0 - 2.0 * np.ascontiguousarray(start, np.float32)
    _, count, width = start.shape
    triples = BINARY_ORDER in asked.pull
    none = np.zeros((0, 0, 0))
    weights = (asked.weight[1], asked.weight[2], asked.weight[3] if triples else none)
    pulls = (asked.pull[1], asked.pull[2], asked.pull[3] if triples else none)
    sums = tuple(np.zeros((len(start), *pull.shape), np.float32) for pull in pulls)
    bits = np.stack([pack_bits(rows.T != 0) for rows in start])
    in_shares(signed_sums, len(start) * width, bits, count, *sums)
    residuals = tuple(
        (count * pull[None] - weight[None] * total).astype(np.float32)
        for pull, weight, total in zip(pulls, weights, sums, strict=True)
    )
    residuals[2][...] *= 0.5  # a triple stands in the form of an attribute twice
    single = tuple(weight.astype(np.float32) for weight in weights)
    moves, lean = np.zeros(width, np.bool_), np.zeros(width, np.float32)
    for members in targets.pull:
        moves[list(members)] = True
    for j, fractions in targets.lean.items():
        likely = np.log(np.maximum(fractions, RAREST))
        lean[j] = likely[0] - likely[1]
    for temperature in heat:
        given = (*residuals, *single, moves, lean, np.float32(temperature), counters)
        in_shares(answer_binary_rows, len(signs), signs, *given)
        yield (signs < 0).astype(start.dtype)


@njit(cache=True)
def signed_sums(lower, upper, bits, rows, one, two, three):  # type: ignore[no-untyped-def]
    """Σ over a chain's rows of χ_B = rows − 2·(how many have an odd number of ones in B); larger ones symmetric.

    Of sets whose least attribute is j, for item = chain · attributes + j; bits[chain, j] has a bit a row.
    """
    width, words = bits.shape[1], bits.shape[2]
    both = np.empty(words, np.uint64)
    for item in range(lower, upper):
        chain, j = item // width, item % width
        for k in range(j, width):
            odd = np.uint64(0)
            for w in range(words):
                both[w] = bits[chain, j, w] ^ bits[chain, k, w]
                odd += popcount(both[w])
            two[chain, j, k] = two[chain, k, j] = rows - 2 * np.int64(odd)
            if k == j or three.shape[1] == 0:
                continue
            for m in range(k + 1, width):
                odd = np.uint64(0)
                for w in range(words):
                    odd += popcount(both[w] ^ bits[chain, m, w])
                value = rows - 2 * np.int64(odd)
                three[chain, j, k, m] = three[chain, j, m, k] = value
                three[chain, k, j, m] = three[chain, k, m, j] = value
                three[chain, m, j, k] = three[chain, m, k, j] = value
        odd = np.uint64(0)
        for w in range(words):
            odd += popcount(bits[chain, j, w])
        one[chain, j] = rows - 2 * np.int64(odd)


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


@njit(cache=True)
def answer_binary_rows(  # type: ignore[no-untyped-def]
    lower,
    upper,
    signs,
    one,
    two,
    three,
    weight_one,
    weight_two,
    weight_three,
    moves,
    lean,
    temperature,
    counters,
):
    """As `answer_rows`: once over the rows of every chain, in random order, each best-responding.

    signs (chain, row, attribute; ±1) and the residuals of every chain are changed in place, and so are the
    generators. three[c, j, k, m] + three[c, j, m, k] is the residual of {j, k, m}; weights are zero where a
    set is not asked for and where attributes repeat. lean[j] is the log-odds of value 0 without any pull,
    moves[j] whether j moves at all.
    """
    _, count, width = signs.shape
    for chain in range(lower, upper):
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
        counter = shuffle(row_order, counter)
        for r in row_order:
            row = signs[chain, r]
            counter = shuffle(order, counter)
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
                        counter += STEP
                        word = word_of(counter)
                        left = _DRAWS_PER_WORD
                    gain += temperature * (lean[j] + LOGISTIC[word & _MASK])
                    word >>= np.uint64(_BITS)
                    left -= 1
                if (gain < 0) == (row[j] > 0) and gain != 0:
                    _flip(row, j, own_one, own_two, own_three, weight_one, weight_two, weight_three)
        counters[chain] = counter
