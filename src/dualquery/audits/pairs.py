"""Pairs of neighbouring tables that an adversary would choose: tiny, so that one record is much of the table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dualquery.privacy.neighbours import Neighbours
from dualquery.table.domain import Categorical, Domain, Items
from dualquery.table.records import Records

BITS = Domain((Categorical("a", ("0", "1")), Categorical("b", ("0", "1"))))
GRADES = Domain((Categorical("grade", ("low", "middle", "high")), Categorical("b", ("0", "1"))))
BASKETS = Domain((Items("basket", 6),))


@dataclass(frozen=True)
class Pair:
    """Two tables that one record tells apart, and the number of records that the public believes in."""

    words: str
    neighbours: Neighbours
    tables: tuple[Records, Records]
    public_rows: int

    @property
    def domain(self) -> Domain:
        return self.tables[0].domain


def pair(
    words: str,
    neighbours: Neighbours,
    one: Sequence[Sequence[int]],
    other: Sequence[Sequence[int]],
    domain: Domain = BITS,
) -> Pair:
    """A pair from rows of codes; the public believes in as many records as the larger table has."""
    tables = [
        Records.from_rows(domain, np.array(rows, np.int64).reshape(len(rows), domain.width))
        for rows in (one, other)
    ]
    return Pair(words, neighbours, (tables[0], tables[1]), max(len(one), len(other), 1))


REPLACED = pair("a record and its opposite", Neighbours.REPLACE, [[0, 0]], [[1, 1]])
DUPLICATES = pair(
    "ten duplicates, one of them replaced", Neighbours.REPLACE, [[0, 0]] * 10, [[0, 0]] * 9 + [[1, 1]]
)
ALONE = pair("one row against none", Neighbours.ADD_REMOVE, [], [[1, 1]])
MANY = pair(
    "a record more that alone satisfies every query",
    Neighbours.ADD_REMOVE,
    [[0, 0]] * 9,
    [[0, 0]] * 9 + [[1, 1]],
)
EXTREMES = pair("the lowest value replaced by the highest", Neighbours.REPLACE, [[0, 0]], [[2, 1]], GRADES)
FULL_BASKET = pair(
    "a full basket more", Neighbours.ADD_REMOVE, [[0] * 6] * 2, [[0] * 6] * 2 + [[1] * 6], BASKETS
)
