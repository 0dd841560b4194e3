"""Relations between tables by their definition, exhaustively: what brute force compares with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from typing import TypeVar

from dualquery.privacy.budget import Neighbours

Row = TypeVar("Row")


def next_to(
    relation: Neighbours, table: tuple[Row, ...], universe: Sequence[Row]
) -> Iterator[tuple[Row, ...]]:
    """Every neighbour of a table whose records come from a universe."""
    most = relation.records_per_person or 1
    if relation.value in {"add-remove", "person-add-remove"}:
        fewest = 1 if relation is Neighbours.ADD_REMOVE else 0
        yield from _without(table, fewest, most)
        yield from _with(table, universe, fewest, most)
    elif relation.value == "person-replace":
        for others in _without(table, 0, most):
            yield from _with(others, universe, 0, most)
    else:
        assert relation is Neighbours.REPLACE, f"{relation} has no definition here"
        for others in _without(table, 1, 1):
            yield from _with(others, universe, 1, 1)


def _without(table: tuple[Row, ...], fewest: int, most: int) -> Iterator[tuple[Row, ...]]:
    for number in range(fewest, min(most, len(table)) + 1):
        for left in combinations(range(len(table)), len(table) - number):
            yield tuple(table[place] for place in left)


def _with(
    table: tuple[Row, ...], universe: Sequence[Row], fewest: int, most: int
) -> Iterator[tuple[Row, ...]]:
    for number in range(fewest, most + 1):
        for added in combinations_with_replacement(universe, number):
            yield (*table, *added)
