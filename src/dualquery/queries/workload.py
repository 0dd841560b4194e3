"""A workload: all the queries that a release is made for, in groups, numbered from zero."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.digest import digest_of
from dualquery.queries.language.canonical import Literal, Query
from dualquery.queries.query import NONE, Conjunctions, Group, Parities, Predicates, Tables
from dualquery.table.domain import Domain

_NO_FLAGS = np.empty(0, np.bool_)
_NO_POSITIONS = np.empty(0, np.int64)
_NO_CODES = np.empty(0, np.int32)


@dataclass(frozen=True)
class ProductRows:
    """Some queries of a workload, the products apart from the parities, each in one rectangle.

    Row r of `literals` (2·predicate + negated, padded with -1) is the product of the query that was
    asked for in place positions[r]; where complement[r], the query is 1 − product. Likewise row r of
    `parities` (attributes, padded with -1) and parity_positions[r].
    """

    predicates: Predicates
    literals: NDArray[np.int32]
    complement: NDArray[np.bool_]
    positions: NDArray[np.int64]
    parities: NDArray[np.int32]
    parity_positions: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Workload:
    """Groups of queries over one domain. `spec` says in words where they came from.

    Query i belongs to the group g with starts[g] <= i < starts[g + 1]. Two workloads ask the same,
    in the same order and grouping, exactly where their digests are equal.
    """

    domain: Domain
    groups: tuple[Group, ...]
    spec: str

    def __post_init__(self) -> None:
        if not self.size:
            raise QueryError("the workload holds no query; name at least one")
        for group in self.groups:
            if group.domain is not self.domain and group.domain != self.domain:
                raise QueryError("the queries of a workload must be about one and the same schema")

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The number of each group's first query, and at the end the number of all queries."""
        return np.concatenate([[0], np.cumsum([group.size for group in self.groups])]).astype(np.int64)

    @property
    def size(self) -> int:
        """The number of queries, every cell of a table counted."""
        return int(self.starts[-1])

    def digest(self) -> str:
        """SHA-256 of what is asked, whatever the types, the padding and the numbering of predicates."""
        return digest_of(self.domain, self.groups)

    def text(self, i: int) -> str:
        """Query i in the query language."""
        if not 0 <= i < self.size:
            raise IndexError(f"query {i} of a workload of {self.size}")
        rows = self.product_rows(np.array([i], np.int64))
        if len(rows.parities):
            attributes = rows.parities[0]
            return Query((), parity=tuple(attributes[attributes != NONE].tolist())).text(self.domain)
        literals = []
        for literal in rows.literals[0][rows.literals[0] != NONE].tolist():
            predicate, negated = divmod(literal, 2)
            values = tuple(rows.predicates.accepted(predicate).tolist())
            literals.append(Literal(int(rows.predicates.attribute[predicate]), values, bool(negated)))
        return Query(tuple(literals), bool(rows.complement[0])).text(self.domain)

    def product_rows(self, indices: NDArray[np.int64]) -> ProductRows:
        """The product form of the queries with these numbers; cells of tables are made on the way."""
        if len(self.groups) == 1:
            members = [(0, np.arange(len(indices), dtype=np.int64), indices)]
        else:
            owner = np.searchsorted(self.starts, indices, side="right") - 1
            members = []
            for g in np.unique(owner).tolist():
                positions = np.flatnonzero(owner == g)
                members.append((g, positions, indices[positions] - self.starts[g]))
        products: list[NDArray[np.int32]] = []
        product_positions: list[NDArray[np.int64]] = []
        complements: list[NDArray[np.bool_]] = []
        parities: list[NDArray[np.int32]] = []
        parity_positions: list[NDArray[np.int64]] = []
        for g, positions, within in members:
            group = self.groups[g]
            if isinstance(group, Parities):
                parities.append(group.attributes[within])
                parity_positions.append(positions)
                continue
            if isinstance(group, Tables):
                literals = self._cells.literals(g, within)
            else:
                literals = group.literals[within]
                if self._offsets[g]:
                    literals = np.where(
                        literals == NONE, np.int32(NONE), literals + np.int32(2 * self._offsets[g])
                    )
            flags = group.complement if isinstance(group, Conjunctions) else None
            products.append(literals)
            product_positions.append(positions)
            complements.append(np.zeros(len(within), np.bool_) if flags is None else flags[within])
        return ProductRows(
            self.predicates,
            _stacked(products),
            np.concatenate([_NO_FLAGS, *complements]),
            np.concatenate([_NO_POSITIONS, *product_positions]),
            _stacked(parities),
            np.concatenate([_NO_POSITIONS, *parity_positions]),
        )

    @property
    def predicates(self) -> Predicates:
        """The predicates that the literals of `product_rows` number: those of all groups, in a row."""
        return self._shared_predicates[0]

    @property
    def _offsets(self) -> dict[int, int]:
        return self._shared_predicates[1]

    @cached_property
    def _shared_predicates(self) -> tuple[Predicates, dict[int, int]]:
        """All predicates, and the number that the first predicate of each group has among them."""
        tables: dict[int, Predicates] = {}  # by identity: groups may share one
        offsets: dict[int, int] = {}
        place: dict[int, int] = {}
        total = 0
        for g, group in enumerate(self.groups):
            if isinstance(group, Parities):
                continue
            predicates = group.predicates if isinstance(group, Conjunctions) else self._cells.predicates
            if id(predicates) not in place:
                place[id(predicates)] = total
                tables[id(predicates)] = predicates
                total += len(predicates)
            offsets[g] = place[id(predicates)]
        return concatenated(list(tables.values())), offsets

    @cached_property
    def _cells(self) -> _Cells:
        return _Cells(self)


class _Cells:
    """Cells of the tables of a workload as rows of literals."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._sizes = workload.domain.sizes.astype(np.int64)
        self._members = {
            g: _padded_sets(group.sets)
            for g, group in enumerate(workload.groups)
            if isinstance(group, Tables)
        }
        named = [sets[sets != NONE] for sets in self._members.values()]
        attributes = np.unique(np.concatenate(named)) if named else np.empty(0, np.int32)
        self.predicates, first = equalities(workload.domain, attributes)
        self._first = np.zeros(workload.domain.width, np.int64)  # of each attribute that occurs
        self._first[attributes] = first

    def literals(self, g: int, cells: NDArray[np.int64]) -> NDArray[np.int32]:
        """The literals of cells of group g, whose number varies fastest in the last attribute."""
        group = self._workload.groups[g]
        assert isinstance(group, Tables), "the caller has looked"
        table = np.searchsorted(group.starts, cells, side="right") - 1
        rest = cells - group.starts[table]
        attributes = self._members[g][table]
        out = np.full(attributes.shape, NONE, np.int32)
        offset = 2 * self._workload._offsets[g]
        for column in range(attributes.shape[1] - 1, -1, -1):
            present = attributes[:, column] != NONE
            attribute = attributes[:, column]
            size = np.where(present, self._sizes[attribute], 1)
            rest, code = np.divmod(rest, size)
            literal = equality_literal(self._first[attribute], size, code) + offset
            out[:, column] = np.where(present, literal, NONE)
        return out


def equalities(domain: Domain, attributes: NDArray[np.integer]) -> tuple[Predicates, NDArray[np.int64]]:
    """`attribute = value` in canonical form for the given attributes, and each one's first number.

    A binary attribute has the one predicate `= 1`, any other attribute one for each value.
    """
    sizes = domain.sizes[attributes].astype(np.int64)
    counts = np.where(sizes == 2, 1, sizes)
    first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    total = int(first[-1])
    values = np.arange(total) - np.repeat(first[:-1], counts) + np.repeat(sizes == 2, counts)
    predicates = Predicates(
        np.repeat(attributes, counts).astype(np.int32),
        np.arange(total + 1, dtype=np.int64),
        values.astype(np.int32),
    )
    return predicates, first[:-1]


def equality_literal(
    first: NDArray[np.int64], sizes: NDArray[np.integer], codes: NDArray[np.integer]
) -> NDArray[np.int64]:
    """The literal `attribute = code` among `equalities`; of a binary attribute `= 0` is the negated `= 1`."""
    binary = sizes == 2
    literal: NDArray[np.int64] = 2 * first + np.where(binary, codes == 0, 2 * codes)
    return literal


def _padded_sets(sets: tuple[tuple[int, ...], ...]) -> NDArray[np.int32]:
    lengths = np.array([len(members) for members in sets])
    out = np.full((len(sets), max(1, int(lengths.max()))), NONE, np.int32)
    out[np.arange(out.shape[1]) < lengths[:, None]] = [j for members in sets for j in members]
    return out


def concatenated(tables: list[Predicates]) -> Predicates:
    """The predicates of several tables in a row."""
    if len(tables) == 1:
        return tables[0]
    ends = np.cumsum([0, *(len(table.values) for table in tables)])
    starts = [table.start[:-1] + end for table, end in zip(tables, ends[:-1], strict=True)]
    return Predicates(
        np.concatenate([_NO_CODES, *(table.attribute for table in tables)]),
        np.concatenate([*starts, ends[-1:]]).astype(np.int64),
        np.concatenate([_NO_CODES, *(table.values for table in tables)]),
    )


def _stacked(rows: list[NDArray[np.int32]]) -> NDArray[np.int32]:
    """Rectangles below one another, padded to the width of the widest."""
    if len(rows) == 1:
        return rows[0]
    width = max((part.shape[1] for part in rows), default=0)
    out = np.full((sum(map(len, rows)), width), NONE, np.int32)
    begin = 0
    for part in rows:
        out[begin : begin + len(part), : part.shape[1]] = part
        begin += len(part)
    return out
