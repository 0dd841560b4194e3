"""Questions about tables of codes: look-ups of whole records, and lists of them.

icd = C71.9 & zip = 04103 & born = 1984      a look-up: every column of the table, each once
icd = C71 & zip = 04103 | icd = C72 & zip = 04103    a list of a few: look-ups with `|` between them
record in list('codes.csv')                  the records of a file with a column for each column of the table
lookups:FILE                                 a look-up for each row of a file
lists:FILE                                   a list for each name in the file's column `list`
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from os.path import isfile

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DualQueryError, QueryError
from dualquery.queries.language.formula import Fault, Phrase, Token, read_each, tokens_of
from dualquery.queries.language.vocabulary import quoted_where_needed, unknown_name
from dualquery.queries.lists import Catalogue, Lists, joined
from dualquery.queries.workload import Grammar, Workload, check_count
from dualquery.table.cells import plain, texts_of
from dualquery.table.codes import CodeTable, cells_of
from dualquery.table.reading import read_table
from dualquery.table.reading.source import WantedColumns
from dualquery.types import Words

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
        name = phrase.take("word", "quoted")
        if not phrase.takes("="):
            phrase.refuse(name)
        column = domain.find(name.text)
        if column is None:
            raise Fault(name.column, unknown_name(domain, name.text))
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
