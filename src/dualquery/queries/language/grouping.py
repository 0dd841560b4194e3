"""Queries that were read one by one, as groups that are counted together."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

import numpy as np

from dualquery.queries.conjunctions import Conjunctions, Parities
from dualquery.queries.group import Group, padded
from dualquery.queries.language.canonical import Query
from dualquery.queries.predicates import Predicates, negative, positive
from dualquery.table.domain import Domain


def to_groups(domain: Domain, queries: Iterable[Query]) -> tuple[Group, ...]:
    """The same queries as groups, in the same order: neighbours of one kind share a group."""
    groups: list[Group] = []
    for is_parity, run in groupby(queries, key=lambda query: bool(query.parity)):
        if is_parity:
            rows = [query.parity for query in run]
            groups.append(Parities(domain, padded(rows)))
        else:
            groups.append(_conjunctions(domain, list(run)))
    return tuple(groups)


def _conjunctions(domain: Domain, queries: list[Query]) -> Conjunctions:
    numbers: dict[tuple[int, tuple[int, ...]], int] = {}
    rows: list[tuple[int, ...]] = []
    for query in queries:
        row = []
        for attribute, values, negated in query.literals:
            number = numbers.setdefault((attribute, values), len(numbers))
            row.append(negative(number) if negated else positive(number))
        rows.append(tuple(row))
    complement = np.array([query.complement for query in queries])
    return Conjunctions(
        domain, Predicates.of(list(numbers)), padded(rows), complement if complement.any() else None
    )
