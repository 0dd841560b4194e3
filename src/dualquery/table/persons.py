"""Whose record a row is: at most K records of a person, or all rows of a basket as one record.

The schema's `unit` names the column that says it. That column is read, used here, and left behind: it is in no
domain and in no release. (Of a graph it may be one end of the edges: each belongs to its payer, whose name is public
as a vertex. Which edges there are is protected all the same.) An id is its canonical text (`cells`) without the
blanks around it, a whole number without its point and zeros, so that 17, 17.0 and "17 " are one person. A blank id
is nobody's: each such row is a person of its own. (Too few persons only hide more; a person under two ids is
protected less, and no program can know it.)

*At most K records of a person.* A person's records are sorted canonically, by their codes. Record j of them gets the
ticket mix(seed + jφ), where the seed is a hash of the id, and those with the K smallest tickets are kept. So what is
kept of a person depends on that person's id and records and on K, and on nothing else: not on how often others have
the same record, not on the order of the file. That is all that privacy needs (docs/schema.md). The tickets are for
accuracy: the first K in canonical order would favour small codes, and a choice by the records alone would drop the
same one from all persons with the same records.

*A unit that nobody named.* An id is no attribute: it tells who somebody is. Where it comes again, somebody has
several rows, and then a promise about one row is none about that person; the column is the `unit` (docs/schema.md).
That is for a person to say.

Which period a record belongs to: a public function of one of its cells, such as the day on which it arrived.

The schema names the column (`period`; it may be an attribute, too) and the `calendar`: day, week, month, quarter or
year. The calendar is fixed before a record is read and looks at one record at a time ("every 1,000 records" is no
period). So two tables that differ in one record differ in one period, and releases of different periods cost a
record no more than the dearest of them, for ever (docs/privacy.md). That needs releases that read no other period:
the program keeps the records of the periods that are asked for itself, one by one (`kept`), whatever file it was
given.

Periods are counted from the year 1, so that neighbouring ones differ by one.
"""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from datetime import date, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from dualquery.errors import DataError, SchemaError
from dualquery.table.cells import distinct, is_mixed, is_text, texts_of, written
from dualquery.table.columns import Unplaced
from dualquery.table.dates import Dates, Period, following, period_in, period_of, period_text
from dualquery.table.records import BitItems, ColumnCodes, SparseItems
from dualquery.table.toml_text import quoted
from dualquery.types import Integers, Reals

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_EXACT = 2.0**53  # from here on floats skip whole numbers
FEW = 20  # ids of places and kinds: regions, products
EACH = 100  # rows: an id with more is rather that of a place, unless its name says otherwise
_PERSON = (
    r"(patient|person|subject|client|customer|participant|respondent|employee|student|pupil|member|donor|user|"
    r"household|hh)"
)
_SHORT = r"(subj|cust|resp|emp|family|case|account|card)"
_ID = r"(id|key|uuid|guid|code)"
PERSONS = re.compile(
    rf"id|ids|uuid|guid|ssn|pid|uid|({_PERSON}|{_SHORT})[_\W]?{_ID}|id[_\W]?{_PERSON}", re.IGNORECASE
)
IDS = re.compile(
    rf"(?i:(^|[_\W])(id|ids|nr|no|number|key|uuid|guid|ssn|serial)$|^id[_\W]|^{_PERSON}$)|[a-z](Id|ID)$|^id(?=[A-Z])"
)


@dataclass(frozen=True)
class Owners:
    """Row r belongs to owner of[r]; the first owners have ids, those after them are rows with blank ids."""

    of: NDArray[np.int64]
    ids: pa.Array

    @property
    def number(self) -> int:
        return int(self.of.max(initial=-1)) + 1


def owners_of(cells: pa.ChunkedArray, name: str) -> Owners:
    if is_mixed(cells.type):
        cells = written(cells, name, lambda values, name: _canonical(values, name).to_pylist())
    held = distinct(cells, name)
    ids = _canonical(held.values, name).dictionary_encode()
    blank = ids.indices.is_null().to_numpy(zero_copy_only=False)
    place = ids.indices.fill_null(-1).to_numpy().astype(np.int64)
    place[blank] = -1
    of = np.append(place, -1)[held.index]
    alone = np.flatnonzero(of < 0)
    # Ids that stand in no row of the table (a source may list more than it uses) own nothing.
    of[alone] = len(ids.dictionary) + np.arange(len(alone))
    return Owners(of, ids.dictionary)


def _canonical(values: pa.Array, name: str) -> pa.Array:
    """The id that each cell spells, null where it is blank."""
    if pa.types.is_floating(values.type):
        floats = values.cast(pa.float64()).fill_null(0).to_numpy(zero_copy_only=False)
        if (np.abs(floats) >= _EXACT).any():
            raise DataError(
                f"column '{name}' holds ids as floating-point numbers too large to be told apart; "
                "give ids as texts or as whole numbers"
            )
    texts = values if is_text(values.type) else pa.array(texts_of(values, name), pa.large_string())
    texts = pc.utf8_trim_whitespace(texts.cast(pa.large_string()))
    texts = pc.replace_substring_regex(texts, r"^(-?[0-9]+)\.0*$", r"\1")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.large_string()), texts)


def kept_rows(owners: Owners, columns: tuple[ColumnCodes, ...], most: int) -> NDArray[np.int64]:
    """The rows that stay when everybody keeps at most so many records, in the order of the table."""
    if most < 1:
        raise DataError("a person keeps at least one record; give records per person as 1 or more")
    sizes = np.bincount(owners.of, minlength=owners.number)
    stays = sizes[owners.of] <= most
    rows = np.flatnonzero(~stays)
    if len(rows):
        rows = by_tickets(owners, columns, rows)
        stays[rows[places_of(owners.of[rows]) < most]] = True
    return np.flatnonzero(stays)


def by_tickets(
    owners: Owners, columns: tuple[ColumnCodes, ...], rows: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Some rows, owner by owner, those of each by their tickets: an order that depends on its own rows alone."""
    order = np.lexsort((*_canonical_keys(columns, rows)[::-1], owners.of[rows]))
    rows = rows[order]  # owner by owner, the records of each sorted by their codes
    owner = owners.of[rows]
    place = places_of(owner)
    tickets = _mixed(_seeds(owners, owner) + place.astype(np.uint64) * _GOLDEN)
    return rows[np.lexsort((place, tickets, owner))]


def places_of(owner: NDArray[np.int64]) -> NDArray[np.int64]:
    """The number of each row among those of its owner, who stand together."""
    number = np.arange(len(owner))
    begins = np.append(True, owner[1:] != owner[:-1])
    return number - np.maximum.accumulate(np.where(begins, number, 0))


def _seeds(owners: Owners, owner: NDArray[np.int64]) -> NDArray[np.uint64]:
    needed, index = np.unique(owner, return_inverse=True)
    return hashes_of(owners.ids.take(pa.array(needed)), b"records kept")[index]


def hashes_of(ids: pa.Array, purpose: bytes) -> NDArray[np.uint64]:
    """64 bits for each id, the same on any machine; for another purpose others."""
    digests = (hashlib.blake2b(each.encode(), digest_size=8, person=purpose) for each in ids.to_pylist())
    return np.array([int.from_bytes(each.digest(), "big") for each in digests], np.uint64)


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The output function of splitmix64 (Steele, Lea, Flood 2014)."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _canonical_keys(
    columns: tuple[ColumnCodes, ...], rows: NDArray[np.int64]
) -> list[NDArray[np.unsignedinteger]]:
    """Numbers by which records are sorted; equal where records are. Sets of items go by a hash of 128 bits."""
    keys: list[NDArray[np.unsignedinteger]] = []
    for codes in columns:
        if isinstance(codes, SparseItems):
            ends = zip(codes.start[rows].tolist(), codes.start[rows + 1].tolist(), strict=True)
            sets = (codes.ids[a:b].tobytes() for a, b in ends)
            digests = b"".join(hashlib.blake2b(each, digest_size=16).digest() for each in sets)
            halves = np.frombuffer(digests, np.uint64).reshape(-1, 2)
            keys += [halves[:, 0], halves[:, 1]]
        else:
            assert not isinstance(codes, BitItems), "encoding gives lists of items"
            keys.append(codes[rows])
    return keys


def baskets(owners: Owners, items: SparseItems, count: int) -> SparseItems:
    """One record an owner: all items of its rows, each once. Ids without a row have no record."""
    present, basket = np.unique(owners.of, return_inverse=True)
    key = np.unique(np.repeat(basket, np.diff(items.start)) * count + items.ids)
    start = np.searchsorted(key, np.arange(len(present) + 1) * count)
    return SparseItems(start.astype(np.int64), (key % count).astype(np.int32))


def looks_like_id(name: str) -> bool:
    return PERSONS.fullmatch(name.strip()) is not None or IDS.search(name.strip()) is not None


def repeats(name: str, number: int, rows: int) -> bool:
    """Whether so many ids in so many rows, under this name, are those of persons with several rows."""
    name = name.strip()
    if PERSONS.fullmatch(name):
        return 2 < number < rows
    return looks_like_id(name) and FEW < number < rows <= EACH * number


def no_unit(what: str, name: str) -> str:
    """The warning where nobody said whose row it is."""
    return (
        f"{what} '{name}' looks like the id of a person, and the schema names no unit: the promise is about one row, "
        f"not about somebody with several; if it is one, write unit = {quoted(name)} into [table] "
        '(docs/schema.md, "Persons with several records")'
    )


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
