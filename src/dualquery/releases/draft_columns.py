"""From what was measured of a column to the attribute that a private draft proposes. Everything here is public.

`reading_of` says from the noisy numbers of forms whether a column holds numbers, dates or texts, and how written.
Then either its tree of numbers or its frequent texts are measured, and `numbers` and `texts` make a column of them in
which every possible cell has a place: beyond the ends the nearest, otherwise that of missing cells or of others.

Cells as they are written, before a schema says what they mean; and what a cell looks like, by itself.

The records of a table without a schema are the texts of its cells: a column has the values that occur, in the order
of texts. That domain is as private as the table, and nobody but the curator sees it. `forms_of` sorts any text into
one of `FORMS`, a public list, looking at nothing but the text; `numbers_written` and `days_written` read it in a
notation that is public by then. So no cell decides how another is read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from dualquery.errors import DataError
from dualquery.table.binning import FINEST, Tree, edges_of
from dualquery.table.cells import distinct, is_list, plain, texts_of
from dualquery.table.columns import MISSING, Categorical
from dualquery.table.dates import dates, period_in, period_of, period_text
from dualquery.table.domain import Column, Domain
from dualquery.table.drafting import CODES, LIKELY, MARKERS, SIGNS, LeftOut
from dualquery.table.numbers import Numeric
from dualquery.table.persons import kept_rows, looks_like_id, owners_of
from dualquery.table.records import Codes, Records, smallest_type, taken
from dualquery.table.toml_text import figure
from dualquery.types import Integers, Reals

SEEN = 4.0  # σ: a notation that is there; below, noise of one of many forms would often look like one
MISSED = (
    2.0  # σ: missing cells, or others, that get a place of their own, which costs little where there are none
)
SOME, OFTEN = 1.5, 200  # records a person
OTHER = "other"  # the label of what is not listed
FIRST_DAY, LAST_DAY = -354_285, 376_199  # of the years 1000 to 2999: noise may see some beyond
EVERY_ROW = 0.9  # of the records that have a text of their own: an id
# Of two answers that everybody knows the rarer one has a place, seen or not: no cell is needed to know of it.
ANSWERS = (
    "n y",
    "no yes",
    "f m",
    "female male",
    "false true",
    "off on",
    "negative positive",
    "absent present",
)


@dataclass(frozen=True)
class Reading:
    """How the cells of a column are read as numbers: its notation, or the format of its dates."""

    unit: float
    read: Callable[[Sequence[str]], Reals]
    decimals: int | None = None
    decimal_comma: bool = False
    currency: str | None = None
    dates: bool = False
    format: str | None = None
    months: bool = False  # of dates that name no day


@dataclass(frozen=True)
class Looks:
    """The noisy numbers of the forms of a column, and how many texts differ, each with its σ."""

    name: str
    forms: Reals
    sigma: float
    distinct: float
    distinct_sigma: float
    rows: int | None = None  # the number of records, where it is public

    def of(self, names: Sequence[str], least: float = -math.inf) -> float:
        """How many cells have one of these forms, of those that have at least so many."""
        counts = [float(self.forms[FORMS.index(each)]) for each in names]
        return sum(count for count in counts if count >= least)

    @property
    def missing(self) -> bool:
        """Whether there are missing cells, as far as noise lets one see: as counted, and as all but the others.

        Two numbers of noise σ² each say the one, those of the k other forms that are there the other.
        """
        found, precision = self.of(("empty", "marker")) / 2, 1 / 2
        there = [each for each in (*NUMBERS, *DATES, *TEXTS) if self.of((each,)) > SEEN * self.sigma]
        if self.rows is not None and there:
            found += (self.rows - self.of(there)) / len(there)
            precision += 1 / len(there)
        return found > MISSED * self.sigma * math.sqrt(precision)


def left_out(looks: Looks, rows: float) -> LeftOut | None:
    """An id, by its name and by how many texts differ."""
    if not looks_like_id(looks.name):
        return None
    surely = SEEN * looks.distinct_sigma
    if looks.distinct - EVERY_ROW * rows > surely:
        return LeftOut(looks.name, "it numbers the rows: an id says nothing about people")
    if SOME <= rows / max(looks.distinct, 1.0) <= OFTEN and looks.distinct > surely:
        each = f"about {rows / looks.distinct:,.0f} rows each"
        reason = (
            f"it looks like an id, {each}: if it is a person's, it is the unit (docs/schema.md), no attribute"
        )
        return LeftOut(looks.name, reason, unit=f"{each}: a person?")
    return None


def reading_of(looks: Looks) -> Reading | None:
    """How to read the column as numbers or dates; None for texts."""
    numbers, days, texts = (looks.of(forms, MISSED * looks.sigma) for forms in (NUMBERS, DATES, TEXTS))
    if max(days, texts) >= numbers:
        return None if texts >= days else _dates(looks)
    sign = max(MONEY, key=lambda form: looks.of((form,)))
    if looks.of((sign,)) > max(SEEN * looks.sigma, looks.of((COMMA,)), looks.of(PLAIN)):
        currency = SIGNS[MONEY.index(sign)]
        return Reading(0.01, partial(numbers_written, currency=currency), decimals=2, currency=currency)
    if looks.of((COMMA,)) > max(SEEN * looks.sigma, looks.of(PLAIN[1:])):
        return Reading(FINEST, partial(numbers_written, decimal_comma=True), decimal_comma=True)
    decimals = max(
        (place for place, form in enumerate(PLAIN) if looks.of((form,)) > SEEN * looks.sigma), default=0
    )
    if decimals == 0 and CODES.search(looks.name):
        return None
    if decimals == MOST_DECIMALS:
        return Reading(FINEST, numbers_written)
    return Reading(10.0**-decimals, numbers_written, decimals=decimals)


def _dates(looks: Looks) -> Reading:
    """Of all ways to write dates that by which most are read."""
    iso = looks.of(ISO)
    best = max(
        WRITTEN, key=lambda way: looks.of((way, *(each for each in EITHER if way in each.split(" or "))))
    )
    written = looks.of((best, *(each for each in EITHER if best in each.split(" or "))))
    format = None if iso >= written else best
    months = format is None and looks.of(("ISO month",)) > SEEN * looks.sigma
    return Reading(1.0, partial(days_written, format=format), dates=True, format=format, months=months)


def numbers(looks: Looks, reading: Reading, tree: Tree, bins: int) -> Column | LeftOut:
    """Bins of numbers, or periods of dates, from the tree."""
    edges = edges_of(tree, bins, 0.0) if reading.dates else edges_of(tree, bins)
    if not edges:
        return _present(looks, "too few records, for this ε, to find where its numbers lie")
    middle = _middle(tree, edges, reading.unit)
    if reading.dates:
        return _periods(looks, reading, edges, middle)
    return Numeric(
        looks.name,
        edges,
        clamp=True,
        integer=reading.decimals == 0,
        decimals=reading.decimals or None,
        exact=reading.currency is not None,
        decimal_comma=reading.decimal_comma,
        currency=reading.currency,
        **_place(looks, figure(middle)),
    )


def _place(looks: Looks, middle: str) -> dict[str, Any]:
    """Where cells go that are no number: to the missing ones, if there are some, or into the middle."""
    if looks.missing:
        return {"missing": MISSING, "empty": MARKERS, "unknown": MISSING}
    return {"missing": None, "empty": (), "unknown": middle}


def _middle(tree: Tree, edges: Sequence[float], unit: float) -> float:
    """About the median, at a whole unit."""
    live = tree.live()  # as `edges_of` has it
    passed = np.cumsum([leaf.mass for leaf in live])
    leaf = live[int(np.searchsorted(passed, passed[-1] / 2))]
    x = math.ceil(leaf.low / unit - 1e-6) * unit if unit > FINEST else leaf.low
    return round(min(max(x, edges[0]), edges[-2]), 10)


def _periods(looks: Looks, reading: Reading, edges: Sequence[float], middle: float) -> Column | LeftOut:
    first, last = edges[0], max(edges[0], edges[-1] - 1)
    by = "day" if last - first <= 62 else "month" if last - first <= 5 * 366 else "year"
    by = "month" if reading.months and by == "day" else by

    def said(day: float) -> str:
        moment = datetime(1970, 1, 1) + timedelta(days=min(max(int(day), FIRST_DAY), LAST_DAY))
        return period_text(period_of(moment, by).first, by)

    place = _place(looks, said(middle))
    return dates(looks.name, said(first), said(last), by, clamp=True, format=reading.format, **place)


def texts(looks: Looks, found: dict[str, float], sigma: float, rows: float) -> Column | LeftOut:
    """Categories: the frequent texts, and a place for others and for missing cells where there are some."""
    values = [text for text in found if text and text not in MARKERS]
    if not values:
        return _present(looks, "no text is frequent enough, for this ε, to be told")
    values += _opposite(values)
    rest = rows - sum(found.get(text, 0.0) for text in values) - max(0.0, looks.of(("empty", "marker")))
    others = rest > MISSED * math.sqrt(len(values) * sigma**2 + 2 * looks.sigma**2)
    figures = numbers_written(values)
    if not np.isnan(figures).any():
        values = [values[i] for i in np.argsort(figures, kind="stable")]
    other, absent = _label(OTHER, values), _label(MISSING, values)
    if not others:  # one place for whatever is rare
        return Categorical(looks.name, (*values, absent), unknown=absent, missing=absent)
    written = MARKERS if looks.missing else ()
    return Categorical(looks.name, (*values, other, absent), unknown=other, missing=absent, empty=written)


def _opposite(values: Sequence[str]) -> list[str]:
    """Of a column of which one answer was seen, the other, written alike."""
    if len(values) != 1:
        return []
    alike = str.upper if values[0].isupper() else str.title if values[0].istitle() else str.lower
    pairs = [[alike(answer) for answer in pair.split()] for pair in ANSWERS]
    return [answer for pair in pairs if values[0] in pair for answer in pair if answer != values[0]]


def _present(looks: Looks, reason: str) -> Column | LeftOut:
    """Of a column that many records leave empty, whether there is a value; of others nothing."""
    if not looks.missing:
        return LeftOut(looks.name, reason)
    return Categorical(looks.name, (OTHER, MISSING), unknown=OTHER, missing=MISSING, empty=MARKERS)


def _label(wanted: str, taken: Sequence[str]) -> str:
    return wanted if wanted not in taken else _label(f"({wanted})", taken)


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
