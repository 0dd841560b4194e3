"""Graphs: a table of edges between public vertices, each edge a record (docs/queries.md has the section [graph]).

The order of the vertices is public and means something: {a .. b} are those from a to b. An edge of a graph that is
not directed is kept as one from the earlier vertex to the later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dualquery.errors import DualQueryError, SchemaError
from dualquery.table.columns import Unplaced
from dualquery.table.domain import Categorical, Column, Domain, equal_width
from dualquery.table.records import Records
from dualquery.table.toml_text import listed, only, optional, quoted, required, text, truth, whole

VERTEX = "vertex"
MOST_VERTICES = 10_000_000
MOST_WEIGHT = 10_000
KEYS: dict[str, Callable[[object], Any]] = {
    "source": text, "target": text, "directed": truth, "weight": text, "heaviest": whole,
}  # fmt: skip


@dataclass(frozen=True)
class Vertex(Categorical):
    def advice(self, reason: Unplaced) -> str:
        if reason is Unplaced.EMPTY:
            return super().advice(reason)
        return (
            "holds vertices outside the declared set; declare them in [graph], or leave such edges "
            "out of the table by a rule that looks at each edge alone"
        )


@dataclass(frozen=True)
class Graph(Domain):
    """The public vertices of a graph, and what is public about them; columns are source, target and weight."""

    directed: bool = True
    attributes: Domain | None = None  # of vertices
    codes: tuple[bytes, ...] = ()  # of each of these, a whole number of 32 bits a vertex

    kind = "graph"

    @property
    def vertices(self) -> tuple[str, ...]:
        return self.columns[0].labels

    @property
    def heaviest(self) -> int:
        """The largest weight of an edge; 1 where edges have none."""
        return len(self.columns[2].labels) - 1 if len(self.columns) > 2 else 1

    @property
    def unit_columns(self) -> tuple[str, ...]:
        """Who pays may be whom an edge belongs to."""
        return tuple(column.name for column in self.columns[:2])

    @cached_property
    def place(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.vertices)}

    @cached_property
    def held(self) -> Records | None:
        if self.attributes is None:
            return None
        rows = np.stack([np.frombuffer(each, "<i4") for each in self.codes], axis=1)
        return Records.from_rows(self.attributes, rows)

    def ends(self, records: Records) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64] | None]:
        """The two vertices of each edge, in order where it has no direction, and the weights."""
        source, target = (cast("NDArray[Any]", each).astype(np.int64) for each in records.columns[:2])
        if not self.directed:
            source, target = np.minimum(source, target), np.maximum(source, target)
        weights = cast("NDArray[Any]", records.columns[2]).astype(np.int64) if len(self.columns) > 2 else None
        return source, target, weights

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> Graph:
        only(section, "[graph]", {*KEYS, "vertices", "first", "codes"})  # codes in complete schemas
        if ("weight" in section) != ("heaviest" in section):
            raise SchemaError(
                "[graph]: 'weight' names a column and 'heaviest' is a whole number; give both or none"
            )
        names, held = _vertices(section, columns, folder)
        given = {key: required(section, "[graph]", key, KEYS[key]) for key in KEYS if key in section}
        return graph_of(names, **given, held=held)

    def sections(self, write: Callable[[Column], str]) -> list[str]:
        """[graph] with all its vertices, [graph.codes] with what is public about them, and the attributes."""
        names, (source, target, *weight) = self.vertices, self.columns
        lines = ["[graph]", f"source = {quoted(source.name)}", f"target = {quoted(target.name)}"]
        if not self.directed:
            lines.append("directed = false")
        lines += [f"weight = {quoted(each.name)}\nheaviest = {self.heaviest}" for each in weight]
        first = int(names[0]) if names[0].isdecimal() and len(names[0]) < 10 else -1
        if first >= 0 and names == tuple(map(str, range(first, first + len(names)))):
            lines += [f"vertices = {len(names)}", f"first = {first}"]
        else:
            lines.append(f"vertices = {listed([quoted(name) for name in names])}")
        if self.attributes is None:
            return ["\n".join(lines)]
        codes = [
            f"{quoted(column.name)} = {listed([str(code) for code in np.frombuffer(each, '<i4')])}"
            for column, each in zip(self.attributes.columns, self.codes, strict=True)
        ]
        return ["\n".join(lines), "\n".join(["[graph.codes]", *codes]), *map(write, self.attributes.columns)]


def graph_of(
    vertices: tuple[str, ...],
    *,
    source: str = "source",
    target: str = "target",
    directed: bool = True,
    weight: str | None = None,
    heaviest: int = 1,
    held: Records | None = None,
) -> Graph:
    """A graph on these vertices; `held` are their public attributes, in the same order."""
    if len(vertices) < 2 or len(vertices) > MOST_VERTICES:
        raise SchemaError(f"[graph]: there must be 2 to {MOST_VERTICES:,} vertices")
    if len(set(vertices)) < len(vertices):
        raise SchemaError("[graph]: a vertex stands twice among the vertices")
    if not 1 <= heaviest <= MOST_WEIGHT:
        raise SchemaError(
            f"[graph]: 'heaviest' must lie between 1 and {MOST_WEIGHT:,}; give weights in larger units"
        )
    columns: list[Column] = [Vertex(source, vertices), Vertex(target, vertices)]
    if weight is not None:
        columns.append(equal_width(weight, 0, heaviest + 1, heaviest + 1, clamp=True))
    attributes = None if held is None else held.domain
    codes = () if held is None else tuple(row.astype("<i4").tobytes() for row in held.to_rows().T)
    return Graph(tuple(columns), directed=directed, attributes=attributes, codes=codes)


def _vertices(
    section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None
) -> tuple[tuple[str, ...], Records | None]:
    given, codes = section.get("vertices"), section.get("codes", {})
    if isinstance(given, str):
        return _from_file(given, columns, folder)
    if isinstance(given, int) and not isinstance(given, bool) and 2 <= given <= MOST_VERTICES:
        first = optional(section, "[graph]", "first", whole) or 0
        if first < 0:
            raise SchemaError("[graph]: 'first' must be a whole number, 0 or more")
        names = tuple(map(str, range(first, first + given)))
    elif isinstance(given, list) and all(isinstance(name, str) for name in given):
        names = tuple(given)
    else:
        raise SchemaError("[graph]: 'vertices' must be a file, a list of names, or how many there are")
    if not columns:
        return names, None
    try:
        rows = np.array([codes[column.name] for column in columns], np.int64).T
        return names, Records.from_rows(Domain(columns), rows.reshape(len(names), len(columns)))
    except (KeyError, TypeError, ValueError, OverflowError, DualQueryError):
        raise SchemaError(
            '[graph]: attributes of vertices need a file of vertices (vertices = "...") with a column for each'
        ) from None


def _from_file(
    name: str, columns: tuple[Column, ...], folder: Path | None
) -> tuple[tuple[str, ...], Records | None]:
    from dualquery.table.encoding import encode  # which reads schemas
    from dualquery.table.reading import read_table

    if folder is None:
        raise SchemaError("[graph]: a schema that stands alone must list its vertices")
    try:
        table = read_table(folder / name)
        if VERTEX not in table.column_names:
            raise SchemaError(f"it has no column '{VERTEX}'")
        names = tuple(str(each) for each in table.column(VERTEX).to_pylist())
        return names, encode(table, Domain(columns)) if columns else None
    except DualQueryError as problem:
        raise SchemaError(f"[graph]: the file of vertices '{name}' cannot be used: {problem}") from None
