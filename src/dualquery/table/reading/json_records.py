"""JSON tables: an array of objects, or objects one after another (a line each, or not).

The schema decides what a cell is, never the other records: a text, a number or a truth value is taken
as it is written, and where the schema has a block of items a list of ids is one too. A key that a record
does not have is an empty cell of that record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.cells import Typed, apart
from dualquery.table.reading.source import (
    WantedColumns,
    after,
    choose,
    file_source,
    kind_of,
    open_file,
    quoted_path,
)

BATCH = 1 << 14
BLANKS = re.compile(r"[ \t\n\r]*")
LINES = {".jsonl", ".ndjson"}


def _json(path: Path, wanted: WantedColumns) -> Iterator[pa.Table]:
    """The named columns as texts, null where empty; those in `lists` may hold lists, read as `3 1`.

    Without names all columns are read, and those that hold nothing but lists as lists: for a draft.
    """
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
    try:
        if wanted.names is None:
            yield _all_columns(records)
        else:
            yield from _columns(records, wanted.names, wanted.lists, where)
    except UnicodeEncodeError:
        raise DataError(f"{where} holds half a character (a lone surrogate)") from None


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
    blanks = BLANKS.match(text, place)
    return blanks.end() if blanks else place


def _after(text: str, place: int) -> str:
    return after(len(text[:place].encode("utf-8", errors="replace")))


def _columns(
    records: Iterator[dict[str, Any]], names: Sequence[str], lists: Collection[str], where: str
) -> Iterator[pa.Table]:
    seen: set[str] = set()
    batch = list(islice(records, BATCH))
    while True:
        seen |= {name for name in names if any(name in record for record in batch)}
        yield pa.table(
            [apart([_text(record.get(name), name, name in lists) for record in batch]) for name in names],
            names=list(names),
        )
        if not (more := list(islice(records, BATCH))):
            break
        batch = more
    if batch:
        choose(names, [name for name in names if name in seen], where)


def _text(cell: object, name: str, may_be_list: bool) -> str | None:
    if cell is None or isinstance(cell, str):
        return cell
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, list) and may_be_list:
        if not all(isinstance(each, str) for each in cell):
            raise DataError(f"column '{name}' has a list of items with something other than item ids in it")
        return " ".join(cell)
    raise DataError(f"column '{name}' holds lists or objects where the schema has a text or a number")


def _all_columns(records: Iterator[dict[str, Any]]) -> pa.Table:
    found = list(records)
    names = dict.fromkeys(key for record in found for key in record)
    return pa.table({name: _column([record.get(name) for record in found]) for name in names})


def _column(cells: list[object]) -> pa.Array:
    held = [cell for cell in cells if cell is not None]
    if held and all(isinstance(cell, list) and all(isinstance(x, str) for x in cell) for cell in held):
        return pa.array(cells, pa.list_(pa.string()))
    texts = [json.dumps(cell) if isinstance(cell, list | dict) else cell for cell in cells]
    return apart([None if x is None else x if isinstance(x, str) else str(x).lower() for x in texts])


JSON = file_source({".json", *LINES}, _json)
