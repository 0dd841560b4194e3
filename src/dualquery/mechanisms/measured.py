"""What MWEM measures to answer a workload: its queries one by one, whole tables, parities, or a choice of them."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.query import NONE, Conjunctions, Group, Parities, Tables
from dualquery.queries.workload import Workload
from dualquery.table.domain import Domain

MOST_SETS = 2_000_000  # of attributes, all subsets counted


class Measured(Enum):
    """What one round of MWEM selects and measures."""

    QUERIES = "queries"
    TABLES = "tables"
    PARITIES = "parities"
    QUERIES_AND_PARITIES = "queries-and-parities"


def usual(workload: Workload) -> Measured:
    """Queries where the workload lists queries; of tables whole ones, or cells and parities where all is binary.

    A parity speaks of all cells of its table at once, a large cell of itself; which of them is more wrong
    depends on the data, and is for the selection to find out.
    """
    if not any(isinstance(group, Tables) for group in workload.groups):
        return Measured.QUERIES
    binary = all(workload.domain.sizes[j] == 2 for members in attribute_sets(workload) for j in members)
    return Measured.QUERIES_AND_PARITIES if binary else Measured.TABLES


def measured_workload(workload: Workload, measured: Measured) -> Workload:
    """The queries to choose from."""
    domain = workload.domain
    if measured is Measured.QUERIES:
        return workload
    sets = sorted(_subsets(attribute_sets(workload)), key=lambda members: (len(members), members))
    if measured is Measured.TABLES:
        return Workload(domain, (Tables(domain, tuple(sets)),), f"tables of {workload.spec}")
    own = workload.groups if measured is Measured.QUERIES_AND_PARITIES else ()
    return Workload(domain, (*own, _parities(domain, sets)), f"{measured.value} of {workload.spec}")


def _parities(domain: Domain, sets: list[tuple[int, ...]]) -> Parities:
    """The parity of each set of attributes, all of which must be binary."""
    for j in sorted({j for members in sets for j in members}):
        if domain.sizes[j] != 2:
            raise QueryError(
                f"parities need binary attributes, and '{domain.name(j)}' is not; measure tables or queries"
            )
    rows = np.full((len(sets), max(map(len, sets))), NONE, np.int32)
    for i, members in enumerate(sets):
        rows[i, : len(members)] = members
    return Parities(domain, rows)


def small_tables(workload: Workload, most_cells: float) -> Workload:
    """The tables with so few cells that noise does not drown them; at least the smallest one.

    A table's summed error is at most twice the number of records. Where noise alone adds more, its score
    can never be positive, whatever the data: a public reason to leave it out.
    """
    (tables,) = workload.groups
    assert isinstance(tables, Tables)
    cells = np.diff(tables.starts)
    kept = np.flatnonzero(cells <= max(most_cells, cells.min()))
    return Workload(
        workload.domain, (Tables(workload.domain, tuple(tables.sets[t] for t in kept)),), workload.spec
    )


def attribute_sets(workload: Workload) -> set[tuple[int, ...]]:
    """The distinct sets of attributes that the queries ask about, each increasing."""
    return {members for group in workload.groups for members in _sets_of(group)}


def fewest_cells(workload: Workload) -> int:
    """The size of the smallest table that holds a whole query."""
    sizes = np.append(workload.domain.sizes, 1).astype(np.float64)  # padding -1 meets the one at the end
    return min(
        int(np.diff(group.starts).min())
        if isinstance(group, Tables)
        else int(min(sizes[_attributes(group)].prod(axis=1).min(), 2.0**62))
        for group in workload.groups
        if group.size
    )


def _sets_of(group: Group) -> Iterator[tuple[int, ...]]:
    if isinstance(group, Tables):
        yield from group.sets
        return
    for row in np.unique(np.sort(_attributes(group), axis=1), axis=0).tolist():
        yield tuple(j for j in row if j != NONE)


def _attributes(group: Conjunctions | Parities) -> NDArray[np.int32]:
    """The attributes of each query, padded with -1."""
    if isinstance(group, Parities):
        return group.attributes
    # The padding of the literals, -1, is predicate -1: the last entry.
    return np.append(group.predicates.attribute, np.int32(NONE))[group.literals >> 1]


def _subsets(sets: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """All sets and all of their subsets but the empty one."""
    if sum(1 << len(members) for members in sets) > MOST_SETS:
        raise QueryError(
            f"the workload has more than {MOST_SETS:,} tables and smaller tables within; "
            "measure its queries instead, or ask about fewer attributes"
        )
    return {
        part
        for members in sets
        for size in range(1, len(members) + 1)
        for part in combinations(members, size)
    }
