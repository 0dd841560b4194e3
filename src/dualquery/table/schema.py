"""The schema file: the public description of a table, written by hand in TOML.

docs/schema.md has all sections and keys, with an example of each; attributes are read by `table.columns`, `numbers`
and `dates`, rules by `table.domain`, other kinds of tables by theirs.

`drop_rows_containing` is a public rule about which records exist: a row with that cell in any attribute
of the schema is left out. The number of those left depends on private cells, so it cannot be public.
`unit` and `long` say whose record a row is (`table.persons`), `period` and `calendar` when it came (`table.persons`).
`draft` marks a schema until a person who has made it public deletes the line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from dualquery.errors import DataError, SchemaError
from dualquery.registry import KINDS
from dualquery.table.columns import Categorical, Items
from dualquery.table.dates import Dates
from dualquery.table.domain import Column, Domain, Numeric, rule_entries, rule_in
from dualquery.table.persons import PERSONS, Calendar, Span, no_unit, stamp
from dualquery.table.reading.source import known_encoding
from dualquery.table.toml_text import (
    commented,
    contents,
    document,
    only,
    optional,
    quoted,
    required,
    text,
    truth,
)

DRAFT_LINE = "draft = true  # delete this line once every value below is public knowledge"
KEYS = ("draft", "about", "table", "attribute", "rule")  # and the name of a kind of table
# Of columns, by the keys that no other has.
COLUMNS: tuple[tuple[tuple[str, ...], type[Categorical | Numeric | Dates | Items]], ...] = (
    (("values",), Categorical),
    (("edges",), Numeric),
    (("low", "high", "bins"), Numeric),
    (("from", "to", "by"), Dates),
    (("count",), Items),
)
LONGEST = 500  # of a text in [about]
MARK = "# from the data"  # behind each line of a draft that was read off the table


@dataclass(frozen=True)
class About:
    """What a reader of the report asks first; said once, in the schema, and public."""

    dataset: str | None = None  # its name
    steward: str | None = None  # who answers for the release
    purpose: str | None = None  # what the release is for
    source: str | None = None  # where the schema's values come from: a code book, a form, a law

    @staticmethod
    def read(section: object) -> About:
        if not isinstance(section, dict):
            raise SchemaError("'about' must be a section, [about]")
        said = {each.name: optional(section, "[about]", each.name, text) for each in fields(About)}
        only(section, "[about]", set(said))
        for name, words in said.items():
            if words is not None and (not words.strip() or not words.isprintable() or len(words) > LONGEST):
                raise SchemaError(
                    f"[about]: '{name}' must be 1 to {LONGEST} printable characters on one line"
                )
        return About(**said)

    def entries(self) -> dict[str, str]:
        return {each.name: said for each in fields(self) if (said := getattr(self, each.name)) is not None}


def _shown(named: str) -> str:
    return named if named.isprintable() else ascii(named)


def protected(unit: str | None) -> str:
    """What is protected with all its rows, of one table: a row, or whoever a column names."""
    return "row" if unit is None else _shown(f"person by {unit.strip()}")


@dataclass(frozen=True)
class Schema:
    """A domain, the public rules that say which rows of the source are whose records, and whether it is a draft."""

    domain: Domain
    drop_rows_containing: str | None = None
    draft: bool = False
    unit: str | None = None
    long: bool = False
    encoding: str | None = None  # of a text file, where it is not UTF-8
    about: About = About()
    # Lines of its file that still say they were read off the table.
    marked: int = field(default=0, compare=False)
    calendar: Calendar | None = None
    within: Span | None = None  # the periods whose records are read; None: all records

    def __post_init__(self) -> None:
        if self.domain.inner and self.unit is not None:
            raise SchemaError(
                f"a database protects the rows that 'protect' names; remove the unit '{self.unit}'"
            )
        check_unit(self.domain, self.unit, long=self.long, drops_rows=self.drops_rows)
        if self.drops_rows and self.domain.kind != "records":
            raise SchemaError(
                f"[{self.domain.kind}]: 'drop_rows_containing' is for tables of attributes; remove it"
            )

        if self.calendar is not None:
            if self.domain.kind != "records" or self.long or self.calendar.column == self.unit:
                raise SchemaError(
                    "[table]: 'period' is for tables of attributes where a row is a record, and no unit; remove it"
                )
            stamp(self.calendar, self.domain.columns)

    def during(self, period: str | Span | None) -> Schema:
        """The same, of which only the records of these periods are read."""
        if period is None:
            return self
        if self.calendar is None:
            raise DataError(
                'a period was named, and the schema has none: write period = "received" and '
                'calendar = "quarter" into [table]'
            )
        return replace(self, within=self.calendar.span(period) if isinstance(period, str) else period)

    @property
    def drops_rows(self) -> bool:
        """Whether some rows are no records, so that their number depends on what the rows hold."""
        return self.drop_rows_containing is not None

    @property
    def protects(self) -> str:
        """What is protected with all its rows: a row, whoever a column names, or a unit of a database by its keys."""
        tables = getattr(self.domain, "tables", ())
        keys = sorted(
            {key for each in tables for key in (each.key if each.parent is None else None, each.link) if key}
        )
        return _shown(f"{tables[0].name} by {', '.join(keys)}") if tables else protected(self.unit)

    @property
    def doubts(self) -> list[str]:
        """What a careful reader should know of it: remarks that a draft has left, and ids that are no unit."""
        doubts = []
        if self.marked and not self.draft:
            lines = "a line" if self.marked == 1 else f"{self.marked:,} lines"
            doubts.append(
                f"the schema no longer says 'draft = true', but has {lines} with '{MARK}'; no guarantee holds until "
                "all of it is public knowledge: go through it, and delete the remark behind what is"
            )
        if self.unit is None and self.domain.kind == "records":
            names = [column.name for column in self.domain.columns]
            doubts += [no_unit("attribute", name) for name in names if PERSONS.fullmatch(name.strip())]
        return doubts

    @staticmethod
    def of(schema: Schema | Domain) -> Schema:
        return schema if isinstance(schema, Schema) else Schema(schema)


def read_schema(path: str | os.PathLike[str]) -> Schema:
    where = f"schema file '{path}'"
    return parse_schema(contents(path, where), origin=where, folder=Path(path).parent)


def parse_schema(written: str | Mapping[str, Any], *, origin: str, folder: Path | None = None) -> Schema:
    """The schema that a TOML text, or its contents, describe. `origin` is for messages; its files lie in `folder`."""
    lines = written.splitlines() if isinstance(written, str) else []
    marked = sum(line.rstrip().endswith(MARK) for line in lines if line.strip()[:1] != "#")
    try:
        said = document(written) if isinstance(written, str) else written
    except ValueError as problem:
        raise SchemaError(f"{origin} {problem}") from None
    try:
        return replace(_schema(said, folder), marked=marked)
    except SchemaError as error:
        raise SchemaError(f"{origin}: {error}") from None


def schema_text(
    schema: Schema | Domain,
    *,
    heading: str | None = None,
    hints: Sequence[str] = (),
    write: Callable[[Column], str] | None = None,
) -> str:
    """The TOML text of a schema, under a comment; `parse_schema` gives the same schema back.

    A draft has `hints` in [table], and writes an attribute in a way of its own.
    """
    schema = Schema.of(schema)
    parts = [] if heading is None else [commented(heading)]
    if schema.draft:
        parts.append(DRAFT_LINE)
    if said := schema.about.entries():
        parts.append("\n".join(["[about]", *_lines({name: quoted(each) for name, each in said.items()})]))
    rules = {
        "drop_rows_containing": schema.drop_rows_containing,
        "unit": schema.unit,
        "encoding": schema.encoding,
    }
    if schema.calendar is not None:
        rules |= {"period": schema.calendar.column, "calendar": schema.calendar.by}
    table = {key: quoted(rule) for key, rule in rules.items() if rule is not None}
    if schema.long:
        table["long"] = "true"
    first, *others = schema.domain.sections(write or attribute_text)
    if schema.domain.inner:
        first = "\n".join([first, *_lines(table)])
    elif hints or table:
        parts.append("\n".join(["[table]", *hints, *_lines(table)]))
    parts += [first, *others]
    parts += ["\n".join(["[[rule]]", *_lines(rule_entries(rule))]) for rule in schema.domain.rules]
    return "\n\n".join(parts) + "\n"


def attribute_text(column: Column) -> str:
    return "\n".join(["[[attribute]]", *_lines(column.entries())])


def _lines(keys: Mapping[str, str]) -> list[str]:
    return [f"{key} = {value}" for key, value in keys.items()]


# Reading. Everything in the file must be understood: a misspelt key is an error, never ignored.


def _schema(document: Mapping[str, Any], folder: Path | None) -> Schema:
    if "unit" in document:
        raise SchemaError("'unit' belongs into the section [table]: write that line above it")
    kinds = [name for name in document if name not in KEYS and name in KINDS]
    only(document, "the schema", {*KEYS, *kinds})
    draft = optional(document, "the schema", "draft", truth) or False
    table, attributes, said = (
        document.get("table", {}),
        document.get("attribute", []),
        document.get("rule", []),
    )
    if isinstance(table, list) and kinds == ["database"]:
        # [[table]]: the tables of a database, which are its own to read. What is true of all stands in [database].
        table = {key: said for key, said in _section(document["database"]).items() if key == "encoding"}
    if not isinstance(table, dict):
        raise SchemaError(
            "'table' must be a section, [table]; several, [[table]], need [database] with 'protect'"
        )
    for what, found in (("attribute", attributes), ("rule", said)):
        if not isinstance(found, list) or not all(isinstance(entry, dict) for entry in found):
            raise SchemaError(f"{what}s must be sections, each under [[{what}]]")
    only(table, "[table]", {"drop_rows_containing", "unit", "long", "encoding", "period", "calendar"})
    marker = optional(table, "[table]", "drop_rows_containing", text)
    if marker is not None and not marker.strip():
        raise SchemaError("[table]: 'drop_rows_containing' must not be blank")
    columns = tuple(column_in(entry, number) for number, entry in enumerate(attributes, start=1))
    unit = optional(table, "[table]", "unit", text)
    rules = tuple(rule_in(entry, number) for number, entry in enumerate(said, start=1))
    long = optional(table, "[table]", "long", truth) or False
    encoding = optional(table, "[table]", "encoding", text)
    encoding = None if encoding is None else known_encoding(encoding)
    domain = _of_kind(kinds, document, columns, folder) if kinds else Domain(columns, rules)
    period, by = (optional(table, "[table]", key, text) for key in ("period", "calendar"))
    if (period is None) != (by is None):
        raise SchemaError("[table]: 'period' and 'calendar' belong together; give both, or none")
    calendar = None if period is None or by is None else Calendar(period, by)
    about = About.read(document.get("about", {}))
    return Schema(domain, marker, draft, unit, long, encoding, about, calendar=calendar)


def _of_kind(
    kinds: Sequence[str], document: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None
) -> Domain:
    """The domain that the section of a kind of table describes (`kinds`)."""
    if len(kinds) > 1:
        raise SchemaError(f"a table is one of [{kinds[0]}] and [{kinds[1]}]; keep one of these sections")
    name, section = kinds[0], _section(document[kinds[0]], kinds[0])
    if "rule" in document:
        raise SchemaError(f"rules are for tables of attributes, and this is a table of [{name}]; remove them")
    domain: type[Domain] = KINDS[name].domain
    if isinstance(document.get("table"), list):
        section = {**section, "table": document["table"]}
    return domain.read(section, columns, folder)


def _section(found: object, name: str = "database") -> Mapping[str, Any]:
    if not isinstance(found, dict):
        raise SchemaError(f"'{name}' must be a section, [{name}]")
    return found


def column_in(entry: Mapping[str, Any], place: int) -> Column:
    """The column that an entry of the file describes: one key that only a kind has says which it is."""
    name = required(entry, f"attribute number {place}", "name", text)
    where = f"attribute '{name}'"
    given = [
        (key, kind) for keys, kind in COLUMNS if (key := next((key for key in keys if key in entry), None))
    ]
    if not given:
        raise SchemaError(
            f"{where} needs 'values', or 'low', 'high' and 'bins', or 'edges', or 'from', 'to' and 'by', or 'count'"
        )
    if len(given) > 1:
        raise SchemaError(f"{where} gives both '{given[0][0]}' and '{given[1][0]}'; keep one")
    return given[0][1].read(name, where, entry)


def check_unit(domain: Domain, unit: str | None, *, long: bool, drops_rows: bool) -> None:
    """Refuse a schema whose unit is released, and a long table that is more than units and items."""
    if unit is None:
        if long:
            raise SchemaError("[table]: 'long' needs 'unit', the column that says which rows are one record")
        return
    if not unit.strip():
        raise SchemaError("[table]: 'unit' must be the name of a column, and it is blank")
    if (long or unit not in domain.unit_columns) and unit.strip() in {
        column.name.strip() for column in domain.columns
    }:
        raise SchemaError(
            f"'{unit}' is both the unit and an attribute; a unit is never released, so remove one of them"
        )
    if long and (len(domain.columns) != 1 or not isinstance(domain.columns[0], Items) or drops_rows):
        raise SchemaError(
            "[table]: with 'long' a row is a unit and one item, so the schema must be one attribute with "
            "'count' and drop no rows"
        )
