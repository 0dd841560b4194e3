"""Graphs: a table of edges between public vertices, each edge a record (docs/queries.md has the section [graph]).

The order of the vertices is public and means something: {a .. b} are those from a to b. An edge of a graph that is
not directed is kept as one from the earlier vertex to the later.

Tables of codes: columns whose values nobody lists, and records that are looked up as a whole.

docs/queries.md has the section [codes.columns]. The universe is every combination, 2^64 records and more: it is
never written out. A record lies in one *cell*, which has a number of 64 bits: the texts and numbers of the record,
mixed by a public function (`cells_of`). Two records may share a cell by accident (among a million looked-up records
with chance 10⁻⁷); cells still partition all records, so that no promise depends on it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError, DualQueryError, SchemaError
from dualquery.table.cells import distinct, texts_of
from dualquery.table.columns import Signed, Unplaced, unlisted
from dualquery.table.domain import Categorical, Column, Domain, Numeric, equal_width
from dualquery.table.records import Records, smallest_type
from dualquery.table.toml_text import listed, only, optional, quoted, required, text, truth, whole
from dualquery.types import Words

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


LONGEST = 64  # characters of a text, at most
TEXT_BITS = 62
MOST_COLUMNS = 32
MOST_NUMBERS = 2**53  # the ends of a range: beyond it a float no longer tells whole numbers apart
_OPEN = ("any text",)  # stands for the values of a column that has no list


@dataclass(frozen=True)
class OpenText(Categorical):
    """Any text of at most so many characters; its code is 62 bits of its SHA-256."""

    longest: int = 16

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return unlisted(1 << TEXT_BITS)

    def placed(self, cells: pa.ChunkedArray, *, typed: bool = False) -> Signed:
        return open_codes(self, cells)

    def code(self, text: str) -> int | None:
        if not 0 < len(text) <= self.longest:
            return None
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - TEXT_BITS)

    @property
    def may_hold(self) -> str:
        return f"texts of 1 to {self.longest} characters"


@dataclass(frozen=True)
class WholeRange(Numeric):
    """Any whole number from edges[0] to edges[1]; its code is how far it lies above the first."""

    @property
    def low(self) -> int:
        return int(self.edges[0])

    @property
    def high(self) -> int:
        return int(self.edges[1])

    @cached_property
    def labels(self) -> tuple[str, ...]:
        return unlisted(self.high - self.low + 1)

    def placed(self, cells: pa.ChunkedArray, *, typed: bool = False) -> Signed:
        return open_codes(self, cells)

    def code(self, text: str) -> int | None:
        """The code of a number that is written in decimals; None where it is none, or out of range."""
        digits = text.strip().removesuffix(".0")
        if not digits.removeprefix("-").isdecimal() or len(digits) > 17:
            return None
        return int(digits) - self.low if self.low <= int(digits) <= self.high else None

    @property
    def may_hold(self) -> str:
        return f"whole numbers from {self.low} to {self.high}"


Open = OpenText | WholeRange


def open_codes(column: Open, cells: pa.ChunkedArray) -> NDArray[np.int64]:
    held = distinct(cells, column.name)
    codes = [None if text is None else column.code(text) for text in texts_of(held.values, column.name)]
    if None in codes or (held.index == len(codes)).any():
        raise DataError(
            f"column '{column.name}' holds cells other than {column.may_hold}; "
            "correct them, or widen it in the schema"
        )
    return np.array(codes, np.int64)[held.index]


@dataclass(frozen=True)
class CodeTable(Domain):
    kind = "codes"

    @property
    def open_columns(self) -> tuple[Open, ...]:
        return cast("tuple[Open, ...]", self.columns)

    @cached_property
    def sizes(self) -> NDArray[np.int32]:
        """The number of values of each column, or the largest number that fits."""
        most = np.iinfo(np.int32).max
        return np.array([min(len(column.labels), most) for column in self.columns], np.int32)

    @property
    def log2_size(self) -> float:
        return float(sum(np.log2(float(len(column.labels))) for column in self.columns))

    def records(self, texts: NDArray[np.str_]) -> Records:
        """Public records from their texts, which can occur: a row each."""
        codes = [
            np.array([column.code(text) for text in texts[:, j].tolist()], smallest_type(len(column.labels)))
            for j, column in enumerate(self.open_columns)
        ]
        return Records(self, len(texts), tuple(codes))

    @classmethod
    def read(cls, section: Mapping[str, Any], columns: tuple[Column, ...], folder: Path | None) -> CodeTable:
        if columns or set(section) != {"columns"} or not isinstance(section["columns"], dict):
            raise SchemaError(
                "a table of [codes] has one section, [codes.columns], with a line for each column, like "
                "icd = {text = 16}"
            )
        return codes_table({name: _column(name, given) for name, given in section["columns"].items()})

    def sections(self, write: Callable[[Column], str]) -> list[str]:
        lines = ["[codes.columns]"]
        for column in self.open_columns:
            said = (
                f"{{text = {column.longest}}}"
                if isinstance(column, OpenText)
                else f"{{from = {column.low}, to = {column.high}}}"
            )
            lines.append(f"{quoted(column.name)} = {said}")
        return ["\n".join(lines)]


def cells_of(columns: Sequence[NDArray[np.unsignedinteger]], rows: int) -> Words:
    """The cell of each record, from the codes of its columns: mixed one after the other (splitmix64)."""
    cells = np.full(rows, 0x9E3779B97F4A7C15, np.uint64)
    with np.errstate(over="ignore"):
        for codes in columns:
            z = (cells * np.uint64(0xD1342543DE82EF95)) ^ codes.astype(np.uint64)
            z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            cells = z ^ (z >> np.uint64(31))
    return cells


def codes_table(columns: Mapping[str, int | tuple[int, int]]) -> CodeTable:
    """A table of codes from its columns: the longest text of each, or the ends of a range of whole numbers."""
    made: list[Column] = []
    for name, given in columns.items():
        if isinstance(given, int):
            if not 1 <= given <= LONGEST:
                raise SchemaError(f"[codes.columns]: '{name}' may have texts of 1 to {LONGEST} characters")
            made.append(OpenText(name, _OPEN, longest=given))
        else:
            low, high = given
            if not -MOST_NUMBERS <= low < high <= MOST_NUMBERS:
                raise SchemaError(f"[codes.columns]: '{name}' needs from < to, both within ±2^53")
            made.append(WholeRange(name, (float(low), float(high)), integer=True))
    if not 1 <= len(made) <= MOST_COLUMNS:
        raise SchemaError(f"[codes.columns] needs 1 to {MOST_COLUMNS} columns, like icd = {{text = 16}}")
    return CodeTable(tuple(made))


def _column(name: str, given: object) -> int | tuple[int, int]:
    whole = isinstance(given, dict) and all(type(each) is int for each in given.values())
    if whole and isinstance(given, dict):
        if set(given) == {"text"}:
            return cast("int", given["text"])
        if set(given) == {"from", "to"}:
            return given["from"], given["to"]
    raise SchemaError(
        f"[codes.columns]: '{name}' should read like {name} = {{text = 16}} or {name} = {{from = 1900, to = 2030}}"
    )
