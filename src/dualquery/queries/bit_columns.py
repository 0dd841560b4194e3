"""Bit columns, one bit per record for each predicate, and the compiled loops over them.

`bits[j, r // 64]` holds in bit r % 64 whether record r satisfies predicate j. Conjunctions are counted by AND,
parities by XOR. Counts add up over slabs of records, so the bit columns of a slab never need more than `SLAB_BYTES`
whatever the size of the table; everything is a whole number, so that the order of adding, and how many threads share
it, changes nothing. Two ways of walking bit columns are kept, because each is several times faster than the other
somewhere (figures in benchmarks/counting.py):

- `count_blocked`: few columns, many queries. A block of records is copied once, all columns and their
  negations side by side in the second-level cache, and all queries run over it.
- `count_direct`: very many columns. Each query reads its own columns; where one of them is rare, only
  the records on its list are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from dualquery.loops import in_shares, lowest_bit, njit, popcount
from dualquery.queries.group import NONE, Predicates
from dualquery.table.records import BitItems, Records, SparseItems, pack_bits
from dualquery.types import Integers, Words

ALL_ONES = np.uint64(0xFFFFFFFFFFFFFFFF)


@njit(cache=True)
def set_code_bits(lower, upper, codes, owner, bits):  # type: ignore[no-untyped-def]
    """For each record r, set bit r of bits[owner[code]]; owner < 0 skips the code."""
    rows = codes.shape[0]
    for w in range(lower, upper):
        for r in range(64 * w, min(64 * w + 64, rows)):
            p = owner[codes[r]]
            if p >= 0:
                bits[p, w] |= np.uint64(1) << np.uint64(r & 63)


@njit(cache=True)
def join_bits(lower, upper, of_values, column, start, values, predicates, first_word, bits):  # type: ignore[no-untyped-def]
    """bits[p] from a word on |= the OR of of_values[column[v]] over the values v that the predicate p accepts."""
    words = of_values.shape[1]
    for i in range(lower, upper):
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


@njit(cache=True)
def count_blocked(lower, upper, parts, bits, rows, literals, block_words, partial):  # type: ignore[no-untyped-def]
    """partial[part, q] becomes the number of records of every so many blocks for which each literal of q holds."""
    columns, words = bits.shape
    queries, width = literals.shape
    blocks = (words + block_words - 1) // block_words
    for part in range(lower, upper):
        # Literal 2p is column p, 2p + 1 its negation; the last column is all ones, for padding (-1).
        local = np.zeros((2 * columns + 1, block_words), np.uint64)
        joint = np.empty(block_words, np.uint64)
        mine = partial[part]
        for block in range(part, blocks, parts):
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


@njit(cache=True)
def column_sums(lower, upper, bits, column, sums):  # type: ignore[no-untyped-def]
    """sums[p] becomes the number of ones of bits[column[p]]."""
    for p in range(lower, upper):
        total = np.uint64(0)
        for word in bits[column[p]]:
            total += popcount(word)
        sums[p] = np.int64(total)


@njit(cache=True)
def list_members(lower, upper, bits, column, sums, limit, start, members):  # type: ignore[no-untyped-def]
    """The records of every column with at most `limit` ones, at members[start[p] : start[p + 1]]."""
    for p in range(lower, upper):
        if sums[p] > limit:
            continue
        at = start[p]
        for w in range(bits.shape[1]):
            word = bits[column[p], w]
            while word != 0:
                members[at] = 64 * w + popcount((word & (~word + np.uint64(1))) - np.uint64(1))
                word &= word - np.uint64(1)
                at += 1


@njit(cache=True)
def count_direct(lower, upper, bits, column, rows, sums, limit, start, members, literals, counts):  # type: ignore[no-untyped-def]
    """counts[q] += as `count_blocked`, reading bits[column[p]] in place. Very many columns.

    A query with a positive literal of at most `limit` records walks that predicate's list and probes
    the other columns; any other query takes the AND of whole columns.
    """
    width = literals.shape[1]
    words = bits.shape[1]
    last = ALL_ONES
    if rows & 63:
        last = ALL_ONES >> np.uint64(64 - (rows & 63))
    for q in range(lower, upper):
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


@njit(cache=True)
def count_parities(lower, upper, bits, rows, attributes, counts):  # type: ignore[no-untyped-def]
    """counts[q] += the number of records with an even number of ones among the columns of row q."""
    width = attributes.shape[1]
    words = bits.shape[1]
    for q in range(lower, upper):
        odd = np.uint64(0)
        for w in range(words):
            word = np.uint64(0)
            for k in range(width):
                if attributes[q, k] >= 0:
                    word ^= bits[attributes[q, k], w]
            odd += popcount(word)
        counts[q] += rows - np.int64(odd)


@njit(cache=True)
def add_truth(lower, upper, truth, literals, complement, answers):  # type: ignore[no-untyped-def]
    """answers[q] += q(x), where truth[literal] says which literals hold of the record x (last: padding)."""
    width = literals.shape[1]
    padding = truth.shape[0] - 1
    flipped = complement.shape[0] > 0
    for q in range(lower, upper):
        holds = np.uint8(1)
        for k in range(width):
            literal = literals[q, k]
            holds &= truth[literal if literal >= 0 else padding]
        if flipped:
            holds ^= complement[q]
        answers[q] += holds


SLAB_BYTES = 512 << 20  # bit columns held at once
VALUE_BYTES = 16 << 20  # bit columns of the values of one attribute, of some of the slab's records
LEAST_ROWS = 64 * 128  # of a slab
FEW = 1 << 23  # cells of bit columns
FEW_WORDS = 4096  # of a column, that are not worth sharing


def few(columns: int, rows: int) -> bool:
    """Whether numpy walks so many columns in less time than it takes to load compiled loops."""
    return columns * rows <= FEW


def slabs(predicates: Predicates, records: Records) -> Iterator[tuple[int, int]]:
    step = max(LEAST_ROWS, SLAB_BYTES // len(predicates) * 8 // 4096 * 4096)
    for first in range(0, records.rows, step):
        yield first, min(step, records.rows - first)


def predicate_bits(predicates: Predicates, records: Records, first: int, rows: int) -> Words:
    """A bit column for each predicate over `rows` records from `first` (a multiple of 64)."""
    domain = records.domain
    bits = np.zeros((len(predicates), -(-rows // 64)), np.uint64)
    starts = np.array(domain.starts)
    owner_column = np.searchsorted(starts, predicates.attribute, side="right") - 1
    simple = few(len(predicates), rows)
    for position in np.unique(owner_column):
        mine = np.flatnonzero(owner_column == position)
        codes = records.columns[position]
        if isinstance(codes, SparseItems | BitItems):
            _item_bits(predicates, mine, codes, int(starts[position]), first, rows, bits)
        else:
            size = int(domain.sizes[starts[position]])
            _code_bits(predicates, mine, codes[first : first + rows], size, bits, simple)
    return bits


def _code_bits(
    predicates: Predicates,
    mine: NDArray[np.intp],
    codes: NDArray[np.unsignedinteger],
    size: int,
    bits: Words,
    simple: bool,
) -> None:
    """Bit columns of one attribute, by numpy where that is `simple`.

    Where predicates share values, each value gets a column, and they are joined.
    """
    if simple:
        for p in mine:
            accepts = np.zeros(size, np.bool_)
            accepts[predicates.accepted(int(p))] = True
            bits[p] = pack_bits(accepts[codes][None])[0]
        return
    accepted = np.concatenate([predicates.accepted(int(p)) for p in mine])
    owner = np.full(size, NONE, np.int64)
    if len(np.unique(accepted)) == len(accepted):
        owner[accepted] = np.repeat(mine, predicates.start[mine + 1] - predicates.start[mine])
        in_shares(set_code_bits, bits.shape[1], codes, owner, bits, least=FEW_WORDS)
        return
    used = np.unique(accepted)
    owner[used] = np.arange(len(used))
    words = max(1, VALUE_BYTES // (8 * len(used)))
    for first in range(0, bits.shape[1], words):
        of_values = np.zeros((len(used), min(words, bits.shape[1] - first)), np.uint64)
        some = codes[64 * first : 64 * (first + words)]
        in_shares(set_code_bits, of_values.shape[1], some, owner, of_values, least=FEW_WORDS)
        joined = (of_values, owner, predicates.start, predicates.values, mine, first, bits)
        in_shares(join_bits, len(mine), *joined)


def _item_bits(
    predicates: Predicates,
    mine: NDArray[np.intp],
    codes: SparseItems | BitItems,
    attribute: int,
    first: int,
    rows: int,
    bits: Words,
) -> None:
    """Bit columns of items. A canonical predicate of an item is `= 1`; `= 0` occurs in cells of tables."""
    item = predicates.attribute[mine] - attribute
    if isinstance(codes, BitItems):
        bits[mine] = codes.words[item, first // 64 : first // 64 + bits.shape[1]]
    else:
        # Several predicates may ask for one item (`= 1` and `= 0`): fill one of them, copy to the rest.
        unique, where, inverse = np.unique(item, return_index=True, return_inverse=True)
        if few(len(unique), len(codes.ids)):
            begin, end = codes.start[first], codes.start[first + rows]
            for p, wanted in zip(mine[where], unique, strict=True):
                found = begin + np.flatnonzero(codes.ids[begin:end] == wanted)
                held = np.zeros((1, rows), np.bool_)
                held[0, np.searchsorted(codes.start, found, side="right") - 1 - first] = True
                bits[p] = pack_bits(held)[0]
        else:
            owner = np.full(int(codes.ids.max(initial=0)) + 1, NONE, np.int64)
            known = unique < len(owner)
            owner[unique[known]] = mine[where[known]]
            set_item_bits(codes.start, codes.ids, owner, first, rows, bits)
        bits[mine] = bits[mine[where][inverse]]
    zero = mine[predicates.values[predicates.start[mine]] == 0]
    if len(zero):
        bits[zero] = ~bits[zero]
        if rows % 64:
            bits[zero, -1] &= np.uint64((1 << (rows % 64)) - 1)


def bits_in_place(predicates: Predicates, records: Records) -> tuple[Words, Integers] | None:
    """The bit columns of a lone block of items, which need no copy: (words, row of each predicate)."""
    codes = records.columns[0]
    if len(records.columns) > 1 or not isinstance(codes, BitItems) or not np.all(predicates.values == 1):
        return None
    return codes.words, predicates.attribute.astype(np.int64)


LINE = 8  # words that lie in one line of the cache


@njit(cache=True)
def add_along_attributes(lower, upper, bits, group, values, sums):  # type: ignore[no-untyped-def]
    """sums[r] += Σ_j values[j, group[r]] over the attributes j that record r has."""
    attributes, words = bits.shape
    for block in range(lower, upper):
        for j in range(attributes):
            for w in range(block * LINE, min(block * LINE + LINE, words)):
                word = bits[j, w]
                while word:
                    r = 64 * w + np.int64(lowest_bit(word))
                    sums[r] += values[j, group[r]]
                    word &= word - np.uint64(1)


@njit(cache=True)
def add_along_records(lower, upper, bits, group, weights, sums):  # type: ignore[no-untyped-def]
    """sums[j, group[r]] += weights[r] for every record r that has attribute j."""
    words = bits.shape[1]
    for j in range(lower, upper):
        for w in range(words):
            word = bits[j, w]
            while word:
                r = 64 * w + np.int64(lowest_bit(word))
                sums[j, group[r]] += weights[r]
                word &= word - np.uint64(1)
