"""Lists of records: a query accepts the cells of a list, few out of a universe that nobody could write out.

Query q accepts cells[start[q] : start[q + 1]] (sorted, each once). A record lies in one cell, so that it satisfies as
many queries as there are lists that its cell lies in: at most r, the *incidence*, however many queries there are.

icd = C71.9 & zip = 04103 & born = 1984      a look-up: every column of the table, each once
icd = C71 & zip = 04103 | icd = C72 & zip = 04103    a list of a few: look-ups with `|` between them
record in list('codes.csv')                  the records of a file with a column for each column of the table
lookups:FILE                                 a look-up for each row of a file
lists:FILE                                   a list for each name in the file's column `list`
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from os.path import isfile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DualQueryError, QueryError
from dualquery.queries.group import Digest, NotProducts
from dualquery.queries.language import quoted_where_needed
from dualquery.queries.language.formula import Fault, Phrase, Token, read_each, tokens_of
from dualquery.queries.statistics import ONE_CELL, Bound
from dualquery.queries.workload import Grammar, Workload, check_count
from dualquery.table.cells import plain, texts_of
from dualquery.table.graph import CodeTable, cells_of
from dualquery.table.reading import read_table
from dualquery.table.reading.source import WantedColumns
from dualquery.table.records import Records
from dualquery.types import Integers, Ints, Words


@dataclass(frozen=True, eq=False)
class Catalogue:
    """Cells that somebody named, sorted, with the texts of their records: one row per cell, one column per column."""

    cells: Words
    texts: NDArray[np.str_]


@dataclass(frozen=True, eq=False)
class Lists(NotProducts):
    """Lists of cells, how each is written, and what the cells are called."""

    domain: CodeTable
    start: Integers
    cells: Words
    said: tuple[str, ...] = field(repr=False)
    catalogue: Catalogue = field(repr=False)

    noun = "lists of records"

    @property
    def size(self) -> int:
        return len(self.start) - 1

    def counts(self, records: Records) -> Integers:
        held, times = np.unique(record_cells(records), return_counts=True)
        counts = np.concatenate([[0], np.cumsum(_found(held, times, self.cells))])
        return (counts[self.start[1:]] - counts[self.start[:-1]]).astype(np.int64)

    def given(self, records: Records) -> Integers:
        """1 for each of some records that the only list names."""
        return np.isin(record_cells(records), self.cells).astype(np.int64)

    def changed(self, rows: Records, *, more: bool) -> Records:
        """The records that the only list names; to have fewer of them none is needed."""
        place = np.searchsorted(self.catalogue.cells, self.cells)
        return self.domain.records(self.catalogue.texts[place if more else place[:0]])

    def add_answers(self, record: Ints, answers: Ints) -> None:
        cell = cells_of([np.array([code], np.uint64) for code in record.tolist()], 1)[0]
        hits = np.concatenate([[0], np.cumsum(self.cells == cell)])
        answers += (hits[self.start[1:]] - hits[self.start[:-1]]).astype(np.int32)

    @cached_property
    def _times(self) -> Integers:
        """In how many lists the most often named cells lie, falling."""
        return np.sort(np.unique(self.cells, return_counts=True)[1])[::-1].astype(np.int64)

    def most_satisfied(self) -> int:
        """The incidence r: the most lists that one cell lies in."""
        return int(self._times[0]) if len(self._times) else 0

    def most_differing(self) -> int:
        """Those of two cells; all, where two records together meet every list."""
        return min(self.size, int(self._times[:2].sum()))

    @property
    def longest(self) -> int:
        return int(np.diff(self.start).max(initial=0))

    def take(self, indices: Integers) -> Lists:
        lengths = np.diff(self.start)[indices]
        start = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        places = np.arange(start[-1]) + np.repeat(self.start[indices] - start[:-1], lengths)
        said = tuple(self.said[i] for i in indices.tolist())
        return Lists(self.domain, start, self.cells[places], said, self.catalogue)

    def describe(self, digest: Digest) -> None:
        digest.add("lists end at", np.ascontiguousarray(self.start, "<i8").data, self.start.shape)
        digest.add("cells", np.ascontiguousarray(self.cells, "<u8").data, self.cells.shape)

    def texts(self, indices: Integers) -> list[str]:
        return [self.said[i] for i in indices.tolist()]


def record_cells(records: Records) -> Words:
    columns = [codes for codes in records.columns if isinstance(codes, np.ndarray)]
    return cells_of(columns, records.rows)


@dataclass(frozen=True, eq=False)
class NamedCells:
    """How many records lie in each of some distinct cells: a few cells of one histogram over the whole universe."""

    cells: Words

    def __post_init__(self) -> None:
        if (self.cells[1:] <= self.cells[:-1]).any():  # the bound rests on it: each is one number
            raise ValueError("cells are named once each, in their order")

    def counts(self, records: Records) -> Integers:
        held, times = np.unique(record_cells(records), return_counts=True)
        return _found(held, times, self.cells).astype(np.int64)

    def bound(self) -> Bound:
        return ONE_CELL


def _found(held: Words, times: NDArray[np.integer], wanted: Words) -> NDArray[np.integer]:
    """The number at each wanted cell, nought where it is not held."""
    if not len(held):
        return np.zeros(len(wanted), np.int64)
    place = np.minimum(np.searchsorted(held, wanted), len(held) - 1)
    return np.where(held[place] == wanted, times[place], 0)


def joined(groups: list[Lists]) -> Lists:
    if len(groups) == 1:
        return groups[0]
    cells = np.concatenate([group.catalogue.cells for group in groups])
    texts = np.concatenate([group.catalogue.texts for group in groups])
    distinct, first = np.unique(cells, return_index=True)
    ends = np.cumsum([0, *(int(group.start[-1]) for group in groups)])
    start = np.concatenate([[0], *(group.start[1:] + end for group, end in zip(groups, ends, strict=False))])
    return Lists(
        groups[0].domain,
        start.astype(np.int64),
        np.concatenate([group.cells for group in groups]),
        tuple(text for group in groups for text in group.said),
        Catalogue(distinct, texts[first]),
    )


LIST = "list"  # the column that names the lists of a file


def groups_of(domain: CodeTable, texts: Sequence[str], places: Sequence[str]) -> tuple[Lists, ...]:
    return (joined(read_each(texts, places, lambda text: _read(domain, text))),)


def example_of(domain: CodeTable) -> str:
    values = [str(getattr(column, "low", "A")) for column in domain.open_columns]
    return _lookup_text(domain, values)


def family_of(domain: CodeTable, spec: str) -> Workload | None:
    """The workload of `lookups:FILE` or `lists:FILE`; None where the SPEC is something else."""
    family, colon, path = spec.partition(":")
    if not colon or family not in ("lookups", "lists"):
        return None
    if not isfile(path):
        raise QueryError(f"'{spec}' should read {family}:FILE, and there is no file '{path}'")
    group = lookups_of(domain, path) if family == "lookups" else lists_of(domain, path)
    return Workload(domain, (group,), spec)


LOOK_UPS = Grammar(
    "look-ups and lists",
    "lookups:FILE, lists:FILE",
    example_of,
    groups_of,
    family_of,
    reads_file=lambda text: _names_a_file(tokens_of(text)),
)


def lookups_of(domain: CodeTable, source: object) -> Lists:
    texts = _columns(domain, source, ())
    cells = _cells(domain, texts, _called(source))
    said = tuple(_lookup_text(domain, row) for row in texts.tolist())
    return Lists(domain, np.arange(len(cells) + 1), cells, said, _catalogue(cells, texts))


def lists_of(domain: CodeTable, source: object) -> Lists:
    """A list for each name in the column `list`, in the order in which the names come."""
    columns = _columns(domain, source, (LIST,))
    texts, names = columns[:, :-1], columns[:, -1]
    cells = _cells(domain, texts, _called(source))
    _, first, which = np.unique(names, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[which]
    said = tuple(
        f"record in list({_quoted(_called(source))}, {_quoted(name)})" for name in names[np.sort(first)]
    )
    return _listed(domain, rank, cells, said, texts)


def _listed(
    domain: CodeTable, rank: NDArray[np.intp], cells: Words, said: tuple[str, ...], texts: NDArray[np.str_]
) -> Lists:
    """Lists from (list, cell) pairs; a cell that a list names twice is in it once."""
    order = np.lexsort((cells, rank))
    rank, sorted_cells = rank[order], cells[order]
    new = np.append(True, (rank[1:] != rank[:-1]) | (sorted_cells[1:] != sorted_cells[:-1]))
    rank, sorted_cells = rank[new], sorted_cells[new]
    start = np.searchsorted(rank, np.arange(len(said) + 1)).astype(np.int64)
    return Lists(domain, start, sorted_cells, said, _catalogue(cells, texts))


def _columns(domain: CodeTable, source: object, more: tuple[str, ...]) -> NDArray[np.str_]:
    """The columns of the table, and some more, of a file or a table of records, as texts."""
    names = [column.name for column in domain.columns]
    try:
        table: pa.Table = read_table(source, WantedColumns([*names, *more]))  # type: ignore[arg-type]
        columns = [texts_of(plain(table.column(name)).combine_chunks(), name) for name in (*names, *more)]
    except DualQueryError as problem:
        raise QueryError(f"the list '{_called(source)}' does not fit the schema: {problem}") from None
    check_count(max(1, table.num_rows))
    if not table.num_rows:
        raise QueryError(f"the list '{_called(source)}' holds no record")
    return np.array([["" if text is None else str(text) for text in column] for column in columns]).T


def _cells(domain: CodeTable, texts: NDArray[np.str_], where: str) -> Words:
    """The cells of some records, or a QueryError at the first code that cannot occur."""
    codes = []
    for j, column in enumerate(domain.open_columns):
        distinct, index = np.unique(texts[:, j], return_inverse=True)
        found = [column.code(str(text)) for text in distinct]
        if None in found:
            wrong = str(distinct[found.index(None)])
            raise QueryError(
                f"'{wrong}' in {where} cannot occur: '{column.name}' holds {column.may_hold}; "
                "correct the list, or widen the column in the schema"
            )
        codes.append(np.array(found, np.uint64)[index])
    return cells_of(codes, len(texts))


def _catalogue(cells: Words, texts: NDArray[np.str_]) -> Catalogue:
    distinct, first = np.unique(cells, return_index=True)
    return Catalogue(distinct, texts[first])


def _lookup_text(domain: CodeTable, values: Sequence[str]) -> str:
    pairs = zip(domain.columns, values, strict=True)
    return " & ".join(f"{quoted_where_needed(column.name)} = {quoted_where_needed(v)}" for column, v in pairs)


def _called(source: object) -> str:
    return str(source) if isinstance(source, str | PathLike) else "table"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _read(domain: CodeTable, text: str) -> Lists:
    phrase = Phrase(text, f"a look-up reads like {example_of(domain)}")
    if _names_a_file(phrase.tokens):
        return _list(domain, phrase.tokens)
    records = [_lookup(domain, phrase)]
    while phrase.takes("|"):
        records.append(_lookup(domain, phrase))
    phrase.end()
    texts = np.array(records)
    said = " | ".join(dict.fromkeys(_lookup_text(domain, each) for each in records))
    cells = _cells(domain, texts, "this look-up")
    return _listed(domain, np.zeros(len(texts), np.intp), cells, (said,), texts)


def _names_a_file(tokens: Sequence[Token]) -> bool:
    return [token.text.lower() for token in tokens[:3]] == ["record", "in", LIST]


def _list(domain: CodeTable, tokens: list[Token]) -> Lists:
    """`record in list('codes.csv')`, or one of several lists of a file by its name."""
    kinds = [token.kind for token in tokens[3:]]
    if kinds == ["(", "quoted", ")", "end"]:
        path = tokens[4].text
        texts = _columns(domain, path, ())
        said = (f"record in list({_quoted(path)})",)
        return _listed(domain, np.zeros(len(texts), np.intp), _cells(domain, texts, path), said, texts)
    if kinds == ["(", "quoted", ",", "quoted", ")", "end"]:
        path, name = tokens[4].text, tokens[6].text
        group = lists_of(domain, path)
        wanted = f"record in list({_quoted(path)}, {_quoted(name)})"
        if wanted not in group.said:
            raise Fault(tokens[6].column, f"'{path}' has no list of this name in its column '{LIST}'")
        return group.take(np.array([group.said.index(wanted)], np.int64))
    raise Fault(tokens[3].column, "a list reads like record in list('codes.csv')")


def _lookup(domain: CodeTable, phrase: Phrase) -> list[str]:
    values: dict[int, str] = {}
    while not values or phrase.takes("&"):
        name, column = phrase.attribute(domain)
        if not phrase.takes("="):
            phrase.refuse(name)
        value = phrase.take("word", "quoted")
        if column in values:
            phrase.refuse(value)
        if domain.open_columns[column].code(value.text) is None:
            may_hold = domain.open_columns[column].may_hold
            raise Fault(value.column, f"this cannot occur: '{name.text}' holds {may_hold}")
        values[column] = value.text
    missing = [domain.name(j) for j in range(domain.width) if j not in values]
    if missing:
        phrase.fault(f"a look-up names every column, and '{missing[0]}' is not named")
    return [values[j] for j in range(domain.width)]
