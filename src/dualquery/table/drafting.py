"""What kind of column some cells suggest: guesses for a person to correct, read off a table.

Everything here looks at cells, so that whatever it finds is as private as they are (`table.draft` says so, line by
line). A guess prefers what does least harm where it is wrong: categories without an order to numbers where a name
says that they are codes, leaving out to listing what may be somebody's name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError, SchemaError
from dualquery.table.binning import shared_edges
from dualquery.table.cells import distinct, is_list, numbers_of, plain, texts_of
from dualquery.table.columns import Categorical, Items
from dualquery.table.dates import Dates, Period, dates, period_in, period_of, period_text
from dualquery.table.domain import Column
from dualquery.table.numbers import Numeric
from dualquery.table.persons import EACH, IDS, PERSONS, looks_like_id, no_unit, repeats
from dualquery.table.schema import Schema
from dualquery.types import Reals

FEW = 20  # whole numbers with at most so many distinct values are categories
MANY = 200  # texts with more distinct values are taken for names, ids or free text, and left out
SOME_ROWS = 50  # in fewer rows all values may differ by chance

MARKERS = (
    "NA", "N/A", "n/a", "na", "NaN", "nan", "NULL", "null", "None", "none", "?", "-", "--", ".", "missing",
)  # fmt: skip
UNITS = 24  # whole numbers between ends no farther apart are all listed
_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d-%b-%y", "%d%b%Y"),
)
FORMATS = (*(day + time for time in ("", " %H:%M", " %H:%M:%S") for day in _DAYS), "%m/%Y")
LIKELY = range(1800, 2200)  # years: figures that could be other dates are no dates
_FRACTION = re.compile(r"-?[0-9]*[.,][0-9]+")
LONG = 30  # letters, on average: free text
NUMBER_MARKERS = ("-9", "-99", "-999", "-9999", "-8", "-7", "-1")  # where all other numbers are at least zero
CODES = re.compile(
    r"code|zip|postal|plz|race|ethnic|sex|gender|state|county|region|district|puma|type|class|status|occ|indust|"
    r"naics|icd|relation|category|kind",
    re.IGNORECASE,
)
SIGNS = "€$£¥"
NUMBERED = "it numbers the rows: an id says nothing about people"
_LEADING_ZERO = re.compile(r"0\d+")
_WHOLE_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.0*")


@dataclass(frozen=True)
class LeftOut:
    """A column that no attribute is drafted for, and why; what a person may make of it."""

    name: str
    reason: str
    unit: str | None = None  # why it may be the unit
    guess: Dates | None = None  # an attribute, if it is read by the first of these formats
    formats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Texts:
    """The cells of one column: its distinct texts, how often each occurs, and how many cells are empty."""

    name: str
    texts: tuple[str, ...]
    counts: NDArray[np.int64]
    empty: int

    @staticmethod
    def of(name: str, cells: pa.ChunkedArray) -> Texts:
        held = distinct(cells, name)
        written = texts_of(held.values, name)
        number = np.bincount(held.index, minlength=len(written) + 1)
        counts: dict[str, int] = {}
        for text, times in zip((*written, None), number.tolist(), strict=True):
            key = (text or "").strip()
            counts[key] = counts.get(key, 0) + times
        empty = counts.pop("", 0)
        kept = sorted(text for text, times in counts.items() if times)
        return Texts(name, tuple(kept), np.array([counts[text] for text in kept], np.int64), empty)

    @property
    def rows(self) -> int:
        return int(self.counts.sum())

    def without(self, markers: Sequence[str]) -> Texts:
        kept = [i for i, text in enumerate(self.texts) if text not in markers]
        gone = self.rows - int(self.counts[kept].sum())
        return Texts(self.name, tuple(self.texts[i] for i in kept), self.counts[kept], self.empty + gone)


def absent(held: Texts, empty: tuple[str, ...]) -> dict[str, Any]:
    """The place of missing cells, where there are some."""
    if not empty and not held.empty:
        return {"missing": None, "empty": ()}
    labels = ("missing", "(missing)", "((missing))")
    return {"missing": next(each for each in labels if each not in held.texts), "empty": empty}


def drafted_dates(held: Texts) -> Dates | LeftOut | None:
    """Dates, where every text but markers of missing ones names a day, a month or a moment in one way."""
    markers = tuple(text for text in held.texts if text in MARKERS)
    rest = held.without(markers)
    for formats in ((None,), FORMATS):
        ways = {each: found for each in formats if (found := _periods(rest, each))}
        if ways:
            break
    else:
        return None
    periods = [period for way in ways.values() for period in way]
    first, last = min(each.first for each in periods), max(each.first for each in periods)
    by = _by(periods, (last - first).days)
    start, end = (period_text(period_of(each, by).first, by) for each in (first, last))
    column = dates(held.name, start, end, by, clamp=True, format=next(iter(ways)), **absent(rest, markers))
    if len(ways) == 1:
        return column
    formats = tuple(str(each) for each in ways)
    read = " or ".join(f'"{each}"' for each in formats)
    reason = f"its dates can be read as {read}; choose the format where it stands at the end of this file"
    return LeftOut(held.name, reason, guess=column, formats=formats)


def _periods(held: Texts, format: str | None) -> list[Period]:
    """What all texts name in this format; nothing where one of them names nothing."""
    found = []
    for text in held.texts:
        period = period_in(text, format)
        if period is None or period.kind not in ("day", "hour", "month"):
            return []
        if format is not None and period.first.year not in LIKELY:
            return []
        found.append(period)
    return found


def _by(periods: list[Period], days: int) -> str:
    """How precisely: the longer the time, the longer the period."""
    timed = any(period.kind == "hour" and period.first.hour for period in periods)
    limits = ((2, "hour" if timed else "day"), (62, "day"), (5 * 366, "month"), (10**9, "year"))
    by = next(by for limit, by in limits if days <= limit)
    return "month" if by == "day" and any(period.kind == "month" for period in periods) else by


def drafted_id(held: Texts) -> LeftOut | None:
    """An id, where a column looks like one."""
    number, rows = len(held.texts), held.rows
    if any(_FRACTION.fullmatch(text) for text in held.texts):
        return None
    if repeats(held.name, number, rows) or (
        number > MANY and _of_codes(held) and 1.2 * number <= rows <= EACH * number
    ):
        each = f"about {rows / number:,.0f} rows each" if rows >= 1.5 * number else "some have several rows"
        reason = (
            f"it looks like an id, {each}: if it is a person's, it is the unit (docs/schema.md), no attribute"
        )
        return LeftOut(held.name, reason, unit=f"{each}: a person?")
    if number == rows >= SOME_ROWS and PERSONS.fullmatch(held.name.strip()):
        return LeftOut(held.name, NUMBERED)
    return None


def _of_codes(held: Texts) -> bool:
    """Whether texts look like ids whatever their column is called: letters and figures without a blank."""
    return all(
        not text.isdecimal() and any(c.isdecimal() for c in text) and not any(c.isspace() for c in text)
        for text in held.texts
    )


def several_rows(table: pa.Table, schema: Schema) -> list[str]:
    """A warning for each column that the schema leaves out and in which an id of persons comes again.

    It looks at cells, so it is internal: do not publish. It goes into no release.
    """
    if schema.unit is not None or schema.domain.kind != "records":
        return []
    known = {column.name.strip() for column in schema.domain.columns}
    times = Counter(table.column_names)
    found = []
    for name, cells in zip(table.column_names, table.columns, strict=True):
        if looks_like_id(name) and name.strip() not in known and times[name] == 1:
            try:
                held = Texts.of(name, plain(cells))
            except DataError:
                continue
            if repeats(name, len(held.texts), held.rows):
                found.append(no_unit("column", name))
    return found


def drafted(name: str, cells: pa.ChunkedArray, *, bins: int) -> Column | LeftOut:
    """An attribute for a column, its numbers in so many bins, or why there is none."""
    if is_list(cells.type):
        return _items(name, cells)
    try:
        held = Texts.of(name, cells)
    except DataError:
        return LeftOut(name, "its type is not known here")
    if not held.texts:
        return LeftOut(name, "all its cells are empty")
    guess = drafted_dates(held) or drafted_id(held) or _numeric(held, bins) or _categorical(held)
    try:
        if not isinstance(guess, LeftOut):
            guess.check()
    except SchemaError:
        return LeftOut(name, "no bins were found for its numbers; write them by hand")
    return guess


def _numeric(held: Texts, bins: int) -> Numeric | LeftOut | None:
    """Bins, where there are many numbers and besides at most markers of missing ones, or one odd text."""
    column, numbers, junk = _read(held)
    others = tuple(text for text, odd in zip(held.texts, junk | np.isnan(numbers), strict=True) if odd)
    unknown = [text for text in others if text not in (*MARKERS, "N")]
    if len(unknown) > (len(others) == 1) or any(_LEADING_ZERO.fullmatch(text) for text in held.texts):
        return None
    finite = np.isfinite(numbers)
    markers = _number_markers(numbers[finite])
    kept = finite & ~np.isin(numbers, [float(each) for each in markers])
    values, weights = numbers[kept], held.counts[kept]
    integer = len(values) > 0 and bool((values == np.floor(values)).all() and np.abs(values).max() < 2**52)
    if len(values) <= FEW or (integer and CODES.search(held.name) and len(values) <= MANY):
        return None
    if integer and values.max() - values.min() <= UNITS and not _is_id(held, values):
        return None
    if integer and _is_id(held, values):
        return LeftOut(held.name, NUMBERED)
    if CODES.search(held.name) and integer:
        return LeftOut(
            held.name, f"it looks like a code with more than {MANY} values; group them, or list them"
        )
    decimals = None if integer else _decimals(held, kept)
    if column.currency and not integer:
        decimals = 2
    unit = Fraction(1) if integer else None if decimals is None else Fraction(1, 10**decimals)
    return replace(
        column,
        edges=shared_edges(values, weights, bins, unit),
        clamp=True,
        integer=integer,
        decimals=decimals,
        exact=column.currency is not None,
        **absent(held, (*others, *markers)),
    )


def _read(held: Texts) -> tuple[Numeric, Reals, NDArray[np.bool_]]:
    """The texts as numbers, in the notation that understands most of them."""
    sign = next(
        (s for s in SIGNS if any(text.startswith(s) or text.endswith(s) for text in held.texts)), None
    )
    ways = [Numeric(held.name, (0.0, 1.0), decimal_comma=comma, currency=sign) for comma in (False, True)]
    read = [(column, *column.numbers_written(list(held.texts))) for column in ways]
    return min(read, key=lambda each: int(each[2].sum()))


def _number_markers(numbers: Reals) -> tuple[str, ...]:
    """Negative numbers that stand for missing ones: all others are at least zero."""
    known = {float(each): each for each in NUMBER_MARKERS}
    negative = sorted(set(numbers[numbers < 0].tolist()))
    markers = tuple(known[x] for x in negative if x in known)
    return markers if len(markers) == len(negative) and len(numbers) > len(negative) else ()


def _is_id(held: Texts, values: Reals) -> bool:
    """Whether whole numbers number the rows."""
    apart = len(values) == held.rows >= SOME_ROWS
    return apart and bool(IDS.search(held.name) or values.max() - values.min() + 1 == len(values))


def _decimals(held: Texts, kept: NDArray[np.bool_]) -> int | None:
    """The most decimals that are written, where they are few."""
    texts = [text for text, keep in zip(held.texts, kept, strict=True) if keep]
    found = [re.search(r"[.,](\d+)\D*$", text) for text in texts]
    most = max((len(each[1]) for each in found if each), default=0)
    return most if 0 < most <= 4 and not any("e" in text.lower() for text in texts) else None


def _categorical(held: Texts) -> Categorical | LeftOut:
    numbers, junk = numbers_of(pa.array(held.texts, pa.string()), held.name)
    coded = not junk.all() and all(
        text in (*MARKERS, "N") for text, odd in zip(held.texts, junk, strict=True) if odd
    )
    markers = [text for text in held.texts if text in MARKERS or (text == "N" and coded)]
    if coded:
        markers += _number_markers(numbers[np.isfinite(numbers)])
    markers = markers if len(markers) < len(held.texts) else []
    rest = held.without(markers)
    if len(rest.texts) > MANY:
        return LeftOut(held.name, _why_many(rest))
    numbers, junk = numbers_of(pa.array(rest.texts, pa.string()), held.name)
    values = list(rest.texts)
    counted = not junk.any() and bool(np.isfinite(numbers).all())
    if counted:
        values = [values[i] for i in np.argsort(numbers, kind="stable")]
        if all(_WHOLE_FLOAT.fullmatch(text) for text in values):
            # A cell 1.0 is read as 1, but a whole number is not read as 1.0.
            values = list(dict.fromkeys(str(int(text.partition(".")[0])) for text in values))
    zeros = any(_LEADING_ZERO.fullmatch(text) for text in values)
    finite = bool(np.isfinite(numbers).all())  # "inf" is read as a number, and has no place among them
    numeric = counted and finite and len(values) > 1 and not zeros and not CODES.search(held.name)
    if numeric:
        values = _listed_units(values)
    place = absent(rest, tuple(markers))
    if place["missing"] is not None:
        values.append(str(place["missing"]))
    return Categorical(held.name, tuple(values), numeric=numeric, **place)


def _listed_units(values: list[str]) -> list[str]:
    """Whole numbers with those between them that nobody happens to have, where they are few; each number once."""
    numbers = [float(value) for value in values]
    if all(x.is_integer() for x in numbers) and max(numbers) - min(numbers) <= UNITS:
        return [str(x) for x in range(int(min(numbers)), int(max(numbers)) + 1)]
    return [value for value, x, before in zip(values, numbers, [None, *numbers], strict=False) if x != before]


def _why_many(held: Texts) -> str:
    """Why a column of very many texts is left out."""
    lengths = np.array([len(text) for text in held.texts])
    if all(text.isdecimal() for text in held.texts) and len(set(lengths.tolist())) == 1:
        return f"it holds more than {MANY} codes of {lengths[0]} figures; keep fewer figures (99501 → 995)"
    if len(held.texts) >= 0.9 * held.rows and lengths.mean() <= LONG:
        return "nearly every row has a text of its own: a name or an id says nothing about people, but who they are"
    if lengths.mean() > LONG:
        return "it is free text, in which people are named; make categories of it, if you need it"
    return f"it has more than {MANY} different texts; group them into fewer"


def _items(name: str, cells: pa.ChunkedArray) -> Items | LeftOut:
    try:
        bounds = pc.min_max(pc.list_flatten(cells).cast(pa.int64())).as_py()
    except pa.ArrowException:
        return LeftOut(name, "its lists hold something other than whole numbers")
    smallest, largest = bounds["min"] or 0, bounds["max"] or 1
    if smallest < 0 or largest >= 2**31 - 1:
        return LeftOut(name, "its item ids are negative, or too large")
    first = min(smallest, 1)
    # Rounded up to two figures: the largest id is the private table's.
    unit = 10 ** max(len(str(largest)) - 2, 0)
    return Items(name, min(math.ceil(largest / unit) * unit, 2**31 - 1) - first + 1, first)
