"""To which period a record belongs, and that records of others are read by nobody."""

from __future__ import annotations

from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

from dualquery import DataError, SchemaError, encode
from dualquery.counting.opening import open_counter
from dualquery.queries.derived import number_of_records
from dualquery.table.dates import period_of, period_text
from dualquery.table.persons import CALENDARS, Calendar, kept
from dualquery.table.schema import parse_schema, schema_text

SCHEMA = """
[table]
period = "received"
calendar = "quarter"

[[attribute]]
name = "sex"
values = ["f", "m"]
"""


def schema(text: str = SCHEMA):
    return parse_schema(text, origin="the schema")


def table(*rows: tuple[object, str]) -> pa.Table:
    return pa.table({"received": [each for each, _ in rows], "sex": [sex for _, sex in rows]})


@pytest.mark.parametrize("by", CALENDARS)
def test_a_day_lies_in_the_period_that_its_label_names(by: str) -> None:
    calendar, day = Calendar("received", by), date(1, 1, 1)
    days = [day + timedelta(days=int(n)) for n in np.random.default_rng(0).integers(0, 3_600_000, 400)]
    days += [date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29), date(2024, 12, 30), date(2020, 12, 31)]
    numbers = calendar.numbers(np.array([(each - date(1970, 1, 1)).days for each in days], float))
    for each, number in zip(days, numbers.tolist(), strict=True):
        moment = datetime(each.year, each.month, each.day)
        assert number == calendar.number(moment)
        assert calendar.label(number) == period_text(period_of(moment, by).first, by)
        assert calendar.span(calendar.label(number)).first == number
    assert calendar.number(datetime(2024, 1, 1)) + {
        "day": 366,
        "week": 53,
        "month": 12,
        "quarter": 4,
        "year": 1,
    }[by] >= calendar.number(datetime(2025, 1, 1))


def test_spans_of_whole_periods_and_of_no_others() -> None:
    calendar = Calendar("received", "quarter")
    assert str(calendar.span("2024Q3")) == "2024-Q3"
    assert str(calendar.span("2024")) == "2024-Q1..2024-Q4"
    assert calendar.span("2023-Q4..2024-Q2").length == 3
    for text in (
        "2024-07",
        "2024-W09",
        "2024-07-03",
        "2024-Q2..2024-Q1",
        "Q3",
        "",
        "2024..2025..2026",
        "1..9999",
    ):
        with pytest.raises(DataError):
            calendar.span(text)


@pytest.mark.parametrize("typed", [False, True])
def test_only_the_records_of_the_period_are_read(typed: bool) -> None:
    days = ["2024-06-30", "2024-07-01", "2024-09-30", "2024-10-01", "2024-08-01T23:59"]
    cells = [datetime.fromisoformat(day) for day in days] if typed else days
    given = table(*zip(cells, "fmmfm", strict=True))
    records = encode(given, schema().during("2024-Q3"))
    assert np.asarray(records.columns[0]).tolist() == [1, 1, 1]
    assert encode(given, schema()).rows == 5
    assert encode(given, schema().during("2025")).rows == 0


def test_what_other_periods_hold_is_not_looked_at() -> None:
    """A value without a place is an error in its own period, and nothing in another."""
    given = table(("2024-01-01", "f"), ("2024-07-01", "neither"))
    assert encode(given, schema().during("2024-Q1")).rows == 1
    with pytest.raises(DataError, match="sex"):
        encode(given, schema().during("2024-Q3"))


@pytest.mark.parametrize("cell", [None, "", "  "])
def test_a_record_without_a_period_is_refused(cell: str | None) -> None:
    with pytest.raises(DataError, match="column 'received' has empty cells"):
        encode(table(("2024-01-01", "f"), (cell, "m")), schema().during("2024-Q1"))


@pytest.mark.parametrize("cell", ["2024", "2024-13-01", "yesterday", "10000-01-01"])
def test_a_record_outside_of_the_calendar_is_refused(cell: str) -> None:
    with pytest.raises(DataError, match="column 'received' holds cells that are no dates") as refused:
        encode(table(("2024-01-01", "f"), (cell, "m")), schema().during("2024-Q1"))
    assert "\n" not in str(refused.value)


def test_an_attribute_may_be_the_period_and_is_read_as_it_is_written() -> None:
    text = (
        SCHEMA
        + '\n[[attribute]]\nname = "received"\nfrom = "2024"\nto = "2024"\nby = "month"\nformat = "%d.%m.%Y"\n'
    )
    records = encode(table(("30.06.2024", "f"), ("01.07.2024", "m")), schema(text).during("2024-Q3"))
    assert [np.asarray(each).tolist() for each in records.columns] == [[1], [6]]


def test_a_person_keeps_so_many_records_of_each_period() -> None:
    text = SCHEMA.replace("period =", 'unit = "id"\nperiod =')
    rows = [
        ("2024-01-01", "f"),
        ("2024-02-01", "f"),
        ("2024-07-01", "m"),
        ("2024-08-01", "m"),
        ("2024-09-01", "m"),
    ]
    given = table(*rows).append_column("id", pa.array(["a"] * 5))
    found = {
        q: encode(given, schema(text).during(q), records_per_person=2).rows for q in ("2024-Q1", "2024-Q3")
    }
    assert found == {"2024-Q1": 2, "2024-Q3": 2}


def test_large_files_are_filtered_as_small_ones(tmp_path) -> None:
    rows = [f"2024-{1 + n % 12:02}-15,{'fm'[n % 2]}" for n in range(20_000)]
    path = tmp_path / "many.csv"
    path.write_text("received,sex\n" + "\n".join(rows) + "\n")
    wanted = schema().during("2024-Q3")
    for memory in (10, None):
        counter = open_counter(path, wanted, memory=memory)
        assert counter.within == wanted.within
        assert counter.true_counts(number_of_records(wanted.domain)).tolist() == [
            sum(r[5:7] in "07 08 09" for r in rows)
        ]


def test_the_file_of_a_schema_has_its_calendar() -> None:
    assert parse_schema(schema_text(schema()), origin="again").calendar == Calendar("received", "quarter")
    for wrong in (
        SCHEMA.replace('calendar = "quarter"\n', ""),
        SCHEMA.replace("quarter", "decade"),
        SCHEMA.replace('"received"', '" "'),
        SCHEMA.replace('"received"', '"sex"'),
        SCHEMA.replace("period =", 'unit = "received"\nperiod ='),
    ):
        with pytest.raises(SchemaError):
            schema(wrong)
    with pytest.raises(DataError, match="the schema has none"):
        schema(SCHEMA.split("[[")[1].join(["[[", ""])).during("2024")


def test_every_record_is_judged_by_itself() -> None:
    span = Calendar("received", "month").span("2024-03")
    cells = [f"2024-{month:02}-{day:02}" for month in (2, 3, 4) for day in (1, 15, 28)]
    together = kept(pa.chunked_array([cells]), span, ())
    assert together.tolist() == [bool(kept(pa.chunked_array([[each]]), span, ())[0]) for each in cells]
