"""What a group of queries must be able to do, whatever kind of query it holds.

A query gives every record a whole number from 0 to `unit`, and asks for the sum over all records. Unit 1 is a
property, and its sum a count; a larger unit leaves room for fractions in fixed point. Groups are stored as
groups, by the million, and never written out query by query. Conjunctions, parities and tables are the first
three kinds; a fourth is a class with these members, and nothing else changes.

Some kinds are products of one-attribute predicates (`= v`, ranges and sets), and some mechanisms need that form. A
kind without it refuses in `products`, and the mechanism says so in a sentence before anything is charged. A literal
is the number 2·predicate, or 2·predicate + 1 for the negation.

`Digest` names what a workload asks: equal queries give equal digests, however they are stored. Predicates are
numbered anew by their contents, each in canonical form; literals are translated and sorted within each query;
padding is dropped. What is hashed is then the same for any numbering, padding, integer type or order of literals.
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import QueryError
from dualquery.queries.statistics import Bound
from dualquery.table.domain import Domain
from dualquery.table.records import Records
from dualquery.types import Flags, Integers, Ints

NONE = -1  # pads the rows of literals and attributes


@dataclass(frozen=True)
class Predicates:
    """Distinct one-attribute predicates: number p accepts values[start[p] : start[p + 1]] of attribute[p].

    Canonical where it comes from the language or a family: values sorted, and of a predicate and its
    negation the one with fewer values (if equal, the one without code 0), so that equal queries are
    equal arrays.
    """

    attribute: Ints
    start: Integers
    values: Ints

    def __len__(self) -> int:
        return len(self.attribute)

    def accepted(self, predicate: int) -> Ints:
        return self.values[self.start[predicate] : self.start[predicate + 1]]

    @staticmethod
    def of(pairs: Sequence[tuple[int, Sequence[int]]]) -> Predicates:
        lengths = [len(values) for _, values in pairs]
        return Predicates(
            np.array([attribute for attribute, _ in pairs], np.int32),
            np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            np.array([v for _, values in pairs for v in values], np.int32),
        )


def equalities(domain: Domain, attributes: NDArray[np.integer]) -> tuple[Predicates, Integers]:
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


def equality_literal(first: Integers, sizes: NDArray[np.integer], codes: NDArray[np.integer]) -> Integers:
    """The literal `attribute = code` among `equalities`; of a binary attribute `= 0` is the negated `= 1`."""
    binary = sizes == 2
    literal: Integers = 2 * first + np.where(binary, codes == 0, 2 * codes)
    return literal


def concatenated(tables: list[Predicates]) -> Predicates:
    if len(tables) == 1:
        return tables[0]
    ends = np.cumsum([0, *(len(table.values) for table in tables)])
    starts = [table.start[:-1] + end for table, end in zip(tables, ends[:-1], strict=True)]
    return Predicates(
        np.concatenate([table.attribute for table in tables]),
        np.concatenate([*starts, ends[-1:]]).astype(np.int64),
        np.concatenate([table.values for table in tables]),
    )


def literal_truth(predicates: Predicates, record: Ints) -> NDArray[np.uint8]:
    """For each literal 2p, 2p + 1 whether it holds of the record; at the end a one, for padding."""
    truth = np.ones(2 * len(predicates) + 1, np.uint8)
    lengths = np.diff(predicates.start)
    hit = predicates.values == np.repeat(record[predicates.attribute], lengths)
    holds = np.add.reduceat(hit, predicates.start[:-1]) > 0 if len(predicates) else hit
    truth[0:-1:2] = holds
    truth[1:-1:2] = ~holds
    return truth


class Group(ABC):
    """Queries of one kind over one domain, numbered from zero; here without any structure among them."""

    if TYPE_CHECKING:  # fields or properties of whoever is one

        @property
        def domain(self) -> Domain: ...

        @property
        def size(self) -> int:
            """The number of queries."""

        @property
        def predicates(self) -> Predicates:
            """What the literals of `products` number; none where there are none."""

        def counts(self, records: Records) -> Integers:
            """The sum of each query over some records: a count, where the unit is 1."""

    @property
    def unit(self) -> int:
        """The largest value that a query gives a record; the smallest is 0."""
        return 1

    def bound(self) -> Bound:
        """A record adds q(x) ≤ unit to each of at most r queries that it satisfies (`most_satisfied`), and two
        records differ by at most the unit in at most s (`most_differing`): L1 r·unit and s·unit, L2² r·unit² and
        s·unit².

        Of tables r is their number and s twice that. A kind of query that bounds r or s from above is charged the
        bound. One record moves a query from 0 to its unit at most.
        """
        unit, alone, apart = self.unit, self.most_satisfied(), self.most_differing()
        return Bound((alone * unit, alone * unit**2), (apart * unit, apart * unit**2), each=unit)

    @abstractmethod
    def add_answers(self, record: Ints, answers: Ints) -> None:
        """answers[q] += q(record) for every query."""

    @abstractmethod
    def scope(self) -> Ints:
        """The distinct sets of attributes that queries ask about: one row per set, increasing, padded with -1."""

    def table_starts(self) -> Integers | None:
        """Where the queries fall into runs that each partition the records: the first of each run, and the size."""
        return None

    def most_satisfied(self) -> int:
        """The most queries that one record satisfies, or an upper bound of it."""
        return self.size

    def most_differing(self) -> int:
        """The most queries on which two records differ, or an upper bound of it."""
        return self.size

    @abstractmethod
    def take(self, indices: Integers) -> Group:
        """Some of the queries, in this order."""

    def sampled(self, rng: np.random.Generator, *, queries: int, cells: int) -> Sample:
        """At most so many queries at random; of tables whole ones, with at most so many cells in all."""
        if self.size <= queries:
            return Sample(np.arange(self.size, dtype=np.int64), self)
        indices = np.sort(rng.choice(self.size, queries, replace=False)).astype(np.int64)
        return Sample(indices, self.take(indices))

    def in_parts(self, cells: int) -> Iterator[Group]:
        """The same queries in order, tables cut into parts of about so many cells."""
        yield self

    @abstractmethod
    def describe(self, digest: Digest) -> None:
        """Write what is asked into a digest: equal bytes for equal queries, however they are stored."""

    @abstractmethod
    def texts(self, indices: Integers) -> list[str]:
        """Some of the queries in the query language."""

    @abstractmethod
    def products(self, indices: Integers) -> ProductRows:
        """Some of the queries as products of predicates, or a QueryError where this kind has no such form."""


class Sample(NamedTuple):
    """Some queries of a group: their numbers in it, and the queries themselves."""

    indices: Integers
    group: Group


@dataclass(frozen=True)
class ProductRows:
    """Some queries, the products apart from the parities, each in one rectangle.

    Row r of `literals` (2·predicate + negated, padded with -1) is the product of the query that was
    asked for in place positions[r]; where complement[r], the query is 1 − product. Likewise row r of
    `parities` (attributes, padded with -1) and parity_positions[r].
    """

    predicates: Predicates
    literals: Ints
    complement: Flags
    positions: Integers
    parities: Ints
    parity_positions: Integers

    @staticmethod
    def of_products(predicates: Predicates, literals: Ints, complement: Flags | None = None) -> ProductRows:
        flags = np.zeros(len(literals), np.bool_) if complement is None else complement
        positions = np.arange(len(literals), dtype=np.int64)
        return ProductRows(predicates, literals, flags, positions, _NO_ROWS, NO_POSITIONS)

    @staticmethod
    def of_parities(parities: Ints) -> ProductRows:
        positions = np.arange(len(parities), dtype=np.int64)
        return ProductRows(NO_PREDICATES, _NO_ROWS, NO_FLAGS, NO_POSITIONS, parities, positions)


NO_FLAGS = np.empty(0, np.bool_)
NO_POSITIONS = np.empty(0, np.int64)
_NO_ROWS = np.empty((0, 0), np.int32)
NO_PREDICATES = Predicates(np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int32))


def distinct_sets(rows: Ints) -> Ints:
    """Distinct rows, in order, through one 64-bit key a row where that is possible."""
    base = int(rows.max(initial=0)) + 2
    if base ** rows.shape[1] < 1 << 63:
        key = np.zeros(len(rows), np.int64)
        for column in rows.T:
            key = key * base + column + 1
        return rows[np.unique(key, return_index=True)[1]]
    return np.unique(rows, axis=0)


def increasing_sets(attributes: Ints) -> Ints:
    """Each row sorted, its padding moved to the end."""
    last = np.iinfo(np.int32).max
    ordered = np.sort(np.where(attributes == NONE, last, attributes), axis=1)
    return np.where(ordered == last, NONE, ordered).astype(np.int32)


def stacked(rows: list[Ints]) -> Ints:
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


def padded(rows: list[tuple[int, ...]]) -> Ints:
    """Rows of different lengths in one rectangle, padded at the end."""
    lengths = np.array([len(row) for row in rows])
    out = np.full((len(rows), max(1, int(lengths.max(initial=0)))), NONE, np.int32)
    out[np.arange(out.shape[1]) < lengths[:, None]] = [number for row in rows for number in row]
    return out


class NotProducts(Group):
    """Kinds of query that are no products of one-attribute predicates; each asks about all columns."""

    noun: ClassVar[str]
    predicates = NO_PREDICATES

    def scope(self) -> Ints:
        return padded([tuple(range(self.domain.width))])

    def add_answers(self, record: Ints, answers: Ints) -> None:
        answers += self.counts(Records.from_rows(self.domain, record[None, :])).astype(np.int32)

    def products(self, indices: Integers) -> ProductRows:
        raise QueryError(
            f"{self.noun} are no products of conditions on single attributes, which this mechanism needs; "
            "use a mechanism that measures the queries themselves"
        )

    def given(self, records: Records) -> Integers:
        """What the only query of this group gives each of some public records, 0 to the unit."""
        each = [self.counts(records.take(np.array([row]))) for row in range(records.rows)]
        return np.concatenate([NO_POSITIONS, *each])

    def changed(self, rows: Records, *, more: bool) -> Records:
        """Public rows, changed so that the only query gives them as much as it can, or as little, if that can be."""
        return rows


PAD = np.iinfo(np.int32).max  # sorts behind every literal


class Digest:
    """SHA-256 of labelled parts. Label and shape stand in front: the bytes could be read back, so different queries
    have different bytes."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def add(self, label: str, contents: bytes | memoryview, shape: tuple[int, ...]) -> None:
        self._hash.update(f"{label} {shape}\n".encode())
        self._hash.update(contents)

    def add_integers(self, label: str, array: NDArray[np.integer]) -> None:
        self.add(label, np.ascontiguousarray(array, dtype="<i4").data, array.shape)

    def add_text(self, label: str, text: str) -> None:
        contents = text.encode()
        self.add(label, contents, (len(contents),))

    def add_domain(self, domain: Domain) -> None:
        self.add_text("schema", _schema_text(domain))

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


# What a code means; how cells are written, in the table or in the release, is no part of a question.
_MEANING = {
    "name", "values", "unknown", "missing", "ordered", "edges", "clamp", "integer", "by", "count", "first",
}  # fmt: skip


def _schema_text(domain: Domain) -> str:
    columns: list[list[object]] = [[name, _schema_text(inner)] for name, inner in domain.inner]
    for column in domain.columns:
        fields = {key: value for key, value in asdict(column).items() if key in _MEANING}
        if "edges" in fields:
            fields["edges"] = [float(edge) for edge in fields["edges"]]
            # Numbers have it since 0.3; digests of older schemas stay what they were.
            if fields["unknown"] is None:
                del fields["unknown"]
        columns.append([type(column).__name__, fields])
    return json.dumps(columns, sort_keys=True)


@dataclass(frozen=True)
class Numbering:
    """New numbers for the predicates in use: first those of one value, then the longer ones."""

    number: Integers  # of each old predicate, where it is in use
    flipped: Flags  # whether the canonical predicate is the negation of the old one
    short: Integers  # (attribute, value) by increasing number
    long: list[tuple[int, tuple[int, ...]]]  # (attribute, values) by increasing number

    def long_text(self) -> str:
        return json.dumps(self.long)


def numbering_of(predicates: Predicates, literals: Ints, domain: Domain) -> Numbering:
    used = np.zeros(len(predicates) + 1, np.bool_)
    used[literals >> 1] = True  # padding, -1 >> 1 = -1, marks the last place, which is nobody's
    lengths = np.diff(predicates.start)
    sizes = domain.sizes[predicates.attribute]
    flipped = np.zeros(len(predicates), np.bool_)
    value = np.full(len(predicates), NONE, np.int64)

    ones = np.flatnonzero(used[:-1] & (lengths == 1))
    value[ones] = predicates.values[predicates.start[ones]]
    flipped[ones] = (sizes[ones] == 2) & (value[ones] == 0)
    value[flipped] = 1

    contents: dict[int, tuple[int, tuple[int, ...]]] = {}
    for p in np.flatnonzero(used[:-1] & (lengths != 1)).tolist():
        values, flipped[p] = _canonical_values(predicates, p, int(sizes[p]))
        if len(values) == 1:
            value[p] = values[0]
        else:
            contents[p] = (int(predicates.attribute[p]), values)

    number = np.zeros(len(predicates), np.int64)
    singles = np.flatnonzero(value != NONE)
    keys = (predicates.attribute[singles].astype(np.int64) << 32) | value[singles]
    short, number[singles] = np.unique(keys, return_inverse=True)
    long = sorted(set(contents.values()))
    places = {content: len(short) + i for i, content in enumerate(long)}
    for p, content in contents.items():
        number[p] = places[content]
    return Numbering(number, flipped, np.stack([short >> 32, short & (2**32 - 1)]), long)


def _canonical_values(predicates: Predicates, p: int, size: int) -> tuple[tuple[int, ...], bool]:
    values = np.unique(predicates.accepted(p))
    if 2 * len(values) > size or (2 * len(values) == size and values[0] == 0):
        return tuple(np.setdiff1d(np.arange(size), values).tolist()), True
    return tuple(values.tolist()), False


def canonical_rows(literals: Ints, flags: Flags | None, numbering: Numbering) -> tuple[Ints, Flags]:
    translation = np.empty(2 * len(numbering.number) + 1, np.int32)
    translation[:-1:2] = 2 * numbering.number + numbering.flipped
    translation[1::2] = 2 * numbering.number + ~numbering.flipped
    translation[-1] = PAD  # padding, -1, reads the last place
    rows = sorted_rows(translation[literals])
    complement = np.zeros(len(rows), np.bool_) if flags is None else flags.copy()
    if complement.any():  # 1 − f is the negated literal
        alone = np.flatnonzero(complement & ((rows != PAD).sum(axis=1) == 1))
        rows[alone, 0] ^= 1
        complement[alone] = False
    return rows, complement


def sorted_rows(rows: NDArray[np.integer]) -> Ints:
    """Each row sorted, and columns that hold nothing but padding dropped."""
    out = np.sort(rows.astype(np.int32, copy=False), axis=1)
    return out[:, : int((out != PAD).any(axis=0).sum())]
