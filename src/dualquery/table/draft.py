"""A first schema read off a table, for a person to make public.

What is found in the private table (values, ranges, which cells are empty) is as private as the table. So a draft says
of each line whether it was read off the data, and `draft = true` says so to every program that reads it. It becomes a
schema when everything in it is something one would have written without looking.

A draft from a public table of the same kind (a past census, a code book) reads nothing private: it is a schema.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from dualquery.errors import DataError, SchemaError, writing
from dualquery.table.binning import number_of_bins
from dualquery.table.cells import plain
from dualquery.table.columns import Categorical
from dualquery.table.domain import Column, Domain, Numeric
from dualquery.table.drafting import LeftOut, drafted
from dualquery.table.reading import AnyTable, describe, is_transaction_file, read_table
from dualquery.table.reading.source import Declared, WantedColumns, known_encoding
from dualquery.table.schema import MARK, Schema, schema_text
from dualquery.table.toml_text import commented, quoted

MOST_EPSILON = 100.0
OPEN = {"name", "clamp", "by", "first", "spread"}  # keys that say nothing about anybody's cells
COUNTS = re.compile(r"counts?|freq|frequency|n", re.IGNORECASE)  # as programs call how often a row occurs
SEVERAL = (
    "is a row of this file several records, as many as this column says? Then write each of them as a row first, and "
    "leave this column out"
)
NAMELESS = re.compile(r"(Unnamed: \d+)?")  # as pandas calls a column that has no name, when it reads one back

WARNING = f"""\
!!! DRAFT, READ OFF THE PRIVATE TABLE: THIS FILE IS NOT PRIVATE AND NOT YET A SCHEMA !!!

Lines that end in '{MARK}' were found in the data. No privacy guarantee holds for a release made
with them. Go through them: keep what anyone would know without seeing the table (a code book, the form
that was filled in, the law), replace the rest, give values that nobody happened to have their place too.
When all that is left is public knowledge, delete these remarks and the line draft = true below."""


KEYS_ALONE = """\
Drafted from the keys that the database declares: no cell was read, and nothing here is private. What a key cannot say
is yours to write: at_most, the attributes, and whether a table is public (--public) because it protects nobody."""


SEEDED = "Found with a seed, for a test: whoever knows it can undo the noise, so nothing here is private or public."


@dataclass(frozen=True)
class Draft:
    """A drafted schema, what it leaves out and why; its text (`str`) is a schema file for a person to edit."""

    schema: Schema
    left_out: tuple[LeftOut, ...]
    public: bool  # drafted from a public table or privately, so that nothing in it is private
    origin: str
    measured: frozenset[str] = frozenset()  # attributes that were found privately (`releases.private_draft`)
    mark: str = MARK  # behind each line that was found
    certificate: Mapping[str, Any] | None = None  # of a private draft

    def __str__(self) -> str:
        units = [
            f"{commented(f'unit = {quoted(each.name)}')}   # {each.unit}"
            for each in self.left_out
            if each.unit
        ]
        text = schema_text(self.schema, heading=self._heading(), hints=units, write=self._attribute)
        choices = [self._choice(each, each.guess) for each in self.left_out if each.guess is not None]
        return "\n".join([text, *(f"{choice}\n" for choice in choices)])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the text, unless there is such a file."""
        out = Path(path)
        beside = certificate_beside(out)
        for file in (out,) if self.certificate is None else (out, beside):
            if file.exists():
                raise SchemaError(f"'{file}' exists already; choose another name, or remove it first")
        with writing(out, SchemaError):
            out.write_text(str(self), encoding="utf-8")
            if self.certificate is not None:
                beside.write_text(json.dumps(self.certificate, indent=1) + "\n", encoding="utf-8")

    def _attribute(self, column: Column) -> str:
        """The lines of an attribute, each with a mark where it was read off the data."""
        lines = ["[[attribute]]"]
        found = column.name in self.measured or not self.public
        for key, value in column.entries().items():
            for line in f"{key} = {value}".splitlines():
                lines.append(line if not found or key in OPEN else f"{line}  {self.mark}")
        return "\n".join([commented(SEVERAL), *lines] if _counts(column) else lines)

    def _choice(self, left: LeftOut, guess: Column) -> str:
        """An attribute for a person to complete, as a comment."""
        others = " or ".join(map(quoted, left.formats[1:]))
        said = f"format = {quoted(left.formats[0])}  # or {others}: which one is meant?"
        lines = self._attribute(guess).splitlines()
        return commented("\n".join(said if line.startswith("format = ") else line for line in lines))

    def _heading(self) -> str:
        heading = f"Drafted from {self.origin}, which is public: nothing private was read."
        if self.schema.draft and self.measured:
            heading = SEEDED
        elif self.certificate is not None or self.measured:
            heading = (
                f"Drafted from {self.origin} with differential privacy, and public as it stands.\nLines that end in "
                f"'{self.mark}' were measured; the certificate beside this file says how, and what it cost."
            )
        elif not self.public:
            heading = WARNING
        if self.left_out:
            reasons = "".join(f"\n  {quoted(each.name)}: {each.reason}" for each in self.left_out)
            heading += f"\n\nLeft out:{reasons}"
        return heading


def certificate_beside(schema: Path) -> Path:
    """Where the certificate of a private draft stands."""
    return schema.with_suffix(".certificate.json")


def schema_draft(
    table: AnyTable | None = None,
    *,
    quantiles: int | None = None,
    for_epsilon: float | None = None,
    public_reference: AnyTable | None = None,
    encoding: str | None = None,
) -> Draft:
    """A first schema for a table: print it, or save it, and edit it.

    It is read off the private table, and marked so line by line. With `public_reference`, a public table of the same
    kind, that one is read and the private one is not: then the draft is public. Numbers get bins of about equal
    share: as many as `quantiles` says, or as suit a table of so many rows and the ε that a release will have
    (`for_epsilon`, 1 where nobody says). `encoding` is that of a text file which is not UTF-8.
    """
    source = table if public_reference is None else public_reference
    if source is None:
        raise DataError("give the table that the draft is for, or a public one of its kind")
    check_bins(quantiles, for_epsilon)
    encoding = None if encoding is None else known_encoding(encoding)
    read = _read(source, encoding)
    if not read.num_rows:
        raise DataError(
            f"{describe(source)} has no rows below the names of its columns, so there is nothing to draft from; give "
            "a table with rows, or write the schema by hand"
        )
    bins = number_of_bins(read.num_rows, for_epsilon) if quantiles is None else quantiles
    columns: list[Column] = []
    left_out: list[LeftOut] = []
    times = Counter(name.strip() for name in read.column_names)
    for place, (name, cells) in enumerate(zip(read.column_names, read.columns, strict=True), start=1):
        found = unfit(name, place, times) or drafted(name, plain(cells), bins=bins)
        if isinstance(found, LeftOut):
            left_out.append(found)
        else:
            columns.append(found)
    if not columns:
        raise DataError(
            f"{describe(source)} has no column that a schema can be drafted for: of the first, "
            f"{left_out[0].reason}; mend that, or write the schema by hand"
        )
    public = public_reference is not None
    schema = Schema(Domain(tuple(columns)), draft=not public, encoding=encoding)
    return Draft(schema, tuple(left_out), public, describe(source))


def database_draft(tables: Sequence[Declared], protect: str | None = None, public: Sequence[str] = ()) -> str:
    """The section [database] that declared keys say: a text for a person to complete.

    No cell is read, so that nothing in it is private. Who is protected, what is public and how many rows hang on one
    (`at_most`) no key says: that is left to whoever knows.
    """
    named = {each.name: each for each in tables}
    if unknown := [each for each in (*public, protect) if each is not None and each not in named]:
        raise SchemaError(f"the database has no table '{unknown[0]}'; there are {', '.join(named) or 'none'}")
    links = {name: [x for x in each.links if x[1] in named and x[1] != name] for name, each in named.items()}
    parents = {
        name: [to for _, to, _ in links[name] if to not in public] for name in named if name not in public
    }
    root = _protected(parents) if protect is None else protect
    if root in public:
        raise SchemaError(f"'{root}' cannot be protected and public; say one of both")
    inside = [root, *(name for name, up in parents.items() if root in up and name != root)]
    if len(inside) == 1:
        raise SchemaError(
            f"no table has a foreign key to '{root}'; protect another, or write [database] by hand"
        )
    keys, of = dict[str, str](), dict[str, dict[str, str]]()
    for name in inside:
        of[name] = {}
        for own, to, its in links[name]:
            columns = its if all(its) else named[to].key  # SQLite may leave out that it is the primary key
            if to in inside and (name == root or to != root):
                continue  # the head of a household, somebody's partner: no parents
            if to not in (root, *public):
                raise SchemaError(
                    f"rows of '{name}' hang on '{to}', too, and each may hang on one protected row alone: say "
                    f"--public {to} if it protects nobody, or draft from a copy without that key"
                )
            if (
                len(own) != 1
                or len(columns) != 1
                or keys.setdefault(to, columns[0]) != columns[0]
                or to in of[name]
            ):
                raise SchemaError(
                    f"'{name}' refers to '{to}' by several columns ({', '.join(own)}), in several ways or by a "
                    "second key; draft from a copy where one column says it"
                )
            of[name][to] = own[0]
    sections = []
    for name in (*inside, *(key for key in keys if key != root)):
        lines = ["[[table]]", f"name = {quoted(name)}"]
        lines += ["public = true"] if name in public else []
        lines += [f"key = {quoted(keys[name])}"] if name in keys else []
        used = of.get(name, {})
        if root in used:
            lines += [f"parent = {quoted(root)}", f"link = {quoted(used[root])}"]
            lines.append(
                f"# at_most = …  # rows that count of one {root}: what you know, not what the data have"
            )
        if looked := ", ".join(f"{to} = {quoted(own)}" for to, own in used.items() if to != root):
            lines.append(f"lookup = {{ {looked} }}")
        apart = {keys.get(name), *named[name].key, *(own for each in named[name].links for own in each[0])}
        sections.append("\n".join([*lines, *_skeletons(named[name], apart)]))
    out = [
        f"  {quoted(name)}: no key leads from it to {root} in one step"
        for name in named
        if name not in (*inside, *keys)
    ]
    heading = "\n".join([KEYS_ALONE, *(["", "Left out:", *out] if out else [])])
    return "\n\n".join([commented(heading), f"[database]\nprotect = {quoted(root)}", *sections]) + "\n"


def _protected(parents: Mapping[str, Sequence[str]]) -> str:
    """The one private table that others hang on, and that hangs on none."""
    held = {to for up in parents.values() for to in up}
    if not held:
        raise SchemaError(
            "no table declares a foreign key to another; write [database] by hand, or name one table (--table, or # "
            "and its name behind a file)"
        )
    roots = [name for name in parents if name in held and not parents[name]]
    if len(roots) == 1:
        return roots[0]
    if roots:
        raise SchemaError(
            f"several tables could be protected, {', '.join(roots)}: say which one is (--protect), and which protect "
            "nobody (--public)"
        )
    raise SchemaError(
        f"tables refer to each other in a circle, {', '.join(sorted(held))}: say which one is protected (--protect)"
    )


def _skeletons(table: Declared, apart: Collection[str | None]) -> Iterator[str]:
    """An attribute for each other column: whole where its type lists its values, and otherwise as a comment."""
    for name, (kind, values, optional) in table.columns.items():
        if name in apart:
            continue
        listed = [*values] or (["true", "false"] if kind == "boolean" else [])
        missing = next(each for each in ("missing", "(missing)", "((missing))") if each not in listed)
        lines = ["[[table.attribute]]", f"name = {quoted(name)}"]
        if listed:
            lines.append(f"values = [{', '.join(map(quoted, [*listed, missing] if optional else listed))}]")
            yield "\n".join([*lines, *([f"missing = {quoted(missing)}"] if optional else [])])
        else:
            yield commented(
                "\n".join([*lines, f"# {kind}: values, or low, high and bins, that are known anyway"])
            )


def check_bins(quantiles: int | None, for_epsilon: float | None) -> None:
    """Refuse numbers of bins, and hints for them, that mean nothing."""
    if quantiles is not None and not 2 <= quantiles <= 1000:
        raise SchemaError("quantiles must be between 2 and 1000 in number")
    if for_epsilon is not None and not 0 < for_epsilon <= MOST_EPSILON:
        raise SchemaError(
            "the ε of the release to come, a hint for the number of bins, must be above 0 and at most "
            f"{MOST_EPSILON:g}"
        )


def _read(source: AnyTable, encoding: str | None) -> pa.Table:
    if is_transaction_file(source):
        try:
            return read_table(source, WantedColumns(["item"], lines=True))
        except DataError:  # text with a header line, or not to be read at all: the next reader will say
            pass
    return read_table(source, WantedColumns(encoding=encoding))


def unfit(name: str, place: int, times: Counter[str]) -> LeftOut | None:
    """A column that cannot be told from others by its name."""
    if NAMELESS.fullmatch(name.strip()):
        return LeftOut(name, f"column {place} has no name, such as an index that was saved with the table")
    if times[name.strip()] > 1:
        return LeftOut(
            name, f"column {place} is one of {times[name.strip()]} with this name; give each its own"
        )
    return None


def _counts(column: Column) -> bool:
    """Whether a column may say how often its row occurs: by its name, and of whole numbers."""
    if isinstance(column, Categorical):
        whole = all(value.isdecimal() for value in column.values if value != column.missing)
    else:
        whole = isinstance(column, Numeric) and column.integer and column.edges[0] >= 0
    return whole and COUNTS.fullmatch(column.name.strip()) is not None
