"""How many queries one record can satisfy at once: what a group of conjunctions is charged, and not its size.

Queries over the same attributes are held against each other exactly: each accepts some cells of the table over these
attributes, and a record lies in one cell, so that it satisfies at most r = max_cell #{queries that accept it}. Of
queries over different attributes a record may satisfy r of each, and these add up: exact where one set of attributes
is asked about, an upper bound otherwise. Two records differ, set by set, on at most min(queries, 2r). Sets whose
queries accept too many cells to list are charged all their queries. All of it is public.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dualquery.compiled import njit
from dualquery.queries.group import increasing_sets
from dualquery.queries.predicates import NONE, Predicates
from dualquery.table.domain import Domain

MOST_LISTED = 4_000_000  # accepted cells, of all queries together
MOST_CODES = 1 << 62


@dataclass(frozen=True)
class Incidence:
    """The most queries that one record satisfies, and the most on which two records differ, or bounds of them."""

    satisfied: int
    differing: int


def incidence_of(
    domain: Domain,
    predicates: Predicates,
    literals: NDArray[np.int32],
    complement: NDArray[np.bool_] | None,
) -> Incidence:
    """Of conjunctions as rows of literals, padded; a complemented one counts as satisfied by everybody."""
    plain = np.ones(len(literals), np.bool_) if complement is None else ~complement
    always = int((~plain).sum())
    rows = literals[plain]
    if not len(rows):
        return Incidence(always, always)
    attributes = np.append(predicates.attribute, np.int32(NONE))[rows >> 1]
    sets, which = np.unique(increasing_sets(attributes), axis=0, return_inverse=True)
    which = which.ravel()
    number = np.bincount(which)
    listed = _listed_sets(domain, predicates, rows, which)
    satisfied = number.copy()  # of a set that one query asks about, and of those not listed
    order, ends = np.argsort(which, kind="stable"), np.cumsum(number)
    for s in np.flatnonzero(listed & (number > 1)).tolist():
        queries = rows[order[ends[s] - number[s] : ends[s]]]
        satisfied[s] = _most_in_a_cell(domain, predicates, queries, sets[s])
    return Incidence(always + int(satisfied.sum()), always + int(np.minimum(number, 2 * satisfied).sum()))


def _listed_sets(
    domain: Domain, predicates: Predicates, rows: NDArray[np.int32], which: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """The sets whose accepted cells are few enough to be listed, those with the fewest first."""
    lengths = np.diff(predicates.start).astype(np.float64)
    sizes = domain.sizes[predicates.attribute].astype(np.float64)
    of_literal = np.append(np.stack([lengths, sizes - lengths], axis=1).ravel(), 1.0)  # padding meets the one
    of_size = np.append(np.repeat(sizes, 2), 1.0)
    cells = np.bincount(which, weights=of_literal[rows].prod(axis=1))
    codes = np.zeros(len(cells))
    np.maximum.at(codes, which, of_size[rows].prod(axis=1))
    order = np.argsort(cells, kind="stable")
    listed = np.zeros(len(cells), np.bool_)
    listed[order] = np.cumsum(cells[order]) <= MOST_LISTED
    return listed & (codes < MOST_CODES)


def _most_in_a_cell(
    domain: Domain, predicates: Predicates, queries: NDArray[np.int32], members: NDArray[np.int32]
) -> int:
    """The most queries over one set of attributes that accept the same cell."""
    members = members[members != NONE]
    sizes = domain.sizes[members].astype(np.int64)
    stride = np.zeros(domain.width + 1, np.int64)
    stride[members] = np.concatenate([np.cumprod(sizes[::-1])[::-1][1:], [1]])
    used = np.unique(queries[queries != NONE])
    steps = stride[predicates.attribute[used >> 1]]
    values = [_accepted(domain, predicates, int(each)) * step for each, step in zip(used, steps, strict=True)]
    start = np.concatenate([[0], np.cumsum([len(each) for each in values])]).astype(np.int64)
    place = np.full(2 * len(predicates) + 1, NONE, np.int64)
    place[used] = np.arange(len(used))
    rows = np.where(queries == NONE, NONE, place[queries])
    flat = np.concatenate(values).astype(np.int64) if len(used) else np.empty(0, np.int64)
    codes = np.sort(_cells(rows, start, flat))
    if not len(codes):
        return 0
    ends = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
    return int(np.diff(ends, prepend=-1).max())


def _accepted(domain: Domain, predicates: Predicates, literal: int) -> NDArray[np.int64]:
    held = np.unique(predicates.accepted(literal >> 1)).astype(np.int64)
    if literal & 1:
        size = int(domain.sizes[predicates.attribute[literal >> 1]])
        return np.setdiff1d(np.arange(size, dtype=np.int64), held)
    return held


@njit(cache=True)
def _cells(rows, start, values):  # type: ignore[no-untyped-def]
    """The code of every cell that every query accepts, one query behind the other."""
    total = 0
    for q in range(rows.shape[0]):
        cells = 1
        for k in range(rows.shape[1]):
            if rows[q, k] >= 0:
                cells *= start[rows[q, k] + 1] - start[rows[q, k]]
        total += cells
    out = np.empty(total, np.int64)
    begin = 0
    for q in range(rows.shape[0]):
        if begin == total:
            break  # those that are left accept nothing
        out[begin] = 0
        cells = 1
        for k in range(rows.shape[1]):
            literal = rows[q, k]
            if literal < 0:
                continue
            number = start[literal + 1] - start[literal]
            for i in range(number - 1, -1, -1):
                for c in range(cells):
                    out[begin + i * cells + c] = out[begin + c] + values[start[literal] + i]
            cells *= number
            if cells == 0:
                break
        begin += cells
    return out
