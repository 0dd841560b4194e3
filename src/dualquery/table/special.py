"""Special tables: points in space, edges of a graph, … A schema says so by a section of its own.

    [points]                            [graph]
    …                                   …

Such a section describes a `Domain` of another kind: its records are encoded, kept, counted and owned by persons as
any records are, by its columns. What is asked of them, what plays, what leaves and what the report shows belong to
the kind, and stand where such things stand (`queries.special`, `mechanisms.special`, `releases.special`). A new kind
is a module here that reads and writes its section, and a line in each of those four tables.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from dualquery.errors import SchemaError
from dualquery.table import codes, graph, points
from dualquery.table.domain import Column, Domain


class Section(Protocol):
    """A module that knows one kind of special table."""

    def read(self, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> Domain:
        """The domain that the section and the [[attribute]] sections beside it describe."""

    def text(self, domain: Domain, write: Callable[[Column], str]) -> list[str]:
        """The sections of a domain, complete: nothing is left to other files."""


SECTIONS: dict[str, Section] = {"graph": graph, "points": points, "codes": codes}


def read_special(
    document: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None
) -> Domain | None:
    """The domain of a special table, where the schema has a section for one."""
    found = [name for name in SECTIONS if name in document]
    if not found:
        return None
    if len(found) > 1:
        raise SchemaError(f"a table is one of [{found[0]}] and [{found[1]}]; keep one of these sections")
    if "rule" in document:
        raise SchemaError(
            f"rules are for tables of attributes, and this is a table of [{found[0]}]; remove them"
        )
    section = document[found[0]]
    if not isinstance(section, dict):
        raise SchemaError(f"'{found[0]}' must be a section, [{found[0]}]")
    return SECTIONS[found[0]].read(section, columns, folder)


def special_text(domain: Domain, write: Callable[[Column], str]) -> list[str]:
    """The sections of a special table; `write` gives the [[attribute]] section of a column."""
    return SECTIONS[domain.kind].text(domain, write)


def check_special(domain: Domain, *, drops_rows: bool) -> None:
    """Refuse rules about cells that a special table does not have."""
    if domain.kind in SECTIONS and drops_rows:
        raise SchemaError(f"[{domain.kind}]: 'drop_rows_containing' is for tables of attributes; remove it")
