"""Cells as they are written, before a schema says what they mean; and what a cell looks like, by itself.

The records of a table without a schema are the texts of its cells: a column has the values that occur, in the order
of texts. That domain is as private as the table, and nobody but the curator sees it. `forms_of` sorts any text into
one of `FORMS`, a public list, looking at nothing but the text; `numbers_written` and `days_written` read it in a
notation that is public by then. So no cell decides how another is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.cells import distinct, is_list, plain, texts_of
from dualquery.table.columns import Categorical
from dualquery.table.dates import period_in
from dualquery.table.domain import Domain
from dualquery.table.drafting import LIKELY, MARKERS, SIGNS
from dualquery.table.numbers import Numeric
from dualquery.table.persons import kept_rows, owners_of
from dualquery.table.records import Codes, Records, smallest_type, taken
from dualquery.types import Integers, Reals

MOST_DECIMALS = 4  # numbers with as many or more are measured, not counted in units
LONGEST = 30  # letters: a longer text is free text
FORMATS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%d-%b-%Y", "%d%b%Y")
TIMES = ("", " %H:%M", " %H:%M:%S")
BOTH = {"%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y"}  # what may be read in either way
PLAIN = tuple(f"{each} decimals" for each in range(MOST_DECIMALS + 1))
COMMA = "decimal comma"
MONEY = tuple(f"with {sign}" for sign in SIGNS)
ISO = ("ISO day", "ISO month", "ISO moment")
WRITTEN = tuple(day + time for day in FORMATS for time in TIMES)
EITHER = tuple(f"{day}{time} or {BOTH[day]}{time}" for day in BOTH for time in TIMES)
NUMBERS, DATES, TEXTS = (*PLAIN, COMMA, *MONEY), (*ISO, *WRITTEN, *EITHER), ("code", "text", "long text")
FORMS = ("empty", "marker", *NUMBERS, *DATES, *TEXTS)
# Forms, what such a text has in it, and the notation that reads it.
_DRESSED: tuple[tuple[str, str, dict[str, Any]], ...] = (
    *((form, sign, {"currency": sign}) for form, sign in zip(MONEY, SIGNS, strict=True)),
    (COMMA, ",", {"decimal_comma": True}),
)
_FORM = {form: place for place, form in enumerate(FORMS)}
_NUMBER = re.compile(r"[-+]?(?:\d+\.?(\d*)|\.(\d+))([eE][-+]?\d+)?", re.ASCII)
_CODE = re.compile(r"0\d+", re.ASCII)
_DATED = re.compile(r"\d{1,4}[./-]?(\d|[A-Za-z]{3})", re.ASCII)
_LEAST_YEAR, _MOST_YEAR = LIKELY[0], LIKELY[-1]


def texts_table(
    table: pa.Table, *, unit: str | None = None, records_per_person: int | None = None
) -> Records:
    """All columns but the unit as texts, '' where a cell is empty; of a person at most so many records."""
    columns, codes = [], []
    for name, cells in zip(table.column_names, table.columns, strict=True):
        if name == unit:
            continue
        texts, index = _texts_of(name, plain(cells))
        columns.append(Categorical(name, texts))
        codes.append(index)
    held: tuple[Codes, ...] = tuple(codes)
    if unit is None or records_per_person is None:
        return Records(Domain(tuple(columns)), table.num_rows, held)
    # The order of texts is that of their codes, so that what is kept of a person depends on that person alone.
    rows = kept_rows(owners_of(plain(table.column(unit)), unit), held, records_per_person)
    kept = tuple(each for each in taken(held, rows) if isinstance(each, np.ndarray))
    return Records(Domain(tuple(columns)), len(rows), kept, records_per_person)


def _texts_of(name: str, cells: pa.ChunkedArray) -> tuple[tuple[str, ...], Codes]:
    if is_list(cells.type):
        raise DataError(f"column '{name}' holds lists; state it with --known, as a block of items")
    held = distinct(cells, name)
    said = [(text or "").strip() for text in (*texts_of(held.values, name), None)]
    texts = sorted(set(said))
    place = {text: number for number, text in enumerate(texts)}
    codes = np.array([place[text] for text in said], np.int64)[held.index]
    return tuple(texts), codes.astype(smallest_type(len(texts)))


def forms_of(texts: Sequence[str]) -> Integers:
    """The place among `FORMS` of what each text looks like, each by itself."""
    found = [_form(text) for text in texts]
    rest = [place for place, form in enumerate(found) if form is None]
    for form, signs, notation in _DRESSED:  # many at once, which is faster and no different
        some = [place for place in rest if signs in texts[place] and found[place] is None]
        numbers = numbers_written([texts[place] for place in some], **notation)
        for place in np.flatnonzero(~np.isnan(numbers)).tolist():
            found[some[place]] = form
    plain = [form or _unlike_numbers(text) for form, text in zip(found, texts, strict=True)]
    return np.array([_FORM[form] for form in plain], np.int64)


def _form(text: str) -> str | None:
    """The form of a text; None where it may be a number in another notation, or is a text."""
    if not text:
        return "empty"
    if text in MARKERS:
        return "marker"
    if _CODE.fullmatch(text):
        return "code"
    if (found := _NUMBER.fullmatch(text)) is not None:
        figures = (found[1] or found[2] or "").rstrip("0")
        return PLAIN[MOST_DECIMALS if found[3] else min(len(figures), MOST_DECIMALS)]
    if not any(letter.isdigit() for letter in text):
        return _unlike_numbers(text)
    return _dated(text)


def _unlike_numbers(text: str) -> str:
    return "long text" if len(text) > LONGEST else "text"


def _dated(text: str) -> str | None:
    if (named := period_in(text)) is not None:
        return dict(zip(("day", "month", "hour"), ISO, strict=True)).get(named.kind)
    if not _DATED.match(text):
        return None
    ways = [each for each in WRITTEN if day_written(text, each) is not None]
    return None if not ways else ways[0] if len(ways) == 1 else f"{ways[0]} or {ways[1]}"


def numbers_written(
    texts: Sequence[str], *, decimal_comma: bool = False, currency: str | None = None
) -> Reals:
    """The finite number that each text writes in a notation, as a column of that notation reads it; NaN for none."""
    if decimal_comma or currency is not None:
        column = Numeric("", (0.0, 1.0), decimal_comma=decimal_comma, currency=currency)
        numbers, junk = column.numbers_written(list(texts))
        found = np.where(junk, np.nan, numbers)
    else:
        found = np.array([float(text) if _NUMBER.fullmatch(text) else np.nan for text in texts], np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def days_written(texts: Sequence[str], format: str | None) -> Reals:
    """The day since 1970 on which begins what each text names in a format, of a year that is likely; NaN for none."""
    return np.array([np.nan if (x := day_written(text, format)) is None else x for text in texts], np.float64)


def day_written(text: str, format: str | None) -> int | None:
    """The day since 1970 on which begins what a text names, of a year that is likely."""
    named = period_in(text, format)
    if named is None or not _LEAST_YEAR <= named.first.year <= _MOST_YEAR:
        return None
    return (named.first - datetime(1970, 1, 1)).days


def sorted_by(edges: Reals, read: Callable[[Sequence[str]], Reals]) -> Callable[[Sequence[str]], Integers]:
    """A sorting of texts by the interval of these edges that their number lies in; −1 where it lies in none."""

    def sort(texts: Sequence[str]) -> Integers:
        numbers = read(texts)
        places = np.searchsorted(edges, numbers, side="right") - 1
        outside = np.isnan(numbers) | (places < 0) | (places >= len(edges) - 1)
        return np.where(outside, -1, places)

    return sort
