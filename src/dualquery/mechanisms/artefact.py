"""Artefacts: what a mechanism hands out, and what leaves the house. All of it is public.

Synthetic records and bare answers are what any table may leave; a weighted graph, curves or noisy cells are classes
with these members, and answer every question about their table. An artefact says itself which files it is kept in and
how far its answers may be off; its kind of table knows how they are read again and shown (`kinds`).

Queries over binary attributes as products of signed literals, and their answers from parities.

With χ_S(x) = Π_{j ∈ S} (−1)^{x_j}, +1 where an even number of the attributes in S is 1, a product of k literals is

    Π = 2^{−k} Σ_{S ⊆ its attributes} Π_{j ∈ S} s_j · χ_S,       s_j = −1 for x_j, +1 for ¬x_j

(Barak et al. 2007; Theorem A.2 of the 2014 version of Dual Query, whose convention hides the signs). The absolute
values of the coefficients sum to 1: parities within α, on the scale of −1 to 1, are products within α.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import comb
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError, QueryError
from dualquery.queries.conjunctions import Parities
from dualquery.queries.group import NONE, Group
from dualquery.queries.workload import Workload
from dualquery.table.database import Database, starts_of
from dualquery.table.domain import Domain
from dualquery.table.encoding import decode, encode
from dualquery.table.records import Records
from dualquery.table.units import Members, Units, with_sizes
from dualquery.types import Flags, Fractions, Integers, Reals

SYNTHETIC, ANSWERS = "synthetic.parquet", "answers.parquet"
FEWEST_ROWS = 20_000  # of synthetic data
MOST_ROWS = 10**7  # by default; more may be asked for


def usual_rows(records: int) -> int:
    """As many rows as a table of so many records gets by default."""
    return min(max(FEWEST_ROWS, records), MOST_ROWS)


class Artefact(Protocol):
    """Something that answers queries."""

    @property
    def rows(self) -> int | None:
        """The number of synthetic records, where it consists of records."""

    @property
    def words(self) -> str | None:
        """What it is, in a few words that begin a sentence; None where it is records or answers."""

    def fractions(self, group: Group) -> Fractions:
        """The answer to each query of a group, or a QueryError where it has none."""

    def bars(self, group: Group) -> Fractions | None:
        """How far off each answer may be in 19 of 20 cases (`error_bars.LEVEL`); None where its noise is unknown."""

    def to_arrow(self) -> pa.Table:
        """The artefact as people read it."""

    def files(self) -> dict[str, pa.Table]:
        """What is kept, by file name; the first file is what people open."""


@dataclass(frozen=True, eq=False)
class SyntheticRecords:
    """Records that nobody is behind. They answer every query."""

    records: Records

    @property
    def rows(self) -> int:
        return self.records.rows

    words = None

    def fractions(self, group: Group) -> Fractions:
        return group.counts(self.records) / (group.unit * max(1, self.records.rows))

    def bars(self, group: Group) -> None:
        return None

    @cached_property
    def _decoded(self) -> pa.Table:
        return decode(self.records)

    def to_arrow(self) -> pa.Table:
        return self._decoded

    def files(self) -> dict[str, pa.Table]:
        return {SYNTHETIC: self.to_arrow()}

    @staticmethod
    def of_files(domain: Domain, tables: dict[str, pa.Table]) -> SyntheticRecords:
        return SyntheticRecords(encode(tables[SYNTHETIC], domain))


@dataclass(frozen=True, eq=False)
class SyntheticUnits(SyntheticRecords):
    """Units of a database that nobody is behind: tables with keys of their own, 1, 2, 3, …, that fit each other."""

    records: Units

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        """Every table by its name, with its key and with that of the row that it hangs on."""
        units, database = self.records, self.records.database
        root, own = database.root, len(database.root.columns)
        decoded = decode(Records(root.domain, units.rows, units.columns[:own])) if own else pa.table({})
        out = {root.name: _keyed(decoded, (root.key, _numbered(units.rows)))}
        for child, members in zip(database.children, units.members, strict=True):
            keys = (child.key, _numbered(members.records.rows)), (child.link, members.owner + 1)
            out[child.name] = _keyed(decode(members.records), *keys)
        return out

    def files(self) -> dict[str, pa.Table]:
        return {f"{name}.parquet": table for name, table in self.tables.items()}

    @staticmethod
    def of_files(domain: Domain, tables: dict[str, pa.Table]) -> SyntheticUnits:
        assert isinstance(domain, Database), "units are of a database"
        root, named = domain.root, {name.removesuffix(".parquet"): table for name, table in tables.items()}
        rows = named[root.name].num_rows
        if not np.array_equal(named[root.name].column(root.key).to_numpy(), _numbered(rows)):
            raise DataError(f"the keys of '{root.name}' are not those of a release")
        members = []
        for child in domain.children:
            owner = named[child.name].column(child.link).to_numpy() - 1
            if len(owner) and not (owner[0] >= 0 and owner[-1] < rows and (np.diff(owner) >= 0).all()):
                raise DataError(f"the keys of '{child.name}' are not those of a release")
            start = starts_of(np.bincount(owner, minlength=rows))
            members.append(Members(start, encode(named[child.name], child.domain)))
        own = encode(named[root.name], root.domain).columns if root.columns else ()
        return SyntheticUnits(with_sizes(domain, rows, own, tuple(members)))


def _numbered(rows: int) -> NDArray[np.int64]:
    return np.arange(1, rows + 1)


def _keyed(decoded: pa.Table, *keys: tuple[str | None, NDArray[np.int64]]) -> pa.Table:
    """The columns of a table behind its keys, those that have a name."""
    named = {name: pa.array(numbers) for name, numbers in keys if name is not None}
    return pa.table({**named, **dict(zip(decoded.column_names, decoded.columns, strict=True))})


def synthetic(records: Records) -> SyntheticRecords:
    """Records, or units of a database, as they leave."""
    return SyntheticUnits(records) if isinstance(records, Units) else SyntheticRecords(records)


@dataclass(frozen=True, eq=False)
class BareAnswers:
    """Answers of a mechanism that gives no synthetic records: query texts in canonical form, values, 95% bars."""

    texts: Sequence[str]
    values: Fractions
    half_widths: Fractions

    rows = words = None

    @cached_property
    def _places(self) -> dict[str, int]:
        return {text: i for i, text in enumerate(self.texts)}

    def fractions(self, group: Group) -> Fractions:
        return self._found(group)[0]

    def bars(self, group: Group) -> Fractions:
        """How far off each answer may be, from the noise that it was given (`error_bars.LEVEL`)."""
        return self._found(group)[1]

    def _found(self, group: Group) -> tuple[Fractions, Fractions]:
        texts = group.texts(np.arange(group.size, dtype=np.int64))
        if set(texts) <= self._places.keys():
            return self._at(texts)
        found = self._from_parities(group)
        if found is None:
            missing = next(text for text in texts if text not in self._places)
            raise QueryError(
                f"this release holds answers and no records, and '{missing}' is not among its "
                "queries; release with a mechanism that makes synthetic records"
            )
        return found

    def _at(self, texts: Sequence[str]) -> tuple[Fractions, Fractions]:
        places = [self._places[text] for text in texts]
        return self.values[places], self.half_widths[places]

    def _from_parities(self, group: Group) -> tuple[Fractions, Fractions] | None:
        """Products over binary attributes, where the parities of all their subsets are there (`mechanisms.artefact`).

        A bar is the sum of theirs, each times twice the absolute value of its coefficient: parities range over 2.
        """
        try:
            signed = SignedRows.of(Workload(group.domain, (group,), "asked"))
        except QueryError:
            return None
        if signed.parity.any():
            return None
        total, off = np.ones(group.size), np.zeros(group.size)
        for order in range(1, signed.order + 1):
            for columns in combinations(range(signed.order), order):
                mine = signed.attributes[:, columns]
                rows = np.flatnonzero((mine != NONE).all(axis=1))
                sets = Parities(group.domain, np.sort(mine[rows], axis=1).astype(np.int32))
                texts = sets.texts(np.arange(len(rows)))
                if not set(texts) <= self._places.keys():
                    return None
                even, bars = self._at(texts)
                total[rows] += signed.signs[rows][:, columns].prod(axis=1) * (2 * even - 1)
                off[rows] += 2 * bars
        scale = 2.0 ** (signed.attributes != NONE).sum(axis=1)
        return np.clip(signed.offset + signed.slope * total / scale, 0.0, 1.0), off / scale

    def to_arrow(self) -> pa.Table:
        columns = {"answer": self.values, "bar": self.half_widths}
        return pa.table({"query": pa.array(self.texts, pa.string()), **columns})

    def files(self) -> dict[str, pa.Table]:
        return {ANSWERS: self.to_arrow()}

    @staticmethod
    def of_files(domain: Domain, tables: dict[str, pa.Table]) -> BareAnswers:
        table = tables[ANSWERS]
        return BareAnswers(table["query"].to_pylist(), table["answer"].to_numpy(), table["bar"].to_numpy())


@dataclass(frozen=True, eq=False)
class SignedRows:
    """Each query as offset + slope · Π_j (a literal of attribute j), or (1 + χ_S)/2 where it is a parity.

    Rows of attributes, padded with -1, and the sign s_j of each.
    """

    width: int
    attributes: Integers
    signs: Reals
    offset: Reals
    slope: Reals
    parity: Flags

    @staticmethod
    def of(workload: Workload) -> SignedRows:
        """Of products of literals over binary attributes; a QueryError where an attribute is not binary."""
        for j in workload.attributes.tolist():
            if workload.domain.sizes[j] != 2:
                raise QueryError(
                    f"parities need binary attributes, and '{workload.domain.name(j)}' is not; "
                    "use another mechanism, or leave --mechanism out"
                )
        rows = workload.product_rows(np.arange(workload.size, dtype=np.int64))
        size = workload.size
        width = max(1, rows.literals.shape[1], rows.parities.shape[1])
        attributes = np.full((size, width), NONE, np.int64)
        signs = np.ones((size, width))
        predicate = np.where(rows.literals == NONE, NONE, rows.literals >> 1)
        of_one = np.array([1 in rows.predicates.accepted(p) for p in range(len(rows.predicates))] + [True])
        mine = np.append(rows.predicates.attribute.astype(np.int64), NONE)[predicate]
        holds_at_one = of_one[predicate] ^ (rows.literals & 1 == 1)
        attributes[rows.positions, : mine.shape[1]] = np.where(rows.literals == NONE, NONE, mine)
        signs[rows.positions, : mine.shape[1]] = np.where(holds_at_one, -1.0, 1.0)
        attributes[rows.parity_positions, : rows.parities.shape[1]] = rows.parities
        parity = np.zeros(size, np.bool_)
        parity[rows.parity_positions] = True
        offset, slope = np.zeros(size), np.ones(size)
        offset[rows.positions[rows.complement]], slope[rows.positions[rows.complement]] = 1.0, -1.0
        return SignedRows(workload.domain.width, attributes, signs, offset, slope, parity)

    @property
    def order(self) -> int:
        return self.attributes.shape[1]

    def sets(self, order: int) -> Integers:
        """The distinct sets of so many attributes within the queries, increasing."""
        parts = []
        for columns in combinations(range(self.order), order):
            mine = self.attributes[:, columns]
            parts.append(np.sort(mine[(mine != NONE).all(axis=1)], axis=1))
        found = np.concatenate(parts) if parts else np.empty((0, order), np.int64)
        _, first = np.unique(key_of(found, self.width), return_index=True)
        return found[first]

    def subsets_a_query(self, order: int) -> float:
        """How many sets of an order a query needs, on average over those that are no parities themselves."""
        held = (self.attributes != NONE).sum(axis=1)
        counts = np.array([comb(h, order) for h in range(self.order + 1)], float)
        return float(counts[held].mean())

    def answers(self, measured: Mapping[int, MeasuredParities]) -> Reals:
        held = self.attributes != NONE
        total = np.where(self.parity, 0.0, 1.0)
        whole = np.zeros(len(total))
        for order, told in measured.items():
            for columns in combinations(range(self.order), order):
                mine = self.attributes[:, columns]
                rows = np.flatnonzero((mine != NONE).all(axis=1))
                if not len(rows):
                    continue
                chi = told.at(np.sort(mine[rows], axis=1), self.width)
                sign = self.signs[rows][:, columns].prod(axis=1)
                total[rows] += np.where(self.parity[rows], 0.0, sign * chi)
                all_of_it = held[rows].sum(axis=1) == order
                whole[rows] = np.where(all_of_it, chi, whole[rows])
        product = total / 2.0 ** held.sum(axis=1)
        return np.where(self.parity, (1 + whole) / 2, self.offset + self.slope * product)

    def variances(self, measured: Mapping[int, MeasuredParities]) -> Reals:
        """Of the noise in those answers, before anything is shrunk."""
        held = (self.attributes != NONE).sum(axis=1)
        total = np.zeros(len(held))
        for order, told in measured.items():
            counts = np.array([comb(h, order) for h in range(self.order + 1)], float)[held]
            of_parity = np.where(held == order, 4.0 ** (held - 1), 0.0)
            total += np.where(self.parity, of_parity, counts) * told.noise**2
        spread: Reals = total / 4.0**held
        return spread


@dataclass(frozen=True, eq=False)
class MeasuredParities:
    """The parities of all sets of one order that matter, as fractions from −1 to 1, by increasing key."""

    sets: Integers
    chi: Reals
    noise: float

    def at(self, wanted: Integers, width: int) -> Reals:
        return self.chi[np.searchsorted(key_of(self.sets, width), key_of(wanted, width))]


def key_of(sets: Integers, width: int) -> Integers:
    key = np.zeros(len(sets), np.int64)
    for column in sets.T:
        key = key * width + column
    return key
