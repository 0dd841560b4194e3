"""Dates and times: whole numbers of days (or hours) since 1970, cut at the beginnings of public periods.

    from = "2019-01"    the first period, with this and the next key the public bounds
    to = "2024-12"      the last one
    by = "month"        year, quarter, month, week, day or hour: one code per period
    format = "%d.%m.%Y" optional: how cells are written, where it is not ISO 8601

A period is written as ISO 8601 writes it: 2024, 2024-Q1, 2024-03, 2024-W09, 2024-03-01, 2024-03-01T13; the same
words are the labels, and what the query language reads. Weeks begin on Monday. Times have no zone: what stands on
the clock is what counts, and of a typed time with a zone what the clocks of that zone say.

A cell is a moment (2024-03-01T13:05, a typed timestamp) or a period that is no longer than the column's (a typed date
is a day). A typed cell is a date whatever the format of texts is, and missing where ISO 8601 or the format writes it
as a text that stands for a missing one. What comes back is a day of the period, or for hours the beginning of the
hour; with a format its text.

A format is made of

    %d %m %Y    day, month and year in figures; %y the last two of a year from 1969 to 2068
    %b          the month by its first three letters in English
    %H %M %S    hour, minute and second

A day or a month of one figure may lack its zero where no other figures touch it. A text is read by the format alone,
and so is every record by itself: no other text can change what it means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from functools import cache, cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dualquery.errors import SchemaError
from dualquery.table.cells import as_numpy
from dualquery.table.columns import KEYS, Signed, Unplaced, absent_in
from dualquery.table.numbers import MAXIMAL_BINS, Numeric, Spread
from dualquery.table.toml_text import dated, only, optional, quoted, required, text, truth
from dualquery.types import Flags, Reals

MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_READ = {
    "d": "[0-9]{1,2}",
    "m": "[0-9]{1,2}",
    "b": "|".join(MONTHS),
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "H": "[0-9]{1,2}",
    "M": "[0-5][0-9]",
    "S": "[0-5][0-9]|60",
}
_DIRECTIVE = re.compile(r"%(.?)", re.DOTALL)
_OF_A_KIND = {"d": "d", "m": "m", "b": "m", "Y": "Y", "y": "Y", "H": "H", "M": "M", "S": "S"}
PERIODS = ("year", "quarter", "month", "week", "day", "hour")
_EPOCH = datetime(1970, 1, 1)
_MONTHS_IN = {"year": 12, "quarter": 3, "month": 1}
_HOURS = (365 * 24, 90 * 24, 28 * 24, 7 * 24, 24, 1)
_SHORTEST = {by: timedelta(hours=hours) for by, hours in zip(PERIODS, _HOURS, strict=True)}
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}  # in a second
_PATTERNS = {
    "year": re.compile(r"(\d{4})"),
    "quarter": re.compile(r"(\d{4})-?[Qq]([1-4])"),
    "month": re.compile(r"(\d{4})-(\d{2})"),
    "week": re.compile(r"(\d{4})-?[Ww](\d{2})"),
    "day": re.compile(r"(\d{4})-(\d{2})-(\d{2})"),
    "hour": re.compile(r"(\d{4})-(\d{2})-(\d{2})[Tt ](\d{2})"),
}
_MOMENT = re.compile(
    r"(\d{4}-\d{2}-\d{2}[Tt ]\d{2}):(?:[0-5]\d)(?::(?:[0-5]\d|60)(?:[.,]\d+)?)?(?:[Zz]|[+-]\d{2}(?::?\d{2})?)?"
)


def check_format(format: str, where: str, first: int, last: int) -> None:
    """Refuse a format that does not say which period a text names, of those from the first year to the last."""
    said = _DIRECTIVE.findall(format)
    if unknown := [each for each in said if each not in _READ]:
        known = ", ".join(f"%{each}" for each in _READ)
        raise SchemaError(
            f"{where}: 'format' has '%{unknown[0]}'; it may have {known}, each with its % before it"
        )
    kinds = [_OF_A_KIND[each] for each in said]
    wanted = "YmdHMS"[: len(kinds)]
    if not kinds or set(kinds) != set(wanted) or len(set(kinds)) < len(kinds):
        raise SchemaError(
            f"{where}: 'format' must name the year, then if it likes the month, the day, the hour and so on, "
            'each once: "%d.%m.%Y"'
        )
    if "y" in said and not 1969 <= first <= last <= 2068:
        raise SchemaError(f"{where}: '%y' is for years from 1969 to 2068; 'from' and 'to' must lie there")


def kind_written(format: str) -> str:
    said = {_OF_A_KIND[each] for each in _DIRECTIVE.findall(format)}
    return "hour" if "H" in said else "day" if "d" in said else "month" if "m" in said else "year"


def moment_in(text: str, format: str) -> datetime | None:
    found = _pattern(format).fullmatch(text.strip())
    if found is None:
        return None
    said = found.groupdict()
    month = MONTHS.index(said["b"].title()) + 1 if "b" in said else int(said.get("m", 1))
    year = int(said["Y"]) if "Y" in said else (int(said["y"]) + 31) % 100 + 1969
    try:
        return datetime(year, month, int(said.get("d", 1)), int(said.get("H", 0)))
    except ValueError:
        return None


def moment_text(moment: datetime, format: str) -> str:
    """A moment as the format writes it, in English whatever the machine speaks."""
    said = {
        "d": f"{moment.day:02}",
        "m": f"{moment.month:02}",
        "b": MONTHS[moment.month - 1],
        "Y": f"{moment.year:04}",
        "y": f"{moment.year % 100:02}",
        "H": f"{moment.hour:02}",
        "M": f"{moment.minute:02}",
        "S": f"{moment.second:02}",
    }
    return _DIRECTIVE.sub(lambda found: said[found[1]], format)


@cache
def _pattern(format: str) -> re.Pattern[str]:
    parts, end, format = [], 0, format.strip()
    for found in _DIRECTIVE.finditer(format):
        parts.append(re.escape(format[end : found.start()]))
        touched = "%" in (format[: found.start()][-2:-1], format[found.end() :][:1])
        figures = _READ[found[1]].replace("{1,2}", "{2}") if touched else _READ[found[1]]
        parts.append(f"(?P<{found[1]}>{figures})")
        end = found.end()
    return re.compile("".join([*parts, re.escape(format[end:])]), re.IGNORECASE | re.ASCII)


@dataclass(frozen=True)
class Period:
    """What a text names: the days (or hours, `unit`) from `first` until before `end`."""

    kind: str
    first: datetime

    @property
    def end(self) -> datetime:
        return following(self.first, self.kind)


def following(start: datetime, kind: str) -> datetime:
    if kind not in _MONTHS_IN:
        return start + _SHORTEST[kind]
    place = start.year * 12 + start.month - 1 + _MONTHS_IN[kind]
    return start.replace(year=place // 12, month=place % 12 + 1)


def period_in(text: str, format: str | None = None) -> Period | None:
    """The period that a text names, or None; a moment within an hour is that hour."""
    if format is not None:
        return _whole(kind_written(format), moment_in(text, format))
    text = text.strip()
    if moment := _MOMENT.fullmatch(text):
        text = moment[1]
    for kind, pattern in _PATTERNS.items():
        if found := pattern.fullmatch(text):
            try:
                begin = _begin(kind, [int(part) for part in found.groups()])
            except ValueError:
                return None
            return _whole(kind, begin)
    return None


def _whole(kind: str, begin: datetime | None) -> Period | None:
    """The period from there on, unless it is the last of all, which nothing follows."""
    try:
        return None if begin is None or not following(begin, kind) else Period(kind, begin)
    except (ValueError, OverflowError):
        return None


def _begin(kind: str, parts: list[int]) -> datetime:
    if kind == "week":
        return datetime.combine(date.fromisocalendar(parts[0], parts[1], 1), datetime.min.time())
    if kind == "quarter":
        return datetime(parts[0], 3 * parts[1] - 2, 1)
    year, month, day, hour = (*parts, *(1, 1, 0)[len(parts) - 1 :])
    return datetime(year, month, day, hour)


def _exact(text: str) -> datetime | None:
    """The moment that a text of ISO 8601 writes, on the clock, or the beginning of the day."""
    if not (_PATTERNS["day"].fullmatch(text) or _MOMENT.fullmatch(text)):
        return None
    try:
        return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        return None


def is_dated(kind: pa.DataType) -> bool:
    return bool(pa.types.is_date(kind) or pa.types.is_timestamp(kind))


def period_text(start: datetime, kind: str) -> str:
    if kind == "week":
        year, week, _ = start.isocalendar()
        return f"{year:04}-W{week:02}"
    if kind == "quarter":
        return f"{start.year:04}-Q{(start.month + 2) // 3}"
    text = start.isoformat(timespec="hours")
    return text[: {"year": 4, "month": 7, "day": 10, "hour": 13}[kind]]


@dataclass(frozen=True)
class Dates(Numeric):
    """A date or a time, known by its period; the edges are the periods' beginnings in days (hours) since 1970.

    The last bin of a numeric attribute is closed, so the last edge lies half a unit before the end.
    """

    by: str = "day"
    format: str | None = None

    @property
    def example(self) -> str:
        return "2024-03-01" if self.format is None else moment_text(datetime(2024, 3, 1), self.format)

    @property
    def per_day(self) -> int:
        """Units in a day."""
        return 24 if self.by == "hour" else 1

    def number(self, moment: datetime) -> int:
        return (moment - _EPOCH) // timedelta(hours=24 // self.per_day)

    def moment(self, number: float) -> datetime:
        return _EPOCH + timedelta(hours=int(number) * 24 // self.per_day)

    @cached_property
    def labels(self) -> tuple[str, ...]:
        periods = [period_text(self.moment(edge), self.by) for edge in self.edges[:-1]]
        return tuple(periods) if self.missing is None else (*periods, self.missing)

    @cached_property
    def absent(self) -> frozenset[datetime]:
        """The moments that stand for a missing date."""
        texts = [text.strip() for text in (self.missing or "", *self.empty)]
        found = {moment for text in texts if (moment := _exact(text)) is not None}
        if self.format is not None:
            ours = {text: moment_in(text, self.format) for text in texts}
            found |= {at for text, at in ours.items() if at and moment_text(at, self.format) == text}
        return frozenset(found)

    @staticmethod
    def read(name: str, where: str, entry: Mapping[str, Any]) -> Dates:
        only(entry, where, KEYS["by"])
        first, last = (required(entry, where, key, dated) for key in ("from", "to"))
        by = required(entry, where, "by", text)
        clamp = optional(entry, where, "clamp", truth) or False
        format = optional(entry, where, "format", text)
        unknown = optional(entry, where, "unknown", dated)
        absent = absent_in(entry, where)
        return dates(name, first, last, by, clamp=clamp, format=format, unknown=unknown, **absent)

    def said(self) -> dict[str, str]:
        ends = {"from": self.labels[0], "to": self.labels[self.bins - 1]}
        written = {**ends, "by": self.by, "format": self.format}
        return {key: quoted(each) for key, each in written.items() if each is not None}

    def options(self) -> dict[str, Any]:
        return {"unknown": None if self.unknown is None else quoted(self.unknown), "clamp": self.clamp}

    def codes_of_typed(self, cells: pa.ChunkedArray) -> Signed | None:
        if not is_dated(cells.type):
            return None
        numbers, junk = self.typed_numbers(cells)
        codes = self.bin_codes(numbers)
        codes[junk] = Unplaced.NOT_A_NUMBER
        return codes

    def numbers_of(self, values: pa.Array, written: list[str | None], *, typed: bool) -> tuple[Reals, Flags]:
        """Each distinct cell as a number, NaN where it is empty, and whether it is no date or not precise enough.

        Texts of typed cells are as ISO 8601 writes them.
        """
        if is_dated(values.type):
            return self.typed_numbers(values)
        numbers, junk = np.full(len(written), np.nan), np.zeros(len(written), np.bool_)
        for place, cell in enumerate(written):
            if cell is None or cell.strip() in ("", (self.missing or "").strip()):
                continue
            if typed and _exact(cell) in self.absent:
                continue
            named = period_in(cell, None if typed else self.format)
            if named is None or not self.holds(named):
                junk[place] = True
            else:
                numbers[place] = self.number(named.first)
        return numbers, junk

    def holds(self, period: Period) -> bool:
        """Whether a period lies in one of the column's kind."""
        mine = period_of(period.first, self.by)
        return mine.first <= period.first and period.end <= mine.end

    def typed_numbers(self, cells: pa.Array | pa.ChunkedArray) -> tuple[Reals, Flags]:
        """The same of typed dates and timestamps."""
        days = not pa.types.is_timestamp(cells.type)
        if pa.types.is_timestamp(cells.type) and cells.type.tz is not None:
            cells = pc.local_timestamp(cells)
        if pa.types.is_date32(cells.type):
            cells = cells.cast(pa.timestamp("s"))
        ticks = 1000 if pa.types.is_date64(cells.type) else _TICKS[cells.type.unit]
        count = cells.cast(pa.int64())
        absent = np.array(count.is_null().to_numpy(zero_copy_only=False))
        since = as_numpy(count.fill_null(0))
        for moment in self.absent:
            exact = (moment - _EPOCH) // timedelta(microseconds=1) * ticks
            absent |= since == exact // 10**6 if exact % 10**6 == 0 else False
        units = since // (86_400 // self.per_day * ticks)
        return np.where(absent, np.nan, units.astype(np.float64)), ~absent & (days and self.per_day > 1)

    @property
    def markers(self) -> list[float]:
        return []  # a text that stands for a missing date is read as one

    def advice(self, reason: Unplaced) -> str:
        if reason is not Unplaced.NOT_A_NUMBER:
            return super().advice(reason)
        written = ' or say how they are written, such as format = "%d.%m.%Y",' if self.format is None else ""
        return (
            f"holds cells that are no dates such as {self.example}, or longer than a {self.by}; "
            f'correct them,{written} or list the texts that stand for a missing date: empty = ["..."] in the schema'
        )

    def decode(self, found: Reals, missing: Flags) -> pa.Array:
        """Typed dates, or timestamps where the hour is known; texts where they have a format."""
        units = found.astype(np.int64)
        if self.format is not None:
            number, place = np.unique(units, return_inverse=True)
            texts = pa.array(
                [moment_text(self.moment(each), self.format) for each in number.tolist()], pa.string()
            )
            return texts.take(pa.array(place, mask=missing))
        if self.per_day == 1:
            return pa.array(units.astype(np.int32), pa.int32(), mask=missing).cast(pa.date32())
        return pa.array(units * 3600, pa.int64(), mask=missing).cast(pa.timestamp("s"))


def period_of(moment: datetime, kind: str) -> Period:
    start = moment.replace(hour=moment.hour if kind == "hour" else 0, minute=0, second=0, microsecond=0)
    if kind == "week":
        start -= timedelta(days=start.weekday())
    elif months := _MONTHS_IN.get(kind):
        start = start.replace(day=1, month=(start.month - 1) // months * months + 1)
    return Period(kind, start)


def dates(
    name: str,
    first: str,
    last: str,
    by: str = "day",
    *,
    clamp: bool = False,
    missing: str | None = None,
    empty: tuple[str, ...] = (),
    format: str | None = None,
    unknown: str | None = None,
) -> Dates:
    """A column of dates from the period that holds the beginning of `first` to that which holds the end of `last`."""
    if by not in PERIODS:
        raise SchemaError(f"attribute '{name}': by must be one of {', '.join(PERIODS)}")
    start, stop = period_in(first), period_in(last)
    if start is None or stop is None:
        raise SchemaError(
            f"attribute '{name}': '{'from' if start is None else 'to'}' must be a date such as 2024, 2024-Q1, "
            "2024-03, 2024-03-01 or 2024-03-01T13"
        )
    if (stop.end - start.first) / _SHORTEST[by] > MAXIMAL_BINS:
        raise SchemaError(f"attribute '{name}' has more than {MAXIMAL_BINS:,} periods; take longer ones")
    if format is not None:
        check_format(format, f"attribute '{name}'", start.first.year, stop.first.year)
        if _SHORTEST[kind := kind_written(format)] > _SHORTEST[by]:
            raise SchemaError(
                f"attribute '{name}': 'format' names a {kind} and 'by' a {by}, which is shorter"
            )
    plan = Dates(name, (0.0, 1.0), by=by)
    edges, moment = [], period_of(start.first, by).first
    while moment < stop.end:
        edges.append(float(plan.number(moment)))
        moment = following(moment, by)
    if not edges:
        raise SchemaError(f"attribute '{name}' needs 'to' after 'from'")
    edges.append(plan.number(moment) - 0.5)
    said: dict[str, Any] = {
        "clamp": clamp,
        "missing": missing,
        "empty": empty,
        "format": format,
        "unknown": unknown,
    }
    return replace(plan, edges=tuple(edges), integer=True, spread=Spread.UNIFORM, **said)
