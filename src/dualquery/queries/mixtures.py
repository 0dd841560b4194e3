"""Questions of every kind, drawn by public chance: what people may ask, to learn from how answers err.

A question is a conjunction about some attributes. Of each it asks for a value, a range or a set, or for the negation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dualquery.queries.conjunctions import Conjunctions
from dualquery.queries.draws import Stream
from dualquery.queries.predicates import NONE, Predicates
from dualquery.table.domain import Domain

PREDICATES = 6  # at most, of an attribute


def mixed_questions(
    domain: Domain, attributes: NDArray[np.int64], orders: NDArray[np.int64], stream: Stream
) -> Conjunctions:
    """Conjunctions about orders[q] of the attributes given, each of which has two values or more."""
    pairs: list[tuple[int, list[int]]] = []
    starts = [0]
    for attribute in attributes.tolist():
        pairs += [(attribute, each) for each in _accepted(int(domain.sizes[attribute]), stream)]
        starts.append(len(pairs))
    first, choices = np.array(starts[:-1]), np.diff(starts)
    most = int(orders.max())
    tickets = stream.below(np.full((len(orders), len(attributes)), 1 << 40))
    chosen = np.argsort(tickets, axis=1, kind="stable")[:, :most]
    predicate = first[chosen] + stream.below(choices[chosen])
    literals = 2 * predicate + stream.coins(predicate.shape)
    literals[np.arange(most) >= orders[:, None]] = NONE
    return Conjunctions(domain, Predicates.of(pairs), literals.astype(np.int32))


def _accepted(size: int, stream: Stream) -> list[list[int]]:
    """Values, ranges of codes and sets: proper subsets of the values, none of them empty."""
    if size == 2:
        return [[1]]
    values = stream.below(np.full(PREDICATES // 3, size)).tolist()
    ends = np.sort(stream.below(np.full((PREDICATES // 3, 2), size)), axis=1).tolist()
    sets = [np.flatnonzero(held).tolist() for held in stream.coins((PREDICATES // 3, size))]
    ranges = [list(range(low, high + 1)) for low, high in ends]
    return [[value] for value in values] + [each for each in (*ranges, *sets) if 0 < len(each) < size]
