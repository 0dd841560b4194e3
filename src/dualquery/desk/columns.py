"""A schema file as the page shows it, and as the curator has edited it. The file itself is all that is kept.

A line of a draft that ends in "# from the data" was read off the private table. A column of which some line is marked
so is *undecided*, whoever deleted `draft = true`; it loses its marks when the curator says that it is public
knowledge, and the schema that line when no column is undecided.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from dualquery.desk.commands import Name, Strict, WantedTable
from dualquery.errors import SchemaError
from dualquery.service.settings import ProblemError
from dualquery.table.columns import Categorical
from dualquery.table.domain import Column, Domain, Items
from dualquery.table.draft import OPEN, certificate_beside
from dualquery.table.schema import MARK, About, Schema, attribute_text, column_in, parse_schema, schema_text
from dualquery.table.toml_text import document

MOST_COLUMNS = 1_000  # that a page is for
ShortText = Annotated[str, Field(max_length=500)]
_ATTRIBUTE = re.compile(r"^\[\[attribute\]\]", re.MULTILINE)
_LEFT_OUT = re.compile(r'^#   ("(?:[^"\\]|\\.)*"): (.*)$', re.MULTILINE)
_UNIT = re.compile(r'^# unit = ("(?:[^"\\]|\\.)*")   # (.*)$', re.MULTILINE)


class Edited(Strict):
    """One column as it stands on the page. What is None stays as it is in the file."""

    name: Name
    use: bool = True
    public: bool = False
    values: Annotated[list[ShortText], Field(max_length=10_000)] | None = None
    other: bool | None = None  # whether a value "other" stands for all that are not listed
    ordered: bool | None = None
    edges: Annotated[list[float], Field(max_length=10_000)] | None = None
    first: ShortText | None = None  # of dates
    last: ShortText | None = None
    missing: bool | None = None  # whether a cell may be empty


class EditedSchema(WantedTable):
    digest: ShortText  # of the file that was shown: another window may have saved another
    columns: Annotated[list[Edited], Field(min_length=1, max_length=MOST_COLUMNS)]
    about: dict[str, ShortText] = Field(default_factory=dict)
    unit: Name | None = None


def shown(path: Path) -> dict[str, Any]:
    """A schema file, for the page."""
    text = _text(path)
    schema = parse_schema(text, origin=f"schema file '{path.name}'", folder=path.parent)
    if schema.domain.kind != "records":
        raise SchemaError(
            f"this page is for tables of attributes; release a table of [{schema.domain.kind}] by command"
        )
    columns, parts = schema.domain.columns, _ATTRIBUTE.split(text)[1:]
    if len(columns) > MOST_COLUMNS:
        raise SchemaError(
            f"this page is for up to {MOST_COLUMNS:,} columns, and the table has {len(columns):,}; use the commands, "
            "or keep fewer columns in the schema file"
        )
    units = [{"name": json.loads(name), "why": why} for name, why in _UNIT.findall(text)]
    return {
        "file": path.name,
        "digest": digest(text),
        "draft": schema.draft,
        "about": schema.about.entries(),
        "certificate": certificate_beside(path).exists(),
        "unit": schema.unit,
        "units": units,
        "columns": [
            {**_shown(column), "public": MARK not in part}
            for column, part in zip(columns, parts, strict=True)
        ],
        "left_out": [{"name": json.loads(name), "reason": why} for name, why in _LEFT_OUT.findall(text)],
    }


def stated(path: Path) -> tuple[str | None, Schema]:
    """The part of a schema that is marked public, as a file of its own, and the schema; None where nothing is."""
    text = _text(path)
    schema = parse_schema(text, origin=f"schema file '{path.name}'", folder=path.parent)
    parts = zip(schema.domain.columns, _ATTRIBUTE.split(text)[1:], strict=True)
    public = tuple(column for column, part in parts if MARK not in part)
    if len(public) == len(schema.domain.columns):
        raise SchemaError("every column is public already, so there is nothing to be found")
    if not public:
        return None, schema
    known = replace(schema, domain=Domain(public), draft=False, marked=0)
    return schema_text(known, heading="Public, as it was marked at the desk."), schema


def _shown(column: Column) -> dict[str, Any]:
    if isinstance(column, Items):
        return {"name": column.name, "kind": "items", "count": column.count}
    found: dict[str, Any] = {"name": column.name, "missing": column.missing_code is not None}
    if isinstance(column, Categorical):
        absent = column.missing_code
        values = [value for code, value in enumerate(column.values) if code != absent]
        kind = "numbers" if column.numeric else "values"
        return {**found, "kind": kind, "values": values, "ordered": column.ordered, "other": column.unknown}
    entries = column.entries()
    if "by" in entries:
        first, last = column.labels[0], column.labels[column.bins - 1]
        return {**found, "kind": "dates", "first": first, "last": last, "by": json.loads(entries["by"])}
    return {**found, "kind": "bins", "edges": list(column.edges), "clamp": column.clamp}


def edited(asked: EditedSchema, path: Path) -> str:
    """The text of the schema as it was edited, with marks where a column is still undecided."""
    text = _text(path)
    if digest(text) != asked.digest:
        raise ProblemError(
            409, "changed", "the schema was saved in another window meanwhile; load the page again"
        )
    said = document(text)
    entries = {str(entry["name"]): entry for entry in said["attribute"]}
    wanted = [each for each in asked.columns if each.use]
    unknown = [each.name for each in wanted if each.name not in entries]
    if unknown or not wanted:
        raise SchemaError(
            f"there is no column '{unknown[0]}' in the schema" if unknown else "keep at least one column"
        )
    columns = {
        each.name: column_in(_entry(entries[each.name], each), place)
        for place, each in enumerate(wanted, start=1)
    }
    public = {each.name for each in wanted if each.public}
    before = parse_schema(text, origin="the schema", folder=path.parent)
    schema = replace(
        before,
        domain=Domain(tuple(columns.values()), before.domain.rules),
        draft=len(public) < len(columns),
        about=About.read({name: words for name, words in asked.about.items() if words.strip()}),
        unit=asked.unit,
        marked=0,
    )
    left = [each.name for each in asked.columns if not each.use]
    heading = "Edited at the desk." + "".join(
        f"\n  {json.dumps(name, ensure_ascii=False)}: left out by the curator" for name in left
    )
    return schema_text(schema, heading=heading, write=lambda column: _lines(column, column.name in public))


def _lines(column: Column, public: bool) -> str:
    lines = attribute_text(column).splitlines()
    return "\n".join(
        line if public or line.split(" ")[0] in OPEN_LINES else f"{line}  {MARK}" for line in lines
    )


OPEN_LINES = {"[[attribute]]", *OPEN}
OTHER = "other"


def _entry(entry: Mapping[str, Any], asked: Edited) -> dict[str, Any]:
    """The keys of an attribute as it was edited."""
    made = dict(entry)
    if asked.values is not None and "values" in made:
        made["values"] = [value.strip() for value in asked.values if value.strip()]
        if made.get("missing") in made["values"]:
            made["values"].remove(made["missing"])
        if made.get("unknown") not in (*made["values"], made.get("missing")):
            made.pop("unknown", None)
    if asked.other is not None and "values" in made and not made.get("numeric"):
        if not asked.other:
            made.pop("unknown", None)
        elif "unknown" not in made:
            made["values"] = [*(value for value in made["values"] if value != OTHER), OTHER]
            made["unknown"] = OTHER
    if asked.ordered is not None and "values" in made and not made.get("numeric"):
        made["ordered"] = asked.ordered
    if asked.edges is not None and ("edges" in made or "bins" in made):
        for key in ("low", "high", "bins"):
            made.pop(key, None)
        made["edges"] = asked.edges
    for key, value in (("from", asked.first), ("to", asked.last)):
        if value is not None and key in made:
            made[key] = value
    if asked.missing is not None and "count" not in made:
        if not asked.missing:
            if made.get("unknown") == made.pop("missing", None):
                made.pop("unknown", None)
            made.pop("empty", None)
        elif "missing" not in made:
            made["missing"] = "missing"
    return made


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError):
        raise SchemaError(f"'{path.name}' cannot be read; draft a schema first") from None


def digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
