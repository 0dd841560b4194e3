"""A workload: all the queries that a release is made for, in groups, numbered from zero.

How many are too many is said here, too: a family is refused with its number of queries, before any work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.group import (
    NO_FLAGS,
    NO_POSITIONS,
    NONE,
    Digest,
    Group,
    NotProducts,
    Predicates,
    ProductRows,
    concatenated,
    distinct_sets,
    stacked,
)
from dualquery.queries.statistics import NOTHING, Bound, Derived, Together, underlying, worked_out
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Integers, Ints, Reals

OneKind = TypeVar("OneKind", bound=NotProducts)
_TEXTS_AT_ONCE = 50_000


@dataclass(frozen=True, eq=False)
class Workload(Derived):
    """Groups of queries over one domain. `spec` says in words where they came from.

    Query i belongs to the group g with starts[g] <= i < starts[g + 1]. Two workloads ask the same,
    in the same order and grouping, exactly where their digests are equal.
    """

    domain: Domain
    groups: tuple[Group, ...]
    spec: str
    notes: tuple[str, ...] = ()  # what whoever asked for it should know

    def __post_init__(self) -> None:
        if not self.size:
            raise QueryError("the workload holds no query; name at least one")
        for group in self.groups:
            if group.domain is not self.domain and group.domain != self.domain:
                raise QueryError("the queries of a workload must be about one and the same schema")

    @cached_property
    def starts(self) -> Integers:
        """The number of each group's first query, and at the end the number of all queries."""
        return np.concatenate([[0], np.cumsum([group.size for group in self.groups])]).astype(np.int64)

    @property
    def size(self) -> int:
        """The number of queries, every cell of a table counted."""
        return int(self.starts[-1])

    @cached_property
    def scope(self) -> Ints:
        """The distinct sets of attributes that queries ask about: one row per set, increasing, padded with -1."""
        scopes = [group.scope() for group in self.groups]
        return scopes[0] if len(scopes) == 1 else distinct_sets(stacked(scopes))

    @property
    def attributes(self) -> Integers:
        touched = np.zeros(self.domain.width, np.bool_)
        touched[self.scope[self.scope != NONE]] = True
        return np.flatnonzero(touched)

    @property
    def order(self) -> int:
        return max(1, int((self.scope != NONE).sum(axis=1).max()))

    @property
    def decisions(self) -> int:
        """Σ (values − 1) over the attributes that are mentioned: the yes-or-no questions of a record."""
        return int(np.sum(self.domain.sizes[self.attributes].astype(np.int64) - 1))

    def digest(self) -> str:
        """SHA-256 of what is asked, whatever the types, the padding and the numbering of predicates."""
        digest = Digest()
        digest.add_domain(self.domain)
        for group in self.groups:
            group.describe(digest)
        return digest.hexdigest()

    def text(self, i: int) -> str:
        """Query i in the query language."""
        group, place = self.place_of(i)
        return group.texts(np.array([place], np.int64))[0]

    def place_of(self, i: int) -> tuple[Group, int]:
        """The group of query i, and its number in there."""
        if not 0 <= i < self.size:
            raise IndexError(f"query {i} of a workload of {self.size}")
        g = int(np.searchsorted(self.starts, i, side="right")) - 1
        return self.groups[g], i - int(self.starts[g])

    def all_of(self, kind: type[OneKind]) -> list[OneKind]:
        """The groups, which are all of one kind."""
        found = [group for group in self.groups if isinstance(group, kind)]
        if len(found) < len(self.groups):
            raise QueryError(f"a table of {self.domain.kind} is asked {kind.noun}, and nothing else")
        return found

    def texts(self) -> Iterator[str]:
        """Every query in the query language, in order."""
        for group in self.groups:
            for first in range(0, group.size, _TEXTS_AT_ONCE):
                last = min(first + _TEXTS_AT_ONCE, group.size)
                yield from group.texts(np.arange(first, last, dtype=np.int64))

    @property
    def unit(self) -> int:
        """The largest value that a query gives a record, the same for all that are selected from together."""
        units = {group.unit for group in self.groups}
        if len(units) > 1:
            raise QueryError("queries of different units cannot be asked in one workload; release them apart")
        return units.pop()

    def counted(self) -> Together:
        return Together(tuple(map(underlying, self.groups)))

    def of(self, counts: Integers, rows: int) -> Integers:
        parts = zip(self.groups, np.split(counts, self.starts[1:-1]), strict=True)
        return np.concatenate([worked_out(group, part, rows) for group, part in parts])

    def bound(self) -> Bound:
        return sum((group.bound() for group in self.groups), NOTHING)

    def fractions(self, records: Records) -> Reals:
        """The mean of each query over *public* records, as a fraction of its unit."""
        parts = [group.counts(records) / (group.unit * records.rows) for group in self.groups]
        return np.concatenate(parts)

    def product_rows(self, indices: Integers) -> ProductRows:
        """The product form of the queries with these numbers; cells of tables are made on the way."""
        if len(self.groups) == 1:
            return self.groups[0].products(indices)
        owner = np.searchsorted(self.starts, indices, side="right") - 1
        parts: list[tuple[ProductRows, int, NDArray[np.intp]]] = []
        for g in np.unique(owner).tolist():
            places = np.flatnonzero(owner == g)
            rows = self.groups[g].products(indices[places] - self.starts[g])
            parts.append((rows, self._shared_predicates[1][g], places))
        return ProductRows(
            self._shared_predicates[0],
            stacked([_renumbered(rows.literals, first) for rows, first, _ in parts]),
            np.concatenate([NO_FLAGS, *(rows.complement for rows, _, _ in parts)]),
            np.concatenate([NO_POSITIONS, *(places[rows.positions] for rows, _, places in parts)]),
            stacked([rows.parities for rows, _, _ in parts]),
            np.concatenate([NO_POSITIONS, *(places[rows.parity_positions] for rows, _, places in parts)]),
        )

    @cached_property
    def _shared_predicates(self) -> tuple[Predicates, list[int]]:
        """The predicates of all groups in a row, and the number that the first of each group has there."""
        place: dict[int, int] = {}  # by identity: groups may share predicates
        distinct: list[Predicates] = []
        for group in self.groups:
            if id(group.predicates) not in place:
                place[id(group.predicates)] = sum(map(len, distinct))
                distinct.append(group.predicates)
        return concatenated(distinct), [place[id(group.predicates)] for group in self.groups]


@dataclass(frozen=True)
class Grammar:
    """How the questions of one kind of table are written, and which families of them a SPEC may name."""

    words: str  # what the questions are called
    families: str  # the SPECs, with commas between them
    example: Callable[[Any], str]  # a question that a domain can be asked
    groups: Callable[[Any, Sequence[str], Sequence[str]], tuple[Group, ...]]  # of texts and places, in order
    family: Callable[[Any, str], Workload | None]  # of a SPEC; None where it names no family
    reads_file: Callable[[str], bool] = lambda text: False  # whether a question has its records from a file


def _renumbered(literals: Ints, first: int) -> Ints:
    """Literals whose predicates are numbered from `first` on."""
    if first == 0:
        return literals
    return np.where(literals == NONE, np.int32(NONE), literals + np.int32(2 * first))


MOST_QUERIES = 20_000_000  # written out one by one
MOST_TABLES = 2_000_000
MOST_CELLS = 1_000_000_000
_BEYOND = 10**30  # no need to count further


def check_order(domain: Domain, k: int, what: str) -> None:
    if k < 1:
        raise QueryError(f"{what} need at least one attribute, and K is {k}")
    if k > domain.width:
        raise QueryError(f"{what} of {k} attributes cannot be made: the schema has {domain.width}")


def check_count(count: int) -> None:
    if count < 1:
        raise QueryError(f"the number of queries must be at least 1, and is {count}")
    if count > MOST_QUERIES:
        raise QueryError(f"there would be {_spelled(count)} queries; at most {MOST_QUERIES:,} are allowed")


def check_tables(domain: Domain, k: int, attribute: int | None = None) -> None:
    """Refuse all tables over k attributes, or those that hold a certain one, where they are too many."""
    sizes = domain.sizes.tolist()
    own = 1 if attribute is None else sizes.pop(attribute)
    others = k if attribute is None else k - 1
    tables = _number_of_sets(len(sizes), others)
    if tables > MOST_TABLES:
        raise QueryError(
            f"there are {_spelled(tables)} tables over {k} attributes; at most {MOST_TABLES:,} are allowed"
        )
    cells = own * _number_of_cells(sizes, others)
    if cells > MOST_CELLS:
        raise QueryError(
            f"the tables over {k} attributes have {_spelled(cells)} cells; at most {MOST_CELLS:,} are allowed"
        )


def affordable_order(domain: Domain, k: int, attribute: int | None = None) -> int:
    """The largest order up to k whose tables are not too many; 1 always is, or `check_tables` says why not."""
    while 1 < k <= domain.width:
        try:
            check_tables(domain, k, attribute)
        except QueryError:
            k -= 1
        else:
            break
    return k


def number_of_sets_up_to(width: int, k: int) -> int:
    """The number of non-empty sets of at most k out of `width`, or anything past _BEYOND."""
    count = 0
    for order in range(1, k + 1):
        count += _number_of_sets(width, order)
        if count > _BEYOND:
            break
    return count


def _number_of_sets(width: int, k: int) -> int:
    """The number of sets of k out of `width`, or anything past _BEYOND."""
    most = _BEYOND.bit_length()  # C(2 most, most) lies past it
    return comb(width, min(k, width - k, most))


def _number_of_cells(sizes: list[int], k: int) -> int:
    """Σ over sets of k attributes of Π sizes, or anything past _BEYOND."""
    if k - sizes.count(1) > _BEYOND.bit_length():
        return 2 * _BEYOND  # every table has more than 2^(k − ones) cells
    cells = [1] + [0] * k  # the elementary symmetric polynomials: no need to list the sets
    for size in sizes:
        for i in range(k, 0, -1):
            cells[i] += cells[i - 1] * size
    return cells[k]


def _spelled(number: int) -> str:
    return f"{number:,}" if number <= _BEYOND else "more than 10^30"
