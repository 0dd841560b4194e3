"""Units: records of the protected table of a database, each with the rows that hang on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DataError
from dualquery.table.database import Database, starts_of
from dualquery.table.records import Codes, ColumnCodes, Records, smallest_type, taken
from dualquery.types import Integers


@dataclass(frozen=True)
class Members:
    """The rows of one child table: those of unit u are start[u] : start[u + 1]."""

    start: NDArray[np.int64]
    records: Records

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many rows each unit has."""
        return np.diff(self.start)

    @property
    def owner(self) -> NDArray[np.int64]:
        """The unit of each row."""
        return np.repeat(np.arange(len(self.start) - 1), self.sizes)

    def take(self, units: NDArray[np.int64]) -> Members:
        """The rows of some units, in this order."""
        sizes = self.sizes[units]
        start = starts_of(sizes)
        rows = np.arange(start[-1]) + np.repeat(self.start[units] - start[:-1], sizes)
        return Members(start, self.records.take(rows))

    def in_order(self, attribute: int | None) -> Members:
        """The rows of each unit in the order of an attribute, those that agree as they stood."""
        if attribute is None:
            return self
        order = np.lexsort((self.records.columns[attribute], self.owner))  # type: ignore[arg-type]
        return Members(self.start, self.records.take(order))

    def with_more(self, more: Members) -> Members:
        start = np.concatenate([self.start, self.start[-1] + more.start[1:]])
        return Members(start, self.records.with_more(more.records))


@dataclass(frozen=True)
class Units(Records):
    """`rows` units over a `Database`; one entry of `members` per child table, in the order of the schema.

    `dropped` says how many rows of the source are in none, and why: for the steward alone.
    """

    members: tuple[Members, ...] = ()
    dropped: Mapping[str, int] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        database = self.database
        if len(self.members) != len(database.children):
            raise DataError("units need the rows of every table that hangs on them")
        sizes_at = len(database.root.columns)
        for child, members, codes in zip(
            database.children, self.members, self.columns[sizes_at:], strict=True
        ):
            start = members.start
            if start.shape != (self.rows + 1,) or start[0] != 0 or start[-1] != members.records.rows:
                raise DataError(
                    f"the rows of table '{child.name}' must lie one behind the other, unit by unit"
                )
            sizes = members.sizes
            if self.rows and not child.at_least <= sizes.min() <= sizes.max() <= child.at_most:
                raise DataError(f"units have fewer or more rows of table '{child.name}' than the schema says")
            if members.records.domain != child.domain or (child.size_codes(sizes) != codes).any():
                raise DataError(f"the rows of table '{child.name}' are not what the units say of them")

    @property
    def database(self) -> Database:
        assert isinstance(self.domain, Database)
        return self.domain

    def joined(self, child: str) -> Records:
        """Every row of a child table with what is known of its unit (`Database.view_domain`)."""
        members = self.members[self.database.place(child)]
        columns = (*taken(self.columns, members.owner), *members.records.columns)
        return Records(self.database.view_domain(child), members.records.rows, columns)

    @property
    def bytes(self) -> int:
        return super().bytes + sum(each.start.nbytes + each.records.bytes for each in self.members)

    def take(self, rows: NDArray[np.int64]) -> Units:
        flat = super().take(rows)
        members = tuple(each.take(rows) for each in self.members)
        return Units(self.domain, flat.rows, flat.columns, places=flat.places, members=members)

    def with_more(self, more: Records) -> Units:
        assert isinstance(more, Units)
        flat = super().with_more(more)
        members = tuple(a.with_more(b) for a, b in zip(self.members, more.members, strict=True))
        return Units(self.domain, flat.rows, flat.columns, places=flat.places, members=members)


def units_of(database: Database, roots: Integers, tables: Sequence[tuple[Integers, Integers]]) -> Units:
    """Units from codes: one row per unit, of its own attributes; of each child table sizes, and its rows."""
    members = tuple(
        Members(starts_of(sizes), Records.from_rows(child.domain, np.asarray(rows, np.int64)))
        for child, (sizes, rows) in zip(database.children, tables, strict=True)
    )
    own = Records.from_rows(database.root.domain, roots).columns if database.root.columns else ()
    return with_sizes(database, len(roots), own, members)


def with_sizes(
    database: Database,
    rows: int,
    own: Sequence[ColumnCodes],
    members: tuple[Members, ...],
    dropped: Mapping[str, int] | None = None,
) -> Units:
    """Units from the columns of the protected table and the rows that hang on them."""
    sizes: list[Codes] = []
    for child, each in zip(database.children, members, strict=True):
        if rows and not child.at_least <= each.sizes.min() <= each.sizes.max() <= child.at_most:
            raise DataError(f"units have fewer or more rows of table '{child.name}' than the schema says")
        sizes.append(child.size_codes(each.sizes).astype(smallest_type(len(child.size.labels))))
    return Units(database, rows, (*own, *sizes), members=members, dropped=dropped or {})


def joined_units(parts: Sequence[Units]) -> Units:
    """All units one behind the other."""
    first, *others = parts
    for each in others:
        first = first.with_more(each)
    return first
