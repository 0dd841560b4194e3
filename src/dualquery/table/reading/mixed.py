"""Files whose cells have types of their own: JSON, SQLite and Excel; and DuckDB, which has typed columns.

    people.json, .jsonl         an array of objects, or objects one after another (a line each, or not)
    clinic.sqlite#patients      the table or view of this name; without a name the only one
    clinic.duckdb#patients
    clinic.xlsx#Sheet1          the sheet, whose first row names the columns

A cell has a type whatever the others in its column have: each becomes its canonical text by itself (`cells`), which
knows whether it was a text, so that a record does not depend on the others. The schema decides what a cell means; of
JSON a list of ids is a cell too, where the schema has a block of items, and a key that a record does not have is an
empty cell of that record. A formula of Excel is the value that was saved with it; one that was never worked out is
refused. A row without any cell is a record, all of it missing; behind the last row of the sheet there is none.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, time
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import iterparse

import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.cells import Typed, apart
from dualquery.table.reading.source import (
    GROWTH,
    ColumnType,
    Declared,
    Source,
    WantedColumns,
    after,
    arrow_batches,
    choose,
    file_source,
    is_path,
    kind_of,
    open_file,
    quoted_path,
    reading,
    size_on_disk,
)

LINES = {".jsonl", ".ndjson"}
SQLITE = {".sqlite", ".sqlite3", ".db"}
DUCKDB = {".duckdb", ".ddb"}
EXCEL = {".xlsx", ".xlsm"}
MOST_ROWS = 1 << 20  # of a sheet
BATCH = 1 << 14  # rows at a time
_BLANKS = re.compile(r"[ \t\n\r]*")


def _tables(
    rows: Iterable[Sequence[object]], names: Sequence[str], where: str, lists: Collection[str] = ()
) -> Iterator[pa.Table]:
    """Cells as texts, those that were none apart; at least one table, be it without rows."""
    left, none = iter(rows), True
    while (some := list(islice(left, BATCH))) or none:
        none = False
        try:
            columns = [apart([_text(row[i], name, lists) for row in some]) for i, name in enumerate(names)]
        except UnicodeEncodeError:
            raise DataError(f"{where} holds half a character (a lone surrogate)") from None
        yield pa.table(columns, names=list(names))


def _text(cell: object, name: str, lists: Collection[str]) -> str | None:
    """The canonical text of one cell (`cells`); that of a list of item ids is `3 1`."""
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return str(cell).lower()
    if isinstance(cell, float):
        whole = cell.is_integer() and abs(cell) < 2**53
        return None if cell != cell else Typed(int(cell) if whole else cell)
    if isinstance(cell, datetime) and cell.time() == time(0):
        return Typed(cell.date())
    if isinstance(cell, int | date | time):
        return Typed(cell)
    if isinstance(cell, bytes):
        raise DataError(f"column '{name}' holds bytes, which are neither texts nor numbers")
    if not isinstance(cell, list) or name not in lists:
        raise DataError(f"column '{name}' holds lists or objects where the schema has a text or a number")
    if not all(isinstance(each, str) for each in cell):
        raise DataError(f"column '{name}' has a list of items with something other than item ids in it")
    return " ".join(cell)


def _json(path: Path, wanted: WantedColumns) -> Iterator[pa.Table]:
    """Without names all columns are read, and those that hold nothing but lists as lists: for a draft."""
    where = quoted_path(path)
    with open_file(path) as stream:
        content = stream.read()
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{where} is not UTF-8 text") from None
    if not text.strip() and kind_of(path) not in LINES:
        raise DataError(f"{where} is empty: not even an empty list of records")
    records = _records(text, where)
    if wanted.names is not None:
        yield from _tables(_rows_of(records, wanted.names, where), wanted.names, where, wanted.lists)
        return
    found = list(records)
    names = dict.fromkeys(key for record in found for key in record)
    try:
        yield pa.table({name: _guessed([record.get(name) for record in found]) for name in names})
    except UnicodeEncodeError:
        raise DataError(f"{where} holds half a character (a lone surrogate)") from None


def _rows_of(records: Iterable[dict[str, Any]], names: Sequence[str], where: str) -> Iterator[list[object]]:
    """The named cells of each record; each name must stand in some record, where there are records."""
    absent, none = set(names), True
    for record in records:
        none = False
        if absent:
            absent -= record.keys()
        yield [record.get(name) for name in names]
    if not none:
        choose(names, [name for name in names if name not in absent], where)


def _guessed(cells: list[object]) -> pa.Array:
    held = [cell for cell in cells if cell is not None]
    if held and all(isinstance(cell, list) and all(isinstance(x, str) for x in cell) for cell in held):
        return pa.array(cells, pa.list_(pa.string()))
    texts = [json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells]
    return apart([None if x is None else x if isinstance(x, str) else str(x).lower() for x in texts])


def _records(text: str, where: str) -> Iterator[dict[str, Any]]:
    """The objects of the text; numbers stay as they are written."""
    decode = json.JSONDecoder(parse_int=Typed, parse_float=Typed, parse_constant=Typed).raw_decode
    place = _skip(text, 0)
    array = text.startswith("[", place)
    end = _skip(text, place + 1) if array else place
    more = not (array and text.startswith("]", end))
    while end < len(text) and more:
        place = end
        try:
            record, end = decode(text, place)
        except json.JSONDecodeError as error:
            raise DataError(f"{where} is not well-formed JSON, {_after(text, error.pos)}") from None
        except RecursionError:
            raise DataError(f"{where} nests too deeply, {_after(text, place)}") from None
        if not isinstance(record, dict):
            raise DataError(f"{where} holds something other than objects with keys, {_after(text, place)}")
        yield record
        end = _skip(text, end)
        if array:
            more = text.startswith(",", end)
            end = _skip(text, end + 1) if more else end
    if array:
        if more or not text.startswith("]", end):
            raise DataError(f"{where} is not well-formed JSON, {_after(text, end)}")
        end = _skip(text, end + 1)
    if end < len(text):
        raise DataError(f"{where} goes on where its list of records has ended, {_after(text, end)}")


def _skip(text: str, place: int) -> int:
    blanks = _BLANKS.match(text, place)
    return blanks.end() if blanks else place


def _after(text: str, place: int) -> str:
    return after(len(text[:place].encode("utf-8", errors="replace")))


@dataclass(frozen=True)
class TableInFile:
    """A table of a file that may hold several; None is the only one."""

    path: Path
    table: str | None

    def batches(self, names: Sequence[str] | None) -> Iterator[pa.Table]:
        """The named columns, in that order; all of them where no names are given."""
        kind = self.path.suffix.lower()
        reader = _from_sqlite if kind in SQLITE else _from_duckdb if kind in DUCKDB else _from_excel
        with reading(self.path):
            os.stat(self.path)
            yield from reader(self, names)

    @property
    def where(self) -> str:
        return f"'{self.path}'" if self.table is None else f"'{self.path}#{self.table}'"

    def chosen(self, tables: Sequence[str], word: str) -> str:
        if self.table is not None:
            if self.table not in tables:
                raise DataError(f"'{self.path}' has no {word} '{self.table}'")
            return self.table
        if len(tables) != 1:
            count = "no" if not tables else "more than one"
            raise DataError(
                f"'{self.path}' has {count} {word}; name the one that is meant, as {self.path}#NAME"
            )
        return tables[0]


def _book_of(given: str | os.PathLike[str]) -> TableInFile:
    text = os.fspath(given)
    name, mark, table = text.partition("#") if not os.path.exists(text) else (text, "", "")
    return TableInFile(Path(name), table if mark else None)


def _from_sqlite(book: TableInFile, names: Sequence[str] | None) -> Iterator[pa.Table]:
    with closing(_sqlite(book.path)) as connection:
        try:
            kinds = "type in ('table', 'view') and name not like 'sqlite_%'"
            named = connection.execute(f"select name from sqlite_master where {kinds}")
            table = book.chosen([row[0] for row in named], "table")
            found = [row[1] for row in connection.execute(f"pragma table_info({_identifier(table)})")]
            chosen = [found[i] for i in choose(names, found, book.where)]
            listed = ", ".join(map(_identifier, chosen))
            rows = connection.execute(f"select {listed} from {_identifier(table)}")
            yield from _tables(rows, names or chosen, book.where)
        except sqlite3.Error:
            raise OSError("damaged") from None


def declared_in(path: Path) -> list[Declared]:
    """All tables of an SQLite file with their keys, from its declarations alone."""
    found = []
    with reading(path), closing(_sqlite(path)) as connection:
        try:
            listed = "select name from sqlite_master where type = 'table' and name not like 'sqlite_%'"
            tables = {
                name: connection.execute(f"pragma table_info({_identifier(name)})").fetchall()
                for (name,) in connection.execute(listed).fetchall()
            }
            for name, columns in tables.items():
                parts = connection.execute(f"pragma foreign_key_list({_identifier(name)})").fetchall()
                links = [
                    [each for each in parts if each[0] == link]
                    for link in sorted({each[0] for each in parts})
                ]
                key = tuple(column[1] for column in sorted(columns, key=lambda each: each[5]) if column[5])
                named: dict[str, ColumnType] = {
                    each[1]: (kind, ("0", "1") if kind == "boolean" else (), not each[3])
                    for each in columns
                    for kind in [each[2].lower()]
                }
                told = []
                for link in links:
                    to = _as_declared(link[0][2], tables)
                    its = [each[1] for each in tables.get(to, ())]
                    told.append(
                        (tuple(p[3] for p in link), to, tuple(_as_declared(p[4] or "", its) for p in link))
                    )
                found.append(Declared(name, named, tuple(told), key))
        except sqlite3.Error:
            raise OSError("damaged") from None
    return found


def _as_declared(name: str, among: Iterable[str]) -> str:
    """SQLite finds names whatever their case, and tables are read by the one that they were made with."""
    return next((each for each in among if each.lower() == name.lower()), name)


def _sqlite(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True, check_same_thread=False)


def _from_duckdb(book: TableInFile, names: Sequence[str] | None) -> Iterator[pa.Table]:
    duckdb = _package("duckdb", "DuckDB files", book)
    try:
        with closing(duckdb.connect(str(book.path), read_only=True)) as connection:
            known = connection.execute("select table_name from information_schema.tables").fetchall()
            table = book.chosen([row[0] for row in known], "table")
            whole = connection.table(_identifier(table))
            chosen = [whole.columns[i] for i in choose(names, whole.columns, book.where)]
            read = connection.sql(f"select {', '.join(map(_identifier, chosen))} from {_identifier(table)}")
            for batch in arrow_batches(read):
                yield batch.rename_columns(list(names or chosen))
    except duckdb.Error:
        raise OSError("damaged") from None


def _from_excel(book: TableInFile, names: Sequence[str] | None) -> Iterator[pa.Table]:
    openpyxl = _package("openpyxl", "Excel files", book)
    try:
        with open(book.path, "rb") as file:
            values = openpyxl.load_workbook(file, read_only=True, data_only=True)
            formulas = openpyxl.load_workbook(file, read_only=True)
            sheet = book.chosen([each.title for each in values.worksheets], "sheet")
            _check_order(values[sheet], openpyxl, book)
            rows = _worked_out(_rows(values[sheet]), _rows(formulas[sheet]), book)
            header = ["" if cell is None else str(cell) for cell in next(rows, ())]
            while header and not header[-1]:
                header.pop()
            chosen = choose(names, header, book.where)
            cells = ([row[i] if i < len(row) else None for i in chosen] for row in rows)
            yield from _tables(cells, names or [header[i] for i in chosen], book.where)
    except (DataError, OSError):
        raise
    except Exception:  # of very many kinds: a zip, XML and what is in them may all be broken
        raise OSError("damaged") from None


def _rows(sheet: Any) -> Iterator[tuple[Any, ...]]:
    sheet.reset_dimensions()  # what it says about its size may cut rows off
    yield from map(tuple, sheet.iter_rows(values_only=True))


def _check_order(sheet: Any, openpyxl: Any, book: TableInFile) -> None:
    """Refuse a sheet whose rows, or cells of a row, do not have rising numbers: openpyxl leaves those out."""
    space = f"{{{openpyxl.xml.constants.SHEET_MAIN_NS}}}"
    last = 0, 0  # row and cell
    with sheet._get_source() as source:
        for event, element in iterparse(source, ("start", "end")):
            if event == "end":
                element.clear()
            elif element.tag in (f"{space}row", f"{space}c"):
                said, cell = element.get("r"), element.tag == f"{space}c"
                if said is None:
                    here = (last[0], last[1] + 1) if cell else (last[0] + 1, 0)
                else:
                    here = openpyxl.utils.cell.coordinate_to_tuple(said) if cell else (int(said), 0)
                if here[0] > MOST_ROWS:
                    raise OSError("damaged")
                if here <= last or (cell and here[0] != last[0]):
                    raise DataError(
                        f"{book.where} has rows or cells whose numbers are double or out of order; open it in a "
                        "spreadsheet program and save it again"
                    )
                last = here


def _worked_out(
    values: Iterable[tuple[Any, ...]], formulas: Iterable[tuple[Any, ...]], book: TableInFile
) -> Iterator[tuple[Any, ...]]:
    for row, written in zip(values, formulas, strict=True):
        for value, formula in zip(row, written, strict=True):
            if value is None and formula is not None:
                raise DataError(
                    f"{book.where} has formulas that were never worked out; open it and save it first"
                )
        yield row


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _package(name: str, what: str, book: TableInFile) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise DataError(
            f"{book.where}: {what} are read by the package {name}, which is not installed here: pip install {name}"
        ) from None


BOOK = Source(
    lambda given: is_path(given) and _book_of(given).path.suffix.lower() in SQLITE | DUCKDB | EXCEL,
    lambda given, wanted: _book_of(given).batches(wanted.names),
    lambda given: GROWTH * size_on_disk(_book_of(given).path),
)
JSON = file_source({".json", *LINES}, _json)
