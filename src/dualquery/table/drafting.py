"""What kind of column some cells suggest: guesses for a person to correct, read off a table.

Everything here looks at cells, so that whatever it finds is as private as they are (`table.draft` says so, line by
line). A guess prefers what does least harm where it is wrong: categories without an order to numbers, bins by order
of magnitude to bins of equal width, leaving out to listing what may be somebody's name.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError, SchemaError
from dualquery.table.cells import is_list, numbers_of
from dualquery.table.columns import Categorical, Column, Items, Numeric, Spread, check, equal_edges
from dualquery.table.draft_bins import drafted_edges
from dualquery.table.draft_cells import FEW, MANY, MARKERS, SOME_ROWS, Cells, LeftOut, absent
from dualquery.table.draft_dates import drafted_dates
from dualquery.table.draft_ids import drafted_id
from dualquery.table.ids import IDS
from dualquery.table.notation import numbers_written

LONG = 30  # letters, on average: free text
NUMBER_MARKERS = ("-9", "-99", "-999", "-9999", "-8", "-7", "-1")  # where all other numbers are at least zero
CODES = re.compile(
    r"code|zip|postal|plz|race|ethnic|sex|gender|state|county|region|district|puma|type|class|status|occ|indust|"
    r"naics|icd|relation|category|kind",
    re.IGNORECASE,
)
SIGNS = "€$£¥"
_LEADING_ZERO = re.compile(r"0\d+")
_WHOLE_FLOAT = re.compile(r"-?(0|[1-9][0-9]*)\.0*")

Floats = NDArray[np.float64]


def drafted(name: str, cells: pa.ChunkedArray, *, quantiles: int | None) -> Column | LeftOut:
    """An attribute for a column, or why there is none."""
    if is_list(cells.type):
        return _items(name, cells)
    try:
        held = Cells.of(name, cells)
    except DataError:
        return LeftOut(name, "its type is not known here")
    if not held.texts:
        return LeftOut(name, "all its cells are empty")
    guess = drafted_dates(held) or drafted_id(held) or _numeric(held, quantiles) or _categorical(held)
    try:
        if not isinstance(guess, LeftOut):
            check(guess)
    except SchemaError:
        return LeftOut(name, "no bins were found for its numbers; write them by hand")
    return guess


def _numeric(held: Cells, quantiles: int | None) -> Numeric | LeftOut | None:
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
    if integer and _is_id(held, values):
        return LeftOut(held.name, "it numbers the rows: an id says nothing about people")
    if CODES.search(held.name) and integer:
        return LeftOut(
            held.name, f"it looks like a code with more than {MANY} values; group them, or list them"
        )
    decimals = None if integer else _decimals(held, kept)
    edges = drafted_edges(held.name, values, weights, quantiles, integer=integer)
    skewed = bool(edges != equal_edges(held.name, edges[0], edges[-1], len(edges) - 1))
    return replace(
        column,
        edges=edges,
        clamp=True,
        integer=integer,
        decimals=2 if column.currency and not integer else decimals,
        exact=column.currency is not None,
        spread=Spread.LOG if skewed and edges[-1] > 1e6 * max(abs(edges[1]), 1e-300) else None,
        **absent(held, (*others, *markers)),
    )


def _read(held: Cells) -> tuple[Numeric, Floats, NDArray[np.bool_]]:
    """The texts as numbers, in the notation that understands most of them."""
    sign = next(
        (s for s in SIGNS if any(text.startswith(s) or text.endswith(s) for text in held.texts)), None
    )
    best: tuple[Numeric, Floats, NDArray[np.bool_]] | None = None
    for comma in (False, True):
        column = Numeric(held.name, (0.0, 1.0), decimal_comma=comma, currency=sign)
        numbers, junk = numbers_written(column, list(held.texts))
        if best is None or junk.sum() < best[2].sum():
            best = column, numbers, junk
    assert best is not None
    return best


def _number_markers(numbers: Floats) -> tuple[str, ...]:
    """Negative numbers that stand for missing ones: all others are at least zero."""
    known = {float(each): each for each in NUMBER_MARKERS}
    negative = sorted(set(numbers[numbers < 0].tolist()))
    markers = tuple(known[x] for x in negative if x in known)
    return markers if len(markers) == len(negative) and len(numbers) > len(negative) else ()


def _is_id(held: Cells, values: Floats) -> bool:
    """Whether whole numbers number the rows."""
    apart = len(values) == held.rows >= SOME_ROWS
    return apart and bool(IDS.search(held.name) or values.max() - values.min() + 1 == len(values))


def _decimals(held: Cells, kept: NDArray[np.bool_]) -> int | None:
    """The most decimals that are written, where they are few."""
    texts = [text for text, keep in zip(held.texts, kept, strict=True) if keep]
    found = [re.search(r"[.,](\d+)\D*$", text) for text in texts]
    most = max((len(each[1]) for each in found if each), default=0)
    return most if 0 < most <= 4 and not any("e" in text.lower() for text in texts) else None


def _categorical(held: Cells) -> Categorical | LeftOut:
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
    counted = not junk.any() and not np.isnan(numbers).any()
    if counted:
        values = [values[i] for i in np.argsort(numbers, kind="stable")]
        if all(_WHOLE_FLOAT.fullmatch(text) for text in values):
            # A cell 1.0 is read as 1, but a whole number is not read as 1.0.
            values = list(dict.fromkeys(str(int(text.partition(".")[0])) for text in values))
    zeros = any(_LEADING_ZERO.fullmatch(text) for text in values)
    ordered = counted and len(values) > 2 and not zeros and not CODES.search(held.name)
    place = absent(rest, tuple(markers))
    if place["missing"] is not None:
        values.append(str(place["missing"]))
    return Categorical(held.name, tuple(values), ordered=ordered, **place)


def _why_many(held: Cells) -> str:
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
