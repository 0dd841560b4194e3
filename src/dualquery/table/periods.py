"""Which period a record belongs to: a public function of one of its cells, such as the day on which it arrived.

The schema names the column (`period`; it may be an attribute, too) and the `calendar`: day, week, month, quarter or
year. The calendar is fixed before a record is read and looks at one record at a time ("every 1,000 records" is no
period). So two tables that differ in one record differ in one period, and releases of different periods cost a
record no more than the dearest of them, for ever (docs/privacy.md). That needs releases that read no other period:
the program keeps the records of the periods that are asked for itself, one by one (`kept`), whatever file it was
given.

Periods are counted from the year 1, so that neighbouring ones differ by one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dualquery.errors import DataError, SchemaError
from dualquery.table.columns import Unplaced
from dualquery.table.dates import Dates, Period, following, period_in, period_of, period_text
from dualquery.types import Integers, Reals

CALENDARS = ("day", "week", "month", "quarter", "year")
DAYS, MONTHS = {"day": 1, "week": 7}, {"month": 1, "quarter": 3, "year": 12}  # in a period
EPOCH = date(1970, 1, 1).toordinal()
MOST_PERIODS = 10_000  # at once
_EXAMPLE = {"day": "2024-03-01", "week": "2024-W09", "month": "2024-03", "quarter": "2024-Q1", "year": "2024"}


@dataclass(frozen=True)
class Calendar:
    """A column of dates, and how time is cut."""

    column: str
    by: str

    def __post_init__(self) -> None:
        if self.by not in CALENDARS:
            raise SchemaError(f"a calendar is one of {', '.join(CALENDARS)}, not '{self.by}'")
        if not self.column.strip() or not self.column.isprintable():
            raise SchemaError("the period of a record is named by a column, and its name is blank")

    @property
    def words(self) -> str:
        return f"{self.by}s by '{self.column}'"

    def number(self, moment: datetime) -> int:
        """Of the period that holds a moment."""
        if self.by in DAYS:
            return (moment.toordinal() - 1) // DAYS[self.by]
        return (12 * moment.year + moment.month - 1) // MONTHS[self.by]

    def numbers(self, days: Reals) -> Integers:
        """The same of days since 1970."""
        whole = days.astype(np.int64)
        if self.by in DAYS:
            return (whole + EPOCH - 1) // DAYS[self.by]
        months = whole.astype("M8[D]").astype("M8[M]").astype(np.int64) + 12 * 1970
        found: Integers = months // MONTHS[self.by]
        return found

    def label(self, number: int) -> str:
        """As ISO 8601 writes the period: 2024-Q3."""
        if self.by in DAYS:
            start = datetime.fromordinal(number * DAYS[self.by] + 1)
        else:
            months = number * MONTHS[self.by]
            start = datetime(months // 12, months % 12 + 1, 1)
        return period_text(start, self.by)

    def span(self, text: str) -> Span:
        """The periods that a text names: `2024-Q3`, a year of four quarters, or `2024-Q1..2024-Q3`."""
        ends = [period_in(each) for each in text.split("..")]
        if not 1 <= len(ends) <= 2 or any(each is None for each in ends):
            raise DataError(
                f"'{text}' names no period; write one like {_EXAMPLE[self.by]}, or two with .. between them"
            )
        first, last = ends[0], ends[-1]
        assert first is not None
        assert last is not None
        if not (self._begins(first) and self._ends(last)):
            raise DataError(f"'{text}' is not made of whole {self.by}s, which is what the calendar has")
        span = Span(self, self.number(first.first), self.number(_last_day(last)))
        if not 0 < span.length <= MOST_PERIODS:
            raise DataError(f"'{text}' ends before it begins, or is longer than {MOST_PERIODS:,} {self.by}s")
        return span

    def _begins(self, period: Period) -> bool:
        return period_of(period.first, self.by).first == period.first

    def _ends(self, period: Period) -> bool:
        start = period_of(_last_day(period), self.by).first
        return following(start, self.by) == period.end


def _last_day(period: Period) -> datetime:
    return datetime.fromordinal(period.end.toordinal() - 1)


@dataclass(frozen=True)
class Span:
    """Periods of a calendar, from the first to the last. A release that is made of them reads no others."""

    calendar: Calendar
    first: int
    last: int

    def __str__(self) -> str:
        ends = [self.calendar.label(self.first), self.calendar.label(self.last)]
        return ends[0] if self.first == self.last else "..".join(ends)

    @property
    def length(self) -> int:
        return self.last - self.first + 1

    def parts(self, units: int) -> dict[int, int]:
        """What a charge of so many units costs the records of each period."""
        return dict.fromkeys(range(self.first, self.last + 1), units)

    @property
    def notes(self) -> tuple[str, ...]:
        """What a certificate adds."""
        return ()


@dataclass(frozen=True)
class RunningSpan(Span):
    """All periods from the first on; a record of k periods before the last counts as `weight(k)` of `whole` parts.

    A number of periods that is known beforehand makes running totals cheap (docs/privacy.md): with the lower
    triangular R of f_k = C(2k, k)/4^k, R·R is the matrix of ones. The noisy y = R_N x + z of R_N = round(N·R) give
    x̂ = R_N⁻¹ y, and the totals are sums of these. Gaussian noise on a count that a record moves by w of N parts costs
    it (w/N)² of what a whole record pays.
    """

    whole: int = 1

    def weight(self, back: int) -> int:
        return round(Fraction(self.whole * math.comb(2 * back, back), 4**back))

    def weights(self) -> dict[int, int]:
        return {period: self.weight(self.last - period) for period in range(self.first, self.last + 1)}

    def parts(self, units: int) -> dict[int, int]:
        return {c: -(-units * w**2 // self.whole**2) for c, w in self.weights().items()}

    @property
    def notes(self) -> tuple[str, ...]:
        return (
            f"a record of an earlier period counts in part, as one of the last does {self.whole} times; ask what it "
            "means through `dualquery series`",
        )


@dataclass(frozen=True)
class Stamp(Dates):
    """The column of dates, read as the period of each."""

    calendar: Calendar = Calendar("period", "day")

    @property
    def code_type(self) -> Any:
        return np.int64

    def bin_codes(self, found: Reals) -> Integers:
        empty = np.isnan(found)
        codes = self.calendar.numbers(np.where(empty, 0.0, found))
        codes[empty] = Unplaced.EMPTY
        return codes

    def advice(self, reason: Unplaced) -> str:
        if reason is Unplaced.EMPTY:
            return (
                "has empty cells, and it says to which period a record belongs; give every record its date, or leave "
                "out those without one"
            )
        return super().advice(reason)


def stamp(calendar: Calendar, columns: tuple[Any, ...]) -> Stamp:
    """How the column is written: as its attribute says, where it is one, and otherwise in ISO 8601."""
    known = next((each for each in columns if each.name == calendar.column), None)
    if known is not None and not isinstance(known, Dates):
        raise SchemaError(
            f"[table]: the period '{calendar.column}' is an attribute without dates; give it 'from', 'to' and 'by'"
        )
    format = None if known is None else known.format
    return Stamp(calendar.column, (0.0, 1.0), by=calendar.by, format=format, calendar=calendar)


def kept(cells: pa.ChunkedArray, span: Span, columns: tuple[Any, ...]) -> NDArray[np.bool_]:
    """Which records belong to these periods; DataError where one has no period at all."""
    codes = stamp(span.calendar, columns).encode(cells)
    found: NDArray[np.bool_] = (codes >= span.first) & (codes <= span.last)
    return found
