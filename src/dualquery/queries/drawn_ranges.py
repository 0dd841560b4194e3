"""Random ranges over one ordered attribute, as predicates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.draws import Stream, range_pairs
from dualquery.queries.language.vocabulary import ranked_codes
from dualquery.queries.predicates import NONE, Predicates
from dualquery.table.domain import Domain

MOST_RANGE_VALUES = 200_000_000
_CELLS_AT_ONCE = 1 << 22


def drawn_ranges(
    domain: Domain, attribute: int, count: int, stream: Stream
) -> tuple[Predicates, NDArray[np.int64]]:
    """The distinct ranges that were drawn, and the literal of each draw."""
    ranked = np.array(ranked_codes(domain.column_of(attribute)[1]), np.int64)
    size, steps = int(domain.sizes[attribute]), len(ranked)
    first, last, which = range_pairs(stream, steps, count, whole=steps < size)
    length = last - first + 1
    if np.minimum(length, size - length).sum() > MOST_RANGE_VALUES:
        raise QueryError(
            f"{count:,} ranges over the {size:,} values of '{domain.name(attribute)}' are too many"
        )
    negated = (2 * length > size) | ((2 * length == size) & (ranked[first] == 0))
    rank = np.full(size, NONE)
    rank[ranked] = np.arange(steps)
    values = []
    many = max(1, _CELLS_AT_ONCE // size)
    for begin in range(0, len(first), many):
        rows = slice(begin, begin + many)
        inside = ((rank >= first[rows, None]) & (rank <= last[rows, None])) ^ negated[rows, None]
        values.append(np.nonzero(inside)[1].astype(np.int32))
    predicates = Predicates(
        np.full(len(first), attribute, np.int32),
        np.concatenate([[0], np.cumsum(np.where(negated, size - length, length))]).astype(np.int64),
        np.concatenate(values),
    )
    return predicates, (2 * np.arange(len(first)) + negated)[which]
