"""Compiled loops over bit columns: conjunctions by AND, parities by XOR, tables by joint codes.

A *bit column* holds one bit a record for one predicate. Two ways of walking them are kept, because
each is several times faster than the other somewhere (figures in benchmarks/counting.py):

- `count_blocked`: few columns, many queries. A block of records is copied once, all columns and their
  negations side by side in the second-level cache, and all queries run over it.
- `count_direct`: very many columns. Each query reads its own columns; where one of them is rare, only
  the records on its list are looked at.
"""

from __future__ import annotations

import numpy as np

from dualquery.compiled import njit, popcount, prange

ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True, parallel=True)
def set_code_bits(codes, owner, bits):  # type: ignore[no-untyped-def]
    """For each record r, set bit r of bits[owner[code]]; owner < 0 skips the code."""
    rows = codes.shape[0]
    words = bits.shape[1]
    for w in prange(words):
        for r in range(64 * w, min(64 * w + 64, rows)):
            p = owner[codes[r]]
            if p >= 0:
                bits[p, w] |= np.uint64(1) << np.uint64(r & 63)


@njit(cache=True, parallel=True)
def join_bits(of_values, column, start, values, predicates, first_word, bits):  # type: ignore[no-untyped-def]
    """bits[p] from a word on |= the OR of of_values[column[v]] over the values v that the predicate p accepts."""
    words = of_values.shape[1]
    for i in prange(predicates.shape[0]):
        p = predicates[i]
        for at in range(start[p], start[p + 1]):
            v = column[values[at]]
            for w in range(words):
                bits[p, first_word + w] |= of_values[v, w]


@njit(cache=True)
def set_item_bits(start, ids, owner, first_row, rows, bits):  # type: ignore[no-untyped-def]
    """Set bit r - first_row of bits[owner[i]] for every item i of each record r; owner < 0 skips the item."""
    for r in range(rows):
        bit = np.uint64(1) << np.uint64(r & 63)
        for i in range(start[first_row + r], start[first_row + r + 1]):
            p = owner[ids[i]]
            if p >= 0:
                bits[p, r >> 6] |= bit


@njit(cache=True, parallel=True)
def count_blocked(bits, rows, literals, block_words, threads, counts):  # type: ignore[no-untyped-def]
    """counts[q] += the number of records for which every literal of query q holds. Few columns."""
    columns, words = bits.shape
    queries, width = literals.shape
    blocks = (words + block_words - 1) // block_words
    partial = np.zeros((threads, queries), np.int32)
    for thread in prange(threads):
        # Literal 2p is column p, 2p + 1 its negation; the last column is all ones, for padding (-1).
        local = np.zeros((2 * columns + 1, block_words), np.uint64)
        joint = np.empty(block_words, np.uint64)
        mine = partial[thread]
        for block in range(thread, blocks, threads):
            first = block * block_words
            size = min(block_words, words - first)
            for w in range(block_words):
                valid = np.uint64(0)
                if w < size:
                    valid = ALL_ONES
                    beyond = 64 * (first + w + 1) - rows
                    if beyond > 0:
                        valid = ALL_ONES >> np.uint64(beyond)
                local[2 * columns, w] = valid
            for p in range(columns):
                for w in range(size):
                    word = bits[p, first + w]
                    local[2 * p, w] = word
                    local[2 * p + 1, w] = ~word & local[2 * columns, w]
                for w in range(size, block_words):
                    local[2 * p, w] = np.uint64(0)
                    local[2 * p + 1, w] = np.uint64(0)
            if width == 3:
                for q in range(queries):
                    a = local[literals[q, 0]]
                    b = local[literals[q, 1]]
                    c = local[literals[q, 2]]
                    total = np.uint64(0)
                    for w in range(block_words):
                        total += popcount(a[w] & b[w] & c[w])
                    mine[q] += np.int32(total)
            else:
                for q in range(queries):
                    a = local[literals[q, 0]]
                    for w in range(block_words):
                        joint[w] = a[w]
                    for k in range(1, width):
                        b = local[literals[q, k]]
                        for w in range(block_words):
                            joint[w] &= b[w]
                    total = np.uint64(0)
                    for w in range(block_words):
                        total += popcount(joint[w])
                    mine[q] += np.int32(total)
    for q in prange(queries):
        for thread in range(threads):
            counts[q] += partial[thread, q]


@njit(cache=True, parallel=True)
def column_sums(bits, column):  # type: ignore[no-untyped-def]
    """The number of ones of bits[column[p]] for each p."""
    sums = np.zeros(column.shape[0], np.int64)
    for p in prange(column.shape[0]):
        total = np.uint64(0)
        for word in bits[column[p]]:
            total += popcount(word)
        sums[p] = np.int64(total)
    return sums


@njit(cache=True, parallel=True)
def list_members(bits, column, sums, limit, start, members):  # type: ignore[no-untyped-def]
    """The records of every column with at most `limit` ones, at members[start[p] : start[p + 1]]."""
    for p in prange(column.shape[0]):
        if sums[p] > limit:
            continue
        at = start[p]
        for w in range(bits.shape[1]):
            word = bits[column[p], w]
            while word != 0:
                members[at] = 64 * w + popcount((word & (~word + np.uint64(1))) - np.uint64(1))
                word &= word - np.uint64(1)
                at += 1


@njit(cache=True, parallel=True)
def count_direct(bits, column, rows, sums, limit, start, members, literals, counts):  # type: ignore[no-untyped-def]
    """counts[q] += as `count_blocked`, reading bits[column[p]] in place. Very many columns.

    A query with a positive literal of at most `limit` records walks that predicate's list and probes
    the other columns; any other query takes the AND of whole columns.
    """
    queries, width = literals.shape
    words = bits.shape[1]
    last = ALL_ONES
    if rows & 63:
        last = ALL_ONES >> np.uint64(64 - (rows & 63))
    for q in prange(queries):
        rarest = -1
        for k in range(width):
            literal = literals[q, k]
            if (
                literal >= 0
                and literal & 1 == 0
                and sums[literal >> 1] <= limit
                and (rarest < 0 or sums[literal >> 1] < sums[literals[q, rarest] >> 1])
            ):
                rarest = k
        total = np.int64(0)
        if rarest >= 0:
            p = literals[q, rarest] >> 1
            for i in range(start[p], start[p + 1]):
                r = members[i]
                holds = np.uint64(1)
                for k in range(width):
                    literal = literals[q, k]
                    if literal >= 0 and k != rarest:
                        word = bits[column[literal >> 1], r >> 6]
                        holds &= (word >> np.uint64(r & 63)) ^ np.uint64(literal & 1)
                total += np.int64(holds & np.uint64(1))
        else:
            for w in range(words):
                joint = ALL_ONES if w < words - 1 else last
                for k in range(width):
                    literal = literals[q, k]
                    if literal >= 0:
                        flip = np.uint64(0) - np.uint64(literal & 1)
                        joint &= bits[column[literal >> 1], w] ^ flip
                total += np.int64(popcount(joint))
        counts[q] += total


@njit(cache=True, parallel=True)
def count_parities(bits, rows, attributes, counts):  # type: ignore[no-untyped-def]
    """counts[q] += the number of records with an even number of ones among the columns of row q."""
    queries, width = attributes.shape
    words = bits.shape[1]
    for q in prange(queries):
        odd = np.uint64(0)
        for w in range(words):
            word = np.uint64(0)
            for k in range(width):
                if attributes[q, k] >= 0:
                    word ^= bits[attributes[q, k], w]
            odd += popcount(word)
        counts[q] += rows - np.int64(odd)


@njit(cache=True, parallel=True)
def count_tables(codes, weights, sizes, members, start, counts):  # type: ignore[no-untyped-def]
    """counts[start[t] + cell] += the weight of the records in that cell, for each set of columns members[t]."""
    tables, width = members.shape
    for t in prange(tables):
        cells = counts[start[t] : start[t + 1]]
        for r in range(weights.shape[0]):
            cell = np.int64(0)
            for k in range(width):
                j = members[t, k]
                if j >= 0:
                    cell = cell * sizes[j] + codes[j, r]
            cells[cell] += weights[r]


@njit(cache=True, parallel=True)
def add_truth(truth, literals, complement, answers):  # type: ignore[no-untyped-def]
    """answers[q] += q(x), where truth[literal] says which literals hold of the record x (last: padding)."""
    queries, width = literals.shape
    padding = truth.shape[0] - 1
    flipped = complement.shape[0] > 0
    for q in prange(queries):
        holds = np.uint8(1)
        for k in range(width):
            literal = literals[q, k]
            holds &= truth[literal if literal >= 0 else padding]
        if flipped:
            holds ^= complement[q]
        answers[q] += holds
