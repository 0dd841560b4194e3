"""Dates that a draft finds in a column: ISO 8601, or one of the formats that are common."""

from __future__ import annotations

from dualquery.table.dates import Dates, Period, dates, period_in, period_of, period_text
from dualquery.table.draft_cells import MARKERS, Cells, LeftOut, absent

_DAYS = (
    *("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y", "%Y/%m/%d", "%Y.%m.%d", "%Y%m%d"),
    *("%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%b-%Y", "%d-%b-%y", "%d%b%Y"),
)
FORMATS = (*(day + time for time in ("", " %H:%M", " %H:%M:%S") for day in _DAYS), "%m/%Y")
LIKELY = range(1800, 2200)  # years: figures that could be other dates are no dates


def drafted_dates(held: Cells) -> Dates | LeftOut | None:
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


def _periods(held: Cells, format: str | None) -> list[Period]:
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
