"""A database: rows of a protected table, each with the rows of other tables that hang on it.

    [database]
    protect = "household"               # the table whose rows are protected, each with all that hangs on it
    encoding = "latin-1"                # optional: of text files that are not UTF-8

    [[table]]
    name = "household"
    key = "hh"                          # the column that says which household a row is; never released
    [[table.attribute]]
    name = "region"
    values = ["East", "West"]

    [[table]]
    name = "person"
    parent = "household"
    link = "hh"                         # the column of this table that names the household; like its key if not said
    at_most = 6                         # rows that count of one household: public
    at_least = 1                        # households with fewer are no records: public, 0 if not said
    key = "pid"                         # optional: released tables number their rows under this name
    order = "age"                       # optional: rows of a unit stand in the order of this attribute
    lookup = { job = "occupation" }     # optional: a public table, and the column here that names its row
    [[table.attribute]]
    name = "age"
    low = 0
    high = 100
    bins = 20

    [[table]]
    name = "job"
    public = true                       # protects nobody: its attributes become those of whoever names its key
    key = "code"
    [[table.attribute]]
    name = "skill"
    values = ["high", "low"]

Where no [[table]] is named like `protect`, a unit is whoever tables of this parent name by their links.

A row of the protected table with all that hangs on it is one record, a *unit*. So a database is a domain: its columns
are those of the protected table, and behind them one for each other table, of its name: how many of its rows hang on
the unit. Past `MOST_LISTED` rows that number stands in classes, 1, 2, 3, 4, 5 to 6, 7 to 9, 10 to 14, 15 and more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import SchemaError
from dualquery.table.columns import Categorical, Items
from dualquery.table.domain import Column, Domain, Numeric
from dualquery.table.schema import column_in
from dualquery.table.toml_text import only, optional, quoted, required, text, truth, whole
from dualquery.types import Integers

MOST_LISTED = 12  # rows of a unit; where there may be more, their number stands in classes
CLASSES = (0, 1, 2, 3, 4, 5, 7, 10, 15)  # where each class begins
MOST_ROWS = 10_000  # of a unit, of one table
WORDS = frozenset({"any", "all", "count", "where", "other"})  # of questions; no names of tables
FILES = frozenset({"synthetic", "answers", "rows", "replicas", "measurements", "registry"})  # of any release
KEYS = {"name", "key", "parent", "link", "at_most", "at_least", "order", "lookup", "attribute"}
KEYS_OF_PUBLIC = {"name", "public", "key", "attribute"}


@dataclass(frozen=True)
class Lookup:
    """A public table, and the column of a private one that names its rows by their key."""

    name: str
    columns: tuple[Column, ...]
    key: str
    link: str = ""


@dataclass(frozen=True)
class Linked:
    """One table of a database. The protected one has no parent; of it a unit has one row.

    Its last columns are those of the public tables that it looks up.
    """

    name: str
    columns: tuple[Column, ...]
    key: str | None = None
    parent: str | None = None
    link: str | None = None
    at_most: int = 1
    at_least: int = 1
    order: str | None = (
        None  # an attribute: rows of a unit stand in its order, and a pair is a row and the next one
    )
    lookups: tuple[Lookup, ...] = ()
    given: bool = True  # False: the protected rows are in no table; whoever others name by their links is one

    @property
    def own(self) -> tuple[Column, ...]:
        """The columns that stand in the table itself."""
        return self.columns[: len(self.columns) - sum(len(each.columns) for each in self.lookups)]

    @cached_property
    def domain(self) -> Domain:
        """Its own attributes; the protected table may have none, and then no domain either."""
        return Domain(self.columns)

    @cached_property
    def size(self) -> Column:
        """The attribute of a unit that says how many rows of this table hang on it."""
        if self.at_most <= MOST_LISTED:
            listed = range(self.at_least, self.at_most + 1)
            return Categorical(self.name, tuple(map(str, listed)), numeric=True)
        inside = (begin for begin in CLASSES if self.at_least < begin < self.at_most)
        edges = (self.at_least, *inside, self.at_most)
        return Numeric(self.name, tuple(map(float, edges)), integer=True)

    def size_codes(self, sizes: Integers) -> Integers:
        """The code of each number of rows."""
        if isinstance(self.size, Categorical):
            return np.asarray(sizes) - self.at_least
        inner = np.array(self.size.edges[1:-1]) if isinstance(self.size, Numeric) else np.empty(0)
        return np.searchsorted(inner, sizes, side="right").astype(np.int64)

    @property
    def ordering(self) -> int | None:
        """The attribute in whose order rows of a unit stand."""
        return None if self.order is None else [column.name for column in self.columns].index(self.order)

    def sizes_in(self, code: int) -> range:
        """The numbers of rows that have this code."""
        if isinstance(self.size, Categorical):
            return range(self.at_least + code, self.at_least + code + 1)
        assert isinstance(self.size, Numeric)
        first, last = self.size.unit_bounds()[code]
        return range(first, last + 1)


@dataclass(frozen=True)
class Database(Domain):
    """The domain of units: the columns of the protected table, then the size of each other table."""

    tables: tuple[Linked, ...] = ()  # the protected one first

    kind = "database"

    def __post_init__(self) -> None:
        super().__post_init__()
        for child in self.children:
            for domain in (self.view_domain(child.name), self.pair_domain(child.name)):
                assert domain.width  # made here, so that names that stand twice are refused here

    @property
    def root(self) -> Linked:
        """The protected table."""
        return self.tables[0]

    @property
    def children(self) -> tuple[Linked, ...]:
        return self.tables[1:]

    @property
    def inner(self) -> tuple[tuple[str, Domain], ...]:
        return tuple((each.name, each.domain) for each in self.children)

    @property
    def lookups(self) -> dict[str, Lookup]:
        """The public tables by their names."""
        return {each.name: each for table in self.tables for each in table.lookups}

    def place(self, name: str) -> int:
        """The number of a child table among all of them."""
        return [each.name for each in self.children].index(name)

    def child(self, name: str) -> Linked:
        return self.children[self.place(name)]

    def view_domain(self, child: str) -> Domain:
        """What is known of one row of a child table: all of its unit, and its own attributes."""
        return self._views[self.place(child)]

    @cached_property
    def _views(self) -> list[Domain]:
        return [Domain((*self._beside(each), *_renamed(each, each.name))) for each in self.children]

    def pair_domain(self, child: str) -> Domain:
        """What is known of two rows of a unit: all of it, the attributes of one row, and those of the other."""
        found = self.child(child)
        return Domain((*self._beside(found), *_renamed(found, child), *_renamed(found, f"other {child}")))

    def _beside(self, child: Linked) -> tuple[Column, ...]:
        """The columns of a unit; one that has the name of a column of the child table is told apart by its table."""
        own = {column.name for column in child.columns}
        return tuple(
            replace(column, name=f"{self.root.name}.{column.name}") if column.name in own else column
            for column in self.columns
        )

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> Database:
        only(section, "[database]", {"protect", "encoding", "table"})
        protect = required(section, "[database]", "protect", text)
        if columns:
            raise SchemaError(
                "columns of a database belong to one of its tables: write [[table.attribute]] below its [[table]]"
            )
        given = section.get("table", [])
        if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
            raise SchemaError("the tables of a database must be sections, each under [[table]]")
        public, tables = dict[str, Lookup](), list[Linked]()
        for number, entry in enumerate(given, start=1):
            if optional(entry, f"table number {number}", "public", truth):
                found = _public(entry, number)
                if found.name in public:
                    raise SchemaError(f"two tables are named '{found.name}'; rename one of them")
                public[found.name] = found
        for number, entry in enumerate(given, start=1):
            if not entry.get("public"):
                tables.append(_table(entry, number, public))
        if twice := next((each.name for each in tables if each.name in public), None):
            raise SchemaError(f"two tables are named '{twice}'; rename one of them")
        if protect in public:
            raise SchemaError(f"[database]: '{protect}' is public, so that there is nothing to protect in it")
        used = {lookup.name for each in tables for lookup in each.lookups}
        if unused := next((name for name in public if name not in used), None):
            raise SchemaError(
                f"no table looks up '{unused}', which is public; write lookup = {{ {unused} = \"…\" }} into one that "
                "has a column for its key, or remove it"
            )
        database = database_of(tables, protect)
        if database.sizes.max() == 1:
            raise SchemaError(
                f"nothing tells one {protect} from another: it has no attributes, and always as many rows; let "
                "'at_least' and 'at_most' differ, or describe one table by [[attribute]] sections alone"
            )
        return database

    def sections(self, write: Callable[[Column], str]) -> list[str]:
        parts = [f"[database]\nprotect = {quoted(self.root.name)}"]
        for each in (each for each in self.tables if each.given):
            said = {
                key: quoted(value)
                for key in ("name", "key", "parent", "link")
                if (value := getattr(each, key)) is not None
            }
            if each.parent is not None:
                said |= {"at_most": str(each.at_most), "at_least": str(each.at_least)}
            if each.order is not None:
                said["order"] = quoted(each.order)
            if each.lookups:
                links = ", ".join(f"{lookup.name} = {quoted(lookup.link)}" for lookup in each.lookups)
                said["lookup"] = f"{{ {links} }}"
            parts += [_section(said), *_attributes(each.own, write)]
        for lookup in self.lookups.values():
            said = {"name": quoted(lookup.name), "public": "true", "key": quoted(lookup.key)}
            parts += [_section(said), *_attributes(lookup.columns, write)]
        return parts


def _section(said: Mapping[str, str]) -> str:
    return "\n".join(["[[table]]", *(f"{key} = {value}" for key, value in said.items())])


def _attributes(columns: tuple[Column, ...], write: Callable[[Column], str]) -> list[str]:
    return [write(column).replace("[[attribute]]", "[[table.attribute]]", 1) for column in columns]


def _renamed(table: Linked, before: str) -> tuple[Column, ...]:
    """The columns of a table under the names that they have beside those of its unit."""
    return tuple(replace(column, name=f"{before}.{column.name}") for column in table.columns)


def database_of(tables: list[Linked], protect: str) -> Database:
    """The domain of these tables, or what is wrong with them."""
    named = {each.name: each for each in tables}
    if len(named) < len(tables):
        twice = next(each.name for i, each in enumerate(tables) if each.name in [t.name for t in tables[:i]])
        raise SchemaError(f"two tables are named '{twice}'; rename one of them")
    links = {each.name: each.link for each in tables if each.parent == protect}
    if protect not in named and links:
        if lacking := next((name for name, link in links.items() if link is None), None):
            raise SchemaError(f"table '{lacking}' needs 'link', the column that says whose row each is")
        _checked(protect)
        named[protect] = Linked(protect, (), next(iter(links.values())), given=False)
    if protect not in named:
        raise SchemaError(f"[database]: 'protect' names '{protect}', and no [[table]] has that name")
    for each in tables:
        _check_way(each, named, protect)
    root = replace(named[protect], at_most=1, at_least=1)
    children = [each for each in tables if each.name != protect]
    if not children:
        raise SchemaError(f"[database] has one table; describe '{protect}' by [[attribute]] sections alone")
    children = [replace(each, link=each.link or root.key) for each in children]
    if not root.given and len(children) == 1:  # whoever is named has a row
        children = [replace(each, at_least=max(1, each.at_least)) for each in children]
    for each in (root, *children):
        for column in each.columns:
            if column.name.strip() in ((each.key or "").strip(), (each.link or "").strip()):
                raise SchemaError(
                    f"'{column.name}' is both a key and an attribute of table '{each.name}'; a key is never "
                    "released, so remove one of them"
                )
            if isinstance(column, Items):
                raise SchemaError(
                    f"'{column.name}' of table '{each.name}' is a block of items; make them a table of their own"
                )
    return Database((*root.columns, *(each.size for each in children)), tables=(root, *children))


def _check_way(table: Linked, named: Mapping[str, Linked], protect: str) -> None:
    """Refuse a table from which no way leads to the protected one, or a longer one than one step."""
    seen, up = [table.name], table
    while up.parent is not None:
        if up.parent not in named:
            raise SchemaError(f"table '{up.name}': no [[table]] is named '{up.parent}', its parent")
        up = named[up.parent]
        if up.name in seen:
            circle = " → ".join([*seen[seen.index(up.name) :], up.name])
            raise SchemaError(f"tables belong to each other in a circle, {circle}; one must have no parent")
        seen.append(up.name)
    if up.name != protect:
        raise SchemaError(
            f"table '{table.name}' does not lead to '{protect}', whose rows are protected; give it a parent that "
            "does, or remove it"
        )
    if table.name == protect and table.key is None:
        raise SchemaError(f"table '{protect}' needs 'key', the column that says which {protect} a row is")
    if len(seen) > 2:
        raise SchemaError(
            f"table '{table.name}' hangs on '{table.parent}', which hangs on '{seen[2]}'; only tables right below "
            f"the protected one are known: link its rows to '{protect}' itself, or remove it"
        )


def _named(entry: Mapping[str, Any], number: int) -> tuple[str, str]:
    """The name of a table, and how messages call it."""
    name = required(entry, f"table number {number}", "name", text)
    return name, _checked(name)


def _checked(name: str) -> str:
    where = f"table '{name}'"
    if not name.isidentifier() or name.lower() in WORDS | FILES:
        raise SchemaError(
            f"{where}: the name of a table is made of letters, digits and underscores, and is none of "
            f"{', '.join(sorted(WORDS | FILES))}"
        )
    return where


def _public(entry: Mapping[str, Any], number: int) -> Lookup:
    name, where = _named(entry, number)
    only(entry, f"{where}, which is public,", KEYS_OF_PUBLIC)
    key, columns = _column_name(entry, where, "key"), _columns(entry, where)
    if key is None:
        raise SchemaError(f"{where} needs 'key', the column by which its rows are looked up")
    if not columns:
        raise SchemaError(f"{where} has no attribute; list at least one under [[table.attribute]]")
    return Lookup(name, columns, key)


def _table(entry: Mapping[str, Any], number: int, public: Mapping[str, Lookup]) -> Linked:
    name, where = _named(entry, number)
    only(entry, where, {*KEYS, "public"})
    if isinstance(entry.get("parent"), list):
        raise SchemaError(f"{where} names several parents; a row hangs on one protected row, so name one")
    key, parent, link = (_column_name(entry, where, each) for each in ("key", "parent", "link"))
    lookups = _lookups(entry, where, public)
    columns = _columns(entry, where, tuple(column for each in lookups for column in each.columns))
    most, least = optional(entry, where, "at_most", whole), optional(entry, where, "at_least", whole)
    if parent is None:
        if misplaced := next(
            (each for each in ("link", "at_most", "at_least", "order") if each in entry), None
        ):
            raise SchemaError(
                f"{where} has '{misplaced}' and no parent; name its parent, or remove that line"
            )
        return Linked(name, columns, key, lookups=lookups)
    if most is None:
        raise SchemaError(f"{where} needs 'at_most', the rows that count of each {parent}: a public choice")
    least = 0 if least is None else least
    if not 1 <= most <= MOST_ROWS or not 0 <= least <= most:
        raise SchemaError(f"{where} needs 'at_most' from 1 to {MOST_ROWS:,}, and 'at_least' from 0 to that")
    if not columns:
        raise SchemaError(f"{where} has no attribute; list at least one under [[table.attribute]]")
    order = _column_name(entry, where, "order")
    if order is not None and order not in (column.name for column in columns):
        raise SchemaError(
            f"{where}: 'order' names '{order}', which is none of its attributes; name one, or remove it"
        )
    return Linked(name, columns, key, parent, link, most, least, order, lookups)


def _columns(entry: Mapping[str, Any], where: str, more: tuple[Column, ...] = ()) -> tuple[Column, ...]:
    """The attributes of a table, and behind them those that it looks up."""
    given = entry.get("attribute", [])
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise SchemaError(f"{where}: attributes must be sections, each under [[table.attribute]]")
    try:
        columns = (*(column_in(each, place) for place, each in enumerate(given, start=1)), *more)
        if columns:
            Domain(columns)
    except SchemaError as problem:
        raise SchemaError(f"{where}: {problem}") from None
    return columns


def _lookups(entry: Mapping[str, Any], where: str, public: Mapping[str, Lookup]) -> tuple[Lookup, ...]:
    given = entry.get("lookup", {})
    if not isinstance(given, dict) or not all(
        isinstance(link, str) and link.strip() for link in given.values()
    ):
        raise SchemaError(
            f"{where}: 'lookup' names public tables, each with the column that has its key, like {{ job = \"code\" }}"
        )
    if unknown := next((name for name in given if name not in public), None):
        raise SchemaError(
            f"{where} looks up '{unknown}', and no [[table]] of that name is public; write public = true in it, or "
            "remove it from 'lookup'"
        )
    return tuple(replace(public[name], link=link) for name, link in given.items())


def _column_name(entry: Mapping[str, Any], where: str, key: str) -> str | None:
    found = optional(entry, where, key, text)
    if found is not None and not found.strip():
        raise SchemaError(f"{where}: '{key}' must be a name, and it is blank")
    return found


def starts_of(sizes: Integers) -> NDArray[np.int64]:
    """Where the rows of each unit begin, and at the end their number."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
