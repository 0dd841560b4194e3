"""Compiled loops over a distribution's cells, seen as a matrix: a row a value of the leading attributes.

`weights[h, i]` is the weight of the records whose leading attributes are number h and whose trailing
attributes are number i. Rows are long enough to be read at the speed of memory and short enough to stay
in the nearest cache, so every loop below runs over contiguous numbers.
"""

from __future__ import annotations

import numpy as np

from dualquery.compiled import njit, prange


@njit(cache=True, parallel=True, fastmath={"reassoc", "contract"})
def add_rows(weights, row_class, classes, threads):  # type: ignore[no-untyped-def]
    """sums[c, i] = Σ weights[h, i] over the rows h of class c."""
    rows, length = weights.shape
    partial = np.zeros((threads, classes, length))
    for thread in prange(threads):
        mine = partial[thread]
        for h in range(rows * thread // threads, rows * (thread + 1) // threads):
            sums = mine[row_class[h]]
            row = weights[h]
            for i in range(length):
                sums[i] += row[i]
    for thread in range(1, threads):
        partial[0] += partial[thread]
    return partial[0]


@njit(cache=True, parallel=True)
def scale_rows(weights, out, in_place, row_class, factors, kept, threads):  # type: ignore[no-untyped-def]
    """out[h, i] = weights[h, i] · factors[c, i] for every row h of class c; in place, rows of a kept class stay."""
    rows, length = weights.shape
    for thread in prange(threads):
        for h in range(rows * thread // threads, rows * (thread + 1) // threads):
            c = row_class[h]
            if not (in_place and kept[c]):
                row = weights[h]
                scaled = out[h]
                factor = factors[c]
                for i in range(length):
                    scaled[i] = row[i] * factor[i]


@njit(cache=True, fastmath={"reassoc", "contract"})
def tail_survival(weights, node, size, stride, leaf, wanted, first_row, last_row, out):  # type: ignore[no-untyped-def]
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


@njit(cache=True, parallel=True)
def tail_survival_threaded(weights, node, size, stride, leaf, wanted, threads, out):  # type: ignore[no-untyped-def]
    rows = weights.shape[0]
    for thread in prange(threads):
        first, last = rows * thread // threads, rows * (thread + 1) // threads
        tail_survival(weights, node, size, stride, leaf, wanted, first, last, out)


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


@njit(cache=True)
def evaluate_products(  # type: ignore[no-untyped-def]
    factors, attribute, start, digit, jump, place, row_length, column, table, fragments, answers, first, last
):
    """The part of each product that lies in one distribution, and with it the product.

    Factor f is Σ_i jump[i] · [x ≥ digit[i]] (i from start[f]); place[j] is the stride of attribute j in the
    distribution, or 0 where it belongs elsewhere. A product's factors in the distribution are expanded
    over their jumps, each term being one entry of the survival table. fragments[q, k] holds that sum at the
    product's first factor here and 1 at the others; answers[q] is the product of the row.
    """
    width = factors.shape[1]
    mine = np.empty(width, np.int64)
    term = np.empty(width, np.int64)
    for q in range(first, last):
        count = 0
        for k in range(width):
            f = factors[q, k]
            if f >= 0 and place[attribute[f]] > 0:
                mine[count] = k
                term[count] = start[f]
                fragments[q, k] = 1.0
                count += 1
        if count == 0:
            continue
        value = 0.0
        running = True
        while running:
            at = np.int64(0)
            weight = 1.0
            for m in range(count):
                i = term[m]
                at += digit[i] * place[attribute[factors[q, mine[m]]]]
                weight *= jump[i]
            value += weight * table[at // row_length, column[at % row_length]]
            running = False
            for m in range(count):
                f = factors[q, mine[m]]
                term[m] += 1
                if term[m] < start[f + 1]:
                    running = True
                    break
                term[m] = start[f]
        fragments[q, mine[0]] = value
        product = 1.0
        for k in range(width):
            product *= fragments[q, k]
        answers[q] = product


@njit(cache=True, parallel=True)
def evaluate_products_threaded(  # type: ignore[no-untyped-def]
    factors, attribute, start, digit, jump, place, row_length, column, table, fragments, answers, threads
):
    queries = factors.shape[0]
    for thread in prange(threads):
        first, last = queries * thread // threads, queries * (thread + 1) // threads
        evaluate_products(
            factors,
            attribute,
            start,
            digit,
            jump,
            place,
            row_length,
            column,
            table,
            fragments,
            answers,
            first,
            last,
        )


@njit(cache=True)
def fitting_products(factors, attribute, owner, part_bits, limit_bits):  # type: ignore[no-untyped-def]
    """Which products fit one part: the log₂ cells of the parts that they touch add up to at most the limit."""
    queries, width = factors.shape
    fits = np.empty(queries, np.bool_)
    for q in range(queries):
        bits = 0.0
        for k in range(width):
            f = factors[q, k]
            if f < 0:
                continue
            part = owner[attribute[f]]
            counted = False
            for i in range(k):
                g = factors[q, i]
                counted |= g >= 0 and owner[attribute[g]] == part
            if not counted:
                bits += part_bits[part]
        fits[q] = bits <= limit_bits
    return fits
