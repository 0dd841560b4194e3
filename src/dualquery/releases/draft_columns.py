"""From what was measured of a column to the attribute that a private draft proposes. Everything here is public.

`reading_of` says from the noisy numbers of forms whether a column holds numbers, dates or texts, and how written.
Then either its tree of numbers or its frequent texts are measured, and `numbers` and `texts` make a column of them in
which every possible cell has a place: beyond the ends the nearest, otherwise that of missing cells or of others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import numpy as np

from dualquery.table.binning import FINEST, Tree, edges_of
from dualquery.table.columns import MISSING, Categorical
from dualquery.table.dates import dates, period_of, period_text
from dualquery.table.domain import Column
from dualquery.table.drafting import CODES, MARKERS, SIGNS, LeftOut
from dualquery.table.numbers import Numeric
from dualquery.table.persons import looks_like_id
from dualquery.table.toml_text import figure
from dualquery.table.written import (
    COMMA,
    DATES,
    EITHER,
    FORMS,
    ISO,
    MONEY,
    MOST_DECIMALS,
    NUMBERS,
    PLAIN,
    TEXTS,
    WRITTEN,
    days_written,
    numbers_written,
)
from dualquery.types import Reals

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
